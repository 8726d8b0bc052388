// A source that runs the model in the page, in a worker with the page's scripts, see model.js.

class ModelSource extends LiveSource {
  #worker;
  #waiting = new Map(); // by number {resolve, reject, share}
  #count = 0;
  #begun;

  constructor() {
    super();
    const script = new Blob([byId("computing").textContent], { type: "text/javascript" });
    this.#worker = new Worker(URL.createObjectURL(script));
    this.#worker.addEventListener("message", ({ data }) => this.#hear(data));
  }

  /** The page's own model: its description from attnlab/views/page/playground.py, and a promise of its parameters. */
  static ofPage(model, numbers) {
    const source = new ModelSource();
    source.#begun = numbers.then((numbers) => source.#ask("begin", { description: model, numbers }, [numbers.buffer]));
    return source.#has(model, description.traces[0]);
  }

  /** A model from the files of a directory. */
  static async ofFiles(files, signal) {
    const source = new ModelSource();
    const { rules } = description.model;
    try {
      const model = await source.#ask("choose", { files, rules, graph: description.model.graph }, [], signal);
      const [directory, name] = (files[0]?.webkitRelativePath ?? "").split("/");
      return source.#has(model, firstOf(model, name ? directory : ""));
    } catch (error) {
      source.close();
      throw error;
    }
  }

  close = () => this.#worker.terminate();

  #has({ graph, tokenizer }, first) {
    return Object.assign(this, { graph: new Graph(graph), tokenizer: new Tokenizer(tokenizer), first });
  }

  open = async (text, ablated, signal) => {
    await this.#begun;
    const made = await this.#ask("open", { text, ablated }, [], signal);
    return this.#described(made, ablated);
  };

  /** Open another model, from the files of a directory, as a new source. */
  opened = ModelSource.ofFiles;

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
    prediction: { ...this.first.prediction, first: 0 },
  });

  /** A layer's scale without the division by √Dk. */
  #factor = (layer) => this.first.given[`blocks.${layer}.attention.layer_number`] ?? 1;

  /** A trace in the form of `description.traces`, based on the model's first one. */
  #described({ ids, text, tokens, notes, edited, paths }, ablated) {
    const { first } = this;
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
      this.#waiting.set(n, { resolve, reject, share: 1 });
      signal?.addEventListener("abort", () => this.#stop(n));
      this.#worker.postMessage({ n, ask, given }, moved);
    });
  }

  #stop = (n) => this.#worker.postMessage({ n, stop: true });

  /** End all that is under way. */
  stop() {
    for (const n of this.#waiting.keys()) this.#stop(n);
  }

  #hear({ n, made, share, failed }) {
    const waiting = this.#waiting.get(n);
    if (share !== undefined) waiting.share = share;
    else this.#waiting.delete(n);
    tellProgress(Math.min(1, ...[...this.#waiting.values()].map(({ share }) => share)));
    if (share !== undefined) return undefined;
    if (!failed) return waiting.resolve(made);
    const { name, message, values } = failed;
    return waiting.reject(Object.assign(new Error(values ? saying(message, values) : message), { name }));
  }
}

/** The first trace's description for another model, which differs by its config. */
function firstOf({ config, given, graph, tokenizer }, name) {
  const [first] = description.traces;
  const { rules, most_tokens } = description.model;
  const { n_layer, n_head, n_embd, d_mlp, vocab_size, scale_attn_weights: byRoot } = config;
  const Dh = n_embd / n_head;
  const number = (layer) => given[`blocks.${layer}.attention.layer_number`] ?? 1;
  const activation = rules.config.activations[config.activation_function];
  const [stop, { stops }] = ["mlp.activated", first.way];
  description.steps.scale.formula = rules.config.scales[2 * byRoot + config.scale_attn_by_inverse_layer_idx];
  return {
    ...{ ...first, model: printable(name), card: {}, edited: {}, graph, given, layers: n_layer, H: n_head, Dh },
    scales: Array.from({ length: n_layer }, (_, layer) => Array(n_head).fill((byRoot ? Math.sqrt(Dh) : 1) * number(layer))),
    prediction: { ...first.prediction, vocab: vocab_size, rows: vocab_size - tokenizer.tokens, n: Math.min(most_tokens, vocab_size) },
    way: {
      ...{ ...first.way, D: n_embd, F: d_mlp, vocab: vocab_size, activation: activation.name, missing: [], columns: [] },
      stops: { ...stops, [stop]: { ...stops[stop], formula: activation.formula } },
    },
  };
}

const TEXT_SHOWN = 200; // characters of a text in the masthead

// The stops that the page can't compute itself.
const SOURCES = /^(token_embedding|position_embedding|attention\.output|mlp\.(hidden|output))$/;

source = ModelSource.ofPage(description.model, embeddedNumbers(byId("parameters")));
description.traces = description.traces.map(source.adopted);
