"""Jobs of heads: heads with known attention, by the pocket model's maker and by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from attnlab import GPT2, Tokenizer
from attnlab.analysis.jobs import error_of
from attnlab.pocket.held_out import Sample


def test_targets_of_a_text(pocket_maker: Any, pocket: GPT2) -> None:
    def pairs_of(text: Sample) -> dict[str, list[list[int]]]:
        """By job, pairs of a query and its target key."""
        _, targets = pocket_maker.targets(pocket, text)
        return {job: np.argwhere(keys).tolist() for job, keys in targets.items()}

    text = Sample("creature", "A sad cat wept.", [("adjective", (6, 9), (2, 5))])
    assert pairs_of(text) == {
        "previous": [[1, 0], [2, 1], [3, 2], [4, 3]],
        "first": [[1, 0], [2, 0], [3, 0], [4, 0]],
        "adjective": [[2, 1]],
    }
    text = Sample("recital", "Say: one two. Again: one two.", [])
    # Say : one two . Again : one two .
    assert pairs_of(text)["induction"] == [[6, 2], [7, 3], [8, 4], [9, 5]]


class Heads:
    """A stand-in for a model: heads that do one job each, perfectly, and a uniform one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def trace(self, text: str) -> Any:
        tokens = self.tokenizer.tokens(text)
        T = len(tokens)
        even = np.tril(np.ones((T, T))) / np.arange(1, T + 1)[:, None]
        previous, first, repeats = (np.eye(T) for _ in range(3))
        for i in range(1, T):
            previous[i] = np.eye(T)[i - 1]
            first[i] = np.eye(T)[0]
            earlier = [j for j in range(i) if tokens.ids[j] == tokens.ids[i]]
            if earlier:
                repeats[i] = np.eye(T)[earlier[-1] + 1]
        blocks = [
            SimpleNamespace(attention=SimpleNamespace(weights=np.array(heads)))
            for heads in ([previous, first], [repeats, even])
        ]
        return SimpleNamespace(tokens=tokens, blocks=blocks)


def test_heads_that_do_one_job(pocket_maker: Any, pocket: GPT2) -> None:
    jobs = pocket_maker.head_jobs(Heads(pocket.tokenizer))
    assert jobs.attention.shape == (len(jobs.jobs), 2, 2)
    for job, layer, head in (("previous", 0, 0), ("first", 0, 1), ("induction", 1, 0)):
        assert jobs.best(job) == (layer, head)
        assert jobs.attention[jobs.jobs.index(job), layer, head] == 1
    np.testing.assert_allclose(jobs.attention[:, 1, 1], jobs.even)
    assert ((jobs.even > 0.01) & (jobs.even < 0.4)).all()


def test_error_over_texts_by_hand() -> None:
    """Σ = 0.6 over 2 queries, and 0.8 over one: the mean is 1.4 / 3, and they differ by ∓ 1/3."""
    texts = [np.array([[[0.2, 0.4]]]), np.zeros((1, 1, 0)), np.array([[[0.8]]])]
    np.testing.assert_allclose(error_of(texts), [[1 / 3 / 1.5]])
    assert np.isnan(error_of(texts[:2])).all()  # one text
    assert np.isnan(error_of(texts[1:2])).all()  # none has keys
