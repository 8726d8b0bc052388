"""GPT-2 as you use it.

`gpt2` is the model; `trace` what `model.trace(text)` returns; `generation` and `sampling` continue
a text; `recordings` keep a trace in a file; `explorer` serves the page.
"""

from attnlab.model.gpt2 import GPT2

__all__ = ["GPT2"]
