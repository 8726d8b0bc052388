"""Learn a byte pair encoding from a text."""

from __future__ import annotations

from pathlib import Path

from attnlab.errors import MissingExtraError
from attnlab.text.tokenizer import Tokenizer
from attnlab.text.tokens import byte_symbols

# The pocket model's limit, which isn't reached: every word of the grammar becomes one token.
MAX_TOKENS = 1024


def learn_vocabulary(text: str, directory: str | Path, tokens: int = MAX_TOKENS) -> Tokenizer:
    """Learn a byte-level BPE from a text, and write `vocab.json` and `merges.txt`.

    The vocabulary is the 256 bytes, then a token for each merge, of at most `tokens`; without
    `<|endoftext|>`: the pocket model's texts end with a line break.

    Source: "Neural Machine Translation of Rare Words with Subword Units" (2016), algorithm 1, in
    the tokenizers library.
    """
    try:
        import tokenizers
    except ImportError:
        raise MissingExtraError(
            "learning a vocabulary needs tokenizers: pip install tokenizers (attnlab's optional "
            "extra 'pocket')"
        ) from None
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=tokens, initial_alphabet=sorted(byte_symbols()), show_progress=False
    )
    learner.train_from_iterator(text.splitlines(keepends=True), trainer)
    learner.model.save(str(directory))
    return Tokenizer.from_directory(directory)
