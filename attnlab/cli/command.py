"""Run the command `attnlab`.

Exit statuses: 0 success; 1 `verify` or `check` found a difference; 2 bad usage, an `AttnlabError`,
or output that can't be written; 130 after Ctrl-C; 141 if the output pipe is closed.

With `--json`, stdout has one object, see `attnlab/cli/cli.schema.json`; notices go to stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.support.console import exit_status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status, see the module's docstring."""
    return exit_status(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    # Imported here, so that Ctrl-C during these imports shows one line, not a traceback.
    from attnlab.cli.arguments import parser
    from attnlab.cli.subcommands import COMMANDS
    from attnlab.views.terminal import Terminal

    options = parser().parse_args(arguments)
    report = COMMANDS[options.command](options)
    if options.json:
        print(json.dumps(_plain({"command": options.command, **report.content})))
    else:
        terminal = Terminal()
        for piece in report.shown:
            terminal.show(piece)
    sys.stdout.flush()
    report.after_printing()
    return report.status


def _plain(value: Any) -> Any:
    """Convert a value for JSON: arrays to lists, non-finite numbers to null."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
