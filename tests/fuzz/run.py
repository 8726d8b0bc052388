"""Attack attnlab with model directories and calls that go wrong, and tell what became of each.

    python tests/fuzz/run.py --cases 2000 --seed 1
    python tests/fuzz/run.py --case directories:1000017

See README.md beside this file.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

# Before NumPy and the hub's library are loaded: one thread, as forks have no others; no network.
os.environ |= {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "MPLBACKEND": "Agg",
}
os.environ.pop("ATTNLAB_MODEL", None)

os.fsync = lambda _: None  # nothing here has to outlive the machine

import calls  # noqa: E402
import directories  # noqa: E402
import folders  # noqa: E402
import processes  # noqa: E402
from processes import FINE, Outcome, Result, attack_all  # noqa: E402

# A case's number is its run's seed and its place in the run.
CASES_IN_A_SEED = 1_000_000

SHOWN = 5


# What is attacked, and which results are fine. The rooms trust those who call them to give what
# annotations say, and may raise what they like; but not even they may end the process, hang, or
# give other numbers.
KINDS = {
    "directories": FINE,
    "calls": FINE,
    "rooms": FINE | {Result.RAW, Result.MESSAGE, Result.MEMORY},
}


def load(kinds: Sequence[str]) -> dict[str, processes.Prepare]:
    """What prepares the cases of each kind. All that they need is loaded before the first one."""
    print(f"attacked is {processes.PACKAGE}")
    import matplotlib.figure  # noqa: F401
    import tiktoken  # noqa: F401

    prepare: dict[str, processes.Prepare] = {}
    if "directories" in kinds:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
            directories.train(place)
            folders.load_trained(Path(place))
        prepare["directories"] = directories.prepare
    if {"calls", "rooms"} & set(kinds):
        found = calls.Calls()
        counts = ", ".join(f"{len(targets)} {kind}" for kind, targets in found.targets.items())
        print(f"found {counts}; left out, as they take long: {', '.join(found.left_out) or 'none'}")
        prepare |= {kind: found.prepare(kind) for kind in found.targets if kind in kinds}
    gc.freeze()
    return prepare


def attack(kind: str, prepare: processes.Prepare, numbers: Sequence[int]) -> list[Outcome]:
    """All outcomes of a kind, with a line about how long they took."""
    started = time.perf_counter()
    found = attack_all(prepare, numbers, KINDS[kind])
    outcomes = sorted(found, key=lambda outcome: outcome.number)
    seconds = time.perf_counter() - started
    print(
        f"{len(outcomes)} {kind} in {seconds:.0f} s; the slowest took "
        f"{max(o.seconds for o in outcomes):.2f} s, the largest "
        f"{max(o.grown for o in outcomes) >> 20} MB; "
        f"{sum(o.unsteady for o in outcomes)} failed in company, but not alone",
        flush=True,
    )
    return outcomes


def attack_kinds(kinds: Sequence[str], cases: int, seed: int) -> dict[str, list[Outcome]]:
    """All outcomes by kind, so many cases of each."""
    first = seed * CASES_IN_A_SEED
    numbers = range(first, first + cases)
    return {kind: attack(kind, prepare, numbers) for kind, prepare in load(kinds).items()}


def table(found: dict[str, list[Outcome]]) -> str:
    """How many cases of each kind had each result."""
    width = max(map(len, Result)) + 2
    lines = ["".ljust(width) + "".join(f"{kind:>13}" for kind in found)]
    for result in Result:
        counts = (sum(o.result == result for o in outcomes) for outcomes in found.values())
        lines.append(result.ljust(width) + "".join(f"{count:13,}" for count in counts))
    return "\n".join(lines)


def failures(kind: str, outcomes: Sequence[Outcome]) -> str:
    """What failed, those together that failed alike, with the cases that show it."""
    groups: dict[tuple[str, ...], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.result not in KINDS[kind]:
            kind_of_fault = re.split(r"[:'\d]", outcome.what)[0]
            likeness = (outcome.result, outcome.where, kind_of_fault)
            groups.setdefault(likeness, []).append(outcome)
    lines = []
    for (result, where, _), alike in sorted(groups.items(), key=lambda group: -len(group[1])):
        lines.append(f"\n{len(alike)} x {result}{where and f' in {where}'}: {alike[0].what}")
        cases = [f"{kind}:{outcome.number}" for outcome in alike]
        lines.append("    " + " ".join(f"--case {case}" for case in cases[:SHOWN]))
        if len(cases) > SHOWN:
            lines[-1] += f" and {len(cases) - SHOWN} more"
        story = alike[0].story.partition("Traceback")[0].strip()
        lines += (f"    {line}" for line in story.split("\n")[:8])
    return "\n".join(lines)


def show(case: str) -> int:
    """One case alone, with all that there is to tell."""
    kind, number = case.split(":")
    prepare = load([kind])[kind]
    (outcome,) = attack_all(prepare, [int(number)], KINDS[kind])
    print(f"{case}: {outcome.result} {outcome.where}\n{outcome.what}\n{outcome.story}")
    print(f"{outcome.seconds:.3f} s, {outcome.grown / 2**20:.1f} MB")
    return int(outcome.result not in KINDS[kind])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000, help="how many of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--case", help="one case alone, as a run names it: directories:1000017")
    options = parser.parse_args(arguments)
    if options.case:
        return show(options.case)
    found = attack_kinds(options.only, options.cases, options.seed)
    print(f"\n{table(found)}")
    for kind, outcomes in found.items():
        print(failures(kind, outcomes))
    fine = Counter(o.result in KINDS[kind] for kind, outcomes in found.items() for o in outcomes)
    print(f"\n{fine[False]} of {fine.total()} cases failed")
    return int(fine[False] > 0)


if __name__ == "__main__":
    sys.exit(main())
