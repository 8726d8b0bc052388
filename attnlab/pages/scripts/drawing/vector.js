// What is painted on a canvas, as SVG.

const round = (x) => String(Math.round(100 * x) / 100);
const pointOf = (...numbers) => numbers.map(round).join(" ");

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
export const escaped = (text) => text.replace(/[&<>"]/g, (character) => ENTITIES[character]);

/** An SVG element; `content` is markup. */
export function svgElement(tag, attributes, content = "") {
  const written = Object.entries(attributes).map(([name, value]) => ` ${name}="${typeof value === "number" ? round(value) : escaped(value)}"`);
  return `<${tag}${written.join("")}${content ? `>${content}</${tag}>` : "/>"}`;
}

/** Records as SVG what is painted on it: the part of a canvas's 2D context that the picture uses. */
export class VectorContext {
  svg = "";
  fillStyle = "#000";
  strokeStyle = "#000";
  lineWidth = 1;
  lineCap = "butt";
  globalAlpha = 1;
  #path = "";
  #dashes = [];
  #clips = 0; // open groups since the last save
  #prefix; // of ids

  constructor(prefix = "") {
    this.#prefix = prefix;
  }

  beginPath() {
    this.#path = "";
  }

  moveTo(...to) {
    this.#path += `M${pointOf(...to)}`;
  }

  lineTo(...to) {
    this.#path += `L${pointOf(...to)}`;
  }

  bezierCurveTo(...points) {
    this.#path += `C${pointOf(...points)}`;
  }

  closePath() {
    this.#path += "Z";
  }

  rect(x, y, width, height) {
    this.#path += `M${pointOf(x, y)}h${round(width)}v${round(height)}h${round(-width)}Z`;
  }

  roundRect(x, y, width, height, radius) {
    const corner = (dx, dy) => `a${pointOf(radius, radius)} 0 0 1 ${pointOf(dx, dy)}`;
    const [across, down] = [width - 2 * radius, height - 2 * radius].map(round);
    const sides = [`h${across}`, corner(radius, radius), `v${down}`, corner(-radius, radius), `h${-across}`];
    this.#path += `M${pointOf(x + radius, y)}${sides.join("")}${corner(-radius, -radius)}v${-down}${corner(radius, -radius)}Z`;
  }

  /** An arc, clockwise, in halves, because SVG draws no whole circle as one. */
  arc(x, y, radius, start, end) {
    const at = (angle) => pointOf(x + radius * Math.cos(angle), y + radius * Math.sin(angle));
    const half = (angle) => `A${pointOf(radius, radius)} 0 0 1 ${at(angle)}`;
    this.#path += `${this.#path ? "L" : "M"}${at(start)}${half((start + end) / 2)}${half(end)}`;
  }

  fill() {
    this.svg += svgElement("path", { d: this.#path, fill: this.fillStyle, opacity: this.globalAlpha });
  }

  setLineDash(lengths) {
    this.#dashes = lengths;
  }

  stroke() {
    const line = { stroke: this.strokeStyle, "stroke-width": this.lineWidth, "stroke-linecap": this.lineCap };
    if (this.#dashes.length) line["stroke-dasharray"] = pointOf(...this.#dashes);
    this.svg += svgElement("path", { d: this.#path, fill: "none", ...line, opacity: this.globalAlpha });
  }

  fillRect(x, y, width, height) {
    this.svg += svgElement("rect", { x, y, width, height, fill: this.fillStyle, opacity: this.globalAlpha });
  }

  save() {
    this.#clips = 0;
  }

  clip() {
    const id = `${this.#prefix}clip${this.svg.length}`;
    this.svg += `<clipPath id="${id}"><path d="${this.#path}"/></clipPath><g clip-path="url(#${id})">`;
    this.#clips++;
  }

  restore() {
    this.svg += "</g>".repeat(this.#clips);
    this.#clips = 0;
  }
}
