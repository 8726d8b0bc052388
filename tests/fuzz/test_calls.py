"""Call what is public in attnlab with odd values among fitting ones.

Functions and methods are discovered, so new ones are called too; for a new parameter name, add
fitting arguments to `FITTING`. Arguments are Python expressions, so that a failing call can be read
and run. A call is refused, or its result can be shown; a function of arrays gives the same numbers
for the same numbers in plain arrays.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import REFERENCE
from guarded import LONGEST_QUOTE, directory, fuzz, linux, outcome
from hypothesis import note
from hypothesis import strategies as st

import attnlab

pytestmark = [linux, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class BoomError(Exception):
    """Raised by an odd object when it is accessed."""


def raising(name: str) -> Any:
    """An object whose method of this name raises."""

    def boom(*_: object, **__: object) -> Any:
        raise BoomError("boom")

    return type("Raising", (), {name: boom})()


def returning(method: str, value: Any) -> Any:
    """An object whose method of this name returns a value, like another library's tensor."""
    return type("Returning", (), {method: lambda *_, **__: value})()


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def numbers(*shape: int) -> Any:
    """Reproducible random numbers."""
    return np.random.default_rng(0).standard_normal(shape)


@cache
def model() -> attnlab.GPT2:
    return attnlab.GPT2.from_pretrained(REFERENCE / "float16")


NAMES: dict[str, Any] = {
    **{item.__name__: item for item in (attnlab, math, Fraction, Path, model, numbers)},
    **{item.__name__: item for item in (raising, returning, nested)},
    "np": np,
    "trace": lambda: model().trace([71, 259, 3]),
    "Text": type("Text", (str,), {}),
    "Subclass": type("Subclass", (np.ndarray,), {}),
}


def texts(block: str) -> list[str]:
    """The expressions in a block, separated by two spaces or a line break."""
    return [text for line in block.split("\n") for text in line.strip().split("  ") if text]


# ---- arguments -----------------------------------------------------------------------------------

ODD = texts(
    r"""
    None  True  0  -1  1.5  -(2**63)  2**64  10**400  1e300  math.nan  -math.inf  1j  Fraction(1, 3)
    ...  object()  int  len  slice(1)  KeyError  np.int8(-128)  np.float16(1)  np.longdouble(1)
    np.str_('a')  np.void(b'ab')  np.complex64(1j)  np.datetime64('NaT')  returning('__index__', 1)
    ''  'weights'  'float32'  'gpt2'  'no/such'  'a\0b'  '\ud800'  '\x1b]52;c;Zm9v\x07'  '\u202eabc'
    '{0.__class__}'  '%s%n'  'a' * 100_000  Text('weights')  b'\xff' * 1000
    Path('a\0b')  Path('a' * 300)  returning('__fspath__', 3)  returning('__array__', 'a')
    ()  {}  set()  [[]]  {'a': 1}  {1: 2}  ['a'] * 10_000  range(3)  iter([1, 2])  [object()]
    [10**30]  [math.nan] * 3  nested(70)  nested(10_000)  [raising('__repr__')]  memoryview(b'ab')
    np.array(None)  np.zeros((1,) * 30)  np.array([2**63], np.uint64)  np.array([[71, 3]])
    np.array([{}, None])  np.zeros(3, 'f4,i4')  np.ma.masked  np.ma.masked_all((3, 4))
    np.zeros((0, 4))  np.matrix([[1.0, 2.0]])  lambda *a, **k: None  BaseException  attnlab
    raising('__array__')  raising('__len__')  raising('__str__')  raising('__iter__')
    raising('__eq__')  raising('__hash__')  raising('__bool__')  raising('__fspath__')
    """
)

# The same numbers in another type, or with one thing wrong.
NEAR = texts(
    """
    np.matrix({})  np.ma.masked_less({}, 0)  np.asarray({}).view(Subclass)  np.asarray({}).tolist()
    returning('__array__', np.asarray({}))  np.asarray({}).astype(object)  np.asarray({})[::-1]
    np.asarray({}).astype('f2')  np.asarray({}).astype('f4')  np.asarray({}).astype('>f8')
    np.asarray({}).astype(complex)  np.asarray({}).astype(str)  np.asarray({}).T
    np.asarray({})[None]  np.asarray({})[..., :0]  np.asfortranarray({})
    np.asarray({}) * math.nan  np.asarray({}) * 0
    np.asarray({}) * 1e300  np.asarray({}, 'f4') * 1e30  tuple(np.asarray({}).tolist())  iter({})
    np.repeat({}, 50, axis=0)  str({})  [{}]  float({})  -({})  ({}) * 100  ({}) + 0.5  ({}) + '\\0'
    ({}).encode()  Text({})  ({}) * 2000  Path({})  type({})  lambda: {}  [{}, None]
    """
)

FITTING = {
    name: texts(fits)
    for names, fits in {
        "x X memory Q K V values scores a b c": "numbers(3, 4)  numbers(2, 3, 2)",
        "W W_Q W_K W_V W_O": "numbers(4, 4)",
        "b_Q b_K b_V b_O gain bias": "numbers(4)",
        "mask": "attnlab.causal_mask(3)  None",
        "text_or_ids prompt text": "'the thin cat'  [71, 259, 3]",
        "texts": "['the thin cat']",
        "ids": "[71, 259, 3]  np.array([71, 3, 5])",
        "id token against of": "71  'the'",
        "tokens": "trace().tokens  [71, 259, 3]",
        "corrupted other": "model().trace([71, 3, 5])",
        "trace clean traces origin result a_trace": "trace()",
        "path": "'W_E'  'page.html'  'blocks.0.attention'",
        "dtype": "'float32'  np.float64",
        "step": "'output'  'weights'  1",
        "name": "'weights'  'input'  'hidden'  'logits'",
        "layer head index position start number query key": "0  1",
        "T k top_k max_new_tokens n_head count n": "2",
        "temperature": "0.7  0",
        "top_p share probability logit": "0.5",
        "rng": "np.random.default_rng(0)  1",
        "progress": "False",
        "metric": "71  (71, 3)",
        "config settings": "model().config  vars(model().config)",
        "arrays": "model().parameters",
        "directory": "'out'  '.'",
        "merges": "[('t', 'h')]  []",
        "rows": "300  ['a', 'b', 'c']",
        "mine": "dict(logits=numbers(3, 263))  dict(weights=numbers(3, 3))",
        "stop": "'embedding'",
        "part query_part key_part": "'token_embedding'  'blocks.0.mlp.output'",
        "side": "'key'  None",
        "edits": """{'blocks.0.mid': 0}  {'blocks.0.attention.heads.1.scale': 1e300}
            {'blocks.0.attention.scores': math.nan}  {'mask': lambda x: x[..., :1]}
            {'blocks.1.attention.heads.0.V': 2**63}  {'blocks.1.attention.X': lambda x: x / 0}""",
    }.items()
    for name in names.split()
}
ANY = texts("1  'weights'  numbers(3, 4)  None  [1, 2]")

# Objects whose methods are called. Tests of training, of atlases and of the hub are elsewhere.
OBJECTS = texts(
    """
    model()  model().config  model().tokenizer  model().parameters  trace()  trace().tokens
    trace().blocks[0]  trace().blocks[0].attention  trace().head(0, 0)  trace().vocabulary
    trace().edited({'blocks.0.mid': 0})  attnlab.gradients(trace(), 3)  attnlab.lens(trace())
    attnlab.attribution(trace(), 3)
    attnlab.why(trace().head(1, 0), 1, 0)
    model().generate([71, 259], 2, trace=True)  model().trace([[71, 3], [5, 71]])
    attnlab.attention(numbers(3, 4), numbers(3, 4), numbers(3, 4))
    attnlab.patch(trace(), model().trace([71, 3, 5]), metric=3, progress=False)
    """
)
SKIPPED = ("train", "atlas", "open_atlas", "explore", "playground", "show", "from_pretrained")
SKIPPED += ("side_by_side",)  # only patching calls it
SKIPPED += ("index",)  # of a value that raises when compared, as a list's

NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)

Target = tuple[str, dict[str, inspect.Parameter]]


@cache
def targets() -> list[Target]:
    """The text of each function or method, and its parameters."""
    found: dict[Any, Target] = {}
    owners = [("attnlab", attnlab, attnlab.__all__)]
    owners += [(text, eval(text, NAMES), []) for text in OBJECTS]
    for text, owner, names in owners:
        for name in names or [name for name in dir(type(owner)) if not name.startswith("_")]:
            holder = owner if names else type(owner)
            function = inspect.unwrap(getattr(holder, name))
            function = getattr(function, "__func__", function)
            if name in SKIPPED or not inspect.isfunction(function) or function in found:
                continue
            if "attnlab" in function.__module__:
                parameters = inspect.signature(getattr(owner, name)).parameters
                found[function] = f"{text}.{name}", dict(parameters)
    return list(found.values())


@st.composite
def arguments_of(draw: Any, parameters: dict[str, inspect.Parameter]) -> dict[str, str]:
    """Fitting arguments, some replaced by odd ones."""
    arguments = {}
    for name, p in parameters.items():
        is_required = p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        if is_required or (p.kind is not p.VAR_KEYWORD and draw(st.integers(1, 10)) <= 3):
            arguments[name] = draw(st.sampled_from(FITTING.get(name, ANY)))
    for name in draw(st.permutations([*arguments]))[: draw(st.sampled_from([0, 1, 1, 1, 2]))]:
        near = [form.replace("{}", arguments[name]) for form in NEAR]
        arguments[name] = draw(st.sampled_from(near) | st.sampled_from(ODD))
    return arguments


def show(value: Any) -> Iterator[str]:
    """Everything that a result shows; computes what is computed on access."""
    if isinstance(value, tuple | list) and type(value).__module__ == "builtins":
        for item in value[:5]:
            yield from show(item)
    cls = type(value)
    if cls.__module__.split(".")[0] != "attnlab" or isinstance(value, BaseException):
        return
    yield repr(value)
    str(value)  # its text, which needn't be printable
    for name in dir(cls):
        if name == "_repr_html_":
            value._repr_html_()
        elif not name.startswith("_") and not callable(inspect.getattr_static(cls, name)):
            getattr(value, name)


def plain(value: Any) -> Any:
    """The same numbers in a plain float64 array; other values as they are."""
    if not isinstance(value, np.ndarray) and not hasattr(value, "__array__"):
        return value
    array = np.array(value)
    return array.astype(np.float64) if array.dtype.kind in "iuf" else array


def check_call(target: Target, arguments: dict[str, str]) -> None:
    text, parameters = target
    kinds = {name: parameters[name].kind for name in arguments}
    try:
        values = {name: eval(argument, NAMES) for name, argument in arguments.items()}
        copies = {name: plain(value) for name, value in values.items()}
        quotable = [repr(value) for value in values.values()]
    except Exception:  # it has no such variant
        return
    function = eval(text, NAMES)

    def call(values: dict[str, Any]) -> Any:
        positional = [value for name, value in values.items() if kinds[name] in POSITIONAL]
        keywords = {name: value for name, value in values.items() if kinds[name] not in POSITIONAL}
        return function(*positional, **keywords)

    def attack() -> Any:
        result = call(values)
        return result, list(show(result))

    quotable = [quoted for quoted in quotable if len(quoted) > LONGEST_QUOTE]
    result = outcome(attack, lambda: quotable)
    if isinstance(result, attnlab.AttnlabError):
        return
    value, shown = result
    assert all(line.replace("\n", "").isprintable() for line in shown)
    if text.startswith("attnlab."):
        expected = outcome(partial(call, copies), list)
        if isinstance(expected, np.ndarray) and expected.dtype.kind == "f":
            largest = np.abs(expected[np.isfinite(expected)]).max(initial=0)
            value = np.asarray(value, np.float64)
            np.testing.assert_allclose(value, expected, rtol=0, atol=1e-3 * (1 + largest))


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_fitting_arguments_are_accepted() -> None:
    names, works = [text for text, _ in targets()], 0
    for text, parameters in targets():
        needed = [n for n, p in parameters.items() if p.default is p.empty and p.kind in NAMED]
        arguments = ", ".join(f"{name}={FITTING.get(name, ANY)[0]}" for name in needed)
        with directory(), contextlib.suppress(Exception):
            eval(f"{text}({arguments})", NAMES)
            works += 1
    assert works > 0.8 * len(names) > 56


@fuzz(15, 1000, data=st.data())
def test_odd_arguments_are_refused_or_results_can_be_shown(data: st.DataObject) -> None:
    target = data.draw(st.sampled_from(targets()))
    arguments = data.draw(arguments_of(target[1]))
    note(f"{target[0]}({', '.join(f'{name}={value}' for name, value in arguments.items())})")
    with directory():
        check_call(target, arguments)
