import assert from "node:assert/strict";
import test from "node:test";

import { tokenizerOf } from "../scripts/numbers/wordpiece.js";

const VOCAB = "[UNK] [SEP] ab É é E e #é #e #b 猫 σας σασ ! a猫 ## word abb";
const UNCHANGED = { clean_text: false, handle_chinese_chars: false, lowercase: false, strip_accents: null };

function tokenizer(settings = {}, more = {}) {
  const vocab = Object.fromEntries(VOCAB.split(" ").map((symbol, id) => [symbol, id]));
  return tokenizerOf({
    ...{ pattern: "[^]", vocab, merges: [], names: [], literalIds: [0, 1], addedTokens: [[["[UNK]", 0], ["[SEP]", 1]]] },
    ...{ special: ["[UNK]", "[SEP]"], addPrefixSpace: false, prefix: [], rows: 30, ...more },
    wordPiece: { settings: { ...UNCHANGED, ...settings }, unknown: 0, piecePrefix: "#", longest: 3 },
  });
}

for (const [text, settings, expected] of [
  ["É", {}, "É"],
  ["É", { lowercase: true }, "e"], // without strip_accents, accents go with the capitals
  ["É", { lowercase: true, strip_accents: false }, "é"],
  ["É", { strip_accents: true }, "E"],
  ["É", { strip_accents: false }, "É"],
  ["abé", {}, "ab #é"],
  ["abb", {}, "abb"], // the longest piece
  ["abbe", {}, "[UNK]"], // a word of more than three characters
  ["eabx", {}, "[UNK]"],
  ["ebx e", {}, "[UNK] e"], // no piece is #x
  ["a猫", {}, "a猫"],
  ["ab猫e", { handle_chinese_chars: true }, "ab 猫 e"],
  ["ΣΑΣ", { lowercase: true }, "σασ"], // each character alone, without Greek's ς
  ["e\u0000e\u200d", { clean_text: true }, "e #e"],
  ["e\u0000 e\u200d", { clean_text: true }, "e e"],
  ["e!!\te\n", { clean_text: true }, "e ! ! e"],
])
  test(`the pieces of ${JSON.stringify(text)} with ${JSON.stringify(settings)}`, () => {
    const made = tokenizer(settings);
    assert.deepEqual(made.encode(text).map((id) => made.symbols.get(id)).join(" "), expected);
  });

test("each unknown token has the word for which it stands", () => {
  const made = tokenizer();
  const unreadOf = (text, meant) => made.tokens(made.encode(text, meant), text, meant).map(({ unread }) => unread ?? "");
  assert.deepEqual(unreadOf("xyz ab \u{1f600}"), ["xyz", "", "\u{1f600}"]);
  assert.deepEqual(unreadOf("xyz[UNK] ab x", ["[UNK]"]), ["xyz", "[UNK]", "", "x"]);
  assert.deepEqual(unreadOf("x[SEP]", ["[SEP]"]), ["x", ""]);
});

test("words have a space before them in a text, later pieces and other characters none", () => {
  const made = tokenizer({ handle_chinese_chars: true });
  assert.equal(made.textOf(made.encode("ab e猫!abé [SEP]", ["[SEP]"])), "ab e猫! abé[SEP]");
  const textsOf = (symbols) => symbols.map((symbol) => made.token(VOCAB.split(" ").indexOf(symbol)).text);
  assert.deepEqual(textsOf(["e", "#e", "猫", "!", "[UNK]", "##"]), [" e", "e", "猫", "!", "[UNK]", "#"]);
});
