"""The command `attnlab`: traces, explanations and verdicts in a terminal, or as JSON.

Exit statuses: 0 fine; 1 published figures disagree, or are another model's, or what was checked
does not agree; 2 bad usage, an `AttnlabError`, or output that can't be written, told on stderr; 130
after Ctrl-C; 141 when nobody reads the output any more.

With `--json` one object is printed, as `attnlab/cli/cli.schema.json` describes it; notices go to
stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.cli.arguments import parser
from attnlab.cli.subcommands import COMMANDS
from attnlab.support.console import exit_status
from attnlab.views.terminal import Terminal


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status, see the module's docstring."""
    return exit_status(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    options = parser().parse_args(arguments)
    report = COMMANDS[options.command](options)
    if options.json:
        print(json.dumps(_plain({"command": options.command, **report.content})))
    else:
        terminal = Terminal()
        for piece in report.shown:
            terminal.show(piece)
    sys.stdout.flush()
    report.then()
    return report.status


def _plain(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, numbers that are not finite as null."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
