"""The page that includes its model: numbers, tokens, generation, requests."""

import json
import random
import sys
import unicodedata
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chinese import write_checkpoint
from conftest import REFERENCE, RELATIVES
from numpy.typing import NDArray
from pages import (
    BALL,
    LOADED,
    UNCAUSAL,
    UNSCALED,
    ablation,
    ask,
    idle,
    in_base64,
    scaling,
    silencing,
    to_cell,
    toggling,
    until,
)

import attnlab
from attnlab import GPT2, Tokenizer, Trace
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.errors import AttnlabError, InvalidValueError
from attnlab.forward.forward_pass import layer_numbers
from attnlab.forward.parameters import stored_shapes
from attnlab.pages.packs import pack
from attnlab.pages.saved import description_of
from attnlab.support.tables import printable
from attnlab.text.tokenizer import NoTokenizer
from attnlab.training.parameters import initial_parameters

TEXT = "the hen in"

Play = Callable[..., Any]

# JavaScript: the probability of the most probable next word.
BEST = "texts[0].next?.[0].probability"


KINDS = ("pocket", "english", "odd", "float64", *RELATIVES)


def model_named(name: str) -> GPT2:
    return GPT2.from_pretrained(name if name in BUILT_IN else REFERENCE / name)


def opened(page: Any, trace: Trace, changes: list[Any]) -> None:
    """Open a trace's tokens in the page, as `window.made`."""
    page.evaluate(
        "async ([ids, changes]) => {"
        "window.made = traceOf(await source.open({ ids }, changes), 0); }",
        [trace.tokens.ids.tolist(), changes],
    )


def packs_of(page: Any, *names: str) -> list[NDArray[np.float64]]:
    """Packs of the open trace."""
    packs = page.evaluate(
        """async (names) => {
            const packs = [];
            for (const name of names) {
                const { buffer, byteOffset, byteLength } = await source.pack(made, name);
                packs.push(new Uint8Array(buffer, byteOffset, byteLength).toBase64());
            }
            return packs;
        }""",
        list(names),
    )
    return [np.frombuffer(b64decode(pack), "<f4").astype(np.float64) for pack in packs]


def off(actual: Any, expected: Any) -> float:
    """The difference of numbers, relative to the largest."""
    assert actual.shape == expected.shape
    finite = np.isfinite(expected)
    assert np.array_equal(actual[~finite], expected[~finite])
    return float(np.abs(actual - expected)[finite].max() / max(1.0, np.abs(expected[finite]).max()))


@pytest.mark.parametrize("name", [*KINDS, "chinese", "untied", "averaged"])
def test_its_numbers_are_the_librarys(name: str, play: Play, tmp_path: Path) -> None:
    write = {"untied": untied, "chinese": write_checkpoint, "averaged": averaged}.get(name)
    model = GPT2.from_pretrained(write(tmp_path)) if write else model_named(name)
    count = None if name == "pocket" else 3
    check_numbers(play(model), model, islice(changes_of(model), count))


# JavaScript: overwrite scratch memory as soon as it is free.
OVERWRITTEN = """
const { inScratch: original } = Products.prototype;
Products.prototype.inScratch = function (f) {
    const result = original.call(this, f);
    const { buffer, byteOffset } = this.allocate(0) ?? this.scratch;
    new Float32Array(buffer, byteOffset, 2 ** 16).fill(NaN);
    return result;
};
"""


# JavaScript: run the page's model anew, with a script added to the worker's.
ANEW = """([script, base64]) => {
    byId("worker").textContent += script;
    const numbers = new Float32Array(bytesOf(base64).buffer);
    setSource(new ModelSource(description.model, Promise.resolve({ numbers })));
}"""


@pytest.mark.parametrize(("name", "module"), [("odd", 0), ("reordered", 1)])
def test_numbers_with_each_module_and_not_in_freed_memory(
    name: str, module: int, play: Play
) -> None:
    model = model_named(name)
    page = play(model)
    stored = [model.parameters.stored(path).ravel() for path in stored_shapes(model.config)]
    numbers = in_base64(np.concatenate(stored, dtype="<f4").tobytes())
    page.evaluate(ANEW, [f"MODULES.splice(0, {module}); {OVERWRITTEN}", numbers])
    check_numbers(page, model, changes_of(model))


def untied(directory: Path) -> Path:
    """A model with an untied output matrix."""
    odd = GPT2.from_pretrained(REFERENCE / "odd")
    config = replace(odd.config, tie_word_embeddings=False)
    parameters = initial_parameters(config, np.random.default_rng(0))
    GPT2(parameters, odd.tokenizer).save(directory)
    return directory


def averaged(directory: Path) -> Path:
    """A model with heads' averages."""
    odd = GPT2.from_pretrained(REFERENCE / "odd")
    odd.averages = attnlab.averages(odd, [TEXT[::-1], TEXT[:5]])
    odd.save(directory)
    return directory


def check_numbers(
    page: Any, model: GPT2, all_changes: Iterable[tuple[list[Any], dict[str, Any]]]
) -> None:
    """Compare all packs of a page's model, edited and not."""
    layers = model.config.n_layer
    for changes, edits in all_changes:
        trace = model.trace(TEXT).edited(edits) if edits else model.trace(TEXT)
        opened(page, trace, changes)
        T = len(trace.tokens)
        names = [
            *(f"attention.{layer}" for layer in range(layers)),
            *(f"pass.{place}" for place in (0, T - 1)),
            *(f"logits.{place}" for place in (0, T - 1)),
            *("norms", "stream", "story"),
            *(f"columns.blocks.{layers - 1}.{name}.1.3" for name in WITH_COLUMNS),
            "columns.W_U.3.5",
        ]
        for name, actual in zip(names, packs_of(page, *names), strict=True):
            kind, _, place = name.partition(".")
            expected = (
                trace.logits[int(place)].astype(np.float64)
                if kind == "logits"
                else np.frombuffer(pack(trace, name), "<f4").astype(np.float64)
            )
            assert off(actual, expected) < 1e-5, (changes, name)
        described = page.evaluate(
            "(({ graph, names, mask, ...described }) => described)(made.described)"
        )
        for token in described["tokens"]:  # their names in Look are the page's own
            del token["word"]
            token.pop("piece", None)
        expected = json.loads(json.dumps(description_of(trace)))
        for key in ("tokens", "edited", "excerpt", "layers", "H", "Dh"):
            assert described[key] == expected[key], key
        assert np.allclose(described["scales"], expected["scales"], rtol=1e-7)
        for key in ("edited", "packed", "D", "F", "vocab", "activation", "steps"):
            assert described["pass"][key] == expected["pass"][key], key
        assert page.evaluate("description.steps.scale.formula") == head_of(trace).formula_of(
            "scale"
        )
        for key in ("vocab", "rows", "n"):
            assert described["prediction"][key] == expected["prediction"][key], key


def head_of(trace: Trace) -> Any:
    return trace.blocks[0].attention.heads[0]


def changes_of(model: GPT2) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Changes as the page sends them, with the equivalent edits."""
    first, end, last = "blocks.0", model.config.n_layer - 1, model.config.n_head - 1
    of_last = f"blocks.{end}.attention.heads.{last}"
    yield [], {}
    yield [ablation(end, last)], silencing(model, end, last)
    yield (
        [ablation(0), ablation(0, last), ablation(end, 0)],
        {f"{first}.mlp.output": 0} | silencing(model, 0, last) | silencing(model, end, 0),
    )
    numbers = layer_numbers(model.config)
    places = [f"blocks.{layer}.attention" for layer in range(end + 1)]
    scales = {f"{place}.scale": numbers.get(f"{place}.layer_number", 1.0) for place in places}
    yield [UNCAUSAL], {"mask": True}
    T = len(model.tokenizer.encode(TEXT))
    by_hand = np.tri(T, dtype=bool)
    by_hand[2, 1], by_hand[0, 2] = False, True
    cells = toggling(0, last, [2, 1], [0, 2], [0, T])  # the last one is outside
    yield [cells], {f"{first}.attention.heads.{last}.mask": by_hand}
    yield [UNSCALED, scaling(end, last, "weights", 1.5)], scales | {f"{of_last}.weights": scaled}
    for step in STEPS:
        path = f"{first}.attention.heads.0.{step}"
        yield [scaling(0, 0, step, 1.5)], {path: scaled}


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
    """Texts of assigned letters, spaces and signs of all kinds."""
    chosen = random.Random(0)
    used = [chr(n) for n in range(sys.maxunicode + 1) if unicodedata.category(chr(n))[1] != "s"]
    used = [letter for letter in used if unicodedata.category(letter) not in ("Cn", "Co")]
    common = " \n\t\x85\u00a0\u2003\ufeff'sdtmvelr.,!?09AZaz€éßäøñ"

    def letter() -> str:
        return chosen.choice(common if chosen.random() < 0.7 else used)

    return ["".join(letter() for _ in range(chosen.randrange(40))) for _ in range(count)]


@pytest.mark.slow
def test_its_tokens_are_tiktokens(pure: Any, gpt2_tokenizer: Tokenizer) -> None:
    made = "(data) => { globalThis.made = new Tokenizer(data); }"
    pure.evaluate(made, gpt2_tokenizer.as_data())
    texts = [*HOSTILE, *random_texts(4_000)]
    actual = pure.evaluate("(texts) => texts.map((text) => made.encode(text))", texts)
    assert actual == [gpt2_tokenizer.encode(text) for text in texts]
    shown = pure.evaluate("(all) => all.map((ids) => made.tokens(ids))", actual[:2000])
    for text, tokens in zip(texts, shown, strict=False):
        expected = gpt2_tokenizer.tokens(text)
        assert [(one["symbol"], one["text"], one["bytes"]) for one in tokens] == [
            (printable(one.symbol), printable(one.text), one.bytes.hex(" ")) for one in expected
        ]
        assert [one["part_of"] for one in tokens] == [*map(printable, expected.part_of)]


# ---- what a reader does --------------------------------------------------------------------------


def written(page: Any, ids: list[int], *changes: dict[str, Any], **how: Any) -> list[int]:
    """The ids and what follows, by default the most probable tokens."""
    generate = "async ([trace, how]) => (await source.generate(trace, how)).chosen"
    settings = {"temperature": 0, "top_k": None, "top_p": None, **how}
    chosen = page.evaluate(generate, [{"ids": ids, "changes": changes}, settings])
    return [*ids, *(token["id"] for token in chosen)]


# JavaScript: what is done first, the ablations that were asked for, or a longer request after them.
ORDER = """async () => {
    const [trace, order] = [traces.at(-1), []];
    const settings = { count: 20, seed: 0, temperature: 1, top_k: null, top_p: null };
    await Promise.all([
        source.read(trace, "story").then(() => order.push("ablations")),
        source.generate(trace, settings).then(() => order.push("text")),
    ]);
    return order;
}"""


def test_ablations_wait_for_all_else(pocket: GPT2, play: Play) -> None:
    page = play(pocket, "The cat")
    assert page.evaluate(ORDER) == ["text", "ablations"]
    # Those of a text that is no longer shown are given up. They are asked for by the first message
    # that is sent; no answer can come before what follows in the same task.
    idle(page)
    given_up = """async () => {
        const [sent, post] = [[], Worker.prototype.postMessage];
        const asked = new Promise((go) => {
            Worker.prototype.postMessage = function (...given) {
                sent.push(given[0]);
                post.apply(this, given);
                go();
            };
        });
        source.read(traces[0], "story").catch(() => {});
        await asked;
        openTraces([requests.kept[0]]);
        return sent;
    }"""
    story, *others = page.evaluate(given_up)
    assert story["parameters"]["name"] == "story"
    assert {"n": story["n"], "stop": True} in others


def test_what_is_edited_in_a_text_of_one_token_is_not_silenced(pocket: GPT2, play: Play) -> None:
    page = play(pocket, "The", link="#depth=lab&ablate=1.2.context.50&layer=1&head=2")
    until(page, "requests.kept.at(-1).changes.length === 1")
    idle(page)
    assert page.locator("#is-ablated").is_hidden()
    assert page.locator(".ablation").count() == 0


@pytest.mark.parametrize("name", ["pocket", "odd"])
def test_it_writes_what_the_library_writes(name: str, play: Play) -> None:
    model = model_named(name)
    page = play(model)
    prompt = model.tokenizer.encode(TEXT)
    positions = model.config.n_positions
    room = positions - len(prompt)
    expected = model.generate(TEXT, min(30, room), temperature=0).tokens.ids.tolist()
    assert written(page, prompt, count=min(30, room)) == expected
    assert len(written(page, prompt, count=100)) == min(len(prompt) + 100, positions)
    drawn = {"count": 10, "temperature": 1.5, "top_k": 7, "top_p": 0.9}
    first, again, other = (written(page, prompt, seed=seed, **drawn) for seed in (1, 1, 2))
    assert first == again != other


def test_steps_are_changed(pocket: GPT2, play: Play) -> None:
    page = play(pocket)
    ask(page, "The cat chased the ball, but it")
    page.evaluate("openHead(1, 2)")
    page.locator("#changes summary").click()

    def shows(edits: dict[str, Any], words: str) -> None:
        trace = pocket.trace("The cat chased the ball, but it").edited(edits)
        expected = trace.next_tokens(1)[0].probability
        until(page, f"Math.abs({BEST} - {expected}) < 1e-5")
        idle(page)
        assert " ".join(page.locator("#ablated").inner_text().split()) == words

    halved = {"blocks.1.attention.heads.2.weights": lambda x: x * 0.5}
    page.locator("#factor").fill("50")
    shows(halved, "Edited: layer 1, head 2: weights × 0.5 ×")
    page.locator("#uncausal").check()
    edits = halved | {"mask": True}
    shows(edits, "Edited: layer 1, head 2: weights × 0.5 × no causal mask × give all back")
    # Before and after stand in the fan, and in a sentence.
    words = "The cat chased the ball, but it"
    both = [pocket.trace(words), pocket.trace(words).edited(edits)]
    largest = {token.id for trace in both for token in trace.next_tokens(4)}
    before, after = ({one.id: one.probability for one in each.next_tokens(979)} for each in both)
    shown = page.evaluate("comparedWords(texts[0]).map(({ id, ...shares }) => [id, shares])")
    assert {id for id, _ in shown} == largest
    for id, found in shown:
        assert [found["before"], found["after"]] == pytest.approx([before[id], after[id]], abs=1e-5)
    assert page.locator(".next-words .its-share b").count() == 4
    assert "With these edits, “" in page.locator("#said").inner_text()
    until(page, "location.hash.includes('mask')")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    until(page, "document.querySelectorAll('#ablated button').length === 3")
    idle(page)


def test_numbers_that_overflow_are_refused(pocket: GPT2, play: Play) -> None:
    """LayerNorm's are 0 then, and the prediction looks like any other."""
    page = play(pocket, TEXT)
    huge = [{"kind": "scale", "layer": 0, "head": 0, "step": "V", "factor": 1e30}]
    with pytest.raises(AttnlabError, match="overflows: its numbers, or intermediate ones, are too"):
        pocket.trace(TEXT).edited({"blocks.0.attention.heads.0.V": lambda V: V * 1e30}).logits  # noqa: B018
    page.evaluate("(changes) => requestTrace({ ids: traces.at(-1).ids }, changes)", huge)
    until(page, "byId('status').textContent !== ''")
    assert page.locator("#status").inner_text().startswith("The model's numbers for this text are")
    assert page.locator(".next-words li").count() == 0
    page.locator("#ablated button").click()
    until(page, "document.querySelectorAll('.next-words li').length === 4")


def test_hostile_texts(pocket: GPT2, play: Play) -> None:
    hostile = "</script><img src=x onerror=window.hacked=1><b>{name}\u202e\0"
    page = play(pocket, hostile)
    assert page.locator("#prompt").input_value().replace("\r", "") == hostile
    ask(page, f"{hostile} again")
    idle(page)
    count = page.evaluate("traces[0].T")
    page.locator(".next-words button").first.click()
    until(page, f"traces[0].T === {count + 1}")
    assert page.locator("main img, main b b").count() == 0
    assert page.evaluate("typeof window.hacked") == "undefined"


def test_what_no_page_is_written_of(pocket: GPT2, tmp_path: Path) -> None:
    file = tmp_path / "model.html"
    with pytest.raises(InvalidValueError, match=r"end in \.html"):
        attnlab.playground(pocket).save(tmp_path / "model.pdf")
    with pytest.raises(AttnlabError, match="this model has no tokenizer"):
        attnlab.playground(GPT2(pocket.parameters, NoTokenizer(979)), [1, 2]).save(file)
    arrays = {path: np.array(array, "float64") for path, array in pocket.parameters.items()}
    arrays["W_E"][5, 5] = 1e39  # of a token that isn't in the text
    with pytest.raises(InvalidValueError, match="numbers too large for float32, which the page"):
        attnlab.playground(
            GPT2.from_arrays(pocket.config, arrays, pocket.tokenizer, dtype="float64")
        ).save(file)
    assert list(tmp_path.iterdir()) == []
    attnlab.playground(pocket).save(file)
    assert file.stat().st_size < 3_000_000


def test_characters_of_larger_tokens_are_usual(pure: Any) -> None:
    data = Tokenizer.from_directory(REFERENCE / "tokenizers" / "two_files").as_data()
    unusual = """([data, text]) => {
        const tokenizer = new Tokenizer(data);
        const words = wordsIn(charactersIn(tokenizer.tokens(tokenizer.encode(text))));
        return difficultIn(words, [], { names: [], isExact: true }).spelledOut;
    }"""
    assert pure.evaluate(unusual, [data, "a’b"]) == []  # which is a token
    assert pure.evaluate(unusual, [data, "b\u202e"]) == []
    assert pure.evaluate(unusual, [data, "aΩ"]) == ["aΩ"]


# ---- progress, cancel ----------------------------------------------------------------------


def test_progress_is_shown_and_what_runs_is_cancelled(pocket: GPT2, play: Play) -> None:
    page = play(pocket)
    until(page, "byId('working').ariaBusy !== 'true' && traces.at(-1).story !== undefined")
    assert not page.locator("#working").is_visible()
    progress = page.evaluate(
        """async () => {
            const progress = [];
            const hear = reports.progress;
            const write = (count) =>
                source.generate({ ids: [1, 2], changes: [] }, { count, temperature: 0 });
            source.stop(); // what completes the next words, whose reports would come between
            await write(1); // answered after what was stopped
            reports.progress = (part) => { progress.push(part); hear(part); };
            await write(20);
            return progress;
        }"""
    )
    assert progress == sorted(progress)  # a quick computation reports only its end
    assert progress[-1] == 1
    # What begins meanwhile doesn't take the bar back; without a value, it is at 0.
    show = "(part) => { showProgress(part); return byId('progress').value; }"
    values = page.evaluate(f"[0.8, 0.1, 0.9, 1, 0.1, 1].map({show})")
    assert values == [0.8, 0.8, 0.9, 0, 0.1, 0]
    # What is computed quickly moves nothing on the page.
    assert not page.evaluate("(showProgress(0.4), byId('working').checkVisibility())")
    page.locator("#working").wait_for(state="visible")
    assert page.locator("#progress").evaluate("(bar) => bar.value") == 0.4
    page.evaluate("showProgress(1)")
    assert not page.locator("#working").is_visible()
    page.evaluate(
        """() => {
            request((signal) => source.generate(latest(), { count: 100, ...settings }, signal));
            setTimeout(() => byId("cancel").click(), 20);
        }"""
    )
    until(page, "document.querySelector('#status').textContent === 'Cancelled.'")
    idle(page)
    assert page.locator("#prompt").input_value() == "The dog chased the ball, but it"
    # What is still computed of the text that is shown: the text before is shown again.
    ask(page, "The hen")
    page.evaluate("byId('cancel').click()")
    idle(page)
    assert page.locator("#prompt").input_value() == "The dog chased the ball, but it"
    assert page.locator("#status").inner_text() == "Cancelled."
    ask(page, "The hen")
    assert page.locator("#status").inner_text() == ""


def test_what_is_cancelled_is_said_once_and_can_be_read_again(pocket: GPT2, play: Play) -> None:
    page = play(pocket)
    until(page, "traces.at(-1).story !== undefined")
    # What completes a next word; an error that nothing handles would fail the test at its end.
    rest = page.evaluate(
        """() => {
            const token = traces[0].tokens.find(({ symbol }) => /[a-z]$/.test(symbol));
            const rest = completionOf(traces[0], token.id);
            source.stop();
            return rest;
        }"""
    )
    assert rest == ""
    # What the page writes by itself.
    status = page.evaluate(
        """async () => {
            const { generate } = source;
            source.generate = async () => { throw new DOMException("", "AbortError"); };
            const writing = toggleWriting();
            cancel();
            await writing;
            source.generate = generate;
            return selection.status;
        }"""
    )
    assert status == "Cancelled."
    assert not page.evaluate("selection.isWriting")
    # A text whose request was aborted before the worker got it.
    opening = "source.open({ ids: [1] }, [], AbortSignal.abort()).catch(({ name }) => name)"
    assert page.evaluate(opening) == "AbortError"
    # A token's pass.
    position = page.evaluate(
        """async () => {
            const trace = { ...traces[0], packs: new Map(), passes: new Map() };
            source.read = async () => { throw new DOMException("", "AbortError"); };
            passOf(trace, 2);
            await new Promise((done) => setTimeout(done));
            delete source.read;
            const hung = new Promise((done) => setTimeout(done, 10_000));
            return (await Promise.race([passOf(trace, 2), hung]))?.position;
        }"""
    )
    assert position == 2


def test_what_belongs_to_the_second_of_two_traces_goes_with_it(pocket: GPT2, play: Play) -> None:
    page = play(pocket)
    ask(page, "The hen")
    page.evaluate("set({ isComparing: true })")
    until(page, "traces.length === 2 && predictions().length === 2")
    # A drawing that was requested before, for the next frame, would raise an error.
    page.evaluate("() => { drawPredictions(); set({ isComparing: false }); }")
    page.evaluate("nextFrame()")
    # The chosen step of the forward pass, also in Look, which doesn't show it.
    page.evaluate("set({ isComparing: true })")
    until(page, "traces.length === 2")
    page.evaluate("() => { goTo('final', 0, 1); setDepth('look'); set({ isComparing: false }); }")
    page.evaluate("() => { followLink('#stop=embedding'); }")
    assert page.evaluate("[selection.chosenStep.trace, selection.chosenStep.path]") == [
        0,
        "embedding",
    ]


def test_it_runs_in_a_notebooks_frame(pocket: GPT2, browser: Any, tmp_path: Path) -> None:
    frame = attnlab.playground(pocket)
    assert frame is not None
    outer = tmp_path / "notebook.html"
    outer.write_text(f"<!doctype html>{frame._repr_html_()}", encoding="utf-8")
    page = browser.new_page()
    page.goto(outer.as_uri())
    inner = page.frames[1]
    until(inner, LOADED)
    ask(inner, "The hen saw the cat")
    expected = pocket.trace("The hen saw the cat").next_tokens(1)[0].probability
    until(inner, f"Math.abs({BEST} - {expected}) < 1e-5")
    page.close()


@pytest.mark.parametrize(
    ("policy", "forbidding"),
    [("worker-src blob:", "worker-src 'none'"), ("'wasm-unsafe-eval' ", "")],
)
def test_a_host_that_forbids_the_worker_or_webassembly(
    policy: str, forbidding: str, pocket: GPT2, browser: Any, tmp_path: Path
) -> None:
    """Without a worker a sentence says so; without WebAssembly the page computes, slower."""
    html = attnlab.playground(pocket, BALL).html
    assert html.count(policy) == 1
    (tmp_path / "page.html").write_text(html.replace(policy, forbidding), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    if "worker" in policy:
        said = "document.querySelector('#status').textContent"
        until(page, f"{said}.startsWith('This page computes in a worker, which the page')")
        page.locator("#prompt").fill("The cat")
        until(page, "!selection.isBusy && selection.typed === 'The cat'")
        until(page, f"{said}.startsWith('This page computes in a worker')")
    else:
        until(page, "document.querySelector('#said').textContent.includes('“it” looks at “ball”')")
    page.close()


def test_a_mask_is_drawn_by_hand(pocket: GPT2, play: Play) -> None:
    page = play(pocket)
    ask(page, "The hen saw the cat")
    unchanged = pocket.trace("The hen saw the cat")
    T = len(unchanged.tokens)
    page.evaluate("openHead(1, 2)")
    mask = np.tri(T, dtype=bool)

    def shows(words: str) -> None:
        trace = unchanged.edited({"blocks.1.attention.heads.2.mask": mask})
        idle(page)
        assert " ".join(page.locator("#ablated").inner_text().split()) == words
        logits = page.evaluate(f"source.pack(traces[0], 'logits.{T - 1}').then((x) => [...x])")
        assert np.allclose(logits, trace.next_logits, atol=1e-4)
        weights = page.evaluate("[...matrixOf(views[0], { ...selection, step: 'weights' })]")
        assert np.allclose(weights, trace.head(1, 2).weights.ravel(), atol=1e-5)

    to_cell(page, T - 1, 1)
    page.keyboard.press("m")
    mask[T - 1, 1] = False
    shows("Edited: layer 1, head 2: 1 cell of the mask ×")
    to_cell(page, 1, 3)
    page.keyboard.press("m")
    mask[1, 3] = True
    shows("Edited: layer 1, head 2: 2 cells of the mask ×")
    page.locator("#changes summary").click()
    to_cell(page, T - 1, 1)
    until(page, "byId('cell-toggle').ariaPressed === 'true'")
    page.locator("#cell-toggle").click()
    mask[T - 1, 1] = True
    shows("Edited: layer 1, head 2: 1 cell of the mask ×")
    to_cell(page, 0, 0)
    page.keyboard.press("m")
    until(page, "document.querySelector('#status').textContent !== ''")
    assert page.locator("#status").inner_text() == "The mask must leave query 0 at least one key."
    shows("Edited: layer 1, head 2: 1 cell of the mask ×")
    # A token that is written has a row of the mask, too.
    *prompt, it = pocket.tokenizer.encode("The dog chased the ball, but it")
    mask = np.tri(8, dtype=bool)
    mask[7, 1:] = False
    trace = pocket.trace([*prompt, it]).edited({"blocks.1.attention.heads.0.mask": mask})
    toggled = toggling(1, 0, *([7, key] for key in range(1, 8)))
    expected = [*prompt, it, trace.next_tokens(1)[0].id]
    assert written(page, prompt, toggled, count=2) == expected
