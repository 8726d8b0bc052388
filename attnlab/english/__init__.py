"""The model `english`, a small GPT-2 in the package that reads simple English, and how it was made.

`corpus` collects the text, with the sentences of `made`; `windows` cuts it, `train` trains on it
with PyTorch, and `measure` writes the model card.
"""
