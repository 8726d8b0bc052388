// Sentences about the heads that affect the next token most, from the pack "story", see
// attnlab/views/page/overview.py.

import { brief, percent, percentages, wordOf } from "../numbers/formats.js";
import { say, sayParts, spaceBetween } from "../sources/description.js";
import { jobOf, jobsInWords } from "../sources/jobs.js";
import { loadLayer, source } from "../sources/source.js";
import { chooseHead } from "../state/actions.js";
import { isAt, isLook, on, selection } from "../state/store.js";
import { headsToDescribe } from "../state/story.js";
import { nameOfPart, traces } from "../state/traces.js";
import { buttonOf, byId, exact, make, rowOf, tableOf, tokenElement } from "../drawing/draw.js";
import { enterHead } from "../drawing/levels.js";

const IMPROBABLE = 0.01; // if the most probable token is below it, the model is undecided

const wordElement = (token) => make("bdi", {}, make("strong", {}, brief(wordOf(token.symbol))));

/** Two sentences about a head, as elements and strings: what it attends to, and the effect of its ablation. */
function sentencesOf(trace, { ids, before }, { key, weight, affected, after }) {
  const query = trace.tokens.at(-1);
  const values = { query: wordElement(query), key: wordElement(trace.keys[key]), share: percent(weight) };
  const attention =
    key === trace.Tk - 1
      ? sayParts("“{query}” looks at itself ({share} of its attention).", values)
      : sayParts("“{query}” looks at “{key}” ({share} of its attention).", values);
  const [then, now] = percentages(before[affected], after[affected]);
  const change = { word: wordElement(trace.names.get(ids[affected])), then, now };
  const effect = () => {
    if (before[0] < IMPROBABLE) return effectIfUndecided(trace, change.word, before[0], after[0]);
    if (then === now) return sayParts("Without this head, “{word}” stays at {now}.", change);
    if (after[affected] < before[affected]) return sayParts("Without this head, “{word}” falls from {then} to {now}.", change);
    return sayParts("Without this head, “{word}” rises from {then} to {now}.", change);
  };
  return [...attention, spaceBetween(), ...effect()];
}

/** The effect of a head's ablation on the most probable token if no token is probable, as in an untrained model. */
function effectIfUndecided(trace, word, before, after) {
  const values = { word, share: percent(before, 3), uniform: percent(1 / trace.prediction.vocab, 3), change: percent(Math.abs(after / before - 1), 1) };
  return after < before
    ? sayParts("No next token is probable: “{word}” comes first with {share}, where a guess has {uniform}. Without this head, it is {change} less probable.", values)
    : sayParts("No next token is probable: “{word}” comes first with {share}, where a guess has {uniform}. Without this head, it is {change} more probable.", values);
}

/** Show only the paragraphs about the open block or head; at the model's level, all. */
function filterStory() {
  for (const paragraph of byId("story").children) {
    const { layer, head } = paragraph.about;
    paragraph.hidden = isLook() && !isAt("model") && (layer !== selection.layer || (head !== selection.head && !isAt("block")));
    paragraph.querySelector("button").disabled = isAt("head", "matrix", "number"); // the head is already open
  }
}

/** A paragraph about a head: a button with its name, which opens it, then the sentences. The first says what 1.0 means. */
function paragraphAbout({ layer, head }, sentences, isFirst = false) {
  const title = nameOfPart({ layer, head });
  const name = isFirst ? say("Head {layer}.{head} (layer {layer}, head {head})", { layer, head }) : say("Head {layer}.{head}", { layer, head });
  const button = buttonOf(() => enterHead(layer, head), { class: "leads", "data-tip": title }, name);
  return Object.assign(make("p", {}, button, say(": "), ...sentences), { about: { layer, head } });
}

/** If the picture leaves out tokens, show which drawn token attends farthest back. */
function showFarthest() {
  const trace = traces.at(-1);
  const farthest = trace.drawing.findFarthest();
  byId("story").querySelector(".farthest")?.remove();
  if (farthest) {
    const { i, j, weight } = farthest;
    const [query, key] = [i, j].map((n) => wordElement(trace.tokens[n]));
    const sentence = sayParts("Of the tokens drawn, “{query}” looks farthest back, by {count}: at “{key}” ({share} of its attention).", { query, key, count: String(i - j), share: percent(weight) });
    const paragraph = paragraphAbout(farthest, sentence);
    paragraph.classList.add("farthest");
    byId("story").append(paragraph);
  }
  filterStory();
}

/** Show the last trace's story. */
function showStory() {
  const trace = traces.at(-1);
  const { story } = trace;
  byId("story").ariaBusy = "false";
  const heads = story ? headsToDescribe(story) : [];
  byId("story").replaceChildren(...heads.map((head, n) => paragraphAbout(head, sentencesOf(trace, story, head), n === 0)));
  showFarthest();
  if (story) rankHeads(trace, story);
}

export function startStory() {
  on("traces", () => {
    byId("story").hidden = !source.has(traces.at(-1), "story");
    byId("story").ariaBusy = "true";
    byId("ranked").replaceChildren();
  });
  on("story", () => "story" in traces.at(-1) && showStory());
  on("picture", showFarthest);
  on("level depth head", filterStory);
}

// What other parts of the page show below the list: functions of a trace and of the next tokens' ids.
export const moreBoxes = [];

const HEADS_LISTED = 8; // until the button for all is pressed

/** List the ablated heads, those with the largest effect on the most probable token first. */
async function rankHeads(trace, { ids, before, heads }) {
  const effect = ({ after }) => Math.abs(before[0] - after[0]);
  const ranked = [...heads].sort((a, b) => effect(b) - effect(a));
  await Promise.all([...new Set(ranked.map(({ layer }) => layer))].map((layer) => loadLayer(trace, layer)));
  if (traces.at(-1) !== trace) return;
  const rows = ranked.map(({ layer, head, key, weight, after }) => {
    const title = nameOfPart({ layer, head });
    const button = buttonOf(() => chooseHead(layer, head, false), { class: "row-button", "data-tip": title }, `${layer}.${head}`);
    const [job, attention] = jobOf(trace, layer, head);
    const badge = job ? make("span", { "data-job": job }, `${jobsInWords()[job]} `, exact(attention, percent(attention))) : "";
    const [then, now] = percentages(before[0], after[0]);
    const effects = make("span", {}, exact(before[0], then), " → ", exact(after[0], now));
    const cells = [effects, make("span", {}, tokenElement(trace.keys[key]), " ", exact(weight, percent(weight))), badge];
    return rowOf(button, cells);
  });
  const query = trace.tokens.at(-1).symbol;
  const caption = make("span", {}, ...sayParts("Heads by what ablating them does to {word}", { word: tokenElement(trace.names.get(ids[0])) }));
  const headings = [say("head"), say("ablated"), say("{query} attends to", { query: brief(query) }), say("all attend to")];
  const showAll = ({ target }) => {
    for (const row of rows) row.hidden = false;
    target.remove();
  };
  const allButton = buttonOf(showAll, {}, say("All {count} ablated heads", { count: rows.length }));
  for (const row of rows.slice(HEADS_LISTED)) row.hidden = true;
  const controls = [...(rows.length > HEADS_LISTED ? [allButton] : []), ...moreBoxes.map((make) => make(trace, ids))];
  byId("ranked").replaceChildren(tableOf(caption, headings, rows), ...controls);
}
