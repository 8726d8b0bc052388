"""Edited traces, compared with transformers and with equations; and what runs share."""

import copy
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from reference.edit_cases import PLACES, cases, projection, recorded_paths, replacement
from runs import log_computed

import attnlab
from attnlab import (
    GPT2,
    AttnlabError,
    GPT2Config,
    Tokenizer,
    Trace,
    causal_mask,
)
from attnlab.errors import InvalidTypeError, InvalidValueError, OutOfRangeError
from attnlab.forward import fast
from attnlab.forward.parameters import ParameterVector, parameter_count
from attnlab.views.labelled_step import labelled_step

TOLERANCE = {"float32": 1e-4, "float64": 1e-10}


# ---- the right numbers -----------------------------------------------------------------------


def edits_of(trace: Trace, kinds: dict[str, Any], seed: int) -> dict[str, Any]:
    """The recorded edits, in each form in which an edit may be given."""

    def edit(path: str, kind: str) -> Any:
        if kind == "zero":
            return 0
        if kind in ("mean", "reversed"):
            return partial(replacement, kind, seed=seed)
        return replacement(kind, attnlab.at(trace, path), seed)

    return {path: edit(path, kind) for path, kind in kinds.items()}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("name", "layer", "head"), PLACES)
def test_every_step_edited_against_transformers(
    name: str, layer: int, head: int, dtype: str
) -> None:
    """Steps are read in any order; several edits are made at once, or one after the other."""
    unedited, rng = np.load(REFERENCE / name / "expected.npz"), np.random.default_rng(0)
    trace = GPT2.from_pretrained(REFERENCE / name, dtype=dtype).trace(unedited["ids"])
    paths, recorded = recorded_paths(trace.config.n_layer), np.load(REFERENCE / "edits.npz")[name]
    for n, (kinds, expected) in enumerate(zip(cases(layer, head), recorded, strict=True)):
        if any(path.endswith("QKV") for path in kinds):  # steps of transformers only
            continue
        edits, one_by_one = edits_of(trace, kinds, n), trace
        for path, edit in edits.items():
            one_by_one = one_by_one.edited({path: edit})
        together = trace.edited(dict([*edits.items()][::-1]))  # in whatever order
        for edited in (together, one_by_one)[: len(edits)]:
            for i in rng.permutation(len(paths)):
                if paths[i].endswith("QKV"):
                    continue
                step = attnlab.at(edited, paths[i])
                assert step.dtype == dtype
                scale = max(1, np.abs(step[np.isfinite(step)]).max())
                difference = abs(projection(step) - expected[i])
                assert difference <= TOLERANCE[dtype] * scale, (kinds, paths[i])
            difference = np.abs(edited.next_logits - edited.logits[-1]).max()
            assert (difference <= TOLERANCE[dtype] * scale) == ("next_logits" not in edits)
    for path in {*paths} & {*unedited.files}:  # the base's own steps are unchanged
        scale = max(1, np.abs(unedited[path][np.isfinite(unedited[path])]).max())
        difference = np.abs(projection(attnlab.at(trace, path)) - projection(unedited[path]))
        assert difference <= TOLERANCE[dtype] * scale, path


def all_paths(trace: Trace) -> list[str]:
    """The paths of all steps of a trace."""

    def below(result: Any, prefix: str) -> Iterator[str]:
        yield from (f"{prefix}{n}" for n, step in result.steps.items() if not step.optional)
        for name in result._children:
            part = getattr(result, name)
            if isinstance(part, tuple):
                for n, child in enumerate(part):
                    yield from below(child, f"{prefix}{name}.{n}.")
            else:
                yield from below(part, f"{prefix}{name}.")

    return list(below(trace, ""))


def edit_of(trace: Trace, path: str, seed: int) -> Any:
    """An edit of a step: a function of the original value, or numbers."""
    name, value = path.rpartition(".")[2], attnlab.at(trace, path)
    if name == "positions":
        return lambda x: x[::-1]
    if name in ("mask", "scale", "epsilon"):
        return replacement("mask" if name == "mask" else "number", value, seed)
    if name == "masked_scores":
        return lambda x: np.where(np.isneginf(x), -1.0, x / 2)
    return [0.5, lambda x: x / 2 + 1, replacement("random", value, seed)][seed % 3]


def editable(trace: Trace) -> list[str]:
    """The editable steps of the second block and outside blocks."""
    fixed = {"ids", "cached", "n_head", "memory", "rows_of_W_E", "activation", "divide_by_sqrt_d"}
    prefixes = (
        "",
        "blocks.1.",
        "blocks.1.attention.",
        "blocks.1.attention.heads.1.",
        "blocks.1.mlp.",
    )
    return [
        path
        for path in all_paths(trace)
        if path.rpartition(".")[2] not in fixed and path[: path.rfind(".") + 1] in prefixes
    ]


def random_model(T: int, n_layer: int) -> GPT2:
    config = GPT2Config(vocab_size=256, n_positions=T, n_embd=6, n_layer=n_layer, n_head=2)
    rng = np.random.default_rng(0)
    vector = rng.standard_normal(parameter_count(config)) / 2
    return GPT2(ParameterVector(config, vector), Tokenizer.byte_level())


@pytest.mark.slow
def test_long_edited_texts_equal_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step by the fast forms, and by the equations alone."""
    model, ids = random_model(140, 3), np.random.default_rng(1).integers(0, 256, 140)
    long = model.trace(ids)
    monkeypatch.setattr(fast, "SHORT", 1000)
    short = model.trace(ids)
    for seed, path in enumerate(editable(long)):
        edit = {path: edit_of(long, path, seed)}
        of_long, of_short = long.edited(edit), short.edited(edit)
        for other in all_paths(long)[:: -1 if seed % 2 else 1]:
            actual, expected = attnlab.at(of_long, other), attnlab.at(of_short, other)
            if not other.endswith(("rows_of_W_E", "activation")):
                np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9, err_msg=other)


def test_later_edits_of_a_step_override_earlier_ones(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    path, head_path = "blocks.1.attention.context", "blocks.1.attention.heads.2.context"
    twice = trace.edited({head_path: 1}).edited({path: lambda x: x + 2})
    assert (twice.head(1, 2).context == 3).all()
    assert np.array_equal(twice.head(1, 1).context, trace.head(1, 1).context + 2)
    assert (
        trace.edited({path: 2}).edited({head_path: lambda x: x + 1}).head(1, 2).context == 3
    ).all()
    assert (trace.edited({head_path: lambda x: x + 1, path: 2}).head(1, 2).context == 3).all()
    both = trace.edited({"logits": 1}).edited({"next_logits": lambda x: x + 1})
    assert (both.logits[:-1] == 1).all()
    assert (both.logits[-1] == 2).all()
    assert (both.next_logits == 2).all()


def test_each_heads_edited_output_is_added_to_the_layers(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    layer, paths = (
        trace.blocks[1].attention,
        [f"blocks.1.attention.heads.{h}.output" for h in (1, 3)],
    )
    both = trace.edited(dict.fromkeys(paths, 0)).blocks[1].attention.output
    expected = layer.output - layer.heads[1].output - layer.heads[3].output
    np.testing.assert_allclose(both, expected, atol=1e-5)


def test_function_edits_are_reapplied_after_earlier_edits(odd: GPT2) -> None:
    """A function gets the original value; an array replaces it."""
    trace = odd.trace("the hen")
    hidden, doubled = "blocks.1.mlp.hidden", {"embedding": lambda x: 2 * x}
    seen: list[Any] = []
    function = trace.edited({hidden: lambda x: seen.append(x) or -x}).edited(doubled)
    assert len(seen) == 2
    assert np.array_equal(seen[1], trace.edited(doubled).blocks[1].mlp.hidden)
    assert np.array_equal(function.blocks[1].mlp.hidden, -seen[1])
    # Edited twice, and its input too, which the first edit's original depends on.
    again = trace.edited(doubled | {hidden: lambda x: -x}).edited({hidden: lambda x: x + 1})
    assert np.array_equal(again.blocks[1].mlp.hidden, 1 - seen[1])
    array = trace.edited({hidden: seen[0]}).edited(doubled)
    assert np.array_equal(array.blocks[1].mlp.hidden, seen[0])


def test_no_edits_change_nothing(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    same = trace.edited({})
    assert same.logits is trace.logits
    assert same.title == trace.title
    assert repr(same) == repr(trace)


# ---- what is shared ----------------------------------------------------------------------------


def test_late_edits_recompute_only_later_blocks(odd: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = odd.trace("the hen in")
    trace.next_tokens()
    paths = log_computed(monkeypatch)
    edited = trace.edited({"blocks.1.attention.heads.2.context": 0})
    edited.next_tokens()
    in_layer = {path for path in paths if path.startswith("blocks.1.attention")}
    assert in_layer == {"blocks.1.attention.output"}
    assert not [path for path in paths if path.startswith("blocks.0") or "embedding" in path]
    assert paths.count("blocks.2.attention.Q") == 1
    assert edited.blocks[2].mlp.output.shape == (6, 35)
    del paths[:]
    edited.edited({"blocks.2.mlp.output": 0}).next_tokens()
    assert set(paths) == {"blocks.2.output", "final", "next_logits"}


@pytest.mark.parametrize("path", ["X", "Q", "heads.1.K", "output", "heads.1.output", "W_O", "mask"])
def test_long_edited_texts_are_computed_by_rows(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(140, 2)
    trace = model.trace(np.arange(140))
    edited = trace.edited({f"blocks.1.attention.{path}": lambda x: x[...]})
    result = []
    monkeypatch.setattr(
        attnlab.MultiHeadAttention.raw_scores, "equation", lambda Q, K: result.append(Q)
    )
    assert edited.next_logits.shape == (256,)
    assert not result
    assert np.allclose(edited.next_logits, trace.next_logits, rtol=1e-12)


def test_edit_functions_are_called_once(odd: GPT2) -> None:
    trace, calls = odd.trace("the hen"), []
    paths = [path for path in all_paths(trace) if path.rpartition(".")[2] in ("X", "Q", "W_K")]
    paths += ["blocks.0.attention.heads.1.output", "blocks.0.mlp.hidden", "W_E", "next_logits"]
    for path in paths:
        edited = trace.edited({path: lambda x: calls.append(x) or x / 2})
        check_same(edited, copy.deepcopy(edited))
        assert repr(edited.head(0, 1))
        assert len(calls) == 1, path
        del calls[:]


def check_same(a: Trace, b: Trace) -> None:
    assert np.array_equal(a.logits, b.logits)
    assert np.array_equal(a.blocks[1].attention.weights, b.blocks[1].attention.weights)
    assert a.title == b.title


def test_copies_and_pickles_of_edited_traces(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    layer = "blocks.1.attention"
    edits = {
        f"{layer}.heads.2.output": lambda x: x / 2,
        f"{layer}.heads.1.X": lambda x: -x,
        f"{layer}.Q": lambda x: x + 1,
        f"{layer}.heads.0.weights": np.eye(4),
        f"{layer}.W_V": lambda x: x / 3,
        "W_E": lambda x: x * 2,
        "next_logits": lambda x: x + 1,
    }
    further = {"blocks.0.mid": 1, f"{layer}.heads.0.W_Q": lambda x: -x}
    for several in (*({path: edit} for path, edit in edits.items()), edits):
        edited = trace.edited(several).edited({"embedding": lambda x: x * 2})
        result = {path: attnlab.at(edited, path) for path in (*several, "embedding")}
        for copied in (copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
            check_same(edited, copied(edited))
        # In a copy, functions are replaced by their results.
        copied = copy.deepcopy(edited).edited(further)
        check_same(trace.edited(result).edited(further), copied)
    pair = pickle.loads(pickle.dumps((trace, trace.edited({f"{layer}.X": 0}))))
    assert pair[0].blocks[0].output is pair[1].blocks[0].output
    assert not pair[1].blocks[1].attention.X.flags.writeable


def test_a_deep_model_and_many_edits_do_not_recurse() -> None:
    config = GPT2Config(vocab_size=256, n_positions=4, n_embd=2, n_layer=150, n_head=1)
    vector = np.full(parameter_count(config), 0.01)
    trace = GPT2(ParameterVector(config, vector), Tokenizer.byte_level()).trace([1, 2])
    edits = {f"blocks.{layer}.mlp.output": 0 for layer in range(150)}
    edited = trace.edited({"embedding": 1} | {**edits})
    assert edited.logits.shape == (2, 256)
    assert edited.title.endswith(
        "edited: embedding, blocks.0.mlp.output, blocks.1.mlp.output and 148 more"
    )
    step = trace
    for layer in range(0, 150, 5):
        step = step.edited({f"blocks.{layer}.mlp.hidden": 0})
    assert step.next_logits.shape == (256,)
    assert repr(step)
    assert np.array_equal(step.blocks[100].mlp.hidden, np.zeros((2, 8)))


# ---- generation ----------------------------------------------------------------------------------


def near(mask: Any) -> Any:
    """A mask of the three tokens before a query and itself, with or without a cache."""
    queries, keys = mask.shape[-2:]
    return mask & np.triu(np.ones((queries, keys), bool), keys - queries - 3)


ROW_BY_ROW = {
    "embedding": lambda x: x * 2,
    "W_E": lambda x: -x,
    "positions": lambda x: x // 2,
    "mask": near,
    "blocks.1.output": lambda x: x + np.linspace(-1, 1, x.shape[-1]),
    "blocks.1.attention.X": lambda x: -x,
    "blocks.1.attention.Q": lambda x: x * 3,
    "blocks.1.attention.K": lambda x: x * 3,
    "blocks.1.attention.heads.2.K": 0.5,
    "blocks.1.attention.heads.3.V": lambda x: -x,
    "blocks.1.attention.heads.3.X": 0.25,
    "blocks.0.attention.heads.3.scale": 0.1,
    "blocks.1.attention.heads.3.mask": near,
    "blocks.1.attention.weights": lambda x: x / 2,
    "blocks.1.attention.heads.0.W_K": lambda W: -W,
    "blocks.1.attention.heads.0.output": 0,
    "blocks.2.mlp.hidden": 0,
    "final": lambda x: x / 2,
    "logits": lambda x: -x,
}


@pytest.mark.parametrize("path", [*ROW_BY_ROW, "all"])
def test_each_step_of_generation_is_an_edited_trace(odd: GPT2, path: str) -> None:
    """The rows of one edited trace of all tokens, including cached keys."""
    edits = ROW_BY_ROW if path == "all" else {path: ROW_BY_ROW[path]}
    generation = odd.generate("the hen", 5, temperature=0, trace=True, edits=edits)
    whole = odd.trace(generation.tokens).edited(edits)
    assert [step.computed for step in generation.steps] == [4, 1, 1, 1, 1, 1]
    for step in generation.steps:
        rows, keys = slice(step.cached, step.cached + step.computed), step.cached + step.computed
        for layer in range(3):
            actual, expected = (trace.blocks[layer].attention for trace in (step.trace, whole))
            for name in ("X", "Q", "context", "output"):
                check_close(getattr(actual, name), getattr(expected, name)[..., rows, :])
            check_close(actual.weights, expected.weights[:, rows, :keys])
            for name in "KV":
                check_close(getattr(actual, name), getattr(expected, name)[:, :keys])
        check_close(step.trace.next_logits, whole.logits[keys - 1])
        if step.token is not None:
            assert step.token.id == whole.logits[keys - 1].argmax()
    without = odd.generate("the hen", 5, temperature=0)
    assert [token.logit for token in without.chosen] != [token.logit for token in generation.chosen]
    streamed = odd.stream("the hen", 5, temperature=0, edits=edits)
    assert [token.id for token in streamed] == [token.id for token in generation.chosen]


def check_close(actual: Any, expected: Any) -> None:
    if isinstance(actual, Trace):
        actual, expected = actual.logits, expected.logits
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= 1e-4 * max(1, np.abs(expected).max())


def test_edits_apply_after_the_oldest_tokens_are_dropped(odd: GPT2) -> None:
    edits = {"blocks.1.mlp.output": 0}
    generation = odd.generate("the hen", 20, temperature=0, drop_oldest=True, edits=edits)
    last = odd.trace(generation.tokens.ids[-18:-1]).edited(edits)
    assert generation.chosen[-1].id == last.next_logits.argmax()
    assert generation.chosen[-1].logit == pytest.approx(float(last.next_logits.max()))


def test_editing_a_step_of_generation_leaves_the_others_unchanged(odd: GPT2) -> None:
    """Cached keys are shared; new ones are its own."""
    generation = odd.generate("the hen", 4, temperature=0, trace=True)
    step = generation.steps[2].trace
    keys = [x.trace.blocks[1].attention.K.copy() for x in generation.steps]
    edits = {"blocks.0.mlp.output": lambda x: -x, "blocks.1.attention.heads.1.K": lambda x: x / 2}
    expected = step.edited(edits)
    assert not np.array_equal(expected.blocks[1].attention.K, keys[2])
    for unedited, K in zip(generation.steps, keys, strict=True):
        assert np.array_equal(unedited.trace.blocks[1].attention.K, K)
    for copied in (copy.deepcopy(step), pickle.loads(pickle.dumps(step))):
        assert np.array_equal(copied.blocks[1].attention.K, keys[2])
        check_same(copied.edited(edits), expected)
        check_same(copy.deepcopy(copied.edited(edits)), expected)


# ---- paths with an index -----------------------------------------------------------------------


INDEXED = [
    ("blocks.1.attention.heads.2.context", "-1", np.s_[-1]),
    ("blocks.1.attention.context", "2, ..., -1", np.s_[2, ..., -1]),
    ("blocks.0.attention.heads.1.weights", "2:5, 0", np.s_[2:5, 0]),
    ("blocks.1.attention.heads.0.output", "::2", np.s_[::2]),
    ("blocks.1.attention.heads.0.X", "3", np.s_[3]),
    ("blocks.2.mlp.hidden", ":, 5", np.s_[:, 5]),
    ("embedding", "0", np.s_[0]),
    ("next_logits", "7", np.s_[7]),
    ("gain", "-2:", np.s_[-2:]),
]


def check_near(actual: Any, expected: Any) -> None:
    """Logits round differently by the row."""
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("path", "text", "index"), INDEXED)
def test_an_index_is_the_arrays_in_reading_and_editing(
    odd: GPT2, path: str, text: str, index: Any
) -> None:
    trace = odd.trace("the hen in the inn")
    step = attnlab.at(trace, path)
    assert np.array_equal(trace[f"{path}[{text}]"], step[index])
    for value in (0.25, lambda x: 2 * x + 1):
        new = step.copy()
        new[index] = value(new[index]) if callable(value) else value
        edited, expected = trace.edited({f"{path}[{text}]": value}), trace.edited({path: new})
        check_near(edited[path], new)
        check_near(edited.next_logits, expected.next_logits)
        assert f"edited: {path}[{text}]" in edited.title
        for copied in (copy.deepcopy(edited), pickle.loads(pickle.dumps(edited))):
            check_near(copied.next_logits, expected.next_logits)


def test_several_positions_and_layers_are_edited(odd: GPT2) -> None:
    trace = odd.trace("the hen in the inn")
    edited = trace.edited({"blocks.*.mlp.output[1]": 1, "blocks.*.mlp.output[-1]": lambda x: -x})
    outputs = edited["blocks.*.mlp.output"]
    assert outputs.shape == (3, len(trace.tokens), trace.config.n_embd)
    for layer, output in enumerate(outputs):
        unedited = edited.blocks[layer].mlp.unedited("output")
        assert (output[1] == 1).all()
        assert np.array_equal(output[-1], -unedited[-1])
        assert np.array_equal(output[2:-1], unedited[2:-1])
    with pytest.raises(AttnlabError, match=r"output has two edits; one of them is .*\[0\]"):
        trace.edited({"blocks.0.mlp.output": 1, "blocks.*.mlp.output[0]": 1})


def test_a_gradient_flows_past_the_positions_that_are_edited() -> None:
    """By differences: the embedding is moved a little, along random directions."""
    trace = GPT2.from_pretrained(REFERENCE / "odd", dtype="float64").trace("the hen in the inn")
    edits = {"blocks.1.mid[2]": 0.5, "blocks.1.attention.heads.1.context[1:3]": -1}
    edited, random = trace.edited(edits), np.random.default_rng(2)
    gradient, target = attnlab.gradients(edited, 5).embedding, 5
    for _ in range(4):
        direction = random.normal(size=gradient.shape)

        def moved(step: float, direction: Any = direction) -> Any:
            whole = {"embedding": trace.embedding + step * direction}
            return trace.edited(whole).edited(edits).next_logits[target]

        slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
        assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-6)
    double = trace.edited({"blocks.1.mid[2]": lambda x: 2 * x})
    with pytest.raises(AttnlabError, match="derivative of a function isn't known"):
        attnlab.gradients(double, 5).embedding  # noqa: B018


def test_paths_read_all_layers_and_heads_and_are_completed(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    weights = trace["blocks.*.attention.heads.*.weights"]
    assert weights.shape == (3, 5, 4, 4)
    for layer, head in np.ndindex(3, 5):
        path = f"blocks.{layer}.attention.heads.{head}.weights"
        assert np.array_equal(weights[layer, head], trace.head(layer, head).weights)
        assert np.array_equal(trace[path], weights[layer, head])
    assert trace.blocks[1]["attention.heads.*.scale"].shape == (5,)
    assert trace["blocks.0"].path == "blocks.0"
    keys = trace._ipython_key_completions_()
    assert len(keys) == len({*keys})
    assert {"final", "blocks.2.mlp.W_1", "blocks.0.attention.heads.4.weights"} <= {*keys}
    assert all(trace._run.graph[key] for key in keys)
    with pytest.raises(TypeError, match="not iterable"):
        iter(trace)  # type: ignore[arg-type]


def test_in_place_edits_say_what_to_do(odd: GPT2) -> None:
    def double(x: Any) -> Any:
        x *= 2
        return x

    with pytest.raises(AttnlabError, match=r"Change a copy: x = x.copy\(\)"):
        odd.trace("the hen").edited({"embedding": double})


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("blocks.0.mid[9]", "blocks.0.mid.*: index 9 is out of bounds"),
        ("blocks.0.mid[0, 0, 0]", "too many indices"),
        ("blocks.0.mid[x]", r"\[x\] isn't an index, such as \[-1\]"),
        ("blocks.0.mid[]", r"\[\] isn't an index"),
        ("blocks.0.mid[1.5]", "isn't an index"),
        (f"blocks.0.mid[{'9' * 5000}]", "isn't an index"),
        ("blocks[0].mid[-1]", r"blocks\.0\.mid"),
    ],
)
def test_invalid_indices(odd: GPT2, path: str, message: str) -> None:
    trace = odd.trace("the hen")
    for ask in (lambda: trace[path], lambda: trace.edited({path: 0})):
        with pytest.raises(AttnlabError, match=message) as caught:
            ask()
        assert len(str(caught.value)) < 400


def test_an_empty_index_edits_nothing_silently(odd: GPT2) -> None:
    edits = {"blocks.0.output[2:4]": 0}
    assert odd.trace("the hen").edited(edits).edited_steps == ("blocks.0.output",)
    with pytest.raises(OutOfRangeError, match=r"blocks.0.output: \[2:4\] is empty in shape \(1, "):
        odd.generate("the hen", 2, edits=edits)  # the second step computes one token
    with pytest.raises(OutOfRangeError, match="is empty"):
        odd.trace("the").edited({"logits[40:]": 0})


@pytest.mark.parametrize("path", ["*", "blocks.*", "*.mid", "blocks.0.*", "blocks.*.attention"])
def test_stars_end_in_a_step(odd: GPT2, path: str) -> None:
    with pytest.raises(AttnlabError, match=r"must stand for all blocks|can't be stacked"):
        odd.trace("the hen")[path]


# ---- what can't be edited ----------------------------------------------------------------------


LAYER, HEAD = "blocks.1.attention", "blocks.1.attention.heads.2"

# Paths that can't be edited, by words of the message.
NOT_STEPS: dict[str, tuple[str, ...]] = {
    "similar ones are blocks.2.mlp.output": ("blocks.3.mlp.output",),
    "similar ones are blocks.2.output": ("blocks.-1.output",),
    "blocks.0.output": (
        *("blocks.-9.output", "blocks. 0.output", "blocks.٠.output", "blocks.00.output"),
        *("blocks.0.output.", "blocks.#.output", "blocks[0].output", "blocks.1e0.output"),
        f"blocks.{'9' * 5000}.output",
    ),
    f"similar ones are {LAYER}.heads.4.weights": (f"{LAYER}.heads.7.weights",),
    f"similar ones are {LAYER}.weights": (f"{LAYER}.wieghts",),
    "similar ones are blocks.1.mid": ("block.1.mid", "blocks.1"),
    f"{HEAD}.": (HEAD,),
    "similar ones are embedding": (" embedding", "embedding\n"),
    "similar ones are W_E": ("rows_of_W_E",),
    "similar ones are blocks.0.attention.mask": ("blocks.0.attention.dropout_mask",),
    r"isn't a step to edit; similar ones are": ("x" * 5000, ""),
    "isn't a step to edit": (
        *("ids", "n_head", "tokens"),
        *("blocks.0.attention.memory", "blocks.0.attention.K_cache"),
    ),
}


@pytest.mark.parametrize("message", NOT_STEPS)
def test_invalid_edit_paths(odd: GPT2, message: str) -> None:
    for path in NOT_STEPS[message]:
        for ask in (odd.trace("the hen").edited, lambda e: odd.stream("the hen", 2, edits=e)):
            with pytest.raises(AttnlabError, match=message) as caught:
                ask({path: 0})
            assert isinstance(caught.value, ValueError)
            assert len(str(caught.value)) < 400


NO_PARTS: dict[str, tuple[Any, ...]] = {
    "no part 'blocks.3.mid'; blocks has 0, 1, 2": ("blocks.3.mid",),
    "blocks has 0, 1, 2": ("blocks.-1", "blocks.٠.mid", "blocks.00.mid", f"blocks.{'9' * 5000}"),
    "blocks.0 has attention, mlp": ("blocks.0.attn",),
    "Trace has blocks": ("", "_run"),
    "there is no part 'embedding.0'$": ("embedding.0",),
    "there is no part 'logits.T'": ("logits.T",),
    "there is no part 'blocks.1.'; .* between dots, from 0: blocks.1": ("blocks[1]",),
    "attention.scale isn't an array: leave the index out": ("blocks.0.attention.scale[0]",),
    "path must be a str": (None, [], np.array(["Q"])),
    "path must be a str, .* got 3": (3,),
    r"got \['embedding'\]": (["embedding"],),
}


@pytest.mark.parametrize("message", NO_PARTS)
def test_paths_of_missing_parts(odd: GPT2, message: str) -> None:
    for path in NO_PARTS[message]:
        with pytest.raises(AttnlabError, match=message) as caught:
            attnlab.at(odd.trace("the hen"), path)
        assert len(str(caught.value)) < 500


def test_parts_by_their_paths(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    assert attnlab.at(trace, "blocks.1.attention.heads.2.weights") is trace.head(1, 2).weights
    assert attnlab.at(trace, "blocks.1.attention") is trace.blocks[1].attention
    assert attnlab.at(trace.blocks[1], "mlp.hidden") is trace.blocks[1].mlp.hidden
    assert attnlab.at(trace, "blocks") is trace.blocks


class Tensor:
    """Like PyTorch's tensor: it converts to an array unless it requires a gradient."""

    def __init__(self, array: Any, needs_gradient: bool = False) -> None:
        self.array, self.needs_gradient = np.asarray(array), needs_gradient

    def __array__(self, dtype: Any = None) -> Any:
        if self.needs_gradient:
            raise RuntimeError("call detach() first")
        return self.array.astype(dtype) if dtype else self.array


def failing(x: Any) -> Any:
    raise KeyError("mine")


def in_place(x: Any) -> Any:
    x *= 2
    return x


# A step, the built-in exception, words of the message, and edits of the step.
REFUSED: list[tuple[str, type, str, tuple[Any, ...]]] = [
    ("embedding", ValueError, r"\(4, 35\); got \(3, 35\)", (np.zeros((3, 35)),)),
    ("embedding", ValueError, r"shape \(4, 35\); got .*\(1, 4, 35\)", (np.zeros((1, 4, 35)),)),
    ("embedding", ValueError, r"\(4, 35\); got \(2, 35\)", (lambda x: x[:2],)),
    (f"{HEAD}.weights", ValueError, r"heads.2.weights must .*4, 4", (np.zeros((4, 3)),)),
    (f"{HEAD}.W_Q", ValueError, r"heads.2.W_Q must .*\(35, 7\)", (np.zeros((35, 8)),)),
    (f"{LAYER}.scale", ValueError, r"must broadcast to shape \(\); got \(2,\)", ([1, 2],)),
    ("embedding", TypeError, "embedding must have dtype float32; got <U1", ("0",)),
    ("embedding", TypeError, "dtype float32; got object", (None, 10**400, {"a": 1})),
    ("embedding", TypeError, "dtype float32; got (complex128|bool)", (1j, True)),
    ("embedding", ValueError, "isn't an array of numbers", ([[1.0, 2.0], [3.0]],)),
    ("embedding", ValueError, "isn't an array of numbers", (lambda x: [[1], [1, 2]],)),
    ("embedding", TypeError, r"of numbers: 'call detach\(\) first'", (Tensor(0, True),)),
    ("embedding", ValueError, "edit of embedding: .* NaN or .* infinite", (float("nan"),)),
    ("embedding", ValueError, "infinite in float32", (1e300, lambda x: x * 1e30 * 1e30)),
    ("embedding", ValueError, "NaN or numbers that are infinite", (lambda x: x / 0,)),
    (f"{HEAD}.scores", ValueError, "heads.2.scores: .* infinite", (-np.inf,)),
    (f"{LAYER}.masked_scores", ValueError, "masked_scores: it contains NaN", (np.nan,)),
    (f"{LAYER}.masked_scores", ValueError, "hides all keys from query 0, 0", (-np.inf,)),
    ("mask", ValueError, "edit of mask: it hides all keys from query 0", (False,)),
    (f"{LAYER}.mask", TypeError, "mask must have dtype bool; got int64", ([[1, 0, 0, 0]],)),
    (f"{HEAD}.mask", ValueError, "hides all keys from query 3", (~causal_mask(4),)),
    (f"{LAYER}.scale", ValueError, "scale: it must not be 0", (0,)),
    (f"{HEAD}.scale", ValueError, "scores are divided by it", (0.0,)),
    ("epsilon", ValueError, "must not be negative", (-1,)),
    ("positions", ValueError, "edit of positions: positions must be from 0 to 16", (17, -1)),
    ("positions", TypeError, "positions must have dtype int64; got float64", (0.5,)),
    ("embedding", ValueError, r"edit of embedding raised KeyError\('mine'\)", (failing,)),
    ("embedding", ValueError, "edit of embedding raised TypeError", (lambda: 0, np.zeros)),
    ("embedding", ValueError, "edit of embedding raised ValueError.*read-only", (in_place,)),
    *((path, ValueError, "read-only", (in_place,)) for path in (f"{HEAD}.weights", "W_E")),
    ("blocks.1.mlp.hidden", ValueError, "read-only", (in_place,)),
    ("embedding", TypeError, "returned None instead of an array", (lambda x: None,)),
]


@pytest.mark.parametrize(("path", "kind", "message", "edits"), REFUSED)
def test_edits_of_the_wrong_shape_or_type(
    odd: GPT2, path: str, kind: type, message: str, edits: tuple[Any, ...]
) -> None:
    trace = odd.trace("the hen")
    for edit in edits:
        with pytest.raises(AttnlabError, match=message) as caught:
            trace.edited({path: edit})
        assert isinstance(caught.value, kind)
    assert np.array_equal(trace.logits, odd.trace("the hen").logits)


def test_edits_must_be_a_dict_of_paths(odd: GPT2) -> None:
    for edits, message in (
        (None, "edits must be a dict of paths and values; got None"),
        ([("embedding", 0)], "edits must be a dict"),
        ("embedding=0", "edits must be a dict"),
        ({3: 0}, "path must be a str, such as 'embedding'; got 3"),
    ):
        with pytest.raises(InvalidTypeError, match=message):
            odd.trace("the hen").edited(edits)  # type: ignore[arg-type]


def test_extreme_edits_that_are_allowed(odd: GPT2) -> None:
    for edits in ({"epsilon": 0}, {f"{HEAD}.mask": ~np.eye(4, dtype=bool)[1:2]}):
        assert odd.trace("the hen").edited(edits).logits.shape == (4, 263)


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({f"{LAYER}.Q": 1e30, f"{LAYER}.K": 1e30}, "raw_scores overflows"),
        ({f"{LAYER}.heads.1.scale": 1e300}, "scores overflows"),
        ({f"{LAYER}.heads.1.scale": 1e-45}, "scores overflows"),
        ({f"{LAYER}.heads.1.X": 3e38}, "Q overflows"),
    ],
)
def test_an_overflow_after_an_edit_is_reported(
    odd: GPT2, edits: dict[str, float], message: str
) -> None:
    edited = odd.trace("the hen").edited(edits)
    with pytest.raises(InvalidValueError, match=f"{LAYER}.{message}"):
        edited.logits  # noqa: B018


def test_the_error_of_an_edits_function_is_the_cause(odd: GPT2) -> None:
    with pytest.raises(AttnlabError, match="edit of embedding raised KeyError") as caught:
        odd.generate("the hen", 2, edits={"embedding": failing})
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "zero", [0, 0.0, False + 0, np.float64(0), np.int8(0), np.array(0), [0], Tensor(0.0)]
)
def test_numeric_types_of_edits(odd: GPT2, zero: Any) -> None:
    trace = odd.trace("the hen")
    for path in (f"{LAYER}.heads.2.context", "embedding", "W_E", f"{LAYER}.heads.2.b_V"):
        edited = trace.edited({path: zero})
        assert not attnlab.at(edited, path).any()
        assert attnlab.at(edited, path).dtype == np.float32
    for form in (lambda x: x + 2, lambda x: Tensor(x + 2), lambda x: list(np.array(x + 2))):
        actual = trace.edited({"embedding": form}).embedding
        assert np.array_equal(actual, trace.embedding + np.float32(2))


@pytest.mark.parametrize("number", [2, 2.0, np.float32(2), np.array(2), Tensor(2)])
def test_edited_scales_stay_scalars(odd: GPT2, number: Any) -> None:
    trace = odd.trace("the hen")
    layer = trace.edited({f"{LAYER}.scale": number}).blocks[1].attention
    assert layer.scale == layer.heads[3].scale == 2.0
    assert type(layer.scale) is type(layer.heads[3].scale) is float
    edited = trace.edited({f"{LAYER}.heads.3.scale": lambda x: Tensor(x / 2)})
    assert edited.head(1, 3).scale == pytest.approx(7**0.5 / 2)
    assert edited.head(1, 2).scale == edited.blocks[1].attention.scale == 7**0.5
    assert edited.blocks[1].attention.scores.dtype == np.float32


def test_an_edit_copies_its_value(odd: GPT2) -> None:
    trace, given_ = odd.trace("the hen"), np.zeros((4, 35))
    edited = trace.edited({"embedding": given_})
    given_ += 7
    assert not edited.embedding.any()
    assert not edited.edited({"W_P": 1}).embedding.any()
    held: list[Any] = []
    path = "blocks.1.attention.heads.2.weights"
    edited = trace.edited({path: lambda x: held.append(x) or x[::-1]})
    assert not held[0].flags.writeable
    assert np.array_equal(held[0], trace.head(1, 2).weights)
    assert np.array_equal(edited.head(1, 2).weights, trace.head(1, 2).weights[::-1])


def test_the_title_says_if_weights_do_not_sum_to_1(odd: GPT2) -> None:
    trace, path = odd.trace("the hen"), "blocks.1.attention.heads.2.weights"
    text = f"edited: {path} (rows that don't sum to 1)"
    assert trace.edited({path: lambda x: x / 2}).head(1, 2).title.endswith(text)
    assert trace.edited({path: 0.25}).title.endswith(f"blocks of 5 heads, edited: {path}")
    # Rounding to half precision is not reported; larger changes are.
    assert "sum to 1" not in trace.edited({path: lambda x: x * (1 + 9e-5)}).title
    assert text in trace.edited({path: lambda x: x * (1 + 2e-4)}).title
    # A further edit upstream doesn't change an array; a function halves the new value.
    assert text in trace.edited({path: lambda x: x / 2}).edited({"embedding": 1}).title


# ---- shown ---------------------------------------------------------------------------------------


def test_explanations_of_edited_scale_mask_and_context(odd: GPT2) -> None:
    trace, layer = odd.trace("the hen"), "blocks.1.attention"
    for path in (f"{layer}.scale", f"{layer}.heads.2.scale"):
        head = trace.edited({path: 0.5}).head(1, 2)
        text = "√7 = 2.6458; edited here: 0.5 instead of 2.6458"
        assert text in str(head.explain(3, 1))
        assert text in str(head.explain(3))
        assert head.explain(3).numbers["unedited"] == {"scale": 7**0.5}
    for path in (f"{layer}.mask", f"{layer}.heads.2.mask"):
        head = trace.edited({path: True}).head(1, 2)
        assert "False; edited here: True instead of False" in str(head.explain(1, 3))
        assert head.explain(1, 3).numbers["unedited"] == {"mask": False}
        assert head.explain(1).numbers["unedited"]["mask"] == [True, True, False, False]
        assert "over the 4 unmasked keys" in str(head.explain(1, 3))
        assert "edited here" not in str(head.explain(1, 0))
    head = trace.edited({f"{layer}.heads.2.context": 0}).head(1, 2)
    lines = head.explain(3).text(200).splitlines()
    assert lines[-1].split() == ["edited", "here", *"0000000"]
    sums = [float(word) for word in lines[-2].split()[5:]]
    assert sums == pytest.approx(trace.head(1, 2).context[3].tolist(), rel=1e-4)


def test_tables_mark_edits(odd: GPT2) -> None:
    path = "blocks.1.attention.heads.2.weights"
    trace = odd.trace("the hen")
    edited = trace.edited({path: 0.25})
    head, message = edited.head(1, 2), f"edited: {path}"
    for result in (edited, edited.blocks[0], edited.blocks[1].mlp, edited.blocks[1].attention):
        assert result.title.endswith(message)
        assert message in repr(result).splitlines()[0]
        assert message in result._repr_html_()
    assert head._heading_of("weights") == "weights = softmax(masked_scores), edited"
    assert "softmax(masked_scores), edited" in head._repr_html_()
    assert edited.blocks[1].attention.is_edited("weights")
    for same in (
        edited.head(1, 3),
        edited.head(0, 2),
        edited.blocks[0].attention,
        trace.head(1, 2),
    ):
        assert not same.is_edited("weights")
        assert "edited" not in same._heading_of("weights")
    assert np.array_equal(head.unedited("weights"), trace.head(1, 2).weights)
    assert np.array_equal(edited.head(1, 3).unedited("weights"), trace.head(1, 3).weights)
    with pytest.raises(AttnlabError, match=r"has no step 'z'; its steps are "):
        head.unedited("z")


def test_edits_of_masked_cells_are_visible(odd: GPT2) -> None:
    trace, hidden = odd.trace("the hen"), ~causal_mask(4)
    edited = trace.edited({"blocks.1.attention.heads.2.weights": 0.25})
    scored = trace.edited({"blocks.1.attention.masked_scores": 1.5})
    put = trace.edited({"blocks.1.attention.heads.2.weights": lambda w: w + np.eye(4, k=2)})
    for result, name, masked in (
        (trace, "weights", hidden),
        (edited, "weights", hidden & False),
        (edited, "masked_scores", hidden),
        (scored, "masked_scores", hidden & False),
        (scored, "weights", hidden & False),
        (put, "weights", hidden & (np.eye(4, k=2) == 0)),
        (put, "mask", hidden),
    ):
        assert np.array_equal(labelled_step(result.head(1, 2), name).masked, masked)
    assert trace.head(1, 2)._repr_html_().count("masked") > edited.head(1, 2)._repr_html_().count(
        "masked"
    )


def test_copies_and_titles_keep_the_indices_of_edits(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    edits: dict[str, Any] = {"embedding[-1]": lambda x: x / 2, "embedding[0]": 0.5}
    edited = trace.edited(edits).edited({"embedding[1]": 1}).edited({"final": lambda x: x})
    assert edited.title.endswith("edited: embedding[-1][0], embedding[1], final")
    copied = pickle.loads(pickle.dumps(edited))
    check_same(edited, copied)
    # Row 2 is what the equation gives, in the copy too: gradients flow through it, and no other.
    arrays = trace.edited({f"embedding[{n}]": edited.embedding[n] for n in (0, 1, 3)})
    copied = pickle.loads(pickle.dumps(trace.edited(edits).edited({"embedding[1]": 1})))
    actual, expected = (attnlab.gradients(x, 5).token_embedding for x in (copied, arrays))
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    assert expected.any(axis=1).tolist() == [False, False, True, False]


@pytest.mark.parametrize("index", ["::0", ".5:2", "1:2.", "x", ""])
def test_indices_that_numpy_has_not_are_refused_at_once(odd: GPT2, index: str) -> None:
    trace, path = odd.trace("the hen"), f"final[{index}]"
    for refused in (
        lambda: trace[path],
        lambda: trace.edited({path: 0}),
        lambda: odd.stream("the hen", 3, edits={path: 0}),
    ):
        with pytest.raises(InvalidValueError, match="isn't an index"):
            refused()
