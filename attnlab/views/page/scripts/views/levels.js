// The levels of the page's simpler mode, Look: the model, a block, a head, one of its matrices, a number. Each
// opens from the one before, by pointer or Enter; Escape, the breadcrumb and the browser's Back return to it.

import { brief, wordOf } from "../numbers/formats.js";
import { say } from "../sources/description.js";
import { alignment, isAt, isLook, LEVELS, selection, traces } from "../state/state.js";
import { byId, make, reducesMotion } from "../drawing/draw.js";
import { closeArithmetic, openArithmetic, openCell } from "./arithmetic.js";
import { chooseHead } from "./lines.js";
import { picture, showPicture } from "./picture.js";
import { filterStory } from "./story.js";
import { showStage, stopPlaying } from "./tour.js";
import { heatmaps, linkTimer, openHead, updateLink, writeLink } from "../page/page.js";

/** Change what is shown, animated unless reduced motion is requested or the browser can't. */
function smoothly(change) {
  if (reducesMotion.matches || !document.startViewTransition) return change();
  const transition = document.startViewTransition(change);
  transition.ready.catch(() => {}); // rejected if skipped: in a hidden page, or when the next one starts
  return transition.updateCallbackDone;
}

let animated; // the element with which the animation starts or ends

function animate(element) {
  animated?.style.removeProperty("view-transition-name");
  animated = element;
  animated?.style.setProperty("view-transition-name", "level");
}

/** The open head's map in the picture; undefined if its trace has no such head. */
const mapOfOpenHead = () => picture.maps[selection.layer * picture.view.H + selection.head]?.cell;

/**
 * The element that shows the content of a deeper level at `level`, such as a head's small map in the
 * picture. An animation turns one such element into the other.
 */
function elementShowing(deeper, level) {
  if (!["model", "block"].includes(level)) return byId("head");
  if (deeper !== "block") return mapOfOpenHead();
  return level === "model" ? picture.titles[selection.layer] : byId("picture");
}

/** Go to a level of a layer and head; then call `then`. */
export async function zoomTo(level, { layer, head } = selection, then = () => {}) {
  const before = selection.level;
  const deeper = LEVELS[Math.max(LEVELS.indexOf(before), LEVELS.indexOf(level))];
  startEntry();
  stopPlaying();
  selection.isHeadChosen = true;
  const opening = openHead(layer, head, then);
  if (opening) await opening;
  animate(elementShowing(deeper, before));
  await smoothly(() => {
    showLevel(level);
    animate(elementShowing(deeper, level));
    scrollTo(0, 0);
    focusLevel();
  });
}

/** One level out. */
export const zoomOut = () => zoomTo(LEVELS[LEVELS.indexOf(selection.level) - 1]);

function focusLevel() {
  const target = isAt("model", "block") ? mapOfOpenHead() : isAt("number") ? byId("arithmetic-title") : heatmaps.at(-1).cursor;
  target?.focus({ preventScroll: true });
}

/** Show a level, without animation. */
export function showLevel(level) {
  selection.level = level;
  document.body.dataset.level = level;
  if (isAt("model", "block", "head")) selection.step = "weights";
  if (level !== "number" && openCell) closeArithmetic();
  if (isAt("block")) showStage(null);
  showCrumbs();
  filterStory();
  showPicture();
  openHead(selection.layer, selection.head);
}

/** The breadcrumb: the levels from the model to the current one. */
export function showCrumbs() {
  const { layer, head, step } = selection;
  const { query, key } = openCell ?? selection;
  const label = (positions, tokens) => {
    const number = positions.findIndex((n) => n !== null); // the first trace that has it
    return brief(wordOf(traces[number][tokens][positions[number]].symbol));
  };
  const names = {
    model: () => say("Model"),
    block: () => say("Layer {layer}", { layer }),
    head: () => say("Head {head}", { head }),
    matrix: () => step,
    number: () => `“${label(alignment.queries[query], "tokens")}” → “${label(alignment.keys[key], "keys")}”`,
  };
  const deepest = LEVELS.indexOf(selection.level);
  byId("crumbs").hidden = !isLook() || deepest === 0;
  byId("crumbs").firstElementChild.replaceChildren(
    ...LEVELS.slice(0, deepest + 1).map((level, n) => {
      const name = make("button", { type: "button" }, names[level]());
      if (n === deepest) name.ariaCurrent = "location";
      else name.addEventListener("click", () => zoomTo(level));
      return make("li", {}, name);
    }),
  );
}

/** Enter a head from the first screen. */
export const enterHead = (layer, head, then) => (isLook() ? zoomTo("head", { layer, head }, then) : chooseHead(layer, head, false, then));

/** Go deeper at a cell of a map: to the map alone, then to the cell's arithmetic. */
export function enterCell(cursor) {
  if (isAt("head")) return zoomTo("matrix");
  if (isLook()) startEntry();
  return openArithmetic(cursor);
}

// ---- the browser's history ---------------------------------------------------------------------------

/** Show what follows as a new entry in the browser's history. */
export function startEntry() {
  if (linkTimer) writeLink();
  selection.isNewEntry = true;
  updateLink();
}
