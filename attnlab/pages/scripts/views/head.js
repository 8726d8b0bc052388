// The open head: its title, what it attends to, and the controls of its views.

import { NOTABLE } from "../numbers/constants.js";
import { brief } from "../numbers/formats.js";
import { attendedBy, attentionInWords } from "../sources/attended.js";
import { say, sayParts } from "../sources/description.js";
import { jobsInWords, jobsOfHead } from "../sources/jobs.js";
import { valuesOf } from "../sources/rows.js";
import { strongestKey, toggleOverlay, viewOfQuery } from "../state/actions.js";
import { DISPLAYS, isAt, isLook, on, selection, set } from "../state/store.js";
import { editedIn, hasHead, MATRICES, nameOfPart, onHead, traces } from "../state/traces.js";
import { buttonOf, byId, formulaOf, make, markBusy, markChoice, number, positionsInWords, setChoices, symbolOf,
  wordInSentence } from "../drawing/draw.js";
import { prefixOf, restButton, visibleHeads } from "../drawing/names.js";
import { reasonFor } from "../drawing/reasons.js";

/** Show where the selected query's attention goes in words, and in Lab its largest weight. */
function showStrongest() {
  const { layer, head, query } = selection;
  const view = viewOfQuery(query);
  if (!view) return byId("strongest").replaceChildren();
  if (isLook()) return showAttention(view);
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

/** In Look: where the selected query's attention goes, and a button to draw what rests. */
function showAttention(view) {
  const { layer, head, query } = selection;
  const [trace] = view.traces;
  const [i] = view.queries[view.rows.indexOf(query)];
  const attended = attendedBy(trace, layer, head, i);
  const button = attended.rest >= NOTABLE || selection.drawsFirst ? [" ", restButton()] : [];
  byId("strongest").replaceChildren(prefixOf(view), ...attentionInWords(attended, trace.cached + i, (j) => wordInSentence(trace.keys[j])), ...button, reasonFor(trace, layer, head, i, attended));
}

function showHead() {
  const { layer, head, step } = selection;
  byId("head-title").textContent = say("Layer {layer}, head {head}", selection);
  markChoice("looks", selection.display);
  markChoice("steps", step);
  const isShown = (display) => display === selection.display || (display === "lines" && isAt("head"));
  for (const [display, id] of Object.entries(DISPLAYS)) byId(id).hidden = !isShown(display);
  for (const id of ["steps", "zoom", "formula"]) byId(id).hidden = selection.display !== "map";
  showJobs();
  showOthers();
  showStrongest();
  showOverlaid();
  byId("formula").textContent = `${formulaOf(step)}${editedIn(layer, head, step)}`;
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

const zoom = (factor) => set({ zoom: Math.max(1, Math.min(32, selection.zoom * factor)) });

export function startHead() {
  on("traces", () => {
    for (const id of ["jobs", "strongest"]) byId(id).replaceChildren();
  });
  onHead(showHead);
  on("query key drawsFirst", showStrongest);
  on("isLoading", () => markBusy(document.querySelector("main"), selection.isLoading));
  const showLooks = () => setChoices("looks", [["map", say("map")], ["lines", say("lines")]], (display) => set({ display }));
  showLooks();
  on("language", showLooks);
  setChoices("steps", MATRICES.map((step) => [step, step]), (step) => set({ step }));
  // Overlay several heads: clicks on maps then add heads instead of replacing the open one.
  byId("several").addEventListener("click", ({ target }) => {
    const isAdding = !selection.isAdding;
    target.ariaPressed = String(isAdding);
    set({ isAdding, ...(!isAdding && { overlaid: [] }) });
  });
  byId("smaller").addEventListener("click", () => zoom(1 / 1.5));
  byId("larger").addEventListener("click", () => zoom(1.5));
}

/** The overlaid heads' names, as buttons that remove them. */
function showOverlaid() {
  byId("overlaid").replaceChildren(
    ...(selection.overlaid.length ? visibleHeads() : []).map(({ layer, head, colour }) => {
      const name = nameOfPart({ layer, head });
      const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.backgroundColor = colour;
      const remove = () => {
        toggleOverlay(layer, head);
        byId("several").focus();
      };
      return buttonOf(remove, { "aria-label": say("remove {name}", { name }) }, swatch, name, " ×");
    }),
  );
}

/** If only one of several selected heads is shown: how many there are, and a button to show all. */
function showOthers() {
  const isOneShown = selection.overlaid.length > 0 && selection.display !== "lines";
  byId("others").hidden = !isOneShown;
  if (!isOneShown) return;
  const showLines = () => {
    set({ display: "lines" });
    byId("looks").querySelector(":checked").focus();
  };
  byId("others").replaceChildren(
    say("One of {n} selected heads; the lines show all of them.", { n: selection.overlaid.length }),
    " ",
    buttonOf(showLines, { class: "leads" }, say("Show the lines")),
  );
}
