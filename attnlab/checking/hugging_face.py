"""A checkpoint in transformers, hooked step by step, and compared with the same one here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlab.checking.comparison import Stage, Stages, path_in_block, submissions
from attnlab.equations import AnyArray, split_heads
from attnlab.errors import CheckpointError, MissingExtraError
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import Trace
from attnlab.support.checks import reraised_as
from attnlab.support.messages import Message
from attnlab.support.tables import Table
from attnlab.text.tokenizer import NoTokenizer

# Words that repeat, quotes and line breaks, other scripts.
TEXTS = (
    "The dog chased the ball, but it",
    "“It’s 3 a.m.”, she said:\n\n  nothing. Nothing at all!",
    "Ünder 天 the the the",
)


@dataclass(frozen=True, eq=False, repr=False)
class Verification(Stages):
    """How a model's steps compare with transformers', as `verify` returns it; `print` shows it.

    Attributes
    ----------
    stages : for each step, the `Stage` of the text in which it differs most
    retokenized : the number of texts that have other tokens in transformers
    title, notes, first, agrees : see `Stages`; other tokens don't agree either
    """

    retokenized: int = 0

    @property
    def agrees(self) -> bool:
        return not self.retokenized and self.first is None

    def _tables(self) -> Iterator[str | Table]:
        """Of all blocks, the one in which a step differs most."""
        stages = worst(self.stages, key=lambda stage: path_in_block(stage.path))
        yield from Stages(self.title, stages)._tables()


def verify(model: GPT2, name: str, texts: Sequence[str] = TEXTS) -> Verification:
    """Compare a model's steps with those of a checkpoint in transformers.

    Parameters
    ----------
    model : usually of the same checkpoint
    name : the checkpoint's directory, or its name on the hub
    texts : cut at the number of positions; random ids instead if the model has no tokenizer

    Raises
    ------
    MissingExtraError
        If transformers or PyTorch isn't installed.
    CheckpointError
        If transformers can't open the checkpoint, or finds no numbers for some parameters.
    """
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError:
        raise MissingExtraError(
            "comparing with transformers needs transformers and PyTorch: "
            "pip install transformers torch"
        ) from None
    with reraised_as(CheckpointError, f"transformers can't open {name}"):
        theirs, info = transformers.GPT2LMHeadModel.from_pretrained(
            name, attn_implementation="eager", output_loading_info=True
        )
    if missing := sorted(info["missing_keys"]):  # to which transformers gives random numbers
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(
            f"transformers doesn't find {missing[0]}{others} in {name}. Save the model with "
            "attnlab's model.save(directory), and verify that"
        )
    theirs = theirs.float().eval()
    retokenized, template = 0, "{model}\nand transformers {version}, {count} texts"
    if isinstance(model.tokenizer, NoTokenizer):
        template = "{model}\nand transformers {version}, {count} texts of random ids"
        random = np.random.default_rng(0)
        encoded = [random.integers(len(model.tokenizer), size=24).tolist() for _ in texts]
    else:
        with reraised_as(CheckpointError, f"transformers can't open the tokenizer of {name}"):
            theirs_ids = transformers.AutoTokenizer.from_pretrained(name)(list(texts))["input_ids"]
        encoded = [model.tokenizer.encode(text, special=True) for text in texts]
        retokenized = sum(ours != ids for ours, ids in zip(encoded, theirs_ids, strict=True))
    traces = [model.trace(ids[: model.config.n_positions]) for ids in encoded]
    compared = [
        step.stage
        for trace in traces
        for step in submissions(trace, trace._run.fork(), steps_of(theirs, trace))
    ]
    line, version = repr(model).partition("\n")[0], transformers.__version__
    title = Message(template, model=line, version=version, count=len(texts))
    note = Message("{count} of these texts have other tokens in transformers.", count=retokenized)
    stages = worst(compared, key=lambda stage: stage.path)
    return Verification(title, stages, (note,) if retokenized else (), retokenized)


def worst(stages: Iterable[Stage], key: Callable[[Stage], str]) -> tuple[Stage, ...]:
    """Of the stages with the same key, the one that differs most; in the order of the keys."""
    found: dict[str, Stage] = {}
    for stage in stages:
        other = found.setdefault(key(stage), stage)
        if stage.rounding > other.rounding:
            found[key(stage)] = stage
    return tuple(found.values())


def steps_of(theirs: Any, trace: Trace) -> dict[str, AnyArray]:
    """The steps of a text in transformers' GPT-2, by our paths."""
    import torch

    steps: dict[str, AnyArray] = {}
    core, hooks = theirs.transformer, list[Any]()

    def keep(path: str, module: Any, part: Callable[[Any, Any], Any] = lambda _, x: x) -> None:
        """Keep a part of a module's arguments and results; of several, the first."""

        def hook(_: Any, arguments: tuple[Any, ...], results: Any) -> None:
            kept = part(arguments, results)
            steps[path] = (kept[0] if isinstance(kept, tuple) else kept)[0].numpy()

        hooks.append(module.register_forward_hook(hook))

    keep("token_embedding", core.wte)
    keep("position_embedding", core.wpe)
    keep("embedding", core.drop)
    for layer, block in enumerate(core.h):
        attention, mlp = f"blocks.{layer}.attention", f"blocks.{layer}.mlp"
        keep(f"{attention}.X", block.ln_1)
        keep(f"{attention}.QKV", block.attn.c_attn)
        keep(f"{attention}.weights", block.attn, lambda _, results: results[1])
        keep(f"{attention}.concat", block.attn.c_proj, lambda arguments, _: arguments)
        keep(f"{attention}.output", block.attn.c_proj)
        keep(f"blocks.{layer}.mid", block.ln_2, lambda arguments, _: arguments)
        keep(f"{mlp}.X", block.ln_2)
        keep(f"{mlp}.hidden", block.mlp.c_fc)
        keep(f"{mlp}.activated", block.mlp.act)
        keep(f"{mlp}.output", block.mlp.c_proj)
        keep(f"blocks.{layer}.output", block)
    keep("final", core.ln_f)
    try:
        with torch.no_grad():
            steps["logits"] = theirs(torch.tensor(trace.tokens.ids[None])).logits[0].numpy()
    finally:
        for hook in hooks:
            hook.remove()
    for layer in range(len(core.h)):
        concatenated = steps.pop(f"blocks.{layer}.attention.QKV")
        for name, columns in zip("QKV", np.split(concatenated, 3, axis=-1), strict=True):
            steps[f"blocks.{layer}.attention.{name}"] = split_heads(columns, trace.config.n_head)
    return steps
