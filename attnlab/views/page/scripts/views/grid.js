// The grid of small maps, one for each head, painted when first visible.

import { MAP_PIXELS } from "../numbers/constants.js";
import { smallMap } from "../numbers/maps.js";
import { say } from "../sources/description.js";
import { hiddenIn, valuesOf } from "../sources/rows.js";
import { loadLayer, source } from "../sources/source.js";
import { hasHead, isLook, nameOfPart, pendingTraces, selection, traces, views } from "../state/state.js";
import { bitmapOf, scaleOf } from "../drawing/colours.js";
import { byId, focusOne, isPress, make } from "../drawing/draw.js";
import { chooseHead, isSame, visibleHeads } from "./lines.js";
import { picture } from "./picture.js";
import { grids, heatmaps } from "../page/page.js";

// For painting, in each frame; less while the picture loads its numbers.
const PAINTING_MILLISECONDS = 9;
const PAINTING_MILLISECONDS_WHILE_READING = 2;
const isNarrow = matchMedia("(max-width: 1000px)"); // as in page.css

const waiting = new Map(); // a small map -> its painting, a generator; null while its numbers load
let isPainting = false; // whether a frame is requested

/** Continue to paint the waiting maps until this frame's time is over. */
function paintWaiting() {
  isPainting = true;
  const deadline = performance.now() + (picture.isReading ? PAINTING_MILLISECONDS_WHILE_READING : PAINTING_MILLISECONDS);
  for (const [map, painting] of waiting) {
    while (painting && performance.now() < deadline) {
      if (painting.next().done) {
        waiting.delete(map);
        break;
      }
    }
    if (performance.now() >= deadline) break;
  }
  isPainting = [...waiting.values()].some(Boolean);
  if (isPainting) requestAnimationFrame(paintWaiting);
}

/** Paint a small map once its numbers are loaded and it is its turn. */
async function paintSoon(map) {
  waiting.set(map, null);
  await Promise.all(pendingTraces(map.view, map.layer).map((trace) => loadLayer(trace, map.layer)));
  await loadMaps(map);
  if (waiting.get(map) !== null) return; // it has left the window, or is being painted
  waiting.set(map, paint(map));
  if (isPainting) return;
  isPainting = true;
  requestAnimationFrame(paintWaiting);
}

/** Load a layer's small maps, if they have fewer pixels than cells and the source has them. */
async function loadMaps({ view, layer }) {
  const [trace] = view.traces;
  const name = `maps.${layer}`;
  if (view.isDifference || trace.T <= MAP_PIXELS || !source.has(trace, name)) return;
  const { maps } = trace.loaded.get(layer);
  if (maps.length) return; // loaded for another trace that shares the layer
  const values = await source.pack(trace, name);
  const size = values.length / trace.H;
  for (let head = 0; head < trace.H; head++) maps[head] ??= values.subarray(head * size, (head + 1) * size);
}

const visibilityObserver = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const map = target.map;
    if (map.values) continue;
    if (isIntersecting) paintSoon(map);
    else waiting.delete(map);
  }
});

/** Paint all maps that haven't been visible yet, for printing; return whether all are painted. */
export function paintAll() {
  const all = (isLook() ? [picture] : grids).flatMap(({ maps }) => maps);
  for (const map of all) {
    if (map.values || pendingTraces(map.view, map.layer).length) continue;
    waiting.delete(map);
    for (const _ of paint(map)); // run the generator to its end
  }
  return all.every(({ values }) => values);
}

/** Forget the maps of traces that are no longer shown. */
export function forgetMaps() {
  visibilityObserver.disconnect();
  waiting.clear();
}

/** Compute and colour a small map; a generator, so that other work can come between. */
function* paint(map) {
  const { view, layer, head } = map;
  const known = view.isDifference ? [] : view.traces[0].loaded.get(layer).maps; // by head
  map.size = [view.Tk, view.T].map((count) => Math.min(count, MAP_PIXELS));
  const rowOf = (i) => valuesOf(view, layer, head, "weights", i);
  map.values = known[head] ??= yield* smallMap(view.T, view.Tk, rowOf, hiddenIn(view, { layer, head, step: "weights" }));
  colourMap(map);
}

export function colourMap({ view, values, size, canvas, cell }) {
  if (!values) return;
  bitmapOf(values, ...size, scaleOf(view, "weights", 1), (n) => Number.isNaN(values[n]), canvas);
  cell.classList.add("drawn");
}

/** A head's small map, in a cell with these attributes and labels; it is painted when first visible. */
export function makeMap(view, layer, head, attributes, ...labels) {
  const name = nameOfPart([layer, head]);
  const canvas = make("canvas", { "aria-hidden": "true" });
  const cell = make("div", { ...attributes, tabindex: "-1", title: name, "aria-label": name }, canvas, ...labels);
  visibilityObserver.observe(cell);
  return (cell.map = { view, layer, head, canvas, cell, name });
}

/** A view's grid: a row of small maps for each layer. */
export function makeGrid(view) {
  const grid = make("div", {
    role: "grid",
    class: "grid",
    "aria-multiselectable": "true",
    "aria-label": say("Heads{of}: a row for each layer", { of: labelOf(view) }),
  });
  grid.style.setProperty("--heads", view.H);
  const headings = Array.from({ length: view.H }, (_, h) =>
    make("span", { role: "columnheader" }, String(h)),
  );
  grid.append(
    make(
      "div",
      { role: "row" },
      make("span", { role: "columnheader", "aria-label": say("layer") }),
      ...headings,
    ),
  );
  const maps = [];
  for (let layer = 0; layer < view.layers; layer++) {
    const row = make("div", { role: "row" }, make("span", { role: "rowheader" }, String(layer)));
    for (let head = 0; head < view.H; head++) {
      const map = makeMap(view, layer, head, { role: "gridcell", class: "map" });
      maps.push(map);
      row.append(map.cell);
    }
    grid.append(row);
  }
  const isAdding = ({ ctrlKey, metaKey, shiftKey }) => ctrlKey || metaKey || shiftKey;
  grid.addEventListener("click", (event) => {
    const cell = event.target.closest(".map");
    if (cell) chooseHead(cell.map.layer, cell.map.head, isAdding(event), goToHead);
  });
  grid.addEventListener("keydown", (event) => {
    if (!event.target.map) return;
    const { layer, head } = event.target.map;
    if (isPress(event)) {
      event.preventDefault();
      chooseHead(layer, head, isAdding(event), () => {
        if (selection.display === "map") heatmaps[views.indexOf(view)].cursor.focus();
      });
      return;
    }
    const to = cellAfterKey(event, layer, head, view.layers, view.H);
    if (to) focusMap(to[0] * view.H + to[1]);
  });
  const focusMap = (n) => focusOne(maps.map(({ cell }) => cell), n);
  function mark() {
    for (const { cell, layer, head } of maps) {
      const isOpen = layer === selection.layer && head === selection.head;
      const visible = visibleHeads().find((other) => isSame(other, { layer, head }));
      cell.setAttribute("aria-selected", String(visible !== undefined));
      cell.style.setProperty("--overlaid", selection.overlaid.length && visible ? visible.colour : "");
      cell.tabIndex = isOpen ? 0 : -1;
    }
  }
  const axes = make(
    "p",
    { class: "axes", "aria-hidden": "true" },
    `${say("layer")} ↓ ${say("head")} →`,
  );
  byId("grids").append(
    make("div", {}, ...nameOf(view), axes, make("div", { class: "sideways" }, grid)),
  );
  return {
    view,
    maps,
    mark,
    focus() {
      const n = selection.layer * view.H + selection.head;
      focusMap(hasHead(view, selection.layer, selection.head) ? n : 0);
    },
  };
}

/** On a narrow screen, scroll to the head that was tapped. */
function goToHead() {
  if (isNarrow.matches) byId("head").scrollIntoView({ block: "start" });
}

/** The cell that an arrow key moves to from row i, column j; undefined for other keys. */
export function cellAfterKey(event, i, j, rows, columns) {
  const page = 10;
  const steps = {
    ArrowUp: [i - 1, j],
    ArrowDown: [i + 1, j],
    ArrowLeft: [i, j - 1],
    ArrowRight: [i, j + 1],
    PageUp: [i - page, j],
    PageDown: [i + page, j],
    Home: [event.ctrlKey ? 0 : i, 0],
    End: [event.ctrlKey ? rows - 1 : i, columns - 1],
  };
  if (!(event.key in steps)) return undefined;
  event.preventDefault();
  const clamped = (n, count) => Math.max(0, Math.min(count - 1, n));
  return [clamped(steps[event.key][0], rows), clamped(steps[event.key][1], columns)];
}

/** The cell under the pointer, [row, column], in an element with cells of `side` pixels; it may be outside. */
export function cellUnder({ clientX, clientY }, element, side) {
  const box = element.getBoundingClientRect();
  return [clientY - box.top + element.scrollTop, clientX - box.left + element.scrollLeft].map((n) => Math.floor(n / side));
}

/** Move a frame to cell i, j among cells of `side` pixels; it stays visible around small ones. */
export function moveFrame(frame, i, j, side, smallest) {
  const size = Math.max(side, smallest);
  const corner = (n) => `${(n + 0.5) * side - size / 2}px`;
  frame.style.transform = `translate(${corner(j)}, ${corner(i)})`;
  frame.style.width = frame.style.height = `${size}px`;
}

/** Show elements if a view has the open head; if not, say so in `missing`. Return whether it has. */
export function showIfHeadExists(view, elements, missing) {
  const exists = hasHead(view, selection.layer, selection.head);
  for (const element of elements) element.hidden = !exists;
  missing.hidden = exists;
  missing.textContent = exists ? "" : say("{name} has no layer {layer}, head {head}.", { ...selection, name: view.name });
  return exists;
}

/** “ of A” for labels, if two traces are compared. */
export const labelOf = (view) => (traces.length === 2 ? say(" of {name}", view) : "");

/** A heading with a view's name and what distinguishes it, as a list; empty if there is one view. */
export function nameOf({ name, distinction }) {
  if (traces.length < 2) return [];
  return [make("h3", { class: "name" }, name, ...(distinction ? [": ", make("bdi", {}, distinction)] : []))];
}
