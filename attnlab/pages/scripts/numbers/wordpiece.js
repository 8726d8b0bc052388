// BERT's tokenizer, which Chinese GPT-2s have: a text is cleaned, cut into words, and each word into the longest pieces
// that the vocabulary has. As in the tokenizers library.

import { printable, Tokenizer } from "./bytepairs.js";
import { ALONE } from "./constants.js";

const BEGINS_ALONE = new RegExp(`^${ALONE}`, "u"); // ALONE: characters that are words by themselves, such as Chinese
// Each Chinese character is a word. The tokenizers library leaves out those from U+2B820 to U+2B91F, so this does too.
const CHINESE = new RegExp(
  "[\\u4e00-\\u9fff\\u3400-\\u4dbf\\u{20000}-\\u{2a6df}\\u{2a700}-\\u{2b73f}\\u{2b740}-\\u{2b81f}" +
    "\\u{2b920}-\\u{2ceaf}\\uf900-\\ufaff\\u{2f800}-\\u{2fa1f}]",
  "gu",
);
// A word is a punctuation mark or symbol, or what stands between these and spaces.
const WORD_OR_SIGN = /[!-/:-@[-`{-~\p{P}]|[^\p{White_Space}!-/:-@[-`{-~\p{P}]+/gu;

class WordPieceTokenizer extends Tokenizer {
  #ids; // the ids by symbol

  /**
   * data: what Tokenizer takes, and `wordPiece`. That has the normalizer's `settings`, the id `unknown` of words that
   * have no pieces, the `piecePrefix` of a word's later pieces, and `longest`, the most characters of a word.
   */
  constructor(data) {
    super(data);
    Object.assign(this, data.wordPiece);
    this.#ids = new Map(Object.entries(data.vocab));
  }

  encodePlain(text) {
    return this.#wordsIn(text).flatMap(this.#piecesOf);
  }

  #wordsIn = (text) => this.#normalized(text).match(WORD_OR_SIGN) ?? [];

  #normalized(text) {
    const { clean_text, handle_chinese_chars, lowercase, strip_accents } = this.settings;
    let result = text;
    if (clean_text) result = result.replace(/(?![\t\n\r])[\p{Cc}\p{Cf}\p{Co}\ufffd]/gu, "");
    if (handle_chinese_chars) result = result.replace(CHINESE, " $& ");
    if (strip_accents ?? lowercase) result = result.normalize("NFD").replace(/\p{Mn}/gu, "");
    // Characters are lowercased one by one, since a Greek Σ at the end of a word would become ς otherwise.
    return lowercase ? Array.from(result, (character) => character.toLowerCase()).join("") : result;
  }

  /** The ids of a word's pieces, each the longest that the vocabulary has; [unknown] if one has none. */
  #piecesOf = (word) => {
    const characters = [...word];
    if (characters.length > this.longest) return [this.unknown];
    const ids = [];
    for (let start = 0, end; start < characters.length; start = end) {
      const idOf = () => this.#ids.get((start ? this.piecePrefix : "") + characters.slice(start, end).join(""));
      for (end = characters.length; end > start && idOf() === undefined; end--); // until the piece has an id
      if (end === start) return [this.unknown];
      ids.push(idOf());
    }
    return ids;
  };

  /** As in Tokenizer. If the text is given, each unknown token has in `unread` the word for which it stands. */
  tokens(ids, text = "", meant = []) {
    const unknownSymbol = this.symbols.get(this.unknown);
    // The text may have the unknown token itself, by its name.
    const wordsOf = (part) =>
      typeof part === "string" ? this.#wordsIn(part) : part === this.unknown ? [unknownSymbol] : [];
    const isUnread = (word) => word === unknownSymbol || this.#piecesOf(word).includes(this.unknown);
    const unread = this.partsOf(text, meant).flatMap(wordsOf).filter(isUnread); // one for each unknown token, in order
    return super
      .tokens(ids)
      .map((token) =>
        token.id === this.unknown ? { ...token, unread: printable(unread.shift() ?? token.symbol) } : token,
      );
  }

  /** As in `LibraryVocabulary` in attnlab/text/tokenizer.py: words in letters have a space before them. */
  bytesOf(id) {
    const symbol = this.symbols.get(id) ?? "";
    const isWord = /^[\p{L}\p{N}]/u.test(symbol) && !BEGINS_ALONE.test(symbol) && !this.literalIds.has(id);
    const isLater = symbol.startsWith(this.piecePrefix) && symbol !== this.piecePrefix && !this.literalIds.has(id);
    return new TextEncoder().encode(isLater ? symbol.slice(this.piecePrefix.length) : `${isWord ? " " : ""}${symbol}`);
  }

  textOf(ids) {
    // The first word's token has a space before it, too: see `bytesOf`.
    return super.textOf(ids).replace(/^ /, "");
  }
}

/** A tokenizer from its data by attnlab/text/tokenizer.py. */
export const tokenizerOf = (data) => (data.wordPiece ? new WordPieceTokenizer(data) : new Tokenizer(data));
