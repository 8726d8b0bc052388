// Changes of a run, as objects, and their texts in links:
//
//   {kind: "ablate", layer, head}               1.2: the head's context is its average, or 0 if the model has none;
//                                               1, without `head`: the MLP's output is 0
//   {kind: "scale", layer, head, step, factor}  1.2.weights.50: the step times a factor, here 50 hundredths
//   {kind: "mask", layer, head, cells}          1.2.mask.flip.3.0: cells [query, key] of the head's mask are toggled
//   {kind: "uncausal"}                          mask: there is no causal mask
//   {kind: "unscaled"}                          root: scores aren't divided by √Dk

import { LARGEST_FACTOR, STEPS_TO_CHANGE } from "./constants.js";

/** The ablation of a head, or without `head`, of an MLP. */
export const ablationOf = (layer, head) => ({ kind: "ablate", layer, ...(head !== undefined && { head }) });

export const isAblation = ({ kind }) => kind === "ablate";

/** A change's text in a link, which also identifies it. */
export function textOfChange({ kind, layer, head, step, factor, cells }) {
  const parts = {
    ablate: [layer, head],
    scale: [layer, head, step, Math.round(100 * factor)],
    mask: [layer, head, "mask", "flip", ...(cells ?? []).flat()],
    uncausal: ["mask"],
    unscaled: ["root"],
  };
  return parts[kind].filter((part) => part !== undefined).join(".");
}

// layer, layer.head, layer.head.step.percent, or layer.head.mask.flip with .query.key for each toggled cell
const FORM = /^(\d+)(?:\.(\d+)(?:\.(?:(\w+)\.(-?\d+)|mask\.flip((?:\.\d+\.\d+)+)))?)?$/;

/** The change that a text in a link stands for; undefined for other texts. */
export function changeFrom(text) {
  if (text === "mask") return { kind: "uncausal" };
  if (text === "root") return { kind: "unscaled" };
  const [, layer, head, step, percent, flipped] = FORM.exec(text) ?? [];
  if (layer === undefined) return undefined;
  const numbersIn = (dotted) => dotted.slice(1).split(".").map(Number);
  const part = { layer: Number(layer), head: Number(head) };
  if (percent) return { kind: "scale", ...part, step, factor: Number(percent) / 100 };
  if (!flipped) return ablationOf(Number(layer), head && Number(head));
  const cells = flipped.match(/\.\d+\.\d+/g).map(numbersIn);
  return { kind: "mask", ...part, cells };
}

/** Whether a model has what a change edits, in a text of T tokens. Missing properties count as possible. */
export function isPossible(
  { layer = 0, head = 0, step = STEPS_TO_CHANGE[0], factor = 1, cells = [] }, { layers, H, T },
) {
  const isAllowed = STEPS_TO_CHANGE.includes(step) && Math.abs(factor) <= LARGEST_FACTOR;
  return layer < layers && head < H && isAllowed && cells.flat().every((n) => n < T);
}

/** Whether a list of changes includes a change. */
export const isAmong = (changes, change) => changes.some((other) => textOfChange(other) === textOfChange(change));
