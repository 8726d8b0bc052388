"""The command `attnlab`: traces, explanations and verdicts in a terminal, or as JSON.

Exit statuses: 0 fine; 1 published figures disagree, or are another model's, or what was checked
does not agree; 2 bad usage, an `AttnlabError`, or output that can't be written, told on stderr; 130
after Ctrl-C; 141 when nobody reads the output any more.

With `--json` one object is printed, as `attnlab/cli.schema.json` describes it; notices go to
stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from attnlab import walkthrough
from attnlab.chain import PER_HEAD
from attnlab.checking import check
from attnlab.checkpoint import Checkpoint
from attnlab.console import exit_status
from attnlab.errors import InvalidValueError, MissingFileError
from attnlab.files import as_path, open_regular
from attnlab.hub import find_model
from attnlab.model import GPT2
from attnlab.parameters import parameter_count
from attnlab.steps import Result
from attnlab.tables import printable
from attnlab.tokens import Token, Tokens
from attnlab.views.shown import Shown, shown

if TYPE_CHECKING:
    from attnlab.views.terminal import Terminal


@dataclass(frozen=True)
class Report:
    """What a command has found out.

    Attributes
    ----------
    content : for machines; arrays, bytes and numbers that are not finite may be in it
    draw : shows it to people
    status : the exit status
    """

    content: dict[str, Any]
    draw: Callable[[Terminal], None]
    status: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status, see the module's docstring."""
    return exit_status(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    terminal = None if options.json else _terminal()
    report: Report = options.run(options)
    if terminal is None:
        print(json.dumps(_plain({"command": options.command, **report.content})))
    else:
        report.draw(terminal)
    return report.status


class Parser(argparse.ArgumentParser):
    """A parser whose messages have control characters as escapes."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def _parser() -> Parser:
    parser = Parser(prog="attnlab", description="Look inside GPT-2's attention.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], Report], help: str, model: bool = True
    ) -> Parser:
        added: Parser = commands.add_parser(name, help=help, description=help)
        added.set_defaults(run=run)
        added.add_argument("--json", action="store_true", help="print JSON, for machines")
        if model:
            added.add_argument(
                "--model",
                help="directory, name on the hub, or pocket; without it what ATTNLAB_MODEL says, "
                "else GPT-2 where it is in the cache, else pocket",
            )
        return added

    def text(added: Parser) -> None:
        added.add_argument("text", help="the text that is traced")
        added.add_argument(
            "--edit",
            action="append",
            default=[],
            type=_edit,
            metavar="PATH=NUMBER",
            help="what a step is instead, such as blocks.1.attention.heads.2.context=0; of a mask "
            "True or False; may be given several times",
        )

    def text_and_head(added: Parser) -> None:
        text(added)
        head(added)

    def head(added: Parser) -> None:
        added.add_argument("--layer", type=int, default=0, help="from 0; -1 is the last")
        added.add_argument("--head", type=int, default=0, help="from 0; -1 is the last")

    trace = command("trace", _trace, "tables of one head's steps")
    text_and_head(trace)
    trace.add_argument(
        "--step",
        action="append",
        help="a step's name, such as weights; may be given several times (default: all from Q to "
        "context)",
    )
    explain = command("explain", _explain, "the arithmetic of one weight, or of a row of weights")
    text_and_head(explain)
    explain.add_argument("--query", type=int, default=-1, help="which token asks (default: last)")
    explain.add_argument("--key", type=int, help="which token is looked at (default: the row)")
    walk = command("walkthrough", _walkthrough, "the published walkthrough, step by step")
    head(walk)
    command("verify", _verify, "hold the model against published figures; status 1 if it differs")
    html = command(
        "html", _html, "write a page to look around in, for any browser; with edits, of both"
    )
    text(html)
    html.add_argument("-o", "--output", default="attention.html", help="(default: %(default)s)")
    after = command("next", _next, "which tokens may follow a text")
    text(after)
    after.add_argument("-k", type=int, default=5, help="how many (default: %(default)s)")
    check = command("check", _check, "what is wrong in your own code's numbers; status 1 if any is")
    check.add_argument("file", help="such as mine.npz, written by numpy.savez(file, weights=...)")
    check.add_argument("--text", required=True, help="the text that your code was given")
    check.add_argument("--layer", type=int, help="if the names in the file are those of a layer")
    check.add_argument("--head", type=int, help="if they are those of one head of it")
    download = command("download", _download, "fetch a model into the hub's cache", model=False)
    download.add_argument("name", help="such as gpt2, gpt2-medium, distilgpt2, or owner/name")
    command("info", _info, "a model's sizes, and where its files are")
    return parser


def _edit(given: str) -> tuple[str, bool | int | float]:
    """A path, and the number that takes the place of what it leads to."""
    path, _, value = given.partition("=")
    if value in ("True", "False"):
        return path, value == "True"
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return path, number(value)
    raise argparse.ArgumentTypeError(f"{given!r:.80} is not PATH=NUMBER")


def _model(options: argparse.Namespace) -> GPT2:
    if options.model is not None:
        return GPT2.from_pretrained(options.model)
    with contextlib.redirect_stdout(sys.stderr):  # its notice is no part of the answer
        return GPT2.at_hand()


def _which_head(options: argparse.Namespace, model: GPT2) -> dict[str, int]:
    """Layer and head from the front, where they were counted from the end."""
    layer, head = options.layer % model.config.n_layer, options.head % model.config.n_head
    return {"layer": layer, "head": head}


def _trace(options: argparse.Namespace) -> Report:
    model, edits = _model(options), dict(options.edit)
    trace = model.trace(options.text).edited(edits)
    head = trace.head(options.layer, options.head)
    names = options.step or [n for n in PER_HEAD if n != "dropout_mask"]
    steps = [shown(head, name) for name in names]

    def draw(terminal: Terminal) -> None:
        terminal.heading(head.title)
        terminal.tokens(trace.tokens)
        for step in steps:
            terminal.step(step)

    content = {
        "model": _title(model),
        "tokens": _token_list(trace.tokens),
        "edits": edits,
        **_which_head(options, model),
        "steps": [{**_step(step), "axes": [axis.name for axis in step.axes]} for step in steps],
    }
    return Report(content, draw)


def _explain(options: argparse.Namespace) -> Report:
    model, edits = _model(options), dict(options.edit)
    trace = model.trace(options.text).edited(edits)
    explanation = trace.head(options.layer, options.head).explain(options.query, options.key)

    def draw(terminal: Terminal) -> None:
        terminal.write(explanation.text(max(terminal.width, 1)))

    content = {
        "model": _title(model),
        "tokens": _token_list(trace.tokens),
        "edits": edits,
        **_which_head(options, model),
        "title": explanation.title,
        "numbers": explanation.numbers,
    }
    return Report(content, draw)


def _walkthrough(options: argparse.Namespace) -> Report:
    model = _model(options)
    steps = list(walkthrough.walk(model, layer=options.layer, head=options.head))

    def draw(terminal: Terminal) -> None:
        terminal.write(f"Prompt: {walkthrough.PROMPT}\n")
        for step in steps:
            terminal.step(step)

    content = {
        "model": _title(model),
        "prompt": walkthrough.PROMPT,
        **_which_head(options, model),
        "steps": [_step(step) for step in steps],
    }
    return Report(content, draw)


def _verify(options: argparse.Namespace) -> Report:
    model = _model(options)
    verdict = walkthrough.reproduce(model)

    def draw(terminal: Terminal) -> None:
        terminal.write(verdict.heading)
        if verdict.tables:
            terminal.table(verdict.lines(), left=(0, 4))
        terminal.write(verdict.conclusion)

    tables = [{**asdict(table), "agrees": table.agrees} for table in verdict.tables]
    content = {
        "model": _title(model),
        "prompt": verdict.prompt,
        "agrees": verdict.agrees,
        "reason": verdict.reason,
        "tables": tables,
    }
    return Report(content, draw, 0 if verdict.agrees else 1)


def _html(options: argparse.Namespace) -> Report:
    model, edits = _model(options), dict(options.edit)
    trace = model.trace(options.text)
    trace.save(options.output, trace.edited(edits) if edits else None)
    path = os.path.abspath(options.output)
    content = {"model": _title(model), "edits": edits, "path": path}
    return Report(content, lambda terminal: terminal.write(path))


def _next(options: argparse.Namespace) -> Report:
    model, edits = _model(options), dict(options.edit)
    trace = model.trace(options.text).edited(edits)
    tokens = trace.next_tokens(options.k)

    def draw(terminal: Terminal) -> None:
        if edits:
            terminal.heading(trace.title)
        terminal.table(tokens.lines(), left=(1, 2))

    following = [
        {**_token(token), "logit": token.logit, "probability": token.probability}
        for token in tokens
    ]
    content = {
        "model": _title(model),
        "tokens": _token_list(trace.tokens),
        "edits": edits,
        "next": following,
    }
    return Report(content, draw)


def _check(options: argparse.Namespace) -> Report:
    mine = _arrays(options.file)
    model = _model(options)
    trace = model.trace(options.text)
    result: Result = trace
    if options.layer is not None or options.head is not None:
        result = trace.blocks[options.layer or 0].attention
    if options.head is not None:
        result = trace.head(options.layer or 0, options.head)
    verdict = check(mine, result)

    def draw(terminal: Terminal) -> None:
        terminal.write(repr(verdict))

    content = {
        "model": _title(model),
        "tokens": _token_list(trace.tokens),
        "title": verdict.title,
        "agrees": verdict.agrees,
        "first": verdict.first.path if verdict.first else None,
        "steps": [{**asdict(stage), "agrees": stage.agrees} for stage in verdict.stages],
        "mistakes": [{"formula": one.formula, "hint": one.hint} for one in verdict.mistakes],
        "unexplained": verdict.unexplained,
        "differing": verdict.differing,
        "cells": [cell._asdict() for cell in verdict.cells],
    }
    return Report(content, draw, 0 if verdict.agrees else 1)


def _arrays(path: str) -> dict[str, Any]:
    """The arrays in a file that `numpy.savez` wrote.

    Raises
    ------
    MissingFileError, InvalidValueError
        There is no such file, or it is none of those.
    """
    file = as_path(path, "file")
    try:
        with open_regular(file) as stream:
            arrays = np.load(stream, allow_pickle=False)
            if isinstance(arrays, np.ndarray):
                raise ValueError("it is one array without a name, as numpy.save writes it")
            return dict(arrays)
    except FileNotFoundError:
        raise MissingFileError(f"there is no {file.name} in {file.parent}") from None
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds
        raise InvalidValueError(
            f"{file} can't be read as arrays that numpy.savez wrote: {error}"
        ) from None


def _download(options: argparse.Namespace) -> Report:
    directory = str(find_model(options.name))
    content = {"name": options.name, "directory": directory}
    return Report(content, lambda terminal: terminal.write(directory))


def _info(options: argparse.Namespace) -> Report:
    model = _model(options)
    config = asdict(model.config)
    parameters = model.parameters
    directory = str(parameters.directory) if isinstance(parameters, Checkpoint) else None

    def draw(terminal: Terminal) -> None:
        terminal.write(repr(model))
        terminal.table([["config", ""], *([name, str(config[name])] for name in config)], left=(0,))

    content = {
        "model": _title(model),
        "config": config,
        "parameters": parameter_count(model.config),
        "dtype": str(parameters.dtype),
        "directory": directory,
    }
    return Report(content, draw)


def _title(model: GPT2) -> str:
    return repr(model).partition("\n")[0]


def _step(step: Shown) -> dict[str, Any]:
    return {
        "name": step.name,
        "heading": step.heading,
        "shape": step.array.shape,
        "values": step.array,
    }


def _token(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "symbol": token.symbol,
        "text": token.text,
        "bytes": token.bytes.hex(),
    }


def _token_list(tokens: Tokens) -> list[dict[str, Any]]:
    return [_token(token) for token in tokens]


def _plain(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, numbers that are not finite as null."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _terminal() -> Terminal:
    """Where to draw; told before any work where rich is missing, which what is not JSON needs."""
    from attnlab.views.terminal import Terminal

    return Terminal()
