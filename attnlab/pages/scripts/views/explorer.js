// The controls of a page with a model: what is typed and computed, and whether two traces are compared.

import { say } from "../sources/description.js";
import { reports } from "../sources/source.js";
import { cancel, isTypedTextShown, latest, requests, restoreText } from "../state/requests.js";
import { on, selection, set } from "../state/store.js";
import { checkboxOf, markBusy, replaceWithFields } from "../drawing/draw.js";
import { buttonOf, byId, make } from "../drawing/elements.js";
import { exampleButtons } from "./typing.js";

/** Show that something is computed, with the progress if it is known; what begins meanwhile never lowers it. */
function showProgress(progress) {
  markBusy(byId("working"), progress < 1);
  if (progress < 1) byId("progress").value = Math.max(progress, byId("progress").value);
  else byId("progress").removeAttribute("value"); // indeterminate
}

/** Show what became of the last request. If the text was refused, a button leads back to the one that is shown. */
function showStatus() {
  byId("status").textContent = selection.status;
  if (!selection.status || requests.refused === null || isTypedTextShown()) return;
  const restore = () => {
    restoreText();
    byId("prompt").focus(); // the button is removed
  };
  byId("status").append(" ", buttonOf(restore, { class: "leads" }, say("Back to the text shown")));
}

function showTitle() {
  const { model, excerpt } = latest();
  document.title = `${["attnlab", model].filter(Boolean).join(" ")}: ${excerpt.slice(0, 60)}`;
  byId("compare").disabled = requests.kept.length < 2;
}

function controls() {
  const compare = ({ target }) => set({ isComparing: target.checked });
  return make(
    "section",
    { id: "explore", "aria-label": say("Explore") },
    exampleButtons(),
    make("div", { class: "controls" }, checkboxOf({ id: "compare" }, say("Compare with the previous one"), compare)),
    make("p", { id: "ablated", class: "note" }),
  );
}

/** Make the controls again, in the page's language. */
function makeAgain() {
  replaceWithFields(byId("explore"), controls());
  showBusy();
}

const showBusy = () => markBusy(byId("explore"), selection.isBusy);

export function startExplorer() {
  document.querySelector("main").prepend(controls());
  reports.progress = showProgress;
  byId("cancel").addEventListener("click", cancel);
  on("language", makeAgain);
  on("isBusy", showBusy);
  on("status language", showStatus);
  on("traces language", showTitle);
  on("isComparing", () => (byId("compare").checked = selection.isComparing));
}
