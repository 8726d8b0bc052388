"""Tables with which a page opens a model's directory.

`opening.js` uses them to read the config, the tensors and the tokenizer.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from itertools import product
from typing import Any

import numpy as np

from attnlab.checkpoints import checkpoint
from attnlab.forward import config
from attnlab.forward.config import GPT2Config
from attnlab.forward.forward_pass import ForwardPass, formulas_of
from attnlab.forward.parameters import shapes_in_block, shapes_outside_of_blocks
from attnlab.steps import as_data, graph_of
from attnlab.support import formats
from attnlab.text import bpe, tokenizer_files
from attnlab.text.tokens import BYTES

# A config with distinct sizes, so that each axis of a shape can be identified.
EXAMPLE = GPT2Config(vocab_size=2, n_positions=3, n_embd=5, n_layer=1, n_head=1, n_inner=7)
SIZES = {2: "vocab_size", 3: "n_positions", 5: "n_embd", 15: "3 n_embd", 7: "d_mlp"}


def rules() -> dict[str, Any]:
    """The tables, for JSON."""
    return {"config": _config_rules(), "tensors": _tensor_rules(), "tokenizer": _tokenizer_rules()}


def _config_rules() -> dict[str, Any]:
    settings = fields(GPT2Config)
    flags = [field.name for field in settings if isinstance(field.default, bool)]
    scales = [
        _formula("scale", scale_attn_weights=by_sqrt_d, scale_attn_by_inverse_layer_idx=by_layer)
        for by_sqrt_d, by_layer in product((False, True), repeat=2)
    ]
    activations = {
        name: {
            "equation": activation.function.__name__,
            "name": activation.name,
            "formula": _formula("activated", activation_function=name),
        }
        for name, activation in config.ACTIVATIONS.items()
    }
    return {
        "fixed": {
            **config.FIXED,
            "model_type": config.MODEL_TYPE,
            "auto_map": None,  # custom code
            "quantization_config": None,
        },
        "required": [field.name for field in settings if field.default is MISSING],
        "sizes": config.DEFAULT_SIZES,
        "aliases": config.ALIASES,
        "defaults": {f.name: f.default for f in settings if f.default is not MISSING},
        "largest": config.LARGEST,
        "flags": flags,
        "activations": activations,
        "scales": scales,  # divided by: nothing, the layer number, √Dk, both
    }


def _formula(step: str, **settings: Any) -> str:
    """A step's formula in a variant of GPT-2."""
    return dict(formulas_of(replace(EXAMPLE, **settings)))[step]


def _tensor_rules() -> dict[str, Any]:
    untied = replace(EXAMPLE, tie_word_embeddings=False)
    shapes = {
        "block": (shapes_in_block(untied), checkpoint.NAMES),
        "outside": (shapes_outside_of_blocks(untied), checkpoint.OUTSIDE_OF_BLOCKS),
    }
    parameters = {
        group: [
            [path, names[path], [SIZES[size] for size in shape]] for path, shape in paths.items()
        ]
        for group, (paths, names) in shapes.items()
    }
    return {
        **parameters,
        "weights": checkpoint.WEIGHTS,
        "index": checkpoint.INDEX,
        "averages": checkpoint.AVERAGES,
        "largest_header": checkpoint.LARGEST_HEADER,
        "bytes": {name: np.dtype(kind).itemsize for name, kind in checkpoint.STORED_AS.items()},
        "wrappers": checkpoint.WRAPPERS.pattern,
        "mask_buffer": checkpoint.MASK_BUFFER.pattern,
        "heads": [*checkpoint.HEADS],
        "adapter": formats.ADAPTER,
        "formats": [pattern for pattern, _ in formats.FORMATS],
        # How W_U is computed if it is tied to W_E.
        "W_U": as_data(graph_of(ForwardPass, 1))["W_U"],
    }


def _tokenizer_rules() -> dict[str, Any]:
    return {
        "pattern": bpe.PIECES,
        "bytes": [*BYTES],
        "gpt2": {
            "classes": tokenizer_files.GPT2_CLASSES,
            "special": tokenizer_files.GPT2_SPECIAL,
            "settings": tokenizer_files.BYTE_PAIRS,
        },
        "bert": {
            "classes": tokenizer_files.BERT_CLASSES,
            "special": tokenizer_files.BERT_SPECIAL,
            "settings": tokenizer_files.WORD_PIECES,
            "types": bpe.WORD_PIECE_TYPES,
        },
        "openai": tokenizer_files.OPENAI,
        "special": tokenizer_files.SPECIAL,
        "looks_special": tokenizer_files.LOOKS_SPECIAL,
        "unsupported_model_settings": bpe.UNSUPPORTED_MODEL_SETTINGS,
        "unsupported_token_flags": bpe.UNSUPPORTED_TOKEN_FLAGS,
    }
