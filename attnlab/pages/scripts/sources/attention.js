// The attention that a page of words shows. It may be of any model; attnlab/pages/words.py wrote it.

import { description } from "./description.js";
import { embeddedNumbers } from "./embedded.js";

/**
 * Read the page's attention. queries, keys: the words that look, and those that are looked at. isSelf: whether both
 * are the same. isCausal: whether no word looks at a later one. weights(layer, head, i): the weights of query i. next:
 * the most probable next words, [{text, probability}], or null. effects: by head, such as "3.4", the probabilities
 * without the head, or null.
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
