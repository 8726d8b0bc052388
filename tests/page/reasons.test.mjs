import assert from "node:assert/strict";
import test from "node:test";

import { openPage } from "./document.mjs";

const { nameOfReadPart, reasonInWords, resultOf } = await openPage("ball", "saved", {
  modules: ["drawing/reasons", "drawing/explain"],
});

const textOf = (parts) => parts.map((part) => part.textContent ?? part).join("");
const keys = ["the", "cat", "the", "it"].map((word) => ({ id: word.charCodeAt(0), symbol: word, word }));
const [token, position, head, mlp, bias] = [
  ...[{ kind: "token" }, { kind: "position" }, { kind: "head", layer: 0, head: 1 }, { kind: "mlp", layer: 0 }, { kind: "bias" }],
];

/** The sentence on the score of “it” for a key, by default “cat”. */
const reason = (pairs, total, rest = {}) =>
  textOf(reasonInWords({ trace: { keys, cached: 0 }, layer: 1, query: 3, key: 1, other: null, visible: [0, 1, 2, 3], pairs, total, ...rest }));

for (const [pairs, total, rest, expected] of [
  [[[token, head, 0.6], [mlp, mlp, 0.3]], 1, {}, "“it” scores “cat” above the mean of its 4 keys because of token embedding at “it” and what layer 0 head 1 wrote at “cat”: 0.60 of 1.00."],
  [[[token, head, 0.4], [mlp, mlp, 0.3]], 1, {}, "“it” scores “cat” above the mean of its 4 keys. No pair of parts is half of that; the largest is token embedding at “it” and what layer 0 head 1 wrote at “cat”: 0.40 of 1.00."],
  [[[token, token, 0.5]], 1, {}, "“it” scores “cat” above the mean of its 4 keys because of token embedding at both: 0.50 of 1.00."],
  [[[token, token, 0.125]], 0.26, {}, "“it” scores “cat” above the mean of its 4 keys because of token embedding at both: 0.13 of 0.26."], // half, as rounded
  [[[token, token, 0.124]], 0.26, {}, "“it” scores “cat” above the mean of its 4 keys. No pair of parts is half of that; the largest is token embedding at both: 0.12 of 0.26."],
  [[[mlp, position, 1], [token, token, -0.2]], 0.7, {}, "“it” scores “cat” above the mean of its 4 keys because of what MLP 0 wrote at “it” and position embedding at “cat”: 1.00, and -0.30 from all other pairs."],
  [[[mlp, position, 2], [token, token, -1.5]], 0.3, {}, "“it” scores “cat” above the mean of its 4 keys: 0.30. Many pairs nearly cancel; the largest are +2.00 and -1.50."],
  [[[mlp, position, -2], [token, token, 1.5]], -0.3, {}, "“it” scores “cat” below the mean of its 4 keys: -0.30. Many pairs nearly cancel; the largest are -2.00 and +1.50."],
  [[[bias, token, -0.6], [token, token, 0.1]], -1, {}, "“it” scores “cat” below the mean of its 4 keys because of b_Q, the same for every query, and token embedding at “cat”: -0.60 of -1.00."],
  [[[token, token, 0.6]], 1, { other: 2 }, "“it” looks more at “cat” than at “the” (2) because of token embedding at both: 0.60 of 1.00."],
  [[[token, token, -0.6]], -1, { key: 0, other: 1 }, "“it” looks less at “the” (0) than at “cat” because of token embedding at both: -0.60 of -1.00."],
  [[[token, token, -0.6]], 1, {}, ""],
  [[], 0, {}, ""],
  [null, 1, {}, ""],
  [[], 1, { query: 0, key: 0, visible: [0] }, "“the” (0) sees only one key, “the” (0): its weight is 1, whatever the score."],
])
  test(`a score of ${total} with ${JSON.stringify(pairs?.map(([, , x]) => x))} ${JSON.stringify(rest)}`, () => assert.equal(reason(pairs, total, rest), expected));

test("names of parts", () => {
  const kinds = [token, position, { kind: "norm" }, { kind: "cached" }, bias, { kind: "b_O", layer: 2 }, mlp, head];
  const names = (side) => kinds.map((part) => nameOfReadPart(part, side));
  assert.deepEqual(names("key"), ["token embedding", "position embedding", "LayerNorm's bias", "cached keys", "b_K", "b_O of layer 2", "MLP 0", "layer 0 head 1"]);
  assert.equal(names("query")[4], "b_Q");
});

test("an edited number shows what the equation gives, unless only rounding differs", () => {
  const shown = (...given) => resultOf(...given).textContent;
  assert.equal(shown(true, 1, 1 + 1e-6), "1.000001");
  assert.equal(shown(true, 1, 1.0001), "1.000000; edited here: 1.000100 instead");
  assert.equal(shown(true, -1, 1), "-1.000000; edited here: 1.000000 instead");
  assert.equal(shown(true, 1e-9, 2e-9), "2.00000e-9"); // both are nearly 0
  assert.equal(shown(false, 1, 2), "2.000000");
});
