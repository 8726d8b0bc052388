"""A model behind a page, for browsers on this machine alone: type a text, look, change, look again.

`Explorer` serves the page of `attnlab.views.page`, which carries no numbers here and asks for them.

    GET  /?token=...             the page
    POST /trace                  {"text": ...} or {"ids": [...]}, and "ablated": changes, of which
                                 [layer, head] ablates a head, [layer] an MLP; [layer, head, step,
                                 50] scales a step by 0.5, [layer, head, step, "of", id, ...] takes
                                 it from another text; [layer, head, "mask", "flip", query, key,
                                 ...] switches cells of a head's mask; ["mask"] lifts the causal
                                 mask, ["root"] switches √Dk off
                                 -> the trace as a page describes it, with an id
    GET  /numbers?trace=&name=   one of its packs, float32, little-endian; see `packs.py`
    POST /write                  {"trace": id, "count": ...}, and how to sample -> what was written
    POST /stop                   the end

With an atlas, each passage of which is a link to its trace:

    GET  /atlas?token=...        the atlas's page
    GET  /?token=...&passage=    the page, which opens with a passage: measure.most.layer.head.rank

What can't be done is answered by {"error": a sentence}, or where a page was asked for by one that
says it; a trace that is no longer kept by 410. Only who has the link gets in, which no other site
has, and no other user: every request bears its token, and what a page of another site sends is told
by its Host and Origin.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from html import escape
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from attnlab.equations import Mask
from attnlab.errors import AttnlabError, InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.forward_pass import layer_numbers
from attnlab.model.sampling import SamplingSettings
from attnlab.model.trace import NextToken, Trace
from attnlab.steps import at
from attnlab.support.checks import as_count, check_kind, is_integer
from attnlab.support.console import PrintedAnywhere
from attnlab.support.tables import printable
from attnlab.text.tokens import Tokens
from attnlab.views.language import language_of, say
from attnlab.views.page.atlas import Served, place_of, policy
from attnlab.views.page.atlas import page as atlas_page
from attnlab.views.page.packs import pack
from attnlab.views.page.page import (
    START,
    description_of,
    live_page,
    live_policy,
    notes_on,
    token_of,
)
from attnlab.views.page.way import carried
from attnlab.views.shown import missing_extra

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.datastructures import MutableHeaders
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ModuleNotFoundError as error:
    raise missing_extra(error, "explore") from None

# A GPT2 and an atlas, which stand above and ask for an explorer.
Model: TypeAlias = Any
Atlas: TypeAlias = Any

Made = TypeVar("Made")

# Reached from this machine alone.
ADDRESS = "127.0.0.1"

# Where an atlas's page is.
ATLAS = "atlas"

# What is opened by links, which can bear no header.
PAGES = ("/", f"/{ATLAS}")

# How many bytes a request may have.
LONGEST_REQUEST = 100_000

# How many seconds a request may take to arrive, and those that run may take to end.
PATIENCE = 10
GRACE = 1

# How many bytes of arrays traces may keep, beside the one that was asked for last.
KEPT = 256_000_000

# How many traces are kept at most: each is looked through to know how many bytes it has.
MOST_KEPT = 100

# How many connections may be open; a browser has six. One that says nothing goes first.
MOST_CONNECTIONS = 100

# How many tokens are written at a time, and what a page may say about how.
MOST_WRITTEN = 100
SETTINGS = tuple(SamplingSettings.__annotations__)

# What is scaled in a head or taken from another text; a masked score times 0 is no number.
STEPS_TO_CHANGE = ("Q", "K", "V", "raw_scores", "scores", "weights", "context")

# How much is told of where a text that is too long would have to end.
END_TOLD = 30

# What every answer says: it is nobody else's, is kept nowhere, and is what it says that it is.
HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

# The page may stand in a notebook's frame, whose site is one of this machine, or of VS Code. Of
# other sites none knows the link; what they framed without it would be an error.
ANCESTORS = "frame-ancestors http://127.0.0.1:* http://localhost:* vscode-webview:"


class Explorer(PrintedAnywhere):
    """A page on this machine that shows what a model makes of any text, as `GPT2.explore` opens it.

    It is served by a thread, from when it is made. `with` stops it at the end.

    Attributes
    ----------
    url : the link to it; who has it can use the page, so keep it to yourself
    """

    def __init__(
        self,
        model: Model,
        text_or_ids: str | ArrayLike | Tokens | None = None,
        *,
        port: int = 0,
        language: str | None = None,
        atlas: Atlas | None = None,
    ) -> None:
        port = as_count(port, "port", most=65535)
        cache = TraceCache(model, language_of(language), atlas)
        if text_or_ids is None:
            text_or_ids = model.tokenizer.encode(START)[: model.config.n_positions]
        if isinstance(text_or_ids, str):
            model.tokenizer.check_length(text_or_ids, model.config.n_positions)
        cache.start = cache.trace_of(text_or_ids).trace.tokens  # told here if it can't be traced
        try:
            listener = socket.create_server((ADDRESS, port))
        except OSError as error:
            raise InvalidValueError(
                f"port {port} can't be used: {os.strerror(error.errno or 0)}; without a port, a "
                "free one is found"
            ) from None
        port, token = listener.getsockname()[1], secrets.token_urlsafe(32)
        page = "" if atlas is None else ATLAS
        # An atlas's links open tabs, which are no longer inside a notebook.
        self._popups = "" if atlas is None else " allow-popups allow-popups-to-escape-sandbox"
        self.url = f"http://{ADDRESS}:{port}/{page}?token={token}"
        self._title = repr(model).partition("\n")[0]
        self._server = uvicorn.Server(
            uvicorn.Config(
                Guard(application(cache, self._end), token, port),
                loop="asyncio",
                http=Patient,
                ws="none",
                lifespan="off",
                proxy_headers=False,
                server_header=False,
                access_log=False,  # links with their tokens
                log_config=None,
                log_level="critical",  # what fails is told by `failed`; requests cut short are not
                timeout_graceful_shutdown=GRACE,
            )
        )
        # Ctrl-C while a thread is joined makes Python 3.11 take it for ended: so an event tells.
        self._ended = threading.Event()
        self._process = os.getpid()
        threading.Thread(
            target=self._serve, args=(listener,), name="attnlab explorer", daemon=True
        ).start()

    def _serve(self, listener: socket.socket) -> None:
        try:
            with listener:  # which uvicorn leaves open where it is ended before it has begun
                self._server.run([listener])
        finally:
            self._ended.set()

    @property
    def is_running(self) -> bool:
        """Whether it still answers; a forked process has not the thread that does."""
        return self._process == os.getpid() and not self._ended.is_set()

    def stop(self) -> None:
        """End it; what is being computed is not waited for. A second time nothing happens."""
        self._end()
        self.wait()

    def wait(self) -> None:
        """Return when it has been stopped: by the page, another thread, or Ctrl-C, which raises."""
        while self.is_running and not self._ended.wait(0.5):  # on Windows, Ctrl-C is heard between
            pass

    def _end(self) -> None:
        self._server.should_exit = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        if not self.is_running:
            return "Explorer, stopped"
        return f"Explorer of {self._title}\n{self.url}\n.stop() ends it"

    def _repr_html_(self) -> str:
        if not self.is_running:
            return f"<p>{escape(say('The explorer was stopped.'))}</p>"
        # The frame is of another site than the notebook, so that it may keep its own.
        return (
            f'<p><a href="{escape(self.url)}" target="_blank" rel="noreferrer">'
            f"{escape(say('Open the explorer in a new tab'))}</a></p>"
            f'<iframe title="{escape(repr(self).partition(chr(10))[0])}" src="{escape(self.url)}" '
            f'sandbox="allow-scripts allow-same-origin{self._popups}" referrerpolicy="no-referrer" '
            'style="width:100%;height:720px;border:0"></iframe>'
        )


@dataclass(frozen=True, eq=False)
class CachedTrace:
    """A trace in the cache.

    Attributes
    ----------
    id : what a page calls it; it depends on the tokens and on what is ablated alone
    trace : with all that has been looked at
    ablated : the places that are ablated in it
    """

    id: str
    trace: Trace
    ablated: Sequence[Any]


class TraceCache:
    """An explorer's model, and the traces that were requested last.

    Used by one thread at a time.

    Attributes
    ----------
    start : Tokens, of what a page opens with
    """

    start: Tokens

    def __init__(self, model: Model, language: str, atlas: Atlas | None = None) -> None:
        self.model, self.language = model, language
        self.atlas: Atlas = atlas
        self._is_its_model = atlas is None or atlas.is_of(model)
        self._kept: OrderedDict[str, CachedTrace] = (
            OrderedDict()
        )  # the one asked for last at the end

    def trace_of(self, text_or_ids: Any, ablated: Sequence[Any] = ()) -> CachedTrace:
        """A text's trace with places ablated in it."""
        tokenizer, positions = self.model.tokenizer, self.model.config.n_positions
        ids = tokenizer.encode(text_or_ids) if isinstance(text_or_ids, str) else text_or_ids
        if isinstance(ids, list) and not ids:
            raise InvalidValueError(say("Enter a text to trace.", self.language))
        # Before tokens are made, which takes long.
        if isinstance(ids, list) and len(ids) > positions:
            end = self._text(tokenizer.tokens(ids[:positions]))["text"][-END_TOLD:]
            raise InvalidValueError(
                say(
                    "The text has {count} tokens; this model reads at most {positions}, here up "
                    "to “{end}”.",
                    self.language,
                    count=len(ids),
                    positions=positions,
                    end=printable(end),
                )
            )
        tokens = tokenizer.tokens(ids)
        edits = self._edits_of(ablated)
        content = json.dumps([tokens.ids.tolist(), sorted(map(json.dumps, ablated))])
        id = sha256(content.encode()).hexdigest()[:16]
        if id not in self._kept:
            edited = self.trace_of(tokens).trace.edited(edits) if edits else None
            self._kept[id] = CachedTrace(id, edited or self.model.trace(tokens), ablated)
        return self.at(id)

    def at(self, id: str) -> CachedTrace:
        """What is kept under an id."""
        if id not in self._kept:
            raise HTTPException(410, "This trace is no longer kept: ask for it again.")
        self._kept.move_to_end(id)
        return self._kept[id]

    def described(self, text_or_ids: Any, ablated: Sequence[Any] = ()) -> dict[str, Any]:
        """A text's trace as a page describes it, with its id, its text and its tokens' ids."""
        kept = self.trace_of(text_or_ids, ablated)
        described = description_of(kept.trace, self.language)
        self._drop()
        tokens = kept.trace.tokens
        known = {"id": kept.id, "ablated": ablated, **self._text(tokens)}
        known["notes"] = notes_on(tokens, self.language)
        return {**known, **described}

    @property
    def too_long(self) -> str:
        """What is told of a request of too many bytes."""
        return say(
            "The text has more than {bytes} bytes; this model reads at most {positions} tokens.",
            self.language,
            bytes=f"{LONGEST_REQUEST:,}",
            positions=self.model.config.n_positions,
        )

    def page(self, passage: str = "") -> str:
        """The page, which opens with the first text, or with a passage of the atlas."""
        ids, told = self.passage(passage) if passage else (self.start, "")
        described = self.described(ids)
        if self.atlas is not None:
            described["atlas"] = told
        return live_page(self.at(described["id"]).trace, described, self.language)

    def passage(self, place: str) -> tuple[list[int], str]:
        """A passage's ids as they are, and where it is from, in words."""
        try:
            name, kind, *numbers = place.rsplit(".", 4)
            layer, head, rank = map(int, numbers)
            found = getattr(self.atlas[name], {"most": "most", "least": "least"}[kind])
            passage = found(layer, head)[rank]
        except (AttnlabError, LookupError, TypeError, ValueError):
            raise HTTPException(404, say("No such passage in the atlas.", self.language)) from None
        told = f"{place_of(passage, self.language)}; {name} {passage.value:.3f}"
        if not self._is_its_model:
            told = say("{passage} in the atlas", self.language, passage=told)
        return list(passage.ids), printable(told)

    def atlas_page(self, token: str) -> str:
        """The atlas's page, with links that bear the token."""
        served = Served(token, self._is_its_model)
        return atlas_page(self.atlas, self.language, served=served)

    def numbers(self, id: str, name: str) -> bytes:
        """A pack of a trace."""
        trace = self.at(id).trace
        if name.startswith("way."):
            for path in carried(trace):  # kept, as readers go from token to token
                at(trace, path)
        content = pack(trace, name)
        self._drop()
        return content

    def writing(
        self, id: str, count: Any, asked: Mapping[str, Any]
    ) -> tuple[CachedTrace, Iterator[NextToken]]:
        """A trace, and the tokens that will be written after it, as many as there is room."""
        kept, positions = self.at(id), self.model.config.n_positions
        tokens = kept.trace.tokens
        room = positions - len(tokens)
        if not is_integer(count) or not 1 <= count <= MOST_WRITTEN:
            raise InvalidValueError(
                say(
                    "The number of tokens must be from 1 to {most}.",
                    self.language,
                    most=MOST_WRITTEN,
                )
            )
        if not room:
            raise InvalidValueError(
                say(
                    "The text fills all {positions} positions of the model; no tokens can be "
                    "added.",
                    self.language,
                    positions=positions,
                )
            )
        settings = {name: asked[name] for name in SETTINGS if name in asked}
        edits = self._edits_of(kept.ablated) or None
        return kept, self.model.stream(tokens, min(count, room), edits=edits, **settings)

    def written(self, kept: CachedTrace, chosen: Sequence[NextToken]) -> dict[str, Any]:
        """What was written after a trace, for the page.

        Of each token there is the probability that it was drawn with, 1 at temperature 0, and the
        `share` that the model gives it, as it is at temperature 1 without a cut.
        """
        return {
            **self._text(Tokens([*kept.trace.tokens, *chosen])),
            "chosen": [
                {**token_of(token), "probability": token.probability, "share": token.share}
                for token in chosen
            ],
        }

    def _edits_of(self, changes: Sequence[Any]) -> dict[str, Any]:
        config = self.model.config
        places = [f"blocks.{layer}.attention" for layer in range(config.n_layer)]
        numbers = layer_numbers(config)
        rootless = {f"{one}.scale": float(numbers.get(f"{one}.layer_number", 1)) for one in places}
        return edits_of(changes, self.trace_of, rootless)

    def _text(self, tokens: Tokens) -> dict[str, Any]:
        text = b"".join(tokens.bytes).decode("utf-8", errors="replace")
        return {"text": text, "ids": tokens.ids.tolist()}

    def _drop(self) -> None:
        """Drop the traces that were asked for longest ago, while they are too many or too large."""
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        while len(self._kept) > 1 and size_of(one.trace for one in self._kept.values()) > KEPT:
            self._kept.popitem(last=False)


def size_of(traces: Iterable[Trace]) -> int:
    """How many bytes the arrays have that traces keep, parameters aside, what they share once."""
    runs = {}
    for trace in traces:
        run = trace._run
        while run is not None:
            runs[id(run)] = run
            run = getattr(run, "base", None)
    # As they would be pickled: without parameters and looks at other arrays.
    values = (value for run in runs.values() for value in run.__getstate__()["values"].values())
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


def edits_of(
    changes: Sequence[Any],
    trace_of: Callable[[list[int]], CachedTrace],
    rootless: Mapping[str, float],
) -> dict[str, Any]:
    """The edits that changes stand for, see the module's docstring.

    Parameters
    ----------
    trace_of : makes the trace of other ids
    rootless : the layers' scales without √Dk, by path
    """
    edits: dict[str, Any] = {}
    for change in changes:
        match change:
            case ["mask"]:
                edits["mask"] = np.ones_like
            case ["root"]:
                edits |= rootless
            case [int(layer)]:
                edits[f"blocks.{layer}.mlp.output"] = 0
            case [int(layer), int(head)]:
                edits[f"blocks.{layer}.attention.heads.{head}.context"] = 0
            case [int(layer), int(head), str(step), int(hundredths)] if step in STEPS_TO_CHANGE:
                path = f"blocks.{layer}.attention.heads.{head}.{step}"
                edits[path] = partial(np.multiply, hundredths / 100)
            case [int(layer), int(head), str(step), "of", *ids] if step in STEPS_TO_CHANGE:
                path = f"blocks.{layer}.attention.heads.{head}.{step}"
                edits[path] = at(trace_of(ids).trace, path)
            case [int(layer), int(head), "mask", "flip", *cells] if is_of_cells(cells):
                edits[f"blocks.{layer}.attention.heads.{head}.mask"] = partial(flipped, cells=cells)
            case _:
                raise InvalidTypeError(
                    "a change is [layer, head] or [layer], [layer, head, step, hundredths], "
                    '[layer, head, step, "of", ids ...], [layer, head, "mask", "flip", query, key, '
                    f'...], ["mask"] or ["root"]; got {quoted(change)}'
                )
    return edits


def is_of_cells(numbers: Sequence[Any]) -> bool:
    """Whether numbers are queries and keys, in turn."""
    return len(numbers) % 2 == 0 and all(is_integer(n) and n >= 0 for n in numbers)


def flipped(mask: Mask, cells: Sequence[int]) -> Mask:
    """A mask with cells switched, (Tq, Tk).

    Parameters
    ----------
    cells : positions of queries and keys, in turn; those that the mask doesn't have are left out
    """
    Tq, Tk = mask.shape
    made = mask.copy()
    for query, key in zip(cells[::2], cells[1::2], strict=True):
        row = query - (Tk - Tq)  # the keys of earlier tokens may be cached
        if 0 <= row < Tq and key < Tk:
            made[row, key] ^= True
    return made


def named(given: Mapping[str, Any], name: str, kind: type) -> Any:
    """What has a name, is of a kind, and must be there."""
    value = given.get(name)
    check_kind(value, kind, name)
    return value


# ---- over HTTP -----------------------------------------------------------------------------------


def application(cache: TraceCache, end: Callable[[], None]) -> ASGIApp:
    """What answers those who got in.

    Parameters
    ----------
    end : is called when a page asks for the end
    """
    worker = ThreadPoolExecutor(1, "attnlab explorer's cache")
    turn = asyncio.Lock()

    async def computed(request: Request, work: Callable[[], Made]) -> Made:
        """What a function makes, in its turn; those who have left by then are passed over."""
        async with turn:
            if await request.is_disconnected():
                raise ClientDisconnect
            return await asyncio.get_running_loop().run_in_executor(worker, work)

    async def page(request: Request) -> Response:
        passage = request.query_params.get("passage", "")
        html = await computed(request, lambda: cache.page(passage))
        return HTMLResponse(
            html, headers={"content-security-policy": f"{live_policy()}; {ANCESTORS}"}
        )

    async def atlas(request: Request) -> Response:
        html = await computed(request, lambda: cache.atlas_page(request.query_params["token"]))
        return HTMLResponse(html, headers={"content-security-policy": f"{policy()}; {ANCESTORS}"})

    async def trace(request: Request) -> Response:
        asked = await content_of(request, cache.too_long)
        if ("text" in asked) == ("ids" in asked):
            raise InvalidValueError("either a text is traced or ids are")
        text_or_ids = named(asked, "text", str) if "text" in asked else named(asked, "ids", list)
        ablated = named({"ablated": []} | asked, "ablated", list)
        return JSONResponse(await computed(request, lambda: cache.described(text_or_ids, ablated)))

    async def numbers(request: Request) -> Response:
        id, name = (request.query_params.get(part, "") for part in ("trace", "name"))
        content = await computed(request, lambda: cache.numbers(id, name))
        return Response(content, media_type="application/octet-stream")

    async def write(request: Request) -> Response:
        asked = await content_of(request, cache.too_long)
        id = named(asked, "trace", str)
        count = asked.get("count")
        kept, coming = await computed(request, lambda: cache.writing(id, count, asked))
        chosen = []
        # Between two tokens it is another one's turn.
        while (token := await computed(request, lambda: next(coming, None))) is not None:
            chosen.append(token)
        return JSONResponse(await computed(request, lambda: cache.written(kept, chosen)))

    async def stop(request: Request) -> Response:
        return JSONResponse({}, background=BackgroundTask(end))

    return Starlette(
        routes=[
            Route("/", page),
            *([] if cache.atlas is None else [Route(f"/{ATLAS}", atlas)]),
            Route("/trace", trace, methods=["POST"]),
            Route("/numbers", numbers),
            Route("/write", write, methods=["POST"]),
            Route("/stop", stop, methods=["POST"]),
        ],
        exception_handlers={
            AttnlabError: refused,
            HTTPException: refused,
            ClientDisconnect: refused,
            Exception: failed,
        },
    )


async def content_of(request: Request, too_long: str) -> dict[str, Any]:
    """The JSON object that a request brings."""
    content = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for chunk in request.stream():
                content += chunk
                if len(content) > LONGEST_REQUEST:  # uvicorn drops what still comes
                    raise HTTPException(413, too_long)
    except TimeoutError:
        raise HTTPException(408, "The request did not arrive.") from None
    try:
        asked = json.loads(content)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise HTTPException(400, "The request is no JSON object.")
    return asked


def told(request: Request, status: int, sentence: str) -> Response:
    """A sentence for the page; for who opened a link, as a page of its own."""
    if request.url.path in PAGES:
        title = '<!doctype html><meta charset="utf-8"><title>attnlab</title>'
        return HTMLResponse(f"{title}<p>{escape(sentence)}</p>", status)
    return JSONResponse({"error": sentence}, status)


async def refused(request: Request, error: Exception) -> Response:
    """What can't be done, told in the page; of one who has left nobody reads it."""
    if isinstance(error, HTTPException):
        return told(request, error.status_code, error.detail)
    return told(request, 400, str(error))


async def failed(request: Request, error: Exception) -> Response:
    """An error that nobody foresaw: told in the page, and with its traceback on stderr."""
    traceback.print_exception(error)
    name = type(error).__name__
    return told(request, 500, f"attnlab failed, and the terminal says where: {name}")


class Patient(H11Protocol):
    """A connection on which no request may wait for ever, nor keep others out.

    uvicorn waits without end for the rest of a request's headers.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._began = self.loop.time()
        self.loop.call_later(PATIENCE, self._end_if_idle)
        there = [one for one in self.connections if isinstance(one, Patient)]
        there = [one for one in there if not one.transport.is_closing()]
        idle = [one for one in there if one.is_idle]
        if len(there) > MOST_CONNECTIONS and idle:
            min(idle, key=lambda one: one._began).transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _end_if_idle(self) -> None:
        if self.is_idle:
            self.transport.close()


class Guard:
    """Lets in who has the link, and nobody else; see the module's docstring.

    Another site's page can make a browser send requests here, under a name of its own for this
    machine too, but can't make it send another Host or Origin than its own, and has no token.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{name}:{port}" for name in (ADDRESS, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("content-security-policy", f"default-src 'none'; {ANCESTORS}")
                headers.update(HEADERS)
            await send(message)

        request = Request(scope)
        why = self.why_not(request)
        app = told(request, 403, why) if why else self.app
        await app(scope, receive, send_guarded)

    def why_not(self, request: Request) -> str:
        """Why a request gets no further; "" where it does."""
        host = request.headers.get("host", "")
        if host not in self.hosts:
            return "The explorer answers under its own address alone."
        if request.method == "POST" and request.headers.get("origin") != f"http://{host}":
            return "The explorer answers its own page alone."
        if request.url.path in PAGES:
            token = request.query_params.get("token", "")
        else:
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return "This link is not of this explorer: open the one that it told when it began."
        return ""
