"""The page in Chromium: what it shows, runs and loads.

Tests with a browser are skipped, with the reason, where playwright or Chromium is missing; under
`ATTNLAB_STRICT=1` that is a failure.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from numpy.typing import NDArray
from pages import (
    LOADED,
    MATRICES,
    SHADES,
    TEXT,
    Open,
    agrees,
    drawn,
    gpt2_shaped,
    numbers,
    shown_in,
    ticks,
    to_cell,
    until,
)
from runs import replace_steps

import attnlab
from attnlab import GPT2, AttnlabError, Head, Token, Tokens, Trace
from attnlab.pages.modules import GENERATED, SAVED, modules_of, source
from attnlab.pages.saved import MARK, STEPS, is_page
from attnlab.pages.saved import source as page_source
from attnlab.support.tables import printable
from attnlab.views.purposes import purpose

# Symbols of tokens with markup and scripts.
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    "<!--<script>",
    "--></style><img src=http://127.0.0.1:9/x onerror='window.hacked = 1'>",
    "\"'><svg/onload=window.hacked=1>&amp;&lt;",
    "{{script}}{{title}}",
    "\\u003cscript\\u003e",
    "\u202egnorw\u2066\u200f",
    "\u2028\u2029\ufeff\u200b",
    "\x00\x07\x1b[31m\r\n\t",
    "\ufffd",
    "w" * 10_000,
    "a" + "\u0301" * 300,
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "constructor",
    "__proto__",
]


# ---- without a browser -------------------------------------------------------------------------


def test_a_page_is_one_file_with_a_policy_that_allows_nothing_else(odd: GPT2) -> None:
    page = attnlab.page(odd.trace(TEXT)).html
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]  # type: ignore[index]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,"]
    assert "{{" not in page.replace("${{", "")


def described(page: str) -> Any:
    return json.loads(re.search(r'id="description">(.*?)</script>', page, re.S)[1])  # type: ignore[index]


def test_names_and_formulas_are_those_of_the_steps(
    odd: GPT2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Head.scores, "formula", "raw_scores / 42")
    steps = described(attnlab.page(odd.trace(TEXT)).html)["steps"]
    assert tuple(steps) == STEPS
    for name, axes, formula in (
        ("scores", "Tq Tk", "raw_scores / 42"),
        ("K", "Tk Dk", "X W_K + b_K"),
    ):
        what_for = purpose(f"blocks.0.attention.heads.0.{name}")
        assert steps[name] == {"axes": axes, "formula": formula, "purpose": what_for}
    written = [
        formula
        for name in STEPS
        for formula in [odd.trace(TEXT).head(0, 0).formula_of(name)]
        for text in (page_source("page.html"), *map(source, {*modules_of(*SAVED)} - {*GENERATED}))
        if formula != "√Dk"  # which a control also turns off
        if formula in text
    ]
    assert written == []


@pytest.mark.slow
@pytest.mark.usefixtures("short_story")
def test_sizes_of_144_heads(odd: GPT2, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "page.html"
    trace = gpt2_shaped(odd, 128, seed=0)
    short = Trace(trace.tokens[:12], odd.tokenizer.vocabulary, trace.parameters)
    for one, most in ((short, 2_500_000), (trace, 20_000_000)):
        attnlab.page(one).save(file)
        size = file.stat().st_size
        assert size < most
        warning = "" if one is short else f"Writing {file}, {size / 1e6:.0f} MB.\n"
        assert capsys.readouterr() == ("", warning)


def test_what_can_not_be_written(odd: GPT2, tmp_path: Path) -> None:
    trace = odd.trace("the hen")
    for path, kind, message in (
        (tmp_path, OSError, "it is a directory"),
        (tmp_path / "none" / "page.html", OSError, "directory .*none not found"),
        (tmp_path / "no\0name", ValueError, "file names can't have"),
        (tmp_path / ("long" * 100 + ".html"), OSError, "can't be written"),
        (tmp_path / "page.pdf", ValueError, r"end in \.html; got 'page\.pdf'.*trace\.plot\(\)"),
        (tmp_path / "page.html.PNG", ValueError, "For a picture, use"),
    ):
        with pytest.raises(AttnlabError, match=message) as caught:
            attnlab.page(trace).save(path)  # type: ignore[arg-type]
        assert isinstance(caught.value, kind)
    for other in ("the hen", odd, 3):
        with pytest.raises(AttnlabError, match="other must be a Trace; got"):
            attnlab.page(trace, other)  # type: ignore[arg-type]


def test_a_page_is_known_by_its_beginning(odd: GPT2, tmp_path: Path) -> None:
    for name in ("page.html", "PAGE.HTM", "page"):
        attnlab.page(odd.trace("the hen")).save(tmp_path / name)
        assert is_page(tmp_path / name)
    (tmp_path / "other").write_text(f"<title>attnlab</title>{' ' * 2000}{MARK.decode()}")
    (tmp_path / "empty").touch()
    assert not any(is_page(tmp_path / name) for name in ("other", "empty", "none", "."))


def test_numbers_that_float32_can_not_hold() -> None:
    trace = GPT2.from_pretrained(REFERENCE / "float64", dtype="float64").trace("the hen")
    for step in ("weights", "masked_scores", "context"):
        edited = trace.edited({f"blocks.1.attention.heads.1.{step}": -1e60})
        with pytest.raises(AttnlabError, match=f"{step} has NaN or numbers that overflow"):
            attnlab.page(edited)
    chain = trace.blocks[1].attention
    replace_steps(chain, Q=np.full(chain.Q.shape, 1e300))
    with pytest.raises(AttnlabError, match="overflow float32"):
        attnlab.page(trace)


# ---- what is shown -----------------------------------------------------------------------------


def test_cells_show_the_traces_numbers_in_the_legends_colours(odd: GPT2, open_page: Open) -> None:
    trace = odd.trace(TEXT)
    page = open_page(trace)
    page.locator(".head-drawing").nth(8).click()
    head = trace.head(1, 3)
    for step in MATRICES:
        page.locator(f"#steps input[value={step}]").dispatch_event("click")
        values = getattr(head, step)
        for i, j in ((11, 3), (5, 5), (3, 10)):
            to_cell(page, i, j)
            readout = page.locator(".readout")
            scale = np.abs(head.raw_scores).max()
            assert agrees(readout.locator("data"), values[i, j], scale), (step, i, j)
            masked = j > i and step in ("masked_scores", "weights")
            assert ("masked" in readout.inner_text()) == masked
            label = page.locator(".cursor").get_attribute("aria-label")
            assert f"query {i} " in label
            assert f"{step} {readout.locator('data').inner_text()}" in label
        shown = seen(trace, 1, 3, step)
        if step != "weights":
            check_colours(page, shown, np.nanmax(np.abs(shown)))
            continue
        at, named = ticks(page)
        assert at == pytest.approx(np.sqrt(named))
        assert np.allclose(shown_in(page), np.sqrt(shown), rtol=0, atol=SHADES, equal_nan=True)


def seen(trace: Trace, layer: int, h: int, step: str) -> NDArray[np.float64]:
    """A head's step; NaN where it is masked."""
    values = getattr(trace.head(layer, h), step).astype(np.float64)
    return np.where(trace.mask | (step in ("raw_scores", "scores")), values, np.nan)


def check_colours(page: Any, values: NDArray[np.float64], bound: float, nth: int = 0) -> None:
    """Check a heatmap: its legend goes from -bound to bound, and so do its cells."""
    at, named = ticks(page, nth)
    assert at == [0, 0.5, 1]
    assert named == pytest.approx([-bound, 0, bound], rel=1e-3)
    expected = (values / bound + 1) / 2
    assert np.allclose(shown_in(page, nth), expected, rtol=0, atol=SHADES, equal_nan=True)


def check_arithmetic(
    page: Any, trace: Trace, layer: int, h: int, i: int, j: int, d: int = 0, nth: int = 0
) -> None:
    """Compare the open arithmetic with the trace: the chain, the components, the row."""
    head, article = trace.head(layer, h), page.locator("#sums article").nth(nth)
    scale = np.abs(head.raw_scores).max()
    shown = article.locator(",".join(f'[data-step="{step}"] strong data' for step in MATRICES))
    assert agrees(shown, [getattr(head, step)[i, j] for step in MATRICES], scale)
    product, weight, V = head.Q[i] * head.K[j], head.weights[i, j], head.V[:, d]
    line = article.locator('[data-step="context"] .sum')
    assert line.inner_text().startswith(f"component {d}: key {j} adds ")
    expected = [weight, V[j], weight * V[j], head.context[i, d]]
    assert agrees(line.locator("data"), expected, scale)
    masked = head.masked_scores[i]
    exponentials = np.exp(masked - masked.max())
    shown = numbers(article.locator('[data-step="weights"]'))
    shifted = masked[j] - masked.max()
    expected = [masked[j], masked.max(), shifted, shifted, exponentials[j]]
    expected += [*exponentials[np.isfinite(masked)], exponentials.sum()]
    expected += [exponentials[j], exponentials.sum()]
    assert shown[: len(expected)] == pytest.approx(expected, rel=1e-5, abs=1e-6)

    def cells(rows: str, n: int) -> NDArray[np.float64]:
        return np.reshape(numbers(article.locator(f'[data-rows="{rows}"] tbody')), (n, -1))

    columns = [head.Q[i], head.K[j], product, head.V[j], weight * head.V[j], head.context[i]]
    assert np.allclose(cells("component", len(product)), np.stack(columns, 1), rtol=1e-5, atol=1e-5)
    columns = [head.raw_scores[i], head.scores[i], masked, exponentials, head.weights[i], V]
    columns.append(head.weights[i] * V)
    assert np.allclose(cells("key", len(V)), np.stack(columns, 1), rtol=1e-5, atol=1e-5)
    foot = numbers(article.locator('[data-rows="key"] tfoot'))
    expected = [exponentials.sum(), 1, head.context[i, d]]
    assert foot == pytest.approx(expected, rel=1e-5, abs=1e-5)
    headings = article.locator('[data-rows="key"] thead th').all_inner_texts()
    assert headings[-2:] == [f"V[·, {d}]", "weight × V"]
    for rows, n in (("component", d), ("key", j)):
        marked = "(all) => all.map((row) => row.ariaCurrent === 'true')"
        actual = article.locator(f'[data-rows="{rows}"] tbody tr').evaluate_all(marked)
        assert np.flatnonzero(actual).tolist() == [n]


def test_the_keyboard_alone_reaches_the_arithmetic(odd: GPT2, open_page: Open) -> None:
    trace = odd.trace(TEXT)
    page = open_page(trace)

    def focused(property: str) -> Any:
        return page.evaluate(f"document.activeElement.{property}")

    def tab_to(name: str) -> None:
        for _ in range(30):
            page.keyboard.press("Tab")
            if focused(f"matches({name!r})"):
                outlined = "getComputedStyle(document.activeElement).outlineStyle"
                assert page.evaluate(outlined) == "solid"
                return
        pytest.fail(f"Tab never came to {name}")

    tab_to(".stage-word")
    page.keyboard.press("ArrowLeft")
    until(page, "selection.query === 10")
    tab_to(".cursor")
    page.keyboard.press("Control+Home")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    assert focused("id") == "arithmetic-title"
    check_arithmetic(page, trace, 0, 0, 3, 2)
    page.keyboard.press("Escape")
    assert "cursor" in focused("className")
    page.keyboard.press("End")  # a masked cell
    page.keyboard.press("Enter")
    assert "] is False: -inf" in page.locator("#sums").inner_text()
    check_arithmetic(page, trace, 0, 0, 3, 11)
    page.locator('[data-rows="key"] .row-button').nth(1).press("Enter")  # another key of the row
    check_arithmetic(page, trace, 0, 0, 3, 1)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert focused("ariaLabel").startswith("head 0.0 ")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    until(page, "byId('head-title').textContent === 'Layer 2, head 1'")


# ---- two traces --------------------------------------------------------------------------------


def test_two_traces_without_a_difference(odd: GPT2, open_page: Open) -> None:
    one_head = GPT2.from_pretrained(REFERENCE / "one_head")
    page = open_page(odd.trace(TEXT), one_head.trace(TEXT))
    reason = "A has 3 layers of 5 heads, Dh 7; B has 2 layers of 1 heads"
    assert reason in page.locator("#compared").inner_text()
    assert page.locator("#heatmaps h3").all_inner_texts() == ["A: odd", "B: one_head"]
    page.evaluate("openHead(2, 4)")
    until(page, "byId('heatmaps').innerText.includes('B has no layer 2, head 4')")
    to_cell(page, 9, 9)
    page.keyboard.press("Enter")
    assert page.locator("#sums article").count() == 1
    page = open_page(odd.trace([1]), odd.trace([2, 3]))
    assert "no tokens of A and B correspond" in page.locator("#compared").inner_text()
    assert [text[0] for text in page.locator("#heatmaps h3").all_inner_texts()] == ["A", "B"]


def test_a_step_of_generation_shows_its_cached_keys(odd: GPT2, open_page: Open) -> None:
    step = odd.generate("the hen", 3, temperature=0, trace=True).steps[1]
    trace = step.trace
    page = open_page(trace)
    until(page, "document.querySelector('#predictions data') !== null")
    heading = page.locator("#predictions h3").inner_text()
    assert heading == f"Next token after position 4, {trace.tokens[0].symbol}"
    assert step.token is not None
    assert page.locator("#predictions tbody .symbol").first.inner_text() == step.token.symbol
    assert page.locator("#summary").inner_text().endswith(f"1 token after {trace.cached} cached")
    assert page.locator("#jobs").inner_text() == ""
    keys = page.locator(".sentence.keys .letters").all_inner_texts()
    assert [*map(str.strip, keys)][:4] == [f"[cached {n}]" for n in range(trace.cached)]
    assert len(keys) == 5
    for j in range(5):
        to_cell(page, 0, j)
        assert agrees(page.locator(".readout data"), trace.head(0, 0).weights[0, j])
    page.keyboard.press("Enter")
    check_arithmetic(page, trace, 0, 0, 0, 4)


# ---- hostile tokens, themes, large pages -------------------------------------------------------


def hostile(odd: GPT2, symbols: list[str]) -> Trace:
    """A trace whose tokens have hostile names."""
    tokens = [
        Token(id, symbol, symbol, symbol.encode("utf-8", "surrogateescape"))
        for id, symbol in enumerate(symbols)
    ]
    return Trace(Tokens(tokens), odd.tokenizer.vocabulary, odd.parameters)


def test_hostile_tokens_are_text(odd: GPT2, open_page: Open) -> None:
    trace = hostile(odd, HOSTILE)
    html = attnlab.page(trace).html
    assert not re.search("[\u2028\u2029\u202a-\u202e\u2066-\u2069\u200b\u200f\x00\x07\x1b]", html)
    page = open_page(trace, viewport={"width": 420, "height": 800})
    words = page.locator(".stage-word .letters").evaluate_all(
        "(all) => all.map((x) => x.innerHTML)"
    )
    assert len(words) == len(HOSTILE)
    assert not any("<" in word for word in words)
    assert page.evaluate("traces[0].tokens.map(({ symbol }) => symbol)") == [
        printable(symbol) for symbol in HOSTILE
    ]
    to_cell(page, 15, 11)
    page.keyboard.press("Enter")
    page.evaluate("openHead(0, 3)")
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert page.evaluate("[...document.scripts].filter((script) => !script.type).length") == 1
    assert page.locator("img, iframe").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 420


def test_the_policy_stops_what_is_not_the_pages(odd: GPT2, browser: Any, tmp_path: Path) -> None:
    """Even if markup were inserted, it could neither run nor send requests."""
    page = browser.new_page()
    attnlab.page(odd.trace(TEXT)).save(tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    slip = "<script>window.hacked = 1</script><img src='http://127.0.0.1:9/x'>"
    (tmp_path / "page.html").write_text(html.replace("<main>", f"<main>{slip}"), encoding="utf-8")
    stopped: list[str] = []
    page.on("console", lambda message: stopped.append(message.text))
    page.goto((tmp_path / "page.html").as_uri())
    until(page, LOADED)
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert page.evaluate("fetch('http://127.0.0.1:9/').catch((error) => error.name)") == "TypeError"
    for what in ("inline script", "image 'http://127.0.0.1:9/x'", "'http://127.0.0.1:9/'"):
        assert any("Content Security Policy" in text and what in text for text in stopped), what
    page.close()


@pytest.mark.usefixtures("short_story")
def test_a_page_of_512_tokens(odd: GPT2, open_page: Open) -> None:
    trace = gpt2_shaped(odd, 512, n_layer=1, seed=0, n_embd=96)
    page = open_page(trace)
    words = page.locator(".stage-word:not([hidden])")
    assert 24 <= words.count() <= 24 + 12 + 1  # the last ones, and those that are looked at
    assert page.locator(".extent").first.evaluate("(x) => x.clientWidth") >= 4 * 512  # it scrolls
    to_cell(page, 0, 0)
    page.keyboard.press("Control+End")
    page.keyboard.press("ArrowLeft")
    drawn(page)
    assert agrees(page.locator(".readout data"), trace.head(0, 0).weights[511, 510])
    rows = page.evaluate("[40, 511].map(i => [...stepRow(headOf(traces[0], 0, 0), 'weights', i)])")
    assert np.allclose(rows, trace.head(0, 0).weights[[40, 511]], atol=1e-6)
    page.keyboard.press("Enter")
    assert page.locator('[data-rows="key"] tbody tr').count() == 512
    assert page.evaluate("performance.memory.usedJSHeapSize") < 300e6


# ---- edited traces -----------------------------------------------------------------------------


def edited_everywhere(trace: Trace) -> Trace:
    """Edits of each step of the chain in some head, and of one layer's mask."""
    T = len(trace.tokens)
    layers = [f"blocks.{layer}.attention" for layer in range(3)]
    rng = np.random.default_rng(0)
    return trace.edited(
        {
            f"{layers[0]}.heads.1.scale": 0.75,
            f"{layers[0]}.heads.2.mask": True,
            f"{layers[0]}.heads.3.raw_scores": lambda x: x - 3,
            f"{layers[0]}.heads.4.Q": lambda x: -x,
            f"{layers[1]}.scores": rng.normal(size=(T, T)),
            f"{layers[1]}.heads.1.masked_scores": lambda x: np.where(np.eye(T) > 0, x, -np.inf),
            f"{layers[1]}.heads.2.masked_scores": rng.normal(size=(T, T)),
            f"{layers[1]}.heads.2.weights": lambda x: x / 2,
            f"{layers[2]}.mask": np.tri(T, T, 2, dtype=bool),
            f"{layers[2]}.heads.1.weights": rng.normal(size=(T, T)),
            f"{layers[2]}.heads.2.context": 0.25,
        }
    )


def test_the_page_computes_on_from_what_is_edited(odd: GPT2, open_page: Open) -> None:
    trace = odd.trace(TEXT)
    edited = edited_everywhere(trace)
    page = open_page(trace, edited)
    for number, one in enumerate((trace, edited)):
        for layer, h in np.ndindex(3, 5):
            head = one.head(layer, h)
            actual = page.evaluate(
                f"""() => {{
                    const head = headOf(traces[{number}], {layer}, {h});
                    const rows = (f) => Array.from({{ length: 12 }}, (_, i) =>
                        Array.from(f(i), (x) => (x === -Infinity ? "-inf" : x)));
                    return Object.fromEntries(
                        MATRICES.map((step) => [step, rows((i) => stepRow(head, step, i))]));
                }}"""
            )
            for step in MATRICES:
                expected, shown = getattr(head, step), np.array(actual[step], dtype=float)
                assert np.array_equal(np.isneginf(expected), np.isneginf(shown)), (head.title, step)
                kept = np.isfinite(expected)
                assert np.allclose(shown[kept], expected[kept], rtol=1e-5, atol=1e-5), step


def test_the_arithmetic_marks_edits(odd: GPT2, open_page: Open) -> None:
    trace = odd.trace(TEXT)
    edited = edited_everywhere(trace)
    page = open_page(trace, edited)
    assert page.locator("#about").inner_text().endswith(edited._note)
    for layer, h, names, mask in (
        (0, 0, (), False),
        (0, 1, ("scale",), False),
        (0, 2, (), True),
        (0, 3, ("raw_scores",), False),
        (0, 4, (), False),
        (1, 0, ("scores",), False),
        (1, 2, ("scores", "masked_scores", "weights"), False),
        (2, 1, ("weights",), True),
        (2, 2, ("context",), True),
    ):
        page.evaluate("([layer, head]) => openHead(layer, head)", [layer, h])
        i, j = (3, 9) if (layer, h) in ((0, 2), (2, 1)) else (9, 3)
        to_cell(page, i, j, nth=1)
        page.keyboard.press("Enter")
        head, article = edited.head(layer, h), page.locator('#sums [data-trace="1"]')
        masked = article.locator('[data-step="masked_scores"]').inner_text()
        seen = bool(head.mask[i, j])
        assert f"mask[{i}, {j}] is {seen}{', edited' if mask else ''}: " in masked
        for step in (*MATRICES, "scale", "context"):
            line = article.locator(f'[data-step="{step}"]')
            assert ("edited here" in line.inner_text()) == (step in names), (head.path, step)
            assert line.locator("code").inner_text().endswith(", edited") == (step in names)
            value, would = getattr(head, step), head.unedited(step)
            if step != "scale":
                at = (i, 0) if step == "context" else (i, j)
                value, would = value[at], would[at]
            assert agrees(line.locator("strong data"), value, 100), (head.path, step)
            if step in names:
                assert agrees(line.locator("data").nth(-2), would, 100), (head.path, step)
        base = page.locator('#sums [data-trace="0"]')
        assert "edited" not in base.inner_text()
    check_arithmetic(page, trace, layer, h, i, j)


def test_words_in_pieces_are_named_above_the_sentence(pocket: GPT2, open_page: Open) -> None:
    trace = pocket.trace("The cat sat on the mat because it was tired")
    page = open_page(trace)
    notice = page.locator("#notice")
    assert notice.inner_text() == trace.notice
    english = GPT2.from_pretrained("english")
    for model, text in (
        (pocket, "The dog chased the ball, but it"),
        (pocket, "Schöne 小猫 😀 and the dog"),
        (pocket, "小，猫"),
        (english, "<|endoftext|>The dog</s> 😀"),
    ):
        trace = model.trace(text)
        assert open_page(trace).locator("#notice").inner_text() == trace.notice
