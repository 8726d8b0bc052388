# %% [markdown]
# # 2. A matrix is a map
#
# > Afterwards you can say: “A matrix moves every point of the plane, and its rows say where the
# > axes go. Several matrices in a row are only one. Of W_Q and W_K, only the product counts for the
# > scores.”
#
# `Q = X W_Q`: each word's vector goes through a matrix and comes out as another vector. What can a
# matrix do to a vector? In two dimensions you can draw it: it moves every point of a grid. This
# chapter draws such maps, decomposes matrices, and then looks at `W_Q` and `W_K`.
#
# Change any value with a name in capitals below.
#
# * **Objective**: Read a matrix as a map of the plane, and take it apart into rotations and
#   stretches.
# * **Before this**: how to multiply a vector by a matrix.
# * **Time**: about 35 minutes, exercises included.
# * **Misconception**: "A layer called Linear is linear." With its bias it is affine.

# %%
import numpy as np

import attnlab
from attnlab import pictures
from attnlab.equations import Array
from attnlab.support.console import prepare_script

prepare_script()  # print on any terminal, and into pipes

model = attnlab.GPT2.default("pocket")  # GPT-2 if you have it, otherwise pocket

M = np.array([[2.0, 1.0], [0.5, 1.5]])  # any matrix
POINT = np.array([1.0, 2.0])
STRETCH, ANGLE = (1.5, 0.5), 30  # along x and along y; degrees, counterclockwise
SHIFT = np.array([1.0, -2.0])
LAYER, HEAD = 1, 0  # of the model


def svd(M: Array) -> tuple[Array, Array, Array]:
    """The SVD of a 2 x 2 matrix; U is a rotation by at most a right angle."""
    U, stretches, Vt = np.linalg.svd(M)
    signs = np.array([1.0, np.sign(np.linalg.det(U))])  # if U reflects, let Vᵀ reflect instead
    signs = signs if np.trace(U * signs) >= 0 else -signs  # half a turn moves to Vᵀ too
    return U * signs, stretches, Vt * signs[:, None]


# %% [markdown]
# ## 2.1 Where the axes go
#
# Vectors are rows here, to the left of the matrix: x M. That product is the first number of x times
# the first row of M, plus the second number of x times the second row of M. So row 0 of M (programs
# count from 0) is where (1, 0) goes, row 1 is where (0, 1) goes, and all other points follow.
#
# (With vectors as columns the product is written W x, with the transposed matrix. PyTorch's
# `nn.Linear` stores that transposed matrix.)

# %%
print("\n2.1 M, and where a point goes")
print(attnlab.table(M, rows=["(1, 0) goes to", "(0, 1) goes to"], columns="xy", decimals=2))
x, y = POINT
print(f"\n({x:g}, {y:g}) M = {x:g}·{M[0]} + {y:g}·{M[1]} = {POINT @ M}")
pictures.arrows({f"{x:g} · row 0": x * M[0], f"{y:g} · row 1": y * M[1]}, title="x M")

# %% [markdown]
# The picture shows the whole grid, before and after. Lines stay lines, parallel lines stay
# parallel, and the origin doesn't move.

# %%
pictures.plane({"M": M}, points={"x": POINT})

# %% [markdown]
# ## 2.2 Scaling, rotation, reflection
#
# Three kinds of matrices are simple. A diagonal one stretches or shrinks along the axes. A rotation
# (a turn) preserves all lengths and angles. So does a reflection (a mirror), but left becomes
# right. The **determinant** says by how much areas grow; it is negative if the plane was flipped.

# %%
angle = np.radians(ANGLE)
stretch = np.diag(STRETCH)
turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
mirror = np.array([[-1.0, 0.0], [0.0, 1.0]])  # left and right swapped

kinds = {"stretch": stretch, "turn": turn, "mirror": mirror}
print("\n2.2 Where the point goes, its length there, and the determinant")
lines = [
    [*POINT @ kind, np.linalg.norm(POINT @ kind), np.linalg.det(kind)] for kind in kinds.values()
]
print(attnlab.table(lines, rows=[*kinds], columns=["x", "y", "length", "determinant"]))
print(f"length before: {np.linalg.norm(POINT):.4f}")
pictures.plane(kinds, points={"x": POINT})

# %% [markdown]
# ## 2.3 One map after another
#
# One map followed by another is again one map: (x A) B = x (A B). With rows you read from left to
# right. The order matters: rotating a stretched plane is not stretching a rotated one.

# %%
compositions = {"stretch turn": stretch @ turn, "turn stretch": turn @ stretch}
print("\n2.3 Two orders, two maps")
for name, product in compositions.items():
    print(f"\n{name}\n{attnlab.table(product)}")
pictures.plane(compositions, points={"x": POINT})

# %% [markdown]
# This is also why a network of matrices alone gains nothing from depth: however many matrices
# follow each other, they equal one matrix. Between them there has to be a **nonlinearity**,
# something that bends the plane. In GPT-2 the nonlinearities are softmax, LayerNorm and the
# activation function GELU.

# %% [markdown]
# ## 2.4 Every matrix: rotate, stretch, rotate
#
# The **singular value decomposition** (SVD) factors any matrix: M = U S Vᵀ. U rotates, S stretches
# along the axes by the **singular values**, and Vᵀ rotates again. (If M reflects, one of the two
# rotations also reflects.) So apart from rotations, any matrix only makes some directions longer or
# shorter, and the singular values say by how much.

# %%
U, stretches, Vt = svd(M)
S = np.diag(stretches)
print("\n2.4 M = U S Vᵀ")
print(attnlab.table(np.hstack([U, S, Vt]), columns=["U", "", "S", "", "Vᵀ", ""]))
print(f"\nU S Vᵀ and M: at most {np.abs(U @ S @ Vt - M).max():.0e} apart")
print(f"singular values {stretches.round(4)}; product {stretches.prod():.4f}")
print(f"determinant of M {np.linalg.det(M):.4f}")
pictures.plane({"U": U, "U S": U @ S, "U S Vᵀ = M": U @ S @ Vt}, points={"x": POINT})

# %% [markdown]
# A square matrix can also be read without rotations. Along an **eigenvector** the map only
# stretches: x M = λ x, and λ is the **eigenvalue**. The matrix above has two eigenvectors, with the
# eigenvalues 2.5 and 1. In the picture both stay on their lines; all other vectors change
# direction.
#
# "Full rank" is sometimes given as the condition for an eigenvector. It isn't enough: the turn of
# 2.2 has full rank and changes every direction, so it has no real eigenvector. Every matrix has an
# SVD, even one of 768 x 64.

# %%
eigenvalues, eigenvectors = np.linalg.eig(M.T)  # of the transpose: x is a row
directions = {
    f"eigenvector {n}": x.real for n, x in enumerate(eigenvectors.T) if np.isreal(x).all()
}
if directions:
    rows = [
        [value.real, *x, *x @ M] for value, x in zip(eigenvalues, directions.values(), strict=False)
    ]
    print("\nx M = λ x")
    print(attnlab.table(rows, rows=[*directions], columns=["λ", "x₀", "x₁", "(x M)₀", "(x M)₁"]))
pictures.plane({"M": M}, points=directions)

# %% [markdown]
# ## 2.5 Linear, and affine
#
# A matrix leaves the origin where it is. Moving the origin takes a **bias**, a vector that is
# added: [`affine`](../attnlab/equations.py), x W + b. PyTorch calls that layer `Linear`, but
# strictly it is affine. A linear map of u + v is the map of u plus the map of v; with a bias, the
# sum of the two maps has the bias twice.

# %%
u, v = POINT, np.array([1.0, 0.0])
maps = {
    "linear": [x @ M for x in (u, v, u + v)],
    "affine": [x @ M + SHIFT for x in (u, v, u + v)],
}
print("\n2.5 How far f(a + b) is from f(a) + f(b)")
for name, (f_u, f_v, f_sum) in maps.items():
    print(f"  {name}  {f_sum - (f_u + f_v)}")
pictures.plane({"x M": M, "x M + b": (M, SHIFT)}, points={"x": POINT})

# %% [markdown]
# In GPT-2 every query, key and value has a bias: `Q = X W_Q + b_Q`. (GPT-2 has 12 x 64 = 768
# numbers in `b_Q` of a layer. Some newer models omit them.)

# %% [markdown]
# ## 2.6 What W_Q and W_K do to two words
#
# Take two words with two numbers each. Their dot product is the same from the cat to the fish and
# from the fish to the cat. Now apply two maps: `W_Q` rotates by a right angle, `W_K` stretches.
# Each word then has two vectors, one for asking and one for answering, and the dot product from the
# cat to the fish no longer equals that from the fish to the cat.

# %%
words = ["cat", "fish"]
X = np.array([[2.0, 1.0], [1.0, 2.0]])
W_Q = np.array([[0.0, 1.0], [-1.0, 0.0]])
W_K = np.array([[1.0, 0.0], [0.0, 1.5]])

Q, K = X @ W_Q, X @ W_K
print("\n2.6 Before: X Xᵀ")
print(attnlab.table(X @ X.T, rows=words, columns=words, decimals=2))
print("\nAfter: Q Kᵀ")
print(attnlab.table(Q @ K.T, rows=words, columns=words, decimals=2))
pictures.plane({"W_Q": W_Q, "W_K": W_K}, points=dict(zip(words, X, strict=True)))

# %% [markdown]
# Queries are compared with keys, so here they are in one picture. With the numbers above, the cat's
# query points in nearly the same direction as the fish's key, and the fish's query away from the
# cat's key.

# %%
queries = {f"{word} asks": q for word, q in zip(words, Q, strict=True)}
keys = {f"{word} answers": k for word, k in zip(words, K, strict=True)}
pictures.points(queries | keys)

# %% [markdown]
# Only the product of the two maps counts: [`raw_scores`](../attnlab/equations.py) = Q Kᵀ = X (W_Q
# W_Kᵀ) Xᵀ. Rotate queries and keys by the same angle, and no raw score changes.

# %%
rotated_scores = (Q @ turn) @ (K @ turn).T
difference = np.abs(rotated_scores - Q @ K.T).max()
print(f"\nQ Kᵀ with both rotated by {ANGLE} degrees: at most {difference:.0e} apart")

# %% [markdown]
# ## 2.7 Low rank: the product of two thin matrices
#
# GPT-2's `W_Q` is not square: it has 768 rows and 64 columns. It discards most of what a word's
# vector says, and keeps what this head asks about. Here is a small example: with one column each,
# `W_Q` and `W_K` turn two numbers into one. Their product W_Q W_Kᵀ is 2 x 2, but maps the whole
# plane onto a line. Its **rank** is 1: the number of singular values that are not 0. With the
# numbers above, the fish ends up at the origin: in this head it asks for nothing.

# %%
thin_Q, thin_K = np.array([[1.0], [-0.5]]), np.array([[0.5], [1.0]])
W_QK = thin_Q @ thin_K.T
print("\n2.7 W_Q W_Kᵀ of one column each")
print(attnlab.table(W_QK, decimals=2))
print(f"singular values {np.linalg.svd(W_QK, compute_uv=False).round(4)}")
print(f"rank {np.linalg.matrix_rank(W_QK)}")
pictures.plane({"W_Q W_Kᵀ": W_QK}, points=dict(zip(words, X, strict=True)))

# %% [markdown]
# In a model, a head's W_Q W_Kᵀ has D rows and D columns, but only as many nonzero singular values
# as a head has columns: 32 of 128 in the pocket model, 64 of 768 in GPT-2. So the head can ask
# about no more than 32 or 64 directions, and the singular values say how much it asks about each.
# [Chapter 9](09_counting_parameters.py) counts what two thin matrices save.

# %%
head = model.trace("any text").head(LAYER, HEAD)  # the matrices don't depend on the text
D, Dh = head.W_Q.shape
singular_values = np.linalg.svd(head.QK.full(), compute_uv=False)
squares = np.cumsum(singular_values**2) / np.sum(singular_values**2)
print(f"\n{head.title!s}: W_Q W_Kᵀ is {D} x {D}, of rank {np.linalg.matrix_rank(head.QK.full())}")
print(f"{D} x {D} numbers: {D * D:,}; two thin matrices: 2 · {D} · {Dh} = {2 * D * Dh:,}")
print(f"nine tenths of the sum of squares are in {np.argmax(squares >= 0.9) + 1} directions")
pictures.curves({"singular values": singular_values}, x_name="number", y_name="stretch")

# %% [markdown]
# ## 2.8 Predict, change, see
#
# **Exercise 1 (basic).** Put `ANGLE = 90`. What are the rows of `turn`, and what is its
# determinant? Where does (1, 2) go?
#
# <details><summary>Answer</summary>
#
# (1, 0) goes to (0, 1), and (0, 1) to (-1, 0); these are the rows. The determinant is 1.0000 for
# every angle: a rotation preserves areas. (1, 2) goes to (-2, 1).
#
# </details>
#
# **Exercise 2 (medium).** Make one of the two stretches negative:
# `STRETCH, ANGLE = (1.5, -0.5), 30`. What happens to the determinant, and to the singular values of
# `stretch`? (To see those, begin the code of 2.4 with `M = stretch`.)
#
# <details><summary>Answer</summary>
#
# The determinant goes from 0.7500 to -0.7500: areas are the same, but the plane is flipped. The
# singular values stay 1.5000 and 0.5000: they are never negative, and the reflection is in U or Vᵀ.
#
# </details>
#
# **Exercise 3 (medium).** Let the head ask and answer with one matrix: put `W_K = W_Q` below the
# two matrices of 2.6. What does Q Kᵀ look like?
#
# <details><summary>Answer</summary>
#
# It looks like X Xᵀ: 5 and 4, 4 and 5. Queries and keys are rotated by the same angle, which
# changes no dot product. With another matrix Q Kᵀ need not be X Xᵀ, but with `W_K = W_Q` it is
# always symmetric.
#
# </details>
#
# **Exercise 4 (hard).** In 2.7 double `thin_Q`. Does the plane stay a plane? What happens to the
# singular values?
#
# <details><summary>Answer</summary>
#
# No, it does not: the result is still a line, of rank 1. The larger singular value doubles, from
# 1.2500 to 2.5000, and the other stays 0. Only a second column could add a second direction.
#
# </details>

# %% [markdown]
# ## Summary
#
# * The rows of a matrix say where the axes go, and that settles where every point goes.
# * Several matrices in a row are one matrix: depth needs nonlinear functions in between.
# * The SVD writes any matrix as a rotation, a stretch and a rotation.
# * Only the product of W_Q and the transposed W_K matters for the scores; its rank is at most the
#   head's width.
