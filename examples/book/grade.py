"""Grade submitted notebooks: a table for the class, feedback for each learner.

    python examples/book/grade.py NOTEBOOK... [--into DIRECTORY] [--seconds 60] [--megabytes 2048]

DIRECTORY, `graded` by default, gets `grades.csv`, a row for each notebook, and `feedback/`, a page
of Markdown for each, which names the mistakes that `attnlab.check` finds.

The notebooks come from `editions.py write learner` or `home`. Tasks and predictions are in cells
with nbgrader's metadata. Unlike otter-grader's format, nbgrader's needs no second file of tests and
no container, and Jupyter's servers for classes support it. This program doesn't need nbgrader, but
a teacher may use nbgrader instead, with the notebooks of `editions.py write teacher`.

Only task cells are taken from a submission. They run inside the published chapter, so changed tests
have no effect (and are reported), and a helper function must be in a task's cell. A task's points
are divided equally among its steps, and each correct step earns its share. Predictions aren't
marked right or wrong: each earns its points if it is written, and the feedback shows the answer
below it.

The cells run in a separate process with limits on time and memory, in an empty directory, without
your environment variables, and, where Linux allows it, without a network. Its results are read as
plain arrays and checked outside that process. It can still read any file that you can read: use a
virtual machine to grade notebooks from strangers.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from editions import CHAPTERS, PREDICTION, Cell, cells, edition, file_of, for_audience, solve

import attnlab
from attnlab import checking, pictures
from attnlab.steps import Result
from attnlab.support.language import language_of, using_language

MAX_BYTES = 20_000_000  # of a notebook, and of a task's result
PICTURES = ("arrows", "curves", "heatmap", "plane", "points")
ISOLATED = ["unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"]
SANDBOX = Path(__file__).parent / "sandbox.py"
# Chinese for the feedback on a Chinese notebook.
IN_CHINESE = {
    "Not graded: {status}.": "未评分：{status}。",
    "Chapter {number}: {points} of {of} points.": "第 {number} 章：得 {points} 分，满分 {of} 分。",
    "points": "得分",
    "{points} of {of}": "{points} / {of}",
    "correct": "正确",
    "wrong": "有误",
    "written": "已写",
    "not written": "未写",
    "missing": "缺失",
    "stopped": "中途停止",
    "time limit": "超时",
    "out of memory": "内存不足",
    "crashed": "崩溃",
    "not returned: {steps}": "没有返回：{steps}",
    "The function didn't finish within {seconds} seconds.": "函数在 {seconds} 秒内没有结束。",
    "The function ended the whole process.": "函数结束了整个进程。",
    "The cell {cell} is missing.": "缺少单元格 {cell}。",
    "The cell {cell} was changed; the published one was run.": "单元格 {cell} 改过，运行了原版。",
}
# The statuses of the sandbox's events.
STATUSES = ("started", "returned", "not written", "out of memory", "stopped", "finished")


@dataclass(frozen=True)
class Task:
    """A function to write: its name and points, the correct result, and the steps it returns."""

    function: str
    points: int
    expected: Result
    steps: tuple[str, ...]


@dataclass
class Mark:
    """The points for a task or a prediction, and the feedback on it."""

    name: str
    max_points: int
    points: float = 0
    status: str = "missing"
    words: str = ""


@dataclass
class Grade:
    """A notebook's marks, or why it has none."""

    notebook: Path
    chapter: str = ""
    language: str = "en"
    status: str = "graded"
    marks: list[Mark] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def points(self) -> float:
        return sum(mark.points for mark in self.marks)

    @property
    def max_points(self) -> int:
        return sum(mark.max_points for mark in self.marks)


def say(template: str, **values: object) -> str:
    """A text of the feedback in the language of the notebook, which `using_language` sets."""
    text = IN_CHINESE.get(template, template) if language_of() == "zh" else template
    return text.format(**values)


@cache
def published(number: str, language: str = "en") -> list[Cell]:
    """A chapter's cells as handed out."""
    return list(for_audience(cells(edition(file_of(number), language)), number, "learner"))


def id_of(cell: Mapping[str, Any]) -> str:
    """A cell's nbgrader id, or "" if it has none."""
    metadata = cell.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
    return grade_id if isinstance(grade_id, str) else ""


@cache
def tasks_of(number: str) -> dict[str, Task]:
    """A chapter's tasks by their ids, from a run of the chapter with the solutions."""
    chapter = file_of(number)
    results: dict[str, tuple[Result, tuple[str, ...]]] = {}

    def record(expected: Result, write: Any, *arguments: Any) -> None:
        results[write.__name__] = expected, tuple(write(*arguments))

    chapter_cells = published(number)
    checks = {
        id_of({"metadata": cell.metadata}).removesuffix("-check"): cell.metadata["nbgrader"]
        for cell in chapter_cells
        if id_of({"metadata": cell.metadata}).endswith("-check")
    }
    if checks:
        script = solve(chapter.read_text(encoding="utf-8"), number)
        with (
            mock.patch.dict(os.environ, ATTNLAB_MODEL="pocket"),
            mock.patch.multiple(pictures, **dict.fromkeys(PICTURES, mock.DEFAULT)),
            mock.patch.object(checking, "checked", record),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            exec(compile(script, chapter, "exec"), {"__name__": "__main__"})
    return {
        task: Task(name, check["points"], *results[name])
        for task, check in checks.items()
        for name in [task.partition("-")[2]]
    }


def program(number: str, submitted: Mapping[str, str]) -> list[dict[str, str]]:
    """The code of a chapter up to its last task, with the submitted code of its tasks."""
    code_cells, last = [], 0
    for cell in published(number):
        if cell.is_prose:
            continue
        cell_id = id_of({"metadata": cell.metadata})
        task = cell_id.removesuffix("-check")
        code_cells.append({"task": task, "code": submitted.get(cell_id, cell.text)})
        last = len(code_cells) if task else last
    return code_cells[:last]


@cache
def isolated_command() -> list[str]:
    """The command that starts a process without a network; empty if the system doesn't allow it."""
    if shutil.which(ISOLATED[0]):
        tried = subprocess.run([*ISOLATED, "true"], capture_output=True, check=False)
        if tried.returncode == 0:
            return ISOLATED
    return []


def run_job(job: Mapping[str, Any], directory: Path) -> str:
    """Run a job in a process and return what stopped it; "" if it finished."""
    environment = {
        "PATH": os.defpath,
        "PYTHONPATH": str(Path(attnlab.__file__).parent.parent),
        "ATTNLAB_MODEL": "pocket",
        "HF_HUB_OFFLINE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONUTF8": "1",
        "HOME": str(directory),
        "TMPDIR": str(directory),
    }
    with (
        (directory / "errors").open("wb") as errors,
        subprocess.Popen(
            [*isolated_command(), sys.executable, str(SANDBOX)],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):
        try:
            process.communicate(json.dumps(job).encode(), job["seconds"])
        except subprocess.TimeoutExpired:
            return "time limit"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return "crashed" if process.returncode else ""


def run_tasks(
    number: str, submitted: Mapping[str, str], seconds: int, megabytes: int
) -> dict[str, tuple[Mark, dict[str, Any]]]:
    """The result of each task's function, or why it has none.

    If the process ends during a task, at a limit or in a crash, the next process skips that task.
    """
    tasks = tasks_of(number)
    results: dict[str, tuple[Mark, dict[str, Any]]] = {
        name: (Mark(name, task.points), {}) for name, task in tasks.items()
    }
    job = {
        "cells": program(number, submitted),
        "pictures": PICTURES,
        "seconds": seconds,
        "megabytes": megabytes,
        "bytes": MAX_BYTES,
    }
    skipped = [task for task in tasks if task not in submitted]
    while len(skipped) < len(tasks):
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary)
            failure = run_job(job | {"skipped": skipped}, directory)
            current = ""
            for event in events_of(directory):
                task = event["task"]
                if event["status"] == "finished":
                    return results
                if task not in results:
                    continue
                current, mark = task, results[task][0]
                mark.status, mark.words = event["status"], event["words"]
                if mark.status == "returned":
                    try:
                        results[task] = mark, arrays_of(directory / f"{task}.npz")
                    except Exception as error:
                        mark.status = "stopped"
                        mark.words = f"The result can't be read: {error}"
            if not current:
                errors = (directory / "errors").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"chapter {number} {failure or 'stopped'}: {errors[-500:]}")
        mark = results[current][0]
        mark.status = failure or "crashed"
        mark.words = (
            say("The function didn't finish within {seconds} seconds.", seconds=seconds)
            if failure == "time limit"
            else say("The function ended the whole process.")
        )
        skipped.append(current)
    return results


def events_of(directory: Path) -> list[dict[str, Any]]:
    """The events that the process wrote, without any other lines a learner's function added."""
    file = directory / "events.jsonl"
    is_file = file.is_file()  # reading a pipe would block
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if is_file else []
    parsed = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            parsed.append(json.loads(line))
    return [
        event
        for event in parsed
        if isinstance(event, dict)
        if isinstance(event.get("task"), str) and isinstance(event.get("words"), str)
        if event.get("status") in STATUSES
    ]


def arrays_of(file: Path) -> dict[str, Any]:
    """The arrays in a file that the process wrote; objects aren't unpickled."""
    if not file.is_file():
        raise ValueError("it isn't a file")
    with np.load(file, allow_pickle=False) as arrays:
        if sum(member.file_size for member in arrays.zip.infolist()) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES:,} bytes")
        return dict(arrays)


def mark_task(task: Task, mark: Mark, returned: dict[str, Any]) -> Mark:
    """The mark of a task, from the arrays that its function returned."""
    if mark.status != "returned":
        return mark
    missing = [step for step in task.steps if step not in returned]
    lines = [say("not returned: {steps}", steps=", ".join(missing))] if missing else []
    try:
        verdict = attnlab.check(
            {name: returned[name] for name in task.steps if name in returned}, task.expected
        )
    except attnlab.AttnlabError as error:
        mark.status, mark.words = "wrong", "\n".join([*lines, str(error)])
        return mark
    agreeing = sum(stage.agrees for stage in verdict.stages)
    mark.points = round(task.points * agreeing / len(task.steps), 2)
    mark.status = "correct" if agreeing == len(task.steps) else "wrong"
    mark.words = "\n".join([*lines, verdict.reasons]).strip()
    return mark


def grade_notebook(notebook: Path, seconds: int, megabytes: int) -> Grade:
    """Grade a notebook; if that fails, the grade's status says why."""
    grade = Grade(notebook)
    try:
        if notebook.stat().st_size > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES:,} bytes")
        content = json.loads(notebook.read_text(encoding="utf-8"))
        notebook_cells = [cell for cell in content["cells"] if isinstance(cell, dict)]
        sources = {id_of(cell): text_of(cell) for cell in notebook_cells if id_of(cell)}
    except OSError as error:
        grade.status = f"can't be read: {error.strerror}"
        return grade
    except (ValueError, KeyError, TypeError, RecursionError):
        grade.status = "not a notebook"
        return grade
    numbers = {cell_id[:2] for cell_id in sources}
    known = {chapter.name[:2] for chapter in CHAPTERS} & numbers
    if len(known) != 1:
        grade.status = "no tasks from a chapter" if not known else "tasks from several chapters"
        return grade
    (grade.chapter,) = known
    is_chinese = any('prepare_script("zh")' in text_of(cell) for cell in notebook_cells)
    grade.language = "zh" if is_chinese else "en"
    with using_language(grade.language):
        mark_all(grade, sources, seconds, megabytes)
    return grade


def mark_all(grade: Grade, sources: Mapping[str, str], seconds: int, megabytes: int) -> None:
    """Mark a notebook's tasks and predictions."""
    for cell in published(grade.chapter, grade.language):
        cell_id = id_of({"metadata": cell.metadata})
        if not cell_id:
            continue
        if cell_id not in sources:
            grade.notes.append(say("The cell {cell} is missing.", cell=cell_id))
        if cell_id.endswith("-check"):
            if cell_id in sources and sources[cell_id].strip() != cell.text.strip():
                template = "The cell {cell} was changed; the published one was run."
                grade.notes.append(say(template, cell=cell_id))
        elif cell.is_prose:
            grade.marks.append(mark_prediction(cell_id, cell, sources.get(cell_id)))
    tasks = tasks_of(grade.chapter)
    submitted = {task: sources[task] for task in tasks if task in sources}
    for task, (mark, returned) in run_tasks(grade.chapter, submitted, seconds, megabytes).items():
        grade.marks.append(mark_task(tasks[task], mark, returned))


def text_of(cell: Mapping[str, Any]) -> str:
    source = cell.get("source", "")
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


def mark_prediction(cell_id: str, cell: Cell, text: str | None) -> Mark:
    """The mark of a prediction: its points if something is written."""
    points = cell.metadata["nbgrader"]["points"]
    if text is None:
        return Mark(cell_id, points)
    written = re.sub("<.*?>", "", text).strip()
    for label, request in PREDICTION.values():
        written = written.replace(request, "").removeprefix(label).strip()
    is_written = written not in ("", "YOUR ANSWER HERE")
    return Mark(
        cell_id,
        points,
        points if is_written else 0,
        "written" if is_written else "not written",
        written,
    )


@cache
def answers(number: str, language: str) -> dict[str, str]:
    """The answer to each exercise of a chapter, by the id of its prediction."""
    chapter_cells = for_audience(cells(edition(file_of(number), language)), number, "teacher")
    return {
        id_of({"metadata": cell.metadata}): cell.text
        for cell in chapter_cells
        if cell.is_prose and cell.metadata
    }


def as_code_block(text: str) -> str:
    """Text as a verbatim Markdown block."""
    longest = max([2, *map(len, re.findall("`+", text))])
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def feedback(grade: Grade) -> str:
    """A page of Markdown for a learner."""
    lines = [f"# {grade.notebook.name}", ""]
    if not grade.chapter:
        return "\n".join([*lines, say("Not graded: {status}.", status=grade.status), ""])
    total = {"points": f"{grade.points:g}", "of": grade.max_points}
    lines += [say("Chapter {number}: {points} of {of} points.", number=int(grade.chapter), **total)]
    lines += [""]
    lines += [f"* {note}" for note in grade.notes] + [""] * bool(grade.notes)
    lines += [f"| | {say('points')} | |", "| --- | --- | --- |"]
    for mark in grade.marks:
        score = say("{points} of {of}", points=f"{mark.points:g}", of=mark.max_points)
        lines.append(f"| {mark.name} | {score} | {say(mark.status)} |")
    for mark in grade.marks:
        if mark.words:
            lines += ["", f"## {mark.name}: {say(mark.status)}", "", as_code_block(mark.words)]
        if mark.status == "written":
            lines += ["", answers(grade.chapter, grade.language)[mark.name]]
    return "\n".join([*lines, ""])


def escape_formula(value: str) -> str:
    """A value, quoted if a spreadsheet would read it as a formula."""
    return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def grade_rows(grades: Sequence[Grade]) -> list[dict[str, str]]:
    """A row for each notebook: status, points, mistakes, and the points of each task."""
    rows = []
    for number, grade in enumerate(grades, 1):
        mistakes = [
            f"{mark.name.partition('-')[2]}: {' '.join(mark.words.split())}"
            for mark in grade.marks
            if mark.status not in ("correct", "written", "not written", "missing")
        ]
        rows.append(
            {
                "notebook": escape_formula(str(grade.notebook)),
                "chapter": grade.chapter,
                "status": grade.status,
                "points": f"{grade.points:g}",
                "of": str(grade.max_points),
                "mistakes": escape_formula("; ".join(mistakes)),
                "notes": escape_formula(" ".join(grade.notes)),
                "feedback": f"feedback/{number:03}.md",
                **{mark.name: f"{mark.points:g}" for mark in grade.marks},
            }
        )
    return rows


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Grade notebooks: a table for the class, feedback for each learner."
    )
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--into", type=Path, default=Path("graded"), metavar="DIRECTORY")
    parser.add_argument("--seconds", type=int, default=60, help="limit for each notebook's run")
    parser.add_argument("--megabytes", type=int, default=2048, help="memory limit")
    options = parser.parse_args(arguments)
    grades = []
    (options.into / "feedback").mkdir(parents=True, exist_ok=True)
    for number, notebook in enumerate(options.notebooks, 1):
        try:
            grade = grade_notebook(notebook, options.seconds, options.megabytes)
        except Exception as error:  # the other notebooks are still graded
            grade = Grade(notebook, status=f"not graded: {type(error).__name__}: {error}")
        grades.append(grade)
        page = options.into / "feedback" / f"{number:03}.md"
        with using_language(grade.language):
            page.write_text(feedback(grade), encoding="utf-8")
        points = f"{grade.points:g} of {grade.max_points}"
        print(f"{notebook}: {points if grade.chapter else grade.status}")
    rows = grade_rows(grades)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with (options.into / "grades.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
