// The map of one step of one head: a row for each query, a column for each key.

import { brief, format } from "../numbers/formats.js";
import { say } from "../sources/description.js";
import { AFTER_MASK, hiddenIn, matrixOf } from "../sources/rows.js";
import { point, select } from "../state/actions.js";
import { describedCell, isSameHead, on, selection } from "../state/store.js";
import { alignment, indexAtOrBefore, isLoaded, onHead, traces, views } from "../state/traces.js";
import { bitmapOf, boundOf, legendPosition, palette, scaleOf } from "../drawing/palette.js";
import {
  cellAfterKey, cellUnder, clipText, colourOf, drawingsIn, formulaOf, hatchPattern,
  moveFrame, number, onceAFrame, positionsInWords, prepareCanvas, symbolOf, textScale,
} from "../drawing/draw.js";
import { byId, isPress, make } from "../drawing/elements.js";
import { focusHead, openArithmetic } from "../drawing/navigation.js";
import { labelOf, nameOf, showIfHeadExists } from "../drawing/names.js";

const MAX_CELL = 40; // the largest size of a cell, in pixels
const MIN_CELL = 4; // a map whose cells would be smaller is scrolled
const MAX_LABEL = 96; // labels of rows and columns, in pixels at the default text size
const SLANT = 0.9; // the angle of the columns' labels, in radians
const OVERHANG = 52; // how far the last column label extends beyond the map
const LABEL_SIZE = 12; // font size of labels
const MIN_FRAME = 5; // pixels; a frame around a smaller cell is larger than the cell

class Heatmap {
  #matrix; // the numbers of the open head's selected step; null if this trace has no such head
  #bitmap;
  #scale;
  #labelWidth;
  #labelHeight;
  #side; // the size of a cell in pixels
  #width; // the figure's width when it was last laid out

  constructor(view) {
    this.show(view); // takes the view; it is drawn once its numbers are computed
    this.readout = make("p", { class: "readout", "aria-live": "polite" });
    this.top = make("canvas", { class: "labels top", "aria-hidden": "true" });
    this.left = make("canvas", { class: "labels", "aria-hidden": "true" });
    this.plot = make("canvas", { class: "plot", "aria-hidden": "true" });
    this.cursor = make("div", { role: "gridcell", class: "cursor", tabindex: "0" });
    this.row = make("div", { role: "row" }, this.cursor);
    this.opened = make("div", { class: "opened", hidden: "" }); // the cell whose arithmetic is shown
    this.hover = make("div", { class: "hover", hidden: "" }); // the cell under the pointer
    this.extent = make("div", { class: "extent", role: "presentation" }, this.plot, this.opened, this.hover, this.row);
    const size = { "aria-rowcount": view.T, "aria-colcount": view.Tk };
    this.scroller = make("div", { role: "grid", class: "scroller", ...size, tabindex: "-1" }, this.extent);
    this.ramp = make("canvas", { class: "ramp", "aria-hidden": "true" });
    this.ticks = make("div", { class: "ticks" });
    this.legend = make("figcaption", { class: "legend" }, this.ramp, this.ticks);
    this.noHeadNote = make("p", { class: "note", hidden: "" });
    this.zeroNote = make("p", { class: "note why" });
    const axes = make("span", { class: "axes", "aria-hidden": "true" }, `${say("query")} ↓\n${say("key")} →`);
    this.frame = make("div", { class: "frame" }, axes, this.top, this.left, this.scroller);
    const parts = [this.noHeadNote, this.readout, this.frame, this.zeroNote, this.legend];
    this.figure = make("figure", { class: "heatmap" }, ...nameOf(view), ...parts);
    byId("heatmaps").append(this.figure);
    this.draw = onceAFrame(() => this.#matrix && this.#draw());
    this.#listen();
  }

  show(view) {
    this.view = view;
    this.#matrix = null;
  }

  // ---- numbers and colours ---------------------------------------------------------------------

  /** Compute the selected step if the map is visible; return the largest |value| that is shown. */
  compute() {
    const exists = showIfHeadExists(this.view, [this.readout, this.frame, this.legend], this.noHeadNote);
    this.#matrix = exists && this.figure.checkVisibility() ? matrixOf(this.view, selection) : null;
    this.zeroNote.textContent = this.#matrix ? this.#whyZero() : "";
    return this.#matrix ? boundOf(this.view, selection, this.#matrix) : 0;
  }

  /** Why a difference of one model's texts is 0 in the first queries or everywhere; "" if it isn't. */
  #whyZero() {
    const { isDifference, T, Tk, queries } = this.view;
    if (!isDifference || traces[0].model !== traces[1].model) return "";
    const first = this.#matrix.findIndex((x) => x !== 0 && !Number.isNaN(x));
    const zeroRows = first < 0 ? T : Math.floor(first / Tk); // the rows before the first difference
    if (zeroRows === T) return say("0 everywhere: the input of this head is the same in A and B.");
    const isSameToken = ([a, b]) => traces[0].tokens[a]?.symbol === traces[1].tokens[b]?.symbol;
    if (!zeroRows || !queries.slice(0, zeroRows).every(isSameToken) || alignment.queries.every(isSameToken)) return "";
    const i = positionsInWords(queries[zeroRows - 1]);
    return say("0 up to query {i}: both texts are the same up to there, and later tokens are masked.", { i });
  }

  /** Colour the computed numbers by a scale up to `bound`, and draw them. */
  colour(bound) {
    if (!this.#matrix) return;
    const { view } = this;
    const { step } = selection;
    this.#scale = scaleOf(view, step, bound);
    this.#bitmap = bitmapOf(this.#matrix, view.Tk, view.T, this.#scale, hiddenIn(view, selection));
    const words = { ...selection, step: formulaOf(step), of: labelOf(view) };
    this.scroller.ariaLabel = say(
      "{step}{of}, layer {layer}, head {head}: a row for each query, a column for each key", words,
    );
    this.#drawLegend();
    this.layOut();
  }

  #drawLegend() {
    const scale = this.#scale;
    const context = prepareCanvas(this.ramp, 256, 10);
    const colours = scale.is_signed ? palette : palette.slice((palette.length - 1) / 2); // unsigned: from zero up
    colours.forEach((colour, n) => {
      context.fillStyle = colour;
      context.fillRect(Math.floor((n * 256) / colours.length), 0, 2, 10); // whole pixels, which don't blend
    });
    const tickOf = (x) => {
      const tick = make("span", {}, String(Number(x.toPrecision(4))));
      tick.style.left = `${100 * legendPosition(x, scale)}%`;
      return tick;
    };
    this.ticks.replaceChildren(...scale.ticks.map(tickOf));
    const notes = [say(scale.note), AFTER_MASK.has(selection.step) ? say("hatched: masked") : ""];
    this.legend.replaceChildren(this.ramp, this.ticks, make("p", {}, notes.filter(Boolean).join(" · ")));
  }

  // ---- layout ----------------------------------------------------------------------------------

  layOut() {
    if (!this.#matrix) return;
    const { T, Tk, queryLabels, keyLabels } = this.view;
    const { figure, extent, scroller } = this;
    const fontScale = textScale();
    const context = this.left.getContext("2d");
    context.font = getComputedStyle(this.left).font;
    const widthOf = (text) => context.measureText(brief(text)).width;
    const widest = (texts) => Math.min(MAX_LABEL * fontScale, Math.ceil(Math.max(...texts.map(widthOf))));
    // At least the size of the axes' names; 10 and 18 pixels lie between the labels and the map.
    this.#labelWidth = Math.max(56 * fontScale, widest(queryLabels) + 10);
    this.#labelHeight = Math.max(32 * fontScale, widest(keyLabels) * Math.sin(SLANT) + 18);
    this.#width = figure.clientWidth;
    const available = Math.max(120, this.#width - this.#labelWidth - OVERHANG * fontScale);
    this.#side = Math.floor(Math.max(MIN_CELL, Math.min(MAX_CELL, available / Tk)));
    const [width, height] = [Tk * this.#side, T * this.#side];
    Object.assign(extent.style, { width: `${width}px`, height: `${height}px` });
    const shownHeight = Math.min(Math.max(320, innerHeight * 0.8), height); // higher maps are scrolled
    Object.assign(scroller.style, { width: `${Math.min(available, width)}px`, height: `${shownHeight}px` });
    // The frame's grid needs these sizes now; the canvases of labels get theirs only when they are drawn.
    figure.style.setProperty("--height", scroller.style.height);
    figure.style.setProperty("--label", `${this.#labelWidth}px`);
    figure.style.setProperty("--label-height", `${this.#labelHeight}px`);
    this.mark();
    this.draw();
  }

  // ---- drawing ---------------------------------------------------------------------------------

  #draw() {
    const { clientWidth: width, clientHeight: height, scrollLeft: x, scrollTop: y } = this.scroller;
    const side = this.#side;
    const context = prepareCanvas(this.plot, width, height);
    context.translate(-x, -y);
    if (AFTER_MASK.has(selection.step)) {
      context.fillStyle = hatchPattern(context, colourOf(this.plot));
      context.fillRect(x, y, width, height);
    }
    // The visible cells: m rows from i and n columns from j.
    const [j, i] = [Math.floor(x / side), Math.floor(y / side)];
    const n = Math.min(this.view.Tk, Math.ceil((x + width) / side)) - j;
    const m = Math.min(this.view.T, Math.ceil((y + height) / side)) - i;
    context.imageSmoothingEnabled = false;
    context.drawImage(this.#bitmap, j, i, n, m, j * side, i * side, n * side, m * side);
    if (side >= 10) { // lines between cells that are large enough for them
      context.fillStyle = getComputedStyle(this.figure).getPropertyValue("background-color");
      for (let column = j; column <= j + n; column++) context.fillRect(column * side - 0.5, y, 1, height);
      for (let row = i; row <= i + m; row++) context.fillRect(x, row * side - 0.5, width, 1);
    }
    this.#drawAllLabels();
  }

  /** Draw all labels. The pixels in here were chosen by eye; slanted labels, of columns, need larger distances. */
  #drawAllLabels() {
    const { clientWidth: width, clientHeight: height, scrollLeft: x, scrollTop: y } = this.scroller;
    const { query, key } = this.#cellAtOrBefore(describedCell());
    const fontScale = textScale();
    const size = LABEL_SIZE * fontScale;
    const rows = { size, minDistance: 14 * fontScale, offset: y, length: height, chosen: query };
    this.#drawLabels(this.left, [this.#labelWidth, height], this.view.queryLabels, rows, (context, middle) => {
      context.textAlign = "right";
      context.translate(this.#labelWidth - 6, Math.max(size / 2 + 1, middle)); // so that the first label isn't cut
    });
    const columns = { size, minDistance: 19 * fontScale, offset: x, length: width, chosen: key };
    const topSize = [width + OVERHANG * fontScale, this.#labelHeight];
    this.#drawLabels(this.top, topSize, this.view.keyLabels, columns, (context, middle) => {
      context.translate(middle + 2, this.#labelHeight - 8);
      context.rotate(-SLANT);
    });
  }

  /**
   * Draw the labels of rows or columns that are visible and far enough apart to be read.
   *
   * size: of the font. offset, length: the visible part of the axis. chosen: the index of the label that is
   * always drawn. moveTo(context, middle): moves the origin to the label of the cell with this middle.
   */
  #drawLabels(canvas, [width, height], texts, { size, minDistance, offset, length, chosen }, moveTo) {
    const side = this.#side;
    const context = prepareCanvas(canvas, width, height);
    const longest = MAX_LABEL * textScale();
    context.font = `${size}px ${getComputedStyle(canvas).fontFamily}`;
    context.textBaseline = "middle";
    const muted = colourOf(canvas);
    const strong = colourOf(this.figure);
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

  // ---- the selected cell -----------------------------------------------------------------------

  /** This view's row and column of a query and a key, or the last ones before them. */
  #cellAtOrBefore({ query, key }) {
    return { query: indexAtOrBefore(this.view.rows, query), key: indexAtOrBefore(this.view.columns, key) };
  }

  /** A cell's query, key and number, for its label and the readout. */
  #cellDetails(i, j) {
    const index = i * this.view.Tk + j;
    const value = this.#matrix[index];
    return {
      queryName: say("query {i}", { i: positionsInWords(this.view.queries[i]) }),
      keyName: say("key {j}", { j: positionsInWords(this.view.keys[j]) }),
      shown: Number.isNaN(value) ? 0 : value, // NaN is the difference of two -inf
      masked: hiddenIn(this.view, selection)(index) ? say("masked") : "",
    };
  }

  /** Mark the selected cell, and describe it or the one under the pointer. */
  mark() {
    const { view, cursor, opened, hover } = this;
    if (!this.#matrix || !isLoaded(view, selection)) return; // the open head's numbers are still loading
    const { query, key } = this.#cellAtOrBefore(selection);
    const put = (element, i, j) => moveFrame(element, i, j, this.#side, MIN_FRAME);
    put(cursor, query, key);
    const { openCell } = selection;
    const isOpen = openCell && isSameHead(openCell, selection);
    const [openRow, openColumn] = isOpen
      ? [view.rows.indexOf(openCell.query), view.columns.indexOf(openCell.key)]
      : [-1, -1];
    opened.hidden = openRow < 0 || openColumn < 0;
    if (!opened.hidden) put(opened, openRow, openColumn);
    this.row.setAttribute("aria-rowindex", query + 1);
    cursor.setAttribute("aria-colindex", key + 1);
    const { queryName, keyName, shown, masked } = this.#cellDetails(query, key);
    const names = `${queryName} ${brief(view.queryLabels[query])}, ${keyName} ${brief(view.keyLabels[key])}`;
    cursor.ariaLabel = [names, `${selection.step} ${format(shown)}`, masked].filter(Boolean).join(", ");
    const { query: i, key: j } = this.#cellAtOrBefore(describedCell());
    hover.hidden = i === query && j === key;
    put(hover, i, j);
    this.#updateReadout(i, j);
    this.draw();
  }

  #updateReadout(i, j) {
    const { view } = this;
    const { queryName, keyName, shown, masked } = this.#cellDetails(i, j);
    const isInView = view.rows[i] === describedCell().query && view.columns[j] === describedCell().key;
    const nearby = isInView ? "" : make("small", {}, say("no such pair here; nearest: "));
    const query = make("span", {}, queryName, " ", symbolOf(brief(view.queryLabels[i])));
    const key = make("span", {}, keyName, " ", symbolOf(brief(view.keyLabels[j])));
    const pair = make("span", { class: "pair" }, nearby, query, " → ", key);
    this.readout.replaceChildren(pair, make("strong", {}, number(shown, 4), masked && ` ${masked}`));
  }

  scrollToCell() {
    const { query: i, key: j } = this.#cellAtOrBefore(selection);
    const { scroller } = this;
    const side = this.#side;
    /** The scroll position nearest to `now` at which cell n is visible. */
    const showing = (n, now, room) => Math.max((n + 1) * side - room, Math.min(now, n * side));
    scroller.scrollLeft = showing(j, scroller.scrollLeft, scroller.clientWidth);
    scroller.scrollTop = showing(i, scroller.scrollTop, scroller.clientHeight);
  }

  // ---- pointer and keys ------------------------------------------------------------------------

  #listen() {
    const { scroller, cursor } = this;
    scroller.addEventListener("pointermove", (event) => point(this.#pointedCell(event)));
    scroller.addEventListener("pointerleave", () => point(null));
    scroller.addEventListener("click", (event) => {
      const cell = this.#pointedCell(event);
      if (!cell) return;
      select(cell.query, cell.key);
      openArithmetic(cursor);
    });
    scroller.addEventListener("scroll", this.draw);
    cursor.addEventListener("keydown", (event) => this.#pressKey(event));
    // Only a new width counts: the layout itself changes the height.
    new ResizeObserver(onceAFrame(() => this.figure.clientWidth === this.#width || this.layOut())).observe(this.figure);
  }

  /** The cell under the pointer, {query, key}; null if there is none. */
  #pointedCell(event) {
    const [i, j] = cellUnder(event, this.scroller, this.#side);
    const [query, key] = [this.view.rows[i], this.view.columns[j]];
    return query === undefined || key === undefined ? null : { query, key };
  }

  #pressKey(event) {
    const { view, cursor } = this;
    const { query, key } = this.#cellAtOrBefore(selection);
    const choose = (i, j) => select(view.rows[i], view.columns[j]);
    if (isPress(event)) {
      event.preventDefault();
      choose(query, key); // the cursor's cell, if this text lacks the selected one
      openArithmetic(cursor);
    } else if (event.key === "Escape") {
      focusHead();
    } else {
      const to = cellAfterKey(event, query, key, view.T, view.Tk);
      if (!to) return;
      choose(...to);
      this.scrollToCell();
    }
  }
}

/** Draw the selected step in all views. */
function drawHeatmaps(heatmaps) {
  const bounds = heatmaps.map((heatmap) => heatmap.compute());
  // One scale for both traces, so that their colours are comparable.
  const shared = Math.max(...bounds.filter((_, n) => !views[n].isDifference));
  heatmaps.forEach((heatmap, n) => heatmap.colour(views[n].isDifference ? bounds[n] : shared));
}

export function startHeatmaps() {
  const all = drawingsIn("heatmaps", () => views, (view) => new Heatmap(view));
  onHead(() => drawHeatmaps(all()));
  on("query key hovered", () => all().forEach((heatmap) => heatmap.mark()));
  on("openCell", () => all().forEach((heatmap) => heatmap.layOut()));
}
