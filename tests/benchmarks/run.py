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
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
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
NEEDS = {
    "eager": ("torch", "transformers"),
    "sdpa": ("torch", "transformers"),
    "lens": ("torch", "transformers", "transformer-lens"),
}

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

# Sequences and tokens of a training step; the pocket model was trained with these.
POCKET = HERE.parent.parent / "attnlab" / "pocket"
BATCH = (16, 128)

Answer = dict[str, Any]
Round = dict[str, Answer]  # by tool


@dataclass
class Goal:
    """A number of each round, and the goal of a GPT-2 small; a smaller model has none."""

    title: str
    of: Callable[[Round], float]
    limit: float | None = None
    at_least: bool = False

    def is_measured(self, rounds: list[Round]) -> bool:
        """Whether the tools that it compares were measured."""
        try:
            return all(self.of(answers) is not None for answers in rounds)
        except KeyError:
            return False


def ratio(title: str, top: str, bottom: str, key: str, limit: float | None = None) -> Goal:
    return Goal(title, lambda answers: answers[top][key] / answers[bottom][key], limit)


@dataclass
class Section:
    """What is measured: a command for each row of its table, and a number for each column."""

    title: str
    text: str
    commands: dict[str, list[str]]
    columns: dict[str, Callable[[Answer], float]]
    goals: list[Goal] = field(default_factory=list)
    warm_up: bool = False  # a round that doesn't count
    rounds: int = 0  # if not as many as the others


@dataclass
class Bench:
    """How to start processes, and what failed or disturbed them."""

    model: Path
    scratch: Path
    rounds: int
    quick: bool
    versions: dict[str, str]
    failures: list[str] = field(default_factory=list)
    disturbance: list[float] = field(default_factory=list)

    def has(self, tool: str) -> bool:
        """Whether a tool is available."""
        needed = NEEDS.get(tool, ())
        return not needed if self.quick else all(package in self.versions for package in needed)

    def jobs(
        self, job: str, *numbers: int, tools: tuple[str, ...] = (*NAMES,), model: Path | None = None
    ) -> dict[str, list[str]]:
        """The command lines of one of `tools.py`'s jobs."""
        return {t: job_of(job, t, model or self.model, *numbers) for t in tools if self.has(t)}

    def take_turns(self, section: Section) -> list[Round]:
        """Run a section's commands in turn, for some rounds; failed ones are omitted.

        Every other round runs in reverse: a process may gain from memory that the one before left.
        """
        commands, rounds = dict(section.commands), list[Round]()
        for turn in range((section.rounds or self.rounds) + section.warm_up):
            rounds.append({})
            for name in list(commands)[:: -1 if turn % 2 else 1]:
                print(f"{section.title}, round {turn + 1}: {name}", file=sys.stderr)
                try:
                    rounds[-1][name] = self.measure(commands[name])
                except RuntimeError as error:
                    print(f"{section.title}: {name} failed\n{error}", file=sys.stderr)
                    self.failures.append(f"{section.title}: {name}")
                    del commands[name]
        return [{name: answers[name] for name in commands} for answers in rounds[section.warm_up :]]

    def measure(self, command: list[str]) -> Answer:
        """A process's own answer if it prints one, its wall time, and its peak memory."""
        environment = os.environ | {"HF_HUB_OFFLINE": "1"}
        # If set, each process would compile all of attnlab again.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            start, busy = perf_counter(), busy_seconds()
            process = subprocess.Popen(
                command, stdout=output, stderr=errors, cwd=self.scratch, env=environment
            )
            try:
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:  # interrupted: leave no process behind
                process.kill()
                process.wait()
                raise
            seconds, busy = perf_counter() - start, busy_seconds() - busy
            others = busy - usage.ru_utime - usage.ru_stime
            self.disturbance.append(others / seconds / (os.cpu_count() or 1))
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                errors.seek(0)
                raise RuntimeError(errors.read()[-2000:])
            output.seek(0)
            answer: Answer = {"process": seconds, "process peak": 1024 * usage.ru_maxrss}
            if str(HERE / "tools.py") in command:
                answer |= json.loads(output.read().splitlines()[-1])
            return answer

    def report(self, section: Section) -> None:
        """Measure, and print the section's tables."""
        rounds = self.take_turns(section)
        print(f"### {section.title}\n\n{section.text}\n")
        rows = []
        for name in rounds[0]:
            medians = [median(of(each[name]) for each in rounds) for of in section.columns.values()]
            rows.append([NAMES.get(name, name), *map(number, medians)])
        table(["", *section.columns], rows)
        rows = [self.goal_row(goal, rounds) for goal in section.goals if goal.is_measured(rounds)]
        if rows:
            table(["", "median", "lowest … highest", "goal", "met"], rows)
        for name, answer in rounds[0].items():
            if not answer.get("difference", 0) <= TOLERANCE:
                self.failures.append(f"{NAMES[name]}: logits differ by {answer['difference']:.1e}")

    def goal_row(self, goal: Goal, rounds: list[Round]) -> list[str]:
        values = [goal.of(answers) for answers in rounds]
        value = median(values)
        row = [goal.title, number(value), f"{number(min(values))} … {number(max(values))}"]
        if goal.limit is None or self.quick:
            return [*row, "", ""]
        met = value >= goal.limit if goal.at_least else value <= goal.limit
        sign = "≥" if goal.at_least else "≤"
        return [*row, f"{sign} {number(goal.limit)}", "yes" if met else "**no**"]


def job_of(job: str, tool: str, model: Path, *numbers: int) -> list[str]:
    return [sys.executable, str(HERE / "tools.py"), job, tool, str(model), *map(str, numbers)]


def busy_seconds() -> float:
    """CPU time of all cores since the machine started, for all processes."""
    user, nice, system, _idle, _iowait, *interrupts_and_stolen = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK")


def table(head: list[str], rows: list[list[str]]) -> None:
    """A Markdown table, the first column left and the others right."""
    for line in (head, [":--", *["--:"] * (len(head) - 1)], *rows):
        print("| " + " | ".join(line) + " |")
    print(flush=True)


def number(value: float) -> str:
    """Three digits, with thousands separators."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def of(key: str, factor: float = 1) -> Callable[[Answer], float]:
    """A column: a number of an answer, in another unit."""
    return lambda answer: answer[key] * factor


# The sections.


def agreement(bench: Bench) -> Section:
    text = (
        "The largest difference from plain NumPy's next-token logits. "
        f"At most {TOLERANCE:g}, or this command fails."
    )
    others = tuple(tool for tool in NAMES if tool != "plain")
    jobs = bench.jobs("agreement", 12, 128 if bench.quick else 1024, tools=others)
    return Section("Agreement", text, jobs, {"largest difference": of("difference")}, rounds=1)


def first_look(bench: Bench) -> Section:
    text = (
        "A new process that opens the checkpoint and prints the weights of layer 0, head 0 for 12 "
        "tokens, from start to exit."
    )
    commands = {
        tool: [sys.executable, "-c", FIRST_LOOK[tool], str(bench.model)]
        for tool in FIRST_LOOK
        if bench.has(tool)
    }
    shown = {"seconds": of("process"), "peak memory, MB": of("process peak", 1 / MB)}
    goals = [
        ratio("time, attnlab / transformers", "attnlab", "eager", "process", 1 / 12),
        Goal("attnlab's peak memory, MB", lambda x: x["attnlab"]["process peak"] / MB, 120),
    ]
    return Section("First look", text, commands, shown, goals, warm_up=True)


def whole_trace(bench: Bench) -> Section:
    text = (
        "One forward pass with the model already loaded, in milliseconds. All compute only the "
        "last position's logits. attnlab makes a new trace each time; + 144 weights accesses every "
        "head's weights before the logits, and keeps them. transformers eager returns them; plain "
        "NumPy and transformers sdpa keep nothing; TransformerLens's run_with_cache keeps "
        "everything."
    )
    runs = {12: 2, 128: 2} if bench.quick else {12: 20, 128: 10, 512: 5, 1024: 3}
    limits: dict[tuple[str, str], dict[int, float]] = {
        ("attnlab", "eager"): {12: 0.55, 128: 0.75, 512: 0.75, 1024: 0.55},
        ("weights", "eager"): dict.fromkeys((12, 128, 512, 1024), 0.8),
        ("attnlab", "sdpa"): {1024: 0.9},
        ("attnlab", "lens"): {1024: 0.3},
        ("attnlab", "plain"): {},
    }
    goals = [
        ratio(f"{NAMES[a]} / {NAMES[b]}, {T} tokens", a, b, str(T), of_length.get(T))
        for (a, b), of_length in limits.items()
        for T in runs
    ]
    jobs = bench.jobs("passes", *(n for pair in runs.items() for n in pair))
    shown = {f"{T} tokens": of(str(T), 1000) for T in runs}
    return Section("Whole trace", text, jobs, shown, goals)


def memory(bench: Bench) -> Section:
    length = 128 if bench.quick else 1024
    text = (
        f"What a pass over {length} tokens adds to a process that has all weights in memory, MB: "
        "at its peak, while the result is kept, and after it is released (without `gc.collect()`)."
    )
    shown = {"peak": of("peak", 1 / MB), "kept": of("held", 1 / MB)}
    shown |= {"released": of("dropped", 1 / MB)}
    goal = Goal("attnlab's peak, MB", lambda answers: answers["attnlab"]["peak"] / MB, 300)
    return Section("Memory of a trace", text, bench.jobs("memory", length), shown, [goal])


def opening(bench: Bench) -> Section:
    text = (
        "Loading all weights, with the file in the page cache and the packages imported; plain "
        "NumPy is `safetensors.numpy.load_file`. attnlab also reads config and vocabulary and "
        "checks every number; it loads tiktoken only with the first text."
    )
    shown = {"ms": of("seconds", 1000), "of which the weights": of("reading", 1000)}
    shown |= {"peak memory, MB": of("peak", 1 / MB), "weights, MB": of("size", 1 / MB)}
    goals = [
        ratio("time, attnlab / load_file", "attnlab", "plain", "seconds", 1),
        ratio("of which the weights", "attnlab", "plain", "reading"),
        Goal(
            "attnlab's peak memory / weights",
            lambda answers: answers["attnlab"]["peak"] / answers["attnlab"]["size"],
            1.1,
        ),
    ]
    jobs = bench.jobs("opening", tools=("attnlab", "plain"))
    return Section("Opening", text, jobs, shown, goals, warm_up=True)


def speed(title: str, limit: float) -> Goal:
    def of_round(answers: Round) -> float:
        return float(answers["sdpa"]["seconds"] / answers["attnlab"]["seconds"])

    return Goal(title, of_round, limit, at_least=True)


def generation(bench: Bench) -> Section:
    prompt, new = (8, 8) if bench.quick else (32, 64)
    text = f"Greedy, {new} tokens after a prompt of {prompt}. transformers with sdpa and its cache."
    jobs = bench.jobs("generation", prompt, new, tools=("attnlab", "sdpa"))
    shown = {"tokens per second": lambda answer: new / answer["seconds"]}
    shown |= {"ms per token": of("seconds", 1000 / new)}
    return Section("Generation", text, jobs, shown, [speed("speed, attnlab / transformers", 2)])


def training(bench: Bench) -> Section:
    sequences, length = BATCH
    text = (
        f"The pocket model from scratch, batches of {sequences} sequences of {length} tokens: "
        "drawing a batch, forward, backward, clipping, AdamW. transformers with sdpa."
    )
    steps = 2 if bench.quick else 30
    jobs = bench.jobs("training", *BATCH, steps, tools=("attnlab", "sdpa"), model=POCKET)
    shown = {"ms per step": of("seconds", 1000)}
    shown |= {"tokens per second": lambda answer: sequences * length / answer["seconds"]}
    return Section("Training", text, jobs, shown, [speed("speed, attnlab / PyTorch", 0.5)])


def imports(bench: Bench) -> Section:
    packages = {name: [sys.executable, "-c", f"import {name}"] for name in ("attnlab", "numpy")}
    goal = ratio("import attnlab / import numpy", "attnlab", "numpy", "process", 1.5)
    rounds, shown = 3 if bench.quick else 15, {"ms": of("process", 1000)}
    text = f"`python -c`, from start to end, {rounds} rounds."
    return Section("Import", text, packages, shown, [goal], warm_up=True, rounds=rounds)


SECTIONS: dict[str, Callable[[Bench], Section]] = {
    "agreement": agreement,
    "first-look": first_look,
    "trace": whole_trace,
    "memory": memory,
    "opening": opening,
    "generation": generation,
    "training": training,
    "import": imports,
}


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


def run(arguments: argparse.Namespace, scratch: Path) -> list[str]:
    """Make the checkpoint if none is given, measure, print; returns the failures."""
    model = arguments.model
    if model is None:
        model = scratch / "model"
        print("making the checkpoint", file=sys.stderr)
        sizes = (2, 128, 4) if arguments.quick else (12, 768, 12)
        subprocess.run(job_of("make", "attnlab", model, *sizes), check=True, stdout=sys.stderr)
    versions = job_of("versions", "attnlab", model)
    bench = Bench(
        model=model.resolve(),
        scratch=scratch,
        rounds=1 if arguments.quick else arguments.rounds,
        quick=arguments.quick,
        versions=json.loads(subprocess.run(versions, check=True, stdout=subprocess.PIPE).stdout),
    )
    header(bench)
    for name in arguments.only or SECTIONS:
        bench.report(SECTIONS[name](bench))
    print(
        f"While a process was measured, others used {100 * median(bench.disturbance):.0f} % of the "
        f"machine (median; {100 * max(bench.disturbance):.0f} % at worst). Times mean little if "
        "that is more than a few percent: a busy core stalls PyTorch's threads most of all."
    )
    return bench.failures


def main() -> None:
    """Read the command line."""
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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # removes the checkpoint
    with tempfile.TemporaryDirectory() as scratch:
        failures = run(arguments, Path(scratch))
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
