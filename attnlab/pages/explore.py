"""Serve a model to the page that runs it: `attnlab.explore`.

`GET /` sends the playground's page, without the parameters. `GET /parameters` sends all parameters
in float32, in the order of `stored_shapes`. Only this machine can reach the server, and only the
server's own page. A page of another site could reach it by a name that resolves to this machine
(DNS rebinding), so requests for another host are refused.
"""

from __future__ import annotations

import socketserver
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

from attnlab.model.gpt2 import GPT2
from attnlab.pages.playground import numbers_of, page_with_model, size_of
from attnlab.support.console import show_in_browser
from attnlab.support.files import FilePath
from attnlab.support.language import using_language
from attnlab.support.messages import say


def explore(
    model: FilePath = "english", text: str | None = None, *, language: str | None = None
) -> None:
    """Open the playground of a model of any size in the browser, until Ctrl-C.

    The browser runs the model. For a model in memory, see `attnlab.playground`.

    Parameters
    ----------
    model : a name or a directory, as for `GPT2.from_pretrained`
    text : the text with which the page opens; None for an example sentence
    language : as for `attnlab.page`
    """
    with using_language(language), Server(GPT2.from_pretrained(model), text) as server:
        url = f"http://{server.host}/"
        print(say("{url} is open until Ctrl-C.", url=url), flush=True)
        show_in_browser(url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
        print(say("Closed. Pages that have read the model still work."))


class Server(socketserver.ThreadingTCPServer):
    """A server of a model's page and parameters, on a free port of this machine."""

    daemon_threads = True

    def __init__(self, model: GPT2, text: str | None) -> None:
        self.model, self.page = model, page_with_model(model, text).encode()
        super().__init__(("127.0.0.1", 0), Handler)  # reachable from this machine only
        self.host = ":".join(map(str, self.server_address))


class Handler(BaseHTTPRequestHandler):
    """Answers GET requests; the base class refuses all other methods."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def handle(self) -> None:
        with suppress(ConnectionError):  # a closed tab is normal
            super().handle()

    def do_GET(self) -> None:
        page, model = self.server.page, self.server.model
        if self.headers["Host"] != self.server.host:
            self.send_error(403, "Invalid Host")
        elif self.path == "/":
            self._send([page], len(page), "text/html; charset=utf-8")
        elif self.path == "/parameters":
            self._send(numbers_of(model), size_of(model), "application/octet-stream")
        else:
            self.send_error(404)

    def _send(self, parts: Iterable[Any], size: int, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", f"{size}")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        self.wfile.writelines(parts)

    def log_message(self, format: str, *_: Any) -> None:
        """Print nothing for each request."""
