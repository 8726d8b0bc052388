// The levels of the page's simpler mode, Look: the model, a block, a head, one of its matrices, a number. Each
// opens from the one before, by pointer or Enter; Escape, the breadcrumb and the browser's Back return to it.

import { brief, wordOf } from "../numbers/formats.js";
import { say } from "../sources/description.js";
import { isLook, LEVELS, on, selection } from "../state/store.js";
import { alignment, traces } from "../state/traces.js";
import { byId, make } from "../drawing/draw.js";
import { zoomTo } from "../drawing/levels.js";

/** The breadcrumb: the levels from the model to the current one. */
function showCrumbs() {
  const { layer, head, step } = selection;
  const { query, key } = selection.openCell ?? selection;
  const label = (positions, tokens) => {
    const number = positions.findIndex((n) => n !== null); // the first trace that has it
    return brief(wordOf(traces[number][tokens][positions[number]].symbol));
  };
  const names = {
    model: () => say("Model"),
    block: () => say("Layer {layer}", { layer }),
    head: () => say("Head {head}", { head }),
    matrix: () => step,
    number: () => `“${label(alignment.queries[query], "tokens")}” → “${label(alignment.keys[key], "keys")}”`,
  };
  const deepest = LEVELS.indexOf(selection.level);
  byId("crumbs").hidden = !isLook() || deepest === 0;
  byId("crumbs").firstElementChild.replaceChildren(
    ...LEVELS.slice(0, deepest + 1).map((level, n) => {
      const name = make("button", { type: "button" }, names[level]());
      if (n === deepest) name.ariaCurrent = "location";
      else name.addEventListener("click", () => zoomTo(level));
      return make("li", {}, name);
    }),
  );
}

export const startCrumbs = () => on("level depth head step openCell", showCrumbs);
