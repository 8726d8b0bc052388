"""The English model: what measures it, by hand on small cases, and its card."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_pocket import check_against_transformers

from attnlab import GPT2
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.corpus.measures import loss
from attnlab.english import card, measure, sentences
from attnlab.english.measure import ON_TEXT, measure_jobs
from attnlab.english.windows import PARTS
from attnlab.equations import AnyArray

DIRECTORY = BUILT_IN["english"].directory

# ---- sentences -----------------------------------------------------------------------------------


def test_pronoun_sentences_have_each_word_once() -> None:
    made = sentences.pronoun_sentences()
    assert len({sentence.text for sentence in made}) == len(made) == 200
    before = 0
    for text, *words in made:
        subject, _, other, pronoun = (sentences.span_of(text, word)[0] for word in words)
        assert max(subject, other) < pronoun or other > pronoun > subject
        before += other < subject
    assert before == 50  # the subject isn't just the first noun
    assert {s.pronoun: sum(t.pronoun == s.pronoun for t in made) for s in made} == {
        "it": 100,
        "she": 50,
        "he": 50,
    }


def test_minimal_pairs_are_different_and_balanced() -> None:
    pairs = sentences.minimal_pairs()
    assert len({pair.text for pair in pairs}) == len(pairs) == 200
    assert not {pair.text for pair in pairs} & {s.text for s in sentences.pronoun_sentences()}
    rights = [pair.right for pair in pairs]
    assert rights.count(" she") == rights.count(" he") == 50
    assert sum(right in (" was", " is", " has") for right in rights) == 50
    number = [pair for pair in pairs if pair.kind == "number"]
    for pair in number:
        noun = next(
            word for word in pair.text.split() if word in sentences.SINGULAR + sentences.PLURAL
        )
        assert (noun in sentences.PLURAL) == (pair.right in (" were", " are", " have")), pair
        assert not (pair.text.startswith("Yesterday") and pair.right not in (" was", " were"))
    assert sum(re.search("with|far", pair.text) is not None for pair in number) == 60
    for pair in pairs[100:]:
        assert (pair.right == " she") == any(
            word in pair.text.split() for word in sentences.SHE + sentences.SHE_NAMES
        )
    assert len(sentences.sums()) == 45
    assert ("Four and five make", " nine") in sentences.sums()
    for pair in sentences.gifts():
        people = re.findall(r"When (\w+) and (\w+) .* (\w+) gave", pair.text)[0]
        assert pair.wrong == f" {people[2]}"
        assert {pair.right, pair.wrong} == {f" {name}" for name in people}


# ---- measures ------------------------------------------------------------------------------------


def test_losses_of_a_short_and_of_a_long_text(pocket: GPT2) -> None:
    text = "The dog chased the ball, but it barked."
    trace = pocket.trace(text)
    losses = measure.token_losses(pocket, text)
    assert len(losses) == len(trace.tokens) - 1
    assert losses.sum() == pytest.approx(float(loss(trace).sums), rel=1e-5)
    long = " ".join([text] * 20)
    ids = pocket.tokenizer.encode(long)
    windows = measure.token_losses(pocket, long, 16)
    assert len(windows) == len(ids) - 1
    for start, first in ((0, 1), (8, 16), (16, 24)):  # overlaps give only the context
        in_window = measure.token_losses(pocket, pocket.tokenizer.decode(ids[start : start + 16]))
        np.testing.assert_allclose(
            windows[first - 1 : start + 15], in_window[first - start - 1 :], rtol=1e-5
        )


def test_losses_leave_out_the_first_word(pocket: GPT2) -> None:
    (row,) = measure.losses_of(pocket, [["The dogs", "Swimming is"]])
    rest = [measure.token_losses(pocket, text)[-1] for text in ("The dogs", "Swimming is")]
    assert row[0] == pytest.approx(sum(rest))
    assert row[1:].tolist() == [2, 2, 5 + 3]


def test_perplexity_by_hand() -> None:
    losses = np.array([[math.log(4), 2, 4, 8], [math.log(16), 2, 4, 8]])
    figures = measure.perplexity(losses)
    assert figures["per_word"] == pytest.approx(64 ** (1 / 4))
    assert figures["per_token"] == pytest.approx(64 ** (1 / 8))
    assert figures["bits_per_byte"] == pytest.approx(6 / 16)
    # ln 2 and 2 ln 2 a word: the standard deviation is ln 2 / √2, that of the mean of two ln 2 / 2
    assert figures["error"] == pytest.approx(64 ** (1 / 4) * math.log(2) / 2)
    ratio, error = measure.ratio_of_perplexities(losses, losses + np.array([math.log(4), 0, 0, 0]))
    assert (ratio, error) == (pytest.approx(0.5), pytest.approx(0))


def test_passages_are_whole_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "PASSAGE", 5)
    story = 'One two three. "Four five!" Six.\nSeven eight, nine ten eleven twelve. Thirteen.'
    assert list(measure.passages(story)) == [
        'One two three. "Four five!"',
        "Six.",
        "Seven eight, nine ten eleven twelve.",
    ]  # the last has one word, and nothing to predict


def test_targets_by_hand(pocket: GPT2) -> None:
    tokens = pocket.trace("The dog, and the cat").tokens
    assert list(tokens.texts) == ["The", " dog", ",", " and", " the", " cat"]
    for job, expected in (
        ("punctuation", {3: 2, 4: 2, 5: 2}),
        ("connective", {4: 3, 5: 3}),
        ("itself", {n: n for n in range(6)}),
    ):
        keys = np.asarray(ON_TEXT[job](tokens))
        assert dict(np.argwhere(keys).tolist()) == expected, job


def test_what_a_pronoun_attends_to(pocket: GPT2) -> None:
    sentence = sentences.PronounSentence("Near it ran a zzcat, so she", "zzcat", "ran", "", "she")
    ((trace, targets),) = measure.on_pronouns(pocket, [sentence])
    texts = list(trace.tokens.texts)
    subject = np.argwhere(targets["subject"])
    assert "".join(texts[key] for _, key in subject).strip() == "zzcat"
    assert len(subject) > 1  # all its pieces
    assert {int(query) for query, _ in subject} == {len(texts) - 1}


def test_repeats_are_of_different_tokens(pocket: GPT2) -> None:
    for trace, targets in measure.on_repeats(pocket, 2, 20):
        ids = trace.tokens.ids
        assert ids[:20].tolist() == ids[20:].tolist()
        assert len(set(ids.tolist())) == 20
        assert np.argwhere(targets["induction"]).tolist() == [[n + 20, n + 1] for n in range(20)]


def test_the_right_continuation_is_more_probable(pocket: GPT2) -> None:
    pair = sentences.Pair("number", "The dogs near the tree", " are", " is")
    assert measure.is_right(pocket, pair)
    assert not measure.is_right(pocket, pair._replace(right=" is", wrong=" are"))
    (likely, *_) = pocket.trace(pair.text).next_tokens(1)
    assert measure.log_probability(pocket, pair.text, " are") == pytest.approx(
        math.log(likely.probability), rel=1e-4
    )
    assert measure.continues_with(pocket, pair.text, " are")


def test_wilsons_interval() -> None:
    """8 of 10, as in Brown, Cai and DasGupta's formula: 0.4902 to 0.9433."""
    share = measure.share([True] * 8 + [False] * 2)
    assert (share["right"], share["of"]) == (8, 10)
    assert share["low"] == pytest.approx(0.4902, abs=1e-4)
    assert share["high"] == pytest.approx(0.9433, abs=1e-4)


def test_frequent_words_are_spelled_as_usual() -> None:
    lines = ["Tom saw the cat. The end.", "“Don't!” said Tom; the cats’ tom-cat, the I"]
    assert measure.frequent_words(lines, 2) == ["the", "Tom"]
    words = measure.frequent_words(lines)
    assert {"saw", "cats", "I", "said"} <= set(words)
    assert not {"Don", "t", "don"} & set(words)  # GPT-2's pattern splits at an apostrophe


# ---- the command ---------------------------------------------------------------------------------

SOURCES = """
[text]
held_out = ["a/c"]
[[tatoeba]]
attribution = "tatoeba.org"
licence = "CC-BY 2.0 FR"
[[storybooks]]
attribution = "African Storybook"
licences = ["CC-BY 4.0"]
[[books]]
repository = "a/b"
title = "The Second Book"
author = "Ann Author"
translator = "Tim Other"
[[books]]
repository = "a/c"
title = "The First Book"
author = "Ann Author"
"""


def test_the_command_writes_the_card(
    tmp_path: Path,
    pocket: GPT2,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus, model, text = tmp_path / "corpus", tmp_path / "model", "The dog chased the ball, but it"
    corpus.mkdir()
    pocket.save(model)
    for part in PARTS:
        (corpus / f"{part}.txt").write_text(f"{text}\n{text}\n", encoding="utf-8")
    (corpus / "held_tatoeba.txt").write_text(f"{text}\n{text} barked\nNo\n", encoding="utf-8")
    stories = "\n\n".join(" ".join([f"{text} {verb}."] * 20) for verb in ("barked", "rolled"))
    (corpus / "held_stories.txt").write_text(stories, encoding="utf-8")
    (corpus / "attributions.txt").write_text("A story (CC-BY): Ann\n", encoding="utf-8")
    log = [{"step": n, "training": 5 - n / 10, "name": "x"} for n in range(1, 41)]
    (tmp_path / "log").write_text("\n".join(map(json.dumps, log)), encoding="utf-8")
    (tmp_path / "sources.toml").write_text(SOURCES, encoding="utf-8")
    monkeypatch.setattr(card, "SOURCES", tmp_path / "sources.toml")
    for name, few in (("pronoun_sentences", 8), ("minimal_pairs", 8), ("gifts", 2), ("sums", 2)):
        some = getattr(sentences, name)()
        monkeypatch.setattr(measure, name, lambda some=some, few=few: some[:: len(some) // few])
    arguments = ["measure", str(corpus), "--model", str(model), "--log", str(tmp_path / "log")]
    monkeypatch.setattr("sys.argv", [*arguments, "--against", str(model)])
    measure.main()
    printed = capsys.readouterr().out
    figures = json.loads((model / "card.json").read_text(encoding="utf-8"))
    assert figures["curve"]["step"] == [1, 5, 8, 12, 15, 19, 22, 26, 29, 33, 36, 40]
    assert set(figures["curve"]) == {"step", "training"}
    assert figures["words"]["books"] == 14
    assert figures["in_training"] == {"pronouns": 0, "pairs": 0}
    for part in ("tatoeba", "stories"):
        itself = {"per_word": figures["perplexity"][part]["per_word"], "ratio": 1, "error": 0}
        assert figures["prototype"][part] == itself
    assert figures["perplexity"]["tatoeba"]["documents"] == 2
    written = (model / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert printed.startswith(written)
    for line in (
        "The First Book (Ann Author).",
        "- Ann Author: The First Book; The Second Book (translated by Tim Other)",
        "- tatoeba.org (CC-BY 2.0 FR)",
        "A GPT-2 of 538,496 parameters",
        "books          14         40 %         28 %         25 %",
        "text: 1.000 ± 0.000 on tatoeba, 1.000 ± 0.000 on stories.",
    ):
        assert line in written
    assert not re.search(r"[{}]", written)
    assert (model / "attributions.txt").read_bytes() == (corpus / "attributions.txt").read_bytes()
    monkeypatch.setattr("sys.argv", ["measure", str(corpus), "--model", str(model)])
    measure.main()  # without a log and a prototype, their figures stay
    assert (model / "MODEL_CARD.md").read_text(encoding="utf-8") == written
    # A built-in model's page reads the table of heads.
    built_in = BUILT_IN["pocket"]._replace(directory=model)
    monkeypatch.setitem(BUILT_IN, "pocket", built_in)
    page = GPT2.from_pretrained("pocket").trace("The hen").to_html()
    on_page = json.loads(re.search(r'"card":(\{.*?\})', page)[1])  # type: ignore[index]
    assert tuple(on_page) == card.JOBS
    for job, (*means, even) in on_page.items():
        expected = figures["heads"][job]
        np.testing.assert_allclose(means, np.ravel(expected["mean"]), rtol=0, atol=0.0051)
        assert even == pytest.approx(expected["even"], abs=0.0051)


# ---- the model -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def english() -> GPT2:
    return GPT2.from_pretrained("english")


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DIRECTORY / "card.json").read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def sample() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DIRECTORY / "held_out.json").read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logits_against_transformers(dtype: str) -> None:
    """Also of the float16 weights: transformers computes with them in float64."""
    check_against_transformers("english", dtype)


def test_card_is_written_from_its_figures(english: GPT2, figures: dict[str, Any]) -> None:
    written = (DIRECTORY / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert written == card.card(figures, english.config)


def test_card_perplexity(english: GPT2, figures: dict[str, Any], sample: dict[str, Any]) -> None:
    for part, whole in figures["perplexity"].items():
        again = measure.perplexity(measure.losses_of(english, sample[part]))
        expected = figures["sample"][part]
        assert again["words"] == expected["words"]
        for name in ("per_word", "per_token", "bits_per_byte", "error"):
            assert again[name] == pytest.approx(expected[name], rel=2e-3)
        # The sample is like the whole.
        assert abs(again["per_word"] - whole["per_word"]) < 5 * again["error"]


def test_card_heads(english: GPT2, figures: dict[str, Any], sample: dict[str, Any]) -> None:
    made = sentences.pronoun_sentences()
    targeted = [*measure.on_repeats(english), *measure.on_pronouns(english, made)]
    names = "induction", "previous_random", "subject", "verb"
    jobs = measure_jobs(targeted, names)
    for n, job in enumerate(names):
        expected = figures["heads"][job]
        for name, again in (("mean", jobs.attention), ("error", jobs.error), ("even", jobs.even)):
            np.testing.assert_allclose(again[n], expected[name], rtol=2e-3, atol=2e-4)
    shares: AnyArray = measure.shares_on_subject(english)
    np.testing.assert_allclose(shares, figures["share_on_subject"], rtol=0, atol=0.0101)
    texts = [
        text for part in ("tatoeba", "stories") for document in sample[part] for text in document
    ]
    on_sample = measure_jobs(measure.on_text(english, texts), ON_TEXT)
    for n, job in enumerate(ON_TEXT):  # in other texts, within the errors
        difference = on_sample.attention[n] - figures["heads"][job]["mean"]
        assert (np.abs(difference) < 6 * on_sample.error[n] + 0.02).all(), job


def test_card_agreement(english: GPT2, figures: dict[str, Any]) -> None:
    pairs = sentences.minimal_pairs()
    right = [measure.is_right(english, pair) for pair in pairs]
    for kind in ("number", "gender"):
        count = sum(r for r, pair in zip(right, pairs, strict=True) if pair.kind == kind)
        assert abs(count - figures["pairs"][kind]["right"]) <= 1  # a near tie may be rounded apart


def test_goals(figures: dict[str, Any]) -> None:
    """What the model was made for, by the figures that other tests compute again."""
    for job in ("previous", "previous_random", "induction"):
        assert np.max(figures["heads"][job]["mean"]) >= 0.6, job
    assert np.max(figures["share_on_subject"]) >= 0.8
    assert figures["pairs"]["all"]["right"] >= 0.9 * figures["pairs"]["all"]["of"] == 180
    assert figures["in_training"] == {"pronouns": 0, "pairs": 0}
    for part, prototype in figures["prototype"].items():
        ratio = figures["perplexity"][part]["per_word"] / prototype["per_word"]
        assert ratio == pytest.approx(prototype["ratio"], abs=2e-3)
        assert ratio <= 0.85, part
    assert figures["prototype"].keys() == figures["perplexity"].keys()


def test_card_tokens(english: GPT2, figures: dict[str, Any], sample: dict[str, Any]) -> None:
    frequent, tokens = sample["frequent"].split(), figures["tokenizer"]
    again = measure.tokenizer_figures(english, sample_parts(sample), frequent)
    assert len(frequent) == tokens["words"] == 2000
    for name in ("tokens", "whole", "most_pieces", "shown_in_pieces", "its"):
        assert again[name] == tokens[name]
    assert (again["most_pieces"], again["shown_in_pieces"]) == (2, [])
    assert again["whole"] >= 0.9
    assert again["its"] <= 3


def sample_parts(sample: dict[str, Any]) -> dict[str, Any]:
    return {part: sample[part] for part in ("tatoeba", "stories")}


def test_card_continuations(english: GPT2, figures: dict[str, Any]) -> None:
    opening, greedy = sentences.OPENINGS[0], figures["greedy"][0]
    assert measure.continuation(english, opening, 40, temperature=0) == greedy
    sampled = measure.continuation(english, opening, 40, seed=sentences.SEED)
    assert sampled == figures["sampled"][0]
