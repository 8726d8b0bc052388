"""The explorer's page in a real browser: texts, comparisons, ablations, generation, refusals."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Watched, needs
from pages import GRIDS, LOADED, ablation, agrees, ask, drawn, idle, to_cell, until

from attnlab import GPT2, GPT2Config, Sampling, Trace, softmax
from attnlab.training import initial_parameters

needs("starlette", "explore")
needs("uvicorn", "explore")

from test_explorer import PATIENCE, TEXT, SlowModel  # noqa: E402

from attnlab.pages import explorer as room  # noqa: E402
from attnlab.pages.explorer import Explorer  # noqa: E402

Open = Callable[..., Any]

# Chromium's console message for each refused request.
REFUSED = "Failed to load resource: "


@pytest.fixture
def explorer(pocket: GPT2) -> Iterator[Explorer]:
    with pocket.explore() as explorer:
        yield explorer


@pytest.fixture
def open_live(watched: Watched) -> Iterator[Open]:
    """Open an explorer's page; check at the end that it was quiet and asked no other server."""
    own = []

    def open_(explorer: Explorer, **settings: Any) -> Any:
        own.append(explorer.url.partition("?")[0])
        return watched.open(explorer.url, **settings)

    yield open_
    watched.close()
    assert [words for words in watched.said if not words.startswith(REFUSED)] == []
    assert {name for name in watched.asked if not name.startswith(tuple(own))} <= {"data:,"}


def open_head(page: Any, layer: int, head: int) -> None:
    page.locator(f".grid >> nth=0 >> .map >> nth={layer * 4 + head}").click()
    idle(page)


def tokens(page: Any, nth: int = 0) -> list[str]:
    return [
        str(text) for text in page.locator(".flow").nth(nth).locator(".symbol").all_inner_texts()
    ]


def status_of(page: Any) -> str:
    until(page, "document.querySelector('#status').textContent !== ''")
    return str(page.locator("#status").inner_text())


def shows(page: Any, trace: Trace, layer: int, head: int, nth: int = 0) -> None:
    """Check that the page shows a trace: its tokens, some weights of a head, and predictions."""
    assert tokens(page, nth) == list(trace.tokens.symbols)
    T = len(trace.tokens)
    for i, j in ((T // 2, T // 3), (T - 1, T - 1), (T - 1, 0)):
        to_cell(page, i, j, nth)
        weight = trace.head(layer, head).weights[i, j]
        assert agrees(page.locator("#heatmaps .readout").nth(nth).locator("data"), weight)
    expected = [token.probability for token in trace.next_tokens(5)]
    end = time.monotonic() + PATIENCE
    while following(page, nth) != pytest.approx(expected, abs=6e-5):
        assert time.monotonic() < end, (following(page, nth), expected)


def following(page: Any, nth: int) -> list[float]:
    """The displayed probabilities of the next tokens after the selected one."""
    return list(map(float, page.locator(".next").nth(nth).locator("data").all_inner_texts()))


def told_nothing(page: Any) -> bool:
    return bool(page.locator("#status").inner_text() == "")


@contextmanager
def held(page: Any, pattern: str) -> Iterator[None]:
    """Answers to some requests come when this ends."""
    waiting: list[Any] = []
    page.route(re.compile(pattern), lambda route: waiting.append(route))
    yield
    assert waiting
    for route in waiting:
        route.continue_()
    page.unroute_all()


def test_the_first_text_and_others(explorer: Explorer, pocket: GPT2, open_live: Open) -> None:
    page = open_live(explorer)
    assert page.locator("#prompt").input_value() == TEXT
    shows(page, pocket.trace(TEXT), 0, 0)
    open_head(page, 1, 2)
    shows(page, pocket.trace(TEXT), 1, 2)
    assert page.locator("#back").is_disabled()
    assert page.locator("#compare").is_disabled()
    assert told_nothing(page)
    ask(page, TEXT)  # the same again
    assert page.locator("#back").is_disabled()
    open_head(page, 1, 0)
    ask(page, "The hen saw the cat")
    shows(page, pocket.trace("The hen saw the cat"), 1, 0)
    assert page.title() == "attnlab pocket: The hen saw the cat"
    page.locator("#prompt").fill("The cat")
    page.locator("#look").click()
    until(page, "document.querySelectorAll('.flow .chip').length === 2")
    idle(page)
    shows(page, pocket.trace("The cat"), 1, 0)
    assert page.locator("#prompt").input_value() == "The cat"


def test_a_text_is_marked_until_enter_sends_it(explorer: Explorer, open_live: Open) -> None:
    page = open_live(explorer)
    idle(page)  # the story and its head are loaded
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    prompt = page.locator("#prompt")
    prompt.fill("The cat")
    prompt.press("Shift+Enter")
    assert prompt.input_value() == "The cat\n"
    # An input method's Enter chooses a candidate.
    composing = "new KeyboardEvent('keydown', { key: 'Enter', isComposing: true, bubbles: true })"
    prompt.evaluate(f"(prompt) => prompt.dispatchEvent({composing})")
    assert tokens(page)[0] == "The"
    assert sent == []
    prompt.press("Enter")
    idle(page)
    assert tokens(page) == ["The", "Ġcat", "Ċ"]
    mark = page.locator("#unsent")
    assert mark.is_hidden()
    page.locator("#prompt").fill("The hen")
    assert mark.inner_text() == "not shown yet: press Enter"
    page.locator("#head-toggle").click()
    idle(page)
    assert mark.is_visible()
    page.locator("#prompt").press("Enter")
    idle(page)
    assert mark.is_hidden()
    ask(page, "hen " * 200)
    # It can't be shown: what is shown is dimmed, and a button returns to its text.
    assert mark.is_hidden()
    dimmed = "getComputedStyle(document.querySelector('#first')).opacity < 1"
    until(page, dimmed)
    page.locator("#status button").click()
    assert (prompt.input_value(), page.evaluate(dimmed)) == ("The hen", False)
    page.locator("#back").click()
    idle(page)
    assert mark.is_hidden()
    page.locator("#write").click()
    until(page, "document.querySelectorAll('#sampled li').length === 10")
    assert mark.is_hidden()


def test_while_a_text_is_computed_the_last_one_sent_counts(pocket: GPT2, open_live: Open) -> None:
    slow = SlowModel(pocket)
    slow.go.set()
    with Explorer(slow) as explorer:
        page = open_live(explorer)
        idle(page)
        slow.go.clear()
        prompt, mark = page.locator("#prompt"), page.locator("#unsent")
        prompt.fill("The cat")
        prompt.press("Enter")
        assert slow.begun.acquire(timeout=PATIENCE)
        for part in ("#pass", "#overview"):
            until(page, f"getComputedStyle(document.querySelector('{part}')).opacity < 1")
        for text, words in (
            ("The cat", "computing …"),
            ("The cat and", "not shown yet: press Enter"),
            ("The cat", "computing …"),
        ):
            prompt.fill(text)
            assert mark.inner_text() == words
        for text in ("The hen", "The dog", "The bird"):
            prompt.fill(text)
            prompt.press("Enter")
        assert page.locator("#explore").get_attribute("aria-busy") == "true"
        # Until the server has noticed the aborted requests.
        page.evaluate("fetch('nothing').then(() => fetch('nothing'))")
        slow.go.set()
        idle(page)
        assert tokens(page) == ["The", "Ġbird"]
        assert slow.traced == ["The cat", "The bird"]
        assert told_nothing(page)
        assert mark.is_hidden()
        until(page, "getComputedStyle(document.querySelector('#overview')).opacity == 1")


def test_the_one_before(explorer: Explorer, pocket: GPT2, open_live: Open) -> None:
    page = open_live(explorer)
    other = TEXT.replace("dog", "cat")
    ask(page, other)
    open_head(page, 1, 2)
    page.locator("#compare").check()
    idle(page)
    a, b = pocket.trace(TEXT), pocket.trace(other)
    shows(page, a, 1, 2, 0)
    shows(page, b, 1, 2, 1)
    to_cell(page, 7, 1, 2)
    difference = b.head(1, 2).weights[7, 1] - a.head(1, 2).weights[7, 1]
    assert agrees(page.locator("#heatmaps .readout").nth(2).locator("data"), difference)
    ask(page, "The hen")
    shows(page, b, 1, 2, 0)
    shows(page, pocket.trace("The hen"), 1, 2, 1)
    page.locator("#back").click()
    idle(page)
    shows(page, a, 1, 2, 0)
    shows(page, b, 1, 2, 1)
    assert page.locator("#prompt").input_value() == other
    page.locator("#compare").uncheck()
    idle(page)
    assert page.locator(".flow").count() == 1
    page.locator("#back").click()
    idle(page)
    shows(page, a, 1, 2)
    assert page.locator("#back").is_disabled()


def test_a_head_is_ablated(explorer: Explorer, pocket: GPT2, open_live: Open) -> None:
    page = open_live(explorer)
    open_head(page, 1, 2)
    to_cell(page, 5, 3)
    page.locator("#prompt").fill("typed, and not sent")
    until(page, f"{GRIDS}.every((map) => map.values)")
    page.evaluate(f"() => (window.before = {GRIDS}.map((map) => map.values))")
    page.locator("#head-toggle").click()
    idle(page)
    # Maps before the ablation are not computed again.
    until(page, f"{GRIDS}.every((map) => map.values)")
    same = page.evaluate(f"() => {GRIDS}.map((map, n) => map.values === window.before[n])")
    assert same == [True] * 4 + [False] * 4
    assert page.locator("#prompt").input_value() == "typed, and not sent"
    assert re.match(
        r"query 5 .* key 3 ", page.locator("#heatmaps .readout").inner_text()
    )  # unchanged
    ablated = pocket.trace(TEXT).edited({"blocks.1.attention.heads.2.context": 0})
    shows(page, ablated, 1, 2)
    assert page.locator(".next data").first.inner_text() == "0.9416"  # as in the README
    assert page.locator("#head-toggle").inner_text() == "Restore this head (S)"
    assert "its output, the context, is set to 0" in page.locator("#is-ablated").inner_text()
    assert page.locator("#ablated button").all_inner_texts() == ["layer 1, head 2 ×"]
    (marked,) = page.locator(".map.ablated").all()
    assert marked.get_attribute("aria-label") == "layer 1, head 2, ablated"
    # The ablation applies to another text too.
    ask(page, "The hen")
    shows(page, pocket.trace("The hen").edited({"blocks.1.attention.heads.2.context": 0}), 1, 2)
    open_head(page, 0, 0)
    assert page.locator("#head-toggle").inner_text() == "Ablate this head (S)"
    assert page.locator("#is-ablated").is_hidden()
    page.get_by_role("button", name="layer 1, head 2: undo the ablation").click()
    idle(page)
    shows(page, pocket.trace("The hen"), 0, 0)
    assert page.locator("#ablated").is_hidden()
    assert page.locator(".map.ablated").count() == 0


def changes(page: Any) -> list[tuple[str, ...]]:
    """The rows of the table of changes: a token, before, now, the change."""
    until(page, "document.querySelectorAll('#change tbody tr').length > 0")
    drawn(page)
    rows = page.locator("#change tbody tr").all()
    return [tuple(row.locator(".symbol, data").all_inner_texts()) for row in rows]


def wanted_changes(before: Trace, now: Trace, places: tuple[int, int], **settings: Any) -> Any:
    """The same from NumPy: the five most probable of each, sorted by the new probability."""
    both = zip((before, now), places, strict=True)
    a, b = (Sampling(**settings).probabilities(t.logits[place]) for t, place in both)
    likely = {int(id) for x in (a, b) for id in np.argsort(-x, kind="stable")[:5] if x[id] > 0}
    rows = sorted(likely, key=lambda id: (-b[id], -a[id]))
    symbol = lambda id: now.vocabulary.token(id).symbol  # noqa: E731
    return [(symbol(id), a[id], b[id], b[id] - a[id]) for id in rows]


def agrees_with(page: Any, *expected: Any, **settings: Any) -> None:
    rows, actual = wanted_changes(*expected, **settings), changes(page)
    assert [name for name, *_ in actual] == [name for name, *_ in rows]
    for (_, *texts), (_, *numbers) in zip(actual, rows, strict=True):
        shown = [float(text.replace("−", "-")) for text in texts]
        assert shown == pytest.approx(numbers, abs=6e-5)
        if abs(numbers[2]) >= 6e-5:
            assert texts[2][0] == ("+" if numbers[2] > 0 else "−")


def test_changes_are_shown_beside_their_cause(
    explorer: Explorer, pocket: GPT2, open_live: Open
) -> None:
    page = open_live(explorer)
    open_head(page, 1, 2)
    # Before any change, the next tokens are listed once, beside the text.
    assert page.locator("#change table").count() == 0
    assert page.locator("#change").inner_text().startswith("Ablate a head or an MLP")
    page.locator("#head-toggle").click()
    idle(page)
    until(page, "document.querySelectorAll('#change thead th').length === 5")
    a = pocket.trace(TEXT)
    b = a.edited({"blocks.1.attention.heads.2.context": 0})
    agrees_with(page, a, b, (7, 7))
    assert changes(page)[0][0] == "Ġrolled"
    heads = page.locator("#change thead th").all_inner_texts()
    assert heads == ["token", "", "before", "now", "change"]
    assert page.locator("#change .note span").all_inner_texts() == [
        "before: nothing ablated",
        "now: layer 1, head 2 ablated",
    ]
    # At another token, and with other settings.
    page.locator("#settings input[type=range]").first.fill("4")
    until(page, "document.querySelector('#change caption').textContent.includes(' 4, ')")
    page.locator("#settings input[type=range]").nth(1).fill("15")
    page.locator("#settings input[type=range]").nth(3).fill("7")
    agrees_with(page, a, b, (4, 4), temperature=1.5, top_p=0.8)


def test_what_changes_with_the_text(explorer: Explorer, pocket: GPT2, open_live: Open) -> None:
    """Each trace at its own position; panels have their own names."""
    page = open_live(explorer)
    other = "The big cat chased the ball, but it"
    ask(page, other)
    # Another text is compared only when asked.
    assert page.locator("#change table").count() == 0
    page.locator("#change button").click()
    assert page.locator("#compare").is_checked()
    idle(page)
    until(page, "document.querySelector('#change thead')?.textContent.includes('B − A')")
    agrees_with(page, pocket.trace(TEXT), pocket.trace(other), (7, 8))
    names = [f"A: “{TEXT}”", f"B: “{other}”"]
    assert page.locator("#texts h3.name").all_inner_texts() == names
    assert page.locator("#heatmaps h3.name").all_inner_texts() == [*names, "B − A"]
    assert page.locator("#change .note span").all_inner_texts() == [
        f"A: “{TEXT}” (7 Ġit)",
        f"B: “{other}”",
    ]
    # A token only in B is compared with the position before it.
    page.locator("#settings input[type=range]").first.fill("2")
    until(page, "document.querySelector('#change caption').textContent.includes(' 1, ')")
    agrees_with(page, pocket.trace(TEXT), pocket.trace(other), (1, 1))
    page.locator("#compare").uncheck()
    until(page, "!document.querySelector('#change table')")


def test_why_nothing_differs(explorer: Explorer, open_live: Open) -> None:
    page = open_live(explorer)
    page.locator("#compare").evaluate("(box) => (box.checked = true)")
    page.evaluate("toggle(ablationOf(0, 3))")
    until(page, "document.querySelectorAll('.grid').length === 3")
    names = page.locator("#grids h3.name")
    assert names.all_inner_texts() == [
        "A: nothing ablated",
        "B: layer 0, head 3 ablated",
        "B − A: 0 up to layer 0: the ablation there only affects later steps.",
    ]
    page.evaluate("toggle(ablationOf(1))")
    until(page, "document.querySelector('#grids h3.name').textContent.includes('head 3 ablated')")
    assert names.all_inner_texts()[1:] == [
        "B: layer 0, head 3; MLP of layer 1 ablated",
        "B − A: 0 in all layers: the ablated part comes after the last weights and only affects "
        "the next token.",
    ]
    idle(page)
    page.locator(".map").nth(7).click()
    idle(page)
    to_cell(page, 7, 1, 2)
    assert page.locator("#heatmaps .readout data").nth(2).get_attribute("value") == "0"


def test_a_ablated_heads_own_views_are_marked(explorer: Explorer, open_live: Open) -> None:
    page = open_live(explorer)
    open_head(page, 0, 2)
    assert page.locator(".ablation").count() == 0
    page.locator("#head-toggle").click()
    idle(page)
    for name, of in (("map", ".scroller"), ("lines", ".all-lines"), ("strips", ".table")):
        page.locator(f"#looks input[value={name}]").dispatch_event("click")
        part = page.locator(f"#{'heatmaps' if name == 'map' else name}")
        label = part.locator(".ablation")
        label.wait_for()
        assert label.inner_text() == "layer 0, head 2: ablated"
        assert part.locator(of).get_attribute("aria-describedby") == "is-ablated"
    assert page.locator("#texts .ablation").inner_text() == "layer 0, head 2: ablated"
    page.locator("#strips .row-button").first.click()
    assert page.locator("#sums .ablation").inner_text() == "layer 0, head 2: ablated"
    grey = "(one) => getComputedStyle(one).filter"
    for shown in ("#texts canvas", ".map.ablated canvas", "#heatmaps .plot"):
        assert page.locator(shown).evaluate(grey) == "grayscale(1)"
    open_head(page, 0, 1)
    assert page.locator(".ablation").count() == 0
    assert page.locator("#strips .table").get_attribute("aria-describedby") is None


def test_writing_on(explorer: Explorer, pocket: GPT2, open_live: Open) -> None:
    page = open_live(explorer)
    open_head(page, 1, 2)
    page.locator("#count").fill("7")
    page.locator("#write").click()
    until(page, "document.querySelectorAll('.flow .chip').length === 15")
    idle(page)
    written = page.locator("#prompt").input_value()
    assert written.startswith(TEXT)
    ids = pocket.trace(written).tokens.ids
    assert [str(token.symbol) for token in pocket.tokenizer.tokens(ids)] == tokens(page)
    shares = softmax(pocket.trace(written).logits[7:14].astype(float))[range(7), ids[8:]]
    drawn = [float(d.get_attribute("value")) for d in page.locator("#sampled data").all()]
    assert drawn == pytest.approx(shares, rel=1e-3)
    shows(page, pocket.trace(written), 1, 2)
    page.locator("#back").click()
    idle(page)
    assert page.locator("#prompt").input_value() == TEXT
    assert page.locator("#sampled").inner_text() == ""
    # The sliders say how.
    place, temperature, top_k, _ = page.locator("#settings input[type=range]").all()
    temperature.fill("0")
    page.locator("#count").fill("5")
    page.locator("#write").click()
    until(page, "document.querySelectorAll('.flow .chip').length === 13")
    idle(page)
    greedy = pocket.generate(TEXT, 5, temperature=0)
    assert page.locator("#prompt").input_value() == greedy.whole_text
    assert "Generated greedily" in page.locator("#sampled").inner_text()
    symbols = [token.symbol for token in greedy.tokens[8:]]
    assert page.locator("#sampled li .symbol").all_inner_texts() == symbols
    assert page.locator("#sampled .bar").count() == 5
    # Predictions after each token of the new text, with the same sliders.
    assert temperature.get_attribute("aria-valuetext") == "0: always the most probable token"
    assert (place.get_attribute("max"), place.input_value()) == ("12", "12")
    # All sliders share one state.
    beside = page.locator("#sampling input")
    assert beside.first.get_attribute("aria-valuetext") == "0: always the most probable token"
    beside.first.fill("10")
    assert temperature.get_attribute("aria-valuetext") == "1.0"
    top_k.fill("1")
    assert beside.nth(1).get_attribute("aria-valuetext") == "the 2 most probable tokens"


def test_invalid_texts_are_reported(explorer: Explorer, pocket: GPT2, open_live: Open) -> None:
    page = open_live(explorer)
    ask(page, "")
    assert status_of(page) == "Enter a text to trace. Back to the text shown"
    assert page.locator("#status").get_attribute("role") == "status"
    ask(page, "hen " * 200)
    assert status_of(page).startswith("The text has 201 tokens; this model reads at most 128, up")
    assert page.locator("#prompt").input_value() == "hen " * 200
    ask(page, "x" * 200_000)
    assert status_of(page).startswith(
        "The text has more than 100,000 bytes; this model reads at most"
    )
    page.locator("#count").fill("0")
    page.locator("#write").click()
    idle(page)
    assert "The number of tokens must be" in status_of(page)
    page.locator("#count").fill("")
    page.locator("#write").click()
    idle(page)
    assert "The number of tokens must be" in status_of(page)
    shows(page, pocket.trace(TEXT), 0, 0)  # the trace is unchanged
    # And ablations apply to it.
    page.locator("#head-toggle").click()
    idle(page)
    assert told_nothing(page)
    shows(page, pocket.trace(TEXT).edited({"blocks.0.attention.heads.0.context": 0}), 0, 0)


def is_off(page: Any) -> bool:
    """Whether all controls that need the explorer are disabled, and no others."""
    asks = ["#look", "#compare", "#back", "#write", "#count", "#end", "#head-toggle", "#mlp-toggle"]
    asks += ["#ablated button"] * page.locator("#ablated button").count()
    difference = {page.locator(one).first.is_disabled() for one in asks}
    assert page.locator("#sampling input:enabled").count() == 3
    assert page.locator("#theme").is_enabled()
    (all_off,) = difference | {page.locator("#prompt").get_attribute("readonly") is not None}
    return bool(all_off)


def test_no_way_to_the_explorer(pocket: GPT2, open_live: Open) -> None:
    with pocket.explore() as explorer:
        page = open_live(explorer)
        idle(page)
        ask(page, "The hen saw the cat")
        page.locator("#head-toggle").click()
        idle(page)
    lost = "The explorer isn't responding: it has stopped or can't be reached."
    page.locator("#head-toggle").click()
    until(page, "document.querySelector('#explore').ariaBusy === 'false'")
    assert status_of(page) == lost
    # It stays ablated as long as it is shown as ablated.
    assert page.locator("#head-toggle").inner_text() == "Restore this head (S)"
    assert is_off(page)
    page.evaluate(
        "showStatus('');"
        "for (const { loaded, packs } of traces) { loaded.delete(1); packs.clear(); }"
    )
    page.locator(".map").nth(5).click()
    assert status_of(page) == lost
    assert is_off(page)


def test_a_dropped_trace_is_requested_again(
    explorer: Explorer, pocket: GPT2, open_live: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MAX_CACHE_BYTES", 0)
    page, other = open_live(explorer), open_live(explorer)
    open_head(page, 1, 2)
    page.locator("#head-toggle").click()
    idle(page)
    ask(other, "The hen")
    page.evaluate("for (const { loaded, packs } of traces) { loaded.clear(); packs.clear(); }")
    open_head(page, 1, 1)
    ablated = pocket.trace(TEXT).edited({"blocks.1.attention.heads.2.context": 0})
    shows(page, ablated, 1, 1)
    ask(other, "The cat")
    page.locator("#count").fill("2")
    page.locator("#write").click()
    until(page, "document.querySelectorAll('.flow .chip').length === 10")
    assert told_nothing(page)


def test_line_breaks_are_shown_on_one_line(explorer: Explorer, open_live: Open) -> None:
    page = open_live(explorer)
    ask(page, "The hen\n\nsaw\tit")
    assert page.title() == "attnlab pocket: The hen saw it"
    assert page.locator("#about").inner_text() == "pocket The hen saw it"
    ask(page, "The cat\nsaw it")
    page.locator("#compare").check()
    idle(page)
    names = page.locator("#texts h3.name").all_inner_texts()
    assert names == ["A: “The hen saw it”", "B: “The cat saw it”"]
    ask(page, "The cat\nsaw it, " * 5)
    assert "\\n" not in page.locator("body").inner_text()
    ask(page, " \n")
    assert status_of(page) == "The text is only white space."


def test_a_part_of_a_character_among_the_predictions_is_explain(
    explorer: Explorer, pocket: GPT2, open_live: Open
) -> None:
    page = open_live(explorer)
    letters = page.locator("#letters")
    assert letters.inner_text() == "Ġ is a space"
    ask(page, "a 猫")
    half = pocket.tokenizer.tokens("猫")[0].symbol
    assert f"as in {half}, are bytes, here e7 of 猫" in letters.inner_text()
    ask(page, TEXT)
    # Such a token isn't in the text, but among the predictions.
    page.evaluate("traces[0].listed.add(tokenOf([9, 'Ļ', '\\ufffd', '99']))")
    page.locator(".flow .chip").first.click()
    until(page, "document.querySelector('#letters').textContent.includes('Ļ')")
    assert letters.inner_text().endswith(
        "other letters, as in Ļ, are bytes, here 99 of a character; "
        "Ļ is part of a character that the next tokens complete"
    )


def test_a_reload_keeps_the_view(explorer: Explorer, pocket: GPT2, open_live: Open) -> None:
    page = open_live(explorer)
    text = "The hen saw the cat and the hen"
    ask(page, text)
    open_head(page, 1, 3)
    for nth in (0, 1):
        page.locator("#toggles button").nth(nth).click()
        idle(page)
    page.locator(".flow .chip").nth(4).click()
    until(page, "location.hash.includes('query=4') && location.hash.endsWith('ablate=1.3+1')")
    page.reload()
    edits = {"blocks.1.attention.heads.3.context": 0, "blocks.1.mlp.output": 0}
    until(page, "document.querySelectorAll('#ablated button').length === 2")
    idle(page)
    assert page.locator("#prompt").input_value() == text
    until(page, "selection.query === 4")
    assert page.locator("#head-title").inner_text() == "Layer 1, head 3"
    assert page.locator("#back").is_disabled()
    page.locator(".flow .chip").last.click()
    shows(page, pocket.trace(text).edited(edits), 1, 3)
    # A changed link is followed; an invalid one is reported.
    ids = ".".join(map(str, pocket.trace("The cat").tokens.ids))
    page.evaluate(f"location.hash = '#ids={ids}'")
    until(page, "document.querySelectorAll('.flow .chip').length === 2")
    idle(page)
    assert page.locator("#ablated").is_hidden()
    page.evaluate("location.hash = '#ids=1.x'")
    assert "ids" in status_of(page)
    assert tokens(page) == ["The", "Ġcat"]
    page.evaluate("location.hash = '#ablate=0.7+1'")  # head 7 doesn't exist, MLP 1 does
    until(page, "document.querySelector('#status').textContent.endsWith('applied: 0.7')")
    assert page.evaluate("traces[0].changes") == [ablation(1)]


def test_the_end(explorer: Explorer, open_live: Open) -> None:
    page = open_live(explorer)
    ask(page, "The hen saw the cat")
    other = page.context.new_page()
    other.goto(explorer.url)
    until(other, "picture.nextTokens.length > 0")
    assert not page.locator("#end").is_visible()  # it asks first
    page.locator("#ending summary").click()
    page.locator("#end").click()
    for one in (page, other):  # which didn't send the request
        assert status_of(one).startswith("The explorer has stopped. You can still view this page")
        assert is_off(one)
    explorer.wait()


def test_by_keys_alone(explorer: Explorer, pocket: GPT2, open_live: Open) -> None:
    page = open_live(explorer)
    page.locator("#language").focus()
    reached = []
    for _ in range(6):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert reached[:4] == ["prompt", "look", "write", "count"]  # disabled controls are skipped
    page.locator("#prompt").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("The hen saw the cat")
    page.keyboard.press("Enter")
    idle(page)
    assert page.evaluate("document.activeElement.id") == "prompt"
    page.locator("#head-toggle").focus()
    page.keyboard.press("Space")
    idle(page)
    assert page.evaluate("document.activeElement.id") == "head-toggle"
    edits = {"blocks.0.attention.heads.0.context": 0}
    shows(page, pocket.trace("The hen saw the cat").edited(edits), 0, 0)
    page.locator("#ablated button").focus()
    page.keyboard.press("Enter")
    idle(page)
    assert page.evaluate("document.activeElement.id") == "prompt"
    shows(page, pocket.trace("The hen saw the cat"), 0, 0)


def test_a_head_is_ablated_where_it_is_shown(
    explorer: Explorer, pocket: GPT2, open_live: Open
) -> None:
    page = open_live(explorer)
    place = "document.activeElement.map?.layer + '.' + document.activeElement.map?.head"
    page.locator(".map").first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "s"):
        page.keyboard.press(key)
    until(page, "document.querySelectorAll('.map.ablated').length === 1")
    idle(page)
    assert page.evaluate(place) == "1.2"  # and another head is open
    assert page.locator("#head-title").inner_text() == "Layer 0, head 0"
    assert page.locator("#ablated button").all_inner_texts() == ["layer 1, head 2 ×"]
    page.keyboard.press("Enter")
    until(page, "document.activeElement.className === 'cursor'")
    page.keyboard.press("Control+s")
    page.keyboard.press("S")
    until(page, "document.querySelectorAll('.map.ablated').length === 0")
    idle(page)
    until(page, "document.activeElement.className === 'cursor'")
    shows(page, pocket.trace(TEXT), 1, 2)


# ---- in a notebook -------------------------------------------------------------------------------


@contextmanager
def site(html: str) -> Iterator[str]:
    """The address of a page of another local server, such as a notebook."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_in_a_notebook(explorer: Explorer, browser: Any) -> None:
    with site(explorer._repr_html_()) as notebook:
        page = browser.new_page()
        page.goto(notebook)
        frame = page.frame(url=re.compile("token="))
        assert frame is not None
        until(frame, "picture.nextTokens.length > 0")
        frame.locator("#prompt").fill("The hen saw the cat")
        frame.locator("#prompt").press("Enter")
        until(frame, "document.querySelectorAll('.flow .chip').length === 6")
        page.close()


def test_in_no_other_site(explorer: Explorer, browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "other.html"
    file.write_text(f'<iframe src="{explorer.url}"></iframe>')
    page, said = browser.new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.goto(file.as_uri())
    end = time.monotonic() + PATIENCE
    while not any("frame-ancestors" in words for words in said):
        assert time.monotonic() < end
        page.wait_for_timeout(10)  # in which messages arrive
    page.close()


def test_a_long_texts_early_tokens_have_predictions(pocket: GPT2, open_live: Open) -> None:
    config = GPT2Config(
        vocab_size=pocket.config.vocab_size, n_positions=200, n_embd=8, n_layer=1, n_head=2
    )
    parameters = initial_parameters(config, np.random.default_rng(0))
    model = GPT2.from_arrays(config, parameters, pocket.tokenizer)
    with model.explore([300] * 140) as explorer:
        page = open_live(explorer)
        page.locator("#head-toggle").click()
        idle(page)
        page.locator(".flow .chip").nth(10).click()
        until(page, "document.querySelector('#change caption')?.innerText.includes('position 10,')")


def test_what_is_chosen_while_numbers_are_on_their_way_is_chosen_everywhere(
    explorer: Explorer, open_live: Open
) -> None:
    page = open_live(explorer)
    with held(page, "name=attention[.]1"):
        page.locator("#prompt").fill("the dog and the cat")
        page.locator("#prompt").press("Enter")
        until(page, "traces.at(-1).T === 6")
        page.locator(".map").nth(6).click()
        until(page, "document.querySelector('main').ariaBusy === 'true'")
        page.locator(".flow .chip").nth(2).click()
        page.locator(".scroller").first.hover()
    idle(page)
    for part in ("#predictions", "#texts .following"):
        assert "position 2" in page.locator(part).first.inner_text()
    assert "query 2" in page.locator("#strongest").inner_text()


def test_a_table_of_the_text_before_is_dimmed_and_replaced(
    explorer: Explorer, open_live: Open
) -> None:
    page = open_live(explorer)
    until(page, "document.querySelector('#pass-title').textContent !== ''")
    with held(page, "name=pass[.]"):
        ask(page, TEXT.replace("dog", "cat"))
        page.locator(".flow .chip >> nth=-1").click()  # while the old text's rows are still there
        until(page, "getComputedStyle(document.querySelector('#pass')).opacity < 1")
        assert page.locator("#pass").get_attribute("aria-busy") == "true"
    until(page, "document.querySelector('#pass').ariaBusy !== 'true'")
    page.locator(".flow .chip >> nth=1").click()
    until(page, "document.querySelector('#pass-title').textContent.startsWith('Ġcat, token 1')")
    assert len(page.locator("#jobs").inner_text()) > 0


def test_a_story_that_comes_late_moves_nothing_that_was_chosen(
    explorer: Explorer, open_live: Open
) -> None:
    page = open_live(explorer)
    idle(page)
    with held(page, "name=story"):
        page.locator("#prompt").fill("The hen saw the cat")
        page.locator("#prompt").press("Enter")
        until(page, "document.title.includes('hen')")
        until(page, LOADED)
        page.locator(".flow .chip >> nth=3").click()
        until(page, "selection.query === 3")
    idle(page)
    drawn(page)
    assert page.evaluate("selection.query") == 3
