"""The table of all subsets of the pocket model's parts, and what follows from it."""

import re
from itertools import permutations

import numpy as np
import pytest
from conftest import REFERENCE
from truth_sentences import sentences

from attnlab import GPT2, at
from attnlab.errors import InvalidTypeError, InvalidValueError
from attnlab.pocket.grammar import HELD_OUT_SEED, corpus
from attnlab.pocket.truth import (
    CARD,
    FILE,
    PARTS,
    SUBSETS,
    TEXTS_FOR_MEANS,
    Interactions,
    Truth,
    compute_table,
    interaction_indices,
    kept_parts,
    open_truth,
    shapley_values,
    spearman,
)


@pytest.fixture(scope="module")
def truth() -> Truth:
    return open_truth()


@pytest.fixture(scope="module")
def pocket() -> GPT2:
    return GPT2.from_pretrained("pocket", dtype="float64")


def test_sentences_follow_from_the_seed(truth: Truth, pocket: GPT2) -> None:
    assert sentences(pocket) == list(truth.sentences)
    assert len({*truth.sentences}) == 48
    for sentence in truth.sentences:
        texts = sentence.clean, sentence.corrupted
        clean, corrupted = (pocket.tokenizer.encode(text) for text in texts)
        assert len(clean) == len(corrupted)
        assert clean != corrupted
        assert sentence.right != sentence.wrong


def test_subsets_computed_one_by_one_with_edits(truth: Truth, pocket: GPT2) -> None:
    """Some entries of the table, computed with an edit for each ablated part."""
    texts = [sample.text for sample in corpus(HELD_OUT_SEED, TEXTS_FOR_MEANS).samples]
    traces = [pocket.trace(text) for text in texts]
    means = {
        part: np.concatenate([at(trace, path) for trace in traces]).mean(axis=0)
        for part, path in PATHS.items()
    }
    rng = np.random.default_rng(0)
    for number in (3, 20, 40):
        sentence = truth.sentences[number]
        expected, wrong = (
            pocket.tokenizer.encode(word)[0] for word in (sentence.right, sentence.wrong)
        )
        trace = pocket.trace(sentence.clean)
        for subset in (0, SUBSETS - 1, *rng.integers(SUBSETS, size=4)):
            removed = [part for n, part in enumerate(PARTS) if not subset >> n & 1]
            for row, by in enumerate((dict.fromkeys(PARTS, 0.0), means)):
                edits = {PATHS[part]: by[part] for part in removed}
                logits = trace.edited(edits).next_logits
                log_p = logits[expected] - np.log(np.exp(logits).sum())
                np.testing.assert_allclose(
                    truth.table[row, number, subset],
                    [logits[expected] - logits[wrong], log_p],
                    rtol=1e-4,
                    atol=1e-4,
                )


PATHS = {
    part: f"blocks.{part[-1]}.mlp.output"
    if part.startswith("MLP")
    else f"blocks.{part[0]}.attention.heads.{part[2]}.context"
    for part in PARTS
}


@pytest.mark.slow
def test_part_of_the_table_is_reproduced(truth: Truth, pocket: GPT2) -> None:
    some = truth.sentences[7:8]
    np.testing.assert_allclose(
        compute_table(pocket, some), truth.table[:, 7:8], rtol=1e-4, atol=1e-4
    )


def test_shapley_values_are_means_over_orders() -> None:
    """The definition by permutations, in a game of four."""
    v = np.random.default_rng(0).normal(size=16)
    orders = [*permutations(range(4))]
    expected = np.zeros(4)
    for order in orders:
        present = 0
        for player in order:
            expected[player] += (v[present | 1 << player] - v[present]) / len(orders)
            present |= 1 << player
    np.testing.assert_allclose(shapley_values(v), expected, atol=1e-14)
    assert shapley_values(v).sum() == pytest.approx(v[-1] - v[0])


def test_interactions_of_known_games() -> None:
    """A pair that is worth 1 only together, beside a third that is worth 2 alone."""
    subsets = np.arange(8)
    v = (subsets & 3 == 3) + 2.0 * (subsets >> 2 & 1)
    actual = interaction_indices(v)
    np.testing.assert_allclose(actual[0, 1], 1, atol=1e-14)
    np.testing.assert_allclose([actual[0, 2], actual[1, 2]], 0, atol=1e-14)
    assert np.isnan(np.diag(actual)).all()
    either = (subsets & 3 > 0).astype(float)  # one replaces the other
    np.testing.assert_allclose(interaction_indices(either)[1, 0], -1, atol=1e-14)
    three = np.array([float(subset & 7 == 7) for subset in range(16)])  # as the note says
    pairs = interaction_indices(three)[np.triu_indices(4, 1)]
    np.testing.assert_allclose(pairs, [0.5, 0.5, 0, 0.5, 0, 0], atol=1e-14)
    assert "half of it is counted for each of their pairs" in Interactions.note
    # The effect of j on i's Shapley value, with j present and absent (Grabisch and Roubens).
    game = np.random.default_rng(1).normal(size=16)
    subsets = np.arange(16)
    present, absent = (game[subsets[subsets >> 3 & 1 == is_in]] for is_in in (1, 0))
    difference = shapley_values(present) - shapley_values(absent)
    np.testing.assert_allclose(interaction_indices(game)[3, :3], difference, atol=1e-14)


def test_circuits_are_the_smallest(truth: Truth) -> None:
    kept = kept_parts(range(SUBSETS))
    for task in truth.tasks:
        v = truth.values(task).mean(axis=0)
        of_subsets = (v - v[0]) / (v[-1] - v[0])
        actual = truth.circuits(task)
        size = len(actual[0][0])
        assert of_subsets[kept.sum(axis=1) < size].max() < 0.9
        for parts, faithfulness in actual:
            subset = sum(1 << PARTS.index(part) for part in parts)
            assert len(parts) == size
            assert of_subsets[subset] == pytest.approx(faithfulness)
            assert faithfulness >= 0.9
    with pytest.raises(InvalidValueError, match="the highest is"):
        truth.circuits("pronoun", 99)


def test_spearman() -> None:
    assert spearman(np.array([1, 2, 3]), np.array([10, 20, 15])) == pytest.approx(0.5)
    assert spearman(np.array([1, 1, 2]), np.array([5, 5, 9])) == pytest.approx(1)


@pytest.mark.slow
def test_methods_are_correlated_with_the_truth(truth: Truth, pocket: GPT2) -> None:
    actual = truth.methods(pocket)
    np.testing.assert_allclose(actual.scores[:4], truth.scores, rtol=1e-6, atol=1e-9)
    assert actual.correlations.shape == (len(actual.names), len(truth.tasks))
    for m, t in np.ndindex(actual.correlations.shape):
        expected = truth.shapley().values[t]
        assert spearman(actual.scores[m, t], expected) == pytest.approx(actual.correlations[m, t])
    # The effects of all edges of a part add up to the linear effect of the part.
    np.testing.assert_allclose(actual.scores[1], actual.scores[2], atol=1e-10)
    # Patching of head 1.2 in the first pronoun pair, by an edit.
    pairs = [sentence for sentence in truth.sentences if sentence.task == "pronoun"]
    effects = []
    for sentence in pairs:
        expected, wrong = (
            pocket.tokenizer.encode(word)[0] for word in (sentence.right, sentence.wrong)
        )
        clean, corrupted = pocket.trace(sentence.clean), pocket.trace(sentence.corrupted)
        patched = corrupted.edited({PATHS["1.2"]: clean.head(1, 2).context}).next_logits
        before = corrupted.next_logits
        effects.append((patched - before)[expected] - (patched - before)[wrong])
    task, part = truth.tasks.index("pronoun"), PARTS.index("1.2")
    assert actual.scores[0, task, part] == pytest.approx(np.mean(effects))
    assert "Methods that patch" in repr(actual)


def test_model_card_agrees_with_the_table(truth: Truth) -> None:
    card = CARD.read_text(encoding="utf-8")
    assert truth.shapley().table() in card
    assert repr(truth) in card
    for task in truth.tasks:
        parts, faithfulness = truth.circuits(task)[0]
        assert re.search(
            rf"^{task}: {re.escape(', '.join(parts))} \({faithfulness:.2f}", card, re.M
        )
    assert FILE.stat().st_size < 1_000_000


def test_invalid_arguments_are_refused(truth: Truth) -> None:
    for settings in ({"task": "x"}, {"ablation": "noise"}):
        with pytest.raises(InvalidValueError, match="must be one of"):
            truth.values(**settings)
    odd = GPT2.from_pretrained(REFERENCE / "odd")
    with pytest.raises(InvalidValueError, match=r"must be the pocket model .* a model from .*odd"):
        truth.methods(odd)
    with pytest.raises(InvalidTypeError, match="model must be"):
        truth.methods("pocket")  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="faithfulness must be a finite number"):
        truth.circuits("pronoun", "much")  # type: ignore[arg-type]
    assert "in all tasks" in repr(truth.interactions())
    assert truth.values("pronoun").shape == (6, SUBSETS)
    assert truth.interactions("pronoun").values.shape == (10, 10)
    assert "ablation by mean" in repr(truth.interactions("pronoun"))
