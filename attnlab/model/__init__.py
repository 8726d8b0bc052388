"""The GPT2 model class and what it returns.

`gpt2` is the model; `trace` is what `model.trace(text)` returns, `traces` what it returns for
several texts; `generation` and `sampling` continue a text; `recordings` reads and writes trace
files; `explorer` serves the page.
"""

from attnlab.model.gpt2 import GPT2

__all__ = ["GPT2"]
