"""What the lessons say of their numbers holds, and each of their numbers may be changed.

Lessons run here as they are or with some of their text replaced, on the pocket model, and what they
leave in their variables and on stdout is looked at.
"""

import contextlib
import io
from functools import cache
from typing import Any

import numpy as np
import pytest
from lessons import FASTER, LESSONS, changed

from attnlab import Tokenizer, figures, softmax
from attnlab.parameters import parameter_count

CHANGED = "You changed the input: the published figures are for\n"

# Lesson, what is changed, whether that is the input of published figures, and how.
CHANGES: list[tuple[str, str, bool, dict[str, str]]] = [
    ("01", "twice W_Q", True, {"W_V = np.array": "W_Q = 2 * W_Q\nW_V = np.array"}),
    ("01", "W_Q of zeros", True, {"W_V = np.array": "W_Q = 0 * W_Q\nW_V = np.array"}),
    ("01", "negative W_K", True, {"W_V = np.array": "W_K = -W_K\nW_V = np.array"}),
    ("01", "a wider W_V", True, {"[0.1, 0.2]])\n": "[0.1, 0.2]])\nW_V = np.hstack([W_V, -W_V])\n"}),
    (
        *("01", "three numbers in a key", True),
        {"W_V = np.array": "W_Q, W_K = np.ones((4, 3)), np.eye(4, 3)\nW_V = np.array"},
    ),
    (
        *("01", "four words", True),
        {
            'words = ["猫", "吃", "鱼"]': 'words = ["the", "cat", "eats", "fish"]',
            "[0.3, 0.1, 0.9, 0.2],  # 鱼": "[0.3, 0.1, 0.9, 0.2], [-4, 0, 2, 0.25],",
        },
    ),
    (
        *("01", "one word", True),
        {
            'words = ["猫", "吃", "鱼"]': 'words = ["鱼"]',
            "[0.8, 0.2, 0.4, 0.1],": "",
            "[0.1, 0.9, 0.3, 0.7],": "",
        },
    ),
    ("01", "other scores", False, {"example = [1.0, 0.5, 0.1]": "example = [-3, 2.5]"}),
    ("02", "less dropout", False, {"p, seed = 0.5, 123": "p, seed = 0.2, 4"}),
    ("02", "no dropout", False, {"p, seed = 0.5": "p, seed = 0"}),
    ("02", "X of zeros", True, {"T = len": "X = 0 * X\nT = len"}),
    ("02", "negative X", True, {"T = len": "X = -X\nT = len"}),
    ("02", "two words", True, {"T = len": "words, X = words[:2], X[:2]\nT = len"}),
    ("02", "one word", True, {"T = len": "words, X = words[:1], X[:1]\nT = len"}),
    ("02", "twelve words", True, {"T = len": "words, X = 2 * words, np.vstack([X, X])\nT = len"}),
    ("02", "no mask", True, {"attnlab.causal_mask(T)": "np.ones((T, T), dtype=bool)"}),
    (
        *("02", "W_Q of zeros", True),
        {"    head = attnlab.self": "    W_Q = 0 * W_Q\n    head = attnlab.self"},
    ),
    ("02", "other heads", True, {"W_O = np.eye": "W_V = 2 * W_V\nW_O = np.eye"}),
    ("03", "scores that are equal", True, {"0.1, -0.2, 0.3, -0.2, 0.5])\nt": "0.7, 0.7])\nt"}),
    ("03", "one score", True, {"0.1, -0.2, 0.3, -0.2, 0.5])\nt": "-3])\nt"}),
    ("03", "other factors", True, {"times = (1, 8, 64)": "times = (0, -2, 1000, 5)"}),
    ("03", "other widths", False, {"widths = (1, 5, 25, 100)": "widths = (64, 2)"}),
    ("03", "another seed", False, {"default_rng(0)": "default_rng(7)"}),
    ("03", "divided by d", False, {"products / math.sqrt(d)": "products / d"}),
    ("03", "two keys", False, {", 10\nwinners": ", 2\nwinners"}),
    ("03", "other sizes", False, {"T, d = 12, 64": "T, d = 1, 1"}),
    ("04", "both asked for", False, {"[3, 0],  # a": "[3, 2],  # a"}),
    ("04", "a ball that asks", False, {"[0, 0],  # a thing asks": "[1, 0],  # a thing asks"}),
    ("04", "X of zeros", False, {"dog, ball, it =": "X = 0 * X\ndog, ball, it ="}),
    ("04", "negative X", False, {"dog, ball, it =": "X = -0.5 * X\ndog, ball, it ="}),
    ("04", "other words", False, {'["dog", "ball", "it"]': '["猫", "鱼", "它"]'}),
    (
        *("04", "a fourth word", False),
        {'"ball", "it"]': '"ball", "it", "tired"]', "[1, 1, 1],": "[1, 1, 1], [0, 0, 3],"},
    ),
    (
        *("04", "a third question", False),
        {"W_V = np": "W_Q, W_K = np.eye(3)[::-1], np.eye(3)\nW_V = np"},
    ),
    ("05", "a straight apostrophe", False, {'PROMPT = "It’s': "PROMPT = \"It's"}),
    ("05", "one token", False, {'PROMPT = "It’s very hot in summer. Swimming is"': 'PROMPT = "a"'}),
    ("05", "Chinese", False, {"It’s very hot": "夏天很热。"}),
    ("05", "another text", False, {"It’s very hot": "The dog chased the ball, but it"}),
    ("05", "lines", False, {"It’s very hot": r"\n\n\tIt"}),
    ("05", "more columns", False, {"columns = 3": "columns = 5"}),
    (
        *("05", "another head", False),
        {
            "trace.head(0, 0)": "trace.head(1, 2)",
            "gain, bias = attention": "gain, bias = -attention",
        },
    ),
    ("06", "one token", False, {"Martin’s one of my sons, and the other is Chanler.": "a"}),
    ("06", "two tokens", False, {"Martin’s one of my sons, and the other is Chanler.": "aa"}),
    ("06", "Chinese", False, {"Martin’s one of my sons": "这是我的儿子"}),
    ("06", "another text", False, {"Martin’s one of my sons": "The dog chased the ball"}),
    ("06", "a longer text", False, {"is Chanler.": "is Chanler." * 8}),
    ("06", "lines", False, {"is Chanler.": r"is\nChanler.\n"}),
    ("07", "twice the positions", False, {"n_positions=1024, n_embd": "n_positions=2048, n_embd"}),
    ("07", "another width", True, {"1024, n_embd=768": "1024, n_embd=1536"}),
    ("07", "one layer", True, {"n_layer=12, n_head=12)": "n_layer=1, n_head=12)"}),
    ("07", "a small vocabulary", False, {"GPT2Config(vocab_size=50257": "GPT2Config(vocab_size=9"}),
    ("07", "another GPT-3", True, {"n_layer=96, n_head=96, n_embd=12288": "2, 4, 64"}),
    ("07", "another size", False, {"config(6, 12, 768)": "config(7, 1, 7)"}),
    ("08", "twice W_Q", False, {"W_Q = 3 *": "W_Q = 6 *"}),
    ("08", "W_Q of zeros", False, {"W_Q = 3 *": "W_Q = 0 *"}),
    ("08", "negative W_Q", False, {"W_Q = 3 *": "W_Q = -0.3 *"}),
    ("08", "who does not matter", False, {"[0, 1, 2],  # sleep": "[0, 0, 2],  # sleep"}),
    (
        *("08", "a longer sentence", False),
        {'"dorment"]': '"dorment", "bien"]', "[0, 0, 0, 1],": "[0, 0, 0, 1], [0, 0.5, 0, 1],"},
    ),
    (
        *("08", "one word", False),
        {'["black", "cats", "sleep"]': '["cats"]', "[2, 0, 0],": "", "[0, 1, 2],": ""},
    ),
    ("08", "W_V of zeros", False, {"W_V = np.eye": "W_V = 0 * np.eye"}),
    ("09", "rank 1", False, {"[[1, 0, 1, 2], [0, 1, -1, 0]]": "[[1, 0, 1, 2], [3, 0, 3, 6]]"}),
    (
        *("09", "a narrow head", False),
        {
            "[[1, 0], [0, 1], [1, 1], [2, 0]]": "[[1], [0], [1], [2]]",
            "[[1, 0, 1, 2], [0, 1, -1, 0]]": "[[1, 0, 1, 2]]",
        },
    ),
    ("09", "W_V of zeros", False, {"D, Dh =": "W_V = 0 * W_V\nD, Dh ="}),
    ("09", "negative W_O", False, {"D, Dh =": "W_O = -W_O\nD, Dh ="}),
    ("09", "another seed", False, {"default_rng(0)": "default_rng(3)"}),
    (
        *("09", "two words", False),
        {"D, Dh =": "words, X, weights = words[:2], X[:2], weights[:2, :2]\nD, Dh ="},
    ),
    (
        "09",
        "another GPT-3",
        True,
        {"n_embd=12288, n_layer=96, n_head=96": "n_embd=8, n_layer=1, n_head=1"},
    ),
    ("10", "another text", False, {"It’s very hot in summer.": "The dog chased the ball"}),
    ("10", "a word that goes on", False, {'" Swimming is"': '"time"'}),
    ("10", "nothing more", False, {'" Swimming is"': '""'}),
    ("10", "Chinese", False, {"It’s very hot in summer.": "夏天很热。"}),
    ("10", "one new token", False, {"generate(TEXT, 4": "generate(TEXT, 1"}),
    ("10", "no new token", False, {"generate(TEXT, 4": "generate(TEXT, 0"}),
    ("10", "no steps kept", False, {"trace=True)\n": "trace=False)\n"}),
    ("10", "a long text", False, {"(TEXT + MORE) * 8": "(TEXT + MORE) * 100"}),
    ("11", "few steps", False, {}),
    ("11", "another seed", False, {"default_rng(0)": "default_rng(5)", "seed=1": "seed=9"}),
    ("11", "four letters", False, {"N = 10": "N = 4"}),
    ("11", "twelve letters", False, {"N = 10": "N = 12"}),
    ("11", "four heads", False, {" 12, 6, 2": " 5, 2, 4"}),
    ("11", "one head, one step", False, {" 12, 6, 2": " 1, 6, 1"}),
    ("11", "another text", False, {'"qkzvmqkzvm"': '"abcabc"'}),
    ("11", "a faster start", False, {"learning_rate=1e-2": "learning_rate=0.1"}),
    ("12", "another seed", False, {"default_rng(0)": "default_rng(2)", "3, 1\n": "3, 8\n"}),
    ("12", "no wish", False, {"[0.0, -1.0, 0.0]": "[0.0, 0.0, 0.0]"}),
    (
        "12",
        "four keys",
        False,
        {"[0.0, -1.0, 0.0]": "[1, 2, -3, 4]", "[16.0, 8.0, 0.0]": "[-9, 0, 0, 1]"},
    ),
    ("12", "another width", False, {"\nd = 64": "\nd = 1", "16, 64, 3, 1": "4, 9, 3, 1"}),
    ("12", "other widths", False, {"(4, 16, 64, 256, 1024)": "(1, 300)"}),
    ("12", "other rates", False, {"(0.03, 0.1, 0.3, 1, 3, 10)": "(0, 0.5)"}),
    (
        *("12", "another model", False),
        {"vocab_size=500, n_positions=16, n_embd=768": "vocab_size=9, n_positions=2, n_embd=24"},
    ),
]


class Lesson(dict[str, Any]):
    """The variables of a lesson that has run, and what it has printed."""

    printed: str


def run(number: str, changes: dict[str, str]) -> Lesson:
    """Run a lesson with pieces of its text replaced."""
    (file,) = (lesson for lesson in LESSONS if lesson.name.startswith(number))
    text = changed(file, changes)
    lesson, printed = Lesson(__name__="__main__"), io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, file, "exec"), lesson)
    lesson.printed = printed.getvalue()
    return lesson


@cache
def as_it_is(number: str) -> Lesson:
    return run(number, {})


@pytest.fixture(autouse=True)
def pocket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNLAB_MODEL", "pocket")


@pytest.mark.parametrize(
    ("number", "told", "changes"),
    [pytest.param(n, told, how, id=f"{n}-{what}") for n, what, told, how in CHANGES],
)
def test_a_changed_lesson(number: str, told: bool, changes: dict[str, str]) -> None:
    lesson = run(number, FASTER.get(number, {}) | changes)
    assert len(lesson.printed.splitlines()) > 20
    assert (CHANGED in lesson.printed) == told
    assert "NOT agree" not in lesson.printed
    assert "nan" not in lesson.printed.replace("-", " ").split()


def test_every_lesson_is_changed_in_five_ways() -> None:
    for lesson in LESSONS:
        assert sum(number == lesson.name[:2] for number, *_ in CHANGES) >= 5, lesson


def agree(recorded: dict[str, Any], decimals: int, **computed: Any) -> None:
    for name, ours in computed.items():
        figures.check(name, ours, recorded[name], decimals)


def test_01_one_head_by_hand() -> None:
    lesson, recorded = as_it_is("01"), figures.load("cat_eats_fish")
    assert lesson["words"] == recorded["words"]
    steps = ("Q", "K", "V", "raw_scores", "scores", "weights", "context")
    agree(recorded, 4, **{name: lesson[name] for name in steps})
    agree(recorded, 4, **{name: getattr(lesson["head"], name) for name in steps})
    agree(recorded, 7, exp_of_scores=lesson["exp_of_scores"])
    agree(recorded, 3, exp_row_sums=lesson["exp_row_sums"])
    assert np.allclose(lesson["weights"], 1 / 3, atol=0.02)
    assert np.allclose(softmax(lesson["example"]), [0.497, 0.301, 0.202], atol=0.0005)
    assert all(f"= {share}\n" in lesson.printed for share in (0.497, 0.301, 0.202))
    rounded = np.exp(np.round(lesson["scores"], 4))
    assert not figures.compare("", rounded, recorded["exp_of_scores"], 7).agrees
    assert 0.00001 < lesson["difference"] < 0.0001  # from the fifth decimal on
    assert lesson.printed.count("published figures agree") == 6


def test_01_its_exercise() -> None:
    once = as_it_is("01")
    twice = run("01", {"W_V = np.array": "W_Q = 2 * W_Q\nW_V = np.array"})
    assert np.allclose(twice["raw_scores"], 2 * once["raw_scores"])
    assert np.allclose(twice["weights"], 1 / 3, atol=0.05)
    assert f"{CHANGED}  W_Q = [[0.5, 0.2], [0.1, 0.3], [0.4, 0.6], [0.2, 0.1]]" in twice.printed


def test_02_your_journey() -> None:
    lesson, recorded = as_it_is("02"), figures.load("journey")
    assert lesson["words"] == recorded["words"]
    figures.check("X", lesson["X"], recorded["inputs"], 6)
    assert lesson.printed.count("published figures agree") == 6
    first, second = lesson["heads"].values()
    steps = ("Q", "K", "V", "raw_scores", "scores", "weights", "context")
    for name, head in lesson["heads"].items():
        agree(recorded[name], 6, **{step: getattr(head, step) for step in steps})
    assert first is not second
    assert lesson["cut"](lesson["exact"])[[0, 1, 5]].tolist() == [1.2, 1.8, 1.5]
    assert not np.allclose(lesson["cut"](lesson["of_cut_rows"]), lesson["cut"](lesson["exact"]))

    causal = lesson["causal"]
    agree(recorded["causal"], 6, weights=causal.weights, context=causal.context)
    agree(recorded["causal"], 6, zeroed_weights=lesson["zeroed"])
    agree(recorded["causal"], 6, renormalised_weights=lesson["renormalised"])
    assert np.isclose(lesson["first"], lesson["second"])
    assert np.isclose(lesson["second"], causal.weights[2, 2])

    figures.check("dropped", lesson["dropped"], recorded["dropout"]["weights"], 6)
    assert not lesson["dropped"][1].any()
    once = lesson["once"]
    assert set(np.unique(once.dropout_mask)) == {0, 2}
    assert np.allclose(once.weights, causal.weights * once.dropout_mask)
    assert np.allclose(lesson["mean"], causal.weights, atol=0.01)

    both = lesson["both"]
    for head, part in zip(both.heads, recorded["multi_head"]["heads"], strict=True):
        agree(part, 6, weights=head.weights, context=head.context)
    figures.check("concat", both.concat, recorded["multi_head"]["concatenated"], 6)
    assert np.array_equal(both.output, both.concat)


def test_02_its_exercise() -> None:
    lesson = run("02", {"p, seed = 0.5": "p, seed = 0.2"})
    kept = lesson["many"].dropout_mask
    assert np.isclose(kept.max(), 1.25)
    assert np.isclose((kept > 0).mean(), 0.8, atol=0.001)
    assert np.allclose(lesson["mean"], lesson["causal"].weights, atol=0.01)
    assert "mean without the factor 1.25" in lesson.printed


def test_03_why_divide_by_root_d() -> None:
    lesson = as_it_is("03")
    for d, (variance, deviation, divided) in zip(lesson["widths"], lesson["spread"], strict=True):
        assert np.allclose([variance / d, deviation / d**0.5, divided], 1, rtol=0.05)
    assert "shares: all 10 published figures agree" in lesson.printed
    softmaxes = {factor: softmax(factor * lesson["scores"]) for factor in (1, 8, 64)}
    figures.check("1", softmaxes[1], [0.1925, 0.1426, 0.2351, 0.1426, 0.2872], 4)
    figures.check("8", softmaxes[8], [0.0326, 0.0030, 0.1615, 0.0030, 0.8000], 4)
    for factor, weights in softmaxes.items():
        x, little = factor * lesson["scores"], 1e-6 * np.eye(5)
        measured = (softmax(x + little) - softmax(x - little)).T / 2e-6
        assert np.allclose(lesson["jacobian"](weights), measured, atol=1e-8)
        assert np.allclose(lesson["weights"][factor], weights)
    diagonals = {factor: np.diag(lesson["jacobian"](w)) for factor, w in softmaxes.items()}
    assert 0.1 < diagonals[1].min() < diagonals[1].max() < 0.25
    assert np.allclose(diagonals[8][[1, 3]], 0.0029, atol=0.0002)
    assert np.abs(lesson["jacobian"](softmaxes[64])).max() < 0.00005
    undivided, divided = np.transpose(lesson["winners"])
    assert undivided[-1] > 0.85
    assert divided.max() < 0.35


def test_03_its_exercises() -> None:
    equal = run("03", FASTER["03"] | {"0.1, -0.2, 0.3, -0.2, 0.5])\nt": "2, 2, 2, 2])\nt"})
    assert all(np.allclose(weights, 1 / 4) for weights in equal["weights"].values())
    by_d = run("03", FASTER["03"] | {"products / math.sqrt(d)": "products / d"})
    assert np.isclose(by_d["spread"][-1][2], 1 / 100, rtol=0.3)


def test_04_similarity_is_not_attention() -> None:
    lesson = as_it_is("04")
    similarity, shares, head = lesson["similarity"], lesson["shares"], lesson["head"]
    assert similarity[2].tolist() == [2, 2, 3]
    assert "it · ball = 1·0 + 1·2 + 1·0 = 2" in lesson.printed
    assert shares[2, 0] == shares[2, 1]
    assert np.array_equal(similarity, similarity.T)
    assert not np.allclose(shares, shares.T)
    assert head.raw_scores[2].tolist() == [6, 2, 4]
    assert "it asks dog   3·2 + 1·0 = 6" in lesson.printed
    assert head.weights[2].argmax() == lesson["words"].index("dog")
    assert lesson["W_Q_thing"].tolist() == [[0, 1], [0, 0], [0, 3]]
    assert lesson["other_head"].weights[2].argmax() == lesson["words"].index("ball")
    assert np.array_equal(lesson["X"] @ lesson["middle"] @ lesson["X"].T, head.raw_scores)
    assert not np.array_equal(head.raw_scores, head.raw_scores.T)
    assert np.array_equal(lesson["tied"].raw_scores, lesson["tied"].raw_scores.T)


def test_04_its_exercises() -> None:
    both = run("04", {"[3, 0],  # a": "[3, 2],  # a"})["head"]
    assert both.weights[2, 0] == both.weights[2, 1]
    ball = run("04", {"[0, 0],  # a thing asks": "[1, 0],  # a thing asks"})["head"]
    assert ball.weights[1].argmax() == 0


def test_05_walkthrough() -> None:
    lesson = as_it_is("05")
    trace, head, model = lesson["trace"], lesson["head"], lesson["model"]
    variance, eps = trace.embedding.var(axis=1), model.config.layer_norm_epsilon
    assert np.allclose(lesson["plain"].mean(axis=1), 0, atol=1e-5)
    assert np.allclose(lesson["plain"].var(axis=1), variance / (variance + eps), rtol=1e-3)
    assert np.array_equal(lesson["X"], head.X)
    assert head.W_Q.shape == (model.config.n_embd, model.config.d_head)
    assert head.context.shape == (len(trace.tokens), model.config.d_head)
    assert np.allclose(head.raw_scores, head.scores * model.config.d_head**0.5, atol=1e-5)
    assert (lesson["undivided"].max(axis=1) >= head.weights.max(axis=1) - 1e-6).all()
    assert "\n\n5.2 The verdict\n" in lesson.printed
    another = run("05", {"It’s very hot": "The dog chased the ball, but it"})
    assert "No table can match: the figures are those of the prompt 'It’s" in another.printed


def test_06_all_heads() -> None:
    lesson = as_it_is("06")
    T, L, H = lesson["T"], lesson["L"], lesson["H"]
    assert lesson["weights"].shape == (L, H, T, T)
    assert np.allclose(lesson["weights"].sum(axis=-1), 1, atol=1e-5)
    assert lesson["even"] > 1 / T


def test_06_its_tokens_of_gpt2(gpt2_tokenizer: Tokenizer) -> None:
    lesson = as_it_is("06")
    counts = [len(gpt2_tokenizer.encode(lesson["PROMPT"].replace("’", q))) for q in "’'"]
    assert counts == [16, 14]


def test_07_counting_parameters() -> None:
    lesson, notes = as_it_is("07"), figures.load("gpt3_parameters")
    assert sum(count for _, count in lesson["whole"].values()) == 124_439_808
    assert parameter_count(lesson["gpt2"]) == 124_439_808
    counts = {
        "distilgpt2": 81_912_576,
        "gpt2": 124_439_808,
        "gpt2-medium": 354_823_168,
        "gpt2-large": 774_030_080,
        "gpt2-xl": 1_557_611_200,
    }
    for name, count in counts.items():
        config = lesson["published"][name]
        assert sum(lesson["shares"](config).values()) == parameter_count(config) == count
        assert f"{count:,}" in lesson.printed
    gpt3 = lesson["gpt3"]
    assert round(parameter_count(gpt3), -9) == 175_000_000_000
    assert (gpt3.d_head, gpt3.vocab_size) == (notes["d_head"], notes["n_vocab"])
    assert [count for _, count in lesson["counts"].values()] == list(notes["rows"].values())
    assert lesson["in_attention"] == notes["attention_total"]
    assert "count: the published figure agrees" in lesson.printed
    assert "table, one_head, all_heads: all 7 published figures agree" in lesson.printed
    assert "= 617,558,016, which is GPT-3's published count" in lesson.printed
    assert "= 620,875,776, which is not GPT-3's published count" in lesson.printed


def test_07_its_exercise() -> None:
    lesson = run("07", {"n_positions=1024, n_embd": "n_positions=2048, n_embd"})
    assert f"{124_439_808 + 1024 * 768:,}" in lesson.printed


def test_08_cross_attention() -> None:
    lesson = as_it_is("08")
    cross, french = lesson["cross"], lesson["french"]
    assert cross.raw_scores.shape == cross.context.shape == (3, 4)
    assert np.allclose(cross.weights.sum(axis=1), 1)
    found = [french[j] for j in cross.weights.argmax(axis=1)]
    assert found == ["noirs", "chats", "dorment"]
    assert cross.weights[2].argsort()[-2] == french.index("chats")
    assert cross.mask.all()
    assert lesson["masked"].weights[0, french.index("les")] == 1
    assert not lesson["masked"].weights[:, french.index("dorment")].any()
    assert np.allclose(lesson["shuffled"].weights, cross.weights[:, [3, 2, 1, 0]])
    assert np.allclose(lesson["shuffled"].context, cross.context)
    assert np.array_equal(lesson["itself"].weights, lesson["self_attention"].weights)
    assert np.array_equal(lesson["itself"].context, lesson["self_attention"].context)


def test_08_its_exercises() -> None:
    once = as_it_is("08")["cross"].weights[2]
    twice = run("08", {"W_Q = 3 *": "W_Q = 6 *"})["cross"].weights[2]
    assert twice[1] < once[1]
    alone = run("08", {"[0, 1, 2],  # sleep": "[0, 0, 2],  # sleep"})["cross"].weights[2]
    assert alone[3] > once[3]
    assert np.allclose(alone[:3], alone[0])


def test_09_value_is_two_thin_matrices() -> None:
    lesson = as_it_is("09")
    W_VO, layer = lesson["W_VO"], lesson["layer"]
    assert lesson["rank"] == 2
    assert np.array_equal(W_VO[2], W_VO[0] + W_VO[1])
    assert np.array_equal(W_VO[3], 2 * W_VO[0])
    assert np.allclose(lesson["as_the_model"], lesson["in_one"])
    (gpt2,) = [line for line in lesson.printed.splitlines() if line.startswith("GPT-2 small")]
    assert gpt2.split()[-5:] == ["768", "64", "98,304", "589,824", "6"]
    assert "one_head: the published figure agrees" in lesson.printed
    assert np.array_equal(layer.heads[0].W_O, lesson["W_O"])
    assert np.array_equal(layer.heads[0].W_V, lesson["W_V"])
    assert np.allclose(lesson["added"], layer.output)
    assert np.allclose(lesson["total"], layer.output)


def test_09_its_exercises() -> None:
    rank_1 = run("09", {"[[1, 0, 1, 2], [0, 1, -1, 0]]": "[[1, 0, 1, 2], [3, 0, 3, 6]]"})
    assert rank_1["rank"] == 1
    narrow = {
        "[[1, 0], [0, 1], [1, 1], [2, 0]]": "[[1], [0], [1], [2]]",
        "[[1, 0, 1, 2], [0, 1, -1, 0]]": "[[1, 0, 1, 2]]",
    }
    (line,) = [line for line in run("09", narrow).printed.splitlines() if "our example" in line]
    assert line.split()[-3:] == ["8", "16", "2"]


def test_10_what_the_cache_saves() -> None:
    lesson = as_it_is("10")
    short, long = lesson["short"], lesson["long"]
    assert long.tokens.ids.tolist() == lesson["model"].tokenizer.encode(
        lesson["TEXT"] + lesson["MORE"]
    )
    T = len(short.tokens)
    for a, b in zip(short.blocks, long.blocks, strict=True):
        assert np.allclose(a.attention.K, b.attention.K[:, :T], atol=1e-4)
        assert np.allclose(a.attention.V, b.attention.V[:, :T], atol=1e-4)
    assert lesson["difference"] < 1e-4
    count = lesson["multiplications"]
    assert count(1, 1) == 2 * (4 * 128 * 128 + 2 * 128 * 512 + 2 * 2 * 128)
    assert count(1, 5) + count(5, 0) == count(6, 0)


@pytest.mark.slow
def test_11_watching_a_head_form() -> None:
    lesson = as_it_is("11")
    history, table = lesson["history"], lesson["table"]
    assert lesson["forming"]
    assert lesson["places"] == 2
    assert lesson["back"][:, 1].max() > 0.9
    weight_of = {name: row[0] for name, row in zip(lesson["after"], lesson["rows"], strict=True)}
    assert weight_of["nothing"] > 0.7
    assert weight_of["before the copy"] < 0.2
    assert min(weight_of["the copy"], weight_of["1 after"], weight_of["2 after"]) > 0.5
    j = lesson["j"]
    edited = lesson["after"]["before the copy"]
    pairs = zip(lesson["forward"].blocks, edited.blocks, strict=True)
    changes = [np.abs((a.attention.K - b.attention.K)[:, :, j]).max() for a, b in pairs]
    assert changes[0] == 0 < 0.1 < changes[1]
    one, two = history[1][-1], history[2][-1]
    assert two[3] > 0.7
    assert max(row[3] for row in history[1]) < 0.4
    assert two[2] < one[2] - 1
    assert min(row[2] for row in history[1]) > 2.5
    assert table[lesson["best_head"], 2] == table.max()


def test_12_softmax_that_saturates() -> None:
    """Of the first three sections and the last."""
    lesson = run("12", FASTER["12"] | {"widths = 40": "widths = 400"})
    for name, scores in {"divided": [2, 1, 0], "not divided": [16, 8, 0]}.items():
        w = softmax(np.array(scores, dtype=float))
        by_hand = w * (lesson["d_weights"] - w @ lesson["d_weights"])
        assert np.allclose(lesson["gradients"][name], by_hand)
        assert np.isclose(by_hand.sum(), 0)
    lengths = {name: np.linalg.norm(one) for name, one in lesson["gradients"].items()}
    assert lengths["divided"] > 500 * lengths["not divided"]

    medians, widths, d_Q = lesson["medians"], lesson["widths"], lesson["lengths"]
    assert widths == (4, 16, 64, 256, 1024)
    divided = np.array([medians[d, True] for d in widths])
    assert (divided.max(axis=0) < 1.3 * divided.min(axis=0)).all()
    assert medians[1024, False][0] > 0.9
    assert max(medians[1024, False][1:]) < 0.01 * min(medians[1024, True][1:])
    assert medians[16, False][2] > medians[16, True][2]
    lines = lesson["lines"]
    assert lines[-1][1] > 100 * lines[-1][0]
    assert lines[-1][4] > 0.5 > 0.02 > lines[0][4]
    assert (d_Q[1024, True] < np.median(d_Q[1024, True]) / 10).mean() < 0.01

    assert lesson["largest"][0] > 2 * lesson["largest"][1]
    assert np.isclose(lesson["largest"][0], 0.5, atol=0.1)


@pytest.mark.slow
def test_12_what_it_does_to_learning() -> None:
    lesson = as_it_is("12")
    assert min(lesson["best_with"], lesson["adam_with"]) > 0.95
    assert lesson["best_without"] < 0.6
    assert lesson["best_without"] < lesson["adam_without"] < 0.75
