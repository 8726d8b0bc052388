"""The GPT2 class and its results.

`gpt2` has the model. `trace` has the result of `model.trace(text)`, and `traces` the results of
several texts. `generation` and `sampling` continue a text. `notice` warns of unknown words.
"""

from attnlab.model.gpt2 import GPT2

__all__ = ["GPT2"]
