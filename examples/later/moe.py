# %% [markdown]
# # MoE: a few of many MLPs
#
# Two thirds of a block's parameters are its MLP ([chapter 9](../09_counting_parameters.py)), and
# every token goes through all of it. A **mixture of experts** (MoE: Shazeer and others, 2017) has
# many MLPs, the **experts**, and a **router** that sends each token to a few of them: more
# parameters for the same work. Here we cut an MLP of the pocket model into experts.

# %%
import numpy as np

import attnlab
from attnlab import pictures
from attnlab.equations import AnyArray, Array
from attnlab.support.console import prepare_script

prepare_script()  # print on any terminal, and into pipes

TEXT = "The dog chased the ball, but it"
EXPERTS, ACTIVE = 8, 2

trace = attnlab.GPT2.from_pretrained("pocket").trace(TEXT)
mlp, words = trace.blocks[1].mlp, trace.tokens.symbols
T, D = mlp.X.shape

# %% [markdown]
# ## An MLP is a sum of experts
#
# Each hidden number has one column of W_1 and one row of W_2, and the output is the sum of what all
# of them write. So the hidden numbers can be dealt out to experts, and the experts' outputs add up
# to the MLP's, exactly. A dense MLP is a mixture in which every expert runs.

# %%
experts = np.array_split(np.arange(mlp.W_1.shape[1]), EXPERTS)  # which hidden numbers each has


def expert(x: Array, indices: AnyArray) -> Array:
    """What one expert writes."""
    hidden = x @ mlp.W_1[:, indices] + mlp.b_1[indices]
    written: Array = mlp.activation(hidden) @ mlp.W_2[indices]
    return written


outputs = np.stack([expert(mlp.X, indices) for indices in experts])  # (experts, T, D)
rounding = np.abs(outputs.sum(axis=0) + mlp.b_2 - mlp.output).max()
print(f"{EXPERTS} experts of {len(experts[0])} hidden numbers")
print(f"their sum and the MLP's output: at most {rounding:.0e} apart")

# %% [markdown]
# ## The router
#
# A router is a small matrix: its logits say how much each expert is wanted, the `ACTIVE` most
# wanted ones run, and softmax of their logits gives their **gates**. Ours is not trained. Instead
# it uses the length of what each expert actually writes. No router that ranks experts by length can
# do better. A real router must predict the lengths from X, without running the experts.

# %%
lengths = np.linalg.norm(outputs, axis=-1).T  # (T, experts)
chosen = np.argsort(-lengths, axis=1)[:, :ACTIVE]
is_active = np.zeros((T, EXPERTS), bool)
np.put_along_axis(is_active, chosen, True, axis=1)
gates = attnlab.softmax(np.where(is_active, lengths, -np.inf))
names = [f"expert {e}" for e in range(EXPERTS)]
print(attnlab.table(gates, rows=words, columns=names, decimals=2))
print(f"tokens for each expert: {is_active.sum(axis=0).tolist()}")
pictures.heatmap(lengths, rows=words, columns=names, title="length of what an expert writes")

# %% [markdown]
# ## What it saves, and what it costs
#
# Only the experts that run are computed. (Their outputs are added here without gates, since that is
# how the MLP was trained.) The more of them run, the nearer the sum is to the MLP's output.

# %%
errors: dict[str, list[float]] = {}
for active in range(1, EXPERTS + 1):
    best = np.argsort(-lengths, axis=1)[:, :active]
    partial_sum = np.take_along_axis(outputs, best.T[:, :, None], axis=0).sum(axis=0)
    error = np.linalg.norm(partial_sum + mlp.b_2 - mlp.output) / np.linalg.norm(mlp.output)
    errors[f"{active} of {EXPERTS}"] = [active / EXPERTS, float(error)]
columns = ["fraction of the work", "relative error"]
print(attnlab.table([*errors.values()], rows=[*errors], columns=columns, decimals=2))

# %% [markdown]
# An MLP that was trained as one spreads its work over all its parts, so leaving some out costs
# much. Experts that are trained as experts divide the work. But a router likes to send everything
# to the same few: training adds a loss that rewards an even load (Switch Transformers: Fedus, Zoph
# and Shazeer, 2021). Mixtral (2023) has 8 experts and runs 2, DeepSeek-V3 (2024) has 256 and runs
# 8, besides one that always runs.
