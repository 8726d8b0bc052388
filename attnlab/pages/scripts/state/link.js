// The page's address has a link to what is shown.

import { passStepsOf } from "../numbers/run.js";
import { language, LANGUAGES, languageWritten } from "../sources/description.js";
import { loadLayer } from "../sources/source.js";
import { closeArithmetic, goTo, openCellAt, openHead, setDepth, showLanguage } from "./actions.js";
import { changed, DEPTHS, isLook, selection, set, setQuietly } from "./store.js";
import { clampedSelection, pendingTraces, traces } from "./traces.js";

const CELL = ["layer", "head", "query", "key"]; // the values that name a cell

// The link is written after a delay, because browsers limit how often a page may change its address.
let linkTimer;

export const linkParts = []; // functions that return further parts of the link
export const linkFollowers = []; // functions that apply these parts of a link

export function updateLink() {
  clearTimeout(linkTimer);
  linkTimer = setTimeout(writeLink, 200);
}

/** The link of what is shown, without its "#". */
export function linkOfPage() {
  const { layer, head, step, query, key, depth } = selection;
  return new URLSearchParams({
    layer, head, step, query, key,
    ...(language !== languageWritten && { language }),
    ...(!isLook() && { depth }),
    ...(selection.isPredicting && { predict: "" }),
    ...(selection.isSilenced && { silence: "" }),
    ...linkOfArithmetic(),
    ...linkOfPass(),
    ...Object.assign({}, ...linkParts.map((part) => part())),
  }).toString();
}

/** Write the link of what is shown into the address. */
function writeLink() {
  clearTimeout(linkTimer);
  linkTimer = null;
  const write = selection.isNewEntry ? "pushState" : "replaceState";
  setQuietly({ isNewEntry: false });
  try {
    history[write](history.state, "", `#${linkOfPage()}`);
  } catch {} // frames without an address (srcdoc) refuse it
}

/** Start a new entry in the browser's history for what the page shows next. */
export function startEntry() {
  if (linkTimer) writeLink(); // the former entry keeps the link of what is shown now
  setQuietly({ isNewEntry: true });
  updateLink();
}

/** Apply a link with all its parts. */
export function followWholeLink(link) {
  followLink(link);
  for (const follow of linkFollowers) follow(link);
}

/** Apply a link, such as #layer=1&head=2&query=9. */
export function followLink(link) {
  const values = Object.fromEntries(new URLSearchParams(link.slice(1)));
  for (const name of CELL) values[name] = values[name]?.trim() ? Number(values[name]) : undefined;
  const isHeadChosen = selection.isHeadChosen || CELL.some((name) => values[name] >= 0);
  setQuietly({ key: undefined, ...clampedSelection(values), isHeadChosen });
  set({ isPredicting: "predict" in values, isSilenced: "silence" in values });
  const depth = values.stop ? "lab" : values.depth; // a stop is a step of the forward pass, which only the lab shows
  setDepth(DEPTHS.includes(depth) ? depth : selection.depth);
  showLanguage(Object.hasOwn(LANGUAGES, values.language ?? "") ? values.language : languageWritten);
  changed("query"); // the selection was set without drawing
  followLinkOfPass(values);
  followLinkOfArithmetic(values);
  return openHead(selection.layer, selection.head);
}

/** The open cell and its component for the link, such as open=layer.1.head.2.query.7.key.1.component.0. */
function linkOfArithmetic() {
  if (!selection.openCell) return {};
  const { layer, head, query, key, component } = selection.openCell; // without the cursor
  return { open: Object.entries({ layer, head, query, key, component }).flat().join(".") };
}

/** Open the cell that a link names, if any. */
async function followLinkOfArithmetic({ open = "" }) {
  const values = Object.fromEntries([...open.matchAll(/([a-z]+)\.(\d+)/g)].map(([, name, n]) => [name, Number(n)]));
  if (!CELL.every((name) => name in values)) return closeArithmetic();
  const { component = 0, ...cell } = values;
  const target = clampedSelection(cell);
  const shown = traces;
  await Promise.all(pendingTraces({ traces }, target.layer).map((trace) => loadLayer(trace, target.layer)));
  if (traces !== shown) return undefined;
  return openCellAt({ ...target, component });
}

/** The chosen step and component for the link, if the reader has chosen any. */
function linkOfPass() {
  const { path, component, isLinked } = selection.chosenStep;
  return isLinked ? { stop: path, component } : {};
}

/** Go where a link leads, if this page has such a step. */
function followLinkOfPass({ stop: linked, component }) {
  if (!passStepsOf(traces[selection.chosenStep.trace]).some(({ path }) => path === linked)) return;
  goTo(linked, component >= 0 ? Math.floor(component) : 0);
}
