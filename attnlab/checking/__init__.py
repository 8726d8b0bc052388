"""Comparisons of numbers.

`comparison` finds the first step at which two traces differ, `changes` the parts that changed
between two models. `verdict` finds which of your own numbers are wrong and which known mistakes
produce them: it runs the model with the equations of `mistakes`, by means of `replaced`. `exercise`
checks a learner's function. `figures` compares published figures.
"""

from attnlab.checking.comparison import compare
from attnlab.checking.exercise import checked
from attnlab.checking.verdict import check

__all__ = ["check", "checked", "compare"]
