# %% [markdown]
# # RoPE: position as a rotation
#
# GPT-2 adds a learned vector for each position to each token. **Rotary position embedding** (RoPE:
# Su and others, 2021) adds nothing. It rotates queries and keys by an angle that grows with the
# position, and leaves the values alone. Here we apply it to a head of the pocket model.

# %%
import numpy as np

import attnlab
from attnlab import pictures
from attnlab.equations import AnyArray, Array
from attnlab.support.console import prepare_script

prepare_script()  # for any terminal, and for pipes

TEXT = "The dog chased the ball, but it"
BASE = 10_000  # the slowest pair turns by about 1 / BASE of a radian a position
FAR = 1_000  # how far the text is moved

head = attnlab.GPT2.from_pretrained("pocket").trace(TEXT).head(1, 2)
words = head.tokens.symbols if head.tokens else []
T, Dh = head.Q.shape

# %% [markdown]
# ## Pairs of columns, and a speed for each pair
#
# The columns are taken in pairs, and each pair is a point of the plane. At position m pair i turns
# by the angle m θᵢ, where θᵢ = BASE^(-2i / Dh). The first pair turns by one radian a position, so
# it tells neighbours apart; the last ones hardly turn within a text, and tell far from near.


# %%
def rotate(x: Array, positions: AnyArray) -> Array:
    """Rows whose pairs of columns are rotated by their position times the pair's speed."""
    speeds = BASE ** (-np.arange(0, x.shape[1], 2) / x.shape[1])
    cos, sin = np.cos(np.outer(positions, speeds)), np.sin(np.outer(positions, speeds))
    even, odd = x[:, ::2], x[:, 1::2]
    turned = np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return turned.reshape(x.shape)


positions = np.arange(T)
Q, K = rotate(head.Q, positions), rotate(head.K, positions)
lengths = np.abs(np.linalg.norm(Q, axis=1) - np.linalg.norm(head.Q, axis=1))
print(
    f"{Dh} columns, {Dh // 2} pairs; lengths of the queries change by at most {lengths.max():.0e}"
)
rotated_query = rotate(np.tile(head.Q[-1], (6, 1)), np.arange(6))
pictures.points(
    {f"m = {m}": pair for m, pair in enumerate(rotated_query[:, :2])}, title="the first pair of q"
)

# %% [markdown]
# ## Only the distance counts
#
# The dot product of two rotated rows depends only on the difference of their positions. So the
# whole text may move by 1,000 positions, and no score changes: the model needs no row for position
# 1,007, and GPT-2, which has none for position 1,024, would stop.

# %%
scores = Q @ K.T / head.scale
shifted = rotate(head.Q, positions + FAR) @ rotate(head.K, positions + FAR).T / head.scale
print(f"All positions {FAR:,} later: scores change by at most {np.abs(shifted - scores).max():.0e}")

same_vector = np.tile(head.Q[-1], (T, 1))  # one vector at every position
products = rotate(same_vector, positions) @ rotate(same_vector, positions).T / head.scale
print("\nThe score of a vector with itself, by distance")
print(attnlab.table([products[0]], rows=["score"], columns=range(T), decimals=2))
pictures.heatmap(products, rows=range(T), columns=range(T), title="the same vector everywhere")

# %% [markdown]
# Each diagonal of the picture is one distance, and one number: 15.10 at distance 0, 12.31 at
# distance 4, and not always less further away. All the vectors are equal, and still the near ones
# score highest. Attention alone doesn't prefer what is near ([chapter
# 3](../03_one_head_by_hand.py)); with RoPE it can.
#
# The pocket model was not trained with RoPE, so its head means nothing after such a rotation; a
# model trained with RoPE learns W_Q and W_K that fit. Values aren't rotated: what a token passes on
# does not depend on where it is.
