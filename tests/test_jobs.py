"""pocket/jobs.py: the right places, and heads whose attention is known."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attnlab import GPT2, GPT2Config, Tokenizer
from attnlab.errors import InvalidValueError
from attnlab.hub import POCKET_DIRECTORY
from attnlab.pocket.grammar import Link, Sample
from attnlab.pocket.jobs import JOBS, HeadJobs, Place, head_jobs, places, token_span
from attnlab.training import ParameterVector


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_directory(POCKET_DIRECTORY)


def test_token_span(tokenizer: Tokenizer) -> None:
    text = "It’s a fluffy fox"
    tokens = tokenizer.tokens(text)
    assert tokens.texts == ("It", "’", "s", " a", " fluffy", *tokens.texts[5:])
    assert token_span(text, tokens, (7, 13)) == slice(4, 5)
    assert token_span(text, tokens, (3, 6)) == slice(2, 4)
    assert token_span(text, tokens, (14, 17)) == slice(5, len(tokens))
    assert len(tokens) > 6, "fox is not in the lexicon: several tokens"


def test_places(tokenizer: Tokenizer) -> None:
    made = Sample("creature", "A sad cat wept.", 0.0, (Link("adjective", (6, 9), (2, 5)),))
    assert [place for place in places(made, tokenizer.tokens(made.text)) if place.source == 2] == [
        Place("previous", 2, slice(1, 2)),
        Place("first", 2, slice(0, 1)),
        Place("adjective", 2, slice(1, 2)),
    ]
    made = Sample("recital", "Say: one two. Again: one two.", 0.0, ())
    found = places(made, tokenizer.tokens(made.text))
    # Say : one two . Again : one two .
    assert [tuple(place) for place in found if place.job == "induction"] == [
        ("induction", 6, slice(2, 3)),
        ("induction", 7, slice(3, 4)),
        ("induction", 8, slice(4, 5)),
        ("induction", 9, slice(5, 6)),
    ]


def test_places_of_a_word_of_many_tokens(tokenizer: Tokenizer) -> None:
    made = Sample("creature", "A fox wept.", 0.0, (Link("adjective", (2, 5), (0, 1)),))
    tokens = tokenizer.tokens(made.text)
    last = tokens.texts.index(" wept") - 1
    assert last > 1
    assert [*places(made, tokens)][-1] == Place("adjective", last, slice(0, 1))


def test_induction_looks_behind_the_last_copy_and_in_recitals_only(tokenizer: Tokenizer) -> None:
    text = "one two one two one"
    tokens = tokenizer.tokens(text)
    repeated = tokens[1:]  # at the start of a text, "one" is another token than " one"
    assert repeated.texts == (" two", " one", " two", " one")
    recital, other = (Sample(kind, text, 0.0, ()) for kind in ("recital", "question"))
    found = [place for place in places(recital, repeated) if place.job == "induction"]
    assert found == [Place("induction", 2, slice(1, 2)), Place("induction", 3, slice(2, 3))]
    assert "induction" not in {place.job for place in places(other, repeated)}
    again = tokenizer.tokens([*repeated.ids, *repeated.ids])
    assert [*places(recital, again)][-1] == Place("induction", 7, slice(6, 7))


class Heads:
    """Stands in for a model: heads that do one job each, perfectly, and one that looks evenly."""

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


def test_bytes_as_tokens() -> None:
    model: Any = Heads(Tokenizer.of_bytes())
    jobs = head_jobs(model)
    np.testing.assert_allclose(jobs.attention[:, 2, 0], jobs.even)


def uniform_model(tokenizer: Tokenizer) -> GPT2:
    """A GPT-2 all of whose parameters are zero: every head attends evenly."""
    config = GPT2Config(vocab_size=len(tokenizer), n_positions=128, n_embd=4, n_layer=2, n_head=2)
    return GPT2(ParameterVector(config), tokenizer)


def test_a_model_that_attends_evenly(tokenizer: Tokenizer) -> None:
    jobs = head_jobs(uniform_model(tokenizer))
    assert jobs.attention.shape == (len(JOBS), 2, 2)
    np.testing.assert_allclose(
        jobs.attention, np.broadcast_to(jobs.even[:, None, None], jobs.attention.shape), rtol=1e-5
    )


def test_same_seed_same_table(tokenizer: Tokenizer) -> None:
    model = uniform_model(tokenizer)
    assert repr(head_jobs(model)) == repr(head_jobs(model))
    assert (head_jobs(model).even != head_jobs(model, seed=1).even).any()


def test_table() -> None:
    attention = np.zeros((len(JOBS), 1, 2))
    attention[2, 0, 1] = 0.875
    jobs = HeadJobs(attention, np.full(len(JOBS), 0.125))
    header, _, second, evenly = repr(jobs).splitlines()
    assert header.split() == ["layer", "head", *JOBS]
    assert second.split() == ["0", "1", "0.00", "0.00", "0.88", "0.00", "0.00", "0.00"]
    assert evenly.split() == ["evenly", *["0.12"] * len(JOBS)]
    assert jobs.best("induction") == (0, 1)
    with pytest.raises(InvalidValueError, match="given 'sleep'"):
        jobs.best("sleep")
