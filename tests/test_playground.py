"""The page that holds its model: its numbers, its tokens, what it generates, what it asks for."""

import json
import random
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, REFERENCE, RELATIVES, Watched
from pages import until

from attnlab import GPT2, Tokenizer, Trace, at
from attnlab.errors import InvalidValueError
from attnlab.forward.forward_pass import layer_numbers
from attnlab.support.tables import printable
from attnlab.text.tokenizer import NoTokenizer
from attnlab.views.page.packs import pack
from attnlab.views.page.page import description_of, notes_on, source

TEXT = "the hen in"

Play = Callable[..., Any]


@pytest.fixture
def play(watched: Watched, tmp_path: Path) -> Iterator[Play]:
    """Open a model's page from disk, and in the end see that it was quiet and asked nobody."""
    file = tmp_path / "model.html"

    def open_(model: GPT2, *given: Any, link: str = "", **settings: Any) -> Any:
        model.playground(file, *given)
        return watched.open(file.as_uri() + link, **settings)

    yield open_
    watched.close()
    assert watched.said == []
    assert {name for name in watched.asked if not name.startswith("blob:null/")} <= {file.as_uri()}


def model_named(name: str) -> GPT2:
    return GPT2.from_pretrained(name if name == "pocket" else REFERENCE / name)


def opened(page: Any, trace: Trace, changes: list[Any]) -> None:
    """Open a trace's tokens in the page, as `window.made`."""
    page.evaluate(
        "async ([ids, changes]) => {"
        "window.made = traceOf(await source.open({ ids }, changes), 0); }",
        [trace.tokens.ids.tolist(), changes],
    )


def numbers_of(page: Any, name: str) -> Any:
    found = page.evaluate("async (name) => [...(await source.step(made, name))]", name)
    return np.array(found, dtype=np.float64)


def off(found: Any, wanted: Any) -> float:
    """How far numbers are from others, as a share of the largest."""
    assert found.shape == wanted.shape
    finite = np.isfinite(wanted)
    assert np.array_equal(found[~finite], wanted[~finite])
    return float(np.abs(found - wanted)[finite].max() / max(1.0, np.abs(wanted[finite]).max()))


@pytest.mark.parametrize("name", ["pocket", *MODELS, *RELATIVES])
def test_its_numbers_are_the_librarys(name: str, play: Play) -> None:
    model = model_named(name)
    page = play(model)
    layers = model.config.n_layer
    for changes, edits in changes_of(model):
        trace = model.trace(TEXT).edited(edits) if edits else model.trace(TEXT)
        opened(page, trace, changes)
        T = len(trace.tokens)
        names = [
            *(f"attention.{layer}" for layer in range(layers)),
            *(f"way.{place}" for place in (0, T - 1)),
            *(f"logits.{place}" for place in (0, T - 1)),
            *("norms", "stream", "story"),
            *(f"columns.blocks.{layers - 1}.{name}.1.3" for name in WITH_COLUMNS),
            "columns.W_U.3.5",
        ]
        for pack_ in names:
            wanted = np.frombuffer(pack(trace, pack_), "<f4").astype(np.float64)
            assert off(numbers_of(page, pack_), wanted) < 1e-5, (changes, pack_)
        told = page.evaluate("(({ runs, packs, graph, names, mask, ...told }) => told)(made)")
        wanted = json.loads(json.dumps(description_of(trace, "en")))
        wanted["notes"] = notes_on(trace.tokens, "en")
        if not any("weights" in change for change in changes):  # the library adds what they sum to
            assert told["note"] == wanted["note"]
        for key in ("tokens", "edited", "excerpt", "notes", "scales"):
            assert told[key] == wanted[key], key
        for key in ("edited", "carried"):
            assert told["way"][key] == wanted["way"][key], key


def changes_of(model: GPT2) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Changes as a page asks for them, and the edits that they are."""
    first, end, last = "blocks.0", model.config.n_layer - 1, model.config.n_head - 1
    of_last = f"blocks.{end}.attention.heads.{last}"
    yield [], {}
    yield [[end, last]], {f"{of_last}.context": 0}
    several = {f"{first}.mlp.output": 0, f"{first}.attention.heads.{last}.context": 0}
    yield [[0], [0, last], [end, 0]], several | {f"blocks.{end}.attention.heads.0.context": 0}
    numbers = layer_numbers(model.config)
    places = [f"blocks.{layer}.attention" for layer in range(end + 1)]
    scales = {f"{place}.scale": numbers.get(f"{place}.layer_number", 1.0) for place in places}
    yield [["mask"]], {"mask": True}
    yield [["root"], [end, last, "weights", 150]], scales | {f"{of_last}.weights": scaled}
    other = [*reversed(model.tokenizer.encode(TEXT))]
    for step in STEPS:
        path = f"{first}.attention.heads.0.{step}"
        yield [[0, 0, step, 150]], {path: scaled}
        yield [[0, 0, step, "of", *other]], {path: at(model.trace(other), path)}


def scaled(values: Any) -> Any:
    return values * 1.5


STEPS = ("Q", "K", "V", "raw_scores", "scores", "weights", "context")

WITH_COLUMNS = (*(f"attention.W_{name}" for name in "QKVO"), "mlp.W_1", "mlp.W_2")


# ---- tokens --------------------------------------------------------------------------------------

HOSTILE = (
    *("", " ", "  ", " a", "a ", "it's we'll I'D 'tis", "\n\n \n", "\r\n\t x", "a" * 3000),
    *("\x85\u00a0\u3000x \ufeffy \u200b\u180e \u2028\u2029 z", "\x00\x1f\x7f", "<|endoftext|>"),
    *(
        "猫 吃 鱼，它",
        "👩‍👩‍👧‍👦🇩🇪é e\u0301",
        "١٢٣ ⅷ²½ 12 345",
        "\u202e</script>&quot;{x}",
        "ſ'S 'ſ",
    ),
    " " * 4000 + "x" + "\u2009" * 50,
    "ab" * 2000 + "ᾳΑΙ" * 500,
)


def random_texts(count: int) -> list[str]:
    """Texts of letters, spaces and signs of all kinds, all of them assigned."""
    chosen = random.Random(0)
    used = [chr(n) for n in range(sys.maxunicode + 1) if unicodedata.category(chr(n))[1] != "s"]
    used = [letter for letter in used if unicodedata.category(letter) not in ("Cn", "Co")]
    common = " \n\t\x85\u00a0\u2003\ufeff'sdtmvelr.,!?09AZaz€éßäøñ"

    def letter() -> str:
        return chosen.choice(common if chosen.random() < 0.7 else used)

    return ["".join(letter() for _ in range(chosen.randrange(40))) for _ in range(count)]


@pytest.mark.slow
def test_its_tokens_are_tiktokens(browser: Any, gpt2_tokenizer: Tokenizer) -> None:
    page = browser.new_page()
    page.add_script_tag(content=source("bpe.js"))
    page.evaluate("(data) => { window.made = new Tokenizer(data); }", gpt2_tokenizer.as_data())
    texts = [*HOSTILE, *random_texts(10_000)]
    found = page.evaluate("(texts) => texts.map((text) => made.encode(text))", texts)
    assert found == [gpt2_tokenizer.encode(text) for text in texts]
    shown = page.evaluate("(all) => all.map((ids) => made.tokens(ids))", found[:2000])
    for text, tokens in zip(texts, shown, strict=False):
        wanted = gpt2_tokenizer.tokens(text)
        assert [(one["symbol"], one["text"], one["bytes"]) for one in tokens] == [
            (printable(one.symbol), printable(one.text), one.bytes.hex(" ")) for one in wanted
        ]
        assert [one["part_of"] for one in tokens] == [*map(printable, wanted.part_of)]
    page.close()


# ---- what a reader does --------------------------------------------------------------------------


def idle(page: Any) -> None:
    until(page, "document.querySelector('#explore').ariaBusy !== 'true'")
    until(page, "document.querySelector('main').ariaBusy !== 'true'")


def ask(page: Any, text: str) -> None:
    page.locator("#prompt").fill(text)
    page.locator("#prompt").press("Enter")
    idle(page)


@pytest.fixture(scope="module")
def pocket() -> GPT2:
    return GPT2.from_pretrained("pocket")


def written(page: Any, ids: list[int], **how: Any) -> list[int]:
    found = page.evaluate(
        "async ([ids, how]) => (await source.generate({ ids, ablated: [] }, how)).ids", [ids, how]
    )
    return list(found)


@pytest.mark.parametrize("name", ["pocket", "odd", "sharded", "gelu"])
def test_it_writes_what_the_library_writes(name: str, play: Play) -> None:
    model = model_named(name)
    page = play(model)
    prompt = model.tokenizer.encode(TEXT)
    greedy = {"temperature": 0, "top_k": None, "top_p": None}
    positions = model.config.n_positions
    room = positions - len(prompt)
    wanted = model.generate(TEXT, min(30, room), temperature=0).tokens.ids.tolist()
    assert written(page, prompt, count=min(30, room), **greedy) == wanted
    assert len(written(page, prompt, count=100, **greedy)) == min(len(prompt) + 100, positions)
    drawn = {"count": 10, "temperature": 1.5, "top_k": 7, "top_p": 0.9}
    first, again, other = (written(page, prompt, seed=seed, **drawn) for seed in (1, 1, 2))
    assert first == again != other


def test_texts_heads_and_what_is_compared(pocket: GPT2, play: Play) -> None:
    page = play(pocket)
    assert page.locator("#prompt").input_value() == "The dog chased the ball, but it"
    ask(page, "The hen saw the cat")
    page.locator(".grid >> nth=0 >> .map >> nth=6").click()
    idle(page)
    page.locator("#head-toggle").click()
    page.locator("#compare").check()
    idle(page)
    before = pocket.trace("The hen saw the cat")
    after = before.edited({"blocks.1.attention.heads.2.context": 0})
    for nth, trace in enumerate((before, after)):
        wanted = [token.probability for token in trace.next_tokens(5)]
        list_ = f"document.querySelectorAll('.next')[{nth}]"
        found = f"[...{list_}.querySelectorAll('data')].map((x) => +x.value)"
        until(page, f"Math.abs({found}[0] - {wanted[0]}) < 1e-5")
        assert page.evaluate(found) == pytest.approx(wanted, abs=1e-5)
    page.locator("#back").click()
    page.locator("#compare").uncheck()
    idle(page)
    page.locator("#write").click()
    until(page, "document.querySelectorAll('#sampled li').length === 10")
    assert page.locator("#prompt").input_value().startswith("The hen saw the cat")


def test_steps_are_changed(pocket: GPT2, play: Play) -> None:
    page = play(pocket)
    ask(page, "The cat chased the ball, but it")
    page.locator(".grid >> nth=0 >> .map >> nth=6").click()
    page.locator("#changes summary").click()
    probability = "+document.querySelector('.next data')?.value"

    def shows(edits: dict[str, Any], words: str) -> None:
        trace = pocket.trace("The cat chased the ball, but it").edited(edits)
        wanted = trace.next_tokens(1)[0].probability
        until(page, f"Math.abs({probability} - {wanted}) < 1e-5")
        idle(page)
        assert " ".join(page.locator("#ablated").inner_text().split()) == words

    path = "blocks.1.attention.heads.2"
    page.locator("#factor").fill("50")
    shows({f"{path}.weights": halved}, "Edited: layer 1, head 2: weights × 0.5 ×")
    assert page.locator("#formula").inner_text().endswith(", edited")
    page.locator("#ablated button").click()
    page.locator("#changed-step").select_option("context")
    page.locator("#back").click()
    page.locator("#back").click()
    ask(page, "The cat chased the ball, but it")
    page.locator("#patch").click()
    other = pocket.trace("The dog chased the ball, but it")
    shows(
        {f"{path}.context": at(other, f"{path}.context")},
        "Edited: layer 1, head 2: context of another text ×",
    )
    page.locator("#mask-toggle").check()
    shows(
        {f"{path}.context": at(other, f"{path}.context"), "mask": True},
        "Edited: layer 1, head 2: context of another text × no causal mask ×",
    )
    until(page, "location.hash.includes('mask')")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    until(page, "document.querySelectorAll('#ablated button').length === 2")
    idle(page)
    ask(page, "The cat")
    until(page, "document.querySelector('#told').textContent !== ''")
    assert (
        page.locator("#told").inner_text().startswith("The other text has 8 tokens and this one 2")
    )


def halved(values: Any) -> Any:
    return values * 0.5


def test_what_it_refuses(pocket: GPT2, play: Play) -> None:
    page = play(pocket)
    for text, told in (
        ("", "Enter a text to trace."),
        ("the " * 200, "The text has 202 tokens; this model reads at most 128, up to"),
    ):
        ask(page, text)
        until(page, "document.querySelector('#told').textContent !== ''")
        assert page.locator("#told").inner_text().startswith(told)
    half = "source.open({ text: 'a\\ud800' }, []).catch((error) => error.message)"
    assert page.evaluate(half) == "text has half of a surrogate pair, '\\ud800', at index 1"
    assert page.evaluate("source.open({ ids: [979] }, []).catch((error) => error.message)") == (
        "token id 979 isn't in the vocabulary; ids are 0 to 978"
    )


def test_hostile_texts(pocket: GPT2, play: Play) -> None:
    hostile = "</script><img src=x onerror=alert(1)><b>{name}\u202e\0"
    page = play(pocket, hostile)
    assert page.locator("#prompt").input_value().replace("\r", "") == hostile
    ask(page, f"{hostile} again")
    assert page.locator("img").count() == 0


def test_an_address_opens_what_it_names(pocket: GPT2, play: Play) -> None:
    ids = pocket.tokenizer.encode("The hen saw the cat")
    named = ".".join(map(str, ids))
    page = play(pocket, link=f"#layer=1&head=2&ids={named}&ablate=1.2+0")
    until(page, "document.querySelectorAll('.flow .chip').length === " + str(len(ids)))
    idle(page)
    silenced = page.locator("#ablated button").all_inner_texts()
    assert silenced == ["layer 1, head 2 ×", "MLP of layer 0 ×"]
    assert page.locator("#head-title").inner_text() == "Layer 1, head 2"


def test_what_no_page_is_written_of(pocket: GPT2, tmp_path: Path) -> None:
    file = tmp_path / "model.html"
    with pytest.raises(InvalidValueError, match=r"end in \.html"):
        pocket.playground(tmp_path / "model.pdf")
    with pytest.raises(InvalidValueError, match="only GPT-2's byte pair encoding"):
        GPT2(pocket.parameters, NoTokenizer(979)).playground(file, [1, 2])
    assert list(tmp_path.iterdir()) == []
    pocket.playground(file)
    assert file.stat().st_size < 3_000_000
