"""GPT-2: its parameters, its tokenizer, and the traces that they make."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnlab.checkpoints.checkpoint import Checkpoint, save_parameters
from attnlab.checkpoints.hub import HOW_TO_GET_GPT2, POCKET, find_model
from attnlab.errors import (
    CheckpointError,
    DownloadError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    VocabularyError,
    quoted,
)
from attnlab.forward.config import GPT2Config
from attnlab.forward.edits import Edit, check_paths
from attnlab.forward.parameters import Parameters, parameter_count
from attnlab.model.trace import NextToken, Trace
from attnlab.steps import graph_of
from attnlab.support.checks import as_flag, as_numpy, check_kind, errors_of
from attnlab.support.files import as_path, make_directory, write_whole
from attnlab.support.formats import CONFIG
from attnlab.support.messages import MODEL, Message
from attnlab.support.names import hint_for_model
from attnlab.text.tokenizer import NoTokenizer, Tokenizer
from attnlab.text.tokenizer_files import holds_tokenizer
from attnlab.text.tokens import Tokens

if TYPE_CHECKING:  # what not every model needs is imported where it is used
    from attnlab.model.explorer import Explorer
    from attnlab.model.generation import Generation, GenerationStep
    from attnlab.model.sampling import SamplingSettings


WITHOUT_A_NETWORK = 'The model "pocket" comes with attnlab and needs no network'


class GPT2:
    """A GPT-2 to look into.

    `GPT2.from_pretrained` makes one.

    Attributes
    ----------
    config : GPT2Config, its sizes
    tokenizer : Tokenizer
    parameters : Parameters; of a model on disk a `Checkpoint`, read when first used
    """

    def __init__(self, parameters: Parameters, tokenizer: Tokenizer) -> None:
        check_kind(parameters, Parameters, "parameters")
        check_kind(tokenizer, Tokenizer, "tokenizer")
        self.config: GPT2Config = parameters.config
        self.parameters = parameters.frozen()
        self.tokenizer = tokenizer.for_rows(self.config.vocab_size)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} has no {name}{hint_for_model(name)}")

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        *,
        tokenizer: Any = None,
        dtype: DTypeLike = "float32",
        revision: str | None = None,
        variant: str | None = None,
        local_files_only: bool = False,
    ) -> GPT2:
        """The GPT-2 in a directory, in this package, or on the Hugging Face hub.

        Parameters
        ----------
        name_or_path : a directory with config.json, model.safetensors (or its shards and their
            index) and a tokenizer's files, as `Tokenizer.from_directory` takes them, which never
            touches the network; or `pocket`, the small model in this package, which does not
            either; or a name on the hub: `gpt2`, `gpt2-medium`, `gpt2-large`, `gpt2-xl`,
            `distilgpt2`, or `owner/name` of any GPT-2. A name is looked for in the hub's cache,
            then downloaded to it.
        tokenizer : instead of the directory's own: as `from_arrays` takes it, or a directory that
            holds one. A directory without a tokenizer opens too, for ids alone.
        dtype : "float32" or "float64", what everything is computed in, whatever the file holds
        revision : branch, tag or commit on the hub; without it the published models are read at
            a pinned commit. Of what is in the cache, the first 7 characters of a commit will do.
        variant : of the weights, such as "fp16" for model.fp16.safetensors
        local_files_only : never download

        Raises
        ------
        DownloadError
            The hub can't be reached: reported within 10 seconds.
        """
        try:
            directory = find_model(
                name_or_path, revision=revision, variant=variant, local_files_only=local_files_only
            )
        except DownloadError as error:
            raise DownloadError(f"{error}. {WITHOUT_A_NETWORK}") from error.__cause__
        config = GPT2Config.from_file(directory / CONFIG)
        checkpoint = Checkpoint(directory, config, dtype, variant)
        try:
            return cls(checkpoint, _tokenizer_for(directory, tokenizer, config.vocab_size))
        except VocabularyError as error:
            raise VocabularyError(f"{directory}: {error}") from None

    @classmethod
    def from_hf(cls, model: Any, tokenizer: Any = None, *, dtype: DTypeLike = "float32") -> GPT2:
        """A GPT-2 of transformers that is in memory, such as one that is being trained.

        Its parameters are copied: what happens to it later does not change this one. A trace is
        that of the model in eval mode, without dropout.

        Parameters
        ----------
        model : a GPT2LMHeadModel or GPT2Model, or one with another head, which is left out; as it
            is, compiled, or wrapped to be trained in parallel
        tokenizer : as `from_arrays` takes it
        dtype : "float32" or "float64", what everything is computed in

        Raises
        ------
        CheckpointError
            LoRA layers that are not merged, or quantised weights.
        """
        from attnlab.checkpoints.arrays import config_of

        config = config_of(model)
        with errors_of(CheckpointError, "the model's state_dict can't be read"):
            arrays = model.state_dict()
        return cls.from_arrays(config, arrays, tokenizer, dtype=dtype)

    @classmethod
    def from_arrays(
        cls,
        config: GPT2Config,
        arrays: Mapping[str, Any],
        tokenizer: Any = None,
        *,
        dtype: DTypeLike = "float32",
    ) -> GPT2:
        """A GPT-2 of arrays in memory, which are copied.

        Parameters
        ----------
        config : the sizes that they must have
        arrays : NumPy's, or tensors of PyTorch's and the like, by the names of a checkpoint
            (`transformer.h.0.ln_1.weight`, whatever stands before `h`) or by the paths of
            parameters (`blocks.0.attention.gain`). Where a block's first matrix is (3 D, D) and
            not (D, 3 D), all of a block's matrices are those of nn.Linear, as in nanoGPT, and are
            transposed. Where none of them has a bias, biases are zero.
        tokenizer : a Tokenizer, or one of transformers or of the tokenizers library. None where
            only ids are traced: then each id's symbol is its number, and it has no text.
        dtype : "float32" or "float64", what everything is computed in

        Raises
        ------
        VocabularyError
            The tokenizer has more tokens than the embedding has rows.

        Examples
        --------
        nanoGPT's checkpoint, a pickle, which only who trusts it should load:

        >>> checkpoint = torch.load("ckpt.pt", map_location="cpu")
        >>> sizes = checkpoint["model_args"]
        >>> config = GPT2Config(
        ...     vocab_size=sizes["vocab_size"],
        ...     n_positions=sizes["block_size"],
        ...     n_embd=sizes["n_embd"],
        ...     n_layer=sizes["n_layer"],
        ...     n_head=sizes["n_head"],
        ...     activation_function="gelu",
        ... )
        >>> model = GPT2.from_arrays(config, checkpoint["model"], tokenizer)
        """
        from attnlab.checkpoints.arrays import parameters_in_memory, tokenizer_in_memory

        parameters = parameters_in_memory(config, arrays, dtype)
        return cls(parameters, tokenizer_in_memory(tokenizer, config.vocab_size))

    @classmethod
    def default(cls) -> GPT2:
        """The model of chapters and scripts: GPT-2 if it is in the cache, else the pocket model.

        Prints which, and how to get GPT-2. The environment variable ATTNLAB_MODEL names another
        model or directory; without it the network is never used.
        """
        if named := os.environ.get("ATTNLAB_MODEL"):
            print(f"Model: {named}, as ATTNLAB_MODEL says.")
            return cls.from_pretrained(named)
        try:
            model = cls.from_pretrained("gpt2", local_files_only=True)
        except MissingFileError:
            print(
                "Model: the pocket GPT-2 that comes with attnlab, as GPT-2 is not in the cache.\n"
                f"To get it (550 MB): {HOW_TO_GET_GPT2}"
            )
            return cls.from_pretrained(POCKET)
        print(f"Model: gpt2, {model.parameters.origin}.")
        return model

    at_hand = default  # its name in earlier versions

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the files of which `from_pretrained` makes the same model, and transformers too.

        Parameters
        ----------
        directory : is made if it is not there; files of these names in it are replaced
        """
        path = as_path(directory, "directory")
        make_directory(path)
        save_parameters(self.parameters, path)
        self.tokenizer.save(path)
        self.config.save(path)

    def trace(self, text_or_ids: str | ArrayLike | Tokens) -> Trace:
        """Run a text through the model and keep every intermediate.

        Parameters
        ----------
        text_or_ids : a text, encoded as it is (`<|endoftext|>` as plain characters: for the special
            token give ids, `model.tokenizer.encode(text, special=True)`); or token ids, integers
            (T,), as a batch of one (1, T), or as a tokenizer of transformers answers; or Tokens.
            What the model's own files put around every text, such as BERT's `[CLS]`, is among the
            tokens.

        Returns
        -------
        Trace
            lazy: a part is computed when it is looked at

        Raises
        ------
        InvalidValueError
            No tokens at all, or more than the model has positions.
        """
        if isinstance(text_or_ids, str):
            self.tokenizer.check_length(text_or_ids, self.config.n_positions)
        tokens = self._tokens(text_or_ids)
        if not tokens:
            raise InvalidValueError(
                "nothing to trace: no tokens; give a text, such as “The dog chased the ball”, or "
                "token ids"
            )
        positions = self.config.n_positions
        if len(tokens) > positions:
            raise InvalidValueError(
                f"{len(tokens)} tokens are too many: the model has {positions} "
                f"positions; give a shorter text, or model.tokenizer.encode(text)[:{positions}]"
            )
        return Trace(tokens, self.tokenizer.vocabulary, self.parameters)

    def generate(
        self,
        prompt: str | ArrayLike | Tokens,
        max_new_tokens: int,
        *,
        stop: str | Sequence[str] | None = None,
        drop_oldest: bool = False,
        trace: bool = False,
        edits: Mapping[str, Edit] | None = None,
        **sampling: Unpack[SamplingSettings],
    ) -> Generation:
        """Continue a prompt, drawing one token after the other.

        Parameters
        ----------
        prompt : a text, ids or Tokens, as `trace` takes them. A tokenizer that ends every text
            with a token, as BERT's does with `[SEP]`, ends the prompt with it too: to write on
            before it, give `model.tokenizer.encode(text)[:-1]`.
        max_new_tokens : how many tokens to write at most
        stop : a text or texts; writing ends with the token that completes one of them.
            `<|endoftext|>` is one like any other: without `stop`, nothing ends the text early.
        drop_oldest : go on past n_positions with the last n_positions tokens, each step then
            computing all of them again
        trace : keep every step, and join them to one trace over prompt and new tokens
        edits : what is other than it would be in every step, as `Trace.edited` takes it; each
            step's trace has the rows of the tokens that it computes. Such as
            `{"blocks.3.output": lambda x: x + direction}`
        sampling : temperature, top_k, top_p, seed, as `Sampling` takes them. temperature=0 always
            takes the most probable token; seed makes the draws repeatable.

        Returns
        -------
        Generation
            prompt, new, tokens, text, chosen; trace and steps where asked for. Rows of the
            embedding that belong to no token are never drawn: the others' probabilities add to 1.

        Raises
        ------
        InvalidValueError
            Before any work: more tokens than positions without `drop_oldest`; `drop_oldest` and
            `trace` together. At the step where it happens: an edit that doesn't fit.
        """
        from attnlab.model.generation import Generation, join

        trace, drop_oldest = as_flag(trace, "trace"), as_flag(drop_oldest, "drop_oldest")
        if trace and drop_oldest:
            raise InvalidValueError(
                "one trace has room for n_positions tokens: ask for trace or for drop_oldest"
            )
        tokens, steps = self._steps(
            prompt,
            max_new_tokens,
            sampling,
            stop,
            drop_oldest,
            trace,
            edits,
        )
        kept = tuple(steps) if trace else ()
        chosen = [step.token for step in kept or steps if step.token is not None]
        new = Tokens(chosen)
        return Generation(
            prompt=tokens,
            new=new,
            tokens=Tokens([*tokens, *new]),
            text=self.tokenizer.decode(new.ids),
            whole_text=self.tokenizer.decode([*tokens.ids, *new.ids]),
            chosen=tuple(chosen),
            trace=join(kept, self.parameters, self.tokenizer.vocabulary, edits) if trace else None,
            steps=kept,
        )

    def stream(
        self,
        prompt: str | ArrayLike | Tokens,
        max_new_tokens: int,
        *,
        stop: str | Sequence[str] | None = None,
        drop_oldest: bool = False,
        edits: Mapping[str, Edit] | None = None,
        **sampling: Unpack[SamplingSettings],
    ) -> Iterator[NextToken]:
        """Like `generate`, but each token is given out when it is drawn.

        Parameters
        ----------
        as `generate` takes them

        Returns
        -------
        iterator of NextToken
            with id, symbol, text, bytes, logit, probability, share. A character may be spread over
            several tokens: join their bytes, not their texts.

        Raises
        ------
        InvalidValueError
            As for `generate`, at the call and not at the first token.
        """
        _, steps = self._steps(
            prompt,
            max_new_tokens,
            sampling,
            stop,
            as_flag(drop_oldest, "drop_oldest"),
            False,
            edits,
        )
        return (step.token for step in steps if step.token is not None)

    def _tokens(self, text_or_ids: str | ArrayLike | Tokens) -> Tokens:
        if text_or_ids is None:
            raise InvalidTypeError("a text or token ids are traced; got None")
        if isinstance(text_or_ids, list | tuple) and any(isinstance(x, str) for x in text_or_ids):
            raise InvalidTypeError(
                f"one text is traced at a time, such as model.trace(texts[0]); got "
                f"{quoted(text_or_ids)}"
            )
        if not isinstance(text_or_ids, str | Tokens):
            text_or_ids = one_row(text_or_ids)
        return self.tokenizer.tokens(text_or_ids)

    def _steps(
        self,
        prompt: str | ArrayLike | Tokens,
        max_new_tokens: int,
        settings: SamplingSettings,
        stop: str | Sequence[str] | None,
        drop_oldest: bool,
        complete: bool,
        edits: Mapping[str, Edit] | None,
    ) -> tuple[Tokens, Iterator[GenerationStep]]:
        """The prompt's tokens and the steps that continue it, once all is known to be fine."""
        from attnlab.model.generation import checked_length, generation_steps, stop_bytes
        from attnlab.model.sampling import sampling_of

        sampling = sampling_of(settings)
        if isinstance(prompt, str) and not drop_oldest:
            self.tokenizer.check_length(prompt, self.config.n_positions)
        tokens, stops = self._tokens(prompt), stop_bytes(stop)
        count = checked_length(tokens, max_new_tokens, self.config.n_positions, drop_oldest)
        if edits is not None:
            check_paths(graph_of(Trace, self.config.n_layer), self.config.n_head, edits)
        return tokens, generation_steps(
            tokens,
            count,
            self.parameters,
            self.tokenizer.vocabulary,
            sampling,
            stops,
            edits,
            complete=complete,
        )

    def explore(
        self,
        text_or_ids: str | ArrayLike | Tokens | None = None,
        *,
        port: int = 0,
        language: str | None = None,
    ) -> Explorer:
        """A page in the browser in which texts are typed, compared, written on, heads silenced.

        The page is served to this machine alone, by a thread: the call returns at once. A notebook
        shows it, as the last line of a cell.

        Parameters
        ----------
        text_or_ids : what it opens with, as `trace` takes it; None for a sentence
        port : where it listens; 0 for wherever one is free
        language : "en" or "zh", Chinese; None for the reader's, as `Trace.to_html` takes it

        Returns
        -------
        Explorer
            `.url` is the link, which nobody else should be given; `.stop()` ends it, as `with` does
        """
        from attnlab.model.explorer import Explorer

        return Explorer(self, text_or_ids, port=port, language=language)

    def playground(
        self,
        path: str | os.PathLike[str],
        text_or_ids: str | ArrayLike | Tokens | None = None,
        *,
        language: str | None = None,
    ) -> None:
        """Write a page that holds the model and runs it: all that `explore` does, in one file.

        It opens from disk in any browser, with no network and nothing installed. The file is
        written whole or not at all.

        Parameters
        ----------
        path : such as "pocket.html"
        text_or_ids : what it opens with, as `trace` takes it; None for a sentence
        language : "en" or "zh", Chinese; None for the reader's, as `Trace.to_html` takes it

        Raises
        ------
        InvalidValueError
            The model has more than 300 MB of parameters, or a tokenizer other than GPT-2's.
        """
        from attnlab.views.language import language_of
        from attnlab.views.page.page import START, checked_file
        from attnlab.views.page.playground import playground

        file, language = checked_file(path), language_of(language)
        tokenizer = self.tokenizer.as_data()
        if text_or_ids is None:
            text_or_ids = self.tokenizer.encode(START)[: self.config.n_positions]
        trace = self.trace(text_or_ids)
        write_whole(file, playground(trace, tokenizer, language).encode())

    def __repr__(self) -> str:
        config = self.config
        sizes = Message(
            MODEL,
            layers=config.n_layer,
            heads=config.n_head,
            width=config.n_embd,
            parameters=f"{parameter_count(config):,}",
            dtype=self.parameters.dtype,
        )
        return f"{sizes}\n{self.parameters.origin}"

    def _repr_html_(self) -> str:
        from attnlab.views.notebook import model_view

        return model_view(self)


def one_row(given: Any) -> Any:
    """The ids of one text, as scripts have them: a tokenizer's answer, a batch of one, a tensor.

    Raises
    ------
    InvalidValueError
        An attention mask that leaves tokens out.
    """
    if isinstance(given, Mapping):
        if "input_ids" not in given:
            raise InvalidTypeError(
                f"of a mapping its input_ids are traced; got one of {quoted(list(given), 200)}"
            )
        mask = one_row(given.get("attention_mask", 1))
        if isinstance(mask, np.ndarray) and not mask.all():
            raise InvalidValueError(
                "the attention mask leaves tokens out: give ids without padding"
            )
        given = given["input_ids"]
    try:
        ids = as_numpy(given)
    except Exception:
        return given  # which the tokenizer tells
    return ids[0] if ids.ndim == 2 and len(ids) == 1 else ids


def _tokenizer_for(directory: Path, given: Any, rows: int) -> Tokenizer:
    """The tokenizer that was given, or a directory's own; where there is neither, that for ids."""
    if isinstance(given, (str, os.PathLike)):
        return Tokenizer.from_directory(given)
    if given is not None:
        from attnlab.checkpoints.arrays import tokenizer_in_memory

        return tokenizer_in_memory(given, rows)
    return Tokenizer.from_directory(directory) if holds_tokenizer(directory) else NoTokenizer(rows)
