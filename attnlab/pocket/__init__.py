"""The small GPT-2 that comes with the package, and how it was made.

Its files, then `grammar` (the sentences it was trained on), `vocabulary`, `jobs` and `losses` (what
its card says of it) and `make`, the command that makes all of them.
"""
