"""Look inside GPT-2's attention: every number between a text and the next word.

NumPy computes every step. Other libraries only read a model's files and split texts into tokens.

>>> import attnlab
>>> model = attnlab.GPT2.from_pretrained("english")  # in the package; "gpt2" downloads 550 MB
>>> trace = model.trace("It’s very hot in summer. Swimming is")
>>> trace.head(0, 0).weights
"""

import sys as _sys
import typing as _typing
from importlib import import_module as _import_module

from attnlab import errors
from attnlab.errors import AttnlabError
from attnlab.forward.attention import Attention, Head, MultiHeadAttention, SelfAttention
from attnlab.forward.config import GPT2Config
from attnlab.forward.forward_pass import MLP, Block
from attnlab.forward.functional import (
    attention,
    causal_mask,
    cross_attention,
    layer_norm,
    merge_heads,
    multi_head_attention,
    self_attention,
    softmax,
    split_heads,
)
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import NextToken, Trace
from attnlab.steps import at
from attnlab.support.tables import table
from attnlab.text.tokenizer import Tokenizer
from attnlab.text.tokens import Token, Tokens

if _typing.TYPE_CHECKING:
    from attnlab import corpus as corpus
    from attnlab.analysis.ablation import averages
    from attnlab.analysis.attribution import attribution
    from attnlab.analysis.gradients import gradients
    from attnlab.analysis.jobs import jobs
    from attnlab.analysis.lens import lens
    from attnlab.analysis.patching import attribution_patch, patch
    from attnlab.analysis.paths import path_patch
    from attnlab.analysis.why import why
    from attnlab.checking import check
    from attnlab.checking import figures as figures
    from attnlab.corpus import atlas, open_atlas
    from attnlab.model.generation import Generation
    from attnlab.pages.explore import explore
    from attnlab.pages.page import page, playground
    from attnlab.pages.words import words
    from attnlab.training import train
    from attnlab.views import pictures as pictures

# Modules, and names by module, that are loaded on first use, to keep `import attnlab` fast.
_LAZY_MODULES = {
    "corpus": "attnlab.corpus",
    "figures": "attnlab.checking.figures",
    "pictures": "attnlab.views.pictures",
}
_LAZY = {
    "Generation": "attnlab.model.generation",
    "atlas": "attnlab.corpus",
    "attribution": "attnlab.analysis.attribution",
    "attribution_patch": "attnlab.analysis.patching",
    "averages": "attnlab.analysis.ablation",
    "check": "attnlab.checking",
    "explore": "attnlab.pages.explore",
    "gradients": "attnlab.analysis.gradients",
    "jobs": "attnlab.analysis.jobs",
    "lens": "attnlab.analysis.lens",
    "open_atlas": "attnlab.corpus",
    "page": "attnlab.pages.page",
    "patch": "attnlab.analysis.patching",
    "path_patch": "attnlab.analysis.paths",
    "playground": "attnlab.pages.page",
    "train": "attnlab.training",
    "why": "attnlab.analysis.why",
    "words": "attnlab.pages.words",
}

__version__ = "0.3.0"

__all__ = [
    "GPT2",
    "MLP",
    "Attention",
    "AttnlabError",
    "Block",
    "GPT2Config",
    "Generation",
    "Head",
    "MultiHeadAttention",
    "NextToken",
    "SelfAttention",
    "Token",
    "Tokenizer",
    "Tokens",
    "Trace",
    "at",
    "atlas",
    "attention",
    "attribution_patch",
    "averages",
    "causal_mask",
    "check",
    "cross_attention",
    "errors",
    "explore",
    "layer_norm",
    "merge_heads",
    "multi_head_attention",
    "open_atlas",
    "patch",
    "path_patch",
    "self_attention",
    "softmax",
    "split_heads",
    "table",
    "train",
    "attribution",
    "gradients",
    "jobs",
    "lens",
    "why",
    "words",
    "page",
    "playground",
]


if not _typing.TYPE_CHECKING:  # so that type checkers report misspelt names

    def __getattr__(name: str) -> _typing.Any:
        if name in _LAZY_MODULES:
            return _import_module(_LAZY_MODULES[name])
        if name in _LAZY:
            return getattr(_import_module(_LAZY[name]), name)
        hint = f"; use {__name__}.GPT2.{name}" if name.startswith("from_") else ""
        module = _sys.modules[__name__]
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}{hint}", name=name, obj=module
        )


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, "__version__", "corpus", "equations"])
