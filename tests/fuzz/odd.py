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
import random
from pathlib import Path
from typing import Any

import numpy as np

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


class Liar:
    """An object whose __array__ returns no array."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.value


class Index:
    """An object with __index__."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class FsPath:
    """An object with __fspath__."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __fspath__(self) -> Any:
        return self.value


class Text(str):
    """A subclass of str."""


class Number(int):
    """A subclass of int."""


class Rows(list):  # type: ignore[type-arg]
    """A subclass of list."""


class Own(np.ndarray):
    """A subclass of ndarray."""


def own(value: Any) -> Any:
    return np.asarray(value).view(Own)


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
    **{
        item.__name__: item
        for item in (
            *(raising, cyclic, nested, Duck, Liar, Index, FsPath, Text, Number, Rows, own),
            *(numbers, axes, vocabulary, merges, structured, masked, BoomError),
        )
    },
}


def texts(block: str) -> list[str]:
    """The expressions in a block, separated by two spaces or a line break."""
    return [text for line in block.split("\n") for text in line.strip().split("  ") if text]


# Numbers so large that repeating something that often never ends.
BIG = texts(
    r"""
    10**6  2**31 - 1  2**31  2**63 - 1  2**63  2**64  10**18  10**400  1e18  1e300  math.inf
    np.uint64(2**64 - 1)  np.int64(2**63 - 1)  np.float64(1e18)  Number(10**18)  Index(10**18)
    fractions.Fraction(10**18)  decimal.Decimal(10**18)
    """
)

ODD = texts(
    r"""
    None  True  False  ...  NotImplemented  object()  int  len  math  slice(1)  KeyError
    0  -1  1  2  3  -(2**63)  -(10**18)  0.0  -0.0  0.5  1.0  1e-320  -1e308  3.0000001  1 + 1e-12
    math.nan  -math.inf  1j  complex(math.nan, 0)  decimal.Decimal('NaN')  fractions.Fraction(1, 3)
    np.int8(-128)  np.int8(127)  np.uint8(3)  np.uint8(255)  np.float16(1)
    np.float32(0.5)  np.longdouble(1)  np.bool_(True)
    np.str_('a')  np.bytes_(b'a')  np.void(b'ab')  np.complex64(1j)  np.datetime64('NaT')
    np.datetime64('2024-01-01')  np.timedelta64(1, 's')  datetime.date(2024, 1, 1)

    ''  'a'  ' '  'weights'  'pocket'  '1'  'nan'  'float32'  'gpt2'  '-h'  '--model'  'no/such'
    'a/b'  '../a'  'a\nb'  'file://a'  '\0'  'a\0b'  '\ud800'  '\udcff'  '\n\r\t'  '\ufeffa'
    '\x1b]52;c;Zm9v\x07'  '\x1b[2J'  '\x9b31m'  '\u202eabc'  '\u2028'  '🙈猫é’'  '<b>a</b>'
    '<|endoftext|>'  '{0.__class__}'  '%s%n'  'a' * 300  'a' * 100_000  ' ' * 100_000  '\x1b' * 500
    Text('weights')  b''  b'weights'  b'\xff' * 1000  bytearray(b'a')  memoryview(b'ab')
    Path()  Path('a')  Path('a\0b')  Path('\ud800')  Path('a' * 300)  Path('\x1b]52;c;Zm9v\x07')
    FsPath('a')  FsPath(b'a')  FsPath(3)

    []  ()  {}  set()  [[]]  [None]  [1, 2, 3]  [0.5]  [[1, 2], [3]]  ['a']  ['']  [1, 'a']
    [True, False]  [10**30]  [-1]  [2**63]  [b'a']  [['a'], ['b']]  {'a': 1}  {1: 2}  {'weights'}
    range(3)  range(-3, 0)  iter([1, 2])  iter([])  (i for i in range(3))  map(int, 'ab')
    [math.nan] * 3  [1] * 100_000  ['a'] * 10_000  Rows([1, 2])  [object()]  [raising('__repr__')]
    cyclic()  [cyclic(), cyclic()]  nested(10)  nested(70)  nested(10_000)  {'a': nested(3000)}
    ['\x1b[2J', '\ud800', 'a\nb']

    np.empty(0)  np.empty((0, 4))  np.empty((3, 0))  np.array(1.0)  np.array(2)  np.array(None)
    np.zeros((3, 4))  np.zeros((3, 4), int)  np.ones((3, 4), bool)  np.zeros((1,) * 30)
    np.arange(3)  np.arange(3, dtype='>i4')  np.array([-1])  np.array([2**63], np.uint64)
    np.array([[71, 3]])  np.array([0.5])  np.array(['a', 'b'])  np.array([b'a'])
    np.array([{}, None])  np.array([[1, 2], [3, 4]], object)  np.array([np.datetime64('NaT')])
    np.zeros(3, 'f4,i4')  np.rec.array([(1, 2.0)])  np.matrix([[1.0, 2.0], [3.0, 4.0]])
    np.ma.masked  np.ma.masked_all((3, 4))  Duck([71, 3])  Duck(numbers(3, 4))
    Duck(numbers(3, 4), error=True)  Liar([1, 2])  Liar('a')  Liar(None)

    Index(1)  Index(-1)  Number(2)  lambda *a, **k: None  BoomError('boom')  axes()
    raising('__array__')  raising('__len__')  raising('__index__')  raising('__str__')
    raising('__repr__')  raising('__str__', '__repr__')  raising('__iter__')  raising('__eq__')
    raising('__hash__')  raising('__bool__')  raising('__float__')  raising('__fspath__')
    raising('__getattr__')  raising('__len__', '__getitem__')  raising('__format__')
    raising('__call__')
    attnlab  attnlab.GPT2  attnlab.attention  attnlab.AttnlabError('a')
    """
)

# Variants of a valid value `{}`: the same numbers in another type, or with one thing wrong.
NEAR_ARRAY = texts(
    """
    np.matrix({})  masked({})  own({})  structured({})  Duck({})  Duck({}, error=True)
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


def near(text: str, rng: random.Random, names: dict[str, Any]) -> str:
    """A variant of a valid value."""
    value = made(text, names)
    if isinstance(value, str):
        choice = NEAR_TEXT
    elif isinstance(value, int | float) and not isinstance(value, bool):
        choice = NEAR_NUMBER
    elif isinstance(value, np.ndarray) or (isinstance(value, list) and value):
        choice = NEAR_ARRAY
    else:
        choice = NEAR
    shape = rng.choice([choice, choice, choice, NEAR])
    return rng.choice(shape).format(*[text] * 2)


def made(text: str, names: dict[str, Any] = NAMES) -> Any:
    """Evaluate an expression."""
    return eval(text, dict(names))
