"""The class GPT2: parameters and a tokenizer, with methods to trace and to generate text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnlab.checkpoints.checkpoint import Checkpoint, save_parameters, weight_files
from attnlab.checkpoints.hub import BUILT_IN, BUILT_IN_HINT, find_model
from attnlab.equations import Array
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
from attnlab.forward.edits import Edit, expand_edits
from attnlab.forward.parameters import Averages, Parameters, as_averages, parameter_count
from attnlab.forward.products import HeadWeights
from attnlab.model.notice import notice_on
from attnlab.model.trace import NextToken, Trace
from attnlab.steps import graph_of
from attnlab.support.checks import (
    RAW_BYTES,
    as_count,
    as_flag,
    as_numpy,
    check_choice,
    errors_of,
    reraised_as,
)
from attnlab.support.files import as_path, make_directory
from attnlab.support.formats import CONFIG
from attnlab.support.messages import Message, counted, say
from attnlab.text.tokenizer import NoTokenizer, Tokenizer
from attnlab.text.tokenizer_files import has_tokenizer_files
from attnlab.text.tokens import Tokens

if TYPE_CHECKING:  # at run time, only the methods that need these import them
    from attnlab.model.generation import Generation, GenerationStep
    from attnlab.model.traces import Traces


class GPT2:
    """A GPT-2 model of which every intermediate number can be inspected.

    Create one with `GPT2.from_pretrained`, `from_hf` or `from_arrays`.

    Attributes
    ----------
    config : GPT2Config
    tokenizer : Tokenizer
    parameters : Parameters; for a model on disk, a `Checkpoint` that is read on first use
    """

    def __init__(self, parameters: Parameters, tokenizer: Tokenizer) -> None:
        self.config: GPT2Config = parameters.config
        self.parameters = parameters.frozen()  # later training must not change this model
        self.tokenizer = tokenizer.for_rows(self.config.vocab_size)  # a symbol for each row of W_E

    @property
    def averages(self) -> Averages | None:
        """Each head's mean context over texts, which pages ablate heads with.

        See `attnlab.averages`.

        None if the model has no averages. `from_pretrained` reads them from `head_averages.json`.
        """
        return self.parameters.averages

    @averages.setter
    def averages(self, averages: Averages | None) -> None:
        self.parameters.averages = None if averages is None else as_averages(averages, self.config)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        *,
        tokenizer: Any = None,
        dtype: DTypeLike = "float32",
        revision: str | None = None,
        local_files_only: bool = False,
    ) -> GPT2:
        """Load a GPT-2 from a directory, from this package, or from the Hugging Face hub.

        Parameters
        ----------
        name_or_path : a directory with config.json, model.safetensors (or its shards and their
            index) and tokenizer files, see `Tokenizer.from_directory`; or a model in this package:
            `english`, a small GPT-2 that reads simple English, or `pocket`, a tiny one that knows
            the sentences of a grammar; or a name on the hub: `gpt2`, `gpt2-medium`, `gpt2-large`,
            `gpt2-xl`, `distilgpt2`, or the `owner/name` of any GPT-2, downloaded unless it is in
            the hub's cache.
        tokenizer : used instead of the directory's tokenizer: another directory, or an object as
            `from_arrays` takes it. A model without a tokenizer can only trace ids.
        dtype : "float32" or "float64", the dtype of all numbers, whatever the file's dtype
        revision : branch, tag or commit on the hub; by default the main branch, and for GPT-2's own
            models a pinned commit
        local_files_only : never download

        Raises
        ------
        DownloadError
            If the hub can't be reached; it is raised within 10 seconds.
        """
        try:
            directory = find_model(
                name_or_path, revision=revision, local_files_only=local_files_only
            )
        except DownloadError as error:
            raise DownloadError(f"{error}. {BUILT_IN_HINT}") from error.__cause__
        weight_files(directory)  # so that missing weights are reported before a wrong config
        config = GPT2Config.from_file(directory / CONFIG)
        checkpoint = Checkpoint(directory, config, dtype)  # reads no weights yet
        try:
            return cls(checkpoint, _load_tokenizer(directory, tokenizer, config.vocab_size))
        except VocabularyError as error:
            raise VocabularyError(f"{directory}: {error}") from None

    @classmethod
    def from_hf(cls, model: Any, tokenizer: Any = None, *, dtype: DTypeLike = "float32") -> GPT2:
        """Convert a transformers GPT-2 in memory, such as one that is being trained.

        Its parameters are copied, so later training does not change the copy. Traces have no
        dropout, as in eval mode. The model may be compiled, or wrapped for parallel training; an
        output layer for another task, such as classification, is ignored. Tokenizer and dtype are
        as for `from_arrays`.
        """
        from attnlab.checkpoints.arrays import config_of

        config = config_of(model)
        with reraised_as(CheckpointError, "the model's state_dict can't be read"):
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
        """Create a GPT-2 from arrays in memory, which are copied.

        Parameters
        ----------
        config : the sizes that the arrays must have
        arrays : NumPy arrays or tensors, by checkpoint names (`transformer.h.0.ln_1.weight`, with
            any prefix before `h`), by parameter paths (`blocks.0.attention.gain`), or by the names
            of LLMs-from-scratch (`trf_blocks.0.att.W_query.weight`) and of minGPT. If a block's
            first matrix is (3 D, D) instead of (D, 3 D), the block's matrices are transposed:
            nn.Linear stores them so, as in nanoGPT. If all biases are missing, or all biases of
            queries, keys and values, they are set to zero, and `parameters.origin` says so.
        tokenizer : a Tokenizer, or a tokenizer of transformers, of the tokenizers library or of
            tiktoken. A tiktoken encoding must split texts as GPT-2's encoding does. With None, only
            ids can be traced: an id's symbol is its number, and an id has no text.
        dtype : "float32" or "float64", the dtype of all numbers

        Examples
        --------
        A nanoGPT checkpoint is a pickle: load it only if you trust its source.

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
    def default(cls, built_in: str = "english") -> GPT2:
        """Load GPT-2 if it is in the hub's cache, else a model in this package; print its name.

        If the environment variable ATTNLAB_MODEL is set, it is the name or directory of the model
        to load instead. Otherwise, nothing is downloaded.

        Parameters
        ----------
        built_in : the model in this package, "english" or "pocket"
        """
        check_choice(built_in, BUILT_IN, "built_in")
        if name := os.environ.get("ATTNLAB_MODEL"):
            print(Message("Model: {name}, set by ATTNLAB_MODEL.", name=name))
            return cls.from_pretrained(name)
        try:
            model = cls.from_pretrained("gpt2", local_files_only=True)
        except MissingFileError:
            print(
                Message(
                    "Model: {name}, {description}. It comes with attnlab (GPT-2 is not in the "
                    "cache).\nTo get GPT-2 (550 MB): {command}",
                    name=built_in,
                    description=Message(BUILT_IN[built_in].description),
                    command="attnlab download gpt2",
                )
            )
            return cls.from_pretrained(built_in)
        print(Message("Model: gpt2, {origin}.", origin=model.parameters.origin))
        return model

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write a directory, replacing its files, that `from_pretrained` and transformers load."""
        path = as_path(directory, "directory")
        make_directory(path)
        save_parameters(self.parameters, path)
        self.tokenizer.save(path)
        self.config.save(path)

    def head(self, layer: int, head: int) -> HeadWeights:
        """A head's parameters, W_Q to W_O, and their products QK and OV, which need no text.

        Of a checkpoint, only this layer's attention is read. `trace.head` has a text's numbers.
        """
        return HeadWeights(self.parameters, layer, head)

    @overload
    def trace(self, text_or_ids: list[str] | list[Tokens], *, special: bool = False) -> Traces: ...
    @overload
    def trace(self, text_or_ids: str | ArrayLike | Tokens, *, special: bool = False) -> Trace: ...
    def trace(self, text_or_ids: Any, *, special: bool = False) -> Trace | Traces:
        """Run a text through the model, or several; every intermediate step can be read.

        Parameters
        ----------
        text_or_ids : a text; or token ids, integers of shape (T,) or (1, T), or the output of a
            transformers tokenizer; or Tokens.
            A text's tokens are `model.tokenizer.encode_prompt(text)`. They include tokens that the
            tokenizer puts before every text, such as BERT's `[CLS]`, but not tokens that it
            appends, such as `[SEP]`.
            To trace several texts, give a list of texts or of Tokens (a list of one also counts as
            several), or a list of at least two lists of ids.
        special : whether names of special tokens in a text, such as `<|endoftext|>`, are these
            tokens. Otherwise such names are read as plain characters, and `Trace.notice` says so.

        Returns
        -------
        Trace
            each step is computed when it is first read. Several texts return `Traces`.
        """
        if is_list_of_texts(text_or_ids):
            from attnlab.model.traces import Traces

            texts = self._texts_to_trace(text_or_ids, special)
            return Traces(texts, self.tokenizer.vocabulary, self.parameters)
        tokens = self._tokens_to_trace(text_or_ids, special)
        return Trace(tokens, self.tokenizer.vocabulary, self.parameters)

    def _texts_to_trace(self, texts: Iterable[Any], special: bool) -> list[Tokens]:
        """The tokens of each of several texts; errors say which text."""
        tokens = []
        for i, text in enumerate(texts):
            with errors_of(f"text {i}"):
                tokens.append(self._tokens_to_trace(text, special))
        return tokens

    def _tokens_to_trace(self, text_or_ids: str | ArrayLike | Tokens, special: bool) -> Tokens:
        """The tokens of a text to trace: at least one, at most n_positions."""
        tokens = self._tokens(text_or_ids, special)
        if not tokens:
            raise InvalidValueError(
                "nothing to trace: got no tokens. Give a text, such as “The dog "
                "chased the ball”, or token ids"
            )
        positions = self.config.n_positions
        if len(tokens) > positions:
            raise InvalidValueError(
                f"{len(tokens)} tokens are too many: the model has {positions} positions. Give "
                f"a shorter text, or model.tokenizer.encode(text)[:{positions}]"
            )
        return tokens

    def losses(self, text_or_ids: str | ArrayLike | Tokens, stride: int | None = None) -> Array:
        """Return the loss of each token in a text of any length: cross-entropy in nats, (N - 1,).

        The first of N tokens has none. The text is read in windows of n_positions tokens. A window
        starts `stride` tokens after the one before; a token's loss is computed in the first window
        that has it. The mean of the losses is the text's loss, and exp(loss) its perplexity.

        Parameters
        ----------
        text_or_ids : a text, ids or Tokens, as `trace` takes them
        stride : 1 to n_positions - 1; None for half of n_positions. A small stride is slower and
            more exact.

        Source: transformers' documentation, “Perplexity of fixed-length models”.
        """
        tokens = self._tokens(text_or_ids)
        size = self.config.n_positions
        stride = size // 2 if stride is None else stride
        stride = as_count(stride, "stride", least=1, most=size - 1)
        if len(tokens) < 2:
            raise InvalidValueError(f"a loss needs at least two tokens; got {len(tokens)}")
        # A token's loss depends on how much text the model sees before it. So windows overlap: in
        # all but the first, each counted token has n_positions - stride tokens or more before it.
        # The last window ends with the text.
        losses: list[Array] = []
        end = 1  # tokens before `end` are done; token 0 has no loss
        for start in range(0, max(len(tokens) - size, 0) + stride, stride):
            trace = self.trace(tokens[start : start + size])
            # A window's losses[t] is the loss of token start + t + 1 of the text, hence - 1.
            losses.append(trace.losses[end - start - 1 :])
            end = start + len(trace.tokens)
        return np.concatenate(losses)

    def probability(
        self, prompt: str | ArrayLike | Tokens, word: str | ArrayLike | Tokens
    ) -> float:
        """The probability that a word, or any text, follows a prompt.

        It is Π softmax(logits[t])[token t + 1], where t + 1 runs through the tokens of the word.

        Prompt and word may be texts, ids or Tokens. Begin a new word with a space, unless the
        tokenizer adds one: the word is split into tokens without the prompt. Longer words that
        begin with the same tokens count, too: " dog" includes “dogs” if its tokens are dog + s.

        Source: Pimentel and Meister, “How to Compute the Probability of a Word” (2024), which says
        why longer words count.
        """
        word_tokens = self._tokens(word)
        if isinstance(word, str):  # leave out what is put before every text, such as [CLS]
            word_tokens = word_tokens[len(self.tokenizer._affixes[0]) :]
        if not word_tokens:
            raise InvalidValueError('word must have at least one token, such as " dog"; got none')
        before = self._tokens_to_trace(prompt, special=False)
        trace = self.trace(Tokens([*before, *word_tokens]))
        losses = trace._losses_after(len(before) - 1)
        return float(np.exp(-losses.sum(dtype=np.float64)))

    def generate(
        self,
        prompt: str | ArrayLike | Tokens,
        max_new_tokens: int,
        *,
        stop: str | Sequence[str] | None = None,
        drop_oldest: bool = False,
        trace: bool = False,
        edits: Mapping[str, Edit] | None = None,
        special: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> Generation:
        """Generate a continuation of a prompt, sampling one token at a time.

        Parameters
        ----------
        prompt : a text, ids or Tokens, as `trace` takes them
        max_new_tokens : the largest number of tokens to generate
        stop : a text or texts; generation ends with the token that completes one of them. Without
            it, nothing ends generation early, not even `<|endoftext|>`.
        drop_oldest : when the text outgrows n_positions, continue with its last n_positions
            tokens; each step then recomputes all of them
        trace : whether to keep every step, with the trace of the tokens that it computed
        edits : edits as `Trace.edited` takes them, such as `{"blocks.3.output": lambda x: x + v}`.
            They are applied at every step to the rows of the tokens that the step computes:
            functions get only these rows, and indices count only these rows.
        special : whether names of special tokens in a prompt are these tokens
        temperature : below 1 sharpens the distribution, above 1 flattens it; at 0 the most probable
            token is always taken
        top_k, top_p : sample only among the k most probable tokens, or among the fewest most
            probable tokens whose probabilities sum to at least p
        seed : makes sampling reproducible

        Returns
        -------
        Generation
            Ids that the tokenizer has no token for are never sampled; the probabilities of all
            other ids sum to 1.
        """
        from attnlab.model.generation import Generation

        trace, drop_oldest = as_flag(trace, "trace"), as_flag(drop_oldest, "drop_oldest")
        if trace and drop_oldest:
            raise InvalidValueError(
                "trace and drop_oldest can't be combined: a trace has at most n_positions tokens"
            )
        tokens, steps = self._steps(
            prompt,
            max_new_tokens,
            (temperature, top_k, top_p, seed),
            stop,
            drop_oldest,
            edits,
            special,
            run_last_token=trace,
        )
        # Each step has a trace. Unless the user asked for it, it is freed once its token is known.
        kept_steps = tuple(steps) if trace else ()
        chosen = [step.token for step in (kept_steps if trace else steps) if step.token is not None]
        new = Tokens(chosen)
        return Generation(
            prompt=tokens,
            new=new,
            tokens=Tokens([*tokens, *new]),
            text=self.tokenizer.decode(new.ids),
            whole_text=self.tokenizer.decode([*tokens.ids, *new.ids]),
            chosen=tuple(chosen),
            steps=kept_steps,
            notice=notice_on(tokens, self.parameters, self.tokenizer.vocabulary),
        )

    def stream(
        self,
        prompt: str | ArrayLike | Tokens,
        max_new_tokens: int,
        *,
        stop: str | Sequence[str] | None = None,
        drop_oldest: bool = False,
        edits: Mapping[str, Edit] | None = None,
        special: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> Iterator[NextToken]:
        """Like `generate`, but yield each token as it is sampled.

        Arguments are checked by the call, not at the first token. A character may be spread over
        several tokens: join their bytes, not their texts.
        """
        drop_oldest = as_flag(drop_oldest, "drop_oldest")
        settings = (temperature, top_k, top_p, seed)
        _, steps = self._steps(prompt, max_new_tokens, settings, stop, drop_oldest, edits, special)
        return (step.token for step in steps if step.token is not None)

    def _tokens(self, text_or_ids: str | ArrayLike | Tokens, special: bool = False) -> Tokens:
        if isinstance(text_or_ids, (type(None), *RAW_BYTES)) or is_list_of_texts(text_or_ids):
            raise InvalidTypeError(f"expected one text or token ids; got {quoted(text_or_ids)}")
        if not isinstance(text_or_ids, str | Tokens):
            text_or_ids = single_row(text_or_ids)  # (1, T), a mapping or a tensor -> (T,)
        if isinstance(text_or_ids, str):
            return self.tokenizer.prompt_tokens(text_or_ids, special=special)
        return self.tokenizer.tokens(text_or_ids)

    def _steps(
        self,
        prompt: str | ArrayLike | Tokens,
        max_new_tokens: int,
        settings: tuple[float, int | None, float | None, int | None],
        stop: str | Sequence[str] | None,
        drop_oldest: bool,
        edits: Mapping[str, Edit] | None,
        special: bool,
        *,
        run_last_token: bool = False,
    ) -> tuple[Tokens, Iterator[GenerationStep]]:
        """Check the arguments; return the prompt's tokens and the steps that continue it."""
        from attnlab.model.generation import as_max_new_tokens, generation_steps, stop_bytes
        from attnlab.model.sampling import as_sampling

        sampling = as_sampling(*settings)  # temperature, top_k, top_p, seed
        tokens, stops = self._tokens(prompt, special), stop_bytes(stop)
        if stops and isinstance(self.tokenizer, NoTokenizer):
            raise InvalidValueError("stop needs tokens with texts, and this model has no tokenizer")
        count = as_max_new_tokens(tokens, max_new_tokens, self.config.n_positions, drop_oldest)
        if edits is not None:
            # Paths are checked here, so that `stream` raises errors, not its first `next`.
            expand_edits(graph_of(Trace, self.config.n_layer), self.config.n_head, edits)
        return tokens, generation_steps(
            tokens,
            count,
            self.parameters,
            self.tokenizer.vocabulary,
            sampling,
            stops,
            edits,
            run_last_token=run_last_token,
        )

    def __repr__(self) -> str:
        config = self.config
        sizes = Message(
            "GPT2: {layers} of {heads}, width {width}, {parameters} parameters, {dtype}",
            layers=counted(config.n_layer, "layer"),
            heads=counted(config.n_head, "head"),
            width=config.n_embd,
            parameters=f"{parameter_count(config):,}",
            dtype=self.parameters.dtype,
        )
        return "\n".join(map(say, (sizes, self.parameters.origin)))


def is_list_of_texts(texts: Any) -> bool:
    """Whether an object is a list with a text or Tokens, or with at least two rows of ids."""
    if not isinstance(texts, list | tuple):
        return False
    if any(isinstance(text, str | Tokens) for text in texts):
        return True
    # [[1, 2]] is one text: tokenizers return such batches of one.
    return len(texts) > 1 and all(isinstance(row, list | tuple) for row in texts)


def single_row(ids_or_encoding: Any) -> Any:
    """The ids of one text, given as a tokenizer's output, a batch of one, or a tensor."""
    if isinstance(ids_or_encoding, Mapping):
        if "input_ids" not in ids_or_encoding:
            raise InvalidTypeError(
                f"a mapping must have input_ids; got the keys {quoted(list(ids_or_encoding), 200)}"
            )
        mask = single_row(ids_or_encoding.get("attention_mask", 1))  # it may be a batch of one
        # Without this check, padding would be traced like text.
        if isinstance(mask, np.ndarray) and not mask.all():
            raise InvalidValueError("the attention mask excludes tokens. Give ids without padding")
        ids_or_encoding = ids_or_encoding["input_ids"]
        if is_list_of_texts(ids_or_encoding):
            raise InvalidTypeError('the mapping is of several texts. Trace batch["input_ids"]')
    try:
        ids = as_numpy(ids_or_encoding)
    except Exception:
        return ids_or_encoding  # the tokenizer raises the error
    return ids[0] if ids.ndim == 2 and len(ids) == 1 else ids


def _load_tokenizer(directory: Path, tokenizer: Any, rows: int) -> Tokenizer:
    """Load the tokenizer given as an argument, else the directory's, else `NoTokenizer`."""
    if isinstance(tokenizer, (str, os.PathLike)):
        return Tokenizer.from_directory(tokenizer)
    if tokenizer is not None:
        from attnlab.checkpoints.arrays import tokenizer_in_memory

        return tokenizer_in_memory(tokenizer, rows)
    return (
        Tokenizer.from_directory(directory) if has_tokenizer_files(directory) else NoTokenizer(rows)
    )
