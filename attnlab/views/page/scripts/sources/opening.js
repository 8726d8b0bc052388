// Open a model's directory in the page: config, tensors and tokenizer, with the rules and error messages of
// the library, see attnlab/checkpoints/rules.py. `StoredNumbers` reads the tensors in slices, after all
// checks.

import { sizeOf } from "../numbers/arrays.js";
import { printable } from "../numbers/bpe.js";
import { grouped } from "../numbers/formats.js";

/** Why a directory can't be opened: the library's error message, in English. */
class FileError extends Error {}

const refuse = (sentence) => {
  throw new FileError(sentence);
};

/** A regular expression that matches whole strings, from one in Python. */
const fullMatch = (pattern) => new RegExp(`^(?:${pattern})$`, "su");

/** A JSON value as in Python's error messages, shortened. */
function quoted(value, maxLength = 80) {
  const text = [...reprOf(value)];
  return text.length <= maxLength ? text.join("") : `${text.slice(0, maxLength - 1).join("")}…`;
}

/** Python's repr of a JSON value. */
function reprOf(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(reprOf).join(", ")}]`;
  if (typeof value === "object")
    return `{${Object.entries(value).map(([key, item]) => `${reprOf(key)}: ${reprOf(item)}`).join(", ")}}`;
  if (typeof value !== "string") return String(value);
  const mark = value.includes("'") && !value.includes('"') ? '"' : "'";
  const shown = printable(value);
  return mark + (shown === value ? value.replaceAll("\\", "\\\\").replaceAll(mark, `\\${mark}`) : shown) + mark;
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isCount = (value) => Number.isSafeInteger(value) && value >= 0;

/** The files of one directory, and the rules for reading them. */
export class Directory {
  constructor(files, rules) {
    this.files = new Map([...files].map((file) => [file.name, file]));
    this.rules = rules;
  }

  has = (name) => this.files.has(name);

  /** The first names as text, with the number of the others. */
  nameList(names, count = names.length) {
    const first = names.slice(0, this.rules.max_listed).map((name) => printable(name).slice(0, 200));
    const rest = count - first.length;
    return first.join(", ") + (rest > 0 ? ` and ${grouped(rest)} more` : "");
  }

  async bytes(name, start, end) {
    try {
      return new Uint8Array(await this.files.get(name).slice(start, end).arrayBuffer());
    } catch {
      return this.#changed(name);
    }
  }

  /** Read a file's bytes in parts. If the browser can read into a buffer (BYOB), all parts share one. */
  async *parts(name, start, end) {
    const file = this.files.get(name).slice(start, end);
    try {
      reader = file.stream().getReader({ mode: "byob" });
    } catch {
      for (let from = start; from < end; from += PART_BYTES) {
        const part = await this.bytes(name, from, Math.min(end, from + PART_BYTES));
        if (part.length < Math.min(PART_BYTES, end - from)) this.#changed(name);
        yield part;
      }
      return;
    }
    let buffer = new ArrayBuffer(Math.min(PART_BYTES, end - start));
    for (let from = start; from < end; from += PART_BYTES) {
      const size = Math.min(PART_BYTES, end - from);
      let filled = 0;
      while (filled < size) {
        const { value } = await reader.read(new Uint8Array(buffer, filled, size - filled)).catch(() => this.#changed(name));
        if (!value.length) this.#changed(name);
        filled += value.length;
        ({ buffer } = value); // reading transfers the buffer
      }
      yield new Uint8Array(buffer, 0, size);
    }
    await reader.cancel(); // frees its shared memory before garbage collection
  }

  #changed = (name) => refuse(`${name} has changed since it was opened. Open it again`);

  /** A small file's text. */
  async text(name) {
    const maxBytes = this.rules.max_bytes;
    if (this.files.get(name).size > maxBytes) refuse(`${name} can't be read: it is larger than ${grouped(maxBytes)} bytes`);
    return this.decode(await this.bytes(name, 0, maxBytes), name).replace(/\r\n?/g, "\n");
  }

  decode(bytes, name) {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      return refuse(`${name} can't be read: it isn't UTF-8. Save it as UTF-8`);
    }
  }

  /** A JSON file's object. */
  json = async (name) => this.parse(await this.text(name), name);

  /** A JSON file's object, or {} if there is no such file. */
  optionalJson = async (name) => (this.has(name) ? this.json(name) : {});

  parse(text, name) {
    let value;
    try {
      value = JSON.parse(text);
    } catch (error) {
      refuse(`${name} can't be read as JSON: ${error.message}`);
    }
    try {
      JSON.stringify(value);
    } catch {
      refuse(`${name} can't be read as JSON: it is nested too deeply`);
    }
    if (!isObject(value)) refuse(`${name} must be a JSON object; got ${quoted(value)}`);
    return value;
  }

  // ---- config.json, as attnlab/forward/config.py reads it -----------------------------------------

  async config() {
    const { config: rules } = this.rules;
    const name = "config.json";
    if (!this.has(name)) refuse(`there is no ${name} in the directory`);
    const settings = await this.json(name);
    const custom = Object.entries(isObject(settings.auto_map) ? settings.auto_map : {}).find(([model]) => model.startsWith("AutoModel"));
    if (custom)
      refuse(
        `${name}: the model has custom code (auto_map: ${quoted(String(custom[1]))}), which isn't run ` +
          "and may not compute GPT-2. If you are sure that it does, remove auto_map from the file",
      );
    const modelType = Object.hasOwn(settings, "model_type") ? settings.model_type : rules.model_type;
    if (modelType !== rules.model_type) refuse(`${name}: model_type is ${quoted(modelType)}; only '${rules.model_type}' is supported`);
    const quantized = settings.quantization_config ?? null;
    if (quantized !== null)
      refuse(`${name}: the weights are quantized (${quoted(quantized.quant_method || quantized)}). ${rules.how_to_dequantize}`);
    const values = { ...rules.defaults };
    for (const key of [...rules.required, ...Object.keys(rules.defaults)]) if (Object.hasOwn(settings, key)) values[key] = settings[key];
    const problems = [...this.#notImplemented(settings), ...this.#problemsIn(values)];
    if (problems.length) refuse(`${name}: ${problems.join("; ")}`);
    return { ...values, d_mlp: values.n_inner ?? 4 * values.n_embd };
  }

  /** Settings with values that the library doesn't implement, as messages. */
  #notImplemented(settings) {
    return Object.entries(this.rules.config.fixed)
      .filter(([key, value]) => Object.hasOwn(settings, key) && JSON.stringify(settings[key]) !== JSON.stringify(value))
      .map(([key, value]) => `${key} must be ${quoted(value)}; got ${quoted(settings[key])}`);
  }

  #problemsIn(settings) {
    const { required, largest, activations, flags } = this.rules.config;
    const problems = required.filter((name) => !Object.hasOwn(settings, name)).map((name) => `${name} is missing`);
    for (const [name, most] of Object.entries(largest)) {
      const value = Object.hasOwn(settings, name) ? settings[name] : 1; // if it is missing, that is a problem already
      if (name === "n_inner" && value === null) continue;
      if (!isCount(value) || value < 1) problems.push(`${name} must be a positive integer; got ${quoted(value)}`);
      else if (value > most) problems.push(`${name} must be at most ${grouped(most)}; got ${quoted(value)}`);
    }
    const { layer_norm_epsilon: epsilon, activation_function: activation } = settings;
    if (typeof epsilon !== "number" || !(epsilon > 0 && epsilon < 1))
      problems.push(`layer_norm_epsilon must be a number between 0 and 1; got ${quoted(epsilon)}`);
    if (typeof activation !== "string" || !Object.hasOwn(activations, activation))
      problems.push(`activation_function must be one of ${Object.keys(activations).join(", ")}; got ${quoted(activation)}`);
    for (const name of flags) if (typeof settings[name] !== "boolean") problems.push(`${name} must be true or false; got ${quoted(settings[name])}`);
    if (!problems.length && settings.n_embd % settings.n_head)
      problems.push(`n_head = ${settings.n_head} does not divide n_embd = ${settings.n_embd}`);
    return problems;
  }

  // ---- tensors, as attnlab/checkpoints/checkpoint.py finds them -------------------------------------

  /**
   * byPath: each parameter's location in the files, {name, file, dtype, shape, start, end}. copy: the location of
   * W_E's second copy, stored as the output matrix, if there is one.
   */
  async parameters(config) {
    const { tensors: rules } = this.rules;
    const entries = await this.#entries();
    const stored = new Map([...entries].filter(([name]) => !this.#isTaskHead(name) && !fullMatch(rules.patterns.mask_buffer).test(name)));
    const sizes = { ...config, "3 n_embd": 3 * config.n_embd };
    const byName = (list) => new Map(list.map(([path, name, shape]) => [name, { path, shape: shape.map((size) => sizes[size]) }]));
    // A block's parameters, by tensors' names without the block's prefix, and those outside blocks.
    const inBlock = byName(rules.block);
    const outside = byName(rules.outside);
    const embedding = rules.outside.find(([path]) => path === "W_E")[1];
    const output = rules.outside.find(([path]) => path === "W_U")[1];
    if (config.tie_word_embeddings) outside.delete(output);
    else outside.get(output).shape.reverse(); // nn.Linear stores the transpose
    const inBlockPattern = fullMatch(rules.patterns.in_block);
    const parameterOf = (name) => {
      const [, layer, nameInBlock] = inBlockPattern.exec(name) ?? [];
      if (layer === undefined) return outside.get(name);
      const parameter = inBlock.get(nameInBlock);
      return parameter && { ...parameter, layer: Number(layer), path: `blocks.${layer}.${parameter.path}` };
    };
    this.#checkFormat(stored, parameterOf);
    // If tied, W_E may be stored as the output matrix.
    const untied = (name) => (name === output && config.tie_word_embeddings ? embedding : name);
    const exists = ([, parameter]) => parameter && !(parameter.layer >= config.n_layer);
    const expected = new Map([...stored.keys()].map((name) => [name, parameterOf(untied(name))]).filter(exists));
    const present = new Set([...expected.keys()].map(untied)); // of the parameters
    const W_QKV = rules.block.find(([path]) => path === "attention.W_QKV")[1];
    this.#checkTensors(config, stored, expected, present, { inBlock, outside, firstMatrix: `h.0.${W_QKV}` });
    const copy = config.tie_word_embeddings ? stored.get(output) : undefined;
    if (copy && !stored.has(embedding)) {
      stored.set(embedding, copy);
      expected.set(embedding, expected.get(output));
    }
    const used = [...stored].filter(([name]) => name !== output || !config.tie_word_embeddings);
    const byPath = new Map(used.map(([name, entry]) => [expected.get(name).path, { ...entry, name }]));
    return { byPath, copy: copy && stored.get(embedding) !== copy ? { ...copy, name: output } : undefined };
  }

  /** Whether a tensor belongs to a head for another task, such as classification. */
  #isTaskHead(name) {
    const [head, ...rest] = name.split(".");
    return rest.length > 0 && Object.hasOwn(this.rules.tensors.heads, head);
  }

  #checkFormat(stored, parameterOf) {
    const { patterns } = this.rules.tensors;
    for (const [name, { dtype }] of stored) {
      if (fullMatch(patterns.quantized).test(name) || (dtype.startsWith("F8") && parameterOf(name)))
        refuse(`the directory contains quantized weights (${this.nameList([name])}, ${dtype}). ${this.rules.config.how_to_dequantize}`);
      if (fullMatch(patterns.lora).test(name))
        refuse(
          `the directory contains unmerged LoRA layers (${this.nameList([name])}). Merge them where peft is installed: ` +
            "model.merge_and_unload().save_pretrained('NEW')",
        );
    }
    const names = [...stored.keys()];
    if (names.length && !names.some(parameterOf)) refuse(`the directory has no tensors with GPT-2's names, only ${this.nameList(names.sort())}`);
  }

  #checkTensors(config, stored, expected, present, { inBlock, outside, firstMatrix }) {
    const { bytes } = this.rules.tensors;
    const [embedding, position, ...last] = outside.keys();
    // In the order in which the library lists them.
    const names = function* () {
      yield* [embedding, position];
      for (let layer = 0; layer < config.n_layer; layer++) for (const name of inBlock.keys()) yield `h.${layer}.${name}`;
      yield* last;
    };
    const missing = [];
    for (const name of names()) {
      if (!present.has(name)) missing.push(name);
      if (missing.length > this.rules.max_listed) break;
    }
    const shapeInWords = (shape) => `[${shape.join(", ")}]`;
    const hasWrongShape = ([name, { shape }]) => stored.get(name).shape.join() !== shape.join();
    const missingCount = outside.size + config.n_layer * inBlock.size - present.size;
    const listsByProblem = {
      missing: this.nameList(missing, missingCount),
      unexpected: this.nameList([...stored.keys()].filter((name) => !expected.has(name))),
      "wrong shape": this.nameList(
        [...expected].filter(hasWrongShape).map(([name, { shape }]) => `${name} is ${shapeInWords(stored.get(name).shape)}, expected ${shapeInWords(shape)}`),
      ),
      "unsupported dtype": this.nameList(
        [...expected.keys()]
          .filter((name) => !Object.hasOwn(bytes, stored.get(name).dtype))
          .map((name) => `${name} is ${stored.get(name).dtype}, expected one of ${Object.keys(bytes).join(", ")}`),
      ),
    };
    const problems = Object.entries(listsByProblem).flatMap(([problem, list]) => (list ? [`${problem}: ${list}`] : []));
    if (expected.has(firstMatrix) && stored.get(firstMatrix).shape.join() === expected.get(firstMatrix).shape.toReversed().join())
      problems.push(
        "the blocks' matrices are transposed, as in nn.Linear and nanoGPT. GPT2.from_arrays(config, arrays, tokenizer) accepts these",
      );
    if (problems.length) refuse(`the tensors in the directory don't match its config. ${problems.join("; ")}`);
  }

  /** All tensors' locations, by name without the prefixes of wrappers. */
  async #entries() {
    const { weights, index, patterns } = this.rules.tensors;
    const isSingleFile = this.has(weights);
    const map = isSingleFile ? null : await this.#weightMap(index);
    const files = isSingleFile ? [weights] : [...new Set(map.values())].sort();
    const missing = files.filter((name) => !this.has(name));
    if (missing.length) refuse(`${this.nameList(missing)}, named in ${index}, doesn't exist`);
    const entries = new Map();
    for (const file of files)
      for (const [name, entry] of await this.#header(file)) {
        const unwrapped = name.replace(new RegExp(`^(?:${patterns.wrappers})`, "su"), "");
        if (entries.has(unwrapped)) refuse(`${this.nameList([unwrapped])} appears twice, in ${file} and in ${entries.get(unwrapped).file}`);
        entries.set(unwrapped, entry);
      }
    return entries;
  }

  async #weightMap(index) {
    const { weight_map: shards } = await this.json(index);
    if (!isObject(shards) || !Object.values(shards).every((name) => typeof name === "string"))
      refuse(`${index} must have a weight_map of tensors and file names`);
    const outside = Object.values(shards).find((name) => /[/\\:]|^\.*$/.test(name));
    if (outside !== undefined) refuse(`${index} points outside its directory: ${quoted(outside, 200)}`);
    return new Map(Object.entries(shards));
  }

  /** The weights in another format that the directory has, with advice; "" if there are none. */
  #unsupportedFormat() {
    for (const [pattern, description] of this.rules.tensors.formats)
      for (const name of [...this.files.keys()].sort()) {
        const match = fullMatch(pattern).exec(name);
        if (!match) continue;
        const variant = match.slice(1).find(Boolean) ?? "";
        const values = { name: this.nameList([name]), file: /^[\w.+-]{1,200}$/.test(name) ? name : "FILE", variant };
        return description.replace(/\{(\w+)\}/g, (_, key) => values[key]);
      }
    return "";
  }

  /** A safetensors file's tensors. Format: the header's length in 8 bytes, a JSON header, the tensors without gaps. */
  async #header(file) {
    const { largest_header, bytes, signatures } = this.rules.tensors;
    const { size } = this.files.get(file);
    const start = await this.bytes(file, 0, 64);
    const fail = (reason) => {
      const text = new TextDecoder("latin1").decode(start).trimStart();
      const [, description = "isn't a safetensors file, or is truncated"] = Object.entries(signatures).find(([signature]) => text.startsWith(signature)) ?? [];
      refuse(`${file} ${size ? description : "is empty"} (${reason})`);
    };
    if (size < 10) fail("it has no header");
    const length = Number(new DataView(start.buffer).getBigUint64(0, true));
    if (length > largest_header) fail(`its header would have ${grouped(length)} bytes`);
    if (8 + length > size) fail("its header is cut off");
    const header = await this.bytes(file, 8, 8 + length);
    if (header[0] !== 0x7b) fail("its header does not begin with a brace");
    const { __metadata__, ...tensors } = this.parse(this.decode(header, `the header of ${file}`), `the header of ${file}`);
    const entries = Object.entries(tensors).map(([name, info]) => {
      const { dtype, shape, data_offsets: [from, to] = [] } = isObject(info) && Array.isArray(info.data_offsets) ? info : {};
      const isValid = typeof dtype === "string" && Array.isArray(shape) && shape.every(isCount) && isCount(from) && isCount(to) && from <= to;
      if (!isValid) fail(`its header describes ${this.nameList([name])} in a way that can't be read`);
      const width = Object.hasOwn(bytes, dtype) ? bytes[dtype] : null;
      const needed = width && shape.reduce((product, n) => product * BigInt(n), BigInt(width));
      if (needed !== null && needed !== BigInt(to - from)) fail(`${this.nameList([name])} has ${grouped(to - from)} bytes and would need ${grouped(needed)}`);
      return [name, { file, dtype, shape, start: 8 + length + from, end: 8 + length + to }];
    });
    let previousEnd = 8 + length;
    for (const [name, { start, end }] of entries.toSorted(([, a], [, b]) => a.start - b.start || a.end - b.end)) {
      if (start !== previousEnd) fail(`${this.nameList([name])} doesn't begin where the tensor before it ends`);
      previousEnd = end;
    }
    if (previousEnd !== size) fail(`its tensors end at byte ${grouped(previousEnd)} of ${grouped(size)}`);
    return entries;
  }

  // ---- tokenizer, as attnlab/text/tokenizer_files.py reads it ---------------------------------------

  /** The arguments of Tokenizer, for an embedding with `rows` rows. */
  async tokenizer(rows) {
    const { tokenizer: rules } = this.rules;
    const config = await this.optionalJson("tokenizer_config.json");
    const className = config.tokenizer_class || (await this.optionalJson("config.json")).tokenizer_class || null;
    const isGpt2 = className === null || rules.classes.includes(className);
    const isOlder = !this.has("tokenizer.json"); // the older format: vocab.json and merges.txt
    const settings = isOlder ? await this.#olderSettings() : this.#settingsIn(await this.json("tokenizer.json"), "tokenizer.json");
    if (isOlder && !isGpt2) refuse(`tokenizer_class ${quoted(className)} requires a tokenizer.json. ${rules.how_to_convert}`);
    const special = await this.#specialTokens(config, isGpt2 ? rules.defaults : {});
    const specialByContent = new Map(Object.values(special).flat().map((token) => [token.content, token]));
    const added = [...settings.added, ...(await this.#moreAddedTokens(config, specialByContent))];
    settings.added = this.#withIds(settings.vocab, added, specialByContent, isGpt2 ? Object.values(rules.defaults) : []);
    const [prefix, suffix] = this.#idsAround(settings, config, special, isOlder);
    if (!this.#splitsLikeGpt2(settings)) refuse(rules.unsupported);
    const mergedIds = new Set(settings.merges.map(([first, second]) => settings.vocab.get(first + second)));
    if (isOlder) this.#checkMergesComplete(settings, mergedIds);
    const addPrefixSpace = isGpt2 ? this.#flag(config, "add_prefix_space", false) : (settings.pre_tokenizer.add_prefix_space ?? true);
    return { ...this.#tokensOf(settings, rows, mergedIds), addPrefixSpace, prefix, suffix, rows };
  }

  /** Tokenizer's arguments about tokens and merges. */
  #tokensOf({ vocab, merges, added }, rows, mergedIds) {
    const { tokenizer: rules } = this.rules;
    const symbols = new Map();
    for (const [symbol, id] of vocab) symbols.set(id, symbol);
    for (const { id, content } of added) symbols.set(id, content);
    const largest = [...symbols.keys()].reduce((a, b) => Math.max(a, b), -1);
    if (largest >= rows)
      refuse(
        `the tokenizer has ids up to ${largest} (${symbols.get(largest)}), but the embedding has ${rows} rows, for ids 0 to ${rows - 1}. ` +
          `In transformers, model.resize_token_embeddings(${largest + 1}) gives every token a row`,
      );
    const byteIds = new Set(rules.bytes.map((symbol) => vocab.get(symbol)));
    const isLiteral = ({ id, content }) => /[^\x00-\x7f]/.test(content) && !mergedIds.has(id) && !byteIds.has(id);
    const inText = added.filter(({ content, special }) => content && !special);
    return {
      pattern: rules.pattern,
      vocab: Object.fromEntries(vocab),
      merges,
      names: added.map(({ id, content }) => [id, content]),
      literalIds: added.filter(isLiteral).map(({ id }) => id).sort((a, b) => a - b),
      addedTokens: [false, true].map((isNormalized) => inText.filter(({ normalized }) => Boolean(normalized) === isNormalized).map(({ content, id }) => [content, id])),
      tokens: symbols.size,
    };
  }

  #refuseMissingTokenizer() {
    const { how_to_save, how_to_convert, sentence_piece } = this.rules.tokenizer;
    if (this.has("vocab.txt")) refuse(this.rules.tokenizer.unsupported);
    const present = sentence_piece.find(this.has);
    const next = present ? `SentencePiece's ${present} isn't supported; a tokenizer.json is. ${how_to_convert}` : how_to_save;
    refuse(`there is no tokenizer in the directory: neither tokenizer.json, nor vocab.json and merges.txt, nor vocab.txt. ${next}`);
  }

  /** The settings in vocab.json and merges.txt. */
  async #olderSettings() {
    const missing = ["vocab.json", "merges.txt"].filter((name) => !this.has(name));
    if (missing.length === 2) this.#refuseMissingTokenizer();
    if (missing.length) refuse(`there is no ${missing[0]} in the directory`);
    const vocab = await this.json("vocab.json");
    const lines = (await this.text("merges.txt")).split("\n");
    if (lines[0].startsWith("#version")) lines[0] = ""; // not removed, because errors have line numbers
    const line = lines.findIndex((line) => line && line.split(" ").length !== 2);
    if (line >= 0) refuse(`merges.txt, line ${line + 1}: expected two symbols; got ${quoted(lines[line])}`);
    const { end_of_text, byte_level } = this.rules.tokenizer;
    const added_tokens = Object.hasOwn(vocab, end_of_text) ? [{ id: vocab[end_of_text], content: end_of_text, special: true }] : [];
    const model = { type: "BPE", vocab, merges: lines.filter(Boolean) };
    return this.#settingsIn({ added_tokens, pre_tokenizer: byte_level, decoder: byte_level, model }, "vocab.json and merges.txt");
  }

  /** A tokenizer.json's settings, checked. */
  #settingsIn(settings, files) {
    const fail = (reason) => refuse(`${files}: ${reason}`);
    const { parts: names, unsupported } = this.rules.tokenizer;
    const parts = Object.fromEntries(names.map((name) => [name, settings[name] ?? null]));
    for (const [name, part] of Object.entries(parts))
      if (part !== null && !(isObject(part) && typeof part.type === "string")) fail(`${name} must be null or have a type; got ${quoted(part)}`);
    const { model, added_tokens } = settings;
    if (!isObject(model)) fail(`model must be an object; got ${quoted(model)}`);
    if (model.dropout) fail(`model.dropout must be null, since it makes ids random; got ${quoted(model.dropout)}`);
    const added = added_tokens ?? [];
    if (!Array.isArray(added) || !added.every((token) => this.#isAddedToken(token))) fail(`added_tokens must be a list of tokens with an id and content; got ${quoted(added)}`);
    if ((model.type ?? ("merges" in model ? "BPE" : null)) !== "BPE") refuse(unsupported);
    const vocab = this.#vocabulary(model.vocab, fail);
    const merges = this.#merges(model.merges, vocab, fail);
    return { ...parts, model, vocab, merges, added };
  }

  #isAddedToken = (token) =>
    isObject(token) && typeof token.content === "string" && token.content.isWellFormed() && isCount(token.id) && token.id < this.rules.tokenizer.max_ids;

  #vocabulary(ids, fail) {
    if (!isObject(ids)) fail(`a vocabulary must be an object of symbols and ids; got ${quoted(ids)}`);
    const entries = Object.entries(ids);
    const notInteger = entries.find(([, id]) => !Number.isInteger(id));
    if (notInteger) fail(`the id of ${quoted(notInteger[0])} isn't an integer: ${quoted(notInteger[1])}`);
    const outOfRange = entries.find(([, id]) => id < 0 || id >= this.rules.tokenizer.max_ids);
    if (outOfRange) fail(`the id of ${quoted(outOfRange[0])}, ${outOfRange[1]}, doesn't fit in 32 bits`);
    const symbols = new Map();
    for (const [symbol, id] of entries) {
      if (symbols.has(id)) fail(`${quoted(symbols.get(id))} and ${quoted(symbol)} have the same id, ${id}`);
      symbols.set(id, symbol);
    }
    if (!entries.every(([symbol]) => symbol.isWellFormed())) fail("a token has an unpaired surrogate, which isn't text");
    return new Map(entries);
  }

  #merges(merges, vocab, fail) {
    if (!Array.isArray(merges)) fail(`merges must be a list; got ${quoted(merges)}`);
    return merges.map((merge, n) => {
      const pair = typeof merge === "string" ? merge.split(" ") : merge;
      const isMerge = Array.isArray(pair) && pair.length === 2 && [...pair, pair.join("")].every((symbol) => vocab.has(symbol));
      if (!isMerge)
        fail(`merge ${n + 1} must be two tokens whose concatenation is a third; got ${quoted(Array.isArray(pair) ? pair.join(" ") : merge)}`);
      return pair;
    });
  }

  /** The special tokens, by name, such as "bos_token". */
  async #specialTokens(config, defaults) {
    const map = "added_tokens_decoder" in config ? {} : await this.optionalJson("special_tokens_map.json");
    const settings = { ...defaults, ...config, ...map };
    const tokensByName = this.rules.tokenizer.special.map((name) => {
      const value = settings[name] ?? null;
      // A token, a list of tokens, or tokens by name.
      const tokens = isObject(value) && !("content" in value) ? Object.values(value) : Array.isArray(value) ? value : [value];
      return [name, tokens.filter((token) => token !== null).map((token) => this.#specialToken(token, name))];
    });
    return Object.fromEntries(tokensByName);
  }

  #specialToken(value, name) {
    const token = typeof value === "string" ? { content: value } : value;
    if (!isObject(token) || typeof token.content !== "string" || !token.content.isWellFormed())
      refuse(`${name} must be a string or an object with content; got ${quoted(value)}`);
    const { id, ...rest } = token; // the vocabulary's id applies
    return { ...rest, special: true };
  }

  /** Added tokens in files other than tokenizer.json. */
  async #moreAddedTokens({ added_tokens_decoder: decoder = null }, special) {
    if (decoder !== null && !(isObject(decoder) && Object.entries(decoder).every(([id, token]) => /^\d+$/.test(id) && isObject(token))))
      refuse(`added_tokens_decoder can't be read: ${quoted(decoder)}`);
    const tokens =
      decoder === null
        ? Object.entries(await this.optionalJson("added_tokens.json")).map(([content, id]) => {
            const isSpecial = special.has(content);
            return { content, id, special: isSpecial, normalized: !isSpecial };
          })
        : Object.entries(decoder).map(([id, token]) => ({ ...token, id: Number(id) }));
    const invalid = tokens.find((token) => !this.#isAddedToken(token));
    if (invalid) refuse(`an added token must have an id and content; got ${quoted(invalid)}`);
    return tokens.sort((a, b) => a.id - b.id);
  }

  /**
   * All added tokens with ids; tokens without one get the next ids after the vocabulary. A class's default special
   * tokens are left out if the vocabulary doesn't have them.
   */
  #withIds(vocab, tokens, special, defaults) {
    const ids = new Map(vocab);
    const added = new Map();
    let next = ids.size;
    const add = (token) => {
      if (!ids.has(token.content)) ids.set(token.content, next);
      const id = ids.get(token.content);
      next = Math.max(next, id + 1);
      if ((token.id ?? id) !== id)
        refuse(
          `the added token ${quoted(token.content)} has id ${token.id}, but must have ${id}, the next id after the vocabulary`,
        );
      added.set(token.content, { ...token, id });
    };
    tokens.forEach(add);
    for (const [content, token] of special) if (ids.has(content)) add({ ...(added.get(content) ?? token), special: true });
    const withoutId = [...special.values()].filter(({ content }) => !ids.has(content));
    if (withoutId.some(({ content }) => !defaults.includes(content))) withoutId.forEach(add);
    return [...added.values()];
  }

  /** The ids added before and after every text. */
  #idsAround({ post_processor: processor, added }, config, special, isOlder) {
    if (isOlder) {
      const ids = new Map(added.map(({ content, id }) => [content, id]));
      const idsOf = (flag, name) => (this.#flag(config, flag, false) ? special[name] : []).map(({ content }) => ids.get(content));
      const around = [idsOf("add_bos_token", "bos_token"), idsOf("add_eos_token", "eos_token")];
      if (around.flat().includes(undefined)) refuse("a token that is added to every text has no id");
      return around;
    }
    if (processor?.type !== "TemplateProcessing") return [[], []];
    const around = [[], []];
    let side = 0; // 1 after the text
    try {
      for (const item of processor.single)
        if ("Sequence" in item) side = 1;
        else around[side].push(...processor.special_tokens[item.SpecialToken.id].ids);
      if (!around.flat().every(Number.isInteger)) throw new TypeError();
    } catch {
      refuse(`post_processor can't be read: ${quoted(processor)}`);
    }
    return around;
  }

  #flag(config, name, fallback) {
    const value = config[name] ?? null;
    if (value !== null && typeof value !== "boolean") refuse(`${name} must be true or false; got ${quoted(value)}`);
    return value ?? fallback;
  }

  /** Whether texts are split as by GPT-2's tokenizer, with no settings that the page lacks. */
  #splitsLikeGpt2({ model, vocab, added, normalizer, pre_tokenizer: splitter, post_processor, decoder }) {
    const { unsupported_model_settings, unsupported_token_flags, bytes } = this.rules.tokenizer;
    return (
      decoder?.type === "ByteLevel" &&
      normalizer === null &&
      splitter?.type === "ByteLevel" &&
      (splitter.use_regex ?? true) &&
      [undefined, "ByteLevel", "TemplateProcessing"].includes(post_processor?.type) &&
      !unsupported_model_settings.some((name) => model[name]) &&
      ((model.unk_token ?? null) === null || bytes.every((symbol) => vocab.has(symbol))) &&
      !added.some((token) => unsupported_token_flags.some((name) => token[name]))
    );
  }

  /** Refuse merges that seem truncated. */
  #checkMergesComplete({ vocab, added }, mergedIds) {
    const { bytes, looks_special } = this.rules.tokenizer;
    const names = new Set([...bytes, ...added.map(({ content }) => content)]);
    const isSpecial = fullMatch(looks_special);
    const unexplained = [];
    for (const [symbol, id] of vocab) if (!mergedIds.has(id) && !names.has(symbol) && !isSpecial.test(symbol)) unexplained.push(symbol);
    const [first] = unexplained.sort();
    if (unexplained.length)
      refuse(
        `${unexplained.length} tokens are neither bytes nor merged nor special, such as ${quoted(first)}; merges.txt may be truncated`,
      );
  }

  /** A Model's description and its stored parameters; `graph` is the page's, of another model. */
  async model(graph) {
    const { tensors, config: rules } = this.rules;
    if (this.has(tensors.adapter)) refuse(`the directory contains a PEFT adapter (${tensors.adapter}), which changes another model's weights`);
    if (!this.has(tensors.weights) && !this.has(tensors.index)) {
      const format = this.#unsupportedFormat();
      refuse(`there is no ${tensors.weights} (nor ${tensors.index}) in the directory${format ? `, only ${format}` : ""}`);
    }
    const config = await this.config();
    const tokenizer = await this.tokenizer(config.vocab_size);
    const { byPath, copy } = await this.parameters(config);
    const hyperparameters = {
      n_head: config.n_head,
      epsilon: config.layer_norm_epsilon,
      divide_by_sqrt_d: config.scale_attn_weights,
      activation: rules.activations[config.activation_function].equation,
    };
    if (config.scale_attn_by_inverse_layer_idx)
      for (let layer = 0; layer < config.n_layer; layer++) hyperparameters[`blocks.${layer}.attention.layer_number`] = layer + 1;
    const isTransposed = (path) => path === "W_U"; // nn.Linear stores the transpose
    const shapes = [...byPath].map(([path, { shape }]) => (isTransposed(path) ? [path, shape.toReversed(), [1, shape[1]]] : [path, shape]));
    const { W_U, ...steps } = graph; // a parameter, unless the config ties it to W_E
    if (config.tie_word_embeddings) steps.W_U = tensors.W_U;
    steps.final = steps.final.map((need) => need.replace(/^blocks\.\d+/, `blocks.${config.n_layer - 1}`));
    return { description: { config, graph: steps, hyperparameters, tokenizer, shapes }, stored: new StoredNumbers(this, byPath, copy) };
  }
}

const PART_BYTES = 2 ** 20; // of a file at a time

// Global, since Chromium collects a stream that only its pending read refers to.
let reader;

/** Parameters in files, read as float32. */
class StoredNumbers {
  constructor(directory, entries, copy) {
    Object.assign(this, { directory, entries, copy });
    this.count = [...entries.values()].reduce((sum, { shape }) => sum + sizeOf(shape), 0);
  }

  /** Allocate memory for all parameters. */
  allocate() {
    try {
      return new Float32Array(this.count);
    } catch {
      return refuse(`not enough memory in the browser for the model's ${grouped(4 * this.count)} bytes of parameters`);
    }
  }

  /** Read all parameters; `tick` is awaited between parts, and throws if the request was aborted. */
  async readInto(numbers, tick) {
    let start = 0;
    for (const entry of this.entries.values()) {
      const tensor = numbers.subarray(start, start + sizeOf(entry.shape));
      for await (const end of this.#read(entry, (from, to) => tensor.subarray(from, to))) await tick((start + end) / this.count);
      start += tensor.length;
    }
    if (this.copy) await this.#checkCopy(numbers);
  }

  /** Refuse a second copy of W_E that differs from it. */
  async #checkCopy(numbers) {
    const paths = [...this.entries.keys()];
    const earlierSizes = paths.slice(0, paths.indexOf("W_E")).map((path) => sizeOf(this.entries.get(path).shape));
    const start = earlierSizes.reduce((sum, size) => sum + size, 0);
    let part, partStart;
    const into = (from, to) => {
      partStart = start + from;
      return (part = new Float32Array(to - from));
    };
    for await (const _ of this.#read(this.copy, into))
      if (!part.every((x, n) => x === numbers[partStart + n]))
        refuse(
          `${this.copy.name} in the directory differs from ${this.entries.get("W_E").name}, but the config ties them. If the output ` +
            'matrix is a separate parameter, set "tie_word_embeddings": false',
        );
  }

  /** Read a tensor part by part: its numbers `from` up to `to` into the array `into(from, to)`. Yields each part's end. */
  async *#read({ name, file, dtype, start, end }, into) {
    const width = this.directory.rules.tensors.bytes[dtype];
    let from = 0;
    for await (const bytes of this.directory.parts(file, start, end)) {
      const to = from + bytes.length / width;
      const numbers = into(from, to);
      CONVERT[dtype](bytes.buffer, numbers);
      let sum = 0; // 0 * x is NaN if x isn't finite
      for (let n = 0; n < numbers.length; n++) sum += 0 * numbers[n];
      if (sum !== 0) refuse(`${name} in ${file} contains NaN or infinite numbers`);
      yield (from = to);
    }
  }
}

/** Conversion of a buffer's first numbers to float32, by the file format's dtypes. */
const CONVERT = {
  F64: (buffer, out) => out.set(new Float64Array(buffer, 0, out.length)),
  F32: (buffer, out) => out.set(new Float32Array(buffer, 0, out.length)),
  F16(buffer, out) {
    float16Numbers ??= Float32Array.from({ length: 2 ** 16 }, (_, bits) => fromFloat16(bits));
    const bits = new Uint16Array(buffer);
    for (let n = 0; n < out.length; n++) out[n] = float16Numbers[bits[n]];
  },
  BF16(buffer, out) {
    const bits = new Uint16Array(buffer);
    const outBits = new Uint32Array(out.buffer, out.byteOffset, out.length);
    for (let n = 0; n < outBits.length; n++) outBits[n] = bits[n] << 16; // the upper half of a float32
  },
};

let float16Numbers; // all of them, by their bits; computed when first needed

/** A float16 number from its bits: 1 for the sign, 5 for the exponent, 10 for the fraction. */
function fromFloat16(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const magnitude = exponent === 31 ? (fraction ? NaN : Infinity) : exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : fraction * 2 ** -24;
  return bits & 0x8000 ? -magnitude : magnitude;
}
