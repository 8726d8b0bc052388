// The open head: its title, what it attends to, and the controls of its views.

import { say } from "../sources/description.js";
import { jobsInWords, jobsOfHead } from "../sources/jobs.js";
import { on, selection, set } from "../state/store.js";
import { editedIn, hasHead, MATRICES, onHead, traces } from "../state/traces.js";
import { formulaOf, markBusy, markChoice, setChoices } from "../drawing/draw.js";
import { byId, make } from "../drawing/elements.js";
import { prefixOf } from "../drawing/names.js";

function showHead() {
  const { layer, head, step } = selection;
  byId("head-title").textContent = say("Layer {layer}, head {head}", selection);
  markChoice("steps", step);
  showJobs();
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

export function startHead() {
  on("traces", () => {
    byId("jobs").replaceChildren();
  });
  onHead(showHead);
  on("isLoading", () => markBusy(document.querySelector("main"), selection.isLoading));
  setChoices("steps", MATRICES.map((step) => [step, step]), (step) => set({ step }));
}
