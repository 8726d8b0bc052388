// Matrix products and elementwise functions in WebAssembly, in AssemblyScript. Compiled beside it by
// assemblyscript 0.28.20, once with fused multiplication and addition, and once for browsers without it:
//   npx asc product.ts -O3 --runtime stub --enable simd --enable relaxed-simd --importMemory --noAssert \
//     -o product_fused.wasm
//   npx asc product.ts -O3 --runtime stub --enable simd --importMemory --noAssert -o product.wasm
//
// Addresses are in bytes, strides in numbers. `<< 2` turns numbers into bytes.

/** c + x · y. */
// @ts-ignore: decorator
@inline
function multiplyAdd(c: v128, x: v128, y: v128): v128 {
  return ASC_FEATURE_RELAXED_SIMD ? f32x4.relaxed_madd(x, y, c) : f32x4.add(c, f32x4.mul(x, y));
}

// Sizes for the caches: ROWS x DEPTH numbers of A fit in L2, eight columns of B with DEPTH numbers in L1.
const DEPTH: i32 = 384;
const ROWS: i32 = 320;

/**
 * O (n, p) = A (n, m) B (m, p). A's rows are `stride` apart, B's rows `down` and its columns `across`; O is
 * contiguous. w: memory for 8 DEPTH numbers.
 */
export function product(
  a: usize, b: usize, o: usize, n: i32, m: i32, p: i32, stride: i32, down: i32, across: i32, w: usize,
): void {
  const next = <usize>down << 2;
  for (let k = 0; k < m; k += DEPTH) {
    const depth = min(DEPTH, m - k);
    for (let i = 0; i < n; i += ROWS)
      addProduct(
        a + ((<usize>i * stride + k) << 2), b + <usize>k * next, o + ((<usize>i * p) << 2),
        min(ROWS, n - i), depth, p, stride, down, across, w, k === 0,
      );
  }
}

/** Add a product to O, or write it to O if it is the first. */
function addProduct(
  a: usize, b: usize, o: usize, n: i32, m: i32, p: i32, stride: i32, down: i32, across: i32, w: usize, isFirst: bool,
): void {
  // Bytes from a row or column to the next: B's rows, B's columns, A's rows, O's rows.
  const next = <usize>down << 2;
  const step = <usize>across << 2;
  const s = <usize>stride << 2;
  const u = <usize>p << 2;
  const zero = f32x4.splat(0);
  let j = 0;
  for (; j + 8 <= p; j += 8) {
    // Copy eight columns of B to w, side by side.
    const end = w + (<usize>m << 5);
    if (across === 1)
      for (let t = w, q = b + (<usize>j << 2); t < end; t += 32, q += next) {
        v128.store(t, v128.load(q)), v128.store(t, v128.load(q, 16), 16);
      }
    else
      for (let column: usize = 0; column < 8; column++)
        for (let t = w + (column << 2), q = b + (<usize>j + column) * step; t < end; t += 32, q += next)
          store<f32>(t, load<f32>(q));
    for (let i = 0; i < n; i += 4) {
      // Four rows of A at a time; the last row again instead of missing ones.
      const i1 = <usize>min(i + 1, n - 1), i2 = <usize>min(i + 2, n - 1), i3 = <usize>min(i + 3, n - 1);
      const t0 = o + <usize>i * u + (<usize>j << 2);
      const t1 = o + i1 * u + (<usize>j << 2);
      const t2 = o + i2 * u + (<usize>j << 2);
      const t3 = o + i3 * u + (<usize>j << 2);
      let c00 = zero, c01 = zero, c10 = zero, c11 = zero, c20 = zero, c21 = zero, c30 = zero, c31 = zero;
      if (!isFirst) {
        c00 = v128.load(t0), c01 = v128.load(t0, 16);
        c10 = v128.load(t1), c11 = v128.load(t1, 16);
        c20 = v128.load(t2), c21 = v128.load(t2, 16);
        c30 = v128.load(t3), c31 = v128.load(t3, 16);
      }
      let r0 = a + <usize>i * s, r1 = a + i1 * s, r2 = a + i2 * s, r3 = a + i3 * s;
      // V8 keeps all eight sums in registers; with more of them, or two steps at a time, it is slower.
      for (let q = w; q < end; q += 32) {
        const b0 = v128.load(q), b1 = v128.load(q, 16);
        let x = v128.load32_splat(r0);
        c00 = multiplyAdd(c00, x, b0);
        c01 = multiplyAdd(c01, x, b1);
        x = v128.load32_splat(r1);
        c10 = multiplyAdd(c10, x, b0);
        c11 = multiplyAdd(c11, x, b1);
        x = v128.load32_splat(r2);
        c20 = multiplyAdd(c20, x, b0);
        c21 = multiplyAdd(c21, x, b1);
        x = v128.load32_splat(r3);
        c30 = multiplyAdd(c30, x, b0);
        c31 = multiplyAdd(c31, x, b1);
        r0 += 4, r1 += 4, r2 += 4, r3 += 4;
      }
      v128.store(t0, c00), v128.store(t0, c01, 16);
      v128.store(t1, c10), v128.store(t1, c11, 16);
      v128.store(t2, c20), v128.store(t2, c21, 16);
      v128.store(t3, c30), v128.store(t3, c31, 16);
    }
  }
  // The last columns, fewer than eight.
  for (; j < p; j++) {
    for (let i = 0; i < n; i++) {
      const t = o + <usize>i * u + (<usize>j << 2);
      let sum: f32 = isFirst ? 0 : load<f32>(t);
      for (let k = 0; k < m; k++)
        sum += load<f32>(a + <usize>i * s + (<usize>k << 2)) * load<f32>(b + <usize>k * next + <usize>j * step);
      store<f32>(t, sum);
    }
  }
}

/** O (p,) = A (m,) B (m, p). B's rows are contiguous, and `stride` apart; it is read once, in order. */
export function rowByRows(a: usize, b: usize, o: usize, m: i32, p: i32, stride: i32): void {
  const next = <usize>stride << 2;
  const end = o + (<usize>(p & ~3) << 2);
  memory.fill(o, 0, <usize>p << 2);
  for (let k = 0; k < m; k += 4) {
    // Four rows of B at a time. If fewer are left, the first of these stands for each missing one, times 0.
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
      let c = multiplyAdd(v128.load(t), y0, v128.load(q0));
      c = multiplyAdd(c, y1, v128.load(q1));
      c = multiplyAdd(c, y2, v128.load(q2));
      v128.store(t, multiplyAdd(c, y3, v128.load(q3)));
    }
    for (const last = o + (<usize>p << 2); t < last; t += 4, q0 += 4, q1 += 4, q2 += 4, q3 += 4)
      store<f32>(t, load<f32>(t) + x0 * load<f32>(q0) + x1 * load<f32>(q1) + x2 * load<f32>(q2) + x3 * load<f32>(q3));
  }
}

/** The sum of four numbers. */
function total(x: v128): f32 {
  return f32x4.extract_lane(x, 0) + f32x4.extract_lane(x, 1) + (f32x4.extract_lane(x, 2) + f32x4.extract_lane(x, 3));
}

/** O (p,) = A (m,) B (m, p). B's columns are contiguous, and `stride` apart. */
export function rowByColumns(a: usize, b: usize, o: usize, m: i32, p: i32, stride: i32): void {
  const next = <usize>stride << 2;
  const s = <usize>m << 2;
  const end = <usize>(m & ~7) << 2;
  for (let j = 0; j < p; j++, b += next, o += 4) {
    let c0 = f32x4.splat(0), c1 = c0;
    let k: usize = 0;
    for (; k < end; k += 32) {
      c0 = multiplyAdd(c0, v128.load(a + k), v128.load(b + k));
      c1 = multiplyAdd(c1, v128.load(a + k, 16), v128.load(b + k, 16));
    }
    let sum = total(f32x4.add(c0, c1));
    for (; k < s; k += 4) sum += load<f32>(a + k) * load<f32>(b + k);
    store<f32>(o, sum);
  }
}

// ---- rows of numbers ------------------------------------------------------------------------------
//
// Read n numbers from each operand, at x, y and z, and write n to o; functions of one or two operands ignore the
// others. n is rounded up to a multiple of 4.

export function add(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, y += 16, o += 16)
    v128.store(o, f32x4.add(v128.load(x), v128.load(y)));
}

export function subtract(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, y += 16, o += 16)
    v128.store(o, f32x4.sub(v128.load(x), v128.load(y)));
}

export function multiply(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, y += 16, o += 16)
    v128.store(o, f32x4.mul(v128.load(x), v128.load(y)));
}

export function divide(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, y += 16, o += 16)
    v128.store(o, f32x4.div(v128.load(x), v128.load(y)));
}

export function square(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  multiply(x, x, z, o, n);
}

export function where(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, y += 16, z += 16, o += 16) {
    const condition = f32x4.ne(v128.load(x), f32x4.splat(0));
    v128.store(o, v128.bitselect(v128.load(y), v128.load(z), condition));
  }
}

const LOG2_E: f32 = 1.4426950408889634;
const LN_2_HIGH: f32 = 0.693359375; // in 9 bits, so that its multiples are exact
const LN_2_LOW: f32 = -2.12194440054690583e-4;

/** n, so that x is near n ln 2: x / ln 2 rounded to an integer. */
// @ts-ignore: decorator
@inline
function multiplesOfLn2(x: v128): v128 {
  return f32x4.nearest(f32x4.mul(x, f32x4.splat(LOG2_E)));
}

/** exp(r) - 1 for r = x - n ln 2, at most ln 2 / 2 in absolute value: the Taylor polynomial of degree 7. */
// @ts-ignore: decorator
@inline
function expm1(x: v128, n: v128): v128 {
  const r = f32x4.sub(f32x4.sub(x, f32x4.mul(n, f32x4.splat(LN_2_HIGH))), f32x4.mul(n, f32x4.splat(LN_2_LOW)));
  let sum = f32x4.splat(1.0 / 5040);
  sum = multiplyAdd(f32x4.splat(1.0 / 720), sum, r);
  sum = multiplyAdd(f32x4.splat(1.0 / 120), sum, r);
  sum = multiplyAdd(f32x4.splat(1.0 / 24), sum, r);
  sum = multiplyAdd(f32x4.splat(1.0 / 6), sum, r);
  sum = multiplyAdd(f32x4.splat(0.5), sum, r);
  return multiplyAdd(r, f32x4.mul(r, r), sum);
}

/** 2 to the power n, for integers n from -126 to 127. */
// @ts-ignore: decorator
@inline
function powerOfTwo(n: v128): v128 {
  return i32x4.shl(i32x4.add(n, i32x4.splat(127)), 23);
}

export function exp(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, o += 16) {
    const value = v128.load(x);
    const clamped = f32x4.min(f32x4.max(value, f32x4.splat(-87)), f32x4.splat(89)); // exp(89) overflows
    const count = multiplesOfLn2(clamped);
    const exponent = i32x4.trunc_sat_f32x4_s(count);
    const half = i32x4.shr_s(exponent, 1); // two factors, since 2 ** 128 overflows
    const result = f32x4.mul(f32x4.add(f32x4.splat(1), expm1(clamped, count)), powerOfTwo(half));
    const isTiny = f32x4.lt(value, f32x4.splat(-87)); // 0 instead of subnormal numbers, which are slow
    v128.store(o, v128.andnot(f32x4.mul(result, powerOfTwo(i32x4.sub(exponent, half))), isTiny));
  }
}

/** tanh |x| = m / (2 - m) with m = 1 - exp(-2|x|); the result gets the sign of x. */
export function tanh(x: usize, y: usize, z: usize, o: usize, n: i32): void {
  for (const end = x + (<usize>n << 2); x < end; x += 16, o += 16) {
    const value = v128.load(x);
    const clamped = f32x4.max(f32x4.mul(f32x4.splat(-2), f32x4.abs(value)), f32x4.splat(-40)); // tanh is ±1 beyond
    const count = multiplesOfLn2(clamped);
    const scale = powerOfTwo(i32x4.trunc_sat_f32x4_s(count));
    const m = f32x4.sub(f32x4.sub(f32x4.splat(1), scale), f32x4.mul(scale, expm1(clamped, count)));
    const result = f32x4.div(m, f32x4.sub(f32x4.splat(2), m));
    v128.store(o, v128.bitselect(value, result, f32x4.splat(-0.0)));
  }
}
