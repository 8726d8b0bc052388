// What is shown of the page's data. Views read it, set it, and are called when it changes; they don't know each
// other.

import { UNCHANGED } from "../numbers/sampling.js";

// Queries and keys are indices of `alignment`.
export const selection = {
  layer: 0,
  head: 0,
  step: "weights",
  query: 0,
  key: 0,
  display: "map",
  zoom: 1,
  textSize: 1,
  depth: "look",
  level: "model",
  hovered: null, // the { query, key } under the pointer
  overlaid: [], // the selected heads, {layer, head}, if there are several
  isAdding: false, // whether a head that is chosen is added to the selected ones
  openCell: null, // the cell whose arithmetic is shown; it stays when another one is selected
  chosenStep: { trace: 0, path: "embedding", component: 0, isLinked: false }, // of the pass; isLinked: in the page's link
  stage: null, // of the tour, if one is shown
  drawsFirst: false, // whether attention that rests on the first token is drawn as other attention
  isFollowing: false, // whether the picture shows only the selected token's path
  isLoading: false, // whether the open head's numbers are being loaded
  isReading: false, // whether the picture loads its numbers
  isHeadChosen: false, // by the reader; the page then doesn't open another by itself
  isNewEntry: false, // whether the next link is a new entry in the browser's history
};

const readers = []; // {names, draw}, in the order in which they are called

/** Call `draw` after each change of these parts of the selection, or of "traces", "palette", "settings" and the like. */
export const on = (names, draw) => readers.push({ names: names.split(" "), draw });

/** Draw what depends on these parts, each view once; the promise is fulfilled when all is drawn. */
export const changed = (...names) =>
  Promise.all(readers.filter((reader) => reader.names.some((name) => names.includes(name))).map(({ draw }) => draw()));

/** Set parts of the selection, and draw what depends on them. */
export function set(values) {
  Object.assign(selection, values);
  return changed(...Object.keys(values));
}

/** Whether the page is in Look, with words, the picture and few controls, or else in Lab. */
export const isLook = () => selection.depth === "look";

/** The query and key that are described: those under the pointer, or the selected ones. */
export const describedCell = () => selection.hovered ?? selection;

export const isSame = (a, b) => a.layer === b.layer && a.head === b.head;
export const LEVELS = ["model", "block", "head", "matrix", "number"];
export const isAt = (...levels) => isLook() && levels.includes(selection.level);

// The displays of a head, each with its element's id.
export const DISPLAYS = { map: "heatmaps", lines: "lines" };

export const settings = { ...UNCHANGED }; // as `model.generate` names them
export const TEXT_SIZES = [1, 1.25, 1.5]; // relative to the default
export const DEPTHS = ["look", "lab"];
