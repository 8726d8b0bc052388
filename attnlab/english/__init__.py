"""How a small GPT-2 that reads simple English is made; its weights aren't in the package yet.

`corpus` collects the text, with the sentences of `made`; `windows` cuts it, and `train` trains on
it with PyTorch. `measure` measures the model on held-out text and on `sentences` with a right
answer, and writes its `card`.
"""
