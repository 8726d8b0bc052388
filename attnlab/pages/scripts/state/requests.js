// Requests of a page with a model: to trace a text with changes. A newer request replaces an older one. The answers,
// traces, are kept, to compare with them and to return to them.

import { changeFrom, isPossible, textOfChange } from "../numbers/changes.js";
import { brief } from "../numbers/formats.js";
import { description, say } from "../sources/description.js";
import { reports, source } from "../sources/source.js";
import { openTraces } from "./actions.js";
import { followLink, linkFollowers, linkParts, startEntry } from "./link.js";
import { changed, isLook, on, selection, set } from "./store.js";
import { openStory } from "./story.js";
import { traces } from "./traces.js";

const MOST_KEPT = 100; // traces
const QUICK_MILLISECONDS = 50; // the page shows that a request is computed if it takes longer

export const requests = {
  kept: [], // the traces' descriptions; the last one is shown
  last: null, // the last request: its `text`, {text} or {ids}, and its `changes`
  refused: null, // the typed text of the last request, if the model couldn't read it
};

const TYPING_MILLISECONDS = 150; // after the last key, what was typed is computed

let pending; // aborts the pending request
let typing; // the timer of what was typed last

/** The description of the trace that is shown; of two, of the later one. */
export const latest = () => requests.kept.at(-1);

/** Trace a text, {text} or {ids}, with changes, see source.js. */
function requestTrace(text, changes) {
  const { typed } = selection;
  requests.last = { text, changes };
  return request(async (signal) => {
    const trace = await source.open(text, changes, signal);
    return () => {
      const hasSameIds = latest().ids.join() === trace.ids.join();
      // If a next word was written, the text area shows the new text, unless the reader has typed since.
      if (text.text === undefined && !hasSameIds && selection.typed === typed) set({ typed: trace.text });
      showTrace({ ...trace, typed: text.text ?? (hasSameIds ? latest().typed : undefined) });
    };
  });
}

/** Trace the same text with other changes. */
export const requestChanges = (changes) => requestTrace(requests.last.text, changes);

export const openIds = (ids) => requestTrace({ ids }, requests.last.changes);

/** Write a next token, {id}. */
export const writeToken = ({ id }) => openIds([...latest().ids, id]);

/** Trace the typed text; names of special tokens, such as <|endoftext|>, are these tokens. */
export function requestTyped() {
  clearTimeout(typing); // Enter was pressed first
  return requestTrace({ text: selection.typed, special: latest().special.names }, requests.last.changes);
}

/** The reader has typed a text: trace it when no key has followed for a while. */
export function typeText(text) {
  set({ typed: text, isWriting: false });
  clearTimeout(typing);
  typing = setTimeout(() => isShownTyped() || requestTyped(), TYPING_MILLISECONDS);
}

/** Whether one of the texts is typed. */
function isTyped(...texts) {
  const asTyped = (words) => words?.replace(/\r\n?/g, "\n"); // textareas normalize line ends
  return texts.map(asTyped).includes(asTyped(selection.typed));
}

/** Whether the typed text is the one that is shown, was refused, or is being computed. */
export const isShownTyped = () => isTyped(latest().typed, latest().text);
export const isRefusedTyped = () => isTyped(requests.refused);
export const isRequestTyped = () => isTyped(requests.last.text.text);

/** Send a request, then call the function that it resolves to, unless a newer request has replaced it. */
async function request(send) {
  pending?.abort();
  const controller = (pending = new AbortController());
  requests.refused = null;
  set({ status: "", isBusy: true });
  const showing = setTimeout(() => changed("request"), QUICK_MILLISECONDS);
  const apply = await send(controller.signal).catch((error) => () => refuse(error));
  clearTimeout(showing);
  if (controller !== pending) return;
  set({ isBusy: false });
  apply();
}

/** Stay at the trace that is shown, after a request that was cancelled or refused. */
function refuse(error) {
  const isCancelled = error.name === "AbortError";
  if (!isCancelled) requests.refused = selection.typed;
  resetLast();
  set({ status: isCancelled ? say("Cancelled.") : error.message });
  changed("request");
}

/** Type the text that is shown, instead of one that was refused. */
export function restoreText() {
  requests.refused = null;
  set({ status: "", typed: latest().text });
}

/** Make the shown trace's request the last one, such as after a failed request. */
function resetLast() {
  const { ids, changes } = latest();
  requests.last = { text: { ids }, changes };
}

/** Show a trace, and keep it. */
function showTrace(trace) {
  const { kept } = requests;
  startEntry();
  if (latest().id === trace.id) kept.pop();
  kept.push(trace);
  if (kept.length > MOST_KEPT) kept.shift();
  showLatest();
}

/** Show the last trace, next to the previous one if they are compared. */
async function showLatest() {
  resetLast();
  if (isLook() && traces[0].ids.join() !== latest().ids.join()) set({ isHeadChosen: false });
  const opening = openTraces(requests.kept.slice(selection.isComparing ? -2 : -1));
  openStory();
  set({ status: "" });
  changed("request");
  await opening;
}

/** Cancel the computation; if the last trace's numbers are incomplete, return to the trace before. */
export function cancel() {
  if (selection.isBusy) return pending.abort();
  source.stop();
  if (requests.kept.length > 1) {
    requests.kept.pop();
    set({ typed: latest().text });
    showLatest();
  }
  return set({ status: say("Cancelled.") });
}

// ---- the link --------------------------------------------------------------------------------------

/** A trace's part of the link, such as #ids=12.7&ablate=0.1+1, which ablates head 0.1 and MLP 1. */
function linkOf({ ids, changes }) {
  const ablate = changes.map(textOfChange).join(" ");
  return { ids: ids.join("."), ...(ablate && { ablate }) };
}

const linkOfText = () => linkOf(latest());

const isSameText = (a, b) => a.ids === b.ids && (a.ablate ?? "") === (b.ablate ?? "");

/** Trace the text of a link; if `isFirst`, the trace replaces the one that the page opened with. */
export function followLinkOfText(link, isFirst = false) {
  const values = new URLSearchParams(link.slice(1));
  const parse = (text) => text.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part));
  // A link that only has changes is about the shown text.
  const { ids = values.has("ablate") ? linkOfText().ids : "", ablate = "" } = Object.fromEntries(values);
  if (!ids || isSameText({ ids, ablate }, linkOfText())) return;
  set({ isWriting: false });
  request(async (signal) => {
    const { trace, problem } = await openLinked({ ids: parse(ids) }, ablate.split(" ").filter(Boolean), signal);
    return async () => {
      const { kept } = requests;
      // If the link is the previous trace's, the reader went back in the browser's history.
      const isBack = kept.length > 1 && isSameText(linkOf(kept.at(-2)), linkOf(trace));
      if (isBack || isFirst || latest().id === trace.id) kept.pop();
      if (!isBack) kept.push(trace);
      set({ typed: trace.text });
      await showLatest();
      if (problem) set({ status: problem });
      followLink(link); // again, now that the tokens that it names exist
    };
  });
}

/** Open a link's text with its changes, if the model has what they edit; `problem` says which are left out. */
async function openLinked(text, texts, signal) {
  const { layers, H } = traces.at(-1);
  const sizes = { layers, H, T: text.ids.length };
  const changes = texts.map(changeFrom);
  const isWrong = (change) => !change || !isPossible(change, sizes);
  const wrong = texts.filter((_, n) => isWrong(changes[n])).map((text) => brief(text));
  const edits = wrong.join(" · ");
  const problem =
    wrong.length && say("Edits in the link that this model or text doesn't have aren't applied: {edits}", { edits });
  const possible = changes.filter((change) => !isWrong(change));
  return { trace: await source.open(text, possible, signal), problem };
}

export function startRequests() {
  requests.kept = [...description.traces];
  resetLast();
  set({ typed: latest().text });
  linkParts.push(linkOfText);
  linkFollowers.push((link) => followLinkOfText(link));
  on("isComparing", showLatest);
  reports.status = (status) => set({ status });
}
