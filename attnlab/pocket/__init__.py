"""The pocket model, a small GPT-2 in the package, and the grammar of its sentences.

`grammar` generated the training texts. `truth` has the results of every subset of the model's heads
and MLPs. `examples/pocket` makes the model.
"""
