// The controls of a page with a model: what is computed, the traces that are compared, sampling, and opening a model.

import { say } from "../sources/description.js";
import { reports } from "../sources/source.js";
import { cancel, goBack, isShownTyped, latest, openModel, requests, restoreText } from "../state/requests.js";
import { on, selection, set } from "../state/store.js";
import { checkboxOf, markBusy, replaceWithFields } from "../drawing/draw.js";
import { buttonOf, byId, make } from "../drawing/elements.js";
import { typingParts } from "./typing.js";
import { generatingControls } from "./writing.js";

let progress = 1; // of what the source loads or computes, from 0 to 1

/** Show that something is computed, with the progress if it is known. */
function showProgress(fraction) {
  progress = fraction;
  markBusy(byId("working"), progress < 1);
  if (progress < 1) byId("progress").value = progress;
  else byId("progress").removeAttribute("value"); // indeterminate
}

/** Show what became of the last request; of a text that was refused, a button leads back to the one that is shown. */
function showStatus() {
  byId("status").textContent = selection.status;
  if (!selection.status || requests.refused === null || isShownTyped()) return;
  const restore = () => {
    restoreText();
    byId("prompt").focus(); // the button is removed
  };
  byId("status").append(" ", buttonOf(restore, { class: "leads" }, say("Back to the text shown")));
}

function showTitle() {
  const { model, excerpt } = latest();
  document.title = `${["attnlab", model].filter(Boolean).join(" ")}: ${excerpt.slice(0, 60)}`;
  byId("compare").disabled = byId("back").disabled = requests.kept.length < 2;
}

/** A button that opens another model, and the field for its files. */
function openingControls() {
  const change = () => {
    if (files.files.length) openModel([...files.files]);
    files.value = ""; // so that the same files can be chosen again
  };
  const files = make("input", { type: "file", id: "files", multiple: "", hidden: "", change });
  return [buttonOf(() => files.click(), { id: "open" }, say("Open a model")), files];
}

function controls() {
  const bar = make("progress", { id: "progress", "aria-label": say("Computing") });
  const compare = ({ target }) => set({ isComparing: target.checked });
  return make(
    "section",
    { id: "explore", "aria-label": say("Explore") },
    ...typingParts(),
    make("p", { id: "status", role: "status" }),
    make("p", { id: "working" }, bar, " ", buttonOf(cancel, { id: "cancel" }, say("Cancel"))),
    make(
      "div",
      { class: "controls" },
      checkboxOf({ id: "compare" }, say("Compare with the previous one"), compare),
      buttonOf(goBack, { id: "back" }, say("Back to the previous one")),
      generatingControls(),
      ...openingControls(),
    ),
    make("p", { id: "ablated", class: "note" }),
  );
}

/** Make the controls again, in the page's language. */
function makeAgain() {
  byId("special-names").replaceChildren(); // fields are matched by their number
  replaceWithFields(byId("explore"), controls());
  showBusy();
  showProgress(progress);
}

const showBusy = () => markBusy(byId("explore"), selection.isBusy);

export function startExplorer() {
  document.querySelector("main").prepend(controls());
  reports.progress = showProgress;
  on("language", makeAgain);
  on("isBusy", showBusy);
  on("status language", showStatus);
  on("traces language", showTitle);
  on("isComparing", () => (byId("compare").checked = selection.isComparing));
}
