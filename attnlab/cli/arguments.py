"""What the command `attnlab` and its subcommands take."""

from __future__ import annotations

import argparse
import contextlib
import re
from typing import Any, NoReturn

from attnlab import __version__
from attnlab.corpus import MEASURES
from attnlab.support.tables import printable

AS_JSON: dict[str, Any] = {"action": "store_true", "help": "print JSON, for programs"}

REPEATABLE = "may be given several times"

# How a token of the vocabulary is given.
BY_TEXT_OR_ID = "by its text, such as ' dog', or its id"

# A token by its number, negative ones counted from the end; all else is a token's text.
NUMBER = re.compile(r"-?[0-9]+")


class Parser(argparse.ArgumentParser):
    """A parser whose messages have control characters as escapes."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def parser() -> Parser:
    """The parser of the command, with all subcommands."""
    whole = Parser(prog="attnlab", description="Look inside GPT-2's attention.")
    whole.add_argument("--version", action="version", version=f"attnlab {__version__}")
    whole.add_argument("--json", **AS_JSON)
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help: str, has_model: bool = True) -> Parser:
        added: Parser = commands.add_parser(name, help=help, description=help)
        # Without a default, which would replace what stood before the subcommand.
        added.add_argument("--json", default=argparse.SUPPRESS, **AS_JSON)
        if has_model:
            added.add_argument(
                "--model",
                help="directory, name on the hub, or pocket (default: the value of ATTNLAB_MODEL, "
                "else GPT-2 if it is in the cache, else pocket)",
            )
        return added

    trace = command("trace", "tables of one head's steps, or of any other")
    add_text(trace)
    add_head(trace)
    trace.add_argument(
        "--step",
        action="append",
        help="a step of the head, such as weights, or a path from the whole, such as logits, "
        f"blocks.0.mid or blocks.0.mlp.hidden; {REPEATABLE} (default: all of the head's from Q to "
        "context)",
    )

    explain = command(
        "explain", "the arithmetic of one weight, of a row of weights, or of any number"
    )
    add_text(explain)
    add_head(explain)
    explain.add_argument(
        "--step",
        default="weights",
        help="a step of the head, such as Q, or a path from the whole, such as logits, "
        "probabilities or blocks.0.mlp.hidden (default: %(default)s)",
    )
    add_token(explain, "--query", "--token", help="the query, or the row (default: last)")
    add_token(explain, "--key", help="the attended token (default: the whole row)")
    explain.add_argument(
        "--component",
        type=token,
        help="which number of a row without keys, from 0 (default: the first); of logits a token "
        f"{BY_TEXT_OR_ID} (default: the most probable)",
    )

    add_head(command("walkthrough", "the published walkthrough, step by step"))
    command("verify", "compare the model with published figures; status 1 if it differs")

    html = command(
        "html", "write a page to explore in any browser; of two texts, or with edits, of both"
    )
    add_text(html, "the text that is traced, or two texts to compare")
    html.add_argument("-o", "--output", default="attention.html", help="(default: %(default)s)")
    html.add_argument("--open", action="store_true", help="show the page in the browser")
    html.add_argument(
        "--force", action="store_true", help="replace a file that attnlab did not write, unasked"
    )

    explore = command("explore", "open a page in the browser to type texts and silence heads")
    explore.add_argument("texts", nargs="*", metavar="TEXT", help="what it opens with; - for stdin")
    add_file(explore)
    explore.add_argument(
        "--atlas",
        metavar="FILE",
        help="open an atlas, a file or directory of attnlab atlas, in which each passage links to "
        "its trace; without --model with the model that was measured",
    )
    explore.add_argument(
        "--port", type=int, default=0, help="the port to listen on (default: a free one)"
    )
    explore.add_argument("--no-browser", action="store_true", help="print the link only")

    playground = command(
        "playground", "write a page that holds the model and runs it, in any browser, offline"
    )
    playground.add_argument("path", metavar="FILE", help="the page, such as pocket.html")
    playground.add_argument("--text", help="what it opens with")
    playground.add_argument("--open", action="store_true", help="show the page in the browser")
    playground.add_argument(
        "--force", action="store_true", help="replace a file that attnlab did not write, unasked"
    )

    following = command("next", "which tokens may follow a text")
    add_text(following)
    following.add_argument("-k", type=int, default=5, help="how many (default: %(default)s)")

    generate = command("generate", "continue a text")
    add_text(generate, "the text that is continued")
    generate.add_argument(
        "-n", "--tokens", type=int, default=20, help="how many at most (default: %(default)s)"
    )
    generate.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        help="0 takes the most probable token (default: %(default)s)",
    )
    generate.add_argument("--top-k", type=int, help="draw from the k most probable tokens only")
    generate.add_argument(
        "--top-p", type=float, help="draw from the fewest tokens whose probabilities reach this sum"
    )
    generate.add_argument("--seed", type=int, help="makes the draws repeatable")
    generate.add_argument(
        "--drop-oldest",
        action="store_true",
        help="drop the oldest tokens where the model has no room for all",
    )
    generate.add_argument("--stop", action="append", help=f"a text to end with; {REPEATABLE}")

    lens = command("lens", "what each stop of the residual stream would predict")
    add_text(lens)
    one = lens.add_mutually_exclusive_group()
    one.add_argument("--token", type=token, help=f"follow one, {BY_TEXT_OR_ID}")
    add_token(one, "--position", help="the first few predictions at one token")
    lens.add_argument("-k", type=int, default=5, help="how many there (default: %(default)s)")

    attribution = command("attribution", "what each head and MLP adds to a token's logit")
    add_text(attribution)
    attribution.add_argument("--token", type=token, required=True, help=BY_TEXT_OR_ID)
    attribution.add_argument(
        "--against", type=token, metavar="TOKEN", help="a token whose logit is subtracted"
    )
    add_token(attribution, "--position", default="-1", help="after which token (default: last)")

    check = command("check", "what is wrong in your own code's numbers; status 1 if any is")
    check.add_argument(
        "arrays", metavar="ARRAYS", help="such as mine.npz, of numpy.savez(file, weights=...)"
    )
    check.add_argument(
        "--text",
        action="append",
        default=[],
        dest="texts",
        help="the text that your code was given; - reads it from stdin",
    )
    add_file(check)
    check.add_argument("--layer", type=int, help="if the names in the file are those of a layer")
    check.add_argument("--head", type=int, help="if they are those of one head of it")

    atlas = command("atlas", "every head measured over a corpus, with errors by text")
    atlas.add_argument(
        "corpus", help="a file with a text on each line, or a directory with one in each file"
    )
    atlas.add_argument(
        "--measure",
        action="append",
        dest="measures",
        choices=MEASURES,
        metavar="NAME",
        help=f"{', '.join(MEASURES)}; {REPEATABLE} (default: all)",
    )
    atlas.add_argument(
        "--workers", type=int, default=1, help="processes that share the work (default: 1)"
    )
    atlas.add_argument("--window", type=int, help="tokens that are traced at once (default: 128)")
    atlas.add_argument(
        "--out",
        metavar="DIRECTORY",
        help="where it is written, piece by piece; the same command resumes it",
    )

    download = command("download", "fetch a model into the hub's cache", has_model=False)
    download.add_argument("name", help="such as gpt2, gpt2-medium, distilgpt2, or owner/name")
    command("info", "a model's sizes, and where its files are")
    return whole


def add_text(command: Parser, help: str = "the text that is traced") -> None:
    command.add_argument("texts", nargs="*", metavar="TEXT", help=f"{help}; - reads it from stdin")
    add_file(command)
    command.add_argument(
        "--edit",
        action="append",
        default=[],
        type=edit,
        metavar="PATH=NUMBER",
        help="replace a step by a number, as in blocks.1.attention.heads.2.context=0; a mask by "
        f"True or False; {REPEATABLE}",
    )


def add_file(command: Parser) -> None:
    command.add_argument(
        "--file",
        action="append",
        default=[],
        dest="files",
        metavar="FILE",
        help="a text in a file, UTF-8; a line end at its end is left out, as of stdin's",
    )


def add_head(command: Parser) -> None:
    command.add_argument("--layer", type=int, default=0, help="from 0; -1 is the last")
    command.add_argument("--head", type=int, default=0, help="from 0; -1 is the last")


def add_token(
    command: argparse._ActionsContainer, *names: str, help: str, default: str | None = None
) -> None:
    command.add_argument(
        *names,
        type=token,
        default=default,
        metavar="TOKEN",
        help=f"{help}: its number, negative ones count from the end, or its text",
    )


def edit(given: str) -> tuple[str, bool | int | float]:
    """A step's path, and the number that replaces the step."""
    path, _, value = given.partition("=")
    if value in ("True", "False"):
        return path, value == "True"
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return path, number(value)
    raise argparse.ArgumentTypeError(f"{given!r:.80} is not PATH=NUMBER")


def token(given: str) -> int | str:
    """A token by its number or its text."""
    return int(given) if NUMBER.fullmatch(given) else given
