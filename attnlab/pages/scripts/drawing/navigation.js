// Going to a part of the page: a number's arithmetic, a map's cell, the table of next tokens.

import { goTo, openCellAt, select } from "../state/actions.js";
import { startEntry } from "../state/link.js";
import { isLook, selection } from "../state/store.js";
import { queryIn, queryOf } from "../state/traces.js";
import { byId } from "./elements.js";

const hasPanelBeside = matchMedia("(min-width: 1200px)"); // whether page.css puts the panel beside the maps

/** Show the arithmetic of the selected cell of the open head's map. cursor: the element that marks the cell. */
export function openArithmetic(cursor) {
  const { layer, head, query, key } = selection;
  if (isLook()) startEntry();
  openCellAt({ layer, head, query, key, component: 0, cursor });
  byId("panel").scrollTop = 0;
  byId("arithmetic-title").focus({ preventScroll: true });
  if (!hasPanelBeside.matches) return byId("arithmetic").scrollIntoView();
  scrollBy(0, Math.min(0, byId("panel").getBoundingClientRect().top - 16)); // up, until the panel's top is in view
  const cell = cursor.getBoundingClientRect();
  if (cell.top >= -1 && cell.bottom <= innerHeight + 1) return; // allowing for rounding
  for (const part of [cursor.closest("figure"), cursor])
    part.scrollIntoView({ block: "nearest", inline: "nearest" });
}

/** The cursor of the nth view's map. */
export const cursorOf = (n) => byId("heatmaps").children.item(n)?.querySelector(".cursor");

/** Move to the field that chooses a number of the forward pass's chosen step. */
export const focusComponent = () => byId("component").focus();

/** Select the query at a position in a trace; the selected key stays if that query is selected already. */
export const selectPosition = (trace, position) => queryIn(trace) !== position && select(queryOf(trace, position));

/** Go to a number of a token's step in the forward pass; by default, to the component that was chosen last. */
export async function goToStep(trace, position, path, component) {
  selectPosition(trace, position);
  await goTo(path, component, trace.number);
  byId("pass").scrollIntoView();
  focusComponent();
}

/** Move to the open head among all heads. */
export const focusHead = () => byId("every-head").querySelector("[aria-pressed=true]").focus();
