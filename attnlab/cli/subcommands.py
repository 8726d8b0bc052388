"""Compute what each subcommand prints, and print it.

Everything is computed before the first line is printed: a command that fails prints only its error.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from attnlab import walkthrough
from attnlab.checking.hugging_face import Verification, verify
from attnlab.checkpoints.hub import find_model
from attnlab.corpus import atlas
from attnlab.corpus.measures import is_per_head
from attnlab.corpus.result import RESULT
from attnlab.corpus.worker import initialize_worker
from attnlab.errors import InvalidValueError, WriteError
from attnlab.forward.attention import Head, MultiHeadAttention
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import Trace
from attnlab.pages.page import page, playground
from attnlab.pages.saved import is_page
from attnlab.steps import Result, step_at
from attnlab.support.checks import as_count
from attnlab.support.console import show_in_browser
from attnlab.support.files import LARGEST, as_path, decode_text, read_text
from attnlab.support.messages import Message, say
from attnlab.support.tables import Heading
from attnlab.views.explaining.explain import PROBABILITIES, explain
from attnlab.views.labelled_step import LabelledStep, check_step, labelled_step, per_head
from attnlab.views.terminal import Terminal
from attnlab.walkthrough import Reproduction

# The file of the directory of `attnlab atlas` that is opened in a browser.
PAGE = "atlas.html"


def _model(options: argparse.Namespace) -> GPT2:
    if options.model is not None:
        return GPT2.from_pretrained(options.model)
    with contextlib.redirect_stdout(sys.stderr):  # keep its notice out of the output
        return GPT2.default()


def _texts(options: argparse.Namespace, max_count: int = 1) -> list[str]:
    """The texts from the command line, stdin and files."""
    count = len(options.texts) + len(options.files)
    if not 1 <= count <= max_count:
        raise InvalidValueError(
            f"expected {'one text or two' if max_count > 1 else 'one text'}; got "
            f'{count}. Put a text in quotes, such as "The dog chased the ball", or use '
            "--file FILE, or - for stdin"
        )
    texts = [_read_stdin() if text == "-" else text for text in options.texts]
    return texts + [read_text(file, InvalidValueError).removesuffix("\n") for file in options.files]


def _read_stdin() -> str:
    """The text on stdin, decoded as UTF-8 whatever the locale."""
    content = sys.stdin.buffer.read(LARGEST + 1) if sys.stdin else b""
    if len(content) > LARGEST:
        raise InvalidValueError(f"stdin can't be read: it has more than {LARGEST:,} bytes")
    return decode_text(content, "stdin", InvalidValueError).removesuffix("\n")


def _edited_trace(options: argparse.Namespace) -> Trace:
    """The text's trace with the edits."""
    (text,) = _texts(options)
    return _model(options).trace(text, special=options.special).edited(dict(options.edit))


def _show_notice(trace: Trace) -> None:
    """Say on stderr which words of the text the model doesn't know."""
    if trace.notice:
        print(say(trace.notice), file=sys.stderr)


def _trace(options: argparse.Namespace, terminal: Terminal) -> None:
    trace = _edited_trace(options)
    head = trace.head(options.layer, options.head)
    in_heads = per_head(trace.blocks[0].attention)
    paths = options.step or [name for name in in_heads if name != "dropout_mask"]
    steps = [_labelled_step(*_step_at(trace, head, path), is_path="." in path) for path in paths]
    if not options.step:  # the weights first, before three wide matrices
        steps.sort(key=lambda step: step.name != "weights")
    _show_notice(trace)
    title = head.title if all(path in head._table_steps for path in paths) else trace.title
    terminal.show(Heading(title))
    terminal.show(trace.tokens)
    for step in steps:
        terminal.show(step)


def _step_at(trace: Trace, head: Head, path: str) -> tuple[Result, str]:
    """Find a step of the head by name, or any step by path; return its part and name.

    For a step of a layer that each head has, such as blocks.1.attention.weights, the part is the
    layer's head with the same number as `head`.
    """
    if path in head._table_steps:
        return head, path
    if "." not in path and path not in (*trace.steps, PROBABILITIES):
        try:
            check_step(head, path)
        except InvalidValueError as error:
            raise InvalidValueError(
                f"{error}; the trace's steps are {', '.join(trace._table_steps)}. Or use a "
                "path, such as blocks.0.mid or blocks.0.mlp.hidden"
            ) from None
    part, name = step_at(trace, path)
    if isinstance(part, MultiHeadAttention) and name in per_head(part):
        part = part.heads[int(head.path.rpartition(".")[2])]
    return part, name


def _labelled_step(part: Result, name: str, *, is_path: bool) -> LabelledStep:
    """A step to print as a table; if `is_path`, the heading names the part that has the step."""
    if name == PROBABILITIES and not part.path:
        raise InvalidValueError(
            "probabilities can't be printed as a table. Use attnlab next for the largest, "
            "or attnlab explain --step probabilities for the arithmetic of one"
        )
    step = labelled_step(part, name)
    if not is_path:
        return step
    path = f"{part.path}.{name}".lstrip(".")
    return replace(step, name=path, heading=f"{say(part.title)}: {say(step.heading)}")


def _explain(options: argparse.Namespace, terminal: Terminal) -> None:
    trace = _edited_trace(options)
    part, name = _step_at(trace, trace.head(options.layer, options.head), options.step)
    explanation = explain(part, name, options.query, options.component, options.key)
    _show_notice(trace)
    terminal.show(explanation)


def _next(options: argparse.Namespace, terminal: Terminal) -> None:
    trace = _edited_trace(options)
    tokens = trace.next_tokens(options.k)
    _show_notice(trace)
    if options.edit:
        terminal.show(Heading(trace.title))
    terminal.show(tokens)


def _verify(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.checkpoint is None:
        verdict: Reproduction | Verification = walkthrough.reproduce(_model(options))
    else:
        model = GPT2.from_pretrained(options.model or options.checkpoint)
        verdict = verify(model, options.checkpoint)
    terminal.show(verdict)
    return 0 if verdict.agrees else 1


def _html(options: argparse.Namespace, terminal: Terminal) -> None:
    texts, edits = _texts(options, max_count=2), dict(options.edit)
    if len(texts) > 1 and edits:
        raise InvalidValueError("--edit can't be used with two texts")
    if options.output == "-":
        raise InvalidValueError("can't write a page to stdout; use -o FILE, such as -o page.html")
    file = _page_to_write(options.output, options)
    model = _model(options)
    traces = [model.trace(text, special=options.special) for text in texts]
    if edits:
        traces.append(traces[0].edited(edits))
    page(*traces).save(options.output)
    for trace in traces[: len(texts)]:
        _show_notice(trace)
    if options.open:
        show_in_browser(file)
    terminal.show(str(file))


def _playground(options: argparse.Namespace, terminal: Terminal) -> None:
    file = _page_to_write(options.path, options)
    playground(_model(options), options.text).save(options.path)
    if options.open:
        show_in_browser(file)
    terminal.show(str(file))


def _page_to_write(path: str, options: argparse.Namespace) -> Path:
    """The absolute path of a page to write; raise if it would replace a file that isn't a page."""
    file = as_path(path).absolute()
    if os.path.isfile(file) and not options.force and not is_page(file):
        raise WriteError(
            f"{file} exists and wasn't written by attnlab. Use --force to replace it, or "
            "another file name"
        )
    return file


def _explore(options: argparse.Namespace, terminal: Terminal) -> None:
    start = _texts(options) if options.texts or options.files else []
    model = _model(options)
    explorer = model.explore(*start, port=options.port)

    terminal.show(repr(model).partition("\n")[0])
    terminal.show(explorer.url)
    terminal.show(Message("Anyone with this link has access. Ctrl-C to stop."))
    sys.stdout.flush()
    link_file = contextlib.nullcontext() if options.no_browser else _link_file(explorer.url)
    try:
        with explorer, link_file as file:
            if file:
                show_in_browser(file)
            explorer.wait()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(say("Explorer stopped.")) from None
    print(say("Explorer stopped from the page."), file=sys.stderr)


@contextlib.contextmanager
def _link_file(url: str) -> Iterator[Path]:
    """A private HTML file that redirects to a link.

    If the link were an argument of the browser, all users of the machine could see it. The file is
    in the home directory, because sandboxed browsers, such as Ubuntu's, can't read /tmp.
    """
    handle, name = tempfile.mkstemp(prefix="attnlab-", suffix=".html", dir=Path.home())
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={url}">')
        yield Path(name)
    finally:
        os.unlink(name)


def _atlas(options: argparse.Namespace, terminal: Terminal) -> None:
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
            options.measures,
            executor=executor,
            window=options.window,
            heads=options.heads,
            directory=options.out,
        )

    terminal.show(result)
    for name, reason in result.faults:
        terminal.show(Message("{name} could not be measured: {reason}", name=name, reason=reason))
    if options.out is None:
        return
    directory = as_path(options.out)
    terminal.show(f"Python: attnlab.open_atlas({str(directory / RESULT)!r})")
    if any(map(is_per_head, result)):  # the page shows heads only
        page(result).save(directory / PAGE)
        terminal.show(Message("Page: {path}", path=directory / PAGE))


def _download(options: argparse.Namespace, terminal: Terminal) -> None:
    terminal.show(str(find_model(options.name)))


COMMANDS: dict[str, Callable[[argparse.Namespace, Terminal], int | None]] = {
    "trace": _trace,
    "next": _next,
    "explain": _explain,
    "verify": _verify,
    "html": _html,
    "explore": _explore,
    "playground": _playground,
    "atlas": _atlas,
    "download": _download,
}
