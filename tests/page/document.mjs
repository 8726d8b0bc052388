// jsdom 29.1.1 runs whole pages for tests; ATTNLAB_JSDOM names its directory. This module adds what jsdom lacks: sizes,
// a canvas, workers and dialogs. Nothing is drawn, and everything is visible.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Worker } from "node:worker_threads";

const { JSDOM, VirtualConsole } = createRequire(import.meta.url)(process.env.ATTNLAB_JSDOM);

const BOX = { left: 0, top: 0, right: 0, bottom: 0, width: 0, height: 0 };
const BOXES = { getBoundingClientRect: () => BOX, getClientRects: () => [BOX] };

const STYLE = { fontSize: "16px", color: "black", font: "", fontFamily: "", getPropertyValue: () => "" };

// A letter is a pixel wide.
const CONTEXT = new Proxy({}, {
  get: (all, name) => all[name] ?? ((...given) => {
    if (name === "measureText") return { width: given[0].length };
    return name === "createImageData" ? { data: new Uint8ClampedArray(4 * given[0] * given[1]) } : {};
  }),
});

class Observer {
  observe() {}
}

const workers = [];
export const stopWorkers = () => workers.forEach((worker) => worker.terminate());

class PageWorker extends Worker {
  constructor() {
    super(new URL("worker.mjs", import.meta.url));
    workers.push(this);
  }

  addEventListener = (name, listener) => this.on(name, (data) => listener({ data }));
}

/** What tests do with elements. Events bubble. */
const METHODS = {
  findAll(selector) {
    return [...this.querySelectorAll(selector)];
  },
  send(name, given = {}) {
    const event = new window.Event(name, { bubbles: true, cancelable: true });
    this.dispatchEvent(Object.assign(event, given));
  },
  press(key, given = {}) {
    this.send("keydown", { key, ...given });
  },
  /** Enter a value, as into a text area or a slider. */
  fill(value) {
    this.value = value;
    for (const name of ["input", "change"]) this.send(name);
  },
};

/** Open a page, and make global what its modules use. */
function openDocument(html, hash) {
  const virtualConsole = new VirtualConsole(); // silent about what jsdom lacks
  virtualConsole.on("jsdomError", ({ type, cause }) => {
    if (type === "unhandled-exception") throw cause; // of a listener: the test fails
  });
  const { window } = new JSDOM(html, { url: `file:///page.html${hash}`, virtualConsole });
  const { Node, Element, Range, HTMLCanvasElement, HTMLDialogElement } = window;
  Object.assign(Node.prototype, METHODS);
  Object.assign(Range.prototype, BOXES);
  Object.assign(Element.prototype, { ...BOXES, checkVisibility: () => true, scrollIntoView() {} });
  Object.defineProperties(Element.prototype, { clientWidth: { value: 1000 }, clientHeight: { value: 800 } });
  Object.assign(HTMLCanvasElement.prototype, { getContext: () => CONTEXT });
  Object.assign(HTMLDialogElement.prototype, {
    showModal() {
      this.open = true;
    },
    close() {
      this.open = false;
    },
  });
  const { document, location, history, NodeFilter, innerHeight, devicePixelRatio } = window;
  Object.assign(globalThis, {
    ...{ window, parent: window, document, location, history, Node, NodeFilter, innerHeight },
    ...{ devicePixelRatio, addEventListener: window.addEventListener.bind(window), scrollBy() {} },
    ...{ Worker: PageWorker, ResizeObserver: Observer, requestAnimationFrame: (f) => setTimeout(f) },
    getComputedStyle: () => STYLE, // jsdom's takes as long as everything else
    matchMedia: () => ({ matches: false, addEventListener() {} }),
  });
}

/** Wait until a condition holds. */
export async function until(isTrue) {
  for (let n = 0; !isTrue(); n++) {
    if (n === 1000) throw new Error(`waited in vain until ${isTrue}`);
    await new Promise((done) => setTimeout(done, 10));
  }
}

/** Open a page that Python wrote beside the scripts, start it, and return the exports of its modules. */
export async function openPage(name, start, { hash = "", modules = [] } = {}) {
  openDocument(readFileSync(new URL(`../${name}.html`, import.meta.url), "utf8"), hash);
  const load = (path) => import(new URL(`../scripts/${path}.js`, import.meta.url));
  await load(`start/${start}`);
  const all = await Promise.all(modules.map(load));
  return new Proxy({}, { get: (_, name) => all.find((module) => name in module)?.[name] }); // `let` exports change
}
