"""Byte pairs learned from a text, written in GPT-2's two files.

Byte-pair encoding is learned by counting: the two neighbouring symbols that occur most often are
merged into one, again and again.

Source: Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword Units"
(2016), algorithm 1.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

from attnlab.tokenizer import PIECES, Tokenizer, byte_symbols

Pair = tuple[str, str]


def learn_merges(text: str) -> list[Pair]:
    """Merge the most frequent pair of neighbours, until each piece of the text is one token.

    A piece is what GPT-2's regular expression cuts out, such as ` very`; no merge crosses its
    ends. Of pairs that are equally frequent the last in alphabetical order goes first, so that the
    same text always gives the same merges.

    Parameters
    ----------
    text : what to learn from; every different piece becomes a token, so one of few words

    Returns
    -------
    pairs of symbols, most frequent first, as in `merges.txt`
    """
    import regex  # type: ignore[import-untyped]  # tiktoken brings it; only learning needs it

    symbols = byte_symbols()
    counts = Counter[str](regex.findall(PIECES, text))
    pieces = {tuple(symbols[byte] for byte in piece.encode()): n for piece, n in counts.items()}
    merges: list[Pair] = []
    while True:
        pairs = Counter[Pair]()
        for piece, count in pieces.items():
            for pair in pairwise(piece):
                pairs[pair] += count
        if not pairs:
            return merges
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        pieces = {_merged(piece, best): count for piece, count in pieces.items()}


def _merged(piece: tuple[str, ...], pair: Pair) -> tuple[str, ...]:
    """A piece with the pair's two symbols as one wherever they are neighbours."""
    merged: list[str] = []
    i = 0
    while i < len(piece):
        width = 2 if piece[i : i + 2] == pair else 1
        merged.append("".join(piece[i : i + width]))
        i += width
    return tuple(merged)


def write_vocabulary(merges: list[Pair], directory: str | Path) -> Tokenizer:
    """Write `vocab.json` and `merges.txt`.

    First the 256 bytes, so that any text can be encoded, in GPT-2's order; then one token for each
    merge. There is no `<|endoftext|>`: the pocket model's texts end with a line end, which is a
    byte like any other, and a token that is never trained would only have a random embedding.

    Parameters
    ----------
    merges : as `learn_merges` returns them
    directory : where the two files go

    Returns
    -------
    Tokenizer, read back from the two files

    Raises
    ------
    VocabularyError
        A merge makes a token that an earlier one made.
    """
    tokens = [*sorted(byte_symbols()), *(first + second for first, second in merges)]
    vocabulary = {symbol: id for id, symbol in enumerate(tokens)}
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (Path(directory) / "vocab.json").write_text(
        json.dumps(vocabulary, ensure_ascii=False, indent=0), encoding="utf-8"
    )
    (Path(directory) / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Tokenizer.from_directory(directory)
