import assert from "node:assert/strict";
import test from "node:test";

import { countOfParts, readPart, sumInRows } from "../scripts/numbers/pairs.js";

test("parts are in the order of the stream", () => {
  const names = Array.from({ length: countOfParts(2, 2) + 1 }, (_, n) => Object.values(readPart(n, 2, 2)).join(" "));
  const blocks = [0, 1].flatMap((n) => [`head ${n} 0`, `head ${n} 1`, `b_O ${n}`, `mlp ${n}`]);
  assert.deepEqual(names, ["token", "position", ...blocks, "norm", "bias", "cached"]);
});

// Two queries from 3 on, which see the keys 1 and 4, and 1, 2 and 4; the first one's sum was edited. The second one compares
// 4 with 1, and 1 with 2.
const PAIRS = [0, 2, ...[5, 7], ...[6, 8], ...[1, -4, 3, 2, 0.5, -2.5], ...[0.75, 0.5, 0.25]];
const BOUNDS_END = PAIRS.length;
const ROWS = Float32Array.from([...PAIRS, ...[2, 0, 1], ...[7, 5, 5, 9, 5], ...[8, 6, 6, 9, 6], ...[2, -4, 3, -0.75, 5]]);
const SEEN = { 3: [1, 4], 4: [1, 2, 4] };
const sum = (query, key, other) => sumInRows(ROWS, 3, (i) => SEEN[i], { query, key, other });

test("a file's pairs are given where they are the largest", () => {
  assert.deepEqual(sum(3, 1, null), []);
  assert.deepEqual(sum(4, 1, null), [[7, 8, 2], [5, 6, 1]]);
  assert.deepEqual(sum(4, 2, null), [[5, 6, -4], [7, 8, 0.5]]);
  assert.deepEqual(sum(4, 1, 2), [[5, 6, 5], [7, 8, 1.5]]);
  assert.deepEqual(sum(4, 2, 1), [[5, 6, -5], [7, 8, -1.5]]);
});

test("a pair that another may exceed isn't given", () => {
  const sumOf = (rows, key, other) => sumInRows(rows, 3, (i) => SEEN[i], { query: 4, key, other });
  const rows = ROWS.with(BOUNDS_END - 1, 2.75);
  assert.deepEqual(sumOf(rows, 4, null), [[5, 6, 3]]);
  assert.equal(sumOf(rows.with(BOUNDS_END - 1, 9), 4, 2), null);
});

test("the leading pair is given where a file has it", () => {
  const rows = ROWS.with(BOUNDS_END - 1, 9);
  const sumOf = (key, other) => sumInRows(rows, 3, (i) => SEEN[i], { query: 4, key, other });
  assert.deepEqual(sumOf(4, null), [[5, 6, 3]]);
  assert.deepEqual(sumOf(4, 1), [[9, 9, -0.75]]);
  assert.deepEqual(sumOf(1, 4), [[9, 9, 0.75]]);
  assert.equal(sumOf(4, 2), null);
});
