"""Runs in which some steps are replaced.

Steps that don't depend on an edit are shared with the original run: they are computed once, in
whichever run they are accessed first. Other steps are recomputed on access.

Editing a part of an array edits the array: a head's Q is part of its layer's Q. A head's X, scale
and output aren't part of a larger array; an edit of such a step changes the layer's steps that
depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from attnlab import equations
from attnlab.equations import AnyArray
from attnlab.errors import InvalidTypeError, InvalidValueError, OutOfRangeError, quoted
from attnlab.steps import Graph, Node, Run, is_finite, read_only, steps_below
from attnlab.steps.paths import dots_hint, fill, parse, parse_index, with_dots
from attnlab.support.checks import as_array, check_kind, query_without_keys
from attnlab.support.messages import Message

EDITED = ", edited: {paths}"  # follows a title

# What replaces a step: an array, a number, or a function of the step's original value.
Edit: TypeAlias = ArrayLike | Callable[[AnyArray], ArrayLike]

# An index as written, such as "-1", and what replaces that part of the step.
PartEdit: TypeAlias = tuple[str, Edit]

# An edit's effect on another step: a function of the edited run and this step's original value.
Effect: TypeAlias = Callable[[Run, Any], Any]

# Steps that can't be edited: they depend on the text or the config, or are aliases of W_E or X.
FIXED = (
    *("ids", "cached", "n_head", "memory", "rows_of_W_E"),
    *("activation", "divide_by_sqrt_d", "layer_number"),
)

# Steps of a head that aren't parts of a step of the layer.
HEAD_ONLY = ("X", "scale", "output")  # see `effects_of`

# The maximum number of edited steps in a title.
MAX_PATHS_SHOWN = 3

# The number of a block or head in a path.
NUMBER = r"(?<=\.)-?\d{1,9}(?=\.|$)"  # it may be negative, so that an error can suggest a path


class PartEdits(tuple[PartEdit, ...]):
    """Edits of parts of a step's array, one after the other."""


def edits_in(edit: Any) -> tuple[tuple[Any, Any], ...]:
    """Pairs of an index, which is `...` for a whole step, and what replaces that part."""
    is_of_parts = isinstance(edit, PartEdits)
    return tuple((parse_index(i), x) for i, x in edit) if is_of_parts else ((..., edit),)


def is_function(edit: Any) -> bool:
    return any(callable(x) for _, x in edits_in(edit))


@dataclass(eq=False, repr=False)
class EditedRun(Run):
    """A run in which the values of some steps are edited; the base's edits also apply.

    `edits` are all edits in order, the base's first: arrays or functions, by path.
    """

    edits: tuple[Mapping[str, Edit], ...] = ()

    @classmethod
    def of(cls, base: Run, edits: Mapping[str, Edit]) -> EditedRun:
        # New edits come after the edits of the base: their functions get the earlier result.
        earlier = base.edits if isinstance(base, EditedRun) else ()
        return cls.changing(base, edits=(*earlier, edits))

    def __post_init__(self) -> None:
        super().__post_init__()
        self._index_edits()

    def _index_edits(self) -> None:
        """Index the edits.

        `_paths` are the edited paths; `_edited` also has the arrays that contain these steps.
        `_changes` lists, for each outermost array, the edits of the array and then of its parts.
        `_effects` has each step's indirect changes, by the path of the edit that causes them.
        """
        self._paths: set[str] = set()
        self._edited: set[str] = set()
        self._changes: dict[str, list[tuple[str, Edit]]] = {}
        self._effects: dict[str, dict[str, Effect]] = {}
        for edits in self.edits:
            # `_depends` is only about the last edits; the base has the earlier edits.
            self._depends = {}
            # Edits of layers come first, so that they don't overwrite edits of their heads.
            for path in sorted(edits, key=lambda path: len(enclosing_steps(self.graph, path))):
                paths = enclosing_steps(self.graph, path)
                self._paths.add(path)
                self._edited.update(paths)
                self._changes.setdefault(paths[-1], []).append((path, edits[path]))
                self._depends[paths[-1]] = True
                for other, effect in effects_of(self.graph, path):
                    self.graph[other]  # raises if there is no such step for the edit to change
                    self._effects.setdefault(other, {})[path] = effect
                    self._depends[other] = True
        self.changed = frozenset([*self._changes, *self._effects])

    def __getstate__(self) -> dict[str, Any]:
        # Functions, which may not be picklable, are stored as their results.
        values = tuple(
            {path: self._as_stored(path, edit) for path, edit in edits.items()}
            for edits in self.edits
        )
        indexes: dict[str, Any] = {"_changes": {}, "_effects": {}, "_depends": {}}
        return super().__getstate__() | {"edits": values} | indexes

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._index_edits()  # it isn't in the pickle, since `_effects` has functions

    def _as_stored(self, path: str, edit: Any) -> Any:
        """An edit in which the results of functions replace the functions."""
        if not is_function(edit):
            return edit
        value = self.value(path)
        if isinstance(edit, PartEdits):  # other parts of the step stay unedited
            return PartEdits((index, np.array(value)[parse_index(index)]) for index, _ in edit)
        return value

    @property
    def edited_steps(self) -> tuple[str, ...]:
        return tuple({**self._changes, **self._effects})  # each path once, in order

    def is_edited(self, path: str) -> bool:
        # The step contains an edited step, or is part of one.
        return path in self._edited or not self._paths.isdisjoint(
            [*enclosing_steps(self.graph, path), self.graph[path].layer_step]
        )

    def edits_of(self, path: str) -> list[tuple[str, Any]]:
        # `compute` applies edits in the opposite order: gradients go through the last edit first.
        return [*self._effects.get(path, {}).items(), *self._changes.get(path, ())][::-1]

    def unedited(self, path: str) -> Any:
        node = self.graph[path]
        if node.layer_step and path not in self._paths:  # it is a slice of the layer's step
            layer_value = self.unedited(node.layer_step)
            return node.part_of(layer_value, self.value(node.n_head))
        # Edits are made in the outermost array; the step is cut from that array.
        with self.errstate():
            *_, outermost = enclosing_steps(self.graph, path)
            return select_part(self, path, self._before_edits(outermost))

    def compute(self, path: str, node: Node) -> Any:
        if path not in self.changed:  # its inputs may be changed, but its equation isn't
            return super().compute(path, node)
        value = self._before_edits(path)
        # `_changes` has the array's own edits first, then edits of its parts.
        for part, edit in self._changes.get(path, ()):
            value = apply_edit(self, part, edit, value)
        return value

    def _before_edits(self, path: str) -> Any:
        """A step with the indirect effects of edits, but without edits of the step itself."""
        value = self._computed(path)
        # A head's output has such an effect: only the layer's sum of all heads contains it.
        for effect in self._effects.get(path, {}).values():
            value = self._call(path, partial(effect, self, value))
        return value

    def _computed(self, path: str) -> Any:
        """A step as its equation computes it, without edits of the step itself."""
        node, run = self.graph[path], self
        # Walk through the bases to a run that edits something before this step. If a base edits
        # the step itself, that base's value is already edited.
        while not any(map(run.depends, node.inputs)):
            assert run.base is not None
            if not isinstance(run.base, EditedRun) or path not in run.base.changed:
                return run.base._input(path)  # the base keeps it, so that both runs share it
            run = run.base
        return Run.compute(run, path, node)


def edit_run(run: Run, edits: Mapping[str, Edit]) -> EditedRun:
    """Create a run with edits, see `Trace.edited`, and compute the edits to raise errors early."""
    n_head = run.value("n_head") if "n_head" in run.graph.root.steps else 0
    # `as_edit` copies, since a later change of the user's array must not change the run.
    by_path = {path: as_edit(path, x) for path, x in expand_edits(run.graph, n_head, edits).items()}
    edited_run = EditedRun.of(run, by_path)
    labels = []  # the edits in words, for the titles of this run's tables and plots
    for path, edit in chain.from_iterable(edits.items() for edits in edited_run.edits):
        # This calls the functions in edits now, so that `edited` raises their errors.
        value = edited_run.value(path)
        note = ""
        if path.endswith(".weights"):
            with np.errstate(over="ignore"):  # a sum may be infinite, and the title says so
                sums = value.sum(axis=-1)
            note = "" if np.allclose(sums, 1, atol=1e-4) else " (rows that don't sum to 1)"
        indices = "".join(f"[{index}]" for index, _ in edit) if isinstance(edit, PartEdits) else ""
        labels.append(f"{path}{indices}{note}")
    if "score_bias" in run.graph.given:  # -inf in score_bias hides keys, in addition to the mask
        visible = edited_run.value("mask") & (edited_run.value("score_bias") > -np.inf)
        if query := query_without_keys(visible):
            raise InvalidValueError(f"mask and score_bias hide all keys from query {query}")
    # Titles stand above tables and plots, so a list of all heads would be too long.
    more = f" and {len(labels) - MAX_PATHS_SHOWN} more" if len(labels) > MAX_PATHS_SHOWN else ""
    paths = f"{', '.join(labels[:MAX_PATHS_SHOWN])}{more}"
    edited_run.note = Message(EDITED, paths=paths) if labels else ""
    return edited_run


# ---- which step an edit changes, and what depends on it ------------------------------------------


def enclosing_steps(graph: Graph, path: str) -> list[str]:
    """The paths of a step, of the array that contains it, and so on up to the outermost array."""
    node = graph[path]
    # A head's step is a part of its layer's step, unless no array of the layer contains it.
    if node.layer_step and node.step.name not in HEAD_ONLY:
        container = node.layer_step
    elif node.step.name == "next_logits":
        container = "logits"  # `next_logits` is the last row of `logits`
    else:
        return [path]
    return [path, *enclosing_steps(graph, container)]


def changed_steps(graph: Graph, path: str) -> tuple[str, ...]:
    """The whole arrays that an edit changes: by its effects, or else the step's outermost array."""
    # A caller that computes many edits side by side stacks the arrays, so they must be whole: a
    # head's X, which is in no array, changes its layer's Q, K and V, and these are returned.
    indirect = (other for other, _ in effects_of(graph, path) if parse(other).head is None)
    return tuple(indirect) or (enclosing_steps(graph, path)[-1],)


def select_part(run: Run, path: str, array: AnyArray) -> AnyArray:
    """The view of a step in the outermost array that contains it."""
    if len(enclosing_steps(run.graph, path)) == 1:
        return array
    node = run.graph[path]
    if node.layer_step:  # such as a head's Q, which is part of the layer's Q
        return node.part_of(array, run.value(node.n_head))
    return array[..., -1, :]  # next_logits are the last row of logits


def apply_edit(run: Run, path: str, edit: Edit, value: Any) -> Any:
    """Return the whole array that an edit changes, with the edit applied."""
    node = run.graph[path]
    if len(enclosing_steps(run.graph, path)) == 1:  # the whole array, not a head's part of it
        return evaluate_edit(run, path, edit, value)
    if node.select is equations.head_slice:  # a mask that heads share gets one copy for each head
        shape = np.broadcast_shapes(value.shape, (run.value(node.n_head), 1, 1))
        value = np.broadcast_to(value, shape)
    array = np.array(value)  # a copy; writing to its part, a view, changes the copy
    part = select_part(run, path, value)
    select_part(run, path, array)[...] = evaluate_edit(run, path, edit, part)
    return array


def effects_of(graph: Graph, path: str) -> Iterator[tuple[str, Effect]]:
    """Yield each step that an edit changes without an equation between them, and the effect."""
    step = parse(path)
    prefix, name, layer = step.part, step.step, step.layer_prefix
    if path == "W_E":  # the embedding reads it as `rows_of_W_E`
        yield "rows_of_W_E", lambda run, rows: run.value("W_E")
    elif path in ("logits", "next_logits"):  # next_logits isn't computed from logits
        yield "next_logits", lambda run, row: run.value("logits")[..., -1, :]
    # The layer multiplies all heads by W_O at once, so no array holds the heads' outputs. An edit
    # of a head's output adds the difference to the layer's output.
    elif layer is not None and name == "output":
        yield f"{layer}output", lambda run, x: x + (run.value(path) - run.unedited(path))
    elif layer is not None and name == "scale":
        yield f"{layer}scores", partial(with_head_scale, prefix)
    # Another X for one head changes the head's queries, keys and values, which the layer computes
    # from one X for all heads.
    elif layer is not None and name == "X":
        is_self_attention = graph[f"{layer}memory"].step.equation is not None
        if is_self_attention:
            yield f"{prefix}.memory", lambda run, X: run.value(path)
        for kind in "QKV" if is_self_attention else "Q":
            yield f"{layer}{kind}", partial(with_projection, prefix, kind)


def with_head_scale(head: str, run: Run, scores: AnyArray) -> AnyArray:
    """The effect of a head's scale on the layer's scores: it divides this head's scores."""
    new_scores = np.array(scores)  # a copy: the original run may keep `scores`
    select_part(run, f"{head}.scores", new_scores)[...] = equations.scores(
        run.value(f"{head}.raw_scores"), run.value(f"{head}.scale")
    )
    return new_scores


def with_projection(head: str, name: str, run: Run, layer_value: AnyArray) -> AnyArray:
    """The effect of a head's X on the layer's Q, K or V."""
    X, W, b = (run.value(f"{head}.{step}") for step in ("X", f"W_{name}", f"b_{name}"))
    # Keys and values of cached tokens come first, and don't change: this X has only new tokens.
    new = np.array(layer_value[..., -X.shape[-2] :, :])
    select_part(run, f"{head}.{name}", new)[...] = equations.affine(X, W, b)
    cache = None if name == "Q" else run.value(f"{parse(head).layer_prefix}{name}_cache")
    return equations.with_cached(cache, new)  # later tokens must find these rows in the cache


# ---- paths ---------------------------------------------------------------------------------------


def expand_edits(graph: Graph, n_head: int, edits: Any) -> dict[str, Edit]:
    """Expand edits to paths of one step each: a * stands for all blocks or all heads.

    If a path isn't an editable step, the error suggests similar paths.
    """
    check_kind(edits, Mapping, "edits", "a dict of paths and values")
    counts = {"blocks": graph.n_layer, "heads": n_head}
    expanded: dict[str, Any] = {}
    for pattern, edit in edits.items():
        check_kind(pattern, str, "path", "a str, such as 'embedding'")
        name, index = parse(pattern).path, parse(pattern).index
        first_path = ".".join("0" if word == "*" else word for word in name.split("."))
        check_path(first_path, editable_paths(graph), n_head, graph.n_layer, "step to edit")
        for path in fill(name, counts):
            earlier = expanded.get(path, PartEdits())
            # Two edits of a whole step contradict each other; edits of parts follow one another.
            if path in expanded and (index is None or not isinstance(earlier, PartEdits)):
                raise InvalidValueError(f"{path} has two edits; one of them is {pattern}")
            expanded[path] = edit if index is None else PartEdits((*earlier, (index, edit)))
            edits_in(expanded[path])  # raises if an index is invalid
    return expanded


def check_path(path: Any, valid: Sequence[str], n_head: int, n_layer: int, noun: str) -> None:
    """Raise if a path matches none of the `valid` patterns, in which # stands for a number.

    The message calls the expected path a `noun`, and suggests similar paths.
    """
    check_kind(path, str, "path", "a str, such as 'embedding'")
    counts = {"blocks": n_layer, "heads": n_head}
    pattern = re.sub(NUMBER, "#", path)
    # `fill_numbers` changes numbers of blocks or heads that don't exist, such as 99 and -1.
    if pattern in valid and path == fill_numbers(pattern, path, counts):
        return
    corrected = with_dots(path)
    patterns = nearest(re.sub(NUMBER, "#", corrected), valid)
    similar = ", ".join(fill_numbers(pattern, corrected, counts) for pattern in patterns)
    raise InvalidValueError(
        f"{quoted(path)} isn't a {noun}; similar ones are {similar}{dots_hint(path)}"
    )


def nearest(pattern: str, valid: Sequence[str]) -> list[str]:
    """The three valid paths most similar to a pattern, by the whole path and its last name."""
    import difflib  # imported only for errors

    def similarity(other: str) -> float:
        pairs = ((other, pattern), (last_name(other), last_name(pattern)))
        return sum(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs)

    return sorted(valid, key=similarity, reverse=True)[:3]


def last_name(path: str) -> str:
    return path.rpartition(".")[2][:80]  # difflib is slow on long texts


def editable_paths(graph: Graph) -> list[str]:
    """The paths of all editable steps, in which # stands for a number."""

    def is_editable(path: str, step: Any) -> bool:
        if step.optional:  # it is editable if it was given, in the layer and in each head
            return path.removeprefix("heads.#.") in graph.given
        return step.name not in FIXED or path in graph.given

    return [path for path, step in steps_below(graph.root) if is_editable(path, step)]


def fill_numbers(pattern: str, path: str, counts: Mapping[str, int]) -> str:
    """Fill a pattern's # with the path's numbers, clamped to existing parts."""
    numbers = [int(number) for number in re.findall(NUMBER, path)]
    words = pattern.split(".")
    for i, word in enumerate(words):
        if word == "#":
            count, number = counts[words[i - 1]], numbers.pop(0) if numbers else 0
            # -1 becomes the last number, as Python counts, and so does 99.
            words[i] = str(min(number, count - 1) if number >= 0 else max(number + count, 0))
    return ".".join(words)


# ---- values --------------------------------------------------------------------------------------


def as_edit(path: str, edit: Any) -> Any:
    """Copy an edit: its arrays become read-only copies, functions stay."""
    if isinstance(edit, PartEdits):
        return PartEdits((index, as_edit(path, x)) for index, x in edit)
    if callable(edit):
        return edit  # its results are checked when it is called
    return read_only(np.array(as_array(edit, f"the edit of {path}")))


def evaluate_edit(run: Run, path: str, edit: Edit, value: Any) -> Any:
    """Apply an edit to a step's value; the new value has the same shape and dtype."""
    if value is None:  # an optional input, such as b_Q
        raise InvalidValueError(f"{path} was left out, so it can't be edited")
    if isinstance(edit, PartEdits):
        new = np.array(value)
        for text, part_edit in edit:
            index = parse_index(text)
            try:
                part = new[index]
            except IndexError as error:
                raise OutOfRangeError(f"the edit of {path}: {error}") from None
            if not part.size:  # NumPy would change nothing without an error
                raise OutOfRangeError(f"the edit of {path}: [{text}] is empty in shape {new.shape}")
            new[index] = replacement_of(path, part_edit, part)
    else:
        new = replacement_of(path, edit, value)
    if problem := problem_with(run, path, new):
        raise InvalidValueError(f"invalid edit of {path}: {problem}")
    return new if isinstance(value, np.ndarray) else new.item()  # scale and epsilon stay floats


def replacement_of(path: str, edit: Edit, value: Any) -> AnyArray:
    """What replaces a step, or a part of it, in the shape and dtype of the original."""
    is_array = isinstance(value, np.ndarray)
    original = np.asarray(value)
    with np.errstate(all="ignore"):  # the result is checked below
        if callable(edit):
            try:
                # Read-only: `x *= 2` in an edit would change the original run's array.
                result = edit(read_only(original.view()) if is_array else value)
            except Exception as error:
                advice = ""
                if "read-only" in str(error):
                    advice = ". Change a copy: x = x.copy()"
                raise InvalidValueError(
                    f"the edit of {path} raised {quoted(error)}{advice}"
                ) from error
            if result is None:
                raise InvalidTypeError(f"the edit of {path} returned None instead of an array")
            array = as_array(result, f"the edit of {path}")
        else:
            array = np.asarray(edit)
        # A mask of numbers, or ids with fractions, would be rounded silently.
        allowed_kinds = {"b": "b", "i": "iu"}.get(original.dtype.kind, "iuf")  # NumPy's dtype kinds
        if array.dtype.kind not in allowed_kinds:
            raise InvalidTypeError(
                f"the edit of {path} must have dtype {original.dtype}; got {array.dtype}"
            )
        try:
            # The model's dtype stays: float64 would spread to all later steps.
            return np.broadcast_to(array, original.shape).astype(original.dtype)
        except ValueError:
            raise InvalidValueError(
                f"the edit of {path} must broadcast to shape {original.shape}; got {array.shape}"
            ) from None


def problem_with(run: Run, path: str, value: AnyArray) -> str:
    """Why a value is invalid for a step, or "" if it is valid."""
    name = parse(path).step
    # In masked_scores and score_bias, -inf hides a key; in other steps it is an error.
    may_hide = run.graph[path].step.infinite
    if not is_finite(np.where(np.isneginf(value), 0, value) if may_hide else value):
        return f"it contains NaN or numbers that are infinite in {value.dtype}"
    if name in ("mask", "masked_scores"):
        # A query without visible keys would get NaN weights: softmax subtracts -inf from -inf.
        visible = value if name == "mask" else np.isfinite(value)
        if query := query_without_keys(visible):
            return f"it hides all keys from query {query}"
    if name == "scale" and not value:
        return "it must not be 0, since scores are divided by it"
    if name == "epsilon" and value < 0:
        return "it must not be negative"
    # NumPy would take -1 as the last row of W_P.
    if name == "positions" and not ((value >= 0) & (value < len(run.value("W_P")))).all():
        return f"positions must be from 0 to {len(run.value('W_P')) - 1}"
    return ""
