// The names of what views show, and the heads whose weights they draw as lines, one or several, each in its colour.

import { percent } from "../numbers/formats.js";
import { say, sayParts } from "../sources/description.js";
import { valuesOf } from "../sources/rows.js";
import { isAt, selection, set } from "../state/store.js";
import { hasHead, isLoaded, traces } from "../state/traces.js";
import { palette } from "./colours.js";
import { buttonOf, byId, make, nameInSentence, tokenElement } from "./draw.js";

/** Show elements if a view has the open head; if not, say so in `missing`. Return whether it has. */
export function showIfHeadExists(view, elements, missing) {
  const exists = hasHead(view, selection.layer, selection.head);
  for (const element of elements) element.hidden = !exists;
  missing.hidden = exists;
  missing.textContent = exists ? "" : say("{name} has no layer {layer}, head {head}.", { ...selection, name: view.name });
  return exists;
}

/** “ of A” for labels, if two traces are compared. */
export const labelOf = (view) => (traces.length === 2 ? say(" of {name}", view) : "");

/** A heading with a view's name and what distinguishes it, as a list; empty if there is one view. */
export function nameOf({ name, distinction }) {
  if (traces.length < 2) return [];
  return [make("h3", { class: "name" }, name, ...(distinction ? [": ", make("bdi", {}, distinction)] : []))];
}

/** “A: ” before what is shown of a trace, if two are compared. */
export const prefixOf = ({ name }) => (traces.length === 2 ? `${name}: ` : "");

/** The title of the next tokens after a position, as a list. */
export const nextTokenTitle = (trace, position) =>
  sayParts("Next token after position {position}, {token}", {
    position: String(trace.cached + position),
    token: tokenElement(trace.tokens[position]),
  });

// "Color Universal Design" (Okabe and Ito, 2008): distinguishable by colour-blind readers. Without yellow
// and black, which are invisible in one of the themes.
const HEAD_COLOURS = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];

/** The heads whose lines are drawn, each with its colour. */
export function visibleHeads() {
  if (!selection.overlaid.length)
    return [{ layer: selection.layer, head: selection.head, colour: palette.at(-1) }];
  return selection.overlaid.map((head, n) => ({ ...head, colour: HEAD_COLOURS[n] }));
}

/** A weight of a head, from a query's token to a key's, in words. */
export const weightInWords = ({ layer, head, weight }, query, key) =>
  say("head {layer}.{head}: “{query}” gives “{key}” {share} of its attention", {
    ...{ layer, head, query: nameInSentence(query), key: nameInSentence(key) },
    share: percent(weight, 1),
  });

/** The visible heads, each with query i's weights. */
export const visibleWeights = (view, i) =>
  visibleHeads()
    .filter((head) => isLoaded(view, head))
    .map((head) => ({ ...head, weights: valuesOf(view, head.layer, head.head, "weights", i) }));

/** The button that draws attention on the first token, where it rests, as lines like others, or apart. */
export function restButton() {
  const toggle = async () => {
    await set({ drawsFirst: !selection.drawsFirst });
    byId(isAt("head") ? "strongest" : "picture").querySelector(".draws-first")?.focus(); // this button is replaced
  };
  return buttonOf(toggle, { class: "draws-first" }, selection.drawsFirst ? say("Draw it apart") : say("Draw it as lines"));
}

// The opacity of a weight's line; edited weights may exceed 1.
export const strengthOf = (weight) => Math.min(1, Math.max(0, weight));
