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
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from conftest import REFERENCE, posix
from streams import streams

import attnlab
from attnlab import GPT2, figures
from attnlab.cli.command import main
from attnlab.pages.saved import is_page
from attnlab.support.tables import display_width

ODD = str(REFERENCE / "odd")
SILENCED = "blocks.1.attention.heads.2.context=0"

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
    *arguments: str, status: int = 0, stdin: str = "", encoding: str = "utf-8", **changes: str
) -> tuple[str, str]:
    """The output of a command on stdout and stderr, in this process; `encoding` is theirs."""
    with (
        mock.patch.dict(os.environ, environment(**changes), clear=True),
        streams(stdin, encoding) as (out, err),
    ):
        ended = main([*arguments])
    assert ended == status, err.text()
    return out.text(), err.text()


def table_in(out: str, heading: str) -> np.ndarray:
    """The cells of the table below a heading, as texts."""
    lines = out.partition(f"{heading}    ")[2].partition("\n\n")[0].splitlines()[2:]
    return np.array([line.split()[1:] for line in lines])


def test_the_command_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="attnlab")
    assert script.value == "attnlab.cli.command:main"
    finished = subprocess.run(
        [COMMAND, "download", "pocket"], capture_output=True, env=environment(), check=True
    )
    assert Path(os.fsdecode(finished.stdout).strip()).is_dir()


def test_trace() -> None:
    head = GPT2.from_pretrained(ODD).trace("the hen in").head(1, 2)
    out, err = run("trace", "the hen in", "--layer", "1", "--head", "-3")
    assert "ATTNLAB_MODEL" in err
    assert "ATTNLAB_MODEL" not in out
    assert out.startswith("Layer 1, attention, head 2\n")
    assert re.search("^0 +260 +the +'the' +74 68 65$", out, re.MULTILINE)
    chain = ("weights", "Q", "K", "V", "raw_scores", "scores", "masked_scores", "context")
    assert re.findall(r"^(\w+) = ", out, re.MULTILINE) == list(chain)  # the weights first
    for name in chain:
        values = table_in(out, head.heading_of(name))
        assert values.shape == getattr(head, name).shape
        masked = ~head.mask if name == "weights" else np.zeros(values.shape, bool)
        assert np.array_equal(values == "-", masked)
        expected = getattr(head, name)[~masked]
        decimals = 2 if "scores" in name or name == "weights" else 4
        assert np.allclose(values[~masked].astype(float), expected, atol=0.51 * 10**-decimals)
    out, _ = run("trace", "the hen in", "--layer", "1", "--head", "2", "--step", "weights")
    assert re.findall(r"^(\w+) = ", out, re.MULTILINE) == ["weights"]
    out, _ = run("trace", "the hen in", "--step", "mask")
    assert re.search(r"^the +True( +False)+$", out, re.MULTILINE)
    out, _ = run("trace", "the hen", "--step", "b_Q")
    assert len(out.split("b_Q")[-1].splitlines()) > 7  # a vector is a column
    assert "scale = √Dk = 2.6458\n" in run("trace", "the hen", "--step", "scale")[0]  # √7


def test_steps_by_path() -> None:
    trace = GPT2.from_pretrained(ODD).trace("the hen")
    steps = {
        "logits": ("logits = final W_U", trace.logits),
        "blocks.1.mid": ("Block 1: mid = input + attention.output", trace.blocks[1].mid),
        "blocks.2.mlp.hidden": ("Layer 2, MLP: hidden = X W_1 + b_1", trace.blocks[2].mlp.hidden),
        # --layer is ignored for a path, and --head if the path names one.
        "blocks.1.attention.heads.3.K": (
            "Layer 1, attention, head 3: K = X W_K + b_K",
            trace.head(1, 3).K,
        ),
        "blocks.1.attention.V": ("Layer 1, attention, head 4: V = X W_V + b_V", trace.head(1, 4).V),
        "Q": ("\nQ = X W_Q + b_Q", trace.head(2, 4).Q),
    }
    options = [option for path in steps for option in ("--step", path)]
    out, _ = run("trace", "the hen", "--layer", "2", "--head", "4", *options)
    assert out.startswith("Trace of 4 tokens through 3 blocks of 5 heads\n")
    for heading, values in steps.values():
        assert np.allclose(table_in(out, heading).astype(float), values, atol=0.51e-4), heading
    unknown = run("trace", "the hen", "--step", "wieghts", status=2)[1]
    assert "dropout_mask" not in unknown  # which this head doesn't have
    assert "masked_scores, weights, context" in unknown


def test_next() -> None:
    trace = GPT2.from_pretrained(ODD).trace("the hen")
    logits = trace.next_logits.astype(np.float64)
    shares = np.exp(logits - logits.max())
    for options, numbers in (([], shares), (["--edit", SILENCED], None)):
        out, _ = run("next", "the hen", "-k", "2", *options)
        if numbers is None:
            assert out.startswith(trace.edited({SILENCED.partition("=")[0]: 0}).title)
            continue
        ids = [int(line.split()[0]) for line in out.splitlines()[1:3]]
        assert ids == np.argsort(-numbers)[:2].tolist()
        assert f"{numbers.max() / numbers.sum():.4f}" in out
    listed = [line.split()[:1] for line in run("next", "the hen")[0].splitlines()]
    assert len([True for first in listed if first and first[0].isdigit()]) == 5


@pytest.mark.parametrize(
    ("options", "path", "indices"),
    [
        ((), "blocks.0.attention.heads.0.weights", ()),
        (("--query", "e", "--head", "1"), "blocks.0.attention.heads.1.weights", ("e",)),
        (("--query", "3", "--key", "-5"), "blocks.0.attention.heads.0.weights", (3, -5)),
        (("--step", "logits"), "logits", ()),
        (("--step", "logits", "--token", "h", "--component", "n"), "logits", (2, "n")),
        (("--step", "blocks.0.mlp.hidden", "--token", "-1", "--component", "17"), None, (-1, 17)),
        (("--step", "Q", "--query", "e", "--head", "1"), "blocks.0.attention.heads.1.Q", ("e",)),
        (("--step", "scores", "--key", "0"), "blocks.0.attention.heads.0.scores", (None, 0)),
        (("--step", "masked_scores", "--token", "0", "--key", "1"), None, (0, 1)),
        (("--step", "probabilities", "--component", "n"), "probabilities", (None, "n")),
        (("--step", "scale", "--layer", "2"), "blocks.2.attention.heads.0.scale", ()),
        (("--step", "blocks.1.mlp.activation"), None, ()),
        (("--step", "blocks.1.attention.K", "--head", "-1"), "blocks.1.attention.heads.4.K", ()),
    ],
    ids=str,
)
def test_explain(options: tuple[str, ...], path: str | None, indices: Any) -> None:
    trace = GPT2.from_pretrained(ODD).trace("t h e n")
    if path is None:
        name = options[1]
        path = name if "." in name else f"blocks.0.attention.heads.0.{name}"
    out, _ = run("explain", "t h e n", *options)
    assert out == f"{trace.explain(path, *indices).text(80)}\n"


def test_version() -> None:
    assert run("--version") == (f"attnlab {attnlab.__version__}\n", "")


def test_texts_from_stdin_and_from_files(tmp_path: Path) -> None:
    expected = run("trace", "the “hen”\nin")
    assert run("trace", "-", stdin="the “hen”\nin\n") == expected
    steps = ("--step", "weights")  # cp1252 has no √
    in_cp1252 = run("trace", "-", *steps, stdin="the “hen”\r\nin\r\n", encoding="cp1252")
    assert in_cp1252 == run("trace", "the “hen”\nin", *steps, encoding="cp1252")
    file = tmp_path / "text"
    file.write_bytes(b"\xef\xbb\xbfthe \xe2\x80\x9chen\xe2\x80\x9d\nin\n")
    assert run("trace", "--file", str(file)) == expected
    file.write_text("the hen\n\n")
    assert run("trace", "--file", str(file)) == run("trace", "the hen\n")
    assert "nothing to trace: got no tokens. Give" in run("trace", "-", status=2, stdin="")[1]
    with mock.patch("attnlab.cli.subcommands.LARGEST", 6):
        assert "it has more than 6 bytes" in run("trace", "-", status=2, stdin="the hen")[1]
    file.write_bytes(b"\xff")
    assert "Save it as UTF-8" in run("trace", "--file", str(file), status=2)[1]


@pytest.mark.slow
@posix
def test_closed_or_undecodable_stdin() -> None:
    for shell, message in (
        ("{} <&-", "nothing to trace"),
        ("printf '\\377' | {}", "stdin can't be read"),
    ):
        finished = run_in_shell(shell.format(f"{sys.executable} -m attnlab explain -"))
        assert finished.returncode == 2
        assert message in finished.stderr


def test_verify(walkthrough_directory: Path) -> None:
    model = str(walkthrough_directory)
    out, err = run("verify", "--model", model)
    assert err == ""
    assert "18 of 18 tables agree: reproduced" in out


def test_verify_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it, see test_pytorch.py."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    _, err = run("verify", str(ODD), status=2)
    assert err.splitlines() == [
        "comparing with transformers needs transformers and PyTorch: pip install transformers torch"
    ]


def test_verify_of_a_differing_model_exits_with_1(
    walkthrough_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = figures.load("walkthrough")
    published["wpe"][0][0] += 1
    monkeypatch.setattr(figures, "load", lambda name: published)
    model = str(walkthrough_directory)
    out, _ = run("verify", "--model", model, status=1)
    assert "NOT reproduced" in out
    assert re.findall(r"^(\w+) .* DOES NOT AGREE$", out, re.MULTILINE) == ["wpe"]


def test_pages(tmp_path: Path) -> None:
    file, trace = tmp_path / "page.html", GPT2.from_pretrained(ODD).trace("the hen")
    other = GPT2.from_pretrained(ODD).trace("in a thin inn")
    edits = {SILENCED.removesuffix("=0"): 0}
    for arguments, stdin, page in (
        (("the hen",), "", attnlab.page(trace).html),
        (("the hen", "-"), "in a thin inn\n", attnlab.page(trace, other).html),
        (("the hen", "--edit", SILENCED), "", attnlab.page(trace, trace.edited(edits)).html),
    ):
        assert run("html", *arguments, "-o", str(file), stdin=stdin)[0] == f"{file}\n"
        assert file.read_text(encoding="utf-8") == page


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
    ("trace", "expected one text; got 0"),
    ("trace the hen", 'expected one text; got 2. Put a text in quotes, such as "The dog'),
    ("trace the --file x", "expected one text; got 2"),
    ("trace --file /no/such/file", "there is no file in /no/such"),
    ("html a b c", "expected one text or two; got 3"),
    ("html a b --edit mask=True", "--edit can't be used with two texts"),
    ("html the -o -", "can't write a page to stdout; use -o FILE"),
    ("html the -o pages/", "pages/ names a directory; expected a file name"),
    ("html the -o x.pdf", "file name must end in .html; got 'x.pdf'.* For a picture, use"),
    ("trace the --step wieghts", "the trace's steps are .*logits.*blocks.0.mid"),
    ("trace the --step blocks.0.middle", "no step 'middle'; its steps are input, "),
    ("trace the --step blocks.0", "no step 'blocks.0'; a path ends in a step"),
    ("trace the --step probabilities", r"Use attnlab next for the largest, or attnlab explain"),
    ("trace the --step dropout_mask", "made without dropout_mask"),
    ("next the -k 0", "1 to 263"),
    ("trace the --layer x", "invalid int"),
    ("trace the --layer 3", "no layer 3; layers are 0 to 2"),
    ("trace the --head 5", "no head 5; heads are 0 to 4"),
    ("trace the --\x1b[31mred", r"\\x1b\[31mred"),
    ("trace the --model /no/such/place", "'/no/such/place' is neither a directory"),
    ("trace the --model \x1b[31m", r"\\x1b\[31m"),
    ("trace ''", "no tokens"),
    ("trace " + 30 * "hen", r"Give a shorter text, or model.tokenizer.encode\(text\)\[:17\]"),
    ("explain the --step wieghts", "the trace's steps are .*logits.*blocks.0.mid"),
    ("explain the --key 0 --component 0", "give only one"),
    ("atlas /no/such/corpus", "'/no/such/corpus' not found; texts must"),
    ("atlas . --measure sleep", "invalid choice: 'sleep'"),
    ("atlas . --workers 0", "--workers must be an integer of at least 1"),
    ("verify", "17 positions"),
    # Edits
    ("trace the --edit blocks.1.mid", "'blocks.1.mid' is not PATH=NUMBER"),
    *(
        (f"trace the --edit blocks.1.mid={value}", "is not PATH=NUMBER")
        for value in ("", "two", "true", "0=0")
    ),
    ("trace the --edit =0", "'' isn't a step to edit"),
    ("trace the --edit blocks.1.mid=nan", "invalid edit of blocks.1.mid"),
    ("trace the --edit blocks.1.mid=True", "blocks.1.mid must have dtype float32; got bool"),
    ("trace the --edit mask=1", "mask must have dtype bool; got int64"),
    ("trace the --edit 'a\x1b[31m\n=0'", r"a\\x1b\[31m\\n"),
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
        [sys.executable, "-m", "attnlab", "explain", b"\xff\xfe"],
        capture_output=True,
        env=environment(),
        check=False,
    )
    assert finished.returncode == 2
    assert b"surrogate" in finished.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("trace", "the hen in a thin inn"),
        ("explain", "the hen in a thin inn"),
        ("explain", "the hen in a thin inn", "--key", "3"),
    ],
)
def test_output_fits_forty_columns(arguments: tuple[str, ...]) -> None:
    out, _ = run(*arguments, COLUMNS="40")
    assert all(map(fits_in_forty, out.splitlines()))
    whole, _ = run(*arguments, COLUMNS="200")
    assert len(whole.splitlines()) <= len(out.splitlines())
    numbers = re.compile(r"-?[\d.]+|…")
    words = {word for word in whole.split() if not numbers.fullmatch(word)}
    assert words <= set(out.split())  # none is wrapped


def fits_in_forty(line: str) -> bool:
    """A longer path isn't wrapped, so that it can be copied."""
    return display_width(line) <= 40 or len(line.split()) == 1


def test_a_file_gets_all_rows_and_columns() -> None:
    """Full width if none is given; a terminal or COLUMNS limits it."""
    arguments = ("trace", "The dog " * 20, "--model", "pocket", "--layer", "0", "--head", "1")
    out, _ = run(*arguments, "--step", "weights")
    weights = out.partition("weights = ")[2]
    assert "…" not in out
    assert len(weights.splitlines()[2].split()) == 61
    assert len(re.findall("^(?:Ġ|The)", weights, re.MULTILINE)) == 60
    cut, _ = run(*arguments, "--step", "weights", COLUMNS="80")
    assert "…" in cut
    header = re.search("^ .*…", cut.partition("weights = ")[2], re.MULTILINE)
    assert header


@pytest.mark.parametrize("width", [40, 74, 81, 110])
def test_numbers_are_never_truncated(width: int) -> None:
    text = "It’s very hot in summer. Swimming is"
    out, _ = run("trace", text, "--model", "pocket", COLUMNS=str(width))
    assert max(map(display_width, out.splitlines())) <= width
    assert not re.search(r"[\d.]…", out)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_unwritable_output_exits_with_2() -> None:
    finished = run_in_shell(f"{sys.executable} -m attnlab explain the --model pocket >/dev/full")
    assert finished.returncode == 2
    assert "Traceback" not in finished.stderr
    assert run("trace", "The", "--model", "pocket", COLUMNS="0")[1] == ""


def test_table_of_twelve_tokens_in_forty_columns(walkthrough_directory: Path) -> None:
    text = "It’s very hot in summer. Swimming is"
    for arguments in (("verify",), ("trace", text, "--step", "weights", "--step", "context")):
        out, _ = run(*arguments, "--model", str(walkthrough_directory), COLUMNS="40")
        assert all(map(fits_in_forty, out.splitlines()))
    weights = out.split("weights = ")[1].split("context = ")[0]
    assert re.search(r"^It +1\.00 +- .*… +-$", weights, re.MULTILINE)


def test_no_colour_in_a_pipe_and_no_raw_escapes() -> None:
    text = "a\x1b[31m\x07\u202eb"
    for arguments in (("trace", text), ("explain", text)):
        out, _ = run(*arguments)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]", out)
    assert "\\x1b" in run("trace", text)[0]


def test_encodings_without_the_symbols() -> None:
    out, _ = run("trace", "the hen", "--step", "weights", encoding="ascii")
    assert "\\u0120" in out
    table = out.split("is masked\n")[1].split("\n\n")[0]
    assert len({len(line) for line in table.splitlines()}) == 1  # the columns are aligned
    out, _ = run("trace", "the hen in a thin inn", encoding="cp437", COLUMNS="40")
    assert "..." in out
    assert "\\u2026" not in out
    _, err = run("trace", "the", "--model", "/no/such/猫", encoding="ascii", status=2)
    assert "/no/such/\\u732b" in err


def test_output_for_programs_is_not_wrapped(tmp_path: Path) -> None:
    """If COLUMNS doesn't set the width."""
    deep = tmp_path / ("long name " * 12)
    deep.mkdir()
    out, _ = run("html", "the hen", "-o", str(deep / "page.html"))
    assert out == f"{deep / 'page.html'}\n"


def test_edits() -> None:
    text = "the hen in"
    trace = GPT2.from_pretrained(ODD).trace(text)
    edits = {"blocks.1.attention.heads.2.context": 0, "blocks.0.attention.scale": 1.5}
    edited, options = trace.edited(edits), ("--edit", SILENCED)
    options += ("--edit", "blocks.0.attention.scale=1.5")
    head = ("--layer", "1", "--head", "2")
    out, _ = run("trace", text, *head, *options, COLUMNS="300")
    assert out.startswith(f"{edited.head(1, 2).title}\n")
    assert not table_in(out, "context = weights V, edited").astype(float).any()
    out, _ = run("explain", text, "--key", "1", *options)
    assert "edited here: 1.5 instead of 2.6458" in out
    assert out == f"{edited.head(0, 0).explain(-1, 1).text(80)}\n"
    mask = "blocks.1.attention.heads.2.mask"
    out, _ = run("explain", text, *head, "--edit", f"{mask}=True")
    assert out == f"{trace.edited({mask: True}).head(1, 2).explain().text(80)}\n"


def test_atlas(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(b"the hen in a thin inn\n\xff\nthe hen in the inn, the hen\n")
    atlas = attnlab.atlas(ODD, corpus, ["induction", "loss"], progress=False)
    arguments = ("atlas", str(corpus), "--measure", "induction", "--measure", "loss")
    out, _ = run(*arguments, "--out", str(tmp_path / "out"), COLUMNS="300")
    assert out.startswith("Atlas of 2 texts, ")
    assert atlas.loss in out
    assert "line 2 could not be measured: " in out
    (opened,) = re.findall(r"Python: attnlab.open_atlas\('(.*)'\)", out)
    assert repr(attnlab.open_atlas(opened)) == repr(atlas)
    assert f"Page: {tmp_path / 'out' / 'atlas.html'}" in out
    assert is_page(tmp_path / "out" / "atlas.html")
    whole, _ = run("atlas", str(corpus), COLUMNS="40")
    assert "writer" in whole


@posix
@pytest.mark.slow
def test_atlas_with_two_workers_when_killed(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the hen in a thin inn\n" * 30_000)
    arguments = ("atlas", str(corpus), "--workers", "2", "--out", str(tmp_path / "out"))
    process = start(*arguments, "--measure", "loss")
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
    few, _ = run("atlas", str(corpus), "--measure", "loss", "--workers", "2")
    assert attnlab.atlas(ODD, corpus, ["loss"], progress=False).loss in few
