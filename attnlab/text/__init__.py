"""Text to token ids and back.

`tokens` first: what a token is (id, symbol, text, bytes). Then `bpe` (GPT-2's byte pairs),
`tokenizer_files` (what a directory says of its tokenizer), and `tokenizer`, which joins them.
"""
