// Elements and words for all views. Tokens are inserted only as text nodes and canvas text, never as markup.

import { brief, fixed, format } from "../numbers/formats.js";
import { wordOf } from "../numbers/words.js";
import { description, sayParts, say } from "../sources/description.js";
import { on } from "../state/store.js";
import { isAlike } from "../state/traces.js";
import { byId, exact, make, tableOf } from "./elements.js";

export const checkboxOf = (attributes, words, change) =>
  make("label", {}, make("input", { type: "checkbox", change, ...attributes }), " ", words);

/** Replace an element by another one with the same fields, which keep what was entered. */
export function replaceWithFields(before, after) {
  const fieldsOf = (element) => [element, ...element.querySelectorAll("details, input, select, textarea")];
  const fields = fieldsOf(before);
  for (const [n, field] of fieldsOf(after).entries())
    for (const property of ["checked", "disabled", "open", "readOnly", "value"])
      if (property in fields[n]) field[property] = fields[n][property];
  before.replaceWith(after);
}

/** A table's row: its heading, then numbers with this many decimals, or other content. */
export function rowOf(heading, cells, digits) {
  const contentOf = (x) => (typeof x === "number" ? exact(x, fixed(x, digits)) : x);
  return make("tr", {}, make("th", { scope: "row" }, heading), ...cells.map((x) => make("td", {}, contentOf(x))));
}

/** A table in a scrollable box. */
export const boxedTable = (caption, ...parts) =>
  make("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption }, tableOf(caption, ...parts));

/** A bar whose length is a fraction of its cell. */
export function barOf(fraction, className = "") {
  const bar = make("span", { class: `bar ${className}` });
  bar.style.setProperty("--fraction", fraction);
  return bar;
}

/** A rounded number, with all digits in the element's value. */
export const number = (x, digits = 6) => exact(x, format(x, digits));

/** A symbol, in which a Ġ for a space is faint. On the first screen, page.css shows `word` instead of the letters. */
export function symbolOf(symbol, word = symbol) {
  const [space, rest] =
    symbol.length > 1 && symbol[0] === "Ġ" ? [make("span", { class: "space" }, "Ġ"), symbol.slice(1)] : ["", symbol];
  return make("bdi", { class: "symbol" }, space, word === rest ? rest : make("span", { "data-word": word }, rest));
}

/** A token's symbol and its name for readers, see `symbolOf`, shortened if they are long. */
export const tokenElement = (token) => symbolOf(brief(token.symbol), brief(wordOf(token)));

/** A token's name within a sentence: a piece of a word with the word, a part of a character with its number. */
export function wordInSentence(token) {
  const name = make("strong", {}, brief(wordOf(token)));
  if (!token.piece) return make("bdi", {}, name);
  const { before, letters, fraction, after } = token.piece;
  if (before || after) {
    const word = brief(before + letters.replace("␣", "") + after); // the space before a word isn't named with it
    return make("bdi", {}, ...sayParts("{piece}” of “{word}", { piece: name, word })); // callers add the outer quotes
  }
  const shareOfCharacter = fraction ? [make("small", {}, ` ${fraction}`)] : []; // such as 1/3
  return make("bdi", { class: "piece" }, make("strong", {}, brief(letters)), ...shareOfCharacter);
}

/** A number or id with its token, such as 3 (Ġdog), as an element. */
export const withSymbol = (n, token) => make("span", {}, `${n} (`, tokenElement(token), ")");

/** A token's positions in the traces, as text. */
export const positionsInWords = (positions) => [...new Set(positions)].join(" | ");

export const formulaOf = (step) => `${step} = ${say(description.steps[step].formula)}`;

/** The ratio of the text size to the default, from the browser's settings. */
export const textScale = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;

export const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const themeOf = () => document.documentElement.dataset.theme ?? (prefersDark.matches ? "dark" : "light");
export const isDark = () => themeOf() === "dark";

/** Clear a canvas and set its resolution for a size on screen. Resizes only if needed, which is faster. */
export function prepareCanvas(canvas, width, height) {
  const ratio = devicePixelRatio;
  const columns = Math.ceil(width * ratio);
  const rows = Math.ceil(height * ratio);
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.globalAlpha = 1;
  context.clearRect(0, 0, width, height);
  return context;
}

export function clipText(context, text, maxWidth) {
  let shown = brief(text);
  if (context.measureText(shown).width <= maxWidth) return shown;
  while (shown && context.measureText(`${shown}…`).width > maxWidth) shown = shown.slice(0, -1);
  return `${shown}…`;
}

export const colourOf = (element) => getComputedStyle(element).color;

export function hatchPattern(context, colour) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const lines = tile.getContext("2d");
  lines.strokeStyle = colour;
  lines.beginPath();
  for (const start of [-6, 0, 6]) { // three lines, which continue in neighbouring tiles
    lines.moveTo(start, 6);
    lines.lineTo(start + 6, 0);
  }
  lines.stroke();
  return context.createPattern(tile, "repeat");
}

/** A function that runs `draw` before the next frame; of several calls until then, only the last one counts. */
export function onceAFrame(draw) {
  let given = null; // the arguments of the last call
  const run = () => {
    const last = given;
    given = null;
    draw(...last);
  };
  return (...args) => {
    if (!given) requestAnimationFrame(run);
    given = args;
  };
}

const SLOW_MILLISECONDS = 300; // a quicker computation isn't shown, so that the page doesn't flicker
const slowTimers = new WeakMap(); // the timers by element

/** Mark an element as busy or not. If it stays busy, it also gets the class `slow`, which changes how it looks. */
export function markBusy(element, isBusy) {
  if (element.ariaBusy === String(isBusy)) return;
  element.ariaBusy = String(isBusy);
  clearTimeout(slowTimers.get(element));
  if (isBusy) slowTimers.set(element, setTimeout(() => element.classList.add("slow"), SLOW_MILLISECONDS));
  else element.classList.remove("slow");
}

/**
 * Make a drawing for each view in element `id`; make them again when the views or the language change. If only the
 * views' numbers change, a drawing with a method `show` is kept, which is quicker. Return a function that lists the
 * drawings.
 */
export function drawingsIn(id, viewsOf, makeDrawing) {
  let [drawings, views] = [[], []];
  on("language", () => (drawings = [])); // no drawing is kept, since its words are in the former language
  on("traces language", () => {
    const before = views;
    views = viewsOf();
    if (drawings.length === views.length && drawings.every(({ show }, n) => show && isAlike(before[n], views[n])))
      return drawings.forEach((drawing, n) => drawing.show(views[n]));
    const focused = [...byId(id).children].findIndex((child) => child.contains(document.activeElement));
    byId(id).replaceChildren();
    drawings = views.map(makeDrawing);
    drawings[focused]?.cursor?.focus(); // the focus was in a drawing that is gone
  });
  return () => drawings;
}

/** Fill a group, after its legend, with a radio button for each choice, [value, words]; choose(value) is called. */
export function setChoices(id, choices, choose) {
  const radioOf = (value) => make("input", { type: "radio", name: id, value, change: () => choose(value) });
  const radios = choices.map(([value, words]) => make("label", {}, radioOf(String(value)), make("span", {}, words)));
  byId(id).replaceChildren(byId(id).firstElementChild, ...radios);
}

export function markChoice(id, value) {
  for (const radio of byId(id).querySelectorAll("input")) radio.checked = radio.value === String(value);
}

// ---- cells side by side, such as those of a map --------------------------------------------------

/** The cell that an arrow key moves to from row i, column j; undefined for other keys. */
export function cellAfterKey(event, i, j, rows, columns) {
  const page = 10;
  const steps = {
    ArrowUp: [i - 1, j],
    ArrowDown: [i + 1, j],
    ArrowLeft: [i, j - 1],
    ArrowRight: [i, j + 1],
    PageUp: [i - page, j],
    PageDown: [i + page, j],
    Home: [event.ctrlKey ? 0 : i, 0],
    End: [event.ctrlKey ? rows - 1 : i, columns - 1],
  };
  if (!(event.key in steps)) return undefined;
  event.preventDefault();
  const clamped = (n, count) => Math.max(0, Math.min(count - 1, n));
  return [clamped(steps[event.key][0], rows), clamped(steps[event.key][1], columns)];
}

/** The cell under the pointer, [row, column], in an element with cells of `side` pixels; it may be outside. */
export function cellUnder({ clientX, clientY }, element, side) {
  const box = element.getBoundingClientRect();
  return [clientY - box.top + element.scrollTop, clientX - box.left + element.scrollLeft].map((n) =>
    Math.floor(n / side),
  );
}

/** Move a frame to cell i, j among cells of `side` pixels. It has at least `smallest` pixels, to be visible. */
export function moveFrame(frame, i, j, side, smallest) {
  const size = Math.max(side, smallest);
  const corner = (n) => `${(n + 0.5) * side - size / 2}px`;
  frame.style.transform = `translate(${corner(j)}, ${corner(i)})`;
  frame.style.width = frame.style.height = `${size}px`;
}
