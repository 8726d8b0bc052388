"""Calls of all that attnlab offers, with odd values among sensible ones.

A case takes a call that works, replaces one value by something odd or by something near it (the
same numbers as a masked array, say), and looks at all that the result shows. Where an equation
tells what should come out, the result is held against it.
"""

from __future__ import annotations

import contextlib
import inspect
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import oracle
from odd import BIG, NAMES, ODD, made, near
from processes import LONGEST_QUOTE, Prepare, Result
from targets import REFERENCE, Target, call, copy_model, found_targets

import attnlab

# Parameters that say how often something is done, or how much is asked for: a huge one is no fault.
REPEATS = ("steps", "max_new_tokens", "samples")

# Parameters that are functions to be called back: what those raise is theirs, and comes through.
CALLED_BACK = ("watch", "metric")

# Longer lists are looked at no further.
LOOKED_AT = 5

Arrays = Callable[[str], Any]


# What equations say


def is_real(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iuf"


def exact(values: dict[str, Any], names: str) -> Iterator[Any]:
    """Arguments as arrays of real numbers; nothing where there is none."""
    for name in names.split():
        value = values.get(name)
        array = None if value is None else np.array(value)
        if array is not None and array.dtype.kind not in "biuf":
            raise ValueError(f"{name} holds no real numbers")
        yield array


def as_type(dtype: str, *arrays: Any) -> list[Any]:
    return [None if array is None else array.astype(dtype) for array in arrays]


def simple(equation: Callable[..., Any], names: str) -> Callable[[dict[str, Any]], Arrays]:
    """An equation of arrays alone."""

    def of(values: dict[str, Any]) -> Arrays:
        arrays = list(exact(values, names))
        return lambda dtype: equation(*as_type(dtype, *arrays))

    return of


def affine(x: Any, W: Any, b: Any) -> Any:
    return x @ W if b is None else x @ W + b


def layer_norm(values: dict[str, Any]) -> Arrays:
    arrays, eps = list(exact(values, "x gain bias")), float(values.get("eps", 1e-5))
    oracle.require(0 <= eps < np.inf, f"eps is {eps}")
    return lambda dtype: oracle.layer_norm(*as_type(dtype, *arrays), eps)


def split_heads(values: dict[str, Any]) -> Arrays:
    (x,) = exact(values, "x")
    return lambda dtype: oracle.heads_of(x.astype(dtype), int(values["n_head"]))


def causal_mask(values: dict[str, Any]) -> Arrays:
    T, cached = int(values["T"]), int(values.get("cached", 0))
    mask = np.arange(cached + T) <= cached + np.arange(T)[:, None]
    return lambda dtype: mask.astype(dtype)


def context(values: dict[str, Any]) -> Arrays:
    """The context of any attention but the one with many heads."""
    if values.get("dropout", 0):
        raise ValueError("dropout is random")
    x, W_Q, W_K, W_V, b_Q, b_K, b_V = exact(values, "X W_Q W_K W_V b_Q b_K b_V")
    memory, mask, Q, K, V = exact(values, "memory mask Q K V")
    memory = x if memory is None else memory

    def of(dtype: str) -> Any:
        if x is None:
            return oracle.attended(*as_type(dtype, Q, K, V), mask)[1]
        queries, *pairs = (
            affine(*as_type(dtype, given, W, b))
            for given, W, b in ((x, W_Q, b_Q), (memory, W_K, b_K), (memory, W_V, b_V))
        )
        return oracle.attended(queries, *pairs, mask)[1]

    return of


def multi_head_output(values: dict[str, Any]) -> Arrays:
    if values.get("dropout", 0):
        raise ValueError("dropout is random")
    x, W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O = exact(values, "X W_Q W_K W_V W_O b_Q b_K b_V b_O")
    memory, mask = exact(values, "memory mask")
    memory = x if memory is None else memory

    def of(dtype: str) -> Any:
        heads = (
            oracle.heads_of(affine(*as_type(dtype, given, W, b)), int(values["n_head"]))
            for given, W, b in ((x, W_Q, b_Q), (memory, W_K, b_K), (memory, W_V, b_V))
        )
        return affine(oracle.joined(oracle.attended(*heads, mask)[1]), *as_type(dtype, W_O, b_O))

    return of


@cache
def small_model() -> oracle.Model:
    return oracle.read(REFERENCE, "float32", 17)


def rows(values: dict[str, Any]) -> Arrays:
    """Rows of the small model's token embedding, and of nothing else."""
    (ids,) = exact(values, "rows")
    matrix = small_model().parameters["wte.weight"]
    oracle.require(bool(np.all((ids >= 0) & (ids < len(matrix)))), "there are no such rows")
    return lambda dtype: matrix[ids].astype(dtype)


# For a target's name: what a result shows, and what makes what should be there.
EQUATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[dict[str, Any]], Arrays]]] = {
    "attnlab.softmax": (np.asarray, simple(oracle.softmax, "x")),
    "attnlab.gelu": (np.asarray, simple(oracle.gelu, "x")),
    "attnlab.linear": (np.asarray, simple(affine, "x W b")),
    "attnlab.layer_norm": (np.asarray, layer_norm),
    "attnlab.split_heads": (np.asarray, split_heads),
    "attnlab.merge_heads": (np.asarray, simple(oracle.joined, "x")),
    "attnlab.causal_mask": (np.asarray, causal_mask),
    "Rows.__getitem__": (np.asarray, rows),
    "attnlab.attention": (lambda result: result.context, context),
    "attnlab.self_attention": (lambda result: result.context, context),
    "attnlab.cross_attention": (lambda result: result.context, context),
    "attnlab.multi_head_attention": (lambda result: result.output, multi_head_output),
}


def ids_in(values: dict[str, Any]) -> list[int]:
    """The ids of a text, or those that are given, a batch of one among them."""
    text = values.get("text", values.get("text_or_ids"))
    if isinstance(text, str):
        special = values.get("special") is True
        (ids, *_) = small_model().vocabulary.encoded(str(text), special)
        return ids
    ids = np.array(getattr(text, "ids", text))
    return (ids[0] if ids.ndim == 2 and len(ids) == 1 else ids).tolist()


def wrong_words(name: str, values: dict[str, Any], found: Any) -> str:
    """What is wrong with ids or logits that the small model gave, "" if nothing is."""
    try:
        ids = ids_in(values)
    except Exception:  # an argument that raises when it is looked at
        return ""
    if name == "Tokenizer.encode":
        return "" if list(found) == ids else f"other ids: {list(found)[:8]}, should be {ids[:8]}"
    right = small_model().logits(ids, "float32")
    return "" if right is None or right.holds(found.logits) else "other logits"


BY_VOCABULARY = ("Tokenizer.encode", "GPT2.trace")


# Cases


def shown(value: Any) -> Iterator[str]:
    """All that a result shows; what is computed when it is first looked at is computed here."""
    if isinstance(value, Iterator):
        for _, item in zip(range(LOOKED_AT), value, strict=False):
            yield from shown(item)
        return
    if isinstance(value, tuple | list) and type(value).__module__ == "builtins":
        for item in value[:LOOKED_AT]:
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


def tamed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is called back, as if the library had refused what it raises."""

    def called(*given: Any) -> Any:
        try:
            return function(*given)
        except Exception as error:
            raise attnlab.AttnlabError("what was called back raised") from error

    return called


def texts_of(value: Any) -> Iterator[str]:
    """A value as a message may quote it."""
    for text in (str, repr):
        with contextlib.suppress(Exception):
            yield text(value)
    with contextlib.suppress(Exception):
        yield value.decode("latin-1")


@dataclass
class CallCase:
    """One call.

    Attributes
    ----------
    arguments : a text for each parameter that is given
    values : what the texts made
    """

    target: Target
    arguments: dict[str, str]
    values: dict[str, Any]
    size: int = 0
    copies: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.values.items():  # the call may write to what it is given
            self.copies[name] = value
            with contextlib.suppress(Exception):
                self.copies[name] = np.array(value) if isinstance(value, np.ndarray) else value

    def given(self) -> list[str]:
        texts = [text for value in self.values.values() for text in texts_of(value)]
        return [text for text in texts if len(text) > LONGEST_QUOTE]

    def attack(self) -> Any:
        names = NAMES | {f"_{name}": value for name, value in self.values.items()}
        names |= {
            f"_{name}": tamed(self.values[name])
            for name in CALLED_BACK
            if callable(self.values.get(name))
        }
        text = call(self.target, {name: f"_{name}" for name in self.arguments})
        try:
            found = eval(text, names)
        except SystemExit:  # how a command ends
            return None, []
        return found, list(shown(found))

    def judge(self, found: Any) -> tuple[Result, str]:
        if isinstance(found, Exception):
            return Result.REFUSED, ""
        value, texts = found
        for text in texts:
            odd = [c for c in text if not c.isprintable() and c != "\n"]
            if odd:
                return Result.MESSAGE, f"repr holds {odd[0]!a}"
        if self.target.name in BY_VOCABULARY:
            if wrong := wrong_words(self.target.name, self.copies, value):
                return Result.OTHER, wrong
        elif self.target.name in EQUATIONS:
            return self._judge_equation(value)
        return Result.RIGHT, ""

    def _judge_equation(self, value: Any) -> tuple[Result, str]:
        look, equation = EQUATIONS[self.target.name]
        result = np.asarray(look(value))
        arrays = filter(is_real, (result, *self.copies.values()))
        rounds = any(np.result_type(array.dtype, np.float32) == np.float32 for array in arrays)
        dtype = "float32" if rounds else "float64"
        try:
            right = oracle.in_range(equation(self.copies), dtype)
        except oracle.UnsoundError as reason:
            return Result.OTHER, f"should be refused: {reason}"
        except Exception:  # as some argument raises when it is looked at
            return Result.RIGHT, "no equation for such values"
        if right is not None and not right.holds(result):
            return Result.OTHER, f"not what the equation gives, of {sorted(self.arguments)}"
        return Result.RIGHT, ""

    def story(self) -> str:
        return call(self.target, self.arguments)


class Calls:
    """Cases of all targets that were found.

    Attributes
    ----------
    targets : those that are attacked, by kind: "calls" of what attnlab offers itself, and "rooms",
        the other names of its modules
    left_out : names of rooms' functions that are not, as calls that fit take long
    """

    def __init__(self) -> None:
        found = found_targets()
        rooms = [target for target in found if not target.public]
        self.left_out = [target.name for target in rooms if target.late]
        self.targets = {
            "calls": [target for target in found if target.public],
            "rooms": [target for target in rooms if not target.late],
        }

    def prepare(self, kind: str) -> Prepare:
        alike: dict[str, list[Target]] = {}  # an inherited method is one thing to attack
        for target in self.targets[kind]:
            alike.setdefault(target.lines, []).append(target)
        choices = [group for group in alike.values() for _ in range(share_of(group[0]))]

        def case(number: int, place: Path) -> CallCase:
            copy_model(place / "here")
            rng = random.Random(f"{kind} {number}")
            target = rng.choice(choices[number % len(choices)])
            while True:
                with contextlib.suppress(Exception):  # what can't be made is made anew
                    arguments = arguments_of(target, rng)
                    values = {name: made(text) for name, text in arguments.items()}
                    return CallCase(target, arguments, values)

        return case


def share_of(target: Target) -> int:
    """How often it has its turn: where numbers can be wrong unseen, more often than elsewhere."""
    return 4 if target.name in EQUATIONS or target.name in BY_VOCABULARY else 1


def arguments_of(target: Target, rng: random.Random) -> dict[str, str]:
    """Texts of the arguments: those of a call that works, some of them odd."""
    arguments = dict(target.works or {})
    names = [name for name, *_ in target.parameters]
    optional = [name for name, _, kind, must in target.parameters if not must or "VAR" in kind]
    for name, _, kind, must in target.parameters:
        if must and "VAR" not in kind:
            if target.works is None or rng.random() < 0.1:
                arguments[name] = rng.choice(target.fitting[name])
        elif name in optional and "VAR" not in kind and rng.random() < 0.3:
            arguments[name] = rng.choice(target.fitting[name])
    if names:
        count = rng.choice([0, 0, 1, 1, 1, 1, 1, 2, 2, len(names)])
        for name in rng.sample(names, min(count, len(names))):
            arguments[name] = odd_text(name, arguments.get(name, target.fitting[name][0]), rng)
    return arguments


def odd_text(name: str, fits: str, rng: random.Random) -> str:
    """A text of something odd in the place of what fits."""
    if rng.random() < 0.5:
        return near(fits, rng)
    return rng.choice(ODD if name in REPEATS or rng.random() < 0.8 else BIG)
