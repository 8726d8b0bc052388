"""Chapter 2, a matrix is a map: its claims hold."""

import numpy as np
import pytest
from book import Chapter, run

CHAPTER = "02"
MATRIX = "[[2.0, 1.0], [0.5, 1.5]]"
BOTH = "W_K = np.array([[1.0, 0.0], [0.0, 1.5]])"


def test_matrix_as_a_map(chapter: Chapter) -> None:
    assert (chapter["POINT"] @ chapter["M"]).tolist() == [3, 4]
    assert "(1, 2) M = 1·[2. 1.] + 2·[0.5 1.5] = [3. 4.]" in chapter.printed
    kinds = chapter["kinds"]
    assert [1, 2] @ kinds["stretch"] == pytest.approx([1.5, 1])
    assert [1, 2] @ kinds["turn"] == pytest.approx([3**0.5 / 2 - 1, 0.5 + 3**0.5])
    assert [1, 2] @ kinds["mirror"] == pytest.approx([-1, 2])
    for kind, determinant in {"stretch": 0.75, "turn": 1, "mirror": -1}.items():
        assert np.linalg.det(kinds[kind]) == pytest.approx(determinant)
    both = chapter["compositions"]
    assert [1, 2] @ both["stretch turn"] == pytest.approx([0.75 * 3**0.5 - 0.5, 0.75 + 3**0.5 / 2])
    assert [1, 2] @ both["turn stretch"] == pytest.approx([0.75 * 3**0.5 - 1.5, 0.25 + 3**0.5 / 2])


@pytest.mark.slow
@pytest.mark.parametrize("matrix", [MATRIX, "[[0.0, 1.0], [1.0, 0.0]]", "[[1, 2], [2, 4]]"])
def test_singular_value_decomposition(matrix: str) -> None:
    lesson = run(CHAPTER, {MATRIX: matrix})
    U, S, Vt, M = (lesson[name] for name in ("U", "S", "Vt", "M"))
    assert U @ S @ Vt == pytest.approx(M)
    for turn in (U, Vt):
        assert turn @ turn.T == pytest.approx(np.eye(2))
    assert np.linalg.det(U) == pytest.approx(1)
    assert np.trace(U) >= 0
    assert np.linalg.det(S) == pytest.approx(abs(np.linalg.det(M)), abs=1e-12)
    assert S[0, 0] >= S[1, 1] >= 0


def test_linear_and_affine(chapter: Chapter) -> None:
    for name, far in {"linear": [0, 0], "affine": -chapter["SHIFT"]}.items():
        f_one, f_other, f_sum = chapter["maps"][name]
        assert f_sum - (f_one + f_other) == pytest.approx(far)


def test_two_words(chapter: Chapter) -> None:
    assert (chapter["X"] @ chapter["X"].T).tolist() == [[5, 4], [4, 5]]
    assert (chapter["Q"] @ chapter["K"].T).tolist() == [[1, 5], [-2.5, 1]]
    assert chapter["rotated_scores"] == pytest.approx(chapter["Q"] @ chapter["K"].T)


def test_low_rank(chapter: Chapter) -> None:
    assert np.linalg.matrix_rank(chapter["W_QK"]) == 1
    assert (chapter["X"][1] @ chapter["W_QK"]).tolist() == [0, 0]
    assert (chapter["D"], chapter["Dh"]) == (128, 32)
    assert "W_Q W_Kᵀ is 128 x 128, of rank 32" in chapter.printed
    assert chapter["singular_values"][32:] == pytest.approx(0, abs=1e-5)
    assert np.argmax(chapter["squares"] >= 0.9) + 1 < 32


def test_exercise_1(answer: str) -> None:
    lesson = run(CHAPTER, {"(1.5, 0.5), 30": "(1.5, 0.5), 90"})
    assert lesson["turn"] == pytest.approx(np.array([[0, 1], [-1, 0]]))
    assert lesson["POINT"] @ lesson["turn"] == pytest.approx([-2, 1])
    assert "(-2, 1)" in answer
    assert f"{np.linalg.det(lesson['turn']):.4f}" in answer


def test_exercise_2(chapter: Chapter, answer: str) -> None:
    before = chapter["stretch"]
    after = run(CHAPTER, {"(1.5, 0.5), 30": "(1.5, -0.5), 30"})["stretch"]
    signs = f"from {np.linalg.det(before):.4f} to {np.linalg.det(after):.4f}"
    assert signs in answer
    for value in np.linalg.svd(after, compute_uv=False):
        assert f"{value:.4f}" in answer


def test_exercise_3(answer: str) -> None:
    lesson = run(CHAPTER, {BOTH: f"{BOTH}\nW_K = W_Q"})
    assert (lesson["Q"] @ lesson["K"].T).tolist() == [[5, 4], [4, 5]]
    assert "5 and 4, 4 and 5" in answer
    lesson = run(CHAPTER, {BOTH: f"{BOTH}\nW_Q = W_K = M"})
    product = lesson["Q"] @ lesson["K"].T
    assert product == pytest.approx(product.T)
    assert not np.allclose(product, lesson["X"] @ lesson["X"].T)


def test_exercise_4(chapter: Chapter, answer: str) -> None:
    before = chapter["W_QK"]
    after = run(CHAPTER, {"[[1.0], [-0.5]]": "[[2.0], [-1.0]]"})["W_QK"]
    assert np.linalg.matrix_rank(after) == 1
    largest = (np.linalg.svd(flat, compute_uv=False)[0] for flat in (before, after))
    assert "from {:.4f} to {:.4f}".format(*largest) in answer


def test_eigenvectors(chapter: Chapter) -> None:
    assert chapter["eigenvalues"] == pytest.approx([2.5, 1])  # trace 3.5, determinant 2.5
    for value, x in zip(chapter["eigenvalues"], chapter["directions"].values(), strict=True):
        assert x @ chapter["M"] == pytest.approx(value * x)
    turn = run(CHAPTER, {MATRIX: "[[0.0, 1.0], [-1.0, 0.0]]"})
    assert np.linalg.matrix_rank(turn["M"]) == 2
    assert not turn["directions"]
