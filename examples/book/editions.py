"""The two editions of the book: English chapters, and translations of their prose into Chinese.

A chapter is a script in `# %%` cells. Its Chinese edition has translated prose, strings and
comments. The translations of prose are in `zh/`, in a file with the chapter's name: a text for each
prose cell, in order, under a mark that identifies the English text it translates.

    <!-- 5d3f2a9c -->
    # 3. 亲手算一个注意力头

The mark is the first eight hex digits of the English cell's SHA-256, which shows if a translation
is out of date. Links lead to files of the repository, so that they work on GitHub too; a link to
the playground, which only the book has, leads to what says so, with the book's address as title.
Both editions share the code; `zh/code.po` translates its strings and comments.

    python examples/book/editions.py                 lists what is outdated or untranslated
    python examples/book/editions.py mark 03         marks chapter 3 as up to date
    python examples/book/editions.py write home|learner|teacher DIRECTORY [zh]
                                                     writes every chapter as script and notebook

Notebooks for `home` have a cell for each prediction, and folded answers; those for a `learner` have
no answers and no solutions; those for a `teacher` have the answers in place of the predictions, and
the solutions in place of the empty functions. A function is empty if it raises NotImplementedError;
its solution is in `solutions/`.

Cells of tasks and predictions have nbgrader's metadata, and `teacher` notebooks mark solutions and
tests as nbgrader expects: `nbgrader generate_assignment` takes them, `nbgrader autograde` what
learners hand in, and what the tests print names the mistake (`nbgrader generate_feedback`).
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from posixpath import normpath
from typing import Any

EXAMPLES = Path(__file__).parent.parent
CHAPTERS = sorted(EXAMPLES.glob("[0-9][0-9]_*.py"))
LATER_NAMES = (
    *("llama", "mla", "moe", "edges", "composition", "sparse_autoencoder", "tuned_lens"),
)
LATER = [EXAMPLES / "later" / f"{name}.py" for name in LATER_NAMES]  # without exercises
MARK = re.compile(r"^<!-- ([0-9a-f]{8}|new) -->\n", re.MULTILINE)
LINK = re.compile(r'\]\((?![a-z]+:|#)([^)\s]+)(?: "([^"]+)")?\)')  # to files; its title, if any
TITLED = re.compile(r'\]\([^)\s]+\s+(?:# )?"((?:playground|english)\.html[^"]*)"\)')
START = re.compile(r"# %%( \[markdown\])?\n")  # the first line of a cell

# Strings and comments in code, and their Chinese; empty if the English stays.
TEXT = re.compile(r'"""(.+?)"""|"((?:[^"\\\n]|\\.)*)"|# (.+)')
IN_CHINESE = dict(
    re.findall(
        r'^msgid "(.+)"\nmsgstr "(.*)"$',
        (EXAMPLES / "zh" / "code.po").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
)
SETTING = re.compile(r'^[A-Z_]+(?:: .*?)? \+?= \(?(?:"\w+", )*\Z', re.MULTILINE)  # before a value
FIELD = re.compile(r"\{(?:[^{}]|\{[^}]*\})*\}")
WORDS = re.compile(r"[A-Za-z]\S* +\S*[A-Za-z]")

SOLUTIONS = Path(__file__).parent / "solutions"
AUDIENCES = ("home", "learner", "teacher")

# The beginning of an exercise or a task, in either language, with its number and difficulty.
EXERCISE = re.compile(r"^\*\*(Exercise|Task|练习|任务) (\d+) ?[(（](.+?)[)）]\.?\*\*", re.MULTILINE)
DETAILS = re.compile(r"^<details>.*?^</details>$(?!\n+</details>)", re.MULTILINE | re.DOTALL)
ANSWER = re.compile(r"<details><summary>(Answer|答案)</summary>\s*(.*?)\s*</details>", re.DOTALL)
SOLUTION = re.compile(r"^\[`(\w+)`\]\(book/solutions/chapter_(\d\d)\.py\)$", re.MULTILINE)
CHECKED = re.compile(r"^print\(checked\((\w+), (\w+), (.+)\)\)$", re.MULTILINE)
EMPTY = "raise NotImplementedError"
DIFFICULTIES = {"basic": "基础", "medium": "中等", "hard": "难"}
POINTS = {word: n for n, words in enumerate(DIFFICULTIES.items(), 1) for word in words}
PREDICTION = {
    "Exercise": ("Your prediction:", "(double-click and write it here)"),
    "练习": ("你的预测：", "（双击这里，写下来）"),
}


@dataclass(frozen=True)
class Cell:
    """A cell of a chapter: its prose without the `# ` before each line, or its code."""

    text: str
    is_prose: bool
    metadata: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def mark(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]

    @property
    def heading(self) -> str:
        return self.text.partition("\n")[0]

    def __str__(self) -> str:
        options = "".join(f" {name}={json.dumps(value)}" for name, value in self.metadata.items())
        if not self.is_prose:
            return f"# %%{options}\n{self.text}"
        lines = (f"# {line}".rstrip() for line in self.text.splitlines())
        return f"# %% [markdown]{options}\n" + "".join(f"{line}\n" for line in lines)


def cells(script: str) -> list[Cell]:
    """The cells of a chapter, in order."""
    result = []
    for part in re.split(r"^(?=# %%)", script, flags=re.MULTILINE):
        if not part.strip():
            continue
        start = START.match(part)
        assert start, part
        text = part[start.end() :].strip()
        if start[1]:
            text = "\n".join(line[2:] for line in text.splitlines())
            result.append(Cell(text, True))
        else:
            result.append(Cell(text + "\n", False))
    return result


def prose(script: str) -> list[Cell]:
    """The prose cells of a chapter."""
    return [cell for cell in cells(script) if cell.is_prose]


def file_of(number: str) -> Path:
    """The file of a chapter, by the beginning of its name."""
    (file,) = (file for file in (*CHAPTERS, *LATER) if file.name.startswith(number))
    return file


def translation_of(chapter: Path) -> Path:
    """The file of a chapter's Chinese texts."""
    return chapter.parent / "zh" / f"{chapter.stem}.md"


def link_of_script(match: re.Match[str]) -> str:
    """A translation's link as its script has it, which is one folder up."""
    link, title = match.groups()
    if title:
        return f"]({title})"
    link = re.sub(r"(?<!pages/)zh/(\w+)\.md(?=#|$)", r"\1.py", normpath(f"zh/{link}"))
    return f"]({link})"


def parts_of(translation: str) -> list[tuple[str, str]]:
    """Mark and text of each cell in a file of Chinese texts, with the file's own links."""
    _, *parts = MARK.split(translation)
    return [(mark, text.strip()) for mark, text in zip(parts[::2], parts[1::2], strict=True)]


def texts(translation: str) -> list[tuple[str, str]]:
    """Mark and text of each cell in a file of Chinese texts, with its script's links."""
    return [(mark, LINK.sub(link_of_script, text)) for mark, text in parts_of(translation)]


def stale_headings(script: str, translation: str) -> list[str]:
    """The headings of a chapter's cells whose translations are out of date."""
    english, chinese = prose(script), texts(translation)
    if len(english) != len(chinese):
        return [f"{len(english)} cells of prose in English, {len(chinese)} in Chinese"]
    return [
        cell.heading for cell, (mark, _) in zip(english, chinese, strict=True) if cell.mark != mark
    ]


def marked(script: str, translation: str) -> str:
    """A chapter's Chinese texts, marked as up to date; untranslated ones are marked as new."""
    english, chinese = prose(script), [text for _, text in parts_of(translation)]
    done = [(cell.mark, text) for cell, text in zip(english, chinese, strict=False)]
    untranslated = [("new", text) for text in chinese[len(english) :]]
    untranslated += [("new", cell.text) for cell in english[len(chinese) :]]
    marked_cells = (f"<!-- {mark} -->\n{text}\n" for mark, text in done + untranslated)
    return MARK.split(translation)[0] + "\n".join(marked_cells)


def texts_of_code(script: str) -> list[str]:
    """The strings and comments in a chapter's code."""
    code = (cell.text for cell in cells(script) if not cell.is_prose)
    return [match[match.lastindex or 0] for text in code for match in TEXT.finditer(text)]


def untranslated_texts(script: str) -> list[str]:
    """The strings and comments that have words, but no entry in the catalogue."""
    return [
        text
        for text in dict.fromkeys(texts_of_code(script))
        if WORDS.search(FIELD.sub("", text)) and text not in IN_CHINESE
    ]


def code_in_chinese(code: str) -> str:
    """Code with Chinese strings and comments; what the library prints is Chinese too.

    A setting, such as TASK = "pronoun", keeps its string, which the library knows in English.
    """

    def replacement(match: re.Match[str]) -> str:
        text = match[match.lastindex or 0]
        if SETTING.search(code, 0, match.start()):
            return match[0]
        return match[0].replace(text, IN_CHINESE.get(text) or text)

    return TEXT.sub(replacement, code).replace("prepare_script()", 'prepare_script("zh")')


def translate(script: str, translation: str) -> str:
    """The Chinese edition of a chapter.

    Raises
    ------
    ValueError
        If the numbers of texts and prose cells differ.
    """
    chinese = (text for _, text in texts(translation))
    if len(texts(translation)) != len(prose(script)):
        raise ValueError(stale_headings(script, translation)[0])
    translated_cells = (
        replace(cell, text=next(chinese) if cell.is_prose else code_in_chinese(cell.text))
        for cell in cells(script)
    )
    return "\n".join(map(str, translated_cells))


def edition(chapter: Path, language: str) -> str:
    """The script of a chapter in a language, "en" or "zh"."""
    script = chapter.read_text(encoding="utf-8")
    if language == "en":
        return TITLED.sub(r"](\1)", script)
    return translate(script, translation_of(chapter).read_text(encoding="utf-8"))


def nbgrader(grade_id: str, *, points: int = 0, is_solution: bool = False) -> dict[str, Any]:
    """The metadata of a cell that nbgrader handles: it is graded if it has points."""
    metadata = {
        "schema_version": 3,
        "grade_id": grade_id,
        "grade": points > 0,
        "solution": is_solution,
        "locked": not is_solution,
        "task": False,
    }
    return {"nbgrader": metadata | ({"points": points} if points else {})}


def solution(number: str, name: str) -> tuple[str, ast.FunctionDef]:
    """The file with a chapter's solutions as text, and one of its functions."""
    text = (SOLUTIONS / f"chapter_{number}.py").read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return text, node
    raise LookupError(f"chapter {number} has no solution of {name}")


def with_solutions(text: str) -> str:
    """Prose with the sources of the solutions that it links to."""
    return SOLUTION.sub(
        lambda match: f"```python\n{ast.get_source_segment(*solution(match[2], match[1]))}\n```",
        text,
    )


def empty_function(code: str) -> ast.FunctionDef | None:
    """The function that the learner is to write in a cell, or None."""
    for node in ast.parse(code).body:
        if isinstance(node, ast.FunctionDef) and ast.unparse(node.body[-1]) == EMPTY:
            return node
    return None


def fill_in(code: str, empty: ast.FunctionDef, number: str) -> str:
    """A code cell with the solution in place of the last line of its empty function."""
    text, function = solution(number, empty.name)
    is_documented = ast.get_docstring(function) is not None
    first = function.body[is_documented].lineno
    body = text.splitlines()[first - 1 : function.end_lineno]
    lines = code.splitlines()
    empty_line = empty.body[-1].lineno - 1
    lines[empty_line : empty_line + 1] = ["    ### BEGIN SOLUTION", *body, "    ### END SOLUTION"]
    return "\n".join(lines) + "\n"


def hidden_tests(checked: re.Match[str], number: str, points: int) -> str:
    """nbgrader's tests of a function: points for each step, on numbers that the notebook hides.

    The mistake is printed by the line before them, which learners see and run too.
    """
    _, name, arguments = checked.groups()
    text, _ = solution(number, name)
    marks = (Path(__file__).parent / "marks.py").read_text(encoding="utf-8")
    return (
        "### BEGIN HIDDEN TESTS\n"
        f"hidden = {{}}\nexec({text + marks!r}, hidden)\n"
        f"hidden['marks']({name}, hidden[{name!r}], ({arguments},), {points})  # partial credit\n"
        "### END HIDDEN TESTS\n"
    )


def split_prose(text: str) -> list[str]:
    """Split prose at each exercise and at each folded answer or hint."""
    edges = {0, len(text)}
    edges |= {match.start() for match in EXERCISE.finditer(text)}
    edges |= {edge for match in DETAILS.finditer(text) for edge in match.span()}
    ordered = sorted(edges)
    pieces = (text[start:end].strip() for start, end in pairwise(ordered))
    return [piece for piece in pieces if piece]


def for_audience(chapter_cells: list[Cell], number: str, audience: str) -> Iterator[Cell]:
    """The cells of a chapter for an audience, with exercises and tasks in separate cells."""
    points, task, is_teacher = 0, "", audience == "teacher"
    for cell in chapter_cells:
        if cell.is_prose:
            for part in split_prose(cell.text):
                if exercise := EXERCISE.match(part):
                    points = POINTS[exercise[3]]
                    grade_id = f"{number}-exercise-{exercise[2]}"
                    graded = nbgrader(grade_id, points=points, is_solution=True)
                if audience == "home" or not part.startswith("<details>"):
                    yield replace(cell, text=with_solutions(part))
                elif not ANSWER.match(part):
                    yield Cell(without_solution(part), True)
                elif is_teacher:
                    yield Cell(ANSWER.sub(r"**\1**\n\n\2", part), True, graded)
                if exercise and exercise[1] in PREDICTION and not is_teacher:
                    label = " ".join(PREDICTION[exercise[1]])
                    yield Cell(f'<p class="prediction">{label}</p>', True, graded)
        elif empty := empty_function(cell.text):
            task = f"{number}-{empty.name}"
            text = fill_in(cell.text, empty, number) if is_teacher else cell.text
            yield Cell(text, False, nbgrader(task, is_solution=True))
        elif task and (match := CHECKED.search(cell.text)):
            tests = hidden_tests(match, number, points) if is_teacher else ""
            yield Cell(cell.text + tests, False, nbgrader(f"{task}-check", points=points))
            task = ""
        else:
            yield cell


def without_solution(hints: str) -> str:
    """Hints without the innermost fold, which has the solution."""
    return re.sub(
        r"<details>(?:(?!<details>).)*?\(book/solutions/.*?</details>\n*",
        "",
        hints,
        flags=re.DOTALL,
    )


def cells_for(chapter: Path, language: str, audience: str) -> list[Cell]:
    """The cells of a chapter in a language, for an audience."""
    chapter_cells, number = cells(edition(chapter, language)), chapter.name[:2]
    return [*for_audience(chapter_cells, number, audience)]


def lesson(chapter: Path, language: str, audience: str) -> str:
    """The script of a chapter in a language, for an audience."""
    return "\n".join(map(str, cells_for(chapter, language, audience)))


def notebook(script: str) -> Any:
    """A script as a notebook."""
    import jupytext  # type: ignore[import-untyped]

    result = jupytext.reads(script, fmt="py:percent")
    result.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    return result


def write(audience: str, directory: Path, language: str) -> None:
    """Write every chapter as a script and as a notebook, for an audience and in a language."""
    import jupytext

    directory.mkdir(parents=True, exist_ok=True)
    for chapter in CHAPTERS:
        script = lesson(chapter, language, audience)
        (directory / chapter.name).write_text(script, encoding="utf-8")
        jupytext.write(notebook(script), directory / f"{chapter.stem}.ipynb")


def main(arguments: list[str]) -> int:
    """Run the command described in the module's docstring; exit status 1 if texts are outdated."""
    match arguments:
        case ["write", audience, directory, *rest] if audience in AUDIENCES:
            write(audience, Path(directory), *(rest or ["en"]))
        case ["mark", number]:
            chapter = file_of(number)
            file = translation_of(chapter)
            before = file.read_text(encoding="utf-8") if file.exists() else ""
            file.write_text(marked(chapter.read_text(encoding="utf-8"), before), encoding="utf-8")
        case []:
            problems = 0
            for chapter in (*CHAPTERS, *LATER):
                file = translation_of(chapter)
                translation = file.read_text(encoding="utf-8") if file.exists() else ""
                script = chapter.read_text(encoding="utf-8")
                for heading in stale_headings(script, translation) + untranslated_texts(script):
                    print(f"{chapter.stem}: {heading}")
                    problems += 1
            return int(problems > 0)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
