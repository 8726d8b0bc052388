// Attention drawn over words: arcs from the word that looks to the words that it looks at, each as wide as its weight.
// The sentence on the stage and the small drawings of all heads use it.

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/**
 * The path of an arc between two places, {x, top, under, line, room}; under: the lower end of what is written there.
 * Within a line, it rises the higher the further apart they are, up to `room`; between two lines, it runs through the
 * space between these.
 */
function pathOf(from, to, { steepness, highest }) {
  if (from.line === to.line) {
    const distance = Math.abs(from.x - to.x);
    const room = (from.room ?? Infinity) * (0.5 + 0.5 * Math.min(1, distance / 400)); // so that arcs don't coincide
    const rise = Math.min(highest, 18 + steepness * distance, room);
    const peak = from.top - rise * 1.3; // a curve reaches three quarters of the height of its control points
    return `M${from.x} ${from.top}C${from.x} ${peak},${to.x} ${peak},${to.x} ${to.top}`;
  }
  const [start, end] = to.line < from.line ? [from.top, to.under] : [from.under, to.top];
  const middle = (start + end) / 2;
  return `M${from.x} ${start}C${from.x} ${middle},${to.x} ${middle},${to.x} ${end}`;
}

/**
 * The arcs of one query, from the faintest to the strongest, so that the strongest lie on top.
 *
 * from: the place of the word that looks; places: those of the words looked at; weights: one for each of them
 * least: arcs of smaller weights are left out; widest: the width of weight 1, in pixels
 * firstRests: whether attention on the first word is drawn in grey, because it rests there
 * isOwn(j): whether word j is the one that looks, which has no arc
 */
export function arcsOf(from, places, weights, { least, widest, thinnest, steepness, highest, firstRests, isOwn }) {
  return [...weights.keys()]
    .filter((j) => weights[j] >= least && !isOwn(j))
    .sort((a, b) => weights[a] - weights[b])
    .map((j) => {
      const width = Math.max(thinnest, widest * weights[j]);
      const arc = svg("path", {
        class: j === 0 && firstRests ? "arc rests" : "arc",
        d: pathOf(from, places[j], { steepness, highest }),
        "stroke-width": width.toFixed(2),
      });
      arc.key = j;
      return arc;
    });
}
