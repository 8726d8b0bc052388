import assert from "node:assert/strict";
import test from "node:test";

import { align } from "../scripts/numbers/align.js";

for (const [texts, expected] of [
  [[[5, 6, 7]], [[0], [1], [2]]],
  [[[1, 2, 3], [1, 9, 3]], [[0, 0], [1, 1], [2, 2]]],
  [[[1, 2, 3], [1, 8, 9, 3]], [[0, 0], [1, null], [null, 1], [null, 2], [2, 3]]],
  [[[1, 2], [9, 1, 2]], [[null, 0], [0, 1], [1, 2]]],
  [[[1, 2], [3, 4]], [[0, 0], [1, 1]]],
])
  test(`${texts.map((ids) => `[${ids}]`)} are aligned`, () => assert.deepEqual(align(texts), expected));

/** The length of the longest common subsequence, by trying all of a's. */
function longestCommon(a, b) {
  let longest = 0;
  for (let chosen = 0; chosen < 2 ** a.length; chosen++) {
    const some = a.filter((_, n) => (chosen >> n) & 1);
    let found = 0;
    for (const id of b) if (some[found] === id) found++;
    if (found === some.length) longest = Math.max(longest, found);
  }
  return longest;
}

test("random texts are aligned by as many tokens as they share", () => {
  let state = 1;
  const random = (n) => Math.floor(((state = (state * 16807) % 2147483647) / 2147483647) * n); // "minimal standard"
  for (let n = 0; n < 200; n++) {
    const texts = [0, 1].map(() => Array.from({ length: 1 + random(7) }, () => random(4)));
    const pairs = align(texts);
    for (const t of [0, 1])
      assert.deepEqual(pairs.map((pair) => pair[t]).filter((i) => i !== null), [...texts[t].keys()]);
    const same = pairs.filter(([i, j]) => i !== null && j !== null && texts[0][i] === texts[1][j]);
    assert.ok(same.length >= longestCommon(...texts));
  }
});
