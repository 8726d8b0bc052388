# %% [markdown]
# # MLA: keys and values from one small vector
#
# A model that generates keeps the keys and values of all earlier tokens ([chapter
# 11](../11_what_the_cache_saves.py)). **Multi-head latent attention** (MLA: DeepSeek-V2, 2024)
# keeps one small vector for each token, the **latent** c, and expands it when needed: K = C W_UK, V
# = C W_UV. DeepSeek trains these matrices. Here we find the best ones for a layer of the pocket
# model, which was trained without MLA.

# %%
import numpy as np

import attnlab
from attnlab import pictures
from attnlab.support.console import prepare_script

prepare_script()  # print on any terminal, and into pipes

TEXT = "The dog chased the ball, but it"
LATENT = 64  # numbers kept for each token and layer

model = attnlab.GPT2.from_pretrained("pocket")
attention = model.trace(TEXT).blocks[1].attention
H, T, Dh = attention.K.shape
X, W_K, W_V = attention.X, attention.W_K, attention.W_V

# %% [markdown]
# ## Down to the latent, and up again
#
# All keys and values of the layer come from X by one wide matrix, W_K beside W_V. Its SVD ([chapter
# 2](../02_a_matrix_is_a_map.py)) gives the best pair of thin matrices: down to `LATENT` columns,
# and up again. (Biases are added as before, and need not be kept.)

# %%
U, sizes, Vt = np.linalg.svd(np.hstack([W_K, W_V]), full_matrices=False)
W_down, W_up = U[:, :LATENT] * sizes[:LATENT], Vt[:LATENT]
W_UK, W_UV = np.hsplit(W_up, 2)

C = X @ W_down  # the cache: one row for each token
n_kept, n_full = C.shape[1], 2 * H * Dh
print(f"kept for each token and layer: {n_kept} numbers instead of {n_full}")
pictures.curves({"W_K beside W_V": sizes}, x_name="number", y_name="singular value")

# %% [markdown]
# ## Attention without ever making the keys
#
# q·k = q·(c W_UK) = (q W_UKᵀ)·c. So each query is multiplied by W_UKᵀ once and compared with the
# latents themselves: all heads share one "key" of `LATENT` numbers. In the same way the weights mix
# latents, and a product with W_UV turns that into the head's context.

# %%
UK, UV = (W.reshape(LATENT, H, Dh).swapaxes(0, 1) for W in (W_UK, W_UV))  # (H, LATENT, Dh)
b_K, b_V = (b.reshape(H, 1, Dh) for b in (attention.b_K, attention.b_V))
Q_latent = attention.Q @ UK.swapaxes(1, 2)  # (H, T, LATENT)
scores = (Q_latent @ C.T + attention.Q @ b_K.swapaxes(1, 2)) / attention.scale
weights = attnlab.softmax(np.where(attention.mask, scores, -np.inf))
context = weights @ C @ UV + b_V  # mixed as latents, then expanded

expanded = attnlab.attention(attention.Q, C @ UK + b_K, C @ UV + b_V, mask=attention.mask)
print(f"latents or expanded keys and values: {np.abs(context - expanded.context).max():.0e} apart")

# %% [markdown]
# ## What is lost
#
# With as many numbers as X has columns nothing is lost. With fewer, the weights change.

# %%
changes = {}
for width in (128, 96, 64, 32, 16):
    thin = (U[:, :width] * sizes[:width]) @ Vt[:width]
    K, V = (
        (X @ part).reshape(T, H, Dh).swapaxes(0, 1) + b
        for part, b in zip(np.hsplit(thin, 2), (b_K, b_V), strict=True)
    )
    thin_attention = attnlab.attention(attention.Q, K, V, mask=attention.mask)
    change = np.linalg.norm(thin_attention.context - attention.context) / np.linalg.norm(
        attention.context
    )
    changes[f"latent of {width}"] = [
        np.abs(thin_attention.weights - attention.weights).max(),
        change,
    ]
columns = ["change of a weight, at most", "change of the contexts, relative"]
print(attnlab.table([*changes.values()], rows=[*changes], columns=columns, decimals=2))

# %% [markdown]
# A latent as wide as X, 128, saves half of the 256 numbers, and is exact. What a narrower latent
# would cost a model trained with it is another question: such a model learns keys and values that
# fit.
#
# One thing does not fit: [RoPE](llama.py) rotates keys by their position. A rotation between q and
# W_UK differs from position to position, so it can't be multiplied into W_UK once for all. DeepSeek
# keeps a few more numbers for each token, one rotated key that all heads share.
