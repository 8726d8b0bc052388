// Which words of a text the model reads in small pieces or not at all, and what to do: before the headline, which then
// steps back.

import { difficultIn } from "../numbers/words.js";
import { joinSentences, say, sayStored } from "../sources/description.js";
import { on } from "../state/store.js";
import { traces } from "../state/traces.js";
import { byId, make } from "../drawing/draw.js";
import { prefixOf } from "../drawing/names.js";

/** The notice on a trace's text, as in attnlab/model/notice.py; "" if there is nothing to say. */
export function noticeOn({ training, advice }, { spelledOut, unread, scripts }) {
  if (!spelledOut.length && !unread.length) return "";
  const listed = (words) => ({ words: words.join(" · ") });
  const advised = new Set(scripts.filter((script) => script in advice).map((script) => sayStored(advice[script])));
  return joinSentences(
    spelledOut.length && say("Not in this model's vocabulary, so read in three or more pieces, or in pieces of at most two letters: {words}.", listed(spelledOut)),
    unread.length && say("This model can't read at all, and sees as an unknown token: {words}.", listed(unread)),
    ...[training, ...advised],
  );
}

function showNotice() {
  const difficult = traces.map((trace) => difficultIn(trace.words, trace.tokens));
  const notices = traces.map((trace, n) => [trace, noticeOn(trace, difficult[n])]).filter(([, notice]) => notice);
  byId("notice").replaceChildren(...notices.map(([trace, notice]) => make("p", {}, prefixOf(trace), notice)));
  byId("story").classList.toggle("in-doubt", difficult.some(({ isInDoubt }) => isInDoubt));
}

export const startNotice = () => on("traces language", showNotice);
