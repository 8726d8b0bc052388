"""GPT-2 in PyTorch, in half precision: float16, bfloat16, autocast."""

import math
from typing import Any

import numpy as np

MISTAKES = ("no_scale", "gelu_sigmoid", "no_b_2", "ln_no_bias", "ln_rms")


def steps_in_half(
    model: Any, ids: Any, kind: str, wrong: str = "", by_hand: bool = False
) -> dict[str, Any]:
    """Every step as a tensor.

    Parameters
    ----------
    kind : "float16" or "bfloat16", or one of them after "autocast "
    wrong : one of `MISTAKES`, or ""
    by_hand : LayerNorm and GELU by single operations, each of which rounds
    """
    import torch
    from torch.nn import functional

    dtype = getattr(torch, kind.removeprefix("autocast "))
    is_autocast = kind.startswith("autocast")
    epsilon, n_head = model.config.layer_norm_epsilon, model.config.n_head
    stored = torch.float32 if is_autocast else dtype
    p = {path: torch.tensor(np.array(x)).to(stored) for path, x in model.parameters.items()}
    T, steps = len(ids), dict[str, Any]()

    def norm(x: Any, prefix: str) -> Any:
        gain, bias = p[f"{prefix}gain"], p[f"{prefix}bias"]
        if wrong == "ln_rms":
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * gain
        bias = torch.zeros_like(bias) if wrong == "ln_no_bias" else bias
        if not by_hand:
            return functional.layer_norm(x, x.shape[-1:], gain, bias, epsilon)
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + epsilon) * gain + bias

    def gelu(x: Any) -> Any:
        if wrong == "gelu_sigmoid":
            return x * torch.sigmoid(1.702 * x)
        if by_hand:
            return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return functional.gelu(x, approximate="tanh")

    with torch.no_grad(), torch.autocast("cpu", dtype=dtype, enabled=is_autocast):
        x = p["W_E"][torch.tensor(np.asarray(ids))] + p["W_P"][:T]
        steps["embedding"] = x
        for layer in range(model.config.n_layer):
            block = f"blocks.{layer}."
            attention, mlp = f"{block}attention.", f"{block}mlp."
            X = norm(x, attention)
            QKV = X @ p[f"{attention}W_QKV"] + p[f"{attention}b_QKV"]
            Q, K, V = (part.reshape(T, n_head, -1).transpose(0, 1) for part in QKV.chunk(3, -1))
            scores = Q @ K.transpose(1, 2)
            if wrong != "no_scale":
                scores = scores / math.sqrt(Q.shape[-1])
            future = torch.ones(T, T, dtype=torch.bool).triu(1)
            weights = scores.masked_fill(future, torch.finfo(scores.dtype).min).softmax(-1)
            context = weights.to(V.dtype) @ V
            concat = context.transpose(0, 1).reshape(T, -1)
            output = concat @ p[f"{attention}W_O"] + p[f"{attention}b_O"]
            mid = x + output
            named = {"X": X, "Q": Q, "K": K, "V": V, "scores": scores, "weights": weights}
            named |= {"context": context, "concat": concat, "output": output}
            steps |= {attention + name: step for name, step in named.items()}
            X = norm(mid, mlp)
            hidden = X @ p[f"{mlp}W_1"] + p[f"{mlp}b_1"]
            activated = gelu(hidden)
            output = activated @ p[f"{mlp}W_2"]
            if wrong != "no_b_2":
                output = output + p[f"{mlp}b_2"]
            x = mid + output
            named = {"X": X, "hidden": hidden, "activated": activated, "output": output}
            steps |= {mlp + name: step for name, step in named.items()}
            steps |= {f"{block}mid": mid, f"{block}output": x}
        steps["final"] = norm(x, "")
        steps["logits"] = steps["final"] @ p["W_E"].T
    return steps
