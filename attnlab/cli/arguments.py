"""The argument parser of the command `attnlab`."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from attnlab import __version__
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.support.language import LANGUAGES
from attnlab.support.messages import Message, say
from attnlab.support.tables import printable, wrap

# Headings in argparse's help, which are translated.
HEADINGS = ("positional arguments", "options")


class Formatter(argparse.HelpFormatter):
    """Help in the user's language."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, say("usage: ") if prefix is None else prefix)

    def start_section(self, heading: str | None) -> None:
        super().start_section(say(heading) if heading in HEADINGS else heading)

    def _get_help_string(self, action: argparse.Action) -> str:
        return say(action.help or "")

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(text, width)


class Parser(argparse.ArgumentParser):
    """A parser with help in the user's language, and errors without control characters."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=Formatter, add_help=False, **settings)
        self.add_argument("-h", "--help", action="help", help="show this help message and exit")
        self.add_argument(  # `language_option` reads it before this parser is made
            "--lang",
            choices=LANGUAGES,
            default=argparse.SUPPRESS,
            help="the language of what is printed and of pages: en, or zh for Chinese (default: "
            "ATTNLAB_LANGUAGE if set, else the system's)",
        )

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def parser() -> Parser:
    """The parser with all subcommands."""
    root = Parser(prog="attnlab", description=say("Look inside GPT-2's attention."))
    root.add_argument(
        "--version",
        action="version",
        version=f"attnlab {__version__}",
        help="show program's version number and exit",
    )
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help: str, has_model: bool = True) -> Parser:
        subparser: Parser = commands.add_parser(name, help=help, description=say(help))
        if has_model:
            subparser.add_argument(
                "--model",
                help=Message(
                    "a directory, a name on the hub, or a model that comes with attnlab, {names} "
                    "(default: ATTNLAB_MODEL if set, else GPT-2 if it is in the cache, else "
                    "english)",
                    names=say(", ").join(BUILT_IN),
                ),
            )
        return subparser

    verify = command(
        "verify",
        "compare the model with published figures, or with transformers; exit status 1 if they "
        "differ",
    )
    verify.add_argument(
        "checkpoint",
        nargs="?",
        metavar="DIRECTORY",
        help="a checkpoint that transformers opens too, to compare every step (needs pip install "
        "transformers torch; --model defaults to it)",
    )

    html = command("html", "write a page to explore one text, or compare two, in any browser")
    html.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT",
        help="the text to trace, or two texts to compare",
    )
    html.add_argument(
        "--special",
        action="store_true",
        help="read names of special tokens, such as <|endoftext|>, as these tokens",
    )
    html.add_argument(
        "-o", "--output", default="attention.html", help="the file to write (default: %(default)s)"
    )
    add_page_options(html)

    explore = command(
        "explore", "open a model in the browser to type texts and ablate heads", has_model=False
    )
    explore.add_argument(
        "model",
        nargs="?",
        default="english",
        metavar="MODEL",
        help="a directory, or a name as for --model of other commands (default: %(default)s)",
    )
    explore.add_argument("--text", help="the text to open with")

    playground = command(
        "playground", "write a page that holds the model and runs it, in any browser, offline"
    )
    playground.add_argument("path", metavar="FILE", help="the page, such as model.html")
    playground.add_argument("--text", help="the text to open with")
    add_page_options(playground)

    atlas = command("atlas", "measure every head over a corpus, with standard errors")
    atlas.add_argument(
        "corpus",
        help="a file with one text per line, a .jsonl or .csv file with the field or column "
        '"text", or a directory with one text per file',
    )
    atlas.add_argument("--workers", type=int, default=1, help="number of processes (default: 1)")
    atlas.add_argument("--window", type=int, help="tokens to trace at once (default: 128)")
    atlas.add_argument(
        "--heads",
        action="store_true",
        help="a page for each head: what it attends to and writes, and its top texts",
    )
    atlas.add_argument(
        "--out",
        metavar="DIRECTORY",
        help="where to save the result and the progress; the same command resumes",
    )

    download = command("download", "download a model to the hub's cache", has_model=False)
    download.add_argument("name", help="such as gpt2, gpt2-medium, distilgpt2, or owner/name")
    return root


def add_page_options(command: Parser) -> None:
    command.add_argument("--open", action="store_true", help="open the page in the browser")
    command.add_argument("--force", action="store_true", help="replace any file")
