"""The GPT2 class and its results.

`gpt2` has the model; `trace` the result of `model.trace(text)`, `traces` that of several texts;
`generation` and `sampling` continue a text.
"""

from attnlab.model.gpt2 import GPT2

__all__ = ["GPT2"]
