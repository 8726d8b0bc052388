"""Scores by pairs of parts: against PyTorch's derivatives, by hand, and in words."""

import copy
import pickle
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from chinese import in_chinese
from conftest import REFERENCE, RELATIVES, needs
from runs import stored_steps

import attnlab
from attnlab import GPT2, AttnlabError, Trace, at
from attnlab.forward import ForwardPass
from attnlab.support.messages import say

TEXT = "The dog chased the ball, but it"
IT, DOG, BALL = 7, 1, 4
MLP, HEAD = "blocks.0.mlp.output", "blocks.0.attention.heads.1.output"

RECORDED = np.load(REFERENCE / "why.npz")
IDS, OTHERS = [5, 7, 100, 3, 41, 8, 2], [9, 9, 4, 77, 130, 8, 1]

close = partial(np.testing.assert_allclose, rtol=0, atol=1e-10)


@pytest.fixture(scope="module")
def pocket64() -> GPT2:
    return GPT2.from_pretrained("pocket", dtype="float64")


@pytest.fixture(scope="module")
def it(pocket64: GPT2) -> Trace:
    return pocket64.trace(TEXT)


def precise(name: str) -> GPT2:
    return GPT2.from_pretrained(REFERENCE / name, dtype="float64")


def check_pairs(trace: Trace, recorded: str) -> None:
    """All pairs of all heads: against another key, and against the mean."""
    for layer, number in np.ndindex(trace.config.n_layer, trace.config.n_head):
        head, query = trace.head(layer, number), len(trace.tokens) - 1 - number
        compared = ((1, 0), (query, None), (0, 2))
        found = [attnlab.why(head, query, key, other).pairs for key, other in compared]
        close(found, RECORDED[f"{recorded}.{layer}"][number][: len(found)])


@pytest.mark.parametrize("name", ["odd", *RELATIVES])
def test_pairs_against_pytorch(name: str) -> None:
    check_pairs(precise(name).trace(IDS), f"{name}.pairs")


def test_pairs_of_several_texts_and_of_edited_ones_against_pytorch() -> None:
    check_pairs(precise("odd").trace([OTHERS, IDS, IDS[:3]])[1], "odd.pairs")
    for name in ("odd", "reordered"):
        edited = precise(name).trace(OTHERS).edited({"blocks.0.attention.heads.1.context": 0})
        check_pairs(edited, f"{name}.edited")


def test_cached_keys_are_one_part() -> None:
    """The other parts are as in the whole text, which PyTorch ran at once."""
    generation = precise("odd").generate(IDS, 2, temperature=0, trace=True)
    ids, step = RECORDED["odd.cached.ids"], generation.steps[1].trace
    assert generation.tokens.ids[: len(ids)].tolist() == ids.tolist()
    for layer, number in np.ndindex(3, 5):
        head = step.head(layer, number)
        found = [attnlab.why(head, 0, 2), attnlab.why(head, 0, 7, against=1)]
        close([why.pairs for why in found], RECORDED[f"odd.cached.{layer}"][number])


@pytest.mark.parametrize("other", [1, None])
@pytest.mark.parametrize("name", ["odd", *RELATIVES])
def test_opened_parts_against_pytorch(name: str, other: int | None) -> None:
    """A head into tokens, one of these into parts, again a head; and an MLP into neurons."""
    trace, kind = precise(name).trace(IDS), "mean" if other is None else "one"
    before, last = trace.config.n_layer - 2, trace.head(-1, -1)
    why = attnlab.why(last, 6, 5, other)

    def added(by: Any) -> dict[str, float]:
        """What each part of the key adds, by name."""
        return dict(zip((term.name for term in by.parts["key"]), by.pairs.sum(axis=0), strict=True))

    def compare(by: Any, first: str, recorded: str, count: int | None = None) -> None:
        expected = RECORDED[f"{name}.{kind}.{recorded}"][:count]
        names, sums = [*added(by)], [*added(by).values()]
        start = names.index(first)
        close(sums[start : start + len(expected)], expected)
        close(sum(sums), why.total)

    token = f"blocks.{before}.attention.heads.0.V[1]"
    by_token = why.open(f"blocks.{before}.attention.heads.0.output", "key")
    compare(by_token, token.replace("[1]", "[0]"), "tokens", 7 if other is None else 6)
    by_part = by_token.open(token)
    compare(by_part, f"{token} < token_embedding", "parts")
    if before:
        earlier = f"{token} < blocks.0.attention.heads.1"
        inner = by_part.open(f"{earlier}.output")
        compare(inner, f"{earlier}.V[0]", "earlier")
        close(inner.open(f"{earlier}.V[0]").pairs.sum(), why.total)
    neurons = RECORDED[f"{name}.{kind}.neurons"]
    largest = np.argsort(-np.abs(neurons))[:10]
    opened = added(why.open(f"blocks.{before}.mlp.output", "key"))
    found = {n: x for n, x in opened.items() if ".W_2[" in n}
    rest = found.pop(f"blocks.{before}.mlp.W_2[others]", 0)
    assert {*found} == {f"blocks.{before}.mlp.W_2[{n}]" for n in largest}
    close([found[f"blocks.{before}.mlp.W_2[{n}]"] for n in largest], neurons[largest])
    close(rest, np.delete(neurons, largest).sum())


def test_parts_are_named_by_their_paths(it: Trace) -> None:
    why = attnlab.why(it.head(1, 2), "it", "dog", "ball")
    names = [term.name for term in why.parts["query"]]
    assert names[-2:] == ["blocks.1.attention.bias", "blocks.1.attention.b_Q"]
    assert why.parts["key"][-1].name == "blocks.1.attention.b_K"
    for name in names:
        assert at(it, name).shape[-1] in (128, 32 * 4)
    assert names[7] == why.parts["key"][7].name == MLP
    assert why.pairs[7, 7] == np.abs(why.pairs).max()


# By language: how a sentence begins, its words for more and less, and how it ends, as patterns.
PARTS = {
    "en": (
        *(r"(.+) looks {} at (.+) than at (.+){}", "more", "less"),
        r" because of (.+): (\S+) of (\S+)\.",
        r"\. No pair of parts is half of that; the largest is (.+): (\S+) of (\S+)\.",
        r" because of (.+): (\S+), and (\S+) from all other pairs\.",
    ),
    "zh": (
        *("(.+)看向(.+)比看向(.+){}。{}", "多", "少"),
        r"原因：(.+)，(?P<total>\S+) 中占 (?P<part>\S+)。",
        r"没有一对部分占到一半；最大的是：(.+)，(?P<total>\S+) 中占 (?P<part>\S+)。",
        r"原因：(.+)，为 (\S+)；其余各对合计 (\S+)。",
    ),
}
# The whole patterns, with what is claimed about the two scores.
SENTENCES = {
    language: {
        lead.format(word, end): sign for end in ends for word, sign in ((more, 1), (less, -1))
    }
    for language, (lead, more, less, *ends) in PARTS.items()
}


@pytest.mark.parametrize("language", SENTENCES)
def test_sentences_are_true(it: Trace, language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all heads, keys and queries: the direction, the largest pair, and both numbers."""
    monkeypatch.setenv("ATTNLAB_LANGUAGE", language)
    kinds = set()
    cancelling = 0
    for head, query, key, other in np.ndindex(4, 8, 8, 8):
        if key > query or other > query or key == other or (query + key + other) % 3:
            continue
        why, scores = attnlab.why(it.head(1, head), query, key, other), it.head(1, head).scores
        sentence, pairs = say(why.sentence), why.pairs
        total = scores[query, key] - scores[query, other]
        if found := re.search(r"(?:largest are|最大的是) (\S+) (?:and|和) (\S+)[.。]$", sentence):
            ends = sorted([pairs.max(), pairs.min()], reverse=bool(total > 0))
            assert [float(x) for x in found.groups()] == pytest.approx(ends, abs=0.00501)
            assert abs(ends[0]) > abs(total)
            assert 2 * max(abs(ends[1]), abs(ends[0]) - abs(total)) >= abs(ends[0])
            cancelling += 1
            continue
        matches = {p: re.fullmatch(p, sentence) for p in SENTENCES[language]}
        ((pattern, match),) = ((p, m) for p, m in matches.items() if m)
        kinds.add(pattern)
        assert match is not None
        words = [it.tokens.texts[i].strip() for i in (query, key, other)]
        assert [re.sub(r"[“”]", "", word) for word in match.groups()[:3]] == words
        sign = SENTENCES[language][pattern]
        assert sign * total > 0
        i, j = np.unravel_index((sign * pairs).argmax(), pairs.shape)
        is_share = r"of (\S" in pattern or "中占" in pattern
        if "part" in match.groupdict():
            part, rest = match["part"], match["total"]
        else:
            part, rest = match.groups()[4:6]
        assert float(part) == pytest.approx(pairs[i, j], abs=0.00501)
        assert float(rest) == pytest.approx(total if is_share else total - pairs[i, j], abs=0.00501)
        ratio = pairs[i, j] / total
        assert (ratio > 1) == (not is_share)
        is_half_as_shown = is_share and 2 * abs(float(part)) >= abs(float(rest))
        is_less = "half" in pattern or "一半" in pattern
        assert is_less == (ratio < 0.5 and not is_half_as_shown)
        for term in (why.parts["query"][i], why.parts["key"][j]):
            assert say(term.label) in match[4]
        is_same = i == j and i < 9
        assert (match[4].endswith(" at both") or match[4].endswith("（两处）")) == is_same
        if not is_share:  # no other pair takes back half of the largest
            assert 2 * (-sign * pairs).max() < sign * pairs[i, j]
            assert 2 * abs(total) > abs(pairs[i, j])  # nor do all others together
    assert len(kinds) == 6
    assert cancelling


def test_a_sentence_says_that_b_q_is_the_same_for_every_query() -> None:
    trace = GPT2.from_pretrained("english").trace("When it rains, we stay at home and play")
    heads = (trace.head(layer, head) for layer in (2, 3) for head in range(6))
    sentences = [attnlab.why(head, 8, key, 2).sentence for head in heads for key in (5, 7)]
    of_bias = [each for each in sentences if "b_Q, the same for every query, and " in each]
    assert of_bias
    assert all("b_Q（对每个查询都相同）、" in in_chinese(each) for each in of_bias)


def test_sentences_against_the_mean(it: Trace) -> None:
    head = it.head(1, 2)
    sentence = attnlab.why(head, "it", "dog").sentence
    assert sentence.startswith("“it” scores “dog” above the mean of its 8 keys because of what MLP")
    below = attnlab.why(head, "it", 0).sentence
    assert below.startswith("“it” scores “The” below the mean of its 8 keys")
    assert in_chinese(sentence).startswith(
        "“it”给“dog”的分数高于它那 8 个键的平均分。原因：MLP 0 写入的内容（两处），"
    )
    alone = attnlab.why(head, 0, 0)
    words = "“The” sees only one key, “The”: its weight is 1, whatever the score."
    assert alone.sentence == words
    assert not alone.pairs.any()
    assert not alone.total
    zero = it.edited({"blocks.1.attention.heads.2.W_Q": 0, "blocks.1.attention.heads.2.b_Q": 0})
    target = "the score of “it” for “dog” minus that for “ball”"
    sentence = attnlab.why(zero.head(1, 2), "it", "dog", "ball").sentence
    assert sentence == f"The parts of {target} add up to 0."


def test_numbers_that_round_to_half_are_not_called_less(it: Trace) -> None:
    why = attnlab.why(it.head(1, 0), "chased", "The", "chased")
    assert why.pairs.max() < 0.5 * why.total
    assert why.sentence.endswith("because of what MLP 0 wrote at both: 0.47 of 0.94.")


def test_a_word_that_occurs_twice_is_named_with_its_position(pocket: GPT2) -> None:
    trace = pocket.trace("The dog chased the dog")
    why = attnlab.why(trace.head(1, 2), 4, 1)
    assert why.sentence.startswith("“dog” (4) scores “dog” (1) ")
    line_break = attnlab.why(pocket.trace("The dog\n").head(1, 2), -1, 1)
    assert line_break.sentence.startswith("“Ċ” scores “dog” ")
    with pytest.raises(AttnlabError, match="'dog' matches 2 tokens"):
        attnlab.why(trace.head(1, 2), 4, "dog")


def test_dataframes_and_heatmaps(it: Trace) -> None:
    needs("pandas", "frames")
    needs("matplotlib", "plot")
    why = attnlab.why(it.head(1, 2), "it", "dog", "ball")
    frame = why.to_dataframe()
    assert frame.set_index(["query_part", "key_part"]).loc[MLP, MLP].item() == why.pairs[7, 7]
    assert frame.score.sum() == pytest.approx(why.total)
    assert frame.attrs["title"] == why.title
    picture = why.plot()
    np.testing.assert_array_equal(picture.axes.images[0].get_array(), why.pairs)
    assert picture.axes.get_ylabel() == "part of the query"
    assert why.plot(language="zh").axes.get_yticklabels()[7].get_text() == "MLP 0"
    opened = why.open(MLP)  # 21 parts on each side: the smaller ones are drawn as their sum
    numbers = np.asarray(opened.plot().axes.images[0].get_array())
    assert numbers.shape == (13, 13)
    largest = np.sort(np.argsort(-np.abs(opened.pairs).max(axis=1))[:12])
    np.testing.assert_allclose(numbers[:12].sum(axis=1), opened.pairs[largest].sum(axis=1))
    assert numbers.sum() == pytest.approx(why.total)
    labels = [label.get_text() for label in opened.plot().axes.get_xticklabels()]
    assert labels[-1] == "the other 9 parts"
    assert "MLP 0: neuron 148" in labels or "MLP 0: the other 502 neurons" in labels


def test_opened_parts_sum_to_the_part(it: Trace) -> None:
    why = attnlab.why(it.head(1, 2), "it", "dog", "ball")
    both = why.open(HEAD)
    assert (len(both.parts["query"]), len(both.parts["key"])) == (10 - 1 + 8, 10 - 1 + 5)
    one = why.open(HEAD, "query")
    assert one.parts["key"] == why.parts["key"]
    np.testing.assert_allclose(one.pairs[3:11].sum(0), why.pairs[3], atol=1e-12)
    inner = both.open("blocks.0.attention.heads.1.V[1]", "key")
    token = [term.name for term in inner.parts["key"]].index(
        "blocks.0.attention.heads.1.V[1] < token_embedding"
    )
    assert inner.parts["key"][token].label == "layer 0 head 1 from 1 (Ġdog): token embedding"
    assert inner.pairs.sum() == pytest.approx(why.total, abs=1e-12)
    assert why.pairs.shape == (10, 10)  # unchanged


def test_a_score_without_a_part(it: Trace) -> None:
    head = it.head(1, 2)
    why = attnlab.why(head, "it", "dog", "ball")
    for part in (MLP, HEAD, "token_embedding", "blocks.0.attention.b_O"):
        without = why.without(part)
        assert without.score == why.total
        i = [term.name for term in why.parts["query"]].index(part)
        others = np.delete(np.delete(why.pairs, i, 0), i, 1)
        assert without.held == pytest.approx(others.sum(), abs=1e-12)
        stream = it.blocks[1].input - at(it, part)
        attention = it.blocks[1].attention
        X = attnlab.layer_norm(stream, attention.gain, attention.bias)
        q, k = X[IT] @ head.W_Q + head.b_Q, X @ head.W_K + head.b_K
        assert without.recomputed == pytest.approx((k[DOG] - k[BALL]) @ q / 32**0.5, abs=1e-12)
        edit = {part.replace("1.output", "1.context"): 0}
        scores = it.edited(edit).head(1, 2).scores[IT]
        assert without.ablated == pytest.approx(scores[DOG] - scores[BALL], abs=1e-12)
    # MLP 0 is the last to write: what follows doesn't change without it.
    mlp = why.without(MLP)
    assert mlp.recomputed == pytest.approx(mlp.ablated, abs=1e-12)
    assert abs(mlp.held - mlp.recomputed) > 1  # the deviation isn't constant


def test_rows_of_a_long_text_equal_those_of_its_start(pocket64: GPT2) -> None:
    """A long text's weights and contexts are computed by rows, and its heads one by one."""
    ids = np.random.default_rng(0).integers(0, 200, 100)
    long, start = pocket64.trace(ids), pocket64.trace(ids[:20])
    assert long._run.is_long > start._run.is_long
    for other in (None, 3):
        found, expected = (attnlab.why(trace.head(1, 1), 12, 5, other) for trace in (long, start))
        np.testing.assert_allclose(found.pairs, expected.pairs, rtol=0, atol=1e-11)
        for side in ("query", "key"):
            pairs = [one.open(HEAD, side).pairs for one in (found, expected)]
            np.testing.assert_allclose(pairs[0], pairs[1], rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "path", ["embedding", "blocks.0.mid", "blocks.0.output", "blocks.1.attention.heads.2.Q"]
)
def test_edited_sums_are_refused(it: Trace, path: str) -> None:
    edited = it.edited({path: lambda x: 2 * x + 1})
    with pytest.raises(AttnlabError, match=r"don't sum to the score.*edited"):
        attnlab.why(edited.head(1, 2), "it", "dog")


@pytest.mark.parametrize(
    "path",
    [
        *("token_embedding", MLP, HEAD, "blocks.0.attention.b_O", "blocks.1.attention.bias"),
        *("blocks.0.attention.heads.1.weights", "blocks.1.attention.heads.2.b_Q"),
        *("blocks.1.attention.gain", "blocks.1.attention.heads.2.scale", "blocks.0.mlp.W_2"),
    ],
)
def test_edited_parts_are_explained(it: Trace, path: str) -> None:
    edited = it.edited({path: lambda x: 2 * x + 0.1})
    why = attnlab.why(edited.head(1, 2), "it", "dog", "ball")
    scores = edited.head(1, 2).scores[IT]
    assert why.total == pytest.approx(scores[DOG] - scores[BALL], abs=1e-12)
    assert why.total != pytest.approx(
        attnlab.why(it.head(1, 2), "it", "dog", "ball").total, abs=1e-6
    )
    assert why.pairs.sum() == pytest.approx(why.total, abs=1e-11)
    assert path in why.title or HEAD in why.title


def test_opening_an_edited_sum_is_refused(it: Trace) -> None:
    why = attnlab.why(
        it.edited({"blocks.0.attention.heads.1.context": 1}).head(1, 2), "it", "dog", "ball"
    )
    with pytest.raises(AttnlabError, match=r"don't sum to blocks\.0\.attention\.heads\.1\.output"):
        why.open(HEAD, "query")


REFUSALS: list[tuple[Callable[[Any], Any], type, str]] = [
    (
        lambda it: attnlab.why(it.head(1, 2), 3, 5),
        ValueError,
        r"key 5 \(,\) is masked for query 3 \(Ġthe\)",
    ),
    (lambda it: attnlab.why(it.head(1, 2), 3, 1, 5), ValueError, "sees keys 0, 1, 2, 3"),
    (lambda it: attnlab.why(it.head(1, 2), "it", "cat"), ValueError, "'cat' isn't one of the"),
    (lambda it: attnlab.why(it.head(1, 2), 8, 0), IndexError, "query 8 is out of range"),
    (lambda it: attnlab.why(it.head(1, 2), 0, True), TypeError, "key must be an integer; got True"),
    (lambda it: attnlab.why(it.head(1, 2), "it", "dog", "dog"), ValueError, "differ; both are 1"),
    (
        lambda it: attnlab.why(attnlab.gradients(it, 5).blocks[1].attention.heads[2], 7, 1),
        ValueError,
        "gradients",
    ),
    (lambda it: why_of(it).open("MLP"), ValueError, "no part 'MLP'; parts are token_embedding, "),
    (lambda it: why_of(it).open(np.ones(2)), TypeError, "part must be a str; got"),
    (lambda it: why_of(it).without(3), TypeError, "part must be a str; got 3"),
    (lambda it: why_of(it).open(MLP, "value"), ValueError, "side must be one of query, key, None"),
    (lambda it: why_of(it).open("token_embedding"), ValueError, "one part: it can't be opened"),
    (lambda it: why_of(it).without("blocks.1.attention.bias"), ValueError, "part must be an embed"),
    (lambda it: why_of(it).open(MLP, "key").without(MLP), ValueError, "part must be an embed"),
    (lambda it: why_of(it).open(MLP).without(MLP), ValueError, "there is no part 'blocks.0.mlp"),
    (lambda it: attnlab.why(it, 2, 0), TypeError, "head must be a Head"),
    (lambda it: attnlab.why(it.head(1, 2), 0, 0).open(HEAD), ValueError, "adds 0 here: there is"),
]


def why_of(trace: Any) -> Any:
    return attnlab.why(trace.head(1, 2), "it", "dog", "ball")


@pytest.mark.parametrize(("call", "kind", "words"), REFUSALS)
def test_refused_calls(it: Trace, call: Callable[[Any], Any], kind: type, words: str) -> None:
    with pytest.raises(AttnlabError, match=words) as error:
        call(it)
    assert isinstance(error.value, kind)


def test_heads_without_earlier_layers_are_refused(it: Trace) -> None:
    X, W = np.ones((3, 4)), np.eye(4)
    heads = attnlab.multi_head_attention(X, W, W, W, W, n_head=2).heads
    with pytest.raises(AttnlabError, match="needs a head of a trace, such as"):
        attnlab.why(heads[0], 2, 1)
    batch = ForwardPass([[1, 2], [3, 4]], it.parameters)
    with pytest.raises(AttnlabError, match=r"one text; got scores of shape \(2, 2, 2\)"):
        attnlab.why(batch.blocks[1].attention.heads[0], 1, 0)


def test_the_first_layer_reads_embeddings_alone(it: Trace) -> None:
    why = attnlab.why(it.head(0, 1), "it", "but")
    assert [term.name for term in why.parts["key"]] == [
        *("token_embedding", "position_embedding"),
        *("blocks.0.attention.bias", "blocks.0.attention.b_K"),
    ]


def test_steps_are_not_kept_and_results_are_copied(pocket64: GPT2) -> None:
    trace, read = pocket64.trace(TEXT), pocket64.trace(TEXT)
    _ = read.blocks[1].input
    why = attnlab.why(trace.head(1, 2), "it", "dog")
    why.open(HEAD)
    large = ("weights", "scores", "hidden", "activated", "mlp.output")
    added = set(stored_steps(trace)) - set(stored_steps(read))
    assert not [path for path in added if path.endswith(large)]
    for again in (copy.deepcopy(why), pickle.loads(pickle.dumps(why))):
        assert np.array_equal(again.pairs, why.pairs)
        assert again.open(MLP).sentence == why.open(MLP).sentence
    assert not why.pairs.flags.writeable


def test_float32_stays_float32() -> None:
    model = GPT2.from_pretrained(REFERENCE / "odd")
    trace, expected = model.trace([5, 7, 100, 3]), None
    exact = GPT2.from_pretrained(REFERENCE / "odd", dtype="float64").trace([5, 7, 100, 3])
    why, expected = (attnlab.why(one.head(2, 1), 3, 1) for one in (trace, exact))
    assert why.pairs.dtype == np.float32
    np.testing.assert_allclose(why.pairs, expected.pairs, atol=1e-5)


def test_a_new_token_opens_beside_cached_ones() -> None:
    """As in a trace of the whole text, which has no cache."""
    model, head = precise("odd"), "blocks.0.attention.heads.1"
    generation = model.generate([5, 7, 100], 2, temperature=0, trace=True)
    step = generation.steps[1].trace
    assert (step.cached, len(step.tokens)) == (3, 1)
    whole = model.trace(generation.tokens.ids[:4])
    opened = []
    for trace in (step, whole):
        why = attnlab.why(trace.head(1, 2), -1, 1).open(f"{head}.output", "query")
        parts = why.open(f"{head}.V[3]", "query").parts["query"]
        opened.append({part.name: part.vector for part in parts if " < " in part.name})
    assert [*opened[0]] == [*opened[1]] != []
    by_token = attnlab.why(step.head(1, 2), -1, 1).open(f"{head}.output", "query")
    with pytest.raises(AttnlabError, match="one part: it can't be opened"):
        by_token.open(f"{head}.V[1]")
    for name, vector in opened[1].items():
        close(opened[0][name], vector, err_msg=name)
