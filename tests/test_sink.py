"""Where attention rests: the definitions in Python and on the page, on GPT-2's own patterns."""

import numpy as np
from numpy.typing import NDArray
from pages import Open, gpt2_shaped

from attnlab import GPT2, Trace, figures
from attnlab.support.sink import excess

# (12 layers, 12 heads, T, T) of two prompts, see the figures.
PATTERNS = [figures.load("gpt2_patterns")[f"weights_{n}"] for n in range(2)]


def patterns(odd: GPT2, weights: NDArray[np.float32]) -> Trace:
    """A trace of GPT-2's shape with these weights."""
    trace = gpt2_shaped(odd, weights.shape[-1], n_embd=96)
    layers = enumerate(weights)
    return trace.edited({f"blocks.{n}.attention.weights": layer for n, layer in layers})


def excess_by_hand(row: NDArray[np.float32], i: int) -> NDArray[np.float64]:
    """How far each weight of query i's other visible keys exceeds their mean, 1 at most."""
    result = np.zeros(len(row))
    others = row[1 : i + 1].astype(float)
    if len(others) > 1:
        # 1 for all attention on one token: its weight is 1, the mean 1 / m.
        m = len(others)
        result[1 : i + 1] = (others - others.mean()) / (1 - 1 / m)
    return result


def test_excess_is_0_if_uniform_and_1_if_one_token_has_all() -> None:
    others = np.array([[False, True, True, True, False]] * 2)
    weights = np.array([[0.4, 0.2, 0.2, 0.2, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]])
    assert np.allclose(excess(weights, others), [[0] * 5, [0, -0.5, 1, -0.5, 0]])


def test_gpt2_rests_as_published() -> None:
    resting = [(weights[:, :, -1, 0] > 0.9).sum() for weights in PATTERNS]
    assert resting == [38, 37]
    for weights in PATTERNS:
        means = weights[5:, :, 1:, 0].mean(axis=(1, 2))
        assert ((means > 0.65) & (means < 0.92)).all()


def test_the_excess_is_by_hand() -> None:
    for weights in PATTERNS:
        T = weights.shape[-1]
        for i in range(T):
            others = (np.arange(T) <= i) & (np.arange(T) > 0)
            for row in weights[:, :, i].reshape(-1, T):
                assert np.allclose(excess(row, others), excess_by_hand(row, i), atol=1e-6)


# Weights of “ball”, the last of five tokens, of which some look the same as percentages, and what
# the sentence says of them; a word's own share is only its own.
TIED = [
    (
        [0.02, 0.46, 0.456, 0.03, 0.034],
        "looks at “dog” and “chased” with 46 % of its attention each.",
    ),
    ([0.02, 0.03, 0.034, 0.456, 0.46], "looks at itself with 46 % of its attention."),
    ([0.02, 0.03, 0.034, 0.46, 0.456], "looks at “the2” with 46 % of its attention."),
    ([0.6, 0.13, 0.126, 0.1, 0.044], "rests on the first word; 13 % goes to “dog”."),
    (
        [0.08, 0.234, 0.232, 0.12, 0.228],
        "looks at “dog” and “chased” with 23 % of its attention each.",
    ),
    (
        [0.08, 0.234, 0.232, 0.228, 0.226],
        "looks at “dog” and 2 other words with 23 % of its attention each.",
    ),
    (
        [0.08, 0.26, 0.262, 0.258, 0.14],
        "looks at “chased” and 2 other words with 26 % of its attention each.",
    ),
]


def tied(pocket: GPT2) -> Trace:
    """A trace with these weights, one row in each head."""
    weights = np.zeros((len(TIED), 5, 5))
    weights[:, :4] = np.eye(5)[:4]
    weights[:, 4] = [row for row, _ in TIED]
    paths = (f"blocks.{n // 4}.attention.heads.{n % 4}.weights" for n in range(len(TIED)))
    return pocket.trace("The dog chased the ball").edited(dict(zip(paths, weights, strict=True)))


def test_a_page_names_tied_keys_together(pocket: GPT2, look: Open) -> None:
    trace = tied(pocket)
    page = look(trace, "depth=look&level=head&layer=0&head=0&query=4")
    for n, (_, words) in enumerate(TIED):
        page.evaluate("([layer, head]) => openHead(layer, head)", [*divmod(n, 4)])
        said = "document.querySelector('#said').innerText.replaceAll('\u00a0', ' ')"
        page.wait_for_function(f"words => {said}.includes(words)", arg=words)
