// Attention drawn over words: arcs from the word that looks to the words that it looks at, each as wide as its weight.
// The sentence on the stage and the small drawings of all heads use it.

const SVG = "http://www.w3.org/2000/svg";
const LOWEST_RISE = 18; // the height, in pixels, of an arc between words that are next to each other

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/**
 * The path of an arc between the places of two words, as an SVG path.
 *
 * A place is {x, top, under, line, room}, in pixels. x: the word's centre. top, under: where arcs start above and below
 * the word. line: equal for words in one line. room: the largest height of an arc above the line, by default unlimited.
 */
function pathOf(from, to, { steepness, highest }) {
  if (from.line === to.line) {
    const distance = Math.abs(from.x - to.x);
    // Shorter arcs get less of the room, up to 400 pixels, so that arcs that are cut off don't coincide.
    const limit = (from.room ?? Infinity) * (0.5 + 0.5 * Math.min(1, distance / 400));
    const rise = Math.min(highest, LOWEST_RISE + steepness * distance, limit);
    const peak = from.top - rise * 1.3; // a curve reaches three quarters of the height of its control points
    return `M${from.x} ${from.top}C${from.x} ${peak},${to.x} ${peak},${to.x} ${to.top}`;
  }
  // An arc to another line runs through the space between the lines.
  const isUpward = to.line < from.line;
  const start = isUpward ? from.top : from.under;
  const end = isUpward ? to.under : to.top;
  const middle = (start + end) / 2;
  return `M${from.x} ${start}C${from.x} ${middle},${to.x} ${middle},${to.x} ${end}`;
}

/**
 * The arcs of one query, from the faintest to the strongest, so that the strongest lie on top.
 *
 * from: the place of the word that looks; places, weights: the place and the weight of each word looked at
 * least: arcs of smaller weights are left out
 * widest, thinnest: the stroke width of weight 1, and the smallest one; steepness, highest: how an arc's height grows
 *   with the distance of its words, and its largest height; all in pixels
 * isFirstGrey: whether arcs to the first word are grey: heads with nothing to look at put their attention there
 * isLeftOut(j): whether word j has no arc, such as the word that looks
 */
export function arcsOf(from, places, weights, { least, widest, thinnest, steepness, highest, isFirstGrey, isLeftOut }) {
  return [...weights.keys()]
    .filter((j) => weights[j] >= least && !isLeftOut(j))
    .sort((a, b) => weights[a] - weights[b])
    .map((j) => {
      const width = Math.max(thinnest, widest * weights[j]);
      const arc = svg("path", {
        class: j === 0 && isFirstGrey ? "arc rests" : "arc",
        d: pathOf(from, places[j], { steepness, highest }),
        "stroke-width": width.toFixed(2),
      });
      arc.key = j; // callers choose the arc's opacity by the weight of this key
      return arc;
    });
}
