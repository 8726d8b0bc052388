"""Helpers of the page's tests: read an open page as a reader sees it."""

import re
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab import GPT2, GPT2Config, Trace
from attnlab.forward.parameters import ParameterVector
from attnlab.training.parameters import initial_parameters

TEXT, OTHER = "the hen in a thin inn", "the hen in a thin hen"
BALL = "The dog chased the ball, but it"
MATRICES = ("raw_scores", "scores", "masked_scores", "weights")

# Tolerance of a colour's place in a legend: neighbouring shades may be the same colour.
SHADES = 3 / 255

# JavaScript: the pixels of `canvas`, read from a copy.
PIXELS = """
const copy = document.createElement('canvas');
[copy.width, copy.height] = [canvas.width, canvas.height];
const context = copy.getContext('2d', { willReadFrequently: true });
context.drawImage(canvas, 0, 0);
const { data } = context.getImageData(0, 0, copy.width, copy.height);
const pixels = [...new Uint32Array(data.buffer)];
"""

# JavaScript: the colour in the middle of each cell of a heatmap, row by row; null if not visible.
CELLS = f"""(figure) => {{
    const canvas = figure.querySelector('.plot');
    {PIXELS}
    const scroller = figure.querySelector('.scroller');
    const [rows, columns] = [scroller.ariaRowCount, scroller.ariaColCount].map(Number);
    const cell = scroller.scrollWidth / columns;
    const middle = (n, scrolled) => Math.floor((n + 0.5) * cell - scrolled);
    return Array.from({{ length: rows }}, (_, i) => Array.from({{ length: columns }}, (_, j) => {{
        const [x, y] = [middle(j, scroller.scrollLeft), middle(i, scroller.scrollTop)];
        const seen = x >= 0 && y >= 0 && x < canvas.width && y < canvas.height;
        return seen ? pixels[y * canvas.width + x] : null;
    }}));
}}"""

Open = Callable[..., Any]

# Changes as the page sends them.
UNCAUSAL, UNSCALED = {"kind": "uncausal"}, {"kind": "unscaled"}


def ablation(layer: int, head: Any = None) -> dict[str, Any]:
    """Of a head, or of an MLP."""
    return {"kind": "ablate", "layer": layer} | ({} if head is None else {"head": head})


def silencing(model: GPT2 | Trace, layer: int, head: int) -> dict[str, Any]:
    """The edit that silences a head: its average if the model has averages, else 0."""
    path, averages = f"blocks.{layer}.attention.heads.{head}.context", model.parameters.averages
    return {path: averages[path] if averages else 0}


def scaling(layer: int, head: int, step: str, factor: Any) -> dict[str, Any]:
    return {"kind": "scale", "layer": layer, "head": head, "step": step, "factor": factor}


def toggling(layer: int, head: int, *cells: list[int]) -> dict[str, Any]:
    return {"kind": "mask", "layer": layer, "head": head, "cells": [*cells]}


def in_base64(content: bytes) -> str:
    return b64encode(content).decode()


def until(page: Any, expression: str) -> None:
    """Wait. Playwright's wait_for_function evaluates text, which the page's policy forbids."""
    end = time.monotonic() + 60  # a busy machine may be slow
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        time.sleep(0.02)


# Whether the open head's numbers are loaded. Maps that aren't visible aren't drawn.
LOADED = "views?.length > 0 && pendingTraces(views.at(-1), selection.layer).length === 0"


# JavaScript: load the layers of a page in a file, so that the next click shows its result at once.
LOAD_ALL = """(async () => {
    for (const trace of traces.filter(({ T }) => T <= 64))
        for (let layer = 0; layer < trace.layers; layer++)
            if (source.has(trace, `attention.${layer}`)) await loadLayer(trace, layer);
})()"""


def drawn(page: Any) -> None:
    """Wait until requested frames are painted."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def idle(page: Any) -> None:
    """Wait until all requests are answered and drawn."""
    until(page, "document.querySelector('#explore').ariaBusy !== 'true'")
    until(page, "document.querySelector('main').ariaBusy !== 'true'")
    until(page, LOADED)
    until(page, "traces.at(-1).story !== undefined")
    drawn(page)


# JavaScript: whether the last trace's heads are drawn, and the next words and effects are known.
SETTLED = """(() => {
    const { layers, H, story } = traces.at(-1);
    const small = document.querySelectorAll("#every-head svg[viewBox]").length;
    const next = document.querySelector(".sentence-stage:last-child .next-words li");
    const isKnown = story !== undefined && small === layers * H;
    const isHidden = document.querySelector("#stages").clientWidth === 0;
    return isKnown && (next !== null || selection.isPredicting || isHidden || story === null);
})()"""


def settled(page: Any) -> Any:
    """Wait until the first screen has all its numbers; return the page."""
    until(page, SETTLED)
    drawn(page)
    return page


def ask(page: Any, text: str) -> None:
    """Trace a text in an explorer or a playground."""
    page.locator("#prompt").fill(text)
    page.locator("#prompt").press("Enter")
    idle(page)


def gpt2_shaped(
    odd: GPT2, T: int, n_layer: int = 12, seed: int | None = None, n_embd: int = 768
) -> Trace:
    """A trace of T tokens in a model with GPT-2's heads; without a seed all parameters are 0."""
    config = GPT2Config(vocab_size=263, n_positions=T, n_embd=n_embd, n_layer=n_layer, n_head=12)
    parameters = ParameterVector(config)
    if seed is not None:
        parameters = initial_parameters(config, np.random.default_rng(seed))
    ids = np.random.default_rng(0).integers(0, 262, T)
    return GPT2(parameters, odd.tokenizer).trace(ids)  # type: ignore[arg-type]


def numbers(element: Any) -> list[float]:
    """All numbers in an element, at full precision."""
    return element.locator("data").evaluate_all("(all) => all.map((one) => Number(one.value))")


def agrees(elements: Any, expected: Any, scale: float = 1.0) -> bool:
    """Whether a number on the page, or several, are as expected, to the displayed digits."""
    shown = "(x) => [x.innerText, Number(x.value)]"
    if np.ndim(expected) == 0:
        return _agrees(*elements.evaluate(shown), expected, scale)
    rows = zip(elements.evaluate_all(f"(all) => all.map({shown})"), expected, strict=True)
    return all(_agrees(*row, number, scale) for row, number in rows)


def _agrees(shown: str, stored: float, expected: float, scale: float) -> bool:
    if not np.isfinite(expected):
        return shown == "-inf" and stored == expected
    last_digit = 10.0 ** (int(shown.partition("e")[2] or 0) - len(re.split(r"\.|e", shown)[1]))
    slack = 1e-6 * max(1.0, scale)  # float32 there, float64 here
    return (
        abs(float(shown) - expected) <= last_digit / 2 + slack and abs(stored - expected) <= slack
    )


def to_cell(page: Any, i: int, j: int, nth: int = 0) -> None:
    """Move the cursor of a heatmap to a cell by keys, all sent at once."""
    page.locator(".cursor").nth(nth).evaluate(
        """(cursor, keys) => {
            cursor.focus();
            const send = (key) => document.activeElement.dispatchEvent(
                new KeyboardEvent("keydown", { key, ctrlKey: key === "Home", bubbles: true }));
            keys.forEach(send);
        }""",
        ["Home", *["ArrowDown"] * i, *["ArrowRight"] * j],
    )


def legend(page: Any, nth: int = 0) -> dict[int, float]:
    """The colours of a heatmap's legend, each with its place from 0, left, to 1, right."""
    shades = f"(canvas) => {{ {PIXELS} return pixels.slice(0, canvas.width); }}"
    colours = page.locator(".ramp").nth(nth).evaluate(shades)
    return {colour: n / (len(colours) - 1) for n, colour in enumerate(colours)}


def places(colours: list[Any], legend: dict[int, float]) -> NDArray[np.float64]:
    """The places of colours in a legend; NaN for colours that aren't in it."""
    return np.vectorize(lambda colour: legend.get(colour, np.nan), otypes=[float])(colours)


def shown_in(page: Any, nth: int = 0) -> NDArray[np.float64]:
    """The place of each heatmap cell in the legend; NaN if it is masked or not visible."""
    drawn(page)
    return places(page.locator(".heatmap").nth(nth).evaluate(CELLS), legend(page, nth))


def ticks(page: Any, nth: int = 0) -> tuple[list[float], list[float]]:
    """The ticks of a legend: their places from 0 to 1, and their values."""
    marks = page.locator(".ticks").nth(nth).locator("span").all()
    at = [float(mark.evaluate("(x) => x.style.left").removesuffix("%")) / 100 for mark in marks]
    return at, [float(mark.inner_text()) for mark in marks]


def percent(share: float) -> str:
    """A share as the page shows it: 0 % only if it is 0, 100 % only if it is 1."""
    if 0 < share < 0.005:
        return "<\xa01\xa0%"
    digits = 1 if 0.995 <= share < 0.9995 else 0
    return ">\xa099.9\xa0%" if 0.9995 <= np.float32(share) < 1 else f"{100 * share:.{digits}f}\xa0%"


def strong_arcs(page: Any) -> dict[int, float]:
    """The widths of the arcs from the last sentence's word that looks, by the word looked at."""
    arcs = page.locator(".sentence-stage").last.locator(".arc:not(.faint)")
    widths = "(all) => all.map((arc) => [arc.key, Number(arc.getAttribute('stroke-width'))])"
    return dict(arcs.evaluate_all(widths))


def shares(page: Any, part: str = ".sentence-stage") -> list[str]:
    """What is written below the words."""
    written: list[str] = page.locator(f"{part} .stage-word small").all_text_contents()
    return written
