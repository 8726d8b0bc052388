"""Words for mistakes, and mistakes that aren't in the code of one step: groups of steps,
another place, dropout, and what numbers are to the right ones if no code produces them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attnlab.checking.comparison import MASKED, MAX_REMAINING, Submission, as_float16, numbers_at
from attnlab.checking.mutants import B_QKV, W_QKV
from attnlab.checking.orders import table_name
from attnlab.checking.replaced import upstream, with_changes, with_equation, with_nodes
from attnlab.equations import AnyArray, identity
from attnlab.steps import Run, steps_below
from attnlab.steps.paths import fill, parse
from attnlab.support.messages import Message


@dataclass(frozen=True, eq=False)
class Mistake:
    """Code that produces a user's numbers."""

    formula: str  # the code as it must have been written
    hint: str  # what is wrong, and what to do
    lines: tuple[str, ...] = ()  # the corrected code
    step: str = ""  # whose code it is, such as attention.scores


# ---- words ---------------------------------------------------------------------------------------

NO_SUM = "The rows don't sum to 1. Divide each by its sum."
LOAD_FLOAT32 = "The weights were converted to half precision. Load them as float32."
OF_BLOCKS = "Each block has parameters of its own, in order."
OTHER_PLACE = "Both layers and heads are counted from 0; check the index."
IN_PLACE = (
    "These are the numbers of a later step: `x += ...` also changes the array that you recorded. "
    "Write `x = x + ...`, or record a copy."
)
DROPOUT = (
    "Some cells are 0, and all others are larger by 1 / (1 - p). Dropout is for training only: "
    "turn it off, in PyTorch with model.eval()."
)
SUM = "No line of code was found that does this, but all numbers are such multiples."

# What teaches more than the changed code, by a pattern of the code. {Dk}, {D} and {scale} are the
# model's.
HINTS = {
    r"^scores = raw_scores$": (
        "The scores aren't scaled, and the softmax saturates. Divide by {scale}, with Dk = {Dk}."
    ),
    r"^scores = .*\bD\b": (
        "D = {D} is the width of the whole residual stream; a head has Dk = {Dk} columns. Divide "
        "by {scale}."
    ),
    r"^scores = .*/ Dk$|^Q = .*/ Dk$|^scores = .*/ np.sqrt\(Dk\) / np": (
        "The square root of Dk = {Dk} is missing, or √Dk is applied twice. Divide by {scale}, once."
    ),
    r"^masked_scores = scores$": (
        "Queries attend to later tokens. Put -inf where the key comes after the query."
    ),
    r"^masked_scores = .*swapaxes": (
        "The mask is transposed. Keep the lower triangle, key ≤ query (np.tril, not np.triu)."
    ),
    r"^masked_scores = .*(~mask, |000.*mask)": (
        "The mask is inverted. True must mean that a query may attend to a key."
    ),
    r"^e = .*axis=-2": "Columns sum to 1 instead of rows. The softmax is taken over the keys.",
    r"^weights = e$": NO_SUM,
    r"^(mid|output) = (attention|mlp).output$": (
        "The residual connection is missing: add what attention and the MLP compute to the stream."
    ),
    r"np.sqrt\([^+]*\) \+ epsilon": "epsilon belongs under the root: √(variance + epsilon).",
    r"^activated = ": "The model uses another activation function, {activation}.",
}


# ---- several steps at once -----------------------------------------------------------------------

IN_BLOCKS = {
    "attention.X": "input",
    "mid": "layer_norm(input + attention_output, attention_gain, attention_bias, epsilon)",
    "mlp.X": "mid",
    "output": "layer_norm(mid + mlp_output, mlp_gain, mlp_bias, epsilon)",
}
NORMS = ("attention.X", "mlp.X", "final")
PROJECTED = "(X @ W_{0} + b_{0}).reshape(T, H, -1).swapaxes(-3, -2)"
OF_EACH_HEAD = f"(X @ {W_QKV} + {B_QKV}).reshape(T, H, 3, -1).transpose(2, 1, 0, 3)"

# By sentence: the code of each step by its name in tables; several alternatives. In it, x is the
# first name of the right code.
GROUPS: dict[str, list[dict[str, str]]] = {
    "LayerNorm comes after attention and MLP, as in the original Transformer (post-norm). In GPT-2 "
    "it comes before them (pre-norm), and there is one more after all blocks.": [
        IN_BLOCKS,
        IN_BLOCKS | {"final": "x"},
    ],
    "This is RMSNorm. LayerNorm subtracts the mean first, and adds a bias.": [
        dict.fromkeys(NORMS, "x / np.sqrt(mean(np.square(x)) + epsilon) * gain")
    ],
    "The gain and the bias are missing.": [dict.fromkeys(NORMS, "normalised(x, epsilon)")],
    NO_SUM: [{"attention.weights": "np.exp(masked_scores)"}],
    "All keys get the same weight: the scores have no effect.": [
        {"attention.weights": "mask / mask.sum(axis=-1, keepdims=True) + 0 * scores"},
        {"attention.weights": "1 / T + 0 * scores"},
    ],
    "The mask is applied after the softmax, so rows no longer sum to 1. Mask the scores before the "
    "softmax.": [{"attention.weights": "softmax(scores) * mask"}],
    "The columns of QKV are Q of all heads, then K of all heads, then V. Split it into three parts "
    "first, then each part into heads.": [
        {f"attention.{x}": f"{OF_EACH_HEAD}[{n}]" for n, x in enumerate("QKV")}
    ],
    "The columns of W_QKV are W_Q, W_K, W_V, in this order.": [
        {f"attention.{x}": PROJECTED.format(order[n]) for n, x in enumerate("QKV") if x != order[n]}
        for order in ("QVK", "KQV", "VKQ", "KVQ", "VQK")
    ],
}


def runs_with_mistakes(run: Run, submitted: Sequence[Submission]) -> Iterator[tuple[Mistake, Run]]:
    """Mistakes with all parameters, each with its run."""
    parameters = [
        path
        for path in upstream(run.graph, [step.path for step in submitted])
        if run.graph[path].is_input and getattr(run.value(path), "dtype", np.dtype(int)).kind == "f"
    ]
    mistake = Mistake("parameters = parameters.astype(float16)", Message(LOAD_FLOAT32))
    yield mistake, with_changes(run, dict.fromkeys(parameters, as_float16))
    if run.graph.n_layer > 1:
        first = {
            path: with_equation(run.graph[path], identity, [re.sub(r"\d+", "0", path, count=1)])
            for path in parameters
            if parse(path).layer
        }
        yield Mistake("parameters[n] = parameters[0]", Message(OF_BLOCKS)), with_nodes(run, first)


# ---- relations of numbers ------------------------------------------------------------------------

# A relation must hold in at least so many cells, since a few numbers may agree by chance.
MIN_CELLS = 6
MIN_CELLS_OF_SUM = 24

# Terms are independent if their singular values differ less, such as not the scores before and
# after the division: huge multiples of them cancel to anything.
MIN_SINGULAR = 1e-4


def few_differ(submission: Submission) -> bool:
    """Whether so few cells differ that they may agree with other numbers by chance."""
    return int((submission.difference > submission.tolerance).sum()) < MIN_CELLS


def same_numbers(run: Run, submission: Submission) -> Iterator[Mistake]:
    """Other steps that have the user's numbers: of another layer or head, or later ones."""
    graph, path = run.graph, submission.path
    counts = {"blocks": graph.n_layer, "heads": run.scores_shape[-3:][0]}
    paths = [x for pattern, _ in steps_below(graph.root, "*") for x in fill(pattern, counts)]
    name, stream = table_name(graph, path), ("embedding", "input", "mid", "output")
    for other in paths if not few_differ(submission) else ():
        is_later = name in stream and table_name(graph, other) in stream[2:]
        is_candidate = is_later or table_name(graph, other) == name
        if other == path or not is_candidate or ("heads." in other) != ("heads." in path):
            continue
        if submission.equals(numbers_at(run, other)):
            hint = IN_PLACE if is_later and path in upstream(graph, [other]) else OTHER_PLACE
            yield Mistake(f"{path.rpartition('.')[2]} = {other}", Message(hint))


def relations(
    submission: Submission, others: Mapping[str, AnyArray], operands: Sequence[str]
) -> Iterator[Mistake]:
    """What the user's numbers are to the right ones, and to those of other steps, by name."""
    name = submission.path.rpartition(".")[2]
    mine, expected = (np.asarray(x, np.float64) for x in (submission.nearest, submission.expected))
    # Neither masked nor so large that a ratio overflows; false of NaN.
    if few_differ(submission) or not max(np.abs(mine).max(), np.abs(expected).max()) < -MASKED:
        return
    # Dropout with probability p scales what it keeps by 1 / (1 - p).
    is_zero = np.abs(mine) <= submission.tolerance
    is_large = np.abs(expected) > 8 * submission.tolerance  # clearly not 0
    kept = is_large & ~is_zero
    ratio = float(np.median(mine[kept] / expected[kept])) if kept.sum() > 1 else 0.0
    is_scaled = np.abs(mine - ratio * expected) <= 2 * ratio * submission.tolerance
    if ratio > 1.001 and (is_large & is_zero).any() and (is_zero | is_scaled).all():
        formula = Message("{name} with dropout, p = {p:.2g}", name=name, p=1 - 1 / ratio)
        yield Mistake(formula, Message(DROPOUT), ("model.eval()",))
        return
    terms = {
        n: np.asarray(others[n], np.float64)
        for n in sorted(others, key=lambda n: n not in operands)
        if others[n].shape == expected.shape and np.isfinite(others[n]).all()
    }
    terms[name] = expected
    sums = [(name,), *itertools.combinations(terms, 2)]
    is_enough = expected.size >= MIN_CELLS_OF_SUM and not submission.is_half
    for some in sums if is_enough else sums[:1]:
        columns = np.stack([terms[n].ravel() for n in some], axis=1)
        factors, _, rank, _ = np.linalg.lstsq(columns, mine.ravel(), rcond=MIN_SINGULAR)
        if rank < len(some):
            continue
        rest = np.abs((columns @ factors).reshape(mine.shape) - mine)
        slack = 4 * len(some) * max(1.0, np.abs(factors).max()) * submission.tolerance
        is_all = rest.max() <= MAX_REMAINING * np.abs(mine - expected).max()
        if is_all and (rest <= slack).all() and np.abs(factors).min() > 1e-3:
            code = " + ".join(f"{k:.5g} * {n}" for k, n in zip(factors, some, strict=True))
            yield Mistake(f"{name} = {code}", Message(SUM))
            return
