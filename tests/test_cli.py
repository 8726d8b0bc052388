"""The command `attnlab`: output, exit statuses, odd terminals.

It runs in this process, except for tests of the operating system: closed or binary streams,
terminals, browsers, pipes without a reader.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from conftest import REFERENCE, posix
from streams import streams

import attnlab
from attnlab import GPT2
from attnlab.checking.hugging_face import Verification
from attnlab.cli.command import main
from attnlab.errors import WriteError
from attnlab.pages.saved import is_page

ODD = str(REFERENCE / "odd")

# The console script next to this Python; an editable install has one too.
COMMAND = Path(sys.executable).parent / "attnlab"


def environment(**changes: str) -> dict[str, str]:
    plain = {
        k: v
        for k, v in os.environ.items()
        if k not in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS")
    }
    return {**plain, "PYTHONUTF8": "1", "ATTNLAB_MODEL": ODD, **changes}


def start(*arguments: str, **changes: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "attnlab", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=environment(**changes),
    )


def run_in_shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, shell=True, capture_output=True, encoding="utf-8", env=environment(), check=False
    )


def run(
    *arguments: str, status: int = 0, encoding: str = "utf-8", **changes: str
) -> tuple[str, str]:
    """The output of a command on stdout and stderr, in this process; `encoding` is theirs."""
    with (
        mock.patch.dict(os.environ, environment(**changes), clear=True),
        streams(encoding=encoding) as (out, err),
    ):
        ended = main([*arguments])
    assert ended == status, err.text()
    return out.text(), err.text()


def test_the_command_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="attnlab")
    assert script.attr == "main"
    finished = subprocess.run(
        [COMMAND, "download", "pocket"], capture_output=True, env=environment(), check=True
    )
    assert Path(os.fsdecode(finished.stdout).strip()).is_dir()


def test_version() -> None:
    assert run("--version") == (f"attnlab {attnlab.__version__}\n", "")


def test_verify(walkthrough_directory: Path) -> None:
    model = str(walkthrough_directory)
    out, err = run("verify", "--model", model)
    assert err == ""
    assert "18 of 18 tables agree: reproduced" in out


def test_verify_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it, see test_pytorch.py."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    _, err = run("verify", ODD, status=2)
    assert err.splitlines() == [
        "comparing with transformers needs transformers and PyTorch: pip install transformers torch"
    ]


def test_verify_compares_the_model_with_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(model: GPT2, name: str, retokenized: int = 0) -> Verification:
        return Verification(f"{model.config.n_head} heads, {name}", (), (), retokenized)

    for other, heads in (((), 5), (("--model", "pocket"), 4)):
        for retokenized, status in ((0, 0), (1, 1)):
            compare = partial(verify, retokenized=retokenized)
            monkeypatch.setattr("attnlab.cli.subcommands.verify", compare)
            out, _ = run("verify", ODD, *other, status=status)
            assert out.startswith(f"{heads} heads, {ODD}: 0 of 0 steps agree")


def test_pages(tmp_path: Path) -> None:
    file, trace = tmp_path / "page.html", GPT2.from_pretrained(ODD).trace("the hen")
    other = GPT2.from_pretrained(ODD).trace("in a thin inn")
    for texts, page in (
        (("the hen",), attnlab.page(trace).html),
        (("the hen", "in a thin inn"), attnlab.page(trace, other).html),
    ):
        assert run("html", *texts, "-o", str(file))[0] == f"{file}\n"
        assert file.read_text(encoding="utf-8") == page


def test_options_of_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    opened, explored = list[str](), list[tuple[Any, ...]]()
    monkeypatch.setattr("webbrowser.open", lambda url: not opened.append(url))
    monkeypatch.setattr("attnlab.cli.subcommands.explore", lambda *given: explored.append(given))
    file = tmp_path / "attention.html"
    assert run("html", "the hen", "--open")[0] == f"{file}\n"
    assert opened == [file.as_uri()]
    assert run("html", "the hen", "--force")[0] == f"{file}\n"
    run("playground", "model.html", "--text", "the hen")
    page = attnlab.playground(GPT2.from_pretrained(ODD), "the hen").html
    assert Path("model.html").read_text(encoding="utf-8") == page
    assert len(opened) == 1
    run("explore")
    run("explore", "pocket", "--text", "The hen")
    assert explored == [("english", None), ("pocket", "The hen")]
    notices = run("html", "The dog", "A zebra", "--model", "pocket")[1]
    assert "zebra" in notices
    assert "dog" not in notices


def test_a_file_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = GPT2.from_pretrained(ODD).trace("the hen")
    monkeypatch.setattr(GPT2, "from_pretrained", lambda *_: pytest.fail("it works first"))
    monkeypatch.setattr("attnlab.views.sheets.Book", lambda *_: pytest.fail("it works first"))
    file = tmp_path / "none" / "x.html"
    for arguments in (("html", "the hen", "-o", str(file)), ("playground", str(file))):
        assert "none doesn't exist" in run(*arguments, status=2)[1]
    with pytest.raises(WriteError, match="none doesn't exist"):
        trace.head(0, 0).to_xlsx(file)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(WriteError, match="can't be written to"):
        trace.head(0, 0).to_xlsx(tmp_path / "x.xlsx")
    script = str(Path(__file__).parents[1] / "examples/walkthrough.py")
    command = [sys.executable, script, "--no-open", "--page", str(file)]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert finished.returncode == 2
    assert "Traceback" not in finished.stderr
    assert "none doesn't exist" in finished.stderr


def test_foreign_files_are_not_overwritten(tmp_path: Path) -> None:
    page, arguments = tmp_path / "page.html", ("html", "the hen", "-o", str(tmp_path / "page.html"))
    page.write_text("<title>attnlab: mine</title>")
    _, err = run(*arguments, status=2)
    assert "wasn't written by attnlab. Use --force" in err
    assert page.read_text() == "<title>attnlab: mine</title>"
    run(*arguments, "--force")
    content = page.read_text(encoding="utf-8")
    assert "the hen" in content
    run("html", "in", "-o", str(page))  # it replaces its own files without asking
    assert page.read_text(encoding="utf-8") != content


@pytest.mark.slow
@posix
def test_html_opens_the_page_in_a_browser(tmp_path: Path) -> None:
    page, seen = tmp_path / "a page.html", tmp_path / "seen"
    arguments = ("html", "the hen", "-o", str(page), "--open")
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o755)
    out, _ = start(*arguments, BROWSER=f"{browser} %s").communicate()
    assert out == f"{page}\n"
    assert seen.read_text() == f"{page.as_uri()}\n"
    missing = {"BROWSER": "/no/such/browser %s", "PATH": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    _, err = start(*arguments, **missing).communicate()
    assert "No browser found" in err


REFUSED = (
    ("", "COMMAND"),
    ("sing", "invalid choice"),
    ("html", 'expected one text or two; got 0. Put a text in quotes, such as "The dog'),
    ("html a b c", "expected one text or two; got 3"),
    ("html the -o -", "can't write a page to stdout; use -o FILE"),
    ("html the -o pages/", "pages/ names a directory; expected a file name"),
    ("html the -o x.pdf", "file name must end in .html; got 'x.pdf'.* For a picture, use"),
    ("html the --\x1b[31mred", r"\\x1b\[31mred"),
    ("html the --model /no/such/place", "'/no/such/place' is neither a directory"),
    ("html the --model \x1b[31m", r"\\x1b\[31m"),
    ("html ''", "no tokens"),
    ("html " + 30 * "hen", r"Give a shorter text, or model.tokenizer.encode\(text\)\[:17\]"),
    ("atlas /no/such/corpus", "'/no/such/corpus' not found; texts must"),
    ("atlas . --workers 0", "--workers must be an integer of at least 1"),
    ("verify", "17 positions"),
)


def test_invalid_usage_exits_with_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("head.npz", weights=np.eye(2))
    for arguments, message in REFUSED:
        out, err = run(*shlex.split(arguments), status=2)
        assert out == "", arguments
        assert re.search(message, err, re.DOTALL), (arguments, err)
        assert "\x1b" not in err
    assert [*tmp_path.iterdir()] == [tmp_path / "head.npz"]


@posix
def test_invalid_utf8() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "attnlab", "html", b"\xff\xfe"],
        capture_output=True,
        env=environment(),
        check=False,
    )
    assert finished.returncode == 2
    assert b"surrogate" in finished.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_unwritable_output_exits_with_2() -> None:
    finished = run_in_shell(f"{sys.executable} -m attnlab verify --model pocket >/dev/full")
    assert finished.returncode == 2
    assert "Traceback" not in finished.stderr


def test_no_raw_escapes_and_encodings_without_the_symbols(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(b"the hen\n\xff\n")
    (tmp_path / "a\x1b[31m\u202e").mkdir()
    out, _ = run("atlas", str(corpus), "--out", str(tmp_path / "a\x1b[31m\u202e"))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]", out)
    _, err = run("html", "the", "--model", "/no/such/猫", encoding="ascii", status=2)
    assert "/no/such/\\u732b" in err


def test_atlas(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(b"the hen in a thin inn\n\xff\nthe hen in the inn, the hen\n")
    atlas = attnlab.atlas(ODD, corpus, window=5, heads=True, progress=False)
    options = ("--window", "5", "--heads", "--out", str(tmp_path / "out"))
    out, _ = run("atlas", str(corpus), *options)
    assert out.startswith("Atlas of 2 texts, ")
    assert atlas.loss in out
    assert "line 2 could not be measured: " in out
    (opened,) = re.findall(r"Python: attnlab.open_atlas\('(.*)'\)", out)
    assert repr(attnlab.open_atlas(opened)) == repr(atlas)
    assert attnlab.open_atlas(opened).details == atlas.details
    assert f"Page: {tmp_path / 'out' / 'atlas.html'}" in out
    assert is_page(tmp_path / "out" / "atlas.html")


@posix
@pytest.mark.slow
def test_atlas_with_two_workers_when_killed(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the hen in a thin inn\n" * 30_000)
    arguments = ("atlas", str(corpus), "--workers", "2", "--out", str(tmp_path / "out"))
    process = start(*arguments)
    while not any(tmp_path.glob("out/chunk-*")):
        assert process.poll() is None
        time.sleep(0.01)
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    children = listed.read_text().split() if listed.exists() else []
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline, "workers outlive who started them"
        time.sleep(0.05)
    corpus.write_text("the hen in a thin inn\n" * 200)
    few, _ = run("atlas", str(corpus), "--workers", "2")
    assert attnlab.atlas(ODD, corpus, ["loss"], progress=False).loss in few
