// Changes of a run, such as the ablation of a head, and their words.

import { say } from "../sources/description.js";

/** The name of a head, or without `head`, of an MLP. */
export const nameOfPart = ([layer, head]) =>
  head === undefined
    ? say("MLP of layer {layer}", { layer })
    : say("layer {layer}, head {head}", { layer, head });

/** Whether a change is an ablation of a head or an MLP. */
export const isAblation = ([layer, , step]) => typeof layer === "number" && step === undefined;

/** A change of a trace in words, see source.js; for an ablation, the name of the head or MLP. */
export function nameOfChange([layer, head, step, edit, ...cells]) {
  if (layer === "mask") return say("no causal mask");
  if (layer === "root") return say("no division by √Dk");
  const name = nameOfPart([layer, head]);
  if (step === undefined) return name;
  if (edit === "flip") return cells.length === 2 ? say("{name}: 1 cell of the mask", { name }) : say("{name}: {count} cells of the mask", { name, count: cells.length / 2 });
  return edit === "of" ? say("{name}: {step} of another text", { name, step }) : say("{name}: {step} × {factor}", { name, step, factor: edit / 100 });
}

/** Whether a list of changes includes a change. */
export const isAmong = (changes, change) => changes.some((other) => other.join() === change.join());
