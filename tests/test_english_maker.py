"""examples/english on a tiny corpus: text, windows, measures, and three steps of training."""

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs
from pytorch import ROOT, python_with, walk

from attnlab import GPT2

EXAMPLE = ROOT / "examples" / "english"

STORY = "The cat slept.\nIt was tired."


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> Any:
    needs("tokenizers", "tokenizers")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    return importlib.import_module("corpus")


@pytest.fixture
def corpus(maker: Any, tmp_path: Path) -> Path:
    """Of sentences as Tatoeba has them, and stories, of which one isn't wanted."""
    names, texts = ("Tom", "Mary", "Ken"), tmp_path / "texts"
    texts.mkdir()
    sentences = [f"{name} saw {n} birds by the sea." for n in range(300) for name in names]
    sentences += ["He was killed.", "He was KILLED!", "Say “hello”."]
    sentences += ["Ken went home early because he was very tired.", "Ken came because he was ill."]
    (texts / "tatoeba.txt").write_text("\n".join(sentences), encoding="utf-8")
    stories = [f"{STORY} It had {n} kittens, and they slept." for n in range(300)]
    stories += [f"Pooh is a bear.\n{STORY}"]
    (texts / "books.txt").write_text("\n\n".join(stories), encoding="utf-8")
    (texts / "unknown.txt").write_text("Nothing says what this is.", encoding="utf-8")
    maker.build(texts, tmp_path / "corpus")
    return tmp_path / "corpus"


def test_text_is_cleaned(corpus: Path, maker: Any) -> None:
    read = {file.stem: file.read_text(encoding="utf-8") for file in corpus.iterdir()}
    assert set(read) == {"tatoeba", "books"}
    # Mary's sentences are Tom's with another name; Ken's are others, since his isn't in the list.
    assert read["tatoeba"].count("\n") == 300 + 300 + 1 + 2
    assert "killed" not in read["tatoeba"].lower()
    assert 20 < read["tatoeba"].count("Tom ") < 80  # the others have other names
    assert "Pooh" not in read["books"]
    assert read["books"].count("\n\n") == 300 - 1
    assert maker.key("Tom saw it.") == maker.key("“Kate saw it.”")


def test_a_part_of_a_source_is_drawn_more_often(corpus: Path, maker: Any) -> None:
    assert maker.names_in(corpus) == ["tatoeba", "joined", "books"]
    [joined] = maker.texts_of(corpus, "joined")
    assert joined == "Ken went home early because he was very tired."
    assert joined in maker.texts_of(corpus, "tatoeba")


def test_quotes_and_names(maker: Any) -> None:
    assert maker.plain("“It’s\u00a0 late…”") == '"It\'s late..."'
    assert maker.curly("\"It's late,\" he said. ('Yes.')") == "“It’s late,” he said. (‘Yes.’)"
    generator = maker.random.Random(0)
    for _ in range(50):
        names = re.findall(r"\b[A-Z]\w+", maker.renamed("Tom met Mary. Tom ran.", generator))
        assert names[0] == names[2] != names[1]


def test_tokens_and_windows(corpus: Path, maker: Any, tmp_path: Path) -> None:
    maker.learn_tokens(corpus, tmp_path, 1500)
    tokenizer = maker.ByteLevelBPETokenizer(*maker.tokens_in(tmp_path))
    for word in ("cat", " Swimming", " animal"):
        assert len(tokenizer.encode(word).ids) == 1, word
    assert len(tokenizer.encode(" kittens").ids) > 1  # a word of one source
    part = maker.part_of(corpus, "books", tokenizer)
    end = tokenizer.token_to_id(maker.END_OF_TEXT)
    assert end == tokenizer.get_vocab_size() - 1
    assert (part.ids == end).sum() == len(maker.texts_of(corpus, "books"))
    starts = {tokenizer.id_to_token(id) for id in part.bare[part.ids[part.starts]].tolist()}
    assert starts == {"The", "It"}  # the second without the space before it
    rng = np.random.default_rng(0)
    windows, targets = maker.batch({"tatoeba": part}, rng, 40, 32, 0.0)
    assert np.array_equal(windows[:, 1:], targets[:, :-1])
    assert {tokenizer.id_to_token(first) for first in windows[:, 0].tolist()} <= starts
    windows, targets = maker.batch({"tatoeba": part}, rng, 40, 64, 1.0)
    unknown = (targets == maker.UNKNOWN).sum(axis=1)
    assert 5 < (unknown > 0).sum() < 35
    for window, target, count in zip(windows, targets, unknown, strict=True):
        if count:  # the first known target is the token that began the round
            assert target[count] == window[0]
            assert np.array_equal(target[count:-1], window[count + 1 :])


def test_kinds_of_tokens(maker: Any) -> None:
    texts = [" the", " kn", "ock", " bar", ",", " 7", "He", " he"]
    ids = np.array([0, 1, 2, 0, 3, 2, 0, 3, 2, 5, 1, 2, 0, 3, 4, 6, 4, 7])
    # “ bar” goes on in two of three places, “ kn” always, “ the” never.
    expected = {"goes_on": [2, 6], "begins": [1, 3], "ends": [0, 2, 3, 6, 7], "whole": [0, 6, 7]}
    expected |= {"pieces": [1, 2, 6], "pronouns": [6, 7]}
    kinds = maker.kinds_of_tokens(texts, ids)
    assert {kind: np.flatnonzero(is_kind).tolist() for kind, is_kind in kinds.items()} == expected


@pytest.fixture
def measure(maker: Any) -> Any:
    return importlib.import_module("measure")


def test_held_out_text_shares_no_eight_words_with_the_corpus(
    corpus: Path, measure: Any, tmp_path: Path
) -> None:
    known = STORY.replace("\n", " ") + " It had 7 kittens, and they slept."
    seven = "It had 7 kittens, and they slept well."
    (tmp_path / "stories.txt").write_text(f"{known}\n{seven}\n", encoding="utf-8")
    (tmp_path / "other.txt").write_text("Of no kind.\n", encoding="utf-8")
    kept, left_out = measure.held_out(tmp_path, [corpus])
    assert (kept, left_out) == ({"stories": [[], [seven]]}, 1)
    assert [*measure.runs("Tom, a b c d e f g")] == ["n a b c d e f g"]


def test_perplexity_a_word(measure: Any, pocket: GPT2) -> None:
    """By hand, of one sentence; the first word only gives the context."""
    sentence = "The dog chased the ball, but it barked."
    reading = measure.read(pocket, {"stories": [[sentence]]})
    trace = pocket.trace(sentence)
    logits = trace.logits.astype(np.float64)
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    nats = -np.log(p[np.arange(len(p) - 1), trace.ids[1:]])
    # The words: dog, chased, the, “ball,”, but, it, “barked.”
    assert measure.perplexity(reading, "stories") == (pytest.approx(np.exp(nats.sum() / 7)), 0)
    assert (reading.pronouns, reading.prefixes, reading.pieces) == (1, 7, 0)
    assert [*reading.certain] == ["it: rolled or barked"]
    # Two documents of 2 and 6 nats, 1 and 2 words: each is 2/3 of a nat from 8/3 a word.
    of_two = reading._replace(nats={"two": np.array([2.0, 6])}, words={"two": np.array([1.0, 2])})
    error = np.exp(8 / 3) * np.sqrt(2 * (2 / 3) ** 2 * 2 / 1) / 3
    assert measure.perplexity(of_two, "two") == pytest.approx((np.exp(8 / 3), error))


def test_a_relation_is_measured_from_word_to_word(
    measure: Any, pocket: GPT2, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = "The [dog] chased the <ball>, but {it} barked."
    sentences = {"relations": {"pronoun": [marked, "The [dog] barked, and {it} slept."]}}
    monkeypatch.setattr(measure, "SENTENCES", sentences)
    (layer, head), figures = measure.relation(pocket, "pronoun")
    one, two = map(pocket.trace, map(measure.without_marks, sentences["relations"]["pronoun"]))
    rows = one.head(layer, head).weights[7], two.head(layer, head).weights[5]
    means = np.mean([rows[0][1], rows[1][1]])
    expected = [means, (1 / 8 + 1 / 6) / 2, 1, rows[0][1], rows[0][4]]
    assert (layer, head) == (1, 2)
    np.testing.assert_allclose(figures, expected, rtol=1e-6)


def test_the_sentences_are_complete(measure: Any) -> None:
    for kind, sentences in measure.SENTENCES["relations"].items():
        assert (len(sentences), sum("<" in text for text in sentences)) == (20, 10), kind
        assert all(text.index("[") < text.index("{") for text in sentences), kind
    for kind in ("number", "gender"):
        assert len({text for text, *_ in measure.pairs(kind)}) == 100
    assert ("The dogs", " were", " was") in measure.pairs("number")


def test_the_card_has_what_pages_read(
    measure: Any, pocket: GPT2, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = dict(measure.SENTENCES)
    some["openings"] = some["openings"][:2]
    some["relations"] = {kind: text[9:11] for kind, text in some["relations"].items()}
    for kind in ("number", "gender"):
        some[kind] = some[kind] | {"frames": ["The {}"]}
    monkeypatch.setattr(measure, "SENTENCES", some)
    texts = {"winograd": [["The dog chased the ball, but it barked."]]}
    readings = {name: measure.read(pocket, texts) for name in ("this", "other")}
    written = measure.card(pocket, texts, 0, readings)
    assert re.search(r"^layer +head +previous +first +same +induction +subject$", written, re.M)
    for kind in ("winograd", "all kinds"):
        [row] = re.findall(rf"^{kind} +1 +7 +(\d+) +0 +(\d+) +(\d+)$", written, re.M)
        assert row[1:] == (row[0], "100")


THREE_STEPS = """
import sys
sys.path.insert(0, {example!r})
import numpy as np, torch
from pathlib import Path
import train
from attnlab import GPT2, GPT2Config

torch.compile = lambda model, **_: model  # compiling takes a minute
train.TOKENS_PER_STEP, train.WARMUP = 256, 1
sizes = dict(vocab_size=600, n_positions=32, n_embd=24, n_layer=2, n_head=3)
corpus, steps = Path({corpus!r}), 3

def run_of(directory, start=None):
    return train.Run(corpus, Path(directory), steps, GPT2Config(**sizes), start)

def loss_of(model, ids, targets):
    return train.loss(model(ids, use_cache=False).logits, targets)

def of_batch(run):
    rng = np.random.default_rng(0)
    ids, targets = (torch.from_numpy(x) for x in train.batch(run.parts, rng, 8, 32, 0.0))
    return ids, loss_of(run.model, ids, targets)

run = run_of("model")
ids, before = of_batch(run)
run.train()
_, after = of_batch(run)
assert after < before - 0.05, (before, after)
again = run_of("model")  # resumed
assert again.step == 3
assert all(torch.equal(again.P[name], W) for name, W in run.P.items())
W_K = run.P["h.1.attn.c_attn.weight"][:, 24:48]
assert any(torch.equal(matrix, W_K.T) for matrix in run.muon.param_groups[0]["params"])
trace = GPT2.from_pretrained("model").trace(ids[0].numpy())
expected = loss_of(run.model.half().float(), ids[:1, :-1], ids[:1, 1:])
np.testing.assert_allclose(trace.losses.mean(), expected.item(), rtol=1e-5)
sizes["vocab_size"] = 640
further = run_of("further", Path("model"))
(old, merges), (new, more) = map(train.tokens_in, (Path("model"), Path("further")))
assert more[: len(merges)] == merges
assert {{name: new[name] for name in old if new[name] != old[name]}} == {{"<|endoftext|>": 639}}
tokens, before = (each.P["wte.weight"].detach().half().float() for each in (further, run))
assert all(torch.equal(tokens[new[symbol]], before[id]) for symbol, id in old.items())
one, other = more[len(merges)]
assert torch.allclose(tokens[new[one + other]], before[[old[one], old[other]]].mean(0), rtol=1e-3)
_, start = of_batch(further)
further.train()
assert of_batch(further)[1] < start
"""


# The tokens: a pronoun, a whole word, one that goes on with a word, one that begins one, another.
PENALTY = """
import sys
sys.path.insert(0, {example!r})
import math, torch, train

is_token = torch.eye(5, dtype=bool)
kinds = dict(zip(("pronouns", "whole", "goes_on", "begins"), is_token))
kinds["ends"] = is_token[[0, 1, 4]].any(dim=0)
two, piece, beginning = ([0.5, 0.3, 0.1, 0.1, 0], [0.1, 0.2, 0.6, 0.1, 0], [0.1, 0.2, 0.1, 0.6, 0])
certain, goes_on, begins = 5 * math.log(0.8 / 0.66), *(n * (math.log(3) + 0.6) for n in (4, 3))
for probabilities, id, target, expected in (
    (two, 0, 1, certain),  # two tokens after a pronoun
    (two, 4, 1, 0),  # and after another word
    (two, 0, 2, 0),  # where the text goes on with the word
    (piece, 4, 0, goes_on),  # a piece after a word
    (piece, 4, 2, 0),  # which the text goes on with
    (piece, 1, 2, goes_on),  # so after what is nearly always a whole word
    (piece, 2, 1, 0),  # inside a word
    (piece, 4, train.UNKNOWN, 0),
    (beginning, 4, 3, begins),
):
    logits = torch.log(torch.tensor([[probabilities]])) + 7
    paid = train.penalty(logits, torch.tensor([[id]]), torch.tensor([[target]]), kinds)
    assert math.isclose(paid, expected, rel_tol=1e-5, abs_tol=1e-6), (probabilities, id, paid)
"""


@pytest.mark.parametrize("code", [THREE_STEPS, PENALTY], ids=["steps", "penalty"])
def test_training(code: str, corpus: Path, tmp_path: Path) -> None:
    python = python_with("torch", "tokenizers")
    walk(python, code.format(example=str(EXAMPLE), corpus=str(corpus)), tmp_path)
