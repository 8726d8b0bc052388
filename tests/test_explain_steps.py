"""One number of any step, compared with the stored one, by hand, and recomputed from the text."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE, RELATIVES
from runs import every_step, replace_steps
from test_edits import edit_of, editable, random_model

import attnlab
from attnlab import GPT2, AttnlabError, GPT2Config, Tokenizer, Trace, causal_mask
from attnlab.equations import identity
from attnlab.errors import DisagreementError
from attnlab.forward import ForwardPass
from attnlab.forward.parameters import ParameterVector
from attnlab.steps import Result, step_at
from attnlab.views.explaining.derivations import ACTIVATIONS as DERIVED_ACTIVATIONS
from attnlab.views.explaining.derivations import Symbol, computing, derivation
from attnlab.views.explaining.explain import explain
from attnlab.views.explaining.explanation import Explanation, Line, Term, format_value
from attnlab.views.explaining.formulas import leaves, write

X = [[1.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]]
W = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]

# A number as it is printed.
NUMBER = r"(-?[\d.]+(?:e[-+]\d+)?)"

INDEX_NAMES = ("token", "query", "key", "id", "position", "row", "column", "component")


@pytest.fixture(scope="module")
def pocket() -> Trace:
    return GPT2.from_pretrained("pocket").trace("The dog chased the ball, but it")


def explained(part: Result, step: str, *choices: Any) -> Explanation:
    """One number of a step, or a row of weights."""
    return explain(*step_at(part, step), *choices)


# ---- the numbers used ---------------------------------------------------------------------------

ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "gelu_new": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_fast": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "quick_gelu": lambda x: x / (1 + math.exp(-1.702 * x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "relu": lambda x: max(x, 0.0),
}


def is_of_all_heads(part: Result, name: str) -> bool:
    """Whether a step has a number for each head, query and key."""
    return part.axes_of(name) == "H Tq Tk"


def index_of(numbers: dict[str, Any]) -> tuple[int, ...]:
    return tuple(number for name, number in numbers.items() if name in INDEX_NAMES)


@pytest.mark.parametrize("name", ["odd", "one_head", *RELATIVES])
def test_every_step_of_the_graph_is_explained(name: str) -> None:
    """Of the variants only the last block, whose activation and scale differ."""
    trace = GPT2.from_pretrained(REFERENCE / name).trace([5, 80, 5, 7, 120])
    explained = 0
    for part, step in every_step(trace if name in ("odd", "one_head") else trace.blocks[-1]):
        path = f"{part.path}.{step}".lstrip(".")
        if getattr(part, step) is None:
            with pytest.raises(AttnlabError, match=f"was made without {step}"):
                trace.explain(path)
        elif step == "activation":
            assert trace.explain(path).numbers["value"] == getattr(part, step).__name__
        elif not is_of_all_heads(part, step):
            is_vector = len(part.axes_of(step).split()) == 1 and step not in ("ids", "positions")
            for token, component in ((None, None), (2, 1)):
                if np.ndim(getattr(part, step)) < 2:
                    indices = (None, component if is_vector else None)
                elif part.axes_of(step) == "Tq Tk":
                    indices = (token, component or 1)
                else:
                    indices = (token, component)
                explanation = trace.explain(path, *indices)
                numbers, stored = explanation.numbers, attnlab.at(trace, path)
                if step == "weights":
                    index: tuple[int, ...] = (numbers["query"], numbers["key"])
                    value = numbers["weights"]
                else:
                    path = numbers["step"].replace("rows_of_", "")  # Q of a head
                    index, value = index_of(numbers), numbers["value"]
                    stored = attnlab.at(trace, path)
                assert value == (stored[index] if index else stored), path
                text = explanation.text(60)
                assert not re.search("edited|nan", text)
                assert max(map(len, text.splitlines())) <= 60
                explained += 1
    assert explained > (250 if name in ("odd", "one_head") else 80)


def test_intermediate_numbers(odd: GPT2) -> None:
    trace = odd.trace([5, 80, 5, 7, 120])

    def of(path: str) -> Any:
        return np.asarray(attnlab.at(trace, path), np.float64)

    numbers = trace.explain("blocks.1.mlp.X", 3, 4).numbers
    mid = of("blocks.1.mid")[3]
    expected = {"mean": mid.mean(), "variance": mid.var(), "deviation": mid.std()}
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert numbers["normalised"] == pytest.approx((mid[4] - mid.mean()) / mid.std(), rel=1e-4)
    assert numbers["gain"] == of("blocks.1.mlp.gain")[4]
    numbers = trace.explain("blocks.0.mlp.hidden", 2, 7).numbers
    assert numbers["b_1"] == of("blocks.0.mlp.b_1")[7]
    assert numbers["W_1"] == of("blocks.0.mlp.W_1")[:, 7].tolist()
    assert numbers["X"] == pytest.approx(of("blocks.0.mlp.X")[2], rel=1e-4, abs=1e-6)
    numbers = trace.explain("blocks.0.mlp.activated", 2, 7).numbers
    x = of("blocks.0.mlp.hidden")[2, 7]
    assert numbers["hidden"] == pytest.approx(x, rel=1e-4)
    assert numbers["share"] == pytest.approx(ACTIVATIONS["gelu_new"](x) / x, rel=1e-4)


SIGNS = {"·": "*", "√": "sqrt", "e^": "exp", "½": "0.5", "²": "**2", "π": "pi", "[": "(", "]": ")"}
FUNCTIONS = {name: getattr(math, name) for name in ("sqrt", "exp", "tanh", "erf", "pi", "inf")} | {
    "max": max
}


def evaluate_line(line: Line) -> tuple[float, float] | None:
    """A line's numbers evaluated by Python, and its result; None if it only names a number."""
    equals = [n for n, part in enumerate(line.parts) if part == " = "]
    if not equals or any(isinstance(part, Term) and part.is_named for part in line.parts):
        return None
    *_, last = equals
    formula = "".join(f"({p.value!r})" if isinstance(p, Term) else p for p in line.parts[:last])
    formula = re.sub(r"√(\d+)", r"√(\1)", formula)
    for sign, python in SIGNS.items():
        formula = formula.replace(sign, python)
    result = line.parts[last + 1]
    assert isinstance(result, Term)
    return float(eval(formula, {"__builtins__": {}}, FUNCTIONS)), result.value


@pytest.mark.parametrize("name", ["odd", *RELATIVES])
def test_every_line_evaluates_in_python(name: str) -> None:
    trace, actual = GPT2.from_pretrained(REFERENCE / name).trace([5, 80, 5, 7, 120]), 0
    for part, step in every_step(trace):
        if getattr(part, step) is None or is_of_all_heads(part, step):
            continue
        of_pair = (2, 1) if part.axes_of(step) == "Tq Tk" else (None, None)
        explanation = explained(part, step, *of_pair)
        for line in [line for line in explanation.lines if isinstance(line, Line)]:
            if values := evaluate_line(line):
                assert values[0] == pytest.approx(values[1], rel=2e-5, abs=1e-6), line.text
                actual += 1
    assert actual > 60


# ---- by hand -------------------------------------------------------------------------------------


@pytest.fixture
def tiny() -> Trace:
    """A model of 2 components and 2 tokens, for calculation by hand.

    embedding of token 1 at position 1: (1, 2) + (2, -1) = (3, 1), with mean 2 and deviation 1
    """
    config = GPT2Config(
        vocab_size=256, n_positions=4, n_embd=2, n_layer=1, n_head=1, layer_norm_epsilon=1e-300
    )
    vector = ParameterVector(config, dtype="float64")
    vector["W_E"][:2] = [[1, 0], [1, 2]]
    vector["W_P"][:2] = [[0, 1], [2, -1]]
    vector["blocks.0.attention.gain"][:] = [2, 3]
    vector["blocks.0.attention.bias"][:] = [0.5, -1]
    vector["blocks.0.attention.W_Q"][:] = [[1, 10], [4, 100]]
    vector["blocks.0.attention.b_Q"][:] = [7, 8]
    return GPT2(vector, Tokenizer.byte_level()).trace([0, 1])


def test_explanation_of_a_sum(tiny: Trace) -> None:
    assert "\ntoken_embedding = rows of W_E, one for each id\n  W_E[1, 1] = 2\n" in str(
        tiny.explain("token_embedding", component=1)
    )
    assert "\n  W_P[1, 1] = -1\n" in str(tiny.explain("position_embedding", component=1))
    text = str(tiny.explain("embedding", component=1))
    assert "\nembedding = token_embedding + position_embedding\n  2 + (-1) = 1\n" in text
    assert text.endswith("\ncomputed from\n  token_embedding, position_embedding")


def test_layer_norm_by_hand(tiny: Trace) -> None:
    """(3, 1): mean 2, deviation 1, normalised (1, -1), X = (1 · 2 + 0.5, -1 · 3 - 1)."""
    lines = str(tiny.explain("blocks.0.attention.X", 1, 1)).splitlines()
    text = [line.strip() for line in lines if line.startswith("  ")]
    assert text[:5] == [
        "4 / 2 = 2",
        "2 / 2 = 1",
        "√(1 + 1e-300) = 1",
        "(1 - 2) / 1 = -1",
        "(-1) · 3 + (-1) = -4",
    ]


@pytest.mark.parametrize("equation", computing(Trace), ids=lambda equation: equation.__name__)
def test_each_line_is_used_in_a_later_one(equation: Callable[..., Any]) -> None:
    for activation in DERIVED_ACTIVATIONS:
        lines = derivation(equation, {"activation": activation, "divide_by_sqrt_d": True})
        for n, line in enumerate(lines[:-1]):
            used = {leaf for later in lines[n + 1 :] for leaf in leaves(later.tree)}
            assert line.name in used, line
        assert lines[-1].name in ("", "softmax")


def test_parentheses_in_formulas() -> None:
    a, b, c = (Symbol(lambda name=name: name, 0) for name in "abc")
    for formula, text in (
        (a / (b * c), "a / (b · c)"),
        (a - (b - c), "a - (b - c)"),
        (a - b + c, "a - b + c"),
        ((a + b) * c, "(a + b) · c"),
        (np.square(a - b), "(a - b)²"),
    ):
        assert "".join(write(formula.tree, str, lambda _: False)) == text


# ---- what is printed -----------------------------------------------------------------------------


def test_the_largest_products_and_the_rest_are_printed(pocket: Trace) -> None:
    explanation = pocket.explain("blocks.1.mlp.output", -1, 127)
    lines = explanation.text(200).split("\n\n")[1].splitlines()[2:]
    rows = [[float(x) for x in re.findall(rf"(?<=  ){NUMBER}", line)] for line in lines]
    products = [row[2] for row in rows if len(row) == 3]
    largest = sorted(explanation.numbers["products"], key=abs, reverse=True)[:8]
    assert products == pytest.approx(largest, rel=1e-4)
    *others, total = (row[0] for row in rows if len(row) == 1)
    assert sum(products) + sum(others) == pytest.approx(total, abs=2e-4 * max(1, abs(total)))
    assert total == pytest.approx(explanation.numbers["value"], rel=1e-4)
    for n, count in ((12, 12), (13, 8)):  # up to twelve are all shown
        longer = GPT2.from_pretrained("pocket").trace(np.arange(n))
        text = longer.explain("blocks.0.attention.heads.1.context", -1, 0).text()
        assert len(re.findall(r"^\d+ \(", text, re.MULTILINE)) == count


def test_ids_keep_all_digits() -> None:
    assert format_value(np.int64(1234567)) == "1234567"
    assert format_value(1234567.0) == "1.2346e+06"


def test_notebook_display(pocket: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    explanation = pocket.explain("blocks.1.mid")
    assert "A residual connection: " in explanation._repr_html_()
    monkeypatch.setenv("ATTNLAB_LANGUAGE", "zh")
    assert "残差连接：注意力的输出加到残差流上" in explanation._repr_html_()


# ---- which number --------------------------------------------------------------------------------


def test_default_indices(pocket: Trace) -> None:
    """The defaults: the last token, the most probable next one, the first component."""
    best = pocket.next_tokens(1)[0]
    numbers = pocket.explain().numbers
    assert (numbers["token"], numbers["id"]) == (7, best.id)
    assert numbers["value"] == pytest.approx(
        best.logit, rel=1e-6
    )  # rounded differently, as one row
    assert str(pocket.explain("logits", "it", best.text)) == str(pocket.explain())
    assert str(pocket.explain("logits", 7, best.id)) == str(pocket.explain())
    assert str(pocket.explain("next_logits")).splitlines()[-2:] == ["computed from", "  final, W_U"]
    assert pocket.explain("next_logits").numbers["id"] == best.id
    for part in (pocket.blocks[1], pocket.blocks[1].mlp):
        assert str(part.explain()) == str(part.explain("output", -1, 0))
    assert str(pocket.head(1, 2).explain()) == str(pocket.head(1, 2).explain("it"))


def test_paths_relative_to_any_part(pocket: Trace) -> None:
    head = pocket.head(1, 2)
    whole = str(pocket.explain("blocks.1.attention.heads.2.Q", "dog", 3))
    assert str(head.explain("dog", step="Q", component=3)) == whole
    assert str(pocket.blocks[1].explain("attention.heads.2.Q", 1, 3)) == whole
    assert str(pocket.blocks[1].attention.explain("dog", step="heads.2.Q", component=3)) == whole
    path = "blocks.1.attention.heads.2.weights"
    assert str(pocket.explain(path, "it", "dog")) == str(head.explain("it", "dog"))
    assert str(pocket.explain(path, "it")) == str(head.explain("it"))
    assert str(head.explain("it", step="scores")) == str(head.explain("it"))
    assert str(head.explain("it", "dog", step="scores")) != str(head.explain("it", "dog"))


def test_heads_are_adjacent(pocket: Trace) -> None:
    layer = pocket.blocks[0].attention
    for step in ("Q", "K", "V", "context"):
        text = str(layer.explain("dog", step=step, component=40))
        assert text == str(layer.heads[1].explain("dog", step=step, component=8))
    concat = str(layer.explain("dog", step="concat", component=40))
    assert "\n  context[1, 1, 8] = " in concat
    assert concat.count(f"{layer.heads[1].context[1, 8]:.4g}"[:5])
    text = str(layer.heads[1].explain(1, step="W_Q", component=8))
    assert "blocks.0.attention.W_Q[1, 40] = " in text
    assert "W_V[3, 40] = " in str(layer.explain(3, step="W_V", component=40))


def test_parameters(odd: GPT2) -> None:
    trace = odd.trace([5, 80])
    assert trace.explain("blocks.1.mlp.W_1", 3, 17).numbers == {
        "step": "blocks.1.mlp.W_1",
        "row": 3,
        "column": 17,
        "value": float(trace.blocks[1].mlp.W_1[3, 17]),
        "unedited": {},
    }
    for path in ("W_E", "rows_of_W_E"):
        assert trace.explain(path, 80, 3).numbers["value"] == float(trace.W_E[80, 3])
    assert "\n  W_E[80, 3] = " in str(trace.explain("W_U", 3, 80))
    assert trace.explain("W_P", 1, 3).numbers["position"] == 1
    assert "a function of one number" in str(trace.explain("activation"))


@pytest.mark.parametrize(
    ("explain", "message"),
    [
        (lambda t: t.explain("logit"), r"Trace of .* has no step 'logit'; its steps are ids.*log"),
        (lambda t: t.explain("blocks.0.hidden"), "no step 'hidden'; its steps are.* mlp.hidden$"),
        (
            lambda t: t.explain("Q"),
            "its parts have blocks.0.attention.Q, blocks.0.attention.heads.0.Q$",
        ),
        (lambda t: t.explain("blocks.9.mid"), "no part 'blocks.9'; blocks has 0, 1"),
        (lambda t: t.explain("blocks.0"), "no step 'blocks.0'; a path ends in a step"),
        (lambda t: t.explain(""), "has no step ''"),
        (lambda t: t.explain(5), "no step 5"),
        (lambda t: t.explain("embedding", 8), "token 8 is out of range; tokens are 0 to 7"),
        (lambda t: t.explain("embedding", "cat"), "'cat' isn't one of the tokens"),
        (lambda t: t.explain("embedding", 1.5), "token must be an integer; got 1.5"),
        (
            lambda t: t.explain("embedding", 0, 128),
            "component 128 is out of range; components are 0 to 127",
        ),
        (lambda t: t.explain("embedding", 0, "dog"), "component must be an integer; got 'dog'"),
        (lambda t: t.explain("logits", 0, "dogs!"), "'dogs!' isn't one token of the vocabulary"),
        (lambda t: t.explain("logits", 0, 10**9), "isn.t in the vocabulary"),
        (lambda t: t.explain("next_logits", 0), "next_logits of .* has no tokens to choose from"),
        (lambda t: t.explain("gain", "it"), "gain of .* has no tokens to choose from"),
        (lambda t: t.explain("ids", 0, 1), "ids of .* has no components to choose from"),
        (lambda t: t.explain("epsilon", component=1), "epsilon of .* has no components"),
        (
            lambda t: t.explain("blocks.0.attention.scores", 1, 0),
            "first choose a head, such as .heads",
        ),
        (lambda t: t.explain("blocks.0.attention.dropout_mask"), "made without dropout_mask"),
        (lambda t: t.explain("blocks.0.attention.K_cache"), "made without K_cache"),
        (lambda t: t.explain("blocks.0.attention.Q", 0, 128), "components are 0 to 127"),
        (lambda t: t.head(0, 0).explain(0, 0, step="Q"), "Q of .* has no keys to choose from"),
        (lambda t: t.head(0, 0).explain(0, 0, component=1), "the same here; give only one"),
        (lambda t: t.head(0, 0).explain(9, step="V"), "key 9 is out of range; keys are 0 to 7"),
        (lambda t: t.head(0, 0).explain(step="softmax"), "has no step 'softmax'; its steps are Q"),
        (lambda t: attnlab.gradients(t, 5).explain("blocks.0.mid"), "gradients can't be explained"),
    ],
)
def test_missing_names(pocket: Trace, explain: Any, message: str) -> None:
    with pytest.raises(AttnlabError, match=message):
        explain(pocket)


# ---- what is wrong, or edited --------------------------------------------------------------------


@pytest.mark.parametrize("of", ["whole", "block", "attention", "head", "mlp"])
def test_wrong_stored_numbers_are_refused(odd: GPT2, of: str) -> None:
    def part_of(trace: Trace) -> Result:
        block = trace.blocks[1]
        parts = {"whole": trace, "block": block, "attention": block.attention, "mlp": block.mlp}
        return {**parts, "head": block.attention.heads[2]}[of]

    refused = []
    for name, step in part_of(odd.trace([5, 80, 5])).steps.items():
        trace = odd.trace([5, 80, 5])
        part = part_of(trace)
        stored = getattr(part, name)
        if step.equation in (None, identity) or step.view or is_of_all_heads(part, name):
            continue
        for other in (*part.steps, *getattr(part, "parts", ())):
            getattr(part, other)  # its inputs are unchanged
        replace_steps(part, **{name: stored + 1e-2 if name != "scale" else stored + 1e-4})
        column = None if name == "scale" else int(step.axes.split()[-1:] == ["Tk"])
        with pytest.raises(DisagreementError, match=f"^{name} is stored as"):
            explained(part, name, None, column)
        refused.append(name)
    expected = {
        "whole": "token_embedding position_embedding embedding final logits next_logits",
        "block": "mid output",
        "attention": "X Q K V scale context output",
        "head": "Q K V scale raw_scores scores masked_scores weights context output",
        "mlp": "X hidden activated output",
    }
    assert sorted(refused) == sorted(expected[of].split())


@pytest.mark.parametrize("T", [5, 70], ids=["short", "long"])
def test_every_edit_has_an_explanation(T: int) -> None:
    """Each step follows from the others; the edited one also shows its original value."""
    trace = random_model(T, 2).trace(np.arange(T))
    paths = [path for path in editable(trace) if not path.startswith("blocks.0")]
    for seed, path in enumerate(paths):
        if T > 64 and seed % 7:
            continue
        edited = trace.edited({path: edit_of(trace, path, seed)})
        part_path, _, name = path.rpartition(".")
        head, query = edited.head(1, 1), seed % T
        row, cell = head.explain(query), head.explain(query, 2)
        for step in ("raw_scores", "scores", "masked_scores", "weights"):
            stored = getattr(head, step)[query]
            assert (row.numbers[step], cell.numbers[step]) == (stored.tolist(), stored[2]), path
        assert row.numbers["context"] == head.context[query].tolist()
        for step, was in row.numbers.get("unedited", {}).items():
            before = np.asarray(getattr(trace.head(1, 1), step))
            assert was == pytest.approx((before[query] if before.ndim else before).tolist()), path
        for n, (part, step) in enumerate(every_step(edited)):
            if part.path not in ("", "blocks.1", "blocks.1.mlp", "blocks.1.attention", part_path):
                continue
            if (n + seed) % 3 and (part.path, step) != (part_path, name):
                continue  # each step after a third of the edits
            if getattr(part, step) is None or is_of_all_heads(part, step):
                continue
            if step == "mask" and part.mask.ndim > 2:
                continue
            is_by_key = part.axes_of(step) == "Tq Tk"
            key = 1 if is_by_key else None
            explanation = explained(part, step, None, None, key)
            if part.path == part_path and step == name and "unedited" in explanation.numbers:
                numbers = explanation.numbers
                value = numbers[name] if is_by_key and name == "weights" else numbers["value"]
                unedited = attnlab.at(trace, numbers.get("step", path))
                index = index_of(numbers) or ()
                was = unedited[index] if index else unedited
                assert numbers["unedited"] == {name: pytest.approx(was)}
                assert ("edited here" in str(explanation)) == (value != was)


def test_explanations_after_edits_of_other_steps(odd: GPT2) -> None:
    """The change of a head's output is added to the layer's, which is then not the plain sum."""
    trace = odd.trace([5, 80, 5])
    edited = trace.edited({"blocks.1.attention.heads.2.output": 3.0})
    before, after = (t.blocks[1].attention.output[2, 4] for t in (trace, edited))
    explanation = edited.blocks[1].attention.explain(step="output", component=4)
    assert explanation.numbers["value"] == after
    assert explanation.numbers["unedited"] == {"output": pytest.approx(before, abs=1e-4)}
    rows = [line.split() for line in str(explanation).splitlines()]
    assert ["edited", "here", f"{after:#.5g}"] in rows
    text = str(trace.edited({"blocks.1.attention.Q": 0.5}).head(1, 2).explain(step="Q"))
    assert re.search(r"\nsum +-?[\d.]+\nedited here +0.5\n", text)
    other = edited.blocks[1].mlp.explain("hidden")
    assert "edited here" not in str(other)


# ---- other results -------------------------------------------------------------------------------


def test_absent_biases_are_not_in_formulas() -> None:
    eye = np.eye(2)
    attention = attnlab.self_attention(eye, eye, eye, eye, b_K=np.ones(2))
    assert [attention.formula_of(name) for name in "QKV"] == ["X W_Q", "X W_K + b_K", "X W_V"]
    layer = attnlab.multi_head_attention(eye, eye, eye, eye, W_O=eye, b_V=np.ones(2), n_head=2)
    assert layer.formula_of("Q") == "X W_Q, split into heads"
    assert layer.formula_of("output") == "concat W_O"
    assert [layer.heads[1].formula_of(name) for name in "QV"] == ["X W_Q", "X W_V + b_V"]
    other = attnlab.cross_attention(eye, np.ones((3, 2)), eye, eye, eye)
    assert other.formula_of("K") == "memory W_K"


def test_explanations_of_your_own_matrices() -> None:
    """Q = K = V = [[2, 0], [0, 2], [2, 1]]."""
    toy = attnlab.self_attention(X, W, W, W, mask=causal_mask(3))
    text = str(toy.explain(2, step="Q", component=0))
    assert "\nQ = X W_Q: the 3 products\ni    X[2, i]  W_Q[i, 0]  product\n" in text
    assert re.search(r"\nsum +2\n", text)
    assert "K = X W_K: the 3 products\ni    X[1, i]" in str(toy.explain(1, step="K"))
    assert re.search(r"\nsum +4\n", str(toy.explain(2, 0, step="raw_scores")))
    assert "\n  4 / 1.4142 = 2.8284\n" in str(toy.explain(2, 0, step="scores"))
    assert "\n  mask[2, 0] is True: scores[2, 0] = 2.8284\n" in str(
        toy.explain(2, 0, step="masked_scores")
    )
    assert "\n  mask[0, 2] is False: -inf\n" in str(toy.explain(0, 2, step="masked_scores"))
    assert toy.explain(0, 2, step="masked_scores").numbers["value"] == -math.inf
    assert "\n  √2 = 1.4142\n" in str(toy.explain(step="scale"))
    assert "\n  X[1, 0] = 0\n" in str(toy.explain(1, step="memory"))
    assert "\n  W_Q[1, 0] = 0" in str(toy.explain(1, step="W_Q"))
    with pytest.raises(AttnlabError, match="made without b_Q"):
        toy.explain(step="b_Q")


def test_cross_attention_and_several_heads() -> None:
    rng = np.random.default_rng(0)
    X, memory = rng.standard_normal((2, 4)), rng.standard_normal((3, 6))
    weights = [rng.standard_normal(shape) for shape in ((4, 2), (6, 2), (6, 5))]
    crossed = attnlab.cross_attention(X, memory, *weights, memory_tokens=["a", "b", "c"])
    numbers = crossed.explain("b", step="V", component=4).numbers
    assert (numbers["key"], numbers["value"]) == (1, crossed.V[1, 4])
    assert "V = memory W_V: the 6 products\ni    memory[1, i]" in str(
        crossed.explain("b", step="V")
    )
    square = [rng.standard_normal((4, 4)) for _ in range(4)]
    several = attnlab.multi_head_attention(X, *square, n_head=2)
    for part in (several, several.heads[1]):
        for step in part.steps:
            if getattr(part, step) is not None and not is_of_all_heads(part, step):
                assert part.explain(step=step).numbers
    assert several.explain(step="Q", component=3).numbers["step"] == "heads.1.Q"
    batch = rng.standard_normal((2, 3, 4))
    with pytest.raises(AttnlabError, match=r"Q of shape \(2, 3, 4\)\. .* a sequence"):
        attnlab.attention(batch, batch, batch).explain(step="Q")
    with pytest.raises(AttnlabError, match=r"Q of shape \(2, 2, 3, 2\)"):
        attnlab.multi_head_attention(batch, *square, n_head=2).explain(step="Q")


def test_a_pass_without_texts(odd: GPT2) -> None:
    ids = [5, 80, 5]
    one = ForwardPass(ids, odd.parameters)
    assert one.explain("logits", 1, 7).numbers["id"] == 7
    with pytest.raises(AttnlabError, match="token id must be an integer"):
        one.explain("logits", 1, "n")
    several = ForwardPass([ids, ids], odd.parameters)
    with pytest.raises(AttnlabError, match=r"embedding of shape \(2, 3, 35\)"):
        several.explain("embedding")


def test_after_a_cache(odd: GPT2) -> None:
    step = odd.generate([5, 80, 5], 2, temperature=0, trace=True).steps[-1].trace
    head, cached = step.head(1, 2), step.cached
    assert cached == 4
    for name in ("K", "V"):
        new = head.explain(-1, step=name, component=3)
        assert new.numbers["value"] == getattr(head, name)[-1, 3]
        assert re.search(r"\ni +(X|memory)\[0, i\]", str(new))
        old = head.explain(2, step=name, component=3)
        assert old.numbers["value"] == getattr(head, name)[2, 3]
        assert "from the cache: " in str(old)
        layer = step.blocks[1].attention
        in_cache = layer.explain(2, step=f"{name}_cache", component=17)
        assert str(in_cache) == str(old)
        with pytest.raises(AttnlabError, match="key 4 is out of range; keys are 0 to 3"):
            layer.explain(4, step=f"{name}_cache")
    assert head.explain(0, step="Q").numbers["query"] == 0
    assert "query 4 (" in head.explain(step="Q").title
    for part, name in every_step(step):
        if getattr(part, name) is not None and not is_of_all_heads(part, name):
            assert explained(part, name, None, None).numbers


# ---- probabilities -------------------------------------------------------------------------------


def test_probabilities_are_those_of_the_next_tokens(pocket: Trace) -> None:
    first, second = pocket.next_tokens(2)
    for word, component in ((first, None), (second, second.text)):
        numbers = pocket.explain("probabilities", component=component).numbers
        assert (numbers["token"], numbers["id"]) == (7, word.id)
        assert numbers["value"] == pytest.approx(word.probability, rel=1e-5)
        assert numbers["logits"] == pytest.approx(word.logit, rel=1e-6)
    text = str(pocket.explain("probabilities", "it", second.text))
    assert f"(the maximum is at id {first.id} ({first.symbol}))" in text


def test_probabilities_by_hand(tiny: Trace) -> None:
    """254 of 256 tokens have embeddings of 0 and so logits of 0; if final is 0, all do."""
    trace = tiny.edited({"logits": lambda x: np.where(np.arange(256) == 3, math.log(44), 0 * x)})
    text = str(trace.explain("probabilities", 0, 3))
    assert "e^0 = 1\n" in text
    assert text.endswith(
        "\n  1 / 6.7955 = 0.14716\ncomputed from\n  logits"
    )  # 255 / 44 + 1, 44 / 299
    assert "0 - 3.7842 = -3.7842 (the maximum is at id 3 (" in str(
        trace.explain("probabilities", 0, 0)
    )


def test_invalid_probabilities(pocket: Trace) -> None:
    with pytest.raises(AttnlabError, match="Block 0 has no step 'probabilities'"):
        pocket.explain("blocks.0.probabilities")
    with pytest.raises(AttnlabError, match="gradients can't be explained"):
        attnlab.gradients(pocket, 5).explain("probabilities")
    with pytest.raises(AttnlabError, match="isn't one token of the vocabulary"):
        pocket.explain("probabilities", 0, "xyzzy")
