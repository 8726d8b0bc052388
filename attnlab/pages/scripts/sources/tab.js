// A source that runs the model in the page, in a worker with the page's scripts, see model.js.

import { inHeading, printable } from "../numbers/bytepairs.js";
import { EXCERPT_LENGTH } from "../numbers/constants.js";
import { decodeUtf8, grouped } from "../numbers/formats.js";
import { Refusal } from "../numbers/refusal.js";
import { Graph, passStepsOf, scaleWithoutRoot } from "../numbers/run.js";
import { predictionOfLogits } from "../numbers/predictions.js";
import { tokenizerOf } from "../numbers/wordpiece.js";
import { description, sayStored } from "./description.js";
import { reports, Source } from "./source.js";

const FORBIDDEN = new Refusal(
  "This page computes in a worker, which the host of the page or the browser forbids. Save the page, and open the file.",
).message;

/** A source with a model. `names.get(id)` returns a token's description. */
export class ModelSource extends Source {
  #worker;
  #waiting = new Map(); // requests by number: {resolve, reject, progress}
  #count = 0;
  #started;
  #isForbidden = false; // whether the page may not start a worker

  constructor() {
    super();
    const script = new Blob([document.getElementById("worker").textContent], { type: "text/javascript" });
    try {
      this.#worker = new Worker(URL.createObjectURL(script));
      this.#worker.addEventListener("message", ({ data }) => this.#receive(data));
      this.#worker.addEventListener("error", () => this.#forbid());
    } catch {
      this.#forbid();
    }
  }

  /** Say to all who wait, now and later, that nothing can be computed. */
  #forbid() {
    this.#isForbidden = true;
    for (const n of [...this.#waiting.keys()]) this.#receive({ n, error: { message: FORBIDDEN, values: {} } });
  }

  /** The page's model: its description from attnlab/pages/playground.py, and a promise of its parameters. */
  static ofPage(model, numbers) {
    const source = new ModelSource();
    source.#started = numbers.then((numbers) => source.#request("start", { description: model, numbers }, [numbers.buffer]));
    return source.#setUp(model, description.traces[0]);
  }

  /** A model from the files of a directory; template: the description of one of its traces, if Python has written one. */
  static async ofFiles(files, signal, template) {
    const source = new ModelSource();
    const { rules } = description.model;
    try {
      const model = await source.#request("openFiles", { files, rules, graph: description.model.graph }, [], signal);
      // "directory/file" if a directory was chosen; "" if its files were.
      const [directory, file] = (files[0]?.webkitRelativePath ?? "").split("/");
      return source.#setUp(model, template ?? templateOf(model, file ? directory : ""));
    } catch (error) {
      source.close();
      throw error;
    }
  }

  close = () => this.#worker.terminate();

  /** Keep what descriptions of traces need; template: one of these descriptions. */
  #setUp({ config, graph, tokenizer }, template) {
    const names = { get: (id) => this.tokenizer.token(id) };
    return Object.assign(this, { config, graph: new Graph(graph), tokenizer: tokenizerOf(tokenizer), template, names });
  }

  /** Show this model's formulas instead of another one's. */
  showFormulas() {
    const { scale_attn_weights, scale_attn_by_inverse_layer_idx } = this.config;
    const { scales } = description.model.rules.config; // for the four combinations of both flags
    description.steps.scale.formula = scales[2 * scale_attn_weights + scale_attn_by_inverse_layer_idx];
  }

  open = async (text, changes, signal) => {
    await this.#started;
    return this.#traceOf(await this.#request("open", { text, changes }, [], signal), changes);
  };

  /** Open another model, from the files of a directory, as a new source. */
  openDirectory = ModelSource.ofFiles;

  generate = async ({ ids, changes }, settings, signal) => this.#request("generate", { trace: { ids, changes }, settings }, [], signal);

  async read({ ids, changes, closing, pass: { packed } }, name) {
    await this.#started;
    return this.#request("pack", { trace: { ids, changes, packed }, name }, [], closing.signal);
  }

  has = () => true;

  predictionPack = "logits";

  decodePrediction = ({ prediction: { n }, ids }, position, logits) => ({ ...predictionOfLogits(logits, n, ids[position + 1]), all: logits });

  async pairs(trace, { layer, head, query, key, other }) {
    const numbers = [...(await this.pack(trace, `why.${layer}.${head}.${query}.${key}.${other ?? "mean"}`))];
    return Array.from({ length: numbers.length / 3 }, (_, n) => numbers.slice(3 * n, 3 * n + 3));
  }

  /** A trace's description, with an id and the tokens' names. */
  withNames = (trace) => ({ ...trace, id: JSON.stringify([trace.ids, trace.changes]), names: this.names });

  /** A trace as in `description.traces`, from the worker's answer and the template. */
  #traceOf({ ids, text, tokens, edited, paths }, changes) {
    const { template } = this;
    const T = ids.length;
    const line = decodeUtf8(this.tokenizer.allBytes(ids)).replace(/[\r\n\t]+/g, " ");
    const characters = [...line];
    const steps = passStepsOf({ ...template, graph: this.graph });
    const layerPaths = paths.map((path) => path.replace(/heads\.\d+\./, ""));
    const changed = steps.map(({ path }) => path).filter((path) => layerPaths.includes(path));
    const isPacked = ({ path, name }) => ALWAYS_PACKED.test(name) || (changed.includes(path) && !/\.[QKV]$/.test(path));
    const mask = new Uint8Array(T * T);
    for (let i = 0; i < T; i++) mask.fill(1, i * T, paths.includes("mask") ? (i + 1) * T : i * T + i + 1);
    return {
      ...this.withNames({ ...template, ids, text, changes, tokens, edited }),
      note: paths.length ? [description.model.edited, { paths: paths.join(", ") }] : "",
      excerpt: inHeading(characters.length <= EXCERPT_LENGTH ? line : `${characters.slice(0, EXCERPT_LENGTH - 1).join("")}…`),
      mask,
      scales: template.scales.map((scales, layer) =>
        paths.includes(`blocks.${layer}.attention.scale`) ? scales.map(() => scaleWithoutRoot(template.hyperparameters, layer)) : scales,
      ),
      pass: { ...template.pass, edited: changed, packed: steps.filter(isPacked).map(({ path }) => path) },
    };
  }

  /** Request something from the worker; `signal` aborts it. */
  #request(method, parameters, transferred = [], signal = undefined) {
    const n = this.#count++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(n, { resolve, reject, progress: 1 }); // quick requests don't report progress
      if (this.#isForbidden) return this.#forbid();
      signal?.addEventListener("abort", () => this.#abort(n));
      return this.#worker.postMessage({ n, method, parameters }, transferred);
    });
  }

  #abort = (n) => this.#waiting.has(n) && this.#worker.postMessage({ n, stop: true });

  /** Abort all requests. */
  stop() {
    for (const n of this.#waiting.keys()) this.#abort(n);
  }

  #receive({ n, result, progress, error }) {
    const waiting = this.#waiting.get(n);
    if (progress !== undefined) waiting.progress = progress;
    else this.#waiting.delete(n);
    reports.progress(Math.min(1, ...[...this.#waiting.values()].map(({ progress }) => progress)));
    if (progress !== undefined) return undefined;
    if (!error) return waiting.resolve(result);
    const { name, message, values } = error;
    return waiting.reject(Object.assign(new Error(values ? sayStored(message, values) : message), { name }));
  }
}

/** The description of the page's first trace, with another model's sizes, graph and formulas. */
function templateOf({ config, hyperparameters, graph, tokenizer, averages }, name) {
  const [first] = description.traces;
  const { rules, most_tokens, others } = description.model;
  const { n_layer, n_head, n_embd, d_mlp, vocab_size } = config;
  const Dh = n_embd / n_head;
  const scaleOfLayer = (layer) => (config.scale_attn_weights ? Math.sqrt(Dh) : 1) * scaleWithoutRoot(hyperparameters, layer);
  const activation = rules.config.activations[config.activation_function];
  const { steps } = first.pass;
  return {
    ...first,
    training: [others.training, { name: printable(name) || [others.nameless, {}], count: grouped(vocab_size) }],
    ...{ advice: others.advice, limits: "", special: { names: tokenizer.special, isExact: !tokenizer.wordPiece } },
    hasAverages: Object.keys(averages).length > 0,
    ...{ model: printable(name), card: {}, edited: {}, graph, hyperparameters, layers: n_layer, H: n_head, Dh },
    scales: Array.from({ length: n_layer }, (_, layer) => Array(n_head).fill(scaleOfLayer(layer))),
    prediction: { ...first.prediction, vocab: vocab_size, rows: vocab_size - tokenizer.tokens, n: Math.min(most_tokens, vocab_size) },
    pass: {
      ...first.pass,
      ...{ D: n_embd, F: d_mlp, vocab: vocab_size, activation: activation.name, columns: [] },
      steps: { ...steps, "mlp.activated": { ...steps["mlp.activated"], formula: activation.formula } },
    },
  };
}

// The steps that are in a token's pack even if they aren't edited: the page computes the others from these.
const ALWAYS_PACKED = /^(token_embedding|position_embedding|attention\.output|mlp\.(hidden|output))$/;
