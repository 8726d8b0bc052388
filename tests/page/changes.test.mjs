import assert from "node:assert/strict";
import test from "node:test";

import { ablationOf, changeFrom, isAblation, isAmong, isPossible, textOfChange } from "../scripts/numbers/changes.js";

const CHANGES = {
  "1.2": { kind: "ablate", layer: 1, head: 2 },
  "0.0": { kind: "ablate", layer: 0, head: 0 },
  1: { kind: "ablate", layer: 1 },
  "1.2.weights.50": { kind: "scale", layer: 1, head: 2, step: "weights", factor: 0.5 },
  "1.0.V.-55": { kind: "scale", layer: 1, head: 0, step: "V", factor: -0.55 },
  "0.1.Q.1000000": { kind: "scale", layer: 0, head: 1, step: "Q", factor: 1e4 },
  "1.2.mask.flip.3.0.2.1": { kind: "mask", layer: 1, head: 2, cells: [[3, 0], [2, 1]] },
  mask: { kind: "uncausal" },
  root: { kind: "unscaled" },
};

test("links name changes", () => {
  for (const [text, change] of Object.entries(CHANGES)) {
    assert.deepEqual(changeFrom(text), change);
    assert.equal(textOfChange(change), text);
  }
});

test("a model has what a change edits, or the change is refused", () => {
  const isRefused = (text) => !changeFrom(text) || !isPossible(changeFrom(text), { layers: 2, H: 4, T: 6 });
  for (const text of Object.keys(CHANGES)) assert.ok(!isRefused(text), text);
  const refused = ["99.0", "0.7", "2", "0.4", "1.2.nonsense.50", "1.2.Q.abc", "1.2.Q.", "1.2.Q.1000001", "1.2.Q.-1000001", "1.2.masked_scores.50", "1.2.mask.50", "x.y", "-1.0",
    "1.2.V.of.31", "1.2.mask.flip.3", "1.2.mask.flip.6.0", "1.2.weights.flip.3.0", "1.2.", "constructor"];
  for (const text of refused) assert.ok(isRefused(text), text);
});

test("changes are the same if their fields are", () => {
  const changes = Object.values(CHANGES);
  for (const change of changes) assert.ok(isAmong(changes, structuredClone(change)));
  assert.ok(!isAmong(changes, ablationOf(2, 1)));
  assert.ok(!isAmong(changes, { ...CHANGES["1.2.weights.50"], factor: 0.55 }));
  assert.deepEqual(changes.filter(isAblation), [ablationOf(1), ablationOf(1, 2), ablationOf(0, 0)]);
});
