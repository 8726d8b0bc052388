"""Time and memory of attnlab compared with transformers and TransformerLens.

    python tests/benchmarks/run.py            # everything, with a random GPT-2 small: half an hour
    python tests/benchmarks/run.py --quick    # attnlab on a very small model: seconds

Each measurement is a process of its own, this file again with `--job`, so that no tool pays for
another's imports. The tools take turns, A B C, C B A, ..., so that a slow minute of the machine
hits all of them. Prints medians in Markdown. Exits with 1 if a tool's logits are not those of
`equations.gpt2`. Linux only.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

# The largest difference between two tools' logits that float32 rounding explains.
TOLERANCE = 1e-4

# Tokens of a pass, and how many passes are timed after two warm-up passes.
PASSES = {12: 20, 128: 10, 512: 5, 1024: 3}
PROMPT, NEW = 32, 64

Answer = dict[str, float]

# ---- the tools: what is timed, a function of ids; and the last position's logits from its result


def attnlab_trace(directory: Path, with_weights: bool = False) -> tuple[Any, Any]:
    """A new trace; next_tokens runs every block and makes the last position's logits.

    `with_weights`: every head's weights are computed before the logits, and the trace holds them.
    """
    from attnlab import GPT2

    model = GPT2.from_pretrained(directory)

    def run(ids: Any) -> Any:
        trace = model.trace(ids)
        for block in trace.blocks if with_weights else ():
            block.attention.weights  # noqa: B018
        trace.next_tokens(1)
        return trace

    return run, lambda trace: trace.next_logits


def load_transformers(directory: Path, attention: str) -> Any:
    import torch
    from transformers import GPT2LMHeadModel

    torch.set_num_threads(os.cpu_count() or 1)
    torch.set_grad_enabled(False)
    return GPT2LMHeadModel.from_pretrained(directory, attn_implementation=attention).eval()


def transformers(directory: Path, attention: str) -> tuple[Any, Any]:
    """With eager attention, which returns each head's weights; or sdpa, PyTorch's fused one."""
    import torch

    model = load_transformers(directory, attention)
    settings = {"output_attentions": attention == "eager", "use_cache": False, "logits_to_keep": 1}
    return (
        lambda ids: model(torch.from_numpy(ids)[None], **settings),
        lambda output: output.logits[0, -1].numpy(),
    )


def transformer_lens(directory: Path) -> tuple[Any, Any]:
    """TransformerLens with everything in its cache: version 4's TransformerBridge."""
    import torch
    from transformer_lens import TransformerBridge

    torch.set_num_threads(os.cpu_count() or 1)
    torch.set_grad_enabled(False)
    model = TransformerBridge.boot_transformers(str(directory), device="cpu")
    settings = {"use_cache": False, "logits_to_keep": 1}
    return (
        lambda ids: model.run_with_cache(torch.from_numpy(ids)[None], **settings),
        lambda result: result[0][0, -1].numpy(),
    )


# Each tool's name, how it is opened, and the module that it needs.
TOOLS: dict[str, tuple[Callable[[Path], tuple[Any, Any]], str]] = {
    "attnlab": (attnlab_trace, "attnlab"),
    "attnlab + 144 weights": (lambda directory: attnlab_trace(directory, True), "attnlab"),
    "transformers eager": (lambda directory: transformers(directory, "eager"), "transformers"),
    "transformers sdpa": (lambda directory: transformers(directory, "sdpa"), "transformers"),
    "TransformerLens": (transformer_lens, "transformer_lens"),
}

# ---- the jobs, each in a process of its own ------------------------------------------------------


def first_look(tool: str, directory: Path) -> Answer:
    """Open the checkpoint and print the weights of layer 0, head 0, for 12 tokens."""
    ids = some_ids(directory, 12)
    if tool == "attnlab":
        from attnlab import GPT2

        print(GPT2.from_pretrained(directory).trace(ids).head(0, 0).weights)
    else:
        import torch

        model = load_transformers(directory, "eager").transformer
        print(model(torch.from_numpy(ids)[None], output_attentions=True).attentions[0][0, 0])
    return {}


def passes(tool: str, directory: Path) -> Answer:
    """Milliseconds of a forward pass over each number of tokens."""
    run, _ = TOOLS[tool][0](directory)
    texts = {T: some_ids(directory, T) for T in lengths(directory)}
    return {f"{T} tokens": timed(lambda T=T: run(texts[T]), PASSES[T]) for T in texts}


def generation(tool: str, directory: Path) -> Answer:
    """Milliseconds of a greedy token after a prompt; transformers with its key-value cache."""
    ids = some_ids(directory, PROMPT)
    if tool == "attnlab":
        from attnlab import GPT2

        model = GPT2.from_pretrained(directory)
        seconds = timed(lambda: model.generate(ids, NEW, temperature=0), runs=3)
    else:
        import torch

        model, batch = load_transformers(directory, "sdpa"), torch.from_numpy(ids)[None]
        settings = {"do_sample": False, "max_new_tokens": NEW, "min_new_tokens": NEW}
        settings |= {"pad_token_id": 0, "attention_mask": torch.ones_like(batch)}
        seconds = timed(lambda: model.generate(batch, **settings), runs=3)
    return {"one more token": seconds / NEW}


def agreement(tool: str, directory: Path) -> Answer:
    """The largest difference from the logits of `equations.gpt2`."""
    import numpy as np

    from attnlab import GPT2, equations

    (run, next_logits), model = TOOLS[tool][0](directory), GPT2.from_pretrained(directory)
    sizes, differences = (model.config.n_head, model.config.n_layer), []
    for T in (12, max(lengths(directory))):
        ids = some_ids(directory, T)
        expected = equations.gpt2(ids, model.parameters, *sizes)[-1]
        differences.append(np.abs(next_logits(run(ids)) - expected).max())
    return {"difference": float(np.max(differences))}  # NaN if one of them is


def make(_: str, directory: Path, n_layer: str, n_embd: str, n_positions: str) -> Answer:
    """A GPT-2 with random weights: it costs as much to read, load and run as a trained one."""
    import numpy as np

    from attnlab import GPT2, GPT2Config, Tokenizer
    from attnlab.text.tokens import byte_symbols
    from attnlab.training import initial_parameters

    symbols = byte_symbols()  # and 50,001 pairs of them, to make as many tokens as GPT-2 has
    pairs = list(itertools.islice(itertools.product(symbols, symbols), 50_001))
    tokens = [*symbols, *map("".join, pairs)]
    tokenizer = Tokenizer.from_merges({token: id for id, token in enumerate(tokens)}, pairs)
    sizes = {"n_positions": int(n_positions), "n_embd": int(n_embd), "n_layer": int(n_layer)}
    config = GPT2Config(vocab_size=len(tokens), **sizes, n_head=max(sizes["n_embd"] // 64, 1))
    GPT2(initial_parameters(config, np.random.default_rng(1024)), tokenizer).save(directory)
    return {}


JOBS = {job.__name__: job for job in (first_look, passes, generation, agreement, make)}

# Not every tool does these jobs.
ONLY = {
    "first_look": ("attnlab", "transformers eager"),
    "generation": ("attnlab", "transformers sdpa"),
}


def lengths(directory: Path) -> list[int]:
    """The numbers of tokens that the model takes."""
    return [T for T in PASSES if config_of(directory)["n_positions"] >= T]


def config_of(directory: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((directory / "config.json").read_text("utf-8"))
    return config


def some_ids(directory: Path, length: int) -> Any:
    """The same ids for every tool."""
    import numpy as np

    return np.random.default_rng(length).integers(0, config_of(directory)["vocab_size"], length)


def timed(run: Callable[[], Any], runs: int, warm_up: int = 2) -> float:
    """The median milliseconds of `runs` runs; garbage is collected in between."""
    seconds = []
    for _ in range(warm_up + runs):
        start = perf_counter()
        result = run()
        seconds.append(perf_counter() - start)
        del result
        gc.collect()
    return 1000 * median(seconds[warm_up:])


# ---- the parent, which imports little: a child's peak memory is never less than its own ----------


def measure(job: str, tool: str, model: Path, *numbers: int) -> Answer:
    """A job's answer, with its process's wall time and peak memory."""
    command = [sys.executable, __file__, "--job", job, tool, str(model), *map(str, numbers)]
    with tempfile.TemporaryFile("w+") as output:
        start = perf_counter()
        process = subprocess.Popen(command, stdout=output, env=os.environ | {"HF_HUB_OFFLINE": "1"})
        _, status, usage = os.wait4(process.pid, 0)
        seconds = perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        output.seek(0)
        answer: Answer = json.loads(output.read().splitlines()[-1])
    return answer | {"whole process": 1000 * seconds, "peak, MB": 1024 * usage.ru_maxrss / 1e6}


def report(job: str, model: Path, rounds: int, tools: list[str]) -> dict[str, Answer]:
    """Measure in turns; print and return the medians."""
    tools = [tool for tool in tools if tool in ONLY.get(job, tools)]
    taken: dict[str, list[Answer]] = {tool: [] for tool in tools}
    for turn in range(rounds):
        print(f"{job}, round {turn + 1}", file=sys.stderr)
        # A process may gain from memory that the one before left: every other round in reverse.
        for tool in tools[:: -1 if turn % 2 else 1]:
            taken[tool].append(measure(job, tool, model))
    medians = {
        tool: {name: median(answer[name] for answer in answers) for name in answers[0]}
        for tool, answers in taken.items()
    }
    names = [*medians[tools[0]]]
    print(f"### {job}\n\n{JOBS[job].__doc__}\n\n| | {' | '.join(names)} |")
    print("| :-- |" + " --: |" * len(names))
    for tool, numbers in medians.items():
        print(f"| {tool} | {' | '.join(f'{numbers[name]:,.3g}' for name in names)} |")
    print(flush=True)
    return medians


def main() -> None:
    """Make the checkpoint if none is given, measure, print."""
    parser = argparse.ArgumentParser(description="Measure attnlab and other tools.")
    parser.add_argument("--model", type=Path, help="a GPT-2 on disk; else one is made up")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each kind (5)")
    parser.add_argument("--quick", action="store_true", help="a very small model, attnlab alone")
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        job, tool, directory, *numbers = arguments.job
        print(json.dumps(JOBS[job](tool, Path(directory), *numbers)))
        return
    modules = {module for _, module in TOOLS.values() if find_spec(module)}
    known = {"attnlab"} if arguments.quick else modules
    tools = [tool for tool, (_, module) in TOOLS.items() if module in known]
    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model or Path(scratch, "model")
        if not arguments.model:
            measure("make", "", model, *((2, 64, 128) if arguments.quick else (12, 768, 1024)))
        print(f"- {date.today()}, {platform.platform()}, {os.cpu_count()} cores")
        print(f"- load {os.getloadavg()[0]:.2f}: only an idle machine gives times worth quoting")
        for package in ("attnlab", "numpy", "torch", "transformers", "transformer-lens"):
            try:
                print(f"- {package} {version(package)}")
            except PackageNotFoundError:
                continue
        found = report("agreement", model, 1, tools)
        for job in ("first_look", "passes", "generation"):
            report(job, model, 1 if arguments.quick else arguments.rounds, tools)
    # not (... <= ...): NaN is too large, too
    if wrong := [tool for tool in tools if not found[tool]["difference"] <= TOLERANCE]:
        sys.exit(f"logits differ by more than {TOLERANCE:g}: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
