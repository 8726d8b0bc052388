// Mark the views of the open head if it is ablated: nothing uses the numbers that they show then.

import { say } from "../sources/description.js";
import { isAblatedIn } from "../sources/rows.js";
import { on, selection } from "../state/store.js";
import { nameOfPart, traceViews, views } from "../state/traces.js";
import { byId, make } from "../drawing/elements.js";

function markView(part, isMarked, content) {
  part.classList.toggle("ablated", isMarked);
  part.querySelector(".ablation")?.remove();
  content.removeAttribute("aria-describedby");
  if (!isMarked) return;
  content.setAttribute("aria-describedby", "is-ablated");
  content.before(make("p", { class: "ablation" }, say("{name}: ablated", { name: nameOfPart(selection) })));
}

function markViews() {
  const isAblated = (view) => isAblatedIn(view, selection.layer, selection.head);
  byId("is-ablated").hidden = !traceViews.some(isAblated);
  for (const [n, map] of [...byId("heatmaps").children].entries())
    markView(map, isAblated(views[n]), map.querySelector(".scroller"));
  for (const part of byId("sums").querySelectorAll("article[data-trace]"))
    markView(part, isAblated(traceViews[part.dataset.trace]), part.querySelector(".chain"));
}

/** Started after the maps and the arithmetic, which it marks. */
export const startAblated = () => on("traces head openCell language", markViews);
