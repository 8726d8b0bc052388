// The whole model in one picture: tokens come in at the left, each a ribbon as wide as its vector is long,
// pass block after block, and leave at the right as the next token's probabilities. Curves are weights.

const FAINTEST_CURVE = 0.12; // smaller weights aren't drawn
const MOST_CURVES = 1500; // the strongest ones
const LARGEST_MAP = 46;
const LABELLED_MAP = 26; // maps from this size on have a name below
const [SMALLEST_LINE, LARGEST_LINE] = [20, 46]; // height of a token's line
const GAP = 8; // where tokens are left out
const NEXT_SHOWN = 5;
const JOB_TOLD = 0.5; // mean weight from which on a head wears a job's badge
const BADGES = { previous: "←", first: "⇤", same: "=", induction: "↻" };

const reducesMotion = matchMedia("(prefers-reduced-motion: reduce)");

let picture; // of the last trace that is shown

function makePicture(view) {
  const [trace] = view.traces;
  const { layers, H, T, cached } = trace;
  const canvas = make("canvas", { "aria-hidden": "true" });
  const cells = make("div", { role: "listbox", class: "minis", "aria-label": say("Heads") });
  const names = make("div", { class: "lines" });
  const titles = make("div", { class: "titles", "aria-hidden": "true" });
  const next = make("ol", { class: "leaving", "aria-label": say("Next token") });
  const scene = make("div", { class: "scene" }, canvas, titles, names, cells);
  byId("picture").replaceChildren(make("div", { class: "sideways" }, scene), next);
  const probe = make("span", { hidden: "" });
  scene.append(probe);

  const maps = Array.from({ length: layers * H }, (_, n) => {
    const place = { layer: Math.floor(n / H), head: n % H };
    const name = say("layer {layer}, head {head}", place);
    const map = make("canvas", { "aria-hidden": "true" });
    const badge = make("span", { class: "badge", "aria-hidden": "true" });
    const label = make("span", { class: "number", "aria-hidden": "true" }, `${place.layer}.${place.head}`);
    const cell = make("div", { role: "option", class: "mini", tabindex: "-1", title: name, "aria-label": name }, map, badge, label);
    cells.append(cell);
    return (cell.map = { view, ...place, canvas: map, cell, badge, name });
  });

  let norms = null; // of the stream: embedding; each block's mid, what the MLP adds, output
  let following = []; // the most probable next tokens, {id, share}
  let shown = []; // the positions of the tokens that are drawn
  let curves = []; // {layer, head, i, j, weight}, by weight
  let plan; // where everything is

  // ---- what is shown ---------------------------------------------------------------------------

  /** The tokens that are drawn: all, or the last ones and those that the last one attends to most. */
  function choose(most) {
    if (T <= most) return [...Array(T).keys()];
    const sums = new Float64Array(T);
    for (const { layer, head } of maps.filter((map) => isReadIn(view, map)))
      valuesOf(view, layer, head, "weights", T - 1).forEach((weight, j) => {
        if (j >= cached) sums[j - cached] += weight;
      });
    const last = Math.ceil(most / 2);
    const before = [...Array(T - last).keys()].sort((a, b) => sums[b] - sums[a] || a - b);
    return [...before.slice(0, most - last), ...Array.from({ length: last }, (_, n) => T - last + n)].sort((a, b) => a - b);
  }

  function findCurves() {
    curves = maps
      .filter((map) => isReadIn(view, map))
      .flatMap(({ layer, head }) =>
        shown.flatMap((i) => {
          const weights = valuesOf(view, layer, head, "weights", i);
          return shown
            .filter((j) => j !== i && weights[cached + j] >= FAINTEST_CURVE)
            .map((j) => ({ layer, head, i, j, weight: weights[cached + j] }));
        }),
      )
      .sort((a, b) => a.weight - b.weight)
      .slice(-MOST_CURVES);
  }

  /** What a head does on this text, as a badge with the number behind it. */
  function wearBadge({ layer, head, badge, cell, name }) {
    if (trace.cached || T > NUMBERS_AT_ONCE ** 0.5) return;
    const one = headOf(trace, layer, head);
    const ids = trace.tokens.map(({ id }) => id);
    const jobs = Object.entries(jobsOf(ids, (i) => stepRow(one, "weights", i)))
      .filter(([, job]) => job && job.attention >= JOB_TOLD && job.attention > 2 * job.even)
      .sort(([, a], [, b]) => b.attention - a.attention);
    if (!jobs.length) return;
    const [[job, { attention }]] = jobs;
    const told = say("{name}: {share} of its attention goes to {job}", { name, share: percent(attention), job: jobsInWords()[job] });
    badge.textContent = BADGES[job];
    badge.dataset.job = job;
    cell.title = cell.ariaLabel = told;
  }

  // ---- where it is -----------------------------------------------------------------------------

  function layOut() {
    const whole = byId("picture").clientWidth;
    if (!whole) return;
    const isPhone = whole < 640;
    const left = isPhone ? 74 : 118;
    const right = isPhone ? 10 : 232;
    const [ofMLP, ofEmbedding] = [layers > 4 ? 0.5 : 0.8, layers > 4 ? 0.6 : 0.5];
    const smallest = Math.ceil(H / 6) * 17;
    const unit = Math.max(smallest, (whole - left - right) / (ofEmbedding + layers * (1 + ofMLP)));
    const width = left + unit * (ofEmbedding + layers * (1 + ofMLP));
    const sizeIn = (columns) => {
      const size = Math.floor(Math.min(LARGEST_MAP, (unit - 8) / columns - 4));
      const rows = Math.ceil(H / columns);
      const pitch = size + (size >= LABELLED_MAP ? 20 : 4);
      return { columns, size, pitch, height: rows * pitch };
    };
    const fitting = Array.from({ length: H }, (_, n) => sizeIn(n + 1)).filter(({ size, height }) => size >= 8 && height <= 132);
    const labelled = fitting.filter(({ size }) => size >= LABELLED_MAP).sort((a, b) => a.height - b.height);
    const grid = labelled[0] ?? fitting.sort((a, b) => b.size - a.size || b.columns - a.columns)[0] ?? sizeIn(Math.ceil(H / 6));
    const top = 30 + grid.height + 18;
    const there = byId("picture").getBoundingClientRect().top + scrollY;
    const room = Math.max(320, Math.min(760, innerHeight - there - 70)) - top - 16;
    const pitch = T * SMALLEST_LINE > room ? SMALLEST_LINE + GAP / 2 : SMALLEST_LINE; // tokens left out leave gaps
    const most = Math.max(6, Math.min(24, Math.floor(room / pitch)));
    shown = choose(most);
    const gaps = shown.map((at, n) => n > 0 && at !== shown[n - 1] + 1);
    const free = room - GAP * gaps.filter(Boolean).length;
    const line = Math.max(SMALLEST_LINE, Math.min(LARGEST_LINE, free / shown.length));
    let y = top + line / 2;
    const lines = new Map(shown.map((at, n) => [at, (y += (n ? line : 0) + (gaps[n] ? GAP : 0))]));
    const starts = [left]; // of the stages: embedding, then attention and MLP of each block
    starts.push(left + unit * ofEmbedding);
    for (let n = 0; n < layers; n++) starts.push(starts.at(-1) + unit, starts.at(-1) + unit * (1 + ofMLP));
    plan = { width, height: y + line / 2 + 10, left, unit, grid, top, line, lines, gaps, starts, isPhone };
    const at = (element, x, y) => {
      element.style.left = `${x}px`;
      element.style.top = `${y}px`;
    };
    scene.style.width = `${width}px`;
    scene.style.height = `${plan.height}px`;
    names.replaceChildren(
      ...shown.map((i, n) => {
        const name = make("span", { class: "line", title: trace.tokens[i].symbol }, make("bdi", {}, brief(wordOf(trace.tokens[i].symbol))));
        name.place = i;
        name.classList.toggle("gap", gaps[n]);
        at(name, 0, lines.get(i) - line / 2);
        name.style.width = `${left - 14}px`;
        name.style.height = name.style.lineHeight = `${line}px`;
        return name;
      }),
    );
    const told = unit >= 96;
    const titleAt = (words, from, to) => {
      const title = make("span", {}, words);
      at(title, from, 0);
      title.style.width = `${to - from}px`;
      return title;
    };
    titles.replaceChildren(
      ...(told ? [titleAt(unit * ofEmbedding >= 72 ? say("Embedding") : "", starts[0], starts[1])] : [titleAt(say("layer"), 0, left - 14)]),
      ...Array.from({ length: layers }, (_, layer) => [
        titleAt(told ? say("Attention {layer}", { layer }) : String(layer), starts[1 + 2 * layer], starts[2 + 2 * layer]),
        titleAt(unit * ofMLP >= 50 ? `MLP ${layer}` : "", starts[2 + 2 * layer], starts[3 + 2 * layer]),
      ]).flat(),
    );
    for (const { layer, head, cell, canvas } of maps) {
      const { columns, size, pitch } = grid;
      const margin = (unit - columns * (size + 4) + 4) / 2;
      at(cell, starts[1 + 2 * layer] + margin + (head % columns) * (size + 4), 30 + Math.floor(head / columns) * pitch);
      canvas.style.width = canvas.style.height = `${size}px`;
      cell.classList.toggle("unnamed", size < LABELLED_MAP);
    }
    next.style.top = `${isPhone ? 0 : plan.top}px`;
    scene.classList.toggle("phone", isPhone);
    findCurves();
    draw();
  }

  // ---- what is drawn ---------------------------------------------------------------------------

  const inkOf = (name) => {
    probe.style.color = `var(--${name})`;
    return colourOf(probe);
  };

  const curveAt = ({ layer, i, j }) => {
    const { starts, lines } = plan;
    return { from: starts[1 + 2 * layer] + 6, to: starts[2 + 2 * layer] - 6, y: lines.get(j), end: lines.get(i) };
  };

  const draw = onceAFrame(() => {
    if (!plan || !palette) return;
    const { width, height, starts, lines, top, line, isPhone } = plan;
    const context = prepared(canvas, width, height);
    const ends = starts.at(-1);
    const stage = playing.stage;
    const until = stage === null ? width : (starts[stage + 1] ?? width);
    const query = Math.min(T - 1, queryIn(trace));
    const largest = norms ? norms.reduce((a, b) => Math.max(a, b), 0) || 1 : 1;
    const thick = (norm) => 1.5 + Math.min(14, 0.4 * line) * (norm / largest);
    const [ink, raised, accent, band, flow] = ["muted", "raised", "accent", "band", "flow"].map(inkOf);
    const hot = palette.at(-1);
    next.style.setProperty("--hot", hot);
    context.save();
    context.beginPath();
    context.rect(0, 0, until, height);
    context.clip();
    context.fillStyle = band;
    for (let layer = 0; layer < layers; layer++) {
      context.beginPath();
      context.roundRect(starts[1 + 2 * layer], top - 8, starts[2 + 2 * layer] - starts[1 + 2 * layer], height - top + 2, 12);
      context.fill();
    }
    const stops = (i) => {
      const norm = (n) => (norms ? norms[n * T + i] : largest / 4);
      return [norm(0), ...Array.from({ length: layers }, (_, n) => [norm(1 + 3 * n), norm(3 + 3 * n)]).flat()].map(thick);
    };
    for (const [i, y] of lines) {
      const sizes = stops(i);
      context.fillStyle = i === query ? accent : flow;
      context.globalAlpha = i === query ? 0.6 : 1;
      context.beginPath();
      context.moveTo(starts[0], y - sizes[0] / 2);
      const edge = (n, m, sign) => {
        const middle = (starts[n] + starts[m]) / 2;
        const [a, b] = [n, m].map((one) => y + (sign * sizes[Math.max(0, one - 1)]) / 2);
        context.bezierCurveTo(middle, a, middle, b, starts[m], b);
      };
      for (let n = 0; n < sizes.length; n++) edge(n, n + 1, -1);
      context.lineTo(ends, y + sizes.at(-1) / 2);
      for (let n = sizes.length; n > 0; n--) edge(n, n - 1, 1);
      context.fill();
    }
    const isOpen = (curve) => isSame(curve, selection);
    for (const open of [false, true])
      for (const curve of curves.filter((one) => isOpen(one) === open)) {
        const { from, to, y, end } = curveAt(curve);
        const isTold = open && curve.i === query;
        context.strokeStyle = open ? hot : ink;
        context.lineWidth = isTold ? 1 + 9 * curve.weight : 0.5 + 2.5 * curve.weight;
        context.globalAlpha = isTold ? 0.95 : open ? 0.45 : 0.2;
        context.lineCap = "round";
        context.beginPath();
        context.moveTo(from, y);
        context.bezierCurveTo((from + to) / 2, y, (from + to) / 2, end, to, end);
        context.stroke();
      }
    context.globalAlpha = 1;
    context.lineWidth = 1.5;
    for (let layer = 0; norms && layer < layers; layer++)
      for (const [i, y] of lines) {
        context.beginPath();
        context.arc((starts[2 + 2 * layer] + starts[3 + 2 * layer]) / 2, y, (2 + 9 * (norms[(2 + 3 * layer) * T + i] / largest) ** 0.5) * Math.min(1, line / 32), 0, 7);
        context.fillStyle = raised;
        context.strokeStyle = i === query ? accent : ink;
        context.fill();
        context.stroke();
      }
    context.restore();
    for (const name of names.children) name.classList.toggle("query", name.place === query);
    for (const { cell, layer } of maps) cell.classList.toggle("later", stage !== null && stage < 1 + 2 * layer);
    next.classList.toggle("later", stage !== null && stage < starts.length - 1);
    showFollowing();
  });

  /** The next tokens, with their probabilities without the open head where they are known. */
  function showFollowing() {
    const isAblated = isAmong(trace.ablated ?? [], [selection.layer, selection.head]);
    const without = isAblated ? undefined : trace.story?.heads.find((one) => isSame(one, selection));
    next.replaceChildren(
      make("li", { class: "title" }, say("Next token")),
      ...following.map(({ id, share }) => {
        const n = without ? trace.story.ids.indexOf(id) : -1;
        const bars = [barOf(share), ...(n >= 0 ? [barOf(without.after[n], "without")] : [])];
        return make("li", {}, make("bdi", { class: "word" }, brief(wordOf(trace.names.get(id).symbol))), make("span", {}, percent(share)), ...bars);
      }),
      ...(without ? [make("li", { class: "note" }, say("lower bar: without head {layer}.{head}", selection))] : []),
    );
  }

  function mark() {
    for (const { cell, layer, head } of maps) {
      const open = layer === selection.layer && head === selection.head;
      cell.ariaSelected = String(open);
      cell.tabIndex = open ? 0 : -1;
    }
    draw();
  }

  // ---- pointer and keys ------------------------------------------------------------------------

  const open = (map) => chooseHead(map.layer, map.head, false, showBelow);

  cells.addEventListener("click", ({ target }) => {
    const cell = target.closest(".mini");
    if (cell) open(cell.map);
  });
  cells.addEventListener("keydown", (event) => {
    const n = maps.indexOf(event.target.map);
    const to = { ArrowRight: n + 1, ArrowDown: n + 1, ArrowLeft: n - 1, ArrowUp: n - 1, Home: 0, End: maps.length - 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(maps[n]);
    } else if (maps[to]) {
      event.preventDefault();
      event.stopPropagation();
      for (const { cell } of maps) cell.tabIndex = -1;
      maps[to].cell.tabIndex = 0;
      maps[to].cell.focus();
    }
  });
  names.addEventListener("click", ({ target }) => {
    const name = target.closest(".line");
    if (name) select(places.queries.findIndex((place) => place[trace.number] === name.place));
  });

  /** The strongest curve under the pointer. */
  function curveUnder({ offsetX, offsetY }) {
    return curves.findLast((curve) => {
      const { from, to, y, end } = curveAt(curve);
      const t = (offsetX - from) / (to - from);
      if (t < 0 || t > 1) return false;
      let s = t - 0.5; // s³ + 0.75 s = t - 0.5, by Newton's method
      for (let n = 0; n < 4; n++) s -= (s ** 3 + 0.75 * s - t + 0.5) / (3 * s * s + 0.75);
      return Math.abs(y + (end - y) * (0.5 + 1.5 * s - 2 * s ** 3) - offsetY) < 5;
    });
  }
  canvas.addEventListener("pointermove", (event) => {
    const curve = curveUnder(event);
    canvas.style.cursor = curve ? "pointer" : "";
    canvas.title = curve ? say("head {layer}.{head}: {query} → {key}, {share}", { ...curve, query: wordOf(trace.tokens[curve.i].symbol), key: wordOf(trace.tokens[curve.j].symbol), share: percent(curve.weight) }) : "";
  });
  canvas.addEventListener("click", (event) => {
    const curve = curveUnder(event);
    if (!curve) return;
    const placeOf = (i) => places.queries.findIndex((place) => place[trace.number] === i);
    chooseHead(curve.layer, curve.head, false, () => select(placeOf(curve.i)));
  });

  // ---- its numbers -----------------------------------------------------------------------------

  /** Read what is drawn and isn't there yet; once, when the picture is first in view. */
  let reading;
  function read() {
    reading ??= Promise.all([
      ...Array.from({ length: layers }, async (_, layer) => {
        await readLayer(trace, layer);
        if (picture?.view !== view) return;
        findCurves();
        draw();
        for (const map of maps.slice(layer * H, (layer + 1) * H)) wearBadge(map);
      }),
      source.has(trace, "stream") && source.step(trace, "stream").then((numbers) => (norms = numbers)),
      source.position(trace, T - 1).then((position) => {
        const { renewed } = probabilitiesOf(position, { temperature: 1, top_k: null, top_p: null });
        following = position.ids.slice(0, NEXT_SHOWN).map((id, n) => ({ id, share: renewed[n] }));
        draw();
      }),
    ]).then(() => picture?.view === view && layOut());
  }

  for (const { cell } of maps) whenSeen.observe(cell);
  return { view, maps, mark, draw, layOut, read, get norms() { return norms; }, get following() { return following; }, get curves() { return curves; } };
}

/** Show the open head's own view, below the picture. */
function showBelow() {
  if (isLook()) byId("head").scrollIntoView({ behavior: reducesMotion.matches ? "auto" : "smooth" });
}

/** Draw the picture in its place, if this depth has it. */
function showPicture() {
  if (!isLook()) return;
  picture.layOut();
  picture.read();
}

// ---- stage by stage --------------------------------------------------------------------------------

const playing = { stage: null, timer: null }; // the last stage that is shown, null for all
const STAGE_MILLISECONDS = 3000;

/** A stage in words, with its numbers. */
function stageInWords(stage) {
  const [trace] = picture.view.traces;
  const last = 2 * trace.layers + 1;
  if (stage === 0) return say("Embedding: each of the {T} tokens becomes a vector of {D} numbers.", { T: trace.T, D: trace.way.D });
  if (stage === last) {
    const [likeliest] = picture.following;
    const word = likeliest && wordOf(trace.names.get(likeliest.id).symbol);
    return likeliest
      ? say("Next token: the last vector gives “{word}” a probability of {share}.", { word, share: percent(likeliest.share) })
      : say("Next token");
  }
  const layer = Math.floor((stage - 1) / 2);
  if (stage % 2) {
    const strongest = picture.curves.findLast((curve) => curve.layer === layer);
    const collects = say("Attention {layer}: each token collects from the tokens that its mask lets it attend to.", { layer });
    if (!strongest) return collects;
    const [query, key] = [strongest.i, strongest.j].map((i) => wordOf(trace.tokens[i].symbol));
    return `${collects} ${say("The largest weight drawn is {share}, of “{query}” on “{key}” in head {layer}.{head}.", { ...strongest, query, key, share: percent(strongest.weight) })}`;
  }
  const changes = say("MLP {layer}: each vector is changed on its own.", { layer });
  if (!picture.norms) return changes;
  const added = picture.norms.subarray((2 + 3 * layer) * trace.T, (3 + 3 * layer) * trace.T);
  const largest = added.reduce((a, b) => Math.max(a, b));
  if (!largest) return changes; // an ablated MLP
  const most = wordOf(trace.tokens[added.indexOf(largest)].symbol);
  return `${changes} ${say("That of “{most}” changes most.", { most })}`;
}

/** Show the picture up to a stage; null shows all of it. */
function showStage(stage) {
  const last = 2 * picture.view.layers + 1;
  playing.stage = stage === null || stage > last || stage < 0 ? null : stage;
  if (playing.stage === null || playing.stage === last) stopPlaying();
  byId("stage-words").textContent = playing.stage === null ? "" : stageInWords(playing.stage);
  picture.draw();
}

function stopPlaying() {
  clearInterval(playing.timer);
  playing.timer = null;
  byId("play").textContent = `▶ ${say("Play")}`;
}

const stepStage = (by) => {
  stopPlaying();
  showStage(playing.stage === null ? (by > 0 ? 0 : 2 * picture.view.layers) : playing.stage + by);
};

/** Show the stages one after the other; where reduced motion is asked for, only the first. */
function play() {
  if (playing.timer) return stopPlaying();
  showStage(0);
  if (reducesMotion.matches) return;
  byId("play").textContent = `■ ${say("Stop")}`;
  playing.timer = setInterval(() => showStage(playing.stage + 1), STAGE_MILLISECONDS);
}

function present(isOn) {
  document.documentElement.classList.toggle("presenting", isOn);
  picture.layOut();
}

const isPresenting = () => document.documentElement.classList.contains("presenting");

byId("play").addEventListener("click", play);
byId("earlier").addEventListener("click", () => stepStage(-1));
byId("later").addEventListener("click", () => stepStage(1));
addEventListener("keydown", (event) => {
  if (event.target.closest?.("input, textarea, select") || event.ctrlKey || event.altKey || event.metaKey || !isLook()) return;
  if (event.key.toLowerCase() === "p") present(!isPresenting());
  else if (isPresenting() && event.key === "Escape") present(false);
  else if (isPresenting() && event.key === "ArrowRight") stepStage(1);
  else if (isPresenting() && event.key === "ArrowLeft") stepStage(-1);
});
addEventListener("resize", onceAFrame(() => isLook() && picture.layOut()));
