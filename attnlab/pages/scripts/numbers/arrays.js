// What the translation of attnlab/equations.py needs of NumPy: arrays with a shape, strides and an offset, views, and
// broadcasting. Results are float64 if an operand is, otherwise float32. Sums are accumulated in float64.

import { checkFinite } from "./refusal.js";

let products = null; // a faster implementation for large arrays, where available: see products.js
export const useProducts = (faster) => (products = faster);

export class Nd {
  constructor(data, shape, strides = stridesOf(shape), offset = 0) {
    Object.assign(this, { data, shape, strides, offset });
    this.dtype = { type: (x) => x }; // as in x.dtype.type(0): JavaScript's numbers have one type
  }

  get size() {
    return sizeOf(this.shape);
  }

  /** All numbers in row-major order, without a copy if they are contiguous. See `forEachRow` for its arguments. */
  numbers() {
    const { data, shape, offset, size } = this;
    if (isContiguous(this)) return data.subarray(offset, offset + size);
    const copy = allocate(data.constructor, size);
    forEachRow(shape, [this], (start, [from], width, [step]) => {
      for (let k = 0; k < width; k++, from += step) copy[start + k] = data[from];
    });
    return copy;
  }

  swapaxes(a, b) {
    const swapped = (all) => {
      const [x, y] = [a, b].map((axis) => (axis < 0 ? all.length + axis : axis));
      return all.with(x, all[y]).with(y, all[x]);
    };
    return new Nd(this.data, swapped(this.shape), swapped(this.strides), this.offset);
  }

  /** A view if only the last axis is split; otherwise a copy if needed. */
  reshape(...shape) {
    const { data, strides, offset } = this;
    const last = strides.at(-1);
    const isSplit = shape.length === this.shape.length + 1 && shape.slice(0, -2).every((n, k) => n === this.shape[k]);
    if (isSplit) return new Nd(data, shape, [...strides.slice(0, -1), shape.at(-1) * last, last], offset);
    return new Nd(this.numbers(), shape);
  }

  max(options) {
    return reduceLastAxis(this, options, (data, from, step, width) => {
      let largest = -Infinity;
      for (let k = 0; k < width; k++, from += step) if (data[from] > largest) largest = data[from];
      return largest;
    });
  }

  /** Sums along the last axis. They must be finite: LayerNorm would turn an infinite sum into 0, which hides it. */
  sum(options) {
    const sums = reduceLastAxis(this, options, (data, from, step, width) => {
      let sum = 0;
      for (let k = 0; k < width; k++, from += step) sum += data[from];
      return sum;
    });
    checkFinite(sums.data);
    return sums;
  }
}

/** Reduce along the last axis, whose length becomes 1; f reduces a row. */
function reduceLastAxis(x, { axis, keepdims }, f) {
  if (axis !== -1 || !keepdims) throw new Error("reductions need axis=-1 and keepdims");
  const out = allocate(typeOf(x), x.size / x.shape.at(-1));
  let n = 0;
  forEachRow(x.shape, [x], (_, [from], width, [step]) => {
    out[n++] = f(x.data, from, step, width);
  });
  return new Nd(out, x.shape.with(-1, 1));
}

/** A typed array, not necessarily of zeros, in scratch memory if that has room. */
const allocate = (type, count) => (type === Float32Array && products?.allocate?.(count)) || new type(count);

/** A contiguous copy, outside scratch memory. */
export function copyOf(x) {
  const copy = new Nd(new x.data.constructor(x.size), x.shape);
  assign(copy, x);
  return copy;
}

/** Call f(copyOut). Arrays that f computes may be in memory that is reused afterwards; `copyOut` copies one out. */
export const inScratch = (f) => (products?.inScratch ? products.inScratch(f) : f((x) => x));

export const sizeOf = (shape) => shape.reduce((product, n) => product * n, 1);

export function stridesOf(shape) {
  const strides = Array(shape.length);
  let stride = 1;
  for (let k = shape.length - 1; k >= 0; k--) {
    strides[k] = stride;
    stride *= shape[k];
  }
  return strides;
}

/** Whether an array's numbers are adjacent, in row-major order. */
const isContiguous = ({ shape, strides }) =>
  stridesOf(shape).every((stride, k) => shape[k] === 1 || stride === strides[k]);

/** The result type: float64 if any array has it, otherwise float32. */
const typeOf = (...arrays) => arrays.some(({ data }) => data instanceof Float64Array) ? Float64Array : Float32Array;

/** The common shape to which shapes broadcast. */
export function broadcastShape(shapes) {
  const count = Math.max(...shapes.map(({ length }) => length));
  return Array.from({ length: count }, (_, k) => {
    const sizes = new Set(shapes.map((shape) => shape.at(k - count) ?? 1).filter((n) => n !== 1));
    if (sizes.size > 1) throw new Error(`shapes can't be broadcast: ${shapes.map((s) => `(${s})`).join(", ")}`);
    return sizes.size ? [...sizes][0] : 1;
  });
}

/** A view of an array, broadcast to a shape. */
export function broadcast(x, shape) {
  const extra = shape.length - x.shape.length;
  const strides = shape.map((n, k) => (k < extra || x.shape[k - extra] === 1 ? 0 : x.strides[k - extra]));
  return new Nd(x.data, shape, strides, x.offset);
}

/**
 * Call f(start, offsets, width, steps) for each row of the last axis. It has `width` numbers; it starts at `start` in a
 * contiguous array, and at offsets[n] in arrays[n], whose numbers are steps[n] apart.
 */
export function forEachRow(shape, arrays, f) {
  const last = shape.length - 1;
  const width = last < 0 ? 1 : shape[last];
  const steps = arrays.map(({ strides }) => (last < 0 ? 0 : strides[last]));
  const offsets = arrays.map(({ offset }) => offset);
  let start = 0;
  const walk = (axis) => {
    if (axis >= last) {
      f(start, offsets, width, steps);
      start += width;
      return;
    }
    const move = (count) => { // along the axis, in all arrays
      for (let n = 0; n < arrays.length; n++) offsets[n] += count * arrays[n].strides[axis];
    };
    for (let k = 0; k < shape[axis]; k++, move(1)) walk(axis + 1);
    move(-shape[axis]);
  };
  walk(0);
}

const asArray = (x) => (x instanceof Nd ? x : new Nd(Float64Array.of(x), []));

/** Merge neighbouring axes where all strides allow it, for fewer and longer rows; return the shape, and views in it. */
function mergedAxes(shape, arrays) {
  let sizes = shape;
  let views = arrays;
  for (let k = sizes.length - 2; k >= 0; k--) {
    if (!views.every(({ strides }) => strides[k] === sizes[k + 1] * strides[k + 1])) continue;
    const merge = (list, merged) => [...list.slice(0, k), merged, ...list.slice(k + 2)];
    sizes = merge(sizes, sizes[k] * sizes[k + 1]);
    views = views.map(({ data, strides, offset }) => new Nd(data, sizes, merge(strides, strides[k + 1]), offset));
  }
  return [sizes, views];
}

/**
 * Make a function of up to three arrays or numbers. `loop` computes one row of the result from one row of each array.
 *
 * Plain numbers give a plain number. `f.reusing(k, ...)` may write the result into argument k.
 */
export function elementwise(name, loop) {
  const compute = (reused, operands) => {
    const arrayOperands = operands.filter((x) => x instanceof Nd); // numbers don't affect the type
    const arrays = operands.map(asArray);
    const shape = broadcastShape(arrays.map((x) => x.shape));
    const type = arrayOperands.length ? typeOf(...arrayOperands) : Float64Array;
    const isReusable = reused?.data instanceof type && reused.size === sizeOf(shape);
    const out = isReusable ? reused.data : allocate(type, sizeOf(shape));
    const [sizes, views] = mergedAxes(shape, arrays.map((x) => broadcast(x, shape)));
    if (!products?.elementwise(name, out, sizes, views)) {
      const [a, b = a, c = a] = views; // loops take three arrays
      const data = [a, b, c].map((x) => x.data);
      forEachRow(sizes, [a, b, c], (start, offsets, width, steps) => loop(out, start, width, data, offsets, steps));
    }
    return arrayOperands.length ? new Nd(out, shape) : out[0];
  };
  const f = (...operands) => compute(undefined, operands);
  return Object.assign(f, { reusing: (k, ...operands) => compute(operands[k], operands) });
}

/** a @ b: (..., n, m) and (..., m, p), or a vector (m,) and (m, p). */
function matmul(a, b) {
  if (a.shape.length === 1) {
    const row = matmul(new Nd(a.data, [1, ...a.shape], [0, ...a.strides], a.offset), b);
    return new Nd(row.data, row.shape.toSpliced(-2, 1));
  }
  const [n, m, p] = [...a.shape.slice(-2), b.shape.at(-1)];
  if (b.shape.at(-2) !== m) throw new Error(`no product of (${a.shape}) and (${b.shape})`);
  if (b.shape.length === 2 && a.shape.length > 2 && isContiguous(a)) {
    const rows = matmul(a.reshape(a.size / m, m), b); // one product for the rows of all sequences
    return new Nd(rows.data, [...a.shape.slice(0, -1), p]);
  }
  const leading = broadcastShape([a.shape.slice(0, -2), b.shape.slice(0, -2)]);
  const [x, y] = [a, b].map((array) => broadcast(array, [...leading, ...array.shape.slice(-2)]));
  const out = allocate(typeOf(a, b), sizeOf(leading) * n * p);
  const multiply = b.strides.at(-2) === 1 ? byColumns : byRows; // the one that reads b in the order of its memory
  const sizes = [n, m, p];
  let start = 0;
  // One product for each index of the leading axes; i and j are where its matrices start.
  const walk = (axis, i, j) => {
    if (axis === leading.length) {
      const isDone = products?.product(x, i, y, j, out, start, sizes); // false if it can't multiply these matrices
      if (!isDone) multiply(x, i, y, j, out, start, sizes);
      start += n * p;
      return;
    }
    for (let k = 0; k < leading[axis]; k++)
      walk(axis + 1, i + k * x.strides[axis], j + k * y.strides[axis]);
  };
  walk(0, a.offset, b.offset);
  return new Nd(out, [...leading, n, p]);
}

/** Write the product of the matrices at i in a and at j in b to `out`, from `start`. b's columns are contiguous. */
function byColumns(a, i, b, j, out, start, [n, m, p]) {
  const [x, y] = [a.data, b.data];
  const [down, across] = a.strides.slice(-2); // from row to row, and from column to column
  const next = b.strides.at(-1); // from column to column
  const row = new Float64Array(m); // a copy of the current row of the first matrix
  let to = start;
  for (let r = 0; r < n; r++, i += down) {
    for (let k = 0; k < m; k++) row[k] = x[i + k * across];
    let column = 0;
    for (; column + 3 < p; column += 4) {
      // Four columns at a time, to load each number of the row once.
      const d = j + column * next, e = d + next, f = e + next, g = f + next; // where they start
      let s = 0, t = 0, u = 0, v = 0; // their sums of products
      for (let k = 0; k < m; k++) {
        const factor = row[k];
        s += factor * y[d + k];
        t += factor * y[e + k];
        u += factor * y[f + k];
        v += factor * y[g + k];
      }
      out[to++] = s;
      out[to++] = t;
      out[to++] = u;
      out[to++] = v;
    }
    for (; column < p; column++) {
      let s = 0;
      for (let k = 0, from = j + column * next; k < m; k++) s += row[k] * y[from + k];
      out[to++] = s;
    }
  }
}

/** The same if b's rows are contiguous: each row of the product is a weighted sum of b's rows. */
function byRows(a, i, b, j, out, start, [n, m, p]) {
  const [x, y] = [a.data, b.data];
  const [down, across] = a.strides.slice(-2);
  const [next, step] = b.strides.slice(-2); // from row to row, and from column to column
  const sums = new Float64Array(p);
  for (let row = 0; row < n; row++, i += down) {
    sums.fill(0);
    for (let k = 0; k < m; k++) {
      const factor = x[i + k * across];
      for (let column = 0, from = j + k * next; column < p; column++, from += step) sums[column] += factor * y[from];
    }
    out.set(sums, start + row * p);
  }
}

/** x[ids]: rows by index, (..., D) from ids (...,) and x (rows, D). */
function rowsOf(x, ids) {
  const width = x.shape[1];
  const out = allocate(x.data.constructor, ids.size * width);
  ids.numbers().forEach((id, n) => out.set(item(x, Number(id)).numbers(), n * width));
  return new Nd(out, [...ids.shape, width]);
}

export const REST = Symbol("...");
const slice = (start, stop) => ({ start, stop });

/** x[...index]: a view, or a copy of rows if the index is an array. x may also be a list, such as a shape. */
function item(x, ...index) {
  const [first] = index;
  if (Array.isArray(x))
    return typeof first === "number" ? x.at(first) : x.slice(first.start ?? 0, first.stop ?? x.length);
  if (first instanceof Nd) return rowsOf(x, first);
  const rest = index.indexOf(REST);
  const before = rest < 0 ? index : index.slice(0, rest);
  const after = rest < 0 ? [] : index.slice(rest + 1);
  const wholeAxes = Array(x.shape.length - before.length - after.length).fill(slice(null, null));
  const shape = [];
  const strides = [];
  let { offset } = x;
  [...before, ...wholeAxes, ...after].forEach((entry, k) => {
    const size = x.shape[k];
    const clamped = (n) => Math.max(0, Math.min(size, n < 0 ? size + n : n));
    if (typeof entry === "number") {
      offset += (entry < 0 ? size + entry : entry) * x.strides[k];
      return;
    }
    const [start, stop] = [clamped(entry.start ?? 0), clamped(entry.stop ?? size)];
    offset += start * x.strides[k];
    shape.push(Math.max(0, stop - start));
    strides.push(x.strides[k]);
  });
  return new Nd(x.data, shape, strides, offset);
}

export const LAST_AXIS = { axis: -1, keepdims: true };

// The functions that translated code calls; attnlab/pages/translate.py adds the elementwise ones.
export const nd = {
  REST,
  slice,
  item,
  matmul,
  equal: (a, b) => a.length === b.length && a.every((x, k) => x === b[k]), // compares tuples
  broadcast_to: broadcast,
};

/** Write numbers into an array, or through a view. */
export function assign(array, values) {
  const expanded = broadcast(asArray(values), array.shape);
  forEachRow(array.shape, [array, expanded], (_, [to, from], width, [step, next]) => {
    for (let k = 0; k < width; k++, to += step, from += next) array.data[to] = expanded.data[from];
  });
}

export function concatenated(arrays) {
  const joined = new Float32Array(arrays.reduce((sum, { size }) => sum + size, 0));
  let start = 0;
  for (const array of arrays) {
    joined.set(array.numbers(), start);
    start += array.size;
  }
  return joined;
}
