// Where attention goes, as attnlab/support/sink.py defines it: some rests on the first token, and the rest is compared
// with uniform attention.

import { Nd } from "./arrays.js";
import { NOTABLE, RESTING, UNIFORM } from "./constants.js";
import { equations } from "./equations.js";

/**
 * Where a query's attention goes, for each row of weights, such as one per head: {rest, excess, visible, key, kind},
 * see `Attended` in rest.py; visible: the visible keys without the first token. isVisible(n, j): whether row n's mask
 * leaves key j visible.
 */
export function attendedIn(rows, isVisible, isFirst = false) {
  const width = rows[0].length;
  const matrixOf = (f) => new Nd(Float64Array.from({ length: rows.length * width }, (_, n) => f(Math.floor(n / width), n % width)), [rows.length, width]);
  const others = matrixOf((n, j) => Number(j > 0 && isVisible(n, j)));
  const excesses = equations.excess(matrixOf((n, j) => rows[n][j]), others).numbers();
  return rows.map((weights, n) => {
    const excess = excesses.subarray(n * width, (n + 1) * width);
    const visible = [...weights.keys()].filter((j) => others.data[n * width + j]);
    const key = visible.reduce((best, j) => (best === undefined || weights[j] > weights[best] ? j : best), undefined);
    const rest = isFirst ? 0 : weights[0];
    return { rest, excess, visible, key, kind: isFirst ? "alone" : kindOf(rest, excess, visible) };
  });
}

function kindOf(rest, excess, visible) {
  if (rest >= RESTING || !visible.length) return "rests";
  const largest = Math.max(...excess);
  if (largest >= NOTABLE || visible.length === 1) return "looks";
  return largest < UNIFORM ? "uniform" : "spreads";
}
