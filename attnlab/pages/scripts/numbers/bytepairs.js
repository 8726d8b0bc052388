// Encode text to token ids and decode it, as in attnlab/text: byte-level byte pair encoding.

import { BYTE_BY_SYMBOL, BYTE_SYMBOLS, decodeUtf8 } from "./formats.js";
import { Refusal } from "./refusal.js";
import { charactersIn } from "./words.js";

/** A regular expression whose `\s` is Unicode's white space, as in Python; JavaScript's differs. */
const withUnicodeSpaces = (pattern) =>
  new RegExp(pattern.replaceAll("\\s", "\\p{White_Space}").replaceAll("\\S", "\\P{White_Space}"), "gu");

/** A priority queue, the smallest number first. */
class Heap {
  #items = [];

  get size() {
    return this.#items.length;
  }

  push(x) {
    const items = this.#items;
    let n = items.push(x) - 1;
    // Move larger ancestors down, and put x in their place.
    for (let parent; n && items[(parent = (n - 1) >> 1)] > x; n = parent) items[n] = items[parent];
    items[n] = x;
  }

  pop() {
    const items = this.#items;
    const smallest = items[0];
    const last = items.pop();
    if (!items.length) return smallest;
    let n = 0;
    // Move smaller children up, and put the last number in their place.
    for (let child; (child = 2 * n + 1) < items.length; n = child) {
      if (items[child + 1] < items[child]) child++;
      if (items[child] >= last) break;
      items[n] = items[child];
    }
    items[n] = last;
    return smallest;
  }
}

/**
 * A tokenizer, as in attnlab/text/tokenizer.py and bpe.py.
 *
 * pattern: splits a text before bytes are merged. vocab: ids by symbol. merges: pairs of symbols. names: names of added
 * tokens by id. literalIds: ids whose symbol is their text. addedTokens: lists of names and ids, in the order in which
 * a text is searched for them. special: those names that are plain characters unless `encode` gets them in `meant`.
 * addPrefixSpace: whether a text gets a space before it. prefix: ids before every text. rows: how many ids W_E has.
 */
export class Tokenizer {
  #merges = new Map(); // by two ids as one number: [the merge's rank, the merged id]
  #cache = new Map(); // ids by piece
  #tokens = new Map(); // descriptions by id

  constructor({ pattern, vocab, merges, names, literalIds, addedTokens, special, addPrefixSpace, prefix, rows }) {
    Object.assign(this, { special, addPrefixSpace, prefix, rows });
    this.addedTokens = addedTokens.map((pairs) => new Map(pairs));
    this.pattern = withUnicodeSpaces(pattern);
    this.literalIds = new Set(literalIds);
    this.symbols = new Map([...Object.entries(vocab).map(([symbol, id]) => [id, symbol]), ...names]);
    const ids = new Map(Object.entries(vocab));
    this.idOfByte = BYTE_SYMBOLS.map((symbol) => ids.get(symbol));
    merges.forEach(([first, second], rank) =>
      this.#merges.set(this.#pair(ids.get(first), ids.get(second)), [rank, ids.get(first + second)]),
    );
  }

  #pair = (first, second) => first * this.rows + second;

  /** The ids of a text to continue, as `encode_prompt` in Python; `meant` has the names to read as special tokens. */
  encode(text, meant) {
    const index = text.search(/\p{Surrogate}/u);
    if (index >= 0)
      throw new Refusal("text has an unpaired surrogate, {half}, at index {index}", {
        half: `'\\u${text.charCodeAt(index).toString(16)}'`,
        index: [...text.slice(0, index)].length, // in characters, as in Python
      });
    return [
      ...this.prefix,
      ...this.partsOf(text, meant).flatMap((part) => (typeof part === "number" ? [part] : this.encodePlain(part))),
    ];
  }

  /** Split a text into ids of added tokens and the texts between them. */
  partsOf(text, meant = []) {
    const isToken = (name) => meant.includes(name) || !this.special.includes(name);
    const split = (part, names) => (typeof part === "number" ? [part] : splitAtNames(part, names, isToken));
    return this.addedTokens.reduce((parts, names) => parts.flatMap((part) => split(part, names)), [text]);
  }

  /** The ids of a text without added tokens. */
  encodePlain(text) {
    const spaced = text && this.addPrefixSpace && !text.startsWith(" ") ? ` ${text}` : text;
    const ids = [];
    for (const [piece] of spaced.matchAll(this.pattern)) {
      const pieceIds = this.#cache.get(piece) ?? this.#merge(new TextEncoder().encode(piece));
      // Long pieces are rarely seen twice, and would fill the memory.
      if (piece.length < 32) this.#cache.set(piece, pieceIds);
      for (const id of pieceIds) ids.push(id);
    }
    return ids;
  }

  /** Merge adjacent tokens: always by the merge of lowest rank, and at its leftmost place. */
  #merge(bytes) {
    const missing = bytes.find((byte) => this.idOfByte[byte] === undefined);
    if (missing !== undefined)
      throw new Refusal(
        "the text has the byte 0x{byte}, for which the vocabulary has no token; it lacks {count} of the 256 bytes",
        { byte: missing.toString(16).padStart(2, "0"), count: this.idOfByte.filter((id) => id === undefined).length },
      );
    const n = bytes.length;
    const ids = Array.from(bytes, (byte) => this.idOfByte[byte]);
    // A linked list: a merged token takes the place of its first part, and its second part leaves the list.
    const after = ids.map((_, i) => i + 1);
    const before = ids.map((_, i) => i - 1);
    const queue = new Heap(); // a merge is the number rank * n + index, so the first one to apply is the smallest
    const mergeAt = (i) => (after[i] < n ? this.#merges.get(this.#pair(ids[i], ids[after[i]])) : undefined);
    const enqueue = (i) => {
      const merge = i >= 0 && mergeAt(i);
      if (merge) queue.push(merge[0] * n + i);
    };
    for (let i = 0; i < n; i++) enqueue(i);
    while (queue.size) {
      const entry = queue.pop();
      const i = entry % n;
      const [rank, merged] = mergeAt(i) ?? [];
      if (ids[i] === undefined || rank !== Math.floor(entry / n)) continue; // outdated by another merge
      ids[i] = merged;
      ids[after[i]] = undefined;
      after[i] = after[after[i]];
      if (after[i] < n) before[after[i]] = i;
      enqueue(i);
      enqueue(before[i]);
    }
    return ids.filter((id) => id !== undefined);
  }

  /** A token's bytes. A symbol is the token's text if one of its characters stands for no byte. */
  bytesOf(id) {
    const symbol = this.symbols.get(id) ?? "";
    const bytes = Array.from(symbol, (character) => BYTE_BY_SYMBOL.get(character));
    const isText = this.literalIds.has(id) || bytes.includes(undefined);
    return isText ? new TextEncoder().encode(symbol) : Uint8Array.from(bytes);
  }

  /** The text that would be encoded to these ids. */
  textOf(ids) {
    const hasPrefix = this.prefix.every((id, n) => ids[n] === id);
    return decodeUtf8(this.allBytes(hasPrefix ? ids.slice(this.prefix.length) : ids));
  }

  allBytes = (ids) => Uint8Array.from(ids.flatMap((id) => [...this.bytesOf(id)]));

  /** A token's id, symbol, text and bytes, see `token_of` in attnlab/pages/saved.py. */
  token(id) {
    if (!this.#tokens.has(id)) {
      const bytes = this.bytesOf(id);
      const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
      const symbol = printable(this.symbols.get(id) ?? `<row ${id}>`); // an unused row of W_E
      this.#tokens.set(id, { id, symbol, text: printable(decodeUtf8(bytes)), bytes: hex });
    }
    return this.#tokens.get(id);
  }

  /** Descriptions of tokens, each with the characters that it shares with others, if any. */
  tokens(ids) {
    const tokens = ids.map((id) => ({ ...this.token(id), part_of: "" }));
    for (const { text, owners } of charactersIn(tokens).filter(({ owners }) => owners.length > 1))
      for (const n of owners) tokens[n].part_of += printable(text);
    return tokens;
  }
}

/** Split a text at names that are tokens, which become ids; the longest name where several match. */
function splitAtNames(text, names, isToken) {
  if (!names.size) return [text];
  const longestFirst = [...names.keys()].sort((a, b) => b.length - a.length);
  const escaped = longestFirst.map((name) => name.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
  const parts = [];
  let start = 0;
  for (const { 0: name, index } of text.matchAll(new RegExp(escaped.join("|"), "gu"))) {
    if (!isToken(name)) continue;
    parts.push(text.slice(start, index), names.get(name));
    start = index + name.length;
  }
  return [...parts, text.slice(start)];
}

// Spaces and joining characters that a heading keeps.
const KEPT_IN_HEADINGS = /[\p{Zs}\u200c\u200d\u2060]/u;

/** A text as a heading: control characters are escaped, as in Python; spaces and joining characters aren't. */
export const inHeading = (text) =>
  [...text].map((character) => (KEPT_IN_HEADINGS.test(character) ? character : printable(character))).join("");

/** Escape line ends and control characters, as in Python. */
export function printable(text) {
  const isEscaped = (character) => character !== " " && /[\p{C}\p{Z}]/u.test(character);
  const characters = [...text];
  if (!characters.some(isEscaped)) return text;
  const escapes = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
  if (text.includes("'") && text.includes('"')) escapes["'"] = "\\'"; // Python's repr then quotes by '
  return characters
    .map((character) => escapes[character] ?? (isEscaped(character) ? escapeOf(character) : character))
    .join("");
}

function escapeOf(character) {
  const code = character.codePointAt(0);
  const [letter, digits] = code < 2 ** 8 ? ["x", 2] : code < 2 ** 16 ? ["u", 4] : ["U", 8];
  return `\\${letter}${code.toString(16).padStart(digits, "0")}`;
}
