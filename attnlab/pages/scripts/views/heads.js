// All heads as small drawings over the same words. A bar below a head is what it adds to the next word's probability.

import { say } from "../sources/description.js";
import { arcsOf, svg } from "../drawing/arcs.js";
import { buttonOf, make, moveByArrows } from "../drawing/elements.js";

const WIDTH = 100; // a drawing's width and height, in its own units
const HEIGHT = 30;
const MIN_SMALL_ARC = 0.08; // smaller weights have no arc
const MIN_SMALL_ARC_OF_LONG = 0.02; // the same in a text of more than MANY_ROWS words
const MIN_BAR = 0.015; // effects below this part of the largest one have no bar
const MIN_LONGEST = 0.02; // if the largest effect is smaller, no bar has its full length
const MIN_OWN_WEIGHT = 0.25; // a word's larger weight on itself is drawn as a stroke above the word
const MANY_HEADS = 6; // drawings of more heads in a row are lower, closer together, and without names
const MANY_ROWS = 64; // in longer texts, only the last word's arcs are drawn

/** A change of a probability in points, with its sign unless it is rounded to 0. */
function signedPoints(x) {
  const points = (100 * Math.abs(x)).toFixed(1);
  return `${Number(points) === 0 ? "" : x < 0 ? "−" : "+"}${points}`;
}

/** The words' centres along a line of WIDTH, as far apart as the words are long. */
function centresOf(words) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `100px ${getComputedStyle(document.body).fontFamily}`;
  const widths = words.map((text) => context.measureText(text).width);
  const total = widths.reduce((sum, width) => sum + width, 0) || 1;
  let start = 0;
  return widths.map((width) => {
    const middle = start + width / 2;
    start += width;
    return 2 + ((WIDTH - 4) * middle) / total; // the margins are 2 wide
  });
}

/** A small drawing of a head, with factors chosen by eye: the last word stands out. rowOf(i): query i's weights. */
function smallDrawing(shown, rowOf) {
  const baseline = HEIGHT - 1;
  const placeOf = (x, line) => ({ x, top: baseline, under: baseline, line });
  // Words that look at another sentence are below it.
  const places = centresOf(shown.keys).map((x) => (shown.isSelf ? placeOf(x, 0) : { x, top: 1, under: 1, line: 0 }));
  const from = shown.isSelf ? places : centresOf(shown.queries).map((x) => placeOf(x, 1));
  const least = shown.queries.length > MANY_ROWS ? MIN_SMALL_ARC_OF_LONG : MIN_SMALL_ARC;
  const shape = { steepness: 0.3, highest: 20, widest: 3.2, thinnest: 0.5, least, isFirstGrey: shown.isSelf };
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  drawing.append(svg("path", { class: "ground", d: `M0 ${baseline + 0.5}H${WIDTH}` }));
  const count = shown.queries.length;
  for (let i = count > MANY_ROWS ? count - 1 : 0; i < count; i++) {
    const isLast = i === count - 1;
    const weights = rowOf(i);
    for (const arc of arcsOf(from[i], places, weights, { ...shape, isLeftOut: (j) => shown.isSelf && j === i })) {
      arc.style.opacity = isLast ? Math.min(1, 0.25 + weights[arc.key]) : 0.05 + 0.28 * weights[arc.key];
      drawing.append(arc);
    }
    if (shown.isSelf && weights[i] > MIN_OWN_WEIGHT && count > 1) {
      const own = svg("path", {
        class: "arc", d: `M${from[i].x} ${baseline}V${baseline - 9 * weights[i]}`,
        "stroke-width": (2.4 * weights[i]).toFixed(2),
      });
      own.style.opacity = isLast ? 0.9 : 0.3;
      drawing.append(own);
    }
  }
  for (const path of drawing.children) path.setAttribute("vector-effect", "non-scaling-stroke");
  return drawing;
}

export class Heads {
  /** choose(layer, head): a head was pressed; point(layer, head): the pointer is on it; point(null): it has left. */
  constructor(element, { choose, point }) {
    Object.assign(this, { element, choose, point, buttons: [] });
    moveByArrows(element, () => this.buttons, () => this.shown.H);
  }

  /** Make a place for each head, which `drawLayer` fills. */
  show(shown) {
    const { layers, H } = shown;
    this.shown = shown;
    const focused = this.buttons.indexOf(document.activeElement); // the buttons are made anew
    this.buttons = Array.from({ length: layers * H }, (_, n) => {
      const [layer, head] = [Math.floor(n / H), n % H];
      const events = {
        pointerenter: ({ pointerType }) => pointerType === "mouse" && this.point(layer, head),
        pointerleave: () => this.point(null),
      };
      const button = buttonOf(() => this.choose(layer, head), {
        class: "head-drawing", tabindex: "-1", "aria-label": say("head {layer}.{head}", { layer, head }),
        ...events,
      });
      button.append(svg("svg"), make("i"), make("small", { "aria-hidden": "true" }, `${layer}.${head}`));
      return Object.assign(button, { layer, head });
    });
    this.element.style.setProperty("--heads", H);
    this.element.classList.toggle("many", H > MANY_HEADS);
    this.element.replaceChildren(...this.buttons);
    this.buttons[focused]?.focus();
  }

  drawLayer(layer) {
    const { shown } = this;
    for (const button of this.buttons.filter((button) => button.layer === layer))
      button.firstChild.replaceWith(smallDrawing(shown, (i) => shown.weights(layer, button.head, i)));
  }

  /**
   * A bar under each head, from the middle: to the right if it raises the next word's probability, to the left if it
   * lowers it. effectOf(layer, head): by how much; null where that isn't known.
   */
  showEffects(effectOf) {
    const effects = this.buttons.map(({ layer, head }) => effectOf(layer, head));
    const sizes = effects.map((effect) => Math.abs(effect ?? 0));
    this.largest = Math.max(...sizes);
    this.headOfLargest = this.buttons[sizes.indexOf(this.largest)]; // a button, with its layer and head
    this.buttons.forEach((button, n) => {
      const [, bar, name] = button.children;
      button.classList.toggle("barred", effects[n] !== null);
      bar.classList.toggle("lowers", effects[n] < 0);
      const length = sizes[n] < MIN_BAR * this.largest ? 0 : sizes[n] / Math.max(this.largest, MIN_LONGEST);
      bar.style.setProperty("--length", length);
      const points = effects[n] === null ? "" : ` ${signedPoints(effects[n])}`;
      name.textContent = `${button.layer}.${button.head}${points}`;
      button.ariaLabel = say("head {layer}.{head}", button) + points;
    });
  }

  /** Mark the open head, and those that are silenced. */
  mark({ layer, head }, isSilenced = () => false) {
    for (const button of this.buttons) {
      const isOpen = button.layer === layer && button.head === head;
      button.setAttribute("aria-pressed", String(isOpen));
      button.tabIndex = isOpen ? 0 : -1;
      button.classList.toggle("silenced", isSilenced(button.layer, button.head));
    }
  }
}
