"""The page's own computation, in Node.js: the equations in JavaScript, runs over the graph."""

import inspect
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, REFERENCE, RELATIVES, lacking
from node import Evaluator, write_modules
from pages import in_base64

from attnlab import GPT2, Trace, at, equations
from attnlab.pages import translate
from attnlab.pages.modules import COMPILED
from attnlab.pages.translate import UNTRANSLATED, javascript
from attnlab.steps import as_data

# Tolerance to NumPy's numbers, relative to an array's largest.
SLACK = {"float32": 5e-6, "float64": 1e-13}

TYPES = {"f4": "Float32Array", "f8": "Float64Array", "i8": "Int32Array", "b1": "Uint8Array"}

# JavaScript: what `sent` sends, and what `received` receives.
MESSAGES = """
var bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
var received = (x) => x?.equation ? equations[x.equation] : !x?.type ? x :
    new Nd(new globalThis[x.type](bytes(x.data).buffer), x.shape, x.strides, x.offset);
var sent = (x) => !(x instanceof Nd) ? x :
    { type: x.data.constructor.name, shape: x.shape, numbers: Array.from(x.numbers()) };
var givenIn = (all) => {
    const values = Object.fromEntries(Object.entries(all).map(([path, x]) => [path, received(x)]));
    return (path) => values[path];
};
"""


def sent(value: Any) -> Any:
    """A value to send to the page; a view with its strides and memory."""
    if callable(value):
        return {"equation": value.__name__}
    if not isinstance(value, np.ndarray):
        return value
    memory = value
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    if not memory.flags.c_contiguous or value.dtype != memory.dtype:
        memory = value = np.ascontiguousarray(value)
    step = value.itemsize
    start, seen = (one.__array_interface__["data"][0] for one in (memory, value))
    numbers = memory.astype("<i4") if value.dtype.kind == "i" else memory
    return {
        "type": TYPES[value.dtype.str[1:]],
        "data": in_base64(numbers.tobytes()),
        "shape": value.shape,
        "strides": [stride // step for stride in value.strides],
        "offset": (seen - start) // step,
    }


def agree(actual: Any, expected: Any, slack: float | None = None) -> bool:
    """Whether the page's value equals NumPy's: type, shape and, within tolerance, numbers."""
    if not isinstance(expected, np.ndarray):
        return bool(actual == expected or actual == pytest.approx(expected, rel=1e-15))
    numbers = np.reshape(np.array(actual["numbers"], dtype=float), actual["shape"])
    finite = np.isfinite(expected)
    largest = np.abs(expected[finite]).max(initial=0)
    difference = (
        np.abs(numbers[finite] - expected[finite]) if numbers.shape == expected.shape else None
    )
    return bool(
        actual["type"] == TYPES[expected.dtype.str[1:]]
        and difference is not None
        and np.array_equal(numbers[~finite], expected[~finite])
        and difference.max(initial=0) <= (slack or SLACK[str(expected.dtype)]) * largest
    )


@pytest.fixture(scope="module")
def computing(pure: Any) -> Any:
    """The page's equations, with what sends and receives arrays."""
    pure.evaluate(MESSAGES)
    return pure


# ---- the equations -------------------------------------------------------------------------------

H, Tq, Tk, Dh, F, ROWS = 3, 5, 7, 4, 11, 13
D = H * Dh

# Shapes of the equations' parameters; a few differ in single equations.
BY_SHAPE = {
    (Tq, D): "x X centred stream update token_embedding position_embedding final "
    "apply_dropout.dropout_mask",
    (D,): "gain bias b_Q b_K b_V",
    (Tk, D): "memory",
    (D, D): "W_Q W_K W_V",
    (D, 3 * F): "W rows_of_head.W_O",
    (3 * F,): "b",
    (H, Tq, Dh): "Q context new merge_heads.x head_slice.x",
    (H, Tk, Dh): "K V",
    (H, Tq, Tk): "raw_scores scores score_bias masked_scores weights dropout_mask",
    (Tq, F): "hidden",
    (ROWS, D): "W_E W_P",
    (D, ROWS): "W_U",
    (Tq, Dh): "head_output.context",
    (Dh, D): "head_output.W_O",
}
SHAPES = {name: shape for shape, names in BY_SHAPE.items() for name in names.split()}
NUMBERS = {"epsilon": 1e-5, "n_head": H, "n": 1, "head": 2, "scale": 1.75, "divide_by_sqrt_d": True}
NOT_GIVEN = dict.fromkeys(("layer_number", "K_cache", "V_cache", "cache"))
OTHERS = {**NUMBERS, **NOT_GIVEN, "activation": equations.silu}

# One text, and batches, some with separate parameters.
LEADING = ((), (2,), (2, 3))
WITHOUT_LEADING = {"gain", "bias", "W", "b", "W_E", "W_P", "W_U", "W_O", "ids", "positions"}
WITHOUT_LEADING |= {f"{kind}_{name}" for kind in "Wb" for name in "QKV"}

FUNCTIONS_OF_PAGE = [
    function
    for _, function in inspect.getmembers(equations, inspect.isfunction)
    if function.__module__ == equations.__name__ and function.__name__ not in UNTRANSLATED
]


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, kind: str) -> Any:
    """Contiguous numbers, or a strided view with swapped last axes."""
    if kind == "view" and len(shape) > 1:
        *leading, rows, columns = shape
        around = rng.normal(size=(*leading, columns + 2, 2 * rows)).astype(dtype)
        return around[..., 1:-1, ::2].swapaxes(-2, -1)
    return rng.normal(size=shape).astype(dtype)


def arguments_of(
    function: Callable[..., Any],
    rng: np.random.Generator,
    leading: tuple[int, ...],
    dtype: Any,
    kind: str,
) -> list[Any]:
    result = []
    for name in inspect.signature(function).parameters:
        shape = SHAPES.get(f"{function.__name__}.{name}", SHAPES.get(name))
        if name in ("ids", "positions"):
            result.append(rng.integers(0, ROWS, (*leading, Tq)))
        elif name == "mask":
            result.append(rng.random((Tq, Tk)) < 0.5)
        elif shape is None:
            result.append(OTHERS[name])
        else:
            outer = () if name in WITHOUT_LEADING else leading
            result.append(random_array(rng, (*outer, *shape), dtype, kind))
    return result


@pytest.mark.parametrize("kind", ["in order", "view"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", FUNCTIONS_OF_PAGE, ids=lambda function: function.__name__)
def test_every_equation_is_numpys(
    computing: Any, function: Callable[..., Any], dtype: str, kind: str
) -> None:
    rng = np.random.default_rng(0)
    for leading in LEADING:
        given = arguments_of(function, rng, leading, dtype, kind)
        expected = function(*given)
        call = "([name, all]) => sent(equations[name](...all.map(received)))"
        actual = computing.evaluate(call, [function.__name__, [*map(sent, given)]])
        assert agree(actual, expected), leading
        optional = [
            n
            for n, name in enumerate(inspect.signature(function).parameters)
            if name == "b" or "dropout" in name
        ]
        for n in optional:  # an absent bias, no dropout
            given[n] = None
            actual = computing.evaluate(call, [function.__name__, [*map(sent, given)]])
            assert agree(actual, function(*given)), leading


# ---- their translation ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("    return x % 2", "x % 2"),
        ("    return np.cumsum(x)", "np.cumsum"),
        ("    return x.T", "x.T"),
        ("    return [y for y in x]", "[y for y in x]"),
        ("    return 0 < x < 1", "0 < x < 1"),
        ("    return x is not None", "x is not None"),
        ("    x[0] += 1", "x[0] += 1"),
        ("    a, b = b, a = x", "a, b = b, a = x"),
        ("    while x: pass", "while x:"),
        ("    def inside(): return 1", "def inside():"),
    ],
)
def test_an_unknown_construct_is_refused_with_its_line(line: str, what: str) -> None:
    text = f"import math\n\ndef f(x):\n    y = x\n{line}\n"
    with pytest.raises(SyntaxError) as error:
        javascript(text, "some/equations.py")
    assert str(error.value.msg).startswith(f"no JavaScript for {what}")
    assert (error.value.filename, error.value.lineno) == ("some/equations.py", 5)
    assert error.value.text is not None
    assert error.value.text.strip() == line.strip()
    for parameters in ("x=1", "*x", "**x", "*, x", "x, /"):
        with pytest.raises(SyntaxError, match="no JavaScript for def f") as error:
            javascript(f"\ndef f({parameters}):\n    return x\n", "some/equations.py")
        assert error.value.lineno == 2


# ---- runs ----------------------------------------------------------------------------------------

TEXT = "the hen in"
PASSES = (
    "([graph, given, edits, paths]) => { const editsOf = Object.fromEntries("
    "Object.entries(edits).map(([path, x]) => [path, received(x)]));"
    "const run = new Run(new Graph(graph), givenIn(given), editsOf);"
    "return paths.map((path) => sent(run.value(path))); }"
)

STEPS = (
    *("input", "attention.X", "attention.Q", "attention.K", "attention.V"),
    *("attention.scale", "attention.raw_scores", "attention.scores", "attention.masked_scores"),
    *("attention.weights", "attention.context", "attention.concat", "attention.output", "mid"),
    *("mlp.X", "mlp.hidden", "mlp.activated", "mlp.output", "output"),
)
OF_HEADS = ("Q", "K", "V", "raw_scores", "scores", "masked_scores", "weights", "context", "output")


def paths_of(trace: Trace) -> list[str]:
    layers = range(len(trace.blocks))
    heads = {0, trace.config.n_head - 1}
    return [
        # The last head's first, which are computed for it alone; the first one's are slices.
        *(f"blocks.{n}.attention.heads.{max(heads)}.{name}" for n in layers for name in OF_HEADS),
        *("next_logits", "token_embedding", "position_embedding", "embedding"),
        *(f"blocks.{n}.{name}" for n in layers for name in STEPS),
        *(f"blocks.{n}.attention.heads.0.{name}" for n in layers for name in OF_HEADS),
        *("final", "logits"),
    ]


def given_of(trace: Trace) -> dict[str, Any]:
    """The inputs of a pass: ids, sizes and parameters."""
    parameters = trace.parameters
    given = {path: parameters[path] for path in parameters}
    return {**trace._run.values, **given, "rows_of_W_E": parameters["W_E"]}


def looked_at(page: Any, trace: Trace, edits: dict[str, Any], paths: list[str]) -> Any:
    given = {path: sent(value) for path, value in given_of(trace).items()}
    edits = {path: sent(edit) for path, edit in edits.items()}
    return page.evaluate(PASSES, [as_data(trace._run.graph), given, edits, paths])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["pocket", *MODELS, *RELATIVES])
def test_a_whole_pass_is_the_librarys(computing: Any, name: str, dtype: str) -> None:
    directory: Path | str = name if name == "pocket" else REFERENCE / name
    trace = GPT2.from_pretrained(directory, dtype=dtype).trace(TEXT)
    paths = paths_of(trace)
    for path, actual in zip(paths, looked_at(computing, trace, {}, paths), strict=True):
        slack = {"float32": 5e-6, "float64": 1e-12}[dtype]
        assert agree(actual, at(trace, path), slack), path


# ---- products in WebAssembly ---------------------------------------------------------------------


@pytest.fixture(scope="module", params=COMPILED)
def compiled(request: pytest.FixtureRequest, node: str, tmp_path_factory: Any) -> Iterator[Any]:
    """The page's equations with one of the modules."""
    evaluator = Evaluator(node, write_modules(tmp_path_factory.mktemp("modules")))
    evaluator.evaluate(f"{MESSAGES} MODULES.splice(0, {COMPILED.index(request.param)});")
    evaluator.evaluate("() => { globalThis.made = Products.of(2 ** 20); }")
    yield evaluator
    evaluator.close()


@pytest.mark.parametrize("is_its", [True, False])
@pytest.mark.parametrize("kind", ["rows", "columns", "neither"])
@pytest.mark.parametrize(
    ("n", "m", "p"), [(1, 97, 203), (4, 64, 128), (37, 131, 53), (150, 1000, 7), (5, 3, 4001)]
)
def test_products_are_numpys(
    compiled: Any, n: int, m: int, p: int, kind: str, is_its: bool
) -> None:
    """Matrices and views of any size, in its memory or elsewhere."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(2, n, 2 * m)).astype(np.float32)[:, :, ::2]
    around = rng.normal(size=(m + 1, 2 * p) if kind != "columns" else (p, m + 3))
    b = around.astype(np.float32)
    b = {"rows": b[1:, p:], "columns": b[:, 3:].T, "neither": b[1:, ::2]}[kind]
    used, actual = compiled.evaluate(
        """([a, b, isIts]) => {
            [a, b] = [a, b].map(received);
            const data = isIts ? made.numbers.subarray(7, 7 + b.data.length) : b.data;
            if (isIts) data.set(b.data);
            b = new Nd(data, b.shape, b.strides, b.offset);
            let used;
            useProducts({ product: (...all) => (used = made.product(...all)) });
            const product = sent(nd.matmul(a, b));
            useProducts(null);
            return [used, product];
        }""",
        [sent(a), sent(b), is_its],
    )
    assert used == (kind != "neither")
    assert agree(actual, a @ b)


# JavaScript: call a function of arrays, and say whether WebAssembly computed it.
CALLED = """([name, given, how]) => {
    let used;
    useProducts({ elementwise: (...all) => (used = made.elementwise(...all)) });
    const [first, ...others] = given.map(received);
    const found = how === null ? nd[name](first, ...others) : first[name](how);
    useProducts(null);
    return [used, sent(found)];
}"""


@pytest.mark.parametrize("shape", [(5000,), (3, 129, 40), (2, 1, 37)])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_operators_of_rows_are_numpys(compiled: Any, name: str, shape: tuple[int, ...]) -> None:
    """Of arrays, of rows and columns that are repeated, of numbers, and of views."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(np.float32)
    others = [rng.normal(size=size).astype(np.float32) for size in (shape, shape[-1:])]
    others += [rng.normal(size=(*shape[:-1], 1)).astype(np.float32)]
    for y in [*others, 0.3, np.concatenate([x, x], axis=-1)[..., 3 : 3 + shape[-1]]]:
        for given in ([x, y], [y, x]):
            used, actual = compiled.evaluate(CALLED, [name, [sent(one) for one in given], None])
            assert used
            assert agree(actual, getattr(np, name)(*given), 1e-7)


@pytest.mark.parametrize("name", ["exp", "tanh", "square"])
def test_functions_of_rows_are_numpys(compiled: Any, name: str) -> None:
    x = np.concatenate(
        [
            np.linspace(-87, 88.7, 9001),
            *(sign * np.geomspace(1e-30, 80, 1001) for sign in (1, -1)),
            [0, -0.0, -100, -1e30, 100, 1e30, -np.inf, np.inf],
        ]
    ).astype(np.float32)
    used, actual = compiled.evaluate(CALLED, [name, [sent(x)], None])
    assert used
    with np.errstate(over="ignore", under="ignore"):
        expected = getattr(np, name)(x)
    numbers = np.array([np.inf if one is None else one for one in actual["numbers"]])
    assert np.allclose(numbers, expected, rtol=1e-6, atol=1e-37)


def test_numbers_chosen_and_reduced_are_numpys(compiled: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 7, 131)).astype(np.float32)
    mask = rng.random((7, 131)) < 0.5
    used, actual = compiled.evaluate(CALLED, ["where", [sent(mask), sent(x), -1e30], None])
    assert used
    assert agree(actual, np.where(mask, x, np.float32(-1e30)), 1e-9)
    for name in ("sum", "max"):
        how = {"axis": -1, "keepdims": True}
        _, actual = compiled.evaluate(CALLED, [name, [sent(x)], how])
        assert agree(actual, getattr(x.astype(float), name)(**how).astype(np.float32), 1e-7)


def test_what_others_have_is_not_overwritten(computing: Any) -> None:
    x = np.linspace(-2, 2, 12).astype(np.float32).reshape(3, 4)
    before = x.copy()
    for name in ("gelu", "silu", "exact_gelu", "softmax", "mean"):
        actual = computing.evaluate(
            "([name, x]) => { const given = received(x); equations[name](given);"
            " return sent(given); }",
            [name, sent(x)],
        )
        assert agree(actual, before, 1e-9)


@pytest.mark.slow
def test_what_is_compiled_is_the_source(tmp_path: Path) -> None:
    text = Path(translate.__file__).with_name("product.ts")
    lines = text.read_text()
    (version,) = re.findall(r"assemblyscript (\S+), once", lines)
    joined = lines.replace(" \\\n//    ", "")
    commands = dict(re.findall(r"//   npx asc product.ts (.*) -o (\S+)", joined))
    assert [*commands.values()] == [*COMPILED]
    compiler = os.environ.get("ATTNLAB_ASC") or shutil.which("asc")
    if compiler is None:
        lacking(f"npm install assemblyscript@{version}, and ATTNLAB_ASC names its asc")
    printed = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    if version not in printed.stdout:
        lacking(f"asc is another one than {version}: {printed.stdout}")
    for options, name in commands.items():
        result = tmp_path / name
        command = [compiler, text, *options.split(), "-o", result]
        subprocess.run(command, check=True, capture_output=True)
        assert result.read_bytes() == text.with_name(name).read_bytes()
