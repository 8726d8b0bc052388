import assert from "node:assert/strict";
import test from "node:test";

import { Nd, nd } from "../scripts/numbers/arrays.js";
import { Run } from "../scripts/numbers/run.js";

const [a, b] = [[5, 3], [3, 5]].map((shape) => new Nd(new Float32Array(15), shape));

test("shapes that don't fit are refused", () => {
  assert.throws(() => nd.matmul(a, a), { message: "no product of (5,3) and (5,3)" });
  assert.throws(() => nd.add(a, b), { message: "shapes can't be broadcast: (5,3), (3,5)" });
});

for (const path of ["blocks.0.attention.heads.1.X", "blocks.0.attention.W_Q", "next_logits"])
  test(`an edit of ${path}, which would change nothing, is refused`, () => {
    const message = `${path} can't be edited here; edit the array that it is a slice of`;
    assert.throws(() => new Run(null, null, { [path]: 0 }), { message });
  });
