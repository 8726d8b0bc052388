// A page that runs a model in a worker: the model is in the page, or attnlab explore serves its files.

import { grouped } from "../numbers/formats.js";
import { description, say } from "../sources/description.js";
import { embeddedNumbers } from "../sources/embedded.js";
import { reports, setSource, source } from "../sources/source.js";
import { ModelSource } from "../sources/tab.js";
import { byId, make } from "../drawing/elements.js";
import { live } from "../state/live.js";
import { followLinkOfText, openIds, startRequests, writeToken } from "../state/requests.js";
import { startChange } from "../views/change.js";
import { startEditing } from "../views/editing.js";
import { startExplorer } from "../views/explorer.js";
import { makeEditor, startTyping } from "../views/typing.js";
import { completionOf, toggleWriting } from "../views/writing.js";
import { startPage } from "./page.js";

function startWithModel() {
  description.traces = description.traces.map(source.withNames);
  startRequests();
  Object.assign(live, { editor: makeEditor(), open: openIds, write: writeToken, toggleWriting, complete: completionOf });
  startPage(() => [startExplorer, startEditing, startChange, startTyping].forEach((start) => start()));
  followLinkOfText(location.hash, true);
}

/** Read the model's files, {name, size}, from the server of this page; meanwhile, and if the page can't open them, say so. */
async function openServed(files) {
  const main = document.querySelector("main");
  const size = files.reduce((sum, file) => sum + file.size, 0);
  const bar = make("progress", { "aria-label": say("Computing") });
  const note = make("p", { id: "opening", role: "status" }, say("Reading the model: {size} bytes", { size: grouped(size) }), " ", bar);
  main.before(note);
  main.hidden = true;
  reports.progress = (fraction) => (bar.value = fraction);
  const served = files.map((file) => ({ ...file, url: new URL(encodeURIComponent(file.name), location).href }));
  try {
    setSource(await ModelSource.ofFiles(served, undefined, description.traces[0]));
  } catch (error) {
    note.textContent = error.message;
    return;
  }
  note.remove();
  main.hidden = false;
  startWithModel();
}

const servedFiles = description.model.files;
if (servedFiles) openServed(servedFiles);
else {
  setSource(ModelSource.ofPage(description.model, embeddedNumbers(byId("parameters"))));
  startWithModel();
}
