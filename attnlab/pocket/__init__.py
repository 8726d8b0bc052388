"""The pocket model, a small GPT-2 in the package, and the code that made it.

`grammar` generates the training texts, `vocabulary` learns the tokenizer, `jobs` and `losses`
measure the model for its card, and `make` is the command that creates all its files. `truth` has
the results of every subset of its heads and MLPs.
"""
