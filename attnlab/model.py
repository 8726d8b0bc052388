"""GPT-2: a checkpoint, its tokenizer, and the traces that they make."""

from __future__ import annotations

import os

from numpy.typing import ArrayLike, DTypeLike

from attnlab.checkpoint import Checkpoint, parameter_count
from attnlab.config import GPT2Config
from attnlab.errors import InvalidValueError, VocabularyError
from attnlab.hub import find_model
from attnlab.tokenizer import Tokenizer
from attnlab.trace import Trace


class GPT2:
    """A GPT-2 to look into.

    `GPT2.from_pretrained` makes one.

    Attributes
    ----------
    config : GPT2Config, its sizes
    tokenizer : Tokenizer
    checkpoint : Checkpoint, its parameters, read when first used
    """

    def __init__(self, checkpoint: Checkpoint, tokenizer: Tokenizer) -> None:
        self.config: GPT2Config = checkpoint.config
        self.checkpoint = checkpoint
        self.tokenizer = tokenizer

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        *,
        dtype: DTypeLike = "float32",
        revision: str | None = None,
        local_files_only: bool = False,
    ) -> GPT2:
        """The GPT-2 in a directory or on the Hugging Face hub.

        Parameters
        ----------
        name_or_path : a directory with config.json, model.safetensors (or its shards and their
            index), vocab.json and merges.txt, which never touches the network; or a name on the
            hub: `gpt2`, `gpt2-medium`, `gpt2-large`, `gpt2-xl`, `distilgpt2`, or `owner/name` of
            any GPT-2. A name is looked for in the hub's cache, then downloaded to it.
        dtype : "float32" or "float64", what everything is computed in, whatever the file holds
        revision : branch, tag or commit on the hub; without it the published models are read at
            a pinned commit
        local_files_only : never download

        Raises
        ------
        MissingFileError
            A file, the directory or the repository is not there.
        ConfigError, VocabularyError, CheckpointError
            A file can't be read, is not GPT-2's, or does not fit the others.
        DownloadError
            The hub can't be reached, which is told within 10 seconds.
        InvalidValueError
            `dtype` is neither of the two, or a directory was given with a revision.
        """
        directory = find_model(name_or_path, revision=revision, local_files_only=local_files_only)
        config = GPT2Config.from_file(directory / "config.json")
        checkpoint = Checkpoint(directory, config, dtype)
        tokenizer = Tokenizer.from_directory(directory)
        if len(tokenizer) != config.vocab_size:
            raise VocabularyError(
                f"vocab.json in {directory} has {len(tokenizer)} tokens, "
                f"and config.json says {config.vocab_size}"
            )
        return cls(checkpoint, tokenizer)

    def trace(self, text_or_ids: str | ArrayLike) -> Trace:
        """Run a text through the model and keep every intermediate.

        Parameters
        ----------
        text_or_ids : a text, encoded as it is; or token ids, integers (T,)

        Returns
        -------
        Trace
            lazy: a part is computed when it is looked at

        Raises
        ------
        InvalidValueError
            Nothing to trace, an id outside the vocabulary, or more tokens than positions.
        InvalidTypeError
            Ids that are not integers.
        """
        tokens = self.tokenizer.tokens(text_or_ids)
        if not tokens:
            raise InvalidValueError("nothing to trace: the text has no tokens")
        if len(tokens) > self.config.n_positions:
            raise InvalidValueError(
                f"{len(tokens)} tokens are too many: "
                f"the model has {self.config.n_positions} positions"
            )
        return Trace(tokens, self.tokenizer, self.checkpoint)

    def __repr__(self) -> str:
        config = self.config
        return (
            f"GPT2: {config.n_layer} layers of {config.n_head} heads, width {config.n_embd}, "
            f"{parameter_count(config):,} parameters, {self.checkpoint.dtype}\n"
            f"from {self.checkpoint.directory}"
        )
