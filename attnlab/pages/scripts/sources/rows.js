// Compute heads' steps for a trace or a view: load its packs, and run the equations on some of the queries. Q is
// converted to float64, so results are float64 too.

import { Nd, nd, REST, stridesOf } from "../numbers/arrays.js";
import { ablationOf, isAmong } from "../numbers/changes.js";
import { Run } from "../numbers/run.js";

const NUMBERS_AT_ONCE = 2 ** 14; // the most numbers of a step that one run computes
const RUNS_KEPT = 64; // how many runs of a trace are kept, the most recently used ones

/** Unpack a layer from its pack "attention": Q, K, V and edited steps by path, and its heads. */
export function layerOf(trace, layer, values) {
  const { H, T, Tk, Dh, scales } = trace;
  const path = `blocks.${layer}.attention`;
  // A pack is one row of numbers: Q, K and V of all heads, then the edited steps, in the order of packs.py.
  let offset = 0;
  const nextArray = (...shape) => {
    const array = new Nd(values, shape, stridesOf(shape), offset);
    offset += array.size;
    return array;
  };
  const inputs = {
    [`${path}.Q`]: nextArray(H, T, Dh),
    [`${path}.K`]: nextArray(H, Tk, Dh),
    [`${path}.V`]: nextArray(H, Tk, Dh),
  };
  const edits = {};
  for (const [h, names] of Object.entries(trace.edited[layer] ?? {}))
    for (const name of names)
      edits[`${path}.heads.${h}.${name}`] =
        name === "scale" ? scales[layer][h] : nextArray(T, name === "context" ? Dh : Tk); // rows by key
  const heads = Array.from({ length: H }, (_, h) => makeHead({ trace, layer, h, inputs, edits }));
  return { inputs, edits, heads };
}

/** A head of a layer: its vectors, and its edited arrays by name. */
function makeHead({ trace, layer, h, inputs, edits }) {
  const { T, Tk, Dh, mask } = trace;
  const path = `blocks.${layer}.attention.heads.${h}`;
  const names = trace.edited[layer]?.[h] ?? [];
  const arrayNames = names.filter((name) => name !== "scale"); // a scale is one number
  const editedSteps = Object.fromEntries(arrayNames.map((name) => [name, edits[`${path}.${name}`].numbers()]));
  const vectorsOf = (name) => nd.item(inputs[`blocks.${layer}.attention.${name}`], h).numbers();
  const head = { trace, layer, path, T, Tk, Dh, editedSteps, edited: new Set(names), mask: editedSteps.mask ?? mask };
  return Object.assign(head, { Q: vectorsOf("Q"), K: vectorsOf("K"), V: vectorsOf("V") });
}

/**
 * A run over the queries from `start` up to `stop`, in loaded layers.
 *
 * extraInputs: inputs by path, which replace the loaded layers' inputs. rounded: the paths of steps that are rounded to
 * float32. The model rounds them too, so steps computed from them agree with the model's.
 */
export function runOfQueries(
  trace, start, stop, { layers = [...trace.loaded.keys()], extraInputs = {}, rounded = [] } = {},
) {
  const queryRows = (x) => (x instanceof Nd ? nd.item(x, REST, nd.slice(start, stop), nd.slice(null, null)) : x);
  const inputs = { ...trace.hyperparameters, mask: queryRows(new Nd(trace.mask, [trace.T, trace.Tk])), ...extraInputs };
  const edits = Object.fromEntries(rounded.map((path) => [path, toFloat32]));
  for (const layer of layers) {
    const loaded = trace.loaded.get(layer);
    Object.assign(inputs, loaded.inputs);
    for (const [path, x] of Object.entries(loaded.edits)) edits[path] = queryRows(x);
  }
  const inputAt = (path) => (path.endsWith(".Q") && path in inputs ? toFloat64(queryRows(inputs[path])) : inputs[path]);
  return new Run(trace.graph, inputAt, edits);
}

/** An array in float64, so that what is computed from it is float64 too. */
const toFloat64 = (x) => new Nd(new Float64Array(x.numbers()), x.shape);

const toFloat32 = (x) => new Nd(x.numbers().map(Math.fround), x.shape);

/** Whether all heads of a layer are computed at once, which is faster for short texts. */
const isShort = ({ H, T, Tk }) => H * T * Tk <= NUMBERS_AT_ONCE;

/** The run that includes query i of a head, cached, and the query's row in it. */
export function runOfHead({ trace, layer, path, Q, T, Tk, Dh }, i) {
  const count = isShort(trace) ? T : Math.max(1, Math.floor(NUMBERS_AT_ONCE / Tk));
  const start = i - (i % count);
  const cacheKey = isShort(trace) ? `blocks.${layer}` : `${path} ${start}`;
  // With its Q as an input, a head of a long text is computed without the others.
  const extraInputs = isShort(trace) ? {} : { [`${path}.Q`]: new Nd(Q, [T, Dh]) };
  const run =
    trace.runs.get(cacheKey) ??
    runOfQueries(trace, start, Math.min(T, start + count), { layers: [layer], extraInputs });
  trace.runs.delete(cacheKey);
  trace.runs.set(cacheKey, run); // now the most recently used
  if (trace.runs.size > RUNS_KEPT) trace.runs.delete(trace.runs.keys().next().value);
  return { run, row: i - start };
}

/** Row i of a head's step: a number for each key; of the context, for each component. */
export function stepRow(head, step, i) {
  const { run, row } = runOfHead(head, i);
  // In a short text, all heads are computed at once, and the head's step is cut from that.
  if (isShort(head.trace)) run.value(`blocks.${head.layer}.attention.${step}`);
  return nd.item(run.value(`${head.path}.${step}`), row).numbers();
}

/** Row i of a head's step without the step's own edit. */
export function uneditedRow(head, step, i) {
  const { run, row } = runOfHead(head, i);
  return nd.item(run.unedited(`${head.path}.${step}`), row).numbers();
}

export const isMasked = (head, i, j) => head.mask[i * head.Tk + j] === 0;

/** Whether the mask leaves cell n visible, or an edit gave it a value. */
export function isSeen({ mask, editedSteps: { masked_scores, weights } }, n) {
  const passes = masked_scores ? masked_scores[n] > -Infinity : mask[n] !== 0;
  return passes || (weights !== undefined && weights[n] !== 0);
}

export const headOf = (trace, layer, head) => trace.loaded.get(layer).heads[head];

/** Whether a head is ablated in a view of one trace. A saved page has no `changes`; it lists the silenced heads. */
export function isAblatedIn({ isDifference, traces: [trace] }, layer, head) {
  if (isDifference) return false;
  if (trace.changes) return isAmong(trace.changes, ablationOf(layer, head));
  return trace.silenced.some((silenced) => silenced[0] === layer && silenced[1] === head);
}

/** Row i of a step in a view; a difference of two -inf is NaN. */
export function valuesOf(view, layer, head, step, i) {
  const [a, b] = view.traces.map((trace, t) => stepRow(headOf(trace, layer, head), step, view.queries[i][t]));
  return view.isDifference ? Float64Array.from(view.keys, ([j, k]) => b[k] - a[j]) : a;
}

/** All rows of a step in a view. */
export function matrixOf(view, { layer, head, step }) {
  const matrix = new Float32Array(view.T * view.Tk);
  for (let i = 0; i < view.T; i++) matrix.set(valuesOf(view, layer, head, step, i), i * view.Tk);
  return matrix;
}

/** A function of a cell's index in a view: whether the mask hides the cell in all of the view's traces. */
export function hiddenIn(view, { layer, head, step }) {
  if (!AFTER_MASK.has(step)) return () => false;
  const heads = view.traces.map((trace) => headOf(trace, layer, head));
  return (n) => {
    const [query, key] = [view.queries[Math.floor(n / view.Tk)], view.keys[n % view.Tk]];
    return heads.every((head, t) => !isSeen(head, query[t] * head.Tk + key[t]));
  };
}

export const AFTER_MASK = new Set(["masked_scores", "weights"]);
