"""Names in other tools, and the names here, for hints in error messages."""

from __future__ import annotations

import re
from collections.abc import Container

# Their name, the tool, and the path here, from a trace; l is a layer, h a head.
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

# An attribute of their models, the tool, and the equivalent here.
OF_MODELS = (
    ("run_with_cache", "TransformerLens", "model.trace(text)"),
    ("run_with_hooks", "TransformerLens", "model.trace(text).edited({path: function})"),
    ("add_hook", "TransformerLens", "model.trace(text).edited({path: function})"),
    ("to_tokens", "TransformerLens", "model.tokenizer.encode(text)"),
    ("to_str_tokens", "TransformerLens", "model.tokenizer.tokens(text)"),
    ("to_string", "TransformerLens", "model.tokenizer.decode(ids)"),
    ("to_single_token", "TransformerLens", "model.tokenizer.encode(text)"),
    ("cfg", "TransformerLens", "model.config"),
    ("W_E, W_pos, W_U", "TransformerLens", "trace.W_E, .W_P, .W_U"),
    ("W_Q, W_K, W_V, W_O", "TransformerLens", "trace.blocks[l].attention.W_Q, .W_K, .W_V, .W_O"),
    ("forward", "transformers", "model.trace(text).logits"),
    ("transformer", "transformers", "model.trace(text).blocks"),
    ("state_dict, named_parameters", "transformers", "model.parameters"),
)

# Placeholders for numbers in paths.
NUMBERED = {"blocks": "blocks[l]", "heads": "heads[h]"}


def hint_for(name: str, place: str = "", of_layer: Container[str] = ()) -> str:
    """The end of a message: the path here of what another tool calls `name`; "" if unknown.

    Parameters
    ----------
    place : the path of the result that was asked, such as blocks.1.attention.heads.2
    of_layer : names of the layer's steps that the result also has
    """
    bare = name.removeprefix("hook_")
    place = re.sub(r"(blocks|heads)\.\d+", lambda found: NUMBERED[found[1]], place)
    hints = []
    for theirs, tool, ours in NAMES:
        names = theirs.removeprefix("hook_").split(", ")
        if bare in names:
            there = _from(place, _one_of(ours, names.index(bare), len(names)), of_layer)
            hints.append(f"; {tool}'s {bare} is {there} here")
    return "".join(hints)


def hint_of_model(name: str) -> str:
    """The end of a message: the equivalent of another tool's model attribute, or ""."""
    for theirs, tool, ours in OF_MODELS:
        names = theirs.split(", ")
        if name in names:
            return f"; {tool}'s {name} is {_one_of(ours, names.index(name), len(names))} here"
    return ""


def hint_in_path(path: str) -> str:
    """Like `hint_for`, for a path that ends in another tool's name, with the path's layer."""
    hint = hint_for(path.rpartition(".")[2])
    layer = re.match(r"blocks\.(\d+)\.", path)
    return hint.replace("blocks[l]", f"blocks.{layer[1]}") if layer else hint


def _one_of(ours: str, index: int, count: int) -> str:
    """The path for one of several names; all paths if their number differs."""
    paths = ours.split(", ")
    if len(paths) != count:
        return ours
    place = paths[0].rpartition(".")[0]
    return f"{place}{paths[index]}" if paths[index].startswith(".") else paths[index]


def _from(place: str, path: str, of_layer: Container[str]) -> str:
    """A path relative to the result at a place, if possible."""
    if place and path.startswith(f"{place}."):
        return path.removeprefix(f"{place}.")
    layer, _, name = path.rpartition(".")
    return name if place.startswith(f"{layer}.heads") and name in of_layer else path


def dotted(path: str) -> str:
    """A path with Python indices, blocks[1].mid, in the form used here, blocks.1.mid."""
    return re.sub(r"\[(-?\d+)\]", r".\1", path)


def dots_hint(path: str) -> str:
    """The end of a message about a path with Python indices; "" for others."""
    here = dotted(path)
    if here == path:
        return ""
    example = "such as blocks.0.mid" if ".-" in here else here
    return f"; in a path, write numbers between dots, from 0: {example}"
