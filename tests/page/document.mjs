import { readFileSync } from "node:fs";
import { Worker } from "node:worker_threads";

// A document without layout, for scripts that make elements: nothing has a size, and everything is visible.

class Node {
  static TEXT_NODE = 3;
  parentNode = null;

  get parentElement() {
    return this.parentNode;
  }

  remove() {
    const siblings = this.parentNode?.childNodes ?? [];
    if (siblings.includes(this)) siblings.splice(siblings.indexOf(this), 1);
    this.parentNode = null;
  }

  #insert(nodes, offset) {
    const { childNodes } = this.parentNode;
    this.parentNode.put(childNodes.indexOf(this) + offset, nodes);
  }

  before(...nodes) {
    this.#insert(nodes, 0);
  }

  after(...nodes) {
    this.#insert(nodes, 1);
  }

  replaceWith(...nodes) {
    this.before(...nodes);
    this.remove();
  }
}

class Text extends Node {
  constructor(data) {
    super();
    Object.assign(this, { data, nodeType: Node.TEXT_NODE, tagName: "" });
  }

  get textContent() {
    return this.data;
  }

  get length() {
    return this.data.length;
  }
}

const tests = new Map(); // by selector

/** A function that says whether an element is what a selector such as li.most[aria-selected=true] describes. */
function testOf(selector) {
  if (!tests.has(selector)) {
    const parts = selector.match(/:not\([^)]*\)|:[\w-]+(\(\d+\))?|\[[^\]]*\]|[.#]?[\w-]+|\*/g).map(testOfPart);
    tests.set(selector, (element) => parts.every((isTrue) => isTrue(element)));
  }
  return tests.get(selector);
}

function testOfPart(part) {
  const name = part.slice(1);
  if (part === "*") return () => true;
  if (part.startsWith(":not")) return (element) => !testOf(part.slice(5, -1))(element);
  if (part === ":focus") return (element) => document.activeElement === element;
  if (part === ":last-child") return (element) => element.parentNode?.children.at(-1) === element;
  if (part[0] === ":") return (element) => element.parentNode.children.indexOf(element) === Number(part.match(/\d+/)) - 1; // nth-child
  if (part[0] === ".") return (element) => element.classList.contains(name);
  if (part[0] === "#") return (element) => element.attributes.id === name;
  if (part[0] !== "[") return (element) => element.tagName === part;
  const [, attribute, value] = part.match(/^\[([\w-]+)(?:="?([^"\]]*)"?)?\]$/);
  return (element) => (value === undefined ? attribute in element.attributes : element.attributes[attribute] === value);
}

/** The tests of a list of selectors, each with those of its ancestors, such as of "main *, header b". */
const testsOf = (selectors) => selectors.split(",").map((selector) => selector.trim().split(/\s+/).map(testOf));

const isAnyMatch = (element, all) =>
  all.some((steps) => {
    let n = steps.length - 1;
    if (!steps[n--](element)) return false;
    for (let above = element.parentNode; n >= 0 && above; above = above.parentNode) if (steps[n](above)) n--;
    return n < 0;
  });

/** Add the elements in a node that `isFound` accepts to a list. */
function collect(node, isFound, found = []) {
  for (const child of node.childNodes)
    if (child instanceof Element) {
      if (isFound(child)) found.push(child);
      collect(child, isFound, found);
    }
  return found;
}

const LABELS = ["ariaLabel", "ariaBusy", "ariaCurrent", "ariaPressed", "ariaExpanded"];
const REFLECTED = ["id", "lang", "title", "type", "href", "download", "name", ...LABELS];
const FLAGS = ["hidden", "disabled", "checked", "open"];
const attributeOf = (property) => property.replace("aria", "aria-").toLowerCase();
const BOX = { left: 0, top: 0, right: 0, bottom: 0, width: 0, height: 0 };

class Element extends Node {
  clientWidth = 1000;
  clientHeight = 800;
  offsetWidth = 0;
  offsetHeight = 0;
  scrollTop = 0;
  scrollLeft = 0;

  constructor(tagName) {
    super();
    const style = { setProperty: (name, value) => (style[name] = value) };
    Object.assign(this, { tagName, attributes: {}, childNodes: [], listeners: {}, style, nodeType: 1 });
    const classes = () => (this.attributes.class ?? "").split(" ").filter(Boolean);
    this.classList = {
      contains: (name) => classes().includes(name),
      toggle: (name, isOn = !classes().includes(name)) => {
        this.attributes.class = [...classes().filter((other) => other !== name), ...(isOn ? [name] : [])].join(" ");
      },
      add: (name) => this.classList.toggle(name, true),
      remove: (name) => this.classList.toggle(name, false),
    };
    const nameOf = (key) => `data-${key}`;
    this.dataset = new Proxy(this.attributes, {
      get: (all, key) => all[nameOf(key)],
      set: (all, key, value) => ((all[nameOf(key)] = String(value)), true),
    });
  }

  put(at, nodes) {
    for (const given of nodes) {
      const node = given instanceof Node ? given : new Text(String(given));
      node.remove();
      node.parentNode = this;
      this.childNodes.splice(at++, 0, node);
    }
  }

  append(...nodes) {
    this.put(this.childNodes.length, nodes);
  }

  prepend(...nodes) {
    this.put(0, nodes);
  }

  replaceChildren(...nodes) {
    for (const node of [...this.childNodes]) node.remove();
    this.append(...nodes);
  }

  get children() {
    const children = this.childNodes.filter((node) => node instanceof Element);
    return Object.assign(children, { item: (n) => children[n] ?? null });
  }

  get firstChild() {
    return this.childNodes[0] ?? null;
  }

  get lastChild() {
    return this.childNodes.at(-1) ?? null;
  }

  get firstElementChild() {
    return this.children[0] ?? null;
  }

  get childElementCount() {
    return this.children.length;
  }

  get cells() {
    return this.children;
  }

  get isConnected() {
    return this === document.documentElement || Boolean(this.parentNode?.isConnected);
  }

  get textContent() {
    return this.childNodes.map((node) => node.textContent).join("");
  }

  set textContent(text) {
    this.replaceChildren(...(text === "" ? [] : [text]));
  }

  get ownerSVGElement() {
    return this.closest("svg");
  }

  get innerHTML() {
    return this.children.length ? "<markup>" : this.textContent; // only texts are read
  }

  set innerHTML(text) {
    this.textContent = text;
  }

  get tabIndex() {
    return Number(this.attributes.tabindex ?? -1);
  }

  set tabIndex(n) {
    this.attributes.tabindex = String(n);
  }

  get value() {
    return this.attributes.value ?? "";
  }

  set value(value) {
    this.attributes.value = String(value);
  }

  get valueAsNumber() {
    return Number(this.value);
  }

  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }

  getAttribute(name) {
    return this.attributes[name] ?? null;
  }

  removeAttribute(name) {
    delete this.attributes[name];
  }

  matches(selectors) {
    return isAnyMatch(this, testsOf(selectors));
  }

  contains(other) {
    return other === this || Boolean(other?.parentNode && this.contains(other.parentNode));
  }

  closest(selectors) {
    return this.matches(selectors) ? this : (this.parentNode?.closest(selectors) ?? null);
  }

  querySelectorAll(selectors) {
    const all = testsOf(selectors);
    return collect(this, (element) => isAnyMatch(element, all));
  }

  querySelector(selectors) {
    return this.querySelectorAll(selectors)[0] ?? null;
  }

  addEventListener(name, listener) {
    (this.listeners[name] ??= []).push(listener);
  }

  /** Send an event, which bubbles. */
  send(name, given = {}) {
    let isStopped = false;
    const event = { type: name, target: this, preventDefault() {}, stopPropagation: () => (isStopped = true), ...given };
    for (let element = this; element && !isStopped; element = element.parentNode)
      for (const listener of [...(element.listeners[name] ?? [])]) listener(event);
  }

  click() {
    if (this.tagName === "a") document.followed.push(this);
    this.onclick?.();
    this.send("click");
  }

  press(key, given = {}) {
    this.send("keydown", { key, ...given });
  }

  /** Enter a value, as into a text area or a slider. */
  fill(value) {
    this.value = value;
    for (const name of ["input", "change"]) this.send(name);
  }

  focus() {
    document.activeElement = this;
    this.send("focus");
  }

  getContext() {
    return CONTEXT;
  }

  getBoundingClientRect() {
    return BOX;
  }

  getClientRects() {
    return [BOX];
  }

  checkVisibility() {
    return true;
  }

  cloneNode() {
    return Object.assign(new Element(this.tagName), { attributes: { ...this.attributes } });
  }

  normalize() {}
  scrollIntoView() {}
  showModal() {
    this.open = true;
  }
  close() {
    this.open = false;
  }
}

for (const property of [...REFLECTED, ...FLAGS]) {
  const isFlag = FLAGS.includes(property);
  const name = attributeOf(property);
  Object.defineProperty(Element.prototype, property, {
    get() {
      return isFlag ? name in this.attributes : (this.attributes[name] ?? "");
    },
    set(value) {
      if (isFlag && !value) delete this.attributes[name];
      else this.attributes[name] = String(value);
    },
  });
}

// A canvas draws nothing; a letter is a pixel wide.
const CONTEXT = new Proxy({}, {
  get: (all, name) => all[name] ?? ((...given) => {
    if (name === "measureText") return { width: given[0].length };
    return name === "createImageData" ? { data: new Uint8ClampedArray(4 * given[0] * given[1]) } : {};
  }),
});

const VOID = ["meta", "link", "input", "br"];

/** Put the elements of HTML into `root`. */
function parse(html, root) {
  let open = root;
  const RAW = /<!doctype[^>]*>|<(script|style)([^>]*)>([^]*?)<\/\1>|<(\/?)([\w-]+)([^>]*)>|[^<]+/g;
  for (const [text, raw, rawAttributes, content, end, tagName, attributes] of html.matchAll(RAW)) {
    if (text.startsWith("<!")) continue;
    if (!raw && !tagName) open.append(text);
    else if (end) open = open.parentNode;
    else {
      const element = tagName === "html" ? root : new Element(raw ?? tagName);
      for (const [, name, value = ""] of (rawAttributes ?? attributes).matchAll(/([\w-]+)(?:="([^"]*)")?/g))
        element.setAttribute(name, value);
      if (element !== root) open.append(element);
      if (raw) element.append(content);
      else if (element !== root && !VOID.includes(tagName)) open = element;
    }
  }
}

const timeout = (f) => setTimeout(f);
const media = () => ({ matches: false, addEventListener() {} });
class Observer {
  observe() {}
}

/** Open a page, so that its modules can be imported; by default, one without content. */
export function openDocument(html = '<body><script id="description">{"steps":{}}</script><script id="words">{}</script>') {
  const root = new Element("html");
  const made = new Map(); // elements that a page would have
  const known = new Map();
  const getElementById = (id) => {
    if (known.get(id)?.id !== id || !known.get(id).isConnected)
      known.set(id, collect(root, (element) => element.attributes.id === id)[0] ?? null);
    const found = known.get(id);
    if (found || html.includes("<main")) return found;
    if (!made.has(id)) made.set(id, Object.assign(new Element("div"), { id }));
    return made.get(id);
  };
  globalThis.document = {
    documentElement: root, getElementById, activeElement: null, title: "",
    followed: [], // links that were clicked
    createRange: () => ({ setStart() {}, setEnd() {}, getClientRects: () => [BOX], getBoundingClientRect: () => BOX }),
    createTreeWalker: () => ({ nextNode: () => null }),
    querySelectorAll: (all) => root.querySelectorAll(all), querySelector: (all) => root.querySelector(all),
    createElement: (tagName) => new Element(tagName), createElementNS: (_, tagName) => new Element(tagName),
  };
  parse(html, root);
  root.lang ||= "en";
  const [head] = root.querySelectorAll("body");
  Object.assign(document, { body: head });
  Object.assign(globalThis, {
    Node, NodeFilter: {}, innerWidth: 1000, ResizeObserver: Observer, Worker: PageWorker, matchMedia: media, requestAnimationFrame: timeout, devicePixelRatio: 1, innerHeight: 800,
    addEventListener: (...given) => root.addEventListener(...given), scrollBy() {}, parent: globalThis, window: globalThis,
    location: { hash: "", href: "file:///page.html" }, history: { state: null, replaceState() {}, pushState() {} },
    getComputedStyle: () => ({ fontSize: "16px", color: "black", font: "", fontFamily: "", getPropertyValue: () => "" }),
  });
}

class PageWorker extends Worker {
  constructor() {
    super(new URL("worker.mjs", import.meta.url));
    workers.push(this);
  }

  addEventListener = (name, listener) => this.on(name, (data) => listener({ data }));
}

const workers = [];
export const stopWorkers = () => workers.forEach((worker) => worker.terminate());

/** Wait until a condition holds. */
export async function until(isTrue) {
  for (let n = 0; !isTrue(); n++) {
    if (n === 1000) throw new Error(`waited in vain until ${isTrue}`);
    await new Promise((done) => setTimeout(done, 10));
  }
}

/** Open a page that Python wrote beside the scripts, start it, and return the exports of its modules. */
export async function openPage(name, start, { hash = "", modules = [] } = {}) {
  openDocument(readFileSync(new URL(`../${name}.html`, import.meta.url), "utf8"));
  location.hash = hash;
  const load = (path) => import(new URL(`../scripts/${path}.js`, import.meta.url));
  await load(`start/${start}`);
  const all = await Promise.all(modules.map(load));
  return new Proxy({}, { get: (_, name) => all.find((module) => name in module)?.[name] }); // `let` exports change
}
