"""The colours of every view: blue for numbers below zero, orange for numbers above.

Colour-blind readers can tell blue and orange apart. Lightness shows a number's magnitude.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from attnlab.support.scale import SHADES


class Theme(NamedTuple):
    """Colours as #rrggbb."""

    paper: str  # the background
    ink: str  # text
    faint: str  # secondary text
    negative: str  # one end of the palette
    zero: str  # the middle of the palette
    positive: str  # the other end
    masked: str  # stripes over masked cells

    @cache  # noqa: B019 (there are two themes)
    def palette(self) -> tuple[str, ...]:
        """The colours from negative through zero to positive, see `scale.palette_index`."""
        below, above = (shades(self, end) for end in (self.negative, self.positive))
        return (*below[:0:-1], *above)  # both start at zero, which is left out once

    def as_data(self) -> dict[str, str]:
        """The palette for the page."""
        return {"colours": "".join(colour[1:] for colour in self.palette())}


LIGHT = Theme("#ffffff", "#1f2127", "#6a6b72", "#0b4f9c", "#f6f3ee", "#9a3a00", "#b9bec5")
DARK = Theme("#16171b", "#e9e7e2", "#9b9ba3", "#7cc4ff", "#272b33", "#ffb35c", "#565c66")

BLACK, WHITE = "#000000", "#ffffff"


def ink_on(colour: str) -> str:
    """Black or white, whichever has more contrast to a colour, by WCAG 2.2's contrast ratio."""
    coded = (level / 255 for level in levels(colour))
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in coded)
    luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b
    return BLACK if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else WHITE


def shades(theme: Theme, end: str) -> list[str]:
    """Colours from the middle of the palette to `end`, in equal steps of red, green and blue."""
    channels = [*zip(levels(theme.zero), levels(end), strict=True)]
    return [
        "#" + bytes(round(first + (last - first) * n / SHADES) for first, last in channels).hex()
        for n in range(SHADES + 1)
    ]


def levels(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of #rrggbb, 0 to 255."""
    r, g, b = bytes.fromhex(colour[1:])
    return r, g, b
