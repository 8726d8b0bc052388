"""The two editions of the book: English chapters, and Chinese texts for their prose.

A chapter is a script in `# %%` cells, its Chinese edition the same code with other prose. That
prose is in `zh/`, in a file of the chapter's name: a text for each cell of prose, in their order,
under a mark that tells which English it says.

    <!-- 5d3f2a9c -->
    # 3. 亲手算一个注意力头

The mark is of the English cell's SHA-256 the first eight hex digits, so that a Chinese text is
known to be older than its English.

    python examples/book/editions.py                        which Chinese texts are to be gone over
    python examples/book/editions.py mark 03                those of chapter 3 have been gone over
    python examples/book/editions.py write DIRECTORY [zh]   every chapter as script and notebook
"""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent
CHAPTERS = sorted(EXAMPLES.glob("[0-9][0-9]_*.py"))
MARK = re.compile(r"^<!-- ([0-9a-f]{8}|new) -->\n", re.MULTILINE)
PROSE = "# %% [markdown]\n"


@dataclass(frozen=True)
class Cell:
    """A cell of a chapter: its prose without the `# ` before each line, or its code."""

    text: str
    is_prose: bool

    @property
    def mark(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]

    @property
    def heading(self) -> str:
        return self.text.partition("\n")[0]

    def __str__(self) -> str:
        if not self.is_prose:
            return f"# %%\n{self.text}"
        lines = (f"# {line}".rstrip() for line in self.text.splitlines())
        return PROSE + "".join(f"{line}\n" for line in lines)


def cells(script: str) -> list[Cell]:
    """The cells of a chapter, in their order."""
    found = []
    for part in re.split(r"^(?=# %%)", script, flags=re.MULTILINE):
        if part.startswith(PROSE):
            lines = part.removeprefix(PROSE).strip().splitlines()
            found.append(Cell("\n".join(line[2:] for line in lines), is_prose=True))
        elif part.strip():
            found.append(Cell(part.removeprefix("# %%").strip() + "\n", is_prose=False))
    return found


def prose(script: str) -> list[Cell]:
    """The cells of a chapter that are prose."""
    return [cell for cell in cells(script) if cell.is_prose]


def translation_of(chapter: Path) -> Path:
    """The file of a chapter's Chinese texts."""
    return chapter.parent / "zh" / f"{chapter.stem}.md"


def texts(translation: str) -> list[tuple[str, str]]:
    """Mark and text of each cell in a file of Chinese texts."""
    _, *parts = MARK.split(translation)
    return [(mark, text.strip()) for mark, text in zip(parts[::2], parts[1::2], strict=True)]


def stale(script: str, translation: str) -> list[str]:
    """What of a chapter's Chinese is not known to say what the English says: cells, in words."""
    english, chinese = prose(script), texts(translation)
    if len(english) != len(chinese):
        return [f"{len(english)} cells of prose in English, {len(chinese)} in Chinese"]
    return [
        cell.heading for cell, (mark, _) in zip(english, chinese, strict=True) if cell.mark != mark
    ]


def marked(script: str, translation: str) -> str:
    """A chapter's Chinese texts, marked as saying what the English says; new ones to be written."""
    english, chinese = prose(script), [text for _, text in texts(translation)]
    done = [(cell.mark, text) for cell, text in zip(english, chinese, strict=False)]
    to_come = [("new", text) for text in chinese[len(english) :]]
    to_come += [("new", cell.text) for cell in english[len(chinese) :]]
    return "\n".join(f"<!-- {mark} -->\n{text}\n" for mark, text in done + to_come)


def translated(script: str, translation: str) -> str:
    """The Chinese edition of a chapter: its code, and the Chinese prose.

    Raises
    ------
    ValueError
        There are not as many texts as cells of prose.
    """
    chinese = (text for _, text in texts(translation))
    if len(texts(translation)) != len(prose(script)):
        raise ValueError(stale(script, translation)[0])
    every = (Cell(next(chinese), True) if cell.is_prose else cell for cell in cells(script))
    return "\n".join(map(str, every))


def edition(chapter: Path, language: str) -> str:
    """The script of a chapter in a language, "en" or "zh"."""
    script = chapter.read_text(encoding="utf-8")
    if language == "en":
        return script
    return translated(script, translation_of(chapter).read_text(encoding="utf-8"))


def write(directory: Path, language: str) -> None:
    """Every chapter as a script and as a notebook, in a language."""
    import jupytext  # type: ignore[import-untyped]

    directory.mkdir(parents=True, exist_ok=True)
    for chapter in CHAPTERS:
        script = edition(chapter, language)
        (directory / chapter.name).write_text(script, encoding="utf-8")
        notebook = jupytext.reads(script, fmt="py:percent")
        jupytext.write(notebook, directory / f"{chapter.stem}.ipynb")


def main(arguments: list[str]) -> int:
    """What the module's text says; the exit status, 1 where texts are to be gone over."""
    match arguments:
        case ["write", directory, *rest]:
            write(Path(directory), *(rest or ["en"]))
        case ["mark", number]:
            (chapter,) = (one for one in CHAPTERS if one.name.startswith(number))
            file = translation_of(chapter)
            before = file.read_text(encoding="utf-8") if file.exists() else ""
            file.write_text(marked(chapter.read_text(encoding="utf-8"), before), encoding="utf-8")
        case []:
            found = 0
            for chapter in CHAPTERS:
                file = translation_of(chapter)
                there = file.read_text(encoding="utf-8") if file.exists() else ""
                for heading in stale(chapter.read_text(encoding="utf-8"), there):
                    print(f"{chapter.stem}: {heading}")
                    found += 1
            return int(found > 0)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
