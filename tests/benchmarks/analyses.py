"""The analyses, as each tool computes them; `run.py` fails unless their numbers agree.

An analysis is a function of a tool's model, a text, and another of the same length. "plain" is the
independent check in plain NumPy, which isn't timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from atlas import attnlab_atlas, hf_atlas, plain_atlas
from numpy.typing import NDArray
from plain import PlainGPT2
from tools import Ids, load_attnlab, load_transformer_lens, load_transformers

Numbers = NDArray[Any]

# Two tokens; the difference of their logits is patched, attributed and differentiated.
TOKEN, AGAINST = 318, 13

# The size of a step for differences in float64.
STEP = 1e-4


def direction(heads: int, length: int) -> Numbers:
    """A direction in which a layer's weights change, (H, T, T)."""
    return np.random.default_rng(0).standard_normal((heads, length, length))


def along(gradients: Numbers) -> Numbers:
    """The target's derivative in that direction, (L, H, T, T) -> (L,)."""
    _, H, T, _ = gradients.shape
    change: Numbers = (gradients * direction(H, T)).sum(axis=(1, 2, 3))
    return change


# attnlab. Each makes a new trace, so that every run does all the work.


def attnlab_patching(model: Any, text: Ids, other: Ids) -> Numbers:
    import attnlab

    clean, corrupted = model.trace(text), model.trace(other)
    return attnlab.patch(clean, corrupted, metric=(TOKEN, AGAINST), progress=False).restored


def attnlab_lens(model: Any, text: Ids, _: Ids) -> Any:
    return model.trace(text).logit_lens().probabilities


def attnlab_attribution(model: Any, text: Ids, _: Ids) -> Any:
    return model.trace(text).attribution(TOKEN, AGAINST).heads


def attnlab_gradients(model: Any, text: Ids, _: Ids) -> Numbers:
    gradients = model.trace(text).gradients(TOKEN, AGAINST)
    return along(np.stack([block.attention.weights for block in gradients.blocks]))


def attnlab_composition(model: Any, text: Ids, _: Ids) -> Any:
    return model.trace(text).composition("K").scores


# transformers, with hooks.


@contextmanager
def before(modules: list[Any], hook: Callable[[Any], Any]) -> Iterator[None]:
    """A context in which a hook sees, and may replace, the modules' inputs."""
    with ExitStack() as stack:
        for module in modules:
            handle = module.register_forward_pre_hook(lambda _, args: hook(args[0]))
            stack.callback(handle.remove)
        yield


def hf_next_logits(model: Any, ids: Ids, **options: Any) -> tuple[Any, Any]:
    """The last logits (vocab,), and everything that the model returns."""
    import torch

    output = model(torch.from_numpy(ids)[None], use_cache=False, logits_to_keep=1, **options)
    return output.logits[0, -1], output


def hf_difference(model: Any, ids: Ids) -> float:
    logits, _ = hf_next_logits(model, ids)
    return float(logits[TOKEN] - logits[AGAINST])


def hf_patching(model: Any, text: Ids, other: Ids) -> Numbers:
    modules = [block.attn.c_proj for block in model.transformer.h]
    contexts: list[Any] = []
    with before(modules, contexts.append):
        clean = hf_difference(model, text)
    corrupted = hf_difference(model, other)
    Dh = model.config.n_embd // model.config.n_head
    restored = np.empty((len(modules), model.config.n_head))
    for layer, head in np.ndindex(*restored.shape):
        columns = slice(head * Dh, (head + 1) * Dh)

        def put_in(context: Any, wanted: Any = contexts[layer], columns: slice = columns) -> Any:
            patched = context.clone()
            patched[..., columns] = wanted[..., columns]
            return patched

        with before([modules[layer]], put_in):
            restored[layer, head] = (hf_difference(model, other) - corrupted) / (clean - corrupted)
    return restored


def hf_lens(model: Any, text: Ids, _: Ids) -> Any:
    """By hooks, as hidden_states have no stops between attention and MLP."""
    import torch

    norms = [norm for block in model.transformer.h for norm in (block.ln_1, block.ln_2)]
    norms += [model.transformer.ln_f]
    stops: list[Any] = []
    with before(norms, stops.append):
        hf_next_logits(model, text)
    return most_probable(model.lm_head(model.transformer.ln_f(torch.cat(stops))))


def most_probable(logits: Any) -> Any:
    return logits.softmax(-1).amax(-1)


def hf_attribution(model: Any, text: Ids, _: Ids) -> Any:
    import torch

    ln, heads = model.transformer.ln_f, (model.config.n_head, -1)
    modules = [block.attn.c_proj for block in model.transformer.h]
    inputs: list[Any] = []
    with before([*modules, ln], inputs.append):
        hf_next_logits(model, text)
    *contexts, stop = (x[0, -1] for x in inputs)
    written = torch.stack(
        [
            torch.einsum("hk,hkd->hd", context.unflatten(0, heads), W_O.unflatten(0, heads))
            for context, W_O in zip(contexts, (module.weight for module in modules), strict=True)
        ]
    )
    deviation = (stop.var(correction=0) + ln.eps).sqrt()
    normal = (written - written.mean(-1, keepdim=True)) / deviation * ln.weight
    return normal @ (model.lm_head.weight[TOKEN] - model.lm_head.weight[AGAINST])


def hf_gradients(model: Any, text: Ids, _: Ids) -> Numbers:
    """Gradients of the weights only; autograd doesn't compute those of the parameters."""
    import torch

    with torch.enable_grad():
        logits, output = hf_next_logits(model, text, output_attentions=True)
        results = torch.autograd.grad(logits[TOKEN] - logits[AGAINST], output.attentions)
    return along(torch.cat(results).numpy())


# TransformerLens, for what it does in a line or two.


def lens_lens(model: Any, text: Ids, _: Ids) -> Any:
    import torch

    ids = torch.from_numpy(text)[None]
    _, cache = model.run_with_cache(ids, use_cache=False, logits_to_keep=1)
    stops = cache.accumulated_resid(incl_mid=True)[:, 0]
    return most_probable(model.unembed(model.ln_final(stops)))


def lens_composition(model: Any, text: Ids, _: Ids) -> Any:
    if not getattr(model, "is_folded", False):  # LayerNorm, into the weights
        model.enable_compatibility_mode()
        model.is_folded = True
    return model.all_composition_scores("K").scores


# Plain NumPy, in float64.


class RecordingGPT2(PlainGPT2):
    """Record inputs of linear maps and LayerNorms by name in `inputs`; add `patches` to them."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.w = {name: array.astype(np.float64) for name, array in self.w.items()}
        self.columns = np.split(np.arange(self.w["wte.weight"].shape[1]), self.n_head)
        self.heads = list(np.ndindex(self.n_layer, self.n_head))

    def difference(self, ids: Ids, **patches: Numbers) -> float:
        self.inputs: dict[str, Any] = {}
        self.patches = patches
        logits = self.next_logits(ids)
        return float(logits[TOKEN] - logits[AGAINST])

    def linear(self, name: str, x: Any) -> Any:
        return super().linear(name, self.entering(name, x))

    def layer_norm(self, name: str, x: Any) -> Any:
        return super().layer_norm(name, self.entering(name, x))

    def entering(self, name: str, x: Any) -> Any:
        self.inputs[name] = x + self.patches.get(name, 0)
        return self.inputs[name]

    def contexts(self) -> list[Numbers]:
        """(T, D) of each layer."""
        return [self.inputs[f"h.{layer}.attn.c_proj"] for layer in range(self.n_layer)]

    def patched(self, ids: Ids, layer: int, added: Numbers) -> float:
        """The logits' difference if a change (T, D) is added to the concatenated contexts."""
        return self.difference(ids, **{f"h.{layer}.attn.c_proj": added})

    def head_weights(self, layer: int, head: int) -> list[Numbers]:
        """W_Q, W_K, W_V, (D, Dh), and W_O, (Dh, D)."""
        thirds = np.split(self.w[f"h.{layer}.attn.c_attn.weight"], 3, axis=-1)
        columns = self.columns[head]
        W_O = self.w[f"h.{layer}.attn.c_proj.weight"][columns]
        return [*(third[:, columns] for third in thirds), W_O]


def plain_patching(model: RecordingGPT2, text: Ids, other: Ids) -> Numbers:
    clean, contexts = model.difference(text), model.contexts()
    corrupted = model.difference(other)
    changes = [target - now for target, now in zip(contexts, model.contexts(), strict=True)]
    results = []
    for layer, head in model.heads:
        columns = model.columns[head]
        change = np.zeros_like(changes[layer])
        change[:, columns] = changes[layer][:, columns]
        results.append(model.patched(other, layer, change))
    return (np.array(results) - corrupted) / (clean - corrupted)


def plain_lens(model: RecordingGPT2, text: Ids, _: Ids) -> Numbers:
    model.difference(text)
    last = f"h.{model.n_layer - 1}"
    names = [f"h.{layer}.{norm}" for layer in range(model.n_layer) for norm in ("ln_1", "ln_2")]
    stops = [model.inputs[name] for name in names]
    stops.append(stops[-1] + model.mlp(f"{last}.mlp", model.layer_norm(f"{last}.ln_2", stops[-1])))
    exponentials = np.exp(model.layer_norm("ln_f", np.stack(stops)) @ model.w["wte.weight"].T)
    probabilities: Numbers = exponentials.max(-1) / exponentials.sum(-1)
    return probabilities


def plain_attribution(model: RecordingGPT2, text: Ids, _: Ids) -> Numbers:
    model.difference(text)
    contexts, W_E = model.contexts(), model.w["wte.weight"]
    scale = np.sqrt(model.inputs["ln_f"].var() + 1e-5)
    through_gain = model.w["ln_f.weight"] * (W_E[TOKEN] - W_E[AGAINST]) / scale
    results = []
    for layer, head in model.heads:
        *_, W_O = model.head_weights(layer, head)
        written = contexts[layer][-1, model.columns[head]] @ W_O
        results.append((written - written.mean()) @ through_gain)
    return np.array(results)


def plain_gradients(model: RecordingGPT2, text: Ids, _: Ids) -> Numbers:
    """Central differences: weights that change by S change the context by S V."""
    model.difference(text)
    entered = [model.inputs[f"h.{layer}.attn.c_attn"] for layer in range(model.n_layer)]
    results = []
    for layer, x in enumerate(entered):
        QKV = PlainGPT2.linear(model, f"h.{layer}.attn.c_attn", x)
        V = np.split(QKV, 3, axis=-1)[2]
        S = STEP * direction(model.n_head, len(text))
        step = np.hstack([S[h] @ V[:, columns] for h, columns in enumerate(model.columns)])
        above, below = (model.patched(text, layer, by * step) for by in (1, -1))
        results.append((above - below) / (2 * STEP))
    return np.array(results)


def plain_composition(model: RecordingGPT2, text: Ids, _: Ids) -> Numbers:
    """‖A M B‖² = Σ (AᵀA M BBᵀ) · M, where M = W_O W_K connects the two heads."""

    def size(A: Numbers, M: Numbers, B: Numbers) -> float:
        return float(np.sqrt((A.T @ A @ M @ (B @ B.T) * M).sum()))

    def folded(layer: int, head: int) -> list[Numbers]:
        """W_Q, W_K, W_V and W_O, LayerNorm's gain and centring folded in."""
        *reading, W_O = model.head_weights(layer, head)
        gained = [model.w[f"h.{layer}.ln_1.weight"][:, None] * W for W in reading]
        return [*(W - W.mean(axis=0) for W in gained), W_O - W_O.mean(axis=1, keepdims=True)]

    weights = [folded(*head) for head in model.heads]
    identity = np.eye(len(model.columns[0]))
    results = np.zeros((len(weights), len(weights)))
    for i, (_, _, W_V, W_O) in enumerate(weights):
        for j, (W_Q, W_K, _, _) in enumerate(weights):
            if model.heads[i][0] < model.heads[j][0]:
                sizes = size(W_V, identity, W_O) * size(W_K, identity, W_Q.T)
                results[i, j] = size(W_V, W_O @ W_K, W_Q.T) / sizes
    return results


MODELS: dict[str, Callable[[Path], Any]] = {
    "plain": RecordingGPT2,
    "attnlab": load_attnlab,
    "eager": lambda directory: load_transformers(directory, "eager"),
    "lens": load_transformer_lens,
}

ANALYSES: dict[str, dict[str, Callable[[Any, Ids, Ids], Any]]] = {
    "patching": {"plain": plain_patching, "attnlab": attnlab_patching, "eager": hf_patching},
    "lens": {"plain": plain_lens, "attnlab": attnlab_lens, "eager": hf_lens, "lens": lens_lens},
    "attribution": {
        "plain": plain_attribution,
        "attnlab": attnlab_attribution,
        "eager": hf_attribution,
    },
    "gradients": {"plain": plain_gradients, "attnlab": attnlab_gradients, "eager": hf_gradients},
    "atlas": {"plain": plain_atlas, "attnlab": attnlab_atlas, "eager": hf_atlas},
    "composition": {
        "plain": plain_composition,
        "attnlab": attnlab_composition,
        "lens": lens_composition,
    },
}
