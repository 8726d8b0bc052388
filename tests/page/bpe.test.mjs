import assert from "node:assert/strict";
import test from "node:test";

import { inHeading, printable, Tokenizer } from "../scripts/numbers/bytepairs.js";

test("names of special tokens may have any signs", () => {
  const names = ["<|start-of-text|>", "[a/b]{2}", "\\d+", "(^.*?$)"];
  const tokenizer = new Tokenizer({
    ...{ pattern: "[^]", vocab: { a: 0, "-": 1 }, merges: [], names: [], literalIds: [], special: names },
    ...{ addedTokens: [names.map((name, n) => [name, n + 2])], addPrefixSpace: false, prefix: [], rows: 6 },
  });
  for (const [n, name] of names.entries()) assert.deepEqual(tokenizer.encode(`a-${name}-a`, names), [0, 1, n + 2, 1, 0]);
});

const VOCAB = ["a", "b", "\u0120", "ab", "\u0120a", "\u0120ab", "bb", "abb", "<s>", "\u00e9", "\u6f22"];
function made(given = {}) {
  const [end, byte, text] = [8, 9, 10];
  return new Tokenizer({
    ...{ pattern: " ?\\S+|\\s+", vocab: Object.fromEntries(VOCAB.map((symbol, id) => [symbol, id])), names: [], rows: 12 },
    ...{ merges: [["b", "b"], ["a", "b"], ["\u0120", "a"], ["a", "bb"], ["\u0120a", "b"]], literalIds: [end, text] },
    ...{ addedTokens: [[["<s>", end], ["\u6f22", text], ["\u00e9", byte]]], special: ["<s>"], addPrefixSpace: false, prefix: [] },
    ...given,
  });
}

for (const [text, given, expected] of [
  ["ab", {}, "ab"],
  ["abb", {}, "abb"], // b b first, then a bb
  ["abbb", {}, "abb b"], // the leftmost of two equal merges
  [" ab a", {}, "\u0120 ab \u0120a"], // of merges, that of lower rank
  ["ab", { addPrefixSpace: true }, "\u0120 ab"],
  [" ab", { addPrefixSpace: true }, "\u0120 ab"],
  ["", { addPrefixSpace: true }, ""],
  ["a", { prefix: [8] }, "<s> a"],
  ["", { prefix: [8] }, "<s>"],
  ["a\u6f22b", {}, "a \u6f22 b"],
])
  test(`the tokens of ${JSON.stringify(text)} with ${JSON.stringify(given)}`, () => {
    const tokenizer = made(given);
    assert.equal(tokenizer.encode(text).map((id) => tokenizer.symbols.get(id)).join(" "), expected);
  });

test("a text is what its tokens would be encoded from", () => {
  const tokenizer = made({ prefix: [8] });
  assert.equal(tokenizer.textOf([8, 3, 5]), "ab ab");
  assert.equal(tokenizer.textOf([3, 5]), "ab ab"); // without the prefix
  assert.equal(tokenizer.textOf([0, 8]), "a<s>");
  assert.deepEqual([8, 9, 10, 11].map((id) => tokenizer.token(id).bytes), ["3c 73 3e", "e9", "e6 bc a2", ""]);
  assert.deepEqual([5, 9, 11].map((id) => [tokenizer.token(id).symbol, tokenizer.token(id).text]), [["\u0120ab", " ab"], ["\u00e9", "\ufffd"], ["<row 11>", ""]]);
  assert.throws(() => tokenizer.encode("ax"), { message: "the text has the byte 0x{byte}, for which the vocabulary has no token; it lacks {count} of the 256 bytes" });
  assert.throws(() => tokenizer.encode("\u{1f600}\ud800"), ({ values }) => values.half === "'\\ud800'" && values.index === 1);
});

test("control characters are escaped as in Python", () => {
  for (const [text, expected] of [
    ["a b", "a b"],
    ["a\nb\\", "a\\nb\\\\"],
    ["b\\", "b\\"], // nothing else is escaped, so the backslash isn't
    ["\u00a0\u2028\u{e0001}\u0007", "\\xa0\\u2028\\U000e0001\\x07"],
    ["it's \"x\"\n", "it\\'s \"x\"\\n"],
    ["it's\n", "it's\\n"],
  ])
    assert.equal(printable(text), expected);
  assert.equal(inHeading("a\u00a0b\u200dc\u2060d\u200e\n"), "a\u00a0b\u200dc\u2060d\\u200e\\n");
});
