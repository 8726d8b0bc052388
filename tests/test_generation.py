"""generation.py, compared with transformers' recorded continuations and probabilities."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, REFERENCE, RELATIVES, needs
from runs import every_step

import attnlab
from attnlab import GPT2, AttnlabError, Tokenizer, softmax
from attnlab.forward import ForwardPass
from attnlab.forward.forward_pass import KeyValueCache
from attnlab.model.sampling import Sampling
from attnlab.text.tokens import byte_symbols

RECORDED = json.loads((REFERENCE / "generation.json").read_text(encoding="utf-8"))
ARRAYS = np.load(REFERENCE / "generation.npz")
VECTORS = sorted({name.split(".")[1] for name in ARRAYS.files if name.startswith("sampling.")})
STEPS = ("X", "Q", "K", "V", "raw_scores", "scores", "masked_scores", "weights", "context")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_greedy_continuations_equal_transformers(name: str, dtype: str) -> None:
    model = GPT2.from_pretrained(REFERENCE / name, dtype=dtype)
    for i, case in enumerate(RECORDED["greedy"][name]):
        generated = model.generate(case["prompt"], len(case["new"]), temperature=0)
        assert generated.new.ids.tolist() == case["new"]
        best = ARRAYS[f"greedy.{name}.{i}.best"][:, 0]
        tolerance = {"float32": 1e-4, "float64": 1e-10}[dtype]
        assert [t.logit for t in generated.chosen] == pytest.approx(best, abs=tolerance)
        assert {token.sampled_with for token in generated.chosen} == {1.0}
        whole = model.trace(generated.tokens.ids).logits[len(generated.prompt) - 1 : -1]
        shares = [softmax(row)[t.id] for row, t in zip(whole, generated.chosen, strict=True)]
        assert [t.probability for t in generated.chosen] == pytest.approx(shares, rel=1e-3)
        assert max(shares) < 1


@pytest.mark.parametrize("name", MODELS + RELATIVES)
def test_steps_have_the_rows_of_an_uncached_run(name: str) -> None:
    model = GPT2.from_pretrained(REFERENCE / name)
    generated = model.generate([5, 80, 5, 261], 9, temperature=0.8, seed=1, trace=True)
    whole = model.trace(generated.tokens)
    for step in generated.steps:
        rows = slice(step.cached, step.cached + step.computed)
        for ours, theirs in zip(step.trace.blocks, whole.blocks, strict=True):
            for part, names in (("attention", (*STEPS, "output")), ("mlp", ("activated",))):
                for one in names:
                    a = getattr(getattr(ours, part), one)
                    b = getattr(getattr(theirs, part), one)
                    b = b[..., : rows.stop, :] if one in ("K", "V") else b[..., rows, :]
                    b = b[..., : rows.stop] if one in STEPS[4:8] else b
                    assert np.allclose(a, b, rtol=1e-4, atol=1e-4), one
    assert np.allclose(
        generated.steps[-1].trace.next_logits, whole.next_logits, rtol=1e-4, atol=1e-4
    )


def test_each_step_reports_computed_and_cached_parts(odd: GPT2) -> None:
    generated = odd.generate("the hen", 3, temperature=0, trace=True)
    counts = [(step.cached, step.computed) for step in generated.steps]
    assert counts == [(0, 4), (4, 1), (5, 1), (6, 1)]
    assert [step.token for step in generated.steps] == [*generated.chosen, None]
    longest = odd.generate(np.arange(15), 2, temperature=0, trace=True)  # there are 17 positions
    assert [(x.cached, x.computed) for x in longest.steps] == [(0, 15), (15, 1), (16, 1)]
    last = generated.steps[-1].trace.blocks[1].attention
    assert last.mask.base is None
    assert last.Q.shape == (5, 1, 7)
    assert last.K.shape == (5, 7, 7)
    assert last.weights.shape == (5, 1, 7)
    # Keys and values of earlier tokens don't change: each step's are the first of the next step's.
    for before, after in zip(generated.steps, generated.steps[1:], strict=False):
        for layer in range(3):
            K, more = (s.trace.blocks[layer].attention.K for s in (before, after))
            assert np.array_equal(K, more[:, : K.shape[1]])
            assert np.shares_memory(K, more)  # one cache, and nothing is copied
    for step in generated.steps:
        head = step.trace.head(1, 2)
        assert head.scores_shape == head.scores.shape


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_generation_steps_have_the_models_dtype(dtype: str) -> None:
    """Including the cached ones."""
    model = GPT2.from_pretrained(REFERENCE / "odd", dtype=dtype)
    generated = model.generate("the hen", 2, temperature=0, trace=True)
    for step in generated.steps:
        actual = {name: getattr(part, name) for part, name in every_step(step.trace)}
        floats = {
            name: x.dtype
            for name, x in actual.items()
            if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        }
        assert {"K", "V", "weights", "next_logits"} <= floats.keys()
        assert set(floats.values()) == {np.dtype(dtype)}


def test_cache_capacity_is_the_remaining_positions(odd: GPT2) -> None:
    cache = KeyValueCache(odd.config, odd.parameters.dtype)
    assert ForwardPass(np.arange(15), odd.parameters, cache).final.shape == (15, 35)
    cache.length = 15
    with pytest.raises(AttnlabError, match="takes 1 to 2 tokens; got 3"):
        ForwardPass([1, 2, 3], odd.parameters, cache)
    full = ForwardPass([15, 16], odd.parameters, cache)
    assert full.positions.tolist() == [15, 16]
    assert np.allclose(full.logits, odd.trace(np.arange(17)).logits[15:], rtol=0, atol=1e-4)


def test_generation_result(odd: GPT2) -> None:
    generated = odd.generate("the hen", 5, temperature=0)
    assert generated.prompt.ids.tolist() == odd.tokenizer.encode("the hen")
    assert len(generated.new) == len(generated.chosen) == 5
    assert generated.tokens.ids.tolist() == [*generated.prompt.ids, *generated.new.ids]
    assert generated.text == odd.tokenizer.decode(generated.new.ids)
    assert str(generated) == odd.tokenizer.decode(generated.tokens.ids)
    assert generated.steps == ()
    # A character split between the prompt and a generated token is whole in the whole text.
    split = odd.tokenizer.encode("é")
    two = odd.generate(split[:1], 1, seed=0)
    assert two.whole_text == odd.tokenizer.decode([split[0], *two.new.ids])
    none = odd.generate("the hen", 0)
    assert (len(none.new), none.text, str(none)) == (0, "", "the hen")
    (only,) = odd.generate("the hen", 0, trace=True).steps
    assert np.allclose(only.trace.logits, odd.trace("the hen").logits, atol=1e-4)


def test_seeds_and_streams(odd: GPT2) -> None:
    def ids(seed: int | None) -> list[int]:
        return odd.generate("the", 10, seed=seed).new.ids.tolist()

    assert ids(7) == ids(7)
    assert len({tuple(ids(seed)) for seed in range(5)}) == 5
    assert ids(None) != ids(None)
    stream = odd.stream("the hen", 4, temperature=0.7, seed=3)
    first = next(stream)
    assert [first, *stream] == list(odd.generate("the hen", 4, temperature=0.7, seed=3).chosen)


@pytest.mark.parametrize(
    ("stop", "length"),
    [("!", 3), ("!!", 4), ("\x03!", 3), (["@@", "\x03\x03"], 6), ("@@", 8), (None, 8)],
)
def test_stop_texts(odd: GPT2, stop: Any, length: int) -> None:
    full = odd.generate("the hen", 8, temperature=0.4, seed=0)
    assert b"".join(full.new.bytes) == b"\xdc\x03!!\x03\x03\x03\x03"
    stopped = odd.generate("the hen", 8, temperature=0.4, seed=0, stop=stop)
    assert stopped.new.ids.tolist() == full.new.ids.tolist()[:length]


def test_stop_text_inside_a_token() -> None:
    model = GPT2.from_pretrained("pocket")
    texts = model.generate("The", 6, temperature=0).new.texts
    first = next(i for i, text in enumerate(texts) if len(text) > 3)
    stop = texts[first][-3:-1]
    length = next(n for n in range(7) if stop in "".join(texts[:n]))
    generated = model.generate("The", 6, temperature=0, stop=stop).new.texts
    assert generated == texts[:length]
    assert not generated[-1].endswith(stop)


def test_stop_text_that_does_not_occur(odd: GPT2) -> None:
    """Because it isn't UTF-8, or in the prompt alone."""
    full = odd.generate("the hen", 8, seed=0)
    assert " hen" not in full.text
    for stop in ("\ud800", ["\udfff", "q\ud800"], [" hen", "n"]):
        assert odd.generate("the hen", 8, seed=0, stop=stop).new == full.new


def test_rows_without_a_token_are_never_sampled(odd: GPT2) -> None:
    ids = {symbol: 263 - id for id, symbol in enumerate(byte_symbols(), start=1)}
    model = GPT2(odd.parameters, Tokenizer.from_merges(ids, []))
    trace = model.trace([5, 200])
    assert trace.tokens.symbols == ("<row 5>", ">")
    generated = model.generate([5, 200], 8, seed=0)
    assert all(id >= 7 for id in generated.new.ids)
    among_tokens = softmax(np.asarray(trace.next_logits[7:], np.float64))
    first = generated.chosen[0]
    assert first.sampled_with == pytest.approx(among_tokens[first.id - 7])
    assert first.logit == trace.next_logits[first.id]
    best = model.generate([5, 200], 1, temperature=0).chosen[0]
    assert best.id == 7 + trace.next_logits[7:].argmax()


def test_generation_with_a_library_tokenizer(tmp_path: Path) -> None:
    """BERT's, with a larger embedding: `stop` also sees spaces between words."""
    needs("tokenizers", "tokenizers")
    parameters = GPT2.from_pretrained(REFERENCE / "odd").parameters
    model = GPT2(parameters, Tokenizer.from_directory(REFERENCE / "tokenizers/bert"))
    generated = model.generate("猫吃鱼", 8, seed=3)
    assert generated.prompt.symbols == ("[CLS]", "猫", "吃", "鱼")  # without [SEP]
    assert not any("<row" in token.symbol for token in generated.chosen)
    assert generated.text == model.tokenizer.decode(generated.new.ids)
    assert str(generated) == model.tokenizer.decode(generated.tokens.ids)
    assert str(generated).startswith("[CLS] 猫 吃 鱼 ")
    two = model.tokenizer.decode(generated.new.ids[2:4])
    assert " " in two
    assert len(model.generate("猫吃鱼", 8, seed=3, stop=two).new) == 4

    model.save(tmp_path)
    assert GPT2.from_pretrained(tmp_path).generate("猫吃鱼", 8, seed=3).whole_text == str(generated)

    trace = model.trace("猫吃鱼")
    assert trace.next_tokens(263)[0].symbol in repr(trace.next_tokens(263))
    assert "吃" in attnlab.page(trace).html
    assert "吃" in repr(trace.tokens)


@pytest.mark.parametrize("vector", VECTORS)
def test_sampling_probabilities_equal_transformers(vector: str) -> None:
    logits = ARRAYS[f"sampling.{vector}.logits"]
    recorded = ARRAYS[f"sampling.{vector}.probabilities"]
    splits_tie = ARRAYS[f"sampling.{vector}.splits_tie"]
    assert len(recorded) == len(RECORDED["settings"]) == 75
    for i, settings in enumerate(RECORDED["settings"]):
        computed = Sampling(**settings).probabilities(logits)
        expected = recorded[i]
        if splits_tie[i] and logits.size > 16:
            # torch doesn't specify which of equal logits it keeps, only how many.
            computed, expected = np.sort(computed), np.sort(expected)
        assert np.allclose(computed, expected, rtol=1e-12, atol=1e-15), settings


def test_sampling_at_the_limits_of_its_settings() -> None:
    assert Sampling(temperature=0).probabilities([1.0, 3.0, 3.0]).tolist() == [0, 1, 0]
    assert Sampling(temperature=1e-300).probabilities([1.0, 3.0]).tolist() == [0, 1]
    # Dividing by it overflows float64.
    assert Sampling(temperature=1e-310).probabilities([1.0, 3.0, 2.0]).tolist() == [0, 1, 0]
    # The most probable token stays, even where 1 - top_p is 1.
    assert Sampling(top_p=1e-17).probabilities([1.0, 3.0, 2.0]).tolist() == [0, 1, 0]
    flat = Sampling(temperature=1e300).probabilities([1.0, 3.0])
    assert flat.tolist() == [0.5, 0.5]
    assert Sampling().probabilities(np.float32([0, math.log(3)])) == pytest.approx([0.25, 0.75])


LARGEST_DRAW = 1 - 2**-53


@pytest.mark.parametrize(
    ("drawn", "expected"), [(0.0, 1), (0.4999, 1), (0.5, 3), (LARGEST_DRAW, 3)]
)
def test_sampling_at_the_limits_of_the_random_number(drawn: float, expected: int) -> None:
    """u in [0, 1); ids with probability 0 are never drawn."""

    class Fixed(np.random.Generator):
        def random(self) -> float:  # type: ignore[override]
            return drawn

    rng = Fixed(np.random.PCG64())
    assert Sampling(top_k=2).draw([0.0, 7.0, 1.0, 7.0, 0.0], rng) == (expected, 0.5)
    if drawn == LARGEST_DRAW:  # more than the floating-point sum of ten times 0.1
        assert Sampling().draw([3.0] * 10, rng) == (9, pytest.approx(0.1))


def test_texts_longer_than_the_positions_need_drop_oldest(odd: GPT2) -> None:
    with pytest.raises(AttnlabError, match=r"18 tokens \(prompt 4, new 14\).*17 positions"):
        odd.generate("the hen", 14)
    with pytest.raises(AttnlabError, match="a trace has at most n_positions"):
        odd.generate("the hen", 20, drop_oldest=True, trace=True)
    generated = odd.generate("the hen", 20, temperature=0, drop_oldest=True)
    assert len(generated.tokens) == 24
    ids = generated.tokens.ids.tolist()
    for t in range(4, 24):
        window = ids[max(0, t - 17) : t]
        logits = odd.trace(window).next_logits
        assert ids[t] == logits.argmax() or logits[ids[t]] == pytest.approx(logits.max(), abs=1e-4)
    long = odd.generate(list(range(30)), 2, temperature=0, drop_oldest=True)
    assert long.new.ids[0] == odd.trace(list(range(13, 30))).next_logits.argmax()


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("", 3), {}, "no tokens"),
        (("the", -1), {}, "max_new_tokens.*-1"),
        (("the", 2.0), {}, "max_new_tokens.*2.0"),
        (("the", True), {}, "max_new_tokens.*True"),
        (("the", 3), {"temperature": -0.1}, "temperature.*-0.1"),
        (("the", 3), {"temperature": math.nan}, "temperature.*nan"),
        (("the", 3), {"temperature": math.inf}, "temperature.*inf"),
        (("the", 3), {"temperature": "1"}, "temperature.*'1'"),
        (("the", 3), {"temperature": 10**400}, "temperature must be"),
        (("the", 3), {"temperature": np.ma.masked_equal(1.0, 1.0)}, "temperature must be"),
        (("the", 3), {"top_k": 0}, "top_k.*0"),
        (("the", 3), {"top_k": 1.5}, "top_k.*1.5"),
        (("the", 3), {"top_k": np.timedelta64(1, "s")}, "top_k must be an integer"),
        (("the", 3), {"top_p": 0}, "top_p.*0"),
        (("the", 3), {"top_p": 1.1}, "top_p.*1.1"),
        (("the", 3), {"stop": ""}, "stop must not contain"),
        *(
            (("the", 3), {"stop": stop}, "stop must be a text or a list of texts; got ")
            for stop in (b"a", bytearray(), range(2), {"a"}, 5, [b"a"], [None])
        ),
        (("the", 3), {"seed": "x"}, "seed.*'x'"),
        (("the", 3), {"seed": np.timedelta64(1, "s")}, "a seed must be"),
        (("the", 3), {"seed": -1}, "seed.*-1"),
        (("the", 3), {"drop_oldest": 1}, "drop_oldest must be True or False; got 1"),
        (([263], 3), {}, "263"),
        (("the", 17), {}, "17 positions"),
    ],
)
def test_invalid_input_is_rejected_before_any_work(
    odd: GPT2,
    monkeypatch: pytest.MonkeyPatch,
    arguments: Any,
    settings: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.setattr(odd, "parameters", None)
    for call in (odd.generate, odd.stream):
        with pytest.raises(AttnlabError, match=message):
            call(*arguments, **settings)
