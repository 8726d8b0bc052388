// The names of views, traces and tokens in headings and labels.

import { say, sayParts } from "../sources/description.js";
import { selection } from "../state/store.js";
import { hasHead, traces } from "../state/traces.js";
import { tokenElement } from "./draw.js";
import { make } from "./elements.js";

/** Show elements if a view has the open head, otherwise a note in the element `missing`. Return whether it has it. */
export function showIfHeadExists(view, elements, missing) {
  const exists = hasHead(view, selection.layer, selection.head);
  for (const element of elements) element.hidden = !exists;
  missing.hidden = exists;
  missing.textContent = exists
    ? ""
    : say("{name} has no layer {layer}, head {head}.", { ...selection, name: view.name });
  return exists;
}

/** “ of A” for labels, if two traces are compared. */
export const labelOf = (view) => (traces.length === 2 ? say(" of {name}", view) : "");

/** A heading with a view's name and what distinguishes it, as a list; empty if there is one view. */
export function nameOf({ name, distinction }) {
  if (traces.length < 2) return [];
  return [make("h3", { class: "name" }, name, ...(distinction ? [": ", make("bdi", {}, distinction)] : []))];
}

/** “A: ” as the beginning of a text about a trace, if two are compared. */
export const prefixOf = ({ name }) => (traces.length === 2 ? `${name}: ` : "");

/** The title of the next tokens after a position, as a list. */
export const nextTokenTitle = (trace, position) =>
  sayParts("Next token after position {position}, {token}", {
    position: String(trace.cached + position),
    token: tokenElement(trace.tokens[position]),
  });
