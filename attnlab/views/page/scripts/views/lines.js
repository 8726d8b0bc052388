// Lines from all queries to the keys that they attend to, for one head or several in colours.

import { say } from "../sources/description.js";
import { matrixOf } from "../sources/rows.js";
import { point, pointAtQuery, select } from "../state/actions.js";
import { describedCell, on, selection } from "../state/store.js";
import { isLoaded, nearest, onHead, traceViews } from "../state/traces.js";
import { cellAfterKey } from "../drawing/cells.js";
import { byId, clipText, colourOf, make, maxHeight, onceAFrame, prepareCanvas, textScale } from "../drawing/draw.js";
import { strengthOf, visibleHeads } from "../drawing/heads.js";
import { labelOf, nameOf } from "../drawing/names.js";

const FAINTEST_LINE = 0.01; // smaller weights aren't drawn
const ROW_HEIGHT = 24; // of a token
const LOW_ROW_HEIGHT = 15; // in a long text

function makeLines(view) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const extent = make("div", { class: "extent" }, canvas);
  const scroller = make(
    "div",
    {
      class: "all-lines",
      role: "img",
      tabindex: "0",
      "aria-label": say("Lines of all tokens{of}: queries on the left, keys on the right", {
        of: labelOf(view),
      }),
    },
    extent,
  );
  const ends = make(
    "div",
    { class: "ends", "aria-hidden": "true" },
    make("span", {}, say("query")),
    make("span", {}, say("key")),
  );
  const figure = make("figure", {}, ...nameOf(view), ends, scroller);
  byId("lines").append(figure);
  const isLong = view.Tk > 40;
  let rowHeight;
  const matrices = new Map(); // the weights of heads drawn before
  function weightsOf({ layer, head }) {
    const name = `${layer}.${head}`;
    if (!matrices.has(name)) matrices.set(name, matrixOf(view, { layer, head, step: "weights" }));
    return matrices.get(name);
  }

  let highlighted = null; // the token whose lines stand out, {isKey, index}

  const draw = onceAFrame(() => {
    if (byId("lines").hidden) return;
    const { clientWidth: width, clientHeight: height, scrollTop } = scroller;
    const context = prepareCanvas(canvas, width, height);
    const size = (isLong ? 11 : 13) * textScale();
    const font = `${size}px ${getComputedStyle(canvas).fontFamily}`;
    context.textBaseline = "middle";
    context.translate(0, -scrollTop);
    const labelWidth = Math.min(120 * textScale(), width / 4);
    const from = labelWidth + 8;
    const to = width - labelWidth - 8;
    const query = nearest(view.rows, describedCell().query);
    const key = nearest(view.columns, describedCell().key);
    const cached = view.Tk - view.T; // aligns each query with its own key
    const y = (n) => (n + 0.5) * rowHeight;
    const isVisible = (n) => y(n) > scrollTop - rowHeight && y(n) < scrollTop + height + rowHeight;

    for (const head of visibleHeads().filter((head) => isLoaded(view, head))) {
      context.strokeStyle = head.colour;
      weightsOf(head).forEach((weight, n) => {
        const strength = strengthOf(weight);
        if (strength < FAINTEST_LINE) return;
        const i = Math.floor(n / view.Tk);
        const j = n % view.Tk;
        if (!(isVisible(cached + i) || isVisible(j))) return;
        const isHighlighted = !highlighted || (highlighted.isKey ? j : i) === highlighted.index;
        context.globalAlpha = Math.sqrt(strength) * (isHighlighted ? 1 : 0.06);
        context.lineWidth = 0.75 + 3.25 * strength + (i === query ? 1.25 : 0);
        context.beginPath();
        context.moveTo(from, y(cached + i));
        context.lineTo(to, y(j));
        context.stroke();
      });
    }
    context.globalAlpha = 1;
    const strong = colourOf(figure);
    const muted = colourOf(scroller);
    const label = (text, x, n, isChosen) => {
      if (!isVisible(n)) return;
      context.font = `${isChosen ? "bold " : ""}${font}`;
      context.fillStyle = isChosen ? strong : muted;
      context.fillText(clipText(context, text, labelWidth), x, y(n));
    };
    if (isVisible(cached + query)) {
      context.fillStyle = colourOf(ends);
      context.fillRect(labelWidth + 2, y(cached + query) - rowHeight / 2 + 2, 3, rowHeight - 4);
    }
    context.textAlign = "right";
    view.queryLabels.forEach((text, i) => label(text, labelWidth, cached + i, i === query));
    context.textAlign = "left";
    view.keyLabels.forEach((text, j) => label(text, to + 8, j, j === key));
  });

  function layOut() {
    rowHeight = (isLong ? LOW_ROW_HEIGHT : ROW_HEIGHT) * textScale();
    extent.style.height = `${view.Tk * rowHeight}px`;
    scroller.style.height = `${Math.min(maxHeight(), view.Tk * rowHeight)}px`;
    draw();
  }

  /** The token under the pointer, {isKey, index}; null if there is none. */
  function tokenUnder(event) {
    const box = scroller.getBoundingClientRect();
    const n = Math.floor((event.clientY - box.top + scroller.scrollTop) / rowHeight);
    const isKey = event.clientX > box.left + box.width / 2;
    const index = isKey ? n : n - (view.Tk - view.T);
    return (isKey ? view.columns : view.rows)[index] === undefined ? null : { isKey, index };
  }
  scroller.addEventListener("pointermove", (event) => {
    highlighted = tokenUnder(event);
    if (!highlighted) point(null);
    else if (highlighted.isKey) point({ query: selection.query, key: view.columns[highlighted.index] });
    else pointAtQuery(view.rows[highlighted.index]);
    draw();
  });
  scroller.addEventListener("pointerleave", () => {
    highlighted = null;
    point(null);
    draw();
  });
  scroller.addEventListener("click", (event) => {
    const token = tokenUnder(event);
    if (token?.isKey) select(selection.query, view.columns[token.index]);
    else if (token) select(view.rows[token.index]);
  });
  scroller.addEventListener("keydown", (event) => {
    const to = cellAfterKey(event, nearest(view.rows, selection.query), 0, view.T, 1);
    if (event.key === "Escape") highlighted = null;
    else if (to) {
      highlighted = { isKey: false, index: to[0] };
      select(view.rows[to[0]]);
    }
    draw();
  });
  scroller.addEventListener("scroll", draw);
  new ResizeObserver(onceAFrame(layOut)).observe(figure);
  return { draw, layOut };
}

let allLines; // one for each trace

export function startLines() {
  on("traces", () => {
    byId("lines").replaceChildren();
    allLines = traceViews.map(makeLines);
  });
  onHead(() => allLines.forEach((lines) => lines.draw()));
  on("query key hovered", () => allLines.forEach((lines) => lines.draw()));
  on("textSize printed", () => allLines.forEach((lines) => lines.layOut()));
}
