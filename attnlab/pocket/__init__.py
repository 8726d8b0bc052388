"""The pocket model, a small GPT-2 in the package.

`held_out` has texts like those that it was trained on. `truth` has the results of every subset of
the model's heads and MLPs. `examples/pocket` in attnlab's repository makes the model.
"""
