"""Several texts side by side: the numbers of each are those of the text alone."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attnlab
from attnlab import GPT2, Trace
from attnlab.analysis.metrics import ratio_of_means, standard_error
from attnlab.errors import InvalidTypeError, InvalidValueError, OutOfRangeError
from attnlab.model.traces import Traces, group_equal
from attnlab.steps import at
from attnlab.support.tables import format_with_error

CLEAN = [
    "The dog chased the ball, but it",
    "The owl",
    "The cat found the kite, and it",
    "The dog watched the kite near the lake, but it",
]
CORRUPTED = [
    "The hen chased the ball, but it",
    "The hen",
    "The cat found the bell, and it",
    "The dog watched the bell near the lake, but it",
]
METRICS = [(" rolled", " barked"), " hooted", (" flew", " rang"), (" flew", " rang")]


@pytest.fixture(scope="module")
def pocket() -> GPT2:
    return GPT2.from_pretrained("pocket", dtype="float64")


@pytest.fixture(scope="module")
def pairs(pocket: GPT2) -> tuple[Traces, Traces]:
    return pocket.trace(CLEAN), pocket.trace(CORRUPTED)


def test_each_trace_equals_that_of_its_text_alone(pocket: GPT2) -> None:
    traces = pocket.trace(CLEAN)
    assert isinstance(traces, Traces)
    assert [len(trace.tokens) for trace in traces] == [8, 2, 8, 11]
    assert {frozenset(numbers) for numbers in traces._groups()} == {
        frozenset(numbers) for numbers in ({0, 2}, {1}, {3})
    }
    for text, trace in zip(CLEAN, traces, strict=True):
        alone = pocket.trace(text)
        assert trace.tokens == alone.tokens
        for path in (
            *("embedding", "blocks.0.attention.Q", "blocks.1.attention.heads.2.weights"),
            *("blocks.0.mlp.hidden", "blocks.1.output", "final", "logits", "next_logits"),
        ):
            step = at(trace, path)
            assert not step.flags.writeable
            np.testing.assert_allclose(step, at(alone, path), rtol=1e-12, atol=1e-12, strict=True)
        edits = {"blocks.1.attention.heads.0.context": 0}
        np.testing.assert_allclose(
            trace.edited(edits).next_logits, alone.edited(edits).next_logits, atol=1e-12
        )
        actual, expected = (attnlab.gradients(each, " dog").embedding for each in (trace, alone))
        np.testing.assert_allclose(actual, expected, atol=1e-12)
    assert traces[0] is traces[0]
    with pytest.raises(AttributeError, match="Traces is read-only: texts can't be set"):
        traces.texts = ()
    with pytest.raises(TypeError):
        traces._traces[0] = traces[1]  # type: ignore[index]
    assert [len(some) for some in (traces[:9], traces[::-1], traces[3:])] == [4, 4, 1]
    assert isinstance(traces[1:3], Traces)
    assert traces[1:3][1].tokens == traces[2].tokens
    assert traces[-1].tokens == traces[3].tokens


def test_losses_of_several_texts(pocket: GPT2) -> None:
    texts = [*CLEAN, "The"]
    traces, alone = pocket.trace(texts), [pocket.trace(text).losses for text in texts]
    for losses, expected in zip(traces.losses, alone, strict=True):
        np.testing.assert_allclose(losses, expected, rtol=1e-12, strict=True)
    tokens = np.concatenate(alone)  # each token counts once, not each text
    assert traces.loss == pytest.approx(tokens.sum() / (7 + 1 + 7 + 10), rel=1e-12)
    with pytest.raises(InvalidValueError, match="at least two tokens"):
        _ = pocket.trace(["The", "A"]).loss


def test_texts_of_one_length_are_computed_once(pocket: GPT2) -> None:
    traces = pocket.trace([CLEAN[0], CLEAN[2]])
    first, second = (trace.final for trace in traces)
    assert first.base is not None
    assert first.base is second.base
    assert group_equal([3, 2, 3, 3], 6) == [[0, 2], [3], [1]]
    assert group_equal([(9, 1), (9, 2), (9, 1)], 4) == [[0], [2], [1]]
    trace = pocket.trace(CLEAN)[0]
    final = trace.final
    for other in (copy.deepcopy(trace), pickle.loads(pickle.dumps(trace))):
        assert isinstance(other, Trace)
        assert not hasattr(other._run, "whole")
        np.testing.assert_array_equal(other.final, final)
        np.testing.assert_allclose(other.logits, trace.logits, atol=1e-12)
    np.testing.assert_array_equal(copy.copy(trace).final, final)


def test_edits_of_all_texts_are_copied_and_checked(pocket: GPT2) -> None:
    traces, vector = pocket.trace(CLEAN), np.linspace(-1, 1, 128)
    edited = traces.edited({"embedding[-1]": vector})
    expected = edited[0].next_logits
    vector[::2] = 3  # later than the edit
    np.testing.assert_array_equal(edited[:1][0].next_logits, expected)
    with pytest.raises(InvalidTypeError, match="edits must be a dict of paths and values"):
        traces.edited(None)  # type: ignore[arg-type]


def test_edits_by_functions_are_pickled_if_their_functions_can_be(pocket: GPT2) -> None:
    traces = pocket.trace(CLEAN[:2])
    for paths in ({"embedding": np.negative}, {"embedding[-1]": np.negative}):
        edited = traces.edited(paths)
        copied = pickle.loads(pickle.dumps(edited))
        assert np.array_equal(copied[1].next_logits, edited[1].next_logits)
        assert copied.loss == edited.loss
        local = traces.edited({path: lambda x: -x for path in paths})
        with pytest.raises(InvalidTypeError, match="pickled with these edits: Can't pickle local"):
            pickle.dumps(local)
        assert copy.deepcopy(local).loss == copy.copy(local).loss == edited.loss


def test_edits_of_all_texts_are_those_of_each(pocket: GPT2) -> None:
    """In steps, and in analyses that compute texts side by side."""
    edits = {"blocks.0.attention.heads.1.context[-1]": 0, "blocks.1.mlp.output": lambda x: -x}
    more = {"blocks.1.attention.heads.2.context": 0.5}
    traces = pocket.trace(CLEAN)
    edited = traces.edited(edits).edited(more)
    alone = [pocket.trace(text).edited(edits).edited(more) for text in CLEAN]
    for i, (trace, expected) in enumerate(zip(edited, alone, strict=True)):
        assert trace.title == expected.title
        np.testing.assert_allclose(trace.logits, expected.logits, rtol=1e-12, atol=1e-12)
        assert not np.allclose(trace.next_logits, traces[i].next_logits)
        assert np.array_equal(edited.logits[i], trace.logits)
        assert edited.next_tokens(2)[i] == trace.next_tokens(2)
        assert np.array_equal(edited.head(1, 2)[i].weights, trace.head(1, 2).weights)
    np.testing.assert_allclose(edited[1:3][0].next_logits, alone[1].next_logits, rtol=1e-12)
    assert edited.loss == pytest.approx(np.concatenate([one.losses for one in alone]).mean())
    settings: Any = {"parts": "blocks.*.mlp.output", "progress": False}
    # Two pairs of one length that differ at one position, which would be patched side by side.
    clean = pocket.trace([CLEAN[0], "The cat chased the ball, but it", CLEAN[1]])
    corrupted = pocket.trace([CORRUPTED[0], "The owl chased the ball, but it", CORRUPTED[1]])
    metrics = [METRICS[0], *METRICS[:2]]
    for pair in ((clean.edited(edits), corrupted), (clean, corrupted.edited(edits))):
        effects = attnlab.patch(*pair, target=metrics, **settings).effects
        for i, metric in enumerate(metrics):
            one = attnlab.patch(pair[0][i], pair[1][i], target=metric, **settings)
            np.testing.assert_allclose(effects[i], one.effects[0], rtol=1e-9, atol=1e-12)
    with pytest.raises(InvalidValueError, match="isn't a step to edit"):
        traces.edited({"blocks.7.mid": 0})


def test_steps_of_all_texts_are_stacked(pocket: GPT2) -> None:
    traces = pocket.trace(CLEAN)
    last = traces["blocks.*.output[-1]"]
    assert last.shape == (4, 2, 128)
    assert not last.flags.writeable
    for trace, rows in zip(traces, last, strict=True):
        assert np.array_equal(rows[1], trace.blocks[1].output[-1])
    assert traces["next_logits"].shape == (4, pocket.config.vocab_size)
    assert traces[0:3:2]["blocks.0.attention.weights"].shape == (2, 4, 8, 8)
    for path in ("blocks.1.output", "blocks.0"):
        with pytest.raises(InvalidValueError, match=f"{path}. can't be stacked.*such as"):
            traces[path]


def test_lists_of_texts(pocket: GPT2) -> None:
    tokens = pocket.tokenizer.tokens("The dog")
    for texts in ([tokens, "The owl"], [[1, 2], [3, 4, 5]], (tokens,), ["The dog"]):
        assert len(pocket.trace(texts)) == len(texts)  # type: ignore[arg-type]
    assert isinstance(pocket.trace([[1, 2]]), Trace)  # a batch of one text
    for wrong in (["The dog", ""], ["The dog", 3], [[1], [10**6]], ["The " * 1000]):
        with pytest.raises((InvalidValueError, InvalidTypeError)):
            pocket.trace(wrong)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "parts",
    [
        *("blocks.*.attention.heads.*.context", "blocks.*.attention.heads.*.K", "embedding"),
        *("blocks.*.attention.heads.*.weights", "blocks.*.attention.heads.*.X"),
        *("blocks.*.attention.heads.*.output", "blocks.*.mlp.hidden"),
    ],
)
def test_patching_pairs_equals_patching_each_alone(
    pairs: tuple[Traces, Traces], parts: str
) -> None:
    patching = attnlab.patch(*pairs, parts, target=METRICS, progress=False)
    linear = attnlab.attribution_patch(*pairs, parts, target=METRICS)
    for number, metric in enumerate(METRICS):
        pair = [traces[number] for traces in pairs]
        alone = attnlab.patch(*pair, parts, target=metric, progress=False)
        assert patching.clean[number] == pytest.approx(alone.clean, abs=1e-12)
        change = alone.clean - alone.corrupted
        np.testing.assert_allclose(patching.effects[number], alone.restored * change, atol=1e-12)
        alone = attnlab.attribution_patch(*pair, parts, target=metric)
        np.testing.assert_allclose(linear.effects[number], alone.restored * change, atol=1e-12)


def test_means_and_their_errors(pairs: tuple[Traces, Traces]) -> None:
    patching = attnlab.patch(*pairs, target=METRICS, progress=False)
    change = patching.clean - patching.corrupted
    ratio = patching.effects.sum(axis=0) / change.sum()
    np.testing.assert_allclose(patching.restored, ratio, atol=1e-14)
    # The jackknife estimates the same error, to first order in 1 / n.
    copies = 100
    effects, changes = np.tile(patching.effects[:, 1, 0], copies), np.tile(change, copies)
    left_out = (effects.sum() - effects) / (changes.sum() - changes)
    n = len(effects)
    jackknife = np.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum())
    scaled = patching.standard_errors[1, 0] * np.sqrt(4 * 3 / (n * (n - 1)) * copies)
    assert scaled == pytest.approx(jackknife, rel=0.01)
    swapped = attnlab.patch(*reversed(pairs), target=METRICS, progress=False)
    assert (swapped.clean - swapped.corrupted).mean() == pytest.approx(-change.mean())
    assert ((swapped.standard_errors > 0) & (patching.standard_errors > 0)).all()
    single = attnlab.patch(*(side[:1] for side in pairs), target=METRICS[:1], progress=False)
    assert np.isnan(single.standard_errors).all()
    assert single.clean == patching.clean[:1]
    assert "tandard error" not in repr(single)
    assert "nan" not in repr(single)
    assert np.isnan(standard_error(np.ones((1, 2)))).all()
    assert standard_error(np.array([1.0, 2, 3, 6])) == pytest.approx(np.sqrt(14 / 3 / 4))
    with pytest.raises(InvalidValueError, match="the mean change over these texts is 0"):
        ratio_of_means(np.ones((2, 3)), np.array([1.0, -1.0]))


def test_metric_functions_get_one_pair_at_a_time(pairs: tuple[Traces, Traces]) -> None:
    def measure(trace: Trace) -> float:
        flew, rang = (trace.vocabulary.lookup(name).id for name in (" flew", " rang"))
        return float(trace.next_logits[flew] - trace.next_logits[rang])

    named = attnlab.patch(*pairs, target=(" flew", " rang"), progress=False)
    measured = attnlab.patch(*pairs, target=measure, progress=False)
    np.testing.assert_allclose(measured.effects, named.effects, atol=1e-12)
    np.testing.assert_allclose(measured.standard_errors, named.standard_errors, atol=1e-12)
    assert measured.title.endswith(": measure")


def test_positions_require_texts_of_equal_length(
    pocket: GPT2, pairs: tuple[Traces, Traces]
) -> None:
    # The first two are computed side by side: their first different token has one position.
    same = (
        pocket.trace([CLEAN[0], CLEAN[0], CLEAN[2]]),
        pocket.trace([CORRUPTED[0], "The cat chased the kite, but it", CORRUPTED[2]]),
    )
    for by_position in (False, True):
        settings: Any = {"by_position": by_position, "progress": False}
        patching = attnlab.patch(*same, target=METRICS[:3], **settings)
        for number, metric in enumerate(METRICS[:3]):
            alone = attnlab.patch(*(traces[number] for traces in same), target=metric, **settings)
            expected = alone.restored * (alone.clean - alone.corrupted)
            np.testing.assert_allclose(patching.effects[number], expected, atol=1e-12)
    assert "Ġhen" not in patching.table()
    # The ten strongest of 64 patches, with their signs, and each with its error.
    strength = {index: -abs(x) for index, x in np.ndenumerate(patching.restored)}
    listed = [
        f"layer {i} head {j}, position {t} {number} {error}"
        for i, j, t in sorted(strength, key=strength.__getitem__)[:10]
        for x in [(patching.restored[i, j, t], patching.standard_errors[i, j, t])]
        for number, error in [format_with_error(*x)]
    ]
    assert any(" -" in line for line in listed)
    clean, corrupted = (
        f"{x.mean():.1f} ± {x.std(ddof=1) / 3**0.5:.1f}"
        for x in (patching.clean, patching.corrupted)
    )
    last = f"3 pairs; target {clean} in clean and {corrupted} in corrupted traces"
    lines = [" ".join(line.split()) for line in patching.table().splitlines()]
    assert lines[10:] == [*listed, last]
    with pytest.raises(InvalidValueError, match="texts of equal length; got 2 to 11 tokens"):
        attnlab.patch(*pairs, target=METRICS, by_position=True, progress=False)
    with pytest.raises(InvalidValueError, match="texts of equal length; got 2 to 11 tokens"):
        attnlab.attribution_patch(*pairs, target=METRICS, by_position=True)


def test_paths_of_pairs_are_those_of_each_alone(pairs: tuple[Traces, Traces]) -> None:
    settings = {"receiver": ["blocks.1.mlp.X", "final"], "progress": False}
    paths = attnlab.path_patch(*pairs, "blocks.*.mlp.output", target=METRICS, **settings)
    changes = np.empty(4)
    for number, metric in enumerate(METRICS):
        pair = [side[number] for side in pairs]
        alone = attnlab.path_patch(*pair, "blocks.*.mlp.output", target=metric, **settings)
        changes[number] = alone.clean - alone.corrupted
        np.testing.assert_allclose(
            paths.effects[number], alone.restored * changes[number], atol=1e-12
        )
    np.testing.assert_allclose(paths.restored, paths.effects.sum(axis=0) / changes.sum())
    residuals = paths.effects - paths.restored * changes[:, None]
    errors = np.sqrt((residuals**2).sum(axis=0) / 12) / abs(changes.mean())
    np.testing.assert_allclose(paths.standard_errors, errors)


def test_traces_of_two_models_are_not_patched(pocket: GPT2, pairs: tuple[Traces, Traces]) -> None:
    trained = attnlab.train(
        pocket.config, range(50), pocket.tokenizer, steps=1, sequence_length=4, progress=False
    ).model
    models = GPT2.from_pretrained("pocket"), trained
    same, different = (model.trace(CORRUPTED) for model in models)
    for clean, corrupted in ((pairs[0], different), (pairs[0][0], different[0])):
        for function in (attnlab.patch, attnlab.path_patch):
            with pytest.raises(InvalidValueError, match="by one model; their parameters differ"):
                function(clean, corrupted, target=" dog")  # type: ignore[operator]
    # The same numbers in another precision, from a file and from memory.
    arrays, tokenizer = pocket.parameters, pocket.tokenizer
    single, double = (
        GPT2.from_arrays(pocket.config, arrays, tokenizer, dtype=dtype).trace(CLEAN[0])
        for dtype in ("float32", "float64")
    )
    for clean, corrupted in ((pairs[0][0], same[0]), (double, single)):
        with pytest.raises(InvalidValueError, match="by one model; their parameters differ"):
            attnlab.patch(clean, corrupted, target=" dog", progress=False)
    clean = GPT2.from_pretrained("pocket").trace(CLEAN)  # opened again
    attnlab.patch(clean[0], same[0], target=" dog", progress=False)


REFUSALS: list[tuple[Callable[[Traces, Traces], Any], type, str]] = [
    (lambda a, b: attnlab.patch(a, b[0], target=" dog"), InvalidTypeError, "both of several"),
    (lambda a, b: attnlab.patch(a, b[:2], target=5), InvalidValueError, "of texts; got 4 and 2"),
    (lambda a, b: attnlab.patch(a[:2], b[1:3], target=5), InvalidValueError, r"got .* \(pair 0\)"),
    (lambda a, b: attnlab.patch(a, b, target=METRICS[:3]), InvalidValueError, "4 texts; got 3"),
    (
        lambda a, b: attnlab.patch(a, b, target=[*METRICS[:3], " xyzzy"]),
        InvalidValueError,
        "pair 3: ' xyzzy' isn't one token",
    ),
    (
        lambda a, b: attnlab.path_patch(a, b, receiver="logits", target=METRICS),
        InvalidValueError,
        "^receiver must be one of",
    ),
    (lambda a, b: attnlab.patch(a, a, target=METRICS), InvalidValueError, "nothing to restore"),
    (
        lambda a, b: attnlab.path_patch(a, a, target=METRICS),
        InvalidValueError,
        "pair 0: .* restore",
    ),
    (lambda a, b: attnlab.attribution_patch(a, b, target=len), InvalidTypeError, "or a pair"),
    (lambda a, b: attnlab.attribution(a, " rang"), InvalidTypeError, "must be a Trace"),
    (lambda a, b: attnlab.lens(a), InvalidTypeError, "must be a Trace"),
    (lambda a, b: a[4:6], InvalidValueError, r"slice\(4, 6, None\) selects none of the 4 texts"),
    (lambda a, b: a[4], OutOfRangeError, "there is no trace 4; traces are 0 to 3"),
    (lambda a, b: a[-5], OutOfRangeError, "there is no trace -5; traces are 0 to 3"),
    (lambda a, b: a["1"], InvalidValueError, "there is no part '1'; Trace has blocks"),
    (lambda a, b: at(a, "embedding"), InvalidTypeError, r"Several texts have traces\[path\]"),
    (lambda a, b: a.blocks, AttributeError, r"no attribute 'blocks'.*: traces\[0\]\.blocks$"),
    (lambda a, b: a.tokens, AttributeError, r"no attribute 'tokens'.*: traces\[0\]\.tokens$"),
    (lambda a, b: a.xyzzy, AttributeError, "Traces has no attribute 'xyzzy'$"),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSALS)
def test_refusals(pairs: tuple[Traces, Traces], call: Any, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        call(*pairs)
