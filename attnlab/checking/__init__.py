"""Comparisons of numbers.

`comparison` finds the first step at which two traces differ. `verdict` finds which of your own
numbers are wrong, and which of the known `mistakes` produces them, by running the model with
equations `replaced`. `figures` compares published figures.
"""

from attnlab.checking.comparison import compare
from attnlab.checking.verdict import check

__all__ = ["check", "compare"]
