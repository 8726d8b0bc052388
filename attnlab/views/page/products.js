// Matrix products and elementwise functions of float32 arrays in WebAssembly, see product.ts. A model's
// parameters are in its memory; other arrays are copied there.

const ROOM = { a: 2 ** 20, b: 2 ** 21, o: 2 ** 20, w: 2 ** 20 }; // how many numbers each buffer holds
const ROWS_AT_ONCE = 2 ** 17; // numbers of the first matrix that a processor's cache holds
const MIN_PRODUCTS = 2 ** 12; // multiplications; below this, copying the matrices isn't worth it
const MIN_IN_ROW = 32; // numbers of a row; likewise
const AT_ONCE = 2 ** 12; // numbers that fit in the L1 cache

class Products {
  /** An instance with memory for this many more numbers; null without WebAssembly. */
  static of(count) {
    try {
      return new Products(count);
    } catch {
      return null;
    }
  }

  constructor(count) {
    const room = 1024 + 4 * (ROOM.a + ROOM.b + ROOM.o + ROOM.w);
    const memory = new WebAssembly.Memory({ initial: Math.ceil((room + 4 * count) / 2 ** 16) });
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytesOf(PRODUCT)), { env: { memory, abort() {} } });
    const part = (start, length) => new Float32Array(memory.buffer, start, length);
    const a = part(1024, ROOM.a);
    const b = part(a.byteOffset + a.byteLength, ROOM.b);
    const o = part(b.byteOffset + b.byteLength, ROOM.o);
    const w = part(o.byteOffset + o.byteLength, ROOM.w);
    Object.assign(this, { exports, a, b, o, w, numbers: part(room, count) });
  }

  /** Like `byRows` and `byColumns`; returns false if the matrices aren't supported. */
  product(x, i, y, j, out, at, [n, m, p]) {
    if (n * m * p < MIN_PRODUCTS || 8 * m > ROOM.w || 4 * p > ROOM.o) return false;
    const [next, step] = y.strides.slice(-2);
    const isInMemory = y.data.buffer === this.b.buffer;
    const [lines, width, stride] = step === 1 ? [m, p, next] : [p, m, step];
    if ((step !== 1 && next !== 1) || ![x, y, { data: out }].every(({ data }) => data instanceof Float32Array)) return false;
    if (!isInMemory && m * p > ROOM.b) return false;
    if (!isInMemory)
      for (let line = 0; line < lines; line++) {
        const from = j + line * stride;
        this.b.set(y.data.subarray(from, from + width), line * width);
      }
    const [from, apart] = isInMemory ? [y.data.byteOffset + 4 * j, stride] : [this.b.byteOffset, width];
    const [down, across] = x.strides.slice(-2);
    if (n === 1) {
      for (let k = 0; k < m; k++) this.a[k] = x.data[i + k * across];
      this.exports[step === 1 ? "rowByRows" : "rowByColumns"](this.a.byteOffset, from, this.o.byteOffset, m, p, apart);
      out.set(this.o.subarray(0, p), at);
      return true;
    }
    const batch = Math.max(4, 4 * Math.floor(Math.min(ROWS_AT_ONCE / m, ROOM.o / p) / 4));
    for (let start = 0; start < n; start += batch) {
      const count = Math.min(batch, n - start);
      const whole = (count + 3) & ~3;
      for (let row = 0; row < whole; row++) {
        const [at, to] = [i + (start + row) * down, row * m];
        if (row >= count) this.a.fill(0, to, to + m);
        else if (across === 1) this.a.set(x.data.subarray(at, at + m), to);
        else for (let k = 0; k < m; k++) this.a[to + k] = x.data[at + k * across];
      }
      const strides = step === 1 ? [apart, 1] : [1, apart];
      this.exports.product(this.a.byteOffset, from, this.o.byteOffset, whole, m, p, ...strides, this.w.byteOffset);
      out.set(this.o.subarray(0, count * p), at + start * p);
    }
    return true;
  }

  /** Compute an elementwise function of up to three arrays; returns false if it isn't supported. */
  elementwise(name, out, shape, arrays) {
    const f = this.exports[name];
    const isSupported = ({ data, strides }) => strides.at(-1) === 0 || (strides.at(-1) === 1 && !(data instanceof Float64Array));
    if (!f || shape.at(-1) < MIN_IN_ROW || !(out instanceof Float32Array) || !arrays.every(isSupported)) return false;
    const places = [this.a, this.b, this.w];
    const last = [NaN, NaN, NaN]; // the number that a place is filled with
    forEachRow(shape, arrays, (at, starts, width, steps) => {
      for (let done = 0; done < width; done += AT_ONCE) {
        const count = Math.min(AT_ONCE, width - done);
        for (let k = 0; k < arrays.length; k++) {
          const { data } = arrays[k];
          const from = starts[k] + done;
          if (steps[k]) places[k].set(data.subarray(from, from + count));
          else if (last[k] !== data[starts[k]]) places[k].fill((last[k] = data[starts[k]]), 0, Math.min(AT_ONCE, width));
        }
        f(...places.map(({ byteOffset }) => byteOffset), this.o.byteOffset, count);
        out.set(this.o.subarray(0, count), at + done);
      }
    });
    return true;
  }

  /** Reduce rows, by `sum` or `max`; returns false if the array isn't supported. */
  reduce(name, out, { shape, strides, data, offset }) {
    const width = shape.at(-1);
    const isDense = stridesOf(shape).every((stride, k) => shape[k] === 1 || stride === strides[k]);
    if (width < MIN_IN_ROW || width > ROOM.a || !isDense || !(data instanceof Float32Array)) return false;
    const most = Math.max(1, Math.floor(AT_ONCE / width));
    for (let row = 0; row < out.length; row += most) {
      const count = Math.min(most, out.length - row);
      const from = offset + row * width;
      this.a.set(data.subarray(from, from + count * width));
      this.exports[name](this.a.byteOffset, this.o.byteOffset, count, width);
      out.set(this.o.subarray(0, count), row);
    }
    return true;
  }
}
