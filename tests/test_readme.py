"""The README's and the guide's Python code runs and prints the output that they show."""

import doctest
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from book import CHAPTERS, LATER

from attnlab import GPT2, causal_mask, check, self_attention

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
CHINESE = ROOT / "examples/zh/README.md"
EXAMPLES = ROOT / "examples"
PAGES = EXAMPLES / "book/pages"
FENCE = re.M | re.S
GUIDE = ROOT / "examples/book/pages/en/guide.md"


@pytest.mark.parametrize("readme", [README, CHINESE], ids=["en", "zh"])
def test_readme_examples(readme: Path) -> None:
    results = doctest.testfile(str(readme), module_relative=False, encoding="utf-8")
    assert results.attempted >= 6
    assert results.failed == 0


@cache
def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def is_built(page: Path, target: str) -> bool:
    """Whether the build writes what a page of the book links to; test_built_book follows those."""
    made = {f"{chapter.stem}.ipynb" for chapter in (*CHAPTERS, *LATER)}
    made |= {"api.md", "../en/api.html", "../en/guide.html"}
    return PAGES in page.parents and target in made


def test_relative_links_lead_somewhere() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = listed.stdout.split("\0")[:-1]
    pages = [ROOT / name for name in names] or [*ROOT.glob("*.md"), *EXAMPLES.rglob("*.md")]
    pages += [*CHAPTERS, *LATER]
    lost, n_links = [], 0
    for page in pages:
        text = re.sub(r"^```.*?^```|`[^`\n]+`", "", page.read_text(encoding="utf-8"), flags=FENCE)
        links = re.findall(r'(?:\]\(|(?:src|href)=")(?![a-z]+:)([^)\s"]+)', text)
        n_links += len(links)
        for link in links:
            target, _, anchor = link.partition("#")
            file = (page.parent / target).resolve() if target else page
            has_anchor = not anchor or file.suffix != ".md" or anchor in anchors_of(file)
            if not is_built(page, target) and not (file.exists() and has_anchor):
                lost.append(f"{page.relative_to(ROOT)}: {link}")
    assert n_links > 600
    assert lost == []


def test_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= 700


def test_both_readmes_have_the_same_code() -> None:
    """The English one's commands are run in CI; each shows the other on its first screen."""
    blocks = [
        re.findall(
            r"^```\w+\n(.+?)^```$", re.sub("  # .+| --lang zh$", "", text, flags=re.M), FENCE
        )
        for text in (README.read_text(encoding="utf-8"), CHINESE.read_text(encoding="utf-8"))
    ]
    assert len(blocks[0]) == 6
    # The Chinese one also builds the book and writes the playground, after the first command.
    assert [block for block in blocks[1] if block in blocks[0]] == blocks[0]
    assert blocks[1][0] == blocks[0][0]
    for readme, other in ((README, CHINESE), (CHINESE, README)):
        beginning = readme.read_text(encoding="utf-8").split("```")[0]
        linked = re.findall(r"\]\(([^)]+)\)", beginning)
        assert other in [(readme.parent / target).resolve() for target in linked]


@pytest.mark.slow
def test_guide_examples(walkthrough_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gpt2` is replaced by the checkpoint that yields GPT-2’s published figures."""
    model = GPT2.from_pretrained(walkthrough_directory)
    open_model = GPT2.from_pretrained

    def opened(name: str, **settings: Any) -> GPT2:
        return model if name == "gpt2" else open_model(name, **settings)

    monkeypatch.setattr(GPT2, "from_pretrained", opened)
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


@pytest.mark.parametrize("language", ["en", "zh"])
def test_names_in_other_tools_have_equivalents(language: str) -> None:
    """Evaluate each expression of the page as a user would type it."""
    page = (GUIDE.parents[1] / language / "names.md").read_text(encoding="utf-8")
    expressions = re.findall(r"\| `([^`]+)` \|$", page, re.MULTILINE)
    assert len(expressions) == 49
    model = GPT2.from_pretrained("pocket")
    text = "The dog chased the ball"
    trace = model.trace(text)
    known = {"model": model, "text": text, "trace": trace, "l": 1, "h": 2, "ids": [1, 2]}
    known |= {"path": "blocks.0.output", "function": lambda x: 0 * x}
    for expression in expressions:
        for path in re.split(", and |, ", expression):
            typed = path if path.startswith(("model", "trace")) else f"trace.{path}"
            assert eval(typed, known) is not None
