"""Notebooks that are handed in: right, wrong, unfinished, endless, damaged, and tampered with."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from book import CHAPTERS
from editions import PREDICTION, SOLUTIONS, cells, edition, fill_in, for_audience
from grade import (
    MAX_BYTES,
    arrays_of,
    escape_formula,
    events_of,
    id_of,
    isolated_command,
    main,
    tasks_of,
)

NBFORMAT = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}}


def notebook_of(number: str, audience: str = "learner", language: str = "en") -> dict[str, Any]:
    """A chapter's notebook as an audience has it."""
    (chapter,) = (path for path in CHAPTERS if path.name.startswith(number))
    every = for_audience(cells(edition(chapter, language)), number, audience)
    return NBFORMAT | {
        "cells": [
            {
                "cell_type": "markdown" if cell.is_prose else "code",
                "metadata": dict(cell.metadata),
                "source": cell.text.splitlines(keepends=True),
            }
            for cell in every
        ]
    }


def cell_of(notebook: dict[str, Any], grade_id: str) -> dict[str, Any]:
    (actual,) = (cell for cell in notebook["cells"] if id_of(cell) == grade_id)
    return actual  # type: ignore[no-any-return]


def solved(number: str, *changes: tuple[str, str], language: str = "en") -> dict[str, Any]:
    """A chapter's notebook with all functions written, and pieces of them replaced."""
    notebook = notebook_of(number, language=language)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["source"] = fill_in("".join(cell["source"]), number)
            for old, new in changes:
                cell["source"] = cell["source"].replace(old, new)
    return notebook


def grade_notebooks(tmp_path: Path, *notebooks: object, seconds: int = 60) -> list[dict[str, str]]:
    """The rows of the table for some notebooks, with their feedback."""
    files = []
    for number, notebook in enumerate(notebooks):
        files.append(tmp_path / f"{number}.ipynb")
        text = notebook if isinstance(notebook, str) else json.dumps(notebook)
        files[-1].write_text(text, encoding="utf-8")
    into = tmp_path / "graded"
    arguments = [*map(str, files), "--into", str(into), "--seconds", str(seconds)]
    assert main(arguments) == 0
    with (into / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(files)
    return [row | {"page": (into / row["feedback"]).read_text("utf-8")} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("solution", sorted(SOLUTIONS.glob("*.py")), ids=lambda file: file.stem)
def test_reference_solutions_pass(solution: Path, tmp_path: Path) -> None:
    number = solution.stem[-2:]
    (row,) = grade_notebooks(tmp_path, solved(number))
    tasks = tasks_of(number)
    assert len(tasks) >= 1
    assert row["status"] == "graded"
    assert row["mistakes"] == row["notes"] == ""
    assert {task: row[task] for task in tasks} == {
        task: str(item.points) for task, item in tasks.items()
    }


def test_predictions_score_points(tmp_path: Path) -> None:
    notebook = notebook_of("10")
    label, request = PREDICTION["Exercise"]
    cell_of(notebook, "10-exercise-2")["source"] = f"{label} the ```last``` row"
    cell_of(notebook, "10-exercise-3")["source"] = f"{label} {request}"
    cell_of(notebook, "10-exercise-4")["source"] = "YOUR ANSWER HERE"
    (row,) = grade_notebooks(tmp_path, notebook)
    assert (row["10-exercise-2"], row["10-exercise-3"], row["10-exercise-4"]) == ("2", "0", "0")
    assert (row["points"], row["mistakes"]) == ("2", "")
    assert "| 10-my_cross_attention | 0 of 2 | not written |" in row["page"]
    assert "| 10-exercise-1 | 0 of 2 | not written |" in row["page"]
    assert "````text\nthe ```last``` row\n````" in row["page"]
    assert '"chats" falls to 0.0286, the same as' in row["page"]


@pytest.mark.parametrize(
    ("old", "new", "points", "mistake"),
    [
        ('"scores": scores, ', "", "1.6", "not returned: scores"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("    scores =", "    exit()\n    scores =", "0", "SystemExit"),
                ("weights @ V}", "{1}}", "0", "the values of the dict must be arrays of numbers"),
                ("np.exp(", "np.exp((", "0", "SyntaxError"),
                ("    return {", "    return 3, {", "0", "returned tuple; expected a dict"),
            ]
        ),
    ],
)
def test_mistakes_are_identified(
    old: str, new: str, points: str, mistake: str, tmp_path: Path
) -> None:
    (row,) = grade_notebooks(tmp_path, solved("10", (old, new)))
    assert row["status"] == "graded"
    assert row["10-my_cross_attention"] == points
    assert mistake in row["page"]
    assert mistake in row["mistakes"]
    assert row["mistakes"].startswith("my_cross_attention: ")


def test_a_chinese_notebook_gets_chinese_feedback(tmp_path: Path) -> None:
    notebook = solved("10", ("K.shape[1] ** 0.5", "K.shape[1]"), language="zh")
    cell_of(notebook, "10-exercise-2")["source"] = "你的预测： 更小"
    chinese, english = grade_notebooks(tmp_path, notebook, notebook_of("10"))
    assert chinese["notes"] == ""  # cells with Chinese strings are as handed out
    assert chinese["10-my_cross_attention"] == "0.8"
    assert "第 10 章：" in chinese["page"]
    assert "| 10-my_cross_attention | 0.8 / 2 | 有误 |" in chinese["page"]
    assert "没有开平方，或者重复除以了 √Dk。请除以 √Dk，只除一次。" in chinese["page"]
    assert "**答案**" in chinese["page"]
    assert (english["points"], english["mistakes"]) == ("0", "")
    assert "| 10-my_cross_attention | 0 of 2 | not written |" in english["page"]


def stopping(line: str) -> dict[str, Any]:
    """Chapter 10's notebook, with a line that stops what follows it."""
    return solved("10", ("    scores =", f"    {line}\n    scores ="))


@pytest.mark.slow
def test_ungradable_notebooks_are_reported_and_others_graded(tmp_path: Path) -> None:
    endless, hungry, crash, fine = grade_notebooks(
        tmp_path,
        stopping("while True: pass"),
        stopping("hungry = np.ones((1 << 31, 8))"),
        stopping("import os; os._exit(0)"),
        solved("10"),
        seconds=10,
    )
    assert "The function didn't finish within 10 seconds." in endless["mistakes"]
    assert "needs more memory than allowed" in hungry["mistakes"]
    assert "The function ended the whole process." in crash["mistakes"]
    assert fine["10-my_cross_attention"] == "2"


@pytest.mark.slow
def test_endless_tasks_do_not_affect_other_tasks(tmp_path: Path) -> None:
    change = ("token_embedding, position_embedding = W_E", "while True: pass\n    a, b = W_E")
    (row,) = grade_notebooks(tmp_path, solved("08", change), seconds=15)
    assert (row["08-my_embedding"], row["08-my_logits"]) == ("0", "2")
    assert "| 08-my_embedding | 0 of 1 | time limit |" in row["page"]


@pytest.mark.skipif(not isolated_command(), reason="this system has no namespaces for a user")
def test_no_network(tmp_path: Path) -> None:
    ask = "import socket; socket.create_connection(('1.1.1.1', 53), 2)"
    (row,) = grade_notebooks(tmp_path, stopping(ask))
    assert "Network is unreachable" in row["mistakes"]


def test_invalid_notebooks(tmp_path: Path) -> None:
    of_two = notebook_of("04")
    of_two["cells"] += notebook_of("08")["cells"]
    strange = {"cells": [3, {"metadata": 4}, {"metadata": {"nbgrader": {"grade_id": ["04"]}}}]}
    rows = grade_notebooks(
        tmp_path,
        "",
        "[]",
        "{",
        '{"cells": 3}',
        "[" * 100_000,
        NBFORMAT | {"cells": []},
        strange,
        of_two,
        solved("10"),
    )
    statuses = [row["status"] for row in rows]
    assert statuses[:5] == ["not a notebook"] * 5
    assert statuses[5:] == ["no tasks from a chapter"] * 2 + [
        "tasks from several chapters",
        "graded",
    ]
    assert "Not graded: not a notebook." in rows[0]["page"]
    assert rows[-1]["10-my_cross_attention"] == "2"


def test_missing_notebook(tmp_path: Path) -> None:
    assert main([str(tmp_path / "none.ipynb"), "--into", str(tmp_path / "to")]) == 0
    assert "can't be read: No such file" in (tmp_path / "to" / "grades.csv").read_text("utf-8-sig")


def test_tampering(tmp_path: Path) -> None:
    """Changed tests don't run; a replaced check doesn't matter; missing cells are reported."""
    notebook = solved(
        "10", ("    Q, K, V", "    import attnlab; attnlab.check = print\n    Q, K, V")
    )
    cell_of(notebook, "10-my_cross_attention-check")["source"] = "print('5 of 5 steps agree')"
    notebook["cells"].remove(cell_of(notebook, "10-exercise-1"))
    stub = solved("10", (" / K.shape[1] ** 0.5", ""))
    cell_of(stub, "10-my_cross_attention-check")["source"] = "pass"
    missing = solved("10")
    missing["cells"].remove(cell_of(missing, "10-my_cross_attention"))
    right, wrong, none = grade_notebooks(tmp_path, notebook, stub, missing)
    assert right["10-my_cross_attention"] == "2"
    assert "10-my_cross_attention-check was changed; the published one was run." in right["notes"]
    assert "The cell 10-exercise-1 is missing." in right["notes"]
    assert wrong["10-my_cross_attention"] == "0.8"
    assert wrong["mistakes"].startswith("my_cross_attention: ")
    assert "scores = raw_scores" in wrong["mistakes"]
    assert none["10-my_cross_attention"] == "0"
    assert "| 10-my_cross_attention | 0 of 2 | missing |" in none["page"]


def test_csv_cells_are_not_formulas() -> None:
    assert [escape_formula(text) for text in ("=1", "+1", "-1", "@a", "a=1")] == [
        "'=1",
        "'+1",
        "'-1",
        "'@a",
        "a=1",
    ]


def test_forged_events_are_ignored(tmp_path: Path) -> None:
    """Only predictions are "written", and have an answer in feedback."""
    task = "10-my_cross_attention"
    lines = [{"task": task, "status": status, "words": ""} for status in ("written", "finished")]
    added = (
        f"import json, os; print(*map(json.dumps, {lines}), sep=chr(10), "
        'file=open("events.jsonl", "a"), flush=True); os._exit(0)\n'
    )
    cheating = solved("10", ("    scores =", f"    {added}    scores ="))
    (row,) = grade_notebooks(tmp_path, cheating)
    assert row[task] == "0"


def test_malformed_events_and_files_are_ignored(tmp_path: Path) -> None:
    event = {"task": "a", "status": "started", "words": ""}
    odd = [3, {}, event | {"task": [1]}, event | {"words": 3}, event | {"status": "right"}]
    deep = "[" * 100_000
    lines = [deep, "nothing", *map(json.dumps, [*odd, event])]
    (tmp_path / "events.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert events_of(tmp_path) == [event]
    (tmp_path / "events.jsonl").unlink()
    os.mkfifo(tmp_path / "events.jsonl")
    assert events_of(tmp_path) == []
    with pytest.raises(ValueError, match="isn't a file"):
        arrays_of(tmp_path / "events.jsonl")
    np.savez_compressed(tmp_path / "large.npz", x=np.zeros(MAX_BYTES, np.uint8))
    with pytest.raises(ValueError, match="larger than 20,000,000 bytes"):
        arrays_of(tmp_path / "large.npz")
