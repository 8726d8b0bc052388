"""What each step is for, in one sentence: what explanations and the page say of it.

The Chinese is in `zh.po`; `say(purpose(path))` is in the reader's language.
"""

from __future__ import annotations

from attnlab.errors import InvalidValueError, quoted

# By a step's name, or, where that depends on it, with what it is a step of in front.
PURPOSES = {
    # what is given
    "ids": "A token is known to the model by its number: these are all that it is told of a text.",
    "positions": "Scores know nothing of order, so the model is told where each token stands.",
    "cached": "Keys and values of these tokens were kept, so that none is computed a second time.",
    "mask": (
        "Where it is False a query may not look: in GPT-2 at the tokens after it, as those are "
        "what it learns to predict."
    ),
    "n_head": "Several heads side by side can look for different things at once.",
    "epsilon": "It keeps LayerNorm from dividing by 0 where all numbers of a vector are alike.",
    "by_root": "Whether this model divides scores by √Dk, as GPT-2 does.",
    "layer_number": "Some relatives of GPT-2 divide scores by more in later layers.",
    "K_cache": "The keys of earlier tokens stay what they were, and so are kept.",
    "V_cache": "The values of earlier tokens stay what they were, and so are kept.",
    "embedding_dropout": (
        "In training some numbers are set to 0 at random, so that the model relies on none of them "
        "alone; the others are made larger to make up for it."
    ),
    "attention_dropout": (
        "In training some of what attention writes is set to 0 at random, so that no later step "
        "relies on one number alone."
    ),
    "mlp_dropout": (
        "In training some of what the MLP writes is set to 0 at random, so that no later step "
        "relies on one number alone."
    ),
    "dropout_mask": (
        "In training some weights are set to 0 at random, so that no token relies on one other "
        "alone; the others are made larger to make up for it."
    ),
    # into the residual stream
    "W_E": "Learned, a row for each token of the vocabulary: what a token is, before any context.",
    "W_P": "Learned, a row for each position: what it is to stand there.",
    "rows_of_W_E": "The rows of W_E for the tokens at hand; no others are read from the file.",
    "token_embedding": (
        "An id is an arbitrary number and says nothing, so each token gets its row of W_E: D "
        "learned numbers that say what it is."
    ),
    "position_embedding": (
        "Scores know nothing of order, so each position adds a row of its own: the same word is "
        "another vector in another place."
    ),
    "embedding": (
        "The residual stream begins here: what each token is and where it stands, in one vector, "
        "from which every block reads and to which it adds."
    ),
    # a block's attention
    "blocks.input": "What the blocks before have made of each token; this one adds to it.",
    "residual": "The residual stream as attention finds it, before LayerNorm.",
    "X": "What enters attention, a vector for each token.",
    "attention.X": (
        "LayerNorm gives all vectors one scale, whatever their size in the stream: mean 0 and "
        "variance 1, then a learned gain and bias."
    ),
    "heads.X": "What enters attention is the same for all heads; each reads something else of it.",
    "memory": "What keys and values are made of; in self-attention it is X itself.",
    "gain": "Learned: how large each component is made after LayerNorm has made all alike.",
    "bias": "Learned: what LayerNorm adds to each component in the end.",
    "W_QKV": "W_Q, W_K and W_V in one matrix, so that one product makes all three.",
    "b_QKV": "b_Q, b_K and b_V in one row.",
    "QKV": "One product in place of three makes queries, keys and values of all heads.",
    "W_Q": "Learned: what of X makes a query, that is, what a token looks for.",
    "b_Q": "Learned: what is added to each query, whatever the token.",
    "W_K": "Learned: what of X makes a key, that is, what a token can be found by.",
    "b_K": "Learned: what is added to each key, whatever the token.",
    "W_V": "Learned: what of X makes a value, that is, what a token hands on.",
    "b_V": "Learned: what is added to each value, whatever the token.",
    "Q": "What a token looks for: it is held against every key.",
    "K": "What a token can be found by: queries are held against it.",
    "V": "What a token hands on to those that look at it.",
    "raw_scores": (
        "A query and a key that point the same way have a large product, so each token scores "
        "highest those that have what it looks for."
    ),
    "scale": (
        "The sum of Dk products grows about as √Dk does, so GPT-2 divides by that; else softmax "
        "would give nearly all weight to one key in wide heads, and hardly learn."
    ),
    "scores": (
        "Divided, the scores of a wide head are no larger than a narrow one's: from large ones "
        "softmax gives nearly all weight to one key, and hardly learns."
    ),
    "masked_scores": (
        "-inf becomes a weight of exactly 0, so that what may not be seen has no effect, and the "
        "weights of what is seen still sum to 1."
    ),
    "weights": (
        "Softmax makes shares of the scores, none negative, that sum to 1; the maximum is "
        "subtracted first since it cancels, and exp can't overflow."
    ),
    "context": (
        "Each token collects the values of those that it looks at, of each as much as its weight: "
        "so what one token knows comes to another."
    ),
    "concat": "What the heads have found, side by side in one vector for each token.",
    "W_O": "Learned: in which directions of the stream the heads write what they found.",
    "b_O": "Learned: what attention adds to every token, whatever it looked at.",
    "output": "W_O mixes what the heads have found into one vector of the stream's width.",
    "heads.output": (
        "What this head alone writes to the stream: all heads' shares and b_O add up to the "
        "attention's output."
    ),
    "blocks.mid": (
        "A residual: what attention found is added and replaces nothing, so what was there is "
        "kept, and in training gradients reach the first blocks by the same way."
    ),
    # a block's MLP
    "mlp.X": "LayerNorm again, so that the MLP too reads all vectors at one scale.",
    "W_1": "Learned: a column for each unit, what it looks for in a token's vector.",
    "b_1": "Learned: what is added for each unit, how easily it answers.",
    "hidden": (
        "F units, in GPT-2 four for each component, each ask one learned question of a token's "
        "vector; here no token sees another."
    ),
    "activation": "Without a bend between them W_1 and W_2 would be one linear map.",
    "activated": (
        "The bend without which W_1 and W_2 would be one linear map: large numbers pass nearly as "
        "they are, negative ones nearly become 0, so a unit answers or keeps silent."
    ),
    "W_2": "Learned: a row for each unit, what it writes to the stream when it answers.",
    "b_2": "Learned: what the MLP adds to every token.",
    "mlp.output": "What the units that answered write, as one vector of the stream's width.",
    "blocks.output": (
        "A residual again: what the MLP found is added to the stream, and the next block reads it."
    ),
    # out of the residual stream
    "final": "LayerNorm once more, so that logits do not depend on how far the stream has grown.",
    "W_U": "A column for each token of the vocabulary, in GPT-2 the same as its row of W_E.",
    "logits": (
        "One number for each token of the vocabulary: how far the vector points the way of that "
        "token's column of W_U."
    ),
    "next_logits": "The logits after the last token, which are all that writing on needs.",
    "probabilities": "Softmax makes shares of the logits; the next token is drawn by them.",
}


def purpose(path: str) -> str:
    """What a step is for, in one English sentence.

    Parameters
    ----------
    path : of a step, such as "blocks.3.attention.heads.5.weights"; or "probabilities", of what
        softmax makes of the logits
    """
    names = [name for name in path.split(".") if not name.isdigit()]
    for key in (".".join(names[-2:]), names[-1] if names else ""):
        if key in PURPOSES:
            return PURPOSES[key]
    raise InvalidValueError(f"there is no step {quoted(path)}")
