// What is shown of the page's data. Views read it, set it, are called when it changes, and don't know each other.

import { UNCHANGED } from "../numbers/predictions.js";

// Queries and keys are indices of `alignment`.
export const selection = {
  layer: 0,
  head: 0,
  step: "weights",
  query: 0,
  key: 0,
  depth: "look",
  hovered: null, // the { query, key } under the pointer
  openCell: null, // the cell whose arithmetic is shown; it stays when another one is selected
  chosenStep: { trace: 0, path: "embedding", component: 0, isLinked: false }, // isLinked: whether the link includes it
  isPredicting: false, // whether next words, consequences and reasons are hidden until asked for
  revealed: null, // the symbols of the text whose next words were revealed to a reader who predicts first
  isSilenced: false, // whether the next words are also shown as they are without the open head
  isLoading: false, // whether the open head's numbers are being loaded
  isHeadChosen: false, // whether the reader chose the open head; if so, the page opens no other by itself
  isNewEntry: false, // whether the next link is a new entry in the browser's history
  // In a page with a model, see requests.js:
  typed: "", // the text in the text area
  isTyping: false, // whether `typed` isn't the text that is shown
  isBusy: false, // whether a request is pending
  status: "", // what became of the last request, in words
  isComparing: false, // whether the previous trace is shown beside the latest one
  isWriting: false, // whether the page writes sampled tokens one after another
};

const listeners = []; // {names, draw}, in the order in which they are called

/** Call `draw` after each change of these parts of the selection, or when `changed` is called with one of the names. */
export const on = (names, draw) => listeners.push({ names: names.split(" "), draw });

/** Draw what depends on these parts, each view once; the promise is fulfilled when all is drawn. */
export const changed = (...names) =>
  Promise.all(listeners.filter((one) => one.names.some((name) => names.includes(name))).map(({ draw }) => draw()));

/** Set parts of the selection without drawing. The caller calls `changed` once all parts are set. */
export const setQuietly = (values) => Object.assign(selection, values);

/** Set parts of the selection, and draw what depends on them. */
export function set(values) {
  setQuietly(values);
  return changed(...Object.keys(values));
}

/** Whether the page shows the sentence and few controls, or else all numbers. */
export const isLook = () => selection.depth === "look";

/** The query and key that are described: those under the pointer, or the selected ones. */
export const describedCell = () => selection.hovered ?? selection;

/** Whether two objects, such as the selection, name the same head. */
export const isSameHead = (a, b) => a.layer === b.layer && a.head === b.head;

export const settings = { ...UNCHANGED }; // sampling settings, named like the parameters of `model.generate`
export const DEPTHS = ["look", "lab"];
