// A computation over a graph, as in attnlab/steps/run.py: each step is computed by its equation when it is first
// needed, then kept. Edits replace or change steps, as in attnlab/forward/edits.py. A run can't wait for anything, so
// all inputs must be loaded first.

import { assign, broadcast, broadcastShape, inScratch, Nd } from "./arrays.js";
// Not in this folder: attnlab/pages/translate.py makes it from attnlab/equations.py, expression by expression.
import { equations } from "./equations.js";

/** How each step is computed, from attnlab/steps/graph.py's data. */
export class Graph {
  constructor(data) {
    Object.assign(this, { data, nodes: new Map() });
  }

  /** A step's equation and needs. A head's step is a slice of `whole`, the layer's step, by `sliceEquation`. */
  node(path) {
    if (!this.nodes.has(path)) this.nodes.set(path, this.#resolve(path));
    return this.nodes.get(path);
  }

  #resolve(path) {
    const [layer, head] = path.startsWith("blocks.") ? path.match(/\d+/g).map(Number) : [];
    const pattern = path.replace(/^blocks\.\d+/, "blocks.#").replace(/\.heads\.\d+/, ".heads.@");
    // In the data, # is the layer, #-1 the one before, @ the head; needs with a leading dot are siblings.
    const declared = this.data[path] ?? this.data[pattern];
    const [equation, sliceEquation, ...needs] = declared ?? ["", ""];
    const parent = path.replace(/[^.]+$/, "");
    const inRun = (need) => need.replace("#-1", layer - 1).replace("#", layer).replace("@", head);
    const absolute = (need) => (need.startsWith(".") ? parent + need.slice(1) : inRun(need));
    const whole = path.replace(/heads\.\d+\./, "");
    const n_head = whole.replace(/[^.]+$/, "n_head");
    const paths = { needs: needs.map(absolute), whole, n_head };
    return { equation, sliceEquation, head, isInput: !declared, ...paths };
  }
}

/** The error for an input that the page doesn't have. */
export class NotAvailable extends Error {}

/**
 * graph: a Graph.
 * inputOf: returns the value of an input by its path, or undefined.
 * edits: by path, an array, a number, or a function of the original value.
 */
export class Run {
  constructor(graph, inputOf, edits = {}) {
    const invalid = Object.keys(edits).find((path) => NOT_EDITABLE.test(path));
    if (invalid) throw new Error(`${invalid} can't be edited here; edit the array that it is a slice of`);
    Object.assign(this, { graph, inputOf, edits, values: new Map() });
  }

  /** A step, computed if needed, and kept. */
  value(path) {
    if (!this.values.has(path)) this.values.set(path, this.#compute(path));
    return this.values.get(path);
  }

  /** Keep only the steps whose paths satisfy a condition. */
  keep(isKept) {
    for (const path of this.values.keys()) if (!isKept(path)) this.values.delete(path);
  }

  /** Call f, whose steps may be in scratch memory. Then copy its result and the steps to keep out of that memory. */
  inScratch(f, isKept) {
    return inScratch((copyOut) => {
      try {
        return copyOut(f());
      } finally {
        this.keep(isKept);
        for (const [path, value] of this.values) this.values.set(path, copyOut(value));
      }
    });
  }

  /** A step's value before its edit; edits of earlier steps apply. */
  unedited(path) {
    const { equation, sliceEquation, whole, needs, isInput } = this.graph.node(path);
    // Numbers that the page has come first: a saved page has Q, but not the parameters that Q is computed from.
    const input = this.inputOf(path);
    if (input !== undefined) return input;
    // Here numbers are made: an equation of attnlab/equations.py, called with its needs, as in steps/run.py.
    if (equation) return equations[equation](...needs.map((need) => this.value(need)));
    // The value of `whole` includes the edits of its slices, except of those in HEAD_ONLY.
    if (sliceEquation) return this.#slice(path, HEAD_ONLY.test(path) ? this.value(whole) : this.unedited(whole));
    if (isInput) throw new NotAvailable(`${path} isn't available`);
    return null; // an optional step, such as a bias, which this model doesn't have
  }

  #compute(path) {
    const { equation, sliceEquation, whole } = this.graph.node(path);
    // A head's step is cut from the layer's if that is known or edited. Otherwise, computing one head is less work.
    const needsWhole = this.values.has(whole) || whole in this.edits || !equation;
    if (sliceEquation && needsWhole && !HEAD_ONLY.test(path) && this.inputOf(path) === undefined)
      return this.#slice(path, this.value(whole));
    let value = this.unedited(path);
    if (path in this.edits) value = applyEdit(value, this.edits[path]);
    for (const slice of this.#editedSlices(path)) value = this.#withEditedSlice(value, slice);
    return value;
  }

  /** The paths of the heads' slices of a step that are edited, or that an edit of a scale changes. */
  #editedSlices(path) {
    const [, parent, name] = /^(?:(.+)\.)?(.+)$/.exec(path);
    if (HEAD_ONLY.test(path) || name === "scale") return [];
    const heads = Object.keys(this.edits).filter((edited) => edited.startsWith(`${parent}.heads.`));
    const names = name === "scores" ? ["scores", "scale"] : [name]; // a head's scale changes its scores
    const paths = heads.filter((edited) => names.includes(lastOf(edited)));
    return [...new Set(paths.map((edited) => edited.replace(/[^.]+$/, name)))];
  }

  /** A copy of an array with one of its slices edited. */
  #withEditedSlice(value, path) {
    const { sliceEquation, n_head } = this.graph.node(path);
    // An array that all heads share, such as a mask, gets an axis of heads first, to change only one of them.
    const heads = sliceEquation === "head_slice" ? [this.value(n_head), 1, 1] : [];
    const shape = broadcastShape([value.shape, heads]);
    const copy = new Nd(broadcast(value, shape).numbers().slice(), shape);
    const slice = this.#slice(path, copy);
    const before = new Nd(slice.numbers().slice(), slice.shape);
    // The slice is a view, so this changes the copy.
    assign(slice, path in this.edits ? applyEdit(before, this.edits[path]) : this.unedited(path));
    return copy;
  }

  /** A head's step, from the same step of all heads. */
  #slice(path, whole) {
    const { sliceEquation, head, n_head } = this.graph.node(path);
    return whole === null ? null : equations[sliceEquation](whole, head, this.value(n_head));
  }
}

// Steps of a head whose edits don't edit the layer's step of the same name.
const HEAD_ONLY = /\.heads\.\d+\.(X|scale|output)$/;

// A head's X and output, and a row of logits: their edits have effects that only attnlab/forward/edits.py knows.
const NOT_EDITABLE = /\.heads\.\d+\.(X|output)$|^next_logits$/;

export const lastOf = (path) => path.replace(/.*\./, "");

/** A layer's scale without the factor √Dk. */
export const scaleWithoutRoot = (hyperparameters, layer) =>
  hyperparameters[`blocks.${layer}.attention.layer_number`] ?? 1;

/** A step's value after an edit, with the original's shape and type. */
function applyEdit(value, edit) {
  const edited = typeof edit === "function" ? edit(value) : edit;
  if (!(value instanceof Nd)) return edited;
  const result = new Nd(new value.data.constructor(value.size), value.shape);
  assign(result, edited);
  return result;
}

// ---- the steps of a pass, in the order in which the page lists them ------------------------------

/** The listed steps, in order; `needs` are the listed steps that each is computed from. */
export function passStepsOf({ graph, layers, pass }) {
  const names = Object.keys(pass.steps);
  const isInBlock = (name) => `blocks.#.${name}` in graph.data;
  const first = names.findIndex(isInBlock);
  const stepOf = (name, layer) => ({ name, layer, path: layer === undefined ? name : `blocks.${layer}.${name}` });
  const steps = [
    ...names.slice(0, first).map((name) => stepOf(name)),
    ...Array.from({ length: layers }, (_, layer) => names.filter(isInBlock).map((name) => stepOf(name, layer))).flat(),
    ...names.slice(first).filter((name) => !isInBlock(name)).map((name) => stepOf(name)),
  ];
  const paths = new Set(steps.map(({ path }) => path));
  const known = new Map(); // results by path: many steps may need the same one
  const listedNeeds = (path) => {
    if (!known.has(path)) {
      const needs = graph.node(path).needs.flatMap((need) => (paths.has(need) ? [need] : listedNeeds(need)));
      known.set(path, [...new Set(needs)]);
    }
    return known.get(path);
  };
  return steps.map((step) =>
    step.name === "probabilities"
      ? { ...step, equation: "softmax", needs: ["logits"] } // not a step of the model
      : { ...step, equation: graph.node(step.path).equation, needs: listedNeeds(step.path) },
  );
}

/** The path of the matrix in a step's equation, x @ W. */
export const matrixPathOf = ({ graph }, { path }) => graph.node(path).needs[1];
