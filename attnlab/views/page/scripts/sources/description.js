// What attnlab/views/page/page.py wrote about the page and its traces, and the words of its language.

export const description = JSON.parse(document.getElementById("description").textContent);

/** A text in the page's language, with {names} replaced by values. */
export const say = (text, values = {}) => (description.words[text] ?? text).replace(/\{(\w+)\}/g, (_, name) => values[name]);

/** Like `say`, for a text that comes from Python. */
export const sayStored = say;

/** Like `say`, but returns a list, for values that are elements. */
export const sayParts = (text, values) =>
  (description.words[text] ?? text).split(/\{(\w+)\}/).map((part, n) => (n % 2 ? values[part] : part)).filter((part) => part !== "");

export const sayStoredParts = sayParts;

/** A token from its description by attnlab/views/page/prediction.py. */
export function tokenOf([id, symbol, text, bytes]) {
  const plain = symbol.replaceAll("Ġ", " "); // the text, unless the description includes it
  const hex = [...plain].map((character) => character.charCodeAt(0).toString(16).padStart(2, "0"));
  return { id, symbol, text: text ?? plain, bytes: bytes ?? hex.join(" ") };
}

/** The separator of sentences in the page's language. */
export const spaceBetween = () => (document.documentElement.lang.startsWith("zh") ? "" : " ");

/** Join sentences; empty ones are left out. */
export const joinSentences = (...sentences) => sentences.filter(Boolean).join(spaceBetween());
