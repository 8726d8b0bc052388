"""Chapter 19, the heads of GPT-2: its figures, counted one by one from the recorded matrices."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from book import Chapter, run, run_unchanged

import attnlab
from attnlab import figures

pytestmark = pytest.mark.slow

CHAPTER = "19"
RECORDED = figures.load("gpt2_patterns")
WEIGHTS = [RECORDED[f"weights_{n}"].astype(float) for n in (0, 1)]

# Wang and others (2022), figure 2; without backup, negative and S-inhibition heads.
PUBLISHED_JOBS = {
    "previous-token head": [(2, 2), (4, 11)],
    "duplicate-token head": [(0, 1), (0, 10), (3, 0)],
    "induction head": [(5, 5), (5, 8), (5, 9), (6, 9)],
    "name-mover head": [(9, 6), (9, 9), (10, 0)],
}


def mean_on(kind: str, layer: int, head: int, prompt: int, since: int = 2) -> float:
    """A head's mean weight on the first or previous token or itself, by queries from `since` on."""
    matrix = WEIGHTS[prompt][layer, head]
    key = {"first": lambda i: 0, "previous": lambda i: i - 1, "itself": lambda i: i}[kind]
    return float(np.mean([matrix[i][key(i)] for i in range(since, len(matrix))]))


@cache
def all_heads(kind: str, since: int = 2) -> Any:
    """The same for both prompts and all heads, (2, 12, 12)."""
    heads = [
        mean_on(kind, layer, head, n, since) for n in (0, 1) for layer, head in np.ndindex(12, 12)
    ]
    return np.reshape(heads, (2, 12, 12))


def test_the_pieces_are_the_prompts(chapter: Chapter) -> None:
    for n, pieces in enumerate(chapter["PIECES"]):
        assert "".join(pieces).replace("Ġ", " ") == RECORDED[f"prompt_{n}"]
        trace = chapter["traces"][n]
        assert list(trace.tokens.symbols) == pieces
        shown = np.stack([block.attention.weights for block in trace.blocks])
        assert np.array_equal(shown, RECORDED[f"weights_{n}"])


def test_where_attention_rests(chapter: Chapter) -> None:
    for n, weights in enumerate(WEIGHTS):
        by_layer = [np.mean([row[0] for h in heads for row in h[1:]]) for heads in weights]
        assert np.allclose(chapter["means"][n], by_layer)
        assert by_layer[0] == pytest.approx(1 / 3, abs=0.02)
        assert by_layer[10] == pytest.approx(0.9, abs=0.01) == max(by_layer)
        assert by_layer[11] < by_layer[10]
        rests = [np.mean([row[0] >= 0.9 for h in heads for row in h[1:]]) for heads in weights]
        assert np.allclose(chapter["resting"][n], rests)
        assert round(np.mean(by_layer), 2) == (0.73, 0.71)[n]
    assert np.abs(np.subtract(*chapter["means"])).max() < 0.09  # the curves agree
    assert chapter["last"] == [38, 37]
    assert chapter["evenly"][0] == pytest.approx(np.mean([1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 6]))
    assert "Heads in which the last token rests: 38 and 37" in chapter.printed


def test_three_heads_never_look_at_the_first_token(chapter: Chapter) -> None:
    highest = all_heads("first", since=1).max(axis=0)
    assert [*zip(*np.nonzero(highest < 0.01), strict=True)] == chapter["never"]
    assert chapter["names"] == ["0.1", "1.10", "11.8"]
    itself, even, late = (WEIGHTS[1][head][-1] for head in chapter["never"])
    assert itself[-1] > 0.9
    assert np.allclose(even[1:], 1 / 6, atol=0.08)
    assert late[-3:].sum() > 0.8


def test_lengths_of_the_first_token(chapter: Chapter) -> None:
    of_first, of_others = chapter["of_first"], chapter["of_others"]
    assert len(chapter["read"]) > 100
    assert (of_first[:, 0] > of_others[:, 0]).all()
    assert of_first[3, 0] > 2 * of_others[3, 0]
    assert of_first[3, 1] / of_others[3, 1] == pytest.approx(0.5, abs=0.1)
    assert ((of_first < of_others)[:, 1] == [False, False, True, True]).all()
    # The values' lengths, by the sum over heads of one trace.
    trace = chapter["read"][0]
    attention = trace.blocks[2].attention
    V, W_O = attention.V, attention.W_O.reshape(6, 32, -1)
    by_hand = [np.mean([np.linalg.norm(V[h, t] @ W_O[h]) for h in range(6)]) for t in range(7)]
    assert np.allclose(chapter["lengths"](trace)[2, 1], by_hand, rtol=1e-4)
    # The first token's vector doesn't depend on what follows.
    others = [chapter["english"].trace(text) for text in ("On the", "On a cold day")]
    one, two = (trace.blocks[3].input[0] for trace in others)
    assert np.allclose(one, two, atol=1e-5)


def test_previous_token_heads(chapter: Chapter) -> None:
    measured = all_heads("previous")
    assert np.allclose(chapter["on_previous"], measured)
    assert WEIGHTS[0][4, 11][range(1, 6), range(5)].min() > 0.99
    assert WEIGHTS[1][4, 11][range(1, 7), range(6)].min() > 0.99
    smaller = measured.min(axis=0)
    order = [divmod(int(n), 12) for n in np.argsort(-smaller, axis=None)[:4]]
    assert order == [(4, 11), (2, 2), (3, 2), (3, 7)]
    assert all(0.35 <= number <= 0.56 for head in order[1:] for number in measured[:, *head])
    assert round(measured[:, 5:11].max(), 2) == 0.35


def test_heads_of_the_token_itself(chapter: Chapter) -> None:
    measured = all_heads("itself")
    assert np.allclose(chapter["on_itself"], measured)
    assert [f"{number:.2f}" for number in measured[:, 0, 1]] == ["1.00", "0.97"]
    words = dict(zip(chapter["PIECES"][1], WEIGHTS[1][0, 5][-1], strict=True))
    assert round(words["Ġthe"], 2) == 0.37
    assert max(words[key] for key in ("Ġdeserted", "Ġplanet", "Ġthey", "Ġdiscovered")) < 0.03
    for pieces in chapter["PIECES"]:
        assert len({*pieces}) == len(pieces)


def test_heads_with_a_job(chapter: Chapter) -> None:
    assert chapter["JOBS"] == PUBLISHED_JOBS
    kinds = ("first", 1), ("previous", 2), ("itself", 2)
    first, previous, itself = (all_heads(*kind).mean(0) for kind in kinds)
    for row, (job, head) in zip(chapter["numbers"], chapter["named"], strict=True):
        layer = first[head[0]].mean()
        expected = [first[head], previous[head], itself[head], layer]
        assert np.allclose(row, expected, atol=1e-6), job
        if job == "induction head":
            assert first[head] > layer
        if job in ("induction head", "name-mover head"):
            assert first[head] >= 0.9
    assert first[3, 0] > 0.9
    assert 0.3 < itself[0, 10] < first[0, 10] < 0.5
    assert previous[2, 2] == pytest.approx(0.5, abs=0.05)


def test_a_resting_head_wakes_up(chapter: Chapter) -> None:
    weights, once = chapter["awake"], chapter["once"]
    once_first, again_first = (
        np.mean([row[0] for row in rows]) for rows in (weights[1:once], weights[once:])
    )
    assert once_first > 0.5
    assert again_first < 0.5 * once_first
    # The token at i came at i - once before; after it came i - once + 1.
    next_ones = [weights[i, i - once + 1] for i in range(once + 1, len(weights))]
    assert len(next_ones) == 8
    assert chapter["found"] == pytest.approx(np.mean(next_ones), abs=1e-6)
    assert np.mean(next_ones) > max(again_first, 1 - np.mean(next_ones) - again_first)


def test_three_models(chapter: Chapter) -> None:
    profiles = chapter["profiles"]
    starts, ends = zip(*(found[:2] for found in profiles.values()), strict=True)
    assert (starts[0], ends[0], ends[3]) == ("0.34", "0.76", "0.26")
    assert all(start < end for start, end in zip(starts[1:3], ends[1:3], strict=True))
    assert profiles["GPT-2"][2] == "0.91"
    assert float(ends[3]) < chapter["evenly"][1]
    assert all(float(found[5][:4]) > 0.8 for found in profiles.values())
    assert max(float(found[6][:4]) for found in [*profiles.values()][1:]) < 0.5
    # By another way: the library's own jobs, of one sentence.
    trace = chapter["english"].trace(RECORDED["prompt_1"])
    assert list(trace.tokens.symbols) == chapter["PIECES"][1]
    jobs = attnlab.jobs(trace)
    assert f"{jobs.attention[jobs.jobs.index('first'), 0].mean():.2f}" == starts[1]


def test_exercise_1(chapter: Chapter, answer: str) -> None:
    jobs = attnlab.jobs(chapter["traces"][1])
    column = jobs.jobs.index("previous")
    assert answer.startswith(f"{jobs.attention[column, 5, 1]:.2f}. Each token rests")
    assert jobs.attention[column, 5, 1] == pytest.approx(1 / 6, abs=0.005)
    assert f"tokens would have {jobs.even[column]:.2f}" in answer


def test_exercise_2(chapter: Chapter, answer: str) -> None:
    changed = run(CHAPTER, {"RESTS_FROM = RESTING": "RESTS_FROM = 0.5"}, until="## 19.3")
    for layer in (0, 10):
        new, old = (f"{each['resting'][1, layer]:.2f}" for each in (changed, chapter))
        assert f"layer {layer} it is {new} instead of {old}" in answer


def test_exercise_3(chapter: Chapter, answer: str) -> None:
    change = {"AGAIN = ROUND": 'AGAIN = "They saw a ship in the sky."'}
    changed = run(CHAPTER, change, until="## 19.7")
    weights, once, symbols = changed["awake"], changed["once"], changed["again"].tokens.symbols
    repeated = run_unchanged(CHAPTER)["awake"]
    rests = [rows[once:, 0].mean() for rows in (repeated, weights)] + [weights[1:once, 0].mean()]
    assert rests == sorted(rests)
    assert answer.startswith("They give the first token less than the first sentence does")
    second_a = max(i for i, symbol in enumerate(symbols) if symbol == "Ġa")
    for row, after in ((second_a, "Ġcave"), (len(symbols) - 1, "ĠThey")):
        assert 1 + weights[row, 1:].argmax() == symbols.index(after)
        assert f"`{after}`" in answer


def test_the_solution_is_attention_with_the_first_key_masked() -> None:
    solved = run_unchanged(CHAPTER, is_solved=True)
    assert "2 of 2 steps agree" in solved.printed
