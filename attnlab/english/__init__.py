"""A small GPT-2 that reads simple English, and how it is made.

`corpus` collects the text, with the sentences of `made`; `windows` cuts it, and `train` trains on
it with PyTorch. `measure` measures the model on held-out text and on `sentences` with a right
answer, and writes its `card`.
"""
