"""Time and memory of attnlab compared with plain NumPy, transformers and TransformerLens.

    python tests/benchmarks/run.py            # everything, with a random GPT-2 small: half an hour
    python tests/benchmarks/run.py --quick    # only checks that everything runs and agrees: seconds

Each number comes from a separate process. The tools take turns, A B C, C B A, ..., so that a
slow minute of the machine hits all of them, and a ratio compares two processes of the same round.
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
from collections.abc import Callable, Mapping
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

Answers = list[dict[str, Any]]  # one answer a round


@dataclass(frozen=True)
class Sizes:
    """What to measure: lengths in tokens, and the number of timed runs in each process."""

    runs: Mapping[int, int]
    long: int
    prompt: int
    new: int
    positions: tuple[int, ...]
    imports: int
    training_steps: int


FULL = Sizes({12: 20, 128: 10, 512: 5, 1024: 3}, 1024, 32, 64, (64, 256, 512, 960), 15, 30)
QUICK = Sizes({12: 2, 128: 2}, 128, 8, 8, (32, 64), 3, 2)

# Sequences and tokens of a training step; the pocket model was trained with these.
POCKET = HERE.parent.parent / "attnlab" / "pocket"
BATCH = (16, 128)


@dataclass
class Bench:
    """State shared by the sections: how to start processes, and their results."""

    model: Path
    scratch: Path
    rounds: int
    quick: bool
    versions: dict[str, str]
    failures: list[str] = field(default_factory=list)
    disturbance: list[float] = field(default_factory=list)

    @property
    def sizes(self) -> Sizes:
        return QUICK if self.quick else FULL

    def has(self, tool: str) -> bool:
        """Whether a tool is available."""
        if self.quick:
            return tool not in NEEDS
        return all(package in self.versions for package in NEEDS.get(tool, ()))

    def tools(self, *names: str) -> list[str]:
        return [name for name in names if self.has(name)]

    def job(self, job: str, tool: str, *numbers: int, model: Path | None = None) -> list[str]:
        """The command line of one of `tools.py`'s jobs."""
        script = str(HERE / "tools.py")
        return [sys.executable, script, job, tool, str(model or self.model), *map(str, numbers)]

    def first_look(self, tool: str) -> list[str]:
        return [sys.executable, "-c", FIRST_LOOK[tool], str(self.model)]

    def take_turns(
        self, title: str, commands: dict[str, list[str]], rounds: int | None = None
    ) -> dict[str, Answers]:
        """Run the commands in turn, for some rounds; failed ones are omitted from the answers.

        Every other round runs in reverse: a process may gain from memory that the one before left.
        """
        answers: dict[str, Answers] = {name: [] for name in commands}
        for turn in range(rounds or self.rounds):
            for name in list(answers)[:: -1 if turn % 2 else 1]:
                print(f"{title}, round {turn + 1}: {name}", file=sys.stderr)
                try:
                    answers[name].append(self.measure(commands[name]))
                except RuntimeError as error:
                    print(f"{title}: {name} failed\n{error}", file=sys.stderr)
                    self.failures.append(f"{title}: {name}")
                    del answers[name]
        return answers

    def measure(self, command: list[str]) -> dict[str, Any]:
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
            answer: dict[str, Any] = {"process": seconds, "process peak": 1024 * usage.ru_maxrss}
            if str(HERE / "tools.py") in command:
                answer |= json.loads(output.read().splitlines()[-1])
            return answer


def busy_seconds() -> float:
    """CPU time of all cores since the machine started, for all processes."""
    user, nice, system, _idle, _iowait, *interrupts_and_stolen = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK")


# Output of the sections.


def heading(title: str, text: str) -> None:
    print(f"### {title}\n\n{text}\n", flush=True)


def table(head: list[str], rows: list[list[str]]) -> None:
    """A Markdown table, the first column left and the others right."""
    lines = [head, [":--", *["--:"] * (len(head) - 1)], *rows]
    for line in lines:
        print("| " + " | ".join(line) + " |")
    print(flush=True)


def middle(answers: Answers, key: str) -> float:
    return median(answer[key] for answer in answers)


def number(value: float) -> str:
    """Three digits, with thousands separators."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def goal_row(
    bench: Bench, title: str, values: list[float], goal: float | None, at_least: bool = False
) -> list[str]:
    """A row of a table of goals: the median, the lowest and highest, the goal, whether it is met.

    The goals are those of a GPT-2 small; a smaller model has none.
    """
    value = median(values)
    row = [title, number(value), f"{number(min(values))} … {number(max(values))}"]
    if goal is None or bench.quick:
        return [*row, "", ""]
    met = value >= goal if at_least else value <= goal
    return [*row, f"{'≥' if at_least else '≤'} {number(goal)}", "yes" if met else "**no**"]


GOALS = ["", "median", "lowest … highest", "goal", "met"]


def ratios(answers: dict[str, Answers], top: str, bottom: str, key: str) -> list[float] | None:
    """One tool's number divided by another's, round by round; None if one is missing."""
    if top not in answers or bottom not in answers:
        return None
    return [a[key] / b[key] for a, b in zip(answers[top], answers[bottom], strict=True)]


# The sections.


def agreement(bench: Bench) -> None:
    lengths = list(bench.sizes.runs)
    heading(
        "Agreement",
        f"The largest difference from plain NumPy's next-token logits, at {lengths[0]} and "
        f"{lengths[-1]} tokens. At most {TOLERANCE:g}, or this command fails.",
    )
    commands = {
        tool: bench.job("agreement", tool, lengths[0], lengths[-1])
        for tool in bench.tools("attnlab", "weights", "eager", "sdpa", "lens")
    }
    rows = []
    for tool, answers in bench.take_turns("agreement", commands, rounds=1).items():
        difference = answers[0]["difference"]
        rows.append([NAMES[tool], f"{difference:.1e}"])
        if not difference <= TOLERANCE:
            bench.failures.append(f"{NAMES[tool]}: logits differ by {difference:.1e}")
    table(["", "largest difference"], rows)


def first_look(bench: Bench) -> None:
    heading(
        "First look",
        "A new process that opens the checkpoint and prints the weights of layer 0, head 0 for 12 "
        "tokens, from start to exit.",
    )
    commands = {tool: bench.first_look(tool) for tool in bench.tools("attnlab", "eager")}
    bench.take_turns("first look, warming up", commands, rounds=1)
    answers = bench.take_turns("first look", commands)
    rows = [
        [NAMES[tool], number(middle(each, "process")), number(middle(each, "process peak") / MB)]
        for tool, each in answers.items()
    ]
    table(["", "seconds", "peak memory, MB"], rows)
    goals = []
    if ratio := ratios(answers, "attnlab", "eager", "process"):
        goals.append(goal_row(bench, "time, attnlab / transformers", ratio, 1 / 12))
    if "attnlab" in answers:
        peaks = [answer["process peak"] / MB for answer in answers["attnlab"]]
        goals.append(goal_row(bench, "attnlab's peak memory, MB", peaks, 120))
    table(GOALS, goals)


def whole_trace(bench: Bench) -> None:
    heading(
        "Whole trace",
        "One forward pass with the model already loaded, in milliseconds. All compute only the "
        "last position's logits. attnlab makes a new trace each time; + 144 weights accesses every "
        "head's weights before the logits, and keeps them. transformers eager returns them; plain "
        "NumPy and transformers sdpa keep nothing; TransformerLens's run_with_cache keeps "
        "everything.",
    )
    goals_of: dict[tuple[str, str], dict[int, float]] = {
        ("attnlab", "eager"): {12: 0.55, 128: 0.75, 512: 0.75, 1024: 0.55},
        ("weights", "eager"): dict.fromkeys((12, 128, 512, 1024), 0.8),
        ("attnlab", "sdpa"): {1024: 0.9},
        ("attnlab", "lens"): {1024: 0.3},
        ("attnlab", "plain"): {},
    }
    tools = bench.tools(*NAMES)
    times: dict[int, dict[str, Answers]] = {}
    for length, runs in bench.sizes.runs.items():
        commands = {tool: bench.job("pass", tool, length, runs) for tool in tools}
        times[length] = bench.take_turns(f"trace of {length} tokens", commands)
    rows = [
        [NAMES[tool]]
        + [
            number(1000 * middle(answers[tool], "seconds")) if tool in answers else ""
            for answers in times.values()
        ]
        for tool in tools
    ]
    table(["", *(f"{length} tokens" for length in times)], rows)
    goals = [
        goal_row(
            bench, f"{NAMES[top]} / {NAMES[bottom]}, {length} tokens", ratio, wanted.get(length)
        )
        for (top, bottom), wanted in goals_of.items()
        for length, answers in times.items()
        if (ratio := ratios(answers, top, bottom, "seconds"))
    ]
    table(GOALS, goals)


def memory(bench: Bench) -> None:
    length = bench.sizes.long
    heading(
        "Memory of a trace",
        f"What a pass over {length} tokens adds to a process that has all weights in memory, MB: "
        "at its peak, while the result is kept, and after it is released (without `gc.collect()`).",
    )
    commands = {tool: bench.job("memory", tool, length) for tool in bench.tools(*NAMES)}
    answers = bench.take_turns(f"memory at {length} tokens", commands)
    rows = [
        [NAMES[tool], *(number(middle(each, key) / MB) for key in ("peak", "held", "dropped"))]
        for tool, each in answers.items()
    ]
    table(["", "peak", "kept", "released"], rows)
    if "attnlab" in answers:
        peaks = [answer["peak"] / MB for answer in answers["attnlab"]]
        table(GOALS, [goal_row(bench, "attnlab's peak, MB", peaks, 300)])


def opening(bench: Bench) -> None:
    heading(
        "Opening",
        "Loading all weights, with the file in the page cache and the packages imported. attnlab "
        "also reads config and vocabulary and checks every number; it loads tiktoken only with the "
        "first text.",
    )
    commands = {tool: bench.job("opening", tool) for tool in ("attnlab", "plain")}
    bench.take_turns("opening, warming up", commands, rounds=1)
    answers = bench.take_turns("opening", commands)
    names = {"attnlab": "attnlab", "plain": "safetensors.numpy.load_file"}
    rows = [
        [
            names[tool],
            number(1000 * middle(each, "seconds")),
            number(1000 * middle(each, "reading")),
            number(middle(each, "peak") / MB),
            number(middle(each, "size") / MB),
        ]
        for tool, each in answers.items()
    ]
    table(["", "ms", "of which the weights", "peak memory, MB", "weights, MB"], rows)
    goals = []
    if ratio := ratios(answers, "attnlab", "plain", "seconds"):
        goals.append(goal_row(bench, "time, attnlab / load_file", ratio, 1))
    if ratio := ratios(answers, "attnlab", "plain", "reading"):
        goals.append(goal_row(bench, "of which the weights", ratio, None))
    if "attnlab" in answers:
        peaks = [answer["peak"] / answer["size"] for answer in answers["attnlab"]]
        goals.append(goal_row(bench, "attnlab's peak memory / weights", peaks, 1.1))
    table(GOALS, goals)


def generation(bench: Bench) -> None:
    sizes = bench.sizes
    heading(
        "Generation",
        f"Greedy, {sizes.new} tokens after a prompt of {sizes.prompt}; and milliseconds for one "
        "token at some positions. transformers with sdpa and its cache.",
    )
    commands = {
        tool: bench.job("generation", tool, sizes.prompt, sizes.new, *sizes.positions)
        for tool in bench.tools("attnlab", "sdpa")
    }
    answers = bench.take_turns("generation", commands)
    names = {"attnlab": "attnlab", "sdpa": "transformers"}
    rows = [
        [
            names[tool],
            number(sizes.new / middle(each, "seconds")),
            *(number(1000 * middle(each, f"at {position}")) for position in sizes.positions),
        ]
        for tool, each in answers.items()
    ]
    table(["", "tokens per second", *(f"ms at {position}" for position in sizes.positions)], rows)
    if ratio := ratios(answers, "sdpa", "attnlab", "seconds"):
        row = goal_row(bench, "speed, attnlab / transformers", ratio, 2, at_least=True)
        table(GOALS, [row])


def training(bench: Bench) -> None:
    sequences, length = BATCH
    heading(
        "Training",
        f"The pocket model from scratch, batches of {sequences} sequences of {length} tokens: "
        "drawing a batch, forward, backward, clipping, AdamW. transformers with sdpa.",
    )
    commands = {
        tool: bench.job(
            "training", tool, sequences, length, bench.sizes.training_steps, model=POCKET
        )
        for tool in bench.tools("attnlab", "sdpa")
    }
    answers = bench.take_turns("training", commands)
    names = {"attnlab": "attnlab", "sdpa": "transformers, PyTorch"}
    rows = []
    for tool, each in answers.items():
        seconds = middle(each, "seconds")
        rows.append([names[tool], number(1000 * seconds), number(sequences * length / seconds)])
    table(["", "ms per step", "tokens per second"], rows)
    if ratio := ratios(answers, "sdpa", "attnlab", "seconds"):
        row = goal_row(bench, "speed, attnlab / PyTorch", ratio, 0.5, at_least=True)
        table(GOALS, [row])


def imports(bench: Bench) -> None:
    rounds = max(bench.sizes.imports, bench.rounds)
    heading("Import", f"`python -c`, from start to end, milliseconds, {rounds} rounds.")
    commands = {
        f"import {package}": [sys.executable, "-c", f"import {package}"]
        for package in ("attnlab", "numpy")
    }
    bench.take_turns("imports, warming up", commands, rounds=1)
    answers = bench.take_turns("imports", commands, rounds)
    rows = [[name, number(1000 * middle(each, "process"))] for name, each in answers.items()]
    table(["", "ms"], rows)
    if ratio := ratios(answers, "import attnlab", "import numpy", "process"):
        table(GOALS, [goal_row(bench, "import attnlab / import numpy", ratio, 1.5)])


SECTIONS: dict[str, Callable[[Bench], None]] = {
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
    packages = (f"{name} {version}" for name, version in bench.versions.items())
    linux = ".".join(platform.release().split(".")[:2])
    weights = (bench.model / "model.safetensors").stat().st_size / MB
    print(f"- {date.today()}, medians of {bench.rounds} rounds")
    print(f"- {cpu}, {os.cpu_count()} cores, {memory:.0f} GiB")
    print(f"- {system}, Linux {linux}, Python {platform.python_version()}")
    print(f"- {', '.join(packages)}")
    print(f"- checkpoint: {bench.model.name}, {weights:,.0f} MB, {os.cpu_count()} threads")
    for tool in NAMES:
        if not bench.has(tool):
            reason = "--quick" if bench.quick else f"needs {', '.join(NEEDS[tool])}"
            print(f"- skipped: {NAMES[tool]} ({reason})")
    print(flush=True)


def run(arguments: argparse.Namespace, scratch: Path) -> list[str]:
    """Make the checkpoint if none is given, measure, print; returns the failures."""
    model = arguments.model
    if model is None:
        model = scratch / "model"
        print("making the checkpoint", file=sys.stderr)
        script = [sys.executable, str(HERE / "random_gpt2.py"), str(model)]
        subprocess.run([*script, *["--small"] * arguments.quick], check=True)
    versions = subprocess.run(
        [sys.executable, str(HERE / "tools.py"), "versions"], check=True, stdout=subprocess.PIPE
    )
    bench = Bench(
        model=model.resolve(),
        scratch=scratch,
        rounds=1 if arguments.quick else arguments.rounds,
        quick=arguments.quick,
        versions=json.loads(versions.stdout),
    )
    header(bench)
    for name in arguments.only or SECTIONS:
        SECTIONS[name](bench)
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
