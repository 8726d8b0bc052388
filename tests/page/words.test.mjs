import assert from "node:assert/strict";
import test from "node:test";

import { charactersIn, difficultIn, tokenAfter, withWords, wordOf, wordsIn } from "../scripts/numbers/words.js";

/** A token, from its bytes or its text. */
const token = (given) => ({ symbol: "?", bytes: Buffer.from(given).toString("hex").replace(/(..)(?=.)/g, "$1 ") });
const tokens = (...given) => given.map(token);
const names = (...given) => withWords(tokens(...given)).map(({ word }) => word);

test("a token's name in Look has no space before it; white space and invisible characters have signs", () => {
  assert.deepEqual(names(" dog", " ", "\n\n", "\t", "\u3000", "\u00a0", "\u200d", "\u202e"), ["dog", "␣", "⏎⏎", "⇥", "U+3000", "U+00A0", "U+200D", "U+202E"]);
  assert.deepEqual(names("👨\u200d👩", "\u3000今天", "a\u0000"), ["👨\u200d👩", "今天", "aU+0000"]);
  assert.equal(wordOf({ symbol: "cached 3" }), "cached 3");
});

test("a piece of a character has the character and its part, or its bytes if it isn't complete", () => {
  assert.deepEqual(names([0x20, 0xe5], [0xb0], [0x8f]), ["小 1/3", "小 2/3", "小 3/3"]);
  assert.deepEqual(names([0xe5, 0xb0]), ["<e5 b0>"]);
  assert.deepEqual(names([0xe2, 0x80], [0x99, 0x73]), ["’ 1/2", "’ 2/2 s"]);
});

test("a next token that completes a character is known", () => {
  const before = withWords(tokens("a", [0xe5], [0xb0]));
  assert.equal(tokenAfter(before, token([0x8f])).word, "小 3/3");
  assert.equal(tokenAfter(before, token(" dog")).word, "dog");
  assert.equal(wordOf(token([0x8f])), "<8f>");
});

test("a piece of a word knows the rest of the word", () => {
  const pieces = withWords(tokens(" Sw", "imming", " is", " ", "on")).map(({ piece }) => piece);
  const swimming = { before: "", letters: "Sw", fraction: "", after: "imming", isFirst: true, isLast: false };
  assert.deepEqual(pieces[0], swimming);
  assert.deepEqual(pieces[1], { before: "Sw", letters: "imming", fraction: "", after: "", isFirst: false, isLast: true });
  assert.equal(pieces[2], undefined);
  assert.deepEqual(pieces[3], { before: "", letters: "␣", fraction: "", after: "on", isFirst: true, isLast: false });
  const [, bytes] = withWords(tokens("sch", [0xc3], [0xb6], "ne"));
  assert.deepEqual(bytes.piece, { before: "sch", letters: "ö", fraction: "1/2", after: "ne", isFirst: false, isLast: false });
});

const NONE = { names: [], isExact: true };
const FOUND = { split: [], unknown: [] };
const wordsOf = (...given) => wordsIn(charactersIn(tokens(...given)));

test("words of three pieces, or of short ones, are spelled out; of more than a third, the headline is in doubt", () => {
  const isSpelledOut = (...given) => wordsOf(...given).map((word) => word.isSpelledOut);
  assert.deepEqual(isSpelledOut(" Sw", "imming"), [false]);
  assert.deepEqual(isSpelledOut(" s", "at", " on"), [true, false]);
  assert.deepEqual(isSpelledOut("小", "猫", [0xe5, 0xb0], [0x8f]), [false, false, true]);
  const [one, other] = [wordsOf("a", " cat", " s", "at"), wordsOf(" cat", " s", "at", " s", "at")];
  assert.deepEqual(difficultIn(one, [], NONE), { ...FOUND, spelledOut: ["sat"], unread: [], scripts: ["latin"], isInDoubt: false });
  assert.deepEqual(difficultIn(other, [], NONE), { ...FOUND, spelledOut: ["sat"], unread: [], scripts: ["latin"], isInDoubt: true });
  const many = wordsOf(..."abcdefghijkl".split("").flatMap((letter) => [` ${letter}`, "x"]));
  assert.deepEqual(difficultIn(many, [], NONE).spelledOut.slice(-2), ["hx", "…"]);
  const unread = { ...FOUND, spelledOut: [], unread: ["😀", "한"], scripts: ["other", "signs"], isInDoubt: true };
  assert.deepEqual(difficultIn(wordsOf(" cat"), [{ unread: "😀" }, {}, { unread: "한" }], NONE), unread);
});
