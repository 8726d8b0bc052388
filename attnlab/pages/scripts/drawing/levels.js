// Going from one level of Look to another, animated: the model, a block, a head, one of its matrices, a number.

import { chooseHead, openCellAt, openHead, setDepth, showLevel } from "../state/actions.js";
import { startEntry } from "../state/link.js";
import { isAt, isLook, LEVELS, selection } from "../state/store.js";
import { views } from "../state/traces.js";
import { byId, reducesMotion } from "./draw.js";

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

/** The open head's map in the picture; null if its trace has no such head. */
const mapOfOpenHead = () => document.querySelector("#picture .mini[aria-selected=true]");

/**
 * The element that shows the content of a deeper level at `level`, such as a head's small map in the
 * picture. An animation turns one such element into the other.
 */
function elementShowing(deeper, level) {
  if (!["model", "block"].includes(level)) return byId("head");
  if (deeper !== "block") return mapOfOpenHead();
  return level === "model" ? document.querySelector("#picture .block[tabindex='0']") : byId("picture");
}

/** Go to a level of a layer and head; then call `then`. */
export async function zoomTo(level, { layer, head } = selection, then = () => {}) {
  const before = selection.level;
  const deeper = LEVELS[Math.max(LEVELS.indexOf(before), LEVELS.indexOf(level))];
  startEntry();
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
  const target = isAt("model", "block") ? mapOfOpenHead() : isAt("number") ? byId("arithmetic-title") : cursorOf(-1);
  target?.focus({ preventScroll: true });
}

/** Enter a head from the first screen. */
export const enterHead = (layer, head, then) => (isLook() ? zoomTo("head", { layer, head }, then) : chooseHead(layer, head, false, then));

/** Go deeper at a cell of a map: to the map alone, then to the cell's arithmetic. */
export function enterCell(cursor) {
  if (isAt("head")) return zoomTo("matrix");
  if (isLook()) startEntry();
  return openArithmetic(cursor);
}

const isBeside = matchMedia("(min-width: 1200px)"); // as in page.css

export function openArithmetic(cursor) {
  const { layer, head, query, key } = selection;
  openCellAt({ layer, head, query, key, component: 0, cursor });
  byId("panel").scrollTop = 0;
  byId("arithmetic-title").focus({ preventScroll: true });
  if (!isBeside.matches) return byId("arithmetic").scrollIntoView();
  scrollBy(0, Math.min(0, byId("panel").getBoundingClientRect().top - 16)); // so that the panel's top is in view
  const cell = cursor.getBoundingClientRect();
  if (cell.top >= -1 && cell.bottom <= innerHeight + 1) return; // allowing for rounding
  for (const part of [cursor.closest("figure"), cursor])
    part.scrollIntoView({ block: "nearest", inline: "nearest" });
}

/** The cursor of the nth view's map. */
export const cursorOf = (n) => byId("heatmaps").children.item(n < 0 ? views.length + n : n)?.querySelector(".cursor");

/** Move to the table of next tokens. */
export function focusPrediction() {
  byId("prediction-title").scrollIntoView();
  byId("prediction-title").focus({ preventScroll: true });
}

/** Leave Look for the table of next tokens, after `choose` has selected the token that they follow. */
export function openPrediction(choose) {
  startEntry();
  choose();
  setDepth("lab");
  focusPrediction();
}

/** Move to the row of the pass's chosen step. */
export const focusStrip = () => byId("strip").querySelector(".mark").focus();

/** Move to the open head in the nth view's grid, or to the first head if the view doesn't have it. */
export function focusGrid(n) {
  const grid = byId("grids").children[n];
  (grid.querySelector(".map[tabindex='0']") ?? grid.querySelector(".map")).focus();
}
