"""Serve a model's files to the page that runs the model: `attnlab.explore`.

The page is the playground's, which reads the model from its files instead of from the page:

    GET /            the page
    GET /NAME        one of the files, whole or a range of its bytes

Only this machine can reach the server, and only pages that it served itself: it refuses requests
for another host, which is how a page of another site could reach it (DNS rebinding).
"""

from __future__ import annotations

import os
import re
import socketserver
import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from numpy.typing import ArrayLike

from attnlab.checkpoints.checkpoint import Checkpoint
from attnlab.errors import InvalidValueError
from attnlab.model.gpt2 import GPT2
from attnlab.pages.playground import page_with_model, playground_page
from attnlab.support.checks import as_count
from attnlab.support.console import show_in_browser
from attnlab.support.language import using_language
from attnlab.support.messages import say
from attnlab.text.tokens import Tokens

ADDRESS = "127.0.0.1"  # reachable from this machine only

# Names of files that the page may read: settings, parameters, tokenizers.
SERVED = re.compile(r".+\.(json|safetensors)|merges\.txt|vocab\.(txt|bpe)")

HEADERS = {
    "Accept-Ranges": "bytes",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def explore(
    model: GPT2 | str | os.PathLike[str] | None = None,
    text_or_ids: str | ArrayLike | Tokens | None = None,
    *,
    port: int = 0,
    browser: bool = True,
    language: str | None = None,
) -> None:
    """Open the playground of a model of any size in the browser, until Ctrl-C.

    The browser computes: a server on this machine only gives it the model's files.

    Parameters
    ----------
    model : a name or a directory, as for `GPT2.from_pretrained`, whose files are served; a model in
        memory, which the page then contains, see `attnlab.playground`; None for english
    text_or_ids : what the page opens with, as `trace` takes it; None for an example sentence
    port : the port to listen on; 0 for any free one
    browser : whether to open the browser; else only the link is printed
    language : as for `attnlab.page`
    """
    with server(model, text_or_ids, port, language) as served:
        url = f"http://{served.host}/"
        print(say("{url} is open until Ctrl-C.", url=url), flush=True)
        if browser:
            show_in_browser(url)
        try:
            served.serve_forever()
        except KeyboardInterrupt:
            print(say("Closed. Pages that have read the model still work."))


class Server(socketserver.ThreadingTCPServer):
    """A server of one page, and of files by their names, on a port of this machine."""

    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # elsewhere, two servers could share a port

    def __init__(self, page: str, files: Mapping[str, Path], port: int) -> None:
        self.page, self.files = page.encode(), files
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            raise InvalidValueError(
                f"port {port} can't be used: {os.strerror(error.errno or 0)}. Leave port out to "
                "use a free one"
            ) from None
        self.host = f"{ADDRESS}:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a closed tab is normal
            super().handle_error(request, client_address)


def server(
    model: GPT2 | str | os.PathLike[str] | None,
    text_or_ids: str | ArrayLike | Tokens | None,
    port: int,
    language: str | None,
) -> Server:
    """The server of a model's page and files, see `explore`."""
    port = as_count(port, "port", most=65535)
    with using_language(language):
        if isinstance(model, GPT2):
            return Server(playground_page(model, text_or_ids), {}, port)
        opened = GPT2.from_pretrained("english" if model is None else model)
        directory = cast(Checkpoint, opened.parameters).directory
        files = {file.name: file for file in sorted(directory.iterdir()) if is_served(file)}
        listed = [{"name": name, "size": file.stat().st_size} for name, file in files.items()]
        return Server(page_with_model(opened, text_or_ids, {"files": listed}), files, port)


def is_served(file: Path) -> bool:
    return SERVED.fullmatch(file.name) is not None and file.is_file()


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; the base class refuses all other methods."""

    protocol_version = "HTTP/1.1"  # keeps connections open
    disable_nagle_algorithm = True  # else a response waits for the acknowledgement of its headers
    server: Server

    def do_GET(self) -> None:
        """Send the page, a file, or a range of a file's bytes."""
        page, file = self.server.page, self.server.files.get(unquote(self.path[1:]))
        if self.headers["Host"] != self.server.host:
            self.send_error(HTTPStatus.FORBIDDEN, "Invalid Host")
        elif self.path == "/":
            self._send_headers(HTTPStatus.OK, "text/html; charset=utf-8", len(page))
            if self.command == "GET":
                self.wfile.write(page)
        elif file:
            self._send_file(file)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET

    def _send_file(self, file: Path) -> None:
        with file.open("rb") as content:
            size = os.fstat(content.fileno()).st_size
            start, stop, status, headers = 0, size, HTTPStatus.OK, {}
            if wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
                start, stop = int(wanted[1]), min(int(wanted[2]) + 1, size)
                if start >= stop:
                    self.send_error(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
                    return
                status = HTTPStatus.PARTIAL_CONTENT
                headers = {"Content-Range": f"bytes {start}-{stop - 1}/{size}"}
            self._send_headers(status, "application/octet-stream", stop - start, headers)
            if self.command == "GET" and stop > start:
                self.connection.sendfile(content, start, stop - start)

    def _send_headers(
        self, status: HTTPStatus, kind: str, length: int, more: Mapping[str, str] = {}
    ) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": f"{length}", **HEADERS, **more}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing for each request."""
