"""pocket/jobs.py: target keys, and heads with known attention."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attnlab import GPT2, GPT2Config, Tokenizer, Tokens
from attnlab.analysis.jobs import HeadJobs, error_of
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.errors import InvalidValueError
from attnlab.pocket.grammar import Link, Sample
from attnlab.pocket.jobs import JOBS, head_jobs, targets, token_span
from attnlab.training import ParameterVector


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_directory(BUILT_IN["pocket"].directory)


def test_token_span(tokenizer: Tokenizer) -> None:
    text = "It’s a fluffy fox"
    tokens = tokenizer.tokens(text)
    assert tokens.texts == ("It", "’", "s", " a", " fluffy", *tokens.texts[5:])
    assert token_span(text, tokens, (7, 13)) == slice(4, 5)
    assert token_span(text, tokens, (3, 6)) == slice(2, 4)
    assert token_span(text, tokens, (14, 17)) == slice(5, len(tokens))
    assert len(tokens) > 6, "fox is not in the lexicon: several tokens"


def pairs_of(text: Sample, tokens: Tokens) -> dict[str, list[tuple[int, int]]]:
    """By job, pairs of a query and each of its target keys."""
    return {
        job: [(int(query), int(key)) for query, key in np.argwhere(keys)]
        for job, keys in targets(text, tokens).items()
    }


def test_pairs_of_queries_and_keys(tokenizer: Tokenizer) -> None:
    text = Sample("creature", "A sad cat wept.", 0.0, (Link("adjective", (6, 9), (2, 5)),))
    assert pairs_of(text, tokenizer.tokens(text.text)) == {
        "previous": [(1, 0), (2, 1), (3, 2), (4, 3)],
        "first": [(1, 0), (2, 0), (3, 0), (4, 0)],
        "adjective": [(2, 1)],
    }
    text = Sample("recital", "Say: one two. Again: one two.", 0.0, ())
    # Say : one two . Again : one two .
    actual = pairs_of(text, tokenizer.tokens(text.text))
    assert actual["induction"] == [(6, 2), (7, 3), (8, 4), (9, 5)]
    text = Sample("creature", "A fox wept.", 0.0, (Link("adjective", (2, 5), (0, 1)),))
    tokens = tokenizer.tokens(text.text)
    last = tokens.texts.index(" wept") - 1
    assert last > 1
    assert pairs_of(text, tokens)["adjective"] == [(last, 0)]
    text = Sample("creature", "A fox wept.", 0.0, (Link("adjective", (6, 10), (2, 5)),))
    assert pairs_of(text, tokens)["adjective"] == [(last + 1, key) for key in range(1, last + 1)]


def test_induction_targets_follow_the_last_copy_in_recitals(tokenizer: Tokenizer) -> None:
    text = "one two one two one"
    tokens = tokenizer.tokens(text)
    repeated = tokens[1:]  # at the start of a text, "one" is another token than " one"
    assert repeated.texts == (" two", " one", " two", " one")
    recital, other = (Sample(kind, text, 0.0, ()) for kind in ("recital", "question"))
    assert pairs_of(recital, repeated)["induction"] == [(2, 1), (3, 2)]
    assert "induction" not in pairs_of(other, repeated)
    again = tokenizer.tokens([*repeated.ids, *repeated.ids])
    assert pairs_of(recital, again)["induction"][-1] == (7, 6)


class Heads:
    """A stand-in for a model: heads that do one job each, perfectly, and a uniform one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def trace(self, text: str) -> Any:
        tokens = self.tokenizer.tokens(text)
        T = len(tokens)
        even = np.tril(np.ones((T, T))) / np.arange(1, T + 1)[:, None]
        previous, first, repeats, looks = (np.eye(T) for _ in range(4))
        for i in range(1, T):
            previous[i] = np.eye(T)[i - 1]
            first[i] = np.eye(T)[0]
            earlier = [j for j in range(i) if tokens.ids[j] == tokens.ids[i]]
            if earlier:
                repeats[i] = np.eye(T)[earlier[-1] + 1]
            if tokens.texts[i] == " it":
                moved = [j for j in range(i) if tokens.texts[j] in (" dog", " ball")]
                looks[i] = np.eye(T)[moved].mean(axis=0) if moved else looks[i]
        blocks = [[previous, first], [repeats, looks], [even, even]]
        return SimpleNamespace(
            tokens=tokens,
            blocks=[
                SimpleNamespace(attention=SimpleNamespace(weights=np.array(b))) for b in blocks
            ],
        )


def test_heads_that_do_one_job(tokenizer: Tokenizer) -> None:
    model: Any = Heads(tokenizer)
    jobs = head_jobs(model)
    assert jobs.attention.shape == (len(JOBS), 3, 2)
    assert jobs.best("previous") == (0, 0)
    assert jobs.best("first") == (0, 1)
    assert jobs.best("induction") == (1, 0)
    for job, layer, head in (("previous", 0, 0), ("first", 0, 1), ("induction", 1, 0)):
        assert jobs.attention[JOBS.index(job), layer, head] == 1
    np.testing.assert_allclose(jobs.attention[:, 2, 0], jobs.even)
    assert (jobs.even > 0.01).all()
    assert (jobs.even < 0.4).all()


def test_bytes_as_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.pocket.jobs.TEXTS", 8)
    model: Any = Heads(Tokenizer.byte_level())
    jobs = head_jobs(model)
    np.testing.assert_allclose(jobs.attention[:, 2, 0], jobs.even)


def test_a_model_that_attends_evenly(tokenizer: Tokenizer) -> None:
    """With all parameters 0, every head attends uniformly."""
    config = GPT2Config(vocab_size=len(tokenizer), n_positions=128, n_embd=4, n_layer=2, n_head=2)
    model = GPT2(ParameterVector(config), tokenizer)
    jobs = head_jobs(model)
    assert jobs.attention.shape == (len(JOBS), 2, 2)
    even = np.broadcast_to(jobs.even[:, None, None], jobs.attention.shape)
    np.testing.assert_allclose(jobs.attention, even, rtol=1e-5)
    assert repr(head_jobs(model)) == repr(jobs)
    assert (head_jobs(model, seed=1).even != jobs.even).any()


def test_table() -> None:
    attention = np.zeros((len(JOBS), 1, 2))
    attention[2, 0, 1] = 0.875
    jobs = HeadJobs(JOBS, attention, attention, np.full(len(JOBS), 0.125))
    header, _, second, evenly = jobs.table().splitlines()
    assert header.split() == ["layer", "head", *JOBS]
    assert second.split() == ["0", "1", "0.00", "0.00", "0.88", "0.00", "0.00", "0.00"]
    assert evenly.split() == ["evenly", *["0.12"] * len(JOBS)]
    assert jobs.best("induction") == (0, 1)
    with pytest.raises(InvalidValueError, match="got 'sleep'"):
        jobs.best("sleep")


def test_error_over_texts_by_hand() -> None:
    """Σ = 0.6 over 2 queries, and 0.8 over one: the mean is 1.4 / 3, and they differ by ∓ 1/3."""
    texts = [np.array([[[0.2, 0.4]]]), np.zeros((1, 1, 0)), np.array([[[0.8]]])]
    np.testing.assert_allclose(error_of(texts), [[1 / 3 / 1.5]])
    assert np.isnan(error_of(texts[:2])).all()  # one text
    assert np.isnan(error_of(texts[1:2])).all()  # none has keys
