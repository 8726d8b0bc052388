// From a head's weights in a text: which word it looks at most, and how much the head deserves to be described.

import { PREVIOUS, PREVIOUS_ROWS } from "./constants.js";

/** The word with the largest weight in a row, except the first word and word `own`; -1 if there is no other. */
export function mostLookedAt(row, own) {
  let most = -1;
  for (let j = 1; j < row.length; j++) if (j !== own && row[j] > 0 && (most < 0 || row[j] > row[most])) most = j;
  return most;
}

/**
 * Whether a head looks at the word before: whether the mean of that weight over the last rows is large, as in
 * attnlab/pages/overview.py. rowOf(i): the weights of query i of `count`.
 */
export function looksAtPrevious(rowOf, count) {
  const first = Math.max(1, count - PREVIOUS_ROWS);
  let sum = 0;
  for (let i = first; i < count; i++) sum += rowOf(i)[i - 1];
  return count > first && sum / (count - first) > PREVIOUS;
}

/**
 * How much a head deserves to be described: its effect on the next word × the share of the word that it looks at most.
 * Half of that for a head that looks at the word before everywhere, since that says little about this sentence. One or
 * two words leave nothing else to look at: there, the share counts as 1.
 *
 * effect: the change of the next word's probability without the head; 1 if it isn't known
 */
export function worthOf(rowOf, count, own, effect) {
  const row = rowOf(count - 1);
  const most = mostLookedAt(row, own);
  const share = most < 0 ? Number(row.length < 3) : row[most];
  return effect * share * (looksAtPrevious(rowOf, count) ? 0.5 : 1);
}
