"""Byte pairs learned from a text, in GPT-2's two files."""

from __future__ import annotations

from pathlib import Path

from attnlab.errors import MissingExtraError
from attnlab.text.tokenizer import Tokenizer
from attnlab.text.tokens import byte_symbols

# More than there is to merge: a small grammar's words end up as one token each.
MOST_TOKENS = 1024


def learn_vocabulary(text: str, directory: str | Path) -> Tokenizer:
    """Learn a byte-level BPE from a text, and write it as `vocab.json` and `merges.txt`.

    First come the 256 bytes, so that any text can be encoded, then one token for each merge, until
    every piece of the text is one token or there are `MOST_TOKENS`. There is no `<|endoftext|>`:
    the pocket model's texts end with a line end, which is a byte like any other.

    Parameters
    ----------
    text : what to learn from
    directory : where the two files go

    Returns
    -------
    Tokenizer, read back from the two files

    Notes
    -----
    Source: "Neural Machine Translation of Rare Words with Subword Units" (2016), algorithm 1, as
    the tokenizers library has it. It is needed for learning only.
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
        vocab_size=MOST_TOKENS, initial_alphabet=sorted(byte_symbols()), show_progress=False
    )
    learner.train_from_iterator(text.splitlines(keepends=True), trainer)
    learner.model.save(str(directory))
    return Tokenizer.from_directory(directory)
