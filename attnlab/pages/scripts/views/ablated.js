// Marks in the views of the open head if it is ablated: its output isn't used.

import { say } from "../sources/description.js";
import { isAblatedIn } from "../sources/rows.js";
import { selection } from "../state/store.js";
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
  for (const [id, shown] of Object.entries({ heatmaps: views }))
    for (const [n, part] of [...byId(id).children].entries())
      markView(part, isAblated(shown[n]), part.querySelector(".scroller, .table"));
  for (const part of byId("sums").querySelectorAll("article[data-trace]"))
    markView(part, isAblated(traceViews[part.dataset.trace]), part.querySelector(".chain"));
}

/** Call `mark` when another head is opened, a view is first drawn, or arithmetic is shown. */
export function onOpened(mark) {
  const observer = new MutationObserver(mark);
  for (const id of ["head-title", "sums", "strongest"]) observer.observe(byId(id), { childList: true });
}

export const startAblated = () => onOpened(markViews);
