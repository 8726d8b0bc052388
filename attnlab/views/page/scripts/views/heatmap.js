// One step of one head: queries down, keys across.

import { brief, fixed, format } from "../numbers/formats.js";
import { say, sayStored } from "../sources/description.js";
import { AFTER_MASK, hiddenIn, matrixOf } from "../sources/rows.js";
import { alignment, describedCell, isLook, nearest, selection, traces, views } from "../state/state.js";
import { bitmapOf, boundOf, inks, legendPosition, palette, paletteIndices, scaleOf } from "../drawing/colours.js";
import { byId, clipText, colourOf, formulaOf, hatchPattern, isPress, isPrinted, make, maxHeight, number, onceAFrame,
  positionsInWords, prepareCanvas, symbolOf, textScale } from "../drawing/draw.js";
import { openCell } from "./arithmetic.js";
import { cellAfterKey, cellUnder, labelOf, moveFrame, nameOf, showIfHeadExists } from "./grid.js";
import { enterCell, isAt } from "./levels.js";
import { isLoaded } from "./lines.js";
import { grids, point, select } from "../page/page.js";

const LARGEST_CELL = 40;
const LARGEST_CELL_IN_LOOK = 96; // in Look, where one map fills the page, if the window has room
const NUMBERED_CELL = 44; // cells from this size on show their numbers
const LONGEST_LABEL = 96; // labels of rows and columns, in pixels at the default text size
const SLANT = 0.9; // of the columns' labels, in radians
const OVERHANG = 52; // how far the last column label extends beyond the map
const LABEL_SIZE = 12; // font size of labels
const SMALLEST_FRAME = 5; // of a cell, in pixels
const SMALLEST_LABEL_SIZE = 5; // on paper, where all labels are shown

export function makeHeatmap(view) {
  const readout = make("p", { class: "readout", "aria-live": "polite" });
  const top = make("canvas", { class: "labels top", "aria-hidden": "true" });
  const left = make("canvas", { class: "labels", "aria-hidden": "true" });
  const plot = make("canvas", { class: "plot", "aria-hidden": "true" });
  const cursor = make("div", { role: "gridcell", class: "cursor", tabindex: "0" });
  const row = make("div", { role: "row" }, cursor);
  const mark = make("div", { class: "opened", hidden: "" }); // the cell whose arithmetic is shown
  const hover = make("div", { class: "hover", hidden: "" }); // the cell under the pointer
  const extent = make("div", { class: "extent", role: "presentation" }, plot, mark, hover, row);
  const scroller = make(
    "div",
    {
      role: "grid",
      class: "scroller",
      "aria-rowcount": view.T,
      "aria-colcount": view.Tk,
      tabindex: "-1",
    },
    extent,
  );
  const ramp = make("canvas", { class: "ramp", "aria-hidden": "true" });
  const ticks = make("div", { class: "ticks" });
  const legend = make("figcaption", { class: "legend" }, ramp, ticks);
  const noHeadNote = make("p", { class: "note", hidden: "" });
  const zeroNote = make("p", { class: "note why" });
  const frame = make(
    "div",
    { class: "frame" },
    make("span", { class: "axes", "aria-hidden": "true" }, `${say("query")} ↓\n${say("key")} →`),
    top,
    left,
    scroller,
  );
  const figure = make(
    "figure",
    { class: "heatmap" },
    ...nameOf(view),
    noHeadNote,
    readout,
    frame,
    legend,
    zeroNote,
  );
  byId("heatmaps").append(figure);

  let matrix, bitmap, scale, labelWidth, labelHeight;
  let side; // of a cell, in pixels

  /** Compute the selected step if the map is visible; return the largest |value| that is shown. */
  function compute() {
    const exists = showIfHeadExists(view, [readout, frame, legend], noHeadNote);
    matrix = exists && figure.checkVisibility() ? matrixOf(view, selection) : null;
    explainZero();
    return matrix ? boundOf(view, selection, matrix) : 0;
  }

  /** Explain why a difference is 0 in the first queries or everywhere; not for a view whose name says what differs. */
  function explainZero() {
    zeroNote.textContent = "";
    if (!matrix || !view.isDifference || view.distinction || traces[0].model !== traces[1].model) return;
    const first = matrix.findIndex((x) => x !== 0 && !Number.isNaN(x));
    const zeroRows = first < 0 ? view.T : Math.floor(first / view.Tk); // the rows before the first difference
    const isSame = ([a, b]) => traces[0].tokens[a]?.symbol === traces[1].tokens[b]?.symbol;
    if (zeroRows === view.T) zeroNote.textContent = say("0 everywhere: the input of this head is the same in A and B.");
    else if (zeroRows && view.queries.slice(0, zeroRows).every(isSame) && !alignment.queries.every(isSame))
      zeroNote.textContent = say(
        "0 up to query {i}: both texts are the same up to there, and later tokens are masked.",
        { i: positionsInWords(view.queries[zeroRows - 1]) },
      );
  }

  function colour(bound) {
    if (!matrix) return;
    const { step } = selection;
    scale = scaleOf(view, step, bound);
    bitmap = bitmapOf(matrix, view.Tk, view.T, scale, hiddenIn(view, selection));
    scroller.setAttribute(
      "aria-label",
      say("{step}{of}, layer {layer}, head {head}: a row for each query, a column for each key", {
        ...selection,
        step: formulaOf(step),
        of: labelOf(view),
      }),
    );
    const context = prepareCanvas(ramp, 256, 10);
    const colours = scale.is_signed ? palette : palette.slice((palette.length - 1) / 2);
    colours.forEach((colour, n) => {
      context.fillStyle = colour;
      context.fillRect(Math.floor((n * 256) / colours.length), 0, 2, 10); // whole pixels, which don't blend
    });
    ticks.replaceChildren(
      ...scale.ticks.map((x) => {
        const tick = make("span", {}, String(Number(x.toPrecision(4))));
        tick.style.left = `${100 * legendPosition(x, scale)}%`;
        return tick;
      }),
    );
    legend.querySelectorAll("p").forEach((note) => note.remove());
    const notes = [sayStored(scale.note), AFTER_MASK.has(step) ? say("hatched: masked") : ""]
      .filter(Boolean)
      .join(" · ");
    legend.append(make("p", {}, notes));
    layOut();
  }

  /** The largest cell size; for a map that fills the page, the size at which all rows fit in the window. */
  function largestCell() {
    if (!isAt("head", "matrix") || isPrinted()) return LARGEST_CELL;
    const below = legend.offsetHeight + 28; // with the margins
    const fitting = (innerHeight - frame.getBoundingClientRect().top - scrollY - labelHeight - below) / view.T;
    return Math.max(LARGEST_CELL, Math.min(LARGEST_CELL_IN_LOOK, fitting));
  }

  function layOut() {
    if (!matrix) return;
    const fontScale = textScale();
    const context = left.getContext("2d");
    context.font = getComputedStyle(left).font;
    const widest = (texts) =>
      Math.min(
        LONGEST_LABEL * fontScale,
        Math.ceil(Math.max(...texts.map((text) => context.measureText(brief(text)).width))),
      );
    labelWidth = Math.max(56 * fontScale, widest(view.queryLabels) + 10); // room for the axes' names at least
    labelHeight = Math.max(32 * fontScale, widest(view.keyLabels) * (isPrinted() ? 1 : Math.sin(SLANT)) + 18);
    const available = Math.max(120, figure.clientWidth - labelWidth - OVERHANG * fontScale);
    const fit = Math.max(1, Math.min(largestCell(), available / view.Tk));
    side = fit * (isPrinted() ? 1 : selection.zoom);
    if (side > 2) side = Math.floor(side);
    extent.style.width = `${view.Tk * side}px`;
    extent.style.height = `${view.T * side}px`;
    scroller.style.width = `${Math.min(available, view.Tk * side)}px`;
    scroller.style.height = `${Math.min(maxHeight(), view.T * side)}px`;
    // The frame's grid: canvases of labels get their sizes only when they are drawn.
    figure.style.setProperty("--height", scroller.style.height);
    figure.style.setProperty("--label", `${labelWidth}px`);
    figure.style.setProperty("--label-height", `${labelHeight}px`);
    markCells();
    draw();
  }

  /**
   * Draw the labels of rows or columns that are visible and far enough apart to be read.
   *
   * size: of the font. offset, length: the visible part of the axis. chosen: the index of the label that is
   * always drawn. moveTo(context, middle): moves the origin to the label of the cell with this middle.
   */
  function drawLabels(canvas, [width, height], texts, { size, minDistance, offset, length, chosen, moveTo }) {
    const context = prepareCanvas(canvas, width, height);
    const longest = LONGEST_LABEL * textScale();
    context.font = `${size}px ${getComputedStyle(canvas).fontFamily}`;
    context.textBaseline = "middle";
    const muted = colourOf(canvas);
    const strong = colourOf(figure);
    const step = Math.ceil(minDistance / side);
    const first = Math.floor(offset / side);
    for (let n = first; n < Math.min(texts.length, (offset + length) / side); n++) {
      if (n !== chosen && (n % step || Math.abs(n - chosen) * side < minDistance)) continue;
      const middle = (n + 0.5) * side - offset;
      if (middle < 0 || middle > length) continue;
      context.save();
      context.fillStyle = n === chosen ? strong : muted;
      moveTo(context, middle);
      context.fillText(clipText(context, texts[n], longest), 0, 0);
      context.restore();
    }
  }

  /** Write the numbers of m rows from i and n columns from j, all with the same decimals. */
  function drawNumbers(context, i, j, m, n) {
    const digits = Math.max(1, 2 - Math.floor(Math.log10(Math.max(1, scale.bound))));
    const isHidden = hiddenIn(view, selection);
    context.font = `${Math.min(LABEL_SIZE * 1.5, side / 3.8)}px ${getComputedStyle(left).fontFamily}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let row = i; row < i + m; row++)
      for (let column = j; column < j + n; column++) {
        const index = row * view.Tk + column;
        if (isHidden(index) || !Number.isFinite(matrix[index])) continue;
        context.fillStyle = inks[paletteIndices([matrix[index]], scale)[0]];
        context.fillText(fixed(matrix[index], digits), (column + 0.5) * side, (row + 0.5) * side);
      }
  }

  const draw = onceAFrame(() => {
    if (!matrix) return;
    const { clientWidth: width, clientHeight: height, scrollLeft: x, scrollTop: y } = scroller;
    const context = prepareCanvas(plot, width, height);
    context.translate(-x, -y);
    if (AFTER_MASK.has(selection.step)) {
      context.fillStyle = hatchPattern(context, colourOf(plot));
      context.fillRect(x, y, width, height);
    }
    const [j, i] = [Math.floor(x / side), Math.floor(y / side)];
    const n = Math.min(view.Tk, Math.ceil((x + width) / side)) - j;
    const m = Math.min(view.T, Math.ceil((y + height) / side)) - i;
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap, j, i, n, m, j * side, i * side, n * side, m * side);
    if (side >= 10) {
      context.fillStyle = getComputedStyle(figure).getPropertyValue("background-color");
      for (let column = j; column <= j + n; column++) context.fillRect(column * side - 0.5, y, 1, height);
      for (let row = i; row <= i + m; row++) context.fillRect(x, row * side - 0.5, width, 1);
    }
    if (side >= NUMBERED_CELL) drawNumbers(context, i, j, m, n);
    const { query, key } = nearestCell(describedCell());
    const fontScale = textScale();
    // Printed labels are smaller and vertical, so that none is left out.
    const size = isPrinted()
      ? Math.min(LABEL_SIZE, Math.max(SMALLEST_LABEL_SIZE, Math.floor(side) - 1))
      : LABEL_SIZE * fontScale;
    const isUpright = isPrinted() && side < 19;
    const rowDistance = isPrinted() ? size + 1 : 14 * fontScale;
    drawLabels(left, [labelWidth, height], view.queryLabels, {
      size,
      minDistance: rowDistance,
      offset: y,
      length: height,
      chosen: query,
      moveTo(context, middle) {
        context.textAlign = "right";
        context.translate(labelWidth - 6, Math.max(size / 2 + 1, middle)); // the first is not cut in half
      },
    });
    drawLabels(top, [width + OVERHANG * fontScale, labelHeight], view.keyLabels, {
      size,
      minDistance: isUpright ? rowDistance : 19 * fontScale,
      offset: x,
      length: width,
      chosen: key,
      moveTo(context, middle) {
        context.translate(middle + (isUpright ? 0 : 2), labelHeight - 8);
        context.rotate(isUpright ? -Math.PI / 2 : -SLANT);
      },
    });
  });

  /** This view's row and column of a query and a key. */
  const nearestCell = ({ query, key }) => ({
    query: nearest(view.rows, query),
    key: nearest(view.columns, key),
  });
  const chosen = () => nearestCell(selection);

  /** A cell's query, key and number, for its label and the readout. */
  function cellDetails(i, j) {
    const value = matrix[i * view.Tk + j];
    return {
      queryName: say("query {i}", { i: positionsInWords(view.queries[i]) }),
      keyName: say("key {j}", { j: positionsInWords(view.keys[j]) }),
      shown: Number.isNaN(value) ? 0 : value, // the difference of two -inf
      masked: hiddenIn(view, selection)(i * view.Tk + j),
    };
  }

  /** Mark the selected cell, and describe it or the one under the pointer. */
  function markCells() {
    if (!matrix || !isLoaded(view, selection)) return; // the open head's numbers are still loading
    const { query, key } = chosen();
    moveFrame(cursor, query, key, side, SMALLEST_FRAME);
    const isOpen = openCell?.layer === selection.layer && openCell.head === selection.head;
    const openRow = isOpen ? view.rows.indexOf(openCell.query) : -1;
    const openColumn = isOpen ? view.columns.indexOf(openCell.key) : -1;
    mark.hidden = openRow < 0 || openColumn < 0;
    if (!mark.hidden) moveFrame(mark, openRow, openColumn, side, SMALLEST_FRAME);
    row.setAttribute("aria-rowindex", query + 1);
    cursor.setAttribute("aria-colindex", key + 1);
    const { queryName, keyName, shown, masked } = cellDetails(query, key);
    cursor.setAttribute(
      "aria-label",
      `${queryName} ${brief(view.queryLabels[query])}, ${keyName} ${brief(view.keyLabels[key])}, ` +
        `${selection.step} ${format(shown)}${masked ? `, ${say("masked")}` : ""}`,
    );
    const { query: i, key: j } = nearestCell(describedCell());
    hover.hidden = i === query && j === key;
    moveFrame(hover, i, j, side, SMALLEST_FRAME);
    updateReadout(i, j);
    draw();
  }

  function updateReadout(i, j) {
    const { queryName, keyName, shown, masked } = cellDetails(i, j);
    const isInView = view.rows[i] === describedCell().query && view.columns[j] === describedCell().key;
    readout.replaceChildren(
      make(
        "span",
        { class: "pair" },
        ...(isInView ? [] : [make("small", {}, say("no such pair here; nearest: "))]),
        make("span", {}, queryName, " ", symbolOf(brief(view.queryLabels[i]))),
        " → ",
        make("span", {}, keyName, " ", symbolOf(brief(view.keyLabels[j]))),
      ),
      make("strong", {}, number(shown, 4), masked ? ` ${say("masked")}` : ""),
    );
  }

  function scrollToCell() {
    const { query: i, key: j } = chosen();
    if (j * side < scroller.scrollLeft) scroller.scrollLeft = j * side;
    if ((j + 1) * side > scroller.scrollLeft + scroller.clientWidth)
      scroller.scrollLeft = (j + 1) * side - scroller.clientWidth;
    if (i * side < scroller.scrollTop) scroller.scrollTop = i * side;
    if ((i + 1) * side > scroller.scrollTop + scroller.clientHeight)
      scroller.scrollTop = (i + 1) * side - scroller.clientHeight;
  }

  /** The cell under the pointer, {query, key}; null if there is none. */
  function pointedCell(event) {
    const [i, j] = cellUnder(event, scroller, side);
    const [query, key] = [view.rows[i], view.columns[j]];
    return query === undefined || key === undefined ? null : { query, key };
  }

  scroller.addEventListener("pointermove", (event) => point(pointedCell(event)));
  scroller.addEventListener("pointerleave", () => point(null));
  scroller.addEventListener("click", (event) => {
    const cell = pointedCell(event);
    if (!cell) return;
    select(cell.query, cell.key);
    enterCell(cursor);
  });
  scroller.addEventListener("scroll", draw);
  const choose = (i, j) => select(view.rows[i], view.columns[j]);
  cursor.addEventListener("keydown", (event) => {
    const { query, key } = chosen();
    if (isPress(event)) {
      event.preventDefault();
      choose(query, key); // the cursor's cell, if this text lacks the selected one
      enterCell(cursor);
    } else if (event.key === "Escape") {
      if (!isLook()) grids[views.indexOf(view)].focus();
    } else {
      const to = cellAfterKey(event, query, key, view.T, view.Tk);
      if (!to) return;
      choose(...to);
      scrollToCell();
    }
  });
  new ResizeObserver(onceAFrame(layOut)).observe(figure);
  return { view, cursor, compute, colour, layOut, mark: markCells, scrollToCell };
}
