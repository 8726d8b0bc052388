"""The page's first screen: the story of a text, and the whole model in one picture."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE, Watched, needs
from numpy.typing import NDArray
from pages import drawn, gpt2_shaped, until

from attnlab import GPT2, Trace
from attnlab.views.page.packs import pack, packs_of_file

BALL = "The dog chased the ball, but it"
LIST = "Say: lamp two happy. Again: lamp two"

TOLD = [
    "Head 1.0: “it” looks at “ball” (100\xa0% of its attention). "
    "Without this head, “rolled” falls from 54\xa0% to 1\xa0%.",
    "Head 1.2: “it” looks at “dog” (100\xa0% of its attention). "
    "Without this head, “barked” falls from 43\xa0% to 0\xa0%.",
]
TOLD_IN_CHINESE = [
    "头 1.0: “it”关注“ball”（占其注意力的 100\xa0%）。没有这个头，“rolled”从 54\xa0% 降到 1\xa0%。",
    "头 1.2: “it”关注“dog”（占其注意力的 100\xa0%）。没有这个头，“barked”从 43\xa0% 降到 0\xa0%。",
]

# JavaScript: what a reader can use.
CONTROLS = """[...document.querySelectorAll("button, input, select, textarea, summary, a")]
    .filter((one) => one.checkVisibility() && one.getBoundingClientRect().width)"""

Look = Callable[..., Any]


@pytest.fixture(scope="module")
def pocket() -> GPT2:
    return GPT2.from_pretrained("pocket")


@pytest.fixture(scope="module")
def ball(pocket: GPT2) -> Trace:
    return pocket.trace(BALL)


@pytest.fixture
def look(watched: Watched, tmp_path: Path) -> Iterator[Look]:
    """Open a trace's page as a reader first sees it, and in the end see that it was quiet."""
    file = tmp_path / "page.html"

    def open_(trace: Trace, link: str = "depth=look", **settings: Any) -> Any:
        trace.save(file, language=settings.pop("language", "en"))
        return settled(watched.open(f"{file.as_uri()}#{link}", **settings))

    yield open_
    watched.close()
    assert watched.said == []


def settled(page: Any) -> Any:
    """Wait until a page's picture is complete."""
    until(page, "document.querySelectorAll('#story p').length > 0")
    until(page, "document.body.dataset.depth === 'lab' || picture.following.length > 0")
    until(page, "document.body.dataset.depth === 'lab' || picture.norms")
    drawn(page)
    return page


def story(page: Any) -> list[str]:
    told: list[str] = page.locator("#story p").all_inner_texts()
    return told


def opened(page: Any) -> list[int]:
    found: list[int] = page.evaluate("[selection.layer, selection.head]")
    return found


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
    heads = numbers[11:].reshape(-1, 9)
    assert heads[:, :2].tolist() == [[layer, head] for layer in range(2) for head in range(4)]
    for layer, head, key, weight, *without in heads:
        weights = trace.head(int(layer), int(head)).weights[-1]
        assert (key, weight) == (weights.argmax(), weights.max())
        path = f"blocks.{layer:.0f}.attention.heads.{head:.0f}.context"
        ablated = trace.edited({path: 0})
        assert np.allclose(without, probabilities(ablated)[ids], atol=1e-6)


def test_of_many_heads_those_that_write_most_to_the_logit_are_ablated() -> None:
    odd = GPT2.from_pretrained(REFERENCE / "odd")
    trace = gpt2_shaped(odd, 12, seed=0)
    top = trace.next_tokens(1)[0]
    # The gradient of log p is the logit's, without what all logits share on average.
    mean = np.tensordot(
        probabilities(trace),
        [trace.attribution(id).heads for id in range(trace.config.vocab_size)],
        axes=1,
    )
    wanted = np.abs(trace.attribution(top).heads - mean)
    largest = {divmod(int(n), 12) for n in np.argsort(wanted.ravel())[-8:]}
    heads = np.frombuffer(pack(trace, "story"), "<f4")[11:].reshape(-1, 9)
    assert {(int(layer), int(head)) for layer, head in heads[:, :2]} == largest
    assert len(np.frombuffer(pack(gpt2_shaped(odd, 400, n_layer=2), "story"), "<f4")) == 11 + 2 * 9


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


def test_without_parameters_there_is_no_story(
    pocket: GPT2, ball: Trace, tmp_path: Path, watched: Watched
) -> None:
    import attnlab

    ball.record(tmp_path / "ball.trace")
    recorded = attnlab.open_trace(tmp_path / "ball.trace")
    assert {"stream", "story"} & set(packs_of_file(recorded)) == {"stream"}
    recorded.save(tmp_path / "page.html")
    page = watched.open(f"{(tmp_path / 'page.html').as_uri()}#depth=look")
    until(page, "picture.norms && picture.following.length > 0")
    assert story(page) == []
    assert watched.said == []


# ---- the story on the page -----------------------------------------------------------------------


def test_the_page_opens_on_the_head_that_matters_most(ball: Trace, look: Look) -> None:
    page = look(ball)
    assert story(page) == TOLD
    assert opened(page) == [1, 0]
    assert page.locator("#head-title").inner_text() == "Layer 1, head 0"
    page.locator("#story .leads").nth(1).click()
    assert opened(page) == [1, 2]


@pytest.mark.parametrize("depth", ["look", "lab"])
def test_a_link_to_a_head_comes_first(depth: str, ball: Trace, look: Look) -> None:
    page = look(ball, f"depth={depth}&layer=0&head=3")
    assert story(page) == TOLD
    assert opened(page) == [0, 3]


def test_the_story_in_chinese(ball: Trace, look: Look) -> None:
    assert story(look(ball, language="zh")) == TOLD_IN_CHINESE


def test_the_story_of_a_playground(pocket: GPT2, watched: Watched, tmp_path: Path) -> None:
    pocket.playground(tmp_path / "model.html", BALL)
    page = settled(watched.open(f"{(tmp_path / 'model.html').as_uri()}#depth=look"))
    assert story(page) == TOLD
    assert opened(page) == [1, 0]
    assert page.evaluate(f"{CONTROLS}.length") <= 15
    page.locator("#examples button").nth(2).click()
    until(page, f"document.querySelector('#prompt').value === '{LIST}'")
    until(page, "document.querySelector('#story').innerText.includes('“two” looks')")
    assert watched.said == []


def test_the_story_of_an_explorer(pocket: GPT2, watched: Watched) -> None:
    needs("starlette", "explore")
    needs("uvicorn", "explore")
    with pocket.explore(BALL) as explorer:
        page = settled(watched.open(f"{explorer.url}#depth=look"))
        assert story(page) == TOLD
        assert opened(page) == [1, 0]
        # The same page as a text's own: after another text, its head.
        page.locator("#prompt").fill(LIST)
        page.locator("#prompt").press("Enter")
        until(page, "document.querySelector('#story').innerText.includes('“two” looks')")
        numbers = np.frombuffer(pack(pocket.trace(LIST), "story"), "<f4")[11:].reshape(-1, 9)
        before = probabilities(pocket.trace(LIST)).max()
        layer, head = numbers[np.abs(before - numbers[:, 4]).argmax(), :2]
        until(page, f"selection.layer === {layer:.0f} && selection.head === {head:.0f}")
        assert watched.said == []


# ---- the picture ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1440, 900), (1024, 768), (390, 844)])
def test_the_picture_shows_the_traces_numbers(
    size: tuple[int, int], ball: Trace, look: Look
) -> None:
    page = look(ball, viewport={"width": size[0], "height": size[1]})
    curves = page.evaluate("picture.curves.map((one) => Object.values(one))")
    found = {tuple(place): weight for *place, weight in curves}
    wanted = {
        (layer, head, i, j): float(ball.head(layer, head).weights[i, j])
        for layer, head, i, j in np.ndindex(2, 4, 8, 8)
        if j < i and ball.head(layer, head).weights[i, j] >= 0.12
    }
    assert found.keys() == wanted.keys()
    assert all(abs(found[one] - wanted[one]) < 1e-6 for one in wanted)
    words = [name.strip() for name in page.locator("#picture .line").all_inner_texts()]
    assert words == [token.text.strip() for token in ball.tokens]
    likely = page.locator(".leaving .word").all_inner_texts()
    assert likely == [token.text.strip() for token in ball.next_tokens(5)]
    # What shows without scrolling: all tokens, and no more controls than can be looked over.
    last = page.locator("#picture .line").last.bounding_box()
    assert last["y"] + last["height"] <= size[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate(f"{CONTROLS}.length") <= 15
    assert "Ġ" not in page.locator("body").inner_text()


def test_a_small_map_opens_its_head_by_pointer_and_keys(ball: Trace, look: Look) -> None:
    page = look(ball)
    page.locator(".mini").nth(1).click()
    until(page, "selection.layer === 0 && selection.head === 1")
    until(page, "scrollY > 100")
    page.locator("#up").click()
    until(page, "scrollY < 100")
    assert page.evaluate("document.activeElement.map.head") == 1
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    until(page, "selection.layer === 1 && selection.head === 2")
    assert page.locator('.mini[aria-selected="true"]').get_attribute("aria-label") == (
        "layer 1, head 2"
    )


def test_a_curve_opens_its_head(ball: Trace, look: Look) -> None:
    page = look(ball, "depth=look&layer=0&head=0")
    # The curve of 1.2 from “dog” to “it” starts alone, at its left end.
    box = page.locator(".scene > canvas").bounding_box()
    lines = [line.bounding_box() for line in page.locator("#picture .line").all()]
    dog, it = (lines[n]["y"] + lines[n]["height"] / 2 - box["y"] for n in (1, 7))
    left = page.locator(".mini").nth(4).bounding_box()["x"] - box["x"]
    for across in range(0, 300, 3):
        for share in (0.4, 0.5, 0.6):
            at = {"x": left + across, "y": dog + share * (it - dog)}
            page.locator(".scene > canvas").hover(position=at, force=True)
            told = page.locator(".scene > canvas").get_attribute("title")
            if told == "head 1.2: it → dog, 100\xa0%":
                page.locator(".scene > canvas").click(position=at, force=True)
                assert opened(page) == [1, 2]
                assert page.evaluate("[selection.query, selection.key]") == [7, 1]
                return
    raise AssertionError("no place on the curve was found")


def test_badges_have_the_numbers_of_jobs(ball: Trace, look: Look) -> None:
    page = look(ball)
    jobs = ball.jobs()
    worn = page.evaluate("picture.maps.map(({ badge }) => badge.dataset.job ?? null)")
    for n, job in enumerate(worn):
        shares = dict(zip(jobs.jobs, jobs.attention[:, n // 4, n % 4], strict=True))
        evens = dict(zip(jobs.jobs, jobs.even, strict=True))
        fitting = [name for name, x in shares.items() if x >= 0.5 and x > 2 * evens[name]]
        assert job == max(fitting, key=shares.__getitem__, default=None)
        if job:
            title = page.locator(".mini").nth(n).get_attribute("title")
            assert f": {100 * shares[job]:.0f}\xa0% of its attention goes to " in title
    assert "previous" in worn


@pytest.mark.parametrize(("T", "layers"), [(3, 12), (400, 2)])
def test_other_sizes(T: int, layers: int, look: Look) -> None:
    odd = GPT2.from_pretrained(REFERENCE / "odd")
    trace = gpt2_shaped(odd, T, n_layer=layers, seed=0)
    for width in (1440, 390):
        page = look(trace, viewport={"width": width, "height": 900})
        assert page.locator(".mini").count() == 12 * layers
        places = page.locator("#picture .line").evaluate_all("all => all.map((x) => x.place)")
        assert len(places) <= 24
        assert places[-3:] == [T - 3, T - 2, T - 1]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # No two maps lie on each other, nor on a token's line.
        boxes = [one.bounding_box() for one in page.locator(".mini canvas").all()]
        corners = {(round(box["x"]), round(box["y"])) for box in boxes}
        assert len(corners) == len(boxes)
        top = page.locator("#picture .line").first.bounding_box()["y"]
        assert max(box["y"] + box["height"] for box in boxes) <= top


# ---- depth, stages, presenting -------------------------------------------------------------------


def test_the_depth_is_in_the_link(ball: Trace, look: Look) -> None:
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


def test_the_text_flows_through_stage_by_stage(ball: Trace, look: Look) -> None:
    page = look(ball, reduced_motion="reduce")
    words = page.locator("#stage-words")
    page.locator("#play").click()  # shows the first stage, and does not move on
    assert words.inner_text() == "Embedding: each of the 8 tokens becomes a vector of 128 numbers."
    assert page.evaluate("playing.timer") is None
    page.locator("#later").click()
    weights = np.stack([np.tril(head.weights, -1) for head in ball.blocks[0].attention.heads])
    head, i, j = np.unravel_index(weights.argmax(), weights.shape)
    query, key = (ball.tokens[int(n)].text.strip() for n in (i, j))
    assert words.inner_text() == (
        "Attention 0: each token collects from the tokens that its mask lets it attend to. "
        "The largest weight drawn is "
        f"{100 * weights.max():.0f}\xa0%, of “{query}” on “{key}” in head 0.{head}."
    )
    page.locator("#later").click()
    most = ball.tokens[int(np.linalg.norm(ball.blocks[0].mlp.output, axis=-1).argmax())].text
    assert words.inner_text() == (
        f"MLP 0: each vector is changed on its own. That of “{most.strip()}” changes most."
    )
    for _ in range(3):
        page.locator("#later").click()
    assert words.inner_text() == (
        "Next token: the last vector gives “rolled” a probability of 54\xa0%."
    )
    page.locator("#later").click()
    assert words.inner_text() == ""


def test_playing_and_presenting(ball: Trace, look: Look) -> None:
    page = look(ball)
    page.locator("#play").click()
    until(page, "playing.stage === 1")
    page.locator("#play").click()
    assert page.evaluate("playing.timer") is None
    page.keyboard.press("p")
    assert not page.locator(".masthead").is_visible()
    assert page.locator("#picture").is_visible()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("playing.stage") == 2
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("playing.stage") == 1
    page.keyboard.press("Escape")
    assert page.locator(".masthead").is_visible()
