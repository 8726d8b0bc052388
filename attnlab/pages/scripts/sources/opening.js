// Open a model's directory in the page: config.json, model.safetensors or its parts, and the tokenizer, see tokenizer.js,
// in the forms in which transformers saves GPT-2. Names, shapes and settings are the library's, see attnlab/checkpoints/rules.py.
// Whatever else a file has is refused, never ignored; the library opens more, and says more about what is wrong.

import { sizeOf } from "../numbers/arrays.js";
import { Refusal } from "../numbers/refusal.js";
import { tokenizerIn, unsupported } from "./vocabulary.js";

const PART_BYTES = 2 ** 24; // of a file at a time; a multiple of each number's size

function objectIn(buffer) {
  const value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(buffer));
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new TypeError();
  return value;
}

/** A file that the reader chose as it is; one that attnlab explore serves, {name, size, url}, with the parts of it that are read. */
export function asFile(file) {
  if (file instanceof File) return file;
  const slice = (start = 0, end = file.size) => ({
    async arrayBuffer() {
      const response = await fetch(file.url, { headers: { Range: `bytes=${start}-${end - 1}` } });
      if (!response.ok) throw new RangeError();
      return response.arrayBuffer();
    },
  });
  return { ...file, slice };
}

/** The files of one directory, and the rules for reading them. */
export class Directory {
  constructor(files, rules) {
    this.files = new Map([...files].map((file) => [file.name, file]));
    this.rules = rules;
  }

  has = (name) => this.files.has(name);

  /** What `decode` makes of a file's bytes, or of those in a range. */
  async read(name, decode, ...range) {
    if (!this.has(name)) throw new Refusal("There is no {name} among the files.", { name });
    try {
      return decode(await this.files.get(name).slice(...range).arrayBuffer());
    } catch {
      throw new Refusal("{name} can't be read: it is damaged, or has changed.", { name });
    }
  }

  json = async (name) => this.read(name, objectIn);

  optionalJson = async (name) => (this.has(name) ? this.json(name) : {});

  /** The settings in config.json, checked as attnlab/forward/config.py does. */
  async config() {
    const { required, defaults, sizes, aliases, fixed, largest, activations, flags } = this.rules.config;
    const given = await this.json("config.json");
    const stored = { ...("model_type" in given && sizes), ...given };
    for (const [alias, name] of Object.entries(aliases).filter(([alias]) => alias in given)) {
      if (name in given && given[name] !== given[alias]) throw unsupported("config.json", `${name} ≠ ${alias}`);
      stored[name] = given[alias];
    }
    const isAllowed = (name, value) => {
      if (name === "n_inner" && value === null) return true;
      if (name in largest) return Number.isInteger(value) && value > 0 && value <= largest[name];
      if (name === "activation_function") return Object.hasOwn(activations, value);
      if (name === "layer_norm_epsilon") return typeof value === "number" && value > 0 && value < 1;
      if (flags.includes(name)) return typeof value === "boolean";
      return JSON.stringify(value) === JSON.stringify(fixed[name]); // of settings with only one supported value
    };
    const config = { ...defaults, ...fixed };
    for (const name of [...required, ...Object.keys(config)]) {
      if (Object.hasOwn(stored, name)) config[name] = stored[name];
      if (!isAllowed(name, config[name])) throw unsupported("config.json", `${name} = ${JSON.stringify(config[name])}`);
    }
    const { n_embd, n_head } = config;
    if (n_embd % n_head) throw unsupported("config.json", `n_embd / n_head = ${n_embd} / ${n_head}`);
    return { ...config, d_mlp: config.n_inner ?? 4 * n_embd };
  }

  // ---- tensors -----------------------------------------------------------------------------------

  /** Where the parameters are stored: {path, name, file, dtype, shape, start, end}. */
  async parameters(config) {
    const { bytes, weights, index, mask_buffer, heads } = this.rules.tensors;
    const isInParts = !this.has(weights) && this.has(index);
    const files = isInParts ? [...new Set(Object.values((await this.json(index)).weight_map ?? {}))] : [weights];
    const stored = new Map();
    for (const file of files)
      for (const [name, entry] of await this.#tensorsIn(file)) {
        if (stored.has(name)) throw unsupported(file, `${name} (2)`);
        const isOfOtherTask = heads.some((head) => name.startsWith(`${head}.`)); // such as classification
        if (!isOfOtherTask && !new RegExp(`^${mask_buffer}$`).test(name)) stored.set(name, entry);
      }
    const expected = this.#expectedTensors(config, stored);
    for (const name of new Set([...expected.keys(), ...stored.keys()])) {
      const [tensor, wanted] = [stored.get(name), expected.get(name)];
      const words = (value) => (value ? `[${value.shape}]` : "–");
      const isAsExpected = tensor && wanted && words(tensor) === words(wanted) &&
        tensor.end - tensor.start === bytes[tensor.dtype] * sizeOf(wanted.shape);
      const found = [tensor?.dtype, words(tensor)].filter(Boolean).join(" ");
      if (!isAsExpected) throw unsupported(tensor?.file ?? files[0], `${name}: ${found} ≠ ${words(wanted)}`);
    }
    return [...expected].map(([name, { path, shape }]) => ({ ...stored.get(name), path, name, shape }));
  }

  /** The tensors in a safetensors file: the length of a JSON header in 8 bytes, the header, then the numbers. */
  async #tensorsIn(file) {
    const { wrappers, largest_header } = this.rules.tensors;
    const first = 8 + (await this.read(file, (buffer) => Number(new DataView(buffer).getBigUint64(0, true)), 0, 8));
    const decode = (buffer) => {
      const tensors = objectIn(buffer);
      delete tensors.__metadata__;
      return Object.entries(tensors).map(([name, { dtype, shape, data_offsets: [from, to] }]) => {
        if (!(from >= 0 && first + to <= this.files.get(file).size)) throw new RangeError();
        const unwrapped = name.replace(new RegExp(`^(?:${wrappers})`), "");
        return [unwrapped, { file, dtype, shape, start: first + from, end: first + to }];
      });
    };
    return this.read(file, decode, 8, Math.min(first, largest_header));
  }

  /** The parameters' paths and stored shapes, by the tensors' names. */
  #expectedTensors(config, stored) {
    const { block, outside } = this.rules.tensors;
    const sizes = { ...config, "3 n_embd": 3 * config.n_embd };
    const blocks = Array.from({ length: config.n_layer }, (_, layer) =>
      block.map(([path, name, shape]) => [`blocks.${layer}.${path}`, `h.${layer}.${name}`, shape]),
    );
    const expected = new Map();
    for (const [path, name, axes] of [...outside, ...blocks.flat()]) {
      const shape = axes.map((axis) => sizes[axis]);
      if (path !== "W_U") expected.set(name, { path, shape });
      // nn.Linear stores the transpose. A tied output matrix may be stored as a copy of the embedding.
      else if (!config.tie_word_embeddings || stored.has(name)) expected.set(name, { path, shape: shape.reverse() });
    }
    return expected;
  }

  /** A tensor's numbers as float32, part by part: [the first one's index, the numbers]. */
  async *#parts({ name, file, dtype, start, end }) {
    for (let from = start; from < end; from += PART_BYTES) {
      const numbers = await this.read(file, AS_FLOAT32[dtype], from, Math.min(end, from + PART_BYTES));
      let sum = 0; // 0 * x is NaN if x isn't finite
      for (let n = 0; n < numbers.length; n++) sum += 0 * numbers[n];
      if (sum !== 0) throw new Refusal("{name} contains NaN or infinite numbers.", { name });
      yield [(from - start) / this.rules.tensors.bytes[dtype], numbers];
    }
  }

  // ---- the model ---------------------------------------------------------------------------------

  /** A Model's description, the count of its numbers, and a function that reads them; `graph` is another model's. */
  async model(graph) {
    const { tensors, config: rules } = this.rules;
    const names = [...this.files.keys()].sort();
    const other = tensors.formats.map((pattern) => names.find((name) => new RegExp(`^(?:${pattern})$`).test(name))).find(Boolean);
    if (other && !this.has(tensors.weights) && !this.has(tensors.index))
      throw new Refusal("There is no {name} among the files, only {other}. attnlab explore DIRECTORY says how to convert it.", { name: tensors.weights, other });
    if (this.has(tensors.adapter)) throw unsupported(tensors.adapter, "LoRA"); // it changes another model's weights
    const config = await this.config();
    const tokenizer = await tokenizerIn(this, config.vocab_size).catch((error) => {
      throw error instanceof Refusal ? error : new Refusal("The tokenizer's files can't be read: they are damaged, or have changed.");
    });
    const stored = await this.parameters(config);
    const isTied = config.tie_word_embeddings;
    const parameters = stored.filter(({ path }) => path !== "W_U" || !isTied);
    const hyperparameters = {
      n_head: config.n_head,
      epsilon: config.layer_norm_epsilon,
      divide_by_sqrt_d: config.scale_attn_weights,
      activation: rules.activations[config.activation_function].equation,
    };
    if (config.scale_attn_by_inverse_layer_idx)
      for (let layer = 0; layer < config.n_layer; layer++) hyperparameters[`blocks.${layer}.attention.layer_number`] = layer + 1;
    // An untied W_U is stored as its transpose, in nn.Linear.
    const shapes = parameters.map(({ path, shape }) => (path === "W_U" ? [path, shape.toReversed(), [1, shape[1]]] : [path, shape]));
    const steps = { ...graph };
    if (isTied) steps.W_U = tensors.W_U;
    else delete steps.W_U;
    steps.final = steps.final.map((need) => need.replace(/^blocks\.\d+/, `blocks.${config.n_layer - 1}`));
    const count = parameters.reduce((sum, { shape }) => sum + sizeOf(shape), 0);
    const copy = stored.find((parameter) => !parameters.includes(parameter)); // of W_E, the first parameter
    const readInto = (numbers, tick) => this.#readInto(numbers, parameters, copy, tick);
    const averages = await this.#averages(config);
    return { description: { config, graph: steps, hyperparameters, tokenizer, shapes, averages }, count, readInto };
  }

  /** Each head's average by the path of its context, see attnlab.averages; {} if the directory has none. */
  async #averages({ n_layer, n_head, n_embd }) {
    const name = this.rules.tensors.averages;
    if (!this.has(name)) return {};
    const averages = await this.json(name);
    const isVector = (x) => Array.isArray(x) && x.length === n_embd / n_head && x.every(Number.isFinite);
    for (let n = 0; n < n_layer * n_head; n++) {
      const path = `blocks.${Math.floor(n / n_head)}.attention.heads.${n % n_head}.context`;
      if (!isVector(averages[path])) throw unsupported(name, `${path} = ${JSON.stringify(averages[path])}`);
    }
    return averages;
  }

  /** Read parameters; `tick` is awaited between parts, and throws if the request was aborted. */
  async #readInto(numbers, parameters, copy, tick) {
    let end = 0;
    for (const parameter of parameters) {
      const start = end;
      for await (const [n, part] of this.#parts(parameter)) {
        numbers.set(part, start + n);
        end = start + n + part.length;
        await tick(end / numbers.length);
      }
    }
    if (!copy) return;
    for await (const [n, part] of this.#parts(copy))
      if (part.some((x, k) => x !== numbers[n + k])) throw unsupported(copy.file, `${copy.name} ≠ ${parameters[0].name}`);
  }
}

/** Conversion of a buffer to float32 numbers, by the file format's dtypes. */
const AS_FLOAT32 = {
  F64: (buffer) => new Float32Array(new Float64Array(buffer)),
  F32: (buffer) => new Float32Array(buffer),
  F16(buffer) {
    float16Numbers ??= Float32Array.from({ length: 2 ** 16 }, (_, bits) => fromFloat16(bits));
    const bits = new Uint16Array(buffer);
    const numbers = new Float32Array(bits.length);
    for (let n = 0; n < bits.length; n++) numbers[n] = float16Numbers[bits[n]];
    return numbers;
  },
  BF16(buffer) {
    const bits = new Uint16Array(buffer);
    const widened = new Uint32Array(bits.length);
    for (let n = 0; n < bits.length; n++) widened[n] = bits[n] << 16; // the upper half of a float32
    return new Float32Array(widened.buffer);
  },
};

let float16Numbers; // all of them, by their bits; computed when first needed

/** A float16 number from its bits: 1 for the sign, 5 for the exponent, 10 for the fraction. */
function fromFloat16(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const magnitude = exponent === 31 ? (fraction ? NaN : Infinity) : exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : fraction * 2 ** -24;
  return bits & 0x8000 ? -magnitude : magnitude;
}
