// A computation over a graph, as in attnlab/steps/run.py: each step is computed by its equation when first
// needed, then kept. Edits replace or change steps, as in attnlab/forward/edits.py. Synchronous:
// inputs must be loaded before.

/** How each step is computed, from attnlab/steps/graph.py's data. */
class Graph {
  constructor(data) {
    Object.assign(this, { data, nodes: new Map() });
  }

  /** A step's equation and needs; for a head's step, also the step it is a slice of. */
  node(path) {
    if (!this.nodes.has(path)) this.nodes.set(path, this.#nodeOf(path));
    return this.nodes.get(path);
  }

  #nodeOf(path) {
    const [layer, head] = path.startsWith("blocks.") ? path.match(/\d+/g).map(Number) : [];
    const form = path.replace(/^blocks\.\d+/, "blocks.#").replace(/\.heads\.\d+/, ".heads.@");
    const declared = this.data[path] ?? this.data[form];
    const [equation, take, ...needs] = declared ?? ["", ""];
    const owner = path.replace(/[^.]+$/, "");
    const absolute = (need) =>
      need.startsWith(".")
        ? owner + need.slice(1)
        : need.replace("#-1", layer - 1).replace("#", layer).replace("@", head);
    const whole = path.replace(/heads\.\d+\./, "");
    const n_head = whole.replace(/[^.]+$/, "n_head");
    return { equation, take, needs: needs.map(absolute), whole, head, n_head, isInput: !declared };
  }
}

/** An input that isn't available. */
class NotAvailable extends Error {}

/**
 * graph: a Graph.
 * inputOf: returns the value of an input by its path, or undefined.
 * edits: by path, an array, a number, or a function of the original value.
 */
class Run {
  constructor(graph, inputOf, edits = {}) {
    const other = Object.keys(edits).find((path) => NOT_EDITABLE.test(path));
    if (other) throw new Error(`${other} can't be edited here; edit the array that it is a slice of`);
    Object.assign(this, { graph, inputOf, edits, values: new Map() });
  }

  /** A step, computed if needed, and kept. */
  value(path) {
    if (!this.values.has(path)) this.values.set(path, this.#computed(path));
    return this.values.get(path);
  }

  /** Keep only the steps whose paths satisfy a condition. */
  keep(isKept) {
    for (const path of this.values.keys()) if (!isKept(path)) this.values.delete(path);
  }

  /** Call f, which computes steps in memory that is reused afterwards; then keep only some, as in `keep`. */
  inScratch(f, isKept) {
    return inScratch((keep) => {
      try {
        return keep(f());
      } finally {
        this.keep(isKept);
        for (const [path, value] of this.values) this.values.set(path, keep(value));
      }
    });
  }

  /** A step without the edit of the step itself. */
  unedited(path) {
    const { equation, take, whole, needs, isInput } = this.graph.node(path);
    const input = this.inputOf(path);
    if (input !== undefined) return input;
    if (equation) return equations[equation](...needs.map((need) => this.value(need)));
    if (take) return this.#part(path, HEAD_ONLY.test(path) ? this.value(whole) : this.unedited(whole));
    if (isInput) throw new NotAvailable(`${path} isn't available`);
    return null; // optional
  }

  #computed(path) {
    const { equation, take, whole } = this.graph.node(path);
    const isSlice = this.values.has(whole) || whole in this.edits || !equation;
    if (take && isSlice && !HEAD_ONLY.test(path) && this.inputOf(path) === undefined)
      return this.#part(path, this.value(whole));
    let value = this.unedited(path);
    if (path in this.edits) value = replaced(value, this.edits[path]);
    for (const part of this.#editedParts(path)) value = this.#withPart(value, part);
    return value;
  }

  /** The paths of a step's slices, of heads, that are edited or depend on an edit. */
  #editedParts(path) {
    const [, owner, name] = /^(?:(.+)\.)?(.+)$/.exec(path);
    if (HEAD_ONLY.test(path)) return [];
    const heads = Object.keys(this.edits).filter((edited) => edited.startsWith(`${owner}.heads.`));
    const names = name === "scores" ? ["scores", "scale"] : [name];
    const parts = heads.filter((edited) => names.includes(lastOf(edited)) && name !== "scale");
    return [...new Set(parts.map((part) => part.replace(/[^.]+$/, name)))];
  }

  /** A copy of an array with one of its slices edited. */
  #withPart(value, path) {
    const { take, n_head } = this.graph.node(path);
    // All heads may share one mask.
    const heads = take === "head_slice" ? [this.value(n_head), 1, 1] : [];
    const shape = broadcastShape([value.shape, heads]);
    const copied = new Nd(broadcast(value, shape).numbers().slice(), shape);
    const part = this.#part(path, copied);
    const before = new Nd(part.numbers().slice(), part.shape);
    assign(part, path in this.edits ? replaced(before, this.edits[path]) : this.unedited(path));
    return copied;
  }

  /** A head's step, from the same step of all heads. */
  #part(path, whole) {
    const { take, head, n_head } = this.graph.node(path);
    return whole === null ? null : equations[take](whole, head, this.value(n_head));
  }
}

// Steps that only a head has.
const HEAD_ONLY = /\.heads\.\d+\.(X|scale|output)$/;

// Of slices, only heads' steps and scales can be edited here.
const NOT_EDITABLE = /\.heads\.\d+\.(X|output)$|\b[Wb]_[QKV]$|^next_logits$/;

const lastOf = (path) => path.replace(/.*\./, "");

/** An edited step, with the original's shape and type. */
function replaced(value, edit) {
  const edited = typeof edit === "function" ? edit(value) : edit;
  if (!(value instanceof Nd)) return edited;
  const fitted = new Nd(new value.data.constructor(value.size), value.shape);
  assign(fitted, edited);
  return fitted;
}

/** Write numbers into an array, or through a view. */
function assign(array, values) {
  const expanded = broadcast(asArray(values), array.shape);
  forEachRow(array.shape, [array, expanded], (_, [to, from], width, [step, next]) => {
    for (let k = 0; k < width; k++, to += step, from += next) array.data[to] = expanded.data[from];
  });
}
