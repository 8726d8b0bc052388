"""A page with a model, as a reader uses it: texts, comparisons, ablations, generation, links."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pages import BALL, ablation, agrees, ask, drawn, idle, silencing, to_cell, until

from attnlab import GPT2, Trace
from attnlab.model.sampling import Sampling

Play = Callable[..., Any]

LOOK = "#depth=look"


def go_back(page: Any, text: str) -> None:
    """Press the browser's Back until a text is shown: heads that were opened have entries, too."""
    while page.evaluate("latest().text") != text:
        until(page, "location.hash.includes(`ids=${latest().ids.join('.')}`)")
        page.go_back()
        page.wait_for_timeout(300)
        idle(page)


def open_head(page: Any, layer: int, head: int) -> None:
    page.locator(f".head-drawing >> nth={layer * 4 + head}").press("Enter")
    idle(page)


def tokens(page: Any) -> list[str]:
    """Those of the last text."""
    return list(page.evaluate("traces.at(-1).tokens.map(({ symbol }) => symbol)"))


def status_of(page: Any) -> str:
    until(page, "document.querySelector('#status').textContent !== ''")
    return str(page.locator("#status").inner_text())


def shows(page: Any, trace: Trace, layer: int, head: int, nth: int = 0) -> None:
    """Check that the page shows a trace: its tokens, some weights of a head, and predictions."""
    symbols = page.evaluate(f"traces[{nth}].tokens.map(({{ symbol }}) => symbol)")
    assert symbols == list(trace.tokens.symbols)
    T = len(trace.tokens)
    for i, j in ((T // 2, T // 3), (T - 1, 0)):
        to_cell(page, i, j, nth)
        weight = trace.head(layer, head).weights[i, j]
        assert agrees(page.locator("#heatmaps .readout").nth(nth).locator("data"), weight)
    expected = [token.probability for token in trace.next_tokens(4)]
    actual = f"texts[{nth}].next?.slice(0, 4).map(({{ probability }}) => probability)"
    until(page, f"{expected}.every((p, n) => Math.abs(({actual})?.[n] - p) < 1e-5)")


def test_texts_are_compared_and_returned_to(pocket: GPT2, play: Play) -> None:
    page, other = play(pocket, BALL), BALL.replace("dog", "cat")
    assert page.locator("#prompt").input_value() == BALL
    ask(page, BALL)  # the same again
    assert page.locator("#compare").is_disabled()
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
    go_back(page, other)
    assert page.locator("#prompt").input_value() == other
    page.locator("#compare").uncheck()
    go_back(page, BALL)
    open_head(page, 1, 2)
    shows(page, a, 1, 2)
    assert page.locator("#compare").is_disabled()


def shares(page: Any) -> list[float]:
    """The shares of the next words that are listed."""
    texts = page.locator(".next-words .its-share").all_inner_texts()
    return [float(re.findall(r"[\d.]+", text)[0]) / 100 for text in texts]


# JavaScript: hold what waits between two words, and between the last key and the request, until
# the test goes on; count what is written.
HELD = """() => {
    window.held = [];
    window.written = 0;
    window.wait = setTimeout;
    window.setTimeout = (go, ms, ...more) =>
        [700, 150].includes(ms) ? void held.push(go) : wait(go, ms, ...more);
    const { generate } = source;
    source.generate = (trace, settings, ...more) => {
        written += settings.count === 1;
        return generate(trace, settings, ...more);
    };
}"""


def test_what_is_typed_is_computed_after_the_last_key(pocket: GPT2, play: Play) -> None:
    """What the screen shows belongs to one text: what is typed stands alone until it is shown."""
    page = play(pocket, BALL, link=LOOK)
    idle(page)
    page.evaluate(HELD)
    page.evaluate(
        """() => {
            window.opened = [];
            window.mixed = 0;
            const open = source.open.bind(source);
            source.open = (text, ...more) => {
                opened.push(text.text);
                return open(text, ...more);
            };
            const watch = () => {
                const letters = stages[0].words.map(({ firstChild }) => firstChild.textContent);
                const isSeen = getComputedStyle(document.querySelector(".sentence")).visibility;
                const isTyped = byId("prompt").value === letters.join("");
                if (!isTyped && isSeen === "visible") mixed++;
                if (!isTyped && !byId("said").matches(".earlier")) mixed++;
                requestAnimationFrame(watch);
            };
            watch();
        }"""
    )
    page.locator("#prompt").focus()
    page.keyboard.press("Control+A")
    text, opened = "", list[str]()
    for words in ("The hen saw the cat", " and"):  # the text area keeps the focus and the caret
        page.keyboard.type(words)
        assert page.evaluate("opened") == opened
        page.evaluate("held.at(-1)()")
        text += words
        opened.append(text)
        until(page, f"traces[0].T === {len(pocket.trace(text).tokens)}")
    idle(page)
    assert tokens(page) == list(pocket.trace(text).tokens.symbols)
    assert page.evaluate("opened") == opened
    assert "".join(page.locator(".sentence .letters").all_text_contents()) == text
    assert page.evaluate("mixed") == 0
    best = pocket.trace(text).next_tokens(4)
    until(page, "document.querySelectorAll('.next-words li').length === 4")
    assert shares(page) == pytest.approx([token.probability for token in best], abs=0.01)


def test_enter_sends_and_what_cannot_be_shown_is_left(pocket: GPT2, play: Play) -> None:
    page = play(pocket, BALL)
    prompt = page.locator("#prompt")
    ask(page, "The cat")
    prompt.press("Shift+Enter")
    assert prompt.input_value() == "The cat\n"
    until(page, "traces[0].T === 3")
    assert tokens(page) == ["The", "Ġcat", "Ċ"]
    until(page, "byId('said').textContent.includes('“⏎”')")
    # It can't be shown: what is shown is dimmed, and a button returns to its text.
    ask(page, "hen " * 200)
    dimmed = "getComputedStyle(document.querySelector('#first')).opacity < 1"
    until(page, dimmed)
    assert tokens(page) == ["The", "Ġcat", "Ċ"]
    page.locator("#status button").click()
    assert prompt.input_value() == "The cat\n"
    until(page, f"!({dimmed})")
    ask(page, " \n")
    until(page, "byId('notice').textContent.includes('This text ends in a line break')")


def test_next_words_are_written_and_completed(pocket: GPT2, play: Play) -> None:
    page = play(pocket, BALL, link=LOOK)
    idle(page)
    written = pocket.trace(BALL).next_tokens(2)[1]
    page.locator(".next-words button").nth(1).click()
    idle(page)
    text = BALL + written.text
    assert page.locator("#prompt").input_value() == text
    assert tokens(page) == list(pocket.trace(text).tokens.symbols)
    until(page, f"location.hash.endsWith('.{written.id}')")
    page.go_back()
    until(page, f"traces[0].T === {len(pocket.trace(BALL).tokens)}")
    assert page.locator("#prompt").input_value() == BALL


def test_a_line_end_is_no_piece_of_a_word(pocket: GPT2, play: Play) -> None:
    page = play(pocket, BALL + " rolled", link=LOOK)
    until(page, "texts[0].completions?.size === 4")
    drawn(page)
    words = page.locator(".next-words button").all_inner_texts()
    assert [word.strip() for word in words] == [
        token.text.strip() or "⏎" for token in pocket.trace(BALL + " rolled").next_tokens(4)
    ]


def test_pieces_of_words_are_completed_as_the_library_generates(play: Play) -> None:
    english = GPT2.from_pretrained("english")
    page = play(english, "The girl was tired because", link=LOOK)
    completed = set()
    for text in ("She went to the doc", "The girl was tired because", "My cat is l"):
        ask(page, text)
        until(page, "texts[0].completions?.size === 4")
        drawn(page)
        ids = english.trace(text).tokens.ids.tolist()
        for n, token in enumerate(english.trace(text).next_tokens(4)):
            following = english.generate([*ids, token.id], 3, temperature=0).new.texts
            end = next((n for n, x in enumerate(following) if not x[:1].isalpha()), 3)
            expected = "".join(following[:end]) if token.text[-1:].isalpha() else ""
            shown = page.locator(".next-words li").nth(n).locator(".completion")
            assert "".join(shown.all_inner_texts()) == expected, (text, token)
            completed.add(expected)
    assert len(completed) > 1


def test_continue_writes_until_the_end(pocket: GPT2, play: Play) -> None:
    """At temperature 0 what `generate` writes, until the text or the room ends."""
    page = play(pocket, BALL, link=LOOK)
    page.locator(".next-controls input").fill("0")
    assert page.locator(".next-controls output").inner_text() == "0.0"
    button = page.locator("#write-on")
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    T = len(pocket.trace(BALL).tokens)
    until(page, f"traces[0].T >= {T + 2}")
    page.keyboard.press("Enter")  # the button has kept the focus
    until(page, "byId('write-on').ariaPressed === 'false'")
    idle(page)
    count = page.evaluate("traces[0].T") - T
    assert page.locator("#prompt").input_value() == (
        pocket.generate(BALL, count, temperature=0).whole_text
    )
    # The end of a text stops it, and so does the last position.
    page.evaluate(
        """() => {
            const generate = source.generate.bind(source);
            source.generate = async (...given) => {
                const answer = await generate(...given);
                if (given[1].count === 1) answer.chosen[0].symbol = END_OF_TEXT;
                return answer;
            };
        }"""
    )
    button.click()
    until(page, "byId('write-on').ariaPressed === 'false'")
    assert page.evaluate("traces[0].T") == T + count
    ask(page, "The" + " the" * 127)
    assert page.evaluate("traces[0].T") == 128
    button.click()
    until(page, "byId('write-on').ariaPressed === 'false'")
    assert page.evaluate("traces[0].T") == 128


def test_what_is_typed_or_gone_back_to_while_it_writes_stays(pocket: GPT2, play: Play) -> None:
    page = play(pocket, BALL)
    idle(page)
    page.evaluate(HELD)
    T = page.evaluate("traces[0].T")
    page.locator("#write-on").dispatch_event("click")
    until(page, "held.length === 1")
    assert page.evaluate("latest().ids.length") == T + 1
    go_back(page, BALL)
    page.evaluate("held.shift()()")
    until(page, "!selection.isWriting")
    assert page.evaluate("[written, traces[0].T]") == [1, T]
    # A word is written while another one is typed.
    prompt = page.locator("#prompt")
    prompt.focus()
    page.keyboard.press("Control+End")
    page.evaluate(
        """() => {
            const { open } = source;
            source.open = async (...given) => {
                source.open = open;
                const trace = await open(...given);
                await new Promise((go) => (window.goOn = go));
                return trace;
            };
            writeToken({ id: 1 });
        }"""
    )
    page.keyboard.type(" and")
    until(page, "window.goOn !== undefined")
    page.evaluate("goOn()")
    until(page, f"traces.at(-1).T === {T + 1}")
    assert prompt.input_value() == BALL + " and"
    page.evaluate("held.at(-1)()")
    until(page, f"traces.at(-1).text === {BALL + ' and'!r}")
    assert prompt.input_value() == BALL + " and"
    page.evaluate("void (window.setTimeout = wait)")
    # When another stage appears, the text area keeps the focus.
    page.locator("#compare").check()
    idle(page)
    page.evaluate("(requests.kept.splice(1), set({ typed: latest().text }), showLatest())")
    idle(page)
    prompt.focus()
    page.keyboard.press("Control+End")
    page.keyboard.type(" so")
    until(page, "traces.length === 2")
    page.keyboard.type(" it")
    idle(page)
    assert prompt.input_value() == BALL + " so it"


def test_temperature_changes_the_next_words(pocket: GPT2, play: Play) -> None:
    page, trace = play(pocket, BALL, link=LOOK), pocket.trace(BALL)
    slider = page.locator(".next-controls input")
    for stop, temperature in (("5", 0.5), ("20", 2.0), ("0", 0)):
        slider.fill(stop)
        expected = np.sort(Sampling(temperature).probabilities(trace.next_logits))[:-5:-1]
        largest = "texts[0].next[0].probability"
        until(page, f"Math.abs({largest} - {expected[0]}) < 1e-5")
        drawn(page)
        assert shares(page) == pytest.approx(expected, abs=0.01)
    assert page.locator("#write-on").inner_text() == "Continue"
    page.locator("#language").click()
    assert page.locator("#write-on").inner_text() == "继续写"
    assert page.locator("#language").inner_text() == "English"


def test_a_text_that_ends_in_a_blank(pocket: GPT2, play: Play) -> None:
    page = play(pocket, BALL, link=LOOK)
    assert page.locator("#notice .blank").count() == 0
    places = "['.sentence', '#every-head'].map((x) => document.querySelector(x).offsetTop)"
    until(page, "document.body.innerText.includes('Head 1.2 gives')")  # the last sentence is there
    before = page.evaluate(places)
    ask(page, f"{BALL} ")
    best = pocket.trace(BALL).next_tokens(1)[0]
    until(page, "document.querySelector('#notice .blank button') !== null")
    words = " ".join(page.locator("#notice .blank").inner_text().split())
    assert words.startswith(
        "This text ends in a blank, which the model reads as a token of its own."
    )
    share = float(words.split("with ")[1].split()[0])
    assert f"Without it, “{best.text.strip()}” would come next" in words
    assert share == pytest.approx(100 * best.probability, abs=0.5)
    assert page.evaluate(places) == before  # nothing moves while a text is typed
    # All blanks go; a line break is named; the keyboard stays in the text.
    ask(page, f"{BALL}  \n")
    until(page, "byId('notice').textContent.includes('ends in a line break, which')")
    page.get_by_role("button", name="Remove the line break").click()
    idle(page)
    assert page.locator("#prompt").input_value() == BALL
    focused = page.evaluate("[document.activeElement.id, byId('prompt').selectionStart]")
    assert focused == ["prompt", len(BALL)]
    assert page.locator("#notice .blank").count() == 0
    # On a phone, the notice covers an eighth of the screen; the focus unfolds it.
    page.set_viewport_size({"width": 390, "height": 844})
    ask(page, "The kangaroo met an archaeologist ")
    until(page, "byId('notice').tabIndex === 0 && byId('notice').children.length === 2")
    height = "byId('notices').offsetHeight"
    folded = page.evaluate(height)
    page.locator("#notice").focus()
    until(page, f"{height} > {folded + 40} && byId('notice').tabIndex === -1")
    page.locator("#language").focus()
    page.locator("#language").press("Enter")
    until(page, f"document.documentElement.lang === 'zh-Hans' && {height} < 844 / 6")
    (blank,) = pocket.tokenizer.encode(" ")  # as a next word
    assert page.evaluate(f"textIn(texts[0], {blank})") == "␣"
    # What is written after a blank begins with it.
    ask(page, f"{BALL} ")
    page.locator(".next-controls input").fill("0")
    page.locator("#write-on").click()
    until(page, "latest().ids.length > 8")
    page.locator("#write-on").click()
    idle(page)
    assert page.locator("#prompt").input_value().startswith(f"{BALL}{best.text}")


def test_a_head_is_ablated_and_given_back(pocket: GPT2, play: Play) -> None:
    page = play(pocket, BALL)
    open_head(page, 1, 2)
    page.locator("#head-toggle").click()
    idle(page)
    shows(page, pocket.trace(BALL).edited(silencing(pocket, 1, 2)), 1, 2)
    assert page.locator("#ablated button").all_inner_texts() == ["1.2 ×"]
    # The ablation applies to another text too, until it is undone.
    ask(page, "The hen")
    shows(page, pocket.trace("The hen").edited(silencing(pocket, 1, 2)), 1, 2)
    page.get_by_role("button", name="1.2 × (give it back)").click()
    idle(page)
    shows(page, pocket.trace("The hen"), 1, 2)
    assert page.evaluate("latest().typed") == "The hen"  # which the tokens' text may differ from
    # Several are given back at once.
    page.locator(".head-drawing >> nth=6").press("s")
    idle(page)
    chosen = page.evaluate("[selection.layer, selection.head, selection.isHeadChosen]")
    assert chosen == [1, 2, True]
    page.locator("#mlp-toggle").click()
    idle(page)
    buttons = page.locator("#ablated button")
    assert buttons.all_inner_texts() == ["1.2 ×", "MLP 1 ×", "give all back"]
    buttons.last.click()
    idle(page)
    assert page.locator("#ablated button").count() == 0
    shows(page, pocket.trace("The hen"), 1, 2)


def test_a_reload_keeps_the_view(pocket: GPT2, play: Play) -> None:
    page, text = play(pocket, BALL), "The hen saw the cat and the hen"
    ask(page, text)
    open_head(page, 1, 3)
    for nth in (0, 1):
        page.locator("#toggles button").nth(nth).click()
        idle(page)
    page.evaluate("select(4)")
    until(page, "location.hash.includes('query=4') && location.hash.endsWith('ablate=1.3+1')")
    page.reload()
    until(page, "document.querySelectorAll('#ablated button').length === 3")
    idle(page)
    assert page.locator("#prompt").input_value() == text
    until(page, "selection.query === 4")
    assert page.locator("#head-title").inner_text() == "Layer 1, head 3"
    page.evaluate("select(7)")
    edits = silencing(pocket, 1, 3) | {"blocks.1.mlp.output": 0}
    shows(page, pocket.trace(text).edited(edits), 1, 3)
    # A changed link is followed; an invalid one is reported.
    ids = ".".join(map(str, pocket.trace("The cat").tokens.ids))
    page.evaluate(f"location.hash = '#ids={ids}'")
    until(page, "traces[0].T === 2")
    idle(page)
    assert page.locator("#ablated button").count() == 0
    page.evaluate("location.hash = '#ids=1.x'")
    assert "id" in status_of(page)
    assert tokens(page) == ["The", "Ġcat"]
    page.evaluate("location.hash = '#ablate=0.7+1'")  # head 7 doesn't exist, MLP 1 does
    until(page, "document.querySelector('#status').textContent.endsWith('applied: 0.7')")
    assert page.evaluate("traces[0].changes") == [ablation(1)]


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
    page.evaluate("select(2)")
    page.evaluate("setInterval(() => held.splice(0).forEach((go) => go()), 10)")
    idle(page)
    assert page.evaluate("selection.query") == 2
    assert "position 2" in page.locator("#predictions").first.inner_text()
