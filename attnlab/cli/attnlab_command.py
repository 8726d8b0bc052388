"""The command `attnlab`: Ctrl-C while the package is imported shows one line, too.

It is installed beside the package, whose import it watches.
"""

import sys


def main() -> int:
    """Run one command and return its exit status, see `attnlab.cli.command`."""
    try:
        from attnlab.cli.command import main as run
    except KeyboardInterrupt:
        print("Interrupted", file=sys.stderr)
        return 130
    return run()
