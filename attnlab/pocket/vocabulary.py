"""The pocket model's vocabulary: byte pairs learned from the corpus, in GPT-2's two files."""

from __future__ import annotations

import json
from pathlib import Path

from attnlab.tokenizer import Tokenizer, byte_symbols


def learn_vocabulary(text: str, directory: str | Path, size: int = 1024) -> Tokenizer:
    """Learn a byte-level byte-pair encoding and write `vocab.json` and `merges.txt`.

    All 256 bytes come first, so that any text can be encoded; then one token for each merge, in
    order. There is no `<|endoftext|>`: texts end with a line end, which is a byte like any other.
    The `tokenizers` library does the learning; text is cut into pieces as GPT-2 cuts it.

    Parameters
    ----------
    text : what to learn from
    directory : where the two files go; made if it is not there
    size : tokens in the vocabulary, at most; fewer if the text has no more pairs

    Returns
    -------
    Tokenizer
        read back from the two files
    """
    import tokenizers  # here, since only training the pocket model needs it

    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        initial_alphabet=byte_symbols(),
        show_progress=False,
    )
    learner.train_from_iterator(text.splitlines(keepends=True), trainer)
    learned = json.loads(learner.to_str())["model"]

    merges = [" ".join(pair) for pair in learned["merges"]]
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(
        json.dumps(learned["vocab"], ensure_ascii=False), encoding="utf-8"
    )
    (folder / "merges.txt").write_text(
        "\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8"
    )
    return Tokenizer.from_directory(folder)
