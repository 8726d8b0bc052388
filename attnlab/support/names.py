"""Equivalents of other tools' names, for hints in error messages."""

from __future__ import annotations

import re
from collections.abc import Container

from attnlab.support.messages import Message, joined

# The tool's names, the tool, and the paths in a trace; l is a layer, h a head.
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

# Attributes of the tool's models, the tool, and the equivalent here.
MODEL_ATTRIBUTES = (
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


def hint_for(
    name: str, prefix: str = "", in_head: Container[str] = (), layer: str = "[l]"
) -> Message:
    """The end of a message: the path of what another tool calls `name`, or "" if unknown.

    Parameters
    ----------
    prefix : the path of the result whose attribute was requested, such as
        blocks.1.attention.heads.2; the hint is relative to it
    in_head : names of steps that a head has as well as its layer
    layer : what follows "blocks" in the hint
    """
    bare = name.removeprefix("hook_")
    prefix = re.sub(r"(blocks|heads)\.\d+", lambda match: NUMBERED[match[1]], prefix)
    hints = []
    for theirs, tool, ours in NAMES:
        names = theirs.removeprefix("hook_").split(", ")
        if bare in names:
            path = _relative(_path_at(ours, names.index(bare), len(names)), prefix, in_head)
            hints.append(hint(tool, bare, path.replace("blocks[l]", f"blocks{layer}")))
    return joined(*hints)


def hint(tool: str, name: str, path: str) -> Message:
    """The end of a message: another tool's name for a path."""
    return Message("; {tool}'s {name} is {path} here", tool=tool, name=name, path=path)


def hint_for_model(name: str) -> str:
    """The end of a message: the equivalent of another tool's model attribute, or ""."""
    for theirs, tool, ours in MODEL_ATTRIBUTES:
        names = theirs.split(", ")
        if name in names:
            return hint(tool, name, _path_at(ours, names.index(name), len(names)))
    return ""


def hint_in_path(path: str) -> str:
    """Like `hint_for`, for a path that ends in another tool's name; keeps the path's layer."""
    layer = re.match(r"blocks(\.\d+)\.", path)
    return hint_for(path.rpartition(".")[2], layer=layer[1] if layer else "[l]")


def _path_at(ours: str, index: int, count: int) -> str:
    """The path for one of `count` names; all paths if their number differs."""
    paths = ours.split(", ")
    if len(paths) != count:
        return ours
    parent = paths[0].rpartition(".")[0]
    return f"{parent}{paths[index]}" if paths[index].startswith(".") else paths[index]


def _relative(path: str, prefix: str, in_head: Container[str]) -> str:
    """A path relative to a prefix, if possible."""
    if prefix and path.startswith(f"{prefix}."):
        return path.removeprefix(f"{prefix}.")
    layer, _, name = path.rpartition(".")
    return name if prefix.startswith(f"{layer}.heads") and name in in_head else path


def dotted(path: str) -> str:
    """Replace Python indices by dots: blocks[1].mid becomes blocks.1.mid."""
    return re.sub(r"\[(-?\d+)\]", r".\1", path)


def dots_hint(path: str) -> str:
    """The end of a message about a path with Python indices; "" for others."""
    valid = dotted(path)
    if valid == path:
        return ""
    example = Message("such as blocks.0.mid") if ".-" in valid else valid
    return Message("; in a path, write numbers between dots, from 0: {example}", example=example)
