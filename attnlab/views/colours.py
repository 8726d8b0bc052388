"""The colours of every view: blue below zero, orange above, also for colour-blind readers.

Lightness shows a number's magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from attnlab.views.scale import SHADES


class Theme(NamedTuple):
    """Colours as #rrggbb.

    Attributes
    ----------
    paper, ink, faint : background, text and secondary text
    negative, zero, positive : the ends and the middle of the palette
    masked : stripes over masked cells
    """

    paper: str
    ink: str
    faint: str
    negative: str
    zero: str
    positive: str
    masked: str

    @cache  # noqa: B019 (there are two themes)
    def palette(self) -> tuple[str, ...]:
        """The colours from negative through zero to positive, see `scale.palette_index`."""
        below, above = (shades(self, end, SHADES + 1) for end in (self.negative, self.positive))
        return (*below[:0:-1], *above)

    def as_data(self) -> dict[str, str]:
        """The palette for the page; an ink is "1" for a colour that needs white text."""
        palette = self.palette()
        return {
            "colours": "".join(colour[1:] for colour in palette),
            "inks": "".join(str(int(ink_on(colour) == WHITE)) for colour in palette),
        }


LIGHT = Theme("#ffffff", "#1f2328", "#626a73", "#0b4f9c", "#f6f3ee", "#9a3a00", "#b9bec5")
DARK = Theme("#15171c", "#e7e7e4", "#9aa2ad", "#7cc4ff", "#272b33", "#ffb35c", "#565c66")


Lab = tuple[float, float, float]

BLACK, WHITE = "#000000", "#ffffff"


def ink_on(colour: str) -> str:
    """Black or white, whichever has more contrast. Source: WCAG 2.2, contrast ratio."""
    r, g, b = linear(colour)
    luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b
    return BLACK if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else WHITE


def shades(theme: Theme, end: str, count: int) -> list[str]:
    """Colours from the middle of the palette to `end`, in equal steps of OKLab."""
    first, last = oklab(theme.zero), oklab(end)
    fractions = [n / (count - 1) for n in range(count)]
    return [
        hexadecimal((a + (b - a) * fraction for a, b in zip(first, last, strict=True)))
        for fraction in fractions
    ]


def levels(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of #rrggbb, 0 to 255."""
    r, g, b = bytes.fromhex(colour[1:])
    return r, g, b


def linear(colour: str) -> Lab:
    """Red, green and blue of #rrggbb as amounts of light, from 0 to 1."""
    coded = (level / 255 for level in levels(colour))
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in coded)
    return r, g, b


def oklab(colour: str) -> Lab:
    """Lightness, green-red and blue-yellow of #rrggbb.

    Source: Björn Ottosson, "A perceptual color space for image processing" (2020).
    """
    r, g, b = linear(colour)
    l_ = math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
    m_ = math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
    s_ = math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
    return (
        0.2104542553 * l_ + 0.7936177850 * m_ - 0.0040720468 * s_,
        1.9779984951 * l_ - 2.4285922050 * m_ + 0.4505937099 * s_,
        0.0259040371 * l_ + 0.7827717662 * m_ - 0.8086757660 * s_,
    )


def hexadecimal(lab: Iterable[float]) -> str:
    """#rrggbb of an OKLab colour, clipped to sRGB."""
    lightness, a, b = lab
    l_ = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * l_ - 3.3077115913 * m + 0.2309699292 * s,
        -1.2684380046 * l_ + 2.6097574011 * m - 0.3413193965 * s,
        -0.0041960863 * l_ - 0.7034186147 * m + 1.7076147010 * s,
    )
    channels = (min(max(c, 0.0), 1.0) for c in linear)
    coded = (12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055 for c in channels)
    return "#" + "".join(f"{round(255 * c):02x}" for c in coded)
