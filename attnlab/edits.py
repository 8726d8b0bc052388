"""What if: a run in which some steps are other than they would be, and all that follows from it.

What does not depend on an edit is shared with the run that was edited: the same arrays, computed
once, in whichever of the two they are looked at first. What depends on one is computed anew,
when it is looked at.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from attnlab import equations
from attnlab.chain import PER_HEAD
from attnlab.checks import is_real
from attnlab.equations import AnyArray
from attnlab.errors import InvalidTypeError, InvalidValueError, shown
from attnlab.steps import Node, Run, is_finite

# What takes the place of a step: an array, a number, or a function of what would have been there.
Edit: TypeAlias = ArrayLike | Callable[[AnyArray], ArrayLike]

# How a step is made in an edited run, of what would have been there.
Change: TypeAlias = Callable[["EditedRun", Any], Any]

# Steps that are what they are because of the text and the model's sizes.
FIXED = (
    *("ids", "cached", "n_head", "memory", "rows_of_W_E", "K_cache", "V_cache"),
    *("activation", "by_root", "layer_number"),
)

# W_Q, W_K and W_V are thirds of the matrix that the model multiplies with, and so are biases.
THIRDS = {
    f"{kind}_{letter}": (f"{kind}_QKV", third)
    for kind in "Wb"
    for third, letter in enumerate("QKV")
}


class EditedRun(Run):
    """A run in which some steps are edited.

    Parameters
    ----------
    base : the run as it would be
    changes : by path, how a step is made of what would have been there
    note : what all titles end with
    """

    def __init__(self, base: Run, changes: Mapping[str, Change], note: str) -> None:
        vars(self).update(vars(base))
        self.values, self.base, self.changes = {}, base, dict(changes)
        self.note = base.note + note
        self._depends: dict[str, bool] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Functions are written as what they made.
        made = {path: Fixed(self.look(path)) for path in self.changes}
        return super().__getstate__() | {"changes": made}

    def aside(self) -> EditedRun:
        aside = super().aside()
        assert isinstance(aside, EditedRun)
        aside.base = self.base.aside()
        return aside

    def depends(self, path: str) -> bool:
        """Whether a step is edited, or is made of one that is."""
        if path not in self._depends:
            node = self.graph[path]
            if node.step.after_blocks:  # in order, as a deep model would recurse too far
                for layer in range(node.number):
                    self.depends(f"blocks.{layer}.output")
            above = (*node.needs, *filter(None, [node.whole]))
            self._depends[path] = path in self.changes or any(map(self.depends, above))
        return self._depends[path]

    def is_there(self, path: str) -> bool:
        return path in self.values or (not self.depends(path) and self.base.is_there(path))

    def unedited(self, path: str) -> Any:
        """What would be there, were this one step not edited."""
        node = self.graph[path]
        if node.step.is_given:
            return self.base.look(path)
        return super()._made(path, node)

    def look(self, path: str) -> Any:
        return super().look(path) if self.depends(path) else self.base.look(path)

    def _kept(self, path: str) -> Any:
        return super()._kept(path) if self.depends(path) else self.base._there_or_kept(path)

    def _for_another(self, path: str) -> Any:
        if path in self.values or self.depends(path):
            return super()._for_another(path)
        return self.base._for_another(path)

    def _made(self, path: str, node: Node) -> Any:
        value = self.unedited(path)
        return self.changes[path](self, value) if path in self.changes else value

    @property
    def edited_steps(self) -> tuple[str, ...]:
        return (*self.base.edited_steps, *self.changes)

    def _is_edited(self, path: str) -> bool:
        return path in self.changes

    def _takes_of_whole(self, node: Node) -> bool:
        return True

    def _goes_fast(self, path: str) -> bool:
        # The fast form of a step passes over those between it and what it is made of.
        place = path.rpartition(".")[0]
        return self.is_long and not any(edit.rpartition(".")[0] == place for edit in self.changes)


class Fixed:
    """A change that does not look at what would have been there; it can be pickled."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, run: EditedRun, value: Any) -> Any:
        return self.value


def edited(run: Run, edits: Mapping[str, Edit]) -> EditedRun:
    """A run in which steps are edited, each of them made at once, so that what is wrong is told.

    Parameters
    ----------
    run : of a forward pass
    edits : by path, such as `blocks.3.attention.heads.5.context`: an array that fits the step's
        shape, a number for all of it, or a function of what would have been there

    Raises
    ------
    InvalidTypeError
        Edits that are no mapping, or a value that is no array of numbers.
    InvalidValueError
        A path that leads to no step, or to one that can't be edited; an array that does not fit,
        or that holds NaN or infinite numbers.
    """
    if not isinstance(edits, Mapping):
        raise InvalidTypeError(
            f"edits are a dict of paths and what takes their place; given {shown(edits)}"
        )
    changes: dict[str, Change] = {}
    for path, edit in edits.items():
        for place, change in changes_of(run, path, edit):
            changes[place] = after(changes[place], change) if place in changes else change
    made = EditedRun(run, changes, f", edited: {', '.join(edits)}")
    for path in edits:
        value = made.look(path)
        sums = value.sum(axis=-1) if path.endswith(".weights") else np.ones(1)
        if not np.allclose(sums, 1, atol=1e-4):
            made.note += f" ({path}: rows do not sum to 1)"
    return made


def after(first: Change, then: Change) -> Change:
    """One change after the other."""
    return lambda run, value: then(run, first(run, value))


def changes_of(run: Run, path: str, edit: Edit) -> Iterator[tuple[str, Change]]:
    """The steps that an edit changes, and how: those that the model computes with.

    A head's arrays are shares of its layer's, and W_Q, W_K, W_V of W_QKV; there they are changed.
    """
    place, name = checked_path(run, path)
    n_head = run.look("n_head")
    layer, _, head = place.rpartition(".heads.")
    if (layer and name in PER_HEAD) or (layer and name in ("mask", "scale")):
        yield f"{layer}.{name}", in_heads(path, edit, int(head), n_head)
    elif layer and name == "W_O":
        yield f"{layer}.W_O", in_part(path, edit, lambda W: part_of(len(W), int(head), n_head))
    elif layer and name == "X":
        yield path, whole(path, edit)
        yield f"{layer}.QKV", of_other_input(place, int(head), n_head)
    elif layer and name == "output":
        yield path, whole(path, edit)
        yield f"{layer}.output", lambda run, x: x + run.look(path) - run.unedited(path)
    elif name in THIRDS:
        matrix, third = THIRDS[name]
        n, parts = (third, 3) if not layer else (third * n_head + int(head), 3 * n_head)
        columns = in_part(path, edit, lambda W: (..., part_of(W.shape[-1], n, parts)))
        yield f"{layer or place}.{matrix}", columns
    else:
        yield path, whole(path, edit)
        if path == "W_E":
            yield "rows_of_W_E", lambda run, rows: run.look("W_E")


def checked_path(run: Run, path: str) -> tuple[str, str]:
    """Where a step is, and its name, if it can be edited.

    Raises
    ------
    InvalidValueError
        It is not there, or can't be edited; the nearest ones that can are told.
    """
    known = paths_near(run, path) if isinstance(path, str) else []
    if path not in known:
        near = difflib.get_close_matches(str(path), known, 3, 0.5) or known[:3]
        raise InvalidValueError(
            f"{shown(path)} is no step that can be edited; near it are {', '.join(near)}"
        )
    place, _, name = path.rpartition(".")
    return place, name


def paths_near(run: Run, path: str) -> list[str]:
    """Every step that can be edited in the part that a path leads to, or as far as it leads."""
    graph, counts = run.graph, {"blocks": run.graph.n_layer, "heads": run.look("n_head")}
    kind, place = graph.root, ""
    words = path.split(".")
    while words and words[0] in kind.children:
        part = words.pop(0)
        if part in counts:
            number = words.pop(0) if words else ""
            if not (number.isdecimal() and int(number) < counts[part]):
                number = "0"
            part = f"{part}.{number}"
        kind, place = kind.children[part.partition(".")[0]], f"{place}{part}."
    names = [f"{place}{name}" for name in kind.steps if name not in FIXED]
    for part, below in kind.children.items():
        numbered = f"{part}.0" if part in counts else part
        names += [f"{place}{numbered}.{name}" for name in below.steps if name not in FIXED]
    return names


def part_of(length: int, n: int, parts: int) -> slice:
    """The n-th of so many equal parts."""
    width = length // parts
    return slice(n * width, (n + 1) * width)


def whole(path: str, edit: Edit) -> Change:
    """All of a step edited."""
    return lambda run, value: replaced(path, edit, value)


def in_part(path: str, edit: Edit, index_in: Callable[[AnyArray], Any]) -> Change:
    """A part of an array edited."""

    def change(run: EditedRun, value: AnyArray) -> AnyArray:
        changed, index = np.array(value), index_in(value)
        changed[index] = replaced(path, edit, value[index])
        return changed

    return change


def in_heads(path: str, edit: Edit, head: int, n_head: int) -> Change:
    """One head's share edited, of what has a head axis or is the same in all heads."""

    def change(run: EditedRun, value: Any) -> AnyArray:
        if isinstance(value, float):  # the scale
            scales = np.full((n_head, 1, 1), value)
            scales[head] = replaced(path, edit, value)
            return scales
        shape = (*value.shape[:-3], n_head, *value.shape[-2:])
        changed = np.array(np.broadcast_to(value, shape))
        changed[..., head, :, :] = replaced(path, edit, changed[..., head, :, :])
        return changed

    return change


def of_other_input(head_path: str, head: int, n_head: int) -> Change:
    """Q, K and V of one head, made of an X of its own."""
    layer = head_path.rpartition(".heads.")[0]

    def change(run: EditedRun, QKV: AnyArray) -> AnyArray:
        X = run.look(f"{head_path}.X")
        W, b = run.look(f"{layer}.W_QKV"), run.look(f"{layer}.b_QKV")
        changed = np.array(QKV)
        for third in range(3):
            columns = part_of(QKV.shape[-1], third * n_head + head, 3 * n_head)
            changed[..., columns] = equations.affine(X, W[:, columns], b[columns])
        return changed

    return change


def replaced(path: str, edit: Edit, value: Any) -> Any:
    """What takes a value's place, of its shape and dtype.

    Raises
    ------
    InvalidTypeError, InvalidValueError
        It does not fit, as `edited` tells it.
    """
    given = edit(value) if callable(edit) else edit
    if not isinstance(value, np.ndarray):
        if not is_real(given) or not np.isfinite(given):
            raise InvalidValueError(f"{path} is one number; given {shown(given)}")
        return type(value)(given)
    try:
        array = np.asarray(given)
        if array.dtype.kind not in {"b": "b", "i": "iu"}.get(value.dtype.kind, "iuf"):
            raise InvalidTypeError(f"{path} holds {value.dtype}; given dtype {array.dtype}")
        fitted: AnyArray = np.broadcast_to(array, value.shape).astype(value.dtype)
    except ValueError as error:
        raise InvalidValueError(f"{path} has shape {value.shape}; given {error}") from None
    if path.endswith("masked_scores"):  # where -inf is meant
        finite = is_finite(np.where(np.isneginf(fitted), 0, fitted))
    else:
        finite = is_finite(fitted)
    if not finite:
        raise InvalidValueError(f"the edit of {path} holds NaN, or is infinite in {value.dtype}")
    return fitted
