// Interaction. All views share one selection (layer, head, step, query, key).

import { brief } from "../numbers/formats.js";
import { description, say, sayParts } from "../sources/description.js";
import { jobsInWords, jobsOfHead } from "../sources/jobs.js";
import { valuesOf } from "../sources/rows.js";
import { loadLayer, source } from "../sources/source.js";
import { alignment, clampedSelection, DIFFERENCE, differenceOf, DISPLAYS, editedIn, hasHead, isAt, isEverywhere,
  isLoaded, isLook, isSame, labelView, LEVELS, MATRICES, pendingTraces, queryOf, selection, setTraces, traces,
  traceViews, views, whyNoDifference } from "../state/state.js";
import { choosePalette } from "../drawing/colours.js";
import { byId, formulaOf, isDark, isPrinted, make, number, onceAFrame, positionsInWords, prefersDark, radioOf,
  symbolOf, tokenElement } from "../drawing/draw.js";
import { colourMaps, forgetMaps, paintAll } from "../drawing/maps.js";
import { prefixOf } from "../drawing/names.js";
import { closeArithmetic, fitBeside, followLinkOfArithmetic, leaveArithmetic, linkOfArithmetic } from "../views/arithmetic.js";
import { makeGrid } from "../views/grid.js";
import { Heatmap } from "../views/heatmap.js";
import { showCrumbs, showLevel } from "../views/levels.js";
import { makeLines, showOthers, showOverlaid } from "../views/lines.js";
import { drawPredictions, followQuery, Prediction, makeSettings, updateSliders } from "../views/next.js";
import { followLinkOfPass, followPass, linkOfPass, openPass, showPass } from "../views/pass.js";
import { drawModel, picture } from "../views/picture.js";
import { showStory } from "../views/story.js";
import { makeStrips } from "../views/strips.js";
import { makeText } from "../views/tokens.js";
import { listStages, showStage } from "../views/tour.js";

/** Select a query and a key; by default, the key with the largest weight. */
export function select(query, key = strongestKey(query) ?? selection.key) {
  selection.hovered = null;
  Object.assign(selection, { query, key });
  drawSelection();
  showStrongest();
  followQuery();
  followPass();
  updateLink();
}

/** Show a cell, { query, key }, while the pointer is there; null shows the selected one again. */
export function point(cell) {
  if (cell?.query === selection.hovered?.query && cell?.key === selection.hovered?.key) return;
  selection.hovered = cell;
  drawSelection();
}

/** Show a query and its strongest key while the pointer is there. */
export const pointAtQuery = (query) => point({ query, key: strongestKey(query) ?? selection.key });

function drawSelection() {
  for (const heatmap of heatmaps) heatmap.mark();
  for (const text of texts) text.draw();
  for (const view of [...allLines, ...allStrips]) view.draw();
  picture.draw();
}

/** The first view whose open head has a query, once its numbers are loaded. */
const viewOfQuery = (query) =>
  views.find((view) => isLoaded(view, selection) && view.rows.includes(query));

/** The key with the largest weight for a query of the open head, in the first text that has both. */
function strongestKey(query) {
  const view = viewOfQuery(query);
  if (!view) return undefined;
  const { layer, head } = selection;
  const weights = valuesOf(view, layer, head, "weights", view.rows.indexOf(query));
  return view.columns[weights.indexOf(Math.max(...weights))];
}

/** Show the selected query's largest weight in words. */
function showStrongest() {
  const { layer, head, query } = selection;
  const view = viewOfQuery(query);
  if (!view) return byId("strongest").replaceChildren();
  const [i, j] = [view.rows.indexOf(query), view.columns.indexOf(strongestKey(query))];
  byId("strongest").replaceChildren(
    prefixOf(view),
    ...sayParts("Largest weight of query {i} {query}: {weight}, on key {j} {key}", {
      i: positionsInWords(view.queries[i]),
      query: symbolOf(brief(view.queryLabels[i])),
      weight: number(valuesOf(view, layer, head, "weights", i)[j], 4),
      j: positionsInWords(view.keys[j]),
      key: symbolOf(brief(view.keyLabels[j])),
    }),
  );
}

// One of each for each trace or view.
export let texts;
export let predictions;
export let heatmaps;
export let grids;
let allLines;
let allStrips;

/** Open a head, immediately if its numbers are loaded; then call `then`. */
export function openHead(layer, head, then = () => {}) {
  if (!isSame(selection, { layer, head })) selection.key = undefined; // another head's strongest key may differ
  Object.assign(selection, { layer, head });
  const loading = traces
    .filter((trace) => pendingTraces({ traces: [trace] }, layer).length)
    .map((trace) => loadLayer(trace, layer));
  const show = () => {
    showHead();
    then();
  };
  if (!loading.length) return show();
  const main = document.querySelector("main");
  main.ariaBusy = "true";
  const shown = traces;
  return Promise.all(loading).then(() => {
    main.ariaBusy = "false";
    // Another head or text may have been chosen since.
    if (traces === shown && selection.layer === layer && selection.head === head) show();
  });
}

function showHead() {
  const { layer, head, step } = selection;
  selection.key ??= strongestKey(selection.query) ?? 0;
  byId("head-title").textContent = say("Layer {layer}, head {head}", selection);
  for (const radio of byId("head").querySelectorAll("input"))
    radio.checked = [step, selection.display].includes(radio.value);
  const isShown = (display) => display === selection.display || (display === "lines" && isAt("head"));
  for (const [display, id] of Object.entries(DISPLAYS)) byId(id).hidden = !isShown(display);
  for (const id of ["steps", "zoom", "formula"]) byId(id).hidden = selection.display !== "map";
  showJobs();
  showOthers();
  showStrongest();
  showOverlaid();
  updateLink();
  byId("formula").textContent = `${formulaOf(step)}${editedIn(layer, head, step)}`;
  for (const grid of [...grids, picture]) grid.mark();
  for (const text of texts) text.draw();
  const bounds = heatmaps.map((heatmap) => heatmap.compute());
  // One scale for both traces, so that their colours are comparable.
  const shared = Math.max(...bounds.filter((_, n) => !views[n].isDifference));
  heatmaps.forEach((heatmap, n) => heatmap.colour(views[n].isDifference ? bounds[n] : shared));
  for (const view of [...allLines, ...allStrips]) view.draw();
}

/** Show how much of its attention the open head gives to each job, in each text. */
function showJobs() {
  if (!byId("head").checkVisibility()) return; // it is shown again when it becomes visible
  const { layer, head } = selection;
  const shown = traces.filter((trace) => !trace.cached && hasHead(trace, layer, head));
  const words = jobsInWords();
  const isOneModel = new Set(traces.map(({ model }) => model)).size === 1;
  const cards = (isOneModel ? shown.slice(0, 1) : shown).flatMap(({ name, card, H }) => {
    const listed = Object.entries(card ?? {})
      .map(([job, weights]) => [words[job], weights[layer * H + head], weights.at(-1)])
      .filter(([, weight, uniform]) => weight > 2 * uniform)
      .sort((a, b) => b[1] - a[1])
      .map(([word, weight]) => `${word} ${weight.toFixed(2)}`)
      .join(" · ");
    const prefix = isOneModel ? "" : `${name}: `;
    return listed ? [make("p", {}, prefix, say("On other texts, from the model card: "), listed)] : [];
  });
  byId("jobs").replaceChildren(
    ...shown.map((trace) => {
      const measured = Object.entries(jobsOfHead(trace, layer, head)).filter(([, job]) => job);
      const parts = measured.flatMap(([name, job], n) => {
        const weight = make(job.attention > 2 * job.uniform ? "strong" : "span", {});
        weight.append(make("data", { value: String(job.attention) }, job.attention.toFixed(2)));
        const uniform = say("({weight} if uniform)", { weight: job.uniform.toFixed(2) });
        const part = make("span", { "data-job": name }, words[name], " ", weight, " ", uniform);
        return n ? [" · ", part] : [part];
      });
      const label = parts.length ? say("Mean weight on this text: ") : "";
      return make("p", {}, prefixOf(trace), label, ...parts);
    }),
    ...cards,
  );
}

function repaint() {
  choosePalette();
  colourMaps();
  openHead(selection.layer, selection.head);
  if (!isLook()) showPass();
}

function chooseStep(step) {
  selection.step = step;
  showCrumbs();
  openHead(selection.layer, selection.head);
}

export function chooseDisplay(display) {
  selection.display = display;
  openHead(selection.layer, selection.head);
}

/** Add a radio button for each choice, {value: words}, to a group. */
function addChoices(id, name, choices, choose) {
  byId(id).append(...Object.entries(choices).map(([value, words]) => radioOf(name, words, () => choose(value), value)));
}

function zoom(factor) {
  selection.zoom = Math.max(1, Math.min(32, selection.zoom * factor));
  for (const heatmap of heatmaps) {
    heatmap.layOut();
    heatmap.scrollToCell();
  }
}

const TEXT_SIZES = [1, 1.25, 1.5]; // relative to the default

/** Set the text size and lay out the views again. */
function setTextSize(size) {
  selection.textSize = size;
  document.documentElement.style.setProperty("--text-scale", size);
  byId("smaller-letters").disabled = size === TEXT_SIZES[0];
  byId("larger-letters").disabled = size === TEXT_SIZES.at(-1);
  for (const view of [...texts, ...heatmaps, ...allLines]) view.layOut();
  updateLink();
}

/** Step to the next text size, larger (1) or smaller (-1); move focus off a disabled button. */
function stepTextSize(direction) {
  const n = TEXT_SIZES.indexOf(selection.textSize) + direction;
  setTextSize(TEXT_SIZES[n]);
  if (direction < 0 ? n === 0 : n === TEXT_SIZES.length - 1)
    byId(direction < 0 ? "larger-letters" : "smaller-letters").focus();
}

function summarise() {
  const sizes = traces.map((trace) => {
    const { layers, H, T, cached, note } = trace;
    const tokens = T === 1 ? say("{T} token", { T }) : say("{T} tokens", { T });
    const after = cached ? say(" after {cached} cached", { cached }) : "";
    const blocks =
      layers === 1 ? say("{layers} layer", { layers }) : say("{layers} layers", { layers });
    const heads = H === 1 ? say("{H} head", { H }) : say("{H} heads", { H });
    return prefixOf(trace) + say("{blocks} × {heads}, {texts}", { blocks, heads, texts: tokens + after + note });
  });
  byId("alignment")?.remove();
  byId("summary").textContent = sizes.join(" · ");
  const models = new Set(traces.map(({ model }) => model));
  byId("about").replaceChildren(
    ...traces.flatMap((trace, n) => [
      ...(n ? [" · "] : []),
      prefixOf(trace),
      // Of a shared model, the name is shown once.
      ...(models.size > 1 || (trace.model && n === 0) ? [make("b", {}, trace.model), " "] : []),
      make("q", {}, make("bdi", {}, trace.excerpt)),
    ]),
  );
  const compared = byId("compared");
  compared.hidden = traces.length < 2;
  if (compared.hidden) return;
  const [a, b] = traces;
  const count = (condition) => alignment.queries.filter(condition).length;
  const [onlyA, onlyB] = [count(([, inB]) => inB === null), count(([inA]) => inA === null)];
  const differ = count((pair) => differenceOf(pair, "tokens") === "changed");
  const sentences = [
    whyNoDifference || say("{DIFFERENCE} is shown beside them.", { DIFFERENCE }),
    differ || onlyA || onlyB
      ? say("{differ} of {paired} paired tokens differ.", { differ, paired: count(isEverywhere) })
      : say("The tokens are the same."),
    (onlyA || onlyB) &&
      say("Only in A: {onlyA}; only in B: {onlyB}. The difference covers what both have.", {
        onlyA,
        onlyB,
      }),
  ];
  compared.replaceChildren(sentences.filter(Boolean).join(" "));
  if (differ || onlyA || onlyB) compared.after(alignmentOf(a, b));
}

/** Both texts, token by token. */
function alignmentOf(a, b) {
  const symbols = (trace, n) => (n === null ? "–" : tokenElement(trace.tokens[n]));
  return make(
    "ol",
    { id: "alignment", "aria-label": say("A above, B below") },
    ...alignment.queries.map(([n, m]) =>
      make(
        "li",
        { class: differenceOf([n, m], "tokens") },
        make("span", { class: "unseen" }, "A: "),
        make("span", {}, symbols(a, n)),
        make("span", { class: "unseen" }, "; B: "),
        make("span", {}, symbols(b, m)),
      ),
    ),
  );
}

/** Explain the symbols in tokens that aren't letters, if there are any. */
export function explainSymbols() {
  const predicted = predictions.flatMap(({ listed = [] }) => [...listed]);
  const tokens = [...traces.flatMap((trace) => trace.tokens), ...predicted];
  const partial = predicted.find(({ text }) => text.includes("�"));
  const multibyte = tokens.find(({ symbol }) => /[^\x20-\x7eĠĊ]/.test(symbol));
  const notes = [
    tokens.some(({ symbol }) => symbol.includes("Ġ")) && say("Ġ is a space"),
    tokens.some(({ symbol }) => symbol.includes("Ċ")) && say("Ċ is a new line"),
    multibyte &&
      say("other letters, as in {symbol}, are bytes, here {bytes} of {text}", {
        symbol: brief(multibyte.symbol),
        bytes: brief(multibyte.bytes),
        text: multibyte === partial ? say("a character") : multibyte.part_of || `“${brief(multibyte.text)}”`,
      }),
    partial &&
      say("{symbol} is part of a character that the next tokens complete", {
        symbol: brief(partial.symbol),
      }),
  ];
  byId("letters").textContent = notes.filter(Boolean).join(say("; "));
}

/** Show traces, described as in `description.traces`, instead of the current ones. */
export function openTraces(descriptions) {
  forgetMaps();
  closeArithmetic();
  setTraces(descriptions);
  selection.overlaid = [];
  const { layer, head } = selection;
  selection.hovered = null;
  Object.assign(selection, { key: undefined }, clampedSelection({ layer, head, query: Infinity }));
  document.body.classList.toggle("comparing", traces.length === 2);
  document.body.style.setProperty("--views", views.length);
  document.body.style.setProperty("--traces", traces.length);
  byId("texts").after(byId("letters")); // kept when the texts are replaced
  byId("story").hidden = !source.has(traces.at(-1), "story");
  byId("ranked").replaceChildren();
  for (const id of ["texts", "predictions", "heatmaps", "lines", "strips", "grids", "jobs", "strongest"])
    byId(id).replaceChildren();
  drawModel(traceViews.at(-1));
  // First, because a server or worker computes while the rest is drawn; a file has no work to start.
  if (isLook() && traces.at(-1).id !== undefined) picture.read();
  summarise();
  texts = traceViews.map(makeText);
  byId("texts").querySelector(".stage").append(byId("letters"));
  predictions = traces.map((trace) => new Prediction(trace));
  updateSliders();
  drawPredictions();
  explainSymbols();
  heatmaps = views.map((view) => new Heatmap(view));
  [allLines, allStrips] = [traceViews.map(makeLines), traceViews.map(makeStrips)];
  grids = views.map(makeGrid);
  showStage(null);
  const opening = openHead(selection.layer, selection.head);
  if (!isLook()) openPass(); // last, because its numbers may take longer to load
  return opening;
}

const DEPTHS = ["look", "lab"];

/** Choose how much the page shows. */
function setDepth(depth) {
  selection.depth = depth;
  document.body.dataset.depth = depth;
  for (const radio of byId("depth").querySelectorAll("input")) radio.checked = radio.value === depth;
  if (isLook()) Object.assign(selection, { display: "map", ...(isAt("model") && { step: "weights" }) });
  views.forEach(labelView);
  showLevel(selection.level);
  if (!isLook()) {
    openPass();
    drawPredictions();
  }
  for (const text of texts) text.layOut();
  closeArithmetic();
  openHead(selection.layer, selection.head);
}

/** Open the last text's most important head once it is known, unless the reader has chosen one. */
export async function openStory() {
  const trace = traces.at(-1);
  const before = selection.query;
  byId("story").ariaBusy = "true";
  const [first] = await showStory(trace);
  if (traces.at(-1) !== trace) return;
  byId("story").ariaBusy = "false";
  picture.draw();
  if (!first || selection.isHeadChosen || selection.query !== before) return;
  const query = queryOf(trace, trace.T - 1);
  await openHead(first.layer, first.head, () => {
    if (selection.query === before) select(query); // another token may have been chosen while it loaded
  });
}

/** Apply a link, such as #layer=1&head=2&query=9. */
export function followLink(link) {
  const values = Object.fromEntries(new URLSearchParams(link.slice(1)));
  for (const name of ["layer", "head", "query", "key"])
    values[name] = values[name]?.trim() ? Number(values[name]) : undefined;
  Object.assign(selection, { key: undefined }, clampedSelection(values));
  selection.isHeadChosen ||= ["layer", "head", "query", "key"].some((name) => values[name] >= 0);
  selection.level = LEVELS.slice(0, -1).includes(values.level) ? values.level : "model";
  const depth = values.stop ? "lab" : values.depth; // a stop is a step of the forward pass, which only Lab shows
  setDepth(DEPTHS.includes(depth) ? depth : selection.depth);
  if (TEXT_SIZES.includes(Number(values.letters))) setTextSize(Number(values.letters));
  followQuery();
  followPass();
  followLinkOfPass(values);
  followLinkOfArithmetic(values);
  return openHead(selection.layer, selection.head);
}

// Written after a delay, because browsers limit how often a page may change its address.
export let linkTimer;
export const linkParts = []; // functions that return parts of the link
export function updateLink() {
  clearTimeout(linkTimer);
  linkTimer = setTimeout(writeLink, 200);
}

/** Write the link of what is shown into the address. */
export function writeLink() {
  clearTimeout(linkTimer);
  linkTimer = null;
  const { layer, head, step, query, key, display, textSize, depth, level } = selection;
  const link = new URLSearchParams({
    layer,
    head,
    step,
    query,
    key,
    look: display,
    ...(textSize !== 1 && { letters: textSize }),
    ...(!isLook() && { depth }),
    ...(!isAt("model") && isLook() && { level }),
    ...Object.assign({}, ...linkParts.map((part) => part())),
  });
  const write = selection.isNewEntry ? "pushState" : "replaceState";
  selection.isNewEntry = false;
  try {
    history[write](history.state, "", `#${link}`);
  } catch {} // frames without an address (srcdoc) refuse it
}

/** Load all layers of a small page in a file, so that it can be printed. */
async function preloadLayers() {
  for (const trace of traces.filter(({ id }) => id === undefined)) {
    const { layers, H, Dh, T, Tk } = trace;
    const isSmall = layers * H * Dh * (T + 2 * Tk) < 1_000_000;
    for (let layer = 0; layer < layers; layer++)
      if (isSmall && source.has(trace, `attention.${layer}`)) await loadLayer(trace, layer);
  }
}

// Print in light colours, at a fixed width, without scrolling. The class is set before the browser lays
// out the printed page, so that the drawings are placed correctly.
const onPaper = matchMedia("print");

function layOutForPaper(printed) {
  if (printed === isPrinted()) return;
  document.documentElement.classList.toggle("printed", printed);
  byId("unpainted").hidden = printed ? paintAll() : true; // shown on paper if some maps lack numbers
  point(null);
  repaint();
  for (const view of [...texts, ...allLines]) view.layOut();
  if (!isLook()) return;
  if (printed) {
    showStage(null); // the list of stages is printed below the whole picture
    listStages();
  }
  picture.layOut();
}

/** Show the page's traces, and make its controls work. */
export function startPage() {
  linkParts.push(linkOfArithmetic, linkOfPass);
  choosePalette();
  addChoices("looks", "look", { map: say("map"), lines: say("lines"), strips: "q · k" }, chooseDisplay);
  addChoices("steps", "step", Object.fromEntries(MATRICES.map((step) => [step, step])), chooseStep);
  addChoices("depth", "depth", { look: say("Look"), lab: say("Lab") }, setDepth);
  makeSettings();
  openTraces(description.traces);
  setTextSize(1);
  setTimeout(preloadLayers, 500);
  if (location.hash) followLink(location.hash);
  else setDepth(selection.depth);
  openStory();
  // Use the event's URL: `location` may have changed since.
  addEventListener("hashchange", ({ newURL }) => followLink(new URL(newURL).hash));

  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    repaint();
  });
  prefersDark.addEventListener("change", repaint);

  onPaper.addEventListener("change", () => layOutForPaper(onPaper.matches));
  addEventListener("beforeprint", () => layOutForPaper(true));
  addEventListener("afterprint", () => layOutForPaper(false));

  // Overlay several heads: clicks on maps then add heads instead of replacing the open one.
  byId("several").addEventListener("click", ({ target }) => {
    const isOn = target.ariaPressed === "true";
    target.ariaPressed = String(!isOn);
    if (isOn) selection.overlaid = [];
    openHead(selection.layer, selection.head);
  });
  byId("smaller-letters").addEventListener("click", () => stepTextSize(-1));
  byId("larger-letters").addEventListener("click", () => stepTextSize(1));
  byId("smaller").addEventListener("click", () => zoom(1 / 1.5));
  byId("larger").addEventListener("click", () => zoom(1.5));
  byId("arithmetic").addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !isLook()) leaveArithmetic();
  });
  byId("close").addEventListener("click", leaveArithmetic);
  for (const change of ["scroll", "resize"]) addEventListener(change, onceAFrame(fitBeside));

  // Report the page's height, so that an embedding page can size its frame.
  if (parent !== window)
    new ResizeObserver(() => parent.postMessage({ height: document.documentElement.offsetHeight }, "*")).observe(document.documentElement);
}
