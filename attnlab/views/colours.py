"""The colours of every view: blue below zero, orange above, which colour-blind eyes tell apart."""

from __future__ import annotations

from typing import NamedTuple


class Theme(NamedTuple):
    """One set of colours, as CSS and matplotlib write them.

    Attributes
    ----------
    paper, ink, faint : background, text, and text beside the point
    negative, zero, positive : of a number; what lies between is mixed
    masked : the stripes over what a mask took away
    """

    paper: str
    ink: str
    faint: str
    negative: str
    zero: str
    positive: str
    masked: str


LIGHT = Theme("#ffffff", "#1f2328", "#626a73", "#0b4f9c", "#f6f3ee", "#9a3a00", "#b9bec5")
DARK = Theme("#15171c", "#e7e7e4", "#9aa2ad", "#7cc4ff", "#272b33", "#ffb35c", "#565c66")
