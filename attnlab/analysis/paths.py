"""Path patching: the effect of one part on another along the direct path between them.

Heads, MLPs and the embedding write to the residual stream: they are senders. Heads (through Q, K
and V), MLPs and the logits read from it: they are receivers. Since the stream is a sum, a direct
path carries exactly what its sender writes.
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
from attnlab.support.console import progress_bar
from attnlab.support.messages import Message

HEAD_OUTPUTS = "blocks.*.attention.heads.*.output"

SENDERS = ("embedding", HEAD_OUTPUTS, "blocks.*.mlp.output")
RECEIVERS = (*(f"blocks.*.attention.heads.*.{name}" for name in "QKV"), "blocks.*.mlp.X", "final")


def stage_of(path: str, n_layer: int) -> int:
    """The number of attention layers and MLPs before a receiver, or up to and with a sender."""
    if path in ("embedding", "final"):
        return 0 if path == "embedding" else 2 * n_layer
    step = parse(path)
    assert step.layer is not None
    return 2 * step.layer + step.part.endswith(".mlp") + (step.step == "output")


def stream_of(receiver: str, n_layer: int) -> str:
    """The path of the stream that a receiver reads."""
    if receiver == "final":
        return f"blocks.{n_layer - 1}.output"
    step = parse(receiver)
    return f"{step.layer_prefix}residual" if step.layer_prefix else f"blocks.{step.layer}.mid"


def check_endpoint(path: object, patterns: Sequence[str], name: str) -> None:
    """Raise unless a path matches one of `SENDERS` or `RECEIVERS`."""
    if not isinstance(path, str) or re.sub(r"\.\d+", ".*", path) not in patterns:
        raise InvalidValueError(f"{name} must be one of {', '.join(patterns)}; got {quoted(path)}")


def patch_path(clean: Trace, corrupted: Trace, sender: str, receivers: Sequence[str]) -> Trace:
    """The corrupted trace, with receivers that read a sender's clean output."""
    change = clean[sender] - corrupted[sender]  # (T, D)
    n_layer, edits = corrupted.config.n_layer, {}
    for receiver in receivers:
        if stage_of(sender, n_layer) <= stage_of(receiver, n_layer):  # else there is no path
            stream = stream_of(receiver, n_layer)
            read = corrupted.edited({stream: corrupted[stream] + change})
            edits[receiver] = read[receiver]
    return corrupted.edited(edits)


class PathPatching(Patching):
    """How much of the target each direct path restores, as `attnlab.path_patch` returns it.

    `restored` has an axis for each "*" in the sender.
    """

    note: ClassVar[str] = (
        "Only the direct path counts, through the residual stream: all heads and MLPs between "
        "sender and receiver stay as in the corrupted run. A path that restores little may still "
        "matter together with others."
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
    progress: bool = True,
) -> PathPatching:
    """Patch only the direct path from a sender to a receiver.

    input' = input + (sender in clean - sender in corrupted)

    The receiver computes its step from LayerNorm(input') in the corrupted run; all other heads and
    MLPs before it keep their values from that run. Steps after the receiver are recomputed, and
    restored = (target(patched) - target(corrupted)) / (target(clean) - target(corrupted)).

    So MLPs are frozen, and clean is patched into corrupted. Wang et al. patch corrupted into clean,
    and recompute MLPs between sender and receiver as part of the path: numbers differ from theirs.

    Parameters
    ----------
    clean, corrupted, target, at, progress : as in `patch`
    sender : path of a step that is added to the residual stream: "embedding",
        "blocks.0.mlp.output", "blocks.0.attention.heads.2.output". "*" is every layer or head;
        each is patched separately.
    receiver : path of a step that reads the stream: "blocks.1.attention.heads.2.Q", K or V,
        "blocks.1.mlp.X", or "final", from which the logits are computed. All receivers of a list
        or a path with "*" are patched together.

    Returns
    -------
    PathPatching
        `.restored`, 0 for a sender that doesn't come before any receiver

    Examples
    --------
    >>> attnlab.path_patch(clean, corrupted, receiver="blocks.1.attention.heads.2.V", target=" dog")
    """
    names: list[Any] = list(receiver) if isinstance(receiver, list | tuple) else [receiver]
    if not names:
        raise InvalidValueError("receiver must have at least one path; got an empty list")
    for name in names:
        check_endpoint(name, RECEIVERS, "receiver")
    check_endpoint(sender, SENDERS, "sender")
    baselines: Any
    if isinstance(clean, Traces) or isinstance(corrupted, Traces):
        clean, corrupted = check_pairs(clean, corrupted)
        analyse = partial(path_patch, sender=sender, receiver=receiver, at=at, progress=False)
        effects, baselines = effects_of_pairs(clean, corrupted, target, analyse, progress)
        trace, description = corrupted[0], describe_metric(clean, target, at)
    else:
        check_traces(clean, corrupted)
        if clean.tokens_before or corrupted.tokens_before:  # no sender wrote the cached keys
            raise InvalidValueError(
                "paths are measured in traces of whole texts; got a step of "
                "generation with a cache. Use model.trace(ids) of all its tokens"
            )
        trace, (measure, description, _) = corrupted, parse_metric(clean, target, at)
        receivers = [path for name in names for path in expand(trace, name)]
        paths = expand(trace, sender)
        effects = np.empty((1, len(paths)))
        with progress_bar(progress, total=len(paths), unit="run") as bar:
            baselines = baselines_of(measure, clean, trace)
            for number, path in enumerate(paths):
                patched = patch_path(clean, trace, path, receivers)
                effects[0, number] = as_metric(measure(patched)) - baselines[1]
                bar.update()
    result = PathPatching(trace, sender, False, description, effects, baselines)
    result.title = Message(
        "Path patching from {sender} to {receiver}: {target}{note}",
        sender=sender,
        receiver=", ".join(names),
        target=description,
        note=trace._note,
    )
    return result
