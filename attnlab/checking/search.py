"""The search for the known mistakes that produce a user's numbers."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attnlab.checking.comparison import block_of, distance, join_words, perturbed_runs
from attnlab.checking.mistakes import (
    BIAS,
    DROPOUT,
    MISTAKES,
    OTHER_PLACE,
    PREPENDED_TOKEN,
    Equations,
    Mistake,
    cache_mistakes,
)
from attnlab.checking.orders import table_name
from attnlab.checking.replaced import upstream, with_equations
from attnlab.checking.submission import (
    Submission,
    compare_in_run,
    from_own_inputs,
    layouts_of,
    numbers_at,
    root_mean_square,
    submissions,
)
from attnlab.equations import AnyArray, Array, Ids, Mask
from attnlab.errors import AttnlabError
from attnlab.forward.functional import causal_mask
from attnlab.steps import Result, Run
from attnlab.support.console import progress_bar
from attnlab.support.messages import Message

# Mistakes are searched for one after another, up to this number.
MAX_MISTAKES = 4

# In a search for pairs, the number of first mistakes that are combined with a second one.
MAX_FIRST = 12

# The most work in a search for pairs, in the unit of `work_of`: a few seconds.
MAX_PAIR_WORK = 60_000

# As many take as long as one step of a small model, most of which is Python's.
MULTIPLICATIONS = 500_000

# The first mistake of a pair must leave less than this fraction of the difference.
MAX_REMAINING_FIRST = 0.95

# Steps after the last block.
AFTER_BLOCKS = ("gain", "bias", "final", "W_U", "logits")

# In half precision, the mistakes reported are those that leave up to this multiple of the smallest
# remaining difference.
EQUALLY_CLOSE = 1.25


class Explanation(NamedTuple):
    """Mistakes that produce the same numbers in the first differing step."""

    mistakes: tuple[Mistake, ...]
    run: Run  # with the first mistake
    unexplained: tuple[str, ...] = ()  # names of later steps that the mistakes don't explain


def explain(result: Result, submitted: Sequence[Submission]) -> list[Explanation]:
    """The mistakes that explain the numbers, one after another; [] if none is known.

    If a mistake leaves steps unexplained, the search is repeated in the run with that mistake.
    """
    first = first_differing(submitted)
    # In half precision steps follow from the user's own, so only the first is wrong for certain.
    compared = [step for step in submitted if step.agrees or step is first or not step.is_half]
    given = {step.name: step for step in submitted}

    def follows(name: str) -> bool:
        """Whether a step follows from the user's own wrong ones: no mistake of its own."""
        return from_own_inputs(result, given[name].run, given[name], submitted).agrees

    explanations: list[Explanation] = []
    run = first.run
    while len(explanations) < MAX_MISTAKES:
        explanation = find_mistakes(run, compared)
        if explanation is None:
            break
        followed = set(filter(follows, explanation.unexplained))
        left = tuple(name for name in explanation.unexplained if name not in followed)
        explanations.append(explanation._replace(unexplained=left))
        run = explanation.run
        if not left:
            break
        compared = [
            compare_in_run(result, run, step) for step in compared if step.name not in followed
        ]
        if all(step.agrees for step in compared):
            break
    return explanations


def first_differing(submitted: Sequence[Submission]) -> Submission:
    return next(step for step in submitted if not step.agrees)


def find_mistakes(run: Run, submitted: Sequence[Submission]) -> Explanation | None:
    """The mistakes that explain the first differing step.

    They don't change steps that agree, and leave the fewest later steps unexplained.
    """
    agreeing, first = [step for step in submitted if step.agrees], first_differing(submitted)
    later = [step for step in submitted if not step.agrees and step is not first]

    given, own = {step.path for step in submitted}, list[Submission]()
    if first.is_half:  # steps follow from the user's own, so a mistake changes only the first
        own, agreeing, submitted = agreeing, [], [first]

    def is_ruled_out(equations: Equations) -> bool:
        """Whether an agreeing step in half precision, from the user's own, would differ."""

        def of_others(step: Submission) -> Equations:
            """The equations, except of steps that the user gave."""
            return {
                path: equation
                for path, equation in equations.items()
                if path == step.path or path not in given
            }

        runs = [(step, with_equations(step.run, of_others(step))) for step in own]
        return not all(
            step.matches(other, perturbed_runs(other, [step.path], step.epsilon))
            for step, other in runs
        )

    def explanations(stop_at: Container[str]) -> Iterator[Explanation]:
        for mistake, equations, other in candidates(run, submitted, stop_at):
            if first.is_near(other) and not is_ruled_out(equations):
                variants = perturbed_runs(other, [x.path for x in submitted], first.epsilon)
                if all(step.matches(other, variants) for step in (first, *agreeing)):
                    names = (step.name for step in later if not step.matches(other, variants))
                    yield Explanation((mistake,), other, tuple(names))

    # A mistake before an agreeing step is unlikely: that step would usually differ too.
    options = list(explanations({step.path for step in agreeing}))
    if agreeing and not options:
        options = list(explanations(()))
    if not options:
        options = [Explanation((mistake,), run) for mistake in with_dropout(run, first)]
    if not options:
        return None
    best = min(options, key=lambda option: len(option.unexplained))
    if first.is_half:  # rounding may hide what remains: take the closest
        best = min(options, key=lambda option: first.difference_from(option.run))
        limit = EQUALLY_CLOSE * first.difference_from(best.run)
        options = [option for option in options if first.difference_from(option.run) <= limit]
    equally_good = (
        option.mistakes[0] for option in options if len(option.unexplained) == len(best.unexplained)
    )
    return best._replace(mistakes=tuple(dict.fromkeys(equally_good)))


def find_pair(run: Run, submitted: Sequence[Submission]) -> tuple[list[Explanation], str]:
    """Two mistakes that together explain all steps, if any; and a note if not all pairs were tried.

    First mistakes are tried in the order of the difference that remains with them.
    """
    first, paths = first_differing(submitted), [step.path for step in submitted]
    stop_at = {step.path for step in submitted if step.agrees}
    initial = min(root_mean_square(x, first.expected) for x in first.layouts)
    tried = [row for row in candidates(run, submitted, stop_at, everywhere=True) if row[1]]
    promising = [
        (remaining, mistake, other)
        for mistake, _, other in tried
        if (remaining := first.difference_from(other)) < MAX_REMAINING_FIRST * initial
    ]
    nearest_first = sorted(promising, key=lambda row: row[0])[:MAX_FIRST]
    affordable = int(MAX_PAIR_WORK / work_of(run, first.path))
    pairs: dict[frozenset[int], tuple[Mistake, Mistake, Run]] = {}
    limit, note = math.inf, ""
    bar = progress_bar(True, iterable=nearest_first, desc="pairs of mistakes", leave=False, delay=1)
    for number, (remaining, mistake, other) in enumerate(bar):
        if remaining > limit:
            break
        if (number + 1) * len(tried) > affordable:
            note = Message("To save time, not all pairs of mistakes were tried.")
            break
        for second, _, both in candidates(other, submitted, stop_at, everywhere=True):
            pair = frozenset((id(mistake), id(second)))
            if pair in pairs or second.equations.keys() & mistake.equations.keys():
                continue
            if first.is_near(both):
                variants = perturbed_runs(both, paths, first.epsilon)
                if all(step.matches(both, variants) for step in submitted):
                    pairs[pair] = mistake, second, both
                    limit = remaining * (1 + 1e-3)  # other first mistakes must be equally good
    if not pairs:
        return [], note
    firsts, seconds, runs = zip(*pairs.values(), strict=True)
    return [Explanation(tuple(dict.fromkeys(found)), runs[0]) for found in (firsts, seconds)], ""


def work_of(run: Run, path: str) -> float:
    """About how many steps of a small model take as long as a run up to a step."""
    paths = upstream(run.graph, [path])
    sizes = [
        np.size(run.value(x)) for x in paths if run.graph[x].is_input and run.graph[x].needs == ()
    ]
    return len(paths) + sum(sizes) * math.prod(run.scores_shape[-2:-1]) / MULTIPLICATIONS


def candidates(
    run: Run,
    submitted: Sequence[Submission],
    stop_at: Container[str],
    everywhere: bool = False,
) -> Iterator[tuple[Mistake, Equations, Run]]:
    """Mistakes that may explain the first differing step, each with its equations and run.

    Each mistake is tried in all blocks, in all blocks from a given one on, and only in the step's
    block (for code of a single block with correct input). At least one of its equations must come
    after the agreeing steps; `Submission.matches` checks that these steps still agree.
    """
    first = first_differing(submitted)
    may_be_wrong = set(upstream(run.graph, [first.path], stop_at))
    paths_of: dict[str, list[str]] = {}
    for path in upstream(run.graph, [step.path for step in submitted]):
        paths_of.setdefault(table_name(run.graph, path), []).append(path)
    tried = set()
    # Mistakes with fewer equations first: more equations may have the same effect on this step.
    known = (*MISTAKES, *cache_mistakes(first_differing_row(first)))
    if "score_bias" in run.graph.given:
        known = (*BIAS, *known)
    shown = {"", *(table_name(run.graph, step.path) for step in submitted)}
    mistakes = sorted(
        (mistake for mistake in known if mistake.only_with in shown),
        key=lambda mistake: len(mistake.equations),
    )
    for mistake, scope in itertools.product(
        mistakes, [ALL_BLOCKS] if everywhere else scopes(submitted)
    ):
        equations = {
            path: equation
            for name, equation in mistake.equations.items()
            for path in paths_of.get(name, ())
            if block_number(path) in scope
        }
        if not may_be_wrong & equations.keys() or (key := frozenset(equations.items())) in tried:
            continue
        tried.add(key)
        try:
            yield mistake, equations, with_equations(run, equations)
        except KeyError:  # needs a step that this type of result doesn't have
            continue
    if not everywhere:
        for mistake, equations in from_other_places(run, submitted):
            yield mistake, equations, with_equations(run, equations)
        if longer := prepended_token(run):
            yield PREPENDED_TOKEN, longer, with_equations(run, longer)


# All block numbers, including those that `block_number` returns before and after the blocks.
ALL_BLOCKS = range(-1, 10**9)


def scopes(submitted: Sequence[Submission]) -> list[range]:
    """The ranges of blocks in which to try a mistake."""
    number = block_number(first_differing(submitted).path)
    last_agreeing = max((block_number(step.path) for step in submitted if step.agrees), default=-1)
    # The mistake may begin in the last block with an agreeing step, in the next block, or in the
    # first differing step's.
    starts = {n for n in (last_agreeing, last_agreeing + 1, number) if 0 <= n <= number}
    from_starts = [range(start, ALL_BLOCKS.stop) for start in sorted(starts)]
    return [ALL_BLOCKS, *from_starts, range(number, number + 1)]


def block_number(path: str) -> int:
    """The number of a step's block; -1 before the blocks, a large number after them."""
    if block := block_of(path):
        return int(block.rpartition(".")[2])
    return ALL_BLOCKS.stop - 1 if path in AFTER_BLOCKS else -1


def first_differing_row(submission: Submission) -> int:
    """The position of the first token whose row differs, such as the first after a cache."""
    if submission.expected.ndim < 2:
        return 0
    difference = distance(submission.layouts[0], submission.expected)
    differs = (difference > submission.tolerance).any(axis=-1)  # (..., T)
    return int(np.argmax(differs.reshape(-1, differs.shape[-1]).any(axis=0)))


HEAD = re.compile(r"heads\.(\d+)\.")


def from_other_places(
    run: Run, submitted: Sequence[Submission]
) -> Iterator[tuple[Mistake, Equations]]:
    """Numbers of another layer or head, if the user's are of one layer or one head."""
    places = {(block_of(step.path), *HEAD.findall(step.path)) for step in submitted}
    block, *head = places.pop()
    if places or not (block or head):
        return
    differing = [step for step in submitted if not step.agrees]
    prefix = f"{block}.attention." if block else ""
    for layer, number in itertools.product(
        range(run.graph.n_layer) if block else [0],
        range(run.value(f"{prefix}n_head")) if head else [0],
    ):
        place = [Message("layer {layer}", layer=layer)] * bool(block)
        place += [Message("head {head}", head=number)] * bool(head)
        equations: Equations = {}
        for n, step in enumerate(differing, 1):
            path = HEAD.sub(f"heads.{number}.", step.path)
            if block:
                path = path.replace(block, f"blocks.{layer}", 1)
            value = numbers_at(run, path)
            if path == step.path or value is None or value.shape != step.expected.shape:
                break
            equations |= replaced_part(run, step.path, value)
            # All steps are from there, or the first one is and the others follow from it.
            if n in (1, len(differing)):
                names = join_words(step.path.rpartition(".")[2] for step in differing[:n])
                formula = Message("{names} of {place}", names=names, place=join_words(place))
                yield replace(OTHER_PLACE, formula=formula), dict(equations)


def replaced_part(run: Run, path: str, mine: AnyArray) -> Equations:
    """The equation that gives a step other numbers; for a head's, within its layer's step."""
    node = run.graph[path]

    def in_layer(value: AnyArray) -> AnyArray:
        changed = value.copy()
        changed[..., node.number, :, :] = mine
        return changed

    if node.layer_step and run.value(node.layer_step).ndim > mine.ndim:
        return {node.layer_step: in_layer}
    return {path: lambda: mine}


def prepended_token(run: Run) -> Equations:
    """The equations of a text with the vocabulary's last token in front, GPT-2's <|endoftext|>."""
    if "ids" not in run.graph.root.steps:
        return {}  # attention without a model

    def ids(value: Ids, W_E: Array) -> Ids:
        return np.concatenate([np.full_like(value[..., :1], len(W_E) - 1), value], axis=-1)

    def positions(value: Ids) -> Ids:
        return np.arange(len(value) + 1)

    def mask(value: Mask) -> Mask:
        return causal_mask(len(value) + 1)

    return {"ids": ids, "positions": positions, "mask": mask}


# For each step, (stream, update): the step is stream + dropout(update), without a stream for "".
DROPOUT_STEPS = {
    "embedding": ("", "embedding"),
    "attention.weights": ("", "weights"),
    "attention.output": ("", "output"),
    "mlp.output": ("", "output"),
    "mid": ("input", "attention.output"),
    "output": ("mid", "mlp.output"),
}


def with_dropout(run: Run, submission: Submission) -> Iterator[Mistake]:
    """Dropout, if some cells of a step are 0 and all others are scaled by the same factor."""
    name = table_name(run.graph, submission.path)
    if name not in DROPOUT_STEPS:
        return
    prefix = submission.path.rpartition(".")[0]
    stream, update = (f"{prefix}.{step}".lstrip(".") for step in DROPOUT_STEPS[name])
    without_dropout = np.atleast_1d(run.value(update)).astype(np.float64)
    for array in submission.layouts:
        mine = array.astype(np.float64) - (run.value(stream) if DROPOUT_STEPS[name][0] else 0.0)
        is_zero = np.abs(mine) <= submission.tolerance
        is_large = np.abs(without_dropout) > 8 * submission.tolerance  # clearly not 0
        kept, dropped = is_large & ~is_zero, is_large & is_zero
        if not dropped.any() or not kept.any():
            continue
        largest = np.argmax(np.where(kept, np.abs(without_dropout), 0.0))
        # Dropout with probability p scales what it keeps by 1 / (1 - p).
        factor = float(mine.flat[largest] / without_dropout.flat[largest])
        is_scaled = np.abs(mine - factor * without_dropout) <= 2 * factor * submission.tolerance
        if factor > 1.001 and kept.sum() > 1 and (is_zero | is_scaled).all():
            formula = Message(DROPOUT.formula, name=update.rpartition(".")[2], p=1 - 1 / factor)
            yield replace(DROPOUT, formula=formula)


def has_prepended_token(
    result: Result, run: Run, numbers: Mapping[str, tuple[AnyArray, float]]
) -> bool:
    """Whether the user's numbers come from the text with an extra token in front."""
    equations = prepended_token(run)
    if not equations:
        return False
    values = {name: numbers_at(run, result._prefix + name) for name in numbers}
    if all(
        value is None or layouts_of(numbers[name][0], value.shape) for name, value in values.items()
    ):
        return False  # all arrays fit the text without that token
    try:
        return all(
            step.agrees for step in submissions(result, with_equations(run, equations), numbers)
        )
    except (AttnlabError, IndexError):  # other shapes, or more tokens than positions
        return False
