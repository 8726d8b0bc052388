// What the page does: it draws what chain.js computes, and carries the reader from map to map.
//
// One selection (layer, head, step, query, key) is shared by all views. A view is a trace, or the
// difference of two. Tokens enter the page as text nodes and canvas text alone, never as markup.

const description = JSON.parse(document.getElementById("description").textContent);

// The steps that have a number for each query and key, in the order in which they are computed.
const MATRICES = Object.keys(description.steps).filter((name) => description.steps[name].axes === "Tq Tk");
const AFTER_MASK = new Set(["masked_scores", "weights"]);
const DIFFERENCE = "B − A";
const MAP_PIXELS = 64; // along an edge of a small map; a longer text's cells share them
const LARGEST_CELL = 40;
const LARGEST_LABEL = 96; // the labels of rows and columns, in pixels
const SLANT = 0.9; // of the columns' labels, in radians
const OVERHANG = 52; // what the last of them sticks out
const MILLISECONDS_PER_FRAME = 9;

const traces = description.traces.map((given, number) => {
  const T = given.tokens.length;
  const Tk = given.cached + T;
  const cached = Array.from({ length: given.cached }, (_, n) => ({ symbol: `cached ${n}` }));
  return {
    ...given, number, T, Tk,
    name: "AB"[number],
    mask: unpackedMask(given.mask, T * Tk),
    keys: [...cached, ...given.tokens],
    read: new Map(),
  };
});
const whyNoDifference = traces.length === 2 ? differentShapes(...traces) : "";
const views = traces.map((trace) => viewOf(trace.name, [trace]));
if (traces.length === 2 && !whyNoDifference) views.push(viewOf(DIFFERENCE, traces));

const selection = { layer: 0, head: 0, step: "weights", query: traces[0].T - 1, key: 0, zoom: 1 };

// ---- data -------------------------------------------------------------------------------------

function differentShapes(a, b) {
  if (a.layers !== b.layers || a.H !== b.H || a.Dh !== b.Dh) {
    const size = ({ name, layers, H, Dh }) => `${name} has ${layers} layers of ${H} heads, Dh ${Dh}`;
    return `No difference is shown: ${size(a)}; ${size(b)}.`;
  }
  if (a.T !== b.T || a.Tk !== b.Tk) {
    const size = ({ name, T, Tk }) => `${name} has ${T} queries and ${Tk} keys`;
    return `No difference is shown: ${size(a)}; ${size(b)}.`;
  }
  return "";
}

function viewOf(name, shown) {
  const [first] = shown;
  const both = (tokens) => (tokens.every((token) => token.symbol === tokens[0].symbol)
    ? tokens[0].symbol : tokens.map((token) => token.symbol).join(" | "));
  return {
    name, traces: shown, T: first.T, Tk: first.Tk, layers: first.layers, H: first.H, mask: first.mask,
    isDifference: shown.length === 2,
    keyLabels: first.keys.map((_, j) => both(shown.map((trace) => trace.keys[j]))),
    queryLabels: first.tokens.map((_, i) => both(shown.map((trace) => trace.tokens[i]))),
  };
}

/** A head of a trace. A layer is decoded when it is first looked at, and its text then dropped. */
function headOf(trace, layer, head) {
  if (!trace.read.has(layer)) {
    const element = document.getElementById(`trace-${trace.number}-layer-${layer}`);
    const values = new Float32Array(bytesOf(element.textContent).buffer);
    element.remove();
    trace.read.set(layer, headsOf(values, trace.mask, trace));
  }
  return trace.read.get(layer)[head];
}

const hasHead = ({ layers, H }, layer, head) => layer < layers && head < H;

/** Row i of a step in a view; where a difference is one of two -inf, NaN. */
function valuesOf(view, layer, head, step, i) {
  const rows = view.traces.map((trace) => stepRow(headOf(trace, layer, head), step, i));
  return view.isDifference ? rows[1].map((x, j) => x - rows[0][j]) : rows[0];
}

function matrixOf(view, { layer, head, step }) {
  const matrix = new Float32Array(view.T * view.Tk);
  for (let i = 0; i < view.T; i++) matrix.set(valuesOf(view, layer, head, step, i), i * view.Tk);
  return matrix;
}

const isHidden = (view, step, i, j) => AFTER_MASK.has(step) && view.mask[i * view.Tk + j] === 0;

// ---- words ------------------------------------------------------------------------------------

/** An element with attributes, and children that are elements or plain text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const byId = (id) => document.getElementById(id);

function format(x, digits = 4) {
  if (x === -Infinity) return "-inf";
  const size = Math.abs(x);
  if (size >= 1e6 || (size > 0 && size < 10 ** -digits)) return x.toExponential(digits - 1);
  return x.toFixed(digits);
}

/** A number as the reader sees it, with all its digits beside it for programs. */
const number = (x, digits = 6) => make("data", { value: String(x) }, format(x, digits));

/** A token's symbol; the Ġ that stands for a space steps back. */
function symbolOf(symbol) {
  const [head, tail] = symbol.length > 1 && symbol[0] === "Ġ" ? ["Ġ", symbol.slice(1)] : ["", symbol];
  return make("bdi", { class: "symbol" }, ...(head ? [make("span", { class: "space" }, head)] : []), tail);
}

const brief = (text) => (text.length > 40 ? `${text.slice(0, 39)}…` : text);

const formulaOf = (step) => `${step} = ${description.steps[step].formula}`;

// ---- colours ----------------------------------------------------------------------------------

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";
let palettes;

function choosePalettes() {
  palettes = { weights: sequential(isDark()), signed: diverging(isDark()) };
  byId("theme").textContent = isDark() ? "Light" : "Dark";
}

/** How values become colours: `at` puts a value between 0 and 1. */
function scaleOf(view, step, bound) {
  if (step === "weights" && !view.isDifference) {
    // Small weights are many; by their roots they can be told from none.
    return { colours: palettes.weights, at: Math.sqrt, ticks: [0, 0.01, 0.1, 0.25, 0.5, 1], note: "colour by √weight" };
  }
  return { colours: palettes.signed, at: (x) => (x / bound + 1) / 2, ticks: [-bound, 0, bound], note: "" };
}

/** The largest |value| that is shown; 1 where there is none but 0. */
function boundOf(view, step, matrix) {
  let bound = 0;
  for (let n = 0; n < matrix.length; n++) {
    const size = Math.abs(matrix[n]);
    if (size > bound && (!AFTER_MASK.has(step) || view.mask[n])) bound = size;
  }
  return bound || 1;
}

const shadeOf = (scale, x) => scale.colours[Math.round(Math.min(1, Math.max(0, scale.at(x))) * (SHADES - 1))];

/** A canvas with one pixel for each value; those that are hidden stay clear. */
function bitmapOf(values, width, height, scale, hidden, canvas = document.createElement("canvas")) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let n = 0; n < values.length; n++) if (!hidden(n)) pixels[n] = shadeOf(scale, values[n]);
  context.putImageData(image, 0, 0);
  return canvas;
}

/** A canvas as large as it is shown, in device pixels, cleared; a new size costs, so only if new. */
function prepared(canvas, width, height) {
  const ratio = devicePixelRatio;
  const [columns, rows] = [Math.ceil(width * ratio), Math.ceil(height * ratio)];
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.globalAlpha = 1;
  context.clearRect(0, 0, width, height);
  return context;
}

const colourOf = (element) => getComputedStyle(element).color;

function hatch(context, colour) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const lines = tile.getContext("2d");
  lines.strokeStyle = colour;
  lines.beginPath();
  for (const start of [-6, 0, 6]) {
    lines.moveTo(start, 6);
    lines.lineTo(start + 6, 0);
  }
  lines.stroke();
  return context.createPattern(tile, "repeat");
}

/** Run `draw` once before the next frame, however often it is asked for. */
function onceAFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

// ---- the grid of small maps -------------------------------------------------------------------

const waiting = new Map(); // a small map -> its painting, of which a part is done in each frame

function paintWaiting() {
  const end = performance.now() + MILLISECONDS_PER_FRAME;
  for (const [map, painting] of waiting) {
    while (performance.now() < end) {
      if (painting.next().done) {
        waiting.delete(map);
        break;
      }
    }
    if (performance.now() >= end) break;
  }
  if (waiting.size) requestAnimationFrame(paintWaiting);
}

const whenSeen = new IntersectionObserver((entries) => {
  const idle = waiting.size === 0;
  for (const { target, isIntersecting } of entries) {
    const map = target.map;
    if (map.values) continue;
    if (isIntersecting) waiting.set(map, paint(map));
    else waiting.delete(map);
  }
  if (idle && waiting.size) requestAnimationFrame(paintWaiting);
});

/** The weights of a head on a map's pixels, row by row; of cells that share one, the strongest. */
function* paint(map) {
  const { view, layer, head } = map;
  const height = Math.min(view.T, MAP_PIXELS);
  const width = Math.min(view.Tk, MAP_PIXELS);
  const values = new Float32Array(width * height).fill(NaN);
  for (let i = 0; i < view.T; i++) {
    const row = valuesOf(view, layer, head, "weights", i);
    const start = Math.floor((i * height) / view.T) * width;
    for (let j = 0; j < view.Tk; j++) {
      if (isHidden(view, "weights", i, j)) continue;
      const n = start + Math.floor((j * width) / view.Tk);
      if (!(Math.abs(values[n]) >= Math.abs(row[j]))) values[n] = row[j];
    }
    yield;
  }
  map.values = values;
  map.size = [width, height];
  colourMap(map);
}

function colourMap({ view, values, size, canvas, cell }) {
  if (!values) return;
  bitmapOf(values, ...size, scaleOf(view, "weights", 1), (n) => Number.isNaN(values[n]), canvas);
  cell.classList.add("drawn");
}

function makeGrid(view) {
  const grid = make("div", { role: "grid", class: "grid", "aria-label": `Heads${labelOf(view)}: a row for each layer` });
  grid.style.setProperty("--heads", view.H);
  const heads = Array.from({ length: view.H }, (_, h) => make("span", { role: "columnheader" }, String(h)));
  grid.append(make("div", { role: "row" }, make("span", { role: "columnheader", "aria-label": "layer", class: "corner" }, ""), ...heads));
  const maps = [];
  for (let layer = 0; layer < view.layers; layer++) {
    const row = make("div", { role: "row" }, make("span", { role: "rowheader" }, String(layer)));
    for (let head = 0; head < view.H; head++) {
      const canvas = make("canvas", { "aria-hidden": "true" });
      const cell = make("div", { role: "gridcell", class: "map", tabindex: "-1", title: `layer ${layer}, head ${head}`, "aria-label": `layer ${layer}, head ${head}` }, canvas);
      const map = { view, layer, head, canvas, cell };
      cell.map = map;
      maps.push(map);
      row.append(cell);
      whenSeen.observe(cell);
    }
    grid.append(row);
  }
  grid.addEventListener("click", ({ target }) => {
    const cell = target.closest(".map");
    if (cell) openHead(cell.map.layer, cell.map.head);
  });
  grid.addEventListener("keydown", (event) => {
    const { layer, head } = event.target.map ?? {};
    if (layer === undefined) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      openHead(layer, head);
      heatmapOf(view).cursor.focus();
      return;
    }
    const to = moved(event, layer, head, view.layers, view.H);
    if (to) focusMap(to[0] * view.H + to[1]);
  });
  function focusMap(n) {
    for (const { cell } of maps) cell.tabIndex = -1;
    maps[n].cell.tabIndex = 0;
    maps[n].cell.focus();
  }
  function mark() {
    for (const { cell, layer, head } of maps) {
      const open = layer === selection.layer && head === selection.head;
      cell.setAttribute("aria-selected", String(open));
      cell.tabIndex = open ? 0 : -1;
    }
  }
  byId("grids").append(make("div", {}, ...nameOf(view), make("div", { class: "sideways" }, grid)));
  return {
    view, maps, mark,
    focus() {
      const n = selection.layer * view.H + selection.head;
      focusMap(hasHead(view, selection.layer, selection.head) ? n : 0);
    },
  };
}

/** Where an arrow key leads from row i, column j; undefined for other keys. */
function moved(event, i, j, rows, columns) {
  const page = 10;
  const steps = {
    ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1],
    PageUp: [i - page, j], PageDown: [i + page, j],
    Home: [event.ctrlKey ? 0 : i, 0], End: [event.ctrlKey ? rows - 1 : i, columns - 1],
  };
  if (!(event.key in steps)) return undefined;
  event.preventDefault();
  const within = (n, count) => Math.max(0, Math.min(count - 1, n));
  return [within(steps[event.key][0], rows), within(steps[event.key][1], columns)];
}

const labelOf = (view) => (traces.length === 2 ? ` of ${view.name}` : "");
const nameOf = (view) => (traces.length === 2 ? [make("h3", {}, view.name)] : []);

// ---- a text, and the lines from one of its tokens ---------------------------------------------

function makeText(view) {
  const [trace] = view.traces;
  const canvas = make("canvas", { "aria-hidden": "true" });
  const flow = make("div", { class: "flow", role: "toolbar", "aria-label": `Tokens${labelOf(view)}` });
  const chips = trace.keys.map((token, n) => {
    const weight = make("small", { "aria-hidden": "true" });
    const chip = make("button", { type: "button", class: "chip", tabindex: "-1" }, symbolOf(token.symbol), weight);
    chip.classList.toggle("cached", n < trace.cached);
    flow.append(chip);
    return { chip, weight, token, n };
  });
  chips[trace.cached].chip.tabIndex = 0;
  const next = make("ol", { class: "next", "aria-label": `Next tokens${labelOf(view)}` });
  for (const token of trace.next) {
    const bar = make("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", token.probability);
    const chip = make("button", { type: "button", class: "chip" }, symbolOf(token.symbol));
    describe(chip, token, "");
    next.append(make("li", {}, chip, bar, make("data", { value: String(token.probability) }, format(token.probability))));
  }
  const stage = make("div", { class: "stage" }, canvas, flow);
  byId("texts").append(
    make("div", { class: "text" }, ...nameOf(view), stage,
      make("div", {}, make("h3", {}, "Next token"), next)),
  );

  let boxes = null; // where the chips lie; forgotten when the layout changes
  let followed; // the query that the flow was last scrolled to; the reader may scroll on from there
  const draw = onceAFrame(() => {
    const i = Math.min(selection.query, trace.T - 1);
    const { layer, head } = selection;
    const weights = hasHead(trace, layer, head) ? valuesOf(view, layer, head, "weights", i) : new Float64Array(trace.Tk);
    chips.forEach(({ chip, weight }, j) => {
      const seen = !isHidden(view, "weights", i, j) && hasHead(trace, layer, head);
      chip.classList.toggle("unseen-by-query", !seen);
      chip.classList.toggle("query", j === trace.cached + i);
      chip.style.setProperty("--weight", Math.sqrt(weights[j]).toFixed(3));
      const words = seen ? weights[j].toFixed(2) : "";
      if (weight.textContent !== words) weight.textContent = words;
    });
    boxes ??= chips.map(({ chip }) => ({ x: chip.offsetLeft + chip.offsetWidth / 2, top: chip.offsetTop, bottom: chip.offsetTop + chip.offsetHeight }));
    const from = boxes[trace.cached + i];
    if (followed !== i) {
      followed = i;
      const outOfSight = from.bottom < flow.scrollTop || from.top > flow.scrollTop + flow.clientHeight;
      if (outOfSight) flow.scrollTop = from.bottom - flow.clientHeight / 2;
    }
    const context = prepared(canvas, flow.clientWidth, flow.clientHeight);
    context.translate(0, -flow.scrollTop);
    context.strokeStyle = colourOf(canvas);
    context.lineCap = "round";
    weights.forEach((weight, j) => {
      if (weight < 0.002 || j === trace.cached + i) return;
      const to = boxes[j];
      context.globalAlpha = Math.sqrt(weight);
      context.lineWidth = 0.75 + 3.25 * weight;
      context.beginPath();
      context.moveTo(from.x, from.top);
      if (to.top === from.top) {
        const rise = Math.min(34, 10 + Math.abs(to.x - from.x) / 14);
        context.bezierCurveTo(from.x, from.top - rise, to.x, to.top - rise, to.x, to.top);
      } else {
        const between = (from.top + to.bottom) / 2;
        context.bezierCurveTo(from.x, between, to.x, between, to.x, to.top < from.top ? to.bottom : to.top);
      }
      context.stroke();
    });
  });

  const choose = (n) => select(Math.max(0, n - trace.cached), selection.key);
  for (const { chip, token, n } of chips) {
    if (token.id === undefined) chip.setAttribute("aria-label", `${token.symbol}, found in the cache`);
    else describe(chip, token, `${n}`);
    chip.addEventListener("pointerenter", () => choose(n));
    chip.addEventListener("focus", () => {
      for (const other of chips) other.chip.tabIndex = other.n === n ? 0 : -1;
      choose(n);
    });
    chip.addEventListener("keydown", (event) => {
      const to = moved(event, 0, n, 1, chips.length);
      if (to) chips[to[1]].chip.focus();
    });
  }
  flow.addEventListener("scroll", draw);
  new ResizeObserver(() => {
    boxes = null;
    draw();
  }).observe(flow);
  return { draw };
}

/** Show a token's card while the pointer or the focus is on `chip`. */
function describe(chip, token, position) {
  const card = byId("card");
  const rows = [
    ["symbol", token.symbol], ["text", `“${token.text}”`], ["bytes", token.bytes], ["id", String(token.id)],
    ...(position ? [["position", position]] : []), ...(token.part_of ? [["part of", token.part_of]] : []),
  ];
  chip.setAttribute("aria-label", rows.slice(0, 4).map(([name, value]) => `${name} ${brief(value)}`).join(", "));
  const show = () => {
    card.replaceChildren(make("dl", {}, ...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, make("bdi", {}, value))])));
    card.hidden = false;
    const at = chip.getBoundingClientRect();
    const { width, height } = card.getBoundingClientRect();
    card.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8))}px`;
    card.style.top = `${at.bottom + height + 8 < innerHeight ? at.bottom + 6 : Math.max(8, at.top - height - 6)}px`;
    chip.setAttribute("aria-describedby", "card");
  };
  const hide = () => {
    card.hidden = true;
    chip.removeAttribute("aria-describedby");
  };
  chip.addEventListener("pointerenter", show);
  chip.addEventListener("focus", show);
  chip.addEventListener("pointerleave", hide);
  chip.addEventListener("blur", hide);
  chip.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}

// ---- the heatmap of a head --------------------------------------------------------------------

function makeHeatmap(view) {
  const readout = make("p", { class: "readout", "aria-live": "polite" });
  const top = make("canvas", { class: "labels top", "aria-hidden": "true" });
  const left = make("canvas", { class: "labels", "aria-hidden": "true" });
  const plot = make("canvas", { class: "plot", "aria-hidden": "true" });
  const cursor = make("div", { role: "gridcell", class: "cursor", tabindex: "0" });
  const row = make("div", { role: "row" }, cursor);
  const extent = make("div", { class: "extent", role: "presentation" }, plot, row);
  const scroller = make("div", { role: "grid", class: "scroller", "aria-rowcount": view.T, "aria-colcount": view.Tk, tabindex: "-1" }, extent);
  const ramp = make("canvas", { class: "ramp", "aria-hidden": "true" });
  const ticks = make("div", { class: "ticks" });
  const legend = make("figcaption", { class: "legend" }, ramp, ticks);
  const missing = make("p", { class: "note", hidden: "" });
  const frame = make("div", { class: "frame" }, make("span", { class: "axes", "aria-hidden": "true" }, "Tq ↓  Tk →"), top, left, scroller);
  const figure = make("figure", { class: "heatmap" }, ...nameOf(view), missing, readout, frame, legend);
  byId("heatmaps").append(figure);

  let matrix, bitmap, scale, cell, labelWidth, labelHeight;

  /** Compute the selected step; tell the largest |value| that is shown. */
  function compute() {
    const there = hasHead(view, selection.layer, selection.head);
    missing.hidden = there;
    missing.textContent = there ? "" : `${view.name} has no layer ${selection.layer}, head ${selection.head}.`;
    for (const part of [readout, frame, legend]) part.hidden = !there;
    matrix = there ? matrixOf(view, selection) : null;
    return there ? boundOf(view, selection.step, matrix) : 0;
  }

  function colour(bound) {
    if (!matrix) return;
    const { step } = selection;
    scale = scaleOf(view, step, bound);
    bitmap = bitmapOf(matrix, view.Tk, view.T, scale, (n) => AFTER_MASK.has(step) && view.mask[n] === 0);
    scroller.setAttribute("aria-label", `${formulaOf(step)}${labelOf(view)}, layer ${selection.layer}, head ${selection.head}: a row for each query, a column for each key`);
    const context = prepared(ramp, 256, 10);
    scale.colours.forEach((bits, n) => {
      context.fillStyle = cssColour(bits);
      context.fillRect((n * 256) / SHADES, 0, 2, 10);
    });
    ticks.replaceChildren(...scale.ticks.map((x) => {
      const tick = make("span", {}, String(Number(x.toPrecision(4))));
      tick.style.left = `${100 * scale.at(x)}%`;
      return tick;
    }));
    legend.querySelectorAll("p").forEach((note) => note.remove());
    const notes = [scale.note, AFTER_MASK.has(step) ? "hatched: masked" : ""].filter(Boolean).join(" · ");
    legend.append(make("p", {}, notes));
    layOut();
  }

  function layOut() {
    if (!matrix) return;
    const context = left.getContext("2d");
    context.font = getComputedStyle(left).font;
    const widest = (texts) =>
      Math.min(LARGEST_LABEL, Math.ceil(Math.max(...texts.map((text) => context.measureText(brief(text)).width))));
    labelWidth = Math.max(36, widest(view.queryLabels) + 10); // room for the axes' names at least
    labelHeight = Math.max(32, widest(view.keyLabels) * Math.sin(SLANT) + 18);
    const room = Math.max(120, figure.clientWidth - labelWidth - OVERHANG);
    const fit = Math.max(1, Math.min(LARGEST_CELL, room / view.Tk));
    cell = fit * selection.zoom;
    if (cell > 2) cell = Math.floor(cell);
    extent.style.width = `${view.Tk * cell}px`;
    extent.style.height = `${view.T * cell}px`;
    scroller.style.width = `${Math.min(room, view.Tk * cell)}px`;
    scroller.style.height = `${Math.min(Math.max(320, innerHeight * 0.8), view.T * cell)}px`;
    figure.style.setProperty("--label", `${labelWidth}px`);
    figure.style.setProperty("--label-height", `${labelHeight}px`);
    place();
    draw();
  }

  /** Labels of those rows or columns that are in sight and far enough apart to be read. */
  function labels(canvas, texts, apart, offset, length, width, height, chosen, position) {
    const context = prepared(canvas, width, height);
    context.font = getComputedStyle(canvas).font;
    context.textBaseline = "middle";
    const muted = colourOf(canvas);
    const strong = colourOf(figure);
    const every = Math.ceil(apart / cell);
    const first = Math.floor(offset / cell);
    for (let n = first; n < Math.min(texts.length, (offset + length) / cell); n++) {
      const crowded = n !== chosen && Math.abs(n - chosen) * cell < apart;
      if ((n % every && n !== chosen) || crowded) continue;
      const middle = (n + 0.5) * cell - offset;
      if (middle < 0 || middle > length) continue;
      context.save();
      context.fillStyle = n === chosen ? strong : muted;
      position(context, middle);
      context.fillText(clipped(context, texts[n]), 0, 0);
      context.restore();
    }
  }

  function clipped(context, text) {
    let shown = brief(text);
    if (context.measureText(shown).width <= LARGEST_LABEL) return shown;
    while (shown && context.measureText(`${shown}…`).width > LARGEST_LABEL) shown = shown.slice(0, -1);
    return `${shown}…`;
  }

  const draw = onceAFrame(() => {
    if (!matrix) return;
    const { clientWidth: width, clientHeight: height, scrollLeft: x, scrollTop: y } = scroller;
    const context = prepared(plot, width, height);
    context.translate(-x, -y);
    if (AFTER_MASK.has(selection.step)) {
      context.fillStyle = hatch(context, colourOf(plot));
      context.fillRect(x, y, width, height);
    }
    const [j, i] = [Math.floor(x / cell), Math.floor(y / cell)];
    const columns = Math.min(view.Tk, Math.ceil((x + width) / cell)) - j;
    const rows = Math.min(view.T, Math.ceil((y + height) / cell)) - i;
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap, j, i, columns, rows, j * cell, i * cell, columns * cell, rows * cell);
    if (cell >= 10) {
      context.fillStyle = getComputedStyle(figure).getPropertyValue("background-color");
      for (let n = j; n <= j + columns; n++) context.fillRect(n * cell - 0.5, y, 1, height);
      for (let n = i; n <= i + rows; n++) context.fillRect(x, n * cell - 0.5, width, 1);
    }
    const { query, key } = chosen();
    labels(left, view.queryLabels, 14, y, height, labelWidth, height, query, (label, middle) => {
      label.textAlign = "right";
      label.translate(labelWidth - 6, Math.max(7, middle)); // the first is not cut in half
    });
    labels(top, view.keyLabels, 19, x, width, width + OVERHANG, labelHeight, key, (label, middle) => {
      label.translate(middle + 2, labelHeight - 8);
      label.rotate(-SLANT);
    });
  });

  const chosen = () => ({ query: Math.min(selection.query, view.T - 1), key: Math.min(selection.key, view.Tk - 1) });

  /** Put the cursor on the chosen cell and say what is in it. */
  function place() {
    if (!matrix) return;
    const { query: i, key: j } = chosen();
    const size = Math.max(cell, 5);
    cursor.style.transform = `translate(${(j + 0.5) * cell - size / 2}px, ${(i + 0.5) * cell - size / 2}px)`;
    cursor.style.width = cursor.style.height = `${size}px`;
    row.setAttribute("aria-rowindex", i + 1);
    cursor.setAttribute("aria-colindex", j + 1);
    const value = matrix[i * view.Tk + j];
    const masked = isHidden(view, selection.step, i, j);
    const shown = Number.isNaN(value) ? 0 : value; // the difference of two -inf
    const words = [make("span", {}, `query ${i} `, symbolOf(brief(view.queryLabels[i]))), " → ",
      make("span", {}, `key ${j} `, symbolOf(brief(view.keyLabels[j])))];
    readout.replaceChildren(make("span", { class: "pair" }, ...words), make("strong", {}, number(shown, 4), masked ? " masked" : ""));
    cursor.setAttribute("aria-label", `query ${i} ${brief(view.queryLabels[i])}, key ${j} ${brief(view.keyLabels[j])}, ${selection.step} ${format(shown)}${masked ? ", masked" : ""}`);
    draw();
  }

  function keepInSight() {
    const { query: i, key: j } = chosen();
    if (j * cell < scroller.scrollLeft) scroller.scrollLeft = j * cell;
    if ((j + 1) * cell > scroller.scrollLeft + scroller.clientWidth) scroller.scrollLeft = (j + 1) * cell - scroller.clientWidth;
    if (i * cell < scroller.scrollTop) scroller.scrollTop = i * cell;
    if ((i + 1) * cell > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = (i + 1) * cell - scroller.clientHeight;
  }

  function under(event) {
    const box = scroller.getBoundingClientRect();
    const i = Math.floor((event.clientY - box.top + scroller.scrollTop) / cell);
    const j = Math.floor((event.clientX - box.left + scroller.scrollLeft) / cell);
    return i >= 0 && j >= 0 && i < view.T && j < view.Tk ? [i, j] : undefined;
  }

  scroller.addEventListener("pointermove", (event) => {
    const at = under(event);
    if (at) select(...at);
  });
  scroller.addEventListener("click", (event) => {
    const at = under(event);
    if (!at) return;
    select(...at);
    openArithmetic(cursor);
  });
  scroller.addEventListener("scroll", draw);
  cursor.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      openArithmetic(cursor);
    } else if (event.key === "Escape") {
      gridOf(view).focus();
    } else {
      const { query, key } = chosen();
      const to = moved(event, query, key, view.T, view.Tk);
      if (!to) return;
      select(...to);
      keepInSight();
    }
  });
  new ResizeObserver(onceAFrame(layOut)).observe(figure);
  return { view, cursor, compute, colour, layOut, place };
}

// ---- the arithmetic of a cell -----------------------------------------------------------------

let opened = null; // the cell whose arithmetic is shown; the pointer moves on, the arithmetic stays

function openArithmetic(cursor) {
  const { layer, head, query, key } = selection;
  opened = { layer, head, query, key, component: 0, cursor };
  showArithmetic();
  const title = byId("arithmetic-title");
  title.focus({ preventScroll: true });
  title.scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

function showArithmetic() {
  const { layer, head, query, key } = opened;
  const shown = traces.filter((trace) => hasHead(trace, layer, head) && query < trace.T && key < trace.Tk);
  byId("arithmetic-title").textContent = `Arithmetic of layer ${layer}, head ${head}, query ${query}, key ${key}`;
  byId("sums").replaceChildren(...shown.map(arithmeticOf));
  if (shown.length === 2 && !whyNoDifference) byId("sums").append(comparedOf(shown));
}

function table(caption, heads, rows, foot, marked, onRow) {
  const body = rows.map((cells, n) => {
    const button = make("button", { type: "button", class: "row-button" }, ...[cells[0]].flat());
    button.addEventListener("click", () => onRow(n));
    const row = make("tr", n === marked ? { "aria-current": "true" } : {}, make("th", { scope: "row" }, button));
    row.append(...cells.slice(1).map((x) => make("td", {}, typeof x === "number" ? number(x) : x)));
    return row;
  });
  const last = make("tr", {}, make("th", { scope: "row" }, foot[0]), ...foot.slice(1).map((x) => make("td", {}, typeof x === "number" ? number(x) : x)));
  return make("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption },
    make("table", {}, make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...body), make("tfoot", {}, last)));
}

function arithmeticOf(trace) {
  const { layer, head: h, query: i, key: j, component } = opened;
  const head = headOf(trace, layer, h);
  const { Dh, Tk, Q, K, V } = head;
  const chosen = Math.min(component, Dh - 1);
  const steps = Object.fromEntries(["raw_scores", "scores", "masked_scores"].map((name) => [name, stepRow(head, name, i)]));
  const { largest, exponentials, sum, weights } = softmax(steps.masked_scores);
  const context = contextRow(head, weights);
  const masked = isMasked(head, i, j);

  const line = (name, ...parts) => make("li", { "data-step": name }, make("code", {}, formulaOf(name)), make("span", { class: "sum" }, ...parts));
  const result = (x) => make("strong", {}, number(x));
  const chain = make("ol", { class: "chain" },
    line("raw_scores", `the ${Dh} products added up: `, result(steps.raw_scores[j])),
    line("scores", number(steps.raw_scores[j]), ` / √${Dh} = `, number(steps.raw_scores[j]), " / ", number(Math.sqrt(Dh)), " = ", result(steps.scores[j])),
    line("masked_scores", `the mask is ${masked ? "False" : "True"}: `, result(steps.masked_scores[j])),
    line("weights", "exp(", number(steps.masked_scores[j]), " − ", number(largest), ") = ", number(exponentials[j]),
      "; divided by the row's sum, ", number(exponentials[j]), " / ", number(sum), " = ", result(weights[j])),
    line("context", `component ${chosen}: key ${j} adds `, number(weights[j]), " × ", number(V[j * Dh + chosen]), " = ",
      number(weights[j] * V[j * Dh + chosen]), "; all keys added up: ", result(context[chosen])));

  const choose = (name) => (n) => {
    const scrolled = Array.from(document.querySelectorAll("#sums .table"), (part) => part.scrollTop);
    opened[name] = n;
    showArithmetic();
    document.querySelectorAll("#sums .table").forEach((part, t) => { part.scrollTop = scrolled[t]; });
    document.querySelector(`#sums [data-trace="${trace.number}"] [data-rows="${name}"] tr[aria-current] button`).focus({ preventScroll: true });
  };
  const components = table(`The ${Dh} components of query ${i} and key ${j}`,
    ["d", `Q[${i}]`, `K[${j}]`, "product", `V[${j}]`, "weight × V", `context[${i}]`],
    Array.from({ length: Dh }, (_, d) => [String(d), Q[i * Dh + d], K[j * Dh + d], Q[i * Dh + d] * K[j * Dh + d], V[j * Dh + d], weights[j] * V[j * Dh + d], context[d]]),
    ["sum", "", "", steps.raw_scores[j], "", "", ""], chosen, choose("component"));
  const keys = table(`The row of query ${i}: its largest masked score is ${format(largest, 6)}`,
    ["key", "raw_scores", "scores", "masked_scores", "exp(· − largest)", "weights", `V[·, ${chosen}]`, "weight × V"],
    trace.keys.map((token, n) => [[`${n} `, symbolOf(brief(token.symbol))], steps.raw_scores[n], steps.scores[n], steps.masked_scores[n], exponentials[n], weights[n], V[n * Dh + chosen], weights[n] * V[n * Dh + chosen]]),
    ["sum", "", "", "", sum, weights.reduce((a, b) => a + b), "", context[chosen]], j, choose("key"));
  components.dataset.rows = "component";
  keys.dataset.rows = "key";
  keys.querySelectorAll("tbody tr").forEach((row, n) => row.classList.toggle("masked", isMasked(head, i, n)));

  const title = make("p", { class: "pair" }, ...(traces.length === 2 ? [make("b", {}, `${trace.name}: `)] : []),
    "how ", symbolOf(brief(trace.tokens[i].symbol)), ` looks at `, symbolOf(brief(trace.keys[j].symbol)));
  return make("article", { "data-trace": trace.number }, title, chain, make("div", { class: "tables" }, components, keys));
}

function comparedOf(shown) {
  const { layer, head, query: i, key: j } = opened;
  const rows = MATRICES.map((step) => {
    const [a, b] = shown.map((trace) => stepRow(headOf(trace, layer, head), step, i)[j]);
    const difference = a === b ? 0 : b - a; // also of two -inf
    return make("tr", {}, make("th", { scope: "row" }, step), ...[a, b, difference].map((x) => make("td", {}, number(x))));
  });
  return make("article", { class: "compared" }, make("table", {}, make("caption", {}, "Both, and their difference"),
    make("thead", {}, make("tr", {}, ...["step", "A", "B", DIFFERENCE].map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...rows)));
}

// ---- what the reader does ---------------------------------------------------------------------

/** Choose a query and a key: by pointer, by key, by token. */
function select(query, key) {
  if (query === selection.query && key === selection.key) return;
  Object.assign(selection, { query, key });
  for (const heatmap of heatmaps) heatmap.place();
  for (const text of texts) text.draw();
}

function openHead(layer, head) {
  Object.assign(selection, { layer, head });
  showHead();
}

function showHead() {
  const { layer, head, step } = selection;
  byId("head-title").textContent = `Layer ${layer}, head ${head}`;
  byId("formula").textContent = formulaOf(step);
  for (const grid of grids) grid.mark();
  for (const text of texts) text.draw();
  const bounds = heatmaps.map((heatmap) => heatmap.compute());
  const shared = Math.max(...bounds.filter((_, n) => !views[n].isDifference)); // so that colours compare
  heatmaps.forEach((heatmap, n) => heatmap.colour(views[n].isDifference ? bounds[n] : shared));
}

const gridOf = (view) => grids[views.indexOf(view)];
const heatmapOf = (view) => heatmaps[views.indexOf(view)];

function repaint() {
  choosePalettes();
  for (const grid of grids) grid.maps.forEach(colourMap);
  showHead();
}

function makeSteps() {
  for (const step of MATRICES) {
    const radio = make("input", { type: "radio", name: "step", value: step });
    radio.checked = step === selection.step;
    radio.addEventListener("change", () => {
      selection.step = step;
      showHead();
    });
    byId("steps").append(make("label", {}, radio, make("span", {}, step)));
  }
}

function zoom(factor) {
  selection.zoom = Math.max(1, Math.min(32, selection.zoom * factor));
  for (const heatmap of heatmaps) heatmap.layOut();
}

function summarise() {
  const sizes = traces.map(({ name, layers, H, T, cached }) => {
    const after = cached ? ` after ${cached} cached` : "";
    const size = `${layers} ${layers === 1 ? "layer" : "layers"} × ${H} ${H === 1 ? "head" : "heads"}, ${T} ${T === 1 ? "token" : "tokens"}${after}`;
    return traces.length === 2 ? `${name}: ${size}` : size;
  });
  byId("summary").textContent = sizes.join(" · ");
  if (traces.length < 2) return;
  const [a, b] = traces;
  const differ = a.tokens.filter((token, n) => token.id !== b.tokens[n]?.id).length;
  const compared = byId("compared");
  compared.hidden = false;
  compared.textContent = whyNoDifference
    || `${DIFFERENCE} is shown beside them. ${differ ? `${differ} of ${a.T} tokens differ.` : "The tokens are the same."}`;
}

document.body.classList.toggle("comparing", traces.length === 2);
document.body.style.setProperty("--views", views.length);
document.body.style.setProperty("--traces", traces.length);
choosePalettes();
summarise();
makeSteps();
const texts = views.filter((view) => !view.isDifference).map(makeText);
const heatmaps = views.map(makeHeatmap);
const grids = views.map(makeGrid);
showHead();

byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  repaint();
});
prefersDark.addEventListener("change", repaint);
byId("smaller").addEventListener("click", () => zoom(1 / 1.5));
byId("larger").addEventListener("click", () => zoom(1.5));
byId("arithmetic").addEventListener("keydown", (event) => {
  if (event.key === "Escape") opened?.cursor.focus();
});
