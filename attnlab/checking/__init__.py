"""Comparisons of numbers.

`comparison` finds the first step at which two traces differ. `verdict` finds which of your own
numbers are wrong: `submission` compares each, `orders` knows right code in another order, and
`search` runs the model with the equations of `mistakes`, by means of `replaced`. `figures` compares
published figures, `hugging_face` transformers' numbers.
"""

from attnlab.checking.comparison import compare
from attnlab.checking.verdict import check, checked

__all__ = ["check", "checked", "compare"]
