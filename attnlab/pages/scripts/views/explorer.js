// The page with a model behind it. It keeps a history of traces to compare with and return to.

import { ablationOf, changeFrom, isAblation, isAmong, isPossible, textOfChange } from "../numbers/changes.js";
import { STEPS_TO_CHANGE } from "../numbers/constants.js";
import { brief } from "../numbers/formats.js";
import { specialNamesIn } from "../numbers/words.js";
import { description, say } from "../sources/description.js";
import { reports, setSource, source } from "../sources/source.js";
import { openTraces } from "../state/actions.js";
import { live } from "../state/live.js";
import { followLink, linkFollowers, linkParts, startEntry } from "../state/link.js";
import { describedCell, isLook, isSame, on, selection, settings } from "../state/store.js";
import { openStory } from "../state/story.js";
import { alignment, nameOfChange, traceOf, traces } from "../state/traces.js";
import { barOf, checkboxOf, markBusy, number, replaceWithFields, tokenElement } from "../drawing/draw.js";
import { buttonOf, byId, make } from "../drawing/elements.js";
import { cursorOf } from "../drawing/levels.js";
import { onOpened } from "./ablated.js";
import { makeChange } from "./change.js";
import { makeSliders, showSettings } from "./next.js";
import { END_OF_TEXT, markTyping } from "./sentence.js";

const HISTORY_LENGTH = 100;
const QUICK_MILLISECONDS = 50; // the controls show a request that takes longer before it is answered, a quick one afterwards

const traceHistory = []; // the traces' descriptions, the last one shown
let lastRequest; // its `text`, {text} or {ids}, and its `changes`
let change; // the table of what changed from the trace before
let typing; // the timer of what was typed last
let pending; // aborts the pending request
let refused = null; // the text of the last request, if the model can't read it
const meant = new Set(); // names of special tokens that are read as these tokens
let lastGenerated; // the arguments of `showGenerated` for the tokens that are shown, if any

/** Trace a text, {text} or {ids}, with changes, see source.js. */
function requestTrace(text, changes) {
  lastRequest = { text, changes };
  return runLatest(async (signal) => {
    const trace = await source.open(text, changes, signal);
    return () => {
      const last = traceHistory.at(-1);
      const hasSameIds = last.ids.join() === trace.ids.join();
      if (text.text === undefined && !hasSameIds) byId("prompt").value = trace.text; // a next word was written
      show({ ...trace, typed: text.text ?? (hasSameIds ? last.typed : undefined) });
    };
  });
}

/** The last trace's part of the link, such as #ids=12.7&ablate=0.1+1, which ablates head 0.1 and MLP 1. */
const linkOfText = () => linkOf(traceHistory.at(-1));

const linkOf = ({ ids, changes }) => {
  const ablate = changes.map(textOfChange).join(" ");
  return { ids: ids.join("."), ...(ablate && { ablate }) };
};

const isSameText = (a, b) => a.ids === b.ids && (a.ablate ?? "") === (b.ablate ?? "");

/** Trace the text of a link; if `isFirst`, the trace replaces the one that the page opened with. */
function followLinkOfText(link, isFirst = false) {
  const values = new URLSearchParams(link.slice(1));
  const parse = (text) => text.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part));
  // A link that only has changes is about the shown text.
  const { ids = values.has("ablate") ? linkOfText().ids : "", ablate = "" } = Object.fromEntries(values);
  if (!ids || isSameText({ ids, ablate }, linkOfText())) return;
  runLatest(async (signal) => {
    const { trace, problem } = await openLinked({ ids: parse(ids) }, ablate.split(" ").filter(Boolean), signal);
    return async () => {
      // The link of the previous trace: the browser's Back button.
      const isBack = traceHistory.length > 1 && isSameText(linkOf(traceHistory.at(-2)), linkOf(trace));
      if (isBack || isFirst || traceHistory.at(-1).id === trace.id) traceHistory.pop();
      if (!isBack) traceHistory.push(trace);
      byId("prompt").value = trace.text;
      await showLatest();
      if (problem) showStatus(problem);
      followLink(link); // again, now that the tokens that it names exist
    };
  });
}

/** Open a link's text with its changes, if the model has what they edit; `problem` says which are left out. */
async function openLinked(text, texts, signal) {
  const { layers, H, prediction } = traces.at(-1);
  const sizes = { layers, H, T: text.ids.length, vocab: prediction.vocab };
  const changes = texts.map(changeFrom);
  const isWrong = (change) => !change || !isPossible(change, sizes);
  const wrong = texts.filter((_, n) => isWrong(changes[n])).map((text) => brief(text));
  const edits = wrong.join(" · ");
  const problem = wrong.length ? say("Edits in the link that this model or text doesn't have aren't applied: {edits}", { edits }) : "";
  const possible = changes.filter((change) => !isWrong(change));
  try {
    return { trace: await source.open(text, possible, signal), problem };
  } catch (error) {
    if (!possible.length || error.name === "AbortError") throw error;
    return { trace: await source.open(text, [], signal), problem: error.message }; // such as a mask that hides everything
  }
}

const openIds = (ids) => requestTrace({ ids }, lastRequest.changes);

/** Write a next token, {id}. */
const writeToken = ({ id }) => openIds([...traceHistory.at(-1).ids, id]);

const LONGEST_PIECES = 3; // further tokens of a word

/** What follows a token in the same word, by the most probable tokens; "" if the word ends. */
async function completionOf({ ids, changes, names }, id) {
  if (!/[a-z]$/i.test(names.get(id).text) || ids.length + LONGEST_PIECES >= source.config.n_positions) return "";
  if (changes.some(({ kind }) => kind === "patch")) return ""; // which fits only a text of this length
  const { chosen } = await source.generate({ ids: [...ids, id], changes }, { count: LONGEST_PIECES, temperature: 0, top_k: null, top_p: null });
  const end = chosen.findIndex(({ text }) => !/^[a-z’']/i.test(text));
  return chosen.slice(0, end < 0 ? chosen.length : end).map(({ text }) => text).join("");
}

const MILLISECONDS_A_WORD = 700; // while the page writes by itself
let writing = null; // stands for what writes

/** Write on by itself, a sampled token at a time, until the text ends, the reader stops it, or the model is full. */
async function toggleWriting() {
  if (writing) return stopWriting();
  const own = (writing = {});
  byId("write-on").ariaPressed = "true";
  try {
    while (writing === own) {
      const trace = traceHistory.at(-1);
      if (trace.ids.length >= source.config.n_positions) break;
      const { chosen } = await source.generate(trace, { count: 1, ...settings });
      if (writing !== own || chosen[0].symbol === END_OF_TEXT || traceHistory.at(-1) !== trace) break;
      await writeToken(chosen[0]);
      if (traceHistory.at(-1) === trace) break; // it was refused
      await new Promise((done) => setTimeout(done, MILLISECONDS_A_WORD));
    }
  } catch (error) {
    showStatus(error.message);
  }
  if (writing === own) stopWriting();
  return undefined;
}

function stopWriting() {
  writing = null;
  byId("write-on").ariaPressed = "false";
}

/** Generate a continuation of the last trace. */
function continueText() {
  const trace = traceHistory.at(-1);
  if (!byId("seed").reportValidity()) return;
  runLatest(async (signal) => {
    const count = byId("count").valueAsNumber;
    const seed = byId("seed").value;
    const options = { ...settings, ...(seed !== "" && { seed: Number(seed) }) };
    const { ids, text, chosen } = await source.generate(trace, { count, ...options }, signal);
    const continued = await source.open({ ids }, trace.changes, signal);
    return () => {
      show(continued);
      byId("prompt").value = text;
      markUnsent();
      showGenerated(chosen, options);
    };
  });
}

/** Show the generated tokens, each with a probability. */
function showGenerated(chosen, { temperature }) {
  lastGenerated = [chosen, { temperature }];
  const words = temperature
    ? say("Generated tokens, each with the probability it was sampled with:")
    : say("Generated greedily; probabilities are the model's, at temperature 1:");
  const items = chosen.map((token) => {
    const probability = temperature ? token.probability : token.share;
    return make("li", {}, tokenElement(token), barOf(probability), number(probability, 4));
  });
  byId("sampled").replaceChildren(words, make("ol", {}, ...items));
}

/** Send a request, then call the function that it resolves to, unless a newer request has replaced it. */
async function runLatest(request) {
  pending?.abort();
  const controller = (pending = new AbortController());
  refused = null;
  showStatus("");
  markBusy(byId("explore"), true);
  const marking = setTimeout(() => [markAblated, markUnsent].forEach((mark) => mark()), QUICK_MILLISECONDS);
  const showError = (error) => {
    const isCancelled = error.name === "AbortError";
    if (!isCancelled) refused = byId("prompt").value;
    resetRequest();
    markAblated();
    showStatus(isCancelled ? say("Cancelled.") : error.message);
    if (isShownTyped()) markMeant();
    markUnsent();
    if (byId("explore").classList.contains("refused")) byId("status").append(" ", buttonOf(restoreText, { class: "leads" }, say("Back to the text shown")));
  };
  const applyResult = await request(controller.signal).catch((error) => () => showError(error));
  clearTimeout(marking);
  if (controller !== pending) return;
  markBusy(byId("explore"), false);
  applyResult();
}

let progress = 1; // of what the source loads or computes, from 0 to 1

/** Show that something is computed, with the progress if it is known. */
function showProgress(fraction) {
  progress = fraction;
  markBusy(byId("working"), progress < 1);
  if (progress < 1) byId("progress").value = progress;
  else byId("progress").removeAttribute("value"); // indeterminate
}

/** Cancel the computation; if the last trace's numbers are incomplete, return to the trace before. */
function cancel() {
  if (byId("explore").ariaBusy === "true") return pending.abort();
  source.stop(traces);
  if (traceHistory.length > 1) goBack();
  return showStatus(say("Cancelled."));
}

/** Replace the model by one from the files of a directory; the history restarts. */
function openModel(files) {
  clearTimeout(typing); // the new model reads what was typed; a request to the old one would end this
  runLatest(async (signal) => {
    const nextSource = await source.openDirectory(files, signal);
    const open = (text) => nextSource.open(text, [], signal);
    let trace;
    try {
      trace = await open({ text: byId("prompt").value, special: [...meant] }).catch(() => open({ ids: [0] })); // if it can't encode the text
      signal.throwIfAborted();
    } catch (error) {
      nextSource.close();
      throw error;
    }
    return () => {
      source.close();
      setSource(nextSource);
      source.showFormulas();
      traceHistory.length = 0;
      byId("prompt").value = trace.text;
      traceHistory.push({ ...trace, typed: trace.text });
      showLatest();
    };
  });
}

const showStatus = (sentence) => (byId("status").textContent = sentence);

/** Show a trace and add it to the history. */
function show(trace) {
  startEntry();
  if (traceHistory.at(-1).id === trace.id) traceHistory.pop();
  traceHistory.push(trace);
  if (traceHistory.length > HISTORY_LENGTH) traceHistory.shift();
  showLatest();
}

/** Show the last trace, next to the previous one if they are compared. */
async function showLatest() {
  const former = traces;
  const focused = document.activeElement; // may be in an element that is replaced
  const focusedFigure = [...byId("heatmaps").children].findIndex((child) => child.contains(focused));
  resetRequest();
  const opening = openTraces(traceHistory.slice(byId("compare").checked ? -2 : -1));
  const isOtherText = traces.at(-1).ids.join() !== former[0].ids.join();
  if (isOtherText && isLook()) Object.assign(selection, { isHeadChosen: false });
  openStory();
  followChange(former);
  markLatest();
  await opening;
  if (focusedFigure >= 0) cursorOf(focusedFigure)?.focus();
}

/**
 * Show what changed from the previous trace to the last one: of another text only if they are compared. former: the traces
 * that were shown before, with their numbers.
 */
function followChange(former = []) {
  const [previous] = traceHistory.slice(-2, -1);
  const isComparing = traces.length === 2;
  const isSameText = previous && previous.ids.join() === traces.at(-1).ids.join();
  const before = isComparing ? traces[0] : isSameText ? (former.find(({ id, number }) => id === previous.id && number === 0) ?? traceOf(previous, 0)) : null;
  const compare = () => {
    byId("compare").checked = true;
    byId("compare").focus(); // the button is removed
    showLatest();
  };
  change = makeChange(before, traces.at(-1), previous && compare);
  change.draw();
}

/** Make the shown trace's request the last one, such as after a failed request. */
function resetRequest() {
  const { ids, changes } = traceHistory.at(-1);
  lastRequest = { text: { ids }, changes };
}

/** Return to the previous trace. */
function goBack() {
  runLatest(async () => () => {
    traceHistory.pop();
    byId("prompt").value = traceHistory.at(-1).text;
    showLatest();
  });
}

/** Whether one of the texts is in the box. */
function isTyped(...texts) {
  const asTyped = (words) => words?.replace(/\r\n?/g, "\n"); // textareas normalize line ends
  return texts.map(asTyped).includes(byId("prompt").value);
}

/** Whether the text in the box is the one shown. */
const isShownTyped = () => isTyped(traceHistory.at(-1).typed, traceHistory.at(-1).text);

/** Show whether the text in the box differs from the one shown, and whether it is being computed. */
function markUnsent() {
  showSpecialNames();
  const isComputed = byId("explore").ariaBusy === "true" && isTyped(lastRequest.text.text);
  const isShown = isShownTyped();
  markTyping(!isShown);
  byId("unsent").hidden = isShown || isTyped(refused);
  byId("explore").classList.toggle("refused", !isShown && refused !== null); // what is shown is of another text
  byId("unsent").textContent = isComputed ? say("computing …") : "";
}

/** The names of special tokens that are typed. */
const namesTyped = () => traceHistory.at(-1).special.names.filter((name) => byId("prompt").value.includes(name));

const tracePrompt = () => requestTrace({ text: byId("prompt").value, special: namesTyped().filter((name) => meant.has(name)) }, lastRequest.changes);

/** For each name of a special token that is typed, whether it is read as this token. */
function showSpecialNames() {
  const names = namesTyped();
  const boxes = () => [...byId("special-names").querySelectorAll("input")];
  const change = ({ target: { checked, value } }) => {
    meant[checked ? "add" : "delete"](value);
    tracePrompt();
  };
  const boxOf = (name) => checkboxOf({ value: name }, say("read {name} as one token", { name }), change);
  // If they are the same, one of them may have focus.
  if (boxes().map(({ value }) => value).join() !== names.join()) byId("special-names").replaceChildren(...names.map(boxOf));
  for (const box of boxes()) box.checked = meant.has(box.value);
}

/** Take from the shown trace which names in its text are tokens, such as in a link's or a generated one. */
function markMeant() {
  const { typed = "", text, tokens, special } = traceHistory.at(-1);
  const { split } = specialNamesIn(tokens, special);
  const names = special.names.filter((name) => typed.includes(name) || text.includes(name)); // as read, text may lack capitals
  for (const name of names) meant[split.includes(name) ? "delete" : "add"](name);
}

/** Type the text that is shown, instead of one that was refused. */
function restoreText() {
  byId("prompt").value = traceHistory.at(-1).text;
  refused = null;
  showStatus("");
  markMeant();
  markUnsent();
  byId("prompt").focus();
}

/** Whether a text is only white space. */
const isBlank = (tokens) => tokens.every(({ bytes }) => bytes.split(" ").every((byte) => /^(|09|0a|0b|0c|0d|20)$/.test(byte)));

/** Update the title, the notes and the controls for the last trace. */
function markLatest() {
  markMeant();
  markUnsent();
  const { model, excerpt, tokens } = traceHistory.at(-1);
  document.title = `${["attnlab", model].filter(Boolean).join(" ")}: ${excerpt.slice(0, 60)}`;
  showStatus(isBlank(tokens) ? say("The text is only white space.") : "");
  byId("compare").disabled = byId("back").disabled = traceHistory.length < 2;
  byId("sampled").replaceChildren();
  lastGenerated = undefined;
  markAblated();
}

// ---- ablation ------------------------------------------------------------------------------------

/** Make a change, such as the ablation of a head or MLP, or undo it. */
function toggle(change) {
  const { text, changes } = lastRequest;
  requestTrace(text, toggled(changes, change, (other) => isAmong([other], change)));
}

/** Whether a change edits this step of the open head. */
const isOfStep = (change, step) => isSame(change, selection) && (change.step ?? change.kind) === step;

const changeOf = (step) => lastRequest.changes.find((change) => isOfStep(change, step));

/** Make a change of a step of the open head instead of another one; null undoes it. */
function changeStep(step, change) {
  const { text, changes } = lastRequest;
  const others = changes.filter((change) => !isOfStep(change, step));
  const { layer, head } = selection;
  requestTrace(text, change ? [...others, { layer, head, ...change }] : others);
}

/** The cell of the open head's mask that is pointed at or selected, [query, key], in the last trace. */
function cellOfMask() {
  const { query, key } = describedCell();
  const { number } = traces.at(-1);
  const cell = [alignment.queries[query]?.[number], alignment.keys[key]?.[number]];
  return cell.every(Number.isInteger) ? cell : null;
}

/** The cells of the open head's mask that are toggled, as [query, key]. */
const toggledCells = () => changeOf("mask")?.cells ?? [];

/** A list without an element, or with it if it lacks it; `isEqual` to the element. */
function toggled(list, element, isEqual) {
  const others = list.filter((other) => !isEqual(other));
  return others.length < list.length ? others : [...list, element];
}

/** Toggle a cell of the open head's mask: whether the query may attend to the key. */
function toggleCell() {
  const cell = cellOfMask();
  if (!cell) return;
  const cells = toggled(toggledCells(), cell, (other) => other.join() === cell.join());
  changeStep("mask", cells.length ? { kind: "mask", cells } : null);
}

/** List what is ablated or edited, and show it in the controls of the open head. */
function markAblated() {
  const { changes } = lastRequest;
  byId("ablated").hidden = !changes.length;
  byId("ablated").replaceChildren(
    changes.every(isAblation) ? say("Ablated:") : say("Edited:"),
    ...changes.map((change) => {
      const name = nameOfChange(change);
      const undo = () => {
        byId("prompt").focus(); // this button is removed
        toggle(change);
      };
      return buttonOf(undo, { "aria-label": say("{name}: undo the ablation", { name }) }, name, make("span", {}, " ×"));
    }),
  );
  markToggles();
}

/** Show the open head's changes in the controls that make them. */
function markToggles() {
  const { layer, head } = selection;
  const isAblated = isAmong(lastRequest.changes, ablationOf(layer, head));
  byId("head-toggle").textContent = isAblated ? say("Restore this head (S)") : say("Ablate this head (S)");
  const isMlpAblated = isAmong(lastRequest.changes, ablationOf(layer));
  byId("mlp-toggle").textContent = isMlpAblated ? say("Restore the MLP of layer {layer}", { layer }) : say("Ablate the MLP of layer {layer}", { layer });
  showFactor(100 * (changeOf(byId("changed-step").value)?.factor ?? 1));
  byId("cell-toggle").ariaPressed = String(toggledCells().some((cell) => cell.join() === cellOfMask()?.join()));
  byId("patch").disabled = traceHistory.length < 2;
  for (const kind of ["uncausal", "unscaled"]) byId(kind).checked = isAmong(lastRequest.changes, { kind });
}

function showFactor(percent) {
  byId("factor").value = percent;
  byId("factor").nextElementSibling.textContent = `× ${(percent / 100).toFixed(2)}`;
}

/** Controls that edit a step of the open head (scale it, or take it from another text) or all heads. */
function makeChanges() {
  const step = make("select", { id: "changed-step", change: markToggles }, ...STEPS_TO_CHANGE.map((name) => make("option", {}, name)));
  step.value = "weights";
  const input = ({ target }) => showFactor(target.valueAsNumber);
  const change = ({ target: { valueAsNumber: percent } }) =>
    changeStep(step.value, percent === 100 ? null : { kind: "scale", step: step.value, factor: percent / 100 });
  const factor = make("input", { id: "factor", type: "range", min: "0", max: "200", step: "5", "aria-label": say("Factor"), input, change });
  const toggleOf = (kind, words) => checkboxOf({ id: kind }, words, () => toggle({ kind }));
  const patch = () => changeStep(step.value, { kind: "patch", step: step.value, ids: traceHistory.at(-2).ids });
  return make(
    "details",
    { id: "changes" },
    make("summary", {}, say("Edit a step")),
    controlsOf(step, make("span", {}, factor, make("span", { class: "value" })), controlOf("patch", say("Use the previous text's values"), patch)),
    controlsOf(controlOf("cell-toggle", say("Toggle the selected cell of the mask (M)"), toggleCell)),
    controlsOf(toggleOf("uncausal", say("Remove the causal mask")), toggleOf("unscaled", say("Don't divide by √Dk"))),
  );
}

// ---- the controls ---------------------------------------------------------------------------------

const controlOf = (id, words, onClick) => buttonOf(onClick, { id }, words);
const controlsOf = (...controls) => make("div", { class: "controls" }, ...controls);

function controls() {
  const seed = make("input", { type: "number", id: "seed", min: "0", step: "1", placeholder: say("random") });
  const count = make("input", { type: "number", id: "count", min: "1", max: "100", value: "10" });
  return make(
    "section",
    { id: "explore", "aria-label": say("Explore") },
    ...promptControls(),
    make("p", { id: "status", role: "status" }),
    make("p", { id: "working" }, make("progress", { id: "progress", "aria-label": say("Computing") }), " ", controlOf("cancel", say("Cancel"), cancel)),
    controlsOf(
      checkboxOf({ id: "compare" }, say("Compare with the previous one"), showLatest),
      controlOf("back", say("Back to the previous one"), goBack),
      make("span", {}, controlOf("write", say("Generate"), continueText), " ", make("label", {}, count, " ", say("tokens")), " ", make("label", {}, say("seed"), " ", seed)),
      make("div", { id: "sampling" }, ...makeSliders()),
      ...openingControls(),
    ),
    make("p", { id: "ablated", class: "note" }),
    make("p", { id: "sampled", class: "note", role: "status" }),
  );
}

/** Make the controls again, in the page's language. */
function remakeControls() {
  const isBusy = byId("explore").ariaBusy === "true";
  byId("special-names").replaceChildren(); // fields are matched by their number
  replaceWithFields(byId("explore"), controls());
  replaceWithFields(byId("toggles"), headControls());
  showSettings();
  followChange();
  const generated = lastGenerated;
  markLatest();
  if (generated) showGenerated(...generated);
  markBusy(byId("explore"), isBusy);
  showProgress(progress);
}

export function makeExplorer() {
  document.querySelector("main").prepend(controls());
  addHeadControls();
  showSettings();
  linkParts.push(linkOfText);
  on("query settings depth level", () => change.draw());
  on("language", remakeControls);
  Object.assign(reports, { status: showStatus, progress: showProgress });
  traceHistory.push(...description.traces);
  resetRequest();
  followChange();
  markLatest();
  followLinkOfText(location.hash, true);
  linkFollowers.push((link) => followLinkOfText(link));
}

const TYPING_MILLISECONDS = 150; // after the last key, what was typed is computed

/** The text area of the sentence, and what writes a next word. Called before the page is shown. */
export function makePrompt() {
  const input = () => {
    markUnsent();
    clearTimeout(typing);
    typing = setTimeout(() => isShownTyped() || tracePrompt(), TYPING_MILLISECONDS);
  };
  const keydown = (event) => {
    // Shift+Enter starts a new line; an input method may use Enter to choose a candidate.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    tracePrompt();
  };
  live.editor = make("textarea", { id: "prompt", rows: "1", spellcheck: "false", input, keydown });
  const label = () => (live.editor.ariaLabel = say("The sentence: type your own"));
  on("language", label);
  label();
  live.editor.value = description.traces[0].text;
  live.open = openIds;
  live.write = writeToken;
  live.toggleWriting = toggleWriting;
  live.complete = completionOf;
}

/** Example texts, and what is said about the typed text. */
function promptControls() {
  const traceExample = (text) => {
    byId("prompt").value = text;
    tracePrompt();
  };
  return [
    make("p", { id: "unsent", role: "status" }),
    make("p", { id: "special-names", class: "note" }),
    make("p", { id: "examples" }, ...description.examples.map((text) => buttonOf(() => traceExample(text), {}, text))),
  ];
}

/** Opening another model. */
function openingControls() {
  const change = () => {
    if (files.files.length) openModel([...files.files]);
    files.value = ""; // so that the same files can be chosen again
  };
  const files = make("input", { type: "file", id: "files", multiple: "", hidden: "", change });
  return [controlOf("open", say("Open a model"), () => files.click()), files];
}

function headControls() {
  const ablateHead = controlOf("head-toggle", "", () => toggle(ablationOf(selection.layer, selection.head)));
  const ablateMlp = controlOf("mlp-toggle", "", () => toggle(ablationOf(selection.layer)));
  return make("div", { id: "toggles" }, ablateHead, ablateMlp, makeChanges());
}

/** Controls at the open head that change it, and what follows from the change. */
function addHeadControls() {
  const title = byId("head-title");
  const cause = make("div", { id: "cause" });
  title.before(cause);
  cause.append(make("div", {}, title, headControls(), byId("is-ablated"), byId("jobs")), make("div", { id: "change" }));
  // S ablates the head that has focus, among all heads or in its map; M toggles a cell of its mask.
  for (const id of ["every-head", "heatmaps"])
    byId(id).addEventListener("keydown", ({ key, target, ctrlKey, altKey, metaKey }) => {
      if (ctrlKey || altKey || metaKey) return;
      const { layer, head } = target.layer === undefined ? selection : target;
      if (key.toLowerCase() === "s") toggle(ablationOf(layer, head));
      if (key.toLowerCase() === "m" && id === "heatmaps") toggleCell();
    });
  onOpened(markToggles);
}
