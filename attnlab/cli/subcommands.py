"""Compute each subcommand's report, for people and for programs."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import shlex
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from attnlab import walkthrough
from attnlab.checking.mistakes import Mistake
from attnlab.checking.verdict import check
from attnlab.checkpoints.checkpoint import Checkpoint
from attnlab.checkpoints.hub import find_model
from attnlab.corpus import atlas, open_atlas
from attnlab.corpus.result import RESULT
from attnlab.corpus.run import PAGE
from attnlab.corpus.worker import initialize_worker
from attnlab.errors import InvalidValueError, WriteError
from attnlab.forward.attention import PER_HEAD, Head, MultiHeadAttention
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import Trace
from attnlab.steps import Result, step_at
from attnlab.support.checks import as_count
from attnlab.support.files import LARGEST, as_path, decode_text, read_npz, read_text
from attnlab.support.messages import Message, say
from attnlab.support.tables import Heading
from attnlab.text.tokens import Token, Tokens
from attnlab.views.explain import PROBABILITIES, explain
from attnlab.views.page.page import is_page
from attnlab.views.shown import LabelledStep, check_step, labelled_step


@dataclass(frozen=True)
class Report:
    """The result of a subcommand.

    Attributes
    ----------
    content : the JSON object; may hold arrays and non-finite numbers
    shown : the output without --json, items for `Terminal.show`
    status : the exit status
    after_printing : a function to call after the output has been printed
    """

    content: dict[str, Any]
    shown: Sequence[Any]
    status: int = 0
    after_printing: Callable[[], None] = lambda: None


def _model(options: argparse.Namespace) -> GPT2:
    if options.model is not None:
        return GPT2.from_pretrained(options.model)
    with contextlib.redirect_stdout(sys.stderr):  # keep its notice out of the output
        return GPT2.default()


def _texts(options: argparse.Namespace, max_count: int = 1) -> list[str]:
    """The texts from the command line, stdin and files."""
    count = len(options.texts) + len(options.files)
    if not 1 <= count <= max_count:
        option = "--text " if options.command == "check" else ""
        raise InvalidValueError(
            "expected {expected}; got {count}. Put a text in quotes, such as "
            '{option}"The dog chased the ball", or use --file FILE, or {option}- for stdin',
            expected=Message("one text or two" if max_count > 1 else "one text"),
            count=count,
            option=option,
        )
    texts = [_read_stdin() if text == "-" else text for text in options.texts]
    return texts + [read_text(file, InvalidValueError).removesuffix("\n") for file in options.files]


def _read_stdin() -> str:
    """The text on stdin, decoded as UTF-8 whatever the locale."""
    content = sys.stdin.buffer.read(LARGEST + 1) if sys.stdin else b""
    if len(content) > LARGEST:
        raise InvalidValueError(
            "stdin can't be read: it has more than {largest} bytes", largest=f"{LARGEST:,}"
        )
    return decode_text(content, "stdin", InvalidValueError).removesuffix("\n")


def _model_and_trace(options: argparse.Namespace) -> tuple[GPT2, Trace]:
    """The model, and the text's trace with the edits."""
    (text,) = _texts(options)
    model = _model(options)
    return model, model.trace(text).edited(dict(options.edit))


def _layer_and_head(part: Result) -> dict[str, int]:
    """The layer and head in the path of a part of a trace, such as {"layer": 1} for a block."""
    names = {"blocks": "layer", "heads": "head"}
    return {
        names[name]: int(number)
        for name, number in itertools.pairwise(part.path.split("."))
        if name in names
    }


def _trace(options: argparse.Namespace) -> Report:
    model, trace = _model_and_trace(options)
    head = trace.head(options.layer, options.head)
    paths = options.step or [name for name in PER_HEAD if name != "dropout_mask"]
    parts_and_names = [_step_at(trace, head, path) for path in paths]
    steps = [
        _labelled_step(part, name, is_path="." in path)
        for path, (part, name) in zip(paths, parts_and_names, strict=True)
    ]

    title = head.title if all(path in head._table_steps for path in paths) else trace.title
    locations = [_layer_and_head(part) for part, _ in parts_and_names]
    content = {
        **_trace_fields(model, trace, options),
        **{
            name: number  # the layer and head, if all steps have the same
            for name, number in locations[0].items()
            if all(location.get(name) == number for location in locations)
        },
        "steps": [
            {
                "name": step.name,
                "path": _path(part, name),
                "heading": step.heading,
                "axes": [axis.name for axis in step.axes],
                "shape": step.array.shape,
                "values": step.array,
            }
            for step, (part, name) in zip(steps, parts_and_names, strict=True)
        ],
    }
    if not options.step:  # the weights first, before three wide matrices
        steps.sort(key=lambda step: step.name != "weights")
    return Report(content, [Heading(title), trace.tokens, *steps])


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
                "{error}; the trace's steps are {steps}. Or use a path, such as "
                "blocks.0.mid or blocks.0.mlp.hidden",
                error=error,
                steps=", ".join(trace._table_steps),
            ) from None
    part, name = step_at(trace, path)
    if isinstance(part, MultiHeadAttention) and name in PER_HEAD:
        part = part.heads[int(head.path.rpartition(".")[2])]
    return part, name


def _path(part: Result, name: str) -> str:
    """A step's path in the trace."""
    return f"{part.path}.{name}".lstrip(".")


def _labelled_step(part: Result, name: str, *, is_path: bool) -> LabelledStep:
    """A step to print as a table; if `is_path`, the heading names the part that has the step."""
    if name == PROBABILITIES and not part.path:
        raise InvalidValueError(
            "probabilities can't be printed as a table. Use trace.next_tokens() for the largest, "
            "or attnlab explain --step probabilities for the arithmetic of one"
        )
    step = labelled_step(part, name)
    if not is_path:
        return step
    return replace(step, name=_path(part, name), heading=f"{say(part.title)}: {say(step.heading)}")


def _explain(options: argparse.Namespace) -> Report:
    model, trace = _model_and_trace(options)
    head = trace.head(options.layer, options.head)
    part, name = _step_at(trace, head, options.step)
    explanation = explain(part, name, options.query, options.component, options.key)
    content = {
        **_trace_fields(model, trace, options),
        **_layer_and_head(part),
        "step": _path(part, name),
        "title": explanation.title,
        "numbers": explanation.numbers,
    }
    return Report(content, [explanation])


def _verify(options: argparse.Namespace) -> Report:
    model = _model(options)
    verdict = walkthrough.reproduce(model)
    tables = [{**asdict(table), "agrees": table.agrees} for table in verdict.tables]
    content = {
        **_model_fields(model),
        "prompt": verdict.prompt,
        "agrees": verdict.agrees,
        "reason": verdict.reason,
        "tables": tables,
    }
    return Report(content, [verdict], 0 if verdict.agrees else 1)


def _html(options: argparse.Namespace) -> Report:
    texts, edits = _texts(options, max_count=2), dict(options.edit)
    if len(texts) > 1 and edits:
        raise InvalidValueError("--edit can't be used with two texts")
    if options.output == "-":
        raise InvalidValueError("can't write a page to stdout; use -o FILE, such as -o page.html")
    file = _page_to_write(options.output, options)
    model = _model(options)
    traces = [model.trace(text) for text in texts]
    if edits:
        traces.append(traces[0].edited(edits))
    traces[0].save(options.output, traces[1] if len(traces) > 1 else None)
    if options.open:
        _show_in_browser(file)
    content = {**_model_fields(model), "edits": edits, "path": str(file)}
    return Report(content, [str(file)])


def _playground(options: argparse.Namespace) -> Report:
    file = _page_to_write(options.path, options)
    model = _model(options)
    model.playground(options.path, options.text)
    if options.open:
        _show_in_browser(file)
    return Report({**_model_fields(model), "path": str(file)}, [str(file)])


def _page_to_write(path: str, options: argparse.Namespace) -> Path:
    """The absolute path of a page to write; raise if it would replace a file that isn't a page."""
    file = as_path(path).absolute()
    if os.path.isfile(file) and not options.force and not is_page(file):
        raise WriteError(
            "{file} exists and wasn't written by attnlab. Use --force to replace it, or another "
            "file name",
            file=file,
        )
    return file


def _explore(options: argparse.Namespace) -> Report:
    start = _texts(options) if options.texts or options.files else []
    measured_atlas = None if options.atlas is None else open_atlas(options.atlas)
    if measured_atlas is not None and options.model is None:
        options.model = measured_atlas.model_given or None  # empty if the model was in memory
    model = _model(options)
    if measured_atlas is None:
        explorer = model.explore(*start, port=options.port)
    else:
        explorer = measured_atlas.explore(model, *start, port=options.port)

    def serve() -> None:
        link_file = contextlib.nullcontext() if options.no_browser else _link_file(explorer.url)
        try:
            with explorer, link_file as file:
                if file:
                    _show_in_browser(file)
                explorer.wait()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(say("Explorer stopped.")) from None
        print(say("Explorer stopped from the page."), file=sys.stderr)

    notice = Message("Anyone with this link has access. Ctrl-C to stop.")
    shown = [_title(model), explorer.url, notice]
    return Report({**_model_fields(model), "url": explorer.url}, shown, after_printing=serve)


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


def _show_in_browser(page: Path) -> None:
    if not webbrowser.open(page.as_uri()):
        print(say("No browser found; open the link yourself."), file=sys.stderr)


def _check(options: argparse.Namespace) -> Report:
    (text,) = _texts(options)
    model = _model(options)
    trace = model.trace(text)
    # One token more: `check` recognises arrays with a prepended token.
    arrays = read_npz(options.arrays, model.config.largest_step(len(trace.tokens) + 1))
    result: Result = trace
    if options.layer is not None or options.head is not None:
        result = trace.blocks[options.layer or 0].attention
    if options.head is not None:
        result = trace.head(options.layer or 0, options.head)
    try:
        verdict = check(arrays, result)
    except InvalidValueError as error:
        if result is not trace or not {*arrays} & {*Head.steps}:
            raise
        raise InvalidValueError(
            "{error}. For steps of one head, use --layer and --head; for steps of a layer, --layer",
            error=error,
        ) from None

    content = {
        **_model_fields(model),
        "tokens": _token_list(trace.tokens),
        "title": verdict.title,
        "agrees": verdict.agrees,
        "first": verdict.first.path if verdict.first else None,
        "steps": [{**asdict(stage), "agrees": stage.agrees} for stage in verdict.stages],
        "mistakes": _mistakes(verdict.mistakes),
        "further": list(map(_mistakes, verdict.further)),
        "unexplained": verdict.unexplained,
        "differing": verdict.differing,
        "cells": [cell._asdict() for cell in verdict.cells],
    }
    return Report(content, [verdict], 0 if verdict.agrees else 1)


def _mistakes(mistakes: Iterable[Mistake]) -> list[dict[str, Any]]:
    names = "formula", "hint", "lines"
    return [{name: getattr(mistake, name) for name in names} for mistake in mistakes]


def _atlas(options: argparse.Namespace) -> Report:
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
            directory=options.out,
        )

    shown: list[Any] = [result]
    shown += [
        Message("{name} could not be measured: {reason}", name=name, reason=reason)
        for name, reason in result.faults
    ]
    if options.out is not None:
        directory = as_path(options.out)
        shown.append(f"Python: attnlab.open_atlas({str(directory / RESULT)!r})")
        if (directory / PAGE).exists():
            shown.append(Message("Page: {path}", path=directory / PAGE))
        if result.model_given:
            model_name, path = map(shlex.quote, (result.model_given, str(directory)))
            command = f"attnlab explore --model {model_name} --atlas {path}"
            shown.append(Message("Explorer: {command}", command=command))
    content = {
        **_model_fields(model),
        "texts": result.texts,
        "tokens": result.tokens,
        "faults": [{"text": name, "reason": reason} for name, reason in result.faults],
        "measures": [
            {
                "name": name,
                **{key: getattr(measure, key) for key in ("mean", "error", "texts", "places")},
            }
            for name, measure in result.items()
        ],
    }
    return Report(content, shown)


def _download(options: argparse.Namespace) -> Report:
    directory = str(find_model(options.name))
    content = {"name": options.name, "directory": directory}
    return Report(content, [directory])


def _trace_fields(model: GPT2, trace: Trace, options: argparse.Namespace) -> dict[str, Any]:
    """The model and the traced text, for --json."""
    return {
        **_model_fields(model),
        "tokens": _token_list(trace.tokens),
        "edits": dict(options.edit),
    }


def _model_fields(model: GPT2) -> dict[str, Any]:
    """The model, for --json."""
    parameters = model.parameters
    directory = str(parameters.directory) if isinstance(parameters, Checkpoint) else None
    return {"model": _title(model), "directory": directory}


def _title(model: GPT2) -> str:
    return repr(model).partition("\n")[0]


def _token(token: Token) -> dict[str, Any]:
    return {"id": token.id, "symbol": token.symbol, "text": token.text, "bytes": token.bytes.hex()}


def _token_list(tokens: Tokens) -> list[dict[str, Any]]:
    return [_token(token) for token in tokens]


COMMANDS: dict[str, Callable[[argparse.Namespace], Report]] = {
    "trace": _trace,
    "explain": _explain,
    "verify": _verify,
    "html": _html,
    "explore": _explore,
    "playground": _playground,
    "check": _check,
    "atlas": _atlas,
    "download": _download,
}
