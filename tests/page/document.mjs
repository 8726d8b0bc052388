// A small document, for modules that make elements: only what their tests need of it.

class Element {
  constructor(tag) {
    const style = { setProperty: (name, value) => (style[name] = value) };
    Object.assign(this, { tag, attributes: {}, childNodes: [], listeners: {}, style, dataset: {} });
    const classes = () => new Set((this.attributes.class ?? "").split(" ").filter(Boolean));
    const setClasses = (all) => (this.attributes.class = [...all].join(" "));
    this.classList = {
      contains: (name) => classes().has(name),
      toggle: (name, isOn) => setClasses(isOn ? classes().add(name) : [...classes()].filter((other) => other !== name)),
    };
  }

  append(...nodes) {
    this.childNodes.push(...nodes.filter((node) => node !== ""));
  }

  replaceChildren(...nodes) {
    this.childNodes = [];
    this.append(...nodes);
  }

  get children() {
    return this.childNodes.filter((node) => node instanceof Element);
  }

  get textContent() {
    return this.childNodes.map((node) => node.textContent ?? String(node)).join("");
  }

  set textContent(text) {
    this.replaceChildren(text);
  }

  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }

  getAttribute(name) {
    return this.attributes[name] ?? null;
  }

  addEventListener(name, listener) {
    (this.listeners[name] ??= []).push(listener);
  }

  dispatch(name, event = {}) {
    for (const listener of this.listeners[name] ?? []) listener({ target: this, preventDefault() {}, ...event });
  }

  /** All elements in this one with a tag or, after a dot, a class. */
  all(selector) {
    const isFound = (one) => (selector[0] === "." ? one.classList.contains(selector.slice(1)) : one.tag === selector);
    return this.children.flatMap((one) => [...(isFound(one) ? [one] : []), ...one.all(selector)]);
  }
}

const elements = {};
const getElementById = (id) => (elements[id] ??= new Element("div"));
const createElement = (tag) => new Element(tag);

/** Make the document of a page with this description; then its modules can be imported. */
export function openDocument(description = {}) {
  const steps = Object.fromEntries(["scores", "weights"].map((name) => [name, { axes: "Tq Tk" }]));
  getElementById("description").textContent = JSON.stringify({ steps, ...description });
  getElementById("words").textContent = "{}";
  globalThis.document = {
    ...{ getElementById, createElement, createElementNS: (_, tag) => createElement(tag) },
    ...{ documentElement: Object.assign(createElement("html"), { lang: "en" }), body: createElement("body") },
  };
}
