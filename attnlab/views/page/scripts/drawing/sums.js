// Lines of arithmetic.

import { sayParts } from "../sources/description.js";
import { make, number } from "./draw.js";

/** A line of arithmetic. */
export const lineOf = (heading, ...parts) =>
  make("li", {}, make("code", {}, heading), make("span", { class: "sum" }, ...parts));

/** A number of a step; if an edit changed it, also what the equation gives. */
export function resultOf(isEdited, computed, stored) {
  const shown = make("strong", {}, number(stored));
  const isUnchanged = Math.abs(computed - stored) <= 1e-5 * Math.max(Math.abs(computed), Math.abs(stored), 1e-3);
  if (!isEdited || isUnchanged) return shown;
  return make(
    "span",
    {},
    ...sayParts("{computed}; edited here: {edited} instead", { computed: number(computed), edited: shown }),
  );
}
