"""Odd arguments as Python expressions, so that a failing case can be read and run.

`NAMES` has the names that expressions may use. They are evaluated next to a small GPT-2 in
directory `model`.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import importlib
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import attnlab


class BoomError(Exception):
    """Raised by an odd object when it is accessed."""


def raising(*names: str) -> Any:
    """An object whose methods of these names raise."""

    def boom(*_: object, **__: object) -> Any:
        raise BoomError("boom")

    return type("Raising", (), dict.fromkeys(names, boom))()


def cyclic() -> list[Any]:
    """A list that contains itself."""
    value: list[Any] = [1.0]
    value.append(value)
    return value


def nested(depth: int) -> list[Any]:
    """A deeply nested list."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


class Duck:
    """An object that NumPy can convert, like another library's tensor."""

    def __init__(self, value: Any, dtype: str = "torch.float32", error: bool = False) -> None:
        self.value, self.dtype, self.error = np.asarray(value), dtype, error

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.error:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        return np.array(self.value, dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, index: Any) -> Any:
        return Duck(self.value[index])


def returning(method: str, value: Any) -> Any:
    """An object whose method of this name returns a value."""
    return type("Returning", (), {method: lambda *_, **__: value})()


class Subclass(np.ndarray):
    """A subclass of ndarray."""


def subclass(value: Any) -> Any:
    return np.asarray(value).view(Subclass)


def numbers(*shape: int) -> Any:
    """Reproducible random numbers."""
    return np.random.default_rng(0).standard_normal(shape)


def axes() -> Any:
    from matplotlib.figure import Figure

    return Figure().add_subplot()


def vocabulary() -> dict[str, int]:
    return dict(json.loads(Path("model/vocab.json").read_text(encoding="utf-8")))


def merges() -> list[tuple[str, ...]]:
    lines = Path("model/merges.txt").read_text(encoding="utf-8").split("\n")
    return [tuple(line.split()) for line in lines[1:-1]]


def structured(value: Any) -> Any:
    return np.asarray(value, np.float64).view([("a", "f8")])


def masked(value: Any) -> Any:
    return np.ma.masked_less(value, 0.0)


NAMES: dict[str, Any] = {
    "attnlab": attnlab,
    "np": np,
    "math": math,
    "datetime": datetime,
    "decimal": decimal,
    "fractions": fractions,
    "Path": Path,
    "module": importlib.import_module,
    "Text": type("Text", (str,), {}),
    "Number": type("Number", (int,), {}),
    "Rows": type("Rows", (list,), {}),
    "Liar": partial(returning, "__array__"),
    "Index": partial(returning, "__index__"),
    "FsPath": partial(returning, "__fspath__"),
    **{
        item.__name__: item
        for item in (
            *(raising, cyclic, nested, Duck, subclass),
            *(numbers, axes, vocabulary, merges, structured, masked, BoomError),
        )
    },
}


def texts(block: str) -> list[str]:
    """The expressions in a block, separated by two spaces or a line break."""
    return [text for line in block.split("\n") for text in line.strip().split("  ") if text]


# Numbers so large that repeating something that often never ends.
BIG = st.sampled_from(
    texts(
        """
        10**6  2**31  2**63 - 1  2**63  10**18  10**400  1e18  1e300  math.inf  Number(10**18)
        np.uint64(2**64 - 1)  np.int64(2**63 - 1)  np.float64(1e18)  Index(10**18)
        fractions.Fraction(10**18)  decimal.Decimal(10**18)
        """
    )
)

SCALARS = (
    st.integers(-(2**63), 9).map(repr)
    | st.floats(allow_infinity=False).map("float('{!r}')".format)
    | st.text(st.characters(), max_size=9).map(ascii)
    | st.binary(max_size=9).map(repr)
    | st.sampled_from(["None", "True", "False", "'weights'", "'a'", "b'weights'", "1e-320"])
)
OBJECTS = st.sampled_from(
    texts(
        r"""
        ...  NotImplemented  object()  int  len  math  slice(1)  KeyError  3.0000001  1 + 1e-12
        -math.inf  1j  complex(math.nan, 0)  decimal.Decimal('NaN')  fractions.Fraction(1, 3)
        np.int8(-128)  np.uint8(255)  np.float16(1)  np.float32(0.5)  np.longdouble(1)
        np.bool_(True)  np.str_('a')  np.bytes_(b'a')  np.void(b'ab')  np.complex64(1j)
        np.datetime64('NaT')  np.timedelta64(1, 's')  datetime.date(2024, 1, 1)

        'pocket'  'float32'  'gpt2'  '--model'  'no/such'  '../a'  'file://a'  'a\0b'
        '\ud800'  '\x1b]52;c;Zm9v\x07'  '\x9b31m'  '\u202eabc'  '<b>a</b>'  '<|endoftext|>'
        '{0.__class__}'  '%s%n'  'a' * 300  'a' * 100_000  ' ' * 100_000  '\x1b' * 500
        Text('weights')  b'\xff' * 1000  bytearray(b'a')  memoryview(b'ab')
        Path()  Path('a\0b')  Path('\ud800')  Path('a' * 300)  Path('\x1b]52;c;Zm9v\x07')
        FsPath('a')  FsPath(b'a')  FsPath(3)

        ()  {}  set()  [[]]  {'a': 1}  {1: 2}  {'weights'}  ['a'] * 10_000  [1] * 100_000
        range(3)  range(-3, 0)  iter([1, 2])  iter([])  (i for i in range(3))  map(int, 'ab')
        [math.nan] * 3  Rows([1, 2])  [object()]  [raising('__repr__')]  [10**30]
        cyclic()  [cyclic(), cyclic()]  nested(70)  nested(10_000)  {'a': nested(3000)}

        np.array(None)  np.zeros((1,) * 30)  np.array([2**63], np.uint64)  np.array([[71, 3]])
        np.array([{}, None])  np.array([[1, 2], [3, 4]], object)  np.zeros(3, 'f4,i4')
        np.rec.array([(1, 2.0)])  np.matrix([[1.0, 2.0], [3.0, 4.0]])  np.ma.masked
        np.ma.masked_all((3, 4))  Duck([71, 3])  Duck(numbers(3, 4))
        Duck(numbers(3, 4), error=True)  Liar([1, 2])  Liar('a')  Liar(None)

        Index(1)  Index(-1)  Number(2)  lambda *a, **k: None  BoomError('boom')  axes()
        raising('__str__', '__repr__')  raising('__len__', '__getitem__')
        attnlab  attnlab.GPT2  attnlab.attention  attnlab.AttnlabError('a')
        """
    )
)
RAISING = st.sampled_from(
    texts("array  len  index  str  repr  iter  eq  hash  bool  float  fspath  getattr  call")
).map("raising('__{}__')".format)
LISTS = st.lists(SCALARS | st.integers(0, 9).map(repr), max_size=3).map(", ".join)
ARRAYS = st.builds(
    "np.{}({}, '{}')".format,
    st.sampled_from(["zeros", "ones"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    hnp.scalar_dtypes().map(lambda dtype: dtype.str),
)
ODD = st.one_of(
    *(SCALARS, LISTS.map("[{}]".format), st.builds("[[{}], [{}]]".format, LISTS, LISTS)),
    *(ARRAYS, RAISING, OBJECTS, OBJECTS, OBJECTS),
)

# Variants of a valid value `{}`: the same numbers in another type, or with one thing wrong.
NEAR_ARRAY = texts(
    """
    np.matrix({})  masked({})  subclass({})  structured({})  Duck({})  Duck({}, error=True)
    np.asarray({}).astype(object)  np.asarray({}).astype('f2')  np.asarray({}).astype('f4')
    np.asarray({}).astype('g')  np.asarray({}).astype(complex)  np.asarray({}).astype('>f8')
    np.asarray({}).astype(int)  np.asarray({}).astype(bool)  np.asarray({}).astype(str)
    np.asarray({}).astype('u8')  np.asarray({}).astype('M8[s]')  np.asarray({}).tolist()
    np.asarray({})[::-1]  np.asarray({}).T  np.asarray({})[None]  np.asarray({})[..., None]
    np.asarray({})[:0]  np.asarray({})[..., :0]  np.asarray({})[0]  np.asfortranarray({})
    np.asarray({}) * math.nan  np.asarray({}) + math.inf  np.asarray({}) - math.inf
    np.asarray({}) * 1e300  np.asarray({}) * 1e-300  np.asarray({}) * 1e150  np.asarray({}) * 0
    np.asarray({}, 'f4') * 1e30  np.where(numbers(4) < 0, math.nan, {})
    np.where(numbers(4) < 0, -math.inf, {})  list(np.asarray({}))  tuple(np.asarray({}).tolist())
    iter({})  np.asarray({}).ravel()  np.repeat({}, 50, axis=-1)  np.repeat({}, 50, axis=0)
    np.broadcast_to({}, (2, 3, 4))  np.asarray({}).tobytes()  memoryview(np.asarray({}))
    Liar(np.asarray({}).tolist())  [{}, [1.0]]  [{}, {}]
    """
)
NEAR_NUMBER = texts(
    """
    np.int64({})  np.float64({})  float({})  str({})  [{}]  np.array({})  np.array([{}])
    Index({})  Number({})  -({})  ({}) + 1  ({}) - 1  ({}) * 100  ({}) + 0.5  ({}) / 3  bool({})
    complex({})  np.uint8({})  fractions.Fraction({})  np.ma.masked_equal({}, {})
    """
)
NEAR_TEXT = texts(
    r"""
    ({}).encode()  Text({})  np.str_({})  np.array({})  [{}]  ({}) + '\0'  ({}) + ' '  ({}) + '\n'
    ({}) + '\ud800'  ({}) + '\x1b]52;c;Zm9v\x07'  ({}) * 2000  ({}).upper()  ({})[:0]  ({})[::-1]
    Path({})  bytearray({}, 'utf-8')  iter({})  set({})
    """
)
NEAR = texts("[{}]  ({},)  {{'a': {}}}  iter([{}])  lambda: {}  type({})  str({})  [{}, None]")


def variants(text: str, names: dict[str, Any]) -> st.SearchStrategy[str]:
    """Expressions for variants of a valid value."""
    value = evaluate(text, names)
    if isinstance(value, str):
        forms = NEAR_TEXT
    elif isinstance(value, int | float) and not isinstance(value, bool):
        forms = NEAR_NUMBER
    elif isinstance(value, np.ndarray) or (isinstance(value, list) and value):
        forms = NEAR_ARRAY
    else:
        forms = NEAR
    return st.sampled_from([*forms * 3, *NEAR]).map(lambda form: form.format(*[text] * 2))


def evaluate(text: str, names: dict[str, Any] = NAMES) -> Any:
    """Evaluate an expression."""
    return eval(text, dict(names))
