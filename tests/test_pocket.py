"""The pocket model: its files, its predictions, its heads' jobs, and its card."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import REFERENCE

from attnlab import GPT2
from attnlab.analysis.jobs import HeadJobs
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.errors import ResumeError
from attnlab.pocket import make
from attnlab.pocket.grammar import HELD_OUT_SEED, KINDS, corpus
from attnlab.pocket.jobs import JOBS, head_jobs
from attnlab.pocket.make import Loss, held_out_losses

FILES = ("config.json", "model.safetensors", "vocab.json", "merges.txt", "MODEL_CARD.md")
CARD = (BUILT_IN["pocket"].directory / "MODEL_CARD.md").read_text(encoding="utf-8")
PROMPT = "It’s very hot in summer. Swimming is"


@pytest.fixture(scope="module")
def losses(pocket: GPT2) -> dict[str, Loss]:
    return held_out_losses(pocket)


@pytest.fixture(scope="module")
def jobs(pocket: GPT2) -> HeadJobs:
    return head_jobs(pocket)


def card_table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading of the card, cells split at runs of spaces."""
    section = CARD.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = section.split("```")[1].strip("\n").splitlines()
    return [re.split(r"  +", line.strip()) for line in lines]


def test_files_are_few_and_small() -> None:
    sizes = {file.name: file.stat().st_size for file in BUILT_IN["pocket"].directory.glob("*.*")}
    assert set(FILES) <= set(sizes)
    assert "training.safetensors" not in sizes
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


def test_losses_are_means_over_the_predicted_tokens(pocket: GPT2) -> None:
    nats = []
    for sample in corpus(HELD_OUT_SEED, 3).samples:
        trace = pocket.trace(f"\n{sample.text}\n")
        powers = np.exp(trace.logits[:-1].astype(float))
        ids = trace.tokens.ids[1:]
        nats.extend(-np.log(powers[np.arange(len(ids)), ids] / powers.sum(axis=-1)))
    loss = held_out_losses(pocket, 3)["all"]
    assert (loss.tokens, loss.model) == (len(nats), pytest.approx(np.mean(nats), rel=1e-4))


@pytest.mark.slow
def test_loss_is_close_to_the_grammars_entropy(losses: dict[str, Loss]) -> None:
    assert losses["all"].tokens > 20_000
    assert losses["all"].grammar < losses["all"].model < losses["all"].grammar + 0.06


def test_model_card_jobs_of_heads(pocket: GPT2, jobs: HeadJobs) -> None:
    head, *rows, evenly = card_table("What its heads do")
    assert head == ["layer", "head", *JOBS]
    assert len(rows) == pocket.config.n_layer * pocket.config.n_head
    for row in rows:
        layer, number, *weights = row
        actual = jobs.attention[:, int(layer), int(number)]
        assert np.allclose(actual, np.array(weights, float), rtol=0, atol=0.0051)
    assert np.allclose(jobs.even, np.array(evenly[1:], float), rtol=0, atol=0.0051)
    for job in ("previous", "induction", "adjective", "animal", "thing"):
        best = jobs.attention[(JOBS.index(job), *jobs.best(job))]
        assert best > 0.7, job
        assert best > 3 * jobs.even[JOBS.index(job)]


@pytest.mark.slow
def test_model_card_losses(losses: dict[str, Loss]) -> None:
    _, *rows = card_table("Losses")
    assert {kind for kind, *_ in rows} == {*KINDS, "all"}
    for kind, tokens, model, grammar in rows:
        loss = losses[kind]
        assert int(tokens) == loss.tokens
        assert abs(float(model) - loss.model) < 0.0051
        assert abs(float(grammar) - loss.grammar) < 0.0051


def test_model_card_predictions(pocket: GPT2) -> None:
    _, *rows = card_table("Next tokens")
    assert {prompt for prompt, *_ in rows} == set(make.PROMPTS)
    for prompt, text, probability in rows:
        expected = {
            token.text.strip(): token.probability for token in pocket.trace(prompt).next_tokens(3)
        }
        assert abs(float(probability) - expected[text]) < 0.0051


def test_training_command_writes_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little text and few steps; the packaged model shows that it learns."""
    if os.environ.get("ATTNLAB_STRICT") != "1":
        pytest.importorskip("tokenizers")
    monkeypatch.setattr(make, "SAMPLES", 300)
    monkeypatch.setattr(make, "STEPS", 3)
    monkeypatch.setattr(make, "WARMUP", 1)
    monkeypatch.setattr(make, "held_out_losses", lambda model: held_out_losses(model, 20))
    card = make.make(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == set(FILES)
    assert card == (tmp_path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "generated 300 texts" in card
    model = GPT2.from_pretrained(tmp_path)
    assert head_jobs(model).table() in card
    assert model.config.n_layer == GPT2.from_pretrained("pocket").config.n_layer
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ResumeError, match="contains a model"):
        make.make(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
