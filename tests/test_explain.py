"""One weight's arithmetic as text: hand-worked numbers, and text that is parsed and recomputed."""

import math
import re
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from runs import replace_steps

import attnlab
from attnlab import GPT2, AttnlabError, Head, causal_mask
from attnlab.errors import DisagreementError
from attnlab.forward.attention import Attention

X = [[1.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]]
W = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]


@pytest.fixture
def toy() -> Attention:
    """Q = K = V = [[2, 0], [0, 2], [2, 1]]."""
    return attnlab.self_attention(X, W, W, W, mask=causal_mask(3))


@pytest.fixture(scope="module")
def head() -> Head:
    return GPT2.from_pretrained(REFERENCE / "odd").trace("the hen in a thin inn").head(1, 2)


def with_change(attention: Attention, step: str, cell: tuple[int, int], by: float) -> Attention:
    """The attention with one stored number changed."""
    for name in ("raw_scores", "scores", "masked_scores", "weights", "context"):
        getattr(attention, name)
    array = np.array(getattr(attention, step))
    array[cell] += by
    replace_steps(attention, **{step: array})
    return attention


def test_weight_by_hand(toy: Attention) -> None:
    """q = (2, 1), k = (2, 0); the row's scores are 4, 2 and 5 over √2."""
    lines = str(toy.explain(2, 0)).splitlines()
    assert lines[1].startswith("Softmax turns scores into weights")
    assert [line.split() for line in lines[5:10]] == [
        ["raw_scores", "=", "Q", "Kᵀ:", "the", "2", "products"],
        ["i", "Q[2,", "i]", "K[0,", "i]", "product"],
        ["0", "2", "2", "4"],
        ["1", "1", "0", "0"],
        ["sum", "4"],
    ]
    text = "\n".join(lines)
    assert "scale = √Dk\n  √2 = 1.4142\n" in text
    assert "scores = raw_scores / scale\n  4 / 1.4142 = 2.8284\n" in text
    assert "2.8284 - 3.5355 = -0.70711 (the maximum is at key 2)\n" in text
    # e^(-1/√2) = 0.4930687, e^(-3/√2) = 0.1198733
    assert "e^(-0.70711) = 0.49307\n" in text
    assert "over the 3 unmasked keys\n  0.49307 + 0.11987 + 1 = 1.6129\n" in text
    assert text.endswith("weights = softmax(masked_scores)\n  0.49307 / 1.6129 = 0.30570")
    assert repr(toy.explain(2, 0)) == text


def test_zero_is_printed_without_sign() -> None:
    negative = attnlab.attention([[-1.0, 0.0]], [[0.0, 1.0]], [[1.0]])
    assert "-0" not in str(negative.explain(0, 0))


def test_explanation_of_a_masked_key(toy: Attention) -> None:
    text = str(toy.explain(1, 2))
    assert "mask: True where the query may attend\n  mask[1, 2] = False\n" in text
    assert "else -inf\n  mask[1, 2] is False: -inf\n" in text
    assert "e^(-inf) = 0\n" in text
    assert text.endswith("0 / 1.0591 = 0")
    assert "over the 2 unmasked keys" in text


def test_explanation_of_a_whole_row(head: Head) -> None:
    text = head.explain(-1).text(width=120)
    assert "query 11 (n)" in text.splitlines()[0]
    for key, symbol in enumerate(("the", "Ġ", "he", "n", "Ġ", "in", "Ġa", "Ġth", "in", "Ġ")):
        line = next(line for line in text.splitlines() if line.startswith(f"{key} ({symbol})"))
        numbers = [float(word) for word in line.split()[2:]]
        expected = [float(getattr(head, name)[11, key]) for name in ("raw_scores", "scores")]
        shifted = expected[1] - float(head.scores[11].max())
        expected += [expected[1], shifted, math.exp(shifted), float(head.weights[11, key])]
        assert numbers == pytest.approx(expected, rel=1e-4)
    context = next(line for line in text.splitlines() if line.startswith("sum of weight · V"))
    assert [float(word) for word in context.split()[5:]] == pytest.approx(
        (head.weights[11] @ head.V).tolist(), rel=1e-3
    )


def test_a_masked_score_that_is_not_minus_infinity_is_refused() -> None:
    toy = attnlab.attention(*(np.eye(2),) * 3, mask=causal_mask(2))
    replace_steps(toy, masked_scores=np.array([[0.5**0.5, -5.0], [0.0, 0.5**0.5]]))
    with pytest.raises(DisagreementError, match="masked_scores"):
        toy.explain(0, 1)
    with pytest.raises(DisagreementError, match="masked_scores of key 1"):
        toy.explain(0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_random_attention_can_be_explained(dtype: str, scale: float) -> None:
    rng = np.random.default_rng(0)
    for T, Dk in ((3, 2), (200, 64)):
        Q, K, V = (scale * rng.standard_normal((T, Dk)).astype(dtype) for _ in "QKV")
        result = attnlab.attention(Q, K, V, mask=causal_mask(T), dropout=0.2, rng=1)
        for query in rng.integers(0, T, 3):
            result.explain(query)
            for key in rng.integers(0, T, 3):
                result.explain(query, key)
    text = result.explain(-1, 3).text(200)
    assert "the 200 unmasked keys, the 8 largest and the others together" in text
    listed, total = re.findall(r" together\n([^=]*) = (\S+)\n", text)[0]
    terms = [float(term) for term in listed.split(" + ")]
    assert len(terms) == 9
    assert sum(terms) == pytest.approx(float(total), rel=1e-4)


def test_dropout_has_its_own_line() -> None:
    result = attnlab.self_attention(X, W, W, W, dropout=0.5, rng=1)
    kept = np.argwhere(result.weights)[0]
    text = str(result.explain(*kept))
    assert f"dropout_mask: 0 or 1 / (1 - p)\n  dropout_mask[{kept[0]}, {kept[1]}] = 2\n" in text
    before = float(text.split("softmax(masked_scores)\n")[1].split("\n")[0].split()[-1])
    assert float(text.split()[-1]) == pytest.approx(2 * before, rel=1e-4)
    assert float(text.split()[-1]) == pytest.approx(float(result.weights[tuple(kept)]), rel=1e-4)
    lost = np.argwhere(result.weights == 0)[0]
    assert str(result.explain(*lost)).endswith("· 0 = 0")
    assert {"softmax", "dropout_mask"} <= set(str(result.explain(int(kept[0]))).split())
    wrong = with_change(result, "weights", (int(kept[0]), int(kept[1])), 1e-3)
    with pytest.raises(DisagreementError):
        wrong.explain(*kept)


def test_negative_indices_count_from_the_end(head: Head) -> None:
    assert str(head.explain(-1, -2)) == str(head.explain(11, 10))
    assert head.explain(-1, -2).numbers["key"] == 10


def test_cached_keys_are_named_by_their_position() -> None:
    model = GPT2.from_pretrained(REFERENCE / "odd")
    step = model.generate("the hen", 2, temperature=0, trace=True).steps[-1].trace
    head = step.head(0, 0)
    text = str(head.explain(0))
    lines = text.splitlines()
    symbol = step.tokens.symbols[0]
    last = head.K.shape[0] - 1
    assert f"query {last} ({symbol})" in lines[0]
    start = lines.index(next(line for line in lines if line.startswith("key ")))
    assert [line.split("  ")[0] for line in lines[start + 1 : start + last + 2]] == [
        *map(str, range(last)),
        f"{last} ({symbol})",
    ]


@pytest.mark.parametrize(
    ("explain", "kind", "message"),
    [
        (lambda head: head.explain(12, 0), IndexError, "query 12 is out.*; queries are 0 to 11"),
        (lambda head: head.explain(0, 12), IndexError, "key 12 is out of range; keys are 0 to 11"),
        (lambda head: head.explain("0", 1), ValueError, "'0' isn't one of the tokens"),
        (lambda head: head.explain(0, 1.0), TypeError, "key.*integer.*1.0"),
        (lambda head: head.explain(True, 1), TypeError, "query.*integer.*True"),
    ],
)
def test_invalid_indices(head: Head, explain: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(AttnlabError, match=message) as caught:
        explain(head)
    assert isinstance(caught.value, kind)


def test_several_heads_at_once_are_refused() -> None:
    trace = GPT2.from_pretrained(REFERENCE / "odd").trace("the hen")
    with pytest.raises(
        AttnlabError, match=r"shape \(5, 4, 4\).*first choose a head, such as .heads"
    ):
        trace.blocks[0].attention.explain(1, 0)
    batch = np.ones((2, 3, 4))
    with pytest.raises(AttnlabError, match=r"attention\(Q\[0\], K\[0\], V\[0\]\)"):
        attnlab.attention(batch, batch, batch).explain(1, 0)
    with pytest.raises(AttnlabError, match="first choose a head"):
        attnlab.attention(np.ones((3, 4)), np.ones((3, 4)), batch).explain(1, 0)


@pytest.mark.parametrize("scale", [1.0, 30.0, 100.0])
def test_large_scores_do_not_hide_a_wrong_weight(scale: float) -> None:
    rng = np.random.default_rng(3)
    Q, K, V = (rng.standard_normal((4, 16)).astype(np.float32) for _ in range(3))
    K[1], Q[0] = K[0], K[0]  # query 0 attends most to keys 0 and 1, with a weight of one half each
    wrong = with_change(attnlab.attention(Q * scale, K * scale, V), "weights", (0, 0), 5e-4)
    with pytest.raises(DisagreementError, match="weights"):
        wrong.explain(0, 0)


@pytest.mark.parametrize("scale", [1e-20, 1e-30])
def test_underflow_is_not_an_error(scale: float) -> None:
    rng = np.random.default_rng(4)
    Q, K, V = (rng.standard_normal((3, 8)).astype(np.float32) for _ in range(3))
    attention = attnlab.attention(np.float32(scale) * Q, np.float32(scale) * K, V)
    for query in range(3):
        assert attention.explain(query).numbers
        assert attention.explain(query, 1).numbers


@pytest.mark.parametrize(
    "width", [0, -1, 5.5, math.nan, True, None, "a", (2,), np.ma.masked_equal(0, 0)], ids=str
)
def test_invalid_widths(toy: Attention, width: Any) -> None:
    with pytest.raises(AttnlabError, match="width must be an integer of at least 1; got "):
        toy.explain(2, 0).text(width)


def test_query_and_key_by_token_text() -> None:
    trace = GPT2.from_pretrained("pocket").trace("The dog chased the ball, but it")
    head = trace.head(1, 2)
    assert str(head.explain("it", "dog")) == str(head.explain(7, 1))
    assert str(head.explain(" it")) == str(head.explain("Ġit")) == str(head.explain(7))
    with pytest.raises(AttnlabError, match="'cat' isn't one of the tokens"):
        head.explain("it", "cat")
    again = GPT2.from_pretrained("pocket").trace("The dog chased the dog").head(0, 0)
    with pytest.raises(AttnlabError, match=r"'dog' matches 2 tokens: 1 \(Ġdog\), 4 \(Ġdog\)"):
        again.explain(-1, "dog")


def test_key_by_text_in_the_memory() -> None:
    """In cross-attention the key is in the other text; after a cache, positions continue."""
    X = np.eye(2)
    names = {"tokens": ["a", "b"], "memory_tokens": ["b", "c"]}
    crossed = attnlab.cross_attention(X, X, X, X, X, **names)
    assert str(crossed.explain("b", "c")) == str(crossed.explain(1, 1))
    with pytest.raises(AttnlabError, match="'a' isn't one of the tokens"):
        crossed.explain("b", "a")
    model = GPT2.from_pretrained(REFERENCE / "odd")
    step = model.generate("the hen", 2, temperature=0, trace=True).steps[-1].trace
    head, text = step.head(0, 0), step.tokens.symbols[0]
    assert str(head.explain(text, text)) == str(head.explain(0, -1))


def test_token_texts_require_tokens(toy: Attention) -> None:
    with pytest.raises(AttnlabError, match="no tokens: give the number of a query"):
        toy.explain("it")
