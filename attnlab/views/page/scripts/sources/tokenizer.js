// Read a model's tokenizer files, as attnlab/text/tokenizer_files.py does, into the data of a Tokenizer, as `as_data` in
// attnlab/text/tokenizer.py makes it.

import { Refusal } from "../numbers/refusal.js";

const CONFIG = "tokenizer_config.json";

export const unsupported = (file, what) =>
  new Refusal("The page can't open this model: {file} has {what}. The library opens more models and says what is wrong; try attnlab explore.", { file, what });

const asJson = (value) => JSON.stringify(value ?? null).slice(0, 200);
const textIn = (buffer) => new TextDecoder("utf-8", { fatal: true }).decode(buffer).replace(/\r\n?/g, "\n");

const foreign = () =>
  new Refusal("A page supports only GPT-2's byte pair encoding and BERT's word pieces, and this model has another tokenizer. Use attnlab explore, which supports any tokenizer.");

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
  const defaults = isBert ? rules.bert.special : isGpt2 ? rules.gpt2.special : {};
  const special = await specialTokens(directory, config, defaults);
  const byContent = new Map(Object.values(special).flatMap((tokens) => tokens.map((token) => [token.content, token])));
  const { ids, added } = withIds(file, settings, await moreAddedTokens(directory, config, byContent), byContent, Object.values(defaults));
  const ascending = [...ids].sort(([, a], [, b]) => a - b);
  const invalid = ascending.find(([, id], n) => !Number.isInteger(id) || id < 0 || id >= rows || id === ascending[n - 1]?.[1]);
  if (invalid) throw unsupported(file, `${invalid[0]} = ${asJson(invalid[1])}; ${rows}`);
  const [before, unknown] = [isBert ? special.cls_token : flagOf(config, "add_bos_token", false) ? special.bos_token : [], special.unk_token.at(-1)];
  const read = {
    ...settings,
    ...{ file, isOlder, ids, added },
    prefix: isOlder ? before.map(({ content }) => ids.get(content)) : prefixIn(settings.post_processor),
    normalizer: isBert ? bertNormalizer(settings.normalizer, config) : settings.normalizer,
    pre_tokenizer: isGpt2 ? { ...settings.pre_tokenizer, add_prefix_space: flagOf(config, "add_prefix_space", false) } : settings.pre_tokenizer,
    model: isBert && isOlder && unknown ? { ...settings.model, unk_token: unknown.content } : settings.model,
  };
  const data = bytePairData(read, rules) ?? wordPieceData(read, rules);
  if (!data) throw foreign();
  return { ...data, prefix: read.prefix, vocab: settings.model.vocab, names: added.map(({ id, content }) => [id, content]), tokens: ids.size, rows };
}

/** The settings in files other than tokenizer.json, as in one, after the vocabulary's name; the class decides if there are two. */
async function olderSettings(directory, ofClass) {
  const { bert, gpt2, openai, sentence_piece } = directory.rules.tokenizer;
  const [vocab, merges] = directory.has("vocab.json") || !directory.has(openai[0]) ? ["vocab.json", "merges.txt"] : openai;
  const hasPairs = directory.has(vocab) || directory.has(merges);
  const name = sentence_piece.find(directory.has);
  if (!hasPairs && !directory.has("vocab.txt")) {
    if (!name) throw new Refusal("There is no tokenizer among the files: neither tokenizer.json, nor vocab.json and merges.txt, nor vocab.txt.");
    throw new Refusal("SentencePiece's {name} isn't supported; a tokenizer.json is. In transformers, AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY) writes one.", { name });
  }
  const isKnown = !ofClass || [...gpt2.classes, ...bert.classes].includes(ofClass);
  if (!isKnown) throw new Refusal("tokenizer_class {name} requires a tokenizer.json. In transformers, AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY) writes one.", { name: ofClass });
  if (directory.has("vocab.txt") && (bert.classes.includes(ofClass) || !hasPairs)) {
    const lines = (await directory.read("vocab.txt", textIn)).replace(/\n$/, "").split("\n");
    return ["vocab.txt", { ...bert.settings, model: { ...bert.settings.model, vocab: Object.fromEntries(lines.map((line, id) => [line, id])) } }];
  }
  const ids = await directory.json(vocab);
  const lines = (await directory.read(merges, textIn)).replace(/^#version.*/, "").split("\n").filter(Boolean);
  const content = gpt2.special.eos_token;
  const added_tokens = Object.hasOwn(ids, content) ? [{ id: ids[content], content, special: true }] : [];
  return [vocab, { ...gpt2.settings, model: { type: "BPE", vocab: ids, merges: lines }, added_tokens }];
}

/** The special tokens by name, such as eos_token. */
async function specialTokens(directory, config, defaults) {
  const entries = "added_tokens_decoder" in config ? config : { ...config, ...(await directory.optionalJson("special_tokens_map.json")) };
  const tokensIn = (value) => {
    if (value === null || value === undefined) return [];
    if (typeof value === "string") return [{ content: value, special: true }];
    if ("content" in value) return [{ ...value, special: true }];
    return Object.values(value).flatMap(tokensIn); // several, in a list or by name
  };
  return Object.fromEntries(directory.rules.tokenizer.special.map((name) => [name, tokensIn(entries[name] === undefined ? defaults[name] : entries[name])]));
}

/** Added tokens in files other than tokenizer.json, in the order of their ids. */
async function moreAddedTokens(directory, config, special) {
  const decoder = config.added_tokens_decoder;
  const asToken = ([content, id]) => ({ content, id, special: special.has(content), normalized: !special.has(content) });
  const tokens = decoder
    ? Object.entries(decoder).map(([id, token]) => ({ ...token, id: Number(id) }))
    : Object.entries(await directory.optionalJson("added_tokens.json")).map(asToken);
  return tokens.sort((a, b) => a.id - b.id);
}

/** All tokens' ids, and the added tokens with theirs, see `_with_ids` in Python. */
function withIds(file, { model, added_tokens = [] }, more, special, defaults) {
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
  for (const token of [...added_tokens, ...more]) add(token);
  for (const [content, token] of special) if (ids.has(content)) add({ ...(added.get(content) ?? token), special: true });
  const missing = [...special.values()].filter(({ content }) => !ids.has(content));
  if (missing.some(({ content }) => !defaults.includes(content))) missing.forEach(add);
  return { ids, added: [...added.values()] };
}

/** BERT's normalizer, with what BertTokenizer reads only from the config. */
const bertNormalizer = (normalizer, config) => normalizer?.type === "BertNormalizer" && {
  ...normalizer,
  handle_chinese_chars: flagOf(config, "tokenize_chinese_chars", true),
  strip_accents: flagOf(config, "strip_accents", null),
  lowercase: flagOf(config, "do_lower_case", true),
};

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
