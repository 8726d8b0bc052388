"""Comparisons of numbers.

`verdict` finds which of your own numbers are wrong: `submission` compares each with its step, by
the tolerances of `comparison`; `orders` knows right code in another order, and `search` runs the
model with the equations of `mistakes`, by means of `replaced`. `figures` compares published
figures, `hugging_face` transformers' numbers.
"""

from attnlab.checking.verdict import check, checked

__all__ = ["check", "checked"]
