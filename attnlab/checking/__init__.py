"""Numbers held against others.

`comparison` finds the first step at which two traces differ; `verdict` says which of your own
numbers are wrong, and which of the known `mistakes` makes exactly these, by running the model
with equations `replaced`. `figures` are published ones.
"""

from attnlab.checking.comparison import compare
from attnlab.checking.verdict import check

__all__ = ["check", "compare"]
