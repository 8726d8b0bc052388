// One row of a head's softmax, number by number: from a query's scores to its weights.

import { fixed } from "../numbers/formats.js";
import { mostLookedAt } from "../numbers/looks.js";
import { say, sayParts } from "../sources/description.js";
import { buttonOf, make } from "../drawing/elements.js";
import { shareWriter } from "./stage.js";

/** A number in words, with all its digits; it is a button if `open` shows how it is computed. */
function numberCell(x, words, open) {
  const data = make("data", { value: String(x) }, words);
  return make("td", {}, open ? buttonOf(open, { class: "leads" }, data) : data);
}

/**
 * A table of the keys of a query, with their weights. If scores are given, it also shows how they become weights.
 *
 * scores: of the keys that the mask leaves visible, -Infinity for others; null if only the weights are known
 * open(step, j): shows how the step's number at key j is computed; null if the page can't
 */
export function softmaxRow(shown, query, row, scores = null, open = null) {
  const key = mostLookedAt(row, shown.isSelf ? query : -1);
  const writtenShare = shareWriter(row);
  const largest = scores && Math.max(...scores);
  const exponentials = scores?.map((score) => Math.exp(score - largest));
  const sum = exponentials?.reduce((total, x) => total + x, 0);
  const rows = shown.keys.flatMap((text, j) => {
    if (scores ? scores[j] === -Infinity : shown.isCausal && j > query) return [];
    const bar = make("i");
    bar.style.width = `${100 * Math.max(0, Math.min(1, row[j]))}%`;
    const steps = scores
      ? [
          numberCell(scores[j], fixed(scores[j], 2), open && (() => open("scores", j))),
          numberCell(exponentials[j], fixed(exponentials[j], 3)),
        ]
      : [];
    const weight = numberCell(row[j], writtenShare(row[j]), open && (() => open("weights", j)));
    return [
      make(
        "tr", { class: j === key ? "most" : "" }, make("th", { scope: "row" }, text.trim() || "␣"),
        ...steps,
        weight,
        make("td", { class: "share-bar" }, bar),
      ),
    ];
  });
  const headings = scores
    ? [say("key"), "score = q · k / √Dk", "exp(score − largest)", say("÷ {sum}, their sum", { sum: fixed(sum, 3) }), ""]
    : [say("key"), say("weight"), ""];
  const caption = make(
    "caption", {},
    ...sayParts("Where “{query}” looks, word by word", { query: make("bdi", {}, shown.queries[query].trim()) }),
  );
  const headingOf = (words) => (words ? make("th", { scope: "col" }, words) : make("td"));
  const head = make("thead", {}, make("tr", {}, ...headings.map(headingOf)));
  return make("table", {}, caption, head, make("tbody", {}, ...rows));
}
