"""Run a chapter with a learner's functions, under limits; `grade.py` starts it as a process.

The job is read as JSON from stdin. Each task's result is written to the working directory as
TASK.npz, and events to `events.jsonl`, one per line.
"""

import io
import json
import resource
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from attnlab import checking, pictures
from attnlab.steps import Result


def main() -> None:
    job = json.load(sys.stdin)
    sys.stdin = io.StringIO()
    memory, seconds, file_size = job["megabytes"] << 20, job["seconds"], job["bytes"]
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    for name in job["pictures"]:
        setattr(pictures, name, lambda *arguments, **named: None)
    task, failed = "", set(job["skipped"])
    events = open("events.jsonl", "a", encoding="utf-8")  # noqa: SIM115

    def record(status: str, words: str = "") -> None:
        print(json.dumps({"task": task, "status": status, "words": words}), file=events, flush=True)

    def store(expected: Result, write: Callable[..., Any], *arguments: Any) -> None:
        returned = write(*arguments)
        if not isinstance(returned, dict):
            raise TypeError(f"{write.__name__} returned {type(returned).__name__}; expected a dict")
        arrays = {str(name): np.asarray(value) for name, value in returned.items()}
        if any(array.dtype.kind not in "biuf" for array in arrays.values()):
            raise TypeError("the values of the dict must be arrays of numbers")
        np.savez(f"{task}.npz", **arrays)  # type: ignore[arg-type]
        record("returned")

    checking.checked = store  # type: ignore[assignment]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in job["cells"]:
        task = cell["task"]
        if task in failed:
            continue
        if task:
            record("started")
        try:
            exec(compile(cell["code"], task or "<chapter>", "exec"), namespace)
        except BaseException as error:
            if not task:
                raise
            failed.add(task)
            if isinstance(error, NotImplementedError):
                record("not written")
            elif isinstance(error, MemoryError):
                record("out of memory", "The function needs more memory than allowed.")
            else:
                record("stopped", f"{type(error).__name__}: {error}"[:500])
    task = ""
    record("finished")


if __name__ == "__main__":
    main()
