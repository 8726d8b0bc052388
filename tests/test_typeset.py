"""The book's equations in TeX, and its drawings of blocks."""

import ast
import inspect
import re
import shutil

import pytest
from book import CHAPTERS  # puts the book's modules on the path
from conftest import lacking
from drawings import CHINESE, DRAWINGS, drawing
from typeset import SECTIONS, Untranslatable, page, tex

from attnlab import equations

BY_HAND = {
    "raw_scores": [r"\text{raw scores} = Q \, K^\top"],
    "scores": [r"\text{scores} = \frac{\text{raw scores}}{\text{scale}}"],
    "masked_scores": [
        r"\text{masked scores} = \begin{cases} \text{biased}(\text{scores}, \text{score bias}) & "
        r"\text{if } \text{mask} \\ -\infty & \text{else} \end{cases}"
    ],
    "context": [r"\text{context} = \text{weights} \, V"],
    "affine": [r"\text{affine}(x, W, b) = x \, W + b"],
    "softmax": [r"e = \text{exponentials}(x)", r"\text{softmax}(x) = \frac{e}{\sum_j e_j}"],
    "exponentials": [r"\text{exponentials}(x) = e^{x - \max_j x_j}"],
    "deviation": [r"\text{deviation} = \sqrt{\text{mean}(\text{centred}^2) + \varepsilon}"],
    "gelu_factor": [r"\text{gelu factor}(x) = 0.5 \cdot \left(1 + \text{gelu tanh}(x)\right)"],
    "normal_cdf": [r"\Phi(x) = 0.5 \cdot \left(1 + \text{erf}(\frac{x}{\sqrt{2}})\right)"],
}


def function(code: str) -> ast.FunctionDef:
    (node,) = ast.parse(code).body
    assert isinstance(node, ast.FunctionDef)
    return node


@pytest.mark.parametrize("name", BY_HAND)
def test_an_equation_in_tex(name: str) -> None:
    assert tex(function(inspect.getsource(getattr(equations, name)))) == BY_HAND[name]


def test_a_factor_that_is_a_sum_has_brackets() -> None:
    (found,) = tex(function("def f(a, b):\n    return (a + b) @ transpose(a - b)"))
    assert found == r"f = \left(a + b\right) \, \left(a - b\right)^\top"
    with pytest.raises(Untranslatable):
        tex(function("def f(a):\n    return a // 2"))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_has_every_equation(language: str) -> None:
    assert CHAPTERS
    text = page(language)
    functions = [
        node.name
        for node in ast.parse(inspect.getsource(equations)).body
        if isinstance(node, ast.FunctionDef)
    ]
    assert re.findall(r'<span id="(\w+)">', text) == functions
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == len(SECTIONS)
    without = set(functions) - {
        name for name, rest in re.findall(r'id="(\w+)"></span>\n```\n\n```(\{math\}|python)', text)
        if rest == "{math}"
    }  # fmt: skip
    assert without == {
        *("gpt2", "scale_of_layer", "columns_of_head", "rows_of_head", "head_slice", "third"),
        *("split_heads", "merge_heads", "transpose", "with_cached", "surprisal"),
    }


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_in_both_languages(name: str) -> None:
    if not shutil.which("dot"):
        lacking("drawings need Graphviz: apt-get install graphviz")
    graph, *_ = DRAWINGS[name]
    english, chinese = drawing(name, "en"), drawing(name, "zh")
    for before, after in CHINESE.items():
        if f'"{before}"' in graph:
            for line, translated in zip(*(x.split("\\n") for x in (before, after)), strict=True):
                assert (line in english, translated in chinese) == (True, True)
                assert line == translated or f">{line}<" not in chinese
