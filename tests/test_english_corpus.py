"""The English model's text, from a small repository written here."""

import io
import random
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from attnlab.english import made
from attnlab.english.corpus import build, curly, is_free, plain, project_gutenberg, rename
from attnlab.english.sentences import PRONOUNS, minimal_pairs, pronoun_sentences

SENTENCES = [
    "Tom said that Tom likes Mary.\tTom dit que Tom aime Mary.",
    "Go.\tVa !",
    "GO!\tAllez !",
    "It’s cold\u00a0today.\tIl fait froid.",
    "He was killed.\tIl a été tué.",
    "I know this held sentence.\tJe la connais.",
    *(f"Tom's got {n} apples.\tTom a {n} pommes." for n in range(100)),
]
STORY = """# The Hen
##
A *hen* runs.

##
She runs home.

##
* License: [{licence}]
* Text: A. Writer
* Illustration: B. Painter
* Language: en
"""
CHAPTER = """<html><body><h2>One</h2><p>“Hello,”<br/>
said the <i>fox</i>{name}.<a href="n" epub:type="noteref">1</a></p>
<p>The injun spoke.</p></body></html>"""
GUTENBERG = """Title: A Book
*** START OF THIS PROJECT GUTENBERG EBOOK A BOOK ***

Produced by Somebody.

Contents

  1. The _Wolf_

CHAPTER I

THE WOLF

%s

THE OTHER'S TALE

%s
*** END OF THIS PROJECT GUTENBERG EBOOK A BOOK ***
License."""

TABLE = """
[[tatoeba]]
repository = "o/all"
commit = "COMMIT"
path = "pairs.zip"

[[storybooks]]
repository = "o/all"
commit = "COMMIT"
path = "en"
licences = ["CC-BY"]
"""
BOOK = """
[[books]]
repository = "o/book{number}"
commit = "COMMIT"
path = "src/epub/text"
died = {died}
{more}
"""


def written(files, directory):
    """A git repository with these files, and its commit."""

    def git(*arguments):
        command = [
            "git",
            "-C",
            str(directory),
            "-c",
            "user.name=n",
            "-c",
            "user.email=e",
            *arguments,
        ]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    directory.mkdir(parents=True)
    git("init", "--quiet")
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    git("add", ".")
    git("commit", "--quiet", "--message", "files")
    return git("rev-parse", "HEAD")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The corpus, built twice from the same repositories: directories `one` and `two`."""
    root = tmp_path_factory.mktemp("english")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as pairs:
        pairs.writestr("fra.txt", "\n".join(SENTENCES))
        pairs.writestr("_about.txt", "About these files.")
    files = {
        "pairs.zip": archive.getvalue(),
        "en/1.md": STORY.format(licence="CC-BY").encode(),
        "en/2.md": STORY.replace("hen", "cow").format(licence="CC-BY-NC").encode(),
        "en/README.md": b"Stories",
    }
    commit = written(files, root / "snapshots" / "o+all" / "repo")
    table = TABLE.replace("COMMIT", commit)
    years = [(1900, ""), (1960, ""), (1900, "prototype = true"), (1900, 'translator = "T"')]
    years += [(1954, 'translator = "T"\ntranslator_died = 1930')] * 6
    for number, (died, more) in enumerate(years):
        name = f" number {number}"
        chapters = {
            f"src/epub/text/chapter-{n}.xhtml": CHAPTER.format(name=f"{name} {n}").encode()
            for n in (2, 10)
        }
        if number == 0:
            chapters["src/epub/text/long.xhtml"] = b"<p>A long chapter.</p>" * 1_000
        chapters["src/epub/text/colophon.xhtml"] = b"<p>Made by somebody.</p>"
        commit = written(chapters, root / "snapshots" / f"o+book{number}" / "repo")
        table += BOOK.replace("COMMIT", commit).format(number=number, died=died, more=more)
    (root / "sources.toml").write_text(table)
    (root / "held_tatoeba.txt").write_text("i know this held sentence\ntoms got 7 apples\n")
    for name in ("one", "two"):
        build(root / name, root / "snapshots", root / "sources.toml")
    return root


def text(built, name):
    return (built / "one" / name).read_text(encoding="utf-8")


def test_one_seed_writes_the_same_bytes(built):
    for path in sorted((built / "one").iterdir()):
        assert path.read_bytes() == (built / "two" / path.name).read_bytes()


def test_sentences_come_once_in_plain_english_and_without_violence(built):
    sentences = text(built, "tatoeba.txt").replace("’", "'").splitlines()
    assert "It's cold today." in sentences
    assert len({"Go.", "GO!"} & set(sentences)) == 1
    assert not any("killed" in s or "About" in s or "Va" in s for s in sentences)


def test_what_is_held_out_is_not_trained_on(built):
    held = text(built, "held_tatoeba.txt").replace("’", "'").splitlines()
    trained = text(built, "tatoeba.txt").replace("’", "'").splitlines()
    assert {re.sub(r".*'", "'", s) for s in held} == {
        "I know this held sentence.",
        "'s got 7 apples.",
    }
    assert not set(held) & set(trained)
    books = set(re.findall(r"number (\d+)", text(built, "books.txt")))
    held_books = set(re.findall(r"number (\d+)", text(built, "held_stories.txt")))
    assert held_books < set("456789")  # short and not in the prototype's text
    assert held_books
    assert not held_books & books


def test_some_sentences_have_curly_quotes(built):
    apples = [s for s in text(built, "tatoeba.txt").splitlines() if "apples" in s]
    assert len(apples) == 99
    assert 3 <= sum("’" in s for s in apples) <= 25


def test_only_free_texts_are_read(built):
    assert text(built, "storybooks.txt") == "A hen runs. She runs home.\n"
    assert text(built, "attributions.txt") == "o/all en/1.md: The Hen (CC-BY) Text: A. Writer\n"
    both = text(built, "books.txt") + text(built, "held_stories.txt")
    numbers = set(map(int, re.findall(r"number (\d+)", both)))
    # 1: the author died in 1960. 3: nobody knows when the translator died.
    assert numbers == set(range(10)) - {1, 3}


def test_chapters_have_neither_notes_nor_front_matter_nor_slurs(built):
    chapters = curly(text(built, "books.txt")).strip().split("\n\n")
    short = [chapter for chapter in chapters if "long" not in chapter]
    assert len(short) == len(chapters) - 1
    assert all(re.fullmatch(r"“Hello,” said the fox number \d (2|10)\.", c) for c in short)


def test_a_project_gutenberg_text_is_cut_at_its_headings():
    first, second = "The wolf--and I--\nran. " * 60, "The lamb ran. " * 60
    chapters = project_gutenberg(GUTENBERG % (first, second))
    assert chapters == [("The wolf—and I— ran. " * 60).strip(), second.strip()]


def test_a_name_changes_throughout_a_sentence():
    sentence = "Tom said that Tom likes Mary, and Johnson left."
    renamed = {rename(sentence, random.Random(seed)) for seed in range(50)}
    assert len(renamed) > 30
    for one in renamed:
        first, second, third = re.fullmatch(
            r"(\w+(?: Wei)?) said that (\w+) likes (\w+), and Johnson left\.", one
        ).groups()
        assert first == second != third


def test_quotes_become_plain_and_curly():
    assert plain("“It’s\u00a0…”  he &amp;\nI") == '"It\'s ..." he & I'
    assert curly('"It\'s \'so\' ("good")"') == "“It’s ‘so’ (“good”)”"


def test_made_sentences_are_different_and_do_not_measure_the_model(built):
    sentences = []
    for counts, name in (
        (made.COUNTS, "made.txt"),
        (made.LATER, "made_later.txt"),
        (made.LAST, "made_last.txt"),
    ):
        some = made.made_sentences(random.Random(0), counts)
        assert len(set(some)) == len(some) == sum(counts.values())
        assert len(text(built, name).splitlines()) == len(some)
        sentences += some
    assert not {sentence.text for sentence in pronoun_sentences()} & {*sentences}
    measured = {pair.text for pair in minimal_pairs() if len(pair.text.split()) > 3}
    assert len(measured) == 160
    assert not {" ".join(s.split()[:n]) for s in sentences for n in range(4, 9)} & measured
    verbs = {verb for _, _, verbs, *_ in PRONOUNS for verb in verbs.split()}
    for sentence in (made.doing_last(random.Random(seed)) for seed in range(2000)):
        before_pronoun = re.split(r" (?:it|she|he) ", sentence)[0]
        assert not verbs & {*re.findall(r"\w+", before_pronoun)}, sentence


@pytest.mark.parametrize("kind", [made.person, *made.LATER, *made.LAST, made.number, made.doing])
def test_made_sentences_agree(kind):
    choose = random.Random(0)
    singular, plural = made.SINGULAR.split("|"), made.PLURAL.split("|")
    women, men = f"{made.SHE}|{made.WOMEN}".split("|"), f"{made.HE}|{made.MEN}".split("|")
    for sentence in (kind(choose) for _ in range(2000)):
        words = re.findall(r"\w+", sentence)
        if kind in (made.number, made.number_later, made.number_last):
            noun = next(word for word in words if word in singular + plural)
            verb = re.findall(r"\b(?:was|were|is|are|has|have)\b", sentence)[-1]
            assert (noun in plural) == (verb in ("were", "are", "have")), sentence
        elif kind is made.person:
            who = max((name for name in women + men if sentence.startswith(f"{name} ")), key=len)
            assert ({"she", "her"} & {*words} != set()) == (who in women), sentence
            assert ({"he", "his"} & {*words} != set()) == (who in men), sentence
        else:
            pronoun = next(p for p in made.DOES if f" {p} " in sentence)
            action = sentence.partition(f" {pronoun} ")[2].partition(".")[0]
            nouns = [
                noun
                for table in made.DOES[pronoun]
                for noun, actions in table.items()
                if noun in words and action in actions.split("|")
            ]
            assert len(nouns) == 1, sentence


def test_a_book_without_years_is_not_free():
    assert is_free({"died": 1954})
    assert not is_free({"died": 1955})
    assert not is_free({})
