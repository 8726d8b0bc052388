"""The training loop: `train`, and the state of a run, `Training`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlab.equations import Ids
from attnlab.errors import (
    DivergedError,
    InvalidTypeError,
    InvalidValueError,
    OutOfMemoryError,
    quoted,
)
from attnlab.forward.config import GPT2Config
from attnlab.forward.forward_pass import ForwardPass
from attnlab.model.gpt2 import GPT2
from attnlab.support.checks import as_count, as_flag, as_float, check_kind
from attnlab.support.console import progress_bar
from attnlab.support.document import Document
from attnlab.support.messages import Message
from attnlab.support.tables import Columns, Table
from attnlab.text.corpora import read_corpus
from attnlab.text.tokenizer import NoTokenizer, Tokenizer
from attnlab.text.tokens import Tokens, check_ids
from attnlab.training.gradients import loss_and_gradients
from attnlab.training.optimizer import AdamW, clip, learning_rate
from attnlab.training.parameters import decay_mask, initial_parameters

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)

LARGEST_SEED = 2**128 - 1  # seeds have at most 128 bits, like the seeds that NumPy generates

HOW_TO_SAVE_MEMORY = "use a smaller config, batch_size or sequence_length, or fewer steps"


class Settings(NamedTuple):
    """A run's hyperparameters; see `train`."""

    steps: int
    batch_size: int
    sequence_length: int
    learning_rate: float
    warmup: int
    decay: float
    clip: float
    seed: int


class Training(Document):
    """The state of a run of `train`.

    Attributes
    ----------
    config, settings, tokenizer : as in `train`
    parameters : ParameterVector, float32. Each step changes it in place; `parameters.copy()` keeps
        the current values
    losses : the loss of each step so far, in nats per token
    seconds : the total time of all steps so far
    """

    def __init__(
        self, config: GPT2Config, corpus: Ids, settings: Settings, tokenizer: Tokenizer | None
    ) -> None:
        self.config, self.settings, self.tokenizer = config, settings, tokenizer
        self._corpus = corpus
        self.parameters = initial_parameters(config, np.random.default_rng((settings.seed, 0)))
        self._optimizer = AdamW(decay_mask(config).vector * settings.decay)
        self.losses: list[float] = []
        self.seconds = 0.0

    @property
    def step(self) -> int:
        """The number of steps taken."""
        return len(self.losses)

    @property
    def model(self) -> GPT2:
        """The current model, with a copy of the parameters. Without a tokenizer it takes ids."""
        tokenizer = self.tokenizer or NoTokenizer(self.config.vocab_size)
        return GPT2(self.parameters.copy(), tokenizer)

    def pieces(self) -> Iterator[str | Table]:
        template = "Training of {size} parameters, {step} of {steps} steps"
        size = f"{self.parameters.vector.size:,}"
        taken = Message(template, size=size, step=self.step, steps=self.settings.steps)
        if self.losses:
            template, loss = "{steps}, the last loss {loss} nats", f"{self.losses[-1]:.4f}"
            taken = Message(template, steps=taken, loss=loss)
        yield taken

    def _data(self) -> Columns:
        return {"step": range(1, self.step + 1), "loss": self.losses}

    def advance(self) -> None:
        """Draw a batch and update the parameters; raise if a number isn't finite."""
        settings, step = self.settings, self.step + 1
        started = time.perf_counter()
        # Each step has its own seed, so random numbers that `watch` draws don't change the batch.
        rng = np.random.default_rng((settings.seed, step))
        inputs, targets = batch(self._corpus, settings.batch_size, settings.sequence_length, rng)
        with np.errstate(over="ignore", invalid="ignore"):  # DivergedError reports them below
            try:
                forward = ForwardPass(inputs, self.parameters)
                loss, gradients = loss_and_gradients(forward, targets)
                norm = clip(gradients.vector, settings.clip)
            except InvalidValueError:  # a softmax of infinite or NaN scores
                loss = norm = math.nan
            is_finite = math.isfinite(loss) and math.isfinite(norm)
            if is_finite:
                rate = learning_rate(
                    step, peak=settings.learning_rate, warmup=settings.warmup, steps=settings.steps
                )
                self._optimizer.update(self.parameters.vector, gradients.vector, rate)
                is_finite = bool(np.isfinite(self.parameters.vector).all())
        if not is_finite:
            last_loss = ""
            if self.losses:
                last_loss = f" (it was {self.losses[-1]:.4g})"
            raise DivergedError(
                f"the loss isn't finite at step {step}{last_loss}. Try a learning_rate below "
                f"{settings.learning_rate:g} or a longer warmup"
            )
        self.losses.append(loss)
        self.seconds += time.perf_counter() - started


def train(
    config: GPT2Config,
    corpus: str | os.PathLike[str] | ArrayLike | Tokens,
    tokenizer: Tokenizer | None = None,
    *,
    steps: int,
    batch_size: int = 32,
    sequence_length: int | None = None,
    learning_rate: float = 3e-3,
    warmup: int | None = None,
    decay: float = 0.1,
    clip: float = 1.0,
    seed: int = 0,
    watch: Callable[[Training], object] | None = None,
    progress: bool = True,
) -> Training:
    """Train a GPT-2 from scratch to predict the next token in a corpus.

    Each step draws random sequences from the corpus, computes the mean cross-entropy and its
    gradients, and updates all parameters with AdamW.

    Parameters
    ----------
    config : the model's sizes
    corpus : a text, its ids, integers (N,), or Tokens; or the path of a file, or of a directory
        of files: text, .jsonl with a "text" field, .csv with a "text" column
    tokenizer : the tokenizer of the text and the model. None means bytes as tokens if vocab_size
        is 256. Otherwise it means no tokenizer: the corpus must be ids, and the model takes ids
    steps : number of updates
    batch_size : sequences per step
    sequence_length : tokens per sequence; None means n_positions
    learning_rate : the peak, after a linear warm-up; cosine decay to a tenth of the peak follows
    warmup : warm-up steps; None means a tenth of all steps, at most 100
    decay : AdamW's weight decay, for matrices but not biases and LayerNorms
    clip : the largest norm of the gradient of all parameters
    seed : makes the run reproducible, bit for bit on the same machine
    watch : a function that is called with the `Training` after each step. To save the model every
        200 steps, use `lambda run: run.step % 200 or run.model.save("run")`
    progress : whether to show a progress bar on stderr; HF_HUB_DISABLE_PROGRESS_BARS=1 hides it too

    Returns
    -------
    Training
        has the model, losses and parameters. If the loss becomes infinite or NaN, `DivergedError`
        is raised.

    Examples
    --------
    >>> config = GPT2Config(vocab_size=256, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    >>> text = "to be or not to be, " * 50
    >>> run = train(config, text, steps=200, batch_size=16, learning_rate=1e-2, progress=False)
    >>> run.model.generate("to be", 15, temperature=0).text
    ' or not to be, '
    """
    check_kind(config, GPT2Config, "config")
    if tokenizer is not None:
        check_kind(tokenizer, Tokenizer, "tokenizer")
    if watch is not None and not callable(watch):
        raise InvalidTypeError(f"watch must be callable; got {quoted(watch)}")
    progress = as_flag(progress, "progress")
    if tokenizer is None and config.vocab_size == len(Tokenizer.byte_level()):
        tokenizer = Tokenizer.byte_level()
    steps = as_count(steps, "steps", least=1, most=math.inf)
    length = config.n_positions if sequence_length is None else sequence_length
    length = as_count(length, "sequence_length", least=1, most=config.n_positions)
    warmup = min(100, steps // 10) if warmup is None else warmup
    settings = Settings(
        steps=steps,
        batch_size=as_count(batch_size, "batch_size", least=1, most=math.inf),
        sequence_length=length,
        learning_rate=_as_positive(learning_rate, "learning_rate"),
        warmup=as_count(warmup, "warmup", most=steps - 1),
        decay=as_float(decay, "decay", most=LARGEST_FLOAT32),
        clip=_as_positive(clip, "clip"),
        seed=as_count(seed, "seed", most=LARGEST_SEED),
    )
    ids = _corpus_ids(corpus, tokenizer, config, length)
    try:
        training = Training(config, ids, settings, tokenizer)
        with progress_bar(progress, total=steps, unit="step") as bar:
            while training.step < steps:
                training.advance()
                speed = settings.batch_size * length * training.step / training.seconds
                state = f"loss {training.losses[-1]:.3f}, {speed:,.0f} tokens/s"
                bar.set_postfix_str(state, refresh=False)
                bar.update()
                if watch is not None:
                    watch(training)
    except MemoryError as error:
        raise OutOfMemoryError(f"not enough free memory; {HOW_TO_SAVE_MEMORY}") from error
    return training


def _as_positive(value: float, name: str) -> float:
    number = as_float(value, name)  # raises for a negative number
    if number == 0:
        raise InvalidValueError(f"{name} must be above 0; got 0")
    return number


def batch(
    corpus: Ids, batch_size: int, sequence_length: int, rng: np.random.Generator
) -> tuple[Ids, Ids]:
    """Draw random sequences (batch_size, T) from a corpus, and the token after each token."""
    starts = rng.integers(0, len(corpus) - sequence_length, batch_size)
    sequences = corpus[starts[:, None] + np.arange(sequence_length + 1)]
    return sequences[:, :-1], sequences[:, 1:]


def _corpus_ids(
    corpus: str | os.PathLike[str] | ArrayLike | Tokens,
    tokenizer: Tokenizer | None,
    config: GPT2Config,
    sequence_length: int,
) -> Ids:
    """Return the corpus as ids; check that the corpus and the tokenizer fit the config."""
    if tokenizer is not None and len(tokenizer) != config.vocab_size:
        raise InvalidValueError(
            f"the tokenizer has {len(tokenizer)} tokens, but config.vocab_size is "
            f"{config.vocab_size}"
        )
    if isinstance(corpus, Tokens):
        corpus = corpus.ids
    if isinstance(corpus, str | os.PathLike):
        if tokenizer is None:
            raise InvalidValueError(
                "a text needs a tokenizer with config.vocab_size tokens. Without a tokenizer, "
                f"vocab_size must be 256, one for each byte; got {config.vocab_size}. "
                "Tokenizer.from_characters(text) has one for each character"
            )
        corpus = tokenizer.encode(read_corpus(corpus))
    ids = check_ids(corpus, config.vocab_size)
    if len(ids) <= sequence_length:
        raise InvalidValueError(
            f"the corpus must have more tokens than sequence_length, {sequence_length}; got "
            f"{len(ids)}"
        )
    return ids
