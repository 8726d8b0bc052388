// The whole model in one picture: tokens enter at the left, each as a ribbon whose width is its vector's norm,
// pass through the blocks, and leave at the right as the next token's probabilities. Curves are weights.

import { brief, wordOf } from "../numbers/formats.js";
import { jobsOf } from "../numbers/jobs.js";
import { say } from "../sources/description.js";
import { headOf, NUMBERS_AT_ONCE, stepRow, valuesOf, weightsInLayer } from "../sources/rows.js";
import { loadLayer, source } from "../sources/source.js";
import { isAmong, isLook, queryIn, selection } from "../state/state.js";
import { palette } from "../drawing/colours.js";
import { barOf, byId, colourOf, isPrinted, make, moveByArrows, onceAFrame, prepareCanvas } from "../drawing/draw.js";
import { makeMap, nameOf } from "./grid.js";
import { enterHead, isAt, zoomTo } from "./levels.js";
import { isLoaded, isSame } from "./lines.js";
import { readFollowing, whyNoLogits } from "./next.js";
import { percent, showFarthest } from "./story.js";
import { isPresenting, joinSentences, playing, setFollowing, stopPlaying } from "./tour.js";
import { jobsInWords, queryOf, select } from "../page/page.js";

const FAINTEST_CURVE = 0.12; // smaller weights aren't drawn
const MAX_CURVES = 1500; // the strongest ones are drawn
const LARGE_WEIGHT = 0.5;
const LARGEST_MAP = 46; // in pixels, as all sizes here
const LARGEST_MAP_OF_BLOCK = 132;
const LARGEST_GRID = 132; // height of a block's maps in the whole model
const PRESENTING_FACTOR = 1.7; // by which maps and lines may grow for presenting
const LABELLED_MAP = 26; // maps from this size on have a name below
const SMALLEST_LINE = 20; // height of a token's line
const LARGEST_LINE = 46;
const HEIGHT_ON_PAPER = 600; // leaves room on the page for the tour's sentences
const GAP = 8; // height left free where tokens are left out
const NEXT_SHOWN = 5;
const MIN_BADGE_WEIGHT = 0.5; // mean weight; below it, a head gets no badge
const BADGES = { previous: "←", first: "⇤", same: "=", induction: "↻" };

export const reducesMotion = matchMedia("(prefers-reduced-motion: reduce)");

export let picture; // of the last shown trace
export const drawModel = (view) => (picture = makePicture(view));

function makePicture(view) {
  const [trace] = view.traces;
  const { layers, H, T, cached } = trace;
  const canvas = make("canvas", { "aria-hidden": "true" });
  const cells = make("div", { role: "listbox", class: "minis", "aria-label": say("Heads") });
  const names = make("div", { class: "lines", role: "listbox", "aria-label": say("Follow a token") });
  const titles = make("div", { class: "titles", role: "toolbar", "aria-label": say("Blocks") });
  const blocks = Array.from({ length: layers }, (_, layer) => {
    const block = make("span", { class: "block", role: "button", tabindex: "-1", "aria-label": say("Layer {layer}", { layer }) });
    block.layer = layer;
    return block;
  });
  const next = make("ol", { class: "leaving", "aria-label": say("Next token") });
  const scene = make("div", { class: "scene" }, canvas, titles, names, cells);
  byId("picture").replaceChildren(...nameOf(view), make("div", { class: "sideways" }, scene), next);
  const probe = make("span", { hidden: "" }); // to resolve the style sheet's colours
  scene.append(probe);

  const maps = Array.from({ length: layers * H }, (_, n) => {
    const [layer, head] = [Math.floor(n / H), n % H];
    const badge = make("span", { class: "badge", "aria-hidden": "true" });
    const label = make("span", { class: "number", "aria-hidden": "true" }, `${layer}.${head}`);
    const map = makeMap(view, layer, head, { role: "option", class: "mini" }, badge, label);
    cells.append(map.cell);
    return Object.assign(map, { badge });
  });

  // T norms each: of the embedding; then, for each block, of mid, of what the MLP adds, and of output.
  let norms = null;
  /** The norms of what a layer's MLP adds to each token. */
  const mlpNorms = (layer) => norms.subarray((2 + 3 * layer) * T, (3 + 3 * layer) * T);
  let nextTokens = []; // the most probable ones after the text, {id, word, probability}
  const nextAfter = new Map(); // the same after other tokens, by position; null while loading
  let drawnLayers = []; // all, or only the open block's
  let drawnTokens = []; // positions
  let curves = []; // {layer, head, i, j, weight}, the weakest first
  let plan; // the layout: positions and sizes

  // ---- tokens and curves -----------------------------------------------------------------------

  /** The positions to draw: all, or the last ones and those that the last token attends to most. */
  function chooseTokens(count) {
    if (T <= count) return [...Array(T).keys()];
    const sums = new Float64Array(T);
    for (const layer of trace.loaded.keys())
      for (const weights of weightsInLayer(trace, layer, T - 1))
        for (let j = cached; j < weights.length; j++) sums[j - cached] += weights[j];
    const last = Math.ceil(count / 2);
    const earlier = [...Array(T - last).keys()].sort((a, b) => sums[b] - sums[a] || a - b);
    return [...earlier.slice(0, count - last), ...Array.from({ length: last }, (_, n) => T - last + n)].sort((a, b) => a - b);
  }

  /** A token's curves in a layer, including those to tokens that aren't drawn. */
  function curvesOf(layer, i) {
    const known = trace.loaded.get(layer).curves;
    if (!known.has(i)) known.set(i, weightsInLayer(trace, layer, i).flatMap((weights, head) => curvesInHead(layer, head, i, weights)));
    return known.get(i);
  }

  function curvesInHead(layer, head, i, weights) {
    const drawn = [];
    weights.forEach((weight, n) => {
      const j = n - cached;
      if (weight >= FAINTEST_CURVE && j >= 0 && j !== i) drawn.push({ layer, head, i, j, weight });
    });
    return drawn;
  }

  const allCurves = () => drawnLayers.filter((layer) => trace.loaded.has(layer)).flatMap((layer) => drawnTokens.flatMap((i) => curvesOf(layer, i)));

  function findCurves() {
    const drawn = allCurves().filter(({ j }) => drawnTokens.includes(j));
    curves = drawn.sort((a, b) => a.weight - b.weight).slice(-MAX_CURVES);
  }

  /** If only some tokens are drawn: among their large weights, the one that spans the longest distance. */
  function findFarthest() {
    if (drawnTokens.length === T) return undefined;
    // Not to the first token, which many heads rest on (attention sink).
    const isOfInterest = ({ i, j, weight }) => weight >= LARGE_WEIGHT && j > 0 && i - j > 1;
    const distance = ({ i, j }) => i - j;
    return allCurves().filter(isOfInterest).sort((a, b) => distance(b) - distance(a))[0];
  }

  /** Show a head's job on this text as a badge, with its mean weight in the title. */
  function showBadge({ layer, head, badge, cell, name }) {
    const [job, attention] = jobOf(trace, layer, head);
    if (!job) return;
    const label = say("{name}: {share} of its attention goes to {job}", { name, share: percent(attention), job: jobsInWords()[job] });
    badge.textContent = BADGES[job];
    badge.dataset.job = job;
    cell.title = cell.ariaLabel = label;
  }

  // ---- layout ----------------------------------------------------------------------------------

  /** The layout of a block's maps in a width: columns, a map's size, a row's height (`pitch`), the total height. */
  function mapGrid(width, isBlock, factor) {
    const [largestSize, largestHeight] = isBlock ? [LARGEST_MAP_OF_BLOCK, 2 * LARGEST_MAP_OF_BLOCK] : [LARGEST_MAP * factor, LARGEST_GRID * factor];
    const gridOf = (columns) => {
      const size = Math.floor(Math.min(largestSize, (width - 8) / columns - 4));
      const pitch = size + (size >= LABELLED_MAP ? 20 : 4); // with room for the label
      return { columns, size, pitch, height: Math.ceil(H / columns) * pitch };
    };
    const isUneven = ({ columns }) => Number(H % columns > 0); // the last row isn't full
    const fitting = Array.from({ length: H }, (_, n) => gridOf(n + 1)).filter(({ size, height }) => size >= 8 && height <= largestHeight);
    // If labels fit, prefer full rows, then the lowest grid; if not, full rows, then the largest maps.
    const labelled = isBlock ? [] : fitting.filter(({ size }) => size >= LABELLED_MAP);
    if (labelled.length) return labelled.sort((a, b) => isUneven(a) - isUneven(b) || a.height - b.height)[0];
    return fitting.sort((a, b) => isUneven(a) - isUneven(b) || b.size - a.size || b.columns - a.columns)[0] ?? gridOf(Math.ceil(H / 6));
  }

  function layOut() {
    const available = byId("picture").clientWidth;
    if (!available) return;
    const isPhone = available < 640;
    const isBlock = isAt("block");
    drawnLayers = isBlock ? [Math.min(layers - 1, selection.layer)] : [...Array(layers).keys()];
    const factor = isPresenting() ? PRESENTING_FACTOR : 1;
    const left = isPhone ? 74 : isPresenting() ? 150 : 118;
    const right = isPhone || isBlock ? 10 : 232;
    // An attention's width; an MLP's and the embedding's are fractions of it.
    const [mlpFraction, embeddingFraction] = isBlock ? [0.3, 0.1] : [layers > 4 ? 0.5 : 0.8, layers > 4 ? 0.6 : 0.5];
    const units = embeddingFraction + drawnLayers.length * (1 + mlpFraction);
    const smallest = Math.ceil(H / 6) * 17; // maps in six rows, 17 pixels for each column
    const unit = Math.max(smallest, (available - left - right) / units);
    const width = left + unit * units;
    const grid = mapGrid(unit, isBlock, factor);
    const top = 30 + grid.height + 18;
    const topInPage = byId("picture").getBoundingClientRect().top + scrollY;
    const roomInWindow = innerHeight - topInPage - (isPresenting() ? 110 : 70);
    const total = isPrinted() ? HEIGHT_ON_PAPER : Math.max(320, Math.min(760 * factor, roomInWindow));
    const room = total - top - 16;
    const pitch = T * SMALLEST_LINE > room ? SMALLEST_LINE + GAP / 2 : SMALLEST_LINE; // tokens left out leave gaps
    drawnTokens = chooseTokens(Math.max(6, Math.min(24, Math.floor(room / pitch))));
    const gaps = drawnTokens.map((position, n) => n > 0 && position !== drawnTokens[n - 1] + 1);
    const free = room - GAP * gaps.filter(Boolean).length;
    const line = Math.max(SMALLEST_LINE, Math.min(LARGEST_LINE * factor, free / drawnTokens.length));
    const lines = new Map(); // y of each position's line
    let y = top - line / 2;
    drawnTokens.forEach((position, n) => {
      y += line + (gaps[n] ? GAP : 0);
      lines.set(position, y);
    });
    // x where the embedding starts; then, for block n, its attention at 1 + 2n, its MLP at 2 + 2n; and the end.
    const starts = [left, left + unit * embeddingFraction];
    for (const _ of drawnLayers) starts.push(starts.at(-1) + unit, starts.at(-1) + unit * (1 + mlpFraction));
    plan = { width, height: y + line / 2 + 10, grid, top, line, lines, starts };
    const moveTo = (element, x, y) => {
      element.style.left = `${x}px`;
      element.style.top = `${y}px`;
    };
    scene.style.width = `${width}px`;
    scene.style.height = `${plan.height}px`;
    names.replaceChildren(
      ...drawnTokens.map((i, n) => {
        const name = make("span", { class: "line", role: "option", tabindex: "-1", title: trace.tokens[i].symbol }, make("bdi", {}, brief(wordOf(trace.tokens[i].symbol))));
        name.position = i;
        name.classList.toggle("gap", gaps[n]);
        moveTo(name, 0, lines.get(i) - line / 2);
        name.style.width = `${left - 14}px`;
        name.style.height = name.style.lineHeight = `${line}px`;
        return name;
      }),
    );
    const isTitled = unit >= 96;
    const titleAt = (words, from, to, title = make("span", { "aria-hidden": "true" })) => {
      title.textContent = words;
      moveTo(title, from, 0);
      title.style.width = `${to - from}px`;
      return title;
    };
    const embeddingTitle = !isBlock && unit * embeddingFraction >= 72 ? say("Embedding") : "";
    titles.replaceChildren(
      isTitled ? titleAt(embeddingTitle, starts[0], starts[1]) : titleAt(say("layer"), 0, left - 14),
      ...drawnLayers.flatMap((layer, n) => [
        titleAt(isTitled ? say("Attention {layer}", { layer }) : String(layer), starts[1 + 2 * n], starts[2 + 2 * n], blocks[layer]),
        titleAt(unit * mlpFraction >= 50 ? `MLP ${layer}` : "", starts[2 + 2 * n], starts[3 + 2 * n]),
      ]),
    );
    for (const { layer, head, cell, canvas } of maps) {
      const { columns, size, pitch } = grid;
      const margin = (unit - columns * (size + 4) + 4) / 2;
      cell.hidden = !drawnLayers.includes(layer);
      moveTo(cell, starts[1 + 2 * drawnLayers.indexOf(layer)] + margin + (head % columns) * (size + 4), 30 + Math.floor(head / columns) * pitch);
      canvas.style.width = canvas.style.height = `${size}px`;
      cell.classList.toggle("unnamed", size < LABELLED_MAP);
    }
    next.hidden = isBlock;
    next.style.top = `${isPhone ? 0 : plan.top + scene.offsetTop}px`;
    findCurves();
    draw();
  }

  // ---- drawing ---------------------------------------------------------------------------------

  /** A colour of the style sheet, by name. */
  const inkOf = (name) => {
    probe.style.color = `var(--${name})`;
    return colourOf(probe);
  };

  /** Continue a path from (x, y) to (toX, toY), horizontal at both ends. */
  const curveTo = (context, x, y, toX, toY) => context.bezierCurveTo((x + toX) / 2, y, (x + toX) / 2, toY, toX, toY);

  /** A curve's ends: from the key's line at x = `from` to the query's at x = `to`. */
  const curveAt = ({ layer, i, j }) => {
    const { starts, lines } = plan;
    const n = drawnLayers.indexOf(layer);
    return { from: starts[1 + 2 * n] + 6, to: starts[2 + 2 * n] - 6, keyY: lines.get(j), queryY: lines.get(i) };
  };

  const draw = onceAFrame(() => {
    if (!plan || !palette) return;
    const { width, height, starts, lines, top, line } = plan;
    const context = prepareCanvas(canvas, width, height);
    const end = starts.at(-1);
    const stage = isAt("model") ? playing.stages[playing.stage] : undefined;
    const until = stage && stage.name !== "next" ? starts[stage.to] : width; // columns after the stage aren't drawn
    const query = Math.min(T - 1, queryIn(trace));
    const largest = norms ? norms.reduce((a, b) => Math.max(a, b), 0) || 1 : 1;
    const thickness = (norm) => 1.5 + Math.min(14, 0.4 * line) * (norm / largest);
    const [ink, raised, accent, band, flow] = ["muted", "raised", "accent", "band", "flow"].map(inkOf);
    const hot = palette.at(-1);
    next.style.setProperty("--hot", hot);
    context.save();
    context.beginPath();
    context.rect(0, 0, until, height);
    context.clip();
    context.fillStyle = band;
    for (let n = 0; n < drawnLayers.length; n++) {
      context.beginPath();
      context.roundRect(starts[1 + 2 * n], top - 8, starts[2 + 2 * n] - starts[1 + 2 * n], height - top + 2, 12);
      context.fill();
    }
    /** The thickness of a token's ribbon: at the embedding, and after each block's attention and MLP. */
    const thicknessesOf = (i) => {
      const norm = (n) => (norms ? norms[n * T + i] : largest / 4);
      return [norm(3 * drawnLayers[0]), ...drawnLayers.flatMap((layer) => [norm(1 + 3 * layer), norm(3 + 3 * layer)])].map(thickness);
    };
    for (const [i, y] of lines) {
      const sizes = thicknessesOf(i);
      context.fillStyle = i === query ? accent : flow;
      context.globalAlpha = i === query ? 0.6 : selection.isFollowing ? 0.3 : 1;
      context.beginPath();
      context.moveTo(starts[0], y - sizes[0] / 2);
      // One side of the ribbon: the thickness sizes[k] is reached at starts[k + 1].
      const edge = (n, m, sign) => {
        const [a, b] = [n, m].map((index) => y + (sign * sizes[Math.max(0, index - 1)]) / 2);
        curveTo(context, starts[n], a, starts[m], b);
      };
      for (let n = 0; n < sizes.length; n++) edge(n, n + 1, -1);
      context.lineTo(end, y + sizes.at(-1) / 2);
      for (let n = sizes.length; n > 0; n--) edge(n, n - 1, 1);
      context.fill();
    }
    for (const isOpen of [false, true]) // the open head's curves on top
      for (const curve of curves.filter((curve) => isSame(curve, selection) === isOpen)) {
        const { from, to, keyY, queryY } = curveAt(curve);
        const isHighlighted = stage ? isSameCurve(curve, stage.curve) : curve.i === query && (isOpen || selection.isFollowing);
        context.strokeStyle = isOpen || (stage && isHighlighted) ? hot : ink;
        context.lineWidth = isHighlighted ? 1 + 9 * curve.weight : 0.5 + 2.5 * curve.weight;
        context.globalAlpha = isHighlighted ? 0.95 : selection.isFollowing ? 0.05 : isOpen ? 0.45 : 0.2;
        context.lineCap = "round";
        context.beginPath();
        context.moveTo(from, keyY);
        curveTo(context, from, keyY, to, queryY);
        context.stroke();
      }
    context.globalAlpha = 1;
    context.lineWidth = 1.5;
    // What each MLP adds to a token, as a disc.
    for (const [n, layer] of norms ? drawnLayers.entries() : [])
      for (const [i, y] of lines) {
        context.beginPath();
        const radius = (2 + 9 * (mlpNorms(layer)[i] / largest) ** 0.5) * Math.min(1, line / 32);
        context.arc((starts[2 + 2 * n] + starts[3 + 2 * n]) / 2, y, radius, 0, 2 * Math.PI);
        context.globalAlpha = selection.isFollowing && i !== query ? 0.25 : 1;
        context.fillStyle = stage?.layer === layer && stage.token === i ? hot : raised;
        context.strokeStyle = i === query ? accent : ink;
        context.fill();
        context.stroke();
      }
    context.restore();
    if (stage) frame(context, stage, accent);
    for (const name of names.children) {
      name.classList.toggle("query", name.position === query);
      name.classList.toggle("later", selection.isFollowing && name.position !== query);
      name.ariaSelected = String(name.position === query);
      name.tabIndex = name.position === query ? 0 : -1;
    }
    for (const { cell, layer } of maps) {
      cell.classList.toggle("later", stage !== undefined && !stage.layers.includes(layer));
      // The query's row in the map, at least two pixels high.
      cell.style.setProperty("--from", query / T);
      cell.style.setProperty("--to", Math.max((query + 1) / T, query / T + 2 / plan.grid.size));
    }
    scene.classList.toggle("following", selection.isFollowing);
    byId("all-tokens").hidden = !selection.isFollowing;
    next.classList.toggle("later", stage !== undefined && stage.name !== "next");
    showNextTokens(selection.isFollowing ? query : T - 1);
    if (selection.isFollowing && !stage) byId("stage-words").textContent = pathInWords(query);
  });

  /** Frame a stage's columns, and dim the earlier ones. */
  function frame(context, { from, to, name }, accent) {
    const { starts, top, height } = plan;
    context.globalAlpha = 0.6;
    context.fillStyle = inkOf("paper");
    context.fillRect(starts[0], top - 9, starts[from] - starts[0], height);
    context.globalAlpha = 1;
    if (name === "next") return;
    context.strokeStyle = accent;
    context.lineWidth = 2;
    context.beginPath();
    context.roundRect(starts[from] + 1, top - 8, starts[to] - starts[from] - 2, height - top + 2, 12);
    context.stroke();
  }

  /** A token's path in words: what it attends to, where it changes, and what follows it. */
  function pathInWords(i) {
    const keyWord = (j) => wordOf(trace.keys[j].symbol);
    let largest = { weight: 0 };
    for (const { layer, head } of maps.filter((map) => isLoaded(view, map)))
      valuesOf(view, layer, head, "weights", i).forEach((weight, j) => {
        if (j !== cached + i && weight > largest.weight) largest = { layer, head, weight, j };
      });
    const added = Array.from({ length: norms ? layers : 0 }, (_, layer) => mlpNorms(layer)[i]);
    const layer = added.indexOf(Math.max(...added));
    const [likeliest] = (i === T - 1 ? nextTokens : nextAfter.get(i)) ?? [];
    return joinSentences(
      largest.weight &&
        say("The largest weight of “{query}” on another token is {share}, on “{key}” in head {layer}.{head}.", {
          ...largest,
          query: keyWord(cached + i),
          key: keyWord(largest.j),
          share: percent(largest.weight),
        }),
      layers > 1 && added[layer] > 0 && say("Of the MLPs, MLP {layer} adds the longest vector to it.", { layer }),
      likeliest && say("After it, the most probable token is “{word}”, with {share}.", { word: likeliest.word, share: percent(likeliest.probability) }),
    );
  }

  /** The most probable tokens after a position. */
  async function readNext(position) {
    const { ids, tokens, renormalized } = await readFollowing(trace, position);
    return ids.slice(0, NEXT_SHOWN).map((id, n) => ({ id, word: wordOf(tokens[n].symbol), probability: renormalized[n] }));
  }

  /** List the next tokens; after the text, also their probabilities without the open head, if known. */
  function showNextTokens(position) {
    const isLast = position === T - 1;
    const isIncluded = position >= trace.prediction.first;
    if (!isLast && isIncluded && !nextAfter.has(position)) {
      nextAfter.set(position, null);
      readNext(position).then((tokens) => {
        nextAfter.set(position, tokens);
        draw();
      });
    }
    const isAblated = isAmong(trace.ablated ?? [], [selection.layer, selection.head]);
    const ablation = isAblated || !isLast ? undefined : trace.story?.heads.find((head) => isSame(head, selection));
    const token = brief(wordOf(trace.tokens[position].symbol));
    next.replaceChildren(
      make("li", { class: "title" }, isLast ? say("Next token") : say("Next token after “{token}”", { token })),
      ...(isIncluded ? [] : [make("li", { class: "note" }, whyNoLogits(trace))]),
      ...((isLast ? nextTokens : nextAfter.get(position)) ?? []).map(({ id, word, probability }) => {
        const n = ablation ? trace.story.ids.indexOf(id) : -1;
        const bars = [barOf(probability), ...(n >= 0 ? [barOf(ablation.after[n], "without")] : [])];
        return make("li", {}, make("bdi", { class: "word" }, brief(word)), make("span", {}, percent(probability)), ...bars);
      }),
      ...(ablation ? [make("li", { class: "note" }, say("lower bar: without head {layer}.{head}", selection))] : []),
    );
  }

  /** Mark the open head and its block. */
  function mark() {
    for (const { cell, layer, head } of maps) {
      const isOpen = layer === selection.layer && head === selection.head;
      cell.ariaSelected = String(isOpen);
      cell.tabIndex = isOpen ? 0 : -1;
    }
    for (const block of blocks) block.tabIndex = block.layer === selection.layer ? 0 : -1;
    draw();
  }

  // ---- pointer and keys ------------------------------------------------------------------------

  cells.addEventListener("click", ({ target }) => {
    const cell = target.closest(".mini");
    if (cell) enterHead(cell.map.layer, cell.map.head);
  });
  moveByArrows(cells, () => maps.map(({ cell }) => cell));
  const enterBlock = ({ layer }) => zoomTo("block", { layer, head: selection.layer === layer ? selection.head : 0 });
  titles.addEventListener("click", ({ target }) => target.layer !== undefined && enterBlock(target));
  moveByArrows(titles, () => blocks);
  /** Follow a token, or stop following it and show all again. */
  function follow({ position }) {
    const isFollowed = selection.isFollowing && position === queryIn(trace);
    stopPlaying();
    select(queryOf(trace, position));
    setFollowing(!isFollowed);
  }
  names.addEventListener("click", ({ target }) => {
    const name = target.closest(".line");
    if (name) follow(name);
  });
  moveByArrows(names, () => [...names.children]);

  /** The strongest curve under the pointer. */
  function curveUnder({ offsetX, offsetY }) {
    return curves.findLast((curve) => {
      const { from, to, keyY, queryY } = curveAt(curve);
      const t = (offsetX - from) / (to - from);
      if (t < 0 || t > 1) return false;
      // The curve's parameter is s + 0.5, where s³ + 0.75 s = t - 0.5. Solved by Newton's method.
      let s = t - 0.5;
      for (let n = 0; n < 4; n++) s -= (s ** 3 + 0.75 * s - t + 0.5) / (3 * s * s + 0.75);
      return Math.abs(keyY + (queryY - keyY) * (0.5 + 1.5 * s - 2 * s ** 3) - offsetY) < 5;
    });
  }
  canvas.addEventListener("pointermove", (event) => {
    const curve = curveUnder(event);
    canvas.style.cursor = curve ? "pointer" : "";
    canvas.title = curve ? say("head {layer}.{head}: {query} → {key}, {share}", { ...curve, query: wordOf(trace.tokens[curve.i].symbol), key: wordOf(trace.tokens[curve.j].symbol), share: percent(curve.weight) }) : "";
  });
  canvas.addEventListener("click", (event) => {
    const curve = curveUnder(event);
    const block = drawnLayers.findIndex((_, n) => event.offsetX >= plan.starts[1 + 2 * n] && event.offsetX < plan.starts[2 + 2 * n]);
    if (!curve && isAt("model") && block >= 0 && event.offsetY > plan.top) enterBlock(blocks[block]);
    if (!curve) return;
    enterHead(curve.layer, curve.head, () => select(queryOf(trace, curve.i)));
  });

  // ---- numbers ---------------------------------------------------------------------------------

  let reading; // a promise
  let isReading = false;

  /** Load the numbers to draw; called when the picture is first shown. */
  function read() {
    if (reading) return;
    isReading = true;
    reading = Promise.all([
      readNext(T - 1).then((tokens) => {
        nextTokens = tokens;
        draw();
      }),
      source.has(trace, "stream") && source.pack(trace, "stream").then((numbers) => (norms = numbers)),
      ...Array.from({ length: layers }, async (_, layer) => {
        await loadLayer(trace, layer);
        if (picture?.view !== view) return;
        findCurves();
        draw();
        for (const map of maps.slice(layer * H, (layer + 1) * H)) showBadge(map);
      }),
    ]).then(() => {
      isReading = false;
      if (picture?.view !== view) return;
      layOut();
      showFarthest();
    });
  }

  return {
    view,
    maps,
    titles: blocks,
    mark,
    draw,
    layOut,
    read,
    findFarthest,
    mlpNorms,
    get isReading() { return isReading; },
    get norms() { return norms; },
    get nextTokens() { return nextTokens; },
    get curves() { return curves; },
  };
}

/** How well a head does each job on a text; see `jobsOf`. */
export function jobsOfHead(trace, layer, head) {
  const loaded = headOf(trace, layer, head);
  return jobsOf(trace.tokens.map(({ id }) => id), (i) => stepRow(loaded, "weights", i));
}

/** [job, mean weight on its targets] of the job that a head does on a text; [] if it does none. */
export function jobOf(trace, layer, head) {
  if (trace.cached || trace.T ** 2 > NUMBERS_AT_ONCE) return []; // long texts would take too long
  const jobs = Object.entries(jobsOfHead(trace, layer, head))
    .filter(([, job]) => job && job.attention >= MIN_BADGE_WEIGHT && job.attention > 2 * job.uniform)
    .sort(([, a], [, b]) => b.attention - a.attention);
  return jobs.length ? [jobs[0][0], jobs[0][1].attention] : [];
}

const isSameCurve = (a, b) => b && isSame(a, b) && a.i === b.i && a.j === b.j;

/** Draw the picture, in Look. */
export function showPicture() {
  if (!isLook()) return;
  picture.layOut();
  picture.read();
}
