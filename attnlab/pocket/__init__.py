"""The pocket model, a small GPT-2 in the package, and the grammar of its sentences.

`grammar` generated the training texts, and `jobs` measures heads on them. `truth` has the results
of every subset of its heads and MLPs. `examples/pocket` makes the model.
"""
