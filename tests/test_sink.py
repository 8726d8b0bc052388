"""Where attention rests: the definitions in Python and on the page, on GPT-2's own patterns."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pages import Open, gpt2_shaped

import attnlab
from attnlab import GPT2, Trace, figures
from attnlab.corpus.measures import measure_trace
from attnlab.support.sink import Attended, excess
from attnlab.views.attended import attention_in_words

# (12 layers, 12 heads, T, T) of two prompts, see the figures.
PATTERNS = [figures.load("gpt2_patterns")[f"weights_{n}"] for n in range(2)]


def patterns(odd: GPT2, weights: NDArray[np.float32]) -> Trace:
    """A trace of GPT-2's shape with these weights."""
    trace = gpt2_shaped(odd, weights.shape[-1], n_embd=96)
    layers = enumerate(weights)
    return trace.edited({f"blocks.{n}.attention.weights": layer for n, layer in layers})


def excess_by_hand(row: NDArray[np.float32], i: int) -> NDArray[np.float64]:
    """How far each weight of query i's other visible keys exceeds their mean, 1 at most."""
    result = np.zeros(len(row))
    others = row[1 : i + 1].astype(float)
    if len(others) > 1:
        # 1 for all attention on one token: its weight is 1, the mean 1 / m.
        m = len(others)
        result[1 : i + 1] = (others - others.mean()) / (1 - 1 / m)
    return result


@pytest.mark.parametrize(
    ("weights", "rest", "key", "kind"),
    [
        ([0.95, 0.01, 0.04, 0.0], 0.95, 2, "rests"),
        ([0.9, 0.0, 0.1, 0.0], 0.9, 2, "rests"),
        ([0.7, 0.02, 0.2, 0.08], 0.7, 2, "looks"),
        ([0.1, 0.3, 0.3, 0.3], 0.1, 1, "uniform"),
        ([0.1, 0.3, 0.27, 0.33], 0.1, 3, "spreads"),
        ([0.0, 1.0, 0.0, 0.0], 0.0, 1, "looks"),
    ],
)
def test_where_attention_goes(weights: list[float], rest: float, key: int, kind: str) -> None:
    attended = Attended(np.array(weights), np.ones(4, bool))
    assert (attended.on_first, attended.key, attended.kind) == (rest, key, kind)
    assert np.allclose(attended.excess, excess_by_hand(np.array(weights), 3))


def test_the_first_token_sees_itself_and_the_second_has_no_other_choice() -> None:
    first = Attended(np.array([1.0, 0, 0]), np.array([True, False, False]), is_first=True)
    assert (first.kind, first.on_first, first.key) == ("alone", 0, None)
    second = Attended(np.array([0.4, 0.6, 0]), np.array([True, True, False]))
    assert (second.kind, second.on_first, second.key) == ("looks", 0.4, 1)
    assert second.excess.tolist() == [0, 0, 0]


def test_excess_is_0_if_uniform_and_1_if_one_token_has_all() -> None:
    others = np.array([[False, True, True, True, False]] * 2)
    weights = np.array([[0.4, 0.2, 0.2, 0.2, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]])
    assert np.allclose(excess(weights, others), [[0] * 5, [0, -0.5, 1, -0.5, 0]])


def test_gpt2_rests_as_published() -> None:
    resting = [(weights[:, :, -1, 0] > 0.9).sum() for weights in PATTERNS]
    assert resting == [38, 37]
    for weights in PATTERNS:
        means = weights[5:, :, 1:, 0].mean(axis=(1, 2))
        assert ((means > 0.65) & (means < 0.92)).all()


def test_the_page_has_the_same_definitions(pure: Any) -> None:
    for weights in PATTERNS:
        T = weights.shape[-1]
        for i in range(T):
            rows = weights[:, :, i].reshape(-1, T)
            attended = pure.evaluate(
                "([rows, i]) => attendedIn(rows, (_, j) => j <= i, i === 0)"
                ".map((attended) => ({ ...attended, excess: [...attended.excess] }))",
                [rows.astype(float).tolist(), i],
            )
            for row, actual in zip(rows, attended, strict=True):
                mask = np.arange(T) <= i
                expected = Attended(row, mask, is_first=i == 0)
                assert actual["visible"] == [*range(1, i + 1)]
                assert np.allclose(actual["excess"], excess_by_hand(row, i), atol=1e-6)
                assert np.allclose(expected.excess, excess_by_hand(row, i), atol=1e-6)
                assert actual["rest"] == expected.on_first == (float(row[0]) if i else 0)
                assert actual.get("key") == expected.key
                assert actual["kind"] == expected.kind
                rests = i > 0 and row[0] >= 0.9
                assert (expected.kind == "rests") == rests


def test_jobs_of_what_does_not_rest_are_the_atlas_measures(pure: Any, odd: GPT2) -> None:
    weights = PATTERNS[1]
    trace = patterns(odd, weights)
    names = ("previous", "same", "induction")
    measured = measure_trace(trace, {f"{name}_without_first": None for name in names})
    ids = trace.tokens.ids.tolist()
    for layer, head in np.ndindex(12, 12):
        jobs = pure.evaluate(
            "([ids, rows]) => jobsOf(ids, (i) => rows[i])",
            [ids, weights[layer, head].astype(float).tolist()],
        )
        assert jobs["first"]["attention"] == pytest.approx(weights[layer, head, 1:, 0].mean())
        for name in names:
            sums, divisors = (part[layer, head] for part in measured[f"{name}_without_first"])
            if jobs[name] is None:
                assert divisors == 0
            else:
                assert jobs[name]["ofRest"] == pytest.approx(sums / divisors, rel=1e-5)


def test_sentences_state_both_shares(odd: GPT2) -> None:
    trace = patterns(odd, PATTERNS[1])
    symbols = trace.tokens.readable
    last, first = symbols[-1], symbols[0]
    orders = set()
    for layer, head in np.ndindex(12, 12):
        row = PATTERNS[1][layer, head, -1]
        sentences = attention_in_words(trace.head(layer, head), 6)
        key = int(1 + row[1:].argmax())
        rest, share = (f"{100 * x:.0f} %" for x in (row[0], row[key]))
        is_resting, looks = row[0] >= 0.1, excess_by_hand(row, 6)[key] >= 0.1
        whom = "itself" if key == 6 else f"“{symbols[key]}”"
        if sum(f"{100 * x:.0f} %" == share for x in row[1:]) > 1:
            continue  # see below
        if row[0] >= 0.9:
            assert len(sentences) == 1
            assert sentences[0].startswith(f"“{last}” rests: ")
        elif is_resting and row[0] > row[key]:  # the larger share comes first
            assert sentences == [
                f"{rest} of the attention of “{last}” rests on the first token, “{first}”.",
                f"Of the other tokens, it gives {whom} the most, {share}.",
            ]
            orders.add("rest first")
        elif looks and row[key] < 0.995:
            assert sentences[0] == f"“{last}” looks at {whom} ({share} of its attention)."
            resting = f"{rest} of its attention rests on the first token, “{first}”."
            assert sentences[1:] == [resting] * int(is_resting)
            orders.add(f"{len(sentences)} sentences")
    assert orders == {"rest first", "1 sentences", "2 sentences"}


# Weights of “ball”, the last of five tokens, of which some look the same as percentages, and the
# last sentence about them.
TIED = [
    ([0.02, 0.46, 0.456, 0.03, 0.034], "looks at “dog” and “chased” (46 % of its attention each)."),
    ([0.02, 0.03, 0.034, 0.456, 0.46], "looks at itself and “the” (46 % of its attention each)."),
    ([0.02, 0.03, 0.034, 0.46, 0.456], "looks at itself and “the” (46 % of its attention each)."),
    ([0.6, 0.13, 0.126, 0.1, 0.044], "it gives “dog” and “chased” the most, 13 % each."),
    ([0.08, 0.234, 0.232, 0.12, 0.228], "it gives itself and 2 others the most, 23 % each."),
    ([0.08, 0.234, 0.232, 0.228, 0.226], "“ball” attends to 4 tokens equally, 23 % each."),
    ([0.08, 0.26, 0.262, 0.258, 0.14], "it gives “chased” and 2 others the most, 26 % each."),
]


def tied(pocket: GPT2) -> Trace:
    """A trace with these weights, one row in each head."""
    weights = np.zeros((len(TIED), 5, 5))
    weights[:, :4] = np.eye(5)[:4]
    weights[:, 4] = [row for row, _ in TIED]
    paths = (f"blocks.{n // 4}.attention.heads.{n % 4}.weights" for n in range(len(TIED)))
    return pocket.trace("The dog chased the ball").edited(dict(zip(paths, weights, strict=True)))


def test_keys_that_look_tied_are_named_together(pocket: GPT2) -> None:
    trace = tied(pocket)
    for n, (_, words) in enumerate(TIED):
        sentence = attention_in_words(trace.head(n // 4, n % 4), 4)[-1]
        assert f"{sentence}".replace("Ġ", "").endswith(words)


def test_a_page_names_tied_keys_as_the_library_does(pocket: GPT2, look: Open) -> None:
    trace = tied(pocket)
    page = look(trace, "depth=look&level=head&layer=0&head=0&query=4")
    for n in range(len(TIED)):
        layer, head = divmod(n, 4)
        page.evaluate("([layer, head]) => openHead(layer, head)", [layer, head])
        sentences = map(str, attention_in_words(trace.head(layer, head), 4))
        shown = page.locator("#strongest").inner_text().replace("\xa0", " ")
        assert " ".join(sentences).replace("Ġ", "") in shown


def test_explanations_and_plots_have_the_sentences(odd: GPT2) -> None:
    trace = patterns(odd, PATTERNS[1])
    layer, head = 5, 4
    sentences = attention_in_words(trace.head(layer, head), 6)
    assert sentences
    text = trace.head(layer, head).explain(6).text(1000)
    alt = trace.plot_tokens(layer, head).alt
    for sentence in sentences:
        assert sentence in text
        assert sentence in alt


def test_a_printed_trace_says_how_much_rests(odd: GPT2) -> None:
    trace = patterns(odd, PATTERNS[1])
    mean = f"{100 * PATTERNS[1][:, :, -1, 0].mean():.0f} %"
    names = trace.tokens.readable
    sentence = (
        f"On average over all heads, {mean} of the attention of “{names[-1]}” rests on the first "
        f"token, “{names[0]}”."
    )
    assert sentence in " ".join(repr(trace).split())
    uniform = {"blocks.*.attention.weights": np.tri(11) / np.arange(1, 12)[:, np.newaxis]}
    for other in (
        odd.trace("a"),
        odd.trace("abcdefghijk").edited(
            {
                path.replace("*", str(n)): weights
                for path, weights in uniform.items()
                for n in range(3)
            }
        ),
    ):
        assert "rests on" not in repr(other)


def test_attention_without_one_text_has_no_sentence() -> None:
    X = np.eye(3)
    assert attention_in_words(attnlab.attention(X, X, X), 2) == []
    assert attention_in_words(attnlab.cross_attention(X, X, X, X, X), 2) == []


def test_the_line_to_the_first_token_is_thin(odd: GPT2) -> None:
    trace = patterns(odd, PATTERNS[0])
    row = PATTERNS[0][5, 4, 5]
    lines = trace.plot_tokens(5, 4).axes.lines
    widths = [line.get_linewidth() for line in lines]
    assert widths[0] == 0.5
    assert np.allclose(widths, 0.5 + 7 * np.maximum(0, excess_by_hand(row, 5)), atol=1e-4)
