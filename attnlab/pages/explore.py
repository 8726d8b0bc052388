"""Serve a model to the page that runs it: `attnlab.explore`.

The page is the playground's, which reads the parameters from the server instead of from the page:

    GET /            the page
    GET /parameters  all parameters in float32, in the order of `stored_shapes`

Only this machine can reach the server, and only pages that it served itself: it refuses requests
for another host, which is how a page of another site could reach it (DNS rebinding).
"""

from __future__ import annotations

import socketserver
import sys
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np

from attnlab.forward.parameters import stored_shapes
from attnlab.model.gpt2 import GPT2
from attnlab.pages.playground import page_with_model, size_of
from attnlab.support.console import show_in_browser
from attnlab.support.files import FilePath
from attnlab.support.language import using_language
from attnlab.support.messages import say

ADDRESS = "127.0.0.1"  # reachable from this machine only


def explore(
    model: FilePath = "english", text: str | None = None, *, language: str | None = None
) -> None:
    """Open the playground of a model of any size in the browser, until Ctrl-C.

    The browser computes: a server on this machine only gives it the parameters. For a model in
    memory, see `attnlab.playground`.

    Parameters
    ----------
    model : a name or a directory, as for `GPT2.from_pretrained`
    text : what the page opens with; None for an example sentence
    language : as for `attnlab.page`
    """
    with using_language(language), Server(GPT2.from_pretrained(model), text) as server:
        url = f"http://{server.host}/"
        print(say("{url} is open until Ctrl-C.", url=url), flush=True)
        show_in_browser(url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print(say("Closed. Pages that have read the model still work."))


class Server(socketserver.ThreadingTCPServer):
    """A server of a model's page and parameters, on a free port of this machine."""

    daemon_threads = True

    def __init__(self, model: GPT2, text: str | None) -> None:
        self.model = model
        self.page = page_with_model(model, text).encode()
        super().__init__((ADDRESS, 0), Handler)
        self.host = f"{ADDRESS}:{self.server_address[1]}"

    def parameters(self) -> Iterator[bytes]:
        """The parameters' numbers, one array after another."""
        for path in stored_shapes(self.model.config):
            with np.errstate(over="ignore"):  # numbers that float32 can't hold: the page says so
                yield np.asarray(self.model.parameters.stored(path), "<f4").tobytes()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a closed tab is normal
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers GET; the base class refuses all other methods."""

    protocol_version = "HTTP/1.1"  # keeps connections open
    disable_nagle_algorithm = True  # else a response waits for the acknowledgement of its headers
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        if self.headers["Host"] != self.server.host:
            self.send_error(403, "Invalid Host")
        elif self.path == "/":
            self._send([self.server.page], len(self.server.page), "text/html; charset=utf-8")
        elif self.path == "/parameters":
            size = size_of(self.server.model)
            self._send(self.server.parameters(), size, "application/octet-stream")
        else:
            self.send_error(404)

    def _send(self, parts: Iterable[bytes], size: int, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", f"{size}")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        for part in parts:
            self.wfile.write(part)

    def log_message(self, format: str, *_: Any) -> None:
        """Print nothing for each request."""
