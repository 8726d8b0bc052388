// The selected query's vector next to every key's, as strips of colour with a stripe for each component:
// how their products add up to scores, and scores become weights.

import { fixed, format } from "../numbers/formats.js";
import { say } from "../sources/description.js";
import { headOf, isSeen, stepRow } from "../sources/rows.js";
import { point, select } from "../state/actions.js";
import { describedCell, on, selection } from "../state/store.js";
import { isLoaded, nearest, onHead, traceViews } from "../state/traces.js";
import { bitmapOf, signedScale } from "../drawing/colours.js";
import { boxedTable, buttonOf, byId, drawingsIn, make, number, onceAFrame, rowOf, tokenElement } from "../drawing/draw.js";
import { openArithmetic } from "../drawing/levels.js";
import { labelOf, nameOf, showIfHeadExists } from "../drawing/names.js";

const STRIP_ROW = 1.375; // rem, as in page.css
const NUMBERS = ["raw_scores", "scores", "weights"];

/** The strips of a view, built when first shown: a long text has many rows. */
class Strips {
  constructor(view) {
    this.view = view;
    [this.trace] = view.traces;
    this.redraw = onceAFrame(() => this.#draw());
  }

  draw() {
    if (selection.display !== "strips") return;
    if (!this.rows) this.#build();
    this.redraw();
  }

  #build() {
    const { view, trace } = this;
    const makeStripes = (name) => make("canvas", { class: `stripes ${name}`, "aria-hidden": "true" });
    [this.queryStripes, this.keyStripes, this.productStripes] = ["q", "k", "qk"].map(makeStripes);
    this.queryCell = make("th", { scope: "row" });
    this.rows = trace.keys.map((token, j) => this.#makeRow(token, j));
    const headings = [say("key"), "K", "q × k", ...NUMBERS];
    const caption = say("Query and key vectors{of}", { of: labelOf(view) });
    const emptyCells = headings.slice(2).map(() => make("td"));
    const queryRow = make("tr", { class: "query-row" }, this.queryCell, make("td", {}, this.queryStripes), ...emptyCells);
    this.scroller = boxedTable(caption, headings, [queryRow, ...this.rows.map(({ row }) => row)]);
    this.readout = make("p", { class: "readout", "aria-live": "polite" });
    this.note = make("p", { class: "note" });
    this.missing = make("p", { class: "note", hidden: "" });
    byId("strips").append(make("figure", {}, ...nameOf(view), this.missing, this.readout, this.scroller, this.note));
    for (const canvas of [this.keyStripes, this.productStripes]) {
      canvas.style.height = `${trace.Tk * STRIP_ROW}rem`;
      this.#listen(canvas);
    }
  }

  #makeRow(token, j) {
    const { view } = this;
    const numbers = NUMBERS.map(() => make("data", {}));
    const openRow = () => {
      select(view.rows[nearest(view.rows, selection.query)], view.columns[j]);
      openArithmetic(button);
    };
    const button = buttonOf(openRow, { class: "row-button" }, tokenElement(token));
    const canvases = j ? ["", ""] : [this.keyStripes, this.productStripes]; // in the first row, as high as all rows
    return { row: rowOf(button, [...canvases, ...numbers]), numbers, button };
  }

  /** The described query's row. */
  #query = () => nearest(this.view.rows, describedCell().query);

  #draw() {
    const { view, trace, note } = this;
    if (!showIfHeadExists(view, [this.readout, this.scroller, note], this.missing) || !isLoaded(view, selection)) return;
    const head = headOf(trace, selection.layer, selection.head);
    const i = this.#query();
    const { Q, K, Dh, Tk } = head;
    const q = Q.subarray(i * Dh, (i + 1) * Dh);
    const products = K.map((k, n) => k * q[n % Dh]);
    const vectorBound = largestOf(Q, K);
    const productBound = largestOf(products);
    const paintOn = (canvas, values, height, bound) => bitmapOf(values, Dh, height, signedScale(bound), () => false, canvas);
    paintOn(this.queryStripes, q, 1, vectorBound);
    paintOn(this.keyStripes, K, Tk, vectorBound);
    paintOn(this.productStripes, products, Tk, productBound);
    const bounds = { vectors: format(vectorBound, 2), products: format(productBound, 2) };
    note.textContent = say("Blue below zero, orange above: Q and K to ±{vectors}, products to ±{products}; a row's products add up to its raw score.", bounds);
    this.queryCell.replaceChildren(`Q: ${i} `, tokenElement(trace.tokens[i]));
    const values = NUMBERS.map((step) => stepRow(head, step, i));
    const key = nearest(view.columns, describedCell().key);
    this.rows.forEach(({ row, numbers }, j) => {
      row.classList.toggle("masked", !isSeen(head, i * Tk + j));
      row.ariaCurrent = j === key ? "true" : null;
      numbers.forEach((element, n) => Object.assign(element, { value: String(values[n][j]), textContent: fixed(values[n][j], 4) }));
    });
  }

  /** [component, key] under the pointer. */
  #numberUnder({ clientX, clientY }, canvas) {
    const box = canvas.getBoundingClientRect();
    const { Dh, Tk } = this.trace;
    const d = Math.min(Dh - 1, Math.floor(((clientX - box.left) / box.width) * Dh));
    return [d, Math.min(Tk - 1, Math.floor(((clientY - box.top) / box.height) * Tk))];
  }

  #listen(canvas) {
    canvas.addEventListener("pointermove", (event) => {
      const [d, j] = this.#numberUnder(event, canvas);
      point({ query: selection.query, key: this.view.columns[j] });
      const { Q, K, Dh } = headOf(this.trace, selection.layer, selection.head);
      const i = this.#query();
      const [x, y] = [Q[i * Dh + d], K[j * Dh + d]];
      this.readout.replaceChildren(
        say("component {d} of query {i} and key {j}: ", { d, i, j }),
        make("span", {}, number(x), " × ", number(y), " = ", number(x * y)),
      );
    });
    canvas.addEventListener("pointerleave", () => {
      point(null);
      this.readout.replaceChildren();
    });
    canvas.addEventListener("click", (event) => this.rows[this.#numberUnder(event, canvas)[1]].button.click());
  }
}

/** The largest |value| in some arrays; 1 if all are 0. */
function largestOf(...arrays) {
  let largest = 0;
  for (const values of arrays) for (const x of values) largest = Math.max(largest, Math.abs(x));
  return largest || 1;
}

export function startStrips() {
  const all = drawingsIn("strips", () => traceViews, (view) => new Strips(view));
  onHead(() => all().forEach((strips) => strips.draw()));
  on("query key hovered", () => all().forEach((strips) => strips.draw()));
}
