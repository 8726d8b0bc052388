// One computation over a graph, as attnlab/steps/run.py has it: each step is computed on first look by
// its equation, then kept. Edits take the place of steps, or change them, as attnlab/forward/edits.py
// has them. Nothing here draws or waits: what is given has been fetched before.

/** What each step is computed from: its data as attnlab/steps/graph.py writes them. */
class Graph {
  constructor(data) {
    Object.assign(this, { data, nodes: new Map() });
  }

  /** A step's equation and what it needs; of a head's step also what it is taken of, and how. */
  node(path) {
    if (!this.nodes.has(path)) this.nodes.set(path, this.#made(path));
    return this.nodes.get(path);
  }

  #made(path) {
    const [layer, head] = path.startsWith("blocks.") ? path.match(/\d+/g).map(Number) : [];
    const form = path.replace(/^blocks\.\d+/, "blocks.#").replace(/\.heads\.\d+/, ".heads.@");
    const found = this.data[path] ?? this.data[form];
    const [equation, take, ...needs] = found ?? ["", ""];
    const place = path.replace(/[^.]+$/, "");
    const absolute = (need) =>
      need.startsWith(".")
        ? place + need.slice(1)
        : need.replace("#-1", layer - 1).replace("#", layer).replace("@", head);
    const whole = path.replace(/heads\.\d+\./, "");
    const n_head = whole.replace(/[^.]+$/, "n_head");
    return { equation, take, needs: needs.map(absolute), whole, head, n_head, isGiven: !found };
  }
}

/** A step that is to be given, and is not. */
class NotThere extends Error {}

/**
 * graph: a Graph.
 * given: of a path what is given there, undefined where nothing is.
 * edits: by path an array or a number, or a function of what would have been there.
 */
class Run {
  constructor(graph, given, edits = {}) {
    const other = Object.keys(edits).find((path) => NOT_EDITED.test(path));
    if (other) throw new Error(`${other} is not edited here: edit what it is a part of`);
    Object.assign(this, { graph, given, edits, values: new Map() });
  }

  /** A step, computed if it is not there, and kept. */
  look(path) {
    if (!this.values.has(path)) this.values.set(path, this.#made(path));
    return this.values.get(path);
  }

  /** Keep the steps for whose paths this holds, and no others. */
  keep(isKept) {
    for (const path of this.values.keys()) if (!isKept(path)) this.values.delete(path);
  }

  /** What a step would be, were it not edited itself. */
  unedited(path) {
    const { equation, take, whole, needs, isGiven } = this.graph.node(path);
    const given = this.given(path);
    if (given !== undefined) return given;
    if (equation) return equations[equation](...needs.map((need) => this.look(need)));
    if (take) return this.#part(path, OWN.test(path) ? this.look(whole) : this.unedited(whole));
    if (isGiven) throw new NotThere(`${path} is not there`);
    return null; // it is optional
  }

  #made(path) {
    const { equation, take, whole } = this.graph.node(path);
    const isTaken = this.values.has(whole) || whole in this.edits || !equation;
    if (take && isTaken && !OWN.test(path) && this.given(path) === undefined)
      return this.#part(path, this.look(whole));
    let value = this.unedited(path);
    if (path in this.edits) value = replaced(value, this.edits[path]);
    for (const part of this.#editedParts(path)) value = this.#withPart(value, part);
    return value;
  }

  /** The paths of a step's parts, of heads, that are edited, or follow from what is. */
  #editedParts(path) {
    const [, place, name] = /^(?:(.+)\.)?(.+)$/.exec(path);
    if (OWN.test(path)) return [];
    const heads = Object.keys(this.edits).filter((edited) => edited.startsWith(`${place}.heads.`));
    const names = name === "scores" ? ["scores", "scale"] : [name];
    const own = heads.filter((edited) => names.includes(lastOf(edited)) && name !== "scale");
    return [...new Set(own.map((edited) => edited.replace(/[^.]+$/, name)))];
  }

  /** A whole with a part of it edited: a copy. */
  #withPart(value, path) {
    const { take, n_head } = this.graph.node(path);
    // A mask may be the same in all heads.
    const heads = take === "one_of_heads" ? [this.look(n_head), 1, 1] : [];
    const shape = broadcastShape([value.shape, heads]);
    const copied = new Nd(stretched(value, shape).numbers().slice(), shape);
    const part = this.#part(path, copied);
    const before = new Nd(part.numbers().slice(), part.shape);
    assign(part, path in this.edits ? replaced(before, this.edits[path]) : this.unedited(path));
    return copied;
  }

  /** A step of a head, of the same step of all heads. */
  #part(path, whole) {
    const { take, head, n_head } = this.graph.node(path);
    return whole === null ? null : equations[take](whole, head, this.look(n_head));
  }
}

// What a head has of its own, and is no share of what the layer computes with.
const OWN = /\.heads\.\d+\.(X|scale|output)$/;

// Of what is a part of something else, only heads' steps and scales are edited here.
const NOT_EDITED = /\.heads\.\d+\.(X|output)$|\b[Wb]_[QKV]$|^next_logits$/;

const lastOf = (path) => path.replace(/.*\./, "");

/** What an edit makes of a step, of its shape and type. */
function replaced(value, edit) {
  const made = typeof edit === "function" ? edit(value) : edit;
  if (!(value instanceof Nd)) return made;
  const fitted = new Nd(new value.data.constructor(value.size), value.shape);
  assign(fitted, made);
  return fitted;
}

/** Write numbers into an array, or into what it is a view of. */
function assign(array, values) {
  const wide = stretched(asArray(values), array.shape);
  forEachRow(array.shape, [array, wide], (_, [to, from], width, [step, next]) => {
    for (let k = 0; k < width; k++, to += step, from += next) array.data[to] = wide.data[from];
  });
}
