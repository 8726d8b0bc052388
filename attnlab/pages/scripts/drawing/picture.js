// The sentence with its arcs as a picture in a file: SVG, or PNG made from that. Text and colours are in the file
// itself, so it looks the same without the page.

import { svg } from "./arcs.js";

const MARGIN = 16; // pixels around each part
const PNG_SCALE = 2; // pixels of the file for each pixel of the page
const STYLES = ["stroke", "stroke-width", "stroke-linecap", "fill", "opacity"]; // set by page.css

/** The words of a text node, placed as on the page. box: the element's box on the page; corner: its corner here. */
function placedText(node, box, corner) {
  const style = getComputedStyle(node.parentElement);
  const range = document.createRange();
  range.selectNodeContents(node);
  // A text that is broken into lines has a rectangle for each; its words are placed one by one.
  return [...node.textContent.matchAll(/\S+/g)].flatMap(({ 0: word, index }) => {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const [place] = range.getClientRects();
    if (!place) return [];
    const attributes = {
      // SVG places a text by its baseline, which is about a quarter of its height above the bottom.
      x: place.left - box.left + corner.x, y: place.bottom - box.top + corner.y - 0.24 * place.height,
      "font-family": style.fontFamily, "font-size": style.fontSize, "font-weight": style.fontWeight, fill: style.color,
      opacity: style.opacity,
    };
    return [svg("text", attributes, word)];
  });
}

/** What is drawn and written in elements, as one SVG element. */
export function pictureOf(elements, title) {
  const shown = elements.filter((element) => element.checkVisibility());
  const boxes = shown.map((element) => element.getBoundingClientRect());
  const width = Math.max(...boxes.map((box) => box.width));
  const height = boxes.reduce((sum, box) => sum + box.height + MARGIN, MARGIN);
  const paper = getComputedStyle(document.body).backgroundColor;
  const picture = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width: width + 2 * MARGIN, height });
  picture.append(svg("title", {}, title), svg("rect", { width: "100%", height: "100%", fill: paper }));
  let y = MARGIN;
  shown.forEach((element, n) => {
    for (const path of element.querySelectorAll("path:not(.hit)")) { // paths to press are invisible
      const style = getComputedStyle(path);
      const origin = path.ownerSVGElement.getBoundingClientRect();
      const copy = svg("path", {
        d: path.getAttribute("d"),
        transform: `translate(${origin.left - boxes[n].left + MARGIN} ${origin.top - boxes[n].top + y})`,
      });
      for (const name of STYLES) copy.setAttribute(name, style.getPropertyValue(name));
      picture.append(copy);
    }
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const { parentElement: parent } = walker.currentNode;
      if (parent.checkVisibility({ visibilityProperty: true }) && !parent.closest("textarea, #silence, .next-controls"))
        picture.append(...placedText(walker.currentNode, boxes[n], { x: MARGIN, y }));
    }
    y += boxes[n].height + MARGIN;
  });
  return picture;
}

export async function pngOf(picture) {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(picture.outerHTML)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = PNG_SCALE * image.width;
  canvas.height = PNG_SCALE * image.height;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve));
}
