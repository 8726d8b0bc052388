// Lines from all queries to the keys that they attend to, for one head or several in colours. In Look they are drawn as
// in the picture: what rests on the first token apart, and others as they exceed uniform attention.

import { say } from "../sources/description.js";
import { attendedBy } from "../sources/attended.js";
import { matrixOf } from "../sources/rows.js";
import { point, pointAtQuery, select } from "../state/actions.js";
import { describedCell, isLook, on, selection } from "../state/store.js";
import { isLoaded, nearest, onHead, traceViews } from "../state/traces.js";
import { byId, cellAfterKey, cellUnder, clipText, colourOf, drawingsIn, make, maxHeight, onceAFrame, prepareCanvas,
  textScale } from "../drawing/draw.js";
import { labelOf, nameOf, strengthOf, visibleHeads } from "../drawing/names.js";

const FAINTEST_LINE = 0.01; // smaller weights aren't drawn
const ROW_HEIGHT = 24; // of a token
const LOW_ROW_HEIGHT = 15; // in a long text

class Lines {
  #rowHeight;
  #matrices = new Map(); // the weights of heads drawn before, and their excess over uniform attention
  #highlighted = null; // the token whose lines stand out, {isKey, index}

  constructor(view) {
    this.view = view;
    this.isLong = view.Tk > 40;
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.extent = make("div", { class: "extent" }, this.canvas);
    const label = say("Lines of all tokens{of}: queries on the left, keys on the right", { of: labelOf(view) });
    this.scroller = make("div", { class: "all-lines", role: "img", tabindex: "0", "aria-label": label }, this.extent);
    const [query, key] = [make("span", {}, say("query")), make("span", {}, say("key"))];
    this.ends = make("div", { class: "ends", "aria-hidden": "true" }, query, key);
    this.figure = make("figure", {}, ...nameOf(view), this.ends, this.scroller);
    byId("lines").append(this.figure);
    this.draw = onceAFrame(() => byId("lines").hidden || this.#draw());
    this.#listen();
    new ResizeObserver(onceAFrame(() => this.layOut())).observe(this.figure);
  }

  layOut() {
    const height = (this.isLong ? LOW_ROW_HEIGHT : ROW_HEIGHT) * textScale();
    this.#rowHeight = height;
    this.extent.style.height = `${this.view.Tk * height}px`;
    this.scroller.style.height = `${Math.min(maxHeight(), this.view.Tk * height)}px`;
    this.draw();
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
    const { view, scroller } = this;
    const { clientWidth: width, clientHeight: height, scrollTop } = scroller;
    const context = prepareCanvas(this.canvas, width, height);
    context.textBaseline = "middle";
    context.translate(0, -scrollTop);
    const labelWidth = Math.min(120 * textScale(), width / 4);
    const ends = [labelWidth + 8, width - labelWidth - 8];
    for (const head of visibleHeads().filter((head) => isLoaded(view, head))) this.#drawHead(context, head, ends);
    context.globalAlpha = 1;
    this.#drawLabels(context, labelWidth, ends);
  }

  #drawHead(context, head, [from, to]) {
    const { Tk, T, rows } = this.view;
    const query = nearest(rows, describedCell().query);
    const highlighted = this.#highlighted;
    const [strong, muted] = [head.colour, colourOf(this.scroller)];
    const excess = isLook() ? this.#excessOf(head) : null;
    this.#weightsOf(head).forEach((weight, n) => {
      if (strengthOf(weight) < FAINTEST_LINE) return;
      const [i, j] = [Math.floor(n / Tk), n % Tk];
      const row = Tk - T + i; // each query beside its own key, after the cached ones
      if (!(this.#isVisible(row) || this.#isVisible(j))) return;
      const isHighlighted = !highlighted || (highlighted.isKey ? j : i) === highlighted.index;
      const isRest = isLook() && j === 0 && !selection.drawsFirst; // the first token has no choice
      const strength = isRest ? 0.01 : excess && j ? Math.max(0.01, excess[n]) : strengthOf(weight);
      context.strokeStyle = isRest ? muted : strong;
      context.globalAlpha = Math.max(0.2, Math.sqrt(strength)) * (isHighlighted ? 1 : 0.06);
      context.lineWidth = 0.75 + 3.25 * strength + (i === query ? 1.25 : 0);
      context.beginPath();
      context.moveTo(from, this.#y(row));
      context.lineTo(to, this.#y(j));
      context.stroke();
    });
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

  #listen() {
    const { view, scroller } = this;
    const highlight = (token) => {
      this.#highlighted = token;
      if (!token) point(null);
      else if (token.isKey) point({ query: selection.query, key: view.columns[token.index] });
      else pointAtQuery(view.rows[token.index]);
      this.draw();
    };
    scroller.addEventListener("pointermove", (event) => highlight(this.#tokenUnder(event)));
    scroller.addEventListener("pointerleave", () => highlight(null));
    scroller.addEventListener("click", (event) => {
      const token = this.#tokenUnder(event);
      if (token?.isKey) select(selection.query, view.columns[token.index]);
      else if (token) select(view.rows[token.index]);
    });
    scroller.addEventListener("keydown", (event) => {
      const to = cellAfterKey(event, nearest(view.rows, selection.query), 0, view.T, 1);
      if (event.key === "Escape") this.#highlighted = null;
      else if (to) {
        this.#highlighted = { isKey: false, index: to[0] };
        select(view.rows[to[0]]);
      }
      this.draw();
    });
    scroller.addEventListener("scroll", this.draw);
  }
}

export function startLines() {
  const all = drawingsIn("lines", () => traceViews, (view) => new Lines(view));
  onHead(() => all().forEach((lines) => lines.draw()));
  on("query key hovered drawsFirst", () => all().forEach((lines) => lines.draw()));
  on("textSize printed", () => all().forEach((lines) => lines.layOut()));
}
