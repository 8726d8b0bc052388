// Why a query looks at a key, in a sentence: its score by pairs of parts, see numbers/pairs.js.

import { fixed } from "../numbers/formats.js";
import { readPart } from "../numbers/pairs.js";
import { say, sayParts } from "../sources/description.js";
import { headOf, isMasked, stepRow } from "../sources/rows.js";
import { source } from "../sources/source.js";
import { wordInSentence } from "./draw.js";
import { make } from "./elements.js";

/**
 * Explain a score. `total` is its difference from the score of the key `other`, or if that is null, from the mean of
 * the visible keys. `pairs` are the largest pairs, [part of the query, part of the key, product]: empty if an edit
 * replaced a sum, null if the page lacks them.
 */
export async function readReason(trace, { layer, head, query, key, other = null }) {
  const loaded = headOf(trace, layer, head);
  const visible = [...trace.keys.keys()].filter((j) => !isMasked(loaded, query, j));
  const scores = stepRow(loaded, "scores", query);
  const mean = visible.reduce((sum, j) => sum + scores[j], 0) / visible.length;
  const total = scores[key] - (other === null ? mean : scores[other]);
  const hasReason = visible.length > 1 && visible.includes(key); // not if the key's weight is 0 or 1 whatever its score
  const pairs = hasReason ? await source.pairs(trace, { layer, head, query, key, other }) : [];
  return {
    trace, layer, query, key, other, visible, total,
    pairs: pairs?.map(([m, k, x]) => [readPart(m, layer, trace.H), readPart(k, layer, trace.H), x]),
  };
}

/** A part's name; side: of the "query" or the "key". */
export function nameOfReadPart({ kind, layer, head }, side) {
  if (kind === "head") return say("layer {layer} head {head}", { layer, head });
  if (kind === "mlp") return `MLP ${layer}`;
  if (kind === "b_O") return say("{name} of layer {layer}", { name: "b_O", layer });
  if (kind === "bias") return side === "query" ? "b_Q" : "b_K";
  return {
    token: say("token embedding"), position: say("position embedding"), norm: say("LayerNorm's bias"),
    cached: say("cached keys"),
  }[kind];
}

/** A token in quotation marks, with its position if the text has it twice. */
function quoted(trace, n) {
  const isTwice = trace.keys.filter(({ id }) => id !== undefined && id === trace.keys[n].id).length > 1;
  return make("span", {}, "“", wordInSentence(trace.keys[n]), isTwice ? `” (${n})` : "”");
}

/**
 * What is compared, in words: which way the difference goes. The words are functions that make elements, since an
 * element can stand only once in the page.
 */
function leadOf({ other, visible, total }, { query, key, otherKey }) {
  const values = { query: query(), key: key(), other: other !== null && otherKey(), count: String(visible.length) };
  if (other !== null && total >= 0) return sayParts("{query} looks more at {key} than at {other}", values);
  if (other !== null) return sayParts("{query} looks less at {key} than at {other}", values);
  if (total >= 0) return sayParts("{query} scores {key} above the mean of its {count} keys", values);
  return sayParts("{query} scores {key} below the mean of its {count} keys", values);
}

/** A reason as elements and strings, as `Why.sentence` in attnlab/analysis/why.py; without known pairs, none. */
export function reasonInWords(reason) {
  const { trace, query: i, key: j, other, visible, total, pairs } = reason;
  const words = {
    query: () => quoted(trace, trace.cached + i), key: () => quoted(trace, j), otherKey: () => quoted(trace, other),
  };
  if (visible.length === 1)
    return sayParts("{query} sees only one key, {key}: its weight is 1, whatever the score.", {
      query: words.query(), key: words.key(),
    });
  const sign = total >= 0 ? 1 : -1;
  const [partOfQuery, partOfKey, product] = pairs?.toSorted((a, b) => sign * (b[2] - a[2]))[0] ?? [];
  if (!total || !(sign * product > 0)) return []; // also if no pairs are known: `product` is undefined then
  const phraseOf = (read, side) => {
    const name = nameOfReadPart(read, side);
    return ["head", "mlp"].includes(read.kind) ? say("what {part} wrote", { part: name }) : name;
  };
  const [first, second] = [phraseOf(partOfQuery, "query"), phraseOf(partOfKey, "key")];
  const named = { first, second, query: words.query(), key: words.key() };
  const pairInWords = () => {
    if (first === second) return say("{part} at both", { part: first });
    if (partOfQuery.kind === "bias") return sayParts("{first}, the same for every query, and {second} at {key}", named);
    return sayParts("{first} at {query} and {second} at {key}", named);
  };
  const values = { lead: leadOf(reason, words), pair: pairInWords(), part: fixed(product, 2), total: fixed(total, 2) };
  // If another pair, or all others, take back at least half of the largest, no single pair is the reason.
  const opposing = sign * Math.min(...pairs.map(([, , x]) => sign * x)); // the product that takes back most
  const takenBack = Math.max(-sign * opposing, sign * (product - total));
  if (sign * product > sign * total && 2 * takenBack >= sign * product)
    return sayParts("{lead}: {total}. Many pairs nearly cancel; the largest are {most} and {least}.", {
      ...values, most: signed(product), least: signed(opposing),
    });
  if (sign * product > sign * total)
    return sayParts("{lead} because of {pair}: {part}, and {rest} from all other pairs.", {
      ...values, rest: signed(total - product),
    });
  // A product of half the total is enough. The rounded numbers, which the reader compares, count too.
  if (2 * sign * product >= sign * total || 2 * sign * values.part >= sign * values.total)
    return sayParts("{lead} because of {pair}: {part} of {total}.", values);
  return sayParts("{lead}. No pair of parts is half of that; the largest is {pair}: {part} of {total}.", values);
}

const signed = (x) => (fixed(x, 2)[0] === "-" ? fixed(x, 2) : `+${fixed(x, 2)}`);
