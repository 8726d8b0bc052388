// The chain from Q, K and V to the context vectors, as attnlab/equations.py has it, but for steps that
// are edited. Numbers go in, numbers come out; nothing here draws. Sums are made in float64, from
// float32 Q, K and V.

/** A mask of T x Tk bits, row after row, as bytes of 0 and 1. */
function unpackedMask(base64, size) {
  const packed = bytesOf(base64);
  return Uint8Array.from({ length: size }, (_, n) => (packed[n >> 3] >> (7 - (n & 7))) & 1);
}

/**
 * The heads of one layer.
 *
 * values: the pack "attention" of the layer.
 * mask: (T, Tk) of 0 and 1. scales: what each head's raw scores are divided by. edited: by head, the
 * names of the steps that are edited in it, which its `given` has then.
 */
function headsOf(values, mask, scales, edited, { H, T, Tk, Dh }) {
  const part = (start, rows, h) =>
    values.subarray(start + h * rows * Dh, start + (h + 1) * rows * Dh);
  let end = H * (T + 2 * Tk) * Dh;
  const next = (size) => values.subarray(end, (end += size));
  return scales.map((scale, h) => {
    const names = edited[h] ?? [];
    const given = Object.fromEntries(
      names
        .filter((name) => name !== "scale")
        .map((name) => [name, next(T * (name === "context" ? Dh : Tk))]),
    );
    return {
      T,
      Tk,
      Dh,
      mask: given.mask ?? mask,
      scale,
      given,
      edited: new Set(names),
      Q: part(0, T, h),
      K: part(H * T * Dh, Tk, h),
      V: part(H * (T + Tk) * Dh, Tk, h),
    };
  });
}

const added = (numbers) => numbers.reduce((sum, x) => sum + x, 0);

const isMasked = (head, i, j) => head.mask[i * head.Tk + j] === 0;

/** Whether there is a number after the mask: it lets one through, or an edit put one in cell n. */
function isSeen({ mask, given }, n) {
  const passes = given.masked_scores ? given.masked_scores[n] > -Infinity : mask[n] !== 0;
  return passes || (given.weights !== undefined && given.weights[n] !== 0);
}

/** One number of a step that is no softmax: query i, key j. */
const cellOf = (head, step, i, j) =>
  head.given[step] ? head.given[step][i * head.Tk + j] : CELL[step](head, i, j);

// What each step's equation makes of those before it.
const CELL = {
  raw_scores({ Q, K, Dh }, i, j) {
    let sum = 0;
    for (let d = 0, q = i * Dh, k = j * Dh; d < Dh; d++) sum += Q[q + d] * K[k + d];
    return sum;
  },
  scores: (head, i, j) => cellOf(head, "raw_scores", i, j) / head.scale,
  masked_scores: (head, i, j) =>
    isMasked(head, i, j) ? -Infinity : cellOf(head, "scores", i, j),
};

/** softmax of a row, and what it passes through: the largest value, exp(x - largest), the sum. */
function softmax(row) {
  let largest = -Infinity;
  for (const x of row) if (x > largest) largest = x;
  const exponentials = row.map((x) => Math.exp(x - largest));
  let sum = 0;
  for (const e of exponentials) sum += e;
  return { largest, exponentials, sum, weights: exponentials.map((e) => e / sum) };
}

/** Row i of a step, one number for each key. */
function stepRow(head, step, i) {
  if (step === "weights" && !head.given.weights)
    return softmax(stepRow(head, "masked_scores", i)).weights;
  const row = new Float64Array(head.Tk);
  for (let j = 0; j < head.Tk; j++) row[j] = cellOf(head, step, i, j);
  return row;
}

/** The row of the context that a row of weights makes, one number for each component. */
function contextRow({ V, Dh }, weights) {
  const context = new Float64Array(Dh);
  for (let j = 0; j < weights.length; j++) {
    for (let d = 0; d < Dh; d++) context[d] += weights[j] * V[j * Dh + d];
  }
  return context;
}
