"""The command `attnlab`: traces, explanations and verdicts in a terminal, or as JSON.

Exit statuses: 0 fine; 1 published figures disagree, or are another model's; 2 bad usage, an
`AttnlabError`, or output that can't be written, told on stderr; 130 after Ctrl-C; 141 when nobody
reads the output any more.

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
from attnlab.attention import PER_HEAD
from attnlab.checkpoint import Checkpoint, parameter_count
from attnlab.errors import AttnlabError
from attnlab.hub import find_model
from attnlab.model import GPT2
from attnlab.steps import AnyArray
from attnlab.tables import ELLIPSIS, display_width, elide, printable
from attnlab.tokenizer import Token, Tokens
from attnlab.views.labels import TOKENS_SHOWN, label, labelled, missing_extra

if TYPE_CHECKING:
    from rich.console import Console

# The most columns of a table, however wide the terminal is.
COLUMNS_SHOWN = 16

CLOSED_PIPE = 141
INTERRUPTED = 130


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
    draw: Callable[[Console], None]
    status: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status, see the module's docstring."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed before Python began
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    try:
        options = _parser().parse_args(arguments)
        _tolerate_encodings()
        if not options.json:
            _find_rich()
        report: Report = options.run(options)
        if options.json:
            print(json.dumps(_plain({"command": options.command, **report.content})))
        else:
            report.draw(_console())
        sys.stdout.flush()
    except AttnlabError as error:
        print(*map(printable, str(error).splitlines()), sep="\n", file=sys.stderr)
        return 2
    except OSError as error:
        # What is still buffered must not be written when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return CLOSED_PIPE
        print(f"the output can't be written: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
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

    def text_and_head(added: Parser) -> None:
        added.add_argument("text", help="the text that is traced")
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
    html = command("html", _html, "write a page to look around in, for any browser")
    html.add_argument("text", help="the text that is traced")
    html.add_argument("-o", "--output", default="attention.html", help="(default: %(default)s)")
    after = command("next", _next, "which tokens may follow a text")
    after.add_argument("text", help="the text that is traced")
    after.add_argument("-k", type=int, default=5, help="how many (default: %(default)s)")
    download = command("download", _download, "fetch a model into the hub's cache", model=False)
    download.add_argument("name", help="such as gpt2, gpt2-medium, distilgpt2, or owner/name")
    command("info", _info, "a model's sizes, and where its files are")
    return parser


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
    model = _model(options)
    trace = model.trace(options.text)
    head = trace.head(options.layer, options.head)
    names = options.step or [n for n in PER_HEAD if head.peek(n) is not None]
    steps = [labelled(head, name) for name in names]

    def draw(console: Console) -> None:
        _heading(console, head.title)
        _tokens(console, trace.tokens)
        for step in steps:
            rows, *columns = step.axes
            array = step.array if columns else step.array[:, np.newaxis]
            _matrix(
                console,
                step.heading,
                array,
                rows.labels,
                columns[0].labels if columns else [step.name],
                decimals=2 if "key" in [axis.name for axis in columns] else 4,
                masked=step.masked,
            )

    content = {
        "model": _title(model),
        "tokens": _token_list(trace.tokens),
        **_which_head(options, model),
        "steps": [
            {
                "name": step.name,
                "heading": step.heading,
                "axes": [axis.name for axis in step.axes],
                "shape": step.array.shape,
                "values": step.array,
            }
            for step in steps
        ],
    }
    return Report(content, draw)


def _explain(options: argparse.Namespace) -> Report:
    model = _model(options)
    trace = model.trace(options.text)
    explanation = trace.head(options.layer, options.head).explain(options.query, options.key)

    def draw(console: Console) -> None:
        _print(console, explanation.text(max(console.width, 1)))

    content = {
        "model": _title(model),
        "tokens": _token_list(trace.tokens),
        **_which_head(options, model),
        "title": explanation.title,
        "numbers": explanation.numbers,
    }
    return Report(content, draw)


def _walkthrough(options: argparse.Namespace) -> Report:
    model = _model(options)
    steps = list(walkthrough.walk(model, layer=options.layer, head=options.head))

    def draw(console: Console) -> None:
        _print(console, f"Prompt: {walkthrough.PROMPT}\n")
        for step in steps:
            _matrix(console, step.heading, step.array, step.rows, step.columns, step.decimals)

    content = {
        "model": _title(model),
        "prompt": walkthrough.PROMPT,
        **_which_head(options, model),
        "steps": [
            {
                "name": step.name,
                "heading": step.heading,
                "shape": step.array.shape,
                "values": step.array,
            }
            for step in steps
        ],
    }
    return Report(content, draw)


def _verify(options: argparse.Namespace) -> Report:
    model = _model(options)
    verdict = walkthrough.reproduce(model)

    def draw(console: Console) -> None:
        _print(console, verdict.heading)
        if verdict.tables:
            _table(console, verdict.lines(), left=(0, 4))
        _print(console, verdict.conclusion)

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
    model = _model(options)
    model.trace(options.text).save(options.output)
    path = os.path.abspath(options.output)
    return Report({"model": _title(model), "path": path}, lambda console: _print(console, path))


def _next(options: argparse.Namespace) -> Report:
    model = _model(options)
    trace = model.trace(options.text)
    tokens = trace.next_tokens(options.k)

    def draw(console: Console) -> None:
        _table(console, tokens.lines(), left=(1, 2))

    following = [
        {**_token(token), "logit": token.logit, "probability": token.probability}
        for token in tokens
    ]
    content = {"model": _title(model), "tokens": _token_list(trace.tokens), "next": following}
    return Report(content, draw)


def _download(options: argparse.Namespace) -> Report:
    directory = str(find_model(options.name))
    content = {"name": options.name, "directory": directory}
    return Report(content, lambda console: _print(console, directory))


def _info(options: argparse.Namespace) -> Report:
    model = _model(options)
    config = asdict(model.config)
    parameters = model.parameters
    directory = str(parameters.directory) if isinstance(parameters, Checkpoint) else None

    def draw(console: Console) -> None:
        _print(console, repr(model))
        _table(
            console, [["config", ""], *([name, str(config[name])] for name in config)], left=(0,)
        )

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


def _find_rich() -> None:
    """Tell before any work that rich is missing, which draws what is not JSON."""
    try:
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing_extra(error, "cli") from None


def _tolerate_encodings() -> None:
    """Print escapes where the terminal's encoding lacks a character, and do not fail."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _console() -> Console:
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Terminal(highlight=False, markup=False, emoji=False)


def _print(console: Console, text: str) -> None:
    from rich.text import Text

    for line in text.splitlines():
        console.print(Text(printable(line)), overflow="fold")


def _heading(console: Console, text: str) -> None:
    from rich.text import Text

    console.print(Text(printable(text), style="bold"))


def _tokens(console: Console, tokens: Tokens) -> None:
    header, *lines = tokens.lines()
    shown = (lines[i] if i is not None else [ELLIPSIS] * 6 for i in elide(len(lines), TOKENS_SHOWN))
    _table(console, [header, *shown], left=(2, 3, 4, 5))


def _table(console: Console, lines: Sequence[Sequence[str]], left: Sequence[int]) -> None:
    """A table with a header; where it is too wide, words are folded, and numbers are not."""
    from rich.table import Table
    from rich.text import Text

    header, *rows = lines
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, name in enumerate(header):
        if column in left:
            table.add_column(name, overflow="fold")
        else:
            widest = max(len(row[column]) for row in rows)
            table.add_column(name, justify="right", overflow="fold", min_width=widest)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)
    console.print()


def _matrix(
    console: Console,
    heading: str,
    array: AnyArray,
    row_names: Sequence[object],
    column_names: Sequence[object],
    decimals: int,
    masked: AnyArray | None = None,
) -> None:
    """A matrix with labels, as many of its columns as the terminal's width holds.

    What is masked is dim, each row's largest number bold.
    """
    from rich.table import Table
    from rich.text import Text

    is_mask = array.dtype == bool

    def cell(i: int, j: int) -> Text:
        text = str(array[i, j]) if is_mask else f"{array[i, j]:z.{decimals}f}"
        if masked is not None and masked[i, j]:
            return Text(text, style="dim")
        largest = masked is not None and not is_mask and array[i, j] == array[i].max()
        return Text(text, style="bold" if largest else "")

    names = [label(str(name)) for name in column_names]
    rows = elide(len(array), TOKENS_SHOWN)
    labels = ["" if i is None else label(str(row_names[i])) for i in rows]
    cells = {(i, j): cell(i, j) for i in rows if i is not None for j in range(array.shape[1])}
    left = max(map(display_width, labels))
    widest = max(*(display_width(name) for name in names), *(len(cell) for cell in cells.values()))
    room = console.width - left
    if array.shape[1] > min(room // (widest + 2), COLUMNS_SHOWN):
        room -= display_width(ELLIPSIS) + 2  # the gap is a column too
    fit = room // (widest + 2)
    columns = elide(array.shape[1], min(max(fit, 2), COLUMNS_SHOWN))
    _heading(console, f"{heading}    {' x '.join(map(str, array.shape))}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for j in columns:
        table.add_column(ELLIPSIS if j is None else Text(names[j]), justify="right", no_wrap=True)
    for i, name in zip(rows, labels, strict=True):
        line = (Text(ELLIPSIS) if i is None or j is None else cells[i, j] for j in columns)
        table.add_row(Text(name if i is not None else ELLIPSIS), *line)
    console.print(table)
    console.print()
