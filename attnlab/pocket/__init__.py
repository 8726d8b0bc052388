"""The pocket model, a small GPT-2 in the package.

`held_out` has texts like the training texts of the model. `truth` has the results of every subset
of its heads and MLPs. `examples/pocket` in attnlab's repository makes the model.
"""
