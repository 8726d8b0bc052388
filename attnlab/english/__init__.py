"""The model `english`, a small GPT-2 in the package that reads simple English, and how it was made.

`corpus` collects the text, with the sentences of `made`; `windows` cuts it, and `train` trains on
it with PyTorch. `measure` measures the model on held-out text and on `sentences` with a right
answer, and writes its `card`.
"""
