// A text as its tokens, with lines from the selected one to those it attends to.

import { brief } from "../numbers/formats.js";
import { wordOf } from "../numbers/words.js";
import { description, say } from "../sources/description.js";
import { hiddenIn, valuesOf } from "../sources/rows.js";
import { point, pointAtQuery, select } from "../state/actions.js";
import { describedCell, on, selection } from "../state/store.js";
import { alignmentStatus, hasHead, nearest, onHead, traces, traceViews } from "../state/traces.js";
import { describe } from "../drawing/card.js";
import { inks, palette, paletteIndices } from "../drawing/colours.js";
import { byId, cellAfterKey, drawingsIn, make, onceAFrame, prepareCanvas, symbolOf } from "../drawing/draw.js";
import { labelOf, nameOf, strengthOf, visibleWeights } from "../drawing/names.js";

class TokenFlow {
  #boxes = null; // the chips' positions; reset when the layout changes
  #scrolledTo; // the query last scrolled to, so that readers can scroll elsewhere

  constructor(view) {
    this.show(view);
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.flow = make("div", { class: "flow", role: "toolbar", "aria-label": say("Tokens{of}", { of: labelOf(view) }) });
    this.chips = this.trace.keys.map((token, n) => this.#makeChip(token, n));
    this.flow.append(...this.chips.map(({ chip }) => chip));
    const following = make("div", { class: "following" }); // for the next tokens
    const stage = make("div", { class: "stage" }, this.canvas, this.flow);
    byId("texts").append(make("div", { class: "text" }, ...nameOf(view), stage, following));
    this.draw = onceAFrame(() => this.#draw());
    this.flow.addEventListener("scroll", this.draw);
    new ResizeObserver(() => this.layOut()).observe(this.flow);
  }

  show(view) {
    this.view = view;
    [this.trace] = view.traces;
  }

  layOut() {
    this.#boxes = null;
    this.draw();
  }

  #makeChip(token, n) {
    // Cached tokens aren't queries; they select the first one.
    const queryAt = (key) => this.view.rows[Math.max(0, key - this.trace.cached)];
    const keydown = (event) => {
      const to = cellAfterKey(event, 0, n, 1, this.chips.length);
      if (!to) return;
      this.chips[to[1]].chip.focus();
      select(queryAt(to[1]));
    };
    const pointing = { pointerenter: () => pointAtQuery(queryAt(n)), pointerleave: () => point(null) };
    const choosing = { click: () => select(queryAt(n)), focus: () => this.#tabTo(n), keydown };
    const weight = make("small", { "aria-hidden": "true" });
    const chip = make("button", { type: "button", class: "chip", tabindex: "-1", ...pointing, ...choosing }, symbolOf(token.symbol, wordOf(token)), weight);
    const status = alignmentStatus(this.trace, n);
    chip.classList.toggle("cached", n < this.trace.cached);
    chip.classList.toggle("joined", token.piece !== undefined && !token.piece.isFirst);
    if (status) chip.classList.add(status);
    if (token.id === undefined) chip.ariaLabel = say("{symbol}, from the cache", token);
    else describe(chip, token, `${n}`, status);
    return { chip, weight };
  }

  /** Make chip n the one that Tab reaches. */
  #tabTo(n) {
    this.chips.forEach(({ chip }, other) => (chip.tabIndex = other === n ? 0 : -1));
  }

  #draw() {
    const { view, trace, flow } = this;
    const i = nearest(view.rows, describedCell().query);
    const selected = nearest(view.rows, selection.query);
    if (hasHead(trace, selection.layer, selection.head) && !trace.loaded.has(selection.layer)) return; // still loading
    this.#colourChips(i, selected);
    if (!flow.contains(document.activeElement)) this.#tabTo(trace.cached + selected);
    this.#boxes ??= this.chips.map(({ chip }) => ({
      x: chip.offsetLeft + chip.offsetWidth / 2,
      top: chip.offsetTop,
      bottom: chip.offsetTop + chip.offsetHeight,
    }));
    if (this.#scrolledTo !== selected) {
      this.#scrolledTo = selected;
      const from = this.#boxes[trace.cached + selected];
      const isOutOfSight = from.bottom < flow.scrollTop || from.top > flow.scrollTop + flow.clientHeight;
      if (isOutOfSight) flow.scrollTop = from.bottom - flow.clientHeight / 2;
    }
    const context = prepareCanvas(this.canvas, flow.clientWidth, flow.clientHeight);
    context.translate(0, -flow.scrollTop);
    context.lineCap = "round";
    for (const head of visibleWeights(view, i)) this.#drawLines(context, head, i);
  }

  /** Colour the chips by the weights of query i, and mark it and the selected query. */
  #colourChips(i, selected) {
    const { view, trace } = this;
    const { layer, head } = selection;
    const exists = hasHead(trace, layer, head);
    const weights = exists ? valuesOf(view, layer, head, "weights", i) : new Float64Array(trace.Tk);
    const isHidden = exists ? hiddenIn(view, { layer, head, step: "weights" }) : () => true;
    const colours = paletteIndices(weights, description.scales.weights);
    this.chips.forEach(({ chip, weight }, j) => {
      const isVisible = !isHidden(i * trace.Tk + j);
      chip.classList.toggle("unseen-by-query", !isVisible);
      chip.classList.toggle("query", j === trace.cached + selected);
      chip.classList.toggle("pointed", j === trace.cached + i && i !== selected);
      chip.style.backgroundColor = isVisible ? palette[colours[j]] : "";
      chip.style.color = isVisible ? inks[colours[j]] : "";
      const words = isVisible ? weights[j].toFixed(2) : "";
      if (weight.textContent !== words) weight.textContent = words;
    });
  }

  /** Draw a head's lines from query i to the keys. */
  #drawLines(context, { colour, weights }, i) {
    const own = this.trace.cached + i;
    const from = this.#boxes[own];
    context.strokeStyle = colour;
    weights.map(strengthOf).forEach((weight, j) => {
      if (weight < 0.002 || j === own) return;
      const to = this.#boxes[j];
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
    partial && say("{symbol} is part of a character that the next tokens complete", { symbol: brief(partial.symbol) }),
  ];
  byId("letters").textContent = notes.filter(Boolean).join(say("; "));
}

export function startTexts() {
  on("traces language", () => byId("texts").after(byId("letters"))); // kept when the texts are replaced
  const texts = drawingsIn("texts", () => traceViews, (view) => new TokenFlow(view));
  on("traces language", () => byId("texts").querySelector(".stage").append(byId("letters")));
  onHead(() => texts().forEach((text) => text.draw()));
  on("query key hovered", () => texts().forEach((text) => text.draw()));
  on("textSize depth printed", () => texts().forEach((text) => text.layOut()));
  on("traces predictions language", explainSymbols);
}
