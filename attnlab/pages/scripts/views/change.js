// How next-token probabilities change between the last two traces. Both need all logits, because a token that is
// likely in one may have any rank in the other.

import { brief } from "../numbers/formats.js";
import { samplingProbability } from "../numbers/predictions.js";
import { say } from "../sources/description.js";
import { source, withProbabilities } from "../sources/source.js";
import { isLook, settings } from "../state/store.js";
import { alignment, DIFFERENCE, distinctions, queryIn, traces } from "../state/traces.js";
import { barOf, exact, onceAFrame, rowOf, tableOf, tokenElement } from "../drawing/draw.js";
import { buttonOf, byId, make } from "../drawing/elements.js";
import { nextTokenTitle } from "../drawing/names.js";

const CANDIDATES = 5; // of each prediction

/** The most probable tokens of either prediction, as [id, before, now]; the most probable now come first. */
function changesOf(predictions) {
  const likely = predictions.flatMap(({ ids, renormalized }) => ids.slice(0, CANDIDATES).filter((_, n) => renormalized[n] > 0));
  const probabilitiesOf = (id) => predictions.map((prediction) => samplingProbability(id, prediction, settings.temperature));
  return [...new Set(likely)].map((id) => [id, ...probabilitiesOf(id)]).sort((a, b) => b[2] - a[2] || b[1] - a[1]);
}

/**
 * The table at the open head: changes from the trace `before`, null if there is none, to the trace `now`; `compare` shows
 * both.
 */
export function makeChange(before, now, compare) {
  const box = byId("change");
  const both = [before, now];
  const nameOf = (id) => both.map(({ names }) => names.get(id)).find(Boolean);
  const isCompared = traces.length === 2; // if not, both have the same text
  const headings = isCompared ? ["A", "B", DIFFERENCE] : [say("before"), say("now"), say("change")];
  const draw = onceAFrame(async () => {
    if (traces.at(-1) !== now) return; // another text has been opened
    if (isLook()) return box.replaceChildren();
    if (!before) return box.replaceChildren(noteOf());
    const positions = both.map(queryIn);
    const read = await Promise.all(both.map((trace, n) => source.predictionAfter(trace, positions[n])));
    // Another token or text may have been chosen since.
    if (traces.at(-1) !== now || both.map(queryIn).join() !== positions.join()) return;
    const position = positions.at(-1);
    const predictions = read.map((prediction, n) => withProbabilities(both[n], prediction, settings));
    const rows = changesOf(predictions).map(([id, earlier, later]) => {
      const bars = make("div", { "aria-hidden": "true" }, barOf(earlier, "then"), barOf(later));
      const numbers = [probabilityElement(earlier), probabilityElement(later), probabilityElement(later - earlier, true)];
      return rowOf(tokenElement(nameOf(id)), [bars, ...numbers]);
    });
    const table = tableOf(make("div", {}, ...nextTokenTitle(now, position)), [say("token"), "", ...headings], rows);
    box.replaceChildren(table, make("p", { class: "note" }, ...causeOf(positions)));
  });

  /** Without a trace before: how to get one. */
  function noteOf() {
    const button = compare && buttonOf(compare, { class: "leads" }, say("Compare with the previous text"));
    return make("p", { class: "note" }, say("Ablate a head or an MLP to see what changes here."), ...(button ? [" ", button] : []));
  }

  /** How the two traces differ, with the position in the earlier trace if it isn't the same. */
  function causeOf([earlier, later]) {
    const [a, b] = distinctions(both, isCompared ? alignment.queries : now.ids.map((_, n) => [n, n]));
    const isSame = earlier === later && before.ids[earlier] === now.ids[earlier];
    const location = isSame ? "" : ` (${before.cached + earlier} ${brief(before.tokens[earlier].symbol)})`;
    return [make("span", {}, `${headings[0]}: ${a}${location}`), make("span", {}, `${headings[1]}: ${b}`)];
  }

  return { draw };
}

function probabilityElement(probability, isChange = false) {
  const sign = isChange && probability > 0 ? "+" : "";
  const shown = `${sign}${probability.toFixed(4)}`.replace("-", "−");
  return exact(probability, shown);
}
