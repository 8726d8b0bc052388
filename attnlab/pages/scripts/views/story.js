// Sentences about the heads that affect the next token most, from the pack "story", see
// attnlab/pages/overview.py.

import { brief, percent, percentages, percentsOf } from "../numbers/formats.js";
import { wordOf } from "../numbers/words.js";
import { attentionInWords, saysWhatRests } from "../sources/attended.js";
import { say, sayParts, spaceBetween } from "../sources/description.js";
import { jobOf, jobsInWords } from "../sources/jobs.js";
import { source } from "../sources/source.js";
import { chooseHead } from "../state/actions.js";
import { isAt, isLook, on, selection } from "../state/store.js";
import { headsToDescribe } from "../state/story.js";
import { nameOfPart, nextTokenOf, traces } from "../state/traces.js";
import { buttonOf, byId, exact, make, rowOf, tableOf, tokenElement, wordElement, wordInSentence } from "../drawing/draw.js";
import { enterHead } from "../drawing/levels.js";
import { reasonFor } from "../drawing/reasons.js";

const IMPROBABLE = 0.01; // if the most probable token is below it, the model is undecided

/** The paragraphs about heads: where their attention goes, and the effect of their ablation. The first, the headline, says why. */
function paragraphsOf(trace, story) {
  const heads = headsToDescribe(story);
  const isAgain = (n) => heads.slice(0, n).some(({ attended }) => saysWhatRests(attended));
  return heads.map((described, n) => {
    const { layer, head, attended, affected, after } = described;
    const attention = attentionInWords(attended, trace.Tk - 1, (j) => wordInSentence(trace.keys[j]), isAgain(n));
    const reason = n ? [] : [reasonFor(trace, layer, head, trace.T - 1, attended)];
    const attends = make("span", { class: "attends" }, ...attention, spaceBetween());
    return paragraphAbout(described, [attends, ...effectInWords(trace, story, affected, after), ...reason], n === 0);
  });
}

/** The effect of a head's ablation on one of the next tokens. */
function effectInWords(trace, { ids, before }, affected, after) {
  const isUndecided = before[0] < IMPROBABLE;
  const n = isUndecided ? 0 : affected;
  const word = wordElement(nextTokenOf(trace, trace.T - 1, ids[n]));
  const [then, now] = percentages(before[n], after[n]);
  const guess = isUndecided ? [...guessInWords(trace, ids, before), spaceBetween()] : [];
  if (after.every((probability, k) => probability === before[k])) return [...guess, say("Without this head, nothing changes.")];
  if (isUndecided) return [...guess, ...relativeEffect(word, after[n] / before[n])];
  if (then === now) return sayParts("Without this head, “{word}” stays at {now}.", { word, now });
  if (after[n] < before[n]) return sayParts("Without this head, “{word}” falls from {then} to {now}.", { word, then, now });
  return sayParts("Without this head, “{word}” rises from {then} to {now}: the head works against it.", { word, then, now });
}

/** That no next token is probable, as in an untrained model; several may come first. */
function guessInWords(trace, ids, before) {
  const values = { share: percentsOf(before)[0], uniform: percentsOf([1 / trace.prediction.vocab])[0] };
  const first = ids.filter((_, n) => before[n] === before[0]).map((id) => wordElement(nextTokenOf(trace, trace.T - 1, id)));
  if (first.length === 1) return sayParts("No next token is probable: “{word}” comes first with {share}, where a guess has {uniform}.", { ...values, word: first });
  const words = first.flatMap((word, n) => [n ? ", " : "", "“", word, "”"]);
  return sayParts("No next token is probable: {words} tie at {share}, where a guess has {uniform}.", { ...values, words });
}

/** How a small probability changes by a factor. */
function relativeEffect(word, factor) {
  const change = factor < 1 ? percent(1 - factor, 1) : `${(100 * (factor - 1)).toFixed(1)}\u00a0%`; // may be above 100 %
  return factor < 1
    ? sayParts("Without this head, “{word}” is {change} less probable.", { word, change })
    : sayParts("Without this head, “{word}” is {change} more probable: the head works against it.", { word, change });
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

/** Show the last trace's story. */
function showStory() {
  const trace = traces.at(-1);
  const { story } = trace;
  byId("story").ariaBusy = "false";
  byId("story").replaceChildren(...(story ? paragraphsOf(trace, story) : []));
  filterStory();
  if (story) rankHeads(trace, story);
}

export function startStory() {
  on("traces", () => {
    byId("story").hidden = !source.has(traces.at(-1), "story");
    byId("story").ariaBusy = "true";
    byId("ranked").replaceChildren();
  });
  on("story", () => "story" in traces.at(-1) && showStory());
  on("level depth head", filterStory);
}

// What other parts of the page show below the list: functions of a trace and of the next tokens' ids.
export const moreBoxes = [];

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
    const button = buttonOf(() => chooseHead(layer, head, false), { class: "row-button", "data-tip": title }, `${layer}.${head}`);
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
  const controls = [...(rows.length > HEADS_LISTED ? [allButton] : []), ...moreBoxes.map((make) => make(trace, ids))];
  byId("ranked").replaceChildren(tableOf(caption, headings, rows), ...controls);
}
