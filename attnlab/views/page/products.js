// Matrix products of float32 arrays in WebAssembly, see product.ts. A model's parameters are in its
// memory; other matrices are copied there.

const ROOM = { a: 2 ** 20, b: 2 ** 21, o: 2 ** 20, w: 2 ** 20 }; // numbers of each matrix at a time
const ROWS_AT_ONCE = 2 ** 17; // numbers of the first matrix that a processor's cache holds
const FEW = 2 ** 12; // multiplications that are not worth the way

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
    const w = o.byteOffset + o.byteLength;
    Object.assign(this, { exports, a, b, o, w, numbers: part(room, count) });
  }

  /** Like `byRows` and `byColumns`; returns false if the matrices aren't supported. */
  product(x, i, y, j, made, at, [n, m, p]) {
    if (n * m * p < FEW || 8 * m > ROOM.w || 4 * p > ROOM.o) return false;
    const [next, step] = y.strides.slice(-2);
    const [name, stride] = step === 1 ? ["byRows", next] : ["byColumns", step];
    const isHere = y.data.buffer === this.b.buffer;
    const [lines, width] = step === 1 ? [m, p] : [p, m];
    if ((step !== 1 && next !== 1) || ![x, y, { data: made }].every(({ data }) => data instanceof Float32Array)) return false;
    if (!isHere && m * p > ROOM.b) return false;
    if (!isHere)
      for (let line = 0; line < lines; line++) {
        const from = j + line * stride;
        this.b.set(y.data.subarray(from, from + width), line * width);
      }
    const matrix = isHere ? [y.data.byteOffset + 4 * j, stride] : [this.b.byteOffset, width];
    const [down, across] = x.strides.slice(-2);
    if (n === 1) {
      for (let k = 0; k < m; k++) this.a[k] = x.data[i + k * across];
      this.exports[step === 1 ? "rowByRows" : "rowByColumns"](this.a.byteOffset, matrix[0], this.o.byteOffset, m, p, matrix[1]);
      made.set(this.o.subarray(0, p), at);
      return true;
    }
    const most = Math.max(4, 4 * Math.floor(Math.min(ROWS_AT_ONCE / m, ROOM.o / p) / 4));
    for (let start = 0; start < n; start += most) {
      const count = Math.min(most, n - start);
      const whole = (count + 3) & ~3;
      for (let row = 0; row < whole; row++) {
        const [from, to] = [i + (start + row) * down, row * m];
        if (row >= count) this.a.fill(0, to, to + m);
        else if (across === 1) this.a.set(x.data.subarray(from, from + m), to);
        else for (let k = 0; k < m; k++) this.a[to + k] = x.data[from + k * across];
      }
      this.exports[name](this.a.byteOffset, matrix[0], this.o.byteOffset, whole, m, p, matrix[1], this.w);
      made.set(this.o.subarray(0, count * p), at + start * p);
    }
    return true;
  }
}
