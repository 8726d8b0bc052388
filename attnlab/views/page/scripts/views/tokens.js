// A text as its tokens, with lines from the selected one to those it attends to.

import { brief } from "../numbers/formats.js";
import { description, say } from "../sources/description.js";
import { hiddenIn, valuesOf } from "../sources/rows.js";
import { point, pointAtQuery, select } from "../state/actions.js";
import { describedCell, on, selection } from "../state/store.js";
import { alignmentStatus, hasHead, nearest, onHead, traces, traceViews } from "../state/traces.js";
import { describe } from "../drawing/card.js";
import { cellAfterKey } from "../drawing/cells.js";
import { inks, palette, paletteIndices } from "../drawing/colours.js";
import { byId, make, onceAFrame, prepareCanvas, symbolOf } from "../drawing/draw.js";
import { strengthOf, visibleWeights } from "../drawing/heads.js";
import { labelOf, nameOf } from "../drawing/names.js";

function makeText(view) {
  const [trace] = view.traces;
  const canvas = make("canvas", { "aria-hidden": "true" });
  const flow = make("div", {
    class: "flow",
    role: "toolbar",
    "aria-label": say("Tokens{of}", { of: labelOf(view) }),
  });
  const chips = trace.keys.map((token, n) => {
    const weight = make("small", { "aria-hidden": "true" });
    const chip = make(
      "button",
      { type: "button", class: "chip", tabindex: "-1" },
      symbolOf(token.symbol),
      weight,
    );
    chip.classList.toggle("cached", n < trace.cached);
    const status = alignmentStatus(trace, n);
    if (status) chip.classList.add(status);
    flow.append(chip);
    return { chip, weight, token, n };
  });
  const following = make("div", { class: "following" });
  const stage = make("div", { class: "stage" }, canvas, flow);
  byId("texts").append(make("div", { class: "text" }, ...nameOf(view), stage, following));

  let boxes = null; // the chips' positions; reset when the layout changes
  let scrolledTo; // the query last scrolled to, so that readers can scroll elsewhere
  const draw = onceAFrame(() => {
    const i = nearest(view.rows, describedCell().query);
    const selected = nearest(view.rows, selection.query);
    const { layer, head } = selection;
    const exists = hasHead(trace, layer, head);
    if (exists && !trace.loaded.has(layer)) return; // still loading
    const weights = exists
      ? valuesOf(view, layer, head, "weights", i)
      : new Float64Array(trace.Tk);
    const isHidden = exists ? hiddenIn(view, { layer, head, step: "weights" }) : () => true;
    const colours = paletteIndices(weights, description.scales.weights);
    chips.forEach(({ chip, weight }, j) => {
      const isVisible = !isHidden(i * trace.Tk + j);
      chip.classList.toggle("unseen-by-query", !isVisible);
      chip.classList.toggle("query", j === trace.cached + selected);
      chip.classList.toggle("pointed", j === trace.cached + i && i !== selected);
      chip.style.backgroundColor = isVisible ? palette[colours[j]] : "";
      chip.style.color = isVisible ? inks[colours[j]] : "";
      const words = isVisible ? weights[j].toFixed(2) : "";
      if (weight.textContent !== words) weight.textContent = words;
    });
    if (!flow.contains(document.activeElement)) tabTo(trace.cached + selected);
    boxes ??= chips.map(({ chip }) => ({
      x: chip.offsetLeft + chip.offsetWidth / 2,
      top: chip.offsetTop,
      bottom: chip.offsetTop + chip.offsetHeight,
    }));
    if (scrolledTo !== selected) {
      scrolledTo = selected;
      const from = boxes[trace.cached + selected];
      const isOutOfSight =
        from.bottom < flow.scrollTop || from.top > flow.scrollTop + flow.clientHeight;
      if (isOutOfSight) flow.scrollTop = from.bottom - flow.clientHeight / 2;
    }
    const context = prepareCanvas(canvas, flow.clientWidth, flow.clientHeight);
    context.translate(0, -flow.scrollTop);
    context.lineCap = "round";
    for (const head of visibleWeights(view, i)) drawLines(context, head, i);
  });

  function drawLines(context, { colour, weights }, i) {
    const from = boxes[trace.cached + i];
    context.strokeStyle = colour;
    weights.map(strengthOf).forEach((weight, j) => {
      if (weight < 0.002 || j === trace.cached + i) return;
      const to = boxes[j];
      context.globalAlpha = Math.sqrt(weight);
      context.lineWidth = 0.75 + 3.25 * weight;
      context.beginPath();
      context.moveTo(from.x, from.top);
      if (to.top === from.top) {
        const rise = Math.min(34, 10 + Math.abs(to.x - from.x) / 14);
        context.bezierCurveTo(from.x, from.top - rise, to.x, to.top - rise, to.x, to.top);
      } else {
        const middle = (from.top + to.bottom) / 2;
        const end = to.top < from.top ? to.bottom : to.top;
        context.bezierCurveTo(from.x, middle, to.x, middle, to.x, end);
      }
      context.stroke();
    });
  }

  // Cached tokens aren't queries; they select the first one.
  const queryAt = (n) => view.rows[Math.max(0, n - trace.cached)];
  const choose = (n) => select(queryAt(n));
  /** Make chip n the one that Tab reaches. */
  function tabTo(n) {
    for (const other of chips) other.chip.tabIndex = other.n === n ? 0 : -1;
  }
  for (const { chip, token, n } of chips) {
    if (token.id === undefined)
      chip.setAttribute("aria-label", say("{symbol}, from the cache", token));
    else describe(chip, token, `${n}`, alignmentStatus(trace, n));
    chip.addEventListener("pointerenter", () => pointAtQuery(queryAt(n)));
    chip.addEventListener("pointerleave", () => point(null));
    chip.addEventListener("click", () => choose(n));
    chip.addEventListener("focus", () => tabTo(n));
    chip.addEventListener("keydown", (event) => {
      const to = cellAfterKey(event, 0, n, 1, chips.length);
      if (!to) return;
      chips[to[1]].chip.focus();
      choose(to[1]);
    });
  }
  flow.addEventListener("scroll", draw);
  const layOut = () => {
    boxes = null;
    draw();
  };
  new ResizeObserver(layOut).observe(flow);
  return { draw, layOut, following };
}

/** Explain the symbols in tokens that aren't letters, if there are any. */
function explainSymbols() {
  const predicted = traces.flatMap(({ listed }) => [...listed]);
  const tokens = [...traces.flatMap((trace) => trace.tokens), ...predicted];
  const partial = predicted.find(({ text }) => text.includes("�"));
  const multibyte = tokens.find(({ symbol }) => /[^\x20-\x7eĠĊ]/.test(symbol));
  const notes = [
    tokens.some(({ symbol }) => symbol.includes("Ġ")) && say("Ġ is a space"),
    tokens.some(({ symbol }) => symbol.includes("Ċ")) && say("Ċ is a new line"),
    multibyte &&
      say("other letters, as in {symbol}, are bytes, here {bytes} of {text}", {
        symbol: brief(multibyte.symbol),
        bytes: brief(multibyte.bytes),
        text: multibyte === partial ? say("a character") : multibyte.part_of || `“${brief(multibyte.text)}”`,
      }),
    partial &&
      say("{symbol} is part of a character that the next tokens complete", {
        symbol: brief(partial.symbol),
      }),
  ];
  byId("letters").textContent = notes.filter(Boolean).join(say("; "));
}

let texts; // one for each trace

export function startTexts() {
  on("traces", () => {
    byId("texts").after(byId("letters")); // kept when the texts are replaced
    byId("texts").replaceChildren();
    texts = traceViews.map(makeText);
    byId("texts").querySelector(".stage").append(byId("letters"));
  });
  onHead(() => texts.forEach((text) => text.draw()));
  on("query key hovered", () => texts.forEach((text) => text.draw()));
  on("textSize depth printed", () => texts.forEach((text) => text.layOut()));
  on("traces predictions", explainSymbols);
}
