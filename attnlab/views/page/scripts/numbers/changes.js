// Changes of a run, as objects, and their texts in links:
//
//   {kind: "ablate", layer, head}               the head's output is 0; without `head`, the MLP's: 1.2, 1
//   {kind: "scale", layer, head, step, factor}  the step times a factor: 1.2.weights.50, in hundredths
//   {kind: "patch", layer, head, step, ids}     the step of another text: 1.2.weights.of.31.7
//   {kind: "mask", layer, head, cells}          cells of the head's mask, [query, key], toggled: 1.2.mask.flip.3.0
//   {kind: "uncausal"}                          without the causal mask: mask
//   {kind: "unscaled"}                          without the division by √Dk: root

/** The ablation of a head, or without `head`, of an MLP. */
export const ablationOf = (layer, head) => ({ kind: "ablate", layer, ...(head !== undefined && { head }) });

export const isAblation = ({ kind }) => kind === "ablate";

/** A change's text in a link, which also identifies it. */
export function textOfChange({ kind, layer, head, step, factor, ids, cells }) {
  const parts = {
    ablate: [layer, head],
    scale: [layer, head, step, Math.round(100 * factor)],
    patch: [layer, head, step, "of", ...(ids ?? [])],
    mask: [layer, head, "mask", "flip", ...(cells ?? []).flat()],
    uncausal: ["mask"],
    unscaled: ["root"],
  };
  return parts[kind].filter((part) => part !== undefined).join(".");
}

/** The change that a link's text means. */
export function changeFrom(text) {
  if (text === "mask") return { kind: "uncausal" };
  if (text === "root") return { kind: "unscaled" };
  const [, layer, head, step, values] = /^(\d+)(?:\.(\d+)(?:\.(\w+)\.(.+))?)?$/.exec(text) ?? [];
  if (layer === undefined) return { kind: text }; // refused by the source
  if (step === undefined) return ablationOf(Number(layer), head && Number(head));
  const part = { layer: Number(layer), head: Number(head) };
  const [word, ...rest] = values.split(".");
  const numbers = rest.map(Number);
  if (word === "of") return { kind: "patch", ...part, step, ids: numbers };
  if (word !== "flip") return { kind: "scale", ...part, step, factor: Number(word) / 100 };
  const cells = Array.from({ length: Math.ceil(numbers.length / 2) }, (_, n) => numbers.slice(2 * n, 2 * n + 2));
  return { kind: "mask", ...part, cells };
}

/** Whether a list of changes includes a change. */
export const isAmong = (changes, change) => changes.some((other) => textOfChange(other) === textOfChange(change));
