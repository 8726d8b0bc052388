// A page that carries its numbers.

import { sayParts } from "../sources/description.js";
import { FileSource, setSource } from "../sources/source.js";
import { on } from "../state/store.js";
import { make } from "../drawing/elements.js";
import { startPage } from "./page.js";

/** Where a page with a text box comes from: this one has no model to run. */
function showWhereToType(note) {
  const [playground, explore] = ["attnlab playground page.html", "attnlab explore"].map((command) =>
    make("code", {}, command),
  );
  note.replaceChildren(
    ...sayParts(
      "To type your own text or silence several heads at once, write a page with the model: {playground}, {explore}.",
      { playground, explore },
    ),
  );
}

setSource(new FileSource());
startPage();
const where = make("p", { id: "own-text", class: "note" });
document.querySelector("main").append(where);
showWhereToType(where);
on("language", () => showWhereToType(where));
// Typing brings the note into view.
addEventListener("keydown", ({ key, ctrlKey, metaKey, altKey, target }) => {
  if (
    key.length === 1 &&
    /[\p{L}]/u.test(key) &&
    !(ctrlKey || metaKey || altKey) &&
    !target.matches("button, input, select, [role]:not(.stage-word)")
  )
    where.scrollIntoView({ block: "center" });
});
