"""Objects that are safe to hold: copies, pickles, threads, and what looking leaves behind."""

import copy
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from runs import every_step

from attnlab import (
    GPT2,
    AttnlabError,
    ForwardPass,
    Generation,
    GPT2Config,
    Tokenizer,
    attention,
    causal_mask,
    multi_head_attention,
)
from attnlab.chain import MultiHeadAttention
from attnlab.fast import ROWS
from attnlab.forward import KeyValueCache
from attnlab.parameters import ParameterVector, parameter_count
from attnlab.steps import Result
from attnlab.training import initial_parameters
from attnlab.training.run import draw_dropout

CONFIG = GPT2Config(vocab_size=256, n_positions=200, n_embd=12, n_layer=2, n_head=3)
LONG = ROWS + 5
COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
}


def in_memory() -> GPT2:
    """A model of random numbers, with room for texts that the fast forms run."""
    numbers = 0.3 * np.random.default_rng(0).standard_normal(parameter_count(CONFIG))
    return GPT2(ParameterVector(CONFIG, np.float32(numbers)), Tokenizer.of_bytes())


def odd() -> GPT2:
    return GPT2.from_pretrained(REFERENCE / "odd")


def layer(T: int, **how: Any) -> MultiHeadAttention:
    rng = np.random.default_rng(0)
    W = [rng.standard_normal((4, 6)) for _ in range(3)]
    W_O = rng.standard_normal((6, 4))
    return multi_head_attention(rng.standard_normal((T, 4)), *W, W_O, n_head=3, **how)


def look(result: Result) -> dict[str, Any]:
    """Every step of a result and of its parts, looked at."""
    return {f"{part.path}.{name}": getattr(part, name) for part, name in every_step(result)}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """To the bit; a cache, and what reads rows of a file, are no numbers."""
    return one.keys() == other.keys() and all(
        np.array_equal(one[path], other[path])
        for path in one
        if not path.endswith(("_cache", "rows_of_W_E"))
    )


# ---- what is given stays the caller's ------------------------------------------------------------


def test_a_forward_pass_has_ids_of_its_own() -> None:
    ids = np.array([[5, 80, 5], [1, 2, 3]])
    forward = ForwardPass(ids, odd().parameters)
    wanted = ForwardPass(ids.copy(), odd().parameters).logits
    ids[:] = 7
    assert forward.ids.tolist() == [[5, 80, 5], [1, 2, 3]]
    assert np.array_equal(forward.logits, wanted)


def test_what_is_dropped_stays_the_callers() -> None:
    dropped = draw_dropout(CONFIG, (2, 5), 0.3, np.random.default_rng(0))
    assert dropped is not None
    ids = np.arange(10).reshape(2, 5)
    forward = ForwardPass(ids, in_memory().parameters, dropout=dropped)
    assert forward.blocks[1].attention.dropout_mask is not None
    assert forward.logits.shape == (2, 5, 256)
    assert all(array.flags.writeable for array in dropped.values())


@pytest.mark.parametrize("path", ["blocks.0.attentoin.dropout_mask", "blocks.2.mlp_dropout", "ids"])
def test_nothing_is_dropped_under_a_misspelled_name(path: str) -> None:
    with pytest.raises(AttnlabError, match="nothing is dropped at.*2 blocks"):
        ForwardPass([1, 2], in_memory().parameters, dropout={path: np.zeros((2, 12))})


def test_parameters_in_training_can_be_written_to_and_move_no_trace() -> None:
    parameters = initial_parameters(CONFIG, np.random.default_rng(0))
    forward = ForwardPass([5, 80, 5], parameters)
    model = GPT2(parameters, Tokenizer.of_bytes())
    trace = model.trace([5, 80, 5])
    assert trace.embedding.shape == forward.embedding.shape
    wanted = ForwardPass([5, 80, 5], parameters.copy()).logits
    for array in (parameters.vector, *parameters.values()):
        array[...] += 1
    assert np.array_equal(forward.logits, wanted)
    assert np.array_equal(trace.logits, wanted)
    assert np.array_equal(model.trace([5, 80, 5]).logits, wanted)


# ---- copies and pickles --------------------------------------------------------------------------


def looked_at(made: Any) -> Any:
    """The same object, once everything in it was looked at."""
    for result in (made.trace, *(step.trace for step in made.steps)) if steps_of(made) else (made,):
        look(result)
    return made


def steps_of(made: Any) -> Any:
    return getattr(made, "steps", ()) if isinstance(made, Generation) else ()


def generation(model: GPT2) -> Generation:
    return model.generate([5, 80, 5, 200], 3, temperature=0, trace=True)


MADE: dict[str, Callable[[], Any]] = {
    "trace of a checkpoint": lambda: odd().trace([5, 80, 5]),
    "trace of a model in memory": lambda: in_memory().trace([5, 80, 5]),
    "long trace": lambda: in_memory().trace(np.arange(LONG)),
    "forward pass": lambda: ForwardPass([[5, 80], [1, 2]], odd().parameters),
    "block": lambda: odd().trace([5, 80, 5]).blocks[1],
    "MLP": lambda: odd().trace([5, 80, 5]).blocks[1].mlp,
    "attention of a block": lambda: odd().trace([5, 80, 5]).blocks[1].attention,
    "head": lambda: odd().trace([5, 80, 5]).head(1, 2),
    "head of a long text": lambda: in_memory().trace(np.arange(LONG)).head(1, 2),
    "generation": lambda: generation(odd()),
    "trace of a generation": lambda: generation(odd()).trace,
    "step of a generation": lambda: generation(odd()).steps[2].trace,
    "heads": lambda: layer(5, mask=causal_mask(5), dropout=0.3, rng=0),
    "many rows": lambda: layer(LONG, memory=np.ones((7, 4))),
    "head of crossed ones": lambda: layer(LONG, memory=np.ones((7, 4))).heads[2],
    "attention": lambda: attention(np.eye(3), np.eye(3), np.ones((3, 2)), causal_mask(3)),
}


def parts(made: Any) -> dict[str, Any]:
    """Every step of each result in an object."""
    if not isinstance(made, Generation):
        return look(made)
    assert made.trace is not None
    steps = (made.trace, *(step.trace for step in made.steps))
    return {f"{i}.{path}": x for i, trace in enumerate(steps) for path, x in look(trace).items()}


def arrays(made: Any) -> Iterator[tuple[str, Any]]:
    """Every array that can be got from an object by its names."""
    for path, value in parts(made).items():
        if isinstance(value, np.ndarray):
            yield path, value
    results = [made.trace, *(step.trace for step in made.steps)] if steps_of(made) else [made]
    for result in results:
        if result.tokens is not None:
            yield "tokens.ids", result.tokens.ids
            yield "tokens[1:].ids", result.tokens[1:].ids
        if isinstance(result, ForwardPass):
            yield from result.parameters.items()
            if isinstance(result.parameters, ParameterVector):
                yield "vector", result.parameters.vector


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("what", MADE)
@pytest.mark.parametrize("before", ["looked at", "not looked at"])
def test_copies_show_the_same_and_stay_read_only(what: str, how: str, before: str) -> None:
    made = MADE[what]()
    if before == "looked at":
        parts(made)
    copied = COPIES[how](made)
    again = COPIES[how](copied)
    assert type(copied) is type(made)
    for one in (made, copied, again):
        for path, array in arrays(one):
            assert not array.flags.writeable, path
    assert equal(parts(copied), parts(made))
    assert equal(parts(again), parts(made))
    assert repr(again) == repr(made)


@pytest.mark.parametrize("how", COPIES)
def test_tokens_and_parameters_stay_read_only(how: str) -> None:
    for model in (odd(), in_memory()):
        copied = COPIES[how](model)
        assert copied.generate([5, 80], 3, seed=1).text == model.generate([5, 80], 3, seed=1).text
        for path, array in copied.parameters.items():
            assert np.array_equal(array, model.parameters[path])
            assert not array.flags.writeable
    tokens = COPIES[how](odd().tokenizer.tokens("the hen"))
    assert tokens == odd().tokenizer.tokens("the hen")
    assert not tokens.ids.flags.writeable
    live = COPIES[how](initial_parameters(CONFIG, np.random.default_rng(0)))
    live["W_E"][:] = 7
    assert (live.vector[: live["W_E"].size] == 7).all()  # still views of one vector
    best = odd().trace([5, 80]).next_tokens(3)
    assert COPIES[how](best) == best


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("used", [False, True])
def test_tokenizers_copy_and_pickle(how: str, used: bool) -> None:
    for tokenizer in (odd().tokenizer, Tokenizer.of_bytes()):
        if used:
            tokenizer.encode("the hen")
        copied = COPIES[how](tokenizer)
        assert copied.encode("the hen") == tokenizer.encode("the hen")
        assert copied.decode([1, 2]) == tokenizer.decode([1, 2])


def test_a_pickle_holds_what_was_looked_at_and_no_weights() -> None:
    """Every parameter was looked at too, in layers, in heads, and as columns."""
    model = GPT2.from_pretrained("pocket")
    fresh = model.trace([1, 2, 3])
    least = len(pickle.dumps(fresh))
    generated = model.generate([1, 2, 3], 2, temperature=0, trace=True)
    assert generated.trace is not None
    for trace in (fresh, generated.trace, generated.steps[0].trace, generated.steps[2].trace):
        look(trace)
        computed = {
            path: value.nbytes
            for path, value in look(trace).items()
            if isinstance(value, np.ndarray) and not is_parameter(path.rpartition(".")[2])
        }
        assert 0 < len(pickle.dumps(trace)) - least < sum(computed.values())
    parameters = 4 * parameter_count(model.config)
    assert len(pickle.dumps(generated)) < parameters / 2


def is_parameter(name: str) -> bool:
    return name.startswith(("W_", "b_")) or name in ("gain", "bias")


def test_a_pass_that_nobody_looked_at_is_copied_with_what_it_found_in_the_cache() -> None:
    parameters = odd().parameters
    cache = KeyValueCache(parameters.config, parameters.dtype)
    assert ForwardPass([5, 80, 5], parameters, cache).final.shape == (3, 35)
    cache.length = 3
    forward = ForwardPass([7], parameters, cache)
    copied = pickle.loads(pickle.dumps(forward))
    wanted = ForwardPass([5, 80, 5, 7], parameters).logits[-1:]
    for one in (copied, forward):
        assert np.allclose(one.logits, wanted, rtol=0, atol=1e-5)


# ---- threads -------------------------------------------------------------------------------------


def test_no_trace_waits_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread is stuck in the middle of a look while others look at the same and at more."""
    model = odd()
    is_stuck, go_on = threading.Event(), threading.Event()
    step = model.trace([1]).blocks[1].mlp.steps["activated"]
    gelu = step.equation

    def slow(x: Any) -> Any:
        if threading.current_thread().name == "stuck" and not is_stuck.is_set():
            is_stuck.set()
            assert go_on.wait(60)
        return gelu(x)

    monkeypatch.setattr(step, "equation", slow)
    trace, found = model.trace([5, 80, 5]), []
    thread = threading.Thread(target=lambda: found.append(trace.logits), name="stuck")
    thread.start()
    try:
        assert is_stuck.wait(60)
        other = model.trace([5, 80, 5])
        assert other.head(2, 1).weights.shape == (3, 3)
        assert np.array_equal(trace.logits, other.logits)
        assert found == []
    finally:
        go_on.set()
        thread.join(60)
    assert found[0] is trace.logits  # what was there first is kept


@pytest.mark.parametrize("T", [6, LONG])
def test_one_trace_shows_8_threads_what_it_shows_one(T: int) -> None:
    """In any order, and while it is copied and shown."""
    model = in_memory()
    ids = np.random.default_rng(1).integers(0, 256, T)
    alone = model.trace(ids)
    paths = [(part.path, name) for part, name in every_step(alone)]
    wanted = {f"{path}.{name}": part_at(alone, path, name) for path, name in paths}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        shared, start, wrong = model.trace(ids), threading.Barrier(8, timeout=60), []

        def work(seed: int) -> None:
            order = random.Random(seed).sample(paths, len(paths))
            start.wait()
            for i, (path, name) in enumerate(order):
                found = part_at(shared, path, name)
                if not equal({f"x.{name}": found}, {f"x.{name}": wanted[f"{path}.{name}"]}):
                    wrong.append((path, name))
                if i % 40 == seed:
                    pickle.dumps(shared)
                    repr(shared.blocks[1].attention)

        failed: list[Any] = []
        monitored = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        hook, threading.excepthook = threading.excepthook, failed.append
        try:
            for thread in monitored:
                thread.start()
            for thread in monitored:
                thread.join(60)
        finally:
            threading.excepthook = hook
    finally:
        sys.setswitchinterval(interval)
    assert [error.exc_value for error in failed] == []
    assert wrong == []
    assert equal(look(shared), wanted)


def part_at(result: Any, path: str, name: str) -> Any:
    for one in filter(None, path.split(".")):
        result = result[int(one)] if one.isdigit() else getattr(result, one)
    return getattr(result, name)
