"""The page's panel of next tokens: its numbers equal those of `Sampling`."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from numpy.typing import NDArray
from pages import TEXT, Open, agrees, drawn, until

import attnlab
from attnlab import GPT2, AttnlabError, GPT2Config, Tokenizer, Trace
from attnlab.forward.parameters import ParameterVector
from attnlab.model.sampling import Sampling
from attnlab.pages.packs import embedded, pack
from attnlab.pages.prediction import POSITIONS, SLIDERS, TEMPERATURES, TOKENS, description
from attnlab.text.tokens import Vocabulary
from attnlab.training.parameters import initial_parameters


def with_logits(logits: NDArray[Any]) -> Trace:
    """A trace of three tokens with these logits (vocab,) at the first and the last."""
    config = GPT2Config(vocab_size=logits.size, n_positions=4, n_embd=4, n_layer=1, n_head=2)
    vocabulary = Vocabulary({id: f"\u0120{id}" for id in range(logits.size)})
    trace = Trace(
        vocabulary.tokens([0, 0, 0]), vocabulary, ParameterVector(config, dtype="float64")
    )
    return trace.edited({"logits": [logits, -logits, logits]})


def logits_of_many_kinds() -> Iterator[Any]:
    rng = np.random.default_rng(0)
    for name, logits in (
        ("one token", np.zeros(1)),
        ("three tokens", np.array([1.0, -2.0, 1.5])),
        ("a small vocabulary", rng.normal(0, 3, 30)),
        ("as many as are packed", rng.normal(0, 1, TOKENS)),
        ("flat", rng.normal(0, 0.1, 4000)),
        ("as GPT-2 has them", rng.normal(-100, 3, 4000).astype(np.float32)),
        ("sharp", rng.normal(0, 40, 600)),
        ("all equal, few", np.zeros(10)),
        ("all equal, many", np.zeros(700)),
        # Probabilities are cumulated without rounding, and top-p ends between two of them.
        ("all equal but for hopeless ones", np.repeat([0.0, -2000.0], [1024, 8])),
        ("many equal", rng.integers(0, 9, 900) / 2),
        ("some equal", np.repeat(rng.normal(0, 2, 40), 7)),
        ("huge", np.array([1e30, 2.0, -1e30])),
    ):
        yield pytest.param(logits, id=name)


@pytest.mark.parametrize("logits", list(logits_of_many_kinds()))
def test_probabilities_are_those_of_sampling(pure: Any, logits: NDArray[Any]) -> None:
    """At every temperature, with each cut; the page includes few of the tokens."""
    trace = with_logits(logits)
    packs = [[*np.frombuffer(pack(trace, f"prediction.{i}"), "<f4").tolist()] for i in range(3)]
    n = min(TOKENS, logits.size)
    settings = [
        {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        for temperature in (0, *TEMPERATURES)
        for top_k in (*sorted({1, n // 2, n} & {*range(1, n + 1)}), None)
        for top_p in (None, 0.1, 0.5, 0.9, 0.99)
    ]
    known, computed = pure.evaluate(
        """([logits, n, sliders, packs, settings]) => {
            const vocab = logits.length;
            const read = (values) => predictionOf(Float32Array.from(values), vocab, sliders);
            const [first, second, last] = packs.map(read);
            const all = predictionOfLogits(Float64Array.from(logits), n, 0); // in a page's model
            const known = ({ ids, ties, following }) => [ids, ties, following.larger];
            return [[first, all, last].map(known), settings.map((s) => {
                const found = [first, second, all].map((one) => probabilitiesOf(one, s));
                const [one, other, { renormalized, others, count }] = found;
                return { ...one, second: other.renormalized, all: [renormalized, others, count] };
            })];
        }""",
        [logits.tolist(), n, SLIDERS, packs, settings],
    )
    order = np.lexsort([np.arange(logits.size), -logits])
    ties = np.count_nonzero(logits[order[n:]] == logits[order[n - 1]])
    larger = np.count_nonzero(logits > logits[0])  # than that of the text's next token
    assert known[:2] == [[order[:n].tolist(), ties, larger]] * 2
    assert known[2] == [order[:n].tolist(), ties, -1]
    for chosen, one in zip(settings, computed, strict=True):
        sampling = Sampling(**chosen)
        expected = sampling.probabilities(logits)
        assert np.allclose(one["renormalized"], expected[order[:n]], rtol=1e-6, atol=1e-12), chosen
        others = 1 - expected[order[:n]].sum()
        assert np.allclose(one["others"]["renormalized"], others, rtol=1e-6, atol=1e-6), chosen
        renormalized, rest, count = one["all"]
        assert np.allclose(renormalized, one["renormalized"], rtol=1e-6, atol=1e-12), chosen
        assert np.allclose(rest["renormalized"], others, rtol=1e-6, atol=1e-6), chosen
        assert count == one["count"], chosen
        second = sampling.probabilities(-logits)[np.lexsort([np.arange(logits.size), logits])[:n]]
        assert np.allclose(one["second"], second, rtol=1e-6, atol=1e-12), chosen
        if chosen["temperature"] == 0:
            continue
        before = Sampling(chosen["temperature"]).probabilities(logits)
        assert np.allclose(one["probabilities"], before[order[:n]], rtol=1e-6, atol=1e-300)
        if before.min() > 0 or chosen["top_p"]:  # otherwise, zero probabilities weren't cut
            assert one["count"] == np.count_nonzero(expected), chosen
            assert [not by for by in one["removedBy"]] == (expected[order[:n]] > 0).tolist(), chosen


@pytest.mark.parametrize(
    ("T", "most"), [(12, 50_000), pytest.param(128, 500_000, marks=pytest.mark.slow)]
)
def test_what_a_vocabulary_of_gpt2s_size_takes(
    gpt2_tokenizer: Tokenizer, T: int, most: int
) -> None:
    config = GPT2Config(vocab_size=50_257, n_positions=T, n_embd=4, n_layer=1, n_head=2)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 50_257, T)
    trace = GPT2(ParameterVector(config), gpt2_tokenizer).trace(ids)
    logits = rng.normal(-100, 3, (T, 50_257)).astype(np.float32)
    trace = trace.edited({"logits": logits, "next_logits": logits[-1]})
    packs = sum(len(embedded(pack(trace, f"prediction.{i}"))) for i in range(T))
    assert packs + len(json.dumps(description(trace, "en"))) < most


def test_what_is_not_a_number_is_refused() -> None:
    trace = GPT2.from_pretrained(REFERENCE / "float64", dtype="float64").trace(TEXT)
    with pytest.raises(AttnlabError, match="logits has NaN or numbers that overflow"):
        attnlab.page(trace.edited({"next_logits": 1e300}))


# ---- the panel -----------------------------------------------------------------------------------


def move(page: Any, nth: int, value: int) -> None:
    """Move a slider to a value."""
    page.locator("#settings input[type=range]").nth(nth).fill(str(value))
    drawn(page)


def look_at(page: Any, place: int) -> None:
    """Select a token in the text, and wait for its predictions."""
    page.locator(".stage-word").nth(place).press("Enter")
    until(page, f"document.querySelector('#predictions h3').textContent.includes('{place}, ')")
    drawn(page)


def rows_of(page: Any, nth: int = 0) -> list[list[str]]:
    """The cells of a table's body."""
    read = "(all) => all.map((row) => [...row.cells].map((cell) => cell.textContent))"
    rows = page.locator("#predictions .table").nth(nth).locator("tbody tr")
    return rows.evaluate_all(read)  # type: ignore[no-any-return]


def held(page: Any, part: str, nth: int = 0) -> list[list[float]]:
    """The numbers of a table's rows, as stored in the page."""
    read = "(all) => all.map((row) => [...row.querySelectorAll('data')].map((x) => +x.value))"
    rows = page.locator("#predictions .table").nth(nth).locator(f"{part} tr")
    return rows.evaluate_all(read)  # type: ignore[no-any-return]


def check_table(
    page: Any, trace: Trace, place: int, settings: dict[str, Any], nth: int = 0
) -> None:
    """Compare a table with NumPy, step by step, and with `Sampling`."""
    logits = trace.logits[place].astype(np.float64)
    order = np.lexsort([np.arange(logits.size), -logits])[: len(rows_of(page, nth))]
    expected = Sampling(**settings).probabilities(logits)
    scaled = logits / settings["temperature"]
    exponentials = np.exp(scaled - scaled.max())
    probabilities = exponentials / exponentials.sum()
    cells, numbers = rows_of(page, nth), held(page, "tbody", nth)
    cumulated = 0.0
    for id, texts, actual in zip(order, cells, numbers, strict=True):
        assert texts[0] == trace.vocabulary.token(int(id)).symbol
        steps = [logits[id], scaled[id], scaled[id] - scaled.max(), exponentials[id]]
        steps.append(probabilities[id])
        cumulated += expected[id]
        if expected[id]:
            steps += [expected[id], cumulated]
        else:
            assert texts[-2:] in (["top-k", ""], ["top-p", ""])
        assert actual == pytest.approx(steps, rel=1e-5, abs=1e-5)
    others, total = held(page, "tfoot", nth)
    rest = np.delete(np.arange(logits.size), order)
    sums = [x[rest].sum() for x in (exponentials, probabilities, expected)]
    assert others == pytest.approx(sums, rel=1e-5, abs=1e-6)
    assert total == pytest.approx([exponentials.sum(), 1, 1], rel=1e-5)


def test_the_next_tokens_at_every_position(odd: GPT2, open_page: Open) -> None:
    trace = odd.trace(TEXT)
    page = open_page(trace)
    until(page, "document.querySelectorAll('.next-words li').length === 4")
    shares = page.locator(".next-words .its-share").all_inner_texts()
    for share, token in zip(shares, trace.next_tokens(4), strict=True):
        assert float(share.split()[0]) == pytest.approx(100 * token.probability, abs=0.5)
    for place in (11, 0, 7):
        look_at(page, place)
        title = f"Next token after position {place}, {trace.tokens[place].symbol}"
        assert page.locator("#predictions h3").inner_text() == title
        check_table(page, trace, place, {"temperature": 1.0})
        said = page.locator("#predictions").inner_text()
        if place == 11:
            assert "The text ends here." in said
            continue
        following = trace.tokens[place + 1]
        rank = 1 + (trace.logits[place] > trace.logits[place, following.id]).sum()
        assert f"in the text is {following.symbol}: rank {rank} of 263, probability" in said
        shown = page.locator("#predictions article > p.sum data").first
        assert agrees(shown, Sampling().probabilities(trace.logits[place])[following.id])


def test_sliders_go_from_logits_to_probabilities(odd: GPT2, open_page: Open) -> None:
    trace = odd.trace(TEXT)
    page = open_page(trace)
    look_at(page, 7)
    for settings, stops in (
        ({"temperature": 0.7}, (7, TOKENS, 11)),
        ({"temperature": 2.0, "top_k": 6}, (20, 5, 11)),
        ({"temperature": 0.5, "top_p": 0.9}, (5, TOKENS, 8)),
        ({"temperature": 2.0, "top_p": 0.99}, (20, TOKENS, 10)),  # far more than are packed
        ({"temperature": 1.5, "top_k": 9, "top_p": 0.5}, (15, 8, 4)),
        ({"temperature": 0.1, "top_k": 1, "top_p": 0.1}, (1, 0, 0)),
    ):
        for nth, stop in enumerate(stops):
            move(page, nth, stop)
        check_table(page, trace, 7, settings)
        count = np.count_nonzero(Sampling(**settings).probabilities(trace.logits[7]))
        left = f"{count} of 263 tokens are left" if count < 263 else "No tokens are cut off"
        assert left in page.locator("#predictions .chain").inner_text()
        said = page.locator("#settings .value").all_inner_texts()[1]
        assert said == str(settings.get("top_k", "all"))
        struck = page.locator("#predictions tr.struck s .symbol").all_inner_texts()
        assert struck == [cells[0] for cells in rows_of(page) if cells[-1] == ""]
    assert len(rows_of(page)) == 20
    # Temperature 0 takes the first of the largest.
    look_at(page, 3)
    move(page, 0, 0)
    assert [cells[2:] for cells in rows_of(page)] == [["1.0000", "1.0000"], *[["0.0000", ""]] * 19]
    said = page.locator("#predictions .chain").inner_text()
    assert "At temperature 0, the largest logit (the first if tied) gets probability 1." in said
    assert "One token is left." in said


def test_rows_without_a_token_are_marked(open_page: Open) -> None:
    """A padded embedding: the extra rows have probabilities but aren't tokens."""
    config = GPT2Config(vocab_size=40, n_positions=4, n_embd=4, n_layer=1, n_head=2)
    vocabulary = Vocabulary({id: f"\u0120{id}" for id in range(35)}, size=40)
    parameters = initial_parameters(config, np.random.default_rng(0))
    logits = np.linspace(2, 0, 40)
    logits[[3, 38]] = logits[[38, 3]]  # the row is the fourth most probable
    page = open_page(
        Trace(vocabulary.tokens([0, 1]), vocabulary, parameters).edited({"logits": logits})
    )
    drawn(page)
    until(page, "document.querySelector('#predictions tfoot') !== null")
    table = page.locator("#predictions table")
    assert table.locator("caption").inner_text() == "The 20 most probable of 35 tokens"
    assert table.locator("tbody th").nth(3).inner_text() == "<row 38>"
    assert table.locator("tfoot th").first.inner_text() == (
        "the other 16, and 4 unused rows of W_E"
    )


def test_of_a_long_text_the_last_positions(odd: GPT2, open_page: Open) -> None:
    config = GPT2Config(vocab_size=263, n_positions=200, n_embd=8, n_layer=1, n_head=2)
    parameters = initial_parameters(config, np.random.default_rng(0))
    trace = GPT2(parameters, odd.tokenizer).trace([*range(150)])
    page = open_page(trace)
    page.evaluate(f"select({150 - POSITIONS})")
    until(page, "document.querySelector('#predictions h3').textContent.includes('position 22, ')")
    drawn(page)
    check_table(page, trace, 22, {"temperature": 1.0})
    page.evaluate("select(21)")
    drawn(page)
    reason = "This page has logits only from position 22."
    assert page.locator("#predictions .note").inner_text() == reason
    page.evaluate("goTo('logits', 0)")
    until(page, f"document.querySelector('#step-missing').textContent === '{reason}'")


def test_edited_logits(odd: GPT2, open_page: Open) -> None:
    trace = odd.trace(TEXT)
    edited = trace.edited({"blocks.2.mlp.output": 0, "logits": lambda x: x * 2})
    page = open_page(edited)
    look_at(page, 5)
    check_table(page, edited, 5, {"temperature": 1.0})
    assert "logits = final W_U, edited" in page.locator("#predictions .chain").inner_text()
