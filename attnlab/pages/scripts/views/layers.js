// The whole model in one drawing: each token is a band on its way through the layers, as wide as its vector is long.
// Curves are attention, from the key's token to the query's; dots are what MLPs add.

import { wordOf } from "../numbers/words.js";
import { say } from "../sources/description.js";
import { headOf, isAblatedIn, stepRow } from "../sources/rows.js";
import { loadLayer, source } from "../sources/source.js";
import { on, selection } from "../state/store.js";
import { queryIn, traces } from "../state/traces.js";
import { svg } from "../drawing/arcs.js";
import { byId } from "../drawing/elements.js";

const MAX_DRAWN_TOKENS = 48; // of a longer text, only the last tokens are drawn
const ROW = 30; // pixels from a token to the next
const NAMES_WIDTH = 150; // width of the tokens' names
const TITLES = 26; // height of the layers' names
const MAX_BAND = 16; // the width of a band for the largest norm
const MAX_DOT = 9; // the radius for the largest norm; a dot's area shows its norm
const MAX_CURVE = 5; // the width of a curve for weight 1
const MIN_WEIGHT = 0.12; // smaller weights have no curve
const SHARE_OF_ATTENTION = 0.7; // attention's share of a layer's width; the rest is for its MLP
const GAP = 0.25; // the space between the names and layer 0, in widths of a layer

/** For each layer, the x where its attention starts and ends, and the x of its MLP, halfway to the next layer. */
function placesOf(layers, width) {
  const layerWidth = (width - NAMES_WIDTH) / (layers + GAP);
  return Array.from({ length: layers }, (_, layer) => {
    const start = NAMES_WIDTH + (layer + GAP) * layerWidth;
    const end = start + SHARE_OF_ATTENTION * layerWidth;
    return { start, end, mlp: end + (0.5 - SHARE_OF_ATTENTION / 2) * layerWidth };
  });
}

/** A band at height y through points [x, half of its width there]. */
function bandOf(y, points) {
  const side = (sign) => points.map(([x, half]) => `${x.toFixed(1)} ${(y + sign * half).toFixed(1)}`);
  return svg("path", { class: "band", d: `M${side(-1).join("L")}L${side(1).reverse().join("L")}Z` });
}

/** The curves of a layer's heads between the drawn tokens. The first token, where many heads rest, has none. */
function curvesOf(trace, layer, first, { start, end }, yOf, query) {
  const middle = (start + end) / 2;
  const curves = [];
  for (let head = 0; head < trace.H; head++) {
    if (isAblatedIn({ traces: [trace] }, layer, head)) continue;
    const isOpen = layer === selection.layer && head === selection.head;
    for (let i = first; i < trace.T; i++) {
      const weights = stepRow(headOf(trace, layer, head), "weights", i);
      const names = ["curve", i === query && "of-query", isOpen && "of-head"].filter(Boolean).join(" ");
      for (let key = first; key < trace.T; key++) {
        const weight = weights[trace.cached + key];
        if (weight < MIN_WEIGHT || key === i || trace.cached + key === 0) continue;
        const d = `M${start} ${yOf(key)}C${middle} ${yOf(key)},${middle} ${yOf(i)},${end} ${yOf(i)}`;
        const width = MAX_CURVE * Math.min(1, weight);
        curves.push(svg("path", { class: names, d, "stroke-width": width.toFixed(2) }));
      }
    }
  }
  return curves;
}

/** Draw the last trace, once the drawing is open and its numbers are loaded. */
async function drawLayers() {
  const trace = traces.at(-1);
  if (!byId("layers").open) return;
  const norms = await source.pack(trace, "stream");
  for (let layer = 0; layer < trace.layers; layer++) await loadLayer(trace, layer);
  if (traces.at(-1) !== trace) return;
  const { T, layers } = trace;
  const first = Math.max(0, T - MAX_DRAWN_TOKENS);
  const width = Math.max(byId("picture").clientWidth, NAMES_WIDTH + 90 * layers); // 90 pixels a layer, or more
  const places = placesOf(layers, width);
  const yOf = (i) => TITLES + (i - first + 0.5) * ROW;
  // The rows of `norms`: row 0 is the embedding's; each block has three, of mid, of what its MLP adds, and of output.
  const normOf = (row, i) => norms[row * T + i];
  const rowsOfBlock = (n) => ({ mid: 3 * n + 1, added: 3 * n + 2, output: 3 * n + 3 });
  const widest = Math.max(...norms);
  const query = queryIn(trace);
  const drawing = svg("svg", {
    width, height: yOf(T), viewBox: `0 0 ${width} ${yOf(T)}`, role: "img",
    "aria-label": say("All layers: bands are tokens, curves are attention, dots are what MLPs add"),
  });
  for (let i = first; i < T; i++) {
    const half = (row) => Math.max(0.5, (MAX_BAND / 2) * (normOf(row, i) / widest));
    const points = [
      [NAMES_WIDTH, half(0)],
      ...places.flatMap(({ end, mlp }, n) => [[end, half(rowsOfBlock(n).mid)], [mlp, half(rowsOfBlock(n).output)]]),
      [width, half(rowsOfBlock(layers - 1).output)],
    ];
    drawing.append(
      bandOf(yOf(i), points),
      svg(
        "text", { x: NAMES_WIDTH - 10, y: yOf(i), class: i === query ? "of-query" : "" },
        wordOf(trace.tokens[i]).slice(0, 16),
      ),
    );
  }
  places.forEach((place, layer) => {
    drawing.append(
      svg("text", { x: (place.start + place.end) / 2, y: 12, class: "title" }, say("Layer {layer}", { layer })),
    );
    drawing.append(...curvesOf(trace, layer, first, place, yOf, query));
    for (let i = first; i < T; i++) {
      const radius = MAX_DOT * Math.sqrt(normOf(rowsOfBlock(layer).added, i) / widest);
      drawing.append(
        svg("circle", { cx: place.mlp, cy: yOf(i), r: radius.toFixed(1), class: i === query ? "of-query" : "" }),
      );
    }
  });
  byId("picture").replaceChildren(drawing);
}

export function startLayers() {
  byId("layers").addEventListener("toggle", drawLayers);
  on("traces language head query", drawLayers);
}
