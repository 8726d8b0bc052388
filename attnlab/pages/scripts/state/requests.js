// Requests of a page with a model: to trace a text with changes. A newer request replaces an older one. The traces are
// kept, so that the reader can compare with them and return to them.

import { changeFrom, isPossible, textOfChange } from "../numbers/changes.js";
import { brief } from "../numbers/formats.js";
import { description, say } from "../sources/description.js";
import { reports, source } from "../sources/source.js";
import { openTraces } from "./actions.js";
import { followLink, linkFollowers, linkParts, startEntry } from "./link.js";
import { changed, isLook, on, selection, set } from "./store.js";
import { openStory } from "./story.js";
import { traces } from "./traces.js";

const MAX_KEPT = 100; // the most traces that are kept
const TYPING_MILLISECONDS = 150; // a typed text is traced when no key has been pressed for so long

export const requests = {
  kept: [], // the traces' descriptions; the last one is shown
  last: null, // the last request, {input, changes}, see `requestTrace`
  refused: null, // the typed text of the last request, if the model couldn't read it
};

let pending; // the AbortController of the pending request
let typing; // the timer that traces the typed text

/** The description of the trace that is shown; if two are shown, the later one's. */
export const latest = () => requests.kept.at(-1);

/** Trace an input, {text, special} or {ids}, with changes, see source.js. */
function requestTrace(input, changes) {
  const typedBefore = selection.typed;
  requests.last = { input, changes };
  return request(async (signal) => {
    const trace = await source.open(input, changes, signal);
    return () => {
      const hasSameIds = latest().ids.join() === trace.ids.join();
      // If a next word was written, the text area shows the new text, unless the reader has typed since.
      const isWritten = input.ids && !hasSameIds;
      if (isWritten && selection.typed === typedBefore) set({ typed: trace.text });
      // An edit keeps the text as it was typed. The text of the tokens may differ from it.
      showTrace({ ...trace, typed: hasSameIds ? (input.text ?? latest().typed) : input.text });
    };
  });
}

/** Trace the same text with other changes. */
export const requestChanges = (changes) => requestTrace(requests.last.input, changes);
export const openIds = (ids) => requestTrace({ ids }, requests.last.changes);

/** Write a next token, {id}. */
export const writeToken = ({ id }) => openIds([...latest().ids, id]);

/** Trace the typed text. Names of special tokens in it, such as <|endoftext|>, are read as these tokens. */
export function requestTyped() {
  clearTimeout(typing); // Enter was pressed before the timer ended
  return requestTrace({ text: selection.typed, special: latest().special.names }, requests.last.changes);
}

/** Take a text that the reader has typed, and trace it when no key has followed for a while. */
export function typeText(text) {
  set({ typed: text, isWriting: false });
  clearTimeout(typing);
  typing = setTimeout(() => isTypedTextShown() || requestTyped(), TYPING_MILLISECONDS);
}

/** Whether the typed text is the one that is shown. */
export function isTypedTextShown() {
  const asTyped = (words) => words?.replace(/\r\n?/g, "\n"); // textareas normalize line ends
  return [latest().typed, latest().text].map(asTyped).includes(asTyped(selection.typed));
}

/** Send a request, then call the function that it resolves to, unless a newer request has replaced it. */
async function request(send) {
  pending?.abort();
  const controller = (pending = new AbortController());
  requests.refused = null;
  set({ status: "", isBusy: true });
  changed("request");
  const apply = await send(controller.signal).catch((error) => () => refuse(error));
  if (controller !== pending) return;
  set({ isBusy: false });
  apply();
}

/** Keep the trace that is shown, after a request that was cancelled or refused. */
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
  requests.last = { input: { ids }, changes };
}

/** Show a trace, and keep it. */
function showTrace(trace) {
  const { kept } = requests;
  startEntry();
  if (latest().id === trace.id) kept.pop();
  kept.push(trace);
  if (kept.length > MAX_KEPT) kept.shift();
  showLatest();
}

/** Show the last trace, next to the previous one if they are compared. */
async function showLatest() {
  resetLast();
  if (isLook() && traces[0].ids.join() !== latest().ids.join()) set({ isHeadChosen: false }); // the page may choose one
  const opening = openTraces(requests.kept.slice(selection.isComparing ? -2 : -1));
  openStory();
  set({ status: "" });
  changed("request");
  await opening;
}

/** Cancel the pending request; if there is none, drop the trace whose numbers are being computed. */
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

/** Trace the text of a link. If `replacesOpened`, the trace replaces the one that the page opened with. */
export function followLinkOfText(link, { replacesOpened = false } = {}) {
  const values = new URLSearchParams(link.slice(1));
  const parse = (text) => text.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part)); // refused later
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
      if (isBack || replacesOpened || latest().id === trace.id) kept.pop();
      if (!isBack) kept.push(trace);
      set({ typed: trace.text });
      await showLatest();
      if (problem) set({ status: problem });
      followLink(link); // again: only now do the tokens that it names exist
    };
  });
}

/** Open a link's text with those of its edits that the model can make; `problem` says which are left out. */
async function openLinked(input, linkedChanges, signal) {
  const { layers, H } = traces.at(-1);
  const sizes = { layers, H, T: input.ids.length };
  const changes = linkedChanges.map(changeFrom);
  const isWrong = (change) => !change || !isPossible(change, sizes);
  const wrong = linkedChanges.filter((_, n) => isWrong(changes[n])).map((text) => brief(text));
  const edits = wrong.join(" · ");
  const problem =
    wrong.length && say("Edits in the link that this model or text doesn't have aren't applied: {edits}", { edits });
  const possible = changes.filter((change) => !isWrong(change));
  return { trace: await source.open(input, possible, signal), problem };
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
