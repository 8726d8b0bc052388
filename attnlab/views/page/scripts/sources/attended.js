// Where tokens' attention goes, see numbers/rest.js, and the sentence about it.

import { percent } from "../numbers/formats.js";
import { attendedIn } from "../numbers/rest.js";
import { NOTABLE } from "../numbers/constants.js";
import { sayParts, spaceBetween } from "./description.js";
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
  const values = { query, rest: percent(rest), first: wordAt(0) };
  if (kind === "rests")
    return isAgain
      ? sayParts("“{query}” rests: {rest} of its attention is on “{first}”.", values)
      : sayParts("“{query}” rests: {rest} of its attention is on the first token, “{first}”.", values);
  const isStated = saysWhatRests(attended);
  // What has most of the attention comes first.
  if (isStated && rest > weights[key]) {
    const resting = isAgain
      ? sayParts("{rest} of the attention of “{query}” rests on “{first}”.", values)
      : sayParts("{rest} of the attention of “{query}” rests on the first token, “{first}”.", values);
    return [...resting, spaceBetween(), ...ofTheOthersInWords(attended, own, wordAt)];
  }
  const resting = () =>
    isAgain
      ? sayParts("{rest} of its attention rests on “{first}”.", values)
      : sayParts("{rest} of its attention rests on the first token, “{first}”.", values);
  return [...goalInWords(attended, query, own, wordAt), ...(isStated ? [spaceBetween(), ...resting()] : [])];
}

/** Where attention goes besides the first token. */
function goalInWords({ kind, key, visible, weights }, query, own, wordAt) {
  const values = { query, share: percent(weights[key]), count: String(visible.length) };
  if (kind === "uniform") return sayParts("“{query}” attends to {count} tokens equally, {share} each.", values);
  if (kind === "spreads")
    return key === own
      ? sayParts("“{query}” spreads its attention: it gives itself the most, {share}.", values)
      : sayParts("“{query}” spreads its attention: “{key}” gets the most, {share}.", { ...values, key: wordAt(key) });
  return key === own
    ? sayParts("“{query}” looks at itself ({share} of its attention).", values)
    : sayParts("“{query}” looks at “{key}” ({share} of its attention).", { ...values, key: wordAt(key) });
}

/** The same after a sentence about the first token, which has more of the attention. */
function ofTheOthersInWords({ kind, key, visible, weights }, own, wordAt) {
  const values = { share: percent(weights[key]), count: String(visible.length) };
  if (kind === "uniform") return sayParts("The other {count} tokens get {share} each.", values);
  return key === own
    ? sayParts("Of the other tokens, it gives itself the most, {share}.", values)
    : sayParts("Of the other tokens, “{key}” gets the most, {share}.", { ...values, key: wordAt(key) });
}
