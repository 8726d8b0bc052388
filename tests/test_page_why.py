"""Why this score, on the page: the pairs of parts that a score is a sum of."""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from conftest import REFERENCE, Watched
from pages import LOADED, ablation, scaling, silencing, toggling, until

import attnlab
from attnlab import GPT2, Trace
from attnlab.pages import pairs

BALL = "The dog chased the ball, but it"
SHE = "The girl was tired because she"
RAIN = "When it rains, we stay at home and play"

Open = Callable[..., Any]


@pytest.fixture
def opened(watched: Watched, tmp_path: Path) -> Iterator[Open]:
    """Open a page of a kind; check at the end that it logged nothing."""

    def open_(model: GPT2, text: Any, kind: str, link: str = "", **settings: Any) -> Any:
        file = tmp_path / "page.html"
        if kind == "saved":
            trace = text if isinstance(text, Trace) else model.trace(text)
            attnlab.page(trace).save(file)
        else:
            attnlab.playground(model, text).save(file)
        return watched.open(f"{file.as_uri()}#{link}", **settings)

    yield open_
    watched.close()
    assert watched.said == []


def cell(page: Any, layer: int, head: int, query: int, key: int, other: int | None = None) -> Any:
    """The section of a cell, once it has all that it shows."""
    page.evaluate("([layer, head]) => openHead(layer, head)", [layer, head])
    until(page, f"traces.at(-1).loaded.has({layer})")
    values = {"layer": layer, "head": head, "query": query, "key": key, "component": 0}
    page.evaluate("openCellAt", values | ({} if other is None else {"other": other}))
    until(page, "document.querySelector('.reasons > :last-child').children.length > 0")
    return page.locator(".reasons")


def bars(section: Any) -> tuple[list[tuple[str, str, float]], list[float]]:
    """The names and numbers of pairs, and the numbers below: of the others, and the total."""
    rows, feet = section.evaluate(
        """(section) => ["tbody", "tfoot"].map((name) => [...section.querySelector(name).rows]
            .map((row) => [...row.cells].map((cell) => cell.querySelector("data")?.value
                ?? cell.textContent)))"""
    )
    return [(one, two, float(x)) for one, two, _, x in rows], [float(row[-1]) for row in feet]


def agrees(section: Any, trace: Trace, layer: int, head: int, *places: int | None) -> int:
    """Check a section against the library; return how many pairs it shows."""
    why = attnlab.why(trace.head(layer, head), *places)  # type: ignore[arg-type]
    rows, feet = bars(section)
    labels = {term.name: str(term.label) for terms in why.parts.values() for term in terms}
    # A file may have fewer of the largest pairs, and of each sign the largest not rounded to 0.
    parts = product(*([term.name for term in terms] for terms in why.parts.values()))
    pairs = [(*names, float(x)) for names, x in zip(parts, why.pairs.ravel(), strict=True)]
    pairs.sort(key=lambda pair: -abs(pair[2]))
    named = {next((x for x in pairs if x[2] * sign > 1e-5), pairs[0]) for sign in (1, -1)}
    unions = [named.union(pairs[:known]) for known in range(len(rows), -1, -1)]
    union = next(union for union in unions if len(union) <= len(rows))
    expected = sorted(union, key=lambda pair: -abs(pair[2]))
    for found, (query, key, number) in zip(rows, expected, strict=True):
        assert found[:2] == (labels[query], labels[key])
        assert found[2] == pytest.approx(number, abs=1e-4)
    shown = sum(number for *_, number in rows)
    assert feet[-1] == pytest.approx(why.total, abs=1e-4)
    assert len(rows) == why.pairs.size or feet[0] == pytest.approx(why.total - shown, abs=1e-3)
    words = section.locator("tfoot th").all_inner_texts()
    assert words[:-1] == [f"the other {why.pairs.size - len(rows)} pairs"]
    assert section.locator("p").first.inner_text() == str(why.sentence)
    return len(rows)


@pytest.mark.parametrize(("name", "text"), [("pocket", BALL), ("english", SHE), ("english", RAIN)])
def test_a_saved_page_has_the_largest_pairs(opened: Open, name: str, text: str) -> None:
    model = GPT2.from_pretrained(name)
    trace = model.trace(text)
    page = opened(model, text, "saved")
    last, top = len(trace.tokens) - 1, trace.config.n_layer - 1
    first = max(1, pairs.description(trace)["first"])  # query 0 sees one key only
    for (layer, head), query in product(((top, 2), (top, 3), (1, 1), (0, 3)), (first, last)):
        *_, second, key = trace.head(layer, head).weights[query, : query + 1].argsort().tolist()
        for other in (None, second):
            section = cell(page, layer, head, query, key, other)
            assert agrees(section, trace, layer, head, query, key, other) > 0
    if first > 1:
        section = cell(page, 1, 1, first - 1, 0)
        assert section.inner_text().endswith(f"only from position {first}.")


HEADS = "blocks.{}.attention.heads.{}."


def changed(trace: Trace) -> list[tuple[list[Any], Trace]]:
    """Changes as the page sends them, each with the edited trace."""
    two, context = HEADS.format(0, 2), HEADS.format(0, 1) + "context"
    mask = trace.head(1, 2).mask.copy()
    mask[7, 4] = False
    edits: list[tuple[list[Any], dict[str, Any]]] = [
        ([ablation(0, 1), ablation(0)], silencing(trace, 0, 1) | {"blocks.0.mlp.output": 0}),
        (
            [scaling(0, 2, "V", 3), toggling(1, 2, [7, 4])],
            {f"{two}V": lambda x: 3 * x, HEADS.format(1, 2) + "mask": mask},
        ),
        ([scaling(0, 1, "context", 0.5)], {context: lambda x: x / 2}),
    ]
    return [(changes, trace.edited(edit)) for changes, edit in edits]


def test_a_playground_computes_them(opened: Open, pocket: GPT2) -> None:
    """Of heads of both layers, and with changes of each kind."""
    page, trace = opened(pocket, BALL, "playground"), pocket.trace(BALL)
    for layer, head in ((0, 0), (0, 3), (1, 0), (1, 2)):
        assert agrees(cell(page, layer, head, 7, 1, 4), trace, layer, head, 7, 1, 4) == 8
    for changes, edited in changed(trace):
        change(page, changes)
        assert agrees(cell(page, 1, 2, 7, 1), edited, 1, 2, 7, 1) == 8


def change(page: Any, changes: list[Any]) -> None:
    page.evaluate(
        "async (changes) => openTraces([await source.open({ ids: traces[0].ids }, changes)])",
        changes,
    )
    until(page, LOADED)


@pytest.mark.parametrize("name", ["odd", "relu"])
def test_a_playground_of_other_models(opened: Open, name: str) -> None:
    """With a scale for each layer, and another activation."""
    model = GPT2.from_pretrained(REFERENCE / name)
    trace = model.trace([5, 7, 100, 3, 41])
    page, layer = opened(model, trace.tokens.ids.tolist(), "playground"), model.config.n_layer - 1
    assert agrees(cell(page, layer, 1, 4, 1), trace, layer, 1, 4, 1) == 8


@pytest.mark.parametrize("kind", ["saved", "playground"])
def test_sums_without_bars_say_why(opened: Open, pocket: GPT2, kind: str) -> None:
    page, trace = opened(pocket, BALL, kind), pocket.trace(BALL)
    alone = cell(page, 1, 2, 0, 0)
    words = "“The” sees only one key, “The”: its weight is 1, whatever the score."
    assert alone.inner_text().split("\n")[-1].strip() == words
    assert "is masked for this query" in cell(page, 1, 2, 2, 5).inner_text()
    head = HEADS.format(1, 2)
    if kind == "saved":
        page = opened(pocket, trace.edited({f"{head}scores": lambda x: x + 1}), kind)
    else:
        change(page, [scaling(1, 2, "scores", 2)])
    section = cell(page, 1, 2, 7, 1)
    assert "An edit replaced a step" in section.inner_text()
    assert section.locator("table").count() == section.locator(".compared-with").count() == 0
    if kind == "saved":
        page = opened(pocket, trace.edited({f"{head}weights": lambda x: x / 2}), kind)
    else:
        change(page, [scaling(1, 2, "weights", 0.5)])
    section = cell(page, 1, 2, 7, 1)
    assert agrees(section, trace, 1, 2, 7, 1) > 1  # the score is still a sum
    assert "weights of this head are edited" in section.inner_text()


def test_the_other_key_is_chosen_and_parts_are_links(opened: Open, pocket: GPT2) -> None:
    """By the keyboard, and by touch."""
    trace = pocket.trace(BALL)
    page = opened(pocket, BALL, "playground")
    section = cell(page, 1, 2, 7, 1)
    chips = section.locator(".compared-with button")
    assert chips.all_inner_texts()[1:4] == ["The", "Ġchased", "Ġthe"]  # without the key itself
    assert chips.first.get_attribute("aria-pressed") == "true"
    chips.first.focus()
    for _ in range(4):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.reasons').innerText.includes('than at')")
    assert agrees(section, trace, 1, 2, 7, 1, 4) == 8
    assert page.evaluate("document.activeElement.ariaPressed") == "true"
    section.get_by_role("button", name="layer 0 head 3").first.press("Enter")
    until(page, "selection.layer === 0 && selection.head === 3")
    assert page.evaluate("selection.query") == 1  # a part of the key
    section.get_by_role("button", name="MLP 0").first.press("Enter")
    until(page, "selection.chosenStep.path === 'blocks.0.mlp.output'")
    assert page.evaluate("selection.query") == 7
    page = opened(pocket, BALL, "saved", viewport={"width": 390, "height": 844}, has_touch=True)
    section = cell(page, 1, 2, 7, 1)
    section.locator(".compared-with button").nth(4).tap()
    until(page, "document.querySelector('.reasons').innerText.includes('than at')")
    assert agrees(section, trace, 1, 2, 7, 1, 4) > 1
