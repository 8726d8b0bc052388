"""The page's first screen: the story of a text, and the whole model in one picture."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE, Watched
from numpy.typing import NDArray
from pages import BALL, Open, drawn, gpt2_shaped, settled, until

import attnlab
from attnlab import GPT2, Trace, figures
from attnlab.pages import overview, prediction
from attnlab.pages.packs import pack
from attnlab.training import initial_parameters

LIST = "Say: lamp two happy. Again: lamp two"

STORY = [
    "Head 1.0 (layer 1, head 0): “it” looks at “ball” (99.9\xa0% of its attention). "
    "Without this head, “rolled” falls from 54\xa0% to 1\xa0%.",
    "Head 1.2: “it” looks at “dog” (99.7\xa0% of its attention). "
    "Without this head, “barked” falls from 43\xa0% to < 1\xa0%.",
]
IN_CHINESE = (
    "1.0 号头（第 1 层的 0 号头，从 0 数起）：“it”关注“ball”（占其注意力的 99.9\xa0%）。"
    "没有这个头，“rolled”从 54\xa0% 降到 1\xa0%。"
)


def percent(share: float) -> str:
    """A share as the page shows it: 0 % only if it is 0, 100 % only if it is 1."""
    if 0 < share < 0.005:
        return "< 1\xa0%"
    digits = 1 if 0.995 <= share < 0.9995 else 0
    return "> 99.9\xa0%" if 0.9995 <= np.float32(share) < 1 else f"{100 * share:.{digits}f}\xa0%"


# JavaScript: the visible controls.
CONTROLS = """[...document.querySelectorAll("button, input, select, textarea, summary, a")]
    .filter((one) => one.checkVisibility() && one.getBoundingClientRect().width)"""


def story(page: Any) -> list[str]:
    """The sentences about heads, without those that say why they look there."""
    shown = "(all) => all.map((p) => p.innerText.split('\\n')[0])"
    sentences: list[str] = page.locator("#story p").evaluate_all(shown)
    return sentences


def opened(page: Any) -> list[int]:
    place: list[int] = page.evaluate("[selection.layer, selection.head]")
    return place


def probabilities(trace: Trace) -> NDArray[np.float64]:
    logits = trace.next_logits.astype(np.float64)
    exponentials = np.exp(logits - logits.max())
    result: NDArray[np.float64] = exponentials / exponentials.sum()
    return result


# ---- the numbers ---------------------------------------------------------------------------------


def test_the_story_says_what_ablation_does(pocket: GPT2) -> None:
    trace = pocket.trace(LIST)
    numbers = np.frombuffer(pack(trace, "story"), "<f4")
    ids = numbers[1:6].astype(int)
    assert ids.tolist() == [token.id for token in trace.next_tokens(5)]
    assert np.allclose(numbers[6:11], probabilities(trace)[ids], atol=1e-6)
    heads = numbers[11:].reshape(-1, 22)
    assert heads[:, :2].tolist() == [[layer, head] for layer in range(2) for head in range(4)]
    for layer, head, *without in heads:
        path = f"blocks.{layer:.0f}.attention.heads.{head:.0f}.context"
        ablated = trace.edited({path: 0})
        after, new, *shares = np.reshape(without, (4, 5))
        assert np.allclose(after, probabilities(ablated)[ids], atol=1e-6)
        assert new.tolist() == [token.id for token in ablated.next_tokens(5)]
        for share, traced in zip(shares, (ablated, trace), strict=True):
            assert np.allclose(share, probabilities(traced)[new.astype(int)], atol=1e-6)


def test_of_many_heads_those_that_write_most_to_the_logit_are_ablated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd = GPT2.from_pretrained(REFERENCE / "odd")
    # An eighth of GPT-2's width, so a sixty-fourth of its work.
    monkeypatch.setattr(overview, "MAX_ABLATION_WORK", overview.MAX_ABLATION_WORK // 64)
    trace = gpt2_shaped(odd, 12, seed=0, n_embd=96)
    top = trace.next_tokens(1)[0]
    # The gradient of log p is the logit's minus the mean logit's under p.
    mean = np.tensordot(
        probabilities(trace),
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
    for row, stop in (
        (0, ball.embedding),
        (1, first.mid),
        (2, first.mlp.output),
        (3, first.output),
        (6, last.output),
    ):
        assert np.allclose(numbers[row], np.linalg.norm(stop, axis=-1), rtol=1e-5)
    assert len(numbers) == 7


# ---- the story on the page -----------------------------------------------------------------------


def test_the_page_opens_on_the_head_that_matters_most(ball: Trace, look: Open) -> None:
    page = look(ball)
    assert story(page) == STORY
    assert opened(page) == [1, 0]
    assert page.locator("#head-title").inner_text() == "Layer 1, head 0"
    # Badges are jobs, shares are percentages: 0 % and 100 % only if they are exactly.
    jobs = attnlab.jobs(ball)
    worn = page.evaluate("picture.maps.map(({ badge }) => badge.dataset.job ?? null)")
    for n, job in enumerate(worn):
        shares = dict(zip(jobs.jobs, jobs.attention[:, n // 4, n % 4], strict=True))
        assert (job == "first") == (shares["first"] >= 0.9)
        if job:
            label = page.locator(".mini").nth(n).get_attribute("aria-label")
            assert f"{percent(shares[job])} of its attention " in label
            assert (percent(shares["first"]) in label) == (shares["first"] >= 0.1 or job == "first")
    assert "previous" in worn
    # Beside the probability, that without the open head where it differs; below, what they are.
    shown = page.locator("#picture .leaving li > :nth-child(2)").all_inner_texts()
    before = probabilities(ball)
    after = probabilities(ball.edited({"blocks.1.attention.heads.0.context": 0}))
    # First the most probable tokens, then those that are only without the head, from 0.5 %.
    likely, risen = (np.argsort(-shares, kind="stable")[:5].tolist() for shares in (before, after))
    assert shown == [
        " → ".join(dict.fromkeys([percent(before[id]), percent(after[id])]))
        for id in dict.fromkeys(likely + [id for id in risen if after[id] >= 0.005])
    ]
    assert len(shown) > 5
    assert shown[0] == "54\xa0% → 1\xa0%"
    assert shown[4] == "< 1\xa0%"
    notes = page.locator("#picture .leaving .note").all_inner_texts()
    assert notes == ["→ and lower bars: without head 1.0", "It knows only its grammar."]
    page.locator("#story .leads").nth(1).click()
    assert opened(page) == [1, 2]


def test_a_link_to_a_head_comes_first_also_in_chinese(ball: Trace, look: Open) -> None:
    page = look(ball, "depth=look&layer=0&head=3")
    assert story(page) == STORY
    assert opened(page) == [0, 3]
    assert story(look(ball, language="zh"))[0] == IN_CHINESE


def test_the_story_of_an_untrained_model_says_that_it_guesses(pocket: GPT2, look: Open) -> None:
    parameters = initial_parameters(pocket.config, np.random.default_rng(0))
    trace = GPT2(parameters, pocket.tokenizer).trace(BALL)
    before = probabilities(trace)
    id = int(before.argmax())

    def change(layer: int, head: int) -> float:
        path = f"blocks.{layer}.attention.heads.{head}.context"
        return float(probabilities(trace.edited({path: 0}))[id] / before[id] - 1)

    layer, head = max(np.ndindex(2, 4), key=lambda index: abs(change(*index)))
    word = pocket.tokenizer.tokens([id])[0].text.strip()
    [sentence] = story(look(trace))
    assert sentence.startswith(f"Head {layer}.{head} (layer {layer}, head {head}): ")
    direction = "less probable"
    if change(layer, head) > 0:
        direction = "more probable: the head works against it"
    # With as many digits as distinguish it from the next one.
    [shown] = re.findall(rf"“{word}” comes first with (0\.\d+)\xa0%", sentence)
    assert float(shown) == pytest.approx(100 * before[id], abs=0.5 * 10 ** (2 - len(shown)))
    assert len(shown) >= len("0.23")
    assert sentence.endswith(
        f"No next token is probable: “{word}” comes first with {shown}\xa0%, "
        f"where a guess has {100 / before.size:.2f}\xa0%. Without this head, “{word}” is "
        f"{100 * abs(change(layer, head)):.1f}\xa0% {direction}."
    )


def test_gpt2s_attention_rests_on_the_first_token(patterns: Trace, look: Open) -> None:
    weights = figures.load("gpt2_patterns")["weights_1"]
    page = look(patterns)
    keys = "[...new Set(picture.curves.map(({ j }) => j))].sort()"
    assert page.evaluate(keys) == [1, 2, 3, 4, 5, 6]
    worn = page.evaluate("picture.maps.map(({ badge }) => badge.dataset.job === 'first')")
    assert worn == (weights[:, :, 1:, 0].mean(axis=-1) >= 0.9).ravel().tolist()
    resting = page.locator(".rest-words")
    mean = percent(weights[:, :, -1, 0].mean())
    assert resting.inner_text().startswith(f"On average over all heads, {mean} of")
    # What rests comes first if it is the most, and the first token is named once.
    assert re.search(
        r": (\d+)\xa0% of the attention of “.*” rests on the first token, “.*”. Of the ",
        story(page)[0],
    )
    assert page.locator("#story").inner_text().count("first token") == 1
    # On request, it is drawn as lines: of each row, if notable.
    resting.locator("button").click()
    drawn(page)
    curves = page.evaluate(
        "picture.curves.filter(({ j }) => j === 0).map(({ layer, head, i }) => [layer, head, i])"
    )
    expected = [
        [layer, head, i]
        for layer, head, i in np.ndindex(12, 12, 7)
        if i and weights[layer, head, i, 0] >= 0.1
    ]
    assert sorted(curves) == expected
    resting.locator("button").click()
    assert page.evaluate(keys) == [1, 2, 3, 4, 5, 6]


def test_the_story_of_a_page_with_a_model(pocket: GPT2, watched: Watched, tmp_path: Path) -> None:
    attnlab.playground(pocket, BALL).save(tmp_path / "model.html")
    page = settled(watched.open(f"{(tmp_path / 'model.html').as_uri()}#depth=look"))
    assert story(page) == STORY
    assert opened(page) == [1, 0]
    until(page, "location.hash.includes('ids=')")
    first = page.evaluate("location.hash")
    # As for the first text: after another text, its head is opened.
    page.locator("#prompt").fill(LIST)
    page.locator("#prompt").press("Enter")
    until(page, "document.querySelector('#story').innerText.includes('“two” looks')")
    numbers = np.frombuffer(pack(pocket.trace(LIST), "story"), "<f4")[11:].reshape(-1, 22)
    before = probabilities(pocket.trace(LIST)).max()
    layer, head = numbers[np.abs(before - numbers[:, 2]).argmax(), :2]
    until(page, f"selection.layer === {layer:.0f} && selection.head === {head:.0f}")
    # The browser's Back returns to the text before.
    until(page, f"!location.hash.includes({first.partition('ids=')[2]!r})")
    page.go_back()
    until(page, "document.querySelector('#story').innerText.includes('“it” looks')")
    assert page.locator("#prompt").input_value() == BALL
    assert page.evaluate("traceHistory.length") == 1
    page.go_forward()
    until(page, "document.querySelector('#story').innerText.includes('“two” looks')")
    assert page.evaluate("traceHistory.length") == 2
    assert watched.said == []


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)])
def test_the_picture_shows_the_traces_numbers(
    size: tuple[int, int], ball: Trace, look: Open
) -> None:
    page = look(ball, viewport={"width": size[0], "height": size[1]})
    curves = page.evaluate(
        "picture.curves.map(({ layer, head, i, j, weight, excess }) =>"
        " [layer, head, i, j, weight, excess])"
    )
    actual = {tuple(curve[:4]): curve[4:] for curve in curves}
    expected = {}
    for layer, head, i in np.ndindex(2, 4, 8):
        weights = ball.head(layer, head).weights[i].astype(float)
        mean = weights[1 : i + 1].mean() if i else 0
        row = {
            (layer, head, i, j): (weights[j], (weights[j] - mean) / (1 - 1 / i) if i > 1 else 0)
            for j in range(1, i + 1)
        }
        drawn = {place for place, (_, excess) in row.items() if excess >= 0.1}
        if i == 7:  # the selected token: the largest weight, and all of the open head
            largest = max(row, key=lambda place: row[place][0])
            drawn |= row.keys() if (layer, head) == (1, 0) else set() if drawn else {largest}
        expected |= {place: row[place] for place in drawn}
    assert actual.keys() == expected.keys()
    assert all(np.allclose(actual[one], expected[one], atol=1e-5) for one in expected)
    words = [name.strip() for name in page.locator("#picture .line").all_inner_texts()]
    assert words == [token.text.strip() for token in ball.tokens]
    likely = page.locator(".leaving .word").all_inner_texts()[:5]
    assert likely == [token.text.strip() for token in ball.next_tokens(5)]
    # Visible without scrolling: all tokens, and few controls.
    last = page.locator("#picture .line").last.bounding_box()
    assert last["y"] + last["height"] <= size[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate(f"{CONTROLS}.filter(({{ disabled }}) => !disabled).length") <= 25
    assert "Ġ" not in page.locator("body").inner_text()


# ---- levels --------------------------------------------------------------------------------------


def at_level(page: Any, level: str) -> None:
    """Wait until a page shows a level, and has moved there."""
    until(page, f"document.body.dataset.level === '{level}'")
    until(page, "document.getAnimations().length === 0")


def crumbs(page: Any) -> list[str]:
    names: list[str] = page.locator("#crumbs button").all_inner_texts()
    return names


CRUMBS = ["Model", "Layer 1", "Head 2", "weights", "“it” → “dog”"]


def click_cell(page: Any, i: int, j: int) -> None:
    scroller = page.locator("#heatmaps .scroller")
    cell = scroller.evaluate("(x) => x.scrollWidth / x.ariaColCount")
    scroller.click(position={"x": (j + 0.5) * cell, "y": (i + 0.5) * cell})


def test_each_level_opens_inside_the_one_before(ball: Trace, look: Open) -> None:
    page = look(ball)
    page.locator(".titles .block").nth(1).click()
    at_level(page, "block")
    assert crumbs(page) == CRUMBS[:2]
    # The block alone: its own heads, as large as they fit, and its own curves.
    minis = page.locator(".mini:visible")
    assert [mini.evaluate("(mini) => mini.map.layer") for mini in minis.all()] == [1] * 4
    assert minis.first.bounding_box()["width"] > 100
    assert {one["layer"] for one in page.evaluate("picture.curves")} == {1}
    minis.nth(2).click()
    at_level(page, "head")
    assert crumbs(page) == CRUMBS[:3]
    assert page.locator("#lines canvas").is_visible()
    click_cell(page, 7, 1)  # it, dog
    at_level(page, "matrix")
    assert crumbs(page) == CRUMBS[:4]
    page.locator("#steps label").first.click()
    assert crumbs(page) == [*CRUMBS[:3], "raw_scores"]
    page.locator("#steps label").last.click()
    click_cell(page, 7, 1)
    at_level(page, "number")
    assert crumbs(page) == CRUMBS
    assert page.locator("#crumbs [aria-current=location]").all_inner_texts() == CRUMBS[-1:]
    assert "layer 1, head 2, query 7, key 1" in page.locator("#arithmetic-title").inner_text()
    # A link leads to the same place.
    until(page, "location.hash.includes('level=number')")
    page.reload()
    until(page, "document.body.dataset.level === 'number'")
    assert crumbs(page) == CRUMBS


def test_enter_leads_in_and_escape_out(ball: Trace, look: Open) -> None:
    page = look(ball, "depth=look&layer=1&head=2&query=7&key=1", reduced_motion="reduce")
    assert page.evaluate("document.startViewTransition = () => { throw Error('moved'); }, 1")
    page.locator(".titles .block").nth(1).press("Enter")
    for level in ("block", "head", "matrix", "number"):
        at_level(page, level)
        page.keyboard.press("Enter") if level != "number" else None
    sums = page.locator("#sums").inner_text()
    assert "the maximum is at key 1 (dog)" in sums
    assert "Ġ" not in sums
    for level in ("matrix", "head", "block", "model"):
        page.keyboard.press("Escape")
        at_level(page, level)
    assert page.evaluate("document.activeElement.map.head") == 2


def test_back_returns_to_the_level_before(ball: Trace, look: Open) -> None:
    page = look(ball)
    page.locator("#story .leads").nth(1).click()
    at_level(page, "head")
    until(page, "location.hash.includes('level=head')")
    page.locator("#crumbs button").nth(1).click()
    at_level(page, "block")
    until(page, "location.hash.includes('level=block')")
    page.go_back()
    at_level(page, "head")
    assert opened(page) == [1, 2]
    page.go_back()
    at_level(page, "model")
    assert opened(page) == [1, 0]
    page.go_forward()
    at_level(page, "head")


def brute_force_map(weights: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """A small map of 64 x 64 pixels, computed cell by cell."""
    T = len(weights)
    pixels = np.full((64, 64), np.nan, np.float32)
    for i, j in np.argwhere(mask):
        at = 64 * i // T, 64 * j // T
        if not abs(pixels[at]) >= abs(weights[i, j]):
            pixels[at] = weights[i, j]
    return pixels


def test_small_maps_of_a_long_text_come_from_the_model(
    pocket: GPT2, watched: Watched, tmp_path: Path
) -> None:
    text = " ".join([BALL, LIST, BALL, "the cat", LIST, BALL, LIST, BALL, LIST])
    T = len(pocket.trace(text).tokens)
    assert 64 < T <= pocket.config.n_positions
    attnlab.playground(pocket, BALL).save(tmp_path / "model.html")
    page = settled(watched.open(f"{(tmp_path / 'model.html').as_uri()}#depth=look"))
    page.locator("#prompt").fill(text)
    page.locator("#prompt").press("Enter")
    until(page, f"traces.at(-1).T === {T}")
    page.evaluate(
        "(all) => requestTrace({ ids: traces.at(-1).ids }, all.map(changeFrom))",
        ["0.1.weights.-150", "1.2.mask.flip.3.70.60.59"],
    )
    until(page, "traces.at(-1).changes.length === 2")
    until(page, "picture.maps.every(({ values }) => values)")
    maps = page.evaluate("picture.maps.map(({ values }) => [...values])")
    packs = page.evaluate("[...traces.at(-1).packs.keys()].filter((name) => /^maps/.test(name))")
    mask = pocket.trace(text).head(1, 2).mask.copy()
    mask[[3, 60], [70, 59]] ^= True
    trace = pocket.trace(text).edited(
        {
            "blocks.0.attention.heads.1.weights": lambda weights: -1.5 * weights,
            "blocks.1.attention.heads.2.mask": mask,
        }
    )
    assert sorted(packs) == ["maps.0", "maps.1"]
    for n, actual in enumerate(maps):
        head = trace.head(*divmod(n, 4))
        expected = brute_force_map(head.weights, head.mask)
        np.testing.assert_allclose(np.reshape(actual, (64, 64)), expected, rtol=1e-4, atol=1e-6)
    assert watched.said == []


# ---- depth, stages, presenting -------------------------------------------------------------------


def test_the_depth_is_in_the_link(ball: Trace, look: Open) -> None:
    page = look(ball)
    assert not page.locator("#texts").is_visible()
    page.locator("#depth input[value=lab]").dispatch_event("click")
    until(page, "location.hash.includes('depth=lab')")
    assert page.locator("#texts").is_visible()
    assert not page.locator("#picture").is_visible()
    assert page.locator(".flow .symbol").nth(1).inner_text() == "Ġdog"
    page.locator("#depth input[value=look]").dispatch_event("click")
    until(page, "!location.hash.includes('depth')")
    assert page.locator("#picture").is_visible()


def test_the_tour_says_and_frames_what_each_stage_is_about(ball: Trace, look: Open) -> None:
    page = look(ball, reduced_motion="reduce")
    words = page.locator("#stage-words")
    page.locator("#play").click()  # shows the first stage without advancing
    assert words.inner_text() == "Embedding: each token becomes a vector of 128 numbers."
    assert page.evaluate("timer") is None
    assert page.locator("#stage-count").inner_text() == "1 / 6"
    page.locator("#later").click()
    weights = np.stack([head.weights for head in ball.blocks[0].attention.heads]).astype(float)
    excess = np.zeros_like(weights)
    for n in range(2, 8):
        others = weights[:, n, 1 : n + 1]
        excess[:, n, 1 : n + 1] = (others - others.mean(axis=-1, keepdims=True)) / (1 - 1 / n)
    head, i, j = (int(n) for n in np.unravel_index(excess.argmax(), excess.shape))
    query, key = (ball.tokens[n].text.strip() for n in (i, j))
    rest = weights[:, 1:, 0].mean()
    assert words.inner_text() == (
        "Attention 0: each token collects from the tokens that its mask lets it attend to. "
        f"{percent(rest)} of the attention drawn here rests on the first token. "
        f"The boldest line: “{query}” gives “{key}” {percent(weights[head, i, j])} of its "
        f"attention in head 0.{head}."
    )
    drawn(page)
    stage = page.evaluate("selection.stage")
    assert [stage["curve"][name] for name in ("layer", "head", "i", "j")] == [0, head, i, j]
    dimmed = page.evaluate("picture.maps.map(({ cell }) => cell.classList.contains('later'))")
    assert dimmed == [False] * 4 + [True] * 4
    page.locator("#later").click()
    most = int(np.linalg.norm(ball.blocks[0].mlp.output, axis=-1).argmax())
    assert words.inner_text() == (
        "MLP 0: each vector is changed on its own. "
        f"That of “{ball.tokens[most].text.strip()}” changes most."
    )
    assert page.evaluate("selection.stage.token") == most
    for _ in range(3):
        page.locator("#later").click()
    assert words.inner_text() == (
        "Next token: the last vector gives “rolled” a probability of 54\xa0%."
    )
    page.locator("#later").click()
    assert words.inner_text() == ""
    # On paper: the picture and all stages, on one page.
    assert len(re.findall(rb"/Type /Page\b", page.pdf(format="A4"))) == 1
    page.emulate_media(media="print")
    until(page, "document.querySelectorAll('#tour li').length === 6")
    assert page.locator("#tour li").all_inner_texts()[-1].startswith("Next token: the last vector")


def test_a_deep_models_tour_has_at_most_eight_stages(look: Open) -> None:
    odd = GPT2.from_pretrained(REFERENCE / "odd")
    page = look(gpt2_shaped(odd, 3, n_embd=96))
    page.evaluate("showStage(3)")
    assert page.locator("#stage-words").inner_text().startswith("Layers 1 to 10: attention and an")


def test_heads_are_ranked_with_the_numbers_behind_them(ball: Trace, look: Open) -> None:
    page = look(ball, "depth=lab")
    until(page, "document.querySelectorAll('#ranked tbody tr').length === 8")
    rows = [
        row.locator("th, td").all_inner_texts() for row in page.locator("#ranked tbody tr").all()
    ]
    before = probabilities(ball)
    top = before.argmax()
    effects, jobs = [], attnlab.jobs(ball)
    for name, effect, rest, attended, job in rows:
        layer, head = map(int, name.split("."))
        path = f"blocks.{layer}.attention.heads.{head}.context"
        after = probabilities(ball.edited({path: 0}))[top]
        effects.append(abs(before[top] - after))
        assert float(effect.split(" → ")[1].removesuffix("\xa0%")) == pytest.approx(
            100 * after, abs=0.51
        )
        first, *others = ball.head(layer, head).weights[-1]
        assert rest == percent(first)
        key = ball.tokens[1 + int(np.argmax(others))].symbol
        assert attended == f"{key} {percent(max(others))}"
        shares = [f" {percent(share)}" for share in jobs.attention[:, layer, head]]
        assert job == "" or job.endswith(tuple(shares))
    assert effects == sorted(effects, reverse=True)
    assert [job for *_, job in rows if job]
    page.locator("#ranked .row-button").nth(1).click()
    assert opened(page) == [1, 2]
