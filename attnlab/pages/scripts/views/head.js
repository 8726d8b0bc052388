// The open head: its title, what it attends to, and the controls of its views.

import { say } from "../sources/description.js";
import { jobsInWords } from "../sources/jobs.js";
import { on, selection, set } from "../state/store.js";
import { editedIn, hasHead, MATRICES, onHead, traces } from "../state/traces.js";
import { formulaOf, markBusy, markChoice, setChoices } from "../drawing/draw.js";
import { byId, make } from "../drawing/elements.js";

function showHead() {
  const { layer, head, step } = selection;
  byId("head-title").textContent = say("Layer {layer}, head {head}", selection);
  markChoice("steps", step);
  showJobs();
  byId("formula").textContent = `${formulaOf(step)}${editedIn(layer, head, step)}`;
}

/** Show what the open head does on other texts, from each model's card. */
function showJobs() {
  const { layer, head } = selection;
  const shown = traces.filter((trace) => hasHead(trace, layer, head));
  const words = jobsInWords();
  const isOneModel = new Set(traces.map(({ model }) => model)).size === 1;
  const cards = (isOneModel ? shown.slice(0, 1) : shown).flatMap(({ name, card, H }) => {
    const listed = Object.entries(card ?? {})
      .map(([job, weights]) => [words[job], weights[layer * H + head], weights.at(-1)]) // uniform attention's is last
      .filter(([, weight, uniform]) => weight > 2 * uniform)
      .sort((a, b) => b[1] - a[1])
      .map(([word, weight]) => `${word} ${weight.toFixed(2)}`)
      .join(" · ");
    const prefix = isOneModel ? "" : `${name}: `;
    return listed ? [make("p", {}, prefix, say("On other texts, from the model card: "), listed)] : [];
  });
  byId("jobs").replaceChildren(...cards);
}

export function startHead() {
  onHead(showHead);
  on("isLoading", () => markBusy(document.querySelector("main"), selection.isLoading));
  setChoices("steps", MATRICES.map((step) => [step, step]), (step) => set({ step }));
}
