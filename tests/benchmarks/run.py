"""Time and memory of attnlab compared with plain NumPy, transformers and TransformerLens.

    python tests/benchmarks/run.py            # everything, with a random GPT-2 small: half an hour
    python tests/benchmarks/run.py --quick    # only checks that everything runs and agrees: seconds

Each measurement is a process of its own, this file again with `--job`, so that no tool pays for
another's imports. The tools take turns, A B C, C B A, ..., so that a slow minute of the machine
hits all of them, and a ratio compares two processes of the same round. Prints Markdown. Exits with
1 if something failed, or if a tool's logits are not plain NumPy's. Linux only.

The parent imports only the standard library: a child's peak memory, as Linux counts it, is never
less than what its parent had when it was started.
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
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

PACKAGES = ("attnlab", "numpy", "safetensors", "torch", "transformers", "transformer-lens")

# The largest difference between two tools' logits that float32 rounding explains.
TOLERANCE = 1e-4

# “It’s very hot in summer. Swimming is”. Ids, so that a made-up vocabulary does not change their
# number and transformers need not load a tokenizer.
PROMPT = [1026, 447, 247, 82, 845, 3024, 287, 3931, 13, 2451, 27428, 318]

Answer = dict[str, Any]

# ---- the tools: what is timed, a function of ids; and the last position's logits from its result


def load_attnlab(directory: Path) -> Any:
    import attnlab

    return attnlab.GPT2.from_pretrained(directory)


def attnlab_trace(directory: Path, with_weights: bool = False) -> tuple[Any, Any]:
    """A new trace; next_tokens runs every block and makes the last position's logits.

    `with_weights`: every head's weights are computed before the logits, and the trace holds them.
    """
    model = load_attnlab(directory)

    def run(ids: Any) -> Any:
        trace = model.trace(ids)
        for block in trace.blocks if with_weights else ():
            block.attention.weights  # noqa: B018
        trace.next_tokens(1)
        return trace

    return run, lambda trace: trace.next_logits


def plain_numpy(directory: Path) -> tuple[Any, Any]:
    from plain import PlainGPT2

    return PlainGPT2(directory).next_logits, lambda logits: logits


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


# Each tool's name, how it is opened, and the package that it needs.
TOOLS: dict[str, tuple[Callable[[Path], tuple[Any, Any]], str]] = {
    "attnlab": (attnlab_trace, "attnlab"),
    "attnlab + 144 weights": (lambda directory: attnlab_trace(directory, True), "attnlab"),
    "plain NumPy": (plain_numpy, "numpy"),
    "transformers eager": (lambda directory: transformers(directory, "eager"), "transformers"),
    "transformers sdpa": (lambda directory: transformers(directory, "sdpa"), "transformers"),
    "TransformerLens": (transformer_lens, "transformer-lens"),
}

# ---- the jobs, each in a process of its own ------------------------------------------------------


def first_look(tool: str, directory: Path) -> Answer:
    """Open the checkpoint and print the weights of layer 0, head 0."""
    if tool == "attnlab":
        print(load_attnlab(directory).trace(PROMPT).head(0, 0).weights)
    else:
        import torch
        from transformers import GPT2Model

        model = GPT2Model.from_pretrained(directory, attn_implementation="eager")
        with torch.no_grad():
            print(model(torch.tensor([PROMPT]), output_attentions=True).attentions[0][0, 0])
    return {}


def passes(tool: str, directory: Path, *lengths_and_runs: int) -> Answer:
    """Seconds of a forward pass over each number of tokens, the median of so many runs."""
    run, _ = TOOLS[tool][0](directory)
    answer = {}
    for length, runs in zip(lengths_and_runs[::2], lengths_and_runs[1::2], strict=True):
        ids = some_ids(directory, length)
        answer[str(length)] = timed(lambda ids=ids: run(ids), runs)
    return answer


def memory(tool: str, directory: Path, length: int) -> Answer:
    """Bytes that a pass adds to a process that has all weights in memory: at its peak, and kept."""
    run, _ = TOOLS[tool][0](directory)
    run(some_ids(directory, 12))
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    result = run(some_ids(directory, length))
    answer = {"peak": resident("VmHWM") - before, "kept": resident("VmRSS") - before}
    del result  # until here, it was held
    return answer


def agreement(tool: str, directory: Path, *lengths: int) -> Answer:
    """The largest difference between the tool's next-token logits and plain NumPy's."""
    import numpy as np

    (run, next_logits), (plain, _) = TOOLS[tool][0](directory), plain_numpy(directory)
    texts = [some_ids(directory, length) for length in lengths]
    differences = [np.abs(next_logits(run(ids)) - plain(ids)).max() for ids in texts]
    return {"difference": float(np.max(differences))}  # NaN if one of them is


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
    import numpy as np

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


JOBS = {job.__name__: job for job in (first_look, passes, memory, agreement, generation, make)}


def some_ids(directory: Path, length: int) -> Any:
    """The same ids for every tool."""
    import numpy as np

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


def resident(name: str) -> int:
    """This process's memory in bytes, as Linux counts it: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


# ---- the parent ----------------------------------------------------------------------------------


def measure(job: str, tool: str, model: Path, *numbers: int) -> Answer:
    """A job's answer, with its process's wall time and peak memory."""
    command = [sys.executable, __file__, "--job", job, tool, str(model), *map(str, numbers)]
    # With PYTHONDONTWRITEBYTECODE, each process would compile all of attnlab again.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+") as output:
        start = perf_counter()
        process = subprocess.Popen(
            command, stdout=output, env=environment | {"HF_HUB_OFFLINE": "1"}
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        output.seek(0)
        answer: Answer = json.loads(output.read().splitlines()[-1])
    return answer | {"process": seconds, "process peak": 1024 * usage.ru_maxrss}


def sections(quick: bool) -> dict[str, tuple[str, str, tuple[int, ...], dict[str, Any]]]:
    """What is measured: a text, the job with its numbers, and each column's key and unit."""
    runs = {12: 2, 128: 2} if quick else {12: 20, 128: 10, 512: 5, 1024: 3}
    length = 128 if quick else 1024
    prompt, new = (8, 8) if quick else (32, 64)
    return {
        "first-look": (
            "A new process that opens the checkpoint and prints the weights of layer 0, head 0 for "
            "12 tokens, from start to exit.",
            "first_look",
            (),
            {"seconds": ("process", 1), "peak memory, MB": ("process peak", 1e-6)},
        ),
        "trace": (
            "One forward pass with the model already loaded, in milliseconds. All compute only the "
            "last position's logits. attnlab makes a new trace each time; + 144 weights accesses "
            "every head's weights before the logits, and keeps them. transformers eager returns "
            "them; plain NumPy and transformers sdpa keep nothing; TransformerLens's "
            "run_with_cache keeps everything.",
            "passes",
            tuple(n for pair in runs.items() for n in pair),
            {f"{T} tokens": (str(T), 1000) for T in runs},
        ),
        "memory": (
            f"What a pass over {length} tokens adds to a process that has all weights in memory, "
            "MB: at its peak, and while the result is kept.",
            "memory",
            (length,),
            {"peak": ("peak", 1e-6), "kept": ("kept", 1e-6)},
        ),
        "generation": (
            f"Greedy, {new} tokens after a prompt of {prompt}. transformers with its cache.",
            "generation",
            (prompt, new),
            {"ms per token": ("seconds", 1000 / new)},
        ),
    }


# Not every tool does these jobs.
ONLY = {
    "first-look": ("attnlab", "transformers eager"),
    "generation": ("attnlab", "transformers sdpa"),
}


def report(name: str, model: Path, rounds: int, quick: bool, tools: list[str]) -> None:
    """Measure; print the medians, and each tool's ratios to attnlab's."""
    text, job, numbers, columns = sections(quick)[name]
    tools = [tool for tool in tools if tool in ONLY.get(name, tools)]
    taken = []
    for turn in range(rounds):
        print(f"{name}, round {turn + 1}", file=sys.stderr)
        # A process may gain from memory that the one before left: every other round in reverse.
        order = tools[:: -1 if turn % 2 else 1]
        answers = {tool: measure(job, tool, model, *numbers) for tool in order}
        taken.append({t: [answers[t][key] * unit for key, unit in columns.values()] for t in tools})
    print(f"### {name}\n\n{text}\n")
    rows = {}
    for tool in tools:
        columnwise = zip(*(each[tool] for each in taken), strict=True)
        rows[tool] = [number(median(values)) for values in columnwise]
    table(["", *columns], rows)
    ratios = {}
    for tool in tools[1:]:
        each = [[a / b for a, b in zip(x[tool], x[tools[0]], strict=True)] for x in taken]
        ratios[tool] = [
            f"{number(median(r))} ({number(min(r))} … {number(max(r))})"
            for r in zip(*each, strict=True)
        ]
    if ratios:
        table([f"divided by {tools[0]}'s", *columns], ratios)


def table(head: list[str], rows: dict[str, Iterable[str]]) -> None:
    """A Markdown table, the first column left and the others right."""
    named = [[tool, *row] for tool, row in rows.items()]
    for line in (head, [":--", *["--:"] * (len(head) - 1)], *named):
        print("| " + " | ".join(line) + " |")
    print(flush=True)


def number(value: float) -> str:
    """Three digits, with thousands separators."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def header(model: Path, rounds: int, versions: dict[str, str]) -> None:
    """Print the machine, the versions and the checkpoint, on which the numbers depend."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(": ")[1] for line in info if line.startswith("model name")), "unknown")
    weights = (model / "model.safetensors").stat().st_size / 1e6
    print(f"- {date.today()}, medians of {rounds} rounds")
    print(f"- {cpu}, {os.cpu_count()} cores; {platform.platform()}, load {os.getloadavg()[0]:.2f}")
    print(f"- Python {platform.python_version()}, {', '.join(map(' '.join, versions.items()))}")
    print(f"- checkpoint: {model.name}, {weights:,.0f} MB, {os.cpu_count()} threads\n", flush=True)


def main() -> None:
    """Make the checkpoint if none is given, measure, print."""
    parser = argparse.ArgumentParser(description="Measure attnlab and other tools.")
    parser.add_argument("--model", type=Path, help="a GPT-2 on disk; else one is made up")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each kind (5)")
    parser.add_argument("--only", nargs="+", choices=sections(False), help="some sections, not all")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a very small model, attnlab and plain NumPy only: does everything work and agree?",
    )
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        job, tool, directory, *numbers = arguments.job
        print(json.dumps(JOBS[job](tool, Path(directory), *map(int, numbers))))
        return
    quick, versions = arguments.quick, {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    known = {"attnlab", "numpy"} if quick else versions.keys()
    tools = [tool for tool, (_, package) in TOOLS.items() if package in known]
    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model or Path(scratch, "model")
        if not arguments.model:
            measure("make", "attnlab", model, *((2, 128, 4) if quick else (12, 768, 12)))
        rounds = 1 if quick else arguments.rounds
        header(model, rounds, versions)
        lengths = (12, 128 if quick else 1024)
        found = {t: measure("agreement", t, model, *lengths)["difference"] for t in tools}
        print("### agreement\n\nThe largest difference from plain NumPy's next-token logits.\n")
        table(["", "difference"], {tool: [number(x)] for tool, x in found.items()})
        for name in arguments.only or sections(quick):
            report(name, model.resolve(), rounds, quick, tools)
    print(f"Load at the end {os.getloadavg()[0]:.2f}: other work on the machine spoils times.")
    # not (... <= ...): NaN is too large, too
    if wrong := [tool for tool in tools if not found[tool] <= TOLERANCE]:
        sys.exit(f"logits differ by more than {TOLERANCE:g}: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
