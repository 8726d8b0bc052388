// A model that runs in the page: it traces texts, with edits, computes their packs, and generates text. It runs
// in a worker, so that the page stays responsive; `HANDLERS` in `serveModel` lists the requests.

import { assign, broadcast, concatenated, copyOf, Nd, nd, REST, sizeOf, useProducts } from "../numbers/arrays.js";
import { printable } from "../numbers/bytepairs.js";
import { COMPARED, MAX_ABLATION_WORK, MIN_ABLATED_HEADS, PACKED_STEPS } from "../numbers/constants.js";
import { equations } from "../numbers/equations.js";
import { grouped } from "../numbers/formats.js";
import { largestPairs } from "../numbers/pairs.js";
import { Products } from "../numbers/products.js";
import { checkFinite, Refusal } from "../numbers/refusal.js";
import { Graph, Run, scaleWithoutRoot } from "../numbers/run.js";
import {
  generator, indicesOfLargest, predictionOfLogits, probabilitiesOf, sampledIndex,
} from "../numbers/predictions.js";
import { tokenizerOf } from "../numbers/wordpiece.js";

const REPORT_MILLISECONDS = 50; // the least time between reports of progress, since the page draws each of them
const MAX_ROWS = 2048; // the most tokens of runs that are computed side by side
const TRACE_CACHE_BYTES = 64_000_000; // the most bytes of kept traces; the last two are kept even if they are larger
const MAX_NEW_TOKENS = 100;

// Steps that a run keeps; the others are computed quickly from these.
const KEPT_STEPS =
  /^(blocks\.\d+\.(output|attention\.context)|final|(token_|position_)?embedding|ids|positions|mask|n_head)$/;

const isKept = (path) => KEPT_STEPS.test(path);
const isOutsideHeads = (path) => !path.includes(".heads.");

/** A causal mask of T queries that follow cached keys. */
function causalMask(T, cached) {
  const Tk = cached + T;
  const mask = new Float32Array(T * Tk);
  for (let i = 0; i < T; i++) mask.fill(1, i * Tk, i * Tk + cached + i + 1);
  return new Nd(mask, [T, Tk]);
}

/** The cached keys or values of one layer. */
class Cache {
  constructor(capacity) {
    Object.assign(this, { capacity, length: 0, buffer: null });
  }

  extend(rows) {
    const [H, T, Dh] = rows.shape;
    this.buffer ??= new Nd(new Float32Array(H * this.capacity * Dh), [H, this.capacity, Dh]);
    const rowsFrom = (start) => nd.item(this.buffer, REST, nd.slice(start, this.length + T), nd.slice(null, null));
    assign(rowsFrom(this.length), rows);
    return rowsFrom(0);
  }
}

/** A copy of a mask in which cells, [query, key], are toggled; cells outside the mask are ignored. */
function withToggledCells(mask, cells) {
  const [T, Tk] = mask.shape;
  const toggled = new Nd(mask.numbers().slice(), mask.shape);
  for (const [query, key] of cells) {
    const row = query - (Tk - T); // earlier tokens' keys may be cached
    if (row >= 0 && row < T && key < Tk) toggled.data[row * Tk + key] ^= 1;
  }
  return toggled;
}

/** Refuse a mask with toggled cells that leaves a query without a key. */
function checkEveryQueryHasAKey(mask) {
  const [T, Tk] = mask.shape;
  for (let i = 0; i < T; i++)
    if (!mask.data.subarray(i * Tk, (i + 1) * Tk).includes(1))
      throw new Refusal("The mask must leave query {i} at least one key.", { i });
}

/** The edited steps of heads, by layer and head, for the pack "attention". */
function editedHeads(edits, n_head) {
  const edited = {};
  for (const path of Object.keys(edits)) {
    const [, layer, number, name] = /^blocks\.(\d+)\.attention\.(?:heads\.(\d+)\.)?(\w+)$/.exec(path) ?? [];
    if (!PACKED_STEPS.includes(name)) continue;
    const heads = (edited[layer] ??= {});
    // An edit of a layer's step is an edit of all its heads.
    for (const head of number === undefined ? Array(n_head).keys() : [number]) {
      const names = [...(heads[head] ?? []), name];
      heads[head] = PACKED_STEPS.filter((step) => names.includes(step));
    }
  }
  return edited;
}

/** The layer in a path; -1 outside blocks. */
const layerIn = (path) => (path.startsWith("blocks.") ? Number(path.split(".")[1]) : -1);

/** The first layer to run with edits: 0 if they are outside blocks; Infinity without edits, so that none is run. */
const firstEdited = (edits) => Math.max(0, Math.min(...Object.keys(edits).map(layerIn)));

class Model {
  #traces = new Map(); // by id, the most recently used last

  /** A description by attnlab/pages/playground.py; numbers: all parameters, in the order of `shapes`. */
  constructor({ config, graph, hyperparameters, tokenizer, shapes, averages }, numbers) {
    let start = 0;
    this.parameters = new Map();
    for (const [path, shape, strides] of shapes) {
      const stored = new Nd(numbers, shape, strides, start);
      // W_Q, W_K and W_V are the thirds of one matrix, as in attnlab/forward/parameters.py.
      const width = shape.at(-1) / 3;
      if (!path.endsWith("_QKV")) this.parameters.set(path, stored);
      else for (const [n, name] of [..."QKV"].entries())
        this.parameters.set(path.replace("QKV", name), nd.item(stored, REST, nd.slice(n * width, (n + 1) * width)));
      start += sizeOf(shape);
    }
    this.parameters.set("rows_of_W_E", this.parameters.get("W_E")); // Python may read only some rows from a file
    Object.assign(this, { config, averages });
    this.hyperparameters = { ...hyperparameters, activation: equations[hyperparameters.activation] };
    this.graph = new Graph(graph);
    this.tokenizer = tokenizerOf(tokenizer);
  }

  /**
   * A run over ids. They follow `cached` tokens, whose keys and values are in `caches`, by path. base: a run without
   * the edits, which computes the layers before the first edited one, or before `firstLayer`.
   */
  #run(ids, edits = {}, { cached = 0, caches = {}, base, firstLayer = base ? firstEdited(edits) : 0 } = {}) {
    const T = ids.length;
    const integers = (values) => new Nd(Int32Array.from(values), [T]);
    const inputs = {
      ids: integers(ids), positions: integers(ids.map((_, n) => cached + n)), mask: causalMask(T, cached), cached,
      ...caches,
    };
    const isOfBase = (path) => layerIn(path) >= 0 && layerIn(path) < firstLayer;
    const run = new Run(
      this.graph, (path) => (isOfBase(path) ? base.value(path) : (inputs[path] ?? this.#inputOf(path))), edits,
    );
    return Object.assign(run, { base, firstLayer });
  }

  #inputOf = (path) => this.hyperparameters[path] ?? this.parameters.get(path);

  /** Run the first `layers` blocks; `tick` is awaited between them, and throws if the request was aborted. */
  async #pass(run, layers, tick) {
    if (run.firstLayer) await this.#pass(run.base, Math.min(run.firstLayer, layers), tick);
    for (let layer = run.firstLayer; layer < layers; layer++) {
      const prefix = `blocks.${layer}`;
      if (!run.values.has(`${prefix}.output`)) await tick(layer / layers);
      if (run.values.has(`${prefix}.output`)) continue; // computed before, or by another request during the tick
      run.inScratch(() => {
        this.#attend(run, prefix);
        run.value(`${prefix}.mid`);
      }, (path) => KEPT_STEPS.test(path) || path === `${prefix}.mid`);
      run.inScratch(() => run.value(`${prefix}.output`), isKept);
    }
    return run;
  }

  /** Compute all heads' context in a block, one head at a time to save memory: a head's weights are T x T numbers. */
  #attend(run, prefix) {
    const path = `${prefix}.attention`;
    if (run.values.has(`${path}.context`)) return;
    for (const name of ["Q", "K", "V"]) run.value(`${path}.${name}`); // computed for all heads at once
    const { shape } = run.value(`${path}.Q`); // (..., H, T, Dh)
    const contexts = new Nd(new Float32Array(sizeOf(shape)), shape);
    for (let head = 0; head < this.hyperparameters.n_head; head++) {
      const context = nd.item(contexts, REST, head, nd.slice(null, null), nd.slice(null, null));
      run.inScratch(() => assign(context, run.value(`${path}.heads.${head}.context`)), isOutsideHeads);
    }
    run.values.set(`${path}.context`, contexts);
  }

  /** The ids of {text, special} or {ids}, checked. */
  idsOf({ text, special, ids = this.tokenizer.encode(text, special) }) {
    const positions = this.config.n_positions;
    if (!ids.length) throw new Refusal("Enter a text to trace.");
    const invalid = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= this.config.vocab_size);
    if (invalid !== undefined)
      throw new Refusal("token id {id} isn't in the vocabulary; ids are 0 to {last}", {
        id: invalid, last: this.config.vocab_size - 1,
      });
    if (ids.length > positions)
      throw new Refusal("The text has {count} tokens; this model reads at most {positions}, up to “{end}”.", {
        count: ids.length,
        positions,
        end: printable([...this.tokenizer.textOf(ids.slice(0, positions))].slice(-30).join("")),
      });
    return ids;
  }

  /** The trace of ids with changes, cached. */
  trace(ids, changes) {
    const id = JSON.stringify([ids, changes]);
    const base = changes.length ? this.trace(ids, []).run : undefined;
    const edits = this.#editsOf(changes);
    const trace = this.#traces.get(id) ?? { ids, edits, run: this.#run(ids, edits, { base }) };
    this.#traces.delete(id);
    this.#traces.set(id, trace); // now the most recently used
    let bytes = 0;
    for (const [n, [cachedId, cached]] of [...this.#traces].reverse().entries()) {
      bytes += 4 * cached.ids.length * this.config.n_embd * (2 * this.config.n_layer + 4); // the KEPT_STEPS in float32
      if (bytes > TRACE_CACHE_BYTES && n > 1) this.#traces.delete(cachedId);
    }
    return trace;
  }

  /** The context of a silenced head: its average if the model has averages, else 0. */
  #silencedContext(layer, head) {
    const average = this.averages[`blocks.${layer}.attention.heads.${head}.context`];
    return average ? new Nd(Float32Array.from(average), [average.length]) : 0;
  }

  /** The edits that make changes, see numbers/changes.js. */
  #editsOf(changes) {
    const layers = Array.from({ length: this.config.n_layer }, (_, layer) => layer);
    const pairs = changes.flatMap(({ kind, layer, head, step, factor, cells }) => {
      const mlpOutput = `blocks.${layer}.mlp.output`;
      const pathIn = (name) => `blocks.${layer}.attention.heads.${head}.${name}`;
      const edits = {
        ablate: () => [head === undefined ? [mlpOutput, 0] : [pathIn("context"), this.#silencedContext(layer, head)]],
        scale: () => [[pathIn(step), (x) => nd.multiply(x, factor)]],
        mask: () => [[pathIn("mask"), (mask) => withToggledCells(mask, cells)]],
        uncausal: () => [["mask", 1]], // 1 for every query and key
        unscaled: () => layers.map((n) => [`blocks.${n}.attention.scale`, scaleWithoutRoot(this.hyperparameters, n)]),
      };
      return edits[kind]();
    });
    return Object.fromEntries(pairs);
  }

  /** The description of a text's trace for the page, without its packs. */
  open(text, changes) {
    const ids = this.idsOf(text);
    const mask = causalMask(ids.length, 0);
    if (changes.some(({ kind }) => kind === "uncausal")) mask.data.fill(1);
    for (const { kind, cells } of changes) if (kind === "mask") checkEveryQueryHasAKey(withToggledCells(mask, cells));
    const { edits } = this.trace(ids, changes);
    const tokens = this.tokenizer.tokens(ids, text.text, text.special);
    return {
      ids, text: this.tokenizer.textOf(ids), tokens, edited: editedHeads(edits, this.hyperparameters.n_head),
      paths: Object.keys(edits),
    };
  }

  /** A trace's pack, see attnlab/pages/packs.py. */
  async pack(trace, name, tick) {
    const numbers = await this.#numbersOf(trace, name, tick);
    checkFinite(numbers);
    return numbers;
  }

  async #numbersOf({ ids, changes, packed }, name, tick) {
    const { run } = this.trace(ids, changes);
    const [, kind, number] = /^(attention|pass|logits)\.(\d+)$/.exec(name) ?? [];
    const [, path, start, stop] = /^columns\.(.+)\.(\d+)\.(\d+)$/.exec(name) ?? [];
    if (name.startsWith("why.")) return this.#largestPairs(run, name.split(".").slice(1), tick);
    if (kind === "attention")
      return this.#numbersOfLayer(run, Number(number), tick, (run) => this.#attention(run, Number(number)));
    if (kind || name === "stream" || name === "story") await this.#pass(run, this.config.n_layer, tick);
    if (name === "stream") return this.#stream(run);
    if (name === "story") return this.#story(run, tick);
    if (kind === "pass") {
      const row = this.#runOfPosition(run, Number(number));
      return concatenated(packed.map((path) => row.value(path)));
    }
    if (kind === "logits") return this.logits(run, Number(number));
    if (name === "norms") return this.#norms(run);
    // The last kind of pack: columns.
    const W = run.value(path);
    const b = path === "W_U" ? null : run.value(path.replace(/W(_\w+)$/, "b$1")); // logits have no bias
    const columns = [];
    for (let n = Number(start); n < stop; n++)
      columns.push(nd.item(W, REST, nd.slice(null, null), n), b ? nd.item(b, nd.slice(n, n + 1)) : ZERO_BIAS);
    return concatenated(columns);
  }

  /** Arrays that `arraysOf` computes from a layer's run, concatenated. */
  async #numbersOfLayer(run, layer, tick, arraysOf) {
    if (layer < run.firstLayer) return this.#numbersOfLayer(run.base, layer, tick, arraysOf);
    await this.#pass(run, layer, tick);
    const numbers = concatenated(arraysOf(run));
    if (run.values.has(`blocks.${layer}.output`)) run.keep(isKept); // until then, the block needs the other steps
    return numbers;
  }

  /** A score's largest pairs, see numbers/pairs.js. */
  async #largestPairs(run, [layer, head, query, key, other], tick) {
    await this.#pass(run, Number(layer), tick);
    return run.inScratch(() => largestPairs(run, ...[layer, head, query, key].map(Number), other), isKept);
  }

  /** A layer's Q, K, V and edited steps. The page knows edited scales without a pack, see `#traceOf` in tab.js. */
  #attention(run, layer) {
    const prefix = `blocks.${layer}.attention`;
    const packed = Object.entries(editedHeads(run.edits, this.hyperparameters.n_head)[layer] ?? {}).flatMap(
      ([head, names]) => names.filter((name) => name !== "scale").map((name) => `heads.${head}.${name}`),
    );
    return ["Q", "K", "V", ...packed].map((name) => run.value(`${prefix}.${name}`));
  }

  /** A run over one position, from a layer on. It takes the heads' context from `run`, over all positions. */
  #runOfPosition(run, position, layer = 0) {
    const rowOfToken = nd.slice(position, position + 1);
    const valueOf = (path) => {
      const isFromRun = path.endsWith("attention.context") || path === `blocks.${layer - 1}.output`;
      if (isFromRun) return nd.item(run.value(path), REST, rowOfToken, nd.slice(null, null));
      return path === "ids" || path === "positions" ? nd.item(run.value(path), rowOfToken) : this.#inputOf(path);
    };
    // The context from `run` already includes the edits of heads.
    const edits = Object.entries(run.edits).filter(([path]) => !path.includes(".heads."));
    return new Run(this.graph, valueOf, Object.fromEntries(edits));
  }

  /** Norms in the residual stream, see attnlab/pages/overview.py. */
  #stream(run) {
    const normsOf = (rows) => nd.sqrt(nd.square(rows).sum({ axis: -1, keepdims: true }));
    const blocks = Array.from({ length: this.config.n_layer }, (_, n) => {
      const [mid, output] = [run.value(`blocks.${n}.mid`), run.value(`blocks.${n}.output`)];
      run.keep(isKept);
      return [mid, nd.subtract(output, mid), output].map(normsOf);
    });
    return concatenated([normsOf(run.value("embedding")), ...blocks.flat()]);
  }

  /** What ablating heads does to the next token, see attnlab/pages/overview.py. */
  async #story(run, tick) {
    const vocab = this.config.vocab_size;
    const T = run.value("ids").size;
    const softmaxOf = (logits) => equations.softmax(new Nd(Float64Array.from(logits), [vocab])).numbers();
    const original = softmaxOf(this.logits(run, T - 1));
    const compared = indicesOfLargest(original, COMPARED);
    const pick = (ids, probabilities) => ids.map((id) => probabilities[id]);
    const numbers = [compared.length, ...compared, ...pick(compared, original)];
    const candidates = this.#candidates(run, original, compared[0]); // sorted by layer, as `batch` needs it
    const batchSize = Math.max(1, Math.floor(MAX_ROWS / T)); // heads of one layer that are ablated at once
    for (let tried = 0; tried < candidates.length; ) {
      const [layer] = candidates[tried];
      const batch = candidates.slice(tried, tried + batchSize).filter(([layerOfHead]) => layerOfHead === layer);
      const heads = batch.map(([, head]) => head);
      const tickOfBatch = (done) => tick((tried + done * heads.length) / candidates.length);
      const logits = await this.#logitsWithout(run, layer, heads, tickOfBatch);
      for (const [n, head] of heads.entries()) {
        const probabilities = softmaxOf(logits.subarray(n * vocab, (n + 1) * vocab));
        const without = indicesOfLargest(probabilities, COMPARED);
        numbers.push(layer, head, ...pick(compared, probabilities));
        numbers.push(...without, ...pick(without, probabilities), ...pick(without, original));
      }
      tried += heads.length;
    }
    return Float32Array.from(numbers);
  }

  /** The next token's logits without each of a layer's heads, all in one batch, as in attnlab/analysis/ablation.py. */
  async #logitsWithout(run, layer, heads, tick) {
    const path = `blocks.${layer}.attention.context`;
    const context = run.value(path);
    const contexts = copyOf(broadcast(context, [heads.length, ...context.shape]));
    for (const [n, head] of heads.entries()) assign(nd.item(contexts, n, head), this.#silencedContext(layer, head));
    const batch = this.#run([...run.value("ids").numbers()], run.edits, { base: run, firstLayer: layer });
    batch.values.set(path, contexts);
    const last = this.config.n_layer - 1;
    await this.#pass(batch, last, tick);
    batch.inScratch(() => this.#attend(batch, `blocks.${last}`), isKept); // other steps need only the last row
    return this.logits(this.#runOfPosition(batch, context.shape[1] - 1, last), 0);
  }

  /** The heads to ablate: those whose output is largest along the gradient of the log probability of `top`. */
  #candidates(run, probabilities, top) {
    const { n_head } = this.hyperparameters;
    const gradient = Float64Array.from(probabilities, (p, id) => Number(id === top) - p); // d log p(top) / d logit
    // As a row, so that W_U is read in memory order.
    const w = nd.matmul(new Nd(gradient, [1, gradient.length]), run.value("W_U").swapaxes(0, 1));
    const direction = directionOf(run, w);
    const heads = Array.from({ length: this.config.n_layer * n_head }, (_, n) => {
      const [layer, head] = [Math.floor(n / n_head), n % n_head];
      const context = nd.item(run.value(`blocks.${layer}.attention.context`), head);
      const row = nd.item(context, nd.slice(context.shape[0] - 1, context.shape[0]));
      const W_O = equations.rows_of_head(run.value(`blocks.${layer}.attention.W_O`), head, n_head);
      const [contribution] = nd.matmul(nd.matmul(row, W_O), direction.reshape(direction.size, 1)).numbers();
      return { layer, head, effect: Math.abs(contribution), n };
    });
    const { n_layer, n_embd } = this.config;
    // A block has 12 D² parameters: 4 D² in attention and 8 D² in the MLP. Each is multiplied once for each token.
    const count = Math.max(
      MIN_ABLATED_HEADS, Math.floor(MAX_ABLATION_WORK / (12 * run.value("ids").size * n_layer * n_embd ** 2)),
    );
    const largest = heads.sort((a, b) => b.effect - a.effect || a.n - b.n).slice(0, count);
    return largest.sort((a, b) => a.n - b.n).map(({ layer, head }) => [layer, head]);
  }

  #norms(run) {
    const blocks = Array.from({ length: this.config.n_layer }, (_, n) => [
      `blocks.${n}.attention.`, `blocks.${n}.mlp.`,
    ]);
    const epsilon = new Nd(Float64Array.of(this.hyperparameters.epsilon), [1]);
    return concatenated(
      [...blocks.flat(), ""].flatMap((prefix) => [run.value(`${prefix}gain`), run.value(`${prefix}bias`), epsilon]),
    );
  }

  /** All logits after a position; in a batch, of all its runs. */
  logits(run, position) {
    const final = nd.item(run.value("final"), REST, nd.slice(position, position + 1), nd.slice(null, null));
    return equations.logits(final, run.value("W_U")).numbers();
  }

  /** Generate tokens, with cached keys and values. */
  async generate({ ids, changes }, { count, seed, ...settings }, tick) {
    const positions = this.config.n_positions;
    const free = positions - ids.length;
    if (!Number.isInteger(count) || count < 1 || count > MAX_NEW_TOKENS)
      throw new Refusal("The number of tokens must be from 1 to {most}.", { most: MAX_NEW_TOKENS });
    if (!free)
      throw new Refusal("The text fills all {positions} positions of the model; no tokens can be added.", {
        positions,
      });
    const prefixes = Array.from({ length: this.config.n_layer }, (_, n) => `blocks.${n}.attention.`);
    const capacity = Math.min(positions, ids.length + count);
    const caches = Object.fromEntries(
      prefixes.flatMap((prefix) => ["K_cache", "V_cache"].map((name) => [prefix + name, new Cache(capacity)])),
    );
    const random = generator(seed ?? Math.floor(Math.random() * 2 ** 32));
    const hasToken = Uint8Array.from({ length: this.config.vocab_size }, (_, id) => this.tokenizer.symbols.has(id));
    const all = [...ids];
    const chosen = [];
    for (let cached = 0; chosen.length < Math.min(count, free); cached = all.length - 1) { // all but the newest
      for (const cache of Object.values(caches)) cache.length = cached;
      const run = this.#run(all.slice(cached), this.#editsOf(changes), { cached, caches });
      await this.#pass(run, prefixes.length, (done) => tick((chosen.length + done) / count));
      const logits = this.logits(run, all.length - cached - 1);
      checkFinite(logits);
      // Ids without a token are never sampled.
      const allowed = logits.map((logit, id) => (hasToken[id] ? logit : -Infinity));
      // At temperature 0, only the largest logit counts.
      const candidates = predictionOfLogits(allowed, settings.temperature ? allowed.length : 1);
      const { renormalized } = probabilitiesOf(candidates, settings);
      const index = Math.max(0, sampledIndex(random(), renormalized)); // -1 if rounding made the sum too small
      const id = candidates.ids[index];
      chosen.push(this.tokenizer.token(id));
      all.push(id);
    }
    return { chosen };
  }
}

/**
 * The gradient of a logit with respect to the final LayerNorm's input, times the LayerNorm's deviation, which is held
 * fixed. w: the token's column of W_U, or a weighted sum of columns.
 */
function directionOf(run, w) {
  const scaled = nd.multiply(run.value("gain"), w.reshape(w.size));
  return nd.subtract(scaled, equations.mean(scaled));
}

const ZERO_BIAS = new Nd(new Float32Array(1), [1]);

// ---- in the worker -------------------------------------------------------------------------------

/** Memory for `count` numbers: in WebAssembly, where products are faster; or else, an array. Refuse if both fail. */
function memoryFor(count) {
  const products = useProducts(Products.of(count));
  try {
    return products?.numbers ?? new Float32Array(count);
  } catch {
    throw new Refusal("The browser doesn't have enough memory for the model's {count} parameters.", {
      count: grouped(count),
    });
  }
}

/** Read the parameters that attnlab explore serves. */
async function readServed(url, memory, tick) {
  const bytes = new Uint8Array(memory.buffer, memory.byteOffset, memory.byteLength);
  const unread = () => new Refusal("The model can't be read: attnlab explore has stopped.");
  const reader = (await fetch(url).catch(() => Promise.reject(unread()))).body.getReader();
  for (let end = 0; end < bytes.length; ) {
    const { value } = await reader.read().catch(() => Promise.reject(unread()));
    if (!value) throw unread(); // the server closed the connection too early
    bytes.set(value, end);
    end += value.length;
    await tick(end / bytes.length);
  }
}

/** Answer messages {n, method, parameters}; {n, stop: true} aborts request n. */
export function serveModel() {
  let model;
  const aborted = new Set();
  const HANDLERS = {
    start: async ({ description, numbers, url }, tick) => {
      const memory = memoryFor(description.shapes.reduce((sum, [, shape]) => sum + sizeOf(shape), 0));
      if (url) await readServed(url, memory, tick);
      else memory.set(numbers);
      model = new Model(description, memory);
    },
    open: ({ text, changes }) => model.open(text, changes),
    pack: ({ trace, name }, tick) => model.pack(trace, name, tick),
    generate: ({ trace, settings }, tick) => model.generate(trace, settings, tick),
  };
  let urgentCount = 0; // how many requests are running, except for the pack "story", which takes long and so waits
  // Between two blocks, the worker handles other messages. Waiting for a message of its own is faster than a timeout.
  const { port1, port2 } = new MessageChannel();
  const resolvers = [];
  port1.onmessage = () => resolvers.shift()();
  const nextEvent = () =>
    new Promise((resolve) => {
      resolvers.push(resolve);
      port2.postMessage(0);
    });
  onmessage = async ({ data: { n, method, parameters, stop } }) => {
    if (stop) return aborted.add(n);
    let reported = performance.now();
    const isUrgent = parameters.name !== "story";
    urgentCount += Number(isUrgent);
    const tick = async (progress) => {
      if (performance.now() > reported + REPORT_MILLISECONDS) {
        postMessage({ n, progress });
        reported = performance.now();
      }
      do await nextEvent();
      while (urgentCount && !isUrgent && !aborted.has(n));
      if (aborted.has(n)) throw new DOMException("", "AbortError");
    };
    try {
      const result = await HANDLERS[method](parameters, tick);
      postMessage({ n, result }, result instanceof Float32Array ? [result.buffer] : []);
    } catch (error) {
      const { name, message, values = null } = error;
      postMessage({ n, error: { name, message, values } });
    }
    urgentCount -= Number(isUrgent);
    aborted.delete(n);
  };
}
