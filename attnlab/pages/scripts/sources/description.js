// What attnlab/pages/saved.py wrote about the page and its traces, and the words of its language.

export const description = JSON.parse(document.getElementById("description").textContent);

const chinese = JSON.parse(document.getElementById("words").textContent); // by English text

export const LANGUAGES = { en: "English", zh: "中文" };
export const languageWritten = document.documentElement.lang.slice(0, 2); // the language of the page's file
export let language = languageWritten;

export function setLanguage(chosen) {
  language = chosen;
  document.documentElement.lang = chosen === "zh" ? "zh-Hans" : chosen; // selects fonts
}

const translated = (text) => (language === "zh" ? (chinese[text] ?? text) : text);

/** A text in the page's language, with {names} replaced by values. */
export const say = (text, values = {}) => translated(text).replace(/\{(\w+)\}/g, (_, name) => values[name]);

/** A message from Python, [template, values], as text. Anything else is returned as it is. */
export function sayMessage(message) {
  if (!Array.isArray(message)) return message;
  const [template, values] = message;
  return say(template, Object.fromEntries(Object.entries(values).map(([name, value]) => [name, sayMessage(value)])));
}

/** Like `say`, but returns a list, for values that are elements or lists. Every second part of the split is a name. */
export const sayParts = (text, values) =>
  translated(text).split(/\{(\w+)\}/).flatMap((part, n) => (n % 2 ? values[part] : part)).filter((part) => part !== "");

/** A token from its description by attnlab/pages/prediction.py. */
export function tokenOf([id, symbol, text, bytes]) {
  const plain = symbol.replaceAll("Ġ", " "); // the text, unless the description includes it
  const hex = [...plain].map((character) => character.charCodeAt(0).toString(16).padStart(2, "0"));
  return { id, symbol, text: text ?? plain, bytes: bytes ?? hex.join(" ") };
}

/** The separator of sentences in the page's language. */
export const spaceBetween = () => (language === "zh" ? "" : " ");

/** Join sentences; empty ones are left out. */
export const joinSentences = (...sentences) => sentences.filter(Boolean).join(spaceBetween());
