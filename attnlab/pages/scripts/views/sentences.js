// Sentences about one head: where a word looks, who looks at it, and what follows without the head.

import { percent, percentages } from "../numbers/formats.js";
import { looksAtPrevious, mostLookedAt } from "../numbers/looks.js";
import { joinSentences, say, sayParts, spaceBetween } from "../sources/description.js";
import { buttonOf, make } from "../drawing/elements.js";
import { shareWriter } from "./stage.js";

const MIN_RESTING = 0.3; // a larger share on the first word is mentioned
const MIN_NAMED = 0.01; // words with a smaller share aren't named
const MIN_SEEN = 0.1; // the smallest share with which a word is said to look at another one
const MANY_QUERIES = 200; // in longer texts, it isn't said who looks at a word
const FEW_QUERIES = 3; // in texts of so few words, it isn't said what every word does
const MIN_RISE = 0.05; // the rise of another next word that is worth saying

const wordElementOf = (text, name) => make("b", { class: name }, text.trim() || "␣");

/** A word of a sentence. If the sentence has the word several times, its number among these follows, from 1. */
function wordAt(texts, n, name) {
  const word = (text) => text.trim().toLowerCase();
  const equal = [...texts.keys()].filter((other) => word(texts[other]) === word(texts[n]));
  const element = wordElementOf(texts[n], name);
  if (equal.length > 1) element.append(make("sub", {}, String(equal.indexOf(n) + 1)));
  return element;
}

/**
 * Where a word looks in a head: {words, named}. words: a sentence, as elements and strings. named: the indices of the
 * text's words that the sentence says are looked at. `shareButton(text)` makes the element of a share.
 */
export function lookInWords(shown, rowOf, query, { layer, head }, shareButton) {
  const { isSelf, isCausal, keys } = shown;
  const row = rowOf(query);
  const writtenShare = shareWriter(row);
  const own = isSelf ? query : -1;
  const said = { name: `${layer}.${head}`, word: wordAt(shown.queries, query, "looker") };
  if (isSelf && isCausal && query === 0)
    return { words: sayParts("“{word}” is the first word: it can look only at itself.", said), named: [] };
  const visible = isCausal ? query + 1 : row.length;
  if (isUniform(row, visible)) {
    const values = { ...said, count: String(visible), share: shareButton(writtenShare(row[0])) };
    const words = sayParts("In head {name}, “{word}” looks at all {count} words equally, {share} each.", values);
    return { words, named: [...Array(visible).keys()] };
  }
  // Attention rests on the first word of the query's text. That is named only if no other is, or just before the query.
  const largest = row.indexOf(Math.max(...row));
  const key = mostLookedAt(row, own); // -1 if no other word is looked at
  const isFirst = largest === 0 && (!isSelf || key < 0 || query === 1);
  const other = Math.max(key, 0);
  const looksAtItself = largest === own && row[own] > row[other];
  const most = isFirst ? 0 : looksAtItself ? own : other;
  const share = shareButton(writtenShare(row[most]));
  const values = { ...said, share, other: wordAt(keys, most, "looked-at") };
  if (isSelf && !isFirst && row[0] > MIN_RESTING && row[0] > row[most])
    return { words: restInWords({ ...values, rest: writtenShare(row[0]) }), named: [most] };
  if (row[most] < MIN_NAMED) {
    // Rounded up, so that “no more than” is true.
    const few = { ...said, share: shareButton(percent(Math.ceil(1000 * row[most]) / 1000, 1)) };
    const words = sayParts("In head {name}, “{word}” gives no word more than {share} of its attention.", few);
    return { words, named: [] };
  }
  // Words whose shares are written with the same number are named together.
  const isTied = (j) => j !== most && j !== own && writtenShare(row[j]) === writtenShare(row[most]);
  const tied = most === own ? [] : [...row.keys()].filter(isTied);
  if (tied.length) {
    const second = wordAt(keys, tied[0], "looked-at");
    const words = tiedInWords({ ...values, second, count: String(tied.length) });
    return { words, named: [most, ...tied] };
  }
  if (most === own) {
    const words = sayParts("In head {name}, “{word}” looks at itself with {share} of its attention.", values);
    return { words, named: [own] };
  }
  const T = shown.queries.length;
  const looksBefore = isSelf && most === query - 1 && T > FEW_QUERIES && looksAtPrevious(rowOf, T);
  return { words: looksBefore ? beforeInWords(values) : otherInWords(values), named: [most] };
}

/** Whether a row gives the same weight to all of its visible words. */
const isUniform = (row, visible) =>
  visible > 1 && [...row].slice(0, visible).every((weight) => Math.abs(weight * visible - 1) < 1e-3);

const otherInWords = (values) =>
  sayParts("In head {name}, “{word}” looks at “{other}” with {share} of its attention.", values);

const restInWords = (values) => sayParts(
  "In head {name}, {rest} of the attention of “{word}” rests on the first word; {share} goes to “{other}”.", values,
);

const beforeInWords = (values) => sayParts(
  "In head {name}, “{word}” gives {share} of its attention to the word before, “{other}”, as most words do there.",
  values,
);

function tiedInWords(values) {
  if (values.count === "1") return sayParts(
    "In head {name}, “{word}” looks at “{other}” and “{second}” with {share} of its attention each.", values,
  );
  return sayParts(
    "In head {name}, “{word}” looks at “{other}” and {count} other words with {share} of its attention each.", values,
  );
}

/** Which word looks at a word most; [] if none gives it a large share, or if that word looks at all equally. */
export function lookedAtInWords(shown, rowOf, query) {
  if (!shown.isSelf || shown.queries.length > MANY_QUERIES) return [];
  const shares = shown.queries.map((_, i) => (i === query ? 0 : rowOf(i)[query])); // how much each word looks here
  const most = shares.indexOf(Math.max(...shares));
  const visible = shown.isCausal ? most + 1 : shares.length;
  if (shares[most] < MIN_SEEN || isUniform(rowOf(most), visible)) return [];
  return sayParts("“{other}” looks at “{word}” most: {share} of its attention.", {
    other: wordAt(shown.queries, most, "looker"), word: wordAt(shown.keys, query, "looked-at"),
    share: shareWriter(rowOf(most))(shares[most]),
  });
}

/** The start of a sentence on a silenced head: one whose context is set to its average or, without averages, to 0. */
export const withoutInWords = ({ layer, head }, hasAverages = true) =>
  hasAverages
    ? say("Without head {name}", { name: `${layer}.${head}` })
    : say("With head {name} switched off", { name: `${layer}.${head}` });

/**
 * Sentences on what follows from a change. next: the next words, [{text, before, after}], the most probable one first.
 * without: how the sentence begins. unlisted: the largest share, before or after, of all words that aren't in `next`,
 * or 1 if it isn't known. isHead: whether the change is that one head is silenced.
 */
export function effectInWords(next, { without, unlisted = 1, isHead = true }) {
  const [first, ...others] = next;
  const change = ({ before, after }) => after - before;
  const isRise = change(first) > 0;
  const moved = Math.abs(change(first));
  const sorted = others.sort((a, b) => change(a) - change(b));
  // The word that changes most in the other direction.
  const opposite = (isRise ? sorted[0] : sorted.at(-1)) ?? { text: "", before: 0, after: 0 };
  const opposed = Math.max(0, (isRise ? -1 : 1) * change(opposite));
  const valuesOf = (next) => [wordElementOf(next.text, "next-word"), ...percentages(next.before, next.after)];
  const [word, then, now] = valuesOf(first);
  const values = { without, word, then, now };
  if (then === now) return [spaceBetween(), ...sayParts("{without}, “{word}” stays at {now}.", values)];
  if (opposed >= MIN_RISE || 2 * opposed >= moved) {
    const [[word, then, now], [other, before, after]] = (isRise ? [opposite, first] : [first, opposite]).map(valuesOf);
    const both = { without, word, then, now, other, before, after };
    return [
      spaceBetween(),
      ...sayParts(
        "{without}, “{word}” falls from {then} to {now}, and “{other}” rises from {before} to {after}.", both,
      ),
    ];
  }
  const words = !isRise
    ? sayParts("{without}, “{word}” falls from {then} to {now}.", values)
    : isHead
      ? sayParts("{without}, “{word}” rises from {then} to {now}: the head works against it.", values)
      : sayParts("{without}, “{word}” rises from {then} to {now}.", values);
  if (moved < MIN_RISE || 2 * unlisted >= moved) return [spaceBetween(), ...words];
  // None of the words has half of the change, so at least three share it.
  const [name, before, after] = valuesOf(opposite);
  const shared = isRise ? say("Several words lose what it gains") : say("Several words share what it loses");
  const most =
    opposed > unlisted
      ? sayParts("{shared}, “{other}” most: from {before} to {after}.", { shared, other: name, before, after })
      : [say("{shared}.", { shared })];
  return [spaceBetween(), ...words, spaceBetween(), ...most];
}

/** The button that silences a head, and gives it back; it follows the sentence about this head. */
export function silenceButtonOf(press, isSilenced, hasAverages = true) {
  const offer = hasAverages ? say("silence it") : say("switch it off");
  const words = isSilenced ? say("give it back") : offer;
  return buttonOf(press, { id: "silence", "aria-pressed": String(isSilenced) }, words);
}

/** That a silenced head was given back, because another one was chosen. */
export const givenBackInWords = ({ layer, head }) => say("Head {name} is given back.", { name: `${layer}.${head}` });

/**
 * Sentences on the drawings of all heads. word: the most probable next word; "" if no effects on it are shown. tried:
 * the count of heads whose effect is known. largest: the largest effect. explainsChoice: whether to say why this head
 * is open.
 */
export function headsInWords({ layers, H, isSelf }, { word, tried, largest, explainsChoice }) {
  const count = layers * H;
  const sentences = [say("All {count} heads over the same words.", { count })];
  if (isSelf) sentences.push(say("Grey is attention that rests on the first word."));
  if (!word) return joinSentences(...sentences);
  const points = (100 * largest).toFixed(largest < 0.1 ? 1 : 0);
  const values = { word, tried, points: points === "0.0" ? "< 0.1" : points };
  sentences.push(say(
    "Bar: how far the head raises (right) or lowers (left) “{word}”; the longest is {points} points of probability.",
    values,
  ));
  if (tried < count) sentences.push(say("Heads that were tried: {tried}.", values));
  if (explainsChoice) sentences.push(
    say("The sentence is about the head whose bar × share of one word is largest."),
    say("A head that looks at the word before everywhere counts half."),
  );
  return joinSentences(...sentences);
}
