// Sentences about one head: where a word looks, who looks at it, and what follows without the head.

import { percentages } from "../numbers/formats.js";
import { looksAtPrevious, mostLookedAt } from "../numbers/looks.js";
import { say, sayParts, spaceBetween } from "../sources/description.js";
import { make } from "../drawing/elements.js";
import { writtenShare } from "./stage.js";

const MIN_RESTING = 0.3; // the share on the first word from which on the sentence says so
const MIN_SEEN = 0.1; // the share from which on it is said who looks at a word
const MANY_QUERIES = 200; // of a longer text it isn't said who looks at a word
const FEW_QUERIES = 3; // of a shorter text it isn't said what every word does
const MIN_RISE = 0.05; // the rise of another next word that is worth saying

const wordElementOf = (text, name) => make("b", { class: name }, text.trim() || "␣");

/** A word of a sentence; of equal words, with a number that says which it is, from 1. */
function wordAt(texts, n, name) {
  const word = (text) => text.trim().toLowerCase();
  const equal = [...texts.keys()].filter((other) => word(texts[other]) === word(texts[n]));
  const element = wordElementOf(texts[n], name);
  if (equal.length > 1) element.append(make("sub", {}, String(equal.indexOf(n) + 1)));
  return element;
}

/**
 * Where a word looks in a head: {words, namesFirst}; words are elements and strings, namesFirst: whether they speak of the
 * first word as something that is looked at. `shareButton(text)` makes the element of a share.
 */
export function lookInWords(shown, rowOf, query, { layer, head }, shareButton) {
  const row = rowOf(query);
  const [own, name] = [shown.isSelf ? query : -1, `${layer}.${head}`];
  const looker = wordAt(shown.queries, query, "looker");
  if (shown.isSelf && shown.isCausal && query === 0) return { words: sayParts("“{word}” is the first word: it can look only at itself.", { word: looker }), namesFirst: false };
  const largest = row.indexOf(Math.max(...row));
  const visible = shown.isCausal ? query + 1 : row.length;
  const isUniform = visible > 1 && [...row].slice(0, visible).every((weight) => Math.abs(weight * visible - 1) < 1e-3);
  if (isUniform) return { words: sayParts("In head {name}, “{word}” looks at all {count} words equally, {share} each.", { name, word: looker, count: String(visible), share: shareButton(writtenShare(row[0])) }), namesFirst: true };
  // The first word is where attention rests: it is named if nothing else is looked at, or if it is the word before.
  const key = mostLookedAt(row, own);
  const isFirst = largest === 0 && (!shown.isSelf || key < 0 || query === 1);
  const most = isFirst ? 0 : largest === own && row[own] > row[Math.max(key, 0)] ? own : Math.max(key, 0);
  const values = { name, word: looker, other: wordAt(shown.keys, most, "looked-at"), share: shareButton(writtenShare(row[most])) };
  if (shown.isSelf && !isFirst && row[0] > MIN_RESTING && row[0] > row[most])
    return { words: sayParts("In head {name}, {rest} of the attention of “{word}” rests on the first word; {share} goes to “{other}”.", { ...values, rest: writtenShare(row[0]) }), namesFirst: false };
  // Words whose shares are written with the same number are named together.
  const tied = [...row.keys()].filter((j) => most !== own && j !== most && j !== own && writtenShare(row[j]) === writtenShare(row[most]));
  if (tied.length) {
    const others = { ...values, second: wordAt(shown.keys, tied[0], "looked-at"), count: String(tied.length) };
    const words =
      tied.length === 1
        ? sayParts("In head {name}, “{word}” looks at “{other}” and “{second}” with {share} of its attention each.", others)
        : sayParts("In head {name}, “{word}” looks at “{other}” and {count} other words with {share} of its attention each.", others);
    return { words, namesFirst: most === 0 || tied.includes(0) };
  }
  const words =
    most === own
      ? sayParts("In head {name}, “{word}” looks at itself with {share} of its attention.", values)
      : shown.isSelf && most === query - 1 && shown.queries.length > FEW_QUERIES && looksAtPrevious(rowOf, shown.queries.length)
        ? sayParts("In head {name}, “{word}” looks at the word before it, “{other}”, with {share} of its attention, as every word does there.", values)
        : sayParts("In head {name}, “{word}” looks at “{other}” with {share} of its attention.", values);
  return { words, namesFirst: most === 0 };
}

/** Who looks at a word most, if any word does. */
export function lookedAtInWords(shown, rowOf, query) {
  if (!shown.isSelf || shown.queries.length > MANY_QUERIES) return [];
  const seen = shown.queries.map((_, i) => (i === query ? 0 : rowOf(i)[query]));
  const most = seen.indexOf(Math.max(...seen));
  if (seen[most] < MIN_SEEN) return [];
  return sayParts("“{other}” looks at “{word}” most: {share} of its attention.", { other: wordAt(shown.queries, most, "looker"), word: wordAt(shown.keys, query, "looked-at"), share: writtenShare(seen[most]) });
}

/**
 * What follows without a head. next: the next words, [{text, before, after}], the most probable one first; hasAverages:
 * whether the head was set to its average, not to 0.
 */
export function effectInWords(next, hasAverages = true) {
  const [first, ...others] = next;
  const change = ({ before, after }) => after - before;
  const isRise = change(first) > 0;
  const sorted = others.sort((a, b) => change(a) - change(b));
  const other = isRise ? sorted[0] : sorted.at(-1); // what changes most the other way
  const [fallen, risen] = isRise ? [other, first] : [first, other];
  const without = hasAverages ? say("Without this head") : say("With this head switched off");
  const valuesOf = (next) => [wordElementOf(next.text, "next-word"), ...percentages(next.before, next.after)];
  const [word, then, now] = valuesOf(first);
  const values = { without, word, then, now };
  let words;
  if (then === now) words = sayParts("{without}, “{word}” stays at {now}.", values);
  else if (other && (isRise ? -1 : 1) * change(other) >= MIN_RISE) {
    const [[word, then, now], [other, before, after]] = [fallen, risen].map(valuesOf);
    const both = { without, word, then, now, other, before, after };
    words = sayParts("{without}, “{word}” falls from {then} to {now}, and “{other}” rises from {before} to {after}.", both);
  } else if (isRise) words = sayParts("{without}, “{word}” rises from {then} to {now}: the head works against it.", values);
  else words = sayParts("{without}, “{word}” falls from {then} to {now}.", values);
  return [spaceBetween(), ...words];
}
