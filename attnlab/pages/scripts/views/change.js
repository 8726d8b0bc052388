// How next-token probabilities change between the last two traces. Both need all logits, because a token that is
// likely in one may have any rank in the other.

import { brief } from "../numbers/formats.js";
import { samplingProbability } from "../numbers/predictions.js";
import { say } from "../sources/description.js";
import { source, withProbabilities } from "../sources/source.js";
import { requests } from "../state/requests.js";
import { isLook, on, set, settings } from "../state/store.js";
import { alignment, DIFFERENCE, distinctions, queryIn, traceOf, traces } from "../state/traces.js";
import { barOf, exact, onceAFrame, rowOf, tableOf, tokenElement } from "../drawing/draw.js";
import { buttonOf, byId, make } from "../drawing/elements.js";
import { nextTokenTitle } from "../drawing/names.js";

const CANDIDATES = 5; // of each prediction

/** The most probable tokens of either prediction, as [id, before, now]; the most probable now come first. */
function changesOf(predictions) {
  const likely = predictions.flatMap(({ ids, renormalized }) =>
    ids.slice(0, CANDIDATES).filter((_, n) => renormalized[n] > 0),
  );
  const probabilitiesOf = (id) =>
    predictions.map((prediction) => samplingProbability(id, prediction, settings.temperature));
  return [...new Set(likely)].map((id) => [id, ...probabilitiesOf(id)]).sort((a, b) => b[2] - a[2] || b[1] - a[1]);
}

let former = []; // the traces that were shown before, with their numbers
let before; // the trace that the shown one, the last of `traces`, is compared with; null if there is none

/** Choose what to compare with: the trace before, of another text only if both are shown. */
function followTraces() {
  const now = traces.at(-1);
  const previous = requests.kept.at(-2);
  const isSameText = previous?.ids.join() === now.ids.join();
  const shown = former.find(({ id, number }) => id === previous?.id && number === 0);
  before = traces.length === 2 ? traces[0] : isSameText ? (shown ?? traceOf(previous, 0)) : null;
  former = traces;
}

/** Draw the table at the open head. */
const drawChange = onceAFrame(async () => {
  const box = byId("change");
  const now = traces.at(-1);
  const both = [before, now];
  if (isLook()) return box.replaceChildren();
  if (!before) return box.replaceChildren(howToCompare());
  const positionsNow = () => both.map((trace) => queryIn(trace));
  const positions = positionsNow();
  const read = await Promise.all(both.map((trace, n) => source.predictionAfter(trace, positions[n])));
  // Another token or text may have been chosen since.
  if (traces.at(-1) !== now || positionsNow().join() !== positions.join()) return;
  const predictions = read.map((prediction, n) => withProbabilities(both[n], prediction, settings));
  const nameOf = (id) => both.map(({ names }) => names.get(id)).find(Boolean);
  const rows = changesOf(predictions).map(([id, earlier, later]) => {
    const bars = make("div", { "aria-hidden": "true" }, barOf(earlier, "then"), barOf(later));
    const change = probabilityElement(later - earlier, true);
    const numbers = [probabilityElement(earlier), probabilityElement(later), change];
    return rowOf(tokenElement(nameOf(id)), [bars, ...numbers]);
  });
  const headings = traces.length === 2 ? ["A", "B", DIFFERENCE] : [say("before"), say("now"), say("change")];
  const caption = make("div", {}, ...nextTokenTitle(now, positions.at(-1)));
  const table = tableOf(caption, [say("token"), "", ...headings], rows);
  box.replaceChildren(table, make("p", { class: "note" }, ...causeOf(both, positions, headings)));
});

/** Without a trace to compare with: how to get one. */
function howToCompare() {
  const compare = () => {
    set({ isComparing: true });
    byId("compare").focus(); // the button is removed
  };
  const button = buttonOf(compare, { class: "leads" }, say("Compare with the previous text"));
  const words = say("Ablate a head or an MLP to see what changes here.");
  return make("p", { class: "note" }, words, ...(requests.kept.length > 1 ? [" ", button] : []));
}

/** How the two traces differ, with the position in the earlier trace if it isn't the same. */
function causeOf(both, [earlier, later], [nameBefore, nameNow]) {
  const [, now] = both;
  const [a, b] = distinctions(both, traces.length === 2 ? alignment.queries : now.ids.map((_, n) => [n, n]));
  const isSame = earlier === later && before.ids[earlier] === now.ids[earlier];
  const location = isSame ? "" : ` (${before.cached + earlier} ${brief(before.tokens[earlier].symbol)})`;
  return [make("span", {}, `${nameBefore}: ${a}${location}`), make("span", {}, `${nameNow}: ${b}`)];
}

function probabilityElement(probability, isChange = false) {
  const sign = isChange && probability > 0 ? "+" : "";
  const shown = `${sign}${probability.toFixed(4)}`.replace("-", "−");
  return exact(probability, shown);
}

export function startChange() {
  on("traces language", followTraces);
  on("traces language query settings depth level", drawChange);
}
