"""A small GPT-2 that reads simple English: weights, tokenizer, card and the texts' attributions.

`held_out.txt` is some of the text that measured it and that it wasn't trained on: the first
sentences of the Winograd schemas by Levesque, Davis, Morgenstern and others, CC BY 4.0,
https://cs.nyu.edu/davise/papers/WinogradSchemas/WS.html. `examples/english` makes such models.
"""
