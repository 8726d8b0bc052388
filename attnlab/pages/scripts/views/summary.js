// What the page shows: the model, the text, and why two texts have no difference to show.

import { say } from "../sources/description.js";
import { on } from "../state/store.js";
import { traces, views, whyNoDifference } from "../state/traces.js";
import { byId, make } from "../drawing/elements.js";
import { prefixOf } from "../drawing/names.js";

function summarise() {
  const sizes = traces.map((trace) => {
    const { layers, H, T, cached } = trace;
    const tokens = T === 1 ? say("{count} token", { count: T }) : say("{count} tokens", { count: T });
    const after = cached ? say(" after {cached} cached", { cached }) : "";
    const blocks = layers === 1 ? say("{count} layer", { count: layers }) : say("{count} layers", { count: layers });
    const heads = H === 1 ? say("{count} head", { count: H }) : say("{count} heads", { count: H });
    return prefixOf(trace) + say("{blocks} × {heads}, {texts}", { blocks, heads, texts: tokens + after });
  });
  byId("summary").textContent = sizes.join(" · ");
  byId("trained").textContent = [...new Set(traces.map(({ training }) => training))].join(" ");
  const models = new Set(traces.map(({ model }) => model));
  byId("about").replaceChildren(
    ...traces.flatMap((trace, n) => [
      ...(n ? [" · "] : []),
      prefixOf(trace),
      // If the traces share a model, its name is shown once.
      ...(models.size > 1 || (trace.model && n === 0) ? [make("b", { title: trace.training }, trace.model), " "] : []),
      make("q", {}, make("bdi", {}, trace.excerpt)),
      trace.changes ? "" : trace.note, // a page with a model lists its changes
    ]),
  );
  byId("compared").hidden = !whyNoDifference;
  byId("compared").textContent = whyNoDifference;
}

export function startSummary() {
  on("traces language", () => {
    document.body.classList.toggle("comparing", traces.length === 2);
    document.body.style.setProperty("--views", views.length);
    document.body.style.setProperty("--traces", traces.length);
    summarise();
  });
}
