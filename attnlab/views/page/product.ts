// Matrix products and elementwise functions in WebAssembly, in AssemblyScript. Compiled beside it by
// assemblyscript 0.28.20:
//   npx asc product.ts -O3 --runtime stub --enable simd --importMemory --noAssert -o product.wasm
//
// A (n, m) has its rows one after the other, n a multiple of 4; so has the result O (n, p). Addresses are
// in bytes, strides in numbers. At `w` there is room for 8 m numbers.

/** c + x · y. */
// @ts-ignore: decorator
@inline
function added(c: v128, x: v128, y: v128): v128 {
  return f32x4.add(c, f32x4.mul(x, y));
}

/** Eight columns of B (m, p) at a time, side by side at w; its rows are `down` apart, its columns `across`. */
export function product(a: usize, b: usize, o: usize, n: i32, m: i32, p: i32, down: i32, across: i32, w: usize): void {
  const next = <usize>down << 2;
  const step = <usize>across << 2;
  const s = <usize>m << 2;
  const u = <usize>p << 2;
  let j = 0;
  for (; j + 8 <= p; j += 8) {
    const end = w + (<usize>m << 5);
    if (across === 1)
      for (let t = w, q = b + (<usize>j << 2); t < end; t += 32, q += next) {
        v128.store(t, v128.load(q)), v128.store(t, v128.load(q, 16), 16);
      }
    else
      for (let column: usize = 0; column < 8; column++)
        for (let t = w + (column << 2), q = b + (<usize>j + column) * step; t < end; t += 32, q += next) store<f32>(t, load<f32>(q));
    for (let i = 0; i < n; i += 4) {
      let c00 = f32x4.splat(0), c01 = c00, c10 = c00, c11 = c00;
      let c20 = c00, c21 = c00, c30 = c00, c31 = c00;
      let q = w;
      let r = a + <usize>i * s;
      for (let k = 0; k < m; k++) {
        const b0 = v128.load(q), b1 = v128.load(q, 16);
        let x = v128.load32_splat(r);
        c00 = added(c00, x, b0);
        c01 = added(c01, x, b1);
        x = v128.load32_splat(r + s);
        c10 = added(c10, x, b0);
        c11 = added(c11, x, b1);
        x = v128.load32_splat(r + 2 * s);
        c20 = added(c20, x, b0);
        c21 = added(c21, x, b1);
        x = v128.load32_splat(r + 3 * s);
        c30 = added(c30, x, b0);
        c31 = added(c31, x, b1);
        q += 32;
        r += 4;
      }
      const t = o + <usize>i * u + (<usize>j << 2);
      v128.store(t, c00), v128.store(t, c01, 16);
      v128.store(t + u, c10), v128.store(t + u, c11, 16);
      v128.store(t + 2 * u, c20), v128.store(t + 2 * u, c21, 16);
      v128.store(t + 3 * u, c30), v128.store(t + 3 * u, c31, 16);
    }
  }
  for (; j < p; j++) {
    for (let i = 0; i < n; i++) {
      let sum: f32 = 0;
      for (let k = 0; k < m; k++) sum += load<f32>(a + <usize>i * s + (<usize>k << 2)) * load<f32>(b + <usize>k * next + <usize>j * step);
      store<f32>(o + <usize>i * u + (<usize>j << 2), sum);
    }
  }
}

/** One row: A (m,) times B (m, p) with its rows in one piece. B is read once, in order. */
export function rowByRows(a: usize, b: usize, o: usize, m: i32, p: i32, stride: i32): void {
  const next = <usize>stride << 2;
  const end = o + (<usize>(p & ~3) << 2);
  memory.fill(o, 0, <usize>p << 2);
  for (let k = 0; k < m; k += 4) {
    // Four rows at a time; beyond the last one, that one times 0.
    const r = a + (<usize>k << 2);
    const x0 = load<f32>(r);
    const x1: f32 = k + 1 < m ? load<f32>(r, 4) : 0;
    const x2: f32 = k + 2 < m ? load<f32>(r, 8) : 0;
    const x3: f32 = k + 3 < m ? load<f32>(r, 12) : 0;
    let q0 = b + <usize>k * next;
    let q1 = k + 1 < m ? q0 + next : q0;
    let q2 = k + 2 < m ? q1 + next : q0;
    let q3 = k + 3 < m ? q2 + next : q0;
    const y0 = f32x4.splat(x0), y1 = f32x4.splat(x1), y2 = f32x4.splat(x2), y3 = f32x4.splat(x3);
    let t = o;
    for (; t < end; t += 16, q0 += 16, q1 += 16, q2 += 16, q3 += 16) {
      let c = added(v128.load(t), y0, v128.load(q0));
      c = added(c, y1, v128.load(q1));
      c = added(c, y2, v128.load(q2));
      v128.store(t, added(c, y3, v128.load(q3)));
    }
    for (const last = o + (<usize>p << 2); t < last; t += 4, q0 += 4, q1 += 4, q2 += 4, q3 += 4)
      store<f32>(t, load<f32>(t) + x0 * load<f32>(q0) + x1 * load<f32>(q1) + x2 * load<f32>(q2) + x3 * load<f32>(q3));
  }
}

function total(x: v128): f32 {
  return f32x4.extract_lane(x, 0) + f32x4.extract_lane(x, 1) + (f32x4.extract_lane(x, 2) + f32x4.extract_lane(x, 3));
}

/** One row: A (m,) times B (m, p) with its columns in one piece, `stride` apart. */
export function rowByColumns(a: usize, b: usize, o: usize, m: i32, p: i32, stride: i32): void {
  const next = <usize>stride << 2;
  const s = <usize>m << 2;
  const whole = <usize>(m & ~7) << 2;
  for (let j = 0; j < p; j++, b += next, o += 4) {
    let c0 = f32x4.splat(0), c1 = c0;
    let k: usize = 0;
    for (; k < whole; k += 32) {
      c0 = added(c0, v128.load(a + k), v128.load(b + k));
      c1 = added(c1, v128.load(a + k, 16), v128.load(b + k, 16));
    }
    let sum = total(f32x4.add(c0, c1));
    for (; k < s; k += 4) sum += load<f32>(a + k) * load<f32>(b + k);
    store<f32>(o, sum);
  }
}

// ---- rows of numbers ------------------------------------------------------------------------------
//
// From n numbers at x, y and z to those at o. n is rounded up to a multiple of 4.

export function add(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, y += 16, o += 16) v128.store(o, f32x4.add(v128.load(x), v128.load(y)));
}

export function subtract(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, y += 16, o += 16) v128.store(o, f32x4.sub(v128.load(x), v128.load(y)));
}

export function multiply(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, y += 16, o += 16) v128.store(o, f32x4.mul(v128.load(x), v128.load(y)));
}

export function divide(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, y += 16, o += 16) v128.store(o, f32x4.div(v128.load(x), v128.load(y)));
}

export function square(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  multiply(x, x, z, o, n);
}

export function where(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, y += 16, z += 16, o += 16) {
    const chosen = f32x4.ne(v128.load(x), f32x4.splat(0));
    v128.store(o, v128.bitselect(v128.load(y), v128.load(z), chosen));
  }
}

const LOG2_E: f32 = 1.4426950408889634;
const LN_2: f32 = 0.693359375; // in 9 bits, so that its multiples are exact
const REST_OF_LN_2: f32 = -2.12194440054690583e-4;

/** The whole n nearest to x / ln 2. */
// @ts-ignore: decorator
@inline
function halvings(x: v128): v128 {
  return f32x4.nearest(f32x4.mul(x, f32x4.splat(LOG2_E)));
}

/** exp(r) - 1 of r = x - n ln 2, at most ln 2 / 2 from 0: its Taylor polynomial of degree 7. */
// @ts-ignore: decorator
@inline
function series(x: v128, n: v128): v128 {
  const r = f32x4.sub(f32x4.sub(x, f32x4.mul(n, f32x4.splat(LN_2))), f32x4.mul(n, f32x4.splat(REST_OF_LN_2)));
  let sum = f32x4.splat(1.0 / 5040);
  sum = added(f32x4.splat(1.0 / 720), sum, r);
  sum = added(f32x4.splat(1.0 / 120), sum, r);
  sum = added(f32x4.splat(1.0 / 24), sum, r);
  sum = added(f32x4.splat(1.0 / 6), sum, r);
  sum = added(f32x4.splat(0.5), sum, r);
  return added(r, f32x4.mul(r, r), sum);
}

/** 2 to the power n, for whole n from -126 to 127. */
// @ts-ignore: decorator
@inline
function power(n: v128): v128 {
  return i32x4.shl(i32x4.add(n, i32x4.splat(127)), 23);
}

export function exp(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, o += 16) {
    const value = v128.load(x);
    const within = f32x4.min(f32x4.max(value, f32x4.splat(-87)), f32x4.splat(89)); // infinity beyond
    const count = halvings(within);
    const whole = i32x4.trunc_sat_f32x4_s(count);
    const half = i32x4.shr_s(whole, 1); // in two factors, because 2 ** 128 is too large for one
    const result = f32x4.mul(f32x4.add(f32x4.splat(1), series(within, count)), power(half));
    const isTiny = f32x4.lt(value, f32x4.splat(-87)); // a number with fewer bits, which takes long, or 0
    v128.store(o, v128.andnot(f32x4.mul(result, power(i32x4.sub(whole, half))), isTiny));
  }
}

/** m / (2 - m) with m = 1 - exp(-2|x|), and the sign of x. */
export function tanh(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, o += 16) {
    const value = v128.load(x);
    const within = f32x4.max(f32x4.mul(f32x4.splat(-2), f32x4.abs(value)), f32x4.splat(-40)); // 1 beyond
    const count = halvings(within);
    const scale = power(i32x4.trunc_sat_f32x4_s(count));
    const m = f32x4.sub(f32x4.sub(f32x4.splat(1), scale), f32x4.mul(scale, series(within, count)));
    const result = f32x4.div(m, f32x4.sub(f32x4.splat(2), m));
    v128.store(o, v128.bitselect(value, result, f32x4.splat(-0.0)));
  }
}

/** The sums of rows at x, of `width` numbers each, accumulated in float64. */
export function sum(x: usize, o: usize, rows: i32, width: i32): void {
  for (let row = 0; row < rows; row++, o += 4) {
    let c0 = f64x2.splat(0), c1 = c0;
    let k = 0;
    for (; k + 4 <= width; k += 4, x += 16) {
      c0 = f64x2.add(c0, f64x2.promote_low_f32x4(v128.load64_zero(x)));
      c1 = f64x2.add(c1, f64x2.promote_low_f32x4(v128.load64_zero(x, 8)));
    }
    c0 = f64x2.add(c0, c1);
    let sum = f64x2.extract_lane(c0, 0) + f64x2.extract_lane(c0, 1);
    for (; k < width; k++, x += 4) sum += load<f32>(x);
    store<f32>(o, <f32>sum);
  }
}

/** The largest numbers of rows at x. */
export function max(x: usize, o: usize, rows: i32, width: i32): void {
  for (let row = 0; row < rows; row++, o += 4) {
    let c = f32x4.splat(-Infinity);
    let k = 0;
    for (; k + 4 <= width; k += 4, x += 16) c = f32x4.max(c, v128.load(x));
    let largest = Mathf.max(Mathf.max(f32x4.extract_lane(c, 0), f32x4.extract_lane(c, 1)), Mathf.max(f32x4.extract_lane(c, 2), f32x4.extract_lane(c, 3)));
    for (; k < width; k++, x += 4) largest = Mathf.max(largest, load<f32>(x));
    store<f32>(o, largest);
  }
}
