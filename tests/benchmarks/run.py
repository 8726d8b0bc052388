"""Time and memory of attnlab compared with plain NumPy, transformers and TransformerLens.

    python tests/benchmarks/run.py            # everything, with a random GPT-2 small: half an hour
    python tests/benchmarks/run.py --quick    # only checks that everything runs and agrees: seconds

Each measurement is a separate process. The tools take turns, A B C, C B A, ..., so that a slow
minute of the machine hits all of them, and a ratio compares two processes of the same round.
Prints Markdown. Exits with 1 if something failed, or if a tool's logits are not plain NumPy's.

This file imports only the standard library: a child's peak memory, as Linux counts it, is never
less than what its parent had when it was started.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve().parent
MB = 1e6

NAMES = {
    "attnlab": "attnlab",
    "weights": "attnlab + 144 weights",
    "plain": "plain NumPy",
    "eager": "transformers eager",
    "sdpa": "transformers sdpa",
    "lens": "TransformerLens",
}
NEEDS = {"eager": "transformers", "sdpa": "transformers", "lens": "transformer-lens"}

# The largest difference between two tools' logits that float32 rounding explains.
TOLERANCE = 1e-4

# “It’s very hot in summer. Swimming is”. Ids, so that a made-up vocabulary does not change their
# number and transformers need not load a tokenizer.
PROMPT = [1026, 447, 247, 82, 845, 3024, 287, 3931, 13, 2451, 27428, 318]

FIRST_LOOK = {
    "attnlab": f"""
import sys, attnlab
model = attnlab.GPT2.from_pretrained(sys.argv[1])
print(model.trace({PROMPT}).head(0, 0).weights)
""",
    "eager": f"""
import sys, torch
from transformers import GPT2Model
model = GPT2Model.from_pretrained(sys.argv[1], attn_implementation="eager")
with torch.no_grad():
    output = model(torch.tensor([{PROMPT}]), output_attentions=True)
print(output.attentions[0][0, 0])
""",
}

Answer = dict[str, Any]
Columns = dict[str, Callable[[Answer], float]]


@dataclass
class Section:
    """What is measured: a command for each row of its table, and a number for each column."""

    title: str
    text: str
    commands: dict[str, list[str]]
    columns: Columns


@dataclass
class Bench:
    """How to start processes, and how much others disturbed them."""

    model: Path
    rounds: int
    quick: bool
    versions: dict[str, str]
    disturbance: list[float] = field(default_factory=list)

    def has(self, tool: str) -> bool:
        return tool not in NEEDS or (not self.quick and NEEDS[tool] in self.versions)

    def jobs(self, job: str, *numbers: int, tools: Iterable[str] = NAMES) -> dict[str, list[str]]:
        """The command lines of one of `tools.py`'s jobs."""
        return {t: job_of(job, t, self.model, *numbers) for t in tools if self.has(t)}

    def take_turns(self, section: Section) -> list[dict[str, Answer]]:
        """Each round's answers.

        Every other round runs in reverse: a process may gain from memory that the one before left.
        """
        rounds = []
        for turn in range(self.rounds):
            print(f"{section.title}, round {turn + 1}", file=sys.stderr)
            names = [*section.commands][:: -1 if turn % 2 else 1]
            rounds.append({name: self.measure(section.commands[name]) for name in names})
        return rounds

    def measure(self, command: list[str]) -> Answer:
        """A process's own answer if it prints one, its wall time, and its peak memory."""
        environment = os.environ | {"HF_HUB_OFFLINE": "1"}
        # If set, each process would compile all of attnlab again.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with tempfile.TemporaryFile("w+") as output:
            start, busy = perf_counter(), busy_seconds()
            process = subprocess.Popen(command, stdout=output, env=environment)
            _, status, usage = os.wait4(process.pid, 0)
            seconds, busy = perf_counter() - start, busy_seconds() - busy
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, command)
            others = busy - usage.ru_utime - usage.ru_stime
            self.disturbance.append(others / seconds / (os.cpu_count() or 1))
            output.seek(0)
            answer: Answer = {"process": seconds, "process peak": 1024 * usage.ru_maxrss}
            if str(HERE / "tools.py") in command:
                answer |= json.loads(output.read().splitlines()[-1])
            return answer

    def report(self, section: Section) -> None:
        """Measure; print the medians, and each tool's ratios to the first."""
        rounds, (first, *others) = self.take_turns(section), section.commands
        print(f"### {section.title}\n\n{section.text}\n")
        rows = []
        for name in section.commands:
            columns = section.columns.values()
            rows.append([median(of(answers[name]) for answers in rounds) for of in columns])
        table(["", *section.columns], section.commands, [[*map(number, row)] for row in rows])
        rows = []
        for name in others:
            columns = section.columns.values()
            ratios = [[of(each[name]) / of(each[first]) for each in rounds] for of in columns]
            rows.append(
                [f"{number(median(r))} ({number(min(r))} … {number(max(r))})" for r in ratios]
            )
        if rows:
            table([f"divided by {NAMES[first]}'s", *section.columns], others, rows)


def job_of(job: str, tool: str, model: Path, *numbers: int) -> list[str]:
    return [sys.executable, str(HERE / "tools.py"), job, tool, str(model), *map(str, numbers)]


def answer_of(job: str, tool: str, model: Path, *numbers: int) -> Answer:
    """The answer of a job that isn't measured."""
    command = job_of(job, tool, model, *numbers)
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    answer: Answer = json.loads(output.splitlines()[-1])
    return answer


def busy_seconds() -> float:
    """CPU time of all cores since the machine started, for all processes."""
    user, nice, system, _idle, _iowait, *interrupts_and_stolen = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK")


def table(head: list[str], tools: Iterable[str], rows: list[list[str]]) -> None:
    """A Markdown table, the first column left and the others right."""
    named = [[NAMES[tool], *row] for tool, row in zip(tools, rows, strict=True)]
    for line in (head, [":--", *["--:"] * (len(head) - 1)], *named):
        print("| " + " | ".join(line) + " |")
    print(flush=True)


def number(value: float) -> str:
    """Three digits, with thousands separators."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def of(key: str, factor: float = 1) -> Callable[[Answer], float]:
    """A column: a number of an answer, in another unit."""
    return lambda answer: answer[key] * factor


# The sections.


def first_look(bench: Bench) -> Section:
    text = (
        "A new process that opens the checkpoint and prints the weights of layer 0, head 0 for 12 "
        "tokens, from start to exit."
    )
    tools = filter(bench.has, FIRST_LOOK)
    commands = {t: [sys.executable, "-c", FIRST_LOOK[t], str(bench.model)] for t in tools}
    shown = {"seconds": of("process"), "peak memory, MB": of("process peak", 1 / MB)}
    return Section("First look", text, commands, shown)


def whole_trace(bench: Bench) -> Section:
    text = (
        "One forward pass with the model already loaded, in milliseconds. All compute only the "
        "last position's logits. attnlab makes a new trace each time; + 144 weights accesses every "
        "head's weights before the logits, and keeps them. transformers eager returns them; plain "
        "NumPy and transformers sdpa keep nothing; TransformerLens's run_with_cache keeps "
        "everything."
    )
    runs = {12: 2, 128: 2} if bench.quick else {12: 20, 128: 10, 512: 5, 1024: 3}
    jobs = bench.jobs("passes", *(n for pair in runs.items() for n in pair))
    return Section("Whole trace", text, jobs, {f"{T} tokens": of(str(T), 1000) for T in runs})


def memory(bench: Bench) -> Section:
    length = 128 if bench.quick else 1024
    text = (
        f"What a pass over {length} tokens adds to a process that has all weights in memory, MB: "
        "at its peak, and while the result is kept."
    )
    shown = {"peak": of("peak", 1 / MB), "kept": of("held", 1 / MB)}
    return Section("Memory of a trace", text, bench.jobs("memory", length), shown)


def generation(bench: Bench) -> Section:
    prompt, new = (8, 8) if bench.quick else (32, 64)
    text = f"Greedy, {new} tokens after a prompt of {prompt}. transformers with sdpa and its cache."
    jobs = bench.jobs("generation", prompt, new, tools=("attnlab", "sdpa"))
    return Section("Generation", text, jobs, {"ms per token": of("seconds", 1000 / new)})


SECTIONS: dict[str, Callable[[Bench], Section]] = {
    "first-look": first_look,
    "trace": whole_trace,
    "memory": memory,
    "generation": generation,
}


def disagreeing(bench: Bench) -> list[str]:
    """Print each tool's largest difference from plain NumPy's logits; returns what is too large."""
    lengths = (12, 128 if bench.quick else 1024)
    tools = [tool for tool in NAMES if tool != "plain" and bench.has(tool)]
    found = {t: answer_of("agreement", t, bench.model, *lengths)["difference"] for t in tools}
    print("### Agreement\n\nThe largest difference from plain NumPy's next-token logits.\n")
    table(["", "difference"], tools, [[number(found[tool])] for tool in tools])
    # not (... <= ...): NaN is too large, too
    return [NAMES[tool] for tool in tools if not found[tool] <= TOLERANCE]


def header(bench: Bench) -> None:
    """Print the machine, the versions and the checkpoint, on which the numbers depend."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(": ")[1] for line in info if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    weights = (bench.model / "model.safetensors").stat().st_size / MB
    print(f"- {date.today()}, medians of {bench.rounds} rounds")
    print(f"- {cpu}, {os.cpu_count()} cores, {memory:.0f} GiB")
    print(f"- {system}, Linux {platform.release()}, Python {platform.python_version()}")
    print(f"- {', '.join(f'{name} {version}' for name, version in bench.versions.items())}")
    print(f"- checkpoint: {bench.model.name}, {weights:,.0f} MB, {os.cpu_count()} threads")
    skipped = [NAMES[tool] for tool in NAMES if not bench.has(tool)]
    print(f"- skipped: {', '.join(skipped) or 'nothing'}\n", flush=True)


def main() -> None:
    """Make the checkpoint if none is given, measure, print."""
    parser = argparse.ArgumentParser(description="Measure attnlab and other tools.")
    parser.add_argument("--model", type=Path, help="a GPT-2 on disk; else one is made up")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each kind (5)")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="some sections, not all")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a very small model, attnlab and plain NumPy only: does everything work and agree?",
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model, quick = arguments.model, arguments.quick
        if model is None:
            print("making the checkpoint", file=sys.stderr)
            model = Path(scratch, "model")
            answer_of("make", "attnlab", model, *((2, 128, 4) if quick else (12, 768, 12)))
        versions = answer_of("versions", "attnlab", model)
        bench = Bench(model.resolve(), 1 if quick else arguments.rounds, quick, versions)
        header(bench)
        wrong = disagreeing(bench)
        for name in arguments.only or SECTIONS:
            bench.report(SECTIONS[name](bench))
    print(
        f"While a process was measured, others used {100 * median(bench.disturbance):.0f} % of the "
        f"machine (median; {100 * max(bench.disturbance):.0f} % at worst). Times mean little if "
        "that is more than a few percent: a busy core stalls PyTorch's threads most of all."
    )
    if wrong:
        sys.exit(f"logits differ by more than {TOLERANCE:g}: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
