"""A token's steps through the model, on the page: compared with the library, in a browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE, Open, Watched
from numpy.typing import NDArray
from pages import LOAD_ALL, OTHER, TEXT, numbers, to_cell, until

import attnlab
from attnlab import GPT2, GPT2Config, Trace, at
from attnlab.forward.forward_pass import KeyValueCache
from attnlab.forward.parameters import ParameterVector, parameter_count
from attnlab.pages.packs import pack, packs_of_file
from attnlab.pages.prediction import TOKENS, predicted_positions
from attnlab.pages.token_pass import BUDGET, listed_paths
from attnlab.views.explaining.explanation import Line, Parts, Term

# Tolerance of the page's numbers, relative to the row's largest.
SLACK = 1e-6

# JavaScript: all rows of a token's steps by path; [] for unavailable ones.
ROWS = """async ([number, position]) => {
    const trace = traces[number];
    for (let layer = 0; layer < trace.layers; layer++) await loadLayer(trace, layer);
    const pass = await passOf(trace, position);
    pass.following = await readFollowing(pass.trace, pass.position);
    const row = (stop) => [...(rowAt(pass, stop) ?? [])];
    return Object.fromEntries(pass.steps.map((step) => [step.path, row(step)]));
}"""

# JavaScript: the positions whose steps the page can show.
POSITIONS = "traces[0].tokens.map((_, i) => i).filter((i) => source.has(traces[0], `pass.${i}`))"


def row_of(trace: Trace, path: str, position: int) -> NDArray[Any]:
    """A token's row of a step, by the library; heads concatenated."""
    step = at(trace, path)
    if step.ndim == 2:
        return step[position]
    return step[:, position + (trace.cached if path[-1] in "KV" else 0)].ravel()


def random_model(seed: int, dtype: str = "float32", **others: Any) -> GPT2:
    """A small model with biases other than 0 and gains other than 1."""
    sizes = {"vocab_size": 263, "n_positions": 16, "n_embd": 15, "n_layer": 3, "n_head": 3}
    config = GPT2Config(**(sizes | others))
    rng = np.random.default_rng(seed)
    vector = rng.normal(0.1, 0.4, parameter_count(config)).astype(dtype)
    tokenizer: Any = GPT2.from_pretrained(REFERENCE / "odd").tokenizer
    return GPT2(ParameterVector(config, vector), tokenizer)


@pytest.fixture(scope="module")
def small() -> Trace:
    return random_model(4).trace(TEXT)


@pytest.fixture(scope="module")
def page(browser: Any, small: Trace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page of `small`, shared by tests that only choose numbers of steps."""
    file = tmp_path_factory.mktemp("page") / "page.html"
    attnlab.page(small).save(file)
    pages = Watched(browser)
    page = pages.open(file.as_uri())
    page.evaluate(LOAD_ALL)
    yield page
    pages.close()
    assert pages.said == []


def after_cached(model: GPT2) -> Trace:
    """Three tokens after four cached ones."""
    ids, cache = model.trace(TEXT).tokens.ids, KeyValueCache(model.config, np.float32)
    for part in (ids[:4], ids[4:7]):
        tokens: Any = model.tokenizer.tokens(part)  # type: ignore[union-attr]
        trace = Trace(tokens, model.tokenizer.vocabulary, model.parameters, cache)  # type: ignore[union-attr]
        assert trace.next_logits.size  # which fills the cache
        cache.length += len(part)
    return trace


EDITS: dict[str, dict[str, Any]] = {
    "stream": {"embedding": np.negative, "blocks.0.mid": 0.5, "blocks.1.output": np.negative},
    "before blocks": {"token_embedding": np.negative, "position_embedding": 0},
    "inputs": {"blocks.0.input": np.negative, "blocks.2.input": lambda x: x + 1},
    "of heads": {
        "blocks.0.attention.heads.1.X": 0.3,
        "blocks.0.attention.heads.2.output": 1,
        "blocks.1.attention.heads.0.context": 0,
        "blocks.1.attention.heads.1.scale": 3,
        "blocks.2.attention.heads.1.weights": 0.2,
        "blocks.2.attention.heads.2.Q": np.negative,
    },
    "of attention": {
        "blocks.0.attention.residual": np.negative,
        "blocks.0.attention.concat": np.negative,
        "blocks.1.attention.X": 0.5,
        "blocks.1.attention.Q": np.negative,
        "blocks.2.attention.output": 1,
        "blocks.2.attention.V": np.negative,
    },
    "of MLPs": {
        "blocks.0.mlp.X": np.negative,
        "blocks.1.mlp.hidden": np.negative,
        "blocks.1.mlp.output": 0,
        "blocks.2.mlp.activated": 1,
    },
    "parameters": {
        "epsilon": 0.5,
        "blocks.0.mlp.gain": 2,
        "blocks.1.attention.bias": 1,
        "blocks.1.mlp.epsilon": 0.25,
        "blocks.1.mlp.W_1": np.negative,
        "blocks.2.attention.heads.1.W_Q": np.abs,
        "blocks.2.attention.b_O": 1,
        "gain": -1,
    },
    "the end": {"final": np.negative, "logits": 0.5},
}


def all_kinds() -> Iterator[Any]:
    """Traces of all kinds of models, edited ones, and one with a cache."""
    yield pytest.param(lambda: GPT2.from_pretrained("pocket").trace(POCKET), id="pocket")
    for name in ("odd", "gelu", "reordered"):
        model = REFERENCE / name
        yield pytest.param(lambda m=model: GPT2.from_pretrained(m).trace("the hen"), id=name)
    for name, others in (
        ("one layer, one wide head", {"n_layer": 1, "n_head": 1}),
        ("an output matrix of its own", {"tie_word_embeddings": False}),
        ("deep", {"n_layer": 24, "n_embd": 6, "n_inner": 5}),
        ("quick_gelu", {"activation_function": "quick_gelu"}),
        ("relu", {"activation_function": "relu"}),
    ):
        yield pytest.param(lambda o=others: random_model(0, **o).trace(TEXT), id=name)
    yield pytest.param(lambda: random_model(1, "float64").trace(TEXT), id="random float64")
    for names in (
        ("stream", "of MLPs"),
        ("before blocks", "of heads", "the end"),
        ("inputs", "of attention"),
        ("parameters",),
    ):
        edits = {path: edit for name in names for path, edit in EDITS[name].items()}
        yield pytest.param(
            lambda e=edits: random_model(2).trace(TEXT).edited(e), id=", ".join(names)
        )
    yield pytest.param(lambda: after_cached(random_model(3)), id="after cached keys")
    edits = {"blocks.1.mid": 2, "blocks.0.attention.heads.1.context": 0}
    yield pytest.param(lambda: after_cached(random_model(3)).edited(edits), id="cached and edited")


POCKET = "It’s very hot in summer. Swimming is"

ENDS = ("logits", "probabilities")  # whose components are the most probable tokens

# JavaScript: the numbers that each [step, component] is computed from, [] without its weights; the
# step's formula; the text.
ARITHMETIC = """async (stops) => {
    const found = [];
    for (const [path, c] of stops) {
        await goTo(path, c);
        const [formula, shown] = ['formula', 'arithmetic'].map((id) => byId(`step-${id}`));
        const numbers = Array.from(shown.querySelectorAll('data'), (one) => Number(one.value));
        found.push([numbers, formula.textContent, shown.textContent]);
    }
    return found;
}"""


def explained(trace: Trace, path: str, c: int) -> tuple[list[float], list[str]]:
    """The numbers in the library's explanation, of the last token, and the names."""
    i = len(trace.tokens) - 1 + (trace.cached if path[-1] in "KV" else 0)
    if path in ENDS:
        c = trace.next_tokens(c + 1)[c].id
    rows: list[Parts] = []
    for line in trace.explain(path.replace("concat", "context"), i, c).lines:
        rows += [line.parts] if isinstance(line, Line) else [*line.rows, *line.feet]
    terms = [part for row in rows for part in row if isinstance(part, Term)]
    numbers = [one.value for one in terms if not one.is_named and isinstance(one.value, float)]
    return numbers, [one.name for one in terms if one.is_named]


@pytest.mark.parametrize("kind", list(all_kinds()))
def test_every_row_is_the_librarys(open_page: Open, kind: Any) -> None:
    trace = kind()
    page = open_page(trace)
    positions = page.evaluate(POSITIONS)
    assert positions[-1] == len(trace.tokens) - 1
    for position in {positions[0], positions[-1]}:
        actual = page.evaluate(ROWS, [0, position])
        assert [*actual] == [*listed_paths(trace), "probabilities"]
        likeliest = trace._fork().logits[position].astype(float)
        shares = np.exp(likeliest - likeliest.max()) / np.exp(likeliest - likeliest.max()).sum()
        for path, row in actual.items():
            if path in ENDS:
                expected = np.sort(likeliest if path == "logits" else shares)[: -len(row) - 1 : -1]
                assert len(row) == min(TOKENS, trace.config.vocab_size)
            else:
                expected = row_of(trace, path, position)
            assert np.shape(row) == expected.shape, path
            assert np.abs(row - expected).max() <= SLACK * np.abs(expected).max(), path
    if trace.edited_steps:
        return
    stops = [
        (path, 3 if path in ENDS else 7 * n % len(row))
        for n, (path, row) in enumerate(actual.items())
    ]
    for (path, c), found in zip(stops, page.evaluate(ARITHMETIC, stops), strict=True):
        shown, formula, text = found
        place, _, name = path.rpartition(".")
        if path != "probabilities":
            assert formula == (at(trace, place) if place else trace)._heading_of(name)
        if "This file" not in text:  # which has the weights
            expected, names = explained(trace, path, c)
            assert shown == pytest.approx(expected, rel=1e-5, abs=1e-6), path
            assert all(one in text for one in names), path


# ---- the arithmetic of one number ----------------------------------------------------------------


def go_to(page: Any, path: str, component: int) -> Any:
    """Select a number of a step; returns its arithmetic."""
    page.evaluate("([path, component]) => goTo(path, component)", [path, component])
    return page.locator("#step-arithmetic")


def terms_of(arithmetic: Any) -> NDArray[np.float64]:
    """All terms of an opened sum: rows (first factor, second factor, product)."""
    if arithmetic.locator("details").count():
        arithmetic.locator("summary").click()
        until(arithmetic.page, "document.querySelector('#step-arithmetic details table') !== null")
    return np.reshape(numbers(arithmetic.locator("tbody").last), (-1, 3))


def near(actual: Any, expected: Any) -> bool:
    """Equal up to float32 rounding."""
    return bool(
        np.abs(np.asarray(actual) - expected).max() <= 2e-6 * max(1, np.abs(expected).max())
    )


def test_all_products_of_a_sum(page: Any, small: Trace) -> None:
    for path, c in (("blocks.2.mlp.hidden", 7), ("blocks.0.attention.Q", 14), ("logits", 1)):
        arithmetic = go_to(page, path, c)
        id = small.next_tokens(2)[1].id
        numbers = small.explain(path, None, id if path == "logits" else c).numbers
        expected = [column for column in numbers.values() if isinstance(column, list)]
        assert near(terms_of(arithmetic).T, expected), path
    assert f"id {id}: " in page.locator("#reading").inner_text()
    arithmetic = go_to(page, "logits", 10)
    words = "only has the weights of the most probable next tokens"
    assert words in arithmetic.inner_text()


# JavaScript: for some components of each step: path, component, the displayed number, and the
# original one if it is edited.
EDITED_HERE = """async ([paths, components]) => {
    const found = [];
    for (const path of paths) {
        for (const c of components) {
            await goTo(path, c);
            const values = (all) => Array.from(all, (one) => Number(one.value));
            const result = [...document.querySelectorAll('#step-arithmetic strong')].at(-1);
            const says = result.parentElement.textContent.includes('; edited here: ');
            const [made] = says ? values(result.parentElement.querySelectorAll('data')) : [null];
            found.push([path, c, ...values(result.querySelectorAll('data')), made]);
        }
    }
    return found;
}"""


def test_an_edited_number_also_shows_its_equations_result(open_page: Open) -> None:
    """Exactly the numbers that an edit changes are marked."""
    for edits, marked in (
        (
            EDITS["stream"] | EDITS["inputs"] | EDITS["of MLPs"],
            {*EDITS["stream"], *EDITS["inputs"], *EDITS["of MLPs"]},
        ),
        (
            EDITS["of heads"],
            {*(f"blocks.0.attention.{name}" for name in ("Q", "K", "V", "output"))}
            | {"blocks.1.attention.concat", "blocks.2.attention.Q"},
        ),
        (
            EDITS["of attention"],
            {*EDITS["of attention"], "blocks.0.attention.X"},
        ),
        (EDITS["parameters"], set()),
    ):
        trace, actual = random_model(2).trace(TEXT).edited(edits), set()
        i = len(trace.tokens) - 1
        paths = [path for path in listed_paths(trace)[:-1] if path not in EDITS["before blocks"]]
        components = [0, 5, 14] if edits is EDITS["of heads"] else [5]  # a number of each head
        rows = open_page(trace).evaluate(EDITED_HERE, [paths, components])
        for path, c, shown, computed in rows:
            assert near(shown, row_of(trace, path, i)[c]), path
            if computed is not None:
                actual.add(path)
                assert computed != pytest.approx(shown, rel=1e-5), path
                place, _, name = path.rpartition(".")
                result = at(trace, place) if place else trace
                if result.is_edited(name):
                    expected = np.moveaxis(result.unedited(name), -2, 0)[i].ravel()[c]
                    assert near(computed, expected), path
        assert actual == marked - {"blocks.0.attention.residual"}


# ---- what a reader does --------------------------------------------------------------------------


def focused(page: Any) -> str:
    """The name of the focused element."""
    name: str = page.evaluate("document.activeElement.getAttribute('aria-label')")
    return name


def until_chosen(page: Any, path: str) -> None:
    until(page, f"document.getElementById('step-title').textContent === {path!r}")


def test_a_term_leads_to_the_number_that_it_is_of(page: Any, small: Trace) -> None:
    go_to(page, "blocks.1.mlp.hidden", 3).locator(".leads").nth(2).click()
    until_chosen(page, "blocks.1.mlp.X")
    name = page.evaluate("[selection.chosenStep.path, selection.chosenStep.component]")
    column = np.abs(small.blocks[1].mlp.X[-1] * small.blocks[1].mlp.W_1[:, 3])
    assert name == ["blocks.1.mlp.X", int(np.argsort(-column)[2])]
    assert focused(page).startswith(f"component {name[1]}: ")


def test_the_pass_follows_the_chosen_token(open_page: Open, small: Trace) -> None:
    page = open_page(small)
    go_to(page, "blocks.1.mid", 2)
    to_cell(page, 4, 1)
    until(page, "shownStep.position === 4")
    assert "token 4" in page.locator("#pass-title").inner_text()
    assert numbers(page.locator("#reading")) == [float(small.blocks[1].mid[4, 2])]
    assert page.locator("#pass-note").is_hidden()

    # A token before the first prediction still has rows, but not all columns of W_1.
    long = random_model(8, n_positions=160, n_embd=12, n_inner=200, n_layer=1)
    trace = long.trace((TEXT + " ") * 12)
    early = predicted_positions(trace).start - 8
    page = open_page(trace)
    to_cell(page, early, 0)
    until(page, f"shownStep.position === {early}")
    arithmetic = go_to(page, "blocks.0.mlp.hidden", 199)
    assert "This file has the weights of components 0 to " in arithmetic.inner_text()
    go_to(page, "logits", 0)
    reason = f"This page has logits only from position {early + 8}."
    assert page.locator("#step-missing").inner_text() == reason


def test_the_passes_of_two_texts(open_page: Open, small: Trace) -> None:
    other = random_model(7, n_layer=2, n_embd=6).trace(OTHER[:9])
    page = open_page(small, other)
    go_to(page, "blocks.2.mid", 2)
    page.get_by_role("radio", name="B", exact=True).dispatch_event("click")
    until(page, "shownStep.trace.number === 1")
    until_chosen(page, "embedding")  # it has no block 2
    assert page.locator("#pass-parts label").count() == 4
    go_to(page, "blocks.1.mid", 2)
    assert numbers(page.locator("#reading")) == [float(other.blocks[1].mid[-1, 2])]
    page.get_by_role("radio", name="A", exact=True).dispatch_event("click")
    until(page, "shownStep.trace.number === 0")
    until_chosen(page, "blocks.1.mid")
    assert numbers(page.locator("#reading")) == [float(small.blocks[1].mid[-1, 2])]


def test_a_page_with_a_model_has_any_column(watched: Watched, tmp_path: Path) -> None:
    model = GPT2.from_pretrained("pocket")
    trace = model.trace(POCKET)
    attnlab.playground(model, POCKET).save(tmp_path / "model.html")
    page = watched.open((tmp_path / "model.html").as_uri())
    until(page, "shownStep !== undefined")
    page.evaluate("select(3, 0)")
    until(page, "shownStep.position === 3")
    assert page.locator("#pass-note").is_hidden()
    for path, c in (("blocks.1.mlp.output", 127), ("blocks.0.attention.K", 99)):
        arithmetic = go_to(page, path, c)
        assert near(numbers(arithmetic.locator("tfoot tr").last), row_of(trace, path, 3)[c])
    shown = numbers(go_to(page, "logits", 49).locator("tfoot tr").last)
    assert near(shown, np.sort(trace.logits[3])[-50])


# ---- what a file includes ------------------------------------------------------------------------


def test_packs_of_a_page_fit_its_budget() -> None:
    """Everything for a small text and model."""
    trace = random_model(0).trace(TEXT)
    small = packs_of_file(trace)
    assert [f"pass.{position}" in small for position in range(12)] == [True] * 12
    for layer in range(3):
        assert f"columns.blocks.{layer}.mlp.W_1.0.60" in small
        assert f"columns.blocks.{layer}.mlp.W_2.0.15" in small

    pocket = GPT2.from_pretrained("pocket").trace(POCKET)
    ours = [name for name in packs_of_file(pocket) if name.partition(".")[0] in ("pass", "columns")]
    assert BUDGET * 0.9 < sum(len(pack(pocket, name)) for name in [*ours, "norms"]) < BUDGET * 1.02
