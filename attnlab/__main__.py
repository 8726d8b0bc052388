"""Run the command `attnlab` as `python -m attnlab`."""

import sys

from attnlab.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
