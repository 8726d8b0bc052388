import assert from "node:assert/strict";
import test from "node:test";

import { Nd, nd, REST } from "../scripts/numbers/arrays.js";
import { Run } from "../scripts/numbers/run.js";

const [a, b] = [[5, 3], [3, 5]].map((shape) => new Nd(new Float32Array(15), shape));

test("shapes that don't fit are refused", () => {
  assert.throws(() => nd.matmul(a, a), { message: "no product of (5,3) and (5,3)" });
  assert.throws(() => nd.add(a, b), { message: "shapes can't be broadcast: (5,3), (3,5)" });
});

for (const path of ["blocks.0.attention.heads.1.X", "next_logits"])
  test(`an edit of ${path}, which would change nothing, is refused`, () => {
    const message = `${path} can't be edited here; edit the array that it is a slice of`;
    assert.throws(() => new Run(null, null, { [path]: 0 }), { message });
  });

test("slices count from the end as in NumPy", () => {
  const x = new Nd(Float64Array.from({ length: 12 }, (_, n) => n), [3, 4]);
  const { slice } = nd;
  for (const [index, shape, numbers] of [
    [[-1], [4], [8, 9, 10, 11]],
    [[slice(-2, null)], [2, 4], [4, 5, 6, 7, 8, 9, 10, 11]],
    [[slice(null, null), slice(1, -1)], [3, 2], [1, 2, 5, 6, 9, 10]],
    [[slice(2, 99)], [1, 4], [8, 9, 10, 11]],
    [[slice(2, 1)], [0, 4], []],
    [[REST, 0], [3], [0, 4, 8]],
  ]) {
    const part = nd.item(x, ...index);
    assert.deepEqual([part.shape, [...part.numbers()]], [shape, numbers]);
  }
});
