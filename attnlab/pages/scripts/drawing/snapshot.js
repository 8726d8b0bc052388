// What is shown in a part of the page, as a picture in a file: SVG, or PNG made from it.

import { escaped, svgElement, VectorContext } from "./vector.js";

const MARGIN = 12; // pixels
const PNG_SCALE = 2;
const FRAMES = /(rgba?\([^)]*\)|color\([^)]*\)) 0px 0px 0px (\d+(?:\.\d+)?)px( inset)?/g; // shadows without offset or blur

/** The visible content of elements as SVG markup, with its bounds. */
class Snapshot {
  svg = "";
  left = Infinity;
  top = Infinity;
  right = -Infinity;
  bottom = -Infinity;
  #measure = document.createElement("canvas").getContext("2d");

  #include({ left, top, right, bottom }) {
    this.left = Math.min(this.left, left);
    this.top = Math.min(this.top, top);
    this.right = Math.max(this.right, right);
    this.bottom = Math.max(this.bottom, bottom);
  }

  add(element) {
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    if (!element.checkVisibility({ visibilityProperty: true }) || element.matches(".unseen, .spot, [data-csv], .draws-first, .reach")) return;
    const isFaint = style.opacity !== "1";
    if (isFaint) this.svg += `<g opacity="${style.opacity}">`;
    if (box.width && box.height) this.#addBox(element, style, box);
    for (const child of element.childNodes) {
      if (child.nodeType === Node.TEXT_NODE) this.#addText(child, style);
      else if (child.nodeType === Node.ELEMENT_NODE) this.add(child);
    }
    if (isFaint) this.svg += "</g>";
  }

  #addBox(element, style, box) {
    const { left: x, top: y, width, height } = box;
    const radius = parseFloat(style.borderTopLeftRadius) || 0;
    const rect = (attributes) => (this.svg += svgElement("rect", { x, y, width, height, rx: radius, ...attributes }));
    // The first shadow lies on the others.
    for (const [, stroke, text, inset] of [...style.boxShadow.matchAll(FRAMES)].reverse()) {
      const size = Number(text);
      const beyond = (inset ? -size : size) / 2;
      const place = { x: x - beyond, y: y - beyond, width: width + 2 * beyond, height: height + 2 * beyond, rx: radius + beyond };
      rect({ fill: "none", stroke, "stroke-width": size, ...place });
    }
    if (isVisible(style.backgroundColor)) rect({ fill: style.backgroundColor });
    if (element.matches("canvas")) this.#addCanvas(element, box);
    if (element.matches(".bar")) {
      const { width: filled, backgroundColor: fill } = getComputedStyle(element, "::after");
      rect({ fill, width: parseFloat(filled) });
    }
    if (isVisible(style.backgroundColor)) this.#include(box);
  }

  /** A canvas that knows how it is painted is drawn with lines, any other as its pixels. */
  #addCanvas(canvas, box) {
    this.#include(box);
    const { left: x, top: y, width, height } = box;
    if (canvas.paintOn) {
      const context = new VectorContext(`part${this.svg.length}-`);
      canvas.paintOn(context);
      this.svg += `<g transform="translate(${x} ${y})">${context.svg}</g>`;
    } else if (canvas.width && canvas.height) {
      const rendering = getComputedStyle(canvas).imageRendering;
      const image = { href: canvas.toDataURL(), preserveAspectRatio: "none", style: `image-rendering: ${rendering}` };
      this.svg += svgElement("image", { x, y, width, height, ...image });
    }
  }

  /** A text's lines, each as wide as it is on the page. */
  #addText(node, style) {
    for (const { text, box } of linesOf(node)) {
      this.#include(box);
      this.#measure.font = style.font;
      const { fontBoundingBoxAscent: above, fontBoundingBoxDescent: below } = this.#measure.measureText(text);
      const font = { "font-family": style.fontFamily, "font-size": style.fontSize, "font-weight": style.fontWeight };
      const y = box.top + (box.height * above) / (above + below); // of the baseline
      this.svg += svgElement("text", { x: box.left, y, fill: style.color, textLength: box.width, ...font }, escaped(text));
    }
  }
}

const isVisible = (colour) => !/^(transparent|rgba\(.*, 0\))$/.test(colour);

/** The lines that a text node is broken into, each with its box. */
function linesOf(node) {
  const lines = [];
  const range = document.createRange();
  for (const { index, 0: word } of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    const last = lines.at(-1);
    if (last && Math.abs(last.box.top - box.top) < 2) {
      last.text += ` ${word}`;
      last.box = new DOMRect(last.box.left, last.box.top, box.right - last.box.left, last.box.height);
    } else lines.push({ text: word, box });
  }
  return lines;
}

/** Elements as one SVG file, with its size: { svg, width, height }. */
export function svgOf(elements, title) {
  const snapshot = new Snapshot();
  for (const element of elements) snapshot.add(element);
  const { left, top, right, bottom } = snapshot;
  const [width, height] = [right - left, bottom - top].map((size) => Math.ceil(size + 2 * MARGIN));
  const fill = getComputedStyle(document.body).backgroundColor;
  const content = [
    `<title>${escaped(title)}</title>`,
    svgElement("rect", { width, height, fill }),
    `<g transform="translate(${MARGIN - left} ${MARGIN - top})">${snapshot.svg}</g>`,
  ];
  const attributes = { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` };
  return { svg: svgElement("svg", attributes, content.join("")), width, height };
}

/** An SVG picture as PNG, a Blob. */
export async function pngOf({ svg, width, height }) {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: PNG_SCALE * width, height: PNG_SCALE * height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
