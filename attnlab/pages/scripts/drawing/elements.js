// Elements. Texts are inserted only as text nodes, never as markup.

export const byId = (id) => document.getElementById(id);

/**
 * An element with attributes, and children that are elements or plain text. An attribute that is a function is called
 * at the event of its name, such as {click: toggle}.
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A button; `click` is called when it is pressed. */
export const buttonOf = (click, attributes, ...children) =>
  make("button", { type: "button", click, ...attributes }, ...children);

/** A table. caption: a text or an element; rows, feet: elements. A heading may be empty. */
export function tableOf(caption, headings, rows, feet = []) {
  const headingOf = (name) => (name ? make("th", { scope: "col" }, name) : make("td"));
  const head = make("thead", {}, make("tr", {}, ...headings.map(headingOf)));
  const parts = [head, make("tbody", {}, ...rows), make("tfoot", {}, ...feet)];
  return make("table", {}, make("caption", {}, caption), ...parts);
}

/** A number as the given text, with all its digits in the element's value. */
export const exact = (x, words) => make("data", { value: String(x) }, words);

/** Focus element n, and make it the only one that Tab reaches. */
function focusOne(elements, n) {
  for (const element of elements) element.tabIndex = -1;
  elements[n].tabIndex = 0;
  elements[n].focus();
}

/** Whether a key presses the focused element. */
export const isPress = ({ key }) => key === "Enter" || key === " ";

/** Let arrow keys move the focus among elements, `columnsOf()` in a row, and Enter or the space bar click. */
export function moveByArrows(box, elementsOf, columnsOf = () => 1) {
  box.addEventListener("keydown", (event) => {
    const elements = elementsOf();
    const n = elements.indexOf(event.target);
    const columns = columnsOf();
    const to = {
      ArrowRight: n + 1, ArrowDown: n + columns, ArrowLeft: n - 1, ArrowUp: n - columns, Home: 0,
      End: elements.length - 1,
    }[event.key];
    if (isPress(event)) event.target.click();
    else if (elements[to]) focusOne(elements, to);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

/** Keep an element at least as high as it is now, so that what is below it stays under the pointer. */
export function keepHeight(element) {
  if (element.textContent) element.style.minHeight = `${element.offsetHeight}px`;
}
