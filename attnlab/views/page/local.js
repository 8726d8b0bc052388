// A source that runs the model in the page, in a worker with the page's scripts, see model.js.

class ModelSource extends LiveSource {
  #worker;
  #waiting = new Map(); // by number {resolve, reject, progress}
  #count = 0;
  #begun;

  /** The model's description from attnlab/views/page/playground.py, and a promise of its parameters. */
  constructor(model, numbers) {
    super();
    this.graph = new Graph(model.graph);
    this.tokenizer = new Tokenizer(model.tokenizer);
    const script = new Blob([byId("computing").textContent], { type: "text/javascript" });
    const address = URL.createObjectURL(script);
    this.#worker = new Worker(address);
    this.#worker.addEventListener("message", ({ data }) => this.#hear(data));
    this.#begun = numbers.then((numbers) => this.#ask("begin", { description: model, numbers }, [numbers.buffer]));
  }

  async open(text, ablated, signal) {
    await this.#begun;
    const made = await this.#ask("open", { text, ablated }, [], signal);
    return this.#described(made, ablated);
  }

  generate = async ({ ids, ablated }, how, signal) => this.#ask("write", { trace: { ids, ablated }, how }, [], signal);

  async read({ ids, ablated, way: { carried } }, name) {
    await this.#begun;
    return this.#ask("pack", { trace: { ids, ablated, carried }, name });
  }

  async position(trace, place) {
    const logits = await this.step(trace, `logits.${place}`);
    return positionOfLogits(logits, trace.prediction.n, trace.ids[place + 1]);
  }

  /** Convert a trace's description by Python to the form of those made here. */
  adopted = (given) => ({ ...given, ...this.#own(given) });

  #own = ({ ids, ablated }) => ({
    id: JSON.stringify([ids, ablated]),
    names: { get: (id) => this.tokenizer.token(id) },
    prediction: { ...description.traces[0].prediction, first: 0 },
  });

  /** A layer's scale without the division by √Dk. */
  #factor = (layer) => description.traces[0].given[`blocks.${layer}.attention.layer_number`] ?? 1;

  /** A trace in the form of `description.traces`, based on the first one. */
  #described({ ids, text, tokens, notes, edited, paths }, ablated) {
    const [first] = description.traces;
    const T = ids.length;
    const excerpt = [...text.replace(/[\r\n\t]+/g, " ")];
    const stops = stopsOf({ ...first, graph: this.graph });
    const wholes = paths.map((path) => path.replace(/heads\.\d+\./, ""));
    const changed = stops.map(({ path }) => path).filter((path) => wholes.includes(path));
    const isCarried = ({ path, name }) => SOURCES.test(name) || (changed.includes(path) && !/\.[QKV]$/.test(path));
    const isSeen = (n) => paths.includes("mask") || n % T <= Math.floor(n / T);
    return {
      ...{ ...first, ids, text, ablated, tokens, edited },
      ...this.#own({ ids, ablated }),
      note: paths.length ? say(", edited: {paths}", { paths: paths.join(", ") }) : "",
      excerpt: printable(excerpt.length <= TEXT_SHOWN ? text.replace(/[\r\n\t]+/g, " ") : `${excerpt.slice(0, TEXT_SHOWN - 1).join("")}…`),
      notes: notes.map(([sentence, values]) => saying(sentence, values)),
      mask: Uint8Array.from({ length: T * T }, (_, n) => isSeen(n)),
      scales: first.scales.map((all, layer) => (paths.includes(`blocks.${layer}.attention.scale`) ? all.map(() => this.#factor(layer)) : all)),
      way: { ...first.way, edited: changed, carried: stops.filter(isCarried).map(({ path }) => path) },
    };
  }

  /** Request something from the worker; `signal` aborts it. */
  #ask(ask, given, moved = [], signal = undefined) {
    const n = this.#count++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(n, { resolve, reject });
      signal?.addEventListener("abort", () => this.#worker.postMessage({ n, stop: true }));
      this.#worker.postMessage({ n, ask, given }, moved);
    });
  }

  #hear({ n, made, share, failed }) {
    if (share !== undefined) return this.tellProgress?.(share);
    const { resolve, reject } = this.#waiting.get(n);
    this.#waiting.delete(n);
    this.tellProgress?.(1);
    if (!failed) return resolve(made);
    const { name, message, values } = failed;
    return reject(Object.assign(new Error(values ? saying(message, values) : message), { name }));
  }
}

const TEXT_SHOWN = 200; // characters of a text in the masthead

// The stops that the page can't compute itself.
const SOURCES = /^(token_embedding|position_embedding|attention\.output|mlp\.(hidden|output))$/;

source = new ModelSource(description.model, embeddedNumbers(byId("parameters")));
description.traces = description.traces.map(source.adopted);
