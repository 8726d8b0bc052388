"""Training: the optimizer, compared with PyTorch; runs that repeat, learn and fail cleanly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE

import attnlab
import attnlab.training.run
from attnlab import GPT2, GPT2Config, Tokenizer
from attnlab.errors import DivergedError, InvalidTypeError, InvalidValueError
from attnlab.forward import ForwardPass
from attnlab.forward.parameters import parameter_shapes
from attnlab.training import AdamW, Training, clip, initial_parameters, learning_rate, train
from attnlab.training.parameters import decay_mask
from attnlab.training.run import batch

RECORDED = np.load(REFERENCE / "training.npz")
TINY = GPT2Config(vocab_size=256, n_positions=16, n_embd=12, n_layer=2, n_head=3)
TEXT = "The cat eats a fish. The fish eats a fly. The fly sings. " * 5
LINES = [
    f"{who} {verb} the {noun}."
    for who in ("A cat", "My dog", "Your owl", "No hen", "One fly")
    for verb, noun in (("saw", "moon"), ("ate", "cake"), ("met", "king"), ("hid", "keys"))
]
ONE_LAYER = GPT2Config(vocab_size=256, n_positions=16, n_embd=12, n_layer=1, n_head=3)
NINE_TOKENS = GPT2Config(vocab_size=9, n_positions=4, n_embd=4, n_layer=1, n_head=1)


def quick(corpus: Any = TEXT, config: GPT2Config = TINY, **settings: Any) -> Training:
    return train(config, corpus, **({"steps": 8, "batch_size": 3, "progress": False} | settings))


def test_adamw_clipping_and_learning_rate_against_pytorch() -> None:
    parameters = RECORDED["adamw.start"].copy()
    adamw = AdamW(np.repeat([0.1, 0.0], [15, 7]))  # a matrix that decays, a bias that does not
    for i, recorded in enumerate(RECORDED["adamw.gradients"]):
        gradient = recorded.copy()
        length = clip(gradient, 1.0)
        assert length == pytest.approx(RECORDED["adamw.lengths"][i], rel=1e-12)
        rate = learning_rate(i + 1, peak=0.03, warmup=3, steps=10)
        assert rate == pytest.approx(RECORDED["adamw.rates"][i], rel=1e-12)
        adamw.update(parameters, gradient, rate)
        # PyTorch clips to 1 / (length + 1e-6), a millionth less.
        assert np.allclose(parameters, RECORDED["adamw.after"][i], rtol=0, atol=3e-7)


def test_clipping_and_learning_rate_by_hand() -> None:
    gradient = np.array([0.3, -0.4])
    assert clip(gradient, 0.5) == pytest.approx(0.5)
    assert gradient.tolist() == [0.3, -0.4]
    assert clip(gradient, 0.25) == pytest.approx(0.5)
    assert gradient == pytest.approx([0.15, -0.2])

    def rate(step: int) -> float:
        return learning_rate(step, peak=2.0, warmup=4, steps=104)

    assert [rate(step) for step in (1, 2, 4)] == [0.5, 1.0, 2.0]
    assert rate(54) == pytest.approx(2 * (0.1 + 0.9 / 2))  # half way down
    assert rate(104) == pytest.approx(0.2)
    assert learning_rate(1, peak=2.0, warmup=0, steps=1) > 0


def test_initial_parameters() -> None:
    sizes = {"vocab_size": 401, "n_positions": 307, "n_embd": 96, "n_layer": 8, "n_head": 3}
    config = GPT2Config(**sizes, tie_word_embeddings=False)
    parameters = initial_parameters(config, np.random.default_rng(0))
    inside = {path.removeprefix("blocks.3."): x for path, x in parameters.items()}
    for path in ("W_E", "W_P", "W_U", *(f"attention.W_{x}" for x in "QKV"), "mlp.W_1"):
        assert inside[path].std() == pytest.approx(0.02, rel=0.05)
    for path in ("attention.W_O", "mlp.W_2"):
        assert inside[path].std() == pytest.approx(0.02 / 4, rel=0.05)  # √(2 · 8) = 4
    for path, x in parameters.items():
        name = path.rpartition(".")[2]
        if name == "gain":
            assert (x == 1).all()
        elif name.startswith("b"):
            assert not x.any()
    matrices = decay_mask(TINY)
    for path, shape in parameter_shapes(TINY).items():
        assert (matrices[path] == (len(shape) == 2)).all(), path


def test_batches_are_windows_of_the_corpus() -> None:
    corpus = np.arange(100, 120)
    inputs, targets = batch(corpus, 500, 6, np.random.default_rng(0))
    assert inputs.shape == targets.shape == (500, 6)
    assert (np.diff(inputs, axis=1) == 1).all()
    assert (targets == inputs + 1).all()
    assert set(inputs[:, 0]) == set(range(100, 114))  # the last window ends with the corpus
    assert targets.max() == 119


@pytest.mark.slow
def test_corpus_of_20_lines_is_memorised() -> None:
    assert len(LINES) == 20
    config = GPT2Config(vocab_size=256, n_positions=24, n_embd=32, n_layer=2, n_head=4)
    text = "\n".join([*LINES, LINES[0]])
    run = quick(text, config, steps=400, batch_size=16, learning_rate=1e-2)
    assert run.losses[0] == pytest.approx(np.log(256), rel=0.02)
    # Windows begin anywhere, so their first tokens are unpredictable: about 4 bits in 24 letters.
    assert np.mean(run.losses[-20:]) < 0.35
    for line in LINES:
        generated = run.model.generate(line[:5], len(line) - 5, temperature=0).text
        assert (line[:5] + generated)[: len(line)] in LINES


def test_runs_with_equal_seeds_are_bitwise_equal() -> None:
    first, reopened, other = (quick(seed=seed) for seed in (3, 3, 4))
    assert first.losses == reopened.losses
    assert np.array_equal(first.parameters.vector, reopened.parameters.vector)
    assert not np.array_equal(first.parameters.vector, other.parameters.vector)
    assert first.parameters.dtype == np.float32


def test_batches_and_initial_parameters_follow_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[bytes] = []

    def spy(*arguments: Any) -> Any:
        inputs, targets = batch(*arguments)
        drawn.append(inputs.tobytes())
        return inputs, targets

    def start(seed: int) -> bytes:
        return quick(seed=seed, steps=1, learning_rate=1e-30).parameters.vector.tobytes()

    assert start(1) == start(1) != start(2)
    monkeypatch.setattr(attnlab.training.run, "batch", spy)
    assert quick(seed=1).losses[0] != quick(seed=2).losses[0]
    assert len(set(drawn)) == 16


def test_every_setting_changes_the_result() -> None:
    changes = {"clip": 0.01, "decay": 0.9, "warmup": 5, "learning_rate": 1e-2}
    vectors = [quick(**{name: value}).parameters.vector for name, value in changes.items()]
    assert len({vector.tobytes() for vector in [*vectors, quick().parameters.vector]}) == 5


def test_watch_gets_immutable_models() -> None:
    records: list[tuple[int, float, GPT2]] = []
    run = quick(
        watch=lambda training: records.append((training.step, training.losses[-1], training.model))
    )
    assert [step for step, _, _ in records] == list(range(1, 9))
    assert [loss for _, loss, _ in records] == run.losses
    assert run.to_dataframe().to_dict("list") == {"step": [*range(1, 9)], "loss": run.losses}
    early, late = records[0][2].trace("The cat"), run.model.trace("The cat")
    before = early.logits.copy()
    assert not np.allclose(before, late.logits)
    assert np.array_equal(records[0][2].trace("The cat").logits, before)


def test_corpora_and_tokenizers() -> None:
    ids = Tokenizer.byte_level().encode(TEXT)
    assert quick(ids).losses == quick(TEXT).losses == quick(np.array(ids, np.uint8)).losses
    assert quick(Tokenizer.byte_level().tokens(TEXT)).losses == quick(TEXT).losses
    config = GPT2Config(vocab_size=7, n_positions=16, n_embd=12, n_layer=1, n_head=3)
    run = quick(np.arange(100) % 7, config, steps=3)
    assert len(run.losses) == 3
    tokenizer = Tokenizer.from_directory(REFERENCE / "odd")
    config = GPT2Config(vocab_size=len(tokenizer), n_positions=16, n_embd=12, n_layer=1, n_head=3)
    run = quick(TEXT, config, tokenizer=tokenizer)
    assert run.model.trace("The fly").tokens == tokenizer.tokens("The fly")


def test_saved_models_can_be_opened(tmp_path: Path) -> None:
    run = quick()
    for _ in range(2):  # the second time over the first
        run.model.save(tmp_path / "saved")
    reopened = GPT2.from_pretrained(tmp_path / "saved")
    assert reopened.config == TINY
    expected = run.model.trace("The fly sings").logits
    assert np.array_equal(reopened.trace("The fly sings").logits, expected)
    assert sorted(file.name for file in (tmp_path / "saved").iterdir()) == [
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip


class Stop(Exception):
    pass


@pytest.mark.parametrize(("steps", "warmup"), [(9, 0), (30, 3), (5000, 100)])
def test_warmup_is_a_tenth_and_at_most_100(steps: int, warmup: int) -> None:
    def watch(run: Training) -> None:
        assert run.settings.warmup == warmup
        raise Stop

    with pytest.raises(Stop):
        quick(steps=steps, watch=watch)


def test_numpy_numbers_are_accepted() -> None:
    sizes = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")
    numbers: dict[str, Any] = {name: np.int64(getattr(TINY, name)) for name in sizes}
    config = GPT2Config(**numbers, layer_norm_epsilon=np.float64(1e-5))
    assert config == TINY
    settings = {"steps": np.int64(8), "batch_size": np.uint8(3), "seed": np.int32(0)}
    rates = {"learning_rate": 3e-3, "decay": 0.1, "clip": 1.0}
    settings |= {name: np.float64(rate) for name, rate in rates.items()}
    run = quick(config=config, **settings)
    assert np.array_equal(run.parameters.vector, quick().parameters.vector)


@pytest.mark.parametrize("learning_rate", [1e25, 1e39])
def test_a_loss_that_is_not_finite_stops_the_run(learning_rate: float) -> None:
    steps: list[int] = []
    with pytest.raises(DivergedError) as raised:
        quick(learning_rate=learning_rate, warmup=0, watch=lambda run: steps.append(run.step))
    assert f"the loss isn't finite at step {len(steps) + 1}" in str(raised.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be an integer of at least 1; got 0"),
        ({"batch_size": 0}, "batch_size"),
        ({"sequence_length": 0}, "sequence_length"),
        ({"sequence_length": 17}, "an integer from 1 to 16; got 17"),
        ({"warmup": -1}, "warmup"),
        ({"learning_rate": 0}, "learning_rate must be above 0; got 0"),
        ({"clip": 0}, "clip"),
        ({"decay": -0.1}, "decay must be a number from 0 to 3.4"),
        ({"warmup": 8}, "warmup must be an integer from 0 to 7; got 8"),
        ({"corpus": "sixteen letters."}, "more tokens than sequence_length, 16; got 16"),
        ({"corpus": ""}, "16; got 0"),
        ({"corpus": [3] * 20 + [256]}, "token id 256 at position 20"),
        ({"corpus": [[1, 2], [3, 4]]}, "1-D array"),
        (
            {"tokenizer": Tokenizer.from_directory(REFERENCE / "odd")},
            "263 tokens, but config.vocab_size",
        ),
        ({"config": NINE_TOKENS}, "a text needs"),
        ({"corpus": [0.5] * 40}, "integers"),
        ({"config": {"n_embd": 12}}, "config must be a GPT2Config"),
        ({"tokenizer": "gpt2"}, "tokenizer must be a Tokenizer; got 'gpt2'"),
        ({"watch": 5}, "watch must be callable"),
    ],
)
def test_invalid_input_is_rejected_before_any_work(
    change: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "advance", None)
    with pytest.raises((InvalidValueError, InvalidTypeError)) as raised:
        quick(**change)
    assert message in str(raised.value)


def test_a_model_trained_on_ids_takes_ids(tmp_path: Path) -> None:
    run = quick([3, 1, 4, 1, 5, 2, 6, 5] * 9, NINE_TOKENS)
    run.model.save(tmp_path / "nine")
    opened = GPT2.from_pretrained(tmp_path / "nine")
    ids = [3, 1, 4]
    expected = ForwardPass(np.array(ids), run.parameters).logits
    for model in (run.model, opened):
        assert model.trace(ids).logits.tobytes() == expected.tobytes()
        assert len(model.generate(ids, 1, temperature=0).new) == 1


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "name",
    [
        *("steps", "batch_size", "sequence_length", "learning_rate", "warmup", "decay", "clip"),
        *("seed", "watch", "progress", "config", "tokenizer"),
    ],
)
def test_values_of_other_kinds_are_refused(name: str) -> None:
    for kind in (Odd(), np.array([[1]]).view(np.matrix), np.nan):
        with pytest.raises((InvalidTypeError, InvalidValueError), match=name):
            quick(**({"config": ONE_LAYER, "steps": 2, name: kind}))


def test_extreme_but_valid_settings() -> None:
    for seed in (2**128 - 1, np.uint64(2**64 - 1)):
        assert quick(steps=1, seed=seed).settings.seed == int(seed)
    quick(steps=1, decay=3e38, learning_rate=1e-39)
    for decay in (3.5e38, 1e308):
        with pytest.raises(InvalidValueError, match=r"decay must be .* 3.40282e\+38; got"):
            quick(decay=decay)


def test_running_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    for directory, name in ((attnlab.training.run, "initial_parameters"), (Training, "advance")):
        monkeypatch.setattr(directory, name, full)
        with pytest.raises(MemoryError, match="not enough free memory; use a"):
            quick()
        monkeypatch.undo()


def test_invalid_arguments() -> None:
    for rng in (None, "x", 5, np.random.RandomState(0)):
        with pytest.raises(InvalidTypeError, match="rng must be a Generator"):
            initial_parameters(TINY, rng)  # type: ignore[arg-type]
    with pytest.raises(InvalidTypeError, match="config must be a GPT2Config"):
        initial_parameters("gpt2", np.random.default_rng(0))  # type: ignore[arg-type]


def test_progress_bar_shows_loss_and_speed(capfd: pytest.CaptureFixture[str]) -> None:
    run = quick(progress=True)
    stderr = capfd.readouterr().err
    assert "8/8" in stderr
    assert f"loss {run.losses[-1]:.3f}" in stderr
    assert "tokens/s" in stderr
    quick(progress=False)
    assert capfd.readouterr().err == ""
