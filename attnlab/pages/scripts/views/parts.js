// The parts of the model's picture by pointer, touch and keys: each says what it is and its number, and opens.

import { format } from "../numbers/formats.js";
import { say } from "../sources/description.js";
import { hideCard, identify, showCard } from "../drawing/card.js";
import { isPress, make, nameInSentence } from "../drawing/draw.js";
import { weightInWords } from "../drawing/names.js";
import { partAt, partsOf } from "../drawing/parts.js";

const REACH_OF_FINGER = 14; // pixels

/** What a part is, with its number, in words. `norms(i)` are a token's, in the columns' order. */
function partInWords({ trace, layers, normsOf, mlpNorms }, { kind, i, column, layer, curve }) {
  const word = (n) => nameInSentence(trace.tokens[n]);
  const size = (norm) => format(norm, 2);
  if (kind === "weight") return weightInWords(curve, trace.tokens[i], trace.tokens[curve.j]);
  if (kind === "added") return say("MLP {layer} adds to “{token}” a vector of length {size}", { layer, token: word(i), size: size(mlpNorms(layer)[i]) });
  const values = { token: word(i), layer: layers[(column - 1) >> 1], size: size(normsOf(i)[column]) };
  if (column === 0) return say("“{token}” before layer {layer}: a vector of length {size}", { ...values, layer: layers[0] });
  return column % 2
    ? say("“{token}” after attention {layer}: a vector of length {size}", values)
    : say("“{token}” after MLP {layer}: a vector of length {size}", values);
}

/**
 * A spot on the picture's canvas: the part that is pointed at, or that arrow keys moved to. Left and right are the
 * selected token's parts, up and down other tokens.
 *
 * @param shown () -> {plan, layers, curves, trace, query, normsOf, mlpNorms}; without norms while they load
 * @param open (part, event) opens a part; without one, what else the event is at
 */
export class Spot {
  #part = null;

  constructor(canvas, shown, open) {
    Object.assign(this, { canvas, shown, open });
    const focus = () => this.#moveTo(this.#part ?? this.#parts()[0]);
    const keydown = (event) => this.#pressKey(event);
    const click = (event) => this.#part && open(this.#part, event);
    this.element = make("div", { class: "spot", role: "button", tabindex: "0", focus, keydown, click });
    identify(this.element, say("Parts of the picture"));
    this.#listen();
  }

  /** Forget the part, such as after the layout has changed. */
  forget() {
    this.#part = null;
  }

  /** The parts that can be named: without norms, only the weights. */
  #parts(token) {
    const { plan, layers, curves, normsOf, query } = this.shown();
    const i = token ?? (plan.lines.has(query) ? query : plan.positions.at(-1));
    return partsOf(plan, layers, curves, i).filter(({ kind }) => normsOf || kind === "weight");
  }

  #moveTo(part) {
    if (!part) return;
    this.#part = part;
    Object.assign(this.element.style, { left: `${part.x}px`, top: `${part.y}px` });
    identify(this.element, partInWords(this.shown(), part));
    showCard(this.element);
  }

  #partUnder({ offsetX, offsetY, pointerType }) {
    const { plan, layers, curves, normsOf } = this.shown();
    const part = partAt(plan, layers, curves, { x: offsetX, y: offsetY }, pointerType === "touch" ? REACH_OF_FINGER : undefined);
    return part && (normsOf || part.kind === "weight") ? part : null;
  }

  #listen() {
    const { canvas, open } = this;
    let touched = null; // the part that the last tap named: another tap on it opens it
    canvas.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch") return;
      const part = this.#partUnder(event);
      canvas.style.cursor = part ? "pointer" : "";
      if (part) this.#moveTo(part);
      else hideCard();
    });
    canvas.addEventListener("click", (event) => {
      const part = this.#partUnder(event);
      const isTap = event.pointerType === "touch";
      if (part && isTap && !isSamePart(part, touched)) {
        touched = part;
        return this.#moveTo(part);
      }
      touched = null;
      open(part, event);
    });
  }

  #pressKey(event) {
    const { key } = event;
    const { plan } = this.shown();
    const current = this.#part ?? this.#parts()[0];
    if (!current) return;
    const parts = this.#parts(current.i);
    const n = parts.findIndex((part) => isSamePart(part, current));
    const other = plan.positions[plan.positions.indexOf(current.i) + (key === "ArrowDown" ? 1 : -1)];
    const distance = ({ kind, x }) => Math.abs(x - current.x) + Number(kind !== current.kind);
    const nearest = () => other !== undefined && this.#parts(other).sort((a, b) => distance(a) - distance(b))[0];
    if (isPress(event)) this.open(current, event);
    else if (key === "ArrowUp" || key === "ArrowDown") this.#moveTo(nearest());
    else if (key in STEPS) this.#moveTo(parts[STEPS[key](n, parts.length)]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

const STEPS = { ArrowRight: (n) => n + 1, ArrowLeft: (n) => n - 1, Home: () => 0, End: (_, count) => count - 1 };

const isSamePart = (a, b) =>
  b !== null && a.kind === b.kind && a.i === b.i && a.column === b.column && a.layer === b.layer && a.curve === b.curve;
