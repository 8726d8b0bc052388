"""The command `attnlab`, which shows only one line at Ctrl-C, even while the package is imported.

It is installed beside the package, since loading a module of the package would import it first.
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
