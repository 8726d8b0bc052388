// Matrix products and elementwise functions of float32 arrays in WebAssembly, see product.ts. WebAssembly's memory has
// a model's parameters and scratch memory, which `inScratch` uses for new arrays. Other arrays are copied to buffers.

import { copyOf, forEachRow, Nd } from "./arrays.js";
import { MODULES } from "./compiled.js";
import { bytesOf } from "./formats.js";

// The sizes of the buffers in numbers: the first operand, the second, the output, and working memory.
const CAPACITY = { a: 2 ** 20, b: 2 ** 21, o: 2 ** 20, w: 2 ** 13 };
const SCRATCH = 2 ** 24; // the size of scratch memory, in numbers
const MAX_COPIED = 2 ** 17; // how many numbers of the first matrix are copied at a time
const MIN_PRODUCTS = 2 ** 12; // multiplications; below this, copying the matrices isn't worth it
const MIN_IN_ROW = 32; // numbers of a row; below this, copying the row isn't worth it
const BLOCK = 2 ** 12; // numbers that fit in the L1 cache
const FIRST_ADDRESS = 1024; // AssemblyScript reserves the bytes before

export class Products {
  #used = 0; // how many numbers of scratch memory are in use
  #isActive = false; // whether new arrays are allocated in scratch memory

  /** An instance with memory for `count` numbers besides the buffers; null without WebAssembly. */
  static of(count) {
    try {
      return new Products(count);
    } catch {
      return null;
    }
  }

  constructor(count) {
    const sizes = [CAPACITY.a, CAPACITY.b, CAPACITY.o, CAPACITY.w, count, SCRATCH];
    const total = FIRST_ADDRESS + 4 * sizes.reduce((sum, size) => sum + size);
    const memory = new WebAssembly.Memory({ initial: Math.ceil(total / 2 ** 16) });
    const module = MODULES.map(bytesOf).find((bytes) => WebAssembly.validate(bytes)); // the fastest is first
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(module), { env: { memory, abort() {} } });
    let start = FIRST_ADDRESS;
    const [a, b, o, w, numbers, scratch] = sizes.map((size) => {
      const part = new Float32Array(memory.buffer, start, size);
      start += 4 * size;
      return part;
    });
    Object.assign(this, { exports, a, b, o, w, numbers, scratch });
  }

  /** Call f(copyOut) with scratch memory for its arrays; `copyOut` copies one that f made, so that it outlives f. */
  inScratch(f) {
    const [used, isActive] = [this.#used, this.#isActive];
    const start = this.scratch.byteOffset + 4 * used; // what f allocates is after this address
    const isFromF = (x) => x instanceof Nd && this.#isInMemory(x.data) && x.data.byteOffset >= start;
    this.#isActive = true;
    try {
      return f((x) => (isFromF(x) ? copyOf(x) : x));
    } finally {
      [this.#used, this.#isActive] = [used, isActive];
    }
  }

  /** Memory for numbers in scratch memory; null if that isn't in use or has no room. */
  allocate(count) {
    const end = this.#used + ((count + 3) & ~3); // functions of rows write four numbers at a time
    if (!this.#isActive || end > SCRATCH) return null;
    const allocated = this.scratch.subarray(this.#used, this.#used + count);
    this.#used = end;
    return allocated;
  }

  #isInMemory = (data) => data.buffer === this.scratch.buffer;

  /** Write the product of x (n, m) at i and y (m, p) at j to `out` from `at`. Return false if it isn't supported. */
  product(x, i, y, j, out, at, [n, m, p]) {
    if (n * m * p < MIN_PRODUCTS || m > CAPACITY.a || p > CAPACITY.o) return false;
    const [xDown, xAcross] = x.strides.slice(-2); // from row to row, and from column to column
    const [yDown, yAcross] = y.strides.slice(-2);
    const isByRows = yAcross === 1;
    const isInMemory = this.#isInMemory(y.data);
    const [lines, width, stride] = isByRows ? [m, p, yDown] : [p, m, yAcross]; // contiguous rows or columns of y
    if ((!isByRows && yDown !== 1) || ![x, y, { data: out }].every(({ data }) => data instanceof Float32Array))
      return false;
    if (!isInMemory && m * p > CAPACITY.b) return false;
    if (!isInMemory)
      for (let line = 0; line < lines; line++) {
        const first = j + line * stride;
        this.b.set(y.data.subarray(first, first + width), line * width);
      }
    const [b, bStride] = isInMemory ? [y.data.byteOffset + 4 * j, stride] : [this.b.byteOffset, width];
    // Whether x is read and `out` written where they are, without copies.
    const isDirect = xAcross === 1 && this.#isInMemory(x.data) && this.#isInMemory(out);
    const batch = isDirect ? n : Math.max(1, Math.floor(Math.min(MAX_COPIED / m, CAPACITY.o / p)));
    for (let start = 0; start < n; start += batch) {
      const count = Math.min(batch, n - start);
      let [a, o, aStride] = [x.data.byteOffset + 4 * i, out.byteOffset + 4 * at, xDown];
      if (!isDirect) {
        [a, o, aStride] = [this.a.byteOffset, this.o.byteOffset, m];
        for (let row = 0; row < count; row++) {
          const first = i + (start + row) * xDown;
          if (xAcross === 1) this.a.set(x.data.subarray(first, first + m), row * m);
          else for (let k = 0; k < m; k++) this.a[row * m + k] = x.data[first + k * xAcross];
        }
      }
      if (n === 1) this.exports[isByRows ? "rowByRows" : "rowByColumns"](a, b, o, m, p, bStride);
      else
        this.exports.product(
          a, b, o, count, m, p, aStride,
          ...(isByRows ? [bStride, 1] : [1, bStride]),
          this.w.byteOffset,
        );
      if (!isDirect) out.set(this.o.subarray(0, count * p), at + start * p);
    }
    return true;
  }

  /** Compute an elementwise function of up to three arrays. Return false if it isn't supported. */
  elementwise(name, out, shape, arrays) {
    const f = this.exports[name];
    const isSupported = ({ data, strides }) => // the last axis repeats one number, or its numbers are adjacent
      strides.at(-1) === 0 || (strides.at(-1) === 1 && !(data instanceof Float64Array));
    if (!f || shape.at(-1) < MIN_IN_ROW || !(out instanceof Float32Array) || !arrays.every(isSupported)) return false;
    const buffers = [this.a, this.b, this.o];
    const addresses = buffers.map(({ byteOffset }) => byteOffset);
    const isDirect = arrays.map(
      ({ data, strides }) => strides.at(-1) === 1 && data instanceof Float32Array && this.#isInMemory(data),
    );
    // Functions write four numbers at a time, so a row's last ones may reach into the next row, which is still needed.
    const isOutDirect = this.#isInMemory(out) && (shape.at(-1) % 4 === 0 || shape.at(-1) === out.length);
    const last = [NaN, NaN, NaN]; // the repeated number that each buffer is filled with, to fill it only once
    forEachRow(shape, arrays, (at, starts, width, steps) => {
      for (let done = 0; done < width; done += BLOCK) {
        const count = Math.min(BLOCK, width - done);
        for (let k = 0; k < arrays.length; k++) {
          const { data } = arrays[k];
          const from = starts[k] + done;
          if (isDirect[k]) addresses[k] = data.byteOffset + 4 * from;
          else if (steps[k]) buffers[k].set(data.subarray(from, from + count));
          else if (last[k] !== data[starts[k]]) {
            last[k] = data[starts[k]];
            buffers[k].fill(last[k], 0, Math.min(BLOCK, width));
          }
        }
        f(...addresses, isOutDirect ? out.byteOffset + 4 * (at + done) : this.w.byteOffset, count);
        if (!isOutDirect) out.set(this.w.subarray(0, count), at + done);
      }
    });
    return true;
  }
}
