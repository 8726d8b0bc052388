"""The purpose of each step in one sentence, for explanations and the page."""

from __future__ import annotations

from attnlab.errors import InvalidValueError, quoted

# Purposes by a step's name, which follows its parent's name if the purpose depends on the parent.
PURPOSES = {
    # inputs
    "ids": "The ids of the text's tokens: the model's only input.",
    "positions": "Attention scores don't depend on order, so the model also needs each token's "
    "position.",
    "cached": "The number of earlier tokens whose keys and values are cached.",
    "mask": "False where a query may not attend; GPT-2 masks later tokens, because it learns to "
    "predict them.",
    "score_bias": "Numbers added to the scores before the mask: by distance in ALiBi, learned for "
    "relative positions.",
    "n_head": "Several heads in parallel can attend to different things.",
    "epsilon": "Keeps LayerNorm from dividing by 0 when all components of a vector are equal.",
    "divide_by_sqrt_d": "Whether this model divides scores by √Dk, as GPT-2 does.",
    "layer_number": "Some variants of GPT-2 divide scores by more in later layers.",
    "K_cache": "The keys of earlier tokens don't change, so they are cached.",
    "V_cache": "The values of earlier tokens don't change, so they are cached.",
    "dropout_mask": "In training, dropout sets random weights to 0, so that no token relies on a "
    "single other token; the other weights are scaled up.",
    # into the residual stream
    "W_E": "Learned token embeddings: a row for each token of the vocabulary, independent of "
    "context.",
    "W_P": "Learned position embeddings: a row for each position.",
    "rows_of_W_E": "The rows of W_E for the text's tokens; no others are read from the file.",
    "token_embedding": "Ids are arbitrary numbers, so each is replaced by its row of W_E: a "
    "learned vector of D components.",
    "position_embedding": "Attention scores don't depend on order, so each position adds its own "
    "row: a word's vector depends on where it is.",
    "embedding": "The start of the residual stream: token and position in one vector, which every "
    "block reads and adds to.",
    # a block's attention
    "blocks.input": "The residual stream after the previous blocks, to which this block adds.",
    "residual": "The residual stream that attention reads, before LayerNorm.",
    "X": "The input of attention, a vector for each token.",
    "attention.X": "LayerNorm brings all vectors to one scale: mean 0 and variance 1, then a "
    "learned gain and bias.",
    "heads.X": "The input of attention, shared by all heads; each projects it differently.",
    "memory": "The source of keys and values; in self-attention, X itself.",
    "gain": "Learned: scales each component after normalization.",
    "bias": "Learned: added to each component after the gain.",
    "W_Q": "Learned projection from X to queries: what a token looks for.",
    "b_Q": "Learned: added to every query.",
    "W_K": "Learned projection from X to keys: what a token is found by.",
    "b_K": "Learned: added to every key.",
    "W_V": "Learned projection from X to values: what a token passes on.",
    "b_V": "Learned: added to every value.",
    "Q": "What a token looks for: a vector that is compared with every key.",
    "K": "What a token is found by: a vector that is compared with queries.",
    "V": "What a token passes on to the queries that attend to it.",
    "raw_scores": "Dot products are large where query and key point the same way, so each token "
    "gives the highest scores to tokens that have what it looks for.",
    "scale": "A sum of Dk products grows like √Dk, so GPT-2 divides by √Dk; otherwise, softmax "
    "saturates in wide heads, and the gradients vanish.",
    "scores": "Scaling keeps the scores of wide heads as small as the scores of narrow heads; with "
    "large scores, softmax saturates, and the gradients vanish.",
    "masked_scores": "-inf becomes a weight of exactly 0, so masked tokens have no effect, and the "
    "other weights still sum to 1.",
    "weights": "Softmax turns scores into weights that are not negative and sum to 1; subtracting "
    "the maximum doesn't change them and keeps exp from overflowing.",
    "context": "Each token sums the values of the tokens that it attends to, weighted: this is how "
    "information moves between tokens.",
    "concat": "The heads' contexts, concatenated into one vector for each token.",
    "W_O": "Learned: projects the heads' contexts to the residual stream.",
    "b_O": "Learned: added to every token by attention.",
    "output": "W_O combines the heads' contexts into one vector for the residual stream.",
    "heads.output": "This head's contribution to the residual stream; all heads' contributions and "
    "b_O add up to the attention's output.",
    "blocks.mid": "A residual connection: attention's output is added to the stream, which "
    "preserves information and lets gradients reach the first blocks.",
    # a block's MLP
    "mlp.X": "LayerNorm is applied again, so that the MLP also reads all vectors at one scale.",
    "W_1": "Learned: a column for each neuron, the direction that it responds to.",
    "b_1": "Learned: each neuron's bias, which sets how easily it activates.",
    "hidden": "The inputs of F neurons (4 D in GPT-2), each a learned projection of one token's "
    "vector; tokens don't interact here.",
    "activation": "The nonlinearity: without it, W_1 and W_2 would be one linear map.",
    "activated": "The activation function, without which W_1 and W_2 would be one linear map: "
    "large inputs pass nearly unchanged, negative inputs become nearly 0.",
    "W_2": "Learned: a row for each neuron, what it adds to the stream when it activates.",
    "b_2": "Learned: added to every token by the MLP.",
    "mlp.output": "The sum of the rows of W_2, weighted by the activations: one vector for the "
    "stream.",
    "blocks.output": "A residual connection: the MLP's output is added to the stream, which the "
    "next block reads.",
    # out of the residual stream
    "final": "The final LayerNorm, so that logits don't depend on the norm of the stream.",
    "W_U": "A column for each token of the vocabulary; in GPT-2, the token's row of W_E.",
    "logits": "One number for each token of the vocabulary: the dot product of the final vector "
    "with the token's column of W_U.",
    "next_logits": "The logits after the last token, all that is needed to continue the text.",
    "probabilities": "Softmax turns logits into probabilities, from which the next token is "
    "sampled.",
}


def purpose(path: str) -> str:
    """What the step at a path is for, or what "probabilities" are, in one English sentence."""
    names = [name for name in path.split(".") if not name.isdigit()]
    for key in (".".join(names[-2:]), names[-1] if names else ""):
        if key in PURPOSES:
            return PURPOSES[key]
    raise InvalidValueError(f"there is no step {quoted(path)}")
