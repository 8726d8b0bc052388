import assert from "node:assert/strict";
import test from "node:test";

import { jobsOf, smallMap } from "../scripts/numbers/heads.js";
import { MAP_PIXELS } from "../scripts/numbers/constants.js";

/** All that a generator computes, without its pauses. */
function valueOf(generator) {
  for (;;) {
    const { done, value } = generator.next();
    if (done) return value;
  }
}

test("a short text's map has a pixel for each cell, NaN if hidden", () => {
  const rows = [[1, 5, 5], [0.25, 0.75, 5], [0.5, -0.25, 0.25]];
  const map = valueOf(smallMap(3, 3, (i) => rows[i], (n) => n % 3 > Math.floor(n / 3)));
  assert.deepEqual([...map], [1, NaN, NaN, 0.25, 0.75, NaN, 0.5, -0.25, 0.25]);
});

test("a pixel of a long text's map is the largest of its cells by absolute value", () => {
  const T = 2 * MAP_PIXELS;
  const cells = new Map([[0, 0.5], [1, -0.75], [T, 0.25], [T + 1, -9], [2 * T + 1, 0.1], [T * T - 1, -3]]);
  const map = valueOf(smallMap(T, T, (i) => Array.from({ length: T }, (_, j) => cells.get(i * T + j) ?? 0), (n) => n === T + 1));
  assert.equal(map.length, MAP_PIXELS ** 2);
  assert.equal(map[0], -0.75); // the cell with -9 is hidden
  assert.equal(map[MAP_PIXELS], Math.fround(0.1));
  assert.equal(map.at(-1), -3);
});

test("jobs are mean weights on their keys", () => {
  const rows = [[1], [0.25, 0.75], [0.5, 0.25, 0.25], [0.1, 0.6, 0.1, 0.2]];
  const jobs = jobsOf([4, 7, 9, 4], (i) => rows[i]);
  const close = (actual, expected) => assert.ok(Math.abs(actual - expected) < 1e-12, `${actual}, not ${expected}`);
  close(jobs.previous.attention, (0.25 + 0.25 + 0.1) / 3);
  close(jobs.previous.uniform, (1 / 2 + 1 / 3 + 1 / 4) / 3);
  close(jobs.first.attention, (0.25 + 0.5 + 0.1) / 3);
  const { attention, uniform } = jobs.same;
  assert.deepEqual({ attention, uniform }, { attention: 0.1, uniform: 1 / 4 }); // only token 3 repeats one, token 0
  close(jobs.induction.attention, 0.6);
  close(jobs.induction.uniform, 1 / 4);
  // Of what isn't on token 0.
  close(jobs.induction.ofRest, 0.6 / 0.9);
  close(jobs.induction.uniformOfRest, 1 / 3);
  close(jobs.previous.ofRest, (0.25 + 0.1) / (0.5 + 0.9)); // token 1 only has token 0 before it
  close(jobs.previous.uniformOfRest, (1 / 3 + 1 / 4) / (2 / 3 + 3 / 4));
  assert.equal(jobsOf([1, 2, 3], (i) => rows[i]).induction, null);
});
