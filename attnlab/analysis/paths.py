"""Path patching: the effect of one part on another along the direct path between them.

Senders write to the residual stream: heads, MLPs and the embedding. Receivers read from the stream:
heads (through Q, K and V), MLPs and the logits. Since the stream is a sum, a direct path carries
exactly what its sender writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from attnlab.analysis.metrics import (
    Metric,
    as_metric,
    baselines_of,
    check_pairs,
    check_traces,
    describe_metric,
    effects_of_pairs,
    parse_metric,
)
from attnlab.analysis.patching import Patching, expand
from attnlab.errors import InvalidValueError, quoted
from attnlab.model.trace import Trace
from attnlab.model.traces import Traces
from attnlab.steps.paths import parse
from attnlab.support.checks import as_flag
from attnlab.support.console import progress_bar
from attnlab.support.messages import Message

HEAD_OUTPUTS = "blocks.*.attention.heads.*.output"

SENDERS = ("embedding", HEAD_OUTPUTS, "blocks.*.mlp.output")
RECEIVERS = (*(f"blocks.*.attention.heads.*.{name}" for name in "QKV"), "blocks.*.mlp.X", "final")


def check_endpoint(path: object, patterns: Sequence[str], name: str) -> None:
    """Raise unless a path matches one of `SENDERS` or `RECEIVERS`."""
    if not isinstance(path, str) or re.sub(r"\.\d+", ".*", path) not in patterns:
        raise InvalidValueError(f"{name} must be one of {', '.join(patterns)}; got {quoted(path)}")


def patch_path(
    clean: Trace, corrupted: Trace, sender: str, receivers: Sequence[str], recompute_mlps: bool
) -> Trace:
    """The corrupted trace, in which the receivers read a sender's clean output."""
    parts = ("attention",) if recompute_mlps else ("attention", "mlp")
    # All parts keep the output that they write to the residual stream, so the sender's change
    # reaches the receivers only through the stream itself.
    written = {
        path: corrupted[path]
        for layer in range(corrupted.config.n_layer)
        for path in (f"blocks.{layer}.{part}.output" for part in parts)
    }
    # A head's output is added to the stream as a part of its layer's output.
    layer_prefix = parse(sender).layer_prefix
    path = f"{layer_prefix}output" if layer_prefix else sender
    written[path] = corrupted[path] + (clean[sender] - corrupted[sender])  # (T, D)
    with_sender = corrupted.edited(written)
    return corrupted.edited({receiver: with_sender[receiver] for receiver in receivers})


class PathPatching(Patching):
    """How much of the target each direct path restores; the result of `attnlab.path_patch`.

    `restored` has an axis for each "*" in the sender.
    """

    note: ClassVar[str] = (
        "Only the direct path counts, through the residual stream: all heads between sender and "
        "receiver, and all MLPs that aren't recomputed, stay as in the corrupted run. A path that "
        "restores little may still matter together with others."
    )
    source: ClassVar[str] = (
        "Wang et al., “Interpretability in the Wild” (2022); Goldowsky-Dill et al., “Localizing "
        "Model Behavior with Path Patching” (2023)"
    )


def path_patch(
    clean: Trace | Traces,
    corrupted: Trace | Traces,
    sender: str = HEAD_OUTPUTS,
    receiver: str | Sequence[str] = "final",
    *,
    target: Metric | list[Any],
    at: int | str = -1,
    recompute_mlps: bool = False,
    progress: bool = True,
) -> PathPatching:
    """Patch only the direct path from a sender to a receiver.

    input' = input + (sender in clean - sender in corrupted)

    The receiver computes its step from LayerNorm(input') in the corrupted run; all other heads and
    MLPs before it keep their values from that run. Steps after the receiver are recomputed, and
    restored = (target(patched) - target(corrupted)) / (target(clean) - target(corrupted)).

    Wang et al. patch corrupted values into the clean run, and count the MLPs between sender and
    receiver as part of the path. To do the same, exchange the two traces and set `recompute_mlps`.

    Parameters
    ----------
    clean, corrupted, target, at, progress : as in `patch`
    sender : path of a step that is added to the residual stream: "embedding",
        "blocks.0.mlp.output", "blocks.0.attention.heads.2.output". "*" stands for every layer or
        head; each sender is patched separately.
    receiver : path of a step that reads the stream: a head's Q, K or V, such as
        "blocks.1.attention.heads.2.Q", "blocks.1.mlp.X", or "final", from which the logits are
        computed. All receivers of a list or a path with "*" are patched together.
    recompute_mlps : whether to recompute MLPs and freeze only heads, as Wang et al. (2022) do

    Returns
    -------
    PathPatching
        `.restored` is 0 for a sender that doesn't come before any receiver

    Examples
    --------
    >>> attnlab.path_patch(clean, corrupted, receiver="blocks.1.attention.heads.2.V", target=" dog")
    """
    patterns: list[Any] = list(receiver) if isinstance(receiver, list | tuple) else [receiver]
    if not patterns:
        raise InvalidValueError("receiver must have at least one path; got an empty list")
    for pattern in patterns:
        check_endpoint(pattern, RECEIVERS, "receiver")
    check_endpoint(sender, SENDERS, "sender")
    recompute_mlps = as_flag(recompute_mlps, "recompute_mlps")
    baselines: Any
    if isinstance(clean, Traces) or isinstance(corrupted, Traces):
        clean, corrupted = check_pairs(clean, corrupted)
        settings: Any = {"at": at, "recompute_mlps": recompute_mlps, "progress": False}
        analyse = partial(path_patch, sender=sender, receiver=receiver, **settings)
        effects, baselines = effects_of_pairs(clean, corrupted, target, analyse, progress)
        trace, description = corrupted[0], describe_metric(clean, target, at)
    else:
        check_traces(clean, corrupted)
        if clean.tokens_before or corrupted.tokens_before:  # no sender wrote the cached keys
            raise InvalidValueError(
                "paths are measured in traces of whole texts; got a step of "
                "generation with a cache. Use model.trace(ids) of all its tokens"
            )
        trace = corrupted
        measure, description, _ = parse_metric(clean, target, at)
        receivers = [path for pattern in patterns for path in expand(trace, pattern)]
        paths = expand(trace, sender)
        effects = np.empty((1, len(paths)))
        with progress_bar(progress, total=len(paths), unit="run") as bar:
            baselines = baselines_of(measure, clean, trace)
            for number, path in enumerate(paths):
                patched = patch_path(clean, trace, path, receivers, recompute_mlps)
                effects[0, number] = as_metric(measure(patched)) - baselines[1]
                bar.update()
    result = PathPatching(trace, sender, False, description, effects, baselines)
    result.title = Message(
        "Path patching from {sender} to {receiver}: {target}{note}",
        sender=sender,
        receiver=", ".join(patterns),
        target=description,
        note=trace._note,
    )
    return result
