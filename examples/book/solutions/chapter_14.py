"""Solution of chapter 14: the function that it leaves empty."""

from attnlab.equations import Array


def my_ablation(context: Array, W_O: Array, b_O: Array, number: int) -> dict[str, Array]:
    context = context.copy()
    context[number] = 0
    concat = context.swapaxes(0, 1).reshape(context.shape[1], -1)
    return {"context": context, "concat": concat, "output": concat @ W_O + b_O}
