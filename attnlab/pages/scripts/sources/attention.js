// The attention that a page of words shows: of any model, as attnlab/pages/words.py wrote it.

import { description } from "./description.js";
import { embeddedNumbers } from "./embedded.js";

/**
 * {queries, keys, isSelf, isCausal, layers, H, weights(layer, head, i), next, effects}: the words that look, and those
 * that are looked at; whether these are the same, and whether no word looks at a later one; the weights of query i. The
 * most probable next words, [{text, probability}], and by head, such as "3.4", their probabilities without it; null if
 * unknown. hasNext: whether next words are shown.
 */
export async function readAttention() {
  const { queries, keys, layers, heads: H, next, effects, is_causal: isCausal } = description;
  const numbers = await embeddedNumbers(document.getElementById("weights"));
  const [Tq, Tk] = [queries.length, (keys ?? queries).length];
  const weights = (layer, head, i) =>
    numbers.subarray(((layer * H + head) * Tq + i) * Tk, ((layer * H + head) * Tq + i + 1) * Tk);
  return {
    queries, keys: keys ?? queries, isSelf: !keys, isCausal, layers, H, weights, next, effects, hasNext: Boolean(next),
  };
}
