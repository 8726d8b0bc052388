"""tables.py: alignment, gaps, labels."""

import doctest
from typing import Any

import numpy as np
import pytest

from attnlab import AttnlabError, attention, table
from attnlab.forward import functional
from attnlab.support import tables


def test_labels_and_signs() -> None:
    lines = table([[1.0], [22.0]], rows=["猫", "fish"], columns=["x"], decimals=1).splitlines()
    assert lines == ["         x", "猫     1.0", "fish  22.0"]
    assert tables.display_width("e\u0301") == 1
    assert table([[1.0]], rows=["\n\x1b"], columns=["x"]).splitlines()[1].startswith("\\n\\x1b")
    assert "-" not in table([[-0.00001]])


def test_wide_tables_are_cut_with_a_gap() -> None:
    text = table(np.arange(100.0).reshape(10, 10), decimals=0, max_rows=3, max_columns=4)
    assert text.splitlines() == [
        "    0   1   2  …   9",
        "0   0   1   2  …   9",
        "1  10  11  12  …  19",
        "…   …   …   …  …   …",
        "9  90  91  92  …  99",
    ]
    limits = {"decimals": np.int64(2), "max_rows": np.int64(3), "max_columns": np.int64(2)}
    text = table([[1, 2, 3]] * 3, **limits)
    assert [line.split() for line in text.splitlines()] == [
        ["0", "…", "2"],
        *([f"{row}", "1.00", "…", "3.00"] for row in range(3)),
    ]


def test_examples_in_docstrings() -> None:
    for module in (tables, functional):
        names = {"np": np, "table": table, "attention": attention}
        results = doctest.testmod(module, extraglobs=names)
        assert results.attempted > 0
        assert results.failed == 0


@pytest.mark.parametrize(
    ("values", "settings", "message"),
    [
        ([1, 2], {}, r"\(2,\)"),
        ([[1, 2]], {"rows": ["a", "b"]}, "rows must be 1 labels; got 2"),
        ([[1, 2]], {"columns": ["a"]}, "columns must be 2 labels; got 1"),
        ([["a"]], {}, "numbers"),
        ([[1]], {"decimals": -1}, "decimals.*-1"),
        ([[1]], {"decimals": 1.5}, "decimals.*1.5"),
        ([[1]], {"decimals": True}, "decimals.*True"),
        ([[1]], {"max_rows": 1}, "at least 2"),
        ([[1]], {"max_columns": 2.0}, "at least 2.*2.0"),
        ([[1], [2, 3]], {}, "values isn't an array of numbers"),
        ([[1]], {"rows": 5}, r"rows must be 1 labels, .*; got 5"),
        ([[1]], {"decimals": 10**18}, "decimals must be an integer from 0 to 100"),
        ([[1]], {"decimals": np.timedelta64(1, "s")}, "decimals must be an integer"),
    ],
)
def test_invalid_input_is_rejected(values: Any, settings: Any, message: str) -> None:
    with pytest.raises(AttnlabError, match=message):
        table(values, **settings)


@pytest.mark.parametrize(
    ("number", "error", "expected"),
    [
        (0.05713, 0.00334, ("0.0571", "0.0033")),
        (17.902, 0.872, ("17.90", "0.87")),
        (1.0, 0.021, ("1.000", "0.021")),
        (-1234.5, 56.7, ("-1234", "57")),
        (-12345.6, 567.8, ("-12346", "568")),
        (0.5, 0.1, ("0.50", "0.10")),
        (2 / 3, 0.0, ("0.667", "0")),
        (2 / 3, float("nan"), ("0.667", "")),
        (2 / 3, 3e-17, ("0.667", "0")),
        (-2e-16, 3e-17, ("0", "0")),
        (2e9, 1e-4, ("2e+09", "0")),
        (1e-12, 2e-12, ("0.0000000000010", "0.0000000000020")),
    ],
    ids=str,
)
def test_number_with_standard_error(number: float, error: float, expected: tuple[str, str]) -> None:
    assert tables.format_with_error(number, error) == expected
