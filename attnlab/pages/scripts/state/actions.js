// What a reader can do. Each action loads what it needs, then sets the store.

import { language, setLanguage } from "../sources/description.js";
import { valuesOf } from "../sources/rows.js";
import { loadLayer, source } from "../sources/source.js";
import { changed, isSameHead, selection, set, setQuietly } from "./store.js";
import {
  clampedSelection, isLoaded, labelView, nameTraces, pendingTraces, queryIn, setTraces, traces, views,
} from "./traces.js";

/** Select a query and a key; by default, the key with the largest weight. */
export const select = (query, key = strongestKey(query) ?? selection.key) => set({ hovered: null, query, key });

/** Show a cell, { query, key }, while the pointer is there; null shows the selected one again. */
export function point(cell) {
  if (cell?.query === selection.hovered?.query && cell?.key === selection.hovered?.key) return;
  set({ hovered: cell });
}

/** The key with the largest weight for a query of the open head, in the first text that has both. */
function strongestKey(query) {
  const view = views.find((view) => isLoaded(view, selection) && view.rows.includes(query));
  if (!view) return undefined;
  const { layer, head } = selection;
  const weights = valuesOf(view, layer, head, "weights", view.rows.indexOf(query));
  return view.columns[weights.indexOf(Math.max(...weights))];
}

/** Open a head, immediately if its numbers are loaded; then call `then`. */
export function openHead(layer, head, then = () => {}) {
  // Another head's strongest key may differ.
  if (!isSameHead(selection, { layer, head })) setQuietly({ key: undefined });
  setQuietly({ layer, head });
  const loading = pendingTraces({ traces }, layer).map((trace) => loadLayer(trace, layer));
  const show = () => {
    setQuietly({ key: selection.key ?? strongestKey(selection.query) ?? 0 });
    changed("head");
    then();
  };
  if (!loading.length) return show();
  set({ isLoading: true });
  const shown = traces;
  return Promise.all(loading).then(() => {
    set({ isLoading: false });
    // Another head or text may have been chosen since.
    if (traces === shown && selection.layer === layer && selection.head === head) show();
  });
}

/** Show other traces, described as in `description.traces`. If the text is the same, the selected tokens stay. */
export function openTraces(descriptions) {
  const { layer, head, query, key } = selection;
  const textsBefore = traces ?? [];
  setTraces(descriptions);
  const chosenStep = { ...selection.chosenStep, trace: Math.min(selection.chosenStep.trace, traces.length - 1) };
  setQuietly({ hovered: null, key: undefined, openCell: null, isSilenced: false, chosenStep });
  const isSameText =
    textsBefore.length > 0 && new Set([...textsBefore, ...traces].map(({ ids }) => ids.join())).size === 1;
  const cell = isSameText ? { query, key } : { query: Infinity }; // clamped to the last query
  setQuietly(clampedSelection({ layer, head, ...cell }));
  // A worker computes the next tokens while the rest is drawn. Only traces of a page with a worker have an id.
  for (const trace of traces) if (trace.id !== undefined) source.predictionAfter(trace, queryIn(trace));
  changed("traces");
  const opening = openHead(selection.layer, selection.head);
  changed("opened"); // for views that load more than the open head
  return opening;
}

/** Choose how much the page shows. */
export function setDepth(depth) {
  setQuietly({ depth });
  views.forEach(labelView);
  closeArithmetic();
  changed("depth");
}

/** Show the page in a language, "en" or "zh". */
export async function showLanguage(chosen) {
  if (chosen === language) return;
  setLanguage(chosen);
  nameTraces();
  await changed("language"); // views make their texts again
  // Then they draw what was selected before.
  changed("head", "query", "step", "key", "depth", "openCell", "palette", "settings", "story");
}

/** Open a head that the reader has chosen; `then` is called when it is open. */
export function chooseHead(layer, head, then) {
  setQuietly({ isHeadChosen: true });
  return openHead(layer, head, then);
}

/** Show the arithmetic of a cell, {layer, head, query, key, component}. */
export const openCellAt = (openCell) => set({ openCell });

export const closeArithmetic = () => set({ openCell: null });

/** Go to a step of a trace's pass and one of its numbers; the page's link then includes them. */
export const goTo = (path, component = selection.chosenStep.component, trace = selection.chosenStep.trace) =>
  set({ chosenStep: { trace, path, component, isLinked: true } });
