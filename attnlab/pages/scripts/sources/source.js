// Where the page's numbers come from. They are in packs, which are arrays with a name, see attnlab/pages/packs.py: in
// the page's file, or computed by a model that the page runs itself (tab.js).

import { largestPairsInFile } from "../numbers/pairs.js";
import { predictionOf, probabilitiesOf, UNCHANGED } from "../numbers/predictions.js";
import { description, say } from "./description.js";
import { embeddedNumbers } from "./embedded.js";
import { layerOf } from "./rows.js";

/**
 * The interface of sources. `open` and `generate` need a model.
 *
 *   pack(trace, name)            a promise of a pack of a trace, such as "attention.3", as a Float32Array
 *   has(trace, name)             whether there is such a pack
 *   column(trace, path, n, rows) column n of a matrix with `rows` rows, and the column's bias
 *   open(text, changes)          trace a text, {text, special} or {ids}, as in `description.traces`, with changes, see
 *                                numbers/changes.js; special: the names of special tokens that are read as these
 *   predictionAfter(trace, position)
 *                                the predictions after a position, see `predictionOf`; each is read once
 *   pairs(trace, cell)           the largest pairs of a score, {layer, head, query, key, other}, see numbers/pairs.js:
 *                                [index of the query's part, of the key's, product]; null if the source lacks them
 *   generate(trace, settings)    a continuation of a trace: {chosen}, its tokens
 */
export class Source {
  /**
   * A trace's pack, requested once. If it can't be read, the page's status says why, the promise stays pending, so that
   * callers needn't handle the error, and the next call tries again.
   */
  pack(trace, name) {
    const handleError = (error) => {
      trace.packs.delete(name);
      if (error.name !== "AbortError") reports.status(error.message);
      return new Promise(() => {});
    };
    if (!trace.packs.has(name)) trace.packs.set(name, this.read(trace, name).catch(handleError));
    return trace.packs.get(name);
  }

  async predictionAfter(trace, position) {
    const values = await this.pack(trace, `${this.predictionPack}.${position}`);
    if (!trace.predictions.has(position))
      trace.predictions.set(position, this.decodePrediction(trace, position, values));
    return trace.predictions.get(position);
  }

  predictionPack = "prediction"; // the kind of pack that `decodePrediction` decodes
  decodePrediction = ({ prediction: { vocab } }, position, values) => predictionOf(values, vocab, description.sliders);

  /** A parameter's column; undefined if the source doesn't have it. */
  async column(trace, path, n, rows) {
    const hasColumn = ([matrix, start, stop]) => matrix === path && n >= start && n < stop;
    // A source with a model lists no columns, but has each of them.
    const [, start, stop] = trace.pass.columns.find(hasColumn) ?? [path, n, n + 1];
    const name = `columns.${path}.${start}.${stop}`;
    if (!this.has(trace, name)) return undefined;
    const columns = await this.pack(trace, name);
    const offset = (n - start) * (rows + 1);
    return { column: columns.subarray(offset, offset + rows), bias: columns[offset + rows] };
  }
}

/** A source whose packs are elements of the page, each removed when it is read. */
export class FileSource extends Source {
  has = (trace, name) => trace.packs.has(name) || elementOf(trace, name) !== null;
  pairs = async (trace, cell) => largestPairsInFile(await this.pack(trace, "why"), trace.why, trace, cell);
  read = (trace, name) => embeddedNumbers(elementOf(trace, name));
}

const elementOf = (trace, name) => document.getElementById(`trace-${trace.number}-${name}`);

export let source;
export const setSource = (other) => (source = other);

// What sources report while they work; the page's controls show it.
export const reports = { status: () => {}, progress: () => {} };

/** Load a layer's inputs, edits and heads. */
export async function loadLayer(trace, layer) {
  const values = await source.pack(trace, `attention.${layer}`);
  if (!trace.loaded.has(layer)) trace.loaded.set(layer, layerOf(trace, layer, values));
}

/** A prediction with the probabilities at some settings, and its tokens. */
export const withProbabilities = (trace, prediction, settings) => ({
  ...prediction,
  ...probabilitiesOf(prediction, settings),
  tokens: prediction.ids.map((id) => trace.names.get(id)),
});

/** The model's prediction after a position; null if the page doesn't have it. */
export async function readFollowing(trace, position) {
  if (position < trace.prediction.first) return null;
  return withProbabilities(trace, await source.predictionAfter(trace, position), UNCHANGED);
}

/** Why there is no prediction after a position. */
export const whyNoLogits = ({ cached, prediction: { first } }) =>
  say("This page has logits only from position {first}.", { first: cached + first });
