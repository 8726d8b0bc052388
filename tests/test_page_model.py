"""A page with a model, as a reader uses it: texts, comparisons, ablations, generation, links."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pages import BALL, GRIDS, ablation, agrees, ask, drawn, idle, to_cell, until

from attnlab import GPT2, Trace, softmax
from attnlab.model.sampling import Sampling

Play = Callable[..., Any]

ABLATED = {"blocks.1.attention.heads.2.context": 0}


def open_head(page: Any, layer: int, head: int) -> None:
    page.locator(f".grid >> nth=0 >> .map >> nth={layer * 4 + head}").click()
    idle(page)


def tokens(page: Any, nth: int = 0) -> list[str]:
    return list(page.locator(".flow").nth(nth).locator(".symbol").all_inner_texts())


def status_of(page: Any) -> str:
    until(page, "document.querySelector('#status').textContent !== ''")
    return str(page.locator("#status").inner_text())


def shows(page: Any, trace: Trace, layer: int, head: int, nth: int = 0) -> None:
    """Check that the page shows a trace: its tokens, some weights of a head, and predictions."""
    assert tokens(page, nth) == list(trace.tokens.symbols)
    T = len(trace.tokens)
    for i, j in ((T // 2, T // 3), (T - 1, 0)):
        to_cell(page, i, j, nth)
        weight = trace.head(layer, head).weights[i, j]
        assert agrees(page.locator("#heatmaps .readout").nth(nth).locator("data"), weight)
    numbers = f"[...document.querySelectorAll('.next')[{nth}].querySelectorAll('data')]"
    expected = [token.probability for token in trace.next_tokens(5)]
    until(page, f"{expected}.every((p, n) => Math.abs({numbers}[n]?.value - p) < 6e-5)")


def test_texts_are_compared_and_returned_to(pocket: GPT2, play: Play) -> None:
    page, other = play(pocket, BALL), BALL.replace("dog", "cat")
    assert page.locator("#prompt").input_value() == BALL
    assert page.locator("#back").is_disabled()
    ask(page, BALL)  # the same again
    assert page.locator("#back").is_disabled()
    ask(page, other)
    open_head(page, 1, 2)
    page.locator("#compare").check()
    idle(page)
    a, b = pocket.trace(BALL), pocket.trace(other)
    shows(page, a, 1, 2, 0)
    shows(page, b, 1, 2, 1)
    names = [f"A: “{BALL}”", f"B: “{other}”", "B − A"]
    assert page.locator("#heatmaps h3.name").all_inner_texts() == names
    to_cell(page, 7, 1, 2)
    difference = b.head(1, 2).weights[7, 1] - a.head(1, 2).weights[7, 1]
    assert agrees(page.locator("#heatmaps .readout").nth(2).locator("data"), difference)
    ask(page, "The hen\nsaw")
    shows(page, b, 1, 2, 0)
    shows(page, pocket.trace("The hen\nsaw"), 1, 2, 1)
    assert page.title() == "attnlab pocket: The hen saw"
    page.locator("#back").click()
    idle(page)
    assert page.locator("#prompt").input_value() == other
    page.locator("#compare").uncheck()
    page.locator("#back").click()
    idle(page)
    shows(page, a, 1, 2)
    assert page.locator("#back").is_disabled()


def test_a_text_is_marked_until_enter_sends_it(pocket: GPT2, play: Play) -> None:
    page = play(pocket, BALL)
    prompt, mark = page.locator("#prompt"), page.locator("#unsent")
    prompt.fill("The cat")
    prompt.press("Shift+Enter")
    assert prompt.input_value() == "The cat\n"
    # An input method's Enter chooses a candidate.
    composing = "new KeyboardEvent('keydown', { key: 'Enter', isComposing: true, bubbles: true })"
    prompt.evaluate(f"(prompt) => prompt.dispatchEvent({composing})")
    assert tokens(page) == list(pocket.trace(BALL).tokens.symbols)
    assert mark.inner_text() == "not shown yet: press Enter"
    prompt.press("Enter")
    idle(page)
    assert tokens(page) == ["The", "Ġcat", "Ċ"]
    assert mark.is_hidden()
    # It can't be shown: what is shown is dimmed, and a button returns to its text.
    ask(page, "hen " * 200)
    dimmed = "getComputedStyle(document.querySelector('#first')).opacity < 1"
    until(page, dimmed)
    page.locator("#status button").click()
    assert prompt.input_value() == "The cat\n"
    until(page, f"!({dimmed})")
    ask(page, " \n")
    assert status_of(page) == "The text is only white space."


def changes(page: Any) -> list[tuple[str, ...]]:
    """The rows of the table of changes: a token, before, now, the change."""
    until(page, "document.querySelectorAll('#change tbody tr').length > 0")
    drawn(page)
    rows = page.locator("#change tbody tr").all()
    return [tuple(row.locator(".symbol, data").all_inner_texts()) for row in rows]


def check_changes(page: Any, before: Trace, now: Trace, i: int, j: int, **settings: Any) -> None:
    """The five most probable tokens of each, sorted by the new probability, from NumPy."""
    a = Sampling(**settings).probabilities(before.logits[i])
    b = Sampling(**settings).probabilities(now.logits[j])
    likely = {int(id) for x in (a, b) for id in np.argsort(-x, kind="stable")[:5] if x[id] > 0}
    ids = sorted(likely, key=lambda id: (-b[id], -a[id]))
    rows = changes(page)
    assert [name for name, *_ in rows] == [now.vocabulary.token(id).symbol for id in ids]
    for id, (_, *texts) in zip(ids, rows, strict=True):
        shown = [float(text.replace("−", "-")) for text in texts]
        assert shown == pytest.approx([a[id], b[id], b[id] - a[id]], abs=6e-5)


def test_a_head_is_ablated_and_what_changes_is_listed(pocket: GPT2, play: Play) -> None:
    page = play(pocket, BALL)
    open_head(page, 1, 2)
    assert page.locator("#change table").count() == 0
    until(page, f"{GRIDS}.every((map) => map.values)")
    page.evaluate(f"() => (window.before = {GRIDS}.map((map) => map.values))")
    page.locator("#head-toggle").click()
    idle(page)
    # Maps before the ablation are not computed again.
    until(page, f"{GRIDS}.every((map) => map.values)")
    same = page.evaluate(f"() => {GRIDS}.map((map, n) => map.values === window.before[n])")
    assert same == [True] * 4 + [False] * 4
    a, b = pocket.trace(BALL), pocket.trace(BALL).edited(ABLATED)
    shows(page, b, 1, 2)
    check_changes(page, a, b, 7, 7)
    assert page.locator("#change .note span").all_inner_texts() == [
        "before: nothing ablated",
        "now: layer 1, head 2 ablated",
    ]
    assert page.locator("#ablated button").all_inner_texts() == ["layer 1, head 2 ×"]
    (marked,) = page.locator(".map.ablated").all()
    assert marked.get_attribute("aria-label") == "layer 1, head 2, ablated"
    # The ablation applies to another text too, until it is undone.
    ask(page, "The hen")
    shows(page, pocket.trace("The hen").edited(ABLATED), 1, 2)
    page.get_by_role("button", name="layer 1, head 2: undo the ablation").click()
    idle(page)
    shows(page, pocket.trace("The hen"), 1, 2)
    assert page.locator(".map.ablated").count() == 0


def test_what_changes_with_the_text(pocket: GPT2, play: Play) -> None:
    """Each trace at its own position; another text is compared only when asked."""
    page, other = play(pocket, BALL), "The big cat chased the ball, but it"
    ask(page, other)
    assert page.locator("#change table").count() == 0
    page.locator("#change button").click()
    assert page.locator("#compare").is_checked()
    until(page, "document.querySelector('#change thead')?.textContent.includes('B − A')")
    check_changes(page, pocket.trace(BALL), pocket.trace(other), 7, 8)
    # A token only in B is compared with the position before it.
    page.locator("#settings input[type=range]").first.fill("2")
    until(page, "document.querySelector('#change caption').textContent.includes(' 1, ')")
    check_changes(page, pocket.trace(BALL), pocket.trace(other), 1, 1)
    page.locator("#settings input[type=range]").nth(1).fill("15")
    page.locator("#settings input[type=range]").nth(3).fill("7")
    settings = {"temperature": 1.5, "top_p": 0.8}
    check_changes(page, pocket.trace(BALL), pocket.trace(other), 1, 1, **settings)


def test_text_is_generated(pocket: GPT2, play: Play) -> None:
    page = play(pocket, BALL)
    page.locator("#count").fill("7")
    page.locator("#write").click()
    until(page, "document.querySelectorAll('.flow .chip').length === 15")
    idle(page)
    written = page.locator("#prompt").input_value()
    assert written.startswith(BALL)
    ids = pocket.trace(written).tokens.ids
    shares = softmax(pocket.trace(written).logits[7:14].astype(float))[range(7), ids[8:]]
    sampled = [float(d.get_attribute("value")) for d in page.locator("#sampled data").all()]
    assert sampled == pytest.approx(shares, rel=1e-3)
    shows(page, pocket.trace(written), 0, 0)
    page.locator("#back").click()
    idle(page)
    assert page.locator("#prompt").input_value() == BALL
    # The sliders say how; those beside the text are the same.
    temperature = page.locator("#settings input[type=range]").nth(1)
    temperature.fill("0")
    beside = page.locator("#sampling input").first
    assert beside.get_attribute("aria-valuetext") == "0: always the most probable token"
    page.locator("#count").fill("5")
    page.locator("#write").click()
    until(page, "document.querySelectorAll('.flow .chip').length === 13")
    idle(page)
    greedy = pocket.generate(BALL, 5, temperature=0)
    assert page.locator("#prompt").input_value() == greedy.whole_text
    assert "Generated greedily" in page.locator("#sampled").inner_text()
    for count in ("0", ""):
        page.locator("#count").fill(count)
        page.locator("#write").click()
        idle(page)
        assert tokens(page) == list(greedy.tokens.symbols)


def test_a_reload_keeps_the_view(pocket: GPT2, play: Play) -> None:
    page, text = play(pocket, BALL), "The hen saw the cat and the hen"
    ask(page, text)
    open_head(page, 1, 3)
    for nth in (0, 1):
        page.locator("#toggles button").nth(nth).click()
        idle(page)
    page.locator(".flow .chip").nth(4).click()
    until(page, "location.hash.includes('query=4') && location.hash.endsWith('ablate=1.3+1')")
    page.reload()
    until(page, "document.querySelectorAll('#ablated button').length === 2")
    idle(page)
    assert page.locator("#prompt").input_value() == text
    until(page, "selection.query === 4")
    assert page.locator("#head-title").inner_text() == "Layer 1, head 3"
    page.locator(".flow .chip").last.click()
    edits = {"blocks.1.attention.heads.3.context": 0, "blocks.1.mlp.output": 0}
    shows(page, pocket.trace(text).edited(edits), 1, 3)
    # A changed link is followed; an invalid one is reported.
    ids = ".".join(map(str, pocket.trace("The cat").tokens.ids))
    page.evaluate(f"location.hash = '#ids={ids}'")
    until(page, "document.querySelectorAll('.flow .chip').length === 2")
    idle(page)
    assert page.locator("#ablated").is_hidden()
    page.evaluate("location.hash = '#ids=1.x'")
    assert "id" in status_of(page)
    assert tokens(page) == ["The", "Ġcat"]
    page.evaluate("location.hash = '#ablate=0.7+1'")  # head 7 doesn't exist, MLP 1 does
    until(page, "document.querySelector('#status').textContent.endsWith('applied: 0.7')")
    assert page.evaluate("traces[0].changes") == [ablation(1)]


def test_by_keys_alone(pocket: GPT2, play: Play) -> None:
    page = play(pocket, BALL)
    page.locator("#language").focus()
    reached = []
    for _ in range(4):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert reached[:2] == ["prompt", "look"]
    page.locator("#prompt").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("The hen saw the cat")
    page.keyboard.press("Enter")
    idle(page)
    assert page.evaluate("document.activeElement.id") == "prompt"
    # Through the small maps: S ablates the head that has focus, Enter opens it.
    page.locator(".map").first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "s"):
        page.keyboard.press(key)
    until(page, "document.querySelectorAll('.map.ablated').length === 1")
    idle(page)
    assert page.locator("#ablated button").all_inner_texts() == ["layer 1, head 2 ×"]
    page.keyboard.press("Enter")
    until(page, "document.activeElement.className === 'cursor'")
    idle(page)
    shows(page, pocket.trace("The hen saw the cat").edited(ABLATED), 1, 2)
    page.locator("#ablated button").focus()
    page.keyboard.press("Enter")
    idle(page)
    assert page.evaluate("document.activeElement.id") == "prompt"
    shows(page, pocket.trace("The hen saw the cat"), 1, 2)


def test_what_is_chosen_while_numbers_are_computed_stays(pocket: GPT2, play: Play) -> None:
    page = play(pocket, BALL)
    idle(page)
    page.evaluate(
        """() => {
            window.held = [];
            const read = source.read.bind(source);
            const wait = () => new Promise((go) => held.push(go));
            source.read = (...given) => wait().then(() => read(...given));
        }"""
    )
    page.locator("#prompt").fill("the dog and the cat")
    page.locator("#prompt").press("Enter")
    until(page, "traces.at(-1).T === 6")
    until(page, "document.querySelector('main').ariaBusy === 'true'")
    page.locator(".flow .chip").nth(2).click()
    page.evaluate("setInterval(() => held.splice(0).forEach((go) => go()), 10)")
    idle(page)
    assert page.evaluate("selection.query") == 2
    assert "position 2" in page.locator("#predictions").first.inner_text()
