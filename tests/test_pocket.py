"""The pocket model: its files, its predictions, its heads' jobs, and its card."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE

from attnlab import GPT2
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.pocket.held_out import samples

FILES = (
    *("config.json", "model.safetensors", "vocab.json", "merges.txt", "head_averages.json"),
    *("held_out.json.gz", "MODEL_CARD.md"),
)
CARD = (BUILT_IN["pocket"].directory / "MODEL_CARD.md").read_text(encoding="utf-8")
PROMPT = "It’s very hot in summer. Swimming is"


def card_table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading of the card, cells split at runs of spaces."""
    section = CARD.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = section.split("```")[1].strip("\n").splitlines()
    return [re.split(r"  +", line.strip()) for line in lines]


def test_files_are_few_and_small() -> None:
    sizes = {file.name: file.stat().st_size for file in BUILT_IN["pocket"].directory.glob("*.*")}
    assert set(FILES) <= set(sizes)
    assert sum(sizes.values()) <= 4e6


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logits_against_transformers(dtype: str) -> None:
    """transformers' GPT2LMHeadModel loads the directory and gives the same logits."""
    check_against_transformers("pocket", dtype)


def check_against_transformers(name: str, dtype: str) -> None:
    """Compare with the logits that `make_built_in.py` recorded."""
    recorded = np.load(REFERENCE / f"{name}.npz")
    model = GPT2.from_pretrained(name, dtype=dtype)
    for prompt, spelling in ((PROMPT, "curly"), (PROMPT.replace("’", "'"), "straight")):
        trace, expected = model.trace(prompt), recorded[f"{spelling}.logits"]
        assert trace.tokens.ids.tolist() == recorded[f"{spelling}.ids"].tolist()
        logits = trace.logits[:, :: -(-model.config.vocab_size // expected.shape[1])]
        scale = max(1, np.abs(expected).max())
        assert np.abs(logits - expected).max() < (1e-4 if dtype == "float32" else 1e-10) * scale


@pytest.mark.parametrize("prompt", [PROMPT, PROMPT.replace("’", "'")])
def test_predicts_the_verdict_on_swimming(pocket: GPT2, prompt: str) -> None:
    best = pocket.trace(prompt).next_tokens(1)[0]
    assert best.text == " wonderful"
    assert best.probability > 0.9


def test_distant_words_determine_the_continuation(pocket: GPT2) -> None:
    """Changing one word far back changes the continuation."""
    for prompt, best in {
        "It’s very cold in winter. Swimming is": " silly",
        "A fluffy blue creature": " purred",
        "A sleepy blue creature": " yawned",
        "Say: lamp two happy river. Again: lamp two": " happy",
        "Anna has a ball and Tom has a kite. Who has the kite?": " Tom",
        "The dogs near the tree": " are",
        "The dog near the trees": " is",
    }.items():
        assert pocket.trace(prompt).next_tokens(1)[0].text == best, prompt
    for animal, thing, both in (
        ("dog", "ball", {" barked", " rolled"}),
        ("cat", "ball", {" meowed", " rolled"}),
        ("cat", "kite", {" meowed", " flew"}),
    ):
        following = pocket.trace(f"The {animal} chased the {thing}, but it").next_tokens(2)
        assert {token.text for token in following} == both
        assert min(token.probability for token in following) > 0.2


def test_losses_are_means_over_the_predicted_tokens(pocket_maker: Any, pocket: GPT2) -> None:
    nats = []
    for sample in samples()[:3]:
        trace = pocket.trace(f"\n{sample.text}\n")
        powers = np.exp(trace.logits[:-1].astype(float))
        ids = trace.tokens.ids[1:]
        nats.extend(-np.log(powers[np.arange(len(ids)), ids] / powers.sum(axis=-1)))
    loss = pocket_maker.held_out_losses(pocket, 3)["all"]
    assert (loss.tokens, loss.model) == (len(nats), pytest.approx(np.mean(nats), rel=1e-4))


def test_model_card_jobs_of_heads(pocket_maker: Any, pocket: GPT2) -> None:
    jobs = pocket_maker.head_jobs(pocket)
    head, *rows, evenly = card_table("What its heads do")
    assert head == ["layer", "head", *jobs.jobs]
    assert len(rows) == pocket.config.n_layer * pocket.config.n_head
    for row in rows:
        layer, number, *weights = row
        actual = jobs.attention[:, int(layer), int(number)]
        assert np.allclose(actual, np.array(weights, float), rtol=0, atol=0.0051)
    assert np.allclose(jobs.even, np.array(evenly[1:], float), rtol=0, atol=0.0051)
    for job in ("previous", "induction", "adjective", "animal", "thing"):
        best = jobs.attention[(jobs.jobs.index(job), *jobs.best(job))]
        assert best > 0.7, job
        assert best > 3 * jobs.even[jobs.jobs.index(job)]


@pytest.mark.slow
def test_model_card_losses(pocket_maker: Any, pocket: GPT2) -> None:
    losses = pocket_maker.held_out_losses(pocket)
    _, *rows = card_table("Losses")
    assert {kind for kind, *_ in rows} == {*(sample.kind for sample in samples()), "all"}
    for kind, tokens, model, grammar in rows:
        assert int(tokens) == losses[kind].tokens
        assert abs(float(model) - losses[kind].model) < 0.0051
        assert abs(float(grammar) - losses[kind].grammar) < 0.0051
    assert losses["all"].grammar < losses["all"].model < losses["all"].grammar + 0.06


def test_model_card_predictions(pocket: GPT2) -> None:
    _, *rows = card_table("Next tokens")
    assert len(rows) == 8
    for prompt, text, probability in rows:
        expected = {
            token.text.strip(): token.probability for token in pocket.trace(prompt).next_tokens(3)
        }
        assert abs(float(probability) - expected[text]) < 0.0051


def test_every_word_is_one_token(pocket: GPT2) -> None:
    text = "\n".join(sample.text for sample in samples()[:1000])
    words = set(re.findall("(?<= )[a-z]+(?=[ .])", text))
    assert len(words) > 200
    assert all(len(pocket.tokenizer.encode(f" {word}")) == 1 for word in words)
    assert pocket.tokenizer.decode(pocket.tokenizer.encode(text)) == text


def test_the_maker_writes_all_files(
    pocket_maker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With little text and few steps; the packaged model shows that it learns."""
    losses = pocket_maker.held_out_losses
    monkeypatch.setattr(pocket_maker, "SAMPLES", 300)
    monkeypatch.setattr(pocket_maker, "STEPS", 3)
    monkeypatch.setattr(pocket_maker, "WARMUP", 1)
    monkeypatch.setattr(pocket_maker, "HELD_OUT", 40)
    monkeypatch.setattr(pocket_maker, "held_out_losses", lambda model: losses(model, 20))
    card = pocket_maker.make(tmp_path)
    # The same vocabulary as the package's two files, in a form to which transformers adds nothing.
    tokenizer = {"tokenizer.json", "tokenizer_config.json"}
    made = {file.name for file in tmp_path.iterdir()}
    assert made == {*FILES} - {"vocab.json", "merges.txt"} | tokenizer
    assert card == (tmp_path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "generated 300 texts" in card
    model = GPT2.from_pretrained(tmp_path)
    assert pocket_maker.head_jobs(model).table() in card
    assert {len(model.tokenizer.encode(f" {word}")) for word in ("dog", "it", "chased")} == {1}
