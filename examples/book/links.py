"""Links in the book's sources, which lead to files of the repository, become links in the book."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from editions import CHAPTERS, EXAMPLES, LATER

ROOT = EXAMPLES.parent
LINK = re.compile(r'\[([^\]]*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?:\s"(\S+)")?\)')
PLAYGROUND = re.compile(r'<a href="((?:playground|english)\.html#.*?)">((?:.|\n)*?)</a>')
PARAGRAPH = re.compile(r".+(?:\n.+)*")
CODE = re.compile(r"`(?:attnlab\.)?(\w+)`")


def address(file: Path, language: str) -> str | None:
    """Where the book in a language has a file of the repository, as a page or a notebook."""
    stems = {chapter.stem for chapter in (*CHAPTERS, *LATER)}
    folders = {"examples", "zh", "en", "README"}
    path = file.relative_to(ROOT).as_posix()
    match path.split("/"):
        case ["attnlab", "__init__.py"]:
            return "api.md" if language == "en" else "../en/api.html"
        case ["attnlab", *_]:
            return f"../en/_modules/{path.removesuffix('.py')}.html"
        case ["examples", "book", "pages", edition, name]:
            return name if edition == language else f"../{edition}/{file.stem}.html"
        case ["examples"] | ["examples", "zh" | "notebooks", *_] if file.stem in folders:
            edition = "zh" if "zh" in path else "en"
            return "index.md" if edition == language else f"../{edition}/index.html"
        case ["examples", *_] if file.stem in stems | {"walkthrough"}:
            return f"{file.stem}.ipynb"
    return None


def in_book(text: str, folder: Path, language: str) -> str:
    """Markdown of a file in a folder, as the book in a language has it.

    A link to what only the book has names it in its title. The playground is also shown in a frame
    below the paragraph.
    """

    def link(match: re.Match[str]) -> str:
        label, path, anchor, title = match.groups(default="")
        file = (folder / path).resolve()
        to = address(file, language) if file.is_relative_to(ROOT) else None
        to = title or (to or path) + anchor
        if not re.search(r"\.html(#|$)", to):
            return f"[{label}]({to})"
        if name := CODE.fullmatch(label):
            return f'<a href="{to}#{name[1]}"><code>{name[1]}</code></a>'
        return f'<a href="{to}">{escape(label)}</a>'

    def with_frames(match: re.Match[str]) -> str:
        return match[0] + "".join(
            f'\n\n<iframe class="playground" src="{to}" title="{label}" loading="lazy"></iframe>'
            for to, label in PLAYGROUND.findall(match[0])
        )

    return PARAGRAPH.sub(with_frames, LINK.sub(link, text))
