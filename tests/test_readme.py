"""The README's Python is run, and prints what stands there."""

import doctest
from pathlib import Path

import pytest

from attnlab import GPT2, causal_mask, self_attention

README = Path(__file__).parent.parent / "README.md"


def test_first_page(walkthrough_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gpt2` is replaced by the checkpoint that yields GPT-2's published figures."""
    model = GPT2.from_pretrained(walkthrough_directory)
    monkeypatch.setattr(GPT2, "from_pretrained", lambda name: model)
    results = doctest.testfile(str(README), module_relative=False, encoding="utf-8")
    assert results.attempted >= 9
    assert results.failed == 0


def test_the_explanation() -> None:
    X = [[1.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]]
    W = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    text = str(self_attention(X, W, W, W, mask=causal_mask(3)).explain(2, 0))
    assert f"```\n{text}\n```" in README.read_text(encoding="utf-8")
