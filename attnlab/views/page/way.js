// The way of a token through the model: its row at each stop, and the arithmetic of each number.

const SHORT = 256; // numbers, each of which a strip in the list of stops has room for

const walk = { trace: 0, path: "embedding", component: 0 };

let walked; // what is shown: as `readWay` makes it, with `stop` and the `part` that it belongs to
let asked = 0; // how often something else was chosen; what comes for an earlier choice is let go

/** Begin again, with other traces. */
function openWay() {
  walk.trace = Math.min(walk.trace, traces.length - 1);
  const choice = byId("way-traces");
  choice.hidden = traces.length < 2;
  choice
    .querySelectorAll("label")
    .forEach((label) => label.remove());
  for (const { number: n, name } of traces) {
    const radio = radioOf("way-trace", name, () => {
      walk.trace = n;
      openWay();
    });
    radio.firstElementChild.checked = n === walk.trace;
    choice.append(radio);
  }
  const trace = traces[walk.trace];
  const stops = stopsOf(trace);
  if (!stops.some(({ path }) => path === walk.path)) walk.path = "embedding";
  const parts = [
    ["", say("Embedding")],
    ...Array.from({ length: trace.layers }, (_, layer) => [layer, say("Block {layer}", { layer })]),
    ["end", say("Logits")],
  ];
  const choices = parts.map(([part, words]) => {
    const first = stops.find((stop) => partOfWay(stop) === part);
    const radio = radioOf("way-part", words, () => goTo(first.path));
    radio.dataset.part = part;
    return radio;
  });
  byId("way-parts").replaceChildren(byId("way-parts").firstElementChild, ...choices);
  return showWay();
}

const partOfWay = ({ layer, name }) =>
  layer ?? (/^(final|logits|probabilities)$/.test(name) ? "end" : "");

/** Go to a stop, and to one of its numbers. */
function goTo(path, component = walk.component) {
  Object.assign(walk, { path, component, isLinked: true });
  tellLink();
  return showWay();
}

/** Go to a number of a token's vector in a head, which the way makes. */
async function goToVector(trace, position, name, component) {
  if (queryIn(trace) !== position)
    select(places.queries.findIndex((place) => place[trace.number] === position));
  if (walk.trace !== trace.number) {
    walk.trace = trace.number;
    openWay();
  }
  await new Promise(requestAnimationFrame); // by then the way has followed the selection
  const { layer, head } = opened;
  await goTo(`blocks.${layer}.attention.${name}`, head * trace.Dh + component);
  byId("way").scrollIntoView();
  strip.focus();
}

/** What a link says of the way: where the reader has gone, or nothing. */
const linkOfWay = () => (walk.isLinked ? { stop: walk.path, component: walk.component } : {});

/** Go where a link leads, if this page has such a stop. */
function followLinkOfWay({ stop, component }) {
  if (!stopsOf(traces[walk.trace]).some(({ path }) => path === stop)) return;
  goTo(stop, component >= 0 ? Math.floor(component) : 0);
}

/** The position nearest to one whose way can be had. */
function nearestWay(trace, wanted) {
  const there = trace.tokens.map((_, i) => i).filter((i) => source.has(trace, `way.${i}`));
  return there.reduce((best, i) =>
    Math.abs(i - wanted) <= Math.abs(best - wanted) ? i : best,
  );
}

/** A token's way, whose rows are made when they are looked at, read once. */
function wayOf(trace, position) {
  trace.ways ??= new Map();
  if (!trace.ways.has(position)) trace.ways.set(position, readWay(trace, position));
  return trace.ways.get(position);
}

async function readWay(trace, position) {
  const [numbers, norms] = await Promise.all([
    source.step(trace, `way.${position}`),
    source.has(trace, "norms") ? source.step(trace, "norms") : null,
  ]);
  const given = { ...rowsIn(trace, numbers), ...(norms && normsIn(trace, norms)) };
  return { trace, position, stops: stopsOf(trace), given, run: null, layers: null };
}

/** The rows in a pack "way", by path. */
function rowsIn({ way: { carried, D, F } }, numbers) {
  let end = 0;
  const rows = carried.map((path) => {
    const width = /\.(hidden|activated)$/.test(path) ? F : D;
    const row = new Nd(Float64Array.from(numbers.subarray(end, end + width)), [1, width]);
    end += width;
    return [path, row];
  });
  return Object.fromEntries(rows);
}

/** The LayerNorms' parameters in the pack "norms", by path. */
function normsIn({ layers, way: { D } }, numbers) {
  const blocks = Array.from({ length: layers }, (_, n) => [`blocks.${n}.attention.`, `blocks.${n}.mlp.`]);
  const norms = [...blocks.flat(), ""].flatMap((place, n) => {
    const start = n * (2 * D + 1);
    const part = (from) => new Nd(numbers, [D], undefined, start + from);
    return [
      [`${place}gain`, part(0)],
      [`${place}bias`, part(D)],
      [`${place}epsilon`, numbers[start + 2 * D]],
    ];
  });
  return Object.fromEntries(norms);
}

/** All stops of a model in the order in which they are walked, each with the stops that it is made of. */
function stopsOf({ graph, layers, way }) {
  const names = Object.keys(way.stops);
  const isInBlock = (name) => `blocks.#.${name}` in graph.data;
  const first = names.findIndex(isInBlock);
  const stopOf = (name, layer) => ({ name, layer, path: layer === undefined ? name : `blocks.${layer}.${name}` });
  const stops = [
    ...names.slice(0, first).map((name) => stopOf(name)),
    ...Array.from({ length: layers }, (_, layer) =>
      names.filter(isInBlock).map((name) => stopOf(name, layer)),
    ).flat(),
    ...names.slice(first).filter((name) => !isInBlock(name)).map((name) => stopOf(name)),
  ];
  const paths = new Set(stops.map(({ path }) => path));
  const stopsBefore = (path) =>
    graph.node(path).needs.flatMap((need) => (paths.has(need) ? [need] : stopsBefore(need)));
  return stops.map((stop) =>
    stop.name === "probabilities"
      ? { ...stop, equation: "softmax", needs: ["logits"] } // no step of the model's
      : { ...stop, equation: graph.node(stop.path).equation, needs: stopsBefore(stop.path) },
  );
}

/** The parameter that a stop is multiplied by; of Q, K and V their own columns. */
function mapOf({ graph }, { path, equation }) {
  if (["Q", "K", "V"].includes(equation)) return path.replace(/.$/, "W_$&");
  return graph.node(path).needs[1];
}

/** What may follow a token, read when its way is followed to the end; null where it is not carried. */
async function readFollowing(way) {
  const { trace, position } = way;
  if (position < trace.prediction.first) return null;
  const found = await source.position(trace, position);
  return {
    ...found,
    ...probabilitiesOf(found, { temperature: 1, top_k: null, top_p: null }),
    tokens: found.ids.map((id) => trace.names.get(id)),
  };
}

const OF_HEADS = /^attention\.(Q|K|V|concat)$/; // all heads' vectors, one after the other
const SUMS = new Set(["embedding", "residual"]); // equations of the residual stream
const IS_OF_TOKENS = new Set(["logits", "probabilities"]); // of which the page has the largest

/** A stop's row; undefined where it can't be had. */
function rowAt(way, { path, name }) {
  if (IS_OF_TOKENS.has(name)) return way.following?.[name];
  const { trace, position, given } = way;
  if (way.layers !== trace.read.size) {
    const rounded = way.stops.filter(({ equation }) => SUMS.has(equation)).map(({ path }) => path);
    way.run = runOfQueries(trace, position, position + 1, { own: given, rounded });
    way.layers = trace.read.size; // those that are read later it has not
  }
  try {
    const rows = way.run.look(path);
    if (!/\.[KV]$/.test(path)) return rows.numbers();
    return nd.item(rows, nd.slice(null, null), trace.Tk - trace.T + position, nd.slice(null, null)).numbers();
  } catch (error) {
    if (error instanceof NotThere) return undefined;
    throw error;
  }
}

/** Another query was chosen. */
const followWay = onceAFrame(() => {
  if (!walked || nearestWay(walked.trace, queryIn(walked.trace)) !== walked.position) {
    showWay();
  } else {
    asked++; // another one that is on its way is wanted no more
    tellWhose();
  }
});

/** Whose way it is, and whether it is another one's than the chosen token's. */
function tellWhose() {
  const { trace, position } = walked;
  byId("way-title").replaceChildren(
    ...sayParts("{token}, token {i}, through the model", {
      token: symbolOf(brief(trace.tokens[position].symbol)),
      i: String(position),
    }),
  );
  const query = queryIn(trace);
  byId("way-note").hidden = position === query;
  byId("way-note").textContent = say(
    "This file doesn't include token {query}; attnlab explore has all tokens.",
    { query },
  );
}

async function showWay() {
  const choice = ++asked;
  const trace = traces[walk.trace];
  const position = nearestWay(trace, queryIn(trace));
  const way = await wayOf(trace, position);
  const stop = way.stops.find(({ path }) => path === walk.path);
  if (stop.layer !== undefined && !trace.read.has(stop.layer)) await readLayer(trace, stop.layer);
  if (partOfWay(stop) === "end") way.following ??= await readFollowing(way);
  if (choice !== asked) return;
  walked = { ...way, stop, part: partOfWay(stop) };
  tellWhose();
  for (const label of byId("way-parts").querySelectorAll("label"))
    label.firstElementChild.checked = label.dataset.part === String(walked.part);
  showStops();
  await showStop();
}

/** The stops of the part that is open, each with its row as a strip and how long it is. */
function showStops() {
  const list = byId("stops");
  const hadFocus = list.contains(document.activeElement);
  const options = walked.stops.filter((stop) => partOfWay(stop) === walked.part).map(optionOf);
  list.replaceChildren(...options);
  if (hadFocus) list.querySelector("[aria-selected=true]").focus({ preventScroll: true });
}

// The stops of the residual stream; the others branch off from it.
const STREAM = new Set(["embedding", "input", "mid", "output", "final"]);

function optionOf(stop) {
  const row = rowAt(walked, stop);
  const chosen = stop === walked.stop;
  const size = row && !IS_OF_TOKENS.has(stop.name) ? format(Math.hypot(...row), 2) : "";
  const strip = make("canvas", { "aria-hidden": "true" });
  if (row) bitmapOf(row, row.length, 1, stripScale(row), () => false, strip);
  strip.classList.toggle("short", row?.length <= SHORT);
  const option = make(
    "li",
    {
      role: "option",
      tabindex: chosen ? "0" : "-1",
      "aria-selected": String(chosen),
      "aria-label": size ? say("{name}, norm {size}", { name: stop.name, size }) : stop.name,
      "data-path": stop.path,
    },
    make("code", {}, stop.name),
    strip,
    make("span", { class: "size" }, size),
  );
  option.classList.toggle("stream", STREAM.has(stop.name));
  option.addEventListener("click", () => goTo(stop.path));
  return option;
}

/** Colours of a row: nearly all its numbers lie between the ends; those beyond look like the ends. */
function stripScale(row) {
  const sizes = Float64Array.from(row, Math.abs).sort();
  const bound = sizes[Math.ceil(0.98 * sizes.length) - 1] || sizes.at(-1) || 1;
  return signedScale(bound);
}

function walkByKey(event) {
  const stops = walked.stops;
  const at = stops.findIndex(({ path }) => path === walk.path);
  const inPart = stops.filter((stop) => partOfWay(stop) === partOfWay(stops[at]));
  const to = {
    ArrowUp: stops[at - 1],
    ArrowDown: stops[at + 1],
    Home: inPart[0],
    End: inPart.at(-1),
  };
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    strip.focus();
  }
  if (!(event.key in to)) return;
  event.preventDefault();
  if (to[event.key]) goTo(to[event.key].path);
}

// ---- one stop --------------------------------------------------------------------------------------

function showStop() {
  const { stop, trace } = walked;
  const { axes, purpose } = trace.way.stops[stop.name];
  const row = rowAt(walked, stop);
  const isEdited = trace.way.edited.includes(stop.path);
  byId("stop-title").replaceChildren(make("code", {}, stop.path));
  byId("stop-formula").textContent =
    headingOf(stop) + (isEdited ? say(", edited") : "");
  byId("stop-purpose").textContent = purpose;
  byId("stop-missing").hidden = row !== undefined;
  byId("stop-missing").textContent = whyMissing(walked);
  for (const id of ["stop-shape", "strip", "stop-arithmetic"]) byId(id).hidden = row === undefined;
  if (!row) return undefined;
  const shape = shapeOf(trace, axes).join(" × ");
  const [i, n] = [String(walked.position), String(row.length)];
  byId("stop-shape").replaceChildren(
    ...(IS_OF_TOKENS.has(stop.name)
      ? sayParts("{shape}; these are the {n} largest in token {i}'s row.", { shape, n, i })
      : sayParts("{shape}; this is token {i}'s row: norm {size}, from {least} to {most}.", {
          shape,
          i,
          size: number(Math.hypot(...row), 4),
          least: number(Math.min(...row), 4),
          most: number(Math.max(...row), 4),
        })),
  );
  strip.show(row);
  return showComponent(Math.min(walk.component, row.length - 1));
}

/** A stop with its formula, as the library heads it. */
const headingOf = ({ name }) => `${lastOf(name)} = ${walked.trace.way.stops[name].formula}`;

function shapeOf({ T, Tk, H, Dh, way: { D, F, vocab } }, axes) {
  const sizes = { T, Tq: T, Tk, H, Dk: Dh, Dv: Dh, D, F, vocab };
  return axes.split(" ").map((axis) => axis.split("·").reduce((n, name) => n * sizes[name], 1));
}

/** Show one number of the row, and how it is made. */
function showComponent(c) {
  walk.component = c;
  strip.mark(c);
  return showNumber();
}

/** Choose one, by pointer or keys. */
function chooseComponent(c) {
  walk.isLinked = true;
  tellLink();
  return showComponent(c);
}

/** Why a stop's row, or how a number of it is made, is not there. */
const whyMissing = ({ trace, position }) =>
  trace.way.missing.length
    ? say("This needs the model's parameters; the trace is from a file.")
    : position < trace.prediction.first
      ? say("This page has logits only from position {first}.", {
          first: trace.cached + trace.prediction.first,
        })
      : "";

/** For which numbers of a stop the file has the weights. */
function whichColumns({ trace, stop }) {
  if (stop.equation === "logits")
    return say(
      "This file only has the weights of the most probable next tokens; attnlab explore has all.",
    );
  const map = mapOf(trace, stop);
  const [, first, end] = trace.way.columns.find(([path]) => path === map) ?? [];
  return end === undefined
    ? say("This file doesn't include the weights of this step; attnlab explore has all.")
    : say("This file has the weights of components {first} to {last}; attnlab explore has all.", {
        first,
        last: end - 1,
      });
}

/** A component in words; of heads side by side whose it is. */
function componentOf({ name }, c) {
  const { Dh } = walked.trace;
  if (IS_OF_TOKENS.has(name)) return say("token {symbol}, id {id}", walked.following.tokens[c]);
  if (!OF_HEADS.test(name)) return say("component {c}", { c });
  return say("component {c}: head {h}, component {d}", { c, h: Math.floor(c / Dh), d: c % Dh });
}

const CELL_SIDE = 24; // at most, in pixels
const STRIP_HEIGHT = 180; // about

/** A strip's columns, a multiple of `unit`, and how large its cells are; whole lines if they fit. */
function latticeOf(count, width, unit) {
  const room = Math.min(CELL_SIDE, Math.sqrt((STRIP_HEIGHT * width) / count));
  const fitting = Math.floor(width / room);
  const most = Math.max(16, unit, fitting - (fitting % unit));
  let columns = most;
  while (count % columns && columns - unit >= 0.75 * most) columns -= unit;
  columns = Math.min(count, count % columns ? most : columns);
  return { columns, side: Math.max(1, Math.floor(Math.min(room, width / columns))) };
}

const strip = makeStrip();

/** The row that is shown as coloured cells, of which one is chosen by pointer or keys. */
function makeStrip() {
  const mark = make("div", { role: "gridcell", class: "mark", tabindex: "0" });
  const line = make("div", { role: "row" }, mark);
  const canvas = make("canvas", { "aria-hidden": "true" });
  const cells = make("div", { role: "grid", class: "cells" }, canvas, line);
  const reading = make("p", { class: "reading", "aria-live": "polite" });
  const legend = make("p", { class: "note" });
  byId("strip").append(reading, cells, legend);
  let row = [];
  let columns, side, chosen;

  function layOut() {
    const width = byId("strip").clientWidth;
    if (!width || !row.length) return;
    const { Dh } = walked.trace;
    const byHeads = OF_HEADS.test(walked.stop.name) && 4 * Dh < width;
    ({ columns, side } = latticeOf(row.length, width, byHeads ? Dh : 8));
    const rows = Math.ceil(row.length / columns);
    const scale = stripScale(row);
    bitmapOf(row, columns, rows, scale, () => false, canvas);
    canvas.style.width = `${columns * side}px`;
    canvas.style.height = `${rows * side}px`;
    cells.ariaRowCount = rows;
    cells.ariaColCount = columns;
    const most = format(scale.bound);
    legend.textContent = row.every((x) => x >= 0)
      ? say("Orange above 0; darkest at {most} and above.", { most })
      : say("Blue below 0, orange above; darkest beyond ±{most}.", { most });
    place();
  }

  function place() {
    if (columns === undefined) return;
    const [i, j] = [Math.floor(chosen / columns), chosen % columns];
    const size = Math.max(side, 9);
    const corner = (n) => `${(n + 0.5) * side - size / 2}px`;
    mark.style.transform = `translate(${corner(j)}, ${corner(i)})`;
    mark.style.width = mark.style.height = `${size}px`;
    line.ariaRowIndex = i + 1;
    mark.ariaColIndex = j + 1;
  }

  function read(c) {
    reading.replaceChildren(
      `${componentOf(walked.stop, c)} `,
      make("strong", {}, number(row[c])),
    );
  }

  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    const j = Math.floor((event.clientX - box.left) / side);
    const c = Math.floor((event.clientY - box.top) / side) * columns + j;
    return j >= 0 && j < columns && c >= 0 && c < row.length ? c : undefined;
  };
  cells.addEventListener("pointermove", (event) => read(under(event) ?? chosen));
  cells.addEventListener("pointerleave", () => read(chosen));
  cells.addEventListener("click", (event) => {
    const c = under(event);
    if (c !== undefined) chooseComponent(c);
  });
  mark.addEventListener("keydown", (event) => {
    if (event.key === "Escape") byId("stops").querySelector("[aria-selected=true]").focus();
    const at = [Math.floor(chosen / columns), chosen % columns];
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      const to = chosen + (event.key === "ArrowLeft" ? -1 : 1);
      return chooseComponent(Math.max(0, Math.min(row.length - 1, to)));
    }
    const to = moved(event, ...at, Math.ceil(row.length / columns), columns);
    if (to) chooseComponent(Math.min(row.length - 1, to[0] * columns + to[1]));
  });
  new ResizeObserver(onceAFrame(layOut)).observe(byId("strip"));
  return {
    show(values) {
      row = values;
      chosen = Math.min(walk.component, row.length - 1);
      cells.ariaLabel = walked.stop.path;
      layOut();
    },
    focus: () => mark.focus(),
    mark(c) {
      chosen = c;
      place();
      read(c);
      mark.ariaLabel = `${componentOf(walked.stop, c)}: ${format(row[c], 6)}`;
    },
  };
}

// ---- one number ------------------------------------------------------------------------------------

async function showNumber() {
  const choice = asked;
  const { stop } = walked;
  const c = walk.component;
  const made = await explanationOf(walked, stop, c);
  if (choice !== asked || c !== walk.component) return;
  const missing = make("p", { class: "note" }, whyMissing(walked) || whichColumns(walked));
  byId("stop-arithmetic").replaceChildren(...(made ?? [missing]));
}

/** A line of an arithmetic: what is computed, and the numbers. */
const lineOf = (heading, ...parts) =>
  make("li", {}, make("code", {}, heading), make("span", { class: "sum" }, ...parts));

const linesOf = (...lines) => [make("ol", { class: "chain" }, ...lines)];

/** One number of another stop, which leads there. */
function numberOf(stop, c, words = `${lastOf(stop.name)}[${c}]`) {
  const button = make("button", { type: "button", class: "leads" }, words);
  button.addEventListener("click", async () => {
    await goTo(stop.path, c);
    strip.focus();
  });
  return button;
}

/** What an equation makes, and what an edit put in its place. */
function resultOf(isEdited, made, there) {
  const strongly = make("strong", {}, number(there));
  const isSame = Math.abs(made - there) <= 1e-5 * Math.max(Math.abs(made), Math.abs(there), 1e-3);
  if (!isEdited || isSame) return strongly;
  return make(
    "span",
    {},
    ...sayParts("{made}; edited to {x}", { made: number(made), x: strongly }),
  );
}

const isEditedAt = ({ trace }, { path }) => trace.way.edited.includes(path);

const stopAt = ({ stops }, path) => stops.find((stop) => stop.path === path);

/** How a number of a stop comes about: elements, soon; undefined where its weights can't be had. */
async function explanationOf(way, stop, c) {
  const { trace, position } = way;
  const heading = headingOf(stop);
  const row = rowAt(way, stop);
  const result = (made) => resultOf(isEditedAt(way, stop), made, row[c]);
  if (stop.equation === "same") {
    const from = stopAt(way, stop.needs[0]);
    const name = numberOf(from, c, `${from.path}[${position}, ${c}]`);
    return linesOf(lineOf(heading, name, " = ", result(rowAt(way, from)[c])));
  }
  if (stop.equation === "concat") return collected(way, stop, c);
  if (stop.equation === "softmax") return probabilityOf(way, stop, c);
  const declared = declaredOf(way, stop);
  const needs = await needsOf(way, stop, c, declared.parameters);
  if (!needs) return undefined;
  const column = stop.name === "logits" ? way.following.ids[c] : c;
  const x = Object.values(needs).find((need) => need?.stop);
  const working = new Working({ places: { row: position, column }, needs });
  const rows = { lead: (i) => numberOf(x.stop, i) };
  return linesOfNumber(working, declared, { heading, result, rows });
}

const ofHeads = ({ equation }) => ["Q", "K", "V"].includes(equation); // columns of one linear map

/** What `description.explanations` has of a stop's equation. */
const declaredOf = ({ trace }, stop) =>
  description.explanations[
    ofHeads(stop) ? "affine" : stop.equation === "activated" ? trace.given.activation.name : stop.equation
  ];

/** What a number of a stop is made of, by parameter; undefined where some of it can't be had. */
async function needsOf(way, stop, c, parameters) {
  const { trace, position } = way;
  const map = mapOf(trace, stop);
  const paths = ofHeads(stop)
    ? [stop.needs[0], map, map.replace(/W_(.)$/, "b_$1")]
    : trace.graph.node(stop.path).needs;
  const column = stop.name === "logits" ? way.following.ids[c] : c;
  const needs = {};
  let weights; // a column of a linear map, and its bias
  for (const [n, parameter] of parameters.entries()) {
    const [path, from] = [paths[n], stopAt(way, paths[n])];
    const row = from && rowAt(way, from);
    if (from && !row) return undefined;
    if (parameter === "W" || parameter === "W_U")
      weights = await source.explain(trace, path, column, Object.values(needs)[0].length);
    const values = {
      ids: () => trace.tokens[position].id,
      positions: () => trace.cached + position,
      W_E: () => rowAt(way, stop)[c],
      W_P: () => rowAt(way, stop)[c],
      W: () => weights.column,
      W_U: () => weights.column,
      b: () => weights.bias,
    }[parameter];
    if (/^(W|W_U|b)$/.test(parameter) && !weights) return undefined;
    const found = row ?? (values ? undefined : given(way, path));
    if (found === undefined && !values) return undefined;
    const ofRow = (place) => (typeof found === "number" ? found : place.includes(":") ? found : found[c]);
    const name = lastOf(path).replace("rows_of_", "");
    needs[parameter] = found === null ? null : { name, stop: from, length: row?.length, values: values ?? ofRow };
  }
  return needs;
}

/** A parameter or another number of a way; null of what there is none of, undefined of what is not there. */
function given(way, path) {
  try {
    const found = way.run.look(path);
    return found instanceof Nd ? found.numbers() : found;
  } catch (error) {
    if (error instanceof NotThere) return undefined;
    throw error;
  }
}

/** A component of what a head collected, and a way to the head. */
function collected(way, stop, c) {
  const { trace, position } = way;
  const [h, d] = [Math.floor(c / trace.Dh), c % trace.Dh];
  const head = headOf(trace, stop.layer, h);
  const needs = {
    weights: { name: "weights", values: () => stepRow(head, "weights", position) },
    V: { name: "V", values: () => Float64Array.from({ length: trace.Tk }, (_, j) => head.V[j * trace.Dh + d]) },
  };
  const working = new Working({ places: { row: position, column: d }, needs, along: "key" });
  const isEdited = head.edited.has("context") || isEditedAt(way, stop);
  const sum = linesOfNumber(working, description.explanations.context, {
    heading: say("head {h}: {formula}", { h, formula: formulaOf("context") }),
    result: () => resultOf(isEdited, uneditedRow(head, "context", position)[d], rowAt(way, stop)[c]),
    rows: { lead: (j) => make("span", {}, `${j} `, symbolOf(brief(trace.keys[j].symbol))) },
  });
  const where = say("Layer {layer}, head {head}", { layer: stop.layer, head: h });
  const toHead = make("button", { type: "button", class: "leads" }, `${where} ↑`);
  toHead.addEventListener("click", () =>
    openHead(stop.layer, h, () => heatmaps[trace.number].cursor.focus()),
  );
  return [...sum, make("p", {}, toHead)];
}

/** A probability, of whose row the page has the largest logits and the sum of all. */
function probabilityOf(way, stop, c) {
  const { logits, sum, ids, vocab, tokens } = way.following;
  const from = stopAt(way, stop.needs[0]);
  const values = (places) => (places.includes(":") ? logits : logits[c]);
  const working = new Working({
    places: { row: way.position, column: ids[c] },
    needs: { x: { name: "logits", stop: from, component: c, count: vocab, values } },
    known: { row_sum: sum },
    toLargest: () => numberOf(from, 0, `logits[${way.position}, ${ids[0]}]`),
    largest: say("id {id}", { id: `${ids[0]} (${tokens[0].symbol})` }),
  });
  return linesOfNumber(working, description.explanations.softmax, {
    heading: headingOf(stop),
    result: (made) => make("strong", {}, number(made)),
    rows: {},
  });
}

byId("stops").addEventListener("keydown", walkByKey);
