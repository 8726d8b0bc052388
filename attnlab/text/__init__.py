"""Text to token ids and back.

Start with `tokens`: a token's id, symbol, text and bytes. `words` says which words are in pieces.
`bpe` is GPT-2's byte pair encoding, `tokenizer_files` reads a tokenizer from a directory, and
`tokenizer` joins them. `corpora` reads many texts, from files or as a stream.
"""
