# %% [markdown]
# # Edges: through which readers does a part act?
#
# Patching a head ([chapter 14](../14_what_if.py)) shows that it matters, but not what reads it. The
# embedding, heads and MLPs write to the residual stream. The Q, K and V of later heads, later MLPs
# and the logits read from it. A writer and one of its readers are an **edge**. To patch an edge is
# to change what one reader reads by what one writer writes: one run for each edge. **Edge
# attribution patching** (EAP: Syed and others, 2023) estimates all edges with one gradient.

# %%
import numpy as np

import attnlab
from attnlab import Trace, at
from attnlab.equations import Array
from attnlab.forward import ForwardPass
from attnlab.forward.gradients import layer_norm_gradient
from attnlab.support.console import prepare_script

prepare_script()  # print on any terminal, and into pipes

TEXT, OTHER = "The dog chased the ball, but it", "The cat chased the ball, but it"
TARGET = (" barked", " meowed")  # the metric is the difference of their logits
STEPS, SHOWN = 5, 8  # gradients of EAP-IG, see below; edges in the table

model = attnlab.GPT2.from_pretrained("pocket")
clean, corrupted = model.trace(TEXT), model.trace(OTHER)

# In the order of the forward pass, each reader has an edge from every writer before it.
writers, edges = ["embedding"], []
streams: dict[str, str] = {}  # the stream that each reader reads
for n in range(model.config.n_layer):
    block = f"blocks.{n}"
    heads = [f"{block}.attention.heads.{h}" for h in range(model.config.n_head)]
    readers = [f"{head}.{name}" for head in heads for name in "QKV"]
    streams |= dict.fromkeys(readers, f"{block}.attention.residual")
    edges += [(writer, reader) for writer in writers for reader in readers]
    writers += [f"{head}.output" for head in heads]
    streams[f"{block}.mlp.X"] = f"{block}.mid"
    edges += [(writer, f"{block}.mlp.X") for writer in writers]
    writers.append(f"{block}.mlp.output")
streams["final"] = f"{block}.output"
edges += [(writer, "final") for writer in writers]

# %% [markdown]
# ## Effects
#
# The effect of an edge is approximately change · slope: the change is what the writer writes in the
# clean run minus that in the corrupted one, the slope is the metric's gradient through this reader
# alone. One slope says little where a softmax is saturated. So **integrated gradients** (EAP-IG:
# Hanna and others, 2024) take the mean slope of runs whose embedding is on the way from the
# corrupted to the clean one. Effects are divided by the metric's whole change: 1 restores all of
# it.


# %%
def slope_through(reader: str, run: Trace, gradients: ForwardPass) -> Array:
    """The metric's gradient with respect to the stream, through one reader, (T, D)."""
    part, _, step = reader.rpartition(".")
    layer = at(run, part.partition(".heads")[0]) if part else run  # it has the LayerNorm's gain
    d_X = at(gradients, reader)
    if step in ("Q", "K", "V"):  # Q = X W_Q + b_Q
        d_X = d_X @ at(run, f"{part}.W_{step}").T
    return layer_norm_gradient(at(run, streams[reader]), layer.gain, layer.epsilon, d_X)[0]


def effects(steps: int) -> dict[tuple[str, str], float]:
    """The effect of each edge: EAP with one step, EAP-IG with several."""
    written = {writer: at(clean, writer) - at(corrupted, writer) for writer in writers}
    slopes = {reader: np.zeros_like(clean.embedding) for reader in streams}
    for k in range(steps):
        between = corrupted.embedding + k / steps * written["embedding"]
        run = corrupted.edited({"embedding": between})
        gradients = attnlab.gradients(run, TARGET)
        for reader in streams:
            slopes[reader] += slope_through(reader, run, gradients) / steps
    right, wrong = (model.tokenizer.encode(word)[0] for word in TARGET)
    change = clean.next_logits - corrupted.next_logits
    total = float(change[right] - change[wrong])
    return {(w, r): float((written[w] * slopes[r]).sum()) / total for w, r in edges}


eap, eap_ig = effects(1), effects(STEPS)
strongest = sorted(edges, key=lambda edge: -abs(eap_ig[edge]))[:SHOWN]
rows = []
for edge in strongest:
    exact = attnlab.path_patch(clean, corrupted, *edge, target=TARGET, progress=False)
    rows.append([eap[edge], eap_ig[edge], float(exact.restored)])
print(f"The {len(strongest)} strongest of {len(edges)} edges")
names, columns = [" -> ".join(edge) for edge in strongest], ["EAP", "EAP-IG", "patched"]
print(attnlab.table(rows, rows=names, columns=columns, decimals=2))
