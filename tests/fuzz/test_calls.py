"""Call everything public in attnlab with odd values among valid ones.

A case takes a working call, replaces one value by an odd one or by a variant of it (the
same numbers as a masked array, say), and reads everything that the result shows. If an equation
defines the result, they are compared.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import oracle
import pytest
from guarded import LONGEST_QUOTE, examples, linux, outcome
from hypothesis import given, note
from hypothesis import strategies as st
from odd import BIG, ODD, evaluate, variants
from targets import REFERENCE, Target, beside_a_model, finder

import attnlab

pytestmark = [linux, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

# Parameters that are counts or amounts: that a huge one takes long is no fault.
REPEATS = ("steps", "max_new_tokens", "samples")

# Callbacks, whose own errors pass through.
CALLBACKS = ("watch", "metric")

# Longer lists aren't inspected further.
INSPECTED = 5

Arrays = Callable[[str], Any]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


# Expected results from equations


def is_real(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iuf"


def real_arrays(values: dict[str, Any], names: str) -> Iterator[Any]:
    """Arguments as arrays of real numbers; None where there is none."""
    for name in names.split():
        value = values.get(name)
        array = None if value is None else np.array(value)
        if array is not None and array.dtype.kind not in "biuf":
            raise ValueError(f"{name} holds no real numbers")
        yield array


def as_type(dtype: str, *arrays: Any) -> list[Any]:
    return [None if array is None else array.astype(dtype) for array in arrays]


def of_arrays(equation: Callable[..., Any], names: str) -> Callable[[dict[str, Any]], Arrays]:
    """An equation of arrays alone."""

    def equation_of(values: dict[str, Any]) -> Arrays:
        arrays = list(real_arrays(values, names))
        return lambda dtype: equation(*as_type(dtype, *arrays))

    return equation_of


def affine(x: Any, W: Any, b: Any) -> Any:
    return x @ W if b is None else x @ W + b


def layer_norm(values: dict[str, Any]) -> Arrays:
    arrays, eps = list(real_arrays(values, "x gain bias")), float(values.get("eps", 1e-5))
    oracle.require(0 <= eps < np.inf, f"eps is {eps}")
    return lambda dtype: oracle.layer_norm(*as_type(dtype, *arrays), eps)


def split_heads(values: dict[str, Any]) -> Arrays:
    (x,) = real_arrays(values, "x")
    return lambda dtype: oracle.heads_of(x.astype(dtype), int(values["n_head"]))


def causal_mask(values: dict[str, Any]) -> Arrays:
    T, cached = int(values["T"]), int(values.get("cached", 0))
    mask = np.arange(cached + T) <= cached + np.arange(T)[:, None]
    return lambda dtype: mask.astype(dtype)


def attention(values: dict[str, Any]) -> Arrays:
    """The context of one head, the output of several."""
    if values.get("dropout", 0):
        raise ValueError("dropout is random")
    x, W_Q, W_K, W_V, W_O = real_arrays(values, "X W_Q W_K W_V W_O")
    b_Q, b_K, b_V, b_O = real_arrays(values, "b_Q b_K b_V b_O")
    memory, mask, *projections = real_arrays(values, "memory mask Q K V")
    memory = x if memory is None else memory

    def equation_of(dtype: str) -> Any:
        if x is None:
            return oracle.attended(*as_type(dtype, *projections), mask)[1]
        sources = ((x, W_Q, b_Q), (memory, W_K, b_K), (memory, W_V, b_V))
        inputs = [affine(*as_type(dtype, *source)) for source in sources]
        if W_O is None:
            return oracle.attended(*inputs, mask)[1]
        heads = (oracle.heads_of(array, int(values["n_head"])) for array in inputs)
        return affine(oracle.joined(oracle.attended(*heads, mask)[1]), *as_type(dtype, W_O, b_O))

    return equation_of


@cache
def small_model() -> oracle.Model:
    return oracle.read(REFERENCE, "float32", 17)


def rows(values: dict[str, Any]) -> Arrays:
    """Rows of the small model's token embedding."""
    (ids,) = real_arrays(values, "rows")
    matrix = small_model().parameters["wte.weight"]
    oracle.require(bool(np.all((ids >= 0) & (ids < len(matrix)))), "there are no such rows")
    return lambda dtype: matrix[ids].astype(dtype)


# By target name: the expected result. Of a record, its `context` or `output` is compared.
EQUATIONS: dict[str, Callable[[dict[str, Any]], Arrays]] = {
    "attnlab.softmax": of_arrays(oracle.softmax, "x"),
    "attnlab.gelu": of_arrays(oracle.gelu, "x"),
    "attnlab.linear": of_arrays(affine, "x W b"),
    "attnlab.layer_norm": layer_norm,
    "attnlab.split_heads": split_heads,
    "attnlab.merge_heads": of_arrays(oracle.joined, "x"),
    "attnlab.causal_mask": causal_mask,
    "Rows.__getitem__": rows,
    "attnlab.attention": attention,
    "attnlab.self_attention": attention,
    "attnlab.cross_attention": attention,
    "attnlab.multi_head_attention": attention,
}
BY_VOCABULARY = ("Tokenizer.encode", "GPT2.trace")


def compare_equation(name: str, values: dict[str, Any], value: Any) -> None:
    shown = value.output if name.endswith("multi_head_attention") else value
    result = np.asarray(getattr(shown, "context", shown))
    arrays = filter(is_real, (result, *values.values()))
    rounds = any(np.result_type(array.dtype, np.float32) == np.float32 for array in arrays)
    try:
        expected = oracle.in_range(EQUATIONS[name](values), "float32" if rounds else "float64")
    except oracle.UnsoundError as reason:
        raise AssertionError("should be refused") from reason
    except Exception:  # since some arguments raise when accessed
        return
    assert expected is None or expected.contains(result), "not what the equation gives"


def ids_in(values: dict[str, Any]) -> list[int]:
    """The ids of a text, or the ids passed, possibly as a batch of one."""
    text = values.get("text", values.get("text_or_ids"))
    if isinstance(text, str):
        vocabulary = small_model().vocabulary
        assert vocabulary is not None
        ids, *_ = vocabulary.encoded(str(text), values.get("special") is True)
        return ids or []
    array = np.array(getattr(text, "ids", text))
    if array.dtype.kind == "U":
        raise TypeError("a list of texts, which gives several traces")
    return list((array[0] if array.ndim == 2 and len(array) == 1 else array).tolist())


def compare_tokens(name: str, values: dict[str, Any], value: Any) -> None:
    try:
        ids = ids_in(values)
    except Exception:  # an argument that raises when accessed
        return
    if name == "Tokenizer.encode":
        assert list(value) == ids, "other ids"
    else:
        expected = small_model().logits(ids, "float32")
        assert expected is None or expected.contains(value.logits), "other logits"


# Cases


def shown(value: Any) -> Iterator[str]:
    """Everything that a result shows; computes what is computed on access."""
    if isinstance(value, Iterator):
        for _, item in zip(range(INSPECTED), value, strict=False):
            yield from shown(item)
        return
    if isinstance(value, tuple | list) and type(value).__module__ == "builtins":
        for item in value[:INSPECTED]:
            yield from shown(item)
    cls = type(value)
    if cls.__module__.split(".")[0] != "attnlab" or isinstance(value, BaseException):
        return
    yield repr(value)
    if cls.__str__ is not object.__str__:
        str(value)
    for name in dir(cls):
        if name == "_repr_html_":
            value._repr_html_()
        elif not name.startswith("_") and not callable(inspect.getattr_static(cls, name)):
            getattr(value, name)


def with_library_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """A callback whose errors count as refusals by the library."""

    def wrapper(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            raise attnlab.AttnlabError("the callback raised") from error

    return wrapper


def quotable(values: dict[str, Any]) -> list[str]:
    """Long values that a message might quote."""
    texts = []
    for value in values.values():
        for text in (str, repr, lambda value: value.decode("latin-1")):
            with contextlib.suppress(Exception):
                texts.append(text(value))
    return [text for text in texts if len(text) > LONGEST_QUOTE]


def weight_of(target: Target) -> int:
    """A target's weight: higher where wrong numbers could pass unnoticed."""
    return 4 if target.name in EQUATIONS or target.name in BY_VOCABULARY else 1


@st.composite
def arguments_of(draw: Any, target: Target) -> dict[str, str]:
    """Arguments as expressions: those of a working call, some replaced by odd ones."""
    arguments, fitting = dict(target.works), target.fitting
    for name, fits in fitting.items():
        if draw(st.integers(1, 10)) <= (1 if name in target.required else 3):
            arguments[name] = draw(st.sampled_from(fits))
    if fitting:
        count = draw(st.sampled_from([0, 0, 1, 1, 1, 1, 1, 2, 2, len(fitting)]))
        for name in draw(st.permutations([*fitting]))[:count]:
            valid = arguments.get(name, fitting[name][0])
            odd = ODD if name in REPEATS else ODD | BIG
            is_variant = draw(st.booleans())
            arguments[name] = draw(variants(valid, finder().live) if is_variant else odd)
    return arguments


def check_call(target: Target, arguments: dict[str, str]) -> None:
    note(target.call(arguments))
    live = finder().live
    name = target.callee.split(".")[0]
    if name in finder().origins:
        note(f"{name} = {finder().origins[name]}")
    try:
        values = {name: evaluate(text, live) for name, text in arguments.items()}
    except Exception:  # it has no variants
        return
    copies = {n: np.array(v) if type(v) is np.ndarray else v for n, v in values.items()}
    names = live | {f"argument_{name}": value for name, value in values.items()}
    for name in CALLBACKS:
        if callable(values.get(name)):
            names[f"argument_{name}"] = with_library_errors(values[name])

    def attack() -> Any:
        result = eval(target.call({name: f"argument_{name}" for name in values}), names)
        return result, list(shown(result))

    result = outcome(attack, lambda: quotable(values))
    if isinstance(result, attnlab.AttnlabError):
        return
    value, texts = result
    for text in texts:
        assert text.replace("\n", "").isprintable()
    if target.name in BY_VOCABULARY:
        compare_tokens(target.name, copies, value)
    elif target.name in EQUATIONS:
        compare_equation(target.name, copies, value)


def fuzz_calls(targets: list[Target], count: int) -> None:
    choices = [target for target in targets for _ in range(weight_of(target))]

    @examples(count)
    @given(data=st.data())
    def test(data: st.DataObject) -> None:
        target = data.draw(st.sampled_from(choices))
        with beside_a_model():
            check_call(target, data.draw(arguments_of(target)))

    test()


def test_the_public_interface_is_discovered() -> None:
    names = set(finder().targets)
    assert {*EQUATIONS, *BY_VOCABULARY} <= names
    assert len(names) > 120
    assert all(target.works or not target.required for target in finder().targets.values())


def test_odd_arguments_are_refused_or_give_the_equations_numbers() -> None:
    fuzz_calls(list(finder().targets.values()), 1500)


# Injected faults must be detected


@pytest.mark.parametrize(
    ("name", "fault", "message"),
    [
        ("attnlab.softmax", lambda result: result * 1.001, "not what the equation gives"),
        ("Tokenizer.encode", lambda result: result[:-1], "other ids"),
        ("attnlab.gelu", lambda result: {}[result.shape], "KeyError"),
    ],
)
def test_injected_faults_are_detected(
    monkeypatch: pytest.MonkeyPatch, name: str, fault: Any, message: str
) -> None:
    target = finder().targets[name]
    module, attribute = name.split(".")
    owner = attnlab if module == "attnlab" else getattr(attnlab, module)
    method = getattr(owner, attribute)
    monkeypatch.setattr(owner, attribute, lambda *args, **kwargs: fault(method(*args, **kwargs)))
    with pytest.raises((AssertionError, KeyError)) as error:
        fuzz_calls([target], 60)
    assert message in repr(error.value)
