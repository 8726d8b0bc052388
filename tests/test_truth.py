"""The table of all subsets of the pocket model's parts, and what follows from it."""

from itertools import permutations

import numpy as np
import pytest

from attnlab import GPT2, at, attribution_patch, patch
from attnlab.errors import InvalidValueError
from attnlab.pocket.held_out import samples
from attnlab.pocket.truth import FILE, PARTS, Truth, open_truth, shapley_values

CARD = (FILE.parent / "TRUTH_CARD.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def truth() -> Truth:
    return open_truth()


@pytest.fixture(scope="module")
def pocket() -> GPT2:
    return GPT2.from_pretrained("pocket", dtype="float64")


def test_sentences(truth: Truth, pocket: GPT2) -> None:
    assert len({*truth.sentences}) == 48
    for sentence in truth.sentences:
        texts = sentence.clean, sentence.corrupted
        clean, corrupted = (pocket.tokenizer.encode(text) for text in texts)
        assert len(clean) == len(corrupted)
        assert clean != corrupted
        assert sentence.right != sentence.wrong
        assert all(len(pocket.tokenizer.encode(word)) == 1 for word in sentence[3:])


def test_subsets_computed_one_by_one_with_edits(truth: Truth, pocket: GPT2) -> None:
    """Some entries of the table, computed with an edit for each ablated part."""
    texts = [sample.text for sample in samples()[:200]]
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
        for subset in (0, 1023, *rng.integers(1024, size=4)):
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


@pytest.mark.slow
def test_recorded_scores(truth: Truth, pocket: GPT2) -> None:
    """Patching, and its estimate, to which the edges of a part by EAP sum up."""
    for n, task in enumerate(truth.tasks):
        pairs = [sentence for sentence in truth.sentences if sentence.task == task]
        metric = [(sentence.right, sentence.wrong) for sentence in pairs]
        clean = pocket.trace([sentence.clean for sentence in pairs])
        corrupted = pocket.trace([sentence.corrupted for sentence in pairs])
        heads, mlps = "blocks.*.attention.heads.*.context", "blocks.*.mlp.output"
        for method, rows in ((patch, (0,)), (attribution_patch, (1, 2))):
            more = {"progress": False} if method is patch else {}
            of_heads, of_mlps = (
                method(clean, corrupted, path, target=metric, **more).effects.mean(axis=0)  # type: ignore[operator]
                for path in (heads, mlps)
            )
            effects = np.column_stack([of_heads, of_mlps]).ravel()
            for row in rows:
                np.testing.assert_allclose(effects, truth.scores[row, n], rtol=1e-6, atol=1e-9)


def test_card_agrees_with_the_table(truth: Truth) -> None:
    for task in truth.tasks:
        of_task = shapley_values(truth.values(task))
        numbers = zip(of_task.mean(axis=0), of_task.std(axis=0, ddof=1) / 6**0.5, strict=True)
        cells = [f"{x:.2f}±{error:.2f}" for x, error in numbers]
        assert [task, *cells] in [line.split() for line in CARD.splitlines()]
        first, sentence = next((n, s) for n, s in enumerate(truth.sentences) if s.task == task)
        assert f"{sentence.clean} " in CARD
        assert f" {truth.table[1, first, -1, 0]:.2f}\n" in CARD
    assert FILE.stat().st_size < 1_000_000


def test_invalid_arguments_are_refused(truth: Truth) -> None:
    for arguments in (("x", "mean"), ("pronoun", "noise")):
        with pytest.raises(InvalidValueError, match="must be one of"):
            truth.values(*arguments)
    assert truth.values("pronoun").shape == (6, 1024)
