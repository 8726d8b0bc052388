// The grid of small maps, one for each head, painted when first visible.

import { say } from "../sources/description.js";
import { chooseHead } from "../state/actions.js";
import { isSame, selection } from "../state/store.js";
import { onHead, views } from "../state/traces.js";
import { byId, cellAfterKey, drawingsIn, focusOne, isPress, make } from "../drawing/draw.js";
import { cursorOf } from "../drawing/levels.js";
import { makeMap, showInMap } from "../drawing/maps.js";
import { labelOf, nameOf, visibleHeads } from "../drawing/names.js";

const isNarrow = matchMedia("(max-width: 1000px)"); // as in page.css

/** A view's grid: a row of small maps for each layer. */
function makeGrid(view) {
  const label = say("Heads{of}: a row for each layer", { of: labelOf(view) });
  const grid = make("div", { role: "grid", class: "grid", "aria-multiselectable": "true", "aria-label": label });
  grid.style.setProperty("--heads", view.H);
  const headings = Array.from({ length: view.H }, (_, h) => make("span", { role: "columnheader" }, String(h)));
  const corner = make("span", { role: "columnheader", "aria-label": say("layer") });
  grid.append(make("div", { role: "row" }, corner, ...headings));
  const maps = [];
  for (let layer = 0; layer < view.layers; layer++) {
    const row = make("div", { role: "row" }, make("span", { role: "rowheader" }, String(layer)));
    for (let head = 0; head < view.H; head++) {
      const map = makeMap(view, layer, head, { role: "gridcell", class: "map" });
      maps.push(map);
      row.append(map.cell);
    }
    grid.append(row);
  }
  listen(grid, view, maps);
  const axes = make("p", { class: "axes", "aria-hidden": "true" }, `${say("layer")} ↓ ${say("head")} →`);
  byId("grids").append(make("div", {}, ...nameOf(view), axes, make("div", { class: "sideways" }, grid)));
  return { maps, show: (other) => maps.forEach((map) => showInMap(map, other)) };
}

const isAdding = ({ ctrlKey, metaKey, shiftKey }) => ctrlKey || metaKey || shiftKey;

/** Open heads by pointer and keys; arrow keys move between them. */
function listen(grid, view, maps) {
  grid.addEventListener("click", (event) => {
    const cell = event.target.closest(".map");
    if (cell) chooseHead(cell.map.layer, cell.map.head, isAdding(event), goToHead);
  });
  grid.addEventListener("keydown", (event) => {
    if (!event.target.map) return;
    const { layer, head } = event.target.map;
    if (isPress(event)) {
      event.preventDefault();
      chooseHead(layer, head, isAdding(event), () => {
        if (selection.display === "map") cursorOf(views.indexOf(event.target.map.view)).focus();
      });
      return;
    }
    const to = cellAfterKey(event, layer, head, view.layers, view.H);
    if (to) focusOne(maps.map(({ cell }) => cell), to[0] * view.H + to[1]);
  });
}

/** Mark the open head and the overlaid ones. */
function markMaps({ maps }) {
  for (const { cell, layer, head } of maps) {
    const visible = visibleHeads().find((other) => isSame(other, { layer, head }));
    cell.setAttribute("aria-selected", String(visible !== undefined));
    cell.style.setProperty("--overlaid", selection.overlaid.length && visible ? visible.colour : "");
    cell.tabIndex = isSame(selection, { layer, head }) ? 0 : -1;
  }
}

/** On a narrow screen, scroll to the head that was tapped. */
function goToHead() {
  if (isNarrow.matches) byId("head").scrollIntoView({ block: "start" });
}

export function startGrids() {
  const grids = drawingsIn("grids", () => views, makeGrid);
  onHead(() => grids().forEach(markMaps));
}
