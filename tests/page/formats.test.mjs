import assert from "node:assert/strict";
import test from "node:test";

import { brief, bytesOf, fixed, format, grouped, largestTerms, percent, percentages, unpackedMask } from "../scripts/numbers/formats.js";

/** Test a function by a table of arguments and results. */
const table = (name, f, rows) => {
  for (const [given, expected] of rows) test(`${name} of ${given} is ${expected}`, () => assert.equal(f(given), expected));
};

table("format", format, [
  [0, "0.0000"],
  [1e-4, "0.0001"],
  [9.99e-5, "9.990e-5"],
  [-9.99e-5, "-9.990e-5"],
  [999_999, "999999.0000"],
  [1e6, "1.000e+6"],
  [-1e6, "-1.000e+6"],
  [1e300, "1.000e+300"],
]);

// In a table all numbers have the same decimals, and those that round to 0 no sign.
table("fixed", (x) => fixed(x, 4), [
  [9e-5, "0.0001"],
  [1e-5, "0.0000"],
  [-1e-5, "0.0000"],
  [1e6, "1.000e+6"],
  [-Infinity, "-inf"],
]);

table("percent", percent, [
  [0, "0\u00a0%"],
  [1e-9, "<\u00a01\u00a0%"],
  [0.004, "<\u00a01\u00a0%"],
  [0.006, "1\u00a0%"],
  [0.5, "50\u00a0%"],
  [0.994, "99\u00a0%"],
  [0.996, "99.6\u00a0%"],
  [0.9996, ">\u00a099.9\u00a0%"],
  [1 - 1e-7, ">\u00a099.9\u00a0%"],
  [1 - 1e-8, "100\u00a0%"], // the rounding of float32
  [1, "100\u00a0%"],
  [-0.25, "-25\u00a0%"],
]);

for (const [pair, words] of [
  [[0.5, 0.004], ["50", "<\u00a01"]],
  [[0.004, 0.003], ["0.4", "0.3"]],
  [[0.004, 1e-5], ["0.4", "<\u00a00.1"]],
  [[0.00041, 1e-5], ["0.04", "<\u00a00.01"]],
  [[6.42e-5, 6.11e-5], ["0.0064", "0.0061"]],
  [[0.531, 0.53100001], ["53", "53"]],
  [[1e-8, 1e-9], ["<\u00a01", "<\u00a01"]],
  [[0.01004, 0.00999], ["1", "1"]], // more than two decimals only if both are small
  [[0.00999, 0.00996], ["0.999", "0.996"]],
])
  test(`percentages of ${pair} are ${words}`, () => assert.deepEqual(percentages(...pair), words.map((word) => `${word}\u00a0%`)));

test("a sum's largest terms by size, the earlier first, and the others' sum", () => {
  assert.deepEqual(largestTerms([1, -5, 0.5, 5, -0.25, 3], 3), { largest: [1, 3, 5], rest: 1.25 });
  assert.deepEqual(largestTerms([2, -7], 3), { largest: [1, 0], rest: 0 });
});

table("grouped", grouped, [[7, "7"], [100, "100"], [50257, "50,257"], [1234567, "1,234,567"]]);

table("brief", (n) => brief("a".repeat(n)), [[40, "a".repeat(40)], [41, `${"a".repeat(39)}…`]]);

test("base64 is decoded, by older browsers too", () => {
  const bytes = Uint8Array.from({ length: 256 }, (_, n) => n);
  const text = btoa(String.fromCharCode(...bytes));
  const own = Uint8Array.fromBase64;
  for (const decode of [undefined, (text) => new Uint8Array(Buffer.from(text, "base64"))]) {
    Uint8Array.fromBase64 = decode;
    assert.deepEqual(bytesOf(text), bytes);
  }
  Uint8Array.fromBase64 = own;
});

test("a mask's bits come from the highest one of each byte on", () => {
  const packed = btoa(String.fromCharCode(0b10110000, 0b01000000));
  assert.deepEqual([...unpackedMask(packed, 10)], [1, 0, 1, 1, 0, 0, 0, 0, 0, 1]);
});
