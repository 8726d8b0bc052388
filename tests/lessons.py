"""The lessons: where they are, their text with some of it replaced, and what makes them faster."""

from pathlib import Path

LESSONS = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))

# By a lesson's number: so that it takes no time where what it says is not what is tested.
FASTER = {
    "02": {"draws = 100_000": "draws = 500"},
    "03": {"draws = 50_000": "draws = 500", "queries, choices = 5_000": "queries, choices = 50"},
    "10": {"TRIES = 8": "TRIES = 2"},
    "11": {"STEPS, EVERY, HEADS = 2000, 100, 2": "STEPS, EVERY, HEADS = 12, 6, 2"},
    "12": {
        "queries, keys, widths = 2_000": "queries, keys, widths = 40",
        "learners, choices, width, steps, seed = 200, 16, 64, 200, 1": (
            "learners, choices, width, steps, seed = 10, 16, 64, 3, 1"
        ),
    },
}


def changed(lesson: Path, changes: dict[str, str]) -> str:
    """A lesson's text with each of some pieces, all of which it has once, replaced."""
    text = lesson.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert text.count(old) == 1, f"{old!r} is in {lesson.name} {text.count(old)} times"
        text = text.replace(old, new)
    return text
