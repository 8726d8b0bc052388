"""The command `attnlab`, outside the package: Ctrl-C while that is imported shows one line, too."""

import sys


def main() -> int:
    """Run one command and return its exit status, see `attnlab.cli.command`."""
    try:
        from attnlab.cli.command import main as run
    except KeyboardInterrupt:
        print("Interrupted", file=sys.stderr)
        return 130
    return run()
