// Where tokens' attention goes, see numbers/rest.js, and the sentence about it.

import { attendedIn } from "../numbers/rest.js";
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
