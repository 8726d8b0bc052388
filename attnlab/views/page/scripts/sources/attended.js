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

/**
 * The sentences about where a token's attention goes, as elements and strings; `wordAt(j)` names a key. With the plain
 * weights; the first token's only as the share that rests. As in attnlab/views/attended.py.
 */
export function attentionInWords(attended, own, wordAt) {
  const { rest, kind } = attended;
  const restInWords = () => sayParts("{rest} of its attention rests on the first token, “{first}”.", { rest: percent(rest), first: wordAt(0) });
  const isStated = rest >= NOTABLE && !["alone", "rests"].includes(kind);
  return [...goalInWords(attended, own, wordAt), ...(isStated ? [spaceBetween(), ...restInWords()] : [])];
}

function goalInWords({ rest, kind, key, visible, weights }, own, wordAt) {
  const query = wordAt(own);
  if (kind === "alone") return sayParts("“{query}” is the first token and sees only itself.", { query });
  if (kind === "rests") return sayParts("“{query}” rests: {rest} of its attention is on the first token, “{first}”.", { query, rest: percent(rest), first: wordAt(0) });
  const share = percent(weights[key]);
  if (kind === "uniform") return sayParts("“{query}” attends to {count} tokens equally, {share} each.", { query, count: String(visible.length), share });
  const isItself = key === own;
  if (kind === "spreads")
    return isItself
      ? sayParts("“{query}” spreads its attention: it gives itself the most, {share}.", { query, share })
      : sayParts("“{query}” spreads its attention: “{key}” gets the most, {share}.", { query, share, key: wordAt(key) });
  return isItself
    ? sayParts("“{query}” looks at itself ({share} of its attention).", { query, share })
    : sayParts("“{query}” looks at “{key}” ({share} of its attention).", { query, share, key: wordAt(key) });
}
