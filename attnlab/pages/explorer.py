"""A local HTTP server for a page that traces any text with a model.

`Explorer` serves the page of `attnlab.pages` without data; the page requests data as needed.

    GET  /?token=...             the page
    POST /trace                  {"text": ...} or {"ids": [...]}, and "changes", a list of objects,
                                 see `changes.js`; with a text, "special", names of special tokens
                                 -> a description of the trace, with an id
    GET  /numbers?trace=&name=   one of the trace's packs, float32, little-endian; see `packs.py`
    POST /write                  {"trace": id, "count": ...}, and sampling settings
                                 -> the generated tokens
    POST /stop                   stops the server

The response to an error is {"error": a sentence}, or a page that shows the sentence if a page was
requested. The status is 410 if the trace was evicted from the cache. Every request must have the
link's token, which keeps out other users of this machine; requests by other sites are recognised
by Host and Origin.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import secrets
import socket
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from html import escape
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from attnlab.equations import Mask
from attnlab.errors import AttnlabError, InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.forward_pass import layer_numbers
from attnlab.model.sampling import SamplingSettings
from attnlab.model.trace import NextToken, Trace
from attnlab.pages.modules import LARGEST_FACTOR, SERVED, STEPS_TO_CHANGE
from attnlab.pages.packs import pack, story_parts
from attnlab.pages.saved import (
    assembled,
    description_of,
    examples_of,
    first_text,
    names_of,
    policy_of,
    token_of,
)
from attnlab.pages.token_pass import packed_paths
from attnlab.steps import at
from attnlab.support.checks import as_count, check_kind, importing_extra, is_integer
from attnlab.support.console import StdoutSafe
from attnlab.support.language import LANGUAGES, language_of, using_language
from attnlab.support.messages import Message, say
from attnlab.support.tables import printable
from attnlab.text.tokens import Tokens

with importing_extra("explore"):
    import uvicorn
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.datastructures import MutableHeaders
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send

from attnlab.model.gpt2 import GPT2

T = TypeVar("T")

# Reachable from this machine only.
ADDRESS = "127.0.0.1"

# Paths of pages. Links to them carry the token in the URL instead of a header.
PAGES = ("/",)

MAX_REQUEST_BYTES = 100_000

# Seconds for a request's body to arrive, and for running requests to end when the server stops.
REQUEST_TIMEOUT = 10
SHUTDOWN_TIMEOUT = 1

# Limit on the arrays in the cache; the most recent trace is kept even above it.
MAX_CACHE_BYTES = 512_000_000

# The number of traces is limited too, since measuring their size takes time for each.
MAX_TRACES = 100

MAX_NEW_TOKENS = 100
SAMPLING_SETTINGS = tuple(SamplingSettings.__annotations__)

# If a text is too long, the error quotes this many characters before the limit.
MAX_QUOTED = 30

HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

# The page may be framed by notebooks, which are served from this machine or by VS Code.
FRAME_ANCESTORS = "frame-ancestors http://127.0.0.1:* http://localhost:* vscode-webview:"


class PageError(InvalidValueError):
    """An error that a reader of the page meets; the page shows it in its own language."""

    def __init__(self, template: str, **values: object) -> None:
        self.sentence = Message(template, **values)
        super().__init__(f"{self.sentence}")  # English


class Explorer(StdoutSafe):
    """A local server for a page that traces any text, see `GPT2.explore`.

    The server starts immediately and runs in a thread. As a context manager, it stops on exit.
    Anyone with the link, `url`, has access: keep it private.
    """

    def __init__(
        self,
        model: GPT2,
        text_or_ids: str | ArrayLike | Tokens | None = None,
        *,
        port: int = 0,
        language: str | None = None,
    ) -> None:
        port = as_count(port, "port", most=65535)
        cache = TraceCache(model, language_of(language))
        if text_or_ids is None:
            with using_language(language):
                text_or_ids = first_text(model)
        if isinstance(text_or_ids, str):
            model.tokenizer.check_length(text_or_ids, model.config.n_positions)
        cache.start = cache.trace_of(text_or_ids).trace.tokens  # raises if it can't be traced
        listener = listen(port)
        port, token = listener.getsockname()[1], secrets.token_urlsafe(32)
        self.url = f"http://{ADDRESS}:{port}/?token={token}"
        self._title = repr(model).partition("\n")[0]
        self._server = uvicorn.Server(
            uvicorn.Config(
                Guard(application(cache, self._request_stop), token, port),
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="off",
                proxy_headers=False,
                server_header=False,
                access_log=False,  # URLs contain the token
                log_config=None,
                log_level="critical",  # `server_error` prints errors; aborted requests are normal
                timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
            )
        )
        # Not Thread.join: if Ctrl-C interrupts it, Python 3.11 believes that the thread has ended.
        self._ended = threading.Event()
        self._process = os.getpid()
        threading.Thread(
            target=self._serve, args=(listener,), name="attnlab explorer", daemon=True
        ).start()

    def _serve(self, listener: socket.socket) -> None:
        try:
            with listener:  # uvicorn leaves it open if stopped before it has started
                self._server.run([listener])
        finally:
            self._ended.set()

    @property
    def is_running(self) -> bool:
        """Whether the server is running in this process."""
        return self._process == os.getpid() and not self._ended.is_set()

    def stop(self) -> None:
        """Stop the server without waiting for requests to finish; do nothing if it has stopped."""
        self._request_stop()
        self.wait()

    def wait(self) -> None:
        """Block until the server is stopped, by the page or by another thread."""
        # Without a timeout, Ctrl-C has no effect on Windows.
        while self.is_running and not self._ended.wait(0.5):
            pass

    def _request_stop(self) -> None:
        self._server.should_exit = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        if not self.is_running:
            return "Explorer, stopped"
        return f"Explorer of {self._title}\n{self.url}\n.stop() stops it"

    def _repr_html_(self) -> str:
        if not self.is_running:
            return f"<p>{escape(say('The explorer was stopped.'))}</p>"
        # allow-same-origin is safe here: the frame's origin is not the notebook's.
        return (
            f'<p><a href="{escape(self.url)}" target="_blank" rel="noreferrer">'
            f"{escape(say('Open the explorer in a new tab'))}</a></p>"
            f'<iframe title="{escape(repr(self).partition(chr(10))[0])}" src="{escape(self.url)}" '
            f'sandbox="allow-scripts allow-same-origin" referrerpolicy="no-referrer" '
            'style="width:100%;height:720px;border:0"></iframe>'
        )


def listen(port: int) -> socket.socket:
    """A socket that listens on a port of this machine; 0 for any free one."""
    try:
        return socket.create_server((ADDRESS, port))
    except OSError as error:
        raise InvalidValueError(
            f"port {port} can't be used: {os.strerror(error.errno or 0)}. Leave port out to "
            "use a free one"
        ) from None


@dataclass(frozen=True, eq=False)
class CachedTrace:
    """A trace in the cache, with the steps computed so far."""

    id: str  # a hash of the token ids and the changes
    trace: Trace
    changes: Sequence[Any]  # the request's "changes", see `changes.js`


class TraceCache:
    """An explorer's model and its most recent traces. Used by one thread at a time."""

    start: Tokens  # what a page opens with

    def __init__(self, model: GPT2, language: str) -> None:
        self.model, self.language = model, language
        self._traces: OrderedDict[str, CachedTrace] = OrderedDict()  # most recently used last

    def trace_of(
        self, text_or_ids: Any, changes: Sequence[Any] = (), special: Sequence[str] = ()
    ) -> CachedTrace:
        tokenizer, positions = self.model.tokenizer, self.model.config.n_positions
        is_text = isinstance(text_or_ids, str)
        try:
            ids = tokenizer.encode_prompt(text_or_ids, special=special) if is_text else text_or_ids
        except InvalidValueError as error:
            raise PageError("The text can't be tokenized: {reason}", reason=error) from None
        if isinstance(ids, list) and not ids:
            raise PageError("Enter a text to trace.")
        # Checked before Tokens are made, which is slow for long texts.
        if isinstance(ids, list) and len(ids) > positions:
            end = self._text(tokenizer.tokens(ids[:positions]))["text"][-MAX_QUOTED:]
            raise PageError(
                "The text has {count} tokens; this model reads at most {positions}, up to “{end}”.",
                count=len(ids),
                positions=positions,
                end=printable(end),
            )
        if is_text:
            tokens = tokenizer.prompt_tokens(text_or_ids, special=special)
        else:
            tokens = tokenizer.tokens(ids)
        edits = self._edits_of(changes, len(tokens))
        content = json.dumps([tokens.ids.tolist(), changes])
        id = sha256(content.encode()).hexdigest()[:16]
        # Another text with the same ids may have other words that the model can't read.
        if id not in self._traces or (is_text and not self._has_words(id, tokens)):
            edited = self.trace_of(text_or_ids, (), special).trace.edited(edits) if edits else None
            self._traces[id] = CachedTrace(id, edited or self.model.trace(tokens), changes)
        return self.get(id)

    def _has_words(self, id: str, tokens: Tokens) -> bool:
        """Whether a cached trace's unknown tokens stand for the same words as these."""
        pairs = zip(tokens, self._traces[id].trace.tokens, strict=True)
        return all(token.unread == cached.unread for token, cached in pairs)

    def get(self, id: str) -> CachedTrace:
        if id not in self._traces:
            raise HTTPException(410, "This trace is no longer in the cache. Trace the text again.")
        self._traces.move_to_end(id)
        return self._traces[id]

    def describe(
        self, text_or_ids: Any, changes: Sequence[Any] = (), special: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The page's description of a text's trace, with its id, text and token ids."""
        cached = self.trace_of(text_or_ids, changes, special)
        description = description_of(cached.trace, has_model=True)
        self._evict()
        tokens = cached.trace.tokens
        return {"id": cached.id, "changes": changes, **self._text(tokens), **description}

    def page(self) -> str:
        """The page, which opens with the explorer's text."""
        description = self.describe(self.start)
        trace = self.get(description["id"]).trace
        examples = examples_of(self.model)
        return assembled(trace, [description], SERVED, self._names, examples)

    @cached_property
    def _names(self) -> str:
        return names_of(self.model.tokenizer.vocabulary)

    def numbers(self, id: str, name: str) -> bytes:
        """One pack of a trace, see `packs.py`."""
        trace = self.get(id).trace
        if name.startswith("pass."):
            for path in packed_paths(trace):  # computed once for all tokens, not once per token
                at(trace, path)
        numbers = pack(trace, name)
        self._evict()
        return numbers

    def story(self, id: str) -> Iterator[bytes]:
        """The pack "story" of a trace, in parts."""
        return story_parts(self.get(id).trace)  # computed in forks, so the cache doesn't grow

    def start_generation(
        self, id: str, count: Any, content: Mapping[str, Any]
    ) -> tuple[CachedTrace, Iterator[NextToken]]:
        """A trace, and an iterator that generates up to `count` tokens after it."""
        cached, positions = self.get(id), self.model.config.n_positions
        tokens = cached.trace.tokens
        free_positions = positions - len(tokens)
        if not is_integer(count) or not 1 <= count <= MAX_NEW_TOKENS:
            raise PageError("The number of tokens must be from 1 to {most}.", most=MAX_NEW_TOKENS)
        if not free_positions:
            raise PageError(
                "The text fills all {positions} positions of the model; no tokens can be added.",
                positions=positions,
            )
        settings = {name: content[name] for name in SAMPLING_SETTINGS if name in content}
        edits = self._edits_of(cached.changes, len(tokens)) or None
        return cached, self.model.stream(
            tokens, min(count, free_positions), edits=edits, **settings
        )

    def continuation(self, cached: CachedTrace, chosen: Sequence[NextToken]) -> dict[str, Any]:
        """The text with the generated tokens, for the page; see `NextToken`."""
        return {
            **self._text(Tokens([*cached.trace.tokens, *chosen])),
            "chosen": [
                {**token_of(token), "probability": token.probability, "share": token.share}
                for token in chosen
            ],
        }

    def _edits_of(self, changes: Sequence[Any], n_tokens: int) -> dict[str, Any]:
        config = self.model.config
        paths = [f"blocks.{layer}.attention" for layer in range(config.n_layer)]
        numbers = layer_numbers(config)
        unscaled = {f"{p}.scale": float(numbers.get(f"{p}.layer_number", 1)) for p in paths}
        return edits_of(changes, n_tokens, self.trace_of, unscaled)

    def _text(self, tokens: Tokens) -> dict[str, Any]:
        return {"text": self.model.tokenizer.text_of(tokens), "ids": tokens.ids.tolist()}

    def _evict(self) -> None:
        """Evict the least recently used traces while the cache is over its limits."""
        while len(self._traces) > 1 and (
            len(self._traces) > MAX_TRACES
            or size_of(cached.trace for cached in self._traces.values()) > MAX_CACHE_BYTES
        ):
            self._traces.popitem(last=False)


def size_of(traces: Iterable[Trace]) -> int:
    """The size of the traces' arrays in bytes, without parameters; shared arrays count once."""
    runs = {}
    for trace in traces:
        run: Any = trace._run
        while run is not None:
            runs[id(run)] = run
            run = getattr(run, "base", None)  # an edited run's original
    # The pickled values: without parameters and without views of other arrays.
    values = (value for run in runs.values() for value in run.__getstate__()["values"].values())
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


def edits_of(
    changes: Sequence[Any],
    n_tokens: int,
    trace_of: Callable[[list[int]], CachedTrace],
    unscaled: Mapping[str, float],
) -> dict[str, Any]:
    """The edits for a page's changes, see `changes.js`; `unscaled` are scales without √Dk."""
    edits: dict[str, Any] = {}
    for change in changes:
        match change:
            case {"kind": "uncausal"}:
                edits["mask"] = np.ones_like
            case {"kind": "unscaled"}:
                edits |= unscaled
            case {"kind": "ablate", "layer": int(layer), "head": int(head)}:
                edits[f"blocks.{layer}.attention.heads.{head}.context"] = 0
            case {"kind": "ablate", "layer": int(layer), **others} if not others:
                edits[f"blocks.{layer}.mlp.output"] = 0
            case {
                "kind": "scale",
                "layer": int(layer),
                "head": int(head),
                "step": str(step),
                "factor": int(factor) | float(factor),
            } if step in STEPS_TO_CHANGE and abs(factor) <= LARGEST_FACTOR:
                path = f"blocks.{layer}.attention.heads.{head}.{step}"
                edits[path] = partial(np.multiply, factor)
            case {
                "kind": "patch",
                "layer": int(layer),
                "head": int(head),
                "step": str(step),
                "ids": list(ids),
            } if step in STEPS_TO_CHANGE:
                path = f"blocks.{layer}.attention.heads.{head}.{step}"
                other = trace_of(ids).trace
                if len(other.tokens) != n_tokens:
                    raise PageError(
                        "The other text has {other} tokens and this one {count}; both must have "
                        "the same number.",
                        other=len(other.tokens),
                        count=n_tokens,
                    )
                edits[path] = at(other, path)
            case {"kind": "mask", "layer": int(layer), "head": int(head), "cells": list(cells)} if (
                all(map(is_cell, cells))
            ):
                is_causal = {"kind": "uncausal"} not in changes
                mask = np.tri(n_tokens, k=0 if is_causal else n_tokens, dtype=bool)
                hidden = ~toggle_cells(mask, cells).any(axis=1)
                if hidden.any():
                    raise PageError(
                        "The mask must leave query {i} at least one key.", i=hidden.argmax()
                    )
                path = f"blocks.{layer}.attention.heads.{head}.mask"
                edits[path] = partial(toggle_cells, cells=cells)
            case _:
                raise InvalidTypeError(
                    "a change must have a kind (ablate, scale, patch, mask, uncausal or unscaled) "
                    f"and its fields; got {quoted(change)}"
                )
    return edits


def is_cell(cell: Any) -> bool:
    """Whether something is a cell of a mask, [query, key]."""
    is_pair = isinstance(cell, list) and len(cell) == 2
    return is_pair and all(is_integer(n) and n >= 0 for n in cell)


def toggle_cells(mask: Mask, cells: Sequence[Sequence[int]]) -> Mask:
    """A copy of a mask (Tq, Tk) with some cells [query, key] toggled; others are ignored."""
    Tq, Tk = mask.shape
    toggled = mask.copy()
    for query, key in cells:
        row = query - (Tk - Tq)  # the keys of earlier tokens may be cached
        if 0 <= row < Tq and key < Tk:
            toggled[row, key] ^= True
    return toggled


def required_field(content: Mapping[str, Any], name: str, expected_type: type) -> Any:
    """A field of a request; raise if it is missing or has another type."""
    value = content.get(name)
    check_kind(value, expected_type, name)
    return value


# ---- HTTP ----------------------------------------------------------------------------------------


def application(cache: TraceCache, request_stop: Callable[[], None]) -> ASGIApp:
    """The web application, without access control; a page's stop calls `request_stop`."""
    worker = ThreadPoolExecutor(1, "attnlab explorer's cache")
    lock = asyncio.Lock()

    async def compute(request: Request, function: Callable[[], T]) -> T:
        """Run a function in the worker; skip requests that have disconnected."""

        def run() -> T:
            with using_language(cache.language):
                return function()

        async with lock:
            if await request.is_disconnected():
                raise ClientDisconnect
            return await asyncio.get_running_loop().run_in_executor(worker, run)

    async def collect(request: Request, items: Iterator[T]) -> list[T]:
        """Compute all items, one at a time, so that other requests are answered in between."""
        results: list[T] = []
        while (item := await compute(request, lambda: next(items, None))) is not None:
            results.append(item)
        return results

    async def page(request: Request) -> Response:
        html = await compute(request, cache.page)
        return HTMLResponse(
            html, headers={"content-security-policy": f"{policy_of(SERVED)}; {FRAME_ANCESTORS}"}
        )

    async def trace(request: Request) -> Response:
        content = await read_json(request, cache.model.config.n_positions)
        if ("text" in content) == ("ids" in content):
            raise InvalidValueError("give either text or ids")
        name, expected_type = ("text", str) if "text" in content else ("ids", list)
        text_or_ids = required_field(content, name, expected_type)
        changes = required_field({"changes": []} | content, "changes", list)
        special = required_field({"special": []} | content, "special", list)
        return JSONResponse(
            await compute(request, lambda: cache.describe(text_or_ids, changes, special))
        )

    async def numbers(request: Request) -> Response:
        id = request.query_params.get("trace", "")
        name = request.query_params.get("name", "")
        if name == "story":
            content = b"".join(await collect(request, cache.story(id)))
        else:
            content = await compute(request, lambda: cache.numbers(id, name))
        return Response(content, media_type="application/octet-stream")

    async def write(request: Request) -> Response:
        content = await read_json(request, cache.model.config.n_positions)
        id = required_field(content, "trace", str)
        count = content.get("count")
        cached, tokens = await compute(request, lambda: cache.start_generation(id, count, content))
        chosen = await collect(request, tokens)
        return JSONResponse(await compute(request, lambda: cache.continuation(cached, chosen)))

    async def stop(request: Request) -> Response:
        return JSONResponse({}, background=BackgroundTask(request_stop))

    return Starlette(
        routes=[
            Route("/", page),
            Route("/trace", trace, methods=["POST"]),
            Route("/numbers", numbers),
            Route("/write", write, methods=["POST"]),
            Route("/stop", stop, methods=["POST"]),
        ],
        exception_handlers={
            AttnlabError: partial(client_error, cache.language),
            HTTPException: partial(client_error, cache.language),
            ClientDisconnect: partial(client_error, cache.language),
            Exception: server_error,
        },
    )


async def read_json(request: Request, n_positions: int) -> dict[str, Any]:
    """The JSON object in a request's body."""
    body = bytearray()
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_REQUEST_BYTES:  # uvicorn discards the rest
                    message = Message(
                        "The text has more than {bytes} bytes; this model reads at most "
                        "{positions} tokens.",
                        bytes=f"{MAX_REQUEST_BYTES:,}",
                        positions=n_positions,
                    )
                    raise HTTPException(413, message)
    except TimeoutError:
        raise HTTPException(408, "The request timed out.") from None
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise HTTPException(400, "Expected a JSON object.")
    return content


def error_response(request: Request, status: int, sentence: str) -> Response:
    """An error as HTML if a page was requested, else as JSON."""
    if request.url.path in PAGES:
        title = '<!doctype html><meta charset="utf-8"><title>attnlab</title>'
        return HTMLResponse(f"{title}<p>{escape(sentence)}</p>", status)
    return JSONResponse({"error": sentence}, status)


async def client_error(language: str, request: Request, error: Exception) -> Response:
    """The response to an invalid request, in the page's language, else in the explorer's."""
    of_page = request.headers.get("accept-language", "")
    language = of_page if of_page in LANGUAGES else language
    if isinstance(error, HTTPException):
        return error_response(request, error.status_code, say(error.detail, language))
    sentence = error.sentence if isinstance(error, PageError) else f"{error}"
    return error_response(request, 400, say(sentence, language))


async def server_error(request: Request, error: Exception) -> Response:
    """The response to an unexpected error, whose traceback is printed to stderr."""
    traceback.print_exception(error)
    name = type(error).__name__
    return error_response(request, 500, f"Internal error: {name}. See the terminal for details.")


class Guard:
    """Access control: requires the token, and the explorer's own Host and Origin.

    Host defeats DNS rebinding; Origin, requests forged by pages of other sites.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{name}:{port}" for name in (ADDRESS, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault(
                    "content-security-policy", f"default-src 'none'; {FRAME_ANCESTORS}"
                )
                headers.update(HEADERS)
            await send(message)

        request = Request(scope)
        reason = self.refusal(request)
        app = error_response(request, 403, reason) if reason else self.app  # both are ASGI apps
        await app(scope, receive, send_guarded)

    def refusal(self, request: Request) -> str:
        """Why a request is refused; "" if it isn't."""
        host = request.headers.get("host", "")
        if host not in self.hosts:
            return f"Invalid Host. Open the explorer at http://{ADDRESS}."
        if request.method == "POST" and request.headers.get("origin") != f"http://{host}":
            return "Invalid Origin. Only the explorer's own page can send requests."
        if request.url.path in PAGES:
            token = request.query_params.get("token", "")
        else:
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return "Invalid token. Open the link that the explorer printed when it started."
        return ""
