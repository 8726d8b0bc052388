"""The command `attnlab`: traces, explanations and verdicts in a terminal, or as JSON.

Exit statuses: 0 fine; 1 published figures disagree, or are another model's, or what was checked
does not agree; 2 bad usage, an `AttnlabError`, or output that can't be written, told on stderr; 130
after Ctrl-C; 141 when nobody reads the output any more.

With `--json` one object is printed, as `attnlab/cli/cli.schema.json` describes it; notices go to
stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import re
import shlex
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from attnlab import __version__, walkthrough
from attnlab.analysis.lens import Lens
from attnlab.checking.comparison import WORDS, lines_of
from attnlab.checking.verdict import check
from attnlab.checkpoints.checkpoint import Checkpoint
from attnlab.checkpoints.hub import find_model
from attnlab.corpus import MEASURES, atlas, open_atlas
from attnlab.corpus.result import RESULT, Measured
from attnlab.corpus.run import PAGE
from attnlab.corpus.worker import begin
from attnlab.errors import InvalidValueError, MissingFileError, WriteError
from attnlab.forward.attention import PER_HEAD, Head, MultiHeadAttention
from attnlab.forward.parameters import parameter_count
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import NextToken, Trace
from attnlab.steps import Result, step_at
from attnlab.support.checks import as_count
from attnlab.support.console import exit_status
from attnlab.support.files import LARGEST, as_path, decoded_text, open_regular, read_text
from attnlab.support.tables import align, printable
from attnlab.text.tokens import Token, Tokens
from attnlab.views.explain import PROBABILITIES, explain
from attnlab.views.page.page import is_page
from attnlab.views.shown import Shown, check_step, shown
from attnlab.views.terminal import Terminal

# A token by its number, negative ones counted from the end; all else is a token's text.
NUMBER = re.compile(r"-?[0-9]+")


@dataclass(frozen=True)
class Report:
    """What a command has found out.

    Attributes
    ----------
    content : for machines; arrays, bytes and numbers that are not finite may be in it
    draw : shows it to people
    status : the exit status
    then : what is done once that has been printed
    """

    content: dict[str, Any]
    draw: Callable[[Terminal], None]
    status: int = 0
    then: Callable[[], None] = lambda: None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status, see the module's docstring."""
    return exit_status(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    report: Report = options.run(options)
    if options.json:
        print(json.dumps(_plain({"command": options.command, **report.content})))
    else:
        report.draw(Terminal())
    sys.stdout.flush()
    report.then()
    return report.status


class Parser(argparse.ArgumentParser):
    """A parser whose messages have control characters as escapes."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def _parser() -> Parser:
    parser = Parser(prog="attnlab", description="Look inside GPT-2's attention.")
    parser.add_argument("--version", action="version", version=f"attnlab {__version__}")
    as_json: dict[str, Any] = {"action": "store_true", "help": "print JSON, for machines"}
    parser.add_argument("--json", **as_json)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], Report], help: str, model: bool = True
    ) -> Parser:
        added: Parser = commands.add_parser(name, help=help, description=help)
        added.set_defaults(run=run)
        # Without a default, which would take the place of what stood before the command.
        added.add_argument("--json", default=argparse.SUPPRESS, **as_json)
        if model:
            added.add_argument(
                "--model",
                help="directory, name on the hub, or pocket; without it what ATTNLAB_MODEL says, "
                "else GPT-2 where it is in the cache, else pocket",
            )
        return added

    def text(added: Parser, help: str = "the text that is traced") -> None:
        added.add_argument(
            "texts", nargs="*", metavar="TEXT", help=f"{help}; - for what comes from stdin"
        )
        file(added)
        added.add_argument(
            "--edit",
            action="append",
            default=[],
            type=_edit,
            metavar="PATH=NUMBER",
            help="what a step is instead, such as blocks.1.attention.heads.2.context=0; of a mask "
            "True or False; may be given several times",
        )

    def file(added: Parser) -> None:
        added.add_argument(
            "--file",
            action="append",
            default=[],
            dest="files",
            metavar="FILE",
            help="a text in a file, UTF-8; a line end at its end is left out, as of stdin's",
        )

    def text_and_head(added: Parser) -> None:
        text(added)
        head(added)

    def head(added: Parser) -> None:
        added.add_argument("--layer", type=int, default=0, help="from 0; -1 is the last")
        added.add_argument("--head", type=int, default=0, help="from 0; -1 is the last")

    def place(
        added: argparse._ActionsContainer,
        names: Sequence[str],
        help: str,
        default: str | None = None,
    ) -> None:
        added.add_argument(
            *names,
            type=_named,
            default=default,
            metavar="TOKEN",
            help=f"{help}: its number, negative ones count from the end, or its text",
        )

    trace = command("trace", _trace, "tables of one head's steps, or of any other")
    text_and_head(trace)
    trace.add_argument(
        "--step",
        action="append",
        help="a step of the head, such as weights, or a path from the whole, such as logits, "
        "blocks.0.mid or blocks.0.mlp.hidden; may be given several times (default: all of the "
        "head's from Q to context)",
    )
    explained = command(
        "explain", _explain, "the arithmetic of one weight, of a row of weights, or of any number"
    )
    text_and_head(explained)
    explained.add_argument(
        "--step",
        default="weights",
        help="a step of the head, such as Q, or a path from the whole, such as logits, "
        "probabilities or blocks.0.mlp.hidden (default: %(default)s)",
    )
    place(explained, ("--query", "--token"), "which token asks, or which row (default: last)")
    place(explained, ("--key",), "which token is looked at (default: the row)")
    explained.add_argument(
        "--component",
        type=_named,
        help="which number of a row without keys, from 0 (default: the first); of logits a token, "
        "by its text, such as ' dog', or its id (default: the most probable)",
    )
    walk = command("walkthrough", _walkthrough, "the published walkthrough, step by step")
    head(walk)
    command("verify", _verify, "hold the model against published figures; status 1 if it differs")
    html = command(
        "html",
        _html,
        "write a page to look around in, for any browser; of two texts, or with edits, of both",
    )
    text(html, "the text that is traced, or two texts to compare")
    html.add_argument("-o", "--output", default="attention.html", help="(default: %(default)s)")
    html.add_argument("--open", action="store_true", help="show the page in the browser")
    html.add_argument(
        "--force", action="store_true", help="replace a file that attnlab did not write, unasked"
    )
    explore = command(
        "explore",
        _explore,
        "open a page in the browser in which texts are typed and heads silenced",
    )
    explore.add_argument("texts", nargs="*", metavar="TEXT", help="what it opens with; - for stdin")
    file(explore)
    explore.add_argument(
        "--atlas",
        metavar="FILE",
        help="open an atlas, a file or a directory of attnlab atlas, in which each passage is a "
        "link to its trace; without --model with the model that it is of",
    )
    explore.add_argument(
        "--port", type=int, default=0, help="where it listens (default: wherever one is free)"
    )
    explore.add_argument("--no-browser", action="store_true", help="print the link only")
    after = command("next", _next, "which tokens may follow a text")
    text(after)
    after.add_argument("-k", type=int, default=5, help="how many (default: %(default)s)")
    generate = command("generate", _generate, "write on from a text")
    text(generate, "the text that is continued")
    generate.add_argument(
        "-n", "--tokens", type=int, default=20, help="how many at most (default: %(default)s)"
    )
    generate.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        help="0 for always the most probable token (default: %(default)s)",
    )
    generate.add_argument("--top-k", type=int, help="draw from so many tokens only")
    generate.add_argument("--top-p", type=float, help="draw from the fewest that add up to this")
    generate.add_argument("--seed", type=int, help="makes the draws repeatable")
    generate.add_argument(
        "--drop-oldest",
        action="store_true",
        help="go on without the oldest tokens where the model has no room for all",
    )
    generate.add_argument(
        "--stop", action="append", help="a text to end with; may be given several times"
    )
    lens = command("lens", _lens, "what each stop of the residual stream would predict")
    text(lens)
    one = lens.add_mutually_exclusive_group()
    one.add_argument(
        "--token", type=_named, help="follow one, by its text, such as ' dog', or its id"
    )
    place(one, ("--position",), "the first few predictions at one token")
    lens.add_argument("-k", type=int, default=5, help="how many there (default: %(default)s)")
    attribution = command(
        "attribution", _attribution, "what each head and MLP adds to how probable a token is"
    )
    text(attribution)
    attribution.add_argument(
        "--token", type=_named, required=True, help="by its text, such as ' dog', or its id"
    )
    attribution.add_argument(
        "--against", type=_named, metavar="TOKEN", help="one whose logit is taken away"
    )
    place(attribution, ("--position",), "after which token (default: last)", "-1")
    check = command("check", _check, "what is wrong in your own code's numbers; status 1 if any is")
    check.add_argument(
        "arrays", metavar="ARRAYS", help="such as mine.npz, of numpy.savez(file, weights=...)"
    )
    check.add_argument(
        "--text",
        action="append",
        default=[],
        dest="texts",
        help="the text that your code was given; - for what comes from stdin",
    )
    file(check)
    check.add_argument("--layer", type=int, help="if the names in the file are those of a layer")
    check.add_argument("--head", type=int, help="if they are those of one head of it")
    corpus = command("atlas", _atlas, "every head measured over a corpus, with errors by text")
    corpus.add_argument(
        "corpus", help="a file with a text on each line, or a directory with one in each file"
    )
    corpus.add_argument(
        "--measure",
        action="append",
        dest="measures",
        choices=MEASURES,
        metavar="NAME",
        help=f"{', '.join(MEASURES)}; may be given several times (default: all)",
    )
    corpus.add_argument(
        "--workers", type=int, default=1, help="processes that share the work (default: 1)"
    )
    corpus.add_argument("--window", type=int, help="tokens that are traced at once (default: 128)")
    corpus.add_argument(
        "--out",
        metavar="DIRECTORY",
        help="where it is written, piece by piece: the same command goes on from there",
    )
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


def _texts(options: argparse.Namespace, most: int = 1) -> list[str]:
    """The texts that were given, from the command, stdin and files."""
    count = len(options.texts) + len(options.files)
    if not 1 <= count <= most:
        option = "--text " * (options.command == "check")
        raise InvalidValueError(
            f"{'one text or two are' if most > 1 else 'one text is'} taken, and {count} "
            f"given: a text of several words stands between quotes, such as {option}"
            f"“The dog chased the ball”, or comes from --file FILE, or with {option}- from stdin"
        )
    texts = [_of_stdin() if text == "-" else text for text in options.texts]
    return texts + [read_text(file, InvalidValueError).removesuffix("\n") for file in options.files]


def _of_stdin() -> str:
    """The text that comes from stdin, UTF-8, whatever a terminal's own encoding is."""
    content = sys.stdin.buffer.read(LARGEST + 1) if sys.stdin else b""
    if len(content) > LARGEST:
        raise InvalidValueError(f"stdin can't be read: it has more than {LARGEST:,} bytes")
    return decoded_text(content, "stdin", InvalidValueError).removesuffix("\n")


def _model_and_trace(options: argparse.Namespace) -> tuple[GPT2, Trace]:
    """The model, and the text's trace with what was asked to be otherwise."""
    (text,) = _texts(options)
    model = _model(options)
    return model, model.trace(text).edited(dict(options.edit))


def _named(given: str) -> int | str:
    """A token by its number or its text."""
    return int(given) if NUMBER.fullmatch(given) else given


def _which_head(part: Result) -> dict[str, int]:
    """The layer and the head that a part of a trace is of; without what it is not of."""
    names = {"blocks": "layer", "heads": "head"}
    return {
        names[place]: int(number)
        for place, number in itertools.pairwise(part.path.split("."))
        if place in names
    }


def _trace(options: argparse.Namespace) -> Report:
    model, trace = _model_and_trace(options)
    head = trace.head(options.layer, options.head)
    names = options.step or [n for n in PER_HEAD if n != "dropout_mask"]
    places = [_step_at(trace, head, name) for name in names]
    steps = [
        _shown_at(part, name, is_path="." in given)
        for given, (part, name) in zip(names, places, strict=True)
    ]

    def draw(terminal: Terminal) -> None:
        terminal.heading(head.title if all(n in head.parts for n in names) else trace.title)
        terminal.tokens(trace.tokens)
        for step in steps:
            terminal.step(step)

    first, *others = (_which_head(part) for part, _ in places)
    content = {
        **_traced(model, trace, options),
        **{kind: n for kind, n in first.items() if all(one.get(kind) == n for one in others)},
        "steps": [
            {
                **_step(step),
                "path": _path(part, name),
                "axes": [axis.name for axis in step.axes],
            }
            for step, (part, name) in zip(steps, places, strict=True)
        ],
    }
    return Report(content, draw)


def _step_at(trace: Trace, head: Head, path: str) -> tuple[Result, str]:
    """A step of the head by its name, or of the whole trace by its path: what it is of, its name.

    Of what each head of a layer has it is that of the head of this number.
    """
    if path in head.parts:
        return head, path
    if "." not in path and path not in (*trace.steps, PROBABILITIES):
        try:
            check_step(head, path)
        except InvalidValueError as error:
            raise InvalidValueError(
                f"{error}; of the whole there are {', '.join(trace.parts)}, and paths such as "
                "blocks.0.mid, blocks.0.mlp.hidden"
            ) from None
    part, name = step_at(trace, path)
    if isinstance(part, MultiHeadAttention) and name in PER_HEAD:
        part = part.heads[int(head.path.rpartition(".")[2])]
    return part, name


def _path(part: Result, name: str) -> str:
    """A step's path from the whole trace."""
    return f"{part.path}.{name}".lstrip(".")


def _shown_at(part: Result, name: str, *, is_path: bool) -> Shown:
    """A step as a table; one that was given by its path is headed with what it is of."""
    if name == PROBABILITIES and not part.path:
        raise InvalidValueError(
            "probabilities are no step, and have no table: attnlab next shows the largest, attnlab "
            "explain --step probabilities the arithmetic of one"
        )
    step = shown(part, name)
    if not is_path:
        return step
    return replace(step, name=_path(part, name), heading=f"{part.title}: {step.heading}")


def _explain(options: argparse.Namespace) -> Report:
    model, trace = _model_and_trace(options)
    head = trace.head(options.layer, options.head)
    part, name = _step_at(trace, head, options.step)
    explanation = explain(part, name, options.query, options.component, options.key)

    def draw(terminal: Terminal) -> None:
        terminal.write(explanation.text(terminal.width))

    content = {
        **_traced(model, trace, options),
        **_which_head(part),
        "step": _path(part, name),
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
        **_of_model(model),
        "prompt": walkthrough.PROMPT,
        "layer": options.layer % model.config.n_layer,
        "head": options.head % model.config.n_head,
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
        **_of_model(model),
        "prompt": verdict.prompt,
        "agrees": verdict.agrees,
        "reason": verdict.reason,
        "tables": tables,
    }
    return Report(content, draw, 0 if verdict.agrees else 1)


def _html(options: argparse.Namespace) -> Report:
    texts, edits = _texts(options, most=2), dict(options.edit)
    if len(texts) > 1 and edits:
        raise InvalidValueError("a page is of two texts, or of one with and without edits")
    if options.output == "-":
        raise InvalidValueError("a page is written to a file, such as -o page.html; given -o -")
    file = as_path(options.output).absolute()
    if file.is_file() and not options.force and not is_page(file):
        _ask_to_replace(file)
    model = _model(options)
    traces = [model.trace(text) for text in texts]
    if edits:
        traces.append(traces[0].edited(edits))
    traces[0].save(options.output, traces[1] if len(traces) > 1 else None)
    if options.open:
        _show_in_browser(file)
    content = {**_of_model(model), "edits": edits, "path": str(file)}
    return Report(content, lambda terminal: terminal.write(str(file)))


def _ask_to_replace(file: Path) -> None:
    """Go on only if whoever sits there wants a file replaced."""
    told = f"{file} is there, and is no page of attnlab's"
    if not (sys.stdin and sys.stdin.isatty()):
        raise WriteError(f"{told}: --force replaces it, -o FILE writes another one")
    print(printable(f"{told}. Replace it? [y/N] "), end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise WriteError("It stays as it is.")


def _explore(options: argparse.Namespace) -> Report:
    start = _texts(options) if options.texts or options.files else []
    found = None if options.atlas is None else open_atlas(options.atlas)
    if found is not None and options.model is None:
        options.model = found.model_given or None  # of a model in memory it knows none
    model = _model(options)
    if found is None:
        explorer = model.explore(*start, port=options.port)
    else:
        explorer = found.explore(model, *start, port=options.port)

    def draw(terminal: Terminal) -> None:
        terminal.write(_title(model))
        terminal.write(f"{explorer.url}\nOnly who has this link gets in. Ctrl-C ends it.")

    def serve() -> None:
        link_or_none = contextlib.nullcontext() if options.no_browser else _link(explorer.url)
        try:
            with explorer, link_or_none as link:
                if link:
                    _show_in_browser(link)
                explorer.wait()
        except KeyboardInterrupt:
            print("The explorer has ended: Ctrl-C.", file=sys.stderr)
            raise
        print("The explorer has ended: its page asked for it.", file=sys.stderr)

    return Report({**_of_model(model), "url": explorer.url}, draw, then=serve)


@contextlib.contextmanager
def _link(url: str) -> Iterator[Path]:
    """A page that leads on to a link, in a file that nobody else can read.

    A browser's arguments, in which the link would stand, are seen by all users of a machine. The
    file lies where browsers may read that are shut in, as Ubuntu's are.
    """
    handle, name = tempfile.mkstemp(prefix="attnlab-", suffix=".html", dir=Path.home())
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={url}">')
        yield Path(name)
    finally:
        os.unlink(name)


def _show_in_browser(page: Path) -> None:
    if not webbrowser.open(page.as_uri()):
        print("No browser is to be found here: open it yourself.", file=sys.stderr)


def _next(options: argparse.Namespace) -> Report:
    model, trace = _model_and_trace(options)
    tokens = trace.next_tokens(options.k)

    def draw(terminal: Terminal) -> None:
        if options.edit:
            terminal.heading(trace.title)
        terminal.table(tokens.lines(), left=(1, 2))

    content = {**_traced(model, trace, options), "next": list(map(_next_token, tokens))}
    return Report(content, draw)


def _generate(options: argparse.Namespace) -> Report:
    (text,) = _texts(options)
    model, edits = _model(options), dict(options.edit)
    written = model.generate(
        text,
        options.tokens,
        stop=options.stop,
        edits=edits or None,
        drop_oldest=options.drop_oldest,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
    )
    content = {
        **_of_model(model),
        "tokens": _token_list(written.prompt),
        "edits": edits,
        **{name: getattr(options, name) for name in ("temperature", "top_k", "top_p", "seed")},
        "new": [{**_next_token(token), "share": token.share} for token in written.chosen],
        "text": written.text,
    }
    return Report(content, lambda terminal: terminal.write(written.whole_text))


def _lens(options: argparse.Namespace) -> Report:
    model, trace = _model_and_trace(options)
    every = trace.logit_lens()
    lens: Lens = every
    if options.token is not None:
        lens = every.of(options.token)
    elif options.position is not None:
        lens = every.top(options.k, options.position)

    def draw(terminal: Terminal) -> None:
        terminal.heading(lens.title)
        terminal.table(lens.lines(), left=(0,))
        terminal.write(lens.note.replace("\n", " "))

    stops = []
    for i, stop in enumerate(lens.stops):
        measured = zip(lens.tokens[i], lens.ranks[i], lens.probabilities[i], strict=True)
        stops.append(
            {
                "path": stop,
                "predicts": [
                    {**_token(token), "rank": int(rank), "probability": float(probability)}
                    for token, rank, probability in measured
                ],
            }
        )
    content = {**_traced(model, trace, options), "title": lens.title, "stops": stops}
    return Report(content, draw)


def _attribution(options: argparse.Namespace) -> Report:
    model, trace = _model_and_trace(options)
    found = trace.attribution(options.token, options.against, options.position)
    rest = ("token_embedding", "position_embedding", "bias", "total")

    def draw(terminal: Terminal) -> None:
        terminal.heading(found.title)
        heads = [f"head {head}" for head in range(model.config.n_head)]
        lines = [["layer", *heads, "MLP"]]
        for layer, (of_heads, mlp) in enumerate(zip(found.heads, found.mlps, strict=True)):
            lines.append([str(layer), *(f"{number:z.2f}" for number in (*of_heads, mlp))])
        terminal.table(lines, left=())
        others = [[name.replace("_", " "), f"{getattr(found, name):z.2f}"] for name in rest]
        terminal.table([["the rest", ""], *others], left=(0,))
        terminal.write(found.note.replace("\n", " "))

    content = {
        **_traced(model, trace, options),
        "title": found.title,
        "position": found.target.position,
        "heads": found.heads,
        "mlps": found.mlps,
        **{name: getattr(found, name) for name in rest},
    }
    return Report(content, draw)


def _check(options: argparse.Namespace) -> Report:
    mine = _arrays(options.arrays)
    (text,) = _texts(options)
    model = _model(options)
    trace = model.trace(text)
    result: Result = trace
    if options.layer is not None or options.head is not None:
        result = trace.blocks[options.layer or 0].attention
    if options.head is not None:
        result = trace.head(options.layer or 0, options.head)
    try:
        verdict = check(mine, result)
    except InvalidValueError as error:
        if result is not trace or not {*mine} & {*Head.steps}:
            raise
        raise InvalidValueError(
            f"{error}; steps of one head go with --layer and --head, of all heads with --layer"
        ) from None

    def draw(terminal: Terminal) -> None:
        terminal.write(verdict.heading)
        terminal.table(lines_of(verdict.stages), left=WORDS)
        terminal.write(verdict.reasons)

    content = {
        **_of_model(model),
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
    """The arrays in a file that `numpy.savez` wrote."""
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


def _atlas(options: argparse.Namespace) -> Report:
    workers = as_count(options.workers, "--workers", least=1)
    model = _model(options)
    with contextlib.ExitStack() as stack:
        executor = None
        if workers > 1:
            context = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(workers, mp_context=context, initializer=begin)
            executor = stack.enter_context(pool)
        found = atlas(
            model,
            options.corpus,
            options.measures,
            executor=executor,
            window=options.window,
            directory=options.out,
        )

    def draw(terminal: Terminal) -> None:
        terminal.heading(found.title)
        if lines := found.lines():
            terminal.table(lines, left=())
        if found.loss:
            terminal.write(found.loss)
        if found.caution:
            terminal.write(found.caution)
        for name, reason in found.faults:
            terminal.write(f"{name} could not be measured: {reason}")
        terminal.write(Measured.note)
        if options.out is not None:
            place = as_path(options.out)
            terminal.write(f"attnlab.open_atlas({str(place / RESULT)!r}) opens it")
            if (place / PAGE).exists():
                terminal.write(f"{place / PAGE} shows it, with texts of every head")
            if found.model_given:
                given, where = map(shlex.quote, (found.model_given, str(place)))
                command = f"attnlab explore --model {given} --atlas {where}"
                terminal.write(f"{command} opens their traces")

    content = {
        **_of_model(model),
        "texts": found.texts,
        "tokens": found.tokens,
        "faults": [{"text": name, "reason": reason} for name, reason in found.faults],
        "measures": [
            {
                "name": name,
                **{kind: getattr(one, kind) for kind in ("mean", "error", "texts", "places")},
            }
            for name, one in found.items()
        ],
    }
    return Report(content, draw)


def _download(options: argparse.Namespace) -> Report:
    directory = str(find_model(options.name))
    content = {"name": options.name, "directory": directory}
    return Report(content, lambda terminal: terminal.write(directory))


def _info(options: argparse.Namespace) -> Report:
    model = _model(options)
    config = asdict(model.config)

    def draw(terminal: Terminal) -> None:
        terminal.write(repr(model))
        settings = [["config", ""], *([name, str(config[name])] for name in config)]
        terminal.write(align(settings, left=(0, 1)))

    content = {
        **_of_model(model),
        "config": config,
        "parameters": parameter_count(model.config),
        "dtype": str(model.parameters.dtype),
    }
    return Report(content, draw)


def _traced(model: GPT2, trace: Trace, options: argparse.Namespace) -> dict[str, Any]:
    """What was traced, for machines."""
    return {
        **_of_model(model),
        "tokens": _token_list(trace.tokens),
        "edits": dict(options.edit),
    }


def _of_model(model: GPT2) -> dict[str, Any]:
    """Which model it was, for machines."""
    parameters = model.parameters
    directory = str(parameters.directory) if isinstance(parameters, Checkpoint) else None
    return {"model": _title(model), "directory": directory}


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


def _next_token(token: NextToken) -> dict[str, Any]:
    return {**_token(token), "logit": token.logit, "probability": token.probability}


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
