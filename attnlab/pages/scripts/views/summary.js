// What the page shows: the model, the text, and how two texts differ.

import { say } from "../sources/description.js";
import { on } from "../state/store.js";
import { alignment, DIFFERENCE, differenceOf, isEverywhere, traces, views, whyNoDifference } from "../state/traces.js";
import { tokenElement } from "../drawing/draw.js";
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
  byId("alignment")?.remove();
  byId("summary").textContent = sizes.join(" · ");
  const models = new Set(traces.map(({ model }) => model));
  byId("about").replaceChildren(
    ...traces.flatMap((trace, n) => [
      ...(n ? [" · "] : []),
      prefixOf(trace),
      // Of a shared model, the name is shown once.
      ...(models.size > 1 || (trace.model && n === 0) ? [make("b", { "data-tip": trace.training, tabindex: "0" }, trace.model), " "] : []),
      make("q", {}, make("bdi", {}, trace.excerpt)),
    ]),
  );
  const compared = byId("compared");
  compared.hidden = traces.length < 2;
  if (compared.hidden) return;
  const [a, b] = traces;
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
  if (differ || onlyA || onlyB) compared.after(alignmentOf(a, b));
}

/** Both texts, token by token. */
function alignmentOf(a, b) {
  const tokenIn = (trace, n) => make("span", {}, n === null ? "–" : tokenElement(trace.tokens[n]));
  const unseen = (words) => make("span", { class: "unseen" }, words);
  const items = alignment.queries.map(([n, m]) =>
    make("li", { class: differenceOf([n, m], "tokens") }, unseen("A: "), tokenIn(a, n), unseen("; B: "), tokenIn(b, m)),
  );
  return make("ol", { id: "alignment", "aria-label": say("A above, B below") }, ...items);
}

export function startSummary() {
  on("traces language", () => {
    document.body.classList.toggle("comparing", traces.length === 2);
    document.body.style.setProperty("--views", views.length);
    document.body.style.setProperty("--traces", traces.length);
    summarise();
  });
}
