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


def write_texts(directory: Path) -> None:
    """Sentences as Tatoeba has them, and stories, of which one isn't wanted."""
    directory.mkdir()
    names = ("Tom", "Mary", "Ken")
    sentences = [f"{name} saw {n} birds by the sea." for n in range(300) for name in names]
    sentences += ["He was killed.", "He was KILLED!", "Say “hello”."]
    (directory / "tatoeba.txt").write_text("\n".join(sentences), encoding="utf-8")
    stories = [f"{STORY} It had {n} kittens, and they slept." for n in range(300)]
    stories += [f"Pooh is a bear.\n{STORY}"]
    (directory / "standard_ebooks.txt").write_text("\n\n".join(stories), encoding="utf-8")
    (directory / "unknown.txt").write_text("Nothing says what this is.", encoding="utf-8")


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> Any:
    needs("tokenizers", "tokenizers")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    return importlib.import_module("corpus")


@pytest.fixture
def corpus(maker: Any, tmp_path: Path) -> Path:
    write_texts(tmp_path / "texts")
    maker.build(tmp_path / "texts", tmp_path / "corpus")
    return tmp_path / "corpus"


def test_text_is_cleaned_and_held_out_by_its_hash(corpus: Path, maker: Any) -> None:
    read = {file.stem: file.read_text(encoding="utf-8") for file in corpus.iterdir()}
    sources = {"tatoeba", "standard_ebooks"}
    assert set(read) == sources | {f"held_{name}" for name in sources}
    together = read["tatoeba"] + read["held_tatoeba"]
    # Mary's sentences are Tom's with another name; Ken's are others, since his isn't in the list.
    assert together.count("\n") == 300 + 300 + 1
    assert "killed" not in together.lower()
    assert 20 < together.count("Tom ") < 80  # the others have other names
    assert "Pooh" not in read["standard_ebooks"]
    assert read["standard_ebooks"].count("\n\n") > 280
    for name, text in read.items():
        held = [maker.is_held_out(document) for document in maker.documents(text)]
        assert held
        assert set(held) == {name.startswith("held_")}
    assert maker.is_held_out("Tom saw it.") == maker.is_held_out("“Kate saw it.”")


def test_quotes_and_names(maker: Any) -> None:
    assert maker.plain("“It’s\u00a0 late…”") == '"It\'s late..."'
    assert maker.curly("\"It's late,\" he said. ('Yes.')") == "“It’s late,” he said. (‘Yes.’)"
    generator = maker.random.Random(0)
    for _ in range(50):
        names = re.findall(r"\b[A-Z]\w+", maker.renamed("Tom met Mary. Tom ran.", generator))
        assert names[0] == names[2] != names[1]


def test_tokens_and_windows(corpus: Path, maker: Any, tmp_path: Path) -> None:
    maker.learn_tokens(corpus, tmp_path, 1500)
    tokenizer = maker.tokenizer_of(tmp_path)
    for word in ("cat", " Swimming", " animal"):
        assert len(tokenizer.encode(word).ids) == 1, word
    part = maker.part_of(corpus, "standard_ebooks", tokenizer)
    end = tokenizer.token_to_id(maker.END_OF_TEXT)
    assert end == tokenizer.get_vocab_size() - 1
    assert (part.ids == end).sum() == len(
        maker.documents((corpus / "standard_ebooks.txt").read_text("utf-8"))
    )
    starts = {tokenizer.id_to_token(first) for first in part.first.tolist()}
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


def test_the_card_has_what_pages_read(corpus: Path, maker: Any, pocket: GPT2) -> None:
    measure: Any = importlib.import_module("measure")
    marked = "The [dog] chased the ball, but {it} barked."
    tokens = pocket.trace(measure.without_marks(marked)).tokens.texts
    assert tokens[measure.word_span(pocket, marked, "[]")] == (" dog",)
    assert tokens[measure.word_span(pocket, marked, "{}")] == (" it",)
    for sentences in measure.SENTENCES["relations"].values():
        for text in sentences:
            assert text.index("[") < text.index("{"), text
    for kind in ("number", "gender"):
        assert len({text for text, *_ in measure.pairs(kind)}) == 100
    assert ("The dogs", " were", " was") in measure.pairs("number")
    written = measure.card(pocket, measure.held_out(corpus))
    assert re.search(r"^layer +head +previous +first +same +induction +subject$", written, re.M)
    assert "attributions.txt" not in written  # of sources that this corpus lacks
    averages = measure.average_contexts(pocket, ["The dog barked."])
    contexts = [
        block.attention.context.mean(axis=1) for block in pocket.trace("The dog barked.").blocks
    ]
    np.testing.assert_allclose(averages, contexts, rtol=0, atol=1e-6)


THREE_STEPS = """
import sys
sys.path.insert(0, {example!r})
import numpy as np, torch
from pathlib import Path
import train
from attnlab import GPT2, GPT2Config

torch.compile = lambda function, **_: function  # compiling takes a minute
train.TOKENS_PER_STEP, train.WARMUP, train.AVERAGED_EVERY = 256, 1, 1
sizes = dict(vocab_size=600, n_positions=32, n_embd=24, n_layer=2, n_head=3)
corpus, steps = Path({corpus!r}), 3
run = train.Run(corpus, Path("model"), steps, GPT2Config(**sizes))

def of_batch(run):
    rng = np.random.default_rng(0)
    ids, targets = (torch.from_numpy(x) for x in train.batch(run.parts, rng, 8, 32, 0.0))
    return ids, train.loss(run.P, ids, targets, 3)

ids, before = of_batch(run)
run.train()
_, after = of_batch(run)
assert after < before - 0.05, (before, after)
again = train.Run(corpus, Path("model"), steps, GPT2Config(**sizes))  # resumed
assert again.step == 3
assert all(torch.equal(again.P[name], W) for name, W in run.P.items())
for directory, tensors in (("model", run.P), ("model/averaged", run.mean)):
    trace = GPT2.from_pretrained(directory).trace(ids[0].numpy())
    half = {{name: W.detach().half().float() for name, W in tensors.items()}}
    expected = train.loss(half, ids[:1, :-1], ids[:1, 1:], 3)
    np.testing.assert_allclose(trace.losses.mean(), expected.item(), rtol=1e-5)
for shape in ((24, 96), (96, 24)):
    values = torch.linalg.svdvals(train.orthogonal(torch.randn(shape)))
    assert ((values > 0.6) & (values < 1.3)).all(), values
"""


def test_three_steps_lower_the_loss(corpus: Path, tmp_path: Path) -> None:
    python = python_with("torch", "tokenizers")
    walk(python, THREE_STEPS.format(example=str(EXAMPLE), corpus=str(corpus)), tmp_path)
