"""Discover attnlab's public functions, classes and methods.

They are the names in `attnlab.__all__`, and the methods of their classes and results.
A working call of each is searched for by the names and annotations of its parameters, so new
functions are fuzzed automatically. For a new parameter name, add fitting arguments to
`FITTING`.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from guarded import LARGEST, SECONDS, LateError, directory, limits
from odd import NAMES, evaluate, texts

import attnlab

PACKAGE = str(Path(attnlab.__file__).parent)
REFERENCE = Path(__file__).parents[1] / "reference" / "float16"

# Start values of the search, so that results are small.
MODEL = "attnlab.GPT2.from_pretrained('model')"
CONFIG = "vocab_size=256, n_positions=8, n_embd=4, n_layer=1, n_head=2"
ROOTS = [
    MODEL,
    f"{MODEL}.parameters.rows('W_E')",
    f"{MODEL}.trace([71, 259, 3])",
    f"{MODEL}.generate([71, 259, 3], 2, trace=True)",
    "attnlab.attention(numbers(3, 4), numbers(3, 4), numbers(3, 4))",
    "attnlab.self_attention(numbers(3, 4), *[numbers(4, 4)] * 3)",
    "attnlab.multi_head_attention(numbers(3, 4), *[numbers(4, 4)] * 4, n_head=2)",
    f"attnlab.train(attnlab.GPT2Config({CONFIG}), 'abcd' * 9, steps=1, progress=False)",
]

TRIES = 12
ROUNDS = 2  # more objects may make more calls work

# Classes that only the library itself calls, with valid arguments.
TRUSTING = ("Merges", "Line", "Table")

# Special methods that Python calls.
PROTOCOL = ("__call__", "__contains__", "__eq__", "__getitem__")

TEXT = "'the thin cat in the hat'"
SEQUENCES = {"Sequence", "Iterable", "list", "tuple", "frozenset", "Iterator"}


def by_name(table: dict[str, str]) -> dict[str, list[str]]:
    """Parse a table of names, separated by spaces, and fitting texts, separated by two."""
    return {name: texts(fits) for names, fits in table.items() for name in names.split()}


# Fitting arguments by parameter name, if the annotation allows them.
FITTING = by_name(
    {
        "x X memory Q K V values scores": "numbers(3, 4)  numbers(2, 3, 2)",
        "W W_Q W_K W_V W_O W_1 W_2": "numbers(4, 4)",
        "b b_Q b_K b_V b_O gain bias": "numbers(4)",
        "logits": "numbers(263)  numbers(3, 4)",
        "mask": "attnlab.causal_mask(3)  None",
        "targets": "np.array([0, 1, 2])",
        "shape": "(3, 4)",
        "text_or_ids prompt": f"{TEXT}  [71, 259, 3]",
        "corpus": f"{TEXT} * 3  list(range(200))",
        "text": TEXT,
        "ids": "[71, 259, 3]  np.array([71, 3, 5])",
        "id": "71",
        "name_or_path model": "'model'",
        "directory": "'model'  'out'  '.'",
        "path": "'W_E'  'page.html'  'model/config.json'  'blocks.0.attention'",
        "file": "Path('model/model.safetensors')",
        "dtype": "'float32'  np.float64",
        "revision": "None",
        "steps": "2  ('weights', 'Q')",
        "step": "'weights'  1",
        "name": "'weights'  'input'  'hidden'  'logits'  'walkthrough'  'ln_1.weight'",
        "query": "-1",
        "key": "0",
        "layer head index position start": "0  1",
        "T k top_k max_new_tokens batch_size length n_head decimals": "2",
        "vocab_size": "256",
        "n_positions n_embd": "8",
        "n_layer": "1",
        "sequence_length": "4",
        "warmup": "0  1",
        "eps layer_norm_epsilon": "1e-5",
        "temperature": "0.7  0",
        "top_p": "0.9",
        "dropout": "0.1",
        "seed": "1  None",
        "rng": "np.random.default_rng(0)  1",
        "stop": "'the'  ['a', 'b']",
        "vocabulary": "vocabulary()",
        "merges": "merges()  []",
        "settings": f"dict({CONFIG})  attnlab.Tokenizer.from_directory('model').settings",
        "rows": "['a', 'b', 'c']  np.array([71, 3, 5])",
        "columns": "['a', 'b', 'c', 'd']",
        "watch": "lambda run: None",
        "mine": "dict(logits=numbers(3, 263))  dict(weights=numbers(3, 3))",
        "progress": "False",
        "ax": "None  axes()",
    }
)

# Fitting arguments by a word in the annotation.
BY_WORD = by_name(
    {
        "int": "1  2  0",
        "float": "0.5  1.0",
        "bool": "True  False",
        "str": f"'weights'  {TEXT}  'a'",
        "bytes": "b'a'",
        "Path": "Path('out')  Path('model')",
        "PathLike": "'out'",
        "Array ArrayLike AnyArray NDArray": "numbers(3, 4)  numbers(4)",
        "Mask": "attnlab.causal_mask(3)",
        "Ids": "np.array([71, 3, 5])",
        "Callable": "lambda *a: 1",
        "Generator": "np.random.default_rng(0)",
        "dict": "{}",
        "None": "None",
        "Any object": "1  'a'",
    }
)


@dataclass
class Parameter:
    name: str
    annotation: str
    kind: str
    must: bool
    fitting: list[str] = field(default_factory=list)


@dataclass(repr=False)
class Target:
    """One callable.

    Attributes
    ----------
    name : such as `attnlab.attention`, `Trace.next_tokens`
    callee : the expression for it; for a method, with a name for the object
    works : fitting arguments, as texts, by required parameter
    """

    name: str
    callee: str
    parameters: list[Parameter]
    works: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.name

    def call(self, arguments: dict[str, str]) -> str:
        """The text of a call, with keyword arguments if possible."""
        parts = []
        for p in self.parameters:
            if p.name in arguments:
                positional = p.kind in ("POSITIONAL_ONLY", "VAR_POSITIONAL")
                parts.append(arguments[p.name] if positional else f"{p.name}={arguments[p.name]}")
        return f"{self.callee}({', '.join(parts)})"


def is_ours(value: Any) -> bool:
    """Whether a function is defined in the package, rather than generated by a dataclass."""
    code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
    return code is not None and code.co_filename.startswith(PACKAGE)


def parameters_of(function: Any, bound: bool) -> Iterator[Parameter]:
    for p in list(inspect.signature(function).parameters.values())[int(bound) :]:
        annotation = inspect.formatannotation(p.annotation)
        if p.kind is p.VAR_KEYWORD:  # a TypedDict's names; any other name is an error in Python
            settings = function.__globals__.get(annotation.removeprefix("Unpack[").rstrip("]"))
            for name, kind in getattr(settings, "__annotations__", {}).items():
                yield Parameter(name, str(kind), "KEYWORD_ONLY", False)
        else:
            must = p.default is p.empty and p.kind is not p.VAR_POSITIONAL
            yield Parameter(p.name, annotation, p.kind.name, must)


class Finder:
    """Working calls, and the objects that they return.

    Attributes
    ----------
    targets : by name
    live : names that calls may use, with one for an instance of each class
    origins : the call that made each named object
    """

    def __init__(self) -> None:
        self.targets: dict[str, Target] = {}
        self.live: dict[str, Any] = dict(NAMES)
        self.origins: dict[str, str] = {}
        self._words: dict[str, str] = {}
        self._classes: set[type] = set()
        self._lines: set[str] = set()
        for text in ROOTS:
            self._add_object(evaluate(text), text)
        for name in attnlab.__all__:
            value = getattr(attnlab, name)
            if inspect.isclass(value):
                self._add_class(value, f"attnlab.{name}")
            elif is_ours(value):
                self._add(f"attnlab.{name}", f"attnlab.{name}", value, False)
        done: set[str] = set()
        for _ in range(ROUNDS):
            for target in list(self.targets.values()):
                if target.name not in done and self._try(target):
                    done.add(target.name)
        for target in self.targets.values():  # including those of the last round
            self._fit(target)

    def _add(self, name: str, callee: str, function: Any, bound: bool) -> None:
        """Add a target, unless an inheriting class already has the same function."""
        lines = f"{function.__module__}.{function.__qualname__}"
        if lines not in self._lines:
            with contextlib.suppress(ValueError, TypeError):
                self.targets[name] = Target(name, callee, list(parameters_of(function, bound)))
                self._lines.add(lines)

    def _add_class(self, cls: type, text: str) -> None:
        """Add a class's own constructor, and what needs no instance."""
        makers = [m for m in ("__new__", "__init__") if is_ours(getattr(cls, m, None))]
        if makers or is_ours(getattr(cls, "__post_init__", None)):
            self._add(text, text, getattr(cls, (makers or ["__init__"])[0]), True)
        self._add_methods(cls, text, ("classmethod", "staticmethod"))

    def _add_methods(self, cls: type, before: str, kinds: tuple[str, ...]) -> None:
        for name in dir(cls):
            static = inspect.getattr_static(cls, name)
            function, kind = getattr(static, "__func__", static), type(static).__name__
            hidden = name.startswith("_") and name not in PROTOCOL
            if kind in kinds and not hidden and inspect.isfunction(function) and is_ours(function):
                bound = kind != "staticmethod"
                self._add(f"{cls.__name__}.{name}", f"{before}.{name}", function, bound)

    def _add_object(self, value: Any, text: str) -> None:
        """Add the first instance of a class: its methods, and the objects in it."""
        cls = type(value)
        if isinstance(value, tuple | list) and value:
            self._add_object(value[0], f"{text}[0]")
        ours = cls.__module__.split(".")[0] == "attnlab" and not isinstance(value, Exception)
        if not ours or cls in self._classes or cls.__name__ in TRUSTING:
            return
        self._classes.add(cls)
        word = f"_{len(self.origins)}"
        self.origins[word], self.live[word] = text, value
        for base in cls.__mro__[:-1]:
            self._words.setdefault(base.__name__, word)
        self._add_methods(cls, word, ("function",))
        held = [n for n in dir(cls) if not callable(inspect.getattr_static(cls, n))]
        for name in dict.fromkeys([*held, *getattr(value, "__dict__", {})]):
            if not name.startswith("_"):
                with contextlib.suppress(Exception, LateError), limits(LARGEST, SECONDS):
                    self._add_object(getattr(value, name), f"{text}.{name}")

    def _fitting(self, p: Parameter) -> list[str]:
        """Fitting arguments for a parameter, as texts, the likeliest first."""
        words = re.findall(r"\w+", p.annotation)
        fits = [text for text in FITTING.get(p.name, ()) if allowed(text, words)]
        if "Path" in words and "str" not in words:
            fits = [f"Path({text})" for text in fits if text.startswith("'")]
        objects = [self._words[word] for word in words if word in self._words]
        only_objects = set(words) <= {*self._words, "None"}
        fits = objects + fits if only_objects else fits + objects
        if p.name not in FITTING:
            fits += [text for word in words for text in BY_WORD.get(word, [])]
            if SEQUENCES & set(words):
                fits = [shape.format(text) for shape in ("[{}]", "({},)") for text in fits[:2]]
        return list(dict.fromkeys(fits)) or ["numbers(3, 4)", "1", "'weights'", "None", "[1, 2]"]

    def _fit(self, target: Target) -> None:
        for p in target.parameters:
            p.fitting = self._fitting(p)

    def _try(self, target: Target) -> bool:
        """Search for a working call, or else for a refused one; returns whether one works."""
        self._fit(target)
        needed = [p for p in target.parameters if p.must]
        choices = list(itertools.islice(itertools.product(*(p.fitting for p in needed)), 1000))
        likeliest = choices[0]
        random.Random(target.name).shuffle(choices)
        for choice in [likeliest, *choices[:TRIES]]:
            works = dict(zip((p.name for p in needed), choice, strict=True))
            text = target.call(works)
            try:
                with limits(LARGEST, SECONDS):
                    value = eval(text, self.live)
            except attnlab.AttnlabError:
                target.works = target.works or works  # no better call is known yet
            except LateError:
                return False
            except Exception:
                continue
            else:
                target.works = works
                self._add_object(value, text)
                return True
        return False


def allowed(text: str, words: list[str]) -> bool:
    """Whether an annotation may allow a value."""
    try:
        value = evaluate(text)
    except Exception:
        return False
    kinds = {"int": int, "float": int | float, "str": str, "bool": bool, "None": type(None)}
    named = [kinds[word] for word in words if word in kinds]
    open_words = set(words) - kinds.keys() - {*SEQUENCES, "Any"}
    if SEQUENCES & set(words):
        return not isinstance(value, int | float | str | np.ndarray) or "str" in words
    return bool(open_words) or not named or any(isinstance(value, kind) for kind in named)


@contextlib.contextmanager
def beside_a_model() -> Iterator[None]:
    """Work in a directory that has the small GPT-2 as `model`, which calls refer to."""
    with directory() as path:
        (path / "model").mkdir()
        for file in (*("config.json", "vocab.json", "merges.txt"), "model.safetensors"):
            (path / "model" / file).write_bytes((REFERENCE / file).read_bytes())
        yield


@cache
def finder() -> Finder:
    """All targets, with a working call if there is one."""
    with beside_a_model():
        return Finder()
