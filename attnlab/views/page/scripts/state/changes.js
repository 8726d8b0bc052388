// The words of changes, see numbers/changes.js.

import { say } from "../sources/description.js";

/** The name of a head, or without `head`, of an MLP. */
export const nameOfPart = ({ layer, head }) =>
  head === undefined
    ? say("MLP of layer {layer}", { layer })
    : say("layer {layer}, head {head}", { layer, head });

/** A change in words; for an ablation, the name of the head or MLP. */
export function nameOfChange(change) {
  const { kind, step, factor, cells } = change;
  if (kind === "uncausal") return say("no causal mask");
  if (kind === "unscaled") return say("no division by √Dk");
  const name = nameOfPart(change);
  if (kind === "ablate") return name;
  if (kind === "patch") return say("{name}: {step} of another text", { name, step });
  if (kind === "scale") return say("{name}: {step} × {factor}", { name, step, factor });
  return cells.length === 1 ? say("{name}: 1 cell of the mask", { name }) : say("{name}: {count} cells of the mask", { name, count: cells.length });
}
