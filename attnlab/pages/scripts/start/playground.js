// A page that runs a model in a worker: the model is in the page, or attnlab explore serves it.

import { grouped } from "../numbers/formats.js";
import { description, say } from "../sources/description.js";
import { embeddedNumbers } from "../sources/embedded.js";
import { reports, setSource, source } from "../sources/source.js";
import { ModelSource } from "../sources/tab.js";
import { byId, make } from "../drawing/elements.js";
import { live } from "../state/live.js";
import { followLinkOfText, openIds, startRequests, writeToken } from "../state/requests.js";
import { startEditing } from "../views/editing.js";
import { startExplorer } from "../views/explorer.js";
import { makeEditor, startTyping } from "../views/typing.js";
import { completionOf, toggleWriting } from "../views/writing.js";
import { startPage } from "./page.js";

function startWithModel() {
  description.traces = description.traces.map(source.withNames); // as traces that the model opens later
  startRequests();
  Object.assign(live, {
    editor: makeEditor(), open: openIds, write: writeToken, toggleWriting, complete: completionOf,
  });
  startPage(() => [startExplorer, startEditing, startTyping].forEach((start) => start()));
  followLinkOfText(location.hash, { replacesOpened: true });
  // The caret shows where to type. A page in a frame, such as in a notebook, doesn't take the focus from its reader.
  if (parent === window) live.editor.focus({ preventScroll: true });
}

/** Show how much of the model has been read from the page's server; then start, or show why it can't be read. */
async function startServed() {
  const main = document.querySelector("main");
  const bar = make("progress", { "aria-label": say("Computing") });
  const note = make(
    "p", { id: "opening", role: "status" }, say("Reading the model: {size} bytes", { size: grouped(size) }), " ", bar,
  );
  main.before(note);
  main.hidden = true;
  reports.progress = (fraction) => (bar.value = fraction);
  try {
    await source.started;
  } catch (error) {
    note.textContent = error.message;
    return;
  }
  note.remove();
  main.hidden = false;
  startWithModel();
}

const { size, isServed } = description.model; // size: the parameters' bytes
const url = isServed && new URL("parameters", location).href;
const parameters = isServed
  ? Promise.resolve({ url })
  : embeddedNumbers(byId("parameters")).then((numbers) => ({ numbers }));
setSource(new ModelSource(description.model, parameters));
if (isServed) startServed();
else startWithModel();
