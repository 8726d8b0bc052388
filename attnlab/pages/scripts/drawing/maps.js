// Heads' small maps, painted when first visible, or soon to be.

import { MAP_PIXELS } from "../numbers/constants.js";
import { smallMap } from "../numbers/heads.js";
import { say } from "../sources/description.js";
import { hiddenIn, isAblatedIn, valuesOf } from "../sources/rows.js";
import { loadLayer, source } from "../sources/source.js";
import { isLook, isSame, selection } from "../state/store.js";
import { nameOfPart, pendingTraces } from "../state/traces.js";
import { identify } from "./card.js";
import { bitmapOf, scaleOf } from "./colours.js";
import { make } from "./draw.js";

// For painting, in each frame; less while the picture loads its numbers.
const PAINTING_MILLISECONDS = 9;
const PAINTING_MILLISECONDS_WHILE_READING = 2;

const allMaps = new Set(); // of the traces shown
const waiting = new Map(); // a small map -> its painting, a generator; null while its numbers load
let isPainting = false; // whether a frame is requested

/** Continue to paint the waiting maps until this frame's time is over. */
function paintWaiting() {
  isPainting = true;
  const deadline = performance.now() + (selection.isReading ? PAINTING_MILLISECONDS_WHILE_READING : PAINTING_MILLISECONDS);
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
  const { view } = map; // the map may show another one before this one's numbers are loaded, see `showInMap`
  waiting.set(map, null);
  await Promise.all(pendingTraces(view, map.layer).map((trace) => loadLayer(trace, map.layer)));
  if (map.view === view) await loadMaps(map);
  if (map.view !== view || waiting.get(map) !== null) return; // or it has left the window, or is being painted
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

// Maps count as visible half a window before they are, so that nobody scrolls to empty ones.
const visibilityObserver = new IntersectionObserver(paintOrForget, { rootMargin: "50% 0%" });

function paintOrForget(entries) {
  for (const { target, isIntersecting } of entries) {
    const map = target.map;
    if (map.values) continue;
    if (isIntersecting) paintSoon(map);
    else waiting.delete(map);
  }
}

/** Paint all maps that haven't been visible yet, for printing; return whether all are painted. */
export function paintAll() {
  const shown = isLook() ? "#picture" : "#grids";
  const all = [...allMaps].filter(({ cell }) => cell.closest(shown));
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
  allMaps.clear();
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
  markMap(map);
}

/** Mark a map whose head is ablated, which is known at the latest when it is painted, or edited by the reader. */
function markMap({ view, layer, head, cell, name }) {
  const isAblated = isAblatedIn(view, layer, head);
  const isChanged = !view.isDifference && (view.traces[0].changes ?? []).some((change) => isSame(change, { layer, head }));
  cell.classList.toggle("ablated", isAblated);
  cell.classList.toggle("changed", isChanged && !isAblated);
  if (isAblated || isChanged) identify(cell, isAblated ? say("{name}, ablated", { name }) : say("{name}, edited", { name }));
}

/** Colour the painted maps again, after the palette has changed. */
export const colourMaps = () => allMaps.forEach(colourMap);

function colourMap({ view, values, size, canvas, cell }) {
  if (!values) return;
  bitmapOf(values, ...size, scaleOf(view, "weights", 1), (n) => Number.isNaN(values[n]), canvas);
  cell.classList.add("drawn");
}

/** A head's small map, in a cell with these attributes and labels; it is painted when first visible. */
export function makeMap(view, layer, head, attributes, ...labels) {
  const name = nameOfPart({ layer, head });
  const canvas = make("canvas", { "aria-hidden": "true" });
  const cell = make("div", { ...attributes, tabindex: "-1" }, canvas, ...labels);
  cell.map = { layer, head, canvas, cell, name };
  return showInMap(cell.map, view);
}

/** Show the numbers of a view in a small map. */
export function showInMap(map, view) {
  Object.assign(map, { view, values: undefined });
  identify(map.cell, map.name);
  visibilityObserver.observe(map.cell);
  allMaps.add(map);
  markMap(map);
  return map;
}

/** The small maps of the traces shown. */
export const mapsShown = () => [...allMaps];
