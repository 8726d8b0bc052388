// Matrix products in WebAssembly, four rows at a time, in AssemblyScript. Compiled beside it by
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

/** B (m, p) has its rows in one piece, `stride` apart: eight columns at a time, side by side at w. */
export function byRows(a: usize, b: usize, o: usize, n: i32, m: i32, p: i32, stride: i32, w: usize): void {
  const next = <usize>stride << 2;
  const s = <usize>m << 2;
  const u = <usize>p << 2;
  let j = 0;
  for (; j + 8 <= p; j += 8) {
    for (let k: usize = 0, q = b + (<usize>j << 2); k < <usize>m << 5; k += 32, q += next) {
      v128.store(w + k, v128.load(q)), v128.store(w + k, v128.load(q, 16), 16);
    }
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
      for (let k = 0; k < m; k++) sum += load<f32>(a + <usize>i * s + (<usize>k << 2)) * load<f32>(b + <usize>k * next + (<usize>j << 2));
      store<f32>(o + <usize>i * u + (<usize>j << 2), sum);
    }
  }
}

function total(x: v128): f32 {
  return f32x4.extract_lane(x, 0) + f32x4.extract_lane(x, 1) + (f32x4.extract_lane(x, 2) + f32x4.extract_lane(x, 3));
}

/** B (m, p) has its columns in one piece, `stride` apart: two columns at a time. */
export function byColumns(a: usize, b: usize, o: usize, n: i32, m: i32, p: i32, stride: i32, w: usize): void {
  const next = <usize>stride << 2;
  const s = <usize>m << 2;
  const u = <usize>p << 2;
  const whole = m & ~3;
  for (let j = 0; j < p; j += 2) {
    const d = b + <usize>j * next;
    const e = j + 1 < p ? d + next : d; // of an odd last column: itself again
    for (let i = 0; i < n; i += 4) {
      let c00 = f32x4.splat(0), c01 = c00, c10 = c00, c11 = c00;
      let c20 = c00, c21 = c00, c30 = c00, c31 = c00;
      const r = a + <usize>i * s;
      let k: usize = 0;
      for (const end = <usize>whole << 2; k < end; k += 16) {
        const b0 = v128.load(d + k), b1 = v128.load(e + k);
        let x = v128.load(r + k);
        c00 = added(c00, x, b0);
        c01 = added(c01, x, b1);
        x = v128.load(r + s + k);
        c10 = added(c10, x, b0);
        c11 = added(c11, x, b1);
        x = v128.load(r + 2 * s + k);
        c20 = added(c20, x, b0);
        c21 = added(c21, x, b1);
        x = v128.load(r + 3 * s + k);
        c30 = added(c30, x, b0);
        c31 = added(c31, x, b1);
      }
      let s00 = total(c00), s01 = total(c01), s10 = total(c10), s11 = total(c11);
      let s20 = total(c20), s21 = total(c21), s30 = total(c30), s31 = total(c31);
      for (; k < s; k += 4) {
        const y = load<f32>(d + k), z = load<f32>(e + k);
        let x = load<f32>(r + k);
        s00 += x * y, s01 += x * z;
        x = load<f32>(r + s + k);
        s10 += x * y, s11 += x * z;
        x = load<f32>(r + 2 * s + k);
        s20 += x * y, s21 += x * z;
        x = load<f32>(r + 3 * s + k);
        s30 += x * y, s31 += x * z;
      }
      const t = o + <usize>i * u + (<usize>j << 2);
      store<f32>(t, s00), store<f32>(t + u, s10), store<f32>(t + 2 * u, s20), store<f32>(t + 3 * u, s30);
      if (j + 1 < p) {
        store<f32>(t, s01, 4), store<f32>(t + u, s11, 4), store<f32>(t + 2 * u, s21, 4), store<f32>(t + 3 * u, s31, 4);
      }
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
