// Where tokens' attention goes, see numbers/rest.js, and the sentence about it.

import { percent } from "../numbers/formats.js";
import { attendedIn } from "../numbers/rest.js";
import { NOTABLE } from "../numbers/constants.js";
import { say, sayParts, spaceBetween } from "./description.js";
import { headOf, isSeen, stepRow, weightsInLayer } from "./rows.js";

/** Where query i's attention goes in some heads, with their weights. */
function attendedOf(trace, heads, rows, i) {
  const isVisible = (n, j) => isSeen(heads[n], i * trace.Tk + j);
  const all = attendedIn(rows, isVisible, trace.cached + i === 0);
  return all.map((attended, n) => ({ ...attended, weights: rows[n], isAblated: heads[n].isAblated }));
}

/** Where query i's attention goes in a head of a loaded layer. */
export function attendedBy(trace, layer, head, i) {
  const loaded = headOf(trace, layer, head);
  return attendedOf(trace, [loaded], [stepRow(loaded, "weights", i)], i)[0];
}

/** Where query i's attention goes in each head of a loaded layer. */
export function attendedInLayer(trace, layer, i) {
  const { heads, attended } = trace.loaded.get(layer);
  if (!attended.has(i)) attended.set(i, attendedOf(trace, heads, weightsInLayer(trace, layer, i), i));
  return attended.get(i);
}

/** The mean share that rests on the first token, over heads that aren't ablated; 0 if there are none. */
export function meanRest(attended) {
  const active = attended.filter(({ isAblated }) => !isAblated);
  return active.reduce((sum, { rest }) => sum + rest, 0) / (active.length || 1);
}

/** Whether the sentences about a query's attention say how much rests on the first token. */
export const saysWhatRests = ({ rest, kind }) => kind === "rests" || (kind !== "alone" && rest >= NOTABLE);

/**
 * The sentences about where a token's attention goes, as elements and strings; `wordAt(j)` names a key. With the plain
 * weights; the first token's only as the share that rests. As in attnlab/views/attended.py. `isAgain`: an earlier
 * sentence has said which token is the first one.
 */
export function attentionInWords(attended, own, wordAt, isAgain = false) {
  const { rest, kind, key, weights } = attended;
  const query = wordAt(own);
  if (kind === "alone") return sayParts("“{query}” is the first token and sees only itself.", { query });
  const named = { key: wordAt(0) };
  const first = isAgain ? sayParts("“{key}”", named) : sayParts("the first token, “{key}”", named);
  const values = { query, rest: percent(rest), first };
  if (kind === "rests") return sayParts("“{query}” rests: {rest} of its attention is on {first}.", values);
  if (!saysWhatRests(attended)) return goalInWords(attended, query, own, wordAt);
  // What has most of the attention comes first.
  return rest > weights[key]
    ? [...sayParts("{rest} of the attention of “{query}” rests on {first}.", values), spaceBetween(), ...ofTheOthersInWords(attended, own, wordAt)]
    : [...goalInWords(attended, query, own, wordAt), spaceBetween(), ...sayParts("{rest} of its attention rests on {first}.", values)];
}

/** Where attention goes besides the first token. */
function goalInWords(attended, query, own, wordAt) {
  const { kind, visible } = attended;
  const { keys, share, each, isTied, isUniform } = largestInWords(attended, own, wordAt);
  if (isUniform) return sayParts("“{query}” attends to {count} tokens equally, {share} each.", { query, share, count: String(visible.length) });
  if (kind === "spreads") return sayParts("“{query}” spreads its attention: it gives {keys} the most, {share}.", { query, keys, share: each });
  return isTied
    ? sayParts("“{query}” looks at {keys} ({share} of its attention each).", { query, keys, share })
    : sayParts("“{query}” looks at {keys} ({share} of its attention).", { query, keys, share });
}

/** The same after a sentence about the first token, which has more of the attention. */
function ofTheOthersInWords(attended, own, wordAt) {
  const { keys, share, each, isUniform } = largestInWords(attended, own, wordAt);
  if (isUniform) return sayParts("The other {count} tokens get {share} each.", { share, count: String(attended.visible.length) });
  return sayParts("Of the other tokens, it gives {keys} the most, {share}.", { keys, share: each });
}

/** The keys with the most attention, of which several may have the same share as it is written. */
function largestInWords({ kind, key, visible, weights }, own, wordAt) {
  const share = percent(weights[key]);
  const others = visible.filter((j) => j !== key && percent(weights[j]) === share);
  const isTied = others.length > 0;
  const [first, second] = others.includes(own) ? [own, key] : [key, others[0]];
  const values = { key: wordAt(first), other: isTied && wordAt(second), count: String(others.length) };
  const named = () => {
    if (!isTied) return first === own ? [say("itself")] : sayParts("“{key}”", values);
    if (others.length > 1) return first === own ? sayParts("itself and {count} others", values) : sayParts("“{key}” and {count} others", values);
    return first === own ? sayParts("itself and “{other}”", values) : sayParts("“{key}” and “{other}”", values);
  };
  const isUniform = kind === "uniform" || (kind === "spreads" && others.length === visible.length - 1);
  return { share, isTied, isUniform, each: isTied ? say("{share} each", { share }) : share, keys: named() };
}
