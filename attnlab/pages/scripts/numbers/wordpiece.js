// BERT's tokenizer, which Chinese GPT-2s have: a text is cleaned, cut into words, and each word into the longest pieces
// that the vocabulary has. As in the tokenizers library.

import { printable, Tokenizer } from "./bytepairs.js";
import { ALONE } from "./constants.js";

const BEGINS_ALONE = new RegExp(`^${ALONE}`, "u");
// Chinese characters, which are words. The library has this gap before U+2B920.
const CHINESE = new RegExp(
  "[\\u4e00-\\u9fff\\u3400-\\u4dbf\\u{20000}-\\u{2a6df}\\u{2a700}-\\u{2b73f}\\u{2b740}-\\u{2b81f}" +
    "\\u{2b920}-\\u{2ceaf}\\uf900-\\ufaff\\u{2f800}-\\u{2fa1f}]",
  "gu",
);
// A sign, or what is between signs and spaces.
const WORD_OR_SIGN = /[!-/:-@[-`{-~\p{P}]|[^\p{White_Space}!-/:-@[-`{-~\p{P}]+/gu;

class WordPieceTokenizer extends Tokenizer {
  #ids; // by symbol

  /**
   * Like Tokenizer. wordPiece: `settings` of the normalizer; `unknown`, the id of what has no pieces; `piecePrefix` of
   * later pieces; `longest` word.
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
    return lowercase ? Array.from(result, (character) => character.toLowerCase()).join("") : result;
  }

  /** The ids of a word's longest pieces, from its start; if one is missing, that of an unknown word. */
  #piecesOf = (word) => {
    const characters = [...word];
    if (characters.length > this.longest) return [this.unknown];
    const ids = [];
    for (let start = 0, end; start < characters.length; start = end) {
      const idOf = () => this.#ids.get((start ? this.piecePrefix : "") + characters.slice(start, end).join(""));
      for (end = characters.length; end > start && idOf() === undefined; end--);
      if (end === start) return [this.unknown];
      ids.push(idOf());
    }
    return ids;
  };

  /** Like Tokenizer's, with the words of the text, if it is given, for which unknown tokens stand. */
  tokens(ids, text = "", meant = []) {
    const symbol = this.symbols.get(this.unknown);
    const wordsOf = (part) => (typeof part === "string" ? this.#wordsIn(part) : part === this.unknown ? [symbol] : []);
    const isUnread = (word) => word === symbol || this.#piecesOf(word).includes(this.unknown);
    const unread = this.partsOf(text, meant).flatMap(wordsOf).filter(isUnread);
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
    return super.textOf(ids).replace(/^ /, "");
  }
}

/** A tokenizer from its data by attnlab/text/tokenizer.py. */
export const tokenizerOf = (data) => (data.wordPiece ? new WordPieceTokenizer(data) : new Tokenizer(data));
