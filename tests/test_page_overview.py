"""The page's first screen: the sentence with its attention, and what one head does in it."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE, Watched
from numpy.typing import NDArray
from pages import (
    BALL,
    Open,
    drawn,
    gpt2_shaped,
    percent,
    settled,
    shares,
    silencing,
    strong_arcs,
    until,
)

import attnlab
from attnlab import GPT2, Trace, softmax
from attnlab.pages import overview, prediction
from attnlab.pages.packs import pack
from attnlab.pages.saved import description_of
from attnlab.training import initial_parameters

LIST = "Say: lamp two happy. Again: lamp two"
SAID = (
    "In head 1.0, “it” looks at “ball” with 99.9\xa0% of its attention. "
    "Without head 1.0, “rolled” falls from 54\xa0% to 1\xa0%, "
    "and “barked” rises from 43\xa0% to 95\xa0%. "
    "Head 1.2 gives “dog” 99.7\xa0%, "
    "and on other texts 98\xa0% to the animal that “it” refers to."
)
IN_CHINESE = (
    "在 1.0 号头里，“it”以 99.9\xa0% 的注意力看向“ball”。"
    "去掉 1.0 号头，“rolled”从 54\xa0% 降到 1\xa0%，“barked”从 43\xa0% 升到 95\xa0%。"
)


def said(page: Any) -> str:
    """What is said about the open head, without the button."""
    button = " (silence it|switch it off|give it back|让它沉默)"
    return re.sub(button, "", page.locator("#said").inner_text())


def opened(page: Any) -> list[int]:
    place: list[int] = page.evaluate("[selection.layer, selection.head]")
    return place


def next_words(page: Any) -> list[tuple[str, ...]]:
    """The next words, each with its share, or with the shares before and after a change."""
    items = page.locator(".next-words li").all_inner_texts()
    return [tuple(re.split(r"\n| → ", item.strip())) for item in items]


# Of equal words, each has its number.
NAMES = ["The1", "dog", "chased", "the2", "ball", ",", "but", "it"]

# JavaScript: whether a text is shown.
SHOWN = "traces.at(-1).tokens.map(({{ text }}) => text).join('') === '{}'"

# JavaScript: where the heads' bars begin and end, in pixels to the right of their drawings' middle.
BARS = """(all) => all.map((button) => {
    const [drawing, bar] = [...button.children].map((part) => part.getBoundingClientRect());
    const middle = (drawing.left + drawing.right) / 2;
    return [bar.left - middle, bar.right - middle, drawing.width];
})"""


def choose_head(page: Any, layer: int, head: int) -> None:
    name = re.compile(rf"^head {layer}\.{head}( |$)")
    page.locator("#every-head").get_by_label(name).click()
    page.mouse.move(5, 5)
    until(page, f"selection.layer === {layer} && selection.head === {head}")
    drawn(page)


# ---- the numbers behind it -----------------------------------------------------------------------


def test_the_story_says_what_ablation_does(pocket: GPT2) -> None:
    trace = pocket.trace(LIST)
    numbers = np.frombuffer(pack(trace, "story"), "<f4")
    ids = numbers[1:6].astype(int)
    assert ids.tolist() == [token.id for token in trace.next_tokens(5)]
    assert np.allclose(numbers[6:11], softmax(trace.next_logits)[ids], atol=1e-6)
    heads = numbers[11:].reshape(-1, 22)
    assert heads[:, :2].tolist() == [[layer, head] for layer in range(2) for head in range(4)]
    for layer, head, *without in heads:
        ablated = trace.edited(silencing(trace, int(layer), int(head)))
        after, new, *shares = np.reshape(without, (4, 5))
        assert np.allclose(after, softmax(ablated.next_logits)[ids], atol=1e-6)
        assert new.tolist() == [token.id for token in ablated.next_tokens(5)]
        for share, traced in zip(shares, (ablated, trace), strict=True):
            assert np.allclose(share, softmax(traced.next_logits)[new.astype(int)], atol=1e-6)


def test_of_many_heads_those_that_write_most_to_the_logit_are_ablated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd = GPT2.from_pretrained(REFERENCE / "odd")
    monkeypatch.setattr(overview, "MAX_ABLATION_WORK", 8 * 12 * 12 * 12 * 96**2)
    trace = gpt2_shaped(odd, 12, seed=0, n_embd=96)
    top = trace.next_tokens(1)[0]
    # The gradient of log p is the logit's minus the mean logit's under p.
    mean = np.tensordot(
        softmax(trace.next_logits),
        [attnlab.attribution(trace, id).heads for id in range(trace.config.vocab_size)],
        axes=1,
    )
    expected = np.abs(attnlab.attribution(trace, top).heads - mean)
    largest = {divmod(int(n), 12) for n in np.argsort(expected.ravel())[-8:]}
    heads = np.frombuffer(pack(trace, "story"), "<f4")[11:].reshape(-1, 22)
    assert {(int(layer), int(head)) for layer, head in heads[:, :2]} == largest
    long = pack(gpt2_shaped(odd, 400, n_layer=2, n_embd=96), "story")
    assert len(np.frombuffer(long, "<f4")) == 11 + 2 * 22


def test_a_page_names_the_tokens_of_its_story(ball: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "TOKENS", 5)
    written = re.search(r'id="description">(.*?)</script>', attnlab.page(ball).html)
    assert written
    [trace] = json.loads(written[1])["traces"]
    new = np.frombuffer(pack(ball, "story"), "<f4")[11:].reshape(-1, 22)[:, 7:12]
    assert {*new.ravel()} <= {token[0] for token in trace["prediction"]["tokens"]}


def test_the_stream_has_the_norms_of_its_stops(ball: Trace) -> None:
    numbers = np.frombuffer(pack(ball, "stream"), "<f4").reshape(-1, 8)
    first, last = ball.blocks
    stops = {0: ball.embedding, 1: first.mid, 2: first.mlp.output, 3: first.output, 6: last.output}
    for row, stop in stops.items():
        assert np.allclose(numbers[row], np.linalg.norm(stop, axis=-1), rtol=1e-5)
    assert len(numbers) == 7


# ---- the head that is described ------------------------------------------------------------------


def most_telling(trace: Trace) -> tuple[int, int]:
    """By hand: the largest effect × share looked at, halved where all look at the word before."""
    T, before = len(trace.tokens), softmax(trace.next_logits.astype(np.float64))
    worth = {}
    for layer, head in np.ndindex(trace.config.n_layer, trace.config.n_head):
        weights = trace.head(layer, head).weights
        edited = trace.edited(silencing(trace, layer, head))
        after = softmax(edited.next_logits.astype(np.float64))
        looked_at = max(weights[-1, 1:-1], default=1)
        previous = np.mean([weights[i, i - 1] for i in range(1, T)]) if T > 1 else 0
        effect = abs(before[before.argmax()] - after[before.argmax()])
        worth[layer, head] = effect * looked_at / (2 if previous > 0.5 else 1)
    return max(worth, key=lambda place: worth[place])


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("pocket", BALL),
        ("pocket", LIST),
        ("english", "My cat sleeps on the sofa because it"),
        ("pocket", "Open the"),  # without the word's own weight, another head is first
        ("english", "The girl"),
        ("english", "The"),
    ],
)
def test_the_head_that_tells_most_is_described(model: str, text: str) -> None:
    trace = GPT2.from_pretrained(model).trace(text)
    assert overview.head_to_describe(trace) == most_telling(trace)


def test_the_page_opens_on_the_head_that_tells_most(pocket: GPT2, ball: Trace, look: Open) -> None:
    page = look(ball)
    assert opened(page) == [1, 0] == [*most_telling(ball)]
    assert said(page) == SAID
    letters = page.locator(".stage-word .letters").all_inner_texts()
    assert letters == [token.text for token in ball.tokens]
    page = look(pocket.trace(LIST))
    assert opened(page) == [*overview.head_to_describe(pocket.trace(LIST))]
    page = look(ball, "depth=look&layer=0&head=3")  # a link to a head comes first
    assert opened(page) == [0, 3]
    assert said(look(ball, language="zh")).startswith(IN_CHINESE)


# ---- the sentence --------------------------------------------------------------------------------


def check_arcs(page: Any, weights: NDArray[np.float32], query: int) -> None:
    """The arcs of a word are as wide as its weights, and these are written below the words."""
    arcs = strong_arcs(page)
    row = weights[query].astype(float)
    assert arcs.keys() == {j for j in np.flatnonzero(row >= 0.004) if j != query}
    thick = {j: width for j, width in arcs.items() if width > 0.7}  # none is thinner
    scale = [width / row[j] for j, width in thick.items()]
    assert np.allclose(scale, scale[:1], atol=0.02 / min(row[[*thick]], default=1))
    assert shares(page) == [percent(x) if x >= 0.01 else "" for x in row]


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_arcs_and_shares_are_weights(size: tuple[int, int], ball: Trace, look: Open) -> None:
    page = look(ball, viewport={"width": size[0], "height": size[1]})
    for layer, head, query in ((1, 0, 7), (1, 2, 7), (0, 3, 4), (0, 1, 5)):
        choose_head(page, layer, head)
        page.locator(".stage-word").nth(query).click()
        drawn(page)
        check_arcs(page, ball.head(layer, head).weights, query)
        looker = page.locator(".stage-word.looker .letters").inner_text()
        assert looker.strip() == ball.tokens[query].text.strip()
    # Faint: those of all other words that look at another one with a notable share.
    weights = np.tril(ball.head(0, 1).weights, -1)
    weights[5] = 0
    assert page.locator(".arcs .faint").count() == np.count_nonzero(weights >= 0.12)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert "Ġ" not in page.locator("main").inner_text()


def test_a_word_is_pointed_at_pressed_and_reached_by_arrow_keys(ball: Trace, look: Open) -> None:
    page = look(ball)
    words, weights = page.locator(".stage-word"), ball.head(1, 0).weights
    words.nth(5).hover()
    drawn(page)
    check_arcs(page, weights, 5)
    assert "Without this head" not in said(page)  # of the last word
    page.mouse.move(5, 5)
    drawn(page)
    check_arcs(page, weights, 7)
    words.nth(4).click()
    page.mouse.move(5, 5)
    drawn(page)
    check_arcs(page, weights, 4)
    assert page.evaluate("selection.query") == 4
    for key, query in (("ArrowLeft", 3), ("ArrowRight", 4), ("End", 7), ("Home", 0)):
        page.keyboard.press(key)
        drawn(page)
        check_arcs(page, weights, query)
    assert said(page) == "“The1” is the first word: it can look only at itself."
    # Who looks at a word.
    for query in range(1, 8):
        page.keyboard.press("ArrowRight")
        drawn(page)
        seen = [*weights[:, query]]
        seen[query] = np.float32(0)
        i = int(np.argmax(seen))
        one, other = (NAMES[n] for n in (i, query))
        sentence = f"“{one}” looks at “{other}” most: {percent(seen[i])} of its attention."
        assert page.locator("#seen").inner_text() == (sentence if seen[i] >= 0.1 else "")


def test_a_tap_on_a_word_chooses_it(ball: Trace, look: Open) -> None:
    page = look(ball, viewport={"width": 390, "height": 844}, has_touch=True)
    page.locator(".stage-word").nth(4).tap()
    drawn(page)
    check_arcs(page, ball.head(1, 0).weights, 4)
    page.locator(".head-drawing").nth(6).tap()
    until(page, "selection.head === 2")
    page.locator(".stage-word").nth(7).tap()
    drawn(page)
    check_arcs(page, ball.head(1, 2).weights, 7)
    page.locator("#silence").tap()
    drawn(page)
    assert page.locator(".probabilities i").count() == 8  # before and after


def test_next_words_fan_out_as_wide_as_their_probability(ball: Trace, look: Open) -> None:
    page = look(ball)
    likely = ball.next_tokens(4)
    assert next_words(page) == [(one.text.strip(), percent(one.probability)) for one in likely]
    read = "(all) => all.map((x) => Number(x.getAttribute('stroke-width')))"
    first, second, *_ = page.locator(".arcs .fan").evaluate_all(read)
    assert second / first == pytest.approx(likely[1].probability / likely[0].probability, rel=0.01)


def test_pieces_of_words_are_completed_in_a_saved_page(look: Open) -> None:
    english = GPT2.from_pretrained("english")
    trace = english.trace("I like choc")
    expected = {}
    for token in trace.next_tokens(4):
        following = english.generate([*trace.tokens.ids, token.id], 3, temperature=0).new.texts
        end = next((n for n, text in enumerate(following) if not text[:1].isalpha()), 3)
        if end:
            expected[token.text] = "".join(following[:end])
    assert expected
    page = look(trace)
    words = page.locator(".next-words li")
    until(page, "document.querySelector('.completion') !== null")
    texts = [word.locator(".completion").all_inner_texts() for word in words.all()]
    completed = zip(trace.next_tokens(4), texts, strict=True)
    assert {token.text: rest[0] for token, rest in completed if rest} == expected
    edited = trace.edited({"blocks.0.attention.heads.0.context": 0})
    assert prediction.completions(edited) == {}  # which fits only this text


# ---- silence -------------------------------------------------------------------------------------


def test_of_one_token_what_is_silenced_is_told_from_what_is_edited(pocket: GPT2) -> None:
    trace, path = pocket.trace("The"), "blocks.1.attention.heads.2.context"

    def silenced(edit: Any) -> Any:
        return description_of(trace.edited({path: edit}))["silenced"]

    assert silenced(0) == silenced(pocket.averages[path]) == [(1, 2)]  # type: ignore[index]
    assert silenced(lambda context: context / 2) == []


def test_silenced_shares_are_of_average_contexts(pocket: GPT2, ball: Trace, look: Open) -> None:
    page = look(ball)
    before = softmax(ball.next_logits.astype(np.float64))
    for layer, head in ((1, 0), (1, 2), (0, 1)):
        choose_head(page, layer, head)
        edited = ball.edited(silencing(ball, layer, head))
        after = softmax(edited.next_logits.astype(np.float64))
        id = before.argmax()
        assert f"from {percent(before[id])} to {percent(after[id])}" in said(page)
        page.locator("#silence").click()
        drawn(page)
        assert page.evaluate("document.activeElement.id") == "silence"
        shown = next_words(page)
        assert len(shown) == 4
        names = {pocket.tokenizer.tokens([n])[0].text.strip(): n for n in range(before.size)}
        for word, then, now in shown:
            assert (then, now) == (percent(before[names[word]]), percent(after[names[word]]))
        # The four that have the most, before or after.
        most = np.sort(np.maximum(before, after))[-4:]
        ids = [names[word] for word, *_ in shown]
        assert np.allclose(np.sort(np.maximum(before[ids], after[ids])), most)
        assert page.locator(".arcs .before, .arcs .after").count() == 8
        assert page.locator(".head-drawing.silenced").count() == 1
        page.locator("#silence").press("Enter")
        drawn(page)
        assert page.locator(".arcs .after, .head-drawing.silenced").count() == 0
    # It is in the link, and Back gives the head back.
    page.locator("#silence").click()
    until(page, "location.hash.includes('silence')")
    page.reload()
    page.locator("#silence[aria-pressed=true]").wait_for()
    assert page.locator(".arcs .before, .arcs .after").count() == 8
    page.go_back()
    page.locator("#silence[aria-pressed=false]").wait_for()
    # Another head is chosen: nothing is silenced.
    page.locator("#silence").click()
    done = "byId('done').textContent"  # a status, which disappears again
    chosen = page.evaluate(f"(byId('every-head').children[5].click(), {done})")
    assert chosen == "Head 0.1 is given back." not in said(page)
    drawn(page)
    assert page.locator("#silence").get_attribute("aria-pressed") == "false"
    until(page, f"{done} === ''")


def test_silence_is_shown_at_temperature_1(ball: Trace, look: Open) -> None:
    page = look(ball)
    silence, slider = page.locator("#silence"), page.locator(".next-controls input")
    assert "at temperature 1." not in said(page)
    slider.fill("20")
    until(page, "byId('said').textContent.includes('at temperature 1.')")
    silence.press("Enter")
    page.locator(".next-words li", has_text="54\xa0% → 1\xa0%").wait_for()
    assert page.evaluate("document.activeElement.id") == "silence"
    silence.press("Enter")
    page.locator(".next-words li", has_text="→").first.wait_for(state="detached")
    assert page.locator(".next-controls output").inner_text() == "2.0"
    silence.press("Enter")
    slider.fill("0")
    page.locator("#silence[aria-pressed=false]").wait_for()
    assert page.locator(".next-words li", has_text="→").count() == 0


def test_nothing_is_said_to_decide_if_no_head_does(
    pocket: GPT2, look: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = initial_parameters(pocket.config, np.random.default_rng(0))
    trace = GPT2(parameters, pocket.tokenizer).trace(BALL)
    before = softmax(trace.next_logits.astype(np.float64))
    after = [
        softmax(trace.edited(silencing(trace, *place)).next_logits.astype(np.float64))
        for place in np.ndindex(2, 4)
    ]
    most = max(abs(before - one)[before.argmax()] for one in after)
    word = trace.next_tokens(1)[0].text.strip()
    points = max(0.1, 100 * most)  # rounded as in the title
    assert points < 10
    assert said(look(trace)).endswith(
        f"No head alone moves “{word}” by more than {points:.1f} points."
    )
    monkeypatch.setattr(overview, "MAX_ABLATION_WORK", 0)  # other heads may decide
    page = look(trace)
    page.locator(".next-words li").first.wait_for()
    assert "No head alone" not in said(page)


def test_predict_first_hides_what_comes_next(pocket: GPT2, ball: Trace, look: Open) -> None:
    page = look(ball, "depth=look&predict")
    drawn(page)
    assert not page.locator("#predict-first").is_visible()  # no element has a link's name
    assert page.locator(".next-words li:visible, .arcs .fan, #silence").count() == 0
    assert not re.search("rolled|barked|Without|Bar", page.locator("main").inner_text())
    assert page.locator(".head-drawing.barred").count() == 0
    assert "“it” looks at “ball”" in said(page)
    page.locator("#reveal").click()
    drawn(page)
    assert said(page) == SAID
    assert page.locator(".next-words li:visible").count() == 4
    assert page.locator("#silence").is_visible()
    # All numbers hide it, too, as they do what comes without a blank.
    page = look(ball, "depth=lab&predict")
    assert not page.locator("#prediction").is_visible()
    page.locator("#reveal").click()
    assert page.locator("#prediction").is_visible()
    page = look(pocket.trace(f"{BALL} "), "depth=look&predict")
    drawn(page)
    assert page.locator("#notice .blank b").count() == 0
    page.evaluate("set({ isPredicting: false })")
    page.locator("#notice .blank b").wait_for()
    # From the menu.
    page = look(ball)
    page.locator("#menu summary").click()
    page.locator("#predict-first").click()
    drawn(page)
    assert page.locator(".next-words li:visible, #silence").count() == 0
    until(page, "location.hash.includes('predict')")


# ---- the row of the softmax ----------------------------------------------------------------------


def test_the_row_of_the_softmax(pocket: GPT2, ball: Trace, look: Open) -> None:
    """Each of its numbers leads to its arithmetic."""
    page = look(ball)
    head = ball.head(1, 0)
    page.locator("#said .its-share").press("Enter")
    until(page, "document.querySelectorAll('#softmax-row tbody tr').length === 8")
    until(page, "document.activeElement.className === 'its-share'")
    assert page.locator("#said .its-share").get_attribute("aria-expanded") == "true"
    read = "(all) => all.map((tr) => [...tr.querySelectorAll('data')].map((x) => Number(x.value)))"
    values = np.array(page.locator("#softmax-row tbody tr").evaluate_all(read))
    scores = head.masked_scores[7].astype(np.float64)
    exponentials = np.exp(scores - scores.max())
    expected = [scores, exponentials, exponentials / exponentials.sum()]
    assert np.allclose(values, np.transpose(expected), atol=1e-5)
    assert np.allclose(values[:, 2], head.weights[7], atol=1e-6)
    names = page.locator("#softmax-row th[scope=row]").all_inner_texts()
    assert names == [token.text.strip() for token in ball.tokens]
    total = f"÷ {exponentials.sum():.3f}, their sum"
    assert total in page.locator("#softmax-row thead").inner_text()
    # Of another word: only the keys that it can look at; each number opens its arithmetic.
    page.locator(".stage-word").nth(3).click()
    until(page, "document.querySelectorAll('#softmax-row tbody tr').length === 4")
    page.locator("#softmax-row tbody tr").nth(2).locator("button").first.click()
    title = page.locator("#arithmetic-title")
    until(page, "document.activeElement.id === 'arithmetic-title'")
    assert title.inner_text().endswith("layer 1, head 0, query 3, key 2")
    chain = page.locator("#sums [data-step=scores] strong data").first
    assert abs(float(chain.evaluate("(x) => x.value")) - head.scores[3, 2]) < 1e-4
    page.keyboard.press("Escape")
    assert not title.is_visible()
    until(page, "document.activeElement.closest('tr')?.rowIndex === 3")  # the title's is 0
    page.locator("#said .its-share").click()
    until(page, "document.querySelector('#softmax-row').hidden")
    page.locator(".arcs .hit").last.dispatch_event("click")
    until(page, "!document.querySelector('#softmax-row').hidden")
    # Of two texts, where “ball” is key 4 of the first and key 1 of the second, whose row it is.
    page = look(ball, other=pocket.trace("The ball"))
    page.locator("#said .its-share").click()
    page.locator("#softmax-row tr").nth(2).locator("button").first.click()
    assert page.evaluate("alignment.keys[selection.openCell.key]") == [4, 1]


# ---- all heads -----------------------------------------------------------------------------------


def test_all_heads_are_small_drawings_with_a_bar_of_their_effect(ball: Trace, look: Open) -> None:
    page = look(ball)
    buttons = page.locator(".head-drawing")
    before = softmax(ball.next_logits.astype(np.float64))
    effects = []
    for n, (layer, head) in enumerate(np.ndindex(2, 4)):
        weights = ball.head(layer, head).weights
        keys = "(all) => all.filter(({ key }) => key !== undefined).length"
        arcs = buttons.nth(n).locator("path.arc").evaluate_all(keys)
        assert arcs == np.count_nonzero(np.tril(weights, -1) >= 0.08)
        edited = ball.edited(silencing(ball, layer, head))
        after = softmax(edited.next_logits.astype(np.float64))
        effects.append(before[before.argmax()] - after[before.argmax()])
    starts, ends, widths = np.transpose(buttons.evaluate_all(BARS))
    shares = np.array(effects) / np.abs(effects).max()  # the longest is as long as half a drawing
    expected = shares * widths / 2
    drawn_bars = ends - starts > 0
    assert np.allclose(ends[drawn_bars], np.maximum(expected, 0)[drawn_bars], atol=0.6)
    assert np.allclose(starts[drawn_bars], np.minimum(expected, 0)[drawn_bars], atol=0.6)
    assert min(effects) < 0 < max(effects)
    points = [f"{'−' if x < 0 else '+'}{abs(100 * x):.1f}" for x in effects]
    labels = [f"head {layer}.{head} {points[4 * layer + head]}" for layer, head in np.ndindex(2, 4)]
    assert buttons.evaluate_all("(all) => all.map((x) => x.ariaLabel)") == labels
    title = page.locator("#every-head-title").inner_text()
    assert f"the longest is {100 * max(np.abs(effects)):.0f} points of probability." in title
    assert "The sentence is about the head" not in title  # it has the longest bar
    pressed = "(all) => all.flatMap((x, n) => (x.ariaPressed === 'true' ? [n] : []))"
    assert buttons.evaluate_all(pressed) == [4]
    buttons.nth(6).hover()
    drawn(page)
    assert "In head 1.2," in said(page)
    page.mouse.move(5, 5)
    drawn(page)
    assert said(page) == SAID
    # By keys: in rows of a layer.
    buttons.nth(4).focus()
    for key in ("ArrowUp", "ArrowRight", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    drawn(page)
    assert opened(page) == [1, 2]
    assert buttons.evaluate_all(pressed) == [6]
    assert page.evaluate("document.activeElement.ariaLabel").startswith("head 1.2 ")
    until(page, "location.hash.includes('layer=1&head=2')")


# ---- texts of many kinds -------------------------------------------------------------------------


def test_of_a_long_text_the_telling_words_are_shown(pocket: GPT2, look: Open) -> None:
    trace = pocket.trace(" ".join([BALL, LIST, BALL, "the cat", LIST, BALL, LIST, BALL, LIST]))
    T = len(trace.tokens)
    page = look(trace)
    layer, head = opened(page)
    row = trace.head(layer, head).weights[-1]
    visible = "(all) => all.flatMap((x, n) => (x.hidden ? [] : [n]))"
    shown = page.locator(".stage-word").evaluate_all(visible)
    most = np.argsort(-row, kind="stable")[:12]
    assert shown == sorted({*range(T - 24, T)} | {int(j) for j in most if row[j] >= 0.01})
    assert strong_arcs(page).keys() == {j for j in shown[:-1] if row[j] >= 0.004}


def test_one_token(odd: GPT2, look: Open) -> None:
    page = look(odd.trace("hen"[:1]))
    assert page.locator(".stage-word").count() == 1
    assert strong_arcs(page) == {}
    assert said(page).startswith("“h” is the first word: it can look only at itself.")
    assert page.locator(".next-words li").count() == 4


def test_two_texts_stand_below_each_other(pocket: GPT2, look: Open) -> None:
    other = pocket.trace(BALL.replace("ball", "cat"))
    page = look(pocket.trace(BALL), other=other)
    assert page.locator(".sentence-stage").count() == 2
    layer, head = opened(page)
    for nth, trace in enumerate((pocket.trace(BALL), other)):
        row = trace.head(layer, head).weights[-1]
        stage = f".sentence-stage:nth-child({nth + 1})"
        assert shares(page, stage) == [percent(x) if x >= 0.01 else "" for x in row]
        first = page.locator(f"{stage} .next-words li").first.inner_text()
        assert first.split()[0] == trace.next_tokens(1)[0].text.strip()
    # A word of the first text is chosen there, and the same word of a text with more words.
    page = look(pocket.trace(BALL), other=pocket.trace(BALL.replace("dog", "big dog")))
    page.locator(".sentence-stage:nth-child(1) .stage-word").nth(2).click()
    page.mouse.move(0, 0)
    drawn(page)
    lookers = page.locator(".stage-word.looker .letters").all_inner_texts()
    assert [word.strip() for word in lookers] == ["chased", "chased"]


def test_a_page_with_a_model_tells_of_each_text_that_is_typed(
    pocket: GPT2, watched: Watched, tmp_path: Path
) -> None:
    attnlab.playground(pocket, BALL).save(tmp_path / "model.html")
    page = settled(watched.open(f"{(tmp_path / 'model.html').as_uri()}#depth=look"))
    assert said(page) == SAID
    page.locator("#prompt").fill("")
    page.locator("#prompt").press_sequentially(LIST)  # computed without any key more
    until(page, SHOWN.format(LIST))
    settled(page)
    layer, head = overview.head_to_describe(pocket.trace(LIST))
    until(page, f"selection.layer === {layer} && selection.head === {head}")
    drawn(page)
    row = pocket.trace(LIST).head(layer, head).weights[-1]
    assert shares(page) == [percent(x) if x >= 0.01 else "" for x in row]
    assert watched.said == []
