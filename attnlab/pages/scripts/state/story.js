// The heads that affect the next token most. Their numbers are in the pack "story": see packs.py and overview.py in
// attnlab/pages.

import { worthOf } from "../numbers/looks.js";
import { headOf, stepRow } from "../sources/rows.js";
import { loadLayer, source } from "../sources/source.js";
import { openHead, select } from "./actions.js";
import { changed, selection } from "./store.js";
import { alignment, queryOf, traces } from "./traces.js";

/** Fulfilled when the next frame has been painted. */
export const nextFrame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));

/**
 * Decode the pack "story" of a trace, and add the last token's weights. null if the source lacks the pack.
 *
 * The pack has a count of tokens, the most probable tokens' ids, and their probabilities. Then, for each head: its
 * layer and number, the same tokens' probabilities without it, and the ids of the tokens that are most probable without
 * it, with their probabilities without and with it.
 */
async function readStory(trace) {
  if (!source.has(trace, "story")) return null;
  if (trace.id !== undefined) { // only traces of a page with a model have an id
    // The model takes longer to compute this pack than all else, so all else is shown first.
    await source.predictionAfter(trace, trace.T - 1);
    await nextFrame();
    if (traces.at(-1) !== trace) return null;
  }
  const numbers = [...(await source.pack(trace, "story"))]; // each splice below takes the next ones
  const [count] = numbers.splice(0, 1);
  const ids = numbers.splice(0, count);
  const before = numbers.splice(0, count);
  const heads = [];
  while (numbers.length) {
    const [layer, head] = numbers.splice(0, 2);
    const [after, newIds, newAfter, newBefore] = Array.from({ length: 4 }, () => numbers.splice(0, count));
    await loadLayer(trace, layer);
    const known = ids.map((id, n) => ({ id, before: before[n], after: after[n] }));
    const others = newIds.map((id, n) => ({ id, before: newBefore[n], after: newAfter[n] }));
    const next = [...known, ...others.filter(({ id }) => !ids.includes(id))];
    const weights = stepRow(headOf(trace, layer, head), "weights", trace.T - 1);
    // effect: what the head adds to the most probable token. No token outside `next` is more probable than `unlisted`:
    // with the head, than the last of `ids`; without it, than the last of `newIds`.
    heads.push({
      layer, head, weights, next, effect: before[0] - after[0], unlisted: Math.max(before.at(-1), newAfter.at(-1)),
    });
  }
  return { ids, heads };
}

/** The head that is described first: see `worthOf`. */
function headToDescribe(trace, { heads }) {
  const worthOfHead = ({ layer, head, effect }) => {
    const loaded = headOf(trace, layer, head);
    return worthOf((i) => stepRow(loaded, "weights", i), trace.T, trace.cached + trace.T - 1, Math.abs(effect));
  };
  const worth = new Map(heads.map((one) => [one, worthOfHead(one)]));
  return heads.reduce((best, one) => (worth.get(one) > worth.get(best) ? one : best));
}

/** Open the last text's most important head once it is known, unless the reader has chosen one. */
export async function openStory() {
  const trace = traces.at(-1);
  const last = alignment.queries.length - 1; // selected when a text is opened
  const story = await readStory(trace);
  if (traces.at(-1) !== trace) return; // another text has been opened
  trace.story = story;
  changed("story");
  if (!story || selection.isHeadChosen || selection.query !== last) return; // another token has been chosen
  const first = headToDescribe(trace, story);
  const query = queryOf(trace, trace.T - 1);
  await openHead(first.layer, first.head, () => {
    if (selection.query === last) select(query); // another token may have been chosen while it loaded
  });
}
