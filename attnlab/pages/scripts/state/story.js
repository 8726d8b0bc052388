// The heads that affect the next token most, from the pack "story", see attnlab/pages/overview.py.

import { attendedBy } from "../sources/attended.js";
import { loadLayer, source } from "../sources/source.js";
import { openHead, select } from "./actions.js";
import { changed, selection } from "./store.js";
import { alignment, queryOf, traces } from "./traces.js";

const MIN_DROP = 0.1; // the drop of a probability that is worth describing a second head

/** Fulfilled when the next frame has been painted. */
export const nextFrame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));

/** The pack "story" of a trace, decoded, with where the last token attends; null if the source doesn't have it. */
async function readStory(trace) {
  if (!source.has(trace, "story")) return null;
  if (trace.id !== undefined) {
    // Computing it takes longer than all else, which is shown before.
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
    const without = newIds.map((id, n) => ({ id, probability: newBefore[n], without: newAfter[n] })); // the most probable tokens
    heads.push({ layer, head, attended: attendedBy(trace, layer, head, trace.T - 1), after, without });
  }
  return { ids, before, heads };
}

/**
 * The heads to describe, each with `affected`, the index of a next token. The first is the head whose ablation
 * changes the probability of the most probable token most. The second attends to another key, besides the first token, and its ablation
 * lowers the probability of another token most.
 */
export function headsToDescribe({ before, heads }) {
  const drop = ({ after }, n) => before[n] - after[n];
  const [first] = [...heads].sort((a, b) => Math.abs(drop(b, 0)) - Math.abs(drop(a, 0)));
  const [second] = heads
    .filter(({ attended }) => attended.key !== first.attended.key)
    .flatMap((head) => before.slice(1).map((_, n) => ({ ...head, affected: n + 1 })))
    .sort((a, b) => drop(b, b.affected) - drop(a, a.affected));
  const isLarge = second && drop(second, second.affected) >= MIN_DROP;
  return [{ ...first, affected: 0 }, ...(isLarge ? [second] : [])];
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
  const [first] = headsToDescribe(story);
  const query = queryOf(trace, trace.T - 1);
  await openHead(first.layer, first.head, () => {
    if (selection.query === last) select(query); // another token may have been chosen while it loaded
  });
}
