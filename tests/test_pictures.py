"""Pictures of the user's own numbers: drawings, read from the Axes; bad input."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import needs

from attnlab import AttnlabError
from attnlab.errors import InvalidTypeError, InvalidValueError

nan, inf = np.nan, np.inf


@pytest.fixture
def pictures() -> Any:
    needs("matplotlib", "plot")
    from attnlab import pictures

    return pictures


def arrows_in(ax: Any) -> list[list[float]]:
    """The starts and ends of the Axes' arrows, in drawing order."""
    from matplotlib.quiver import Quiver

    return [
        [*start, *np.add(start, vector)]
        for arrows in ax.collections
        if isinstance(arrows, Quiver)
        for start, vector in zip(arrows.XY, zip(arrows.U, arrows.V, strict=True), strict=True)
    ]


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_pictures_of_matrices_vectors_and_masks(pictures: Any) -> None:
    picture = pictures.heatmap(
        [[0.5, nan, -0.3], [0.25, -inf, 1]],
        rows=["кот", "ест"],
        columns=["cat", "$x_1$", "c" * 99],
        title="Mine",
    )
    (image,) = picture.axes.images
    assert np.ma.getmaskarray(image.get_array()).tolist() == [[False, True, False]] * 2
    assert image.get_array().filled(9).tolist() == [[0.5, 9, -0.3], [0.25, 9, 1]]
    assert image.get_clim() == (-1, 1)
    assert [text.get_text() for text in picture.axes.get_yticklabels()] == ["кот", "ест"]
    columns = [text.get_text() for text in picture.axes.get_xticklabels()]
    assert columns == ["cat", "$x_1$", f"{'c' * 31}…"]
    assert picture.axes.get_title(loc="left") == "Mine"
    assert picture.alt == f"Heatmap of Mine: 2 x 3; the largest is 1 at ест, {'c' * 31}…"
    row = pictures.heatmap([1, 2, 3])
    assert row.axes.images[0].get_array().tolist() == [[1, 2, 3]]
    assert row.alt == "Heatmap: 3; the largest is 3 at 2"
    mask = pictures.heatmap([[True, False]])
    assert mask.axes.images[0].get_array().tolist() == [[1, 0]]
    wide = pictures.heatmap(np.eye(40))
    assert wide.axes.get_title(loc="left").endswith("shown: the first 23 and the last of 40")


def test_plane_transformed_by_a_matrix(pictures: Any) -> None:
    """Points are rows: (1, 2) W = (1·2 + 2·1, 1·0 + 2·3) = (4, 6), and b = (1, -1) added (5, 5)."""
    W = [[2, 0], [1, 3]]
    maps = {"W": W, "with b": (W, [1, -1])}
    picture = pictures.plane(maps, points={"кот": (1, 2)}, title="Two maps")
    before, after, moved = picture.axes.child_axes
    assert [panel.get_title() for panel in (before, after, moved)] == ["before", "W", "with b"]
    assert arrows_in(before) == [[0, 0, 1, 0], [0, 0, 0, 1]]
    assert arrows_in(after) == [[0, 0, 2, 0], [0, 0, 1, 3]]
    assert arrows_in(moved) == [[1, -1, 3, -1], [1, -1, 2, 2]]
    for panel, square, point in (
        (before, [(0, 0), (1, 0), (1, 1), (0, 1)], (1, 2)),
        (after, [(0, 0), (2, 0), (3, 3), (1, 3)], (4, 6)),
        (moved, [(1, -1), (3, -1), (4, 2), (2, 2)], (5, 5)),
    ):
        assert panel.patches[0].get_xy()[:-1].tolist() == [list(corner) for corner in square]
        (dot,) = (line for line in panel.lines if line.get_marker() == "o")
        assert dot.get_xydata().tolist() == [list(point)]
    assert texts(after) == ["(2, 0)", "(1, 3)", "кот"]
    assert picture.alt == (
        "Maps of the plane of Two maps: W takes (1, 0) to (2, 0) and (0, 1) to (1, 3); "
        "with b takes (1, 0) to (3, -1) and (0, 1) to (2, 2)"
    )


def test_grid_and_its_scale(pictures: Any) -> None:
    """Lines at -2 ... 2 both ways; where (x, y) W = (2 x + y, 3 y), (2, 2) is at (6, 6)."""
    panels = pictures.plane({"W": [[2, 0], [1, 3]]}).axes.child_axes
    drawn = [panel.collections[0].get_segments() for panel in panels]
    lines = [[[x, -2], [x, 2]] for x in (-2, -1, 0, 1, 2)]
    lines += [[[-2, y], [2, y]] for y in (-2, -1, 0, 1, 2)]
    assert np.array(drawn[0]).tolist() == lines
    assert np.array(drawn[1])[[0, 9]].tolist() == [[[-6, -6], [-2, 6]], [[-2, 6], [6, 6]]]
    moved = pictures.plane({"W": ([[2, 0], [1, 3]], [1, -4])}).axes.child_axes  # down to -10
    for panel, size in (*((panel, 6.3) for panel in panels), *((panel, 10.5) for panel in moved)):
        assert panel.get_xlim() == panel.get_ylim() == pytest.approx((-size, size))
        assert panel.get_aspect() == 1
    for y, most, count in ((3.5, 4, 2 * 9), (8.5, 8.5, 2 * 17), (350, 350, 2 * 17)):
        far, _ = pictures.plane({"I": np.eye(2)}, points={"far": (0, y)}).axes.child_axes
        segments = np.array(far.collections[0].get_segments())
        assert (segments.max(), len(segments)) == (most, count)
    maps = [pictures.plane(dict.fromkeys("abcd"[:n], np.eye(2))) for n in (1, 2, 3, 4)]
    sizes = [(2.6 * across, 2.6 * down + 0.3) for across, down in ((2, 1), (3, 1), (2, 2), (3, 2))]
    assert [tuple(picture.figure.get_size_inches()) for picture in maps] == sizes


def test_arrows(pictures: Any) -> None:
    vectors = {"0.5 · кот": (1, 2), "ест": (3, -1), "none": (0, 0), "back": (-2, 0.5)}
    picture = pictures.arrows(vectors, title="A context vector")
    total, *parts = arrows_in(picture.axes)
    assert total == [0, 0, 2, 1.5]
    assert parts == [[0, 0, 1, 2], [1, 2, 4, 1], [4, 1, 4, 1], [4, 1, 2, 1.5]]
    assert texts(picture.axes) == ["sum", *vectors]
    halfway = [(1, 0.75), (0.5, 1), (2.5, 1.5), (4, 1), (3, 1.25)]
    assert [text.xy for text in picture.axes.texts] == halfway
    total_width, width = (arrows.width for arrows in picture.axes.collections)
    assert total_width == 2 * width
    assert picture.axes.get_aspect() == 1
    assert picture.alt == (
        "Arrows head to tail of A context vector: 0.5 · кот (1, 2), ест (3, -1), none (0, 0), "
        "back (-2, 0.5); their sum is (2, 1.5)"
    )
    picture = pictures.points({"кот": (1, 2), "ест": (-0.5, 0)})
    assert arrows_in(picture.axes) == [[0, 0, 1, 2], [0, 0, -0.5, 0]]
    assert texts(picture.axes) == ["кот", "ест"]
    assert picture.alt == "Arrows from the origin: кот (1, 2), ест (-0.5, 0)"
    assert pictures.points({"nothing": (0, 0)}).alt.endswith("nothing (0, 0)")


def crowd(n: int) -> dict[str, Any]:
    return {f"word {i}": (np.cos(i / 9), np.sin(i / 9)) for i in range(n)}


def test_curves_picture(pictures: Any) -> None:
    picture = pictures.curves(
        {"low": [1, nan, 0.5], "_high $x$": [2, 3, 4]},
        x=[1, 10, 100],
        x_name="шаг",
        y_name="потеря",
        title="Two",
    )
    ax = picture.axes
    low, high = ax.lines
    assert low.get_xdata().tolist() == high.get_xdata().tolist() == [1, 10, 100]
    assert np.array_equal(low.get_ydata(), [1, nan, 0.5], equal_nan=True)
    assert high.get_ydata().tolist() == [2, 3, 4]
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["_high $x$", "low"]  # in the order of the curves' right ends
    (first, second) = ax.get_legend().get_lines()
    assert (first.get_linestyle(), second.get_linestyle()) == ("--", "-")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("шаг", "потеря")
    assert ax.get_title(loc="left") == "Two\nnot drawn: 1 NaN or infinite"
    assert picture.alt == (
        "Curves of Two: low from 1 at 1 to 0.5 at 100; _high $x$ from 2 at 1 to 4 at 100"
    )
    gaps = pictures.curves({"loss": [nan, 2, -1, inf]}, y_name="loss")
    assert gaps.alt == "Curves: loss from 2 at 1 to -1 at 2"
    assert gaps.axes.get_legend() is None  # the axis names it
    assert pictures.curves({"loss": [1]}, y_name="nats").axes.get_legend() is not None


def test_drawing_into_existing_axes(pictures: Any) -> None:
    from matplotlib.figure import Figure

    axes = Figure(figsize=(12, 8), dpi=20).subplots(2, 3).flat
    drawn = [
        pictures.heatmap([[1]], ax=axes[0]),
        pictures.plane({"I": np.eye(2)}, ax=axes[1]),
        pictures.arrows({"a": (1, 2)}, ax=axes[2]),
        pictures.points({"a": (1, 2)}, ax=axes[3]),
        pictures.curves({"a": [1, 2]}, ax=axes[4]),
    ]
    assert [picture.axes for picture in drawn] == list(axes)[:5]


def test_odd_numbers_and_labels_are_drawn(pictures: Any) -> None:
    odd = {"": (0, 0), "\x1b[0m\n": (0, 0), r"$\frac$": (1e100, -1e100), "\U0002fa1d": (1e-300, 0)}
    for picture in (
        pictures.points(odd),
        pictures.plane({"$^": np.zeros((2, 2)), "a" * 99: np.full((2, 2), 1e99)}, points=odd),
        pictures.heatmap([[nan, 1e100, -1e100]]),
        pictures.curves({"": [1], "$": [inf]}, x=[nan]),
        pictures.curves({"a": [1e100, -1e100]}, x_name="$", y_name=r"\frac{"),
    ):
        picture.figure.savefig(io.BytesIO(), dpi=20)


BAD: list[tuple[Callable[[Any], object], type[AttnlabError], str]] = [
    (lambda p: p.heatmap([]), InvalidValueError, r"got shape \(0,\)"),
    (lambda p: p.heatmap(np.zeros((2, 2, 2))), InvalidValueError, r"\(2, 2, 2\)"),
    (lambda p: p.heatmap([[1j]]), InvalidTypeError, "complex128"),
    (lambda p: p.heatmap("abc"), InvalidTypeError, "real dtype"),
    (lambda p: p.heatmap([[1e101]]), InvalidValueError, r"beyond 1e\+100"),
    (lambda p: p.heatmap([[-1e101]]), InvalidValueError, r"beyond 1e\+100"),
    (lambda p: p.heatmap([[1]], rows=["a", "b"]), InvalidValueError, "1 labels; got 2"),
    (lambda p: p.heatmap([[1]], rows=3), InvalidTypeError, "rows must be"),
    (lambda p: p.heatmap([[1]], title=3), InvalidTypeError, "title must be"),
    (lambda p: p.heatmap([[1]], ax=3), InvalidTypeError, "ax must be"),
    (lambda p: p.plane({"W": [[1, 2, 3]]}), InvalidValueError, r"'W'.*\(2, 2\)"),
    (lambda p: p.plane({"W": (np.eye(2), [1])}), InvalidValueError, r"\(2,\)"),
    (lambda p: p.plane({"W": [[nan, 0], [0, 1]]}), InvalidValueError, "'W'"),
    (lambda p: p.plane(np.eye(2)), InvalidTypeError, "matrices must be a dict"),
    (lambda p: p.plane({}), InvalidValueError, "1 to 8 matrices"),
    (lambda p: p.plane({0: np.eye(2)}), InvalidTypeError, "texts as labels"),
    (lambda p: p.plane(dict.fromkeys("abcdefghi", np.eye(2))), ValueError, "got 9"),
    (lambda p: p.plane({"I": np.eye(2)}, points=[(1, 2)]), TypeError, "points must be a dict"),
    (lambda p: p.arrows([(1, 2)]), InvalidTypeError, "vectors must be a dict"),
    (lambda p: p.arrows({}), InvalidValueError, "1 to 24 vectors.*got 0"),
    (lambda p: p.arrows(crowd(25)), InvalidValueError, "got 25"),
    (lambda p: p.arrows({"a": np.arange(64)}), ValueError, r"vectors\['a'\].*\(64,\)"),
    (lambda p: p.points({"a": (1, inf)}), InvalidValueError, "finite"),
    (lambda p: p.points({"a": "xy"}), InvalidTypeError, "real dtype"),
    (lambda p: p.curves({"a": []}), InvalidValueError, "curve 'a' must be a row"),
    (lambda p: p.curves({"a": [[1]]}), InvalidValueError, r"\(1, 1\)"),
    (lambda p: p.curves({"a": [1, 2]}, x=[1]), ValueError, "2 numbers, and x has 1"),
    (lambda p: p.curves({"a": [1]}, x_name=3), TypeError, "x_name must be"),
    (lambda p: p.curves([1, 2]), InvalidTypeError, "curves must be a dict"),
]


@pytest.mark.parametrize(("draw", "kind", "message"), BAD)
def test_invalid_input(pictures: Any, draw: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        draw(pictures)
    assert isinstance(caught.value, AttnlabError)
