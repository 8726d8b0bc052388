"""Details of each head over a corpus: what it attends to and writes.

They are computed from a corpus's sums, see `heads`, and the model. They are tables, each with a
definition, and have a standard error for each mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from attnlab.corpus.heads import PAIRS, SHOWN, Plan
from attnlab.corpus.tally import MIN_TEXTS, Tally, ratio, require
from attnlab.equations import AnyArray
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import largest_ids
from attnlab.support.messages import Message
from attnlab.support.sink import NOTABLE
from attnlab.support.tables import Columns

LISTED = 12  # token pairs in a table
WRITTEN = 8  # tokens that a head promotes most, and as many that it demotes most
PROMOTED = 3  # tokens that the query of a top text promotes

# Each table's title, the definition of its numbers, and the type of each column's cells.
NUMBERS = {"mean": float, "error": float}
TABLES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "positions": (
        "Weight by position of the key",
        "Mean weight that a query gives to a key at this position of its window, among the queries "
        "that see it. The first query is skipped, so position 0 has what rests on the first token.",
        {"from": int, "to": int, **NUMBERS, "texts": int},
    ),
    "distances": (
        "Weight by distance",
        "Mean weight that a query gives to the token this many tokens back, among the queries that "
        "have one; a window’s first token is left out.",
        {"from": int, "to": int, **NUMBERS, "texts": int},
    ),
    "pairs": (
        "Token pairs",
        "Mean weight that a query token gives to all earlier occurrences of a key token together, "
        "among the queries that see one. A window’s first token is left out. Only the pairs "
        "in the most texts are measured, at most {pairs}, and listed if they are in {texts} texts.",
        {"query": str, "key": str, **NUMBERS, "texts": int, "queries": int},
    ),
    "writes": (
        "What it writes to the next word",
        "What the head’s output, context W_O, adds to a token’s logit, less the mean of all "
        "tokens. It is a mean over positions, each with its own deviation of the last LayerNorm. A "
        "window’s first position is left out. Later heads and MLPs aren’t counted.",
        {"token": str, "id": int, **NUMBERS},
    ),
    "tops": (
        "Top texts",
        "Where the head attends most strongly away from the first token. The number is the sum, "
        "over up to {shown} successive queries, of how far the largest weight exceeds uniform "
        "attention.",
        {
            "text": str,
            "window": int,
            "from": int,
            "strength": float,
            "query": str,
            "key": str,
            "weight": float,
            "content": str,
            "promotes": list,
            "ids": list,  # of `tokens`
            "earlier": list,  # the tokens before these in the window
            "tokens": list,
            "lines": list,  # [query, key, weight, excess]; query and key are indices of `tokens`
        },
    ),
}
LIMITS = {"texts": MIN_TEXTS, "shown": SHOWN, "pairs": f"{PAIRS:,}"}

# The tables of one head: table name -> column name -> column.
Details: TypeAlias = dict[str, Columns]


def title_of(name: str) -> Message:
    return Message(TABLES[name][0])


def meaning_of(name: str) -> Message:
    return Message(TABLES[name][1], **LIMITS)


def checked_details(stored: Any, heads: int) -> list[Details]:
    """Read from JSON the details of all heads, or an empty list; raise if they are invalid."""
    details = [
        {
            name: {column: [*map(kind, tables[name][column])] for column, kind in kinds.items()}
            for name, (_, _, kinds) in TABLES.items()
        }
        for tables in stored
    ]
    is_valid = len(details) in (0, heads)
    for tables in details:
        for columns in tables.values():
            is_valid &= len({len(values) for values in columns.values()}) == 1  # all equally long
        for tokens, lines in zip(tables["tops"]["tokens"], tables["tops"]["lines"], strict=True):
            is_valid &= all(0 <= min(i, j) <= max(i, j) < len(tokens) for i, j, *_ in lines)
    require(is_valid, "details")
    return details


def details_of(model: GPT2, plan: Plan, total: Tally) -> list[Details]:
    """The details of all heads, layer by layer, as Python numbers and strings."""
    sums, bins = total.sums, len(plan.bins)
    # Means and standard errors, (rows, L H) each. The sums are N, n, nn and s, ss, sn of `ratio`.
    means, errors = ratio(*sums["n"][..., np.newaxis], *sums["s"])
    details = []
    for head, (writes, promoted) in enumerate(written(model, total)):
        of_head = means[:, head], errors[:, head]
        columns = {
            "positions": bin_columns(plan, total, slice(bins), *of_head),
            "distances": bin_columns(plan, total, slice(bins, 2 * bins), *of_head),
            "pairs": pair_columns(model, plan, total, *of_head),
            "writes": writes,
            "tops": top_columns(model, total, head, promoted),
        }
        details.append(columns)
    return details


def lists(rows: Any, **columns: Any) -> Columns:
    """Select rows of the columns, as lists."""
    return {name: np.asarray(column)[rows].tolist() for name, column in columns.items()}


def bin_columns(plan: Plan, total: Tally, rows: slice, mean: AnyArray, error: AnyArray) -> Columns:
    """The table of positions or of distances, with a line for each bin that has texts."""
    texts = total.sums["n"][0, rows].astype(int)
    bounds = {"from": plan.bins, "to": np.append(plan.bins[1:], plan.window) - 1}
    return lists(texts > 0, **bounds, mean=mean[rows], error=error[rows], texts=texts)


def pair_columns(model: GPT2, plan: Plan, total: Tally, mean: AnyArray, error: AnyArray) -> Columns:
    """The table of the pairs with the largest means."""
    pairs = slice(2 * len(plan.bins), None)
    texts, queries, _ = total.sums["n"][:, pairs].astype(int)
    mean, error = mean[pairs], error[pairs]
    enough = np.flatnonzero(texts >= MIN_TEXTS)
    rows = enough[np.argsort(-mean[enough], kind="stable")][:LISTED]
    query, key = (readable(model, ids) for ids in divmod(plan.pairs[rows], plan.vocab))
    numbers = lists(rows, mean=mean, error=error, texts=texts, queries=queries)
    return {"query": query, "key": key, **numbers}


def readable(model: GPT2, ids: Any) -> list[str]:
    return [model.tokenizer.vocabulary.token(int(id)).readable for id in ids]


def top_columns(model: GPT2, total: Tally, head: int, promoted: Sequence[list[str]]) -> Columns:
    """The table of top texts. Each is a part of a window, with lines to keys in or before it."""
    rows: list[dict[str, Any]] = []
    for top, promotes in zip(total.best["tops"][:, head], promoted, strict=True):
        if not top["strength"] > 0:
            continue
        start, end = int(top["start"]), int(top["end"])
        lines = top["lines"][top["lines"]["excess"] >= NOTABLE].tolist()
        earlier = sorted({key for _, key, *_ in lines if key < start})
        shown, window = [*earlier, *range(start, end)], total.windows[int(top["number"])]
        ids = np.array(window.ids)
        part = model.tokenizer.vocabulary.tokens(ids[start:end])
        query, key, weight, _ = top["lines"][0].item()
        row = {"text": window.text, "window": window.start, "from": window.start + start}
        row |= {"strength": float(top["strength"]), "weight": weight}
        query_text, key_text = readable(model, ids[[query, key]])
        row |= {"query": query_text, "key": key_text}
        row |= {"content": model.tokenizer.decode(ids[start:end]), "promotes": promotes}
        row |= {"ids": window.ids[:end], "earlier": earlier}
        row["tokens"] = [*readable(model, ids[earlier]), *part.readable]
        row["lines"] = [
            [shown.index(q), shown.index(k), round(weight, 3), round(excess, 3)]
            for q, k, weight, excess in lines
        ]
        rows.append(row)
    return {name: [row[name] for row in rows] for name in TABLES["tops"][2]}


def written(model: GPT2, total: Tally) -> Iterator[tuple[Columns, list[list[str]]]]:
    """Yield each head's table "writes", and the tokens that the query of each top text promotes.

    The effect on a token's logit is v · W_U[:, token] minus the mean of v · W_U over tokens, where
    v = gain (o - mean(o)) and o = context W_O. `TextSums.close` already divided the contexts by the
    last LayerNorm's deviation.
    """
    trace, H = model.trace([0]), model.config.n_head
    gain, W_U, known = trace.gain, trace.W_U, model.tokenizer.vocabulary.ids
    W_U = W_U if len(known) == W_U.shape[1] else W_U[:, known]  # without columns that no token has
    centre = W_U.mean(axis=1)
    # Sums over texts, as `ratio` takes them: of contexts (s), of contexts times the number of the
    # text's positions (sn), and of products of two components (ss).
    N, sum_n, sum_nn = total.sums["n_contexts"]
    sum_s, sum_sn = total.sums["contexts"]
    sum_ss = total.sums["squares"]
    count = min(WRITTEN, len(known) // 2) if sum_n else 0  # texts of one token have no contexts
    for layer, block in enumerate(trace._fork().blocks):
        W_O = block.attention.W_O.reshape(H, -1, len(gain))  # (H, Dh, D)
        heads = slice(layer * H, (layer + 1) * H)
        of_tops = total.best["tops"]["context"][:, heads].astype(np.float64)
        contexts = np.concatenate([sum_s[np.newaxis, heads] / max(sum_n, 1), of_tops])
        # Index c counts contexts: first the mean context, then the TOPS contexts of top texts.
        output = np.einsum("chd,hde->che", contexts.astype(W_O.dtype), W_O)
        v = gain * (output - output.mean(axis=-1, keepdims=True))
        effects = v @ W_U - (v @ centre)[..., np.newaxis]  # (1 + TOPS, H, vocab)
        for h, head in enumerate(range(heads.start, heads.stop)):
            rows = np.concatenate(
                [largest_ids(effects[0, h], count), largest_ids(-effects[0, h], count)]
            )
            # A context times p (Dh, rows) is its effect on the tokens of these rows. So the sums of
            # contexts and of their products give the sums of effects and of their squares.
            u = gain[:, np.newaxis] * (W_U[:, rows] - centre[:, np.newaxis])
            p = W_O[h].astype(np.float64) @ (u - u.mean(axis=0))
            squares = ((sum_ss[head] @ p) * p).sum(axis=0)
            mean, error = ratio(N, sum_n, sum_nn, sum_s[head] @ p, squares, sum_sn[head] @ p)
            writes: Columns = {"token": readable(model, known[rows]), "id": known[rows].tolist()}
            writes |= {"mean": mean.tolist(), "error": error.tolist()}
            promoted = [readable(model, known[largest_ids(x[h], PROMOTED)]) for x in effects[1:]]
            yield writes, promoted
