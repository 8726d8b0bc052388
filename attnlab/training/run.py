"""A training run: from a corpus to a model, step by step, with a state that survives a kill."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from attnlab.checkpoints.checkpoint import INDEX, WEIGHTS
from attnlab.equations import Array, Ids
from attnlab.errors import DivergedError, InvalidTypeError, InvalidValueError, ResumeError, quoted
from attnlab.forward.config import GPT2Config
from attnlab.forward.forward_pass import ForwardPass, dropout_shapes
from attnlab.forward.functional import drawn_dropout
from attnlab.forward.gradients import cross_entropy
from attnlab.forward.parameters import parameter_count
from attnlab.model.gpt2 import GPT2
from attnlab.support.checks import as_count, as_flag, check_kind, is_integer, is_real
from attnlab.support.console import progress_bar
from attnlab.support.files import as_path, held, make_directory
from attnlab.support.sealed import sha256
from attnlab.text.tokenizer import Tokenizer
from attnlab.text.tokens import Tokens, check_ids
from attnlab.training.gradients import loss_and_gradients
from attnlab.training.optimizer import AdamW, clip, learning_rate
from attnlab.training.parameters import initial_parameters, is_matrix
from attnlab.training.state import read_state, write_state

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attnlab.views.plot import Picture

STATE = "training.safetensors"

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)

# NumPy makes its own seeds of 128 bits.
LARGEST_SEED = 2**128

SMALLER = "take a smaller config, batch_size or sequence_length, or fewer steps"

# What Python needs at least for a layer's arrays, and for the loss of a step.
LAYER_BYTES = 4_000
LOSS_BYTES = 32

# What a run holds while it is at work in a directory.
LOCK = "training.lock"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run is determined by, besides config and corpus; see `train`."""

    steps: int
    batch_size: int
    sequence_length: int
    learning_rate: float
    warmup: int
    decay: float
    clip: float
    dropout: float
    seed: int

    def __post_init__(self) -> None:
        least = {"steps": 1, "batch_size": 1, "sequence_length": 1, "warmup": 0, "seed": 0}
        for name, smallest in least.items():
            value = getattr(self, name)
            if not is_integer(value) or value < smallest:
                raise InvalidValueError(
                    f"{name} must be an integer of at least {smallest}; given {quoted(value)}"
                )
            object.__setattr__(self, name, int(value))
        if self.seed >= LARGEST_SEED:
            raise InvalidValueError(f"seed must have at most 128 bits; given {quoted(self.seed)}")
        for name in ("learning_rate", "clip", "decay", "dropout"):
            value = getattr(self, name)
            number = _as_float(value)
            zero_will_do = name in ("decay", "dropout")
            largest = {"decay": LARGEST_FLOAT32, "dropout": 1.0}.get(name, math.inf)
            if not (0 < number < largest or (zero_will_do and number == 0)):
                bounds = f"{'at least' if zero_will_do else 'above'} 0 and "
                bounds += "finite" if math.isinf(largest) else f"below {largest:g}"
                raise InvalidValueError(f"{name} must be a number {bounds}; given {quoted(value)}")
            object.__setattr__(self, name, number)
        if self.warmup >= self.steps:
            raise InvalidValueError(
                f"warmup must be less than all {quoted(self.steps)} steps; "
                f"given {quoted(self.warmup)}"
            )


def _as_float(value: object) -> float:
    """A number as Python's float, NumPy's too, which widen float32; NaN where it is none."""
    if not is_real(value):
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:  # 10 to the 400
        return math.inf


class Training:
    """A run of `train`, as far as it has come.

    Attributes
    ----------
    config, settings, tokenizer : what it was started with
    parameters : ParameterVector, float32, as they are now: each step changes them in place, so
        what is to be looked at later needs a `copy()`, as `model` has
    losses : of each step so far, in nats per token
    seconds : what they took, those before a resume included
    """

    def __init__(
        self, config: GPT2Config, corpus: Ids, settings: Settings, tokenizer: Tokenizer | None
    ) -> None:
        self.config, self.settings, self.tokenizer = config, settings, tokenizer
        self._corpus = corpus
        self._identity = _identity(config, corpus, settings, tokenizer)
        self.parameters = initial_parameters(config, np.random.default_rng((settings.seed, 0)))
        self._optimizer = AdamW(is_matrix(config).vector * settings.decay)
        self.losses: list[float] = []
        self.seconds = 0.0

    @property
    def step(self) -> int:
        """How many steps have been taken."""
        return len(self.losses)

    @property
    def model(self) -> GPT2:
        """The model as it is now, with parameters of its own, which later steps leave alone.

        Raises
        ------
        InvalidValueError
            The run was given ids and no tokenizer.
        """
        if self.tokenizer is None:
            raise InvalidValueError("a model needs a tokenizer: train(..., tokenizer=...)")
        return GPT2(self.parameters.copy(), self.tokenizer)

    def __repr__(self) -> str:
        last = f", the last loss {self.losses[-1]:.4f} nats" if self.losses else ""
        size = f"{self.parameters.vector.size:,} parameters"
        return f"Training of {size}, {self.step} of {self.settings.steps} steps{last}"

    def plot(self, ax: Axes | None = None) -> Picture:
        """The loss of each step, and a line through them.

        Parameters
        ----------
        ax : matplotlib's Axes to draw into; None for a figure of its own

        Returns
        -------
        Picture
            a notebook shows it, `.save("losses.svg")` writes it
        """
        from attnlab.views.plot import drawn_in, plot_losses

        with drawn_in():
            return plot_losses(self.losses, repr(self), ax)

    def advance(self) -> None:
        """One step: a batch, its loss and gradients, an update.

        What is random in a step is drawn from its number and the seed, so that a run that is
        resumed goes on as if it had never stopped.

        Raises
        ------
        DivergedError
            The loss, a gradient or a parameter is no longer finite.
        """
        settings, number = self.settings, self.step + 1
        started = time.perf_counter()
        rng = np.random.default_rng((settings.seed, number))
        inputs, targets = batch(self._corpus, settings.batch_size, settings.sequence_length, rng)
        dropout = draw_dropout(self.config, inputs.shape, settings.dropout, rng)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is told here
            try:
                forward = ForwardPass(inputs, self.parameters, dropout=dropout)
                loss, gradients = loss_and_gradients(forward, targets)
                length = clip(gradients.vector, settings.clip)
            except InvalidValueError:  # a softmax of infinite or NaN scores
                loss = length = math.nan
            finite = math.isfinite(loss) and math.isfinite(length)
            if finite:
                rate = learning_rate(
                    number,
                    peak=settings.learning_rate,
                    warmup=settings.warmup,
                    steps=settings.steps,
                )
                self._optimizer.update(self.parameters.vector, gradients.vector, rate)
                finite = bool(np.isfinite(self.parameters.vector).all())
        if not finite:
            before = f" (before it: {self.losses[-1]:.4g})" if self.losses else ""
            raise DivergedError(
                f"at step {number} the loss is no longer finite{before}: "
                f"a learning_rate below {settings.learning_rate:g} or a longer warmup may help"
            )
        self.losses.append(loss)
        self.seconds += time.perf_counter() - started

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the state that `resume` reads; the old or the new one is always there whole."""
        place = as_path(directory, "directory")
        tensors = {
            "parameters": self.parameters.vector,
            "m": self._optimizer.m,
            "v": self._optimizer.v,
            "losses": np.array(self.losses, np.float64),
            "seconds": np.array([self.seconds]),
        }
        write_state(place / STATE, self._identity, tensors)
        if self.tokenizer is not None:
            self.model.save(place)

    def resume(self, directory: str | os.PathLike[str]) -> None:
        """Go on from the state in a directory; if there is none, from the start.

        Raises
        ------
        ResumeError
            The state is damaged or of another run, or the directory holds a model that no run has
            written, which the run would replace.
        """
        place = as_path(directory, "directory")
        file = place / STATE
        if not os.path.exists(file):
            if any(os.path.exists(place / name) for name in (WEIGHTS, INDEX)):
                raise ResumeError(
                    f"{place} holds a model, and no {STATE} to go on from: the run needs a "
                    "directory of its own"
                )
            return
        vector, optimizer = self.parameters.vector, self._optimizer
        state = read_state(file, self._identity, parameters=vector.size, steps=self.settings.steps)
        vector[:], optimizer.m[:], optimizer.v[:] = state["parameters"], state["m"], state["v"]
        self.losses, self.seconds = state["losses"].tolist(), state["seconds"].item()
        optimizer.step = self.step


def train(
    config: GPT2Config,
    corpus: str | ArrayLike | Tokens,
    tokenizer: Tokenizer | None = None,
    *,
    steps: int,
    batch_size: int = 32,
    sequence_length: int | None = None,
    learning_rate: float = 3e-3,
    warmup: int | None = None,
    decay: float = 0.1,
    clip: float = 1.0,
    dropout: float = 0.0,
    seed: int = 0,
    directory: str | os.PathLike[str] | None = None,
    save_every: int = 200,
    watch: Callable[[Training], object] | None = None,
    progress: bool = True,
) -> Training:
    """Train a GPT-2 from nothing to say what follows in a corpus.

    Each step draws sequences at random from the corpus, computes the loss, the mean cross-entropy
    of each next token, and its gradients, and updates all parameters with AdamW.

    Parameters
    ----------
    config : the model's sizes
    corpus : a text, its ids, integers (N,), or Tokens
    tokenizer : cuts a text, and gives the model its words; None takes single bytes as tokens if the
        config has 256, and for ids of another vocabulary no tokenizer at all
    steps : how many updates
    batch_size : sequences in a step
    sequence_length : tokens in a sequence; None means n_positions
    learning_rate : the largest; it rises in a straight line to it, then falls by half a cosine to a
        tenth of it
    warmup : steps of the rise; None means a tenth of all, at most 100
    decay : by what share of learning_rate matrices shrink in a step; biases and LayerNorms do not
    clip : the length that the gradient, all parameters' together, is cut to
    dropout : share p that is dropped of the embedding, of the attention's weights, and of what
        attention and MLP write
    seed : makes the run repeatable, to the bit on one machine
    directory : where the run's state is written, and the model, if it has a tokenizer, as
        `GPT2.from_pretrained(directory)` reads it. A run that was killed goes on from there when it
        is started again with the same arguments. Only one run at a time is at work in a directory.
    save_every : steps between two states; the last is always written
    watch : is called with the `Training` after each step
    progress : whether a bar shows the loss and the tokens per second, on stderr; like the hub's
        bars, HF_HUB_DISABLE_PROGRESS_BARS=1 hides it

    Returns
    -------
    Training
        with model, losses, parameters

    Raises
    ------
    DivergedError
        The loss became infinite or NaN. The state written last stays.
    ResumeError
        The directory's state is damaged or of another run, or the directory holds a model that no
        run has written.
    WriteError
        Another run is using the directory.

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
        raise InvalidTypeError(f"watch must be a function; given {quoted(watch)}")
    progress = as_flag(progress, "progress")
    if tokenizer is None and config.vocab_size == len(Tokenizer.of_bytes()):
        tokenizer = Tokenizer.of_bytes()
    place = None if directory is None else as_path(directory, "directory")
    settings = Settings(
        steps=steps,
        batch_size=batch_size,
        sequence_length=config.n_positions if sequence_length is None else sequence_length,
        learning_rate=learning_rate,
        warmup=_warmup(steps) if warmup is None else warmup,
        decay=decay,
        clip=clip,
        dropout=dropout,
        seed=seed,
    )
    save_every = as_count(save_every, "save_every", least=1, most=math.inf)
    _check_memory(config, settings)
    ids = _corpus_ids(corpus, tokenizer, config, settings.sequence_length)
    try:
        training = Training(config, ids, settings, tokenizer)
        if place is not None:
            make_directory(place)
        with contextlib.nullcontext() if place is None else held(place / LOCK):
            _run(training, place, save_every, watch, progress)
    except MemoryError as error:
        raise InvalidValueError(f"the memory that is free is too small: {SMALLER}") from error
    return training


def _warmup(steps: object) -> int:
    """The steps of the learning rate's rise where none are given."""
    return min(100, int(steps) // 10) if is_integer(steps) else 0  # type: ignore[call-overload]


def _check_memory(config: GPT2Config, settings: Settings) -> None:
    """Refuse a run that needs more memory than the machine has, before it is tried.

    Counted is what is held at the same time on the way back: parameters, their decay, both of
    AdamW's means and the gradients; X, Q, K, V, weights and context of each block and its MLP's
    hidden numbers, before and after GELU; the logits and their gradient; each step's loss.
    """
    # The parameters by what a layer has: those of a billion layers would take long to count.
    one, two = (parameter_count(replace(config, n_layer=n)) for n in (1, 2))
    parameters = one + (config.n_layer - 1) * (two - one)
    tokens = settings.batch_size * settings.sequence_length
    D, F, L = config.n_embd, config.d_mlp, config.n_layer
    in_block = tokens * (6 * D + 2 * F + config.n_head * settings.sequence_length)
    numbers = 5 * parameters + L * in_block + 2 * tokens * config.vocab_size
    needed = 4 * numbers + LAYER_BYTES * L + LOSS_BYTES * settings.steps
    if needed > _memory():
        most = min(needed, 10**24) // 10**9
        raise InvalidValueError(
            f"this run needs at least {most:,} GB of memory, and the machine has "
            f"{_memory() // 10**9:,}: {SMALLER}"
        )


def _memory() -> int:
    """The machine's memory in bytes; where Python is not told, what can be addressed."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def _run(
    training: Training,
    place: Path | None,
    save_every: int,
    watch: Callable[[Training], object] | None,
    progress: bool,
) -> None:
    """What `train` does once all is known to be fine and the directory is its own."""
    if place is not None:
        training.resume(place)
        training.save(place)
    saved, settings = training.step, training.settings
    tokens = settings.batch_size * settings.sequence_length
    count = {"total": settings.steps, "initial": saved, "unit": "step"}
    with progress_bar(**count, disable=not progress) as bar:
        while training.step < settings.steps:
            try:
                training.advance()
            except DivergedError as error:
                where = (
                    f", in a directory of its own: {place} keeps the state after step {saved}"
                    if place is not None
                    else ""
                )
                raise DivergedError(f"{error}{where}") from None
            if place is not None and training.step in (saved + save_every, settings.steps):
                training.save(place)
                saved = training.step
            speed = tokens * training.step / training.seconds
            bar.set_postfix_str(f"loss {training.losses[-1]:.3f}, {speed:,.0f} tokens/s", False)
            bar.update()
            if watch is not None:
                watch(training)


def evaluate(
    model: GPT2, corpus: str | ArrayLike | Tokens, sequence_length: int | None = None
) -> float:
    """The model's loss on a corpus: mean cross-entropy of each next token, in nats.

    The corpus is cut into sequences; the first tokens of each have little to go by.

    Parameters
    ----------
    model : any GPT-2
    corpus : a text, or ids, integers (N,)
    sequence_length : tokens in a sequence; None means n_positions. What is left at the end is not
        looked at.
    """
    check_kind(model, GPT2, "model")
    T = model.config.n_positions
    if sequence_length is not None:
        T = as_count(sequence_length, "sequence_length", least=1)
    ids = _corpus_ids(corpus, model.tokenizer, model.config, T)
    count = (len(ids) - 1) // T
    inputs, targets = ids[: count * T].reshape(-1, T), ids[1 : count * T + 1].reshape(-1, T)
    losses = [
        cross_entropy(ForwardPass(row, model.parameters).logits, target)[0]
        for row, target in zip(inputs, targets, strict=True)
    ]
    return float(np.mean(losses))


def _identity(
    config: GPT2Config, corpus: Ids, settings: Settings, tokenizer: Tokenizer | None
) -> dict[str, str]:
    """What makes two runs the same run."""

    def digest(content: bytes) -> str:
        return f"sha256 {sha256([content])[:16]}"

    words = [] if tokenizer is None else tokenizer.tokens(range(len(tokenizer))).symbols
    told = {
        **asdict(config),
        **asdict(settings),
        "corpus": f"{len(corpus)} tokens, {digest(corpus.tobytes())}",
        "vocabulary": f"{len(words)} tokens, {digest(repr(words).encode())}",
    }
    return {name: str(value) for name, value in told.items()}


def batch(
    corpus: Ids, batch_size: int, sequence_length: int, rng: np.random.Generator
) -> tuple[Ids, Ids]:
    """Sequences drawn from a corpus, and for each of their tokens the one that follows.

    Parameters
    ----------
    corpus : int64 (N,), N > sequence_length = T

    Returns
    -------
    inputs, targets : int64 (batch_size, T), targets one place further on
    """
    starts = rng.integers(0, len(corpus) - sequence_length, batch_size)
    sequences = corpus[starts[:, None] + np.arange(sequence_length + 1)]
    return sequences[:, :-1], sequences[:, 1:]


def draw_dropout(
    config: GPT2Config, ids_shape: tuple[int, ...], share: float, rng: np.random.Generator
) -> dict[str, Array] | None:
    """What one forward pass over ids (..., T) drops, by path; None if the share is 0."""
    if not share:
        return None
    shapes = dropout_shapes(config, ids_shape)
    return {path: drawn_dropout(shape, share, rng, np.float32) for path, shape in shapes.items()}


def _corpus_ids(
    corpus: str | ArrayLike | Tokens,
    tokenizer: Tokenizer | None,
    config: GPT2Config,
    sequence_length: int,
) -> Ids:
    """The corpus as ids, once it and the tokenizer are known to fit the config."""
    if tokenizer is not None and len(tokenizer) != config.vocab_size:
        raise InvalidValueError(
            f"the tokenizer has {len(tokenizer)} tokens, and the config's vocab_size is "
            f"{config.vocab_size}"
        )
    if isinstance(corpus, Tokens):
        corpus = corpus.ids
    if isinstance(corpus, str):
        if tokenizer is None:
            raise InvalidValueError(
                "a text needs a tokenizer of config.vocab_size tokens; without one the config must "
                f"have 256, one for each byte; given {config.vocab_size}"
            )
        corpus = tokenizer.encode(corpus)
    ids = check_ids(corpus, config.vocab_size)
    if sequence_length > config.n_positions:
        raise InvalidValueError(
            f"a sequence_length of {quoted(sequence_length)} is too long: the model has "
            f"{config.n_positions} positions"
        )
    if len(ids) <= sequence_length:
        raise InvalidValueError(
            f"the corpus has {len(ids)} tokens; a sequence of {sequence_length} and the token "
            f"after it need {sequence_length + 1}"
        )
    return ids
