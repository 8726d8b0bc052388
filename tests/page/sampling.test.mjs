import assert from "node:assert/strict";
import test from "node:test";

import { generator, sampledIndex } from "../scripts/numbers/predictions.js";

test("a token is sampled by the cumulative probabilities", () => {
  const sampled = [0, 0.25, 0.4999, 0.5, 0.6, 0.625, 0.9999].map((u) => sampledIndex(u, [0.5, 0.125, 0.375]));
  assert.deepEqual(sampled, [0, 0, 0, 1, 1, 2, 2]);
  assert.equal(sampledIndex(0.7, [0.5, 0.1]), -1);
});

// Computed with Python's integers, cut to 32 bits.
for (const [seed, expected] of [
  [0, [0.26642920868471265, 0.0003297457005828619, 0.2232720274478197, 0.1462021479383111, 0.46732782293111086]],
  [7, [0.011704753153026104, 0.06195825757458806, 0.97690763277933, 0.6990287057124078, 0.5214452685322613]],
])
  test(`the generator with seed ${seed} is mulberry32`, () => {
    assert.deepEqual(Array.from({ length: 5 }, generator(seed)), expected);
  });
