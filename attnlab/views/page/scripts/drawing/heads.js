// The heads whose weights are drawn as lines, one or several, each in its colour.

import { valuesOf } from "../sources/rows.js";
import { selection } from "../state/store.js";
import { isLoaded } from "../state/traces.js";
import { palette } from "./colours.js";

// "Color Universal Design" (Okabe and Ito, 2008): distinguishable by colour-blind readers. Without yellow
// and black, which are invisible in one of the themes.
const HEAD_COLOURS = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];

/** The heads whose lines are drawn, each with its colour. */
export function visibleHeads() {
  if (!selection.overlaid.length)
    return [{ layer: selection.layer, head: selection.head, colour: palette.at(-1) }];
  return selection.overlaid.map((head, n) => ({ ...head, colour: HEAD_COLOURS[n] }));
}

/** The visible heads, each with query i's weights. */
export const visibleWeights = (view, i) =>
  visibleHeads()
    .filter((head) => isLoaded(view, head))
    .map((head) => ({ ...head, weights: valuesOf(view, head.layer, head.head, "weights", i) }));

// The opacity of a weight's line; edited weights may exceed 1.
export const strengthOf = (weight) => Math.min(1, Math.max(0, weight));
