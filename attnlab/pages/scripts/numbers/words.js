// Names of tokens for readers, and the words that tokens are pieces of, by the rules of attnlab/text/words.py.

import {
  ALONE, FEW_LETTERS, LATIN, MANY_PIECES, MAX_SPELLED_OUT, MAX_WORDS_LISTED, SPECIAL_NAMES, WORDS,
} from "./constants.js";
import { decodeUtf8 } from "./formats.js";

const STANDS_ALONE = new RegExp(ALONE, "u");
const JOINERS = "\\u200c\\u200d\\u2060\\ufe0e\\ufe0f"; // invisible between visible characters
const INVISIBLE = new RegExp(`(?![${JOINERS}])[\\p{C}\\p{Z}]`, "gu");
const ONLY_INVISIBLE = new RegExp(`^[${JOINERS}\\p{C}\\p{Z}]*$`, "u");
const SIGNS = { " ": "␣", "\n": "⏎", "\t": "⇥" };

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Whether bytes are valid UTF-8, such as a character's. */
function isValid(bytes) {
  try {
    return strict.decode(bytes) !== "";
  } catch {
    return false;
  }
}

/** The characters of tokens' text, each with the indices of its tokens. A byte that isn't valid UTF-8 has no text. */
export function charactersIn(tokens) {
  const bytesOfTokens = tokens.map(({ bytes }) => (bytes ? bytes.split(" ").map((hex) => parseInt(hex, 16)) : []));
  const owners = bytesOfTokens.flatMap((bytes, n) => bytes.map(() => n));
  const all = Uint8Array.from(bytesOfTokens.flat());
  const characters = [];
  for (let start = 0, end; start < all.length; start = end) {
    const length = [1, 2, 3, 4].find(
      (count) => start + count <= all.length && isValid(all.subarray(start, start + count)),
    );
    end = start + (length ?? 1);
    const bytes = all.subarray(start, end);
    characters.push({ text: length ? decodeUtf8(bytes) : "", bytes, owners: [...new Set(owners.slice(start, end))] });
  }
  return characters;
}

/** A character's kind in the pattern WORDS: a space, a word by itself, a letter, a mark, invisible, or other. */
function kindOfCharacter(text) {
  if (text === " ") return " ";
  if (STANDS_ALONE.test(text)) return "A";
  if (/\p{L}/u.test(text)) return "L";
  if (/\p{M}/u.test(text)) return "M";
  return /^[\p{Z}\p{C}]?$/u.test(text) ? "-" : "O"; // "" is a byte that isn't valid UTF-8, invisible, too
}

/** The words of a text, and other characters that are in several tokens. */
export function wordsIn(characters) {
  const kinds = characters.map(({ text }) => kindOfCharacter(text)).join("");
  return [...kinds.matchAll(new RegExp(WORDS, "g"))].flatMap(({ 0: matched, index }) => {
    const found = characters.slice(index, index + matched.length);
    const isLetters = matched !== "O";
    const visible = matched[0] === " " ? found.slice(1) : found;
    // Whether the space before the word belongs to the token before, as in vocabularies with `the</w>`.
    const isSpaceOfOther = characters[index - 1]?.owners.at(-1) === found[0].owners[0];
    const start = (isSpaceOfOther ? visible : found)[0].owners[0];
    const stop = found.at(-1).owners.at(-1) + 1;
    const letterCountOf = (n) => visible.filter(({ owners }) => owners.includes(n)).length;
    const pieces = Array.from({ length: stop - start }, (_, n) => start + n);
    const isShort = isLetters && pieces.length > 1 && pieces.every((n) => letterCountOf(n) <= FEW_LETTERS);
    const isSpelledOut = isShort || pieces.length >= MANY_PIECES;
    const text = visible.map((character) => character.text).join("");
    return isLetters || stop - start > 1 ? [{ text, start, stop, isLetters, isSpelledOut, characters: visible }] : [];
  });
}

/** The first of some words, each once; "…" stands for the others. */
const listed = (words) =>
  [...new Set(words)].map((word, n) => (n < MAX_WORDS_LISTED ? word : "…")).slice(0, MAX_WORDS_LISTED + 1);

/** The script of a word, on which a notice's advice depends: "latin" or "other" letters, "signs", or "punctuation". */
function scriptOf(word) {
  if (new RegExp(LATIN).test(word)) return "latin";
  if ([...word].some((character) => "LA".includes(kindOfCharacter(character)))) return "other";
  return /\p{S}/u.test(word) ? "signs" : "punctuation";
}

/**
 * Names of special tokens that were read like other words, as `special_names_of` in Python. split: the names of the
 * model's own tokens. unknown: other names. covered: the indices of the tokens that all these names were read as.
 */
function specialNamesIn(tokens, { names, isExact }) {
  const asRead = (text) => (isExact ? text : text.toLowerCase().replace(/\s/g, "")); // BERT drops them
  // Bytes that aren't characters, and special tokens, aren't parts of such a name: they separate names, like spaces.
  const isApart = ({ text, owners }) => !text || names.includes(tokens[owners[0]].symbol);
  const partsOf = (character) =>
    (isApart(character) ? " " : asRead(character.text)).split("").map((unit) => [unit, character.owners]);
  const parts = charactersIn(tokens).flatMap(partsOf); // in UTF-16 units, which a match's index counts
  const content = parts.map(([unit]) => unit).join("");
  const split = names.filter((name) => content.includes(asRead(name)));
  const ownersOf = (name, at) => [...new Set(parts.slice(at, at + name.length).flatMap(([, owners]) => owners))];
  const ownersOfAll = (name) => parts.flatMap((_, at) => (content.startsWith(name, at) ? ownersOf(name, at) : []));
  const matches = [...content.matchAll(new RegExp(SPECIAL_NAMES, isExact ? "gu" : "giu"))];
  const found = matches // a name that is read as one token isn't in pieces, so it isn't listed
    .map(({ 0: name, index }) => [name, ownersOf(name, index)])
    .filter(([name, owners]) => owners.length > 1 && !split.map(asRead).includes(name));
  const unknown = found.map(([name, owners]) => `${name} (${owners.length})`);
  const covered = new Set([...split.map(asRead).flatMap(ownersOfAll), ...found.flatMap(([, owners]) => owners)]);
  return { split: listed(split), unknown: listed(unknown), covered: [...covered].sort((a, b) => a - b) };
}

/** What a notice on a text says: words by what is wrong, their scripts, and whether sentences on words are in doubt. */
export function difficultIn(words, tokens, special) {
  const { split, unknown, covered } = specialNamesIn(tokens, special);
  const inNames = new Set(covered);
  const isInName = ({ start, stop }) =>
    Array.from({ length: stop - start }, (_, n) => start + n).every((n) => inNames.has(n));
  const spelledOut = words.filter((word) => word.isSpelledOut && !isInName(word)).map(({ text }) => text);
  const unread = tokens.flatMap(({ unread }) => (unread ? [unread] : []));
  const wordCount = words.filter(({ isLetters, isSpelledOut }) => isLetters || isSpelledOut).length;
  return {
    split, unknown, spelledOut: listed(spelledOut), unread: listed(unread),
    scripts: [...new Set([...spelledOut, ...unread].map(scriptOf))].sort(),
    isInDoubt: spelledOut.length + unread.length > MAX_SPELLED_OUT * wordCount,
  };
}

/** Which part of a character token n has, such as "1/3"; "" if the character is in one token. */
const fractionOf = ({ owners }, n) => (owners.length > 1 ? `${owners.indexOf(n) + 1}/${owners.length}` : "");

const codeOf = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
const signOf = (character) => SIGNS[character] ?? codeOf(character);

/** A text without the white space around it, in which invisible characters are signs or codes. */
function visibleText(text) {
  if (ONLY_INVISIBLE.test(text)) return [...text].map(signOf).join("");
  return text.trim().replace(INVISIBLE, (character) => (character === " " ? character : codeOf(character)));
}

/** A token's name, from its characters; n: its index. */
function nameFrom(characters, n) {
  const parts = characters.map(({ text, bytes, owners }) => {
    if (owners.length > 1) return ` ${ONLY_INVISIBLE.test(text) ? signOf(text) : text} ${fractionOf({ owners }, n)} `;
    return text || ` <${bytes[0].toString(16)}> `;
  });
  return visibleText(parts.join("").replaceAll(">  <", " ")); // <e5>  <ad> becomes <e5 ad>
}

/** A token as a piece of a word: the word's letters before it, in it and after it, and its fraction of a character. */
function pieceOf({ characters, start, stop }, n) {
  const textOf = (found) => found.map(({ text }) => text).join("");
  const indices = characters.flatMap(({ owners }, index) => (owners.includes(n) ? [index] : []));
  const [from, to] = indices.length ? [indices[0], indices.at(-1) + 1] : [0, 0]; // none: the space before the word
  const inside = characters.slice(from, to);
  const fraction = inside.map((character) => fractionOf(character, n)).findLast(Boolean) ?? "";
  return {
    before: textOf(characters.slice(0, from)),
    letters: textOf(inside) || "␣",
    fraction,
    after: textOf(characters.slice(to)),
    isFirst: n === start,
    isLast: n === stop - 1,
  };
}

/** A text's tokens, each with `word`, its name for readers, and if it is a piece of a word, `piece`, see `pieceOf`. */
export function withWords(tokens, characters = charactersIn(tokens), words = wordsIn(characters)) {
  const charactersOf = tokens.map(() => []);
  for (const character of characters) for (const n of character.owners) charactersOf[n].push(character);
  const pieces = new Map();
  for (const word of words.filter(({ start, stop }) => stop - start > 1))
    for (let n = word.start; n < word.stop; n++) if (!pieces.has(n)) pieces.set(n, pieceOf(word, n));
  return tokens.map((token, n) => ({
    ...token,
    word: charactersOf[n].length ? nameFrom(charactersOf[n], n) : token.symbol,
    piece: pieces.get(n),
  }));
}

/** A token's name for readers. A token that isn't in a text is named by its own bytes. */
export const wordOf = (token) => token.word ?? withWords([token])[0].word;

const MAX_CHARACTER_BYTES = 4; // bytes in UTF-8

/** A token after others, with its name there, which differs if the token completes a character. */
export function tokenAfter(tokens, token) {
  const { word } = withWords([...tokens.slice(1 - MAX_CHARACTER_BYTES), token]).at(-1);
  return { ...token, word };
}
