"""Discover attnlab's public functions, classes and methods.

They are the names in `attnlab.__all__`, and the methods of their classes and results.
A working call of each is searched for by the names of its parameters, so new functions are fuzzed
automatically. For a new parameter name, add fitting arguments to `FITTING`.
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
TRUSTING = ("Merges", "Line", "Scale", "Table")

# Special methods that Python calls.
PROTOCOL = ("__call__", "__contains__", "__eq__", "__getitem__")

TEXT = "'the thin cat in the hat'"

# Fitting arguments by parameter name, for any function; the likeliest first.
FITTING = {
    name: texts(fits)
    for names, fits in {
        "x X memory Q K V values scores": "numbers(3, 4)  numbers(2, 3, 2)",
        "W W_Q W_K W_V W_O": "numbers(4, 4)",
        "b b_Q b_K b_V b_O gain bias": "numbers(4)",
        "logits": "numbers(263)  numbers(3, 4)",
        "mask": "attnlab.causal_mask(3)  None",
        "text_or_ids prompt": f"{TEXT}  [71, 259, 3]",
        "corpus": f"{TEXT} * 3  list(range(200))",
        "text": f"'the'  {TEXT}",
        "texts": f"[{TEXT}]",
        "tokens": "['a', 'b', 'c']  []  slice(1, 3)",
        "arrays": f"{MODEL}.parameters",
        "corrupted": f"{MODEL}.trace([71, 3, 5])",
        "ids": "[71, 259, 3]  np.array([71, 3, 5])  vocabulary()",
        "id": "71",
        "model name_or_path": "'model'",
        "directory": "'model'  'out'  '.'",
        "path": "'W_E'  'page.html'  'model/config.json'  'picture.png'  'blocks.0.attention'",
        "dtype": "'float32'  np.float64",
        "steps": "2  ('weights', 'Q')",
        "step": "'weights'  1",
        "name": "'weights'  'input'  'hidden'  'logits'  'walkthrough'  'loss'  '1.attention.W_Q'",
        "stop": "None  'the'  'embedding'",
        "layer head index position start number": "0  1",
        "T k top_k max_new_tokens n_head decimals count": "2",
        "vocab_size": "256",
        "n_positions n_embd": "8",
        "n_layer": "1",
        "sequence_length": "4",
        "temperature": "0.7  0",
        "top_p share probability logit": "0.5",
        "rng": "np.random.default_rng(0)  1",
        "merges": "merges()  []",
        "settings": f"dict({CONFIG})  attnlab.Tokenizer.from_directory('model').settings",
        "rows": "np.array([71, 3, 5])  3  ['a', 'b', 'c']",
        "columns": "['a', 'b', 'c', 'd']",
        "watch": "lambda run: None",
        "mine": "dict(logits=numbers(3, 263))  dict(weights=numbers(3, 3))",
        "progress": "False",
        "ax": "None  axes()",
        "metric token against": "71  'the'",
        "edits": "{'blocks.0.mid': 0}",
        "job": "'first'",
        "bytes": "b'a'",
    }.items()
    for name in names.split()
}

# Arguments for other names, after the default.
ANY = texts("1  'weights'  numbers(3, 4)  None  [1, 2]  True")


@dataclass(repr=False)
class Target:
    """One callable.

    Attributes
    ----------
    name : such as `attnlab.attention`, `Trace.next_tokens`
    callee : the expression for it; for a method, with a name for the object
    fitting : fitting arguments, as texts, by parameter
    works : fitting arguments by required parameter
    """

    name: str
    callee: str
    parameters: dict[str, inspect.Parameter]
    fitting: dict[str, list[str]] = field(default_factory=dict)
    works: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.name

    @property
    def required(self) -> list[str]:
        """The parameters without a default."""
        parameters = self.parameters.values()
        return [p.name for p in parameters if p.default is p.empty and p.kind != p.VAR_POSITIONAL]

    def call(self, arguments: dict[str, str]) -> str:
        """The text of a call, with keyword arguments if possible."""
        parts = []
        for name, p in self.parameters.items():
            if name in arguments:
                is_positional = p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)
                parts.append(arguments[name] if is_positional else f"{name}={arguments[name]}")
        return f"{self.callee}({', '.join(parts)})"


def is_ours(value: Any) -> bool:
    """Whether a function is defined in the package, rather than generated by a dataclass."""
    code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
    return code is not None and code.co_filename.startswith(PACKAGE)


def parameters_of(function: Any, bound: bool) -> Iterator[inspect.Parameter]:
    for p in list(inspect.signature(function).parameters.values())[int(bound) :]:
        if p.kind is p.VAR_KEYWORD:  # a TypedDict's names; any other name is an error in Python
            annotation = inspect.formatannotation(p.annotation)
            settings = function.__globals__.get(annotation.removeprefix("Unpack[").rstrip("]"))
            for name in getattr(settings, "__annotations__", {}):
                yield inspect.Parameter(name, p.KEYWORD_ONLY, default=None)
        else:
            yield p


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
                parameters = {p.name: p for p in parameters_of(function, bound)}
                self.targets[name] = Target(name, callee, parameters)
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
        for base in cls.__mro__:
            if base.__module__.startswith("attnlab."):
                self._words.setdefault(base.__name__, word)
        self._add_methods(cls, word, ("function",))
        held = [n for n in dir(cls) if not callable(inspect.getattr_static(cls, n))]
        for name in dict.fromkeys([*held, *getattr(value, "__dict__", {})]):
            if not name.startswith("_"):
                with contextlib.suppress(Exception, LateError), limits(LARGEST, SECONDS):
                    self._add_object(getattr(value, name), f"{text}.{name}")

    def _fit(self, target: Target) -> None:
        """Find fitting arguments: objects of the annotated class, then those for the name."""
        for name, p in target.parameters.items():
            words = re.findall(r"\w+", inspect.formatannotation(p.annotation))
            fits = [self._words[word] for word in words if word in self._words]
            fits += FITTING.get(name, [])
            if not fits:
                fits = ([] if p.default is p.empty else [repr(p.default)]) + ANY
            target.fitting[name] = fits

    def _try(self, target: Target) -> bool:
        """Search for a working call, or else for a refused one; returns whether one works."""
        self._fit(target)
        required = target.required
        choices = [*itertools.product(*(target.fitting[name] for name in required))]
        likeliest = choices[0]
        random.Random(target.name).shuffle(choices)
        for choice in [likeliest, *choices[:TRIES]]:
            works = dict(zip(required, choice, strict=True))
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
