"""Colours and scale, compared with WCAG and a browser's own mixing; one theme in all views."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import attnlab
from attnlab import GPT2
from attnlab.pages.saved import style
from attnlab.support.colours import DARK, LIGHT, Theme, ink_on
from attnlab.support.scale import DIFFERENCE, SHADES, WEIGHTS, Scale

THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])


def rgb(colour: str) -> NDArray[np.int64]:
    return np.array([int(colour[n : n + 2], 16) for n in (1, 3, 5)])


def luminance(colour: str) -> float:
    """WCAG 2.2's relative luminance."""
    coded = rgb(colour) / 255
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@THEMES
def test_colours_have_enough_contrast(theme: Theme) -> None:
    assert contrast(theme.ink, theme.paper) > 7
    assert contrast(theme.faint, theme.paper) > 4.5
    assert contrast(theme.positive, theme.zero) > 4.5
    assert contrast(theme.negative, theme.zero) > 4.5
    for colour in theme.palette():
        assert contrast(colour, ink_on(colour)) > 4.5
        assert contrast(colour, ink_on(colour)) >= contrast(colour, "#808080")
        assert ink_on(colour) in ("#000000", "#ffffff")


@THEMES
def test_lightness_alone_orders_the_colours(theme: Theme) -> None:
    """Every scale can be read by lightness alone; negative numbers are blue."""
    palette = theme.palette()
    assert len(palette) == 2 * SHADES + 1
    assert [palette[n] for n in (0, SHADES, -1)] == [theme.negative, theme.zero, theme.positive]
    lightness = np.cbrt([luminance(colour) for colour in palette])
    for part in (lightness[SHADES::-1], lightness[SHADES:]):
        # Neighbours may have the same of 256 levels; colours eight apart may not.
        steps = (part[8:] - part[:-8]) * (1 if theme is DARK else -1)
        assert (steps > 0.002).all()
        assert abs(part[-1] - part[0]) > 0.3
    warmth = np.array([rgb(colour)[0] - rgb(colour)[2] for colour in palette])
    assert (warmth[: SHADES - 8] < warmth[SHADES]).all()
    assert (warmth[SHADES + 8 :] > warmth[SHADES]).all()


@pytest.mark.parametrize(
    ("scale", "x", "index"),
    [
        (WEIGHTS, 0.0, 127),
        (WEIGHTS, 0.25, 127 + 64),  # 63.5, the root of 0.25 in 127 steps
        (WEIGHTS, 1.0, 254),
        (WEIGHTS, 1.5, 254),
        (WEIGHTS, np.nan, 127),
        (DIFFERENCE, -0.04, 127 - 25),  # 25.4
        (Scale.of(np.array([-4.0, 2.0])), 2.0, 127 + 64),
        (Scale.of(np.array([-4.0, 2.0])), -2.0, 127 - 64),
        (Scale.of(np.array([-4.0, 2.0])), -np.inf, 0),
        (Scale.of(np.array([0.0, 8.0])), 1.0, 127 + 16),  # 15.875
        (Scale.of(np.zeros(2)), 0.0, 127),
        (Scale.of(np.array([np.nan, -np.inf])), 1.0, 254),
    ],
)
def test_palette_indices_by_hand(scale: Scale, x: float, index: int) -> None:
    assert scale.palette_indices(x) == index


def test_colour_ranges() -> None:
    signed, above = (Scale.of(np.array(numbers)) for numbers in ([-4.0, np.inf, 2.0], [0.5, 2.0]))
    assert (signed.ticks, signed.is_signed) == ((-4.0, 0.0, 4.0), True)
    assert (above.ticks, above.is_signed) == ((0.0, 2.0), False)
    for scale in (signed, above, WEIGHTS, DIFFERENCE):
        bounds = scale.boundaries
        middles = (bounds[1:] + bounds[:-1]) / 2
        first = 0 if scale.is_signed else SHADES
        assert scale.palette_indices(middles).tolist() == list(range(first, 2 * SHADES + 1))


def test_all_pages_share_one_theme() -> None:
    """The colours of page, explorer, playground, atlas and book are in one file."""
    folder = Path(attnlab.__file__).parent / "pages"
    theme = (folder / "theme.css").read_text(encoding="utf-8")
    names = re.findall(r"--(\w+):", theme)
    assert {"paper", "ink", "muted", "line", "accent", "sans", "mono"} <= {*names}
    for sheet in ("page.css", "atlas.css"):
        assert style(sheet).startswith(theme)
        css = (folder / sheet).read_text(encoding="utf-8")
        assert not {*names} & {*re.findall(r"--(\w+): light-dark", css)}
    trace = GPT2.from_pretrained("pocket").trace("The dog")
    assert theme in attnlab.page(trace).html
    ours = {name: pair for name, *pair in re.findall(r"--(\w+): light-dark\((.*?), (.*?)\)", theme)}
    for name, colour in (("ink", "ink"), ("muted", "faint"), ("hot", "positive")):
        assert ours[name] == [getattr(one, colour) for one in (LIGHT, DARK)]
