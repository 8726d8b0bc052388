"""Chapter 18, a model whose truth is known: its claims hold."""

import numpy as np
import pytest
from book import Chapter, run, run_unchanged

import attnlab
from attnlab.equations import AnyArray

CHAPTER = "18"
SETTINGS = {
    "TASK": 'TASK = "pronoun"',
    "ABLATION": 'ABLATION = "mean"',
    "SUBSET": 'SUBSET = ["0.2", "MLP 0", "1.2", "MLP 1"]',
    "FAITHFUL": "FAITHFUL = 0.9 ",
    "READER": 'READER = "1.2"',
    "WATCHED": 'WATCHED = "0.2"',
}


def setting(**values: object) -> dict[str, str]:
    return {
        SETTINGS[name]: f"{name} = {value!r} ".replace("'", '"') for name, value in values.items()
    }


def table_of(task: str) -> AnyArray:
    """v of all subsets from the table itself, ablation by mean."""
    truth = run_unchanged(CHAPTER)["truth"]
    of_task = [sentence.task == task for sentence in truth.sentences]
    v: AnyArray = truth.table[1, of_task, :, 0].astype(float).mean(axis=0)
    return v


def subset(*chosen: str) -> int:
    return sum(1 << run_unchanged(CHAPTER)["parts"].index(part) for part in chosen)


def test_all_subsets(chapter: Chapter) -> None:
    v = table_of("pronoun")
    sizes = np.array([bin(number).count("1") for number in range(1024)])
    most = [v[sizes == n].max() for n in range(11)]
    shown = {1: 0.06, 3: 1.80, 4: 6.42, 6: 7.14, 10: 6.28}
    assert {n: round(most[n], 2) for n in shown} == shown
    assert max(most) == most[6]
    assert v[subset("0.2", "MLP 0", "1.2", "MLP 1")] == most[4]
    means = [v[sizes == n].mean() for n in range(11)]
    assert means[8] < (v[0] + v[-1]) / 2 < means[9]
    np.testing.assert_allclose(chapter["v_by_size"][6].max(), most[6])
    assert chapter["by_hand"] == pytest.approx(chapter["in_table"], abs=1e-4)
    assert chapter["by_hand"] == pytest.approx(5.7006, abs=1e-4)


def test_value_of_one_part(chapter: Chapter) -> None:
    v = table_of("pronoun")
    alone, without, shapley = chapter["worth"].T
    assert [round(row.sum(), 2) for row in (alone, without, shapley)] == [-0.47, 17.72, 6.33]
    assert shapley.sum() == pytest.approx(v[-1] - v[0])
    # By sampling orders, another way to the same means.
    rng, rise = np.random.default_rng(0), np.zeros((4000, 10))
    for row in rise:
        kept = 0
        for part in rng.permutation(10):
            row[part] = v[kept | 1 << part] - v[kept]
            kept |= 1 << part
    errors = rise.std(axis=0) / np.sqrt(len(rise))
    assert (np.abs(rise.mean(axis=0) - shapley) < 4 * errors).all()
    worth = dict(zip(chapter["parts"], shapley.round(2), strict=True))
    stated = {"MLP 0": 2.14, "1.2": 1.91, "MLP 1": 1.24, "0.2": 0.86}
    assert {part: worth.pop(part) for part in stated} == stated
    assert max(map(abs, worth.values())) <= 0.15


def test_interactions(chapter: Chapter) -> None:
    shown = [
        ({chapter["parts"][i], chapter["parts"][j]}, round(chapter["interactions"][i, j], 2))
        for i, j in chapter["pairs"]
    ]
    assert shown[:3] == [
        ({"MLP 0", "MLP 1"}, 2.17),
        ({"MLP 0", "1.2"}, 2.01),
        ({"1.2", "MLP 1"}, 1.87),
    ]
    assert shown[-1] == ({"0.2", "0.3"}, -0.75)
    i, j, v = (1 << 2), (1 << 3), table_of("pronoun")
    # The mean over sizes of the mean over subsets of a size, since weights are equal by size.
    without = [s for s in range(1024) if not s & (i | j)]
    together = np.array([v[s | i | j] - v[s | i] - v[s | j] + v[s] for s in without])
    sizes = np.array([bin(s).count("1") for s in without])
    mean = np.mean([together[sizes == n].mean() for n in range(9)])
    assert mean == pytest.approx(chapter["interactions"][2, 3])


def test_circuits(chapter: Chapter) -> None:
    counts, sizes = {}, np.array([bin(number).count("1") for number in range(1024)])
    for task in chapter["tasks"]:
        v = table_of(task)
        share = (v - v[0]) / (v[-1] - v[0])
        size = sizes[share >= 0.9].min()
        counts[task] = size, int((share[sizes == size] >= 0.9).sum())
        assert f"{size:2}  {share[sizes == size].max():.2f}  " in chapter["smallest_circuit"](task)
    assert [counts[task] for task in ("pronoun", "mood")] == [(4, 1), (6, 3)]
    assert (counts["weather"][0], counts["family"][0]) == (9, 5)
    assert " 5  1.52" in chapter["smallest_circuit"]("family")


def test_methods_and_two_questions(chapter: Chapter) -> None:
    correlations = chapter["correlations"].mean(axis=1)
    assert [round(sentence, 2) for sentence in correlations] == [0.57, 0.58, 0.58, 0.58, 0.91]
    assert min(chapter["with_patching"][:4]) > 0.939 > 0.6 > chapter["with_patching"][4]
    patching, without, shapley = chapter["scores"].T
    assert np.abs(patching).max().round(2) == 0.07
    assert without.max().round(2) == 9.74
    family = chapter["tasks"].index("family")
    assert chapter["shapley"][family].argmax() == found_part("0.2")
    assert shapley[family] == chapter["shapley"][family].max()
    assert chapter["by_method"].shape == (5, 8, 10)
    differ = []
    for sentence in chapter["truth"].sentences:
        pair = (chapter["pocket"].trace(text).head(0, 2).context for text in sentence[1:3])
        clean, corrupted = pair
        differ.append(np.abs(clean - corrupted).max() / np.abs(clean).max())
    assert round(max(differ), 2) == 0.08


def test_what_a_score_depends_on(chapter: Chapter) -> None:
    truth, pocket = chapter["truth"], chapter["pocket"]
    answers = dict(zip(chapter["parts"], np.round(chapter["answers"], 2), strict=False))
    assert answers["0.2"].tolist() == [0.03, 0.67, 0, 1.28]
    assert answers["MLP 0"].min() == 0.49
    assert answers["MLP 0"].tolist() == np.max([*answers.values()], axis=0).tolist()
    assert np.abs([answers["0.0"], answers["0.1"]]).max() == 0.14
    # By hand: the score without what head 0.2 wrote, in MLP 0 alone.
    trace = pocket.trace(truth.sentences[chapter["number"]].clean)
    mid, mlp = trace.blocks[0].mid - trace.head(0, 2).output, trace.blocks[0].mlp
    X = attnlab.layer_norm(mid, mlp.gain, mlp.bias)
    left, score = (
        one.head(1, 2).scores[-1, 1] - one.head(1, 2).scores[-1].mean()
        for one in (trace.edited({"blocks.0.mlp.X": X}), trace)
    )
    assert round(1 - left / score, 2) == 0.65


def found_part(name: str) -> int:
    index: int = run_unchanged(CHAPTER)["parts"].index(name)
    return index


def test_two_ablations(chapter: Chapter) -> None:
    lines = np.array(chapter["by_task"]).round(2)
    by_task = dict(zip(chapter["tasks"], lines, strict=True))
    assert by_task["colours"][-1] == 0.64
    others = [line[-1] for task, line in by_task.items() if task != "colours"]
    assert (min(others), max(others)) == (0.87, 0.98)
    assert by_task["weather"][[1, 3]].tolist() == [0.40, 2.27]


def test_what_is_lost_without_each_head(chapter: Chapter) -> None:
    """By 0, the same numbers as the table's, which other code computed."""
    by_mean, by_zero = chapter["lost_by"]
    v = chapter["truth"].values("pronoun", "zero").mean(axis=0)
    for head, lost in zip(chapter["heads"], by_zero, strict=True):
        without = subset(*(part for part in chapter["parts"] if part != head))
        assert lost == pytest.approx(v[-1] - v[without], abs=0.01)
    rows = [chapter["heads"].index(head) for head in ("1.2", "0.2")]
    assert by_mean[rows] == pytest.approx([5.47, 1.11], abs=0.005)
    assert by_zero[rows] == pytest.approx([5.59, 2.82], abs=0.005)


def test_the_task(chapter: Chapter) -> None:
    assert "isn't written yet" in chapter.printed
    assert "2 of 2 steps agree" in run_unchanged(CHAPTER, is_solved=True).printed


def test_exercise_1(answer: str) -> None:
    chapter = run(CHAPTER, setting(TASK="recital"), until="# ## 18.3")
    worth = chapter["worth"].round(2)
    heads = [n for n, part in enumerate(chapter["parts"]) if "MLP" not in part]
    order = sorted(heads, key=lambda n: -worth[n, 2])[:4]
    assert [chapter["parts"][n] for n in order] == ["0.1", "0.2", "1.2", "1.3"]
    assert [f"{worth[n, 2]:.2f}" for n in order] == ["4.02", "2.08", "1.79", "1.50"]
    assert "4.02, and head 0.2 with 2.08" in answer
    assert "{:.2f} and {:.2f}".format(*worth[order[:2], 0]) in answer
    assert "1.2 and 1.3 follow with 1.79 and 1.50" in answer


@pytest.mark.slow
def test_exercise_2(answer: str) -> None:
    chapter = run(CHAPTER, setting(WATCHED="0.1"))
    scores = dict(zip(chapter["tasks"], chapter["scores"].round(2), strict=True))
    assert scores["recital"][[0, 2]].tolist() == [0.07, 4.02]
    says = "patching says {:.2f}, and the head's Shapley value is {:.2f}"
    assert says.format(*scores["colours"][[0, 2]]) in answer
    for sentence in chapter["truth"].sentences:
        if sentence.task == "recital":
            pair = [chapter["pocket"].trace(text).tokens.ids for text in sentence[1:3]]
            assert np.flatnonzero(pair[0] != pair[1]).tolist() == [4]  # “Say: one two three”


@pytest.mark.slow
def test_exercise_3(answer: str) -> None:
    chapter = run(CHAPTER, setting(FAITHFUL=0.5))
    sizes = [chapter["smallest_circuit"](task).split()[0] for task in ("pronoun", "weather")]
    assert sizes == ["4", "5"]
    assert "`pronoun` still needs 4" in answer
    assert "5 parts instead of 9" in answer


@pytest.mark.slow
def test_exercise_4(answer: str) -> None:
    chapter = run(CHAPTER, setting(TASK="gift", WATCHED="1.2"))
    gift = chapter["tasks"].index("gift")
    patched, _, shapley = chapter["scores"][gift]
    assert f"{shapley:.2f}, and patching says {patched:.2f}" in answer
    pocket, sentence, v = chapter["pocket"], chapter["sentence"], table_of("gift")
    for text in (sentence.clean, sentence.corrupted):
        trace = pocket.trace(text)
        row = trace.head(1, 2).weights[-1]
        assert trace.tokens.texts[row.argmax()] == sentence.wrong  # the first name
        assert round(float(row.max()), 2) == 0.97
        shares = attnlab.attribution(trace, (sentence.wrong, sentence.right))
        assert shares.heads[1, 2] > 1
    assert not v.argmax() >> found_part("1.2") & 1
    assert f"{v.max():.2f}; all parts have {v[-1]:.2f}" in answer
