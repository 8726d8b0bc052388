// The whole model in one picture: tokens enter at the left, each as a ribbon whose width is its vector's norm,
// pass through the blocks, and leave at the right as the next token's probabilities. Curves are weights; those on the
// first token, where attention rests, are ticks at the blocks' edges.

import { ablationOf, isAmong } from "../numbers/changes.js";
import { NOTABLE } from "../numbers/constants.js";
import { barScale, brief, digitsOf, percent, percentsOf } from "../numbers/formats.js";
import { wordOf } from "../numbers/words.js";
import { attendedInLayer, meanRest } from "../sources/attended.js";
import { joinSentences, say, sayStored } from "../sources/description.js";
import { jobOf, jobsInWords } from "../sources/jobs.js";
import { headOf, weightsInLayer } from "../sources/rows.js";
import { loadLayer, readFollowing, source, whyNoLogits } from "../sources/source.js";
import { select } from "../state/actions.js";
import { changed, isAt, isSame, on, selection, set } from "../state/store.js";
import { nextTokenOf, onHead, queryIn, queryOf, traceViews } from "../state/traces.js";
import { palette } from "../drawing/colours.js";
import { identify } from "../drawing/card.js";
import { barOf, buttonOf, byId, colourOf, isPresenting, isPrinted, make, moveByArrows, nameInSentence, onceAFrame, prepareCanvas,
  textScale, wordElement } from "../drawing/draw.js";
import { enterHead, openPrediction, zoomTo } from "../drawing/levels.js";
import { makeMap } from "../drawing/maps.js";
import { nameOf, restButton } from "../drawing/names.js";
import { paintBands, paintCurves, paintDiscs, paintMarks, paintRest, paintRibbons, paintStage } from "../drawing/paint.js";
import { mapPosition, planOf } from "../drawing/plan.js";
import { Reach } from "../drawing/reach.js";
import { Spot } from "./parts.js";

const MAX_CURVES = 1500; // the strongest ones are drawn
const NEXT_SHOWN = 5;
const BADGES = { previous: "←", first: "⇤", same: "=", induction: "↻" };
const INKS = ["muted", "raised", "accent", "band", "flow", "paper"]; // of the style sheet

let picture; // of the last shown trace; null until it is shown

class Picture {
  norms = null; // T each: of the embedding; then, for each block, of mid, of what the MLP adds, and of output
  #curves = null; // found when they are drawn, or otherwise needed
  #nextAfter = new Map(); // the most probable tokens after a position, {id, word, probability}; [] while loading
  #listed = ""; // what the list of next tokens shows
  #layers = []; // those that are drawn: all, or only the open block's
  #plan; // positions and sizes, see plan.js
  #reading; // a promise

  constructor(view) {
    this.view = view;
    [this.trace] = view.traces;
    this.trace.drawing = this; // what the tour is about
    const { layers, H } = this.trace;
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.cells = make("div", { role: "listbox", class: "minis", "aria-label": say("Heads") });
    this.names = make("div", { class: "lines", role: "listbox", "aria-label": say("Follow a token") });
    this.bar = make("div", { class: "titles", role: "toolbar", "aria-label": say("Blocks") });
    this.titles = Array.from({ length: layers }, (_, layer) => {
      const title = make("span", { class: "block", role: "button", tabindex: "-1", "aria-label": say("Layer {layer}", { layer }) });
      return Object.assign(title, { layer });
    });
    this.next = make("ol", { class: "leaving", "aria-label": say("Next token") });
    this.probe = make("span", { hidden: "", class: "probe" }); // to resolve the style sheet's colours, and a name's font
    this.spot = new Spot(this.canvas, () => this.#shown(), (part, event) => this.#open(part, event));
    this.marks = make("div", { class: "marks" });
    this.resting = make("p", { class: "rest-words note" });
    this.scene = make("div", { class: "scene" }, this.canvas, this.bar, this.marks, this.names, this.cells, this.spot.element, this.probe);
    const sideways = make("div", { class: "sideways" }, this.scene);
    this.reach = new Reach(sideways);
    byId("picture").replaceChildren(...nameOf(view), sideways, this.reach.element, this.next, this.resting);
    this.maps = Array.from({ length: layers * H }, (_, n) => this.#makeMap(Math.floor(n / H), n % H));
    this.draw = onceAFrame(() => this.#plan && palette && this.#draw());
    this.#listen();
  }

  #makeMap(layer, head) {
    const badge = make("span", { class: "badge", "aria-hidden": "true" });
    const label = make("span", { class: "number", "aria-hidden": "true" }, `${layer}.${head}`);
    const map = makeMap(this.view, layer, head, { role: "option", class: "mini" }, badge, label);
    this.cells.append(map.cell);
    return Object.assign(map, { badge });
  }

  // ---- numbers ---------------------------------------------------------------------------------

  /** Load the numbers to draw; called when the picture is first shown. */
  read() {
    if (this.#reading) return;
    selection.isReading = true;
    const { trace } = this;
    const readStream = async () => (this.norms = await source.pack(trace, "stream"));
    const layers = Array.from({ length: trace.layers }, (_, layer) => this.#readLayer(layer));
    this.#reading = Promise.all([this.#readNext(trace.T - 1), source.has(trace, "stream") && readStream(), ...layers]).then(() => {
      if (!this.#isShown) return;
      selection.isReading = false;
      this.layOut();
      changed("picture");
    });
  }

  get #isShown() {
    return picture?.view === this.view;
  }

  async #readLayer(layer) {
    await loadLayer(this.trace, layer);
    if (!this.#isShown) return;
    this.#curves = null;
    this.draw();
    const { H } = this.trace;
    for (const map of this.maps.slice(layer * H, (layer + 1) * H)) this.#showBadge(map);
  }

  /** Read the most probable tokens after a position. */
  async #readNext(position) {
    this.#nextAfter.set(position, []);
    const { ids, renormalized } = await readFollowing(this.trace, position);
    const next = ids.slice(0, NEXT_SHOWN).map((id, n) => ({ id, word: wordOf(nextTokenOf(this.trace, position, id)), probability: renormalized[n] }));
    this.#nextAfter.set(position, next);
    this.draw();
  }

  /** The most probable tokens after the text. */
  get nextTokens() {
    return this.#nextAfter.get(this.trace.T - 1) ?? [];
  }

  /** The norms of what a layer's MLP adds to each token. */
  mlpNorms(layer) {
    const { T } = this.trace;
    return this.norms.subarray((2 + 3 * layer) * T, (3 + 3 * layer) * T);
  }

  /** A token's norms in the columns' order: of the embedding, and after each block's attention and MLP. */
  #normsOf(i) {
    const norm = (n) => this.norms[n * this.trace.T + i];
    return [norm(3 * this.#layers[0]), ...this.#layers.flatMap((layer) => [norm(1 + 3 * layer), norm(3 + 3 * layer)])];
  }

  /** Show a head's job on this text as a badge, with its mean weight in the title. */
  #showBadge(map) {
    const { layer, head, badge, cell, name } = map;
    const [job, attention, rest] = jobOf(this.trace, layer, head);
    if (!job || headOf(this.trace, layer, head).isAblated) return undefined;
    const values = { name, share: percent(attention), rest: percent(rest), job: jobsInWords()[job] };
    cell.classList.toggle("resting", job === "first");
    badge.textContent = BADGES[job];
    badge.dataset.job = job;
    return identify(cell, (map.name = jobOfMap(values, job, rest)));
  }

  // ---- tokens and curves -----------------------------------------------------------------------

  /** The positions to draw: all, or the first, the last ones, and those that the last token attends to most. */
  #chooseTokens(count) {
    const { T, cached, loaded } = this.trace;
    if (T <= count) return [...Array(T).keys()];
    const sums = new Float64Array(T);
    for (const layer of loaded.keys())
      for (const weights of weightsInLayer(this.trace, layer, T - 1))
        for (let j = cached; j < weights.length; j++) sums[j - cached] += weights[j];
    sums[0] = Infinity; // attention rests there
    const last = Math.ceil(count / 2);
    const earlier = [...Array(T - last).keys()].sort((a, b) => sums[b] - sums[a] || a - b);
    return [...earlier.slice(0, count - last), ...Array.from({ length: last }, (_, n) => T - last + n)].sort((a, b) => a - b);
  }

  get #query() {
    return Math.min(this.trace.T - 1, queryIn(this.trace));
  }

  get #loadedLayers() {
    return this.#layers.filter((layer) => this.trace.loaded.has(layer));
  }

  /** A token's notable curves in a layer, including those to tokens that aren't drawn. */
  #notableCurves(layer, i) {
    return attendedInLayer(this.trace, layer, i).flatMap((attended, head) =>
      keysOfCurves(attended).map((key) => this.#curveOf({ layer, head, i }, attended, key)),
    );
  }

  #curveOf(place, { rest, excess, visible, weights, isAblated }, key) {
    const count = visible.length + 1;
    // Of the first token: how far the share that rests exceeds uniform attention.
    const ofFirst = () => (rest * count - 1) / Math.max(1, count - 1);
    return { ...place, j: key - this.trace.cached, weight: weights[key], excess: key ? excess[key] : ofFirst(), isAblated };
  }

  /**
   * The selected token's other curves in a layer, however faint, to drawn tokens: of the open head all, of each head
   * without a notable one the largest.
   */
  #faintCurves(layer, i) {
    const { cached } = this.trace;
    return attendedInLayer(this.trace, layer, i).flatMap((attended, head) => {
      const { visible, weights } = attended;
      const notable = keysOfCurves(attended);
      const drawn = visible.filter((key) => this.#plan.lines.has(key - cached)).sort((a, b) => weights[b] - weights[a]);
      const count = isSame({ layer, head }, selection) ? drawn.length : notable.length ? 0 : 1;
      return drawn.slice(0, count).filter((key) => !notable.includes(key)).map((key) => this.#curveOf({ layer, head, i }, attended, key));
    });
  }

  /** The curves of the drawn layers and tokens, {layer, head, i, j, weight, excess, isAblated}, the faintest first. */
  get curves() {
    return (this.#curves ??= this.#findCurves());
  }

  #findCurves() {
    if (!this.#plan) return [];
    const { positions, lines } = this.#plan;
    const curvesIn = (layer) => [...positions.flatMap((i) => this.#notableCurves(layer, i)), ...this.#faintCurves(layer, this.#query)];
    const drawn = this.#loadedLayers.flatMap(curvesIn).filter(({ j }) => lines.has(j));
    return drawn.sort((a, b) => b.isAblated - a.isAblated || a.excess - b.excess).slice(-MAX_CURVES);
  }

  // ---- layout ----------------------------------------------------------------------------------

  layOut() {
    if (!isAt("model", "block")) return; // it is hidden, and to measure it would lay out the page once more
    const box = byId("picture");
    const available = box.clientWidth;
    if (!available) return;
    const { layers } = this.trace;
    const scale = textScale();
    const [isPhone, isBlock, isPresented] = [available < 640 * scale, isAt("block"), isPresenting()];
    this.#layers = isBlock ? [Math.min(layers - 1, selection.layer)] : [...Array(layers).keys()];
    const topInPage = box.getBoundingClientRect().top + scrollY;
    const room = innerHeight - topInPage - (isPresented ? 140 : 100); // below the picture: what rests, the tour's buttons
    const shown = { count: this.#layers.length, available, nameWidth: this.#nameWidth(), scale, room, isPhone, isBlock, isPresented, isPrinted: isPrinted() };
    const plan = planOf(this.trace, shown, (count) => this.#chooseTokens(count));
    this.#plan = plan;
    box.classList.toggle("narrow", plan.isNarrow);
    Object.assign(this.scene.style, { width: `${plan.width}px`, height: `${plan.height}px` });
    this.names.replaceChildren(...plan.positions.map((i) => this.#nameElement(i)));
    this.marks.replaceChildren(...plan.marks.map((mark) => this.#markElement(mark)));
    this.bar.replaceChildren(...this.#titlesOf(isBlock));
    for (const map of this.maps) this.#placeMap(map);
    this.next.hidden = isBlock;
    this.next.style.marginTop = `${plan.isNarrow ? 8 : plan.top}px`;
    this.#curves = null;
    this.spot.forget();
    this.reach.layOut(this.#layers.map((_, n) => plan.starts.slice(1 + 2 * n, 3 + 2 * n)), this.#layers);
    this.draw();
  }

  /** The width of the longest name. */
  #nameWidth() {
    const context = this.canvas.getContext("2d");
    context.font = getComputedStyle(this.probe).font;
    const widthOf = (token) => context.measureText(contentOfName(token).textContent).width;
    return Math.max(...this.trace.tokens.map(widthOf));
  }

  /** The name at the left of a token's line. */
  #nameElement(i) {
    const { lines, line, left } = this.#plan;
    const token = this.trace.tokens[i];
    const { piece } = token;
    const content = contentOfName(token);
    const name = make("span", { class: "line", role: "option", tabindex: "-1" }, content);
    for (const [place, isThere] of Object.entries({ piece, first: piece?.isFirst, last: piece?.isLast })) name.classList.toggle(place, Boolean(isThere));
    identify(name, say("token {i}, “{word}”: follow it", { i: this.trace.cached + i, word: nameInSentence(token) }));
    name.position = i;
    moveTo(name, 0, lines.get(i) - line / 2);
    Object.assign(name.style, { width: `${left - 14}px`, height: `${line}px`, lineHeight: `${line}px` });
    return name;
  }

  /** Where tokens are hidden, their number. */
  #markElement({ y, count }) {
    const { left } = this.#plan;
    const mark = make("span", { "data-tip": say("Tokens hidden here: {count}", { count }) }, left < 90 * textScale() ? `⋯ ${count}` : say("⋯ {count} hidden", { count }));
    moveTo(mark, 0, y - 8);
    mark.style.width = `${left - 14}px`;
    return mark;
  }

  /** The titles of the columns; narrow ones have numbers only. */
  #titlesOf(isBlock) {
    const { starts, unit, left } = this.#plan;
    const titleAt = (words, from, to, title = make("span", { "aria-hidden": "true" })) => {
      title.textContent = words;
      moveTo(title, from, 0);
      title.style.width = `${to - from}px`;
      return title;
    };
    const scale = textScale();
    const isTitled = unit >= 96 * scale;
    const embedding = !isBlock && starts[1] - starts[0] >= 72 * scale ? say("Embedding") : "";
    return [
      isTitled ? titleAt(embedding, starts[0], starts[1]) : titleAt(say("layer"), 0, left - 14),
      ...this.#layers.flatMap((layer, n) => {
        const [from, middle, to] = starts.slice(1 + 2 * n);
        const words = isTitled ? say("Attention {layer}", { layer }) : String(layer);
        return [titleAt(words, from, middle, this.titles[layer]), titleAt(to - middle >= 50 * scale ? `MLP ${layer}` : "", middle, to)];
      }),
    ];
  }

  #placeMap({ layer, head, cell, canvas }) {
    const n = this.#layers.indexOf(layer);
    const { size, isLabelled } = this.#plan.grid;
    cell.hidden = n < 0;
    if (n >= 0) moveTo(cell, ...mapPosition(this.#plan, n, head));
    canvas.style.width = canvas.style.height = `${size}px`;
    cell.classList.toggle("unnamed", !isLabelled);
  }

  // ---- drawing ---------------------------------------------------------------------------------

  /** Colours by their names in the style sheet; `hot` is the palette's last one. */
  #inks() {
    const inkOf = (name) => {
      this.probe.style.color = `var(--${name})`;
      return colourOf(this.probe);
    };
    return { ...Object.fromEntries(INKS.map((name) => [name, inkOf(name)])), hot: palette.at(-1) };
  }

  #draw() {
    const stage = isAt("model") ? (selection.stage ?? undefined) : undefined;
    const { T } = this.trace;
    const query = this.#query;
    this.canvas.paintOn = (context) => this.#paint(context, query, stage); // on this canvas, or as SVG
    this.canvas.paintOn(prepareCanvas(this.canvas, this.#plan.width, this.#plan.height));
    this.#showRest(query);
    for (const name of this.names.children) {
      name.classList.toggle("query", name.position === query);
      name.classList.toggle("later", selection.isFollowing && name.position !== query);
      name.ariaSelected = String(name.position === query);
      name.tabIndex = name.position === query ? 0 : -1;
    }
    for (const { cell, layer } of this.maps) {
      cell.classList.toggle("later", stage !== undefined && !stage.layers.includes(layer));
      // The query's row in the map, at least two pixels high.
      cell.style.setProperty("--from", query / T);
      cell.style.setProperty("--to", Math.max((query + 1) / T, query / T + 2 / this.#plan.grid.size));
    }
    this.scene.classList.toggle("following", selection.isFollowing);
    byId("all-tokens").hidden = !selection.isFollowing;
    this.next.classList.toggle("later", stage !== undefined && stage.name !== "next");
    this.#showNextTokens(selection.isFollowing ? query : T - 1);
    if (selection.isFollowing && !stage) byId("stage-words").textContent = this.#pathInWords(query);
  }

  #paint(context, query, stage) {
    const plan = this.#plan;
    const inks = this.#inks();
    const largest = this.norms?.reduce((a, b) => Math.max(a, b), 0) || 1;
    const thickness = (norm) => 1.5 + Math.min(14, 0.4 * plan.line) * (norm / largest);
    const isOpen = (curve) => isSame(curve, selection);
    const look = { query, isFollowing: selection.isFollowing, stage, isOpen, inks, thickness };
    // Columns after the stage aren't drawn.
    const until = stage && stage.name !== "next" ? plan.starts[stage.to] : plan.width;
    context.save();
    context.beginPath();
    context.rect(0, 0, until, plan.height);
    context.clip();
    paintBands(context, plan, inks);
    // Until the norms are known, all ribbons are equally thin.
    const normsOf = this.norms ? (i) => this.#normsOf(i) : () => plan.starts.slice(1).map(() => largest / 4);
    paintRibbons(context, plan, normsOf, look);
    paintMarks(context, plan, inks);
    paintCurves(context, plan, this.#layers, this.curves, look);
    if (!selection.drawsFirst) paintRest(context, plan, this.#loadedLayers, this.#shares(), look);
    if (this.norms) paintDiscs(context, plan, this.#layers, (layer, i) => this.mlpNorms(layer)[i] / largest, look);
    context.restore();
    if (stage) paintStage(context, plan, stage, inks);
  }

  /** Functions of a layer and a token: how much of its attention rests, in the mean of the heads and in the open head. */
  #shares() {
    const { layer: openLayer, head } = selection;
    return {
      share: (layer, i) => meanRest(attendedInLayer(this.trace, layer, i)),
      shareOfOpenHead: (layer, i) => (layer === openLayer ? meanRest(attendedInLayer(this.trace, layer, i).slice(head, head + 1)) : 0),
    };
  }

  /** The mean share of tokens' attention that rests, over the heads of layers that are loaded. */
  restOf(tokens, layers) {
    const loaded = layers.filter((layer) => this.trace.loaded.has(layer));
    return meanRest(loaded.flatMap((layer) => tokens.flatMap((i) => attendedInLayer(this.trace, layer, i))));
  }

  /** The tokens drawn after the first one. */
  get laterTokens() {
    return (this.#plan?.positions ?? []).filter((i) => this.trace.cached + i > 0);
  }

  /** Say how much of a token's attention rests, with a button to draw it as other attention, or apart. */
  #showRest(i) {
    const rest = this.restOf([i], this.#layers);
    this.resting.hidden = rest < NOTABLE && !selection.drawsFirst;
    if (this.resting.hidden) return;
    const { tokens, keys } = this.trace;
    const values = { rest: percent(rest), query: nameInSentence(tokens[i]), first: nameInSentence(keys[0]) };
    const words = selection.drawsFirst
      ? say("On average over all heads, {rest} of the attention of “{query}” rests on the first token, “{first}”.", values)
      : say("On average over all heads, {rest} of the attention of “{query}” rests on the first token, “{first}”: the ticks at each block’s left edge.", values);
    if (this.resting.firstChild?.textContent === words) return; // so that the button keeps its focus
    this.resting.replaceChildren(make("span", {}, words), " ", restButton());
  }

  /** A token's path in words: what it attends to, where it changes, and what follows it. */
  #pathInWords(i) {
    const { tokens, layers } = this.trace;
    const word = (n) => nameInSentence(tokens[n]);
    const isToAnother = ({ j, isAblated }) => j !== i && j !== 0 && !isAblated;
    const curves = this.#loadedLayers.flatMap((layer) =>
      attendedInLayer(this.trace, layer, i).flatMap((attended, head) => attended.visible.map((key) => this.#curveOf({ layer, head, i }, attended, key))),
    );
    const largest = curves.filter(isToAnother).reduce((best, curve) => (curve.weight > (best?.weight ?? 0) ? curve : best), undefined);
    const added = Array.from({ length: this.norms ? layers : 0 }, (_, layer) => this.mlpNorms(layer)[i]);
    const layer = added.indexOf(Math.max(...added));
    const [likeliest] = this.#nextAfter.get(i) ?? [];
    return joinSentences(
      largest &&
        say("Besides the first token, “{query}” attends most to “{key}”: {share} in head {layer}.{head}.", {
          ...largest,
          query: word(i),
          key: word(largest.j),
          share: percent(largest.weight),
        }),
      layers > 1 && added[layer] > 0 && say("Of the MLPs, MLP {layer} adds the longest vector to it.", { layer }),
      likeliest && say("After it, the most probable token is “{word}”, with {share}.", { word: likeliest.word, share: percentsOf([likeliest.probability])[0] }),
    );
  }

  /** List the next tokens; after the text also those without the open head, if known, each with both probabilities. */
  #showNextTokens(position) {
    const { trace } = this;
    const isLast = position === trace.T - 1;
    const hasLogits = position >= trace.prediction.first;
    if (hasLogits && !this.#nextAfter.has(position)) this.#readNext(position);
    const isAblated = isAmong(trace.changes ?? [], ablationOf(selection.layer, selection.head));
    const ablation = isAblated || !isLast ? undefined : trace.story?.heads.find((head) => isSame(head, selection));
    const shown = JSON.stringify([position, this.#nextAfter.get(position), ablation]);
    if (shown === this.#listed) return; // what has the focus stays
    this.#listed = shown;
    const token = nameInSentence(trace.tokens[position]);
    const likely = this.#nextAfter.get(position) ?? [];
    const probabilities = likely.map(({ probability }) => probability);
    const inWords = (share) => percent(share, digitsOf(probabilities));
    const isNew = (next) => likely.every(({ id }) => id !== next.id) && !inWords(next.without).startsWith("<");
    const risen = likely.length ? (ablation?.without ?? []).filter(isNew) : [];
    const listed = [...likely, ...risen.map((next) => ({ ...next, word: wordOf(nextTokenOf(trace, position, next.id)) }))];
    const without = (next) => next.without ?? ablation?.after[trace.story.ids.indexOf(next.id)] ?? next.probability;
    const largest = Math.max(0, ...listed.flatMap((next) => [next.probability, without(next)]));
    const scale = barScale([largest]);
    const item = (next) => {
      const { word, probability } = next;
      const [before, after] = [probability, without(next)].map(inWords);
      const change = after === before ? [] : [" → ", make(isStriking(probability, without(next)) ? "b" : "span", {}, after)];
      const bars = [barOf(probability * scale), ...(ablation ? [barOf(without(next) * scale, "without")] : [])];
      const button = buttonOf(() => openPrediction(() => select(queryOf(trace, position))), { class: "word" }, make("bdi", {}, brief(word)));
      identify(button, say("“{word}”: {share}; open its numbers", { word, share: percent(probability, 2) }));
      return make("li", {}, button, make("span", {}, before, ...change), ...bars);
    };
    const notes = [
      !hasLogits && make("li", { class: "note" }, whyNoLogits(trace)),
      ...listed.map(item),
      scale > 1 && make("li", { class: "note" }, say("No token is probable: the longest bar is {share}.", { share: inWords(largest) })),
      ablation && make("li", { class: "note" }, say("→ and lower bars: without head {layer}.{head}", selection)),
      trace.limits && make("li", { class: "note" }, sayStored(trace.limits)),
    ];
    const title = isLast ? say("Next token") : say("Next token after “{token}”", { token });
    this.next.replaceChildren(make("li", { class: "title" }, title), ...notes.filter(Boolean));
  }

  /** Mark the open head and its block. */
  mark() {
    this.#curves = null;
    for (const { cell, ...map } of this.maps) {
      const isOpen = isSame(map, selection);
      cell.ariaSelected = String(isOpen);
      cell.tabIndex = isOpen ? 0 : -1;
    }
    for (const title of this.titles) title.tabIndex = title.layer === selection.layer ? 0 : -1;
    this.draw();
  }

  // ---- pointer and keys ------------------------------------------------------------------------

  #listen() {
    const { cells, bar, names } = this;
    cells.addEventListener("click", ({ target }) => {
      const cell = target.closest(".mini");
      if (cell) enterHead(cell.map.layer, cell.map.head);
    });
    moveByArrows(cells, () => this.maps.map(({ cell }) => cell));
    bar.addEventListener("click", ({ target }) => target.layer !== undefined && enterBlock(target.layer));
    moveByArrows(bar, () => this.titles);
    names.addEventListener("click", ({ target }) => {
      const name = target.closest(".line");
      if (name) this.#follow(name.position);
    });
    moveByArrows(names, () => [...names.children]);
  }

  /** Follow a token, or stop following it and show all again. */
  #follow(position) {
    const isFollowed = selection.isFollowing && position === queryIn(this.trace);
    select(queryOf(this.trace, position));
    set({ isFollowing: !isFollowed });
  }

  /** What the spot on the canvas can be at. */
  #shown() {
    const { trace, curves } = this;
    const norms = this.norms && { normsOf: (i) => this.#normsOf(i), mlpNorms: (layer) => this.mlpNorms(layer) };
    return { plan: this.#plan, layers: this.#layers, curves, trace, query: queryIn(trace), ...norms };
  }

  /** Open a part: a weight's head, a vector's path, the block of an MLP, or else the block whose attention is there. */
  #open(part, { offsetX, offsetY }) {
    const selectToken = () => select(queryOf(this.trace, part.i));
    if (part?.kind === "weight") return enterHead(part.curve.layer, part.curve.head, selectToken);
    if (part?.kind === "vector") return this.#follow(part.i);
    if (part) selectToken();
    if (!isAt("model")) return undefined;
    if (part) return enterBlock(part.layer);
    const { starts, top } = this.#plan;
    const n = this.#layers.findIndex((_, n) => offsetX >= starts[1 + 2 * n] && offsetX < starts[2 + 2 * n]);
    return n >= 0 && offsetY > top ? enterBlock(this.#layers[n]) : undefined;
  }
}

const contentOfName = (token) => (token.piece ? wordElement(token) : make("bdi", {}, brief(wordOf(token))));

/** The keys of the curves that are always drawn. */
function keysOfCurves({ rest, excess, visible, kind }) {
  const first = selection.drawsFirst && kind !== "alone" && rest >= NOTABLE ? [0] : [];
  return [...first, ...visible.filter((key) => excess[key] >= NOTABLE)];
}

function jobOfMap(values, job, rest) {
  if (job === "first") return say("{name} rests: {share} of its attention is on the first token", values);
  if (rest < NOTABLE) return say("{name}: {share} of its attention goes to {job}", values);
  return say("{name}: {share} of its attention goes to {job}, {rest} rests on the first token", values);
}

/** Whether a probability without the open head stands out. */
const isStriking = (before, after) => Math.abs(after - before) >= NOTABLE;

const enterBlock = (layer) => zoomTo("block", { layer, head: selection.layer === layer ? selection.head : 0 });

function moveTo(element, x, y) {
  Object.assign(element.style, { left: `${x}px`, top: `${y}px` });
}

/** Draw the picture, in Look. */
function showPicture() {
  if (!isAt("model", "block")) return;
  picture ??= new Picture(traceViews.at(-1));
  picture.layOut();
  picture.read();
}

export function startPicture() {
  on("traces language", () => {
    picture = isAt("model", "block") ? new Picture(traceViews.at(-1)) : null;
    // First, because a server or worker computes while the rest is drawn; a file has no work to start.
    if (picture && picture.trace.id !== undefined) picture.read();
  });
  on("level depth", showPicture);
  onHead(() => picture?.mark());
  on("query drawsFirst", () => picture?.mark());
  on("key hovered stage story", () => picture?.draw());
  on("presenting printed textSize", () => picture?.layOut());
  addEventListener("resize", onceAFrame(() => picture?.layOut()));
}
