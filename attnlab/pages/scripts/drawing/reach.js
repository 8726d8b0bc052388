// What can be reached in a picture that is wider than its box: which layers are in sight, and buttons to the others.

import { say } from "../sources/description.js";
import { buttonOf, make, onceAFrame } from "./draw.js";

export class Reach {
  #columns = []; // [from, to] of each layer
  #layers = [];

  constructor(box) {
    this.box = box;
    const go = (direction) => () => box.scrollBy({ left: direction * 0.8 * box.clientWidth, behavior: "smooth" });
    this.words = make("span", {});
    this.back = buttonOf(go(-1), { "aria-label": say("Earlier layers") }, "‹");
    this.onward = buttonOf(go(1), { "aria-label": say("Later layers") }, "›");
    this.element = make("p", { class: "note reach" }, this.back, this.words, this.onward);
    box.addEventListener("scroll", onceAFrame(() => this.#draw()));
  }

  /** Draw for a picture whose layers have these columns. */
  layOut(columns, layers) {
    this.#columns = columns;
    this.#layers = layers;
    this.#draw();
  }

  #draw() {
    const { scrollLeft, clientWidth, scrollWidth } = this.box;
    this.element.hidden = scrollWidth <= clientWidth + 1;
    this.back.disabled = scrollLeft < 1;
    this.onward.disabled = scrollLeft + clientWidth > scrollWidth - 1;
    const isInSight = ([from, to]) => Math.abs((from + to) / 2 - scrollLeft - clientWidth / 2) < clientWidth / 2;
    const inSight = this.#layers.filter((_, n) => isInSight(this.#columns[n]));
    const values = { first: inSight[0], last: inSight.at(-1), count: this.#layers.length };
    this.words.textContent = inSight.length ? say("layers {first} to {last} of {count}", values) : "";
  }
}
