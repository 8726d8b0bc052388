"""Tables of what a model's directory may hold, so that a page can open one.

`opening.js` reads the config, tensors and tokenizer by these tables.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from itertools import product
from typing import Any

import numpy as np

from attnlab.checkpoints import checkpoint as tensors
from attnlab.forward import config as sizes
from attnlab.forward.config import GPT2Config
from attnlab.forward.forward_pass import ForwardPass, formulas_of
from attnlab.forward.parameters import shapes_in_block, shapes_outside_of_blocks
from attnlab.steps import as_data, graph_of
from attnlab.support import files, formats
from attnlab.text import bpe, tokenizer, tokenizer_files
from attnlab.text.tokens import BYTES, END_OF_TEXT

# A config with distinct sizes, so that shapes show which size each axis has.
PLAIN = GPT2Config(vocab_size=2, n_positions=3, n_embd=5, n_layer=1, n_head=1, n_inner=7)
SIZES = {2: "vocab_size", 3: "n_positions", 5: "n_embd", 15: "3 n_embd", 7: "d_mlp"}


def rules() -> dict[str, Any]:
    """The tables, for JSON."""
    return {
        "most_bytes": files.LARGEST,
        "listed": formats.LISTED,
        "config": _of_config(),
        "tensors": _of_tensors(),
        "tokenizer": _of_tokenizer(),
    }


def _of_config() -> dict[str, Any]:
    settings = fields(GPT2Config)
    flags = [field.name for field in settings if isinstance(field.default, bool)]
    scales = [
        _formula("scale", scale_attn_weights=root, scale_attn_by_inverse_layer_idx=number)
        for root, number in product((False, True), repeat=2)
    ]
    activations = {
        name: {
            "equation": one.function.__name__,
            "name": one.name,
            "formula": _formula("activated", activation_function=name),
        }
        for name, one in sizes.ACTIVATIONS.items()
    }
    return {
        "model_type": sizes.MODEL_TYPE,
        "fixed": sizes.FIXED,
        "required": [field.name for field in settings if field.default is MISSING],
        "defaults": {f.name: f.default for f in settings if f.default is not MISSING},
        "largest": sizes.LARGEST,
        "flags": flags,
        "activations": activations,
        "scales": scales,  # without √Dk and layer numbers, with numbers, with √Dk, with both
        "how_to_dequantise": formats.HOW_TO_DEQUANTISE,
    }


def _formula(step: str, **settings: Any) -> str:
    """A step's formula in a variant of GPT-2."""
    return dict(formulas_of(replace(PLAIN, **settings)))[step]


def _of_tensors() -> dict[str, Any]:
    untied = replace(PLAIN, tie_word_embeddings=False)
    shapes = {
        "block": (shapes_in_block(untied), tensors.NAMES),
        "outside": (shapes_outside_of_blocks(untied), tensors.OUTSIDE_OF_BLOCKS),
    }
    named = {
        place: [
            [path, names[path], [SIZES[size] for size in shape]] for path, shape in of_place.items()
        ]
        for place, (of_place, names) in shapes.items()
    }
    patterns = {
        "in_block": tensors.IN_BLOCK,
        "wrapped": tensors.WRAPPERS,
        "mask": tensors.MASK_BUFFER,
        "quantised": tensors.QUANTISED,
        "lora": tensors.LORA,
    }
    return {
        **named,
        "weights": tensors.WEIGHTS,
        "index": tensors.INDEX,
        "largest_header": tensors.LARGEST_HEADER,
        "bytes": {name: np.dtype(kind).itemsize for name, kind in tensors.STORED_AS.items()},
        "patterns": {name: pattern.pattern for name, pattern in patterns.items()},
        "heads": tensors.HEADS,
        "beginnings": {start.decode(): reason for start, reason in tensors.SIGNATURES.items()},
        "formats": formats.FORMATS,
        "adapter": formats.ADAPTER,
        "W_U": as_data(graph_of(ForwardPass, 1))["W_U"],
    }


def _of_tokenizer() -> dict[str, Any]:
    return {
        "pattern": bpe.PIECES,
        "bytes": [*BYTES],
        "end_of_text": END_OF_TEXT,
        "classes": tokenizer_files.GPT2_CLASSES,
        "special": tokenizer_files.SPECIAL,
        "defaults": tokenizer_files.GPT2_SPECIAL,
        "looks_special": tokenizer_files.SPECIAL_LOOK.pattern,
        "odd_model": bpe.UNSUPPORTED_MODEL,
        "odd_token": bpe.UNSUPPORTED_TOKEN,
        "parts": tokenizer_files.PARTS,
        "byte_level": tokenizer_files.BYTE_LEVEL,
        "most_ids": tokenizer_files.MOST_IDS,
        "sentence_piece": tokenizer_files.SENTENCE_PIECE,
        "how_to_save": tokenizer_files.HOW_TO_SAVE,
        "how_to_convert": tokenizer_files.HOW_TO_CONVERT,
        "another": tokenizer.NO_PAGE,
    }
