// The first screen: the sentence with one head's attention, what the head does, and all heads over the same words.

import { percent } from "../numbers/formats.js";
import { mostLookedAt } from "../numbers/looks.js";
import { UNCHANGED } from "../numbers/predictions.js";
import { wordOf } from "../numbers/words.js";
import { description, say, sayParts, spaceBetween } from "../sources/description.js";
import { jobsInWords } from "../sources/jobs.js";
import { headOf, isAblatedIn, isSeen, stepRow } from "../sources/rows.js";
import { loadLayer, source, withProbabilities } from "../sources/source.js";
import { chooseHead, openCellAt, select } from "../state/actions.js";
import { END_OF_TEXT, live } from "../state/live.js";
import { startEntry } from "../state/link.js";
import { changed, isSameHead, on, selection, set, settings } from "../state/store.js";
import { nextFrame } from "../state/story.js";
import { isPredicted, keyOf, nextTokenOf, queryIn, queryOf, symbolsOf, traces } from "../state/traces.js";
import { onceAFrame } from "../drawing/draw.js";
import { buttonOf, byId, keepHeight, make } from "../drawing/elements.js";
import { announce } from "../drawing/files.js";
import { Heads } from "./heads.js";
import {
  effectInWords, givenBackInWords, headsInWords, lookInWords, lookedAtInWords, silenceButtonOf, withoutInWords,
} from "./sentences.js";
import { softmaxRow } from "./softmax.js";
import { likeliestWords, NEXT_WORDS, Stage } from "./stage.js";

const MIN_DECISIVE = 0.1; // a head that changes the next word's probability by less doesn't decide it
const PRONOUN = /^(he|she|it|they|him|her|them|his|its|their)$/i;
const MIN_FOUND = 0.4; // what a head finds on other texts is said only if it gives a word here a larger share

let stages = []; // one for each trace
let heads; // the drawings of the last trace's heads
let texts = []; // the traces as Stage and Heads draw them
const pointed = { query: null, head: null }; // what is under the pointer; it is shown instead of the selection
let isRowOpen = false; // whether the row of the softmax is shown

/** How many line ends a token consists of; 0 if it has anything else. */
const lineEndsIn = ({ bytes }) => (/^0a( 0a)*$/.test(bytes) ? bytes.split(" ").length : 0);

/** A token's text in words about the sentence: line ends are visible, parts of characters are named. */
function textOf(token) {
  if (token.symbol === END_OF_TEXT) return ` ${say("end of text")}`;
  return token.text.includes("\ufffd") ? wordOf(token) : "⏎".repeat(lineEndsIn(token)) || token.text;
}

/** A token's text as it is drawn in the sentence: line ends and characters of several tokens are as they were typed. */
function lettersOf(token) {
  if (lineEndsIn(token)) return "\n".repeat(lineEndsIn(token));
  // A part of a character has a name such as “字 1/3”, see numbers/words.js.
  const [, character, number] = (token.text.includes("\ufffd") && wordOf(token).match(/^(.*) (\d+)\/\d+$/u)) || [];
  if (character === undefined) return textOf(token);
  // The first token that has a part of the character shows all of it; the others show nothing.
  return number === "1" ? `${token.text.startsWith(" ") ? " " : ""}${character}` : "";
}

/** A trace as Stage and Heads draw it. */
function shownOf(trace) {
  const queries = trace.tokens.map(textOf);
  const letters = trace.tokens.map(lettersOf);
  const weights = (layer, head, i) => stepRow(headOf(trace, layer, head), "weights", i);
  const isSelf = trace.cached === 0; // whether all keys are queries; cached tokens, in brackets, are keys only
  const keys = isSelf
    ? queries
    : [...trace.keys.slice(0, trace.cached).map(({ symbol }) => `[${symbol}] `), ...queries];
  const isLater = trace.tokens.map(({ piece }) => Boolean(piece && !piece.isFirst)); // a later piece of a word
  return {
    trace, queries, letters, isLater, keys, isSelf, layers: trace.layers, H: trace.H, weights, hasNext: true,
    isCausal: isSelf, // after cached tokens, a key's index isn't its query's, so the two can't be compared
  };
}

const isLayerLoaded = ({ trace }, layer) => trace.loaded.has(layer);

/** The head that is shown: the one under the pointer, or the open one. */
const headShown = () => pointed.head ?? selection;

const storyOfHead = ({ trace }, { layer, head }) =>
  trace.story?.heads.find((one) => isSameHead(one, { layer, head })) ?? null;

/** A next word, with the rest of a word that it begins. */
const nameOfNext = (text, id) => `${textIn(text, id)}${text.completions?.get(id) ?? ""}`;

/** A next token's text; white space is visible. */
function textIn({ trace }, id) {
  const token = nextTokenOf(trace, trace.T - 1, id);
  return textOf(token).trim() ? textOf(token) : wordOf(token);
}

/**
 * The next words before and after a change, [{id, before, after}]; null without a change. The change is the silencing
 * of the shown head, or else the text's edits. The probabilities are the model's own, at temperature 1.
 */
function comparedWords(text) {
  if (selection.isSilenced) return storyOfHead(text, headShown())?.next ?? null;
  return settings.temperature === 1 ? text.edited : null;
}

/** The most probable next words, before or after a change if there is one: [{id, text, before, after}]. */
function nextWords(text) {
  if (isPredicted(text.trace) || !text.next) return null;
  const unchanged = () => text.next.map(({ id, probability }) => ({ id, before: probability, after: probability }));
  const namesOf = ({ id }) => ({ text: textIn(text, id), completion: text.completions?.get(id) });
  return likeliestWords(comparedWords(text) ?? unchanged()).map((word) => ({ ...word, ...namesOf(word) }));
}

const withCompletions = (text, next) => next.map((word) => ({ ...word, text: nameOfNext(text, word.id) }));

/** Sentences on what follows from the text's edits, and without the shown head, and a button that silences it. */
function effectWords(text) {
  const words = [];
  const edits = { without: say("With these edits"), isHead: false };
  if (text.edited) words.push(...effectInWords(withCompletions(text, text.edited), edits));
  const { layer, head } = headShown();
  const known = storyOfHead(text, { layer, head });
  if (!known || isAblatedIn({ traces: [text.trace] }, layer, head)) return words; // it is silenced already
  const without = withoutInWords(headShown(), text.trace.hasAverages);
  const effect = effectInWords(withCompletions(text, known.next), { without, unlisted: known.unlisted });
  const atOne = say("This sentence, the bars and the words without a silenced head are at temperature 1.");
  return [...words, ...effect, " ", silenceButton(), ...(settings.temperature === 1 ? [] : [spaceBetween(), atOne])];
}

/** By how much any head alone moves the next word, if all were tried and none moves it far. */
function decisionWords(text) {
  const { layers, H, story } = text.trace;
  const most = Math.max(...(story?.heads ?? []).map(({ effect }) => Math.abs(effect)));
  if (story?.heads.length !== layers * H || most >= MIN_DECISIVE) return "";
  const points = Math.max(0.1, 100 * most).toFixed(1); // rounded as in `headsInWords`
  const values = { word: nameOfNext(text, story.ids[0]).trim(), points };
  return `${spaceBetween()}${say("No head alone moves “{word}” by more than {points} points.", values)}`;
}

/** A second sentence, on another head: it looks at one word here and, by the model's card, at such words elsewhere. */
function otherHeadWords({ trace, queries, keys }) {
  const last = trace.cached + trace.T - 1; // the key of the last word, whose attention the story has
  // The weight that a head gives to a job's words on other texts. The card's last number is that of uniform attention.
  const onOthers = (name, { layer, head }) => trace.card[name]?.[layer * trace.H + head] ?? 0;
  const hasIt = queries.some((text) => /^it$/i.test(text.trim()));
  const isPronoun = PRONOUN.test(queries.at(-1).trim());
  // The jobs in a model card that name what is found.
  const jobs = [...(isPronoun ? ["subject"] : []), ...(hasIt ? ["animal", "thing"] : []), "adjective"];
  const jobOf = (place) => jobs.find((name) => onOthers(name, place) > 2 * trace.card[name]?.at(-1));
  const shownJob = jobOf(headShown());
  const looking = (trace.story?.heads ?? []).flatMap(({ layer, head, weights }) => {
    const key = mostLookedAt(weights, last);
    const job = jobOf({ layer, head });
    const isOther = !isSameHead(headShown(), { layer, head }) && !isSameHead(selection, { layer, head });
    // That a head looks at the word before isn't worth a sentence.
    const isFound = key >= 0 && key !== last - 1 && weights[key] > MIN_FOUND;
    return job && job !== shownJob && isOther && isFound ? [{ layer, head, key, job, share: weights[key] }] : [];
  });
  if (!looking.length) return [];
  const { layer, head, key, job, share } = looking.reduce((best, one) => (one.share > best.share ? one : best));
  const values = {
    name: `${layer}.${head}`, share: percent(share), other: make("b", { class: "looked-at" }, keys[key].trim()),
    job: jobsInWords()[job], usual: percent(onOthers(job, { layer, head })),
  };
  return [
    spaceBetween(),
    ...sayParts("Head {name} gives “{other}” {share}, and on other texts {usual} to {job}.", values),
  ];
}

function draw() {
  const place = headShown();
  const last = texts.length - 1;
  const text = texts[last];
  if (!text || !stages.length || !isLayerLoaded(text, place.layer)) return;
  const rowOfText = (shown) => (i) => shown.weights(place.layer, place.head, i);
  const queryOfText = ({ trace }) => queryIn(trace, pointed.query ?? selection.query);
  const query = queryOfText(text);
  const lookOf = (shown) => lookInWords(shown, rowOfText(shown), queryOfText(shown), place, shareButton);
  const look = lookOf(text);
  texts.forEach((shown, n) => {
    if (!isLayerLoaded(shown, place.layer) || place.head >= shown.H) return;
    const isChanged = comparedWords(shown) !== null;
    const isPointed = pointed.query !== null || pointed.head !== null;
    const { named } = shown === text ? look : lookOf(shown);
    const drawn = { rowOf: rowOfText(shown), query: queryOfText(shown), named };
    stages[n].draw({ ...drawn, next: nextWords(shown), isChanged, isPointed });
  });
  const isAtEnd = query === text.trace.T - 1 && !isPredicted(text.trace);
  const effect = isAtEnd ? effectWords(text) : [];
  keepHeight(byId("said"));
  byId("said").replaceChildren(
    ...look.words,
    ...effect,
    isAtEnd ? decisionWords(text) : "",
    ...(isAtEnd && !pointed.head ? otherHeadWords(text) : []),
    ...(isPredicted(text.trace) ? [" ", revealButton(text)] : []),
  );
  byId("said").normalize(); // joins neighbouring texts, which the saved picture would place one by one
  byId("seen").replaceChildren(...lookedAtInWords(text, rowOfText(text), query));
  drawRow(text, query);
  const isSilenced = (one) => selection.isSilenced && isSameHead(selection, one) && storyOfHead(text, one);
  const isMuted = (layer, head) => isAblatedIn({ traces: [text.trace] }, layer, head) || isSilenced({ layer, head });
  heads.mark(selection, isMuted);
}

/** Draw. Buttons are made anew: if one had the focus, its successor gets it. */
function drawAgain() {
  const parts = [byId("said"), byId("softmax-row"), ...document.querySelectorAll(".next-words")];
  const buttonsOf = (part) => [...part.querySelectorAll("button")];
  const focused = parts.find((part) => part.contains(document.activeElement));
  const n = focused ? buttonsOf(focused).indexOf(document.activeElement) : -1;
  draw();
  if (n >= 0) buttonsOf(focused)[n]?.focus();
}

const drawSoon = onceAFrame(drawAgain);

const toggleRow = () => {
  isRowOpen = !isRowOpen;
  drawSoon();
};

const shareButton = (share) => buttonOf(toggleRow, { class: "its-share", "aria-expanded": String(isRowOpen) }, share);

function silenceButton() {
  const press = () => {
    startEntry();
    set({ isSilenced: !selection.isSilenced });
  };
  return silenceButtonOf(press, selection.isSilenced, texts.at(-1).trace.hasAverages);
}

/** Give the head back that the button has silenced, if any, because another head or temperature was chosen. */
function giveBack() {
  if (!selection.isSilenced) return;
  announce(givenBackInWords(selection));
  set({ isSilenced: false });
}

/** The button that shows the next words to a reader who has predicted them. */
const revealButton = ({ trace }) =>
  buttonOf(() => set({ revealed: symbolsOf(trace).join() }), { id: "reveal" }, say("What comes next?"));

/** The temperature's slider, and in a page with a model, a button to let the model continue the text. */
function nextControls() {
  const temperatures = [0, ...description.sliders.temperatures];
  const shown = make("output", {});
  const show = () => {
    slider.value = temperatures.indexOf(settings.temperature);
    shown.textContent = settings.temperature.toFixed(1);
  };
  const input = () => {
    settings.temperature = temperatures[slider.value];
    changed("settings");
  };
  const slider = make("input", { type: "range", min: 0, max: temperatures.length - 1, input });
  const name = make("span", {});
  const write = buttonOf(() => live.toggleWriting(), { id: "write-on", "aria-pressed": "false" });
  const showWords = () => {
    name.textContent = slider.ariaLabel = say("temperature");
    write.textContent = say("Continue");
  };
  on("language", showWords);
  on("settings", show);
  on("isWriting", () => (write.ariaPressed = String(selection.isWriting)));
  showWords();
  show();
  return make("div", { class: "next-controls" }, name, slider, shown, ...(live.toggleWriting ? [write] : []));
}

/** The row of the softmax, from which each number's arithmetic opens. */
function drawRow(text, query) {
  byId("softmax-row").hidden = !isRowOpen;
  if (!isRowOpen) return;
  const { layer, head } = headShown();
  const { trace } = text;
  const loaded = headOf(trace, layer, head);
  // The softmax of the scores gives the weights only if neither is edited.
  const isEdited = ["weights", "masked_scores"].some((step) => loaded.edited.has(step));
  const scores = isEdited ? null : [...stepRow(loaded, "masked_scores", query)];
  const openNumber = (step, j) => {
    startEntry();
    set({ step });
    select(queryOf(trace, query), keyOf(trace, j));
    openCellAt({ layer, head, query: selection.query, key: selection.key, component: 0 });
    byId("arithmetic-title").focus();
  };
  const isVisible = (j) => isSeen(loaded, query * trace.Tk + j);
  byId("softmax-row").replaceChildren(
    softmaxRow(text, query, text.weights(layer, head, query), scores, (step, j) => isVisible(j) && openNumber(step, j)),
  );
}

/** The next words of each trace at the settings, once the source has them. */
async function readNext() {
  const shown = texts;
  await Promise.all(
    shown.map(async (text) => {
      const { trace } = text;
      if (trace.T - 1 < trace.prediction.first) return; // the page has no predictions before position `first`
      const prediction = withProbabilities(trace, await source.predictionAfter(trace, trace.T - 1), settings);
      text.next = prediction.ids.map((id, n) => ({ id, probability: prediction.renormalized[n] }));
      text.edited = await readEdited(trace);
    }),
  );
  if (shown !== texts) return;
  drawSoon();
  await completePieces(shown.at(-1));
  if (shown !== texts) return;
  drawSoon();
  showEffects();
}

/** The most probable next words without and with a trace's edits, [{id, before, after}]; null without edits. */
async function readEdited(trace) {
  if (!trace.changes?.length) return null;
  const plain = { ...trace, changes: [], packs: new Map(), predictions: new Map() }; // the text without edits
  const read = async (one) => withProbabilities(one, await source.predictionAfter(one, one.T - 1), UNCHANGED);
  const [before, after] = await Promise.all([plain, trace].map(read));
  const shareOf = ({ all, logits, sum }, id) => Math.exp(all[id] - logits[0]) / sum; // also of unlisted tokens
  const ids = new Set([before, after].flatMap(({ ids }) => ids.slice(0, NEXT_WORDS)));
  return [...ids].map((id) => ({ id, before: shareOf(before, id), after: shareOf(after, id) }));
}

/** Read the rest of next words that are pieces: a saved page has it; otherwise, the model completes the words. */
async function completePieces(text) {
  if (!text.next || text.completions) return;
  const saved = text.trace.completions ?? {}; // by id
  text.completions = new Map(Object.entries(saved).map(([id, rest]) => [Number(id), rest]));
  if (!live.complete) return;
  for (const { id } of text.next.slice(0, NEXT_WORDS)) text.completions.set(id, await live.complete(text.trace, id));
}

/** Draw the heads, layer by layer, so that the page stays responsive. */
async function drawHeads() {
  const shown = texts;
  const text = shown.at(-1);
  heads.show(text);
  for (let layer = 0; layer < text.layers; layer++) {
    await loadLayer(text.trace, layer);
    await nextFrame();
    if (shown !== texts) return;
    heads.drawLayer(layer);
  }
  showEffects();
}

/** Show the effects of heads, unless the reader predicts the next words first, which effects would reveal. */
function showEffects() {
  const text = texts.at(-1);
  const { story } = text.trace;
  const isShown = story && !isPredicted(text.trace);
  const word = isShown ? nameOfNext(text, story.ids[0]).trim() : "";
  heads.showEffects((layer, head) => (isShown ? (storyOfHead(text, { layer, head })?.effect ?? null) : null));
  const count = text.layers * text.H;
  // If the page itself chose a head whose bar isn't the longest, it says why.
  const isSurprising = !selection.isHeadChosen && !isSameHead(heads.headOfLargest, selection);
  const values = { word, tried: story?.heads.length ?? count, largest: heads.largest };
  const explainsChoice = isSurprising && byId("first").checkVisibility(); // if the first screen is shown
  byId("every-head-title").textContent = headsInWords(text, { ...values, explainsChoice });
}

/** Show whether the typed text differs from the one that is shown. */
function markTyping() {
  stages.at(-1).isTyping = selection.isTyping;
  byId("said").classList.toggle("earlier", selection.isTyping);
}

/** Show the traces: their sentences at once, then the next words, then the heads. */
function showTexts() {
  const areOtherTexts = String(traces.map(symbolsOf)) !== String(texts.map(({ trace }) => symbolsOf(trace)));
  texts = traces.map(shownOf);
  Object.assign(pointed, { query: null, head: null });
  if (areOtherTexts) byId("said").style.minHeight = ""; // edits of the same text don't move what is below
  const isTypedIn = live.editor?.matches(":focus"); // the editor loses the focus if it is moved to another stage
  if (stages.length !== texts.length) {
    const elements = texts.map(() => make("div", { class: "sentence-stage" }));
    byId("stages").replaceChildren(...elements);
    stages = elements.map((element, n) => new Stage(element, choicesOf(n, n === elements.length - 1)));
  }
  stages.forEach((stage, n) => stage.show(texts[n]));
  if (isTypedIn) live.editor.focus();
  drawSoon();
  readNext();
  drawHeads();
}

/** The options of stage n, see `Stage`. Only the last text can be continued. */
function choicesOf(n, isLast) {
  const choose = (i, isPressed) => {
    const query = i === null ? null : queryOf(texts[n].trace, i);
    pointed.query = isPressed ? null : query;
    if (isPressed) select(query);
    drawSoon();
  };
  return {
    choose, toggleRow, write: isLast ? live.write : null, editor: isLast ? live.editor : null,
    controls: isLast ? nextControls() : null,
  };
}

export function startSentence() {
  heads = new Heads(byId("every-head"), {
    choose(layer, head) {
      startEntry();
      giveBack();
      chooseHead(layer, head);
    },
    point(layer, head) {
      pointed.head = layer === null ? null : { layer, head };
      drawSoon();
    },
  });
  on("traces language", showTexts);
  on("head query key story palette isPredicting revealed isSilenced", drawSoon);
  on("story head isPredicting revealed depth", showEffects);
  on("settings", () => {
    if (settings.temperature !== 1) giveBack(); // only at temperature 1 it is known what follows without a head
    readNext();
  });
  on("isTyping traces language", markTyping);
}
