"""What other tools call things, and what they are called here.

Asking a result for one of these names is answered by the name that it has here.
"""

from __future__ import annotations

# Their name, whose it is, and where it is found here, from a trace on; l is a layer, h a head.
NAMES = (
    ("hook_embed", "TransformerLens", "token_embedding"),
    ("hook_pos_embed", "TransformerLens", "position_embedding"),
    ("resid_pre", "TransformerLens", "blocks[l].input"),
    ("resid_mid", "TransformerLens", "blocks[l].mid"),
    ("resid_post", "TransformerLens", "blocks[l].output"),
    ("q, k, v", "TransformerLens", "blocks[l].attention.Q, .K, .V"),
    ("attn_scores", "TransformerLens", "blocks[l].attention.masked_scores"),
    ("pattern", "TransformerLens", "blocks[l].attention.weights"),
    ("z", "TransformerLens", "blocks[l].attention.context"),
    ("result", "TransformerLens", "blocks[l].attention.heads[h].output"),
    ("attn_out", "TransformerLens", "blocks[l].attention.output"),
    ("mlp_in", "TransformerLens", "blocks[l].mid"),
    ("pre", "TransformerLens", "blocks[l].mlp.hidden"),
    ("post", "TransformerLens", "blocks[l].mlp.activated"),
    ("mlp_out", "TransformerLens", "blocks[l].mlp.output"),
    ("W_in, W_out", "TransformerLens", "blocks[l].mlp.W_1, .W_2"),
    ("attentions", "transformers", "blocks[l].attention.weights"),
    ("hidden_states", "transformers", "blocks[l].input, and final"),
    ("wte, wpe", "transformers", "W_E, W_P"),
    ("lm_head", "transformers", "W_U"),
    ("ln_1, ln_2", "transformers", "blocks[l].attention.X, blocks[l].mlp.X"),
    ("ln_f", "transformers", "final"),
    ("c_attn", "transformers", "blocks[l].attention.W_QKV"),
    ("c_fc", "transformers", "blocks[l].mlp.W_1"),
    ("c_proj", "transformers", "blocks[l].attention.W_O, blocks[l].mlp.W_2"),
)


def hint_for(name: str) -> str:
    """Where to find here what another tool calls `name`, as the end of a message; "" if unknown."""
    bare = name.removeprefix("hook_")
    found = [
        f"; {tool}'s {bare} is {ours} here"
        for theirs, tool, ours in NAMES
        if bare in theirs.removeprefix("hook_").split(", ")
    ]
    return "".join(found)
