"""Measure one tool in one process. `run.py` starts the processes and compares.

    python tests/benchmarks/tools.py JOB TOOL MODEL [NUMBER ...]

Prints one line of JSON. Each tool's package is imported by its own function, so that no tool
pays for another's imports.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import attnlab

Ids = NDArray[np.int64]
Answer = dict[str, float]


# The tools. `run` is timed: one forward pass; it returns everything that stays in memory.


class Tool(NamedTuple):
    run: Callable[[Ids], Any]
    next_logits: Callable[[Any], Any]  # the last position's, (vocab,), from the result of `run`


def attnlab_trace(directory: Path) -> Tool:
    """A new trace; next_tokens runs every block and makes the last position's logits."""
    model = load_attnlab(directory)

    def run(ids: Ids) -> attnlab.Trace:
        trace = model.trace(ids)
        trace.next_tokens(1)
        return trace

    return Tool(run, attnlab_logits)


def attnlab_weights(directory: Path) -> Tool:
    """The same, but every head's weights are computed before the logits."""
    model = load_attnlab(directory)

    def run(ids: Ids) -> attnlab.Trace:
        trace = model.trace(ids)
        for block in trace.blocks:
            block.attention.weights  # noqa: B018 (from now on the trace holds them)
        trace.next_tokens(1)
        return trace

    return Tool(run, attnlab_logits)


def load_attnlab(directory: Path) -> attnlab.GPT2:
    import attnlab

    return attnlab.GPT2.from_pretrained(directory)


def attnlab_logits(trace: attnlab.Trace) -> Any:
    every_token = trace.next_tokens(trace.config.vocab_size)
    return np.array([token.logit for token in sorted(every_token, key=lambda token: token.id)])


def plain_numpy(directory: Path) -> Tool:
    """The textbook's forward pass, which keeps nothing."""
    from plain import PlainGPT2

    return Tool(PlainGPT2(directory).next_logits, lambda logits: logits)


def transformers_eager(directory: Path) -> Tool:
    """transformers with eager attention, the only one that returns every head's weights."""
    import torch

    model = load_transformers(directory, "eager")

    def run(ids: Ids) -> Any:
        return model(
            torch.from_numpy(ids)[None], output_attentions=True, use_cache=False, logits_to_keep=1
        )

    return Tool(run, lambda output: output.logits[0, -1].numpy())


def transformers_sdpa(directory: Path) -> Tool:
    """transformers with PyTorch's fused attention: fast, but without weights."""
    import torch

    model = load_transformers(directory, "sdpa")

    def run(ids: Ids) -> Any:
        return model(torch.from_numpy(ids)[None], use_cache=False, logits_to_keep=1)

    return Tool(run, lambda output: output.logits[0, -1].numpy())


def transformer_lens(directory: Path) -> Tool:
    """TransformerLens with everything in its cache.

    `TransformerBridge` is what version 4 has in place of `HookedTransformer`. It takes a directory,
    changes no weights unless it is asked to, and hands `logits_to_keep` on to transformers.
    """
    import torch

    model = load_transformer_lens(directory)

    def run(ids: Ids) -> Any:
        return model.run_with_cache(torch.from_numpy(ids)[None], use_cache=False, logits_to_keep=1)

    return Tool(run, lambda result: result[0][0, -1].numpy())


def load_transformers(directory: Path, attention: str) -> Any:
    from transformers import GPT2LMHeadModel

    use_all_cores()
    return GPT2LMHeadModel.from_pretrained(directory, attn_implementation=attention).eval()


def load_transformer_lens(directory: Path) -> Any:
    from transformer_lens import TransformerBridge

    use_all_cores()
    return TransformerBridge.boot_transformers(str(directory), device="cpu")


def use_all_cores() -> None:
    import torch

    torch.set_num_threads(os.cpu_count() or 1)
    torch.set_grad_enabled(False)


TOOLS: dict[str, Callable[[Path], Tool]] = {
    "attnlab": attnlab_trace,
    "weights": attnlab_weights,
    "plain": plain_numpy,
    "eager": transformers_eager,
    "sdpa": transformers_sdpa,
    "lens": transformer_lens,
}


# The jobs.


def time_of_a_pass(tool: str, directory: Path, length: int, runs: int) -> Answer:
    """Seconds of a forward pass over `length` tokens, the median after two to warm up."""
    run = TOOLS[tool](directory).run
    ids = some_ids(directory, length)
    return {"seconds": timed(lambda: run(ids), runs)}


def memory_of_a_pass(tool: str, directory: Path, length: int) -> Answer:
    """Bytes that a pass adds to a process that has all weights in memory."""
    run = TOOLS[tool](directory).run
    run(some_ids(directory, 12))
    gc.collect()
    before = resident()
    forget_peak()
    result = run(some_ids(directory, length))
    peak, held = peak_resident(), resident()
    del result
    return {"peak": peak - before, "held": held - before, "dropped": resident() - before}


def agreement(tool: str, directory: Path, *lengths: int) -> Answer:
    """The largest difference between the tool's next-token logits and plain NumPy's."""
    from plain import PlainGPT2

    run, next_logits = TOOLS[tool](directory)
    plain = PlainGPT2(directory)
    differences = []
    for length in lengths:
        ids = some_ids(directory, length)
        difference = np.abs(next_logits(run(ids)) - plain.next_logits(ids)).max()
        differences.append(float(difference))
    return {"difference": max(differences)}


def opening(tool: str, directory: Path) -> Answer:
    """Seconds and bytes from nothing to all weights in memory; for "plain", only `load_file`."""
    import safetensors.numpy

    import attnlab

    before = resident()
    forget_peak()
    start = perf_counter()
    if tool == "attnlab":
        model = attnlab.GPT2.from_pretrained(directory)
        opened = perf_counter()
        size = read_all_weights(model)
    else:
        opened = start
        tensors = safetensors.numpy.load_file(directory / "model.safetensors")
        size = sum(tensor.nbytes for tensor in tensors.values())
    end = perf_counter()
    return {
        "seconds": end - start,
        "reading": end - opened,
        "peak": peak_resident() - before,
        "size": size,
    }


def read_all_weights(model: attnlab.GPT2) -> int:
    """Read every parameter; return their size in bytes."""
    return sum(array.nbytes for array in model.parameters.values())


def generation(tool: str, directory: Path, prompt: int, new: int, *positions: int) -> Answer:
    """Seconds of `new` greedy tokens after a prompt, and of one token around each position.

    One token's time is (time of 17 tokens - time of 1) / 16: the prompt cancels out.
    """
    generate = attnlab_generate(directory) if tool == "attnlab" else hf_generate(directory)

    def seconds(length: int, count: int, warm_up: int = 0) -> float:
        ids = some_ids(directory, length)
        return timed(lambda: generate(ids, count), runs=3, warm_up=warm_up)

    answer = {"seconds": seconds(prompt, new, warm_up=2)}
    for position in positions:
        start = position - 8
        answer[f"at {position}"] = (seconds(start, 17) - seconds(start, 1)) / 16
    return answer


def attnlab_generate(directory: Path) -> Callable[[Ids, int], Any]:
    model = load_attnlab(directory)
    return lambda ids, count: model.generate(ids, count, temperature=0)


def hf_generate(directory: Path) -> Callable[[Ids, int], Any]:
    """transformers with its fastest attention and its key-value cache."""
    import torch

    model = load_transformers(directory, "sdpa")

    def generate(ids: Ids, count: int) -> Any:
        batch = torch.from_numpy(ids)[None]
        return model.generate(
            batch,
            attention_mask=torch.ones_like(batch),
            do_sample=False,
            max_new_tokens=count,
            min_new_tokens=count,
            pad_token_id=model.config.eos_token_id,
        )

    return generate


def training(tool: str, directory: Path, batch_size: int, length: int, steps: int) -> Answer:
    """Seconds of one step: draw a batch, forward, backward, clip, AdamW. The median of `steps`."""
    train = attnlab_train if tool == "attnlab" else hf_train
    vocab_size = json.loads((directory / "config.json").read_text("utf-8"))["vocab_size"]
    corpus = np.random.default_rng(0).integers(0, vocab_size, 100_000)
    ends: list[float] = []
    train(directory, corpus, batch_size, length, steps + 3, lambda: ends.append(perf_counter()))
    return {"seconds": float(np.median(np.diff(ends)[2:]))}


def attnlab_train(
    directory: Path, corpus: Ids, batch_size: int, length: int, steps: int, end: Callable[[], None]
) -> None:
    import attnlab

    attnlab.train(
        attnlab.GPT2Config.from_file(directory / "config.json"),
        corpus,
        steps=steps,
        batch_size=batch_size,
        sequence_length=length,
        progress=False,
        watch=lambda _: end(),
    )


def hf_train(
    directory: Path, corpus: Ids, batch_size: int, length: int, steps: int, end: Callable[[], None]
) -> None:
    """transformers' model and PyTorch's AdamW, without dropout, with the fused attention."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(os.cpu_count() or 1)
    config = GPT2Config.from_pretrained(directory, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0)
    model = GPT2LMHeadModel._from_config(config, attn_implementation="sdpa").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        starts = rng.integers(0, len(corpus) - length, batch_size)
        ids = torch.from_numpy(corpus[starts[:, None] + np.arange(length + 1)])
        logits = model(ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        end()


def versions() -> dict[str, str]:
    """Which of the packages are installed."""
    packages = ("attnlab", "numpy", "safetensors", "torch", "transformers", "transformer-lens")
    versions = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


# Helpers.


def some_ids(directory: Path, length: int) -> Ids:
    """The same ids for every tool."""
    vocab_size = json.loads((directory / "config.json").read_text("utf-8"))["vocab_size"]
    return np.random.default_rng(length).integers(0, vocab_size, length)


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
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_resident() -> int:
    """Its peak memory in bytes since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def forget_peak() -> None:
    """Reset Linux's peak counter."""
    Path("/proc/self/clear_refs").write_text("5")


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "pass": time_of_a_pass,
    "memory": memory_of_a_pass,
    "agreement": agreement,
    "opening": opening,
    "generation": generation,
    "training": training,
}


def main() -> None:
    """Run the job given on the command line."""
    if sys.argv[1:] == ["versions"]:
        print(json.dumps(versions()))
        return
    job, tool, directory, *numbers = sys.argv[1:]
    answer = JOBS[job](tool, Path(directory), *map(int, numbers))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
