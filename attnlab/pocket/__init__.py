"""The pocket model, a small GPT-2 in the package, and the code that made it.

`grammar` generates the training texts, `vocabulary` learns the tokenizer, and `make` is the command
that creates all files of the model; `jobs` measures its heads for its card. `truth` has the results
of every subset of its heads and MLPs.
"""
