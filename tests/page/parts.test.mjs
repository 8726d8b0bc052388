import assert from "node:assert/strict";
import test from "node:test";

import { partAt, partsOf } from "../scripts/drawing/parts.js";

// Two layers, three tokens on lines 40 apart: columns embedding, attention 0, MLP 0, attention 1, MLP 1.
const PLAN = {
  starts: [100, 200, 400, 500, 700, 800],
  lines: new Map([[0, 100], [1, 140], [4, 180]]),
};
const LAYERS = [0, 1];
const weak = { layer: 0, head: 1, i: 4, j: 0, weight: 0.3 };
const strong = { layer: 0, head: 0, i: 4, j: 0, weight: 0.9 };
const later = { layer: 1, head: 2, i: 1, j: 0, weight: 0.5 };
const CURVES = [weak, later, strong]; // the weakest of a place first

const kindsOf = (parts) => parts.map(({ kind, column, layer, curve }) => [kind, column ?? layer ?? curve.head]);

test("a token's parts follow each other from left to right", () => {
  const kinds = kindsOf(partsOf(PLAN, LAYERS, CURVES, 1));
  assert.deepEqual(kinds, [
    ...[["vector", 0], ["vector", 1]],
    ...[["vector", 2], ["added", 0]],
    ...[["vector", 3], ["weight", 2]],
    ...[["vector", 4], ["added", 1]],
  ]);
  assert.equal(partsOf(PLAN, LAYERS, CURVES, 4).filter(({ kind }) => kind === "weight").length, 2);
});

test("a disc lies on a curve and on its ribbon, a curve on ribbons", () => {
  const at = (x, y, reach) => partAt(PLAN, LAYERS, CURVES, { x, y }, reach);
  assert.deepEqual(kindsOf([at(450, 142)]), [["added", 0]]);
  assert.deepEqual(at(300, 140).curve, strong); // halfway from line 100 to line 180, where line 1's ribbon is
  assert.deepEqual(kindsOf([at(250, 181)]), [["vector", 1]]);
  assert.equal(at(250, 181).i, 4);
  assert.equal(at(250, 160), null);
  assert.equal(at(250, 170, 14).i, 4); // a finger
  assert.equal(at(50, 100), null); // left of the picture
  assert.equal(at(800, 100), null); // right of it
});

test("of one open block, columns and layers are its own", () => {
  const block = { starts: [100, 150, 600, 750], lines: new Map([[0, 100]]) };
  assert.deepEqual(kindsOf(partsOf(block, [7], [], 0)), [["vector", 0], ["vector", 1], ["vector", 2], ["added", 7]]);
});
