"""Text to token ids and back.

Start with `tokens`, which has a token's id, symbol, text and bytes. `words` finds words that have
several tokens. `bpe` is GPT-2's byte pair encoding. `tokenizer_files` reads a tokenizer's settings
from a directory, and `tokenizer` encodes texts with these. `corpora` reads many texts.
"""
