// The notice on the text: which words the model reads in small pieces or not at all, which names of special
// tokens it reads like words, whether the text ends in blanks, and what to do.

import { percent } from "../numbers/formats.js";
import { UNCHANGED } from "../numbers/predictions.js";
import { difficultIn } from "../numbers/words.js";
import { joinSentences, say, sayParts, spaceBetween } from "../sources/description.js";
import { source, withProbabilities } from "../sources/source.js";
import { blanksAtEnd, live } from "../state/live.js";
import { on, selection } from "../state/store.js";
import { traces } from "../state/traces.js";
import { buttonOf, byId, make } from "../drawing/elements.js";
import { prefixOf } from "../drawing/names.js";

const spelledOutInWords = (values) =>
  say(
    "Not in this model's vocabulary, so read in three or more pieces, or in pieces of at most two letters: {words}.",
    values,
  );

/** The notice on a trace's text, as in attnlab/model/notice.py; "" if there is nothing to say. */
function noticeOn({ training, advice, id, special }, { split, unknown, spelledOut, unread, scripts }) {
  const listed = (words) => ({ words: words.join(" · ") });
  const isAdvised = spelledOut.length || unread.length;
  const advised = new Set(scripts.filter((script) => script in advice).map((script) => say(advice[script])));
  return joinSentences(
    split.length && say("Names of special tokens, read as plain characters: {words}.", listed(split)),
    // In a page with a model, names that are typed are these tokens.
    split.length &&
      id === undefined &&
      say("To mean the tokens: trace(text, special=True) in Python, --special in a command."),
    split.length && !special.isExact && say("Names of tokens must be written exactly so."),
    unknown.length &&
      say("This model has no special tokens of these names, so it reads them in pieces: {words}.", listed(unknown)),
    spelledOut.length && spelledOutInWords(listed(spelledOut)),
    unread.length && say("This model can't read at all, and sees as an unknown token: {words}.", listed(unread)),
    ...(isAdvised ? [training, ...advised] : []),
  );
}

/** Say of a text that ends in blanks or line breaks what comes next without them. */
async function noticeOnBlanks(trace) {
  const blanks = blanksAtEnd(trace);
  if (!blanks.length) return;
  const isLineBreak = blanks.some(({ bytes }) => bytes.includes("0a"));
  const words = isLineBreak
    ? say("This text ends in a line break, which the model reads as a token of its own.")
    : say("This text ends in a blank, which the model reads as a token of its own.");
  const element = make("p", { class: "blank" }, prefixOf(trace), words);
  byId("notice").append(element);
  const position = trace.T - 1 - blanks.length;
  if (position >= trace.prediction.first && !selection.isPredicting) {
    const { ids, renormalized } = withProbabilities(trace, await source.predictionAfter(trace, position), UNCHANGED);
    const next = make("b", {}, trace.names.get(ids[0]).text.trim() || "␣");
    const values = { next, share: percent(renormalized[0]) };
    element.append(spaceBetween(), ...sayParts("Without it, “{next}” would come next, with {share}.", values));
  }
  if (!live.editor) return;
  const remove = () => {
    live.editor.focus(); // the button is removed
    live.open(trace.ids.slice(0, -blanks.length));
  };
  element.append(" ", buttonOf(remove, {}, isLineBreak ? say("Remove the line break") : say("Remove the blank")));
}

function showNotice() {
  const difficult = traces.map(({ words, tokens, special }) => difficultIn(words, tokens, special));
  const notices = traces.map((trace, n) => [trace, noticeOn(trace, difficult[n])]).filter(([, notice]) => notice);
  // In a language that the model wasn't trained on, the numbers say nothing about the text, so Look hides them.
  const isStrange = difficult.every(({ isInDoubt, scripts }) => isInDoubt && scripts.includes("other"));
  document.body.classList.toggle("strange", isStrange && traces.every(({ advice }) => advice.other));
  byId("notice").replaceChildren(...notices.map(([trace, notice]) => make("p", {}, prefixOf(trace), notice)));
  traces.forEach(noticeOnBlanks);
}

export function startNotice() {
  on("traces language isPredicting", showNotice);
  // The notice can be focused if a part is folded: the focus unfolds it, see page.css.
  const isFolded = (part) => part.scrollHeight > part.clientHeight + 1;
  const markFolded = () => (byId("notice").tabIndex = [...byId("notice").children].some(isFolded) ? 0 : -1);
  new ResizeObserver(markFolded).observe(byId("notice"));
  byId("show-anyway").addEventListener("click", () => document.body.classList.remove("strange"));
}
