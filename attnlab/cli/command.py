"""Run the command `attnlab`.

The exit status is 0 after success, 1 if `verify` found a difference, 2 after bad usage, an
`AttnlabError` or output that can't be written, 130 after Ctrl-C, 141 if the output pipe is closed.
"""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.support.console import exit_status
from attnlab.support.language import language_option, using_language


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status, see the module's docstring."""
    with using_language(language_option(arguments)):
        return exit_status(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    # These imports are here, so that Ctrl-C during them shows one line, not a traceback.
    from attnlab.cli.arguments import parser
    from attnlab.cli.subcommands import COMMANDS

    options = parser().parse_args(arguments)
    return COMMANDS[options.command](options) or 0
