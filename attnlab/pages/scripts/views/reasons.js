// The part “Why this score” below a cell's arithmetic. It shows the score's largest pairs of parts as bars; a part is a
// link to where it is computed.

import { fixed } from "../numbers/formats.js";
import { countOfParts } from "../numbers/pairs.js";
import { say } from "../sources/description.js";
import { headOf } from "../sources/rows.js";
import { openHead, setDepth } from "../state/actions.js";
import { startEntry } from "../state/link.js";
import { isLook, on, selection, setQuietly } from "../state/store.js";
import { alignment, keyOf, traces } from "../state/traces.js";
import { barOf, rowOf, tokenElement } from "../drawing/draw.js";
import { buttonOf, byId, exact, make, tableOf } from "../drawing/elements.js";
import { cursorOf, focusHead, goToStep, selectPosition } from "../drawing/navigation.js";
import { nameOfReadPart, readReason, reasonInWords } from "../drawing/reasons.js";

/** The open cell in a trace, and the key that it is compared with, or null for the mean of the row. */
function comparedCell(trace) {
  const { layer, head, query, key, other } = selection.openCell;
  const cell = { layer, head, query: alignment.queries[query][trace.number], key: alignment.keys[key][trace.number] };
  const compared = other === undefined ? null : alignment.keys[other][trace.number];
  return { ...cell, other: compared === cell.key ? null : compared }; // equal if the compared key was opened since
}

/** Show where a part is computed: a head, or a step of the token in the forward pass. */
async function goToPart(trace, { kind, layer, head }, position) {
  if (kind === "head") {
    startEntry();
    await openHead(layer, head, () => selectPosition(trace, position));
    return isLook() ? focusHead() : cursorOf(trace.number).focus();
  }
  if (isLook()) {
    startEntry();
    setDepth("lab");
  }
  const paths = { token: "token_embedding", position: "position_embedding", mlp: `blocks.${layer}.mlp.output` };
  return goToStep(trace, position, paths[kind]);
}

/** A part's name, which leads to it. */
function partElement(trace, part, side, position) {
  const name = nameOfReadPart(part, side);
  // Cached tokens have no steps.
  const leads = ["head", "mlp", "token", "position"].includes(part.kind) && position >= 0;
  return leads ? buttonOf(() => goToPart(trace, part, position), { class: "leads" }, name) : name;
}

/** A table with a bar for each of the largest pairs, then the sum of the other pairs, and the total. */
function barsOf({ trace, layer, query, key, total, pairs }, isCached) {
  const size = Math.max(...pairs.map(([, , x]) => Math.abs(x))) || 1; // if all are 0
  const numberCell = (x) => exact(x, fixed(x, 2));
  const rows = pairs.map(([partOfQuery, partOfKey, x]) => {
    const nameOfKeysPart = make("span", {}, partElement(trace, partOfKey, "key", key - trace.cached));
    const bar = barOf(Math.abs(x) / size, x < 0 ? "below" : "");
    return rowOf(partElement(trace, partOfQuery, "query", query), [nameOfKeysPart, bar, numberCell(x)]);
  });
  const count = countOfParts(layer, trace.H);
  const others = count * (isCached ? count + 1 : count) - pairs.length; // cached keys are one more part, see readPart
  const rest = total - pairs.reduce((sum, [, , x]) => sum + x, 0);
  const feet = [
    rowOf(say("the other {count} pairs", { count: others }), ["", "", numberCell(rest)]),
    rowOf(say("total"), ["", "", numberCell(total)]),
  ];
  const headingOf = (words, token) => make("span", {}, words, " ", tokenElement(token));
  const headings = [
    headingOf(say("part of the query"), trace.tokens[query]), headingOf(say("part of the key"), trace.keys[key]), "",
    say("score"),
  ];
  return tableOf(say("The largest pairs of parts"), headings, rows, others ? feet : feet.slice(1));
}

/** Why there are no bars; "" if there are. */
function whyNoBars({ trace, query, key, visible, pairs }, { layer, head }) {
  if (!visible.includes(key)) return say("This key is masked for this query: its weight is 0, whatever its score.");
  if (visible.length === 1 || pairs?.length) return "";
  if (pairs) return say("An edit replaced a step that this score is computed from, so its parts don't add up to it.");
  const { heads, first } = trace.why; // the heads in the page's pack "why", and the first query in it
  const isHeadKnown = heads.some(([n, h]) => n === layer && h === head);
  if (isHeadKnown && query < first)
    return say("This page has the parts of scores only from position {first}.", { first: trace.cached + first });
  return say("This page doesn't have the largest parts of this score; {command} has those of all scores.", {
    command: "attnlab explore",
  });
}

/** Buttons to choose what the score is compared with: each other visible key, or the mean of the row. */
function comparedWithButtons(trace, { visible, key }) {
  const choose = (other) => {
    setQuietly({ openCell: { ...selection.openCell, other } });
    for (const section of byId("sums").querySelectorAll(".reasons")) section.update();
  };
  const chipOf = (n, words) => Object.assign(buttonOf(() => choose(n), { class: "chip" }, words), { other: n });
  const tokens = visible.filter((j) => j !== key).map((j) => chipOf(keyOf(trace, j), tokenElement(trace.keys[j])));
  return make(
    "div", { class: "compared-with", role: "group", "aria-label": say("compared with") }, say("compared with"), " ",
    chipOf(undefined, say("the mean of the row")), ...tokens,
  );
}

function sectionOf(trace) {
  const section = make("section", { class: "reasons" }, make("h3", {}, say("Why this score")));
  const content = make("div", { "aria-live": "polite" });
  let buttons; // what the score is compared with, once there is a choice
  section.update = async () => {
    const cell = comparedCell(trace);
    const reason = await readReason(trace, cell);
    const isOutdated = !section.isConnected || JSON.stringify(comparedCell(trace)) !== JSON.stringify(cell);
    if (isOutdated) return; // another cell or another key was chosen while this was read
    const missing = whyNoBars(reason, cell);
    if (!buttons && reason.visible.length > 1 && !missing) {
      buttons = comparedWithButtons(trace, reason);
      section.firstChild.after(buttons);
    }
    const other = cell.other === null ? undefined : selection.openCell.other; // the mean's button has `undefined`
    for (const chip of buttons?.querySelectorAll("button") ?? []) chip.ariaPressed = String(chip.other === other);
    const { edited } = headOf(trace, cell.layer, cell.head);
    const notes = [
      missing,
      ["masked_scores", "weights"].some((name) => edited.has(name)) &&
        say("The weights of this head are edited: they don't follow from its scores."),
      reason.pairs?.length &&
        say("LayerNorm's deviation is held constant. A part isn't a cause: without it, later parts would differ too."),
    ].filter(Boolean);
    const words = missing ? [] : [make("p", {}, ...reasonInWords(reason))];
    const bars = reason.pairs?.length ? [barsOf(reason, trace.cached > 0)] : [];
    content.replaceChildren(...words, ...bars, ...notes.map((words) => make("p", { class: "note" }, words)));
  };
  section.append(content);
  return section;
}

export function startReasons() {
  on("traces openCell language", () => {
    if (!selection.openCell) return;
    for (const article of byId("sums").querySelectorAll("[data-trace]")) {
      const section = sectionOf(traces[article.dataset.trace]);
      article.querySelector(".chain").after(section);
      section.update();
    }
  });
}
