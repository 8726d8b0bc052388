// Which words of a text the model reads in small pieces, and what to do: before the headline, which then steps back.

import { spelledOut } from "../numbers/words.js";
import { say } from "../sources/description.js";
import { on } from "../state/store.js";
import { traces } from "../state/traces.js";
import { byId, make } from "../drawing/draw.js";
import { prefixOf } from "../drawing/names.js";

function showNotice() {
  const notices = traces.map((trace) => ({ trace, ...spelledOut(trace.words) })).filter(({ shown }) => shown.length);
  byId("notice").replaceChildren(
    ...notices.map(({ trace, shown }) => {
      const values = { words: shown.join(" · "), training: trace.training };
      return make("p", {}, prefixOf(trace), say("Not in this model's vocabulary, so read in the smallest pieces: {words}. {training}", values));
    }),
  );
  byId("story").classList.toggle("in-doubt", notices.some(({ isInDoubt }) => isInDoubt));
}

export const startNotice = () => on("traces language", showNotice);
