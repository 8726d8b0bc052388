// Undo and redo of what is selected, shown and changed: the states are the page's links, with what links leave out.

import { flushLink, followWholeLink, linkOfPage } from "../state/link.js";
import { changed, on, selection, settings } from "../state/store.js";
import { Timeline } from "../state/timeline.js";
import { byId } from "../drawing/draw.js";

const UNLINKED = ["depth", "zoom", "textSize", "overlaid", "isFollowing", "drawsFirst"];

const timeline = new Timeline();
let hasActed = false; // whether the reader has done something since the last state

const stateNow = () => JSON.stringify({ link: `#${linkOfPage()}`, shown: UNLINKED.map((name) => selection[name]), settings });

function note() {
  if (byId("explore")?.ariaBusy === "true") return; // what is being computed isn't shown yet
  timeline.note(stateNow(), hasActed);
  hasActed = false;
  markButtons();
}

function markButtons() {
  const focused = document.activeElement;
  byId("undo").disabled = !timeline.canUndo;
  byId("redo").disabled = !timeline.canRedo;
  if (focused.disabled) [...byId("timeline").children].find(({ disabled }) => !disabled)?.focus();
}

function restore(state) {
  if (!state) return;
  const { link, shown, settings: former } = JSON.parse(state);
  Object.assign(selection, Object.fromEntries(UNLINKED.map((name, n) => [name, shown[n]])));
  Object.assign(settings, former);
  followWholeLink(link);
  changed("settings", ...UNLINKED.slice(1)); // the depth has been drawn
  hasActed = false;
}

/** Undo (-1) or redo (1) a step. */
function step(direction) {
  flushLink();
  restore(direction < 0 ? timeline.undo() : timeline.redo());
  markButtons();
}

const isText = (element) => element.matches?.("textarea, input:not([type=range], [type=checkbox], [type=radio])");

export function startUndo() {
  on("written", note);
  byId("undo").addEventListener("click", () => step(-1));
  byId("redo").addEventListener("click", () => step(1));
  for (const event of ["pointerdown", "keydown", "input", "change"]) addEventListener(event, () => (hasActed = true), true);
  addEventListener("keydown", (event) => {
    const { ctrlKey, metaKey, shiftKey, altKey, target } = event;
    if (!(ctrlKey || metaKey) || altKey || isText(target)) return; // a text box has its own
    const key = event.key.toLowerCase();
    if (key !== "z" && !(key === "y" && !shiftKey)) return;
    event.preventDefault();
    step(key === "y" || shiftKey ? 1 : -1);
  });
}
