"""`attnlab explore`: a model's page and its parameters, from this machine only."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE, Watched, posix
from pages import ask, until
from safetensors.numpy import load_file

import attnlab
from attnlab import GPT2
from attnlab.cli.command import main
from attnlab.errors import InvalidValueError
from attnlab.forward.parameters import stored_shapes
from attnlab.pages import explore
from attnlab.pages.explore import Server
from attnlab.support.language import using_language

TEXT = "the hen in"


@contextmanager
def served(
    directory: Path | None, text: str | None = None, language: str | None = None
) -> Iterator[Server]:
    model = GPT2.from_pretrained(directory or "english")
    with using_language(language), Server(model, text) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def odd_server() -> Iterator[Server]:
    with served(REFERENCE / "odd") as running:
        yield running


def request(
    host: str, path: str, method: str = "GET", **headers: str
) -> tuple[int, bytes, HTTPMessage]:
    """The answer's status, body and headers."""
    with closing(HTTPConnection(host)) as connection:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read(), response.headers


def test_the_parameters_are_served_as_float32(odd_server: Server) -> None:
    status, content, _ = request(odd_server.host, "/parameters")
    model = GPT2.from_pretrained(REFERENCE / "odd")
    stored = [model.parameters.stored(path).ravel() for path in stored_shapes(model.config)]
    assert (status, content) == (200, np.concatenate(stored).tobytes())
    tied = load_file(REFERENCE / "odd" / "model.safetensors")["transformer.wte.weight"]
    assert content.startswith(tied.tobytes())


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/expected.npz", {}, 404),
        ("GET", "/config.json", {}, 404),
        ("GET", "/../odd/config.json", {}, 404),
        ("GET", "/%2e%2e/odd/config.json", {}, 404),
        ("GET", f"/{REFERENCE}/odd/config.json", {}, 404),
        ("POST", "/", {}, 501),
        ("PUT", "/parameters", {}, 501),
        ("OPTIONS", "/", {}, 501),
        ("GET", "/", {"Host": "example.org"}, 403),  # a name that resolves to this machine
        ("GET", "/parameters", {"Host": "example.org:80"}, 403),
        ("HEAD", "/parameters", {}, 501),
        ("GET", "/parameters", {"Host": "localhost"}, 403),
    ],
    ids=str,
)
def test_what_is_refused(
    method: str, path: str, headers: dict[str, str], status: int, odd_server: Server
) -> None:
    actual, body, _ = request(odd_server.host, path, method, **headers)
    assert actual == status
    assert b"vocab" not in body


def test_only_this_machine_and_no_other_site(odd_server: Server) -> None:
    assert odd_server.socket.getsockname()[0] == "127.0.0.1"
    _, page, headers = request(odd_server.host, "/")
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers
    assert b"connect-src 'self'" in page


def test_dropped_connections_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with served(REFERENCE / "odd") as running:
        running.daemon_threads = False  # so that closing the server waits for its answers
        for sent in (b"", b"GET / HTTP/1.1\r\n"):
            client = socket.create_connection(running.server_address[:2])
            client.sendall(sent)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()  # which sends a reset
        assert request(running.host, "/")[0] == 200
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["odd", "chinese_bert", "english"])
def test_the_page_reads_the_model_and_computes(name: str, watched: Watched, tmp_path: Path) -> None:
    if name == "chinese_bert":
        from chinese import write_checkpoint

        write_checkpoint(tmp_path)
    directory = {"odd": REFERENCE / "odd", "chinese_bert": tmp_path}.get(name)
    model = GPT2.from_pretrained(directory or name)
    with served(directory, TEXT if directory else None) as running:
        page = watched.open(f"http://{running.host}/")
        for text in (page.locator("#prompt").input_value(), "the hen"):
            ask(page, text)
            expected = model.trace(text).next_tokens(1)[0].probability
            until(page, f"Math.abs(texts[0].next?.[0].probability - {expected}) < 1e-5")
        assert page.locator("#opening").count() == 0
        page.goto("about:blank")
    assert watched.said == []
    requested = {name for name in watched.asked if not name.startswith("blob:")}
    assert all(
        name.startswith((f"http://{running.host}/", "data:", "about:")) for name in requested
    )


@pytest.mark.parametrize(
    ("language", "message"),
    [
        ("en", "The model can't be read: attnlab explore has stopped."),
        ("zh", "无法读取模型：attnlab explore 已停止。"),
    ],
)
def test_a_server_that_stops_while_the_page_reads(
    language: str, message: str, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(model: GPT2) -> Iterator[bytes]:
        yield b"1234"
        raise ConnectionResetError

    monkeypatch.setattr(explore, "numbers_of", stopping)
    with served(REFERENCE / "odd", TEXT, language) as running:
        tab = browser.new_page()
        tab.goto(f"http://{running.host}/")
        until(tab, "!document.querySelector('#opening progress')")
        assert tab.locator("#opening").inner_text() == message
        tab.close()


@posix
def test_the_command_until_ctrl_c(tmp_path: Path) -> None:
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "attnlab", "explore", "pocket", "--text", "The hen"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONUTF8": "1", "BROWSER": f"{browser} %s"},
    )
    assert process.stdout is not None
    url = process.stdout.readline().split()[0]
    assert b"The hen" in request(url.removeprefix("http://").rstrip("/"), "/")[1]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (out, err) == ("Closed. Pages that have read the model still work.\n", "")
    assert process.returncode == 0
    assert seen.read_text().strip() == url


def test_models_that_cannot_be_opened(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "/no/such/place"]) == 2
    assert "'/no/such/place' is neither a directory" in capsys.readouterr().err
    with pytest.raises(InvalidValueError, match="nothing to trace"):
        attnlab.explore("pocket", "")
