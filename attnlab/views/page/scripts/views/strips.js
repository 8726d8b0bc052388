// The selected query's vector next to every key's, as strips of colour with a stripe for each component:
// how their products add up to scores, and scores become weights.

import { fixed, format } from "../numbers/formats.js";
import { say } from "../sources/description.js";
import { headOf, isSeen, stepRow } from "../sources/rows.js";
import { point, select } from "../state/actions.js";
import { describedCell, on, selection } from "../state/store.js";
import { isLoaded, nearest, onHead, traceViews } from "../state/traces.js";
import { bitmapOf, signedScale } from "../drawing/colours.js";
import { boxedTable, buttonOf, byId, make, number, onceAFrame, rowOf, tokenElement } from "../drawing/draw.js";
import { openArithmetic } from "../drawing/levels.js";
import { labelOf, nameOf, showIfHeadExists } from "../drawing/names.js";

const STRIP_ROW = 1.375; // rem, as in page.css

/** The strips of a view, built when first shown: a long text has many rows. */
function makeStrips(view) {
  let built;
  return {
    draw() {
      if (selection.display === "strips") (built ??= buildStrips(view)).draw();
    },
  };
}

function buildStrips(view) {
  const [trace] = view.traces;
  const makeStripes = (name) => make("canvas", { class: `stripes ${name}`, "aria-hidden": "true" });
  const [queryStripes, keyStripes, productStripes] = ["q", "k", "qk"].map(makeStripes);
  const steps = ["raw_scores", "scores", "weights"];
  const queryCell = make("th", { scope: "row" });
  const rows = trace.keys.map((token, j) => {
    const numbers = steps.map(() => make("data", {}));
    const openRow = () => {
      select(view.rows[nearest(view.rows, selection.query)], view.columns[j]);
      openArithmetic(button);
    };
    const button = buttonOf(openRow, { class: "row-button" }, tokenElement(token));
    const canvases = j ? ["", ""] : [keyStripes, productStripes]; // in the first row, as high as all rows
    return { row: rowOf(button, [...canvases, ...numbers]), numbers, button };
  });
  const headings = [say("key"), "K", "q × k", ...steps];
  const caption = say("Query and key vectors{of}", { of: labelOf(view) });
  const emptyCells = headings.slice(2).map(() => make("td"));
  const queryRow = make("tr", { class: "query-row" }, queryCell, make("td", {}, queryStripes), ...emptyCells);
  const scroller = boxedTable(caption, headings, [queryRow, ...rows.map(({ row }) => row)]);
  const readout = make("p", { class: "readout", "aria-live": "polite" });
  const note = make("p", { class: "note" });
  const missing = make("p", { class: "note", hidden: "" });
  byId("strips").append(make("figure", {}, ...nameOf(view), missing, readout, scroller, note));
  for (const canvas of [keyStripes, productStripes]) canvas.style.height = `${trace.Tk * STRIP_ROW}rem`;

  const query = () => nearest(view.rows, describedCell().query);
  const draw = onceAFrame(() => {
    if (!showIfHeadExists(view, [readout, scroller, note], missing) || !isLoaded(view, selection)) return;
    const head = headOf(trace, selection.layer, selection.head);
    const i = query();
    const { Q, K, Dh, Tk } = head;
    const q = Q.subarray(i * Dh, (i + 1) * Dh);
    const products = K.map((k, n) => k * q[n % Dh]);
    const vectorBound = largestOf([Q, K]);
    const productBound = largestOf([products]);
    const paintOn = (canvas, values, height, bound) =>
      bitmapOf(values, Dh, height, signedScale(bound), () => false, canvas);
    paintOn(queryStripes, q, 1, vectorBound);
    paintOn(keyStripes, K, Tk, vectorBound);
    paintOn(productStripes, products, Tk, productBound);
    note.textContent = say(
      "Blue below zero, orange above: Q and K to ±{vectors}, products to ±{products}; a row's products add up to its raw score.",
      { vectors: format(vectorBound, 2), products: format(productBound, 2) },
    );
    queryCell.replaceChildren(`Q: ${i} `, tokenElement(trace.tokens[i]));
    const values = steps.map((step) => stepRow(head, step, i));
    const key = nearest(view.columns, describedCell().key);
    rows.forEach(({ row, numbers }, j) => {
      row.classList.toggle("masked", !isSeen(head, i * Tk + j));
      if (j === key) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
      numbers.forEach((element, n) => {
        element.value = String(values[n][j]);
        element.textContent = fixed(values[n][j], 4);
      });
    });
  });

  /** [component, key] under the pointer. */
  function numberUnder({ clientX, clientY }, canvas) {
    const box = canvas.getBoundingClientRect();
    const { Dh, Tk } = trace;
    const d = Math.min(Dh - 1, Math.floor(((clientX - box.left) / box.width) * Dh));
    return [d, Math.min(Tk - 1, Math.floor(((clientY - box.top) / box.height) * Tk))];
  }

  for (const canvas of [keyStripes, productStripes]) {
    canvas.addEventListener("pointermove", (event) => {
      const [d, j] = numberUnder(event, canvas);
      point({ query: selection.query, key: view.columns[j] });
      const { Q, K, Dh } = headOf(trace, selection.layer, selection.head);
      const x = Q[query() * Dh + d];
      const y = K[j * Dh + d];
      readout.replaceChildren(
        say("component {d} of query {i} and key {j}: ", { d, i: query(), j }),
        make("span", {}, number(x), " × ", number(y), " = ", number(x * y)),
      );
    });
    canvas.addEventListener("pointerleave", () => {
      point(null);
      readout.replaceChildren();
    });
    canvas.addEventListener("click", (event) => rows[numberUnder(event, canvas)[1]].button.click());
  }
  return { draw };
}

/** The largest |value| in some arrays; 1 if all are 0. */
function largestOf(arrays) {
  let largest = 0;
  for (const values of arrays) for (const x of values) largest = Math.max(largest, Math.abs(x));
  return largest || 1;
}

let allStrips; // one for each trace

export function startStrips() {
  on("traces", () => {
    byId("strips").replaceChildren();
    allStrips = traceViews.map(makeStrips);
  });
  onHead(() => allStrips.forEach((strips) => strips.draw()));
  on("query key hovered", () => allStrips.forEach((strips) => strips.draw()));
}
