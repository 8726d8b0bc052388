// Read a model's tokenizer files, as attnlab/text/tokenizer_files.py does, into the data of a Tokenizer, as `as_data` in
// attnlab/text/tokenizer.py makes it.

import { Refusal } from "../numbers/refusal.js";

const CONFIG = "tokenizer_config.json";

export const unsupported = (file, what) =>
  new Refusal("The page can't open this model: {file} has {what}. The library opens more models and says what is wrong: attnlab.GPT2.from_pretrained(DIRECTORY).", { file, what });

const asJson = (value) => JSON.stringify(value ?? null).slice(0, 200);
const textIn = (buffer) => new TextDecoder("utf-8", { fatal: true }).decode(buffer).replace(/\r\n?/g, "\n");

const foreign = () =>
  new Refusal("A page supports only GPT-2's byte pair encoding and BERT's word pieces, and this model has another tokenizer. Use attnlab html, which supports any tokenizer.");

/** A setting of a tokenizer_config.json that is true, false or null. */
function flagOf(config, name, otherwise) {
  const value = config[name] ?? otherwise;
  if (value !== null && typeof value !== "boolean") throw unsupported(CONFIG, `${name} = ${asJson(value)}`);
  return value;
}

/** The data of Tokenizer, for an embedding with `rows` rows, from the files of a Directory, see opening.js. */
export async function tokenizerIn(directory, rows) {
  const rules = directory.rules.tokenizer;
  const config = await directory.optionalJson(CONFIG);
  const ofClass = config.tokenizer_class || (await directory.json("config.json")).tokenizer_class;
  const isOlder = !directory.has("tokenizer.json");
  const [file, settings] = isOlder ? await olderSettings(directory, ofClass) : ["tokenizer.json", await directory.json("tokenizer.json")];
  if (!settings.model?.vocab || Array.isArray(settings.model.vocab)) throw foreign();
  const isBert = isOlder ? settings.model.type === "WordPiece" : rules.bert.classes.includes(ofClass);
  const isGpt2 = !isBert && (!ofClass || rules.gpt2.classes.includes(ofClass));
  const { special, ids, added } = await tokensIn(directory, config, file, settings, isBert ? rules.bert.special : isGpt2 ? rules.gpt2.special : {});
  const ascending = [...ids].sort(([, a], [, b]) => a - b);
  const invalid = ascending.find(([, id], n) => !Number.isInteger(id) || id < 0 || id >= rows || id === ascending[n - 1]?.[1]);
  if (invalid) throw unsupported(file, `${invalid[0]} = ${asJson(invalid[1])}; ${rows}`);
  // What the classes read only from tokenizer_config.json.
  const read = { ...settings, file, isOlder, ids, added };
  const before = isBert ? special.cls_token : flagOf(config, "add_bos_token", false) ? special.bos_token : [];
  const prefix = isOlder ? before.map(({ content }) => ids.get(content)) : prefixIn(settings.post_processor);
  if (isGpt2) read.pre_tokenizer = { ...settings.pre_tokenizer, add_prefix_space: flagOf(config, "add_prefix_space", false) };
  if (isBert && isOlder) read.model = { ...settings.model, unk_token: special.unk_token.at(-1)?.content ?? settings.model.unk_token };
  if (isBert && settings.normalizer?.type === "BertNormalizer") {
    const [handle_chinese_chars, lowercase] = ["tokenize_chinese_chars", "do_lower_case"].map((name) => flagOf(config, name, true));
    read.normalizer = { ...settings.normalizer, handle_chinese_chars, strip_accents: flagOf(config, "strip_accents", null), lowercase };
  }
  const data = bytePairData(read, rules) ?? wordPieceData(read, rules);
  if (!data) throw foreign();
  return { ...data, prefix, vocab: settings.model.vocab, names: added.map(({ id, content }) => [id, content]), tokens: ids.size, rows };
}

/** The settings in files other than tokenizer.json, as in one, after the vocabulary's name; the class decides if there are two. */
async function olderSettings(directory, ofClass) {
  const { bert, gpt2, openai } = directory.rules.tokenizer;
  const [vocab, merges] = directory.has("vocab.json") || !directory.has(openai[0]) ? ["vocab.json", "merges.txt"] : openai;
  const hasPairs = directory.has(vocab) || directory.has(merges);
  const isKnown = !ofClass || [...gpt2.classes, ...bert.classes].includes(ofClass);
  const what = `tokenizer_class ${ofClass}`;
  if (!isKnown && (hasPairs || directory.has("vocab.txt"))) throw new Refusal("{what} requires a tokenizer.json. In transformers, AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY) writes one.", { what });
  if (directory.has("vocab.txt") && (bert.classes.includes(ofClass) || !hasPairs)) {
    const lines = (await directory.read("vocab.txt", textIn)).replace(/\n$/, "").split("\n");
    return ["vocab.txt", { ...bert.settings, model: { ...bert.settings.model, vocab: Object.fromEntries(lines.map((line, id) => [line, id])) } }];
  }
  if (!hasPairs) throw new Refusal("There is no tokenizer among the files: neither tokenizer.json, nor vocab.json and merges.txt, nor vocab.txt.");
  const ids = await directory.json(vocab);
  const lines = (await directory.read(merges, textIn)).replace(/^#version.*/, "").split("\n").filter(Boolean);
  const content = gpt2.special.eos_token;
  const added_tokens = Object.hasOwn(ids, content) ? [{ id: ids[content], content, special: true }] : [];
  return [vocab, { ...gpt2.settings, model: { type: "BPE", vocab: ids, merges: lines }, added_tokens }];
}

/** The special tokens by name, such as eos_token; all tokens' ids; and the added tokens with theirs, see `_with_ids` in Python. */
async function tokensIn(directory, config, file, { model, added_tokens = [] }, defaults) {
  const decoder = config.added_tokens_decoder;
  const entries = decoder ? config : { ...config, ...(await directory.optionalJson("special_tokens_map.json")) };
  const tokensOf = (value) => {
    if (value === null || value === undefined) return [];
    if (typeof value === "string") return [{ content: value, special: true }];
    return "content" in value ? [{ ...value, special: true }] : Object.values(value).flatMap(tokensOf); // several, in a list or by name
  };
  const special = Object.fromEntries(directory.rules.tokenizer.special.map((name) => [name, tokensOf(entries[name] === undefined ? defaults[name] : entries[name])]));
  const byContent = new Map(Object.values(special).flatMap((tokens) => tokens.map((token) => [token.content, token])));
  const asToken = ([content, id]) => ({ content, id, special: byContent.has(content), normalized: !byContent.has(content) });
  const more = decoder
    ? Object.entries(decoder).map(([id, token]) => ({ ...token, id: Number(id) }))
    : Object.entries(await directory.optionalJson("added_tokens.json")).map(asToken);
  const ids = new Map(Object.entries(model.vocab));
  const added = new Map();
  let next = ids.size;
  const add = (token) => {
    const { content } = token;
    const id = ids.get(content) ?? next;
    if (typeof content !== "string" || (token.id ?? id) !== id) throw unsupported(file, `${content} = ${token.id}`);
    next = Math.max(next, id + 1);
    ids.set(content, id);
    added.set(content, { ...token, id });
  };
  for (const token of [...added_tokens, ...more.sort((a, b) => a.id - b.id)]) add(token);
  for (const [content, token] of byContent) if (ids.has(content)) add({ ...(added.get(content) ?? token), special: true });
  const missing = [...byContent.values()].filter(({ content }) => !ids.has(content));
  if (missing.some(({ content }) => !Object.values(defaults).includes(content))) missing.forEach(add);
  return { special, ids, added: [...added.values()] };
}

/** The ids that a post_processor adds before a text. */
function prefixIn(processor) {
  if (["BertProcessing", "RobertaProcessing"].includes(processor?.type)) return [processor.cls[1]];
  if (processor?.type !== "TemplateProcessing") return [];
  const items = processor.single;
  const count = items.findIndex((item) => "Sequence" in item);
  return items.slice(0, count < 0 ? items.length : count).flatMap(({ SpecialToken: { id } }) => processor.special_tokens[id].ids);
}

/** The data of GPT-2's encoding; undefined if the settings are another's. */
function bytePairData({ file, isOlder, ids, added, normalizer, pre_tokenizer, post_processor, decoder, model }, rules) {
  const { bytes, pattern, unsupported_model_settings, unsupported_token_flags, looks_special } = rules;
  const isGpt2s =
    Array.isArray(model.merges) && (model.type ?? "BPE") === "BPE" && decoder?.type === "ByteLevel" && !normalizer &&
    pre_tokenizer?.type === "ByteLevel" && (pre_tokenizer.use_regex ?? true) &&
    [undefined, "ByteLevel", "TemplateProcessing"].includes(post_processor?.type) &&
    !["dropout", ...unsupported_model_settings].some((name) => model[name]) &&
    (!model.unk_token || bytes.every((symbol) => Object.hasOwn(model.vocab, symbol))) &&
    !added.some((token) => unsupported_token_flags.some((name) => token[name]));
  if (!isGpt2s) return undefined;
  const merges = model.merges.map((merge) => (typeof merge === "string" ? merge.split(" ") : merge));
  const wrong = merges.find((pair) => pair.length !== 2 || ![...pair, pair.join("")].every((symbol) => ids.has(symbol)));
  if (wrong) throw unsupported(file, `merge: ${asJson(wrong)}`);
  const explained = new Set([...bytes, ...merges.map((pair) => pair.join(""))]);
  const isKnown = new RegExp(`^(?:${looks_special})$`, "s");
  const names = new Set(added.map(({ content }) => content));
  const unmerged = isOlder && [...ids.keys()].find((symbol) => !explained.has(symbol) && !names.has(symbol) && !isKnown.test(symbol));
  if (typeof unmerged === "string") throw unsupported("merges.txt", `… ${asJson(unmerged)}`); // it seems truncated
  const matched = added.filter(({ content }) => content);
  return {
    ...{ pattern, merges },
    literalIds: added.filter(({ content }) => /[^\x00-\x7f]/.test(content) && !explained.has(content)).map(({ id }) => id),
    addedTokens: [false, true].map((isLater) => matched.filter(({ normalized }) => Boolean(normalized) === isLater).map(({ content, id }) => [content, id])),
    special: matched.filter((token) => token.special).map(({ content }) => content),
    addPrefixSpace: pre_tokenizer.add_prefix_space ?? true,
  };
}

/** The data of BERT's encoding, as `bert_data` in Python; undefined if the settings are another's. */
function wordPieceData({ added, normalizer, pre_tokenizer, decoder, model }, { unsupported_token_flags, bert }) {
  const { unk_token, continuing_subword_prefix: piecePrefix, max_input_chars_per_word: longest } = { ...bert.settings.model, ...model };
  const isBerts =
    [normalizer, pre_tokenizer, model, decoder].every((part, n) => part?.type === bert.types[n]) &&
    Object.hasOwn(model.vocab, unk_token) && (decoder.prefix ?? "##") === piecePrefix && added.every((token) => token.special);
  if (!isBerts) return undefined;
  const matched = added.filter((token) => !["normalized", ...unsupported_token_flags].some((flag) => token[flag]));
  return {
    wordPiece: { settings: normalizer, unknown: model.vocab[unk_token], piecePrefix, longest },
    ...{ pattern: "", merges: [], addPrefixSpace: false },
    literalIds: added.map(({ id }) => id),
    addedTokens: [matched.map(({ content, id }) => [content, id]), []],
    special: matched.map(({ content }) => content),
  };
}
