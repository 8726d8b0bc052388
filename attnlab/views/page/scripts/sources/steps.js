// The steps of a forward pass, in the order in which the page lists them.

/** The listed steps, in order; `needs` are the listed steps that each is computed from. */
export function passStepsOf({ graph, layers, pass }) {
  const names = Object.keys(pass.steps);
  const isInBlock = (name) => `blocks.#.${name}` in graph.data;
  const first = names.findIndex(isInBlock);
  const stepOf = (name, layer) => ({ name, layer, path: layer === undefined ? name : `blocks.${layer}.${name}` });
  const steps = [
    ...names.slice(0, first).map((name) => stepOf(name)),
    ...Array.from({ length: layers }, (_, layer) => names.filter(isInBlock).map((name) => stepOf(name, layer))).flat(),
    ...names.slice(first).filter((name) => !isInBlock(name)).map((name) => stepOf(name)),
  ];
  const paths = new Set(steps.map(({ path }) => path));
  const known = new Map(); // results by path: many steps may need the same one
  const listedNeeds = (path) => {
    if (!known.has(path)) {
      const needs = graph.node(path).needs.flatMap((need) => (paths.has(need) ? [need] : listedNeeds(need)));
      known.set(path, [...new Set(needs)]);
    }
    return known.get(path);
  };
  return steps.map((step) =>
    step.name === "probabilities"
      ? { ...step, equation: "softmax", needs: ["logits"] } // not a step of the model
      : { ...step, equation: graph.node(step.path).equation, needs: listedNeeds(step.path) },
  );
}

/** The path of the matrix in a step's equation; for Q, K and V, their columns of W_QKV. */
export function matrixPathOf({ graph }, { path, equation }) {
  if (isPartOfQKV({ equation })) return path.replace(/.$/, "W_$&"); // Q to W_Q
  return graph.node(path).needs[1]; // of x @ W
}

export const isPartOfQKV = ({ equation }) => ["Q", "K", "V"].includes(equation);
