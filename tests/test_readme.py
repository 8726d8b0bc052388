"""The README's and the guide's Python code runs and prints the output that they show."""

import doctest
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE

from attnlab import GPT2, causal_mask, check, self_attention
from attnlab.pocket import truth
from attnlab.support.names import PATHS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
CHINESE = ROOT / "examples/zh/README.zh.md"
GUIDE = ROOT / "examples/book/pages/en/guide.md"


@pytest.mark.parametrize("readme", [README, CHINESE], ids=["en", "zh"])
def test_readme_examples(readme: Path) -> None:
    results = doctest.testfile(str(readme), module_relative=False, encoding="utf-8")
    assert results.attempted >= 8
    assert results.failed == 0


@pytest.mark.parametrize("readme", [README, CHINESE], ids=["en", "zh"])
def test_readme_links_exist(readme: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", readme.read_text(encoding="utf-8"))
    assert len(targets) >= 8
    assert [target for target in targets if not (readme.parent / target).exists()] == []


def test_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= 900


def test_both_readmes_have_the_same_code() -> None:
    """The English one's commands are run in CI; each shows the other on its first screen."""
    blocks = [
        re.findall(r"^```\w+\n(.+?)^```$", re.sub("  # .+", "", text), re.M | re.S)
        for text in (README.read_text(encoding="utf-8"), CHINESE.read_text(encoding="utf-8"))
    ]
    assert len(blocks[0]) == 6
    assert blocks[1] == blocks[0]
    for readme, other in ((README, CHINESE), (CHINESE, README)):
        beginning = readme.read_text(encoding="utf-8").split("```")[0]
        linked = re.findall(r"\]\(([^)]+)\)", beginning)
        assert other in [(readme.parent / target).resolve() for target in linked]


def test_guide_examples(walkthrough_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gpt2` is replaced by the checkpoint that yields GPT-2’s published figures.

    Methods take their scores from the table, which test_truth computes again.
    """
    model = GPT2.from_pretrained(walkthrough_directory)
    open_model = GPT2.from_pretrained

    def opened(name: str, **settings: Any) -> GPT2:
        return model if name == "gpt2" else open_model(name, **settings)

    monkeypatch.setattr(GPT2, "from_pretrained", opened)
    monkeypatch.setattr(truth, "scores_of", lambda *_: truth.open_truth().scores)
    results = doctest.testfile(str(GUIDE), module_relative=False, encoding="utf-8")
    assert results.attempted >= 9
    assert results.failed == 0


def test_examples_of_an_explanation_and_a_verdict() -> None:
    X = [[1.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]]
    W = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    text = str(self_attention(X, W, W, W, mask=causal_mask(3)).explain(2, 0))
    assert f"```\n{text}\n```" in GUIDE.read_text(encoding="utf-8")
    head = GPT2.from_pretrained("pocket").trace("The dog chased the ball, but it").head(0, 3)
    scores = head.Q @ head.K.T / 128**0.5
    masked_scores = np.where(np.tril(np.ones((8, 8))), scores, -np.inf)
    mine = {"Q": head.Q, "scores": scores, "masked_scores": masked_scores}
    assert f"```\n{check(mine, head)!r}\n```" in GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("theirs", "ours"), [pair for paths in PATHS.values() for pair in paths.items()]
)
def test_equivalents_of_other_tools_names(theirs: str, ours: str) -> None:
    trace = GPT2.from_pretrained(REFERENCE / "odd").trace("the hen")
    for path in re.split(", and |, ", ours):
        assert eval(f"trace.{path}", {"trace": trace, "l": 1, "h": 2}).size
    if not hasattr(type(trace), theirs):
        with pytest.raises(AttributeError, match=re.escape(f"is {ours} here")):
            getattr(trace, theirs)
