"""`python -m attnlab`, the same as the command `attnlab`."""

import sys

from attnlab.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
