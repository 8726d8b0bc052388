// The list of heads that affect the next token most, from the pack "story", see attnlab/pages/overview.py.

import { brief, percent, percentages } from "../numbers/formats.js";
import { wordOf } from "../numbers/words.js";
import { say, sayParts } from "../sources/description.js";
import { jobOf, jobsInWords } from "../sources/jobs.js";
import { chooseHead } from "../state/actions.js";
import { isLook, on } from "../state/store.js";
import { nameOfPart, nextTokenOf, traces } from "../state/traces.js";
import { exact, rowOf, tableOf, tokenElement } from "../drawing/draw.js";
import { buttonOf, byId, make } from "../drawing/elements.js";

const HEADS_LISTED = 8; // until the button for all is pressed

/**
 * List the ablated heads, those with the largest effect on the most probable token first: the last token's weight on the
 * first token, where attention rests, and the largest of its other weights.
 */
function rankHeads(trace, { ids, before, heads }) {
  const effect = ({ after }) => Math.abs(before[0] - after[0]);
  const ranked = [...heads].sort((a, b) => effect(b) - effect(a));
  const rows = ranked.map(({ layer, head, attended: { key, rest, weights }, after }) => {
    const title = nameOfPart({ layer, head });
    const button = buttonOf(() => chooseHead(layer, head), { class: "row-button", "data-tip": title }, `${layer}.${head}`);
    const [job, attention] = jobOf(trace, layer, head);
    const badge = job ? make("span", { "data-job": job }, `${jobsInWords()[job]} `, exact(attention, percent(attention))) : "";
    const [then, now] = percentages(before[0], after[0]);
    const effects = make("span", {}, exact(before[0], then), " → ", exact(after[0], now));
    const attends = key === undefined ? "" : make("span", {}, tokenElement(trace.keys[key]), " ", exact(weights[key], percent(weights[key])));
    const cells = [effects, exact(rest, percent(rest)), attends, badge];
    return rowOf(button, cells);
  });
  const query = trace.tokens.at(-1);
  const caption = make("span", {}, ...sayParts("Heads by what ablating them does to {word}", { word: tokenElement(nextTokenOf(trace, trace.T - 1, ids[0])) }));
  const headings = [say("head"), say("ablated"), say("rests"), say("{query} attends to", { query: brief(isLook() ? wordOf(query) : query.symbol) }), say("all attend to")];
  const showAll = ({ target }) => {
    for (const row of rows) row.hidden = false;
    target.remove();
  };
  const allButton = buttonOf(showAll, {}, say("All {count} ablated heads", { count: rows.length }));
  for (const row of rows.slice(HEADS_LISTED)) row.hidden = true;
  const controls = rows.length > HEADS_LISTED ? [allButton] : [];
  byId("ranked").replaceChildren(tableOf(caption, headings, rows), ...controls);
}

export function startStory() {
  on("traces", () => byId("ranked").replaceChildren());
  on("story", () => {
    const trace = traces.at(-1);
    if (trace.story) rankHeads(trace, trace.story);
  });
}
