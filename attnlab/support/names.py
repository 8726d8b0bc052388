"""Equivalents of other tools' names, for hints in error messages."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Paths in a trace by the tools' names, without TransformerLens's `hook_`; l is a layer, h a head.
PATHS = {
    "TransformerLens": {
        "embed": "token_embedding",
        "pos_embed": "position_embedding",
        "resid_pre": "blocks[l].input",
        "resid_mid": "blocks[l].mid",
        "resid_post": "blocks[l].output",
        "q": "blocks[l].attention.Q",
        "k": "blocks[l].attention.K",
        "v": "blocks[l].attention.V",
        "attn_scores": "blocks[l].attention.masked_scores",
        "pattern": "blocks[l].attention.weights",
        "z": "blocks[l].attention.context",
        "result": "blocks[l].attention.heads[h].output",
        "attn_out": "blocks[l].attention.output",
        "mlp_in": "blocks[l].mid",
        "pre": "blocks[l].mlp.hidden",
        "post": "blocks[l].mlp.activated",
        "mlp_out": "blocks[l].mlp.output",
        "W_in": "blocks[l].mlp.W_1",
        "W_out": "blocks[l].mlp.W_2",
    },
    "transformers": {
        "attentions": "blocks[l].attention.weights",
        "hidden_states": "blocks[l].input, and final",
        "wte": "W_E",
        "wpe": "W_P",
        "lm_head": "W_U",
        "ln_1": "blocks[l].attention.X",
        "ln_2": "blocks[l].mlp.X",
        "ln_f": "final",
        "c_attn": "blocks[l].attention.W_QKV",
        "c_fc": "blocks[l].mlp.W_1",
        "c_proj": "blocks[l].attention.W_O, blocks[l].mlp.W_2",
    },
}

# Equivalents of attributes of the tools' models.
MODEL_ATTRIBUTES = {
    "TransformerLens": {
        "run_with_cache": "model.trace(text)",
        "run_with_hooks": "model.trace(text).edited({path: function})",
        "add_hook": "model.trace(text).edited({path: function})",
        "to_tokens": "model.tokenizer.encode(text)",
        "to_str_tokens": "model.tokenizer.tokens(text)",
        "to_string": "model.tokenizer.decode(ids)",
        "to_single_token": "model.tokenizer.encode(text)",
        "cfg": "model.config",
        "W_E": "trace.W_E",
        "W_pos": "trace.W_P",
        "W_U": "trace.W_U",
        "W_Q": "trace.blocks[l].attention.W_Q",
        "W_K": "trace.blocks[l].attention.W_K",
        "W_V": "trace.blocks[l].attention.W_V",
        "W_O": "trace.blocks[l].attention.W_O",
    },
    "transformers": {
        "forward": "model.trace(text).logits",
        "transformer": "model.trace(text).blocks",
        "state_dict": "model.parameters",
        "named_parameters": "model.parameters",
    },
}


def hint_for(path: str) -> str:
    """The end of a message about a path: attnlab's equivalent of a tool's name, or ""."""
    return _hint(path.rpartition(".")[2].removeprefix("hook_"), PATHS)


def hint_for_model(name: str) -> str:
    """The end of a message: attnlab's equivalent of a tool's model attribute, or ""."""
    return _hint(name, MODEL_ATTRIBUTES)


def _hint(name: str, names_of_tools: Mapping[str, Mapping[str, str]]) -> str:
    hints = (
        f"; {tool}'s {name} is {names[name]} here"
        for tool, names in names_of_tools.items()
        if name in names
    )
    return "".join(hints)


def with_dots(path: str) -> str:
    """Replace Python indices by dots: blocks[1].mid becomes blocks.1.mid."""
    return re.sub(r"\[(-?\d+)\]", r".\1", path)


def dots_hint(path: str) -> str:
    """The end of a message about a path with Python indices; "" for others."""
    valid = with_dots(path)
    if valid == path:
        return ""
    is_negative = ".-" in valid  # negative indices can't be written as a path
    example = "such as blocks.0.mid" if is_negative else valid
    return f"; in a path, write numbers between dots, from 0: {example}"
