// The traces that the page shows, and the views of them. A view is a trace, or the difference of two.

import { align } from "../numbers/align.js";
import { isAblation, isAmong } from "../numbers/changes.js";
import { equations } from "../numbers/equations.js";
import { unpackedMask } from "../numbers/formats.js";
import { Graph } from "../numbers/run.js";
import { charactersIn, tokenAfter, withWords, wordOf, wordsIn } from "../numbers/words.js";
import { description, say, sayMessage, tokenOf } from "../sources/description.js";
import { isLook, on, selection } from "./store.js";

// The steps with a number for each query and key, in the order of computation.
export const MATRICES = Object.keys(description.steps).filter(
  (name) => description.steps[name].axes === description.steps.weights.axes,
);
export const DIFFERENCE = "B − A";
const NAME_EXCERPT_LENGTH = 44; // the most characters of a text in a trace's name

export let traces; // what is shown: one trace, or two to compare
export let traceViews; // a view of each trace
export let views; // the views of the traces and, of two traces that can be compared, their difference
export let whyNoDifference; // in words; "" if there is a difference
export let alignment; // {queries, keys}: for each query or key of any trace, its position in each trace, or null

/** A text's tokens, for comparison: two models' ids may mean different tokens. */
export const symbolsOf = ({ tokens }) => tokens.map(({ symbol }) => symbol);

/** Whether a text's next words and consequences are hidden, because the reader predicts them first. */
export const isPredicted = (trace) => selection.isPredicting && selection.revealed !== symbolsOf(trace).join();

/** Show other traces, described as in `description.traces`. */
export function setTraces(descriptions) {
  const previous = traces ?? [];
  for (const trace of previous) trace.closing.abort();
  traces = descriptions.map(traceOf);
  for (const trace of traces) for (const other of previous) reusePacks(trace, other);
  const queries = align(traces.map(symbolsOf));
  const cached = traces.map((trace) => trace.cached);
  alignment = {
    queries,
    keys: [ // cached tokens correspond by their number, and other keys as their queries do
      ...Array.from({ length: Math.max(...cached) }, (_, n) => cached.map((count) => (n < count ? n : null))),
      ...queries.map((positions) => positions.map((n, t) => (n === null ? null : cached[t] + n))),
    ],
  };
  makeViews();
}

/** Make the views of the traces, which are named in the page's language. */
function makeViews() {
  whyNoDifference = traces.length === 2 ? differentShapes(...traces) : "";
  const names = traces.length === 2 ? distinctions(traces, alignment.queries) : [];
  traceViews = traces.map((trace, n) => viewOf(trace.name, [trace], names[n]));
  const hasDifference = traces.length === 2 && !whyNoDifference;
  views = hasDifference ? [...traceViews, viewOf(DIFFERENCE, traces)] : traceViews;
  views.forEach(labelView);
}

/** Name the traces and their views again, after the page's language has changed. */
export function nameTraces() {
  for (const trace of traces) Object.assign(trace, namesOf(trace.described));
  makeViews();
}

/** The properties of a trace that are in the page's language. */
function namesOf({ model, note, training, cached, tokens }) {
  const before = Array.from({ length: cached }, (_, n) => ({ symbol: say("cached {n}", { n }) }));
  return {
    model: sayMessage(model), note: sayMessage(note), training: sayMessage(training), keys: [...before, ...tokens],
  };
}

/** A trace from its description; `number` is its index among those shown. */
function traceOf(described, number) {
  const T = described.tokens.length;
  const Tk = described.cached + T;
  const characters = charactersIn(described.tokens);
  const words = wordsIn(characters);
  const tokens = withWords(described.tokens, characters, words);
  const withNames = { ...described, tokens };
  return {
    ...withNames, ...namesOf(withNames), described: withNames, words, number, T, Tk,
    name: "AB"[number],
    mask: typeof described.mask === "string" ? unpackedMask(described.mask, T * Tk) : described.mask,
    names: described.names ?? new Map(described.prediction.tokens.map(tokenOf).map((token) => [token.id, token])),
    // How each step is computed, written by attnlab/steps/graph.py: the page runs the same graph as Python.
    graph: new Graph(described.graph),
    hyperparameters: { ...described.hyperparameters, activation: equations[described.hyperparameters.activation] },
    runs: new Map(), // runs of some queries, the most recently used last: see rows.js
    packs: new Map(), // name -> promise of its numbers
    predictions: new Map(), // position -> the prediction after it, decoded
    loaded: new Map(), // layer -> its data, once loaded
    listed: new Set(), // the ids that the list of next tokens has shown
    closing: new AbortController(), // aborts its requests when other traces are shown
  };
}

/** Whether two traces of a page with a model have the same tokens. Traces of one model share the map `names`. */
const hasSameTokens = (a, b) => a.changes && a.names === b.names && a.ids.join() === b.ids.join();

/** Whether two views have the same names and tokens, so that only their numbers differ. */
export const isAlike = (a, b) =>
  a.name === b.name &&
  a.distinction === b.distinction &&
  a.traces.length === b.traces.length &&
  a.traces.every((trace, n) => hasSameTokens(trace, b.traces[n]));

/** Reuse the packs of the layers that a trace shares with a previous one. */
function reusePacks(trace, other) {
  if (!hasSameTokens(trace, other)) return;
  for (let layer = 0; layer < layersShared(trace, other); layer++)
    if (other.loaded.has(layer)) trace.packs.set(`attention.${layer}`, other.packs.get(`attention.${layer}`));
}

/** The number of layers before the first change that only one of two traces has. */
function layersShared(a, b) {
  const differing = [...a.changes, ...b.changes].filter(
    (change) => ![a, b].every(({ changes }) => isAmong(changes, change)),
  );
  return Math.min(a.layers, ...differing.map(({ layer = 0 }) => layer)); // without a layer, a change is of all
}

/** Why two traces have no difference to show; "" if they have one. */
function differentShapes(a, b) {
  if (a.layers !== b.layers || a.H !== b.H || a.Dh !== b.Dh) {
    const size = (trace) => say("{name} has {layers} layers of {H} heads, Dh {Dh}", trace);
    return say("No difference shown: {a}; {b}.", { a: size(a), b: size(b) });
  }
  return alignment.queries.some(isEverywhere) ? "" : say("No difference shown: no tokens of A and B correspond.");
}

/** What distinguishes each of two traces: its model, text or changes. pairs: the positions of aligned queries. */
function distinctions(both, pairs) {
  const [a, b] = both;
  const differ = (property) => property(a) !== property(b);
  const firstDifference = pairs.findIndex(([n, m]) => a.tokens[n]?.symbol !== b.tokens[m]?.symbol);
  return both.map((trace) => {
    const text = differ((trace) => symbolsOf(trace).join()) && excerptAround(trace, firstDifference);
    return [differ(({ model }) => model) && trace.model, text, differ(changesIn) && changesIn(trace)]
      .filter(Boolean)
      .join(", ");
  });
}

/** An excerpt of a text around token n, on one line. */
function excerptAround({ tokens, excerpt }, n) {
  if (excerpt.length <= NAME_EXCERPT_LENGTH) return `“${excerpt}”`;
  const onOneLine = ({ symbol, text }) => (/^[ĊčĉĠ]+$/.test(symbol) ? " " : text); // white space
  const textOf = (list) => list.map(onOneLine).join("");
  const before = textOf(tokens.slice(0, n));
  const text = textOf(tokens);
  const start = Math.max(0, Math.min(before.length - 20, text.length - NAME_EXCERPT_LENGTH)); // 20 characters before n
  const shown = text.slice(start, start + NAME_EXCERPT_LENGTH);
  return `“${start ? "…" : ""}${shown}${start + NAME_EXCERPT_LENGTH < text.length ? "…" : ""}”`;
}

/** What is ablated or edited in a trace, in words. */
function changesIn({ changes, note }) {
  // A note such as ", edited" is written to follow a title.
  if (!changes) return note.replace(/^[,，] ?/, "") || say("not edited");
  const names = changes.filter(isAblation).map(nameOfPart).join("; ");
  const others = changes.filter((change) => !isAblation(change)).map(nameOfChange);
  return [...(names ? [say("{names} ablated", { names })] : []), ...others].join("; ") || say("nothing ablated");
}

/** Whether a query or key is in all traces. positions: where it is in each trace, or null. */
const isEverywhere = (positions) => !positions.includes(null);

/** The index of the last number in an ascending list that isn't larger than n; 0 if all are. */
export const indexAtOrBefore = (numbers, n) => Math.max(0, numbers.findLastIndex((other) => other <= n));

/** The position of a query in a trace. If the trace lacks the query, the position of the last query before it. */
export function queryIn(trace, query = selection.query) {
  const { rows, queries } = traceViews[trace.number];
  return queries[indexAtOrBefore(rows, query)][0]; // [0], since this view has only one trace
}

/**
 * A trace or a difference, as T rows and Tk columns. Row i is the query of index rows[i] in `alignment.queries`;
 * queries[i] are its positions in the traces. Columns likewise: columns[j] in `alignment.keys`, and keys[j].
 */
function viewOf(name, viewed, distinction = "") {
  const [first] = viewed;
  const positionsIn = (all) => all.map((positions) => viewed.map(({ number }) => positions[number]));
  const indicesIn = (all) => positionsIn(all).flatMap((positions, n) => (isEverywhere(positions) ? [n] : []));
  const rows = indicesIn(alignment.queries);
  const columns = indicesIn(alignment.keys);
  const queries = positionsIn(alignment.queries).filter(isEverywhere);
  const keys = positionsIn(alignment.keys).filter(isEverywhere);
  // In a difference, tokens that correspond may have different names: both are shown.
  const namesIn = (all, list, nameOf) =>
    all.map((positions) => [...new Set(viewed.map((trace, n) => nameOf(trace[list][positions[n]])))].join(" | "));
  const symbolIn = ({ symbol }) => symbol;
  return {
    name, distinction, traces: viewed, rows, columns, queries, keys, layers: first.layers, H: first.H,
    T: rows.length, Tk: columns.length, isDifference: viewed.length === 2,
    symbols: { queries: namesIn(queries, "tokens", symbolIn), keys: namesIn(keys, "keys", symbolIn) },
    words: { queries: namesIn(queries, "tokens", wordOf), keys: namesIn(keys, "keys", wordOf) },
  };
}

/** Label a view's rows and columns: in Look with words, in Lab with the tokens' symbols. */
export function labelView(view) {
  const labels = isLook() ? view.words : view.symbols;
  view.queryLabels = labels.queries;
  view.keyLabels = labels.keys;
}

/** A view's traces whose layer isn't loaded yet. */
export const pendingTraces = (view, layer) =>
  view.traces.filter((trace) => layer < trace.layers && !trace.loaded.has(layer));

export const hasHead = ({ layers, H }, layer, head) => layer < layers && head < H;

/** A note for a formula: in which traces the step is edited in this head. */
export function editedIn(layer, head, step) {
  const names = traces.filter((trace) => trace.edited[layer]?.[head]?.includes(step)).map(({ name }) => name);
  if (!names.length) return "";
  if (traces.length < 2) return say(", edited");
  return names.length === 2 ? say(", edited in A and in B") : say(", edited in {name}", { name: names[0] });
}

/** Whether a view has a head and its numbers are loaded. */
export const isLoaded = (view, { layer, head }) => hasHead(view, layer, head) && !pendingTraces(view, layer).length;

/** A token of the vocabulary after a position, with its name there. */
export const nextTokenOf = (trace, position, id) =>
  tokenAfter(trace.tokens.slice(0, position + 1), trace.names.get(id));

/** The index in `alignment.queries` of a trace's query i, and in `alignment.keys` of its key j. */
export const queryOf = (trace, i) => alignment.queries.findIndex((positions) => positions[trace.number] === i);
export const keyOf = (trace, j) => alignment.keys.findIndex((positions) => positions[trace.number] === j);

/** A selection that this page can show: a link's values, limited to what the traces have. Invalid ones are left out. */
export function clampedSelection({ step, ...linked }) {
  const counts = {
    layer: Math.max(...traces.map(({ layers }) => layers)),
    head: Math.max(...traces.map(({ H }) => H)),
    query: alignment.queries.length,
    key: alignment.keys.length,
  };
  const valid = Object.entries(counts).filter(([name]) => linked[name] >= 0);
  const clamped = valid.map(([name, count]) => [name, Math.min(Math.floor(linked[name]), count - 1)]);
  return { ...Object.fromEntries(clamped), ...(MATRICES.includes(step) && { step }) };
}

/** Call `draw` when another head, step, depth or palette is shown, if the open head's numbers are loaded. */
export const onHead = (draw) =>
  on("head step depth palette", () => !pendingTraces({ traces }, selection.layer).length && draw());

// ---- the words of changes, see numbers/changes.js --------------------------------------------------

/** The name of a head, or without `head`, of an MLP. */
export const nameOfPart = ({ layer, head }) =>
  head === undefined ? say("MLP of layer {layer}", { layer }) : say("layer {layer}, head {head}", { layer, head });

/** A change in words; for an ablation, the name of the head or MLP. */
export function nameOfChange(change) {
  const { kind, step, factor, cells } = change;
  if (kind === "uncausal") return say("no causal mask");
  if (kind === "unscaled") return say("no division by √Dk");
  const name = nameOfPart(change);
  if (kind === "ablate") return name;
  if (kind === "scale") return say("{name}: {step} × {factor}", { name, step, factor });
  return cells.length === 1
    ? say("{name}: 1 cell of the mask", { name })
    : say("{name}: {count} cells of the mask", { name, count: cells.length });
}
