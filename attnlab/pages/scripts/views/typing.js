// The text area in which the sentence is typed, and example texts.

import { description, say } from "../sources/description.js";
import { isTypedTextShown, requests, requestTyped, typeText } from "../state/requests.js";
import { on, selection, set } from "../state/store.js";
import { buttonOf, byId, make, moveByArrows } from "../drawing/elements.js";

/** The text area. It is made before the page is shown: the sentence has a place for it. */
export function makeEditor() {
  const input = () => typeText(editor.value);
  const keydown = (event) => {
    // Shift+Enter starts a new line; an input method may use Enter to choose a candidate.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    requestTyped();
  };
  const editor = make("textarea", { id: "prompt", rows: "1", spellcheck: "false", input, keydown });
  const label = () => (editor.ariaLabel = say("The sentence: type your own"));
  label();
  on("language", label);
  on("typed", () => {
    if (editor.value !== selection.typed) editor.value = selection.typed;
  });
  editor.value = selection.typed;
  return editor;
}

/** Buttons with example texts. */
export function exampleButtons() {
  const typeExample = (text) => {
    set({ typed: text });
    requestTyped();
  };
  const buttonOfExample = (text, n) => buttonOf(() => typeExample(text), { tabindex: n ? -1 : 0 }, text);
  const examples = make("p", { id: "examples" }, ...description.examples.map(buttonOfExample));
  moveByArrows(examples, () => [...examples.children]);
  return examples;
}

/** Show whether the typed text differs from the one shown. */
function markTyped() {
  const isShown = isTypedTextShown();
  set({ isTyping: !isShown });
  // If a text was refused, the numbers that are shown are of another one.
  byId("explore").classList.toggle("refused", !isShown && requests.refused !== null);
}

export const startTyping = () => on("typed request traces language", markTyped);
