"""The models in the package: their names, their files, and which one is the default."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import REFERENCE
from safetensors import safe_open

import attnlab
from attnlab import GPT2
from attnlab.checkpoints import hub
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.errors import InvalidValueError
from attnlab.pages.saved import first_text
from attnlab.walkthrough import PROMPT

# What may follow “Swimming is”.
FITTING = {
    *(" a", " an", " the", " very", " so", " not", " good", " fun", " my", " your", " one"),
    *(" great", " nice", " easy", " more", " better", " too", " always", " still", " like"),
}

by_name = pytest.mark.parametrize("name", BUILT_IN)


@by_name
def test_what_pages_say_of_next_tokens_is_in_the_card(name: str) -> None:
    built_in = BUILT_IN[name]
    card = (built_in.directory / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert built_in.limits
    assert built_in.limits in " ".join(card.split())


@by_name
def test_opens_without_network_from_any_directory(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()  # a directory with that name isn't used
    code = f"import attnlab; print(attnlab.GPT2.from_pretrained({name!r}))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "none")},
        check=True,
    ).stdout
    assert result.endswith(f"from {Path('attnlab', name)}\n")


@by_name
def test_has_no_revision(name: str) -> None:
    with pytest.raises(InvalidValueError, match="revision"):
        GPT2.from_pretrained(name, revision="main")


@by_name
def test_examples_are_in_whole_words(name: str) -> None:
    """And a page opens with the first."""
    model = GPT2.from_pretrained(name)
    examples = BUILT_IN[name].examples
    assert model.tokenizer.decode(first_text(model)) == examples[0]
    for text in examples:
        symbols = {symbol.strip("Ġ") for symbol in model.trace(text).tokens.symbols}
        assert {*re.findall("[A-Za-z]{2,}", text)} <= symbols


def test_english_is_small(tmp_path: Path) -> None:
    """Half precision in the file, single precision in use; a page that holds it can be sent."""
    directory = BUILT_IN["english"].directory
    assert sum(file.stat().st_size for file in directory.glob("*.[jst]*")) <= 8.5e6
    with safe_open(directory / "model.safetensors", framework="np") as tensors:
        stored = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    assert {str(tensor.dtype) for tensor in stored.values()} == {"float16"}
    model = GPT2.from_pretrained("english")
    assert {parameter.dtype for parameter in model.parameters.values()} == {np.dtype("float32")}
    (W_E,) = (tensor for name, tensor in stored.items() if name.endswith("wte.weight"))
    assert np.array_equal(model.parameters["W_E"], W_E)
    attnlab.playground(model).save(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 14e6


def test_the_walkthroughs_sentence_goes_on_in_english() -> None:
    """After “Swimming is” comes no verb in the past, no plural, no mark, but what it may be."""
    words = [token.text for token in GPT2.from_pretrained("english").trace(PROMPT).next_tokens(3)]
    assert words[0] in FITTING


@pytest.fixture
def no_model_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTNLAB_MODEL", raising=False)


@pytest.mark.usefixtures("no_model_named")
def test_default_model_without_gpt2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hub, "_cached_snapshot", lambda *_: None)
    monkeypatch.setattr(hub, "_download", lambda *_: pytest.fail("must not touch the network"))
    for arguments, name in (((), "english"), (("pocket",), "pocket")):
        model = GPT2.default(*arguments)
        assert model.parameters.origin == f"from {Path('attnlab', name)}"
        output = capsys.readouterr().out
        assert output.count("\n") == 2
        assert f"{name}, {BUILT_IN[name].description}" in output
        assert "attnlab download gpt2" in output
    with pytest.raises(BaseException, match="must not touch"):  # never falls back to another model
        GPT2.from_pretrained("gpt2")


@pytest.mark.usefixtures("no_model_named")
def test_default_model_with_gpt2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hub, "_cached_snapshot", lambda *_: REFERENCE / "odd")
    assert GPT2.default().parameters.origin == f"from {REFERENCE / 'odd'}"
    assert capsys.readouterr().out == f"Model: gpt2, from {REFERENCE / 'odd'}.\n"


def test_default_model_with_a_model_argument(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNLAB_MODEL", str(REFERENCE / "odd"))
    assert GPT2.default().config.n_embd == 35
    assert f"Model: {REFERENCE / 'odd'}" in capsys.readouterr().out


def test_only_a_built_in_model_can_be_the_default() -> None:
    with pytest.raises(InvalidValueError, match="english, pocket"):
        GPT2.default("gpt2")
