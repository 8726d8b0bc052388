// Lines from all queries to the keys that they attend to, for one head or several in colours. In Look they are drawn as
// in the picture: what rests on the first token apart, and others as they exceed uniform attention.

import { say } from "../sources/description.js";
import { attendedBy } from "../sources/attended.js";
import { matrixOf } from "../sources/rows.js";
import { openHead, point, pointAtQuery, select } from "../state/actions.js";
import { startEntry } from "../state/link.js";
import { describedCell, isLook, isSame, on, selection } from "../state/store.js";
import { isLoaded, nearest, onHead, traceViews } from "../state/traces.js";
import { hideCard, identify, showCard } from "../drawing/card.js";
import { byId, cellAfterKey, cellUnder, clipText, colourOf, drawingsIn, isPress, make, maxHeight, onceAFrame, prepareCanvas,
  textScale } from "../drawing/draw.js";
import { openArithmetic } from "../drawing/levels.js";
import { labelOf, nameOf, strengthOf, visibleHeads, weightInWords } from "../drawing/names.js";

const FAINTEST_LINE = 0.01; // smaller weights aren't drawn
const ROW_HEIGHT = 24; // of a token
const LOW_ROW_HEIGHT = 15; // in a long text
const LINE_REACH = 5; // how far from a line a pointer may be, in pixels

class Lines {
  #rowHeight;
  #matrices = new Map(); // the weights of heads drawn before, and their excess over uniform attention
  #width; // of the figure, when it was laid out
  #highlighted = null; // the token whose lines stand out, {isKey, index}
  #ends = [0, 0]; // x of the lines' ends

  constructor(view) {
    this.show(view);
    this.isLong = view.Tk > 40;
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.spot = make("span", { class: "spot" }); // on the line that the card describes
    this.extent = make("div", { class: "extent" }, this.canvas, this.spot);
    const label = say("Lines of all tokens{of}: queries on the left, keys on the right", { of: labelOf(view) });
    this.scroller = make("div", { class: "all-lines", role: "img", tabindex: "0", "aria-label": label }, this.extent);
    const [query, key] = [make("span", {}, say("query")), make("span", {}, say("key"))];
    this.ends = make("div", { class: "ends", "aria-hidden": "true" }, query, key);
    this.figure = make("figure", {}, ...nameOf(view), this.ends, this.scroller);
    byId("lines").append(this.figure);
    this.draw = onceAFrame(() => byId("lines").hidden || this.#draw());
    this.#listen();
    // Laying them out changes the height.
    new ResizeObserver(onceAFrame(() => this.figure.clientWidth === this.#width || this.layOut())).observe(this.figure);
  }

  show(view) {
    this.view = view;
    this.#matrices.clear();
  }

  layOut() {
    this.#width = this.figure.clientWidth;
    const height = (this.isLong ? LOW_ROW_HEIGHT : ROW_HEIGHT) * textScale();
    this.#rowHeight = height;
    this.extent.style.height = `${this.view.Tk * height}px`;
    this.scroller.style.height = `${Math.min(maxHeight(), this.view.Tk * height)}px`;
    this.draw();
  }

  get #heads() {
    return visibleHeads().filter((head) => isLoaded(this.view, head));
  }

  #weightsOf({ layer, head }) {
    return this.#matrixOf(`${layer}.${head}`, () => matrixOf(this.view, { layer, head, step: "weights" }));
  }

  #excessOf({ layer, head }) {
    const [trace] = this.view.traces;
    const rows = () => Array.from({ length: trace.T }, (_, i) => [...attendedBy(trace, layer, head, i).excess]);
    return this.#matrixOf(`${layer}.${head}.excess`, () => rows().flat());
  }

  #matrixOf(name, compute) {
    if (!this.#matrices.has(name)) this.#matrices.set(name, compute());
    return this.#matrices.get(name);
  }

  /** The middle of row n. */
  #y = (n) => (n + 0.5) * this.#rowHeight;

  #isVisible(n) {
    const { scrollTop, clientHeight } = this.scroller;
    return this.#y(n) > scrollTop - this.#rowHeight && this.#y(n) < scrollTop + clientHeight + this.#rowHeight;
  }

  #draw() {
    const { scroller } = this;
    const { clientWidth: width, clientHeight: height, scrollTop } = scroller;
    const context = prepareCanvas(this.canvas, width, height);
    context.textBaseline = "middle";
    context.translate(0, -scrollTop);
    const labelWidth = Math.min(120 * textScale(), width / 4);
    const ends = (this.#ends = [labelWidth + 8, width - labelWidth - 8]);
    for (const head of this.#heads) this.#drawHead(context, head, ends);
    context.globalAlpha = 1;
    this.#drawLabels(context, labelWidth, ends);
  }

  /** A head's lines with an end in sight: {layer, head, i, j, row, weight, strength, isRest}. */
  *#linesOf(head) {
    const { Tk, T } = this.view;
    const excess = isLook() ? this.#excessOf(head) : null;
    const weights = this.#weightsOf(head);
    for (let n = 0; n < weights.length; n++) {
      if (strengthOf(weights[n]) < FAINTEST_LINE) continue;
      const [i, j] = [Math.floor(n / Tk), n % Tk];
      const row = Tk - T + i; // each query beside its own key, after the cached ones
      if (!(this.#isVisible(row) || this.#isVisible(j))) continue;
      const isRest = isLook() && j === 0 && !selection.drawsFirst; // the first token has no choice
      const strength = isRest ? FAINTEST_LINE : excess && j ? Math.max(FAINTEST_LINE, excess[n]) : strengthOf(weights[n]);
      yield { ...head, i, j, row, weight: weights[n], strength, isRest };
    }
  }

  #drawHead(context, head, [from, to]) {
    const query = nearest(this.view.rows, describedCell().query);
    const highlighted = this.#highlighted;
    const [strong, muted] = [head.colour, colourOf(this.scroller)];
    for (const { i, j, row, strength, isRest } of this.#linesOf(head)) {
      const isHighlighted = !highlighted || (highlighted.isKey ? j : i) === highlighted.index;
      context.strokeStyle = isRest ? muted : strong;
      context.globalAlpha = Math.max(0.2, Math.sqrt(strength)) * (isHighlighted ? 1 : 0.06);
      context.lineWidth = 0.75 + 3.25 * strength + (i === query ? 1.25 : 0);
      context.beginPath();
      context.moveTo(from, this.#y(row));
      context.lineTo(to, this.#y(j));
      context.stroke();
    }
  }

  /** The tokens at both ends; the query and the key that are described stand out. */
  #drawLabels(context, labelWidth, [, to]) {
    const { view } = this;
    const query = nearest(view.rows, describedCell().query);
    const key = nearest(view.columns, describedCell().key);
    const cached = view.Tk - view.T;
    const [strong, muted] = [colourOf(this.figure), colourOf(this.scroller)];
    const font = `${(this.isLong ? 11 : 13) * textScale()}px ${getComputedStyle(this.canvas).fontFamily}`;
    const label = (text, x, n, isChosen) => {
      if (!this.#isVisible(n)) return;
      context.font = `${isChosen ? "bold " : ""}${font}`;
      context.fillStyle = isChosen ? strong : muted;
      context.fillText(clipText(context, text, labelWidth), x, this.#y(n));
    };
    if (this.#isVisible(cached + query)) {
      context.fillStyle = colourOf(this.ends);
      context.fillRect(labelWidth + 2, this.#y(cached + query) - this.#rowHeight / 2 + 2, 3, this.#rowHeight - 4);
    }
    context.textAlign = "right";
    view.queryLabels.forEach((text, i) => label(text, labelWidth, cached + i, i === query));
    context.textAlign = "left";
    view.keyLabels.forEach((text, j) => label(text, to + 8, j, j === key));
  }

  // ---- pointer and keys ------------------------------------------------------------------------

  /** The token under the pointer, {isKey, index}; null if there is none. */
  #tokenUnder(event) {
    const { view, scroller } = this;
    const [n] = cellUnder(event, scroller, this.#rowHeight);
    const box = scroller.getBoundingClientRect();
    const isKey = event.clientX > box.left + box.width / 2;
    const index = isKey ? n : n - (view.Tk - view.T);
    return (isKey ? view.columns : view.rows)[index] === undefined ? null : { isKey, index };
  }

  /** The strongest line under the pointer, if any. */
  #lineUnder({ clientX, clientY }) {
    const box = this.scroller.getBoundingClientRect();
    const [x, y] = [clientX - box.left, clientY - box.top + this.scroller.scrollTop];
    const t = (x - this.#ends[0]) / (this.#ends[1] - this.#ends[0]);
    if (t < 0 || t > 1) return undefined;
    const near = this.#heads.flatMap((head) => [...this.#linesOf(head)]).filter(({ row, j }) => Math.abs((1 - t) * this.#y(row) + t * this.#y(j) - y) < LINE_REACH);
    return near.sort((a, b) => b.weight - a.weight).map((line) => ({ ...line, x, y }))[0];
  }

  /** Say in the card what a line is; by default, at its middle. */
  #describe({ layer, head, i, j, row, weight, x = (this.#ends[0] + this.#ends[1]) / 2, y = (this.#y(row) + this.#y(j)) / 2 }) {
    const [trace] = this.view.traces;
    Object.assign(this.spot.style, { left: `${x}px`, top: `${y}px` });
    identify(this.spot, weightInWords({ layer, head, weight }, trace.tokens[i], trace.keys[j]));
    showCard(this.spot);
  }

  #open({ layer, head, i, j }) {
    select(this.view.rows[i], this.view.columns[j]);
    if (!isSame({ layer, head }, selection)) return openHead(layer, head);
    if (isLook()) startEntry();
    return openArithmetic(this.scroller);
  }

  #listen() {
    const { view, scroller } = this;
    const highlight = (token) => {
      this.#highlighted = token;
      if (!token) point(null);
      else if (token.isKey) point({ query: selection.query, key: view.columns[token.index] });
      else pointAtQuery(view.rows[token.index]);
      this.draw();
    };
    let touched; // the line that the last tap named: another tap on it opens it
    const follow = onceAFrame((event) => {
      const line = event && this.#lineUnder(event);
      scroller.style.cursor = line ? "pointer" : "";
      highlight(line ? { isKey: false, index: line.i } : event && this.#tokenUnder(event));
      if (line) this.#describe(line);
      else hideCard();
    });
    scroller.addEventListener("pointermove", (event) => event.pointerType === "touch" || follow(event));
    // On touch it comes before the click, whose card `follow` would hide.
    scroller.addEventListener("pointerleave", (event) => (event.pointerType === "touch" ? highlight(null) : follow(null)));
    scroller.addEventListener("click", (event) => {
      const [line, token] = [this.#lineUnder(event), this.#tokenUnder(event)];
      const isNamed = event.pointerType !== "touch" || (touched && line && touched.i === line.i && touched.j === line.j);
      touched = line;
      if (line && !isNamed) {
        highlight({ isKey: false, index: line.i });
        this.#describe(line);
      } else if (line) this.#open(line);
      else if (token?.isKey) select(selection.query, view.columns[token.index]);
      else if (token) select(view.rows[token.index]);
    });
    scroller.addEventListener("keydown", (event) => this.#pressKey(event));
    scroller.addEventListener("scroll", this.draw);
  }

  /** Up and down are queries, left and right a query's lines; Enter opens the line. */
  #pressKey(event) {
    const { view } = this;
    const i = nearest(view.rows, selection.query);
    const head = this.#heads.find((head) => isSame(head, selection));
    if (!head) return; // its numbers are being loaded
    const weights = (row) => this.#weightsOf(head).subarray(row * view.Tk, (row + 1) * view.Tk);
    const lineTo = (row, j) => ({ ...head, i: row, j, row: view.Tk - view.T + row, weight: weights(row)[j] });
    const key = nearest(view.columns, selection.key);
    const drawn = [...weights(i).keys()].filter((j) => weights(i)[j] >= FAINTEST_LINE || j === key);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const to = step ? [i, drawn[drawn.indexOf(key) + step]] : cellAfterKey(event, i, 0, view.T, 1);
    if (event.key === "Escape") this.#highlighted = null;
    if (isPress(event)) this.#open(lineTo(i, key));
    if (isPress(event) || step) event.preventDefault();
    if (to?.[0] !== undefined && (!step || to[1] !== undefined)) {
      this.#highlighted = { isKey: false, index: to[0] };
      select(view.rows[to[0]], ...(step ? [view.columns[to[1]]] : []));
      this.#describe(lineTo(to[0], nearest(view.columns, selection.key)));
    }
    this.draw();
  }
}

export function startLines() {
  const all = drawingsIn("lines", () => traceViews, (view) => new Lines(view));
  onHead(() => all().forEach((lines) => lines.draw()));
  on("query key hovered drawsFirst", () => all().forEach((lines) => lines.draw()));
  on("textSize printed", () => all().forEach((lines) => lines.layOut()));
}
