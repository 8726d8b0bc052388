"""Compute and print the results of each subcommand.

Everything is computed before the first line is printed: a command that fails prints only its error.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from attnlab import walkthrough
from attnlab.checking.hugging_face import Verification, verify
from attnlab.checkpoints.hub import find_model
from attnlab.corpus import atlas
from attnlab.corpus.result import RESULT
from attnlab.corpus.run import initialize_worker
from attnlab.errors import InvalidValueError, WriteError
from attnlab.model.gpt2 import GPT2
from attnlab.pages.explore import explore
from attnlab.pages.page import page, playground
from attnlab.pages.saved import is_page
from attnlab.support.checks import as_count
from attnlab.support.console import show_in_browser
from attnlab.support.files import as_path, check_writable
from attnlab.support.messages import say
from attnlab.support.tables import printable
from attnlab.walkthrough import Reproduction

# The page's name in the directory that `attnlab atlas --out` writes.
PAGE = "atlas.html"


def _model(options: argparse.Namespace) -> GPT2:
    if options.model is not None:
        return GPT2.from_pretrained(options.model)
    with contextlib.redirect_stdout(sys.stderr):  # the model's name isn't part of the output
        return GPT2.default()


def _verify(options: argparse.Namespace) -> int:
    if options.checkpoint is None:
        verdict: Reproduction | Verification = walkthrough.reproduce(_model(options))
    else:
        # The same checkpoint, opened by attnlab and by transformers, unless --model is another.
        model = GPT2.from_pretrained(options.model or options.checkpoint)
        verdict = verify(model, options.checkpoint)
    print(verdict)
    return 0 if verdict.agrees else 1


def _html(options: argparse.Namespace) -> None:
    if len(options.texts) not in (1, 2):
        raise InvalidValueError(
            f"expected one text or two; got {len(options.texts)}. Put a text in quotes, such as "
            '"The dog chased the ball"'
        )
    if options.output == "-":
        raise InvalidValueError("can't write a page to stdout; use -o FILE, such as -o page.html")
    file = _page_to_write(options.output, options)
    model = _model(options)
    traces = [model.trace(text, special=options.special) for text in options.texts]
    page(*traces).save(options.output)
    for trace in traces:
        if trace.notice:
            print(say(trace.notice), file=sys.stderr)
    _report(file, options)


def _playground(options: argparse.Namespace) -> None:
    file = _page_to_write(options.path, options)
    playground(_model(options), options.text).save(options.path)
    _report(file, options)


def _page_to_write(path: str, options: argparse.Namespace) -> Path:
    """The absolute path of a page to write; raise if it would replace a file that isn't a page."""
    file = as_path(path).absolute()
    if os.path.isfile(file) and not options.force and not is_page(file):
        raise WriteError(
            f"{file} exists and wasn't written by attnlab. Use --force to replace it, or "
            "another file name"
        )
    check_writable(file)
    return file


def _report(file: Path, options: argparse.Namespace) -> None:
    """Print a page's path; with --open, open the page in the browser."""
    if options.open:
        show_in_browser(file.as_uri())
    print(printable(str(file)))


def _explore(options: argparse.Namespace) -> None:
    explore(options.model, options.text)


def _atlas(options: argparse.Namespace) -> None:
    workers = as_count(options.workers, "--workers", least=1)
    model = _model(options)
    with contextlib.ExitStack() as stack:
        executor = None
        if workers > 1:
            context = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(workers, mp_context=context, initializer=initialize_worker)
            executor = stack.enter_context(pool)
        result = atlas(
            model,
            options.corpus,
            executor=executor,
            window=options.window,
            heads=options.heads,
            directory=options.out,
        )

    print(result)
    for name, reason in result.faults:
        fault = say("{name} could not be measured: {reason}", name=name, reason=reason)
        print(printable(fault))
    if options.out is None:
        return
    directory = as_path(options.out)
    print(f"Python: attnlab.open_atlas({str(directory / RESULT)!r})")
    if result.per_head:  # the page only shows heads
        page(result).save(directory / PAGE)
        print(printable(say("Page: {path}", path=directory / PAGE)))


def _download(options: argparse.Namespace) -> None:
    print(printable(str(find_model(options.name))))


COMMANDS: dict[str, Callable[[argparse.Namespace], int | None]] = {
    "verify": _verify,
    "html": _html,
    "explore": _explore,
    "playground": _playground,
    "atlas": _atlas,
    "download": _download,
}
