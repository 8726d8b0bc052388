"""The English model's text: named public sources, cleaned, with one seed.

    python -m attnlab.english.corpus DIRECTORY [--snapshots DIR]

sources.toml names every source: repository, commit, licence, author, translator, years of death.
A snapshot is a git directory DIR/owner+name/repo (or repo/.git); without --snapshots every
repository is cloned from GitHub. The files written to DIRECTORY:

- tatoeba.txt: a sentence a line
- storybooks.txt and books.txt: a paragraph a line, an empty line between documents
- made.txt, made_later.txt and made_last.txt: sentences made on purpose (made.py), one a line
- held_tatoeba.txt and held_stories.txt: never trained on. held_tatoeba.txt beside this module lists
  the sentences, by their letters; the seed draws the books
- attributions.txt: a storybook a line
- sums.txt: sizes, sha256, words of each book. Those of the text that the model in the package was
  trained on are in sources.toml.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import io
import random
import re
import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attnlab.english.made import LAST, LATER, made_sentences

SEED = 1
HERE = Path(__file__).parent
CURLY = 0.12  # of the documents have curly quotes, so that “It’s” is read
RENAMED = 0.85  # of the sentences on Tom (a fifth of Tatoeba) are about somebody else
HELD_BOOKS = 0.015  # of the books' text, in whole books of at most a third of this each
LAST_DEATH = 1954  # authors and translators: in the public domain in Europe since 2025

MALE = """
James Peter David Michael Paul Mark Robert William George Henry Jack Daniel Thomas Sam Ben
Adam Alex Tim Bill Bob Jim Joe Charles Andrew Kevin Steve Eric Simon Harry Leo Max Tony
Frank Fred Nick John Li Wei Kenji Hiroshi Ravi Arjun Omar Ali Hassan Ahmed Kwame Kofi Juma
Carlos Pedro Juan Diego Luis Ivan Boris Pierre Hans Karl Marco Luca Lars Jan
"""
FEMALE = """
Anna Alice Emma Sarah Lucy Jane Kate Linda Susan Lisa Laura Julia Helen Emily Sophie Grace
Amy Betty Nancy Ruth Rose Maria Eva Ellen Carol Lily Mary Mei Yuki Keiko Priya Lakshmi
Fatima Leila Amina Zainab Ama Wanjiru Carmen Lucia Rosa Elena Olga Tanya Marie Greta Ingrid
Chiara
"""

# Sentences on these things are left out of Tatoeba: a model for learners has no use for them.
UNWANTED = re.compile(
    r"\b(sex\w*|rap(e[ds]?|ing|ist)|suicid\w*|hitler|nazis?|porn\w*|prostitut\w*|whores?|sluts?"
    r"|bitch\w*|nigg\w*|fag(got)?s?|chinks?|japs?|retard(s|ed)?|fuck\w*|shit\w*|cunts?|heroin"
    r"|cocaine|marijuana|drugs|kill(s|ed|ing|er|ers)?|murder\w*|stabb\w*|strangl\w*|tortur\w*"
    r"|genocid\w*|terroris\w*|naked|nude)\b",
    re.IGNORECASE,
)
# So are paragraphs of old books with racial slurs.
SLURS = re.compile(
    r"\b(nigg\w*|dark(y|ie|ies|eys?)|coons?|pickaninn\w*|piccaninn\w*|chinam[ae]n|chinks?|japs?"
    r"|dag(o|os|oes)|kikes?|sheen(y|ies)|redskins?|squaws?|half-?breeds?|injuns?|greasers?|negr\w*"
    r"|blackamoors?|mulatto\w*|octoroon\w*|wops?|spics?|gypp?(ed|ing)|kaffirs?|hottentots?|yids?)\b",
    re.IGNORECASE,
)

# A file of a Standard Ebooks edition that isn't a chapter.
APART = re.compile(
    "colophon|imprint|titlepage|uncopyright|halftitle|loi|endnotes|toc|dedication|epigraph|preface"
    "|intro"
)

PLAIN = {
    **dict.fromkeys(map(ord, "\u2060\ufeff\u00ad\u200b\ufffd"), None),
    **dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2009\u200a\u202f\u2028\u2029\t"), " "),
    **dict.fromkeys(map(ord, "‘’"), "'"),
    **dict.fromkeys(map(ord, "“”"), '"'),
    **dict.fromkeys(map(ord, "‐‑–"), "-"),
    **dict.fromkeys(map(ord, "⸺⸻"), "—"),
    ord("…"): "...",
}


def git_directory(snapshots: Path | None, repository: str, scratch: Path) -> Path:
    """The git directory of a snapshot, or of a bare clone made in `scratch`."""
    if snapshots is not None:
        directory = snapshots / repository.replace("/", "+") / "repo"
        return directory / ".git" if (directory / ".git").is_dir() else directory
    directory = scratch / repository.replace("/", "+")
    if not directory.is_dir():
        address = f"https://github.com/{repository}"
        subprocess.run(["git", "clone", "--quiet", "--bare", address, str(directory)], check=True)
    return directory


def read(git: Path, commit: str, path: str) -> dict[str, bytes]:
    """The files at or under a path of a commit, chapter-2 before chapter-10."""
    command = ["git", f"--git-dir={git}", "archive", "--format=tar", commit, path]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        texts = {name: file.read() for name, file in files.items() if file is not None}

    def by_number(name: str) -> list[str]:
        return [s.zfill(9) if s.isdigit() else s for s in re.split(r"(\d+)", name)]

    return {name: texts[name] for name in sorted(texts, key=by_number)}


def old_text(data: bytes) -> str:
    """Decode a file whose name doesn't say how: UTF-8, or Windows' Latin letters and quotes."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def plain(text: str) -> str:
    """Straight quotes, ordinary spaces, one line."""
    return re.sub(r" +", " ", html.unescape(text).translate(PLAIN).replace("\n", " ")).strip()


def curly(text: str) -> str:
    """Straight quotes made curly."""
    text = re.sub(r"(?<=\w)'(?=\w)", "’", text)
    text = re.sub(r'(^|[\s(—\'])"', r"\1“", text, flags=re.MULTILINE).replace('"', "”")
    return re.sub(r"(^|[\s(—“])'", r"\1‘", text, flags=re.MULTILINE).replace("'", "’")


def rename(sentence: str, generator: random.Random) -> str:
    """Tom, Mary and John as other people, the same throughout the sentence."""
    names = set(re.findall(r"\b(?:Tom|Mary|John)\b", sentence))
    others: dict[str, str] = {}
    for name in sorted(names):
        if generator.random() < RENAMED:
            taken = {*others.values(), *names}
            people = (FEMALE if name == "Mary" else MALE).split()
            pool = [other for other in people if other not in taken]
            others[name] = generator.choice(pool)
    return re.sub(r"\b(Tom|Mary|John)\b", lambda found: others.get(found[1], found[1]), sentence)


def key(sentence: str) -> str:
    """What two copies of a sentence have in common: letters and digits."""
    return re.sub(r"[^a-z0-9 ]", "", sentence.lower())


def tatoeba(archives: Iterable[bytes]) -> list[str]:
    """The English side of pair files, each sentence once, the unwanted ones left out."""
    sentences: dict[str, str] = {}
    for archive in archives:
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            for name in sorted(files.namelist()):
                if not name.endswith(".txt") or "_about" in name or "__MACOSX" in name:
                    continue
                for line in files.read(name).decode().splitlines():
                    sentence = plain(line.split("\t")[0])
                    foreign = any(ord(c) > 0x17F and c not in "—€£°" for c in sentence)
                    unwanted = UNWANTED.search(sentence) or SLURS.search(sentence)
                    if key(sentence) and not foreign and not unwanted:
                        sentences.setdefault(key(sentence), sentence)
    return list(sentences.values())


def storybook(text: str, licences: Iterable[str]) -> tuple[str, str] | None:
    """A storybook's text and its attribution; None if its licence isn't among those allowed."""
    licence = re.search(r"\* License: \[([^\]]*)\]", text)
    if licence is None or licence[1] not in licences:
        return None
    story, credits = text.split("\n* License", 1)
    title = re.match(r"# (.*)", story)
    pages = [re.sub(r"[*_#]", "", plain(page)).strip() for page in re.split(r"\n##\n|\n\n", story)]
    pages = [page for page in pages[1:] if page]  # the first is the title
    if not pages or sum(ord(c) > 0x24F for c in "".join(pages)) > 20:
        return None
    paragraphs = "\n".join(" ".join(pages[i : i + 4]) for i in range(0, len(pages), 4))
    who = "; ".join(re.findall(r"\* ((?:Text|Translation|Adaptation): .*)", credits))
    return paragraphs, f"{title[1] if title else '?'} ({licence[1]}) {who}"


def paragraphs_kept(paragraphs: Iterable[str]) -> list[str]:
    """A book's paragraphs without those of Project Gutenberg or with a slur."""
    return [p for p in paragraphs if len(p) > 1 and "Gutenberg" not in p and not SLURS.search(p)]


def standard_ebook(files: dict[str, bytes]) -> list[str]:
    """Chapters of a Standard Ebooks edition, one a file, without notes."""
    chapters = []
    for name, content in files.items():
        if not APART.match(Path(name).name):
            text = re.sub(r"<a [^>]*noteref[^>]*>.*?</a>", "", content.decode(), flags=re.DOTALL)
            found = re.findall(r"<p\b[^>]*>(.*?)</p>", text, flags=re.DOTALL)
            # A line break is in verse.
            lines = (re.sub(r"<[^>]+>", " " if "<br" in p else "", p) for p in found)
            chapters.append("\n".join(paragraphs_kept(map(plain, lines))))
    return chapters


def project_gutenberg(text: str) -> list[str]:
    """Chapters of a Project Gutenberg text, cut at its headings."""
    text = re.split(r"\*\*\* ?START OF.*?\*\*\*", text.replace("\r", ""), flags=re.DOTALL)[-1]
    text = re.split(r"\*\*\* ?END OF|End of (?:the |this )?Project Gutenberg", text)[0]
    text = re.sub(r"\[(?:Illustration|Footnote|Transcriber)[^\]]*\]", "", text).replace("--", "—")
    text = text.replace("_", "").replace("=", "")
    chapters: list[list[str]] = [[]]
    after_heading = False
    for paragraph in map(plain, re.split(r"\n\s*\n", text)):
        ends = re.search(r"[.!?:;,\"')—-]$", paragraph)
        if not ends or paragraph.isupper() or re.match(r"chapter\b", paragraph, re.IGNORECASE):
            after_heading = True
        else:
            if after_heading:
                chapters.append([])
            chapters[-1].append(paragraph)
            after_heading = False
    # Front matter and contents are short; a chapter isn't.
    return ["\n".join(kept) for kept in map(paragraphs_kept, chapters) if sum(map(len, kept)) > 600]


def is_free(book: dict[str, Any]) -> bool:
    """Whether a book's author and translator are named and dead long enough."""
    people = [book.get("died")]
    if "translator" in book:
        people.append(book.get("translator_died"))
    return all(isinstance(year, int) and year <= LAST_DEATH for year in people)


def held_out_books(
    books: dict[str, list[str]], candidates: Iterable[str], generator: random.Random
) -> list[str]:
    """Short books drawn from the candidates, to about HELD_BOOKS of all text."""
    room = HELD_BOOKS * sum(len(chapter) for chapters in books.values() for chapter in chapters)
    order = sorted(name for name in candidates if sum(map(len, books[name])) <= room / 3)
    generator.shuffle(order)
    held = []
    for name in order:
        size = sum(map(len, books[name]))
        if size <= room:
            held.append(name)
            room -= size
    return held


def build(
    directory: Path, snapshots: Path | None = None, table: Path = HERE / "sources.toml"
) -> str:
    """Write all files in a directory, created if needed; return sums.txt."""
    directory.mkdir(parents=True, exist_ok=True)
    sources = tomllib.loads(table.read_text(encoding="utf-8"))
    generator = random.Random(SEED)

    def files(source: dict[str, Any]) -> dict[str, bytes]:
        git = git_directory(snapshots, source["repository"], directory / "clones")
        return read(git, source["commit"], source["path"])

    def dressed(documents: Iterable[str]) -> list[str]:
        return [curly(text) if generator.random() < CURLY else text for text in documents if text]

    sentences = tatoeba(
        archive for pairs in sources["tatoeba"] for archive in files(pairs).values()
    )
    generator.shuffle(sentences)
    held_keys = set((table.parent / "held_tatoeba.txt").read_text(encoding="utf-8").split("\n"))
    named = [(key(s) in held_keys, rename(s, generator)) for s in sentences]
    held_sentences = dressed(s for held, s in named if held)
    # A sentence can become one that is held out when its names change.
    taken = set(map(key, held_sentences))
    sentences = dressed(s for held, s in named if not held and key(s) not in taken)

    stories, credits = [], []
    for source in sources["storybooks"]:
        for name, content in files(source).items():
            found = storybook(content.decode(), source["licences"])
            if found is not None:
                stories.append(found[0])
                credits.append(f"{source['repository']} {name}: {found[1]}")

    books: dict[str, list[str]] = {}
    new = []
    for source in filter(is_free, sources["books"]):
        name, chapters = source["repository"], files(source)
        if source["path"].endswith(".txt"):
            books[name] = project_gutenberg(old_text(chapters[source["path"]]))
        else:
            books[name] = standard_ebook(chapters)
        if not source.get("prototype"):
            new.append(name)
    held = held_out_books(books, new, generator)
    trained = dressed(chapter for name in books if name not in held for chapter in books[name])
    held_chapters = dressed(chapter for name in held for chapter in books[name])
    generator.shuffle(stories)
    generator.shuffle(trained)

    texts = {
        "tatoeba.txt": "\n".join(sentences),
        "storybooks.txt": "\n\n".join(dressed(stories)),
        "books.txt": "\n\n".join(trained),
        "made.txt": "\n".join(made_sentences(generator)),
        "made_later.txt": "\n".join(made_sentences(generator, LATER)),
        "made_last.txt": "\n".join(made_sentences(generator, LAST)),
        "held_tatoeba.txt": "\n".join(held_sentences),
        "held_stories.txt": "\n\n".join(held_chapters),
        "attributions.txt": "\n".join(credits),
    }
    sums = []
    for name, text in texts.items():
        data = f"{text}\n".encode()
        (directory / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        sums.append(f"{digest}  {name}  {len(data)} bytes  {len(text.split())} words")
    sums += [f"held out: {name}" for name in held]
    sums += [f"{len(' '.join(books[name]).split())} words of {name}" for name in books]
    (directory / "sums.txt").write_bytes(("\n".join(sums) + "\n").encode())
    return "\n".join(sums)


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--snapshots", type=Path)
    arguments = parser.parse_args()
    print(build(arguments.directory, arguments.snapshots))


if __name__ == "__main__":
    main()
