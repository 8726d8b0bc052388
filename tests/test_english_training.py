"""What the English model is trained on, and one step of its training beside the library's."""

from pathlib import Path

import numpy as np
import pytest
from pytorch import python_with, walk

from attnlab.english.windows import (
    END_OF_TEXT,
    ROUNDS,
    UNKNOWN,
    WORDS,
    Part,
    batch,
    learn_tokens,
    tokenized,
)
from attnlab.text.tokenizer import Tokenizer

SHARES = ROUNDS[0].shares
DOCUMENTS = ["The cat sat. It was tired.\nThen it slept.", "“Swim!” she said."]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    pytest.importorskip("tokenizers")
    return learn_tokens(DOCUMENTS * 3, tmp_path_factory.mktemp("tokens"))


def test_words_of_the_readme_are_whole(tokenizer: Tokenizer) -> None:
    for word in WORDS:
        assert len(tokenizer.encode(word)) == len(tokenizer.encode(f" {word}")) == 1, word
    assert tokenizer.encode(END_OF_TEXT, special=True) == [len(tokenizer) - 1]


def test_windows_start_at_sentences(tokenizer: Tokenizer) -> None:
    part = tokenized(DOCUMENTS, tokenizer)
    end = f"{END_OF_TEXT}"
    assert tokenizer.decode(part.ids) == DOCUMENTS[0] + end + DOCUMENTS[1] + end
    rng = np.random.default_rng(0)
    starts = {tokenizer.decode(part.window(rng, 3)).split()[0] for _ in range(60)}
    assert starts <= {"The", "It", "Then", "“Swim!”", "“Swim!", "“Swim", "“Sw", "“S", "“"}
    assert {"The", "It", "Then"} <= starts  # "It" without the space before it


def test_a_step_has_its_own_windows() -> None:
    ids = np.arange(1000, dtype=np.uint16)
    part = Part(ids, np.arange(0, 1000, 10), ids[::10])
    parts = dict.fromkeys(SHARES, part)
    first, targets = batch(parts, SHARES, 1, 5, 8, 32, repeated=0.0)
    again, _ = batch(parts, SHARES, 1, 5, 8, 32, repeated=0.0)
    other, _ = batch(parts, SHARES, 1, 6, 8, 32, repeated=0.0)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(targets, first + 1)  # this corpus counts
    assert (first[:, 0] % 10 == 0).all()


def test_repeated_windows_repeat_and_leave_out_what_cannot_be_known() -> None:
    ids = np.arange(1000, dtype=np.uint16)
    part = Part(ids, np.arange(0, 1000, 10), ids[::10])
    parts = dict.fromkeys(SHARES, part)
    windows, targets = batch(parts, SHARES, 1, 5, 40, 64, repeated=1.0)
    unknown = (targets == UNKNOWN).sum(axis=1)
    assert (unknown > 0).any()
    assert (unknown == 0).any()
    for window, target, count in zip(windows, targets, unknown, strict=True):
        if count:
            assert (target[:count] == UNKNOWN).all()
            # The first known target is the token that began the round, now for the second time.
            assert target[count] == window[0]
            assert np.array_equal(target[count:-1], window[count + 1 :])


ONE_STEP = """
import numpy as np, torch
from attnlab.english.train import UNKNOWN, loss
from attnlab.forward.config import GPT2Config
from attnlab.forward.forward_pass import ForwardPass
from attnlab.training.gradients import loss_and_gradients
from attnlab.training.parameters import initial_parameters

config = GPT2Config(vocab_size=50, n_positions=16, n_embd=24, n_layer=2, n_head=3)
rng = np.random.default_rng(0)
drawn = initial_parameters(config, rng, "float64")
drawn.vector += rng.normal(size=drawn.vector.shape) * 0.1
ids, targets = rng.integers(50, size=(2, 3, 12))
tensors = {path: torch.tensor(drawn[path], requires_grad=True) for path in drawn}
value = loss(tensors, torch.from_numpy(ids), torch.from_numpy(targets), config)
value.backward()
expected, gradients = loss_and_gradients(ForwardPass(ids, drawn), targets)
np.testing.assert_allclose(value.item(), expected, rtol=1e-6)
for path, tensor in tensors.items():
    np.testing.assert_allclose(tensor.grad.numpy(), gradients[path], rtol=1e-4, atol=1e-6)
"""


def test_one_step_has_the_librarys_loss_and_gradients(tmp_path: Path) -> None:
    walk(python_with("torch"), ONE_STEP, tmp_path)


LAST_ROUND = """
import sys
from pathlib import Path
import numpy as np
from attnlab.english.train import Run, scheduled
from attnlab.english.windows import PARTS
from attnlab.model.gpt2 import GPT2

corpus, english = Path("corpus"), Path(sys.modules["attnlab.english"].__file__).parent
corpus.mkdir()
for part in (*PARTS, "held_tatoeba", "held_stories"):
    (corpus / f"{part}.txt").write_text("It rains.\\nShe sleeps.\\n")
run = Run(corpus, Path("last"), english)
assert (run.step, run.last) == (9_600, 11_200)
weights = GPT2.from_pretrained(english).parameters
assert run.parameters.keys() == weights.keys()
for path, tensor in run.parameters.items():
    assert np.array_equal(tensor.detach().numpy(), weights[path]), path
assert not run.muon.momentum["blocks.0.mlp.W_1"].any()
for name in ("vocab.json", "merges.txt"):
    assert Path("last", name).read_bytes() == (english / name).read_bytes()
run.step += 1
run.save()
again = Run(corpus, Path("last"), english)  # resumed
assert (again.step, again.last) == (9_601, 11_200)
rates = [
    (0, 0.01), (99, 1), (4_000, 1), (6_000, 0.5), (7_999, 1 / 4_000),
    (8_000, 0.01), (8_800, 0.25), (9_599, 0.5 / 1_600),
    (9_600, 0.01), (10_400, 0.15), (11_199, 0.3 / 1_600),
]
for step, rate in rates:
    assert np.isclose(scheduled(step)[1], rate), step
"""


def test_the_last_round_starts_from_weights(tmp_path: Path) -> None:
    walk(python_with("torch"), LAST_ROUND, tmp_path)


ORTHOGONAL = """
import torch
from attnlab.english.train import orthogonal

torch.manual_seed(0)
for shape in ((2, 24, 96), (2, 96, 24)):
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
    assert ((values > 0.6) & (values < 1.3)).all(), values
"""


def test_muons_updates_are_nearly_orthogonal(tmp_path: Path) -> None:
    walk(python_with("torch"), ORTHOGONAL, tmp_path)
