// A source whose model runs in a worker with the page's scripts, see model.js.

import { inHeading } from "../numbers/bytepairs.js";
import { EXCERPT_LENGTH } from "../numbers/constants.js";
import { decodeUtf8 } from "../numbers/formats.js";
import { Refusal } from "../numbers/refusal.js";
import { Graph, passStepsOf, scaleWithoutRoot } from "../numbers/run.js";
import { predictionOfLogits } from "../numbers/predictions.js";
import { tokenizerOf } from "../numbers/wordpiece.js";
import { description, say } from "./description.js";
import { reports, Source } from "./source.js";

const FORBIDDEN = new Refusal(
  "This page computes in a worker, which the page's host or the browser forbids. Save the page, and open the file.",
).message;

/** A source with a model. `names.get(id)` returns a token's description. */
export class ModelSource extends Source {
  #worker;
  #waiting = new Map(); // requests by number: {resolve, reject, progress}
  #count = 0; // the number of requests so far
  #isForbidden = false; // whether the page may not start a worker

  /** model: its description from attnlab/pages/playground.py; parameters: a promise of {numbers}, or of their {url}. */
  constructor(model, parameters) {
    super();
    Object.assign(this, { config: model.config, graph: new Graph(model.graph), template: description.traces[0] });
    this.tokenizer = tokenizerOf(model.tokenizer);
    this.names = { get: (id) => this.tokenizer.token(id) };
    const script = new Blob([document.getElementById("worker").textContent], { type: "text/javascript" });
    try {
      this.#worker = new Worker(URL.createObjectURL(script));
      this.#worker.addEventListener("message", ({ data }) => this.#receive(data));
      this.#worker.addEventListener("error", () => this.#forbid());
    } catch {
      this.#forbid();
    }
    const start = ({ numbers, url }) =>
      this.#request("start", { description: model, numbers, url }, numbers && [numbers.buffer]); // moved, not copied
    this.started = parameters.then(start);
  }

  /** Reject all requests, now and later: the page may not start a worker. */
  #forbid() {
    this.#isForbidden = true;
    for (const n of [...this.#waiting.keys()]) this.#receive({ n, error: { message: FORBIDDEN, values: {} } });
  }

  open = async (text, changes, signal) => {
    await this.started;
    return this.#traceOf(await this.#request("open", { text, changes }, [], signal), changes);
  };

  generate = async ({ ids, changes }, settings, signal) =>
    this.#request("generate", { trace: { ids, changes }, settings }, [], signal);

  async read({ ids, changes, closing, pass: { packed } }, name) {
    await this.started;
    return this.#request("pack", { trace: { ids, changes, packed }, name }, [], closing.signal);
  }

  has = () => true; // the model computes every pack
  predictionPack = "logits";
  decodePrediction = ({ prediction: { n }, ids }, position, logits) => ({
    ...predictionOfLogits(logits, n, ids[position + 1]),
    all: logits, // also of tokens that aren't listed
  });

  async pairs(trace, { layer, head, query, key, other }) {
    const numbers = [...(await this.pack(trace, `why.${layer}.${head}.${query}.${key}.${other ?? "mean"}`))];
    return Array.from({ length: numbers.length / 3 }, (_, n) => numbers.slice(3 * n, 3 * n + 3));
  }

  /** A trace's description, with an id and the tokens' names. */
  withNames = (trace) => ({ ...trace, id: JSON.stringify([trace.ids, trace.changes]), names: this.names });

  /** A trace as in `description.traces`, from the worker's answer. `template` has what is the same in all traces. */
  #traceOf({ ids, text, tokens, edited, paths }, changes) {
    const { template } = this;
    const T = ids.length;
    const line = decodeUtf8(this.tokenizer.allBytes(ids)).replace(/[\r\n\t]+/g, " ");
    const characters = [...line];
    const short = characters.length <= EXCERPT_LENGTH ? line : `${characters.slice(0, EXCERPT_LENGTH - 1).join("")}…`;
    const steps = passStepsOf({ ...template, graph: this.graph });
    const layerPaths = paths.map((path) => path.replace(/heads\.\d+\./, "")); // a head's step is part of a layer's
    const changed = steps.map(({ path }) => path).filter((path) => layerPaths.includes(path));
    const isPacked = ({ path, name }) =>
      // The pack "attention" already has Q, K and V as edited.
      ALWAYS_PACKED.test(name) || (changed.includes(path) && !/\.[QKV]$/.test(path));
    const mask = new Uint8Array(T * T);
    const isCausal = !paths.includes("mask"); // the only edit of all heads' mask makes every key visible
    for (let i = 0; i < T; i++) mask.fill(1, i * T, i * T + (isCausal ? i + 1 : T));
    return {
      ...this.withNames({ ...template, ids, text, changes, tokens, edited }),
      excerpt: inHeading(short),
      mask,
      scales: template.scales.map((scales, layer) =>
        paths.includes(`blocks.${layer}.attention.scale`) // only the change "unscaled" edits a layer's scale
          ? scales.map(() => scaleWithoutRoot(template.hyperparameters, layer))
          : scales,
      ),
      pass: { ...template.pass, edited: changed, packed: steps.filter(isPacked).map(({ path }) => path) },
    };
  }

  /** Request something from the worker; `signal` aborts it. */
  #request(method, parameters, transferred = [], signal = undefined) {
    const n = this.#count++;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) throw signal.reason; // the request was aborted while the model was read
      this.#waiting.set(n, { resolve, reject, progress: 1 }); // 1 until a request reports: quick requests never do
      if (this.#isForbidden) return this.#forbid();
      signal?.addEventListener("abort", () => this.#abort(n));
      return this.#worker.postMessage({ n, method, parameters }, transferred);
    });
  }

  #abort = (n) => this.#waiting.has(n) && this.#worker.postMessage({ n, stop: true });

  stop() {
    for (const n of this.#waiting.keys()) this.#abort(n);
  }

  #receive({ n, result, progress, error }) {
    const waiting = this.#waiting.get(n);
    if (progress !== undefined) waiting.progress = progress;
    else this.#waiting.delete(n);
    reports.progress(Math.min(1, ...[...this.#waiting.values()].map(({ progress }) => progress))); // the slowest's
    if (progress !== undefined) return undefined;
    if (!error) return waiting.resolve(result);
    const { name, message, values } = error; // only a Refusal, which is translated, has values
    return waiting.reject(Object.assign(new Error(values ? say(message, values) : message), { name }));
  }
}

// The steps that are in a token's pack even if they aren't edited: the page computes the others from these.
const ALWAYS_PACKED = /^(token_embedding|position_embedding|attention\.output|mlp\.(hidden|output))$/;
