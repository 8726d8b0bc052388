"""A small GPT-2 that reads simple English: weights, tokenizer, card and the texts' attributions.

`held_out.json` is some of the text that it wasn't trained on. `examples/english` makes such models.
"""
