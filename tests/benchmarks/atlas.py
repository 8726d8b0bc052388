"""An independent implementation of `attnlab.atlas`'s measures, in PyTorch and plain NumPy.

The arithmetic is written once, over all layers at once, for arrays of either library.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray
from plain import PlainGPT2

Numbers = NDArray[Any]
Ids = NDArray[np.int64]

# Few different ids, so that tokens repeat.
VOCABULARY = 50


def repeating(ids: Ids) -> Ids:
    return ids % VOCABULARY


def targets_of(ids: Ids) -> dict[str, Numbers]:
    """The targets of each query, (T, T), by measure; for "distance", the distances."""
    T = len(ids)
    same = np.tril(ids[:, None] == ids, -1)
    induction = np.zeros((T, T))
    for query in np.flatnonzero(same.any(1)):
        induction[query, np.flatnonzero(same[query])[-1] + 1] = 1
    first = np.zeros((T, T))
    first[1:, 0] = 1
    distance = np.tril(np.arange(T)[:, None] - np.arange(T))
    jobs = (first, np.eye(T, k=-1), same, induction, distance)
    return dict(zip(("first", "previous", "same", "induction", "distance"), jobs, strict=True))


def measures(
    xp: Any,
    third: Callable[[Any], Any],
    ids: Ids,
    weights: Any,
    values: Any,
    contexts: Any,
    W_O: Any,
    streams: Any,
    others: Any,
    u: Any,
    logits: Any,
) -> Numbers:
    """Every measure of every head, each as a fraction of its largest, and the loss.

    Parameters
    ----------
    xp : numpy, or torch
    third : the third largest of the first axis
    weights, values, contexts : (L, H, T, T), and (L, H, T, Dh) twice
    W_O : (L, H, Dh, D)
    streams : (L, T, D), each block's input
    others : (L + 1, T, D), what the embedding and the MLPs write
    u : (T - 1, D), the direction of the next token's logit, by the last LayerNorm's gain
    logits : (T, vocab)
    """
    L, H, T, _ = weights.shape
    results: dict[str, tuple[Any, Any]] = {}

    def array(numbers: Any) -> Any:
        numbers = np.asarray(numbers, np.float64)
        return numbers if xp is np else xp.from_numpy(numbers).to(weights.dtype)

    def length(x: Any) -> Any:
        return ((x @ W_O) ** 2).sum(-1) ** 0.5  # (L, H, T)

    without_first = np.arange(T) > 0
    of_values = length(values)
    for job, targets in targets_of(ids).items():
        for kind, keys, is_included in (
            ("", array(np.ones(T)), np.ones(T, bool)),
            ("_without_first", array(without_first), without_first),
            ("_by_value", of_values, np.ones(T, bool)),
        ):
            if job + kind in ("first_without_first", "distance_by_value"):
                continue
            rows = array((targets[:, is_included] != 0).any(-1))
            on_targets = xp.einsum("lhtk,tk->lhk", weights, array(targets))
            on_all = xp.einsum("lhtk,t->lhk", weights, rows)
            results[job + kind] = ((on_targets * keys).sum(-1), (on_all * keys).sum(-1))

    def disorder(x: Any) -> Any:
        return -x * xp.log(xp.where(x > 0, x, xp.ones_like(x)))

    for kind, start in (("", 0), ("_without_first", 1)):
        visible = weights[:, :, start + 1 :, start:]
        rest = visible.sum(-1)
        numbers = (disorder(visible).sum(-1) - disorder(rest)).sum(-1)
        results["entropy" + kind] = numbers, rest.sum(-1)
    stream = (streams**2).sum(-1) ** 0.5
    results["size"] = (length(contexts) / stream[:, None]).sum(-1), T
    through = xp.einsum("lhkd,td->lhtk", W_O, u)
    heads = (contexts[:, :, :-1] * through).sum(-1).reshape(L * H, T - 1)
    parts = xp.concatenate([heads, (others[:, :-1] * u).sum(-1)])
    results["writer"] = array((heads >= third(parts)).sum(-1)).reshape(L, H), T - 1
    means = [np.asarray(sums / divisors).ravel() for sums, divisors in results.values()]
    before, largest = logits[:-1], logits[:-1].max()
    expected = xp.log(xp.exp(before - largest).sum(-1)) + largest
    loss = float((expected - before[np.arange(T - 1), ids[1:]]).mean())
    return np.concatenate([*(mean / np.abs(mean).max() for mean in means), [loss]])


def attnlab_atlas(model: Any, text: Ids, _: Ids) -> Numbers:
    from attnlab.corpus.measures import as_measures, measure_trace

    results = measure_trace(model.trace(repeating(text)), as_measures(None))
    jobs = list(targets_of(text))
    kinds = ("", "_without_first", "_by_value")
    names = [job + kind for job in jobs for kind in kinds if job + kind in results]
    names += ["entropy", "entropy_without_first", "size", "writer"]
    means = [(results[name].sums / results[name].divisors).ravel() for name in names]
    loss = results["loss"].sums / results["loss"].divisors
    return np.concatenate([*(mean / np.abs(mean).max() for mean in means), [loss]])


def hf_atlas(model: Any, text: Ids, _: Ids) -> Numbers:
    """Measure with eager attention, which returns all weights, and hooks for the rest."""
    import torch

    ids, blocks = repeating(text), model.transformer.h
    H, Dh = model.config.n_head, model.config.n_embd // model.config.n_head
    streams, contexts, QKV, mlps = ([], [], [], [])  # type: ignore[var-annotated]
    with ExitStack() as stack:
        for block in blocks:
            for handle in (
                block.ln_1.register_forward_pre_hook(lambda _, x: streams.append(x[0][0])),
                block.attn.c_proj.register_forward_pre_hook(lambda _, x: contexts.append(x[0][0])),
                block.attn.c_attn.register_forward_hook(lambda _, x, y: QKV.append(y[0])),
                block.mlp.register_forward_hook(lambda _, x, y: mlps.append(y[0])),
            ):
                stack.callback(handle.remove)
        batch = torch.from_numpy(ids)[None]
        output = model(batch, use_cache=False, output_attentions=True)

    def in_heads(x: Any) -> Any:
        return x.unflatten(-1, (H, Dh)).transpose(1, 2)

    u = model.lm_head.weight[ids[1:]] * model.transformer.ln_f.weight
    return measures(
        torch,
        lambda parts: parts.topk(3, dim=0).values[-1],
        ids,
        torch.cat(output.attentions),
        in_heads(torch.stack(QKV).chunk(3, dim=-1)[2]),
        in_heads(torch.stack(contexts)),
        torch.stack([block.attn.c_proj.weight.unflatten(0, (H, Dh)) for block in blocks]),
        torch.stack(streams),
        torch.stack([streams[0], *mlps]),
        u - u.mean(-1, keepdim=True),
        output.logits[0],
    )


def plain_atlas(model: Any, text: Ids, _: Ids) -> Numbers:
    """Record each linear map's input in float64, and compute the rest from it."""
    ids, H = repeating(text), model.n_head
    model.difference(ids)
    layers = [f"h.{layer}" for layer in range(model.n_layer)]

    def in_heads(x: Numbers) -> Numbers:
        return np.stack(np.split(x, H, axis=-1))

    weights, values, mlps = [], [], []
    for layer in layers:
        QKV = PlainGPT2.linear(model, f"{layer}.attn.c_attn", model.inputs[f"{layer}.attn.c_attn"])
        Q, K, V = map(in_heads, np.split(QKV, 3, axis=-1))
        scores = np.where(
            np.tri(len(ids)) > 0, Q @ K.swapaxes(1, 2) / np.sqrt(Q.shape[-1]), -np.inf
        )
        exponentials = np.exp(scores - scores.max(-1, keepdims=True))
        weights.append(exponentials / exponentials.sum(-1, keepdims=True))
        values.append(V)
        hidden = model.inputs[f"{layer}.mlp.c_proj"]
        mlps.append(PlainGPT2.linear(model, f"{layer}.mlp.c_proj", hidden))
    streams = [model.inputs[f"{layer}.ln_1"] for layer in layers]
    u = model.w["wte.weight"][ids[1:]] * model.w["ln_f.weight"]
    last = model.inputs[f"{layers[-1]}.ln_2"] + mlps[-1]
    return measures(
        np,
        lambda parts: np.sort(parts, axis=0)[-3],
        ids,
        np.stack(weights),
        np.stack(values),
        np.stack([in_heads(context) for context in model.contexts()]),
        np.stack([np.split(model.w[f"{layer}.attn.c_proj.weight"], H) for layer in layers]),
        np.stack(streams),
        np.stack([streams[0], *mlps]),
        u - u.mean(-1, keepdims=True),
        model.layer_norm("ln_f", last) @ model.w["wte.weight"].T,
    )
