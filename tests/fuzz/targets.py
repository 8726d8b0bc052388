"""What attnlab offers: every public function, class and method, found and not listed.

Found are the names in `attnlab.__all__` and in every module's `__all__` (where there is none, its
names without an underscore), and the classes' methods. For each of them a call that works is found
too, from the names and annotations of its parameters; what such calls return are the objects whose
methods are called next. So what is new is attacked from its first day, and at worst, where nothing
is known to fit a new parameter, with calls that get less deep.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import os
import pkgutil
import random
import re
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from odd import NAMES, made, texts
from processes import LARGEST, PACKAGE, LateError, answer_of, limits

import attnlab

REFERENCE = Path(__file__).parents[1] / "reference" / "float16"

# Where the search begins, so that what it finds is small: it may not find these for itself.
MODEL = "attnlab.GPT2.from_pretrained('model')"
CONFIG = "vocab_size=256, n_positions=8, n_embd=4, n_layer=1, n_head=2"
ROOTS = [
    MODEL,
    f"{MODEL}.trace([71, 259, 3])",
    f"{MODEL}.generate([71, 259, 3], 2, trace=True)",
    "attnlab.attention(numbers(3, 4), numbers(3, 4), numbers(3, 4))",
    "attnlab.self_attention(numbers(3, 4), *[numbers(4, 4)] * 3)",
    "attnlab.multi_head_attention(numbers(3, 4), *[numbers(4, 4)] * 4, n_head=2)",
    f"attnlab.train(attnlab.GPT2Config({CONFIG}), 'abcd' * 9, steps=1, progress=False)",
]

TRIES = 12
ROUNDS = 3

# Methods with underscores that plain Python calls.
PROTOCOL = ("__call__", "__contains__", "__eq__", "__getitem__")

TEXT = "'the thin cat in the hat'"


def by_name(table: dict[str, str]) -> dict[str, list[str]]:
    """A table of names, spaces between them, and texts that fit, two spaces between them."""
    return {name: texts(fits) for names, fits in table.items() for name in names.split()}


# What fits a parameter of a name, as far as its annotation allows it.
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
        "arguments": "['info', '--model', 'model']  ['next', 'the', '--model', 'model']  ['model']",
        "rows": "['a', 'b', 'c']",
        "columns": "['a', 'b', 'c', 'd']",
        "watch": "lambda run: None",
        "mine": "dict(logits=numbers(3, 263))  dict(weights=numbers(3, 3))",
        "progress": "False",
        "ax": "None  axes()",
    }
)

# What fits an annotation in which a word stands.
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
SEQUENCES = ("Sequence", "Iterable", "list", "tuple", "frozenset", "Iterator")


@dataclass
class Target:
    """One thing to be called.

    Attributes
    ----------
    name : as people call it, `attnlab.attention`, `Trace.next_tokens`
    lines : whose lines run, the same for classes that inherit a method from one
    callee : a text that makes it, an object's method with the object before it
    parameters : name, annotation, kind and whether it must be given, of each
    public : whether `attnlab` itself offers it, or what it offers returns it
    works : for each parameter that must be given a text that fits; None if no call worked
    late : whether a call that fits takes long, as one that trains a whole model does
    fitting : for each parameter texts that may fit
    """

    name: str
    lines: str
    callee: str
    parameters: list[tuple[str, str, str, bool]]
    public: bool
    works: dict[str, str] | None = None
    late: bool = False
    fitting: dict[str, list[str]] = field(default_factory=dict)


def is_ours(value: Any) -> bool:
    """Whether a function's lines stand in the package; a record's generated ones do not."""
    code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
    return code is not None and code.co_filename.startswith(PACKAGE)


def modules() -> Iterator[Any]:
    yield attnlab
    for found in pkgutil.walk_packages(attnlab.__path__, "attnlab."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def public_names(module: Any) -> list[str]:
    return getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])


def found_callables() -> dict[str, tuple[Any, bool]]:
    """Functions and classes by the text that makes them, each once; those of `attnlab` first."""
    seen: set[int] = set()
    found: dict[str, tuple[Any, bool]] = {}
    for module in modules():
        listed = hasattr(module, "__all__")
        for name in public_names(module):
            value = getattr(module, name)
            home = str(getattr(value, "__module__", ""))
            ours = home.startswith("attnlab") if listed else home == module.__name__
            if ours and callable(value) and id(value) not in seen:
                seen.add(id(value))
                public = module is attnlab
                place = "attnlab" if public else f"module('{module.__name__}')"
                found[f"{place}.{name}"] = (value, public)
    return found


def parameters_of(function: Any, bound: bool) -> list[tuple[str, str, str, bool]]:
    """Name, annotation, kind and whether it must be given, of each parameter."""
    found = []
    for p in list(inspect.signature(function).parameters.values())[int(bound) :]:
        annotation = inspect.formatannotation(p.annotation)
        if p.kind is p.VAR_KEYWORD:  # a TypedDict's names; any other name is an error in Python
            settings = function.__globals__.get(annotation.removeprefix("Unpack[").rstrip("]"))
            names = getattr(settings, "__annotations__", {})
            found += [(name, str(kind), "KEYWORD_ONLY", False) for name, kind in names.items()]
        else:
            found.append((p.name, annotation, p.kind.name, p.default is p.empty))
    return found


def methods_of(cls: type) -> Iterator[tuple[str, Any, str]]:
    """Name, function and kind of a class's methods whose lines are ours."""
    for name in dir(cls):
        if name.startswith("_") and name not in PROTOCOL:
            continue
        static = inspect.getattr_static(cls, name)
        function = getattr(static, "__func__", static)
        if inspect.isfunction(function) and is_ours(function):
            yield name, function, type(static).__name__


class Finder:
    """Calls that work, and the objects that they return.

    Parameters
    ----------
    diary : where the name of what is tried is written
    deadly : names of what is not tried, as the process has died of it

    Attributes
    ----------
    targets : by name
    objects : a word for an instance of a class, by the class's name
    texts : what makes the object of a word
    """

    def __init__(self, diary: Path, deadly: set[str]) -> None:
        self.diary, self.deadly = diary, deadly
        self.diary.write_text("the beginning")
        self.targets: dict[str, Target] = {}
        self.objects: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self._live: dict[str, Any] = dict(NAMES)
        self._classes: set[type] = set()
        found = found_callables()
        self._public = {value.__name__ for value, public in found.values() if public}
        for text in ROOTS:
            with contextlib.suppress(Exception):
                self._add_object(made(text), text, True)
        for text, (value, public) in found.items():
            if inspect.isclass(value):
                self._add_class(value, text, public)
            elif is_ours(value):
                self._add(text, text, value, False, public)

    def _add(self, name: str, callee: str, function: Any, bound: bool, public: bool) -> None:
        with contextlib.suppress(ValueError, TypeError):
            lines = f"{function.__module__}.{function.__qualname__}"
            parameters = parameters_of(function, bound)
            self.targets.setdefault(name, Target(name, lines, callee, parameters, public))

    def _add_class(self, cls: type, text: str, public: bool) -> None:
        """Its constructor, where it has lines of its own, and what needs no instance."""
        maker = next((m for m in ("__new__", "__init__") if is_ours(getattr(cls, m, None))), None)
        if maker or is_ours(getattr(cls, "__post_init__", None)):
            self._add(text, text, getattr(cls, maker or "__init__"), True, public)
        for name, function, kind in methods_of(cls):
            if kind in ("classmethod", "staticmethod"):
                short = f"{cls.__name__}.{name}"
                self._add(short, f"{text}.{name}", function, kind == "classmethod", public)

    def _add_object(self, value: Any, text: str, public: bool) -> None:
        """An instance of a class that none was known of: its methods, and what it holds."""
        cls = type(value)
        ours = cls.__module__.split(".")[0] == "attnlab" and not isinstance(value, Exception)
        if ours and cls in self._classes:
            return
        if isinstance(value, tuple | list) and value:
            self._add_object(value[0], f"{text}[0]", public)
        if not ours:
            return
        self._classes.add(cls)
        public = public or cls.__name__ in self._public
        word = f"_{len(self.texts)}"
        self.texts[word], self._live[word] = text, value
        for base in cls.__mro__[:-1]:
            self.objects.setdefault(base.__name__, word)
        for name, function, kind in methods_of(cls):
            if kind == "function":
                self._add(f"{cls.__name__}.{name}", f"{word}.{name}", function, True, public)
        held = [n for n in dir(cls) if not callable(inspect.getattr_static(cls, n))]
        for name in dict.fromkeys([*held, *getattr(value, "__dict__", {})]):
            if not name.startswith("_"):
                with contextlib.suppress(Exception, LateError), limits(LARGEST, 0.5):
                    self._add_object(getattr(value, name), f"{text}.{name}", public)

    def fitting(self, name: str, annotation: str) -> list[str]:
        """Texts of what fits a parameter, the likeliest first."""
        words = re.findall(r"\w+", annotation)
        fits = [text for text in FITTING.get(name, ()) if allowed(text, words)]
        if "Path" in words and "str" not in words:
            fits = [f"Path({text})" for text in fits if text.startswith("'")]
        objects = [self.objects[word] for word in words if word in self.objects]
        only_objects = set(words) <= {*self.objects, "None"}
        fits = objects + fits if only_objects else fits + objects
        for word in words:
            if name not in FITTING:
                fits += BY_WORD.get(word, [])
        if any(word in SEQUENCES for word in words) and name not in FITTING:
            fits = [f"[{text}]" for text in fits[:2]] + [f"({text},)" for text in fits[:2]]
        return list(dict.fromkeys(fits)) or ["numbers(3, 4)", "1", "'weights'", "None", "[1, 2]"]

    def try_out(self, target: Target) -> bool:
        """Look for a call that works, or else for one that is refused; whether one works."""
        fits = {name: self.fitting(name, annotation) for name, annotation, *_ in target.parameters}
        target.fitting = fits
        needed = [name for name, _, kind, must in target.parameters if must and "VAR" not in kind]
        choices = list(itertools.islice(itertools.product(*(fits[n] for n in needed)), 1000))
        random.Random(target.name).shuffle(choices)
        likeliest = tuple(fits[name][0] for name in needed)
        if target.name in self.deadly:
            return False
        self.diary.write_text(target.name)
        for choice in [likeliest, *choices[:TRIES]]:
            works = dict(zip(needed, choice, strict=True))
            text = call(target, works)
            try:
                with limits(LARGEST, 0.5):
                    value = eval(text, self._live)
            except attnlab.AttnlabError:
                target.works = target.works or works  # nothing better is known yet
            except LateError:
                target.late = True
                break
            except (Exception, SystemExit):
                continue
            else:
                target.works = works
                self._add_object(value, self.whole(text), target.public)
                return True
        return False

    def whole(self, text: str) -> str:
        """A text with each word for an object replaced by what makes it."""
        return re.sub(r"\b_\d+\b", lambda word: self.texts[word[0]], text)

    def find(self) -> list[Target]:
        """All targets, with a call for each of those where one works."""
        done: set[str] = set()
        for _ in range(ROUNDS):  # with more objects more may work
            for target in list(self.targets.values()):
                if target.name not in done and self.try_out(target):
                    done.add(target.name)
        for target in self.targets.values():
            target.callee = self.whole(target.callee)
            fits = target.fitting
            target.fitting = {name: list(map(self.whole, fits[name])) for name in fits}
            works = target.works
            target.works = works and {name: self.whole(works[name]) for name in works}
        return [self.targets[name] for name in sorted(self.targets)]


def allowed(text: str, words: list[str]) -> bool:
    """Whether an annotation's words allow a value, as far as they are known to allow anything."""
    try:
        with limits(LARGEST, 0.5):
            value = made(text)
    except (Exception, LateError):
        return False
    kinds = {"int": int, "float": int | float, "str": str, "bool": bool, "None": type(None)}
    named = [kinds[word] for word in words if word in kinds]
    open_words = set(words) - kinds.keys() - {*SEQUENCES, "Any"}
    if any(word in SEQUENCES for word in words):
        return not isinstance(value, int | float | str | np.ndarray) or "str" in words
    return bool(open_words) or not named or any(isinstance(value, kind) for kind in named)


def call(target: Target, arguments: dict[str, str]) -> str:
    """The text of a call. What can be given by name is."""
    parts = []
    for name, _, kind, _ in target.parameters:
        if name in arguments:
            by_place = kind in ("POSITIONAL_ONLY", "VAR_POSITIONAL")
            parts.append(arguments[name] if by_place else f"{name}={arguments[name]}")
    return f"{target.callee}({', '.join(parts)})"


def found_targets() -> list[Target]:
    """All targets, found in a process of its own, where whatever they do does no harm."""
    deadly: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        diary = Path(place) / "diary"

        def targets(place: Path) -> Any:
            copy_model(place / "here")
            os.chdir(place / "here")
            return [asdict(target) for target in Finder(diary, deadly).find()]

        while True:
            try:
                answer = answer_of(targets)
                break
            except ChildProcessError:
                if diary.read_text() in deadly:
                    raise
                deadly.add(diary.read_text())
    return [
        Target(**fields | {"parameters": [tuple(p) for p in fields["parameters"]]})
        for fields in answer
    ]


def copy_model(place: Path) -> None:
    """Put the small GPT-2 where the texts of calls look for it."""
    (place / "model").mkdir(parents=True)
    for file in (*("config.json", "vocab.json", "merges.txt"), "model.safetensors"):
        (place / "model" / file).write_bytes((REFERENCE / file).read_bytes())


for module in modules():  # all that a case may need is loaded before the first one
    assert module
