// Which words of a text the model reads in small pieces or not at all, which names of special tokens it reads like words,
// and what to do: before the headline, which then steps back.

import { difficultIn } from "../numbers/words.js";
import { joinSentences, say, sayStored } from "../sources/description.js";
import { on } from "../state/store.js";
import { traces } from "../state/traces.js";
import { byId, make } from "../drawing/draw.js";
import { prefixOf } from "../drawing/names.js";

/** The notice on a trace's text, as in attnlab/model/notice.py; "" if there is nothing to say. */
export function noticeOn({ training, advice, id, special }, { split, unknown, spelledOut, unread, scripts }) {
  const listed = (words) => ({ words: words.join(" · ") });
  const isAdvised = spelledOut.length || unread.length;
  const advised = new Set(scripts.filter((script) => script in advice).map((script) => sayStored(advice[script])));
  return joinSentences(
    split.length && say("Names of special tokens, read as plain characters: {words}.", listed(split)),
    // A page with a model has a checkbox for each.
    split.length && id === undefined && say("To mean the tokens: trace(text, special=True) in Python, --special in a command."),
    split.length && !special.isExact && say("Names of tokens must be written exactly so."),
    unknown.length && say("This model has no special tokens of these names, so it reads them in pieces: {words}.", listed(unknown)),
    spelledOut.length && say("Not in this model's vocabulary, so read in three or more pieces, or in pieces of at most two letters: {words}.", listed(spelledOut)),
    unread.length && say("This model can't read at all, and sees as an unknown token: {words}.", listed(unread)),
    ...(isAdvised ? [training, ...advised] : []),
  );
}

function showNotice() {
  const difficult = traces.map(({ words, tokens, special }) => difficultIn(words, tokens, special));
  const notices = traces.map((trace, n) => [trace, noticeOn(trace, difficult[n])]).filter(([, notice]) => notice);
  byId("notice").replaceChildren(...notices.map(([trace, notice]) => make("p", {}, prefixOf(trace), notice)));
  byId("story").classList.toggle("in-doubt", difficult.some(({ isInDoubt }) => isInDoubt));
}

export const startNotice = () => on("traces language", showNotice);
