"""The GPT2 class and its results.

`gpt2` has the model; `trace` the result of `model.trace(text)`, `traces` that of several texts;
`generation` and `sampling` continue a text; `notice` says which of its words a model doesn't know.
"""

from attnlab.model.gpt2 import GPT2

__all__ = ["GPT2"]
