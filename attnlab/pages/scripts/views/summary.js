// What the page shows: the model, the text, and how two texts differ.

import { say } from "../sources/description.js";
import { on } from "../state/store.js";
import { alignment, DIFFERENCE, differenceOf, isEverywhere, traces, views, whyNoDifference } from "../state/traces.js";
import { byId, make } from "../drawing/elements.js";
import { prefixOf } from "../drawing/names.js";

function summarise() {
  const sizes = traces.map((trace) => {
    const { layers, H, T, cached, note } = trace;
    const tokens = T === 1 ? say("{count} token", { count: T }) : say("{count} tokens", { count: T });
    const after = cached ? say(" after {cached} cached", { cached }) : "";
    const blocks = layers === 1 ? say("{count} layer", { count: layers }) : say("{count} layers", { count: layers });
    const heads = H === 1 ? say("{count} head", { count: H }) : say("{count} heads", { count: H });
    return prefixOf(trace) + say("{blocks} × {heads}, {texts}", { blocks, heads, texts: tokens + after + note });
  });
  byId("summary").textContent = sizes.join(" · ");
  byId("trained").textContent = [...new Set(traces.map(({ training }) => training))].join(" ");
  const models = new Set(traces.map(({ model }) => model));
  byId("about").replaceChildren(
    ...traces.flatMap((trace, n) => [
      ...(n ? [" · "] : []),
      prefixOf(trace),
      // Of a shared model, the name is shown once.
      ...(models.size > 1 || (trace.model && n === 0) ? [make("b", { title: trace.training }, trace.model), " "] : []),
      make("q", {}, make("bdi", {}, trace.excerpt)),
    ]),
  );
  const compared = byId("compared");
  compared.hidden = traces.length < 2;
  if (compared.hidden) return;
  const count = (condition) => alignment.queries.filter(condition).length;
  const [onlyA, onlyB] = [count(([, inB]) => inB === null), count(([inA]) => inA === null)];
  const differ = count((pair) => differenceOf(pair, "tokens") === "changed");
  const sentences = [
    whyNoDifference || say("{DIFFERENCE} is shown beside them.", { DIFFERENCE }),
    differ || onlyA || onlyB
      ? say("{differ} of {paired} paired tokens differ.", { differ, paired: count(isEverywhere) })
      : say("The tokens are the same."),
    (onlyA || onlyB) && say("Only in A: {onlyA}; only in B: {onlyB}. The difference covers what both have.", { onlyA, onlyB }),
  ];
  compared.replaceChildren(sentences.filter(Boolean).join(" "));
}

export function startSummary() {
  on("traces language", () => {
    document.body.classList.toggle("comparing", traces.length === 2);
    document.body.style.setProperty("--views", views.length);
    document.body.style.setProperty("--traces", traces.length);
    summarise();
  });
}
