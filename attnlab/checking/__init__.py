"""Comparisons of numbers.

`verdict` finds which of your own numbers are wrong: `comparison` compares each with its step, with
tolerances for rounding; `orders` knows right code in another order. Mistakes are generated:
`mutants` writes a step's equation as lines of code and changes them by its rules, and `search` runs
the model with the changed lines, by means of `replaced`. `relations` has mistakes that aren't in a
step's code, and hints. `figures` compares published figures, `hugging_face` transformers' numbers.
"""

from attnlab.checking.verdict import check, checked

__all__ = ["check", "checked"]
