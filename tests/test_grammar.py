"""examples/pocket/grammar.py: texts whose predictable words can be derived, their information."""

import hashlib
import math
import re
import sys
from collections import Counter
from functools import cache

import numpy as np
import pytest
from pytorch import ROOT

from attnlab.errors import InvalidValueError
from attnlab.pocket import held_out

sys.path.append(str(ROOT / "examples" / "pocket"))
import grammar
from grammar import HELD_OUT_SEED, KINDS, LEXICON, WEIGHTED_KINDS, Corpus, Sample, corpus, sample


@cache
def samples(kind: str, count: int = 300) -> list[Sample]:
    rng = np.random.default_rng(0)
    return [sample(rng, kind) for _ in range(count)]


def texts(kind: str) -> list[str]:
    """Texts of a kind, with typographic quotes."""
    curly = []
    for text in (each.text for each in samples(kind)):
        text = re.sub(r'"([^"]*)"', r"“\1”", text)
        curly.append(text.replace("'", "’"))
    return curly


def test_a_corpus_follows_its_seed_a_sample_a_line() -> None:
    assert corpus(3, 50) == corpus(3, 50)
    assert corpus(3, 50).text != corpus(4, 50).text
    assert corpus(3, 50).samples[:20] == corpus(3, 20).samples
    result = corpus(1, 30)
    assert result.text.endswith("\n")
    assert result.text.splitlines() == [each.text for each in result.samples]
    # The beginning of the text that the pocket model was trained on.
    digest = hashlib.sha256(corpus(0, 2000).text.encode()).hexdigest()
    assert digest.startswith("167e427cb22f3b5e")


def test_the_package_has_texts_of_the_held_out_seed() -> None:
    drawn = corpus(HELD_OUT_SEED, 10_400).samples
    known = held_out.samples()
    assert [(one.kind, one.text) for one in known] == [(one.kind, one.text) for one in drawn]
    for one, other in zip(known, drawn, strict=True):
        for (job, *spans), link in zip(one.links, other.links, strict=True):
            assert (job, *map(tuple, spans)) == tuple(link)
    assert held_out.samples("gift") == [one for one in known if one.kind == "gift"]
    with pytest.raises(InvalidValueError, match="got 'poem'"):
        held_out.samples("poem")


def test_every_kind_occurs_as_often_as_it_should() -> None:
    drawn = Counter(each.kind for each in corpus(0, 4000).samples)
    assert set(drawn) == set(KINDS)
    assert len(KINDS) >= 12
    for kind, count in drawn.items():
        expected = 4000 * WEIGHTED_KINDS.count(kind) / len(WEIGHTED_KINDS)
        assert abs(count - expected) < 5 * math.sqrt(expected), kind
    with pytest.raises(InvalidValueError, match="got 'poem'"):
        sample(np.random.default_rng(0), "poem")
    words = Counter[str]()
    for each in corpus(0, 2000).samples:
        words[each.kind] += len(each.text.split())
    assert 0.35 < words["recital"] / words.total() < 0.55


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_clean(kind: str) -> None:
    for each in samples(kind):
        assert each.kind == kind
        assert re.fullmatch(r"[A-Za-z ,.:?’“”'\"]+", each.text)
        assert "  " not in each.text
        assert not each.text.startswith(" ")
        assert re.match(r"[“\"]?[A-Z]", each.text)
        assert re.search(r"[.”\"]$", each.text)
        for article, letter in re.findall(r"\b([Aa]n?) (\w)", each.text):
            assert (article.lower() == "an") == (letter in "aeiou"), each.text


def test_lexicon_has_each_word_once() -> None:
    assert len(set(LEXICON)) == len(LEXICON) > 200
    assert all(re.fullmatch(r"[A-Za-z][a-z]*", word) for word in LEXICON)


def test_nats_by_hand() -> None:
    for each in samples("gift"):
        # the two names, who gives, the thing, the place
        assert each.nats == pytest.approx(math.log(22 * 21 * 2 * 18 * 10))
    for each in samples("family"):
        # sons or daughters, two names, who comes home, the feeling, which apostrophe
        assert each.nats == pytest.approx(math.log(2 * 11 * 10 * 2 * 4 * 2))
    for each in samples("recital"):
        words = re.findall(r"\w+", each.text)[1 : len(each.text.split()) // 2]
        count = len(words)
        assert each.nats == pytest.approx(math.log(21 * math.perm(len(LEXICON), count)))


def test_nats_are_frequencies() -> None:
    rng = np.random.default_rng(0)
    drawn = [sample(rng, "counting") for _ in range(20_000)]
    nats = {each.text: each.nats for each in drawn}
    assert math.fsum(math.exp(-each) for each in nats.values()) == pytest.approx(1)
    for text, count in Counter(each.text for each in drawn).items():
        expected = 20_000 * math.exp(-nats[text])
        assert abs(count - expected) < 5 * math.sqrt(expected), text


def test_corpus_counts_the_choice_of_kinds() -> None:
    result = corpus(2, 40)
    kinds = sum(
        -math.log(WEIGHTED_KINDS.count(each.kind) / len(WEIGHTED_KINDS)) for each in result.samples
    )
    assert result.nats == pytest.approx(kinds + sum(each.nats for each in result.samples))
    assert Corpus(()).nats == 0


@pytest.mark.parametrize("kind", ["creature", "pronoun"])
def test_links_point_to_the_determining_words(kind: str) -> None:
    jobs = Counter[str]()
    decides = {"adjective": grammar.MOOD_VERBS, "animal": grammar.SOUNDS, "thing": grammar.EVENTS}
    for each in samples(kind):
        assert each.links
        follow: dict[tuple[int, int], set[str]] = {}
        for job, source, target in each.links:
            jobs[job] += 1
            follow.setdefault(source, set()).add(decides[job][each.text[slice(*target)]])
            looking = each.text[slice(*source)]
            assert looking in (grammar.ANIMALS + grammar.PEOPLE if job == "adjective" else ("it",))
            assert target[1] < source[0]
        for source, words in follow.items():
            following = re.match(r" (\w+)", each.text[source[1] :])
            assert following
            assert following[1] in words
            assert len(words) == (2 if kind == "pronoun" else 1)
    assert set(jobs) == ({"adjective"} if kind == "creature" else {"animal", "thing"})


def test_verbs_agree_with_their_subject() -> None:
    attracted = 0
    for text in texts("agreement"):
        match = re.fullmatch(r"The (\w+) (.+) (is|are) \w+\.", text)
        assert match
        subject, between, verb = match.groups()
        assert (subject in grammar.COUNTABLE_ANIMALS) == (verb == "is")
        attracted += between.endswith("s") == (verb == "is")
    assert attracted > 50


def test_verdicts() -> None:
    verdicts = Counter[str]()
    for text in texts("weather"):
        match = re.fullmatch(
            r"It’s \w+ (\w+) in (\w+)\. ([A-Z]\w+) is (\w+), and (\w+) is (\w+)\.", text
        )
        assert match
        sky, season, *pairs = match.groups()
        for activity, verdict in zip(pairs[::2], pairs[1::2], strict=True):
            matching_sky, matching_season = grammar.ACTIVITIES[activity.lower()]
            assert grammar.VERDICTS[sky == matching_sky, season == matching_season] == verdict
            verdicts[verdict] += 1
    assert min(verdicts.values()) > 60
    assert len(verdicts) == 4


def test_names_recur_and_colours_and_comparisons_are_continued() -> None:
    for kind in ("family", "gift"):
        for text in texts(kind):
            names = [name for name in re.findall(r"[A-Z][a-z]+", text) if name != "When"]
            assert len(names) == 4
            assert set(names[:2]) == set(names[2:])
    for text in texts("colours"):
        first, recalled = text.lower().rstrip(".").split(". so ")
        assert set(recalled.split(" and ")) <= set(first.split(" and "))
    for text in texts("comparison"):
        match = re.fullmatch(
            r"The (\w+) is (\w+) than the (\w+), so the \3 is (\w+) than the \1\.", text
        )
        assert match
        assert grammar.OPPOSITES[match[2]] == match[4]


def test_recitals_repeat_their_words() -> None:
    periods = set()
    for text in texts("recital"):
        first, second = text.rstrip(".").removeprefix("Say: ").split(". Again: ")
        assert first == second
        words = first.split()
        assert len(set(words)) == len(words)
        assert set(words) <= set(LEXICON)
        periods.add(len(words))
    assert periods == set(range(8, 29))
