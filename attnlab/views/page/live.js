// The page with a model behind it: what the reader asks for. What was looked at is kept in order, to be
// compared with and to come back to.

const LOOKS_KEPT = 100;

const looks = []; // as the source describes traces
let wanted; // what was asked for last: a text, {text} or {ids}, and the places `ablated` in it
let asking; // aborts the request that is under way

/** Look at a text, {text} or {ids}, with places ablated: [layer, head] a head, [layer] an MLP. */
function look(text, ablated) {
  wanted = { text, ablated };
  newest(async (signal) => {
    const given = await source.open(text, ablated, signal);
    return () => {
      const last = looks.at(-1);
      const isSame = last.ids.join() === given.ids.join();
      show({ ...given, typed: text.text ?? (isSame ? last.typed : undefined) });
    };
  });
}

/** The last look, as a link has it: #ids=12.7&ablate=0.1+1, a head and an MLP. */
linkOfLook = () => {
  const { ids, ablated } = looks.at(-1);
  const ablate = ablated.map((place) => place.join(".")).join(" ");
  return { ids: ids.join("."), ...(ablate && { ablate }) };
};

/** Look at what a link asks for, in the place of the look that the page opened with. */
function followLinkOfLook(link) {
  const asked = new URLSearchParams(link.slice(1));
  const numbers = (text) => text.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part));
  const { ids, ablate = "" } = Object.fromEntries(asked);
  const last = linkOfLook();
  if (!ids || (ids === last.ids && ablate === (last.ablate ?? ""))) return;
  newest(async (signal) => {
    const ablated = ablate.split(" ").filter(Boolean).map(numbers);
    const given = await source.open({ ids: numbers(ids) }, ablated, signal);
    return async () => {
      looks.pop();
      looks.push(given);
      byId("prompt").value = given.text;
      await showLooks();
      followLink(link); // to the place in the text, which the one before may not have had
    };
  });
}

/** Write on from the last look. */
function writeOn() {
  const trace = looks.at(-1);
  newest(async (signal) => {
    const count = byId("count").valueAsNumber;
    const how = samplingSettings();
    const { ids, text, chosen } = await source.generate(trace, { count, ...how }, signal);
    const given = await source.open({ ids }, trace.ablated, signal);
    return () => {
      show(given);
      byId("prompt").value = text;
      markUnsent();
      showWritten(chosen, how);
    };
  });
}

/** Tell what was written on: the tokens, each with a probability. */
function showWritten(chosen, { temperature }) {
  const words = temperature
    ? say("Generated tokens, each with the probability it was sampled with:")
    : say("Generated greedily; probabilities are the model's, at temperature 1:");
  const told = chosen.map((token) => {
    const share = temperature ? token.probability : token.share;
    return make("li", {}, symbolOf(brief(token.symbol)), barOf(share), number(share, 4));
  });
  byId("sampled").replaceChildren(words, make("ol", {}, ...told));
}

/** Ask for something, and do what it comes to, unless something else has been asked for by then. */
async function newest(ask) {
  asking?.abort();
  const mine = (asking = new AbortController());
  tell("");
  byId("explore").ariaBusy = "true";
  markAblated();
  let then;
  try {
    then = await ask(mine.signal);
  } catch (error) {
    then = () => {
      wantLast();
      markAblated();
      tell(error.message);
    };
  }
  if (mine !== asking) return;
  byId("explore").ariaBusy = "false";
  then();
}

function tell(sentence) {
  byId("told").textContent = sentence;
}

/** Show a trace, after those that were looked at before. */
function show(given) {
  if (looks.at(-1).id === given.id) looks.pop();
  looks.push(given);
  if (looks.length > LOOKS_KEPT) looks.shift();
  showLooks();
}

/** Show the last look, beside the one before where they are compared. */
async function showLooks() {
  const { query, key } = selection;
  const before = traces[0].ids.join();
  const focused = document.activeElement; // which may be in what is made anew
  const figure = [...byId("heatmaps").children].findIndex((one) => one.contains(focused));
  wantLast();
  const opened = openTraces(looks.slice(byId("compare").checked ? -2 : -1));
  followChange();
  markLook();
  const shown = traces;
  if (focused.map) grids[0].maps.find((map) => isSame(map, focused.map))?.cell.focus();
  await opened;
  if (figure >= 0) heatmaps[figure]?.cursor.focus();
  // The place in the text stays what it was where the text has.
  if (traces === shown && traces.every(({ ids }) => ids.join() === before)) select(query, key);
}

/** Tell what changed from the look before to the last one, now and whenever what may follow is told. */
function followChange() {
  const before = looks.length > 1 ? (traces.length === 2 ? traces[0] : traceOf(looks.at(-2), 0)) : null;
  const change = makeChange(before, traces.at(-1));
  predictions.push(change);
  change.draw();
}

function wantLast() {
  const { ids, ablated } = looks.at(-1);
  wanted = { text: { ids }, ablated };
}

/** Go back to the look before the last one. */
function goBack() {
  newest(async () => () => {
    looks.pop();
    byId("prompt").value = looks.at(-1).text;
    showLooks();
  });
}

/** Tell whether what stands in the box is what is shown. */
function markUnsent() {
  const { typed, text } = looks.at(-1);
  const asTyped = (words) => words?.replace(/\r\n?/g, "\n"); // as a box for text has it
  byId("unsent").hidden = [typed, text].map(asTyped).includes(byId("prompt").value);
}

function markLook() {
  markUnsent();
  const { model, excerpt, notes } = looks.at(-1);
  document.title = `${["attnlab", model].filter(Boolean).join(" ")}: ${excerpt.slice(0, 60)}`;
  tell(notes.join(" "));
  byId("compare").disabled = byId("back").disabled = looks.length < 2;
  byId("sampled").replaceChildren();
  markAblated();
}

// ---- what is ablated ---------------------------------------------------------------------------

/** Ablate a head or MLP, or undo it. */
function toggle(place) {
  const { text, ablated } = wanted;
  const others = ablated.filter((other) => other.join() !== place.join());
  look(text, others.length < ablated.length ? others : [...ablated, place]);
}

/** Scale a step of the open head by so many hundredths, or take it "of" another text's ids. */
function changeStep(step, how, ...ids) {
  const { text, ablated } = wanted;
  const place = [selection.layer, selection.head, step];
  const others = ablated.filter((other) => other.slice(0, 3).join() !== place.join());
  look(text, how === 100 ? others : [...others, [...place, how, ...ids]]);
}

/** Mark what is ablated or changed: in a list, in the maps, at the head that is open. */
function markAblated() {
  const { ablated } = wanted;
  byId("ablated").hidden = !ablated.length;
  byId("ablated").replaceChildren(
    ablated.every(isAblation) ? say("Ablated:") : say("Changed:"),
    ...ablated.map((place) => {
      const name = nameOfChange(place);
      const button = make("button", { type: "button" }, name, make("span", {}, " ×"));
      button.ariaLabel = say("{name}: undo the ablation", { name });
      button.addEventListener("click", () => {
        byId("prompt").focus(); // the button goes
        toggle(place);
      });
      return button;
    }),
  );
  for (const { view, maps } of grids) {
    const places = view.isDifference ? [] : view.traces[0].ablated;
    for (const { cell, layer, head } of maps) {
      const is = isAmong(places, [layer, head]);
      const name = nameOfPlace([layer, head]);
      cell.classList.toggle("ablated", is);
      const isChanged = !is && places.some((change) => !isAblation(change) && isAmong([change.slice(0, 2)], [layer, head]));
      cell.classList.toggle("changed", isChanged);
      cell.title = cell.ariaLabel = is ? say("{name}, ablated", { name }) : isChanged ? say("{name}, changed", { name }) : name;
    }
  }
  markToggles();
  if (source.hasEnded) source.markEnded();
}

function markToggles() {
  const { layer, head } = selection;
  const isAblated = isAmong(wanted.ablated, [layer, head]);
  byId("head-toggle").ariaPressed = String(isAblated);
  byId("is-ablated").hidden = !isAblated;
  byId("mlp-toggle").ariaPressed = String(isAmong(wanted.ablated, [layer]));
  const found = wanted.ablated.find((change) => change.slice(0, 3).join() === [layer, head, byId("changed-step").value].join());
  showFactor(found && found[3] !== "of" ? found[3] : 100);
  byId("patch").disabled = looks.length < 2 || source.hasEnded;
  for (const name of ["mask", "root"]) byId(`${name}-toggle`).checked = isAmong(wanted.ablated, [name]);
  byId("mlp-toggle").textContent = say("Ablate the MLP of layer {layer}", { layer });
  markViews();
}

function showFactor(hundredths) {
  byId("factor").value = hundredths;
  byId("factor").nextElementSibling.textContent = `× ${(hundredths / 100).toFixed(2)}`;
}

/** What changes a step of the open head, and all heads: a list of steps, a slider, another text's. */
function makeChanges(button) {
  const step = make("select", { id: "changed-step" }, ...STEPS_TO_CHANGE.map((name) => make("option", {}, name)));
  step.value = "weights";
  step.addEventListener("change", markToggles);
  const factor = make("input", { id: "factor", type: "range", min: "0", max: "200", step: "5", "aria-label": say("Factor") });
  factor.addEventListener("input", () => showFactor(factor.valueAsNumber));
  factor.addEventListener("change", () => changeStep(step.value, factor.valueAsNumber));
  const toggleOf = (name, words) => {
    const box = make("input", { type: "checkbox", id: `${name}-toggle` });
    box.addEventListener("change", () => toggle([name]));
    return make("label", {}, box, " ", words);
  };
  const patch = () => changeStep(step.value, "of", ...looks.at(-2).ids);
  return make(
    "details",
    { id: "changes" },
    make("summary", {}, say("Change a step")),
    make("div", { class: "controls" }, step, make("span", {}, factor, make("span", { class: "value" })), button("patch", say("Take it from the text before"), patch)),
    make("div", { class: "controls" }, toggleOf("mask", say("Lift the causal mask")), toggleOf("root", say("Switch √Dk off"))),
  );
}

// What is scaled or taken from another text; a masked score times 0 is no number.
const STEPS_TO_CHANGE = ["Q", "K", "V", "raw_scores", "scores", "weights", "context"];

/** Mark what shows the open head where it is ablated: what is seen there goes nowhere. */
function markViews() {
  const { layer, head } = selection;
  const isAblated = ({ isDifference, traces: [trace] }) =>
    !isDifference && isAmong(trace.ablated, [layer, head]);
  const name = nameOfPlace([layer, head]);
  const mark = (part, isAblated, of) => {
    part.classList.toggle("ablated", isAblated);
    part.querySelector(".ablation")?.remove();
    of.removeAttribute("aria-describedby");
    if (!isAblated) return;
    of.setAttribute("aria-describedby", "is-ablated");
    of.before(make("p", { class: "ablation" }, say("{name}: ablated", { name })));
  };
  const own = views.filter((view) => !view.isDifference);
  for (const [id, shown] of Object.entries({ heatmaps: views, lines: own, strips: own, texts: own }))
    // Strips are made when they are looked at.
    [...byId(id).children].forEach((part, n) => {
      const of = part.querySelector(".scroller, .all-lines, .table, .flow");
      mark(part, isAblated(shown[n]), of);
    });
  for (const part of byId("sums").querySelectorAll("article[data-trace]"))
    mark(part, isAblated(own[part.dataset.trace]), part.querySelector(".chain"));
}

// ---- what the page has for all this -------------------------------------------------------------

function makeExplorer() {
  const button = (id, words, act) => {
    const made = make("button", { type: "button", id }, words);
    made.addEventListener("click", act);
    return made;
  };
  const prompt = make("textarea", { id: "prompt", rows: "1", spellcheck: "false" });
  prompt.addEventListener("input", markUnsent);
  const lookAtPrompt = () => look({ text: prompt.value }, wanted.ablated);
  prompt.addEventListener("keydown", (event) => {
    // With Shift it begins a line; to an input method it may be the choice of a candidate.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || source.hasEnded) return;
    event.preventDefault();
    lookAtPrompt();
  });
  const compare = make("input", { type: "checkbox", id: "compare" });
  compare.addEventListener("change", showLooks);
  const count = make("input", { type: "number", id: "count", min: "1", max: "100", value: "10" });
  document.querySelector("main").prepend(
    make(
      "section",
      { id: "explore", "aria-label": say("Explore") },
      make("label", { for: "prompt", class: "unseen" }, say("Text")),
      make(
        "div",
        { id: "asking" },
        prompt,
        make("p", { id: "unsent", role: "status" }, say("not shown yet: press Enter")),
        button("look", say("Show"), lookAtPrompt),
      ),
      make("p", { id: "told", role: "status" }),
      make(
        "div",
        { class: "controls" },
        make("label", {}, compare, " ", say("Compare with the previous one")),
        button("back", say("Back to the previous one"), goBack),
        make(
          "span",
          {},
          button("write", say("Generate"), writeOn),
          " ",
          make("label", {}, count, " ", say("tokens")),
        ),
        make("div", { id: "sampling" }, ...makeBoard()),
        ...(source.end ? [button("end", say("Stop the explorer"), () => source.end())] : []),
      ),
      make("p", { id: "ablated", class: "note" }),
      make("p", { id: "sampled", class: "note", role: "status" }),
    ),
  );
  const [title, jobs] = [byId("head-title"), byId("jobs")];
  const beside = make("div", { id: "cause" });
  title.before(beside);
  beside.append(
    make(
      "div",
      {},
      title,
      make(
        "div",
        { id: "toggles" },
        button("head-toggle", say("Ablate this head (S)"), () =>
          toggle([selection.layer, selection.head]),
        ),
        button("mlp-toggle", "", () => toggle([selection.layer])),
        makeChanges(button),
        make(
          "p",
          { id: "is-ablated", class: "note" },
          say("Ablated (silenced): its weights are still computed, but its output, the context, is set to 0."),
        ),
      ),
      jobs,
    ),
    make("div", { id: "change" }),
  );
  // From a head itself, in the grid or in its map: S.
  for (const id of ["grids", "heatmaps"])
    byId(id).addEventListener("keydown", ({ key, target, ctrlKey, altKey, metaKey }) => {
      if (key.toLowerCase() !== "s" || ctrlKey || altKey || metaKey || source.hasEnded) return;
      const { layer, head } = target.map ?? selection;
      toggle([layer, head]);
    });
  // Whoever has opened a head, its title says which it is.
  const opened = new MutationObserver(markToggles);
  for (const id of ["head-title", "strips", "sums"]) opened.observe(byId(id), { childList: true });
  showSettings();
  looks.push(...description.traces);
  prompt.value = looks[0].text;
  wantLast();
  followChange();
  markLook();
}

makeExplorer();
followLinkOfLook(location.hash);
addEventListener("hashchange", ({ newURL }) => followLinkOfLook(new URL(newURL).hash));
