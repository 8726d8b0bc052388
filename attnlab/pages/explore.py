"""Serve a model's files to the page that runs the model: `attnlab.explore`.

The page is the playground's, which reads the model from its files instead of from the page:

    GET /            the page
    GET /NAME        one of the files, whole or a range of its bytes

Only this machine can reach the server, and only pages that it served itself: it refuses requests
for another host, which is how a page of another site could reach it (DNS rebinding).
"""

from __future__ import annotations

import io
import re
import socketserver
import sys
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

from attnlab.checkpoints.checkpoint import Checkpoint
from attnlab.model.gpt2 import GPT2
from attnlab.pages.playground import page_with_model
from attnlab.support.console import show_in_browser
from attnlab.support.files import FilePath
from attnlab.support.language import using_language
from attnlab.support.messages import say

ADDRESS = "127.0.0.1"  # reachable from this machine only

# Names of files that the page may read: settings, parameters, tokenizers.
SERVED = re.compile(r".+\.(json|safetensors)|merges\.txt|vocab\.(txt|bpe)")


def explore(
    model: FilePath = "english", text: str | None = None, *, language: str | None = None
) -> None:
    """Open the playground of a model of any size in the browser, until Ctrl-C.

    The browser computes: a server on this machine only gives it the model's files. For a model in
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
    """A server of a model's page and files, on a free port of this machine."""

    daemon_threads = True

    def __init__(self, model: GPT2, text: str | None) -> None:
        directory = cast(Checkpoint, model.parameters).directory
        files = [file for file in sorted(directory.iterdir()) if SERVED.fullmatch(file.name)]
        sizes = [{"name": file.name, "size": file.stat().st_size} for file in files]
        page = page_with_model(model, text, {"files": sizes}).encode()
        self.contents: dict[str, Any] = {file.name: partial(file.open, "rb") for file in files}
        self.contents[""] = partial(io.BytesIO, page)
        super().__init__((ADDRESS, 0), Handler)
        self.host = f"{ADDRESS}:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a closed tab is normal
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers GET; the base class refuses all other methods."""

    protocol_version = "HTTP/1.1"  # keeps connections open
    disable_nagle_algorithm = True  # else a response waits for the acknowledgement of its headers
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        name = unquote(self.path[1:])
        if self.headers["Host"] != self.server.host:
            self.send_error(403, "Invalid Host")
        elif name not in self.server.contents:
            self.send_error(404)
        else:
            kind = "application/octet-stream" if name else "text/html; charset=utf-8"
            with self.server.contents[name]() as content:
                self._send(content, kind)

    def _send(self, content: BinaryIO, kind: str) -> None:
        """Send all bytes, or the range that is asked for."""
        size = content.seek(0, io.SEEK_END)
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, stop = (int(part[1]), min(int(part[2]) + 1, size)) if part else (0, size)
        if start > stop:
            self.send_error(416)
            return
        self.send_response(206 if part else 200)
        if part:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", f"{stop - start}")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        content.seek(start)
        if stop > start:
            self.connection.sendfile(content, start, stop - start)

    def log_message(self, format: str, *_: Any) -> None:
        """Print nothing for each request."""
