"""The tuned lens: one affine map for each layer, trained to predict the model's output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab import equations
from attnlab.analysis.base import Analysis, fingerprint, named_axis, number_of_texts, positions_of
from attnlab.analysis.lens import (
    Lens,
    best_of,
    check_next_tokens,
    decode_stream,
    losses_of,
    probabilities_of,
)
from attnlab.analysis.many import standard_error
from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidValueError, RecordingError
from attnlab.forward.gradients import affine_W, affine_x, layer_norm_gradient
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import Trace
from attnlab.model.traces import Traces
from attnlab.steps import at, read_only
from attnlab.steps.labels import Axis
from attnlab.support.checks import as_count, check_choice, check_kind, check_texts
from attnlab.support.console import progress_bar
from attnlab.support.files import FilePath, as_path
from attnlab.support.messages import Message
from attnlab.support.sealed import Shapes, read_sealed, write_sealed
from attnlab.support.tables import Table, header
from attnlab.training.optimizer import AdamW, clip, learning_rate

FORMAT = "1"

# The pocket model's tuned lens, in the package.
POCKET_LENS = Path(__file__).parent.parent / "pocket" / "tuned_lens.safetensors"

PEAK_RATE, WARMUP, MAX_NORM = 2e-3, 20, 1.0


class TunedLens:
    """A tuned lens: an affine map for each layer, as `attnlab.tuned_lens` trains it.

    logits = LayerNorm(x + x W + b) W_U, with the model's last LayerNorm

    x is the residual stream at a stop: after the embedding, or after a block. After the last block
    W and b are 0, since the model itself decodes the stream there; they aren't stored.

    Attributes
    ----------
    stops : paths, "embedding", "blocks.0.output", ..., without the last block's output
    W, b : (D, D) and (D,), by stop
    """

    note: ClassVar[str] = (
        "The maps are trained to predict the model's output, and may do so from features that the "
        "model itself doesn't use: what the lens reads at a layer need not be what later layers "
        "read. It is only as good as the texts it was trained on."
    )
    source: ClassVar[str] = (
        "Belrose et al., “Eliciting Latent Predictions from Transformers with the Tuned Lens” "
        "(2023)"
    )

    def __init__(self, maps: Mapping[str, tuple[Array, Array]], fingerprint: str) -> None:
        self.stops = tuple(maps)
        self.W = {stop: read_only(W) for stop, (W, _) in maps.items()}
        self.b = {stop: read_only(b) for stop, (_, b) in maps.items()}
        self._model = fingerprint

    def translated(self, trace: Trace, stop: str) -> Array:
        """x + x W + b at a stop, (..., T, D)."""
        x: Array = at(trace, stop)
        if stop not in self.W:
            return x
        return x + equations.affine(x, self.W[stop].astype(x.dtype), self.b[stop].astype(x.dtype))

    def logits(self, trace: Trace, stop: str) -> Array:
        """The lens's logits at a stop, (..., T, vocab)."""
        check_kind(trace, Trace, "trace")
        check_choice(stop, lens_stops(trace), "stop")
        if self._model != fingerprint(trace):
            raise InvalidValueError(
                "the lens was trained for another model. Train one for this model with "
                "attnlab.tuned_lens"
            )
        return decode_stream(trace, self.translated(trace, stop))

    def of(self, trace: Trace) -> TunedStops:
        """The most probable token at every stop and position of a text."""
        check_kind(trace, Trace, "trace")
        return TunedStops(self, trace)

    def losses(self, model: GPT2, texts: Sequence[str]) -> LensLosses:
        """The cross-entropy at each stop, compared with the logit lens; see `LensLosses`."""
        return LensLosses(self, model, texts)

    def save(self, path: FilePath) -> None:
        """Write a safetensors file, which `attnlab.open_tuned_lens` opens."""
        tensors: dict[str, Array] = {}
        for stop in self.stops:
            tensors |= {f"{stop}.W": self.W[stop], f"{stop}.b": self.b[stop]}
        write_sealed(path, FORMAT, tensors, {"model": self._model, "kind": "tuned lens"})

    def __repr__(self) -> str:
        D = len(next(iter(self.b.values())))
        return f"Tuned lens of {len(self.stops)} maps ({D} x {D}): {', '.join(self.stops)}"


def open_tuned_lens(path: FilePath) -> TunedLens:
    """Open a tuned lens.

    Parameters
    ----------
    path : a file from `TunedLens.save`, or "pocket" for the pocket model's lens

    Examples
    --------
    >>> lens = attnlab.open_tuned_lens("pocket")
    >>> lens.of(model.trace("The dog chased the ball, but it"))
    """

    def check(metadata: dict[str, str], shapes: Shapes) -> None:
        if not shapes:
            raise RecordingError("it has no maps")
        for name, shape in shapes.items():
            stop, _, parameter = name.rpartition(".")
            D = shapes[f"{stop}.b"][0]
            expected = {"W": (D, D), "b": (D,)}[parameter]
            if shape != expected:
                raise RecordingError(
                    "{name} must have shape {shape}; got {actual}",
                    name=name,
                    shape=expected,
                    actual=shape,
                )

    is_pocket = isinstance(path, str) and path == "pocket"
    file = POCKET_LENS if is_pocket else as_path(path, "path")
    try:
        tensors, metadata = read_sealed(file, FORMAT, RecordingError, check)
    except RecordingError as error:
        raise RecordingError(
            "{error}. Expected a file that `TunedLens.save` wrote", error=error
        ) from None
    stops = sorted({name.rpartition(".")[0] for name in tensors}, key=blocks_before)
    maps = {stop: (tensors[f"{stop}.W"], tensors[f"{stop}.b"]) for stop in stops}
    return TunedLens(maps, metadata.get("model", ""))


def tuned_lens(
    model: GPT2,
    texts: Sequence[str],
    *,
    steps: int = 250,
    seed: int = 0,
    progress: bool = True,
) -> TunedLens:
    """Train a tuned lens: for each layer, an affine map from its stream to the model's prediction.

    loss = mean over positions of Σ q log(q / p), p = softmax(LayerNorm(x + x W + b) W_U)

    q is the model's own distribution. W and b start at 0, where the tuned lens is the logit lens.
    The optimizer is AdamW without decay. A batch is a group of texts of equal length, at most 512
    tokens, computed once for all layers.

    Parameters
    ----------
    model : GPT2, which isn't changed
    texts : training texts, without labels
    steps : number of training steps
    seed : seed of the order of the batches
    progress : whether to show a progress bar on stderr

    Returns
    -------
    TunedLens
        `.losses(model, other_texts)` compares it with the logit lens on other texts

    Notes
    -----
    A map may predict from features that the model itself doesn't use: what the lens reads at a
    layer need not be what later layers read.

    Source: Belrose et al., "Eliciting Latent Predictions from Transformers with the Tuned Lens"
    (2023).

    Examples
    --------
    >>> lens = attnlab.tuned_lens(model, texts)
    >>> print(lens.losses(model, other_texts))
    >>> lens.save("lens.safetensors")
    """
    steps, seed = as_count(steps, "steps", least=1), as_count(seed, "seed")
    traces = traces_of(model, texts)
    rng, groups, remaining = np.random.default_rng(seed), traces.groups(), list[int]()
    *stops, _ = lens_stops(traces[0])  # the last block's output needs no map
    D = model.config.n_embd
    vectors = {stop: np.zeros(D * D + D) for stop in stops}  # W and b, flat, in float64
    optimizers = {stop: AdamW(np.zeros(D * D + D)) for stop in stops}
    with progress_bar(progress, total=steps, unit="step") as bar:
        for step in range(1, steps + 1):
            remaining = remaining or rng.permutation(len(groups)).tolist()  # a new epoch
            trace, _ = traces.side_by_side(groups[remaining.pop()])
            rate = learning_rate(step, peak=PEAK_RATE, warmup=min(WARMUP, steps), steps=steps)
            target = equations.softmax(trace.logits.astype(np.float64))
            losses = []
            for stop in stops:
                W, b = split_map(vectors[stop], D)
                loss, *gradients = loss_and_gradients(trace, at(trace, stop), W, b, target)
                gradient = np.concatenate([part.ravel() for part in gradients])
                clip(gradient, MAX_NORM)
                optimizers[stop].update(vectors[stop], gradient, rate)
                losses.append(loss)
            bar.set_postfix_str(f"{np.mean(losses):.3f} nats", refresh=False)
            bar.update()
    maps = {
        stop: tuple(part.astype(np.float32) for part in split_map(vector, D))
        for stop, vector in vectors.items()
    }
    return TunedLens(maps, fingerprint(traces[0]))  # type: ignore[arg-type]


def traces_of(model: GPT2, texts: Sequence[str]) -> Traces:
    """The traces of texts to train or measure a lens on."""
    check_kind(model, GPT2, "model")
    check_texts(texts)
    return model.trace(list(texts))


def split_map(vector: Array, D: int) -> tuple[Array, Array]:
    """Views W (D, D) and b (D,) of a vector (D² + D,) that holds both."""
    return vector[: D * D].reshape(D, D), vector[D * D :]


def loss_and_gradients(
    trace: Trace, x: Array, W: Array, b: Array, target: Array
) -> tuple[float, Array, Array]:
    """The loss of one map and its gradients, see `tuned_lens`.

    Parameters
    ----------
    trace : a trace with the last LayerNorm and W_U
    x : (..., T, D), the stream at a stop
    W, b : (D, D) and (D,)
    target : (..., T, vocab), the model's probabilities

    Returns
    -------
    loss, d_W, d_b
    """
    x = x.astype(np.float64)
    translated = x + equations.affine(x, W, b)
    W_U = trace.W_U.astype(np.float64)
    final = equations.layer_norm(translated, trace.gain, trace.bias, trace.epsilon)
    shifted = equations.logits(final, W_U)
    shifted -= shifted.max(axis=-1, keepdims=True)
    exponentials = np.exp(shifted)
    sums = exponentials.sum(axis=-1, keepdims=True)
    positions = target[..., 0].size
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 log 0 = 0
        negative_entropy = np.nansum(target * np.log(target))
    loss = float(negative_entropy - (target * (shifted - np.log(sums))).sum()) / positions
    d_logits = (exponentials / sums - target) / positions
    d_final = affine_x(W_U, d_logits)
    d_x, _, _ = layer_norm_gradient(translated, trace.gain, trace.epsilon, d_final)
    return loss, affine_W(x, d_x), d_x.reshape(-1, d_x.shape[-1]).sum(axis=0)


def lens_stops(trace: Trace) -> tuple[str, ...]:
    """The paths of a lens's stops: the embedding, and the output of each block."""
    return "embedding", *(f"blocks.{layer}.output" for layer in range(trace.config.n_layer))


def blocks_before(stop: str) -> int:
    """The number of blocks before a stop."""
    return 0 if stop == "embedding" else 1 + int(stop.split(".")[1])


class TunedStops(Lens):
    """The tuned lens's most probable token at every stop and position; see `TunedLens.of`."""

    meaning: ClassVar[str] = (
        "Each cell is the token that the tuned lens finds most probable, with its probability."
    )
    note: ClassVar[str] = TunedLens.note
    source: ClassVar[str] = TunedLens.source

    def __init__(self, lens: TunedLens, trace: Trace) -> None:
        stops, ids, probabilities = lens_stops(trace), [], []
        for stop in stops:
            logits = lens.logits(trace, stop)
            best = best_of(logits)
            ids.append(best[:, 0])
            probabilities.append(probabilities_of(best, logits)[:, 0])
        ranks = np.ones((len(ids), len(ids[0])), np.int64)
        title = Message("Tuned lens{note}: the most probable token", note=trace._note)
        super().__init__(
            title, trace, positions_of(trace), (np.stack(ids), ranks, np.stack(probabilities))
        )
        self.stops = stops


class LensLosses(Analysis):
    """The cross-entropy of the next token at each stop, for the tuned lens and the logit lens.

    loss = mean over positions of -log p(next token); then the mean over texts

    Attributes
    ----------
    stops : paths; at the last one, the losses of both lenses are the model's own
    tuned, logit : (stops,), means over texts, in nats per token
    tuned_errors, logit_errors : (stops,), standard errors; NaN for one text
    each : (2, stops, texts), the losses of the tuned lens and of the logit lens
    """

    meaning: ClassVar[str] = (
        "Each number is a mean cross-entropy in nats per token: how badly the next token is "
        "predicted from a stop."
    )
    note: ClassVar[str] = TunedLens.note
    source: ClassVar[str] = f"{TunedLens.source}; nostalgebraist (2020) for the logit lens"

    def __init__(self, lens: TunedLens, model: GPT2, texts: Sequence[str]) -> None:
        traces = traces_of(model, texts)
        check_next_tokens(traces)
        self.stops = lens_stops(traces[0])
        each = np.empty((2, len(self.stops), len(traces)))
        for group in traces.groups():
            trace, _ = traces.side_by_side(group)
            ids = at(trace, "ids")[..., 1:, np.newaxis]
            for row, stop in enumerate(self.stops):
                logit = decode_stream(trace, at(trace, stop))
                for n, logits in enumerate((lens.logits(trace, stop), logit)):
                    each[n, row, group] = losses_of(logits[..., :-1, :], ids)
        self.each: NDArray[np.float64] = read_only(each)
        self.tuned, self.logit = read_only(each[0].mean(axis=-1)), read_only(each[1].mean(axis=-1))
        self.tuned_errors, self.logit_errors = (
            read_only(standard_error(losses.T)) for losses in self.each
        )
        self.title = Message(
            "Cross-entropy by stop, in {texts}", texts=number_of_texts(len(traces))
        )

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        columns = named_axis("lens", ("tuned lens", "logit lens"))
        return np.column_stack([self.tuned, self.logit]), named_axis("stop", self.stops), columns

    def _tables(self) -> Iterator[str | Table]:
        lines = [header("stop", "tuned lens", "logit lens")]
        lenses = ((self.tuned, self.tuned_errors), (self.logit, self.logit_errors))
        for row, stop in enumerate(self.stops):
            cells = (
                f"{mean[row]:.3f}" + ("" if np.isnan(error[row]) else f" ± {error[row]:.3f}")
                for mean, error in lenses
            )
            lines.append((stop, *cells))
        yield Table(lines)
