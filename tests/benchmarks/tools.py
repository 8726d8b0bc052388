"""Measure one tool in one process. `run.py` starts the processes and compares.

    python tests/benchmarks/tools.py JOB TOOL MODEL [NUMBER ...]

Prints one line of JSON. Each tool's package is imported by its own function, so that no tool
pays for another's imports.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Answer = dict[str, float]

PACKAGES = ("attnlab", "numpy", "safetensors", "torch", "transformers", "transformer-lens")


# The tools. `run` is timed: one forward pass; it returns everything that stays in memory.


class Tool(NamedTuple):
    run: Callable[[Ids], Any]
    next_logits: Callable[[Any], Any]  # the last position's, (vocab,), from the result of `run`


def load_attnlab(directory: Path) -> Any:
    import attnlab

    return attnlab.GPT2.from_pretrained(directory)


def attnlab_trace(directory: Path, with_weights: bool = False) -> Tool:
    """A new trace; next_tokens runs every block and makes the last position's logits.

    `with_weights`: every head's weights are computed before the logits, and the trace holds them.
    """
    model = load_attnlab(directory)

    def run(ids: Ids) -> Any:
        trace = model.trace(ids)
        for block in trace.blocks if with_weights else ():
            block.attention.weights  # noqa: B018
        trace.next_tokens(1)
        return trace

    def next_logits(trace: Any) -> Any:
        every_token = trace.next_tokens(trace.config.vocab_size)
        return np.array([token.logit for token in sorted(every_token, key=lambda token: token.id)])

    return Tool(run, next_logits)


def plain_numpy(directory: Path) -> Tool:
    """The textbook's forward pass, which keeps nothing."""
    from plain import PlainGPT2

    return Tool(PlainGPT2(directory).next_logits, lambda logits: logits)


def load_transformers(directory: Path, attention: str) -> Any:
    import torch
    from transformers import GPT2LMHeadModel

    torch.set_num_threads(os.cpu_count() or 1)
    torch.set_grad_enabled(False)
    return GPT2LMHeadModel.from_pretrained(directory, attn_implementation=attention).eval()


def transformers(directory: Path, attention: str) -> Tool:
    """transformers with eager attention, the only one that returns every head's weights; or sdpa.

    sdpa is PyTorch's fused attention: fast, but without weights.
    """
    import torch

    model = load_transformers(directory, attention)
    settings = {"output_attentions": attention == "eager", "use_cache": False, "logits_to_keep": 1}
    return Tool(
        lambda ids: model(torch.from_numpy(ids)[None], **settings),
        lambda output: output.logits[0, -1].numpy(),
    )


def transformer_lens(directory: Path) -> Tool:
    """TransformerLens with everything in its cache.

    `TransformerBridge` is what version 4 has in place of `HookedTransformer`. It takes a directory,
    changes no weights unless it is asked to, and hands `logits_to_keep` on to transformers.
    """
    import torch
    from transformer_lens import TransformerBridge

    torch.set_num_threads(os.cpu_count() or 1)
    torch.set_grad_enabled(False)
    model = TransformerBridge.boot_transformers(str(directory), device="cpu")
    settings = {"use_cache": False, "logits_to_keep": 1}
    return Tool(
        lambda ids: model.run_with_cache(torch.from_numpy(ids)[None], **settings),
        lambda result: result[0][0, -1].numpy(),
    )


TOOLS: dict[str, Callable[[Path], Tool]] = {
    "attnlab": attnlab_trace,
    "weights": lambda directory: attnlab_trace(directory, with_weights=True),
    "plain": plain_numpy,
    "eager": lambda directory: transformers(directory, "eager"),
    "sdpa": lambda directory: transformers(directory, "sdpa"),
    "lens": transformer_lens,
}


# The jobs.


def passes(tool: str, directory: Path, *lengths_and_runs: int) -> Answer:
    """Seconds of a forward pass over each number of tokens, the median of so many runs."""
    run = TOOLS[tool](directory).run
    answer = {}
    for length, runs in zip(lengths_and_runs[::2], lengths_and_runs[1::2], strict=True):
        ids = some_ids(directory, length)
        answer[str(length)] = timed(lambda ids=ids: run(ids), runs)
    return answer


def memory_of_a_pass(tool: str, directory: Path, length: int) -> Answer:
    """Bytes that a pass adds to a process that has all weights in memory."""
    run = TOOLS[tool](directory).run
    run(some_ids(directory, 12))
    gc.collect()
    before = resident()
    forget_peak()
    result = run(some_ids(directory, length))
    answer = {"peak": peak_resident() - before, "held": resident() - before}
    del result  # until here, it was held
    return answer


def agreement(tool: str, directory: Path, *lengths: int) -> Answer:
    """The largest difference between the tool's next-token logits and plain NumPy's."""
    from plain import PlainGPT2

    (run, next_logits), plain = TOOLS[tool](directory), PlainGPT2(directory)
    largest = 0.0
    for ids in (some_ids(directory, length) for length in lengths):
        largest = max(largest, float(np.abs(next_logits(run(ids)) - plain.next_logits(ids)).max()))
    return {"difference": largest}


def generation(tool: str, directory: Path, prompt: int, new: int) -> Answer:
    """Seconds of `new` greedy tokens after a prompt; transformers with its key-value cache."""
    ids = some_ids(directory, prompt)
    if tool == "attnlab":
        model = load_attnlab(directory)
        return {"seconds": timed(lambda: model.generate(ids, new, temperature=0), runs=3)}
    import torch

    model, batch = load_transformers(directory, "sdpa"), torch.from_numpy(ids)[None]
    settings = {"do_sample": False, "max_new_tokens": new, "min_new_tokens": new}
    settings |= {"pad_token_id": model.config.eos_token_id}
    mask = torch.ones_like(batch)
    generate = lambda: model.generate(batch, attention_mask=mask, **settings)  # noqa: E731
    return {"seconds": timed(generate, runs=3)}


def make(_: str, directory: Path, n_layer: int, n_embd: int, n_head: int) -> Answer:
    """A GPT-2 with random weights and all the files of a real one.

    Its predictions are noise, but it costs as much to read, load and run. The vocabulary is GPT-2's
    if ATTNLAB_GPT2_VOCAB names its directory; else the 256 bytes, 50,000 pairs of them, and
    <|endoftext|>.
    """
    import attnlab
    from attnlab.text.tokens import END_OF_TEXT, byte_symbols
    from attnlab.training import initial_parameters

    if source := os.environ.get("ATTNLAB_GPT2_VOCAB"):
        tokenizer = attnlab.Tokenizer.from_directory(source)
    else:
        symbols = byte_symbols()
        pairs = list(itertools.islice(itertools.product(symbols, symbols), 50_000))
        tokens = [*symbols, *map("".join, pairs), END_OF_TEXT]
        tokenizer = attnlab.Tokenizer.from_merges({t: id for id, t in enumerate(tokens)}, pairs)
    config = attnlab.GPT2Config(
        vocab_size=50257, n_positions=1024, n_embd=n_embd, n_layer=n_layer, n_head=n_head
    )
    attnlab.GPT2(initial_parameters(config, np.random.default_rng(1024)), tokenizer).save(directory)
    return {}


def versions(*_: object) -> dict[str, str]:
    """Which of the packages are installed."""
    found = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


# Helpers.


def vocab_size(directory: Path) -> int:
    return int(json.loads((directory / "config.json").read_text("utf-8"))["vocab_size"])


def some_ids(directory: Path, length: int) -> Ids:
    """The same ids for every tool."""
    return np.random.default_rng(length).integers(0, vocab_size(directory), length)


def timed(run: Callable[[], Any], runs: int, warm_up: int = 2) -> float:
    """The median time of `runs` runs, after warm-up runs; garbage is collected in between."""
    seconds = []
    for _ in range(warm_up + runs):
        start = perf_counter()
        result = run()
        seconds.append(perf_counter() - start)
        del result
        gc.collect()
    return median(seconds[warm_up:])


def resident() -> int:
    """This process's current memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_resident() -> int:
    """Its peak memory in bytes since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def forget_peak() -> None:
    """Reset Linux's peak counter."""
    Path("/proc/self/clear_refs").write_text("5")


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "passes": passes,
    "memory": memory_of_a_pass,
    "agreement": agreement,
    "generation": generation,
    "make": make,
    "versions": versions,
}


if __name__ == "__main__":
    job, tool, directory, *numbers = sys.argv[1:]
    print(json.dumps(JOBS[job](tool, Path(directory), *map(int, numbers))))
