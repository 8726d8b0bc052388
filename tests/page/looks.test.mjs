import assert from "node:assert/strict";
import test from "node:test";

import { looksAtPrevious, mostLookedAt, worthOf } from "../scripts/numbers/looks.js";
import { PREVIOUS, PREVIOUS_ROWS } from "../scripts/numbers/constants.js";

test("the word that is most looked at is neither the first one nor the one that looks", () => {
  assert.equal(mostLookedAt([0.5, 0.1, 0.15, 0.25], 3), 2);
  assert.equal(mostLookedAt([0.5, 0.1, 0.15, 0.25], -1), 3); // another sentence's words
  assert.equal(mostLookedAt([0, 0.4, 0.4, 0.2], 3), 1); // of two equal ones, the first
  assert.equal(mostLookedAt([0.9, 0.1], 1), -1);
  assert.equal(mostLookedAt([1], 0), -1);
  assert.equal(mostLookedAt([1, 0, 0, 0], 3), -1); // a masked word isn't looked at
  assert.equal(mostLookedAt([2, -0.5, -0.1, -0.4], 3), -1);
  assert.equal(mostLookedAt(Float32Array.of(0.25, 0.25, 0.5), 0), 2);
});

test("a head looks at the word before if it does in most of the last rows", () => {
  const rowsWith = (share) => (i) => Array.from({ length: i + 1 }, (_, j) => (j === i - 1 ? share : (1 - share) / Math.max(1, i)));
  assert.ok(looksAtPrevious(rowsWith(PREVIOUS + 0.01), 9));
  assert.ok(!looksAtPrevious(rowsWith(PREVIOUS - 0.01), 9));
  assert.ok(!looksAtPrevious(rowsWith(1), 1)); // there is no word before
  const early = (i) => rowsWith(i < 40 ? 0 : 1)(i); // the mean is that of the last rows
  assert.ok(looksAtPrevious(early, 40 + PREVIOUS_ROWS));
  assert.ok(!looksAtPrevious((i) => rowsWith(i < 40 ? 1 : 0)(i), 40 + PREVIOUS_ROWS));
});

test("a head's worth is its effect times the share of the word looked at, halved where every word looks at the one before", () => {
  const rows = [[1], [0.9, 0.1], [0.5, 0.3, 0.2]];
  const close = (actual, expected) => assert.ok(Math.abs(actual - expected) < 1e-12, `${actual}, not ${expected}`);
  close(worthOf((i) => [[1], [0.4, 0.6], [0.1, 0.8, 0.1]][i], 3, 2, 0.2), (0.2 * 0.8) / 2);
  close(worthOf((i) => [[1], [0.4, 0.6], [0.6, 0.3, 0.1]][i], 3, 2, 0.2), 0.2 * 0.3);
  close(worthOf((i) => rows[i], 2, 1, 1), 1 / 2); // only the first word and itself: its effect alone
});
