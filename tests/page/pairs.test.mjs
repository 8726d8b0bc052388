import assert from "node:assert/strict";
import test from "node:test";

import { countOfParts, largestPairsInFile, readPart } from "../scripts/numbers/pairs.js";

test("parts are in the order of the stream", () => {
  const names = Array.from({ length: countOfParts(2, 2) + 1 }, (_, n) => Object.values(readPart(n, 2, 2)).join(" "));
  const blocks = [0, 1].flatMap((n) => [`head ${n} 0`, `head ${n} 1`, `b_O ${n}`, `mlp ${n}`]);
  assert.deepEqual(names, ["token", "position", ...blocks, "norm", "bias", "cached"]);
});

// Two heads of a text of three tokens, queries from 1 on. Sums of the first head and of query 1 were edited. The other
// query compares key 2 with key 0, and 0 with 1.
const PAIRS = [0, 0, 0, 2, ...[5, 7], ...[6, 8], ...[1, -4, 3, 2, 0.5, -2.5], ...[0.75, 0.5, 0.25]];
const BOUNDS_END = PAIRS.length;
const LEADING = [...[7, 5, 5, 9, 5], ...[8, 6, 6, 9, 6], ...[2, -4, 3, -0.75, 5]];
const OPPOSING = [...[5, 7, 7, 4, 7], ...[6, 8, 8, 4, 8], ...[1, 0.5, -2.5, 0.5, 1.5]];
const ROWS = Float32Array.from([...PAIRS, ...[2, 0, 1], ...LEADING, ...OPPOSING]);
const KNOWN = { heads: [[0, 1], [1, 2]], first: 1 };
const pairsOf = (rows, key, other, query = 2, head = 2) =>
  largestPairsInFile(rows, KNOWN, { T: 3, Tk: 3 }, { layer: 1, head, query, key, other });

test("a file's pairs are given where they are the largest", () => {
  assert.deepEqual(pairsOf(ROWS, 0, null, 1), []);
  assert.equal(pairsOf(ROWS, 0, null, 0), null);
  assert.equal(pairsOf(ROWS, 0, null, 2, 1), null);
  assert.deepEqual(pairsOf(ROWS, 0, null), [[7, 8, 2], [5, 6, 1]]);
  assert.deepEqual(pairsOf(ROWS, 1, null), [[5, 6, -4], [7, 8, 0.5]]);
  assert.deepEqual(pairsOf(ROWS, 0, 1), [[5, 6, 5], [7, 8, 1.5]]);
  assert.deepEqual(pairsOf(ROWS, 1, 0), [[5, 6, -5], [7, 8, -1.5]]);
});

test("a pair that another may exceed isn't given", () => {
  assert.deepEqual(pairsOf(ROWS.with(BOUNDS_END - 3, 1.5), 0, null), [[7, 8, 2]]);
  assert.equal(pairsOf(ROWS.with(BOUNDS_END - 1, 9), 2, 1), null);
});

test("the largest pair of either sign is given where a file has it", () => {
  const rows = ROWS.with(BOUNDS_END - 1, 9);
  assert.deepEqual(pairsOf(rows, 2, null), [[5, 6, 3], [7, 8, -2.5]]);
  assert.deepEqual(pairsOf(rows, 2, 0), [[9, 9, -0.75], [4, 4, 0.5]]);
  assert.deepEqual(pairsOf(rows, 0, 2), [[9, 9, 0.75], [4, 4, -0.5]]);
  assert.equal(pairsOf(rows, 2, 1), null);
});
