"""Objects that are safe to keep: copies, pickles, threads, and memory after reading steps."""

import copy
import gc
import pickle
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE, needs
from runs import every_step, needs_of

import attnlab
from attnlab import (
    GPT2,
    AttnlabError,
    Generation,
    GPT2Config,
    Tokenizer,
    attention,
    causal_mask,
    multi_head_attention,
)
from attnlab.forward import ForwardPass
from attnlab.forward.attention import MultiHeadAttention
from attnlab.forward.fast import ROWS
from attnlab.forward.parameters import ParameterVector, parameter_count
from attnlab.steps import Result
from attnlab.training import initial_parameters

CONFIG = GPT2Config(vocab_size=256, n_positions=200, n_embd=12, n_layer=2, n_head=3)
LONG = ROWS + 5
COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
}


def in_memory() -> GPT2:
    """A random model with enough positions for the fast forms."""
    numbers = 0.3 * np.random.default_rng(0).standard_normal(parameter_count(CONFIG))
    return GPT2(ParameterVector(CONFIG, np.float32(numbers)), Tokenizer.byte_level())


def odd() -> GPT2:
    return GPT2.from_pretrained(REFERENCE / "odd")


def layer(T: int, **settings: Any) -> MultiHeadAttention:
    rng = np.random.default_rng(0)
    W = [rng.standard_normal((4, 6)) for _ in range(3)]
    W_O = rng.standard_normal((6, 4))
    return multi_head_attention(rng.standard_normal((T, 4)), *W, W_O, n_head=3, **settings)


def look(result: Result) -> dict[str, Any]:
    """Every step of a result and of its parts, computed."""
    return {
        f"{part.path}.{name}".lstrip("."): getattr(part, name) for part, name in every_step(result)
    }


def equal(copied: dict[str, Any], other: dict[str, Any]) -> bool:
    """Compare bit for bit; caches and lazy rows of files aren't numbers."""
    return copied.keys() == other.keys() and all(
        np.array_equal(copied[path], other[path])
        for path in copied
        if not path.endswith(("_cache", "rows_of_W_E"))
    )


# ---- arguments aren't changed --------------------------------------------------------------------


def test_changing_parameters_does_not_change_traces() -> None:
    parameters = initial_parameters(CONFIG, np.random.default_rng(0))
    model, ids = GPT2(parameters, Tokenizer.byte_level()), np.array([5, 80, 5])
    trace = model.trace(ids)
    assert trace.embedding.shape == (3, 12)
    expected = GPT2(parameters.copy(), Tokenizer.byte_level()).trace([5, 80, 5]).logits
    ids[:] = 7
    for array in (parameters.vector, *parameters.values()):
        array[...] += 1
    for logits in (trace.logits, model.trace([5, 80, 5]).logits):
        assert np.array_equal(logits, expected)


def test_a_pass_keeps_its_parameters() -> None:
    """Of a vector that changes, and of a read-only view of one."""
    numbers = 0.3 * np.random.default_rng(0).standard_normal(parameter_count(CONFIG))
    view = numbers.view()
    view.flags.writeable = False
    for vector in (numbers, view):
        parameters = ParameterVector(CONFIG, vector)
        expected = ForwardPass([5, 80], parameters.copy()).logits
        forward = ForwardPass([5, 80], parameters)
        numbers += 1
        assert np.array_equal(forward.logits, expected)


# ---- copies and pickles --------------------------------------------------------------------------


def generation(model: GPT2) -> Generation:
    return model.generate([5, 80, 5, 200], 3, temperature=0, trace=True)


MADE: dict[str, Callable[[], Any]] = {
    "trace of a checkpoint": lambda: odd().trace([5, 80, 5]),
    "trace of a model in memory": lambda: in_memory().trace([5, 80, 5]),
    "long trace": lambda: in_memory().trace(np.arange(LONG)),
    "block": lambda: odd().trace([5, 80, 5]).blocks[1],
    "MLP": lambda: odd().trace([5, 80, 5]).blocks[1].mlp,
    "attention of a block": lambda: odd().trace([5, 80, 5]).blocks[1].attention,
    "head": lambda: odd().trace([5, 80, 5]).head(1, 2),
    "head of a long text": lambda: in_memory().trace(np.arange(LONG)).head(1, 2),
    "edited trace": lambda: (
        odd().trace([5, 80, 5]).edited({"blocks.1.attention.heads.2.context": 0})
    ),
    "generation": lambda: generation(odd()),
    "step of a generation": lambda: generation(odd()).steps[2].trace,
    "heads": lambda: layer(5, mask=causal_mask(5), dropout=0.3, rng=0),
    "many rows": lambda: layer(LONG, memory=np.ones((7, 4))),
    "head of crossed ones": lambda: layer(LONG, memory=np.ones((7, 4))).heads[2],
    "attention": lambda: attention(np.eye(3), np.eye(3), np.ones((3, 2)), causal_mask(3)),
}


def results(traced: Any) -> tuple[Result, ...]:
    """The results in an object that aren't parts of others."""
    if not isinstance(traced, Generation):
        return (traced,)
    return tuple(step.trace for step in traced.steps)


def parts(traced: Any) -> dict[str, Any]:
    """Every step of each result in an object."""
    looks = enumerate(map(look, results(traced)))
    return {f"{i}.{path}": value for i, steps in looks for path, value in steps.items()}


def arrays(traced: Any) -> Iterator[tuple[str, Any]]:
    """Every array reachable from an object by attributes."""
    for path, value in parts(traced).items():
        if isinstance(value, np.ndarray):
            yield path, value
    for result in results(traced):
        if result.tokens is not None:
            yield "tokens.ids", result.tokens.ids
            yield "tokens[1:].ids", result.tokens[1:].ids


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("before", ["looked at", "not looked at"])
def test_copies_are_equal_and_stay_read_only(kind: str, before: str) -> None:
    result = MADE[kind]()
    if before == "looked at":
        parts(result)
    copies = [method(copied) for method in COPIES.values() for copied in (result, method(result))]
    expected = parts(result)
    for copied in copies:
        assert type(copied) is type(result)
        assert equal(parts(copied), expected)
        for path, array in arrays(copied):
            assert not array.flags.writeable, path
    assert all(not array.flags.writeable for _, array in arrays(result))
    assert repr(copies[-1]) == repr(result)


@pytest.mark.parametrize("method", COPIES)
def test_tokens_and_parameters_stay_read_only(method: str) -> None:
    for model in (odd(), in_memory()):
        copied = COPIES[method](model)
        assert copied.generate([5, 80], 3, seed=1).text == model.generate([5, 80], 3, seed=1).text
        for path, array in copied.parameters.items():
            assert np.array_equal(array, model.parameters[path])
            assert not array.flags.writeable
    tokens = COPIES[method](odd().tokenizer.tokens("the hen"))
    assert tokens == odd().tokenizer.tokens("the hen")
    assert not tokens.ids.flags.writeable
    live = COPIES[method](initial_parameters(CONFIG, np.random.default_rng(0)))
    live["W_E"][:] = 7
    assert (live.vector[: live["W_E"].size] == 7).all()  # still views of one vector
    best = odd().trace([5, 80]).next_tokens(3)
    assert COPIES[method](best) == best


def test_steps_that_do_not_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = odd().trace([5, 80, 5])
    step = trace.blocks[1].mlp.steps["activated"]
    monkeypatch.setattr(step, "equation", lambda *_: np.empty(2**50, np.float32))
    for read in (
        lambda: trace.logits,
        lambda: attnlab.gradients(trace, 5).embedding,
        trace.next_tokens,
    ):
        with pytest.raises(MemoryError, match=r"4\.00 PiB.*\. Use a shorter text") as caught:
            read()
        assert isinstance(caught.value, AttnlabError)
    with pytest.raises(AttnlabError, match=r"memory for blocks\.1\.mlp\.activated"):
        trace.blocks[1].mlp.activated  # noqa: B018


def test_pickles_contain_computed_steps_but_no_parameters() -> None:
    """Every parameter was read too, in layers, in heads, and as columns."""
    model = GPT2.from_pretrained("pocket")
    fresh = model.trace([1, 2, 3])
    least = len(pickle.dumps(fresh))
    generated = model.generate([1, 2, 3], 2, temperature=0, trace=True)
    for trace in (fresh, generated.steps[0].trace, generated.steps[2].trace):
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


@pytest.mark.parametrize(("model", "T"), [(lambda: odd(), 6), (lambda: in_memory(), LONG)])
def test_eight_threads_see_the_same_trace(model: Callable[[], GPT2], T: int) -> None:
    """Steps read in any order from a model that has read none, while the result is copied."""
    ids = np.random.default_rng(1).integers(0, 256, T)
    alone, used = model(), model()
    expected = look(alone.trace(ids))
    text = alone.generate([5, 80], 8, seed=1).text
    shared, start = used.trace(ids), threading.Barrier(8, timeout=60)

    def different(seed: int) -> list[str]:
        """The steps that one thread sees differently."""
        paths, wrong = random.Random(seed).sample([*expected], len(expected)), []
        start.wait()
        for i, path in enumerate(paths):
            if not equal({path: attnlab.at(shared, path)}, {path: expected[path]}):
                wrong.append(path)
            if i % 40 == seed:
                pickle.dumps(shared)
                repr(shared.blocks[1].attention)
        assert used.generate([5, 80], 8, seed=1).text == text
        return wrong

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:  # reraises a thread's error
            assert [*pool.map(different, range(8))] == [[]] * 8
    finally:
        sys.setswitchinterval(interval)
    assert equal(look(shared), expected)


# ---- memory after reading steps ------------------------------------------------------------------


def test_next_logits_do_not_depend_on_reading_order() -> None:
    model = in_memory()
    for T in (3, 64, LONG):
        first, last = model.trace(np.arange(T)), model.trace(np.arange(T))
        assert first.next_logits.shape == (256,)
        assert last.logits.shape == (T, 256)
        assert np.array_equal(first.next_logits, last.next_logits)
        assert np.array_equal(first.logits, last.logits)


@pytest.mark.parametrize("kind", MADE)
def test_repr_retains_nothing(kind: str) -> None:
    built = MADE[kind]()
    # The last one of each kind, which depends on most of the others.
    kinds = {type(part): part for result in results(built) for part, _ in every_step(result)}
    for _ in range(2):  # not looked at, and looked at
        runs = [result._run.values for result in results(built)]
        there = [dict(values) for values in runs]
        for shown in (*kinds.values(), *results(built)):
            assert repr(shown)
            assert shown._repr_html_()
        assert repr(built)
        for values, expected in zip(runs, there, strict=True):
            assert values.keys() == expected.keys()
            assert all(values[path] is expected[path] for path in expected)
        parts(built)


def test_views_retain_nothing() -> None:
    needs("matplotlib", "plot")
    needs("pandas", "frames")
    trace = odd().trace([5, 80, 5])
    assert trace.next_logits.shape == (263,)
    there = dict(trace._run.values)
    trace.head(1, 2).explain(2, 0)
    trace.head(1, 2).explain(2)
    for path in ("logits", "blocks.1.mlp.activated", "blocks.2.attention.heads.1.context"):
        trace.explain(path)
    trace.head(0, 0).plot("scores")
    trace.head(0, 0).to_dataframe("masked_scores")
    trace.plot()
    attnlab.page(trace)
    assert trace._run.values.keys() == there.keys()


@pytest.mark.parametrize("T", [3, LONG])
def test_unused_objects_are_freed_immediately(T: int) -> None:
    """After heads, tables, views and edits, memory is freed without the garbage collector."""
    needs("matplotlib", "plot")
    needs("pandas", "frames")
    model = in_memory()
    trace = model.trace(np.arange(T))
    head = trace.head(1, 2)
    assert look(trace)
    assert repr(trace) + repr(head) + repr(trace.blocks) + repr(trace.tokens)
    assert trace._repr_html_() + head._repr_html_()
    assert str(head.explain(2, 0))
    assert needs_of(trace, "blocks.1.attention.weights")
    gc.collect()
    gc.disable()
    try:
        # Objects of matplotlib have reference cycles, and must not keep a trace.
        for draw in (head.plot, trace.plot, head.to_dataframe, partial(attnlab.page, trace)):
            draw()
        edited = trace.edited({"blocks.0.mid": lambda x: x + 1})
        assert edited.next_logits.shape == (256,)
        copied = copy.deepcopy(trace)
        generated = model.generate(np.arange(3), 2, temperature=0, trace=True)
        held = [trace, trace._run, trace.blocks[0], head, head.weights, trace.logits, edited]
        held += [edited._run, copied, copied._run, generated.steps[1].trace]
        held += [model, model.parameters]
        gone = [weakref.ref(item) for item in held]
        del held, model, head, trace, edited, copied, generated, draw
        assert [reference() for reference in gone] == [None] * len(gone)
    finally:
        gc.enable()


def test_a_generated_token_reads_nothing_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    model, reads = odd(), list[Any]()
    fromfile = np.fromfile

    def counted(file: Any, *positional: Any, **settings: Any) -> Any:
        reads.append(file)
        return fromfile(file, *positional, **settings)

    monkeypatch.setattr(np, "fromfile", counted)
    tokens = model.stream([5, 80, 5], 8, temperature=0)
    next(tokens)
    assert len(reads) > 3 * 12
    reads.clear()
    assert len([*tokens]) == 7
    assert model.trace([1, 2, 3]).logits.shape == (3, 263)
    assert reads == []


def test_results_compare_by_identity() -> None:
    """Arrays have no single truth value of ==, which would be an error."""
    for made in MADE.values():
        result = made()
        for item in (result, *(result.steps if isinstance(result, Generation) else ())):
            assert item == item
            assert item != copy.copy(item)
            assert item in {item}


def test_bracketed_paths_suggest_dotted_paths() -> None:
    trace = odd().trace("the hen")
    advice = "in a path, write numbers between dots, from 0: "
    for look in (
        lambda: attnlab.at(trace, "blocks[1].mid"),
        lambda: trace.explain("blocks[1].mid"),
        lambda: trace.edited({"blocks[1].mid": 0}),
    ):
        with pytest.raises(AttnlabError, match=f"'blocks.1..mid'.*; {advice}blocks.1.mid$"):
            look()
    with pytest.raises(AttnlabError, match=r"similar ones are blocks.1.mid, "):
        trace.edited({"blocks[1].mid": 0})
    with pytest.raises(AttnlabError, match=f"similar ones are blocks.2.mid, .*; {advice}such as "):
        trace.edited({"blocks[-1].mid": 0})
