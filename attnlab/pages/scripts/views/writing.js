// How a page with a model continues the text: it completes words, and writes sampled tokens until it is stopped.

import { source } from "../sources/source.js";
import { blanksAtEnd, END_OF_TEXT } from "../state/live.js";
import { latest, openIds, writeToken } from "../state/requests.js";
import { selection, set, settings } from "../state/store.js";

const MAX_FURTHER_TOKENS = 3; // the most tokens that complete a word
const MILLISECONDS_A_WORD = 700; // the pause after each word that the page writes by itself

let turn = 0; // how often the page has begun to write by itself; an earlier turn stops when a new one begins

/** What follows a token in the same word, by the most probable tokens; "" if the word ends, or if this is cancelled. */
export async function completionOf({ ids, changes, names }, id) {
  if (!/[a-z]$/i.test(names.get(id).symbol) || ids.length + MAX_FURTHER_TOKENS >= source.config.n_positions) return "";
  const mostProbable = { count: MAX_FURTHER_TOKENS, temperature: 0, top_k: null, top_p: null };
  const cancelled = { chosen: [] };
  const { chosen } = await source.generate({ ids: [...ids, id], changes }, mostProbable).catch(() => cancelled);
  const end = chosen.findIndex(({ text }) => !/^[a-z’']/.test(text)); // any other character ends the word
  return chosen.slice(0, end < 0 ? chosen.length : end).map(({ text }) => text).join("");
}

/** Write by itself, a sampled token at a time, until the text ends, the reader stops it, or the model is full. */
export async function toggleWriting() {
  if (selection.isWriting) return set({ isWriting: false });
  const thisTurn = ++turn;
  const continues = () => selection.isWriting && turn === thisTurn;
  set({ isWriting: true });
  try {
    const { length } = blanksAtEnd(latest());
    if (length) await openIds(latest().ids.slice(0, -length)); // the next word begins with a blank
    while (continues()) {
      const trace = latest();
      if (trace.ids.length >= source.config.n_positions) break;
      const { chosen } = await source.generate(trace, { count: 1, ...settings });
      if (!continues() || chosen[0].symbol === END_OF_TEXT || latest() !== trace) break;
      await writeToken(chosen[0]);
      if (latest() === trace) break; // it was refused
      await new Promise((done) => setTimeout(done, MILLISECONDS_A_WORD));
    }
  } catch (error) {
    if (error.name !== "AbortError") set({ status: error.message }); // the page's status already says “Cancelled.”
  }
  if (turn === thisTurn) set({ isWriting: false });
  return undefined;
}
