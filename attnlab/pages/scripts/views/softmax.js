// One row of a head's softmax, number by number: from a query's scores to its weights.

import { fixed } from "../numbers/formats.js";
import { mostLookedAt } from "../numbers/looks.js";
import { say, sayParts } from "../sources/description.js";
import { buttonOf, exact, make, tableOf } from "../drawing/elements.js";
import { shareWriter } from "./stage.js";

/** A cell with a number as the given text. It is a button if there is an `open`, which shows how it is computed. */
function numberCell(x, words, open) {
  const data = exact(x, words);
  return make("td", {}, open ? buttonOf(open, { class: "leads" }, data) : data);
}

/**
 * A table of the keys of a query, with their weights. If scores are given, it also shows how they become weights.
 *
 * scores: the keys' scores, -Infinity for those that the mask hides; null if only the weights are known
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
  const named = { query: make("bdi", {}, shown.queries[query].trim()) };
  return tableOf(make("span", {}, ...sayParts("Where “{query}” looks, word by word", named)), headings, rows);
}
