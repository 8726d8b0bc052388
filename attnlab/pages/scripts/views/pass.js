// A token's pass through the model: its row at each step, and the arithmetic of each number.

import { Nd, nd } from "../numbers/arrays.js";
import { format } from "../numbers/formats.js";
import { lastOf, matrixPathOf, NotAvailable, passStepsOf } from "../numbers/run.js";
import { wordOf } from "../numbers/words.js";
import { description, say, sayParts } from "../sources/description.js";
import { headOf, runOfQueries, stepRow, uneditedRow } from "../sources/rows.js";
import { loadLayer, readFollowing, source, whyNoLogits } from "../sources/source.js";
import { goTo, openHead } from "../state/actions.js";
import { isLook, on, selection, setQuietly } from "../state/store.js";
import { nextFrame } from "../state/story.js";
import { queryIn, traces } from "../state/traces.js";
import {
  formulaOf, markBusy, markChoice, number, onceAFrame, setChoices, tokenElement, withSymbol,
} from "../drawing/draw.js";
import { buttonOf, byId, isPress, make } from "../drawing/elements.js";
import { lineOf, linesOfNumber, resultOf, Working } from "../drawing/explain.js";
import { cursorOf, focusComponent } from "../drawing/navigation.js";

let shownStep; // what `readPass` returned, with the chosen `step` and its `part`, see `partOf`
let shownTrace; // the trace whose parts are listed
let latestChoice = 0; // the number of choices so far; what was computed for an earlier choice is dropped

/** Show the pass of a token in the current traces. */
function openPass() {
  markBusy(byId("pass"), true);
  byId("pass-traces").hidden = traces.length < 2;
  const { chosenStep } = selection;
  const chooseTrace = (n) => goTo(selection.chosenStep.path, selection.chosenStep.component, Number(n));
  setChoices("pass-traces", traces.map(({ number, name }) => [number, name]), chooseTrace);
  markChoice("pass-traces", chosenStep.trace);
  const trace = (shownTrace = traces[chosenStep.trace]);
  const steps = passStepsOf(trace);
  const path = steps.some(({ path }) => path === chosenStep.path) ? chosenStep.path : "embedding";
  setQuietly({ chosenStep: { ...chosenStep, path } });
  const blocks = Array.from({ length: trace.layers }, (_, layer) => [String(layer), say("Block {layer}", { layer })]);
  const goToFirst = (part) => goTo(steps.find((step) => partOf(step) === part).path);
  setChoices("pass-parts", [["", say("Embedding")], ...blocks, ["end", say("Logits")]], goToFirst);
  return nextFrame().then(showPass); // the pass is far down the page, so what is in sight is drawn first
}

/** The part of the model that a step is listed in: a layer such as "3", "" before the blocks, or "end" after them. */
const partOf = ({ layer, name }) => String(layer ?? (/^(final|logits|probabilities)$/.test(name) ? "end" : ""));

/** The position nearest to `wanted` whose rows are available. */
function nearestPosition(trace, wanted) {
  const available = trace.tokens.map((_, i) => i).filter((i) => source.has(trace, `pass.${i}`));
  return available.reduce((best, i) => (Math.abs(i - wanted) <= Math.abs(best - wanted) ? i : best));
}

/** A token's pass, which is kept once it is read. The promise of a read that is cancelled would stay pending. */
async function passOf(trace, position) {
  trace.passes ??= new Map();
  if (!trace.passes.has(position)) trace.passes.set(position, await readPass(trace, position));
  return trace.passes.get(position);
}

async function readPass(trace, position) {
  const [numbers, norms] = await Promise.all([
    source.pack(trace, `pass.${position}`),
    source.has(trace, "norms") ? source.pack(trace, "norms") : null,
  ]);
  const inputs = { ...rowsIn(trace, numbers), ...(norms && normsIn(trace, norms)) };
  // following: the prediction after the token, which is read when it is first shown
  return { trace, position, steps: passStepsOf(trace), inputs, run: null, layersInRun: null, following: undefined };
}

/** The rows of a pack "pass", by path. */
function rowsIn({ pass: { packed, D, F } }, numbers) {
  let end = 0;
  const rows = packed.map((path) => {
    const width = /\.(hidden|activated)$/.test(path) ? F : D;
    const row = new Nd(Float64Array.from(numbers.subarray(end, end + width)), [1, width]);
    end += width;
    return [path, row];
  });
  return Object.fromEntries(rows);
}

/** The LayerNorms' parameters from the pack "norms", by path. */
function normsIn({ layers, pass: { D } }, numbers) {
  const blocks = Array.from({ length: layers }, (_, n) => [`blocks.${n}.attention.`, `blocks.${n}.mlp.`]);
  const norms = [...blocks.flat(), ""].flatMap((owner, n) => { // the final LayerNorm's path is "gain"
    const start = n * (2 * D + 1);
    const vector = (offset) => new Nd(numbers, [D], undefined, start + offset);
    return [[`${owner}gain`, vector(0)], [`${owner}bias`, vector(D)], [`${owner}epsilon`, numbers[start + 2 * D]]];
  });
  return Object.fromEntries(norms);
}

const PER_HEAD = /^attention\.(Q|K|V|concat)$/; // all heads' vectors, concatenated
const SUMS = new Set(["embedding", "residual"]); // equations of the residual stream
const VOCABULARY_STEPS = new Set(["logits", "probabilities"]); // only their largest numbers are listed

/** A step's row; undefined if it isn't available. */
function rowAt(pass, { path, name }) {
  if (VOCABULARY_STEPS.has(name)) return pass.following?.[name];
  const { trace, position, inputs } = pass;
  if (pass.layersInRun !== trace.loaded.size) {
    const rounded = pass.steps.filter(({ equation }) => SUMS.has(equation)).map(({ path }) => path);
    pass.run = runOfQueries(trace, position, position + 1, { extraInputs: inputs, rounded });
    pass.layersInRun = trace.loaded.size; // layers loaded later need a new run
  }
  return ifAvailable(() => {
    const rows = pass.run.value(path);
    if (!/\.[KV]$/.test(path)) return rows.numbers();
    // K and V have rows for cached tokens too.
    return nd.item(rows, nd.slice(null, null), trace.cached + position, nd.slice(null, null)).numbers();
  });
}

/** The result of f; undefined if it needs an input that isn't available. */
function ifAvailable(f) {
  try {
    return f();
  } catch (error) {
    if (error instanceof NotAvailable) return undefined;
    throw error;
  }
}

/** Show the selected query's pass. */
const followPass = onceAFrame(() => {
  if (isLook()) return;
  const trace = traces[selection.chosenStep.trace];
  if (shownStep?.trace !== trace || nearestPosition(trace, queryIn(trace)) !== shownStep.position) {
    showPass();
  } else {
    latestChoice++; // a choice that is still being computed is dropped
    markBusy(byId("pass"), false);
    showPassTitle();
    showChosenStep(); // its arithmetic may have been dropped, too
  }
});

/** Show the token in the title; if it isn't the selected one, say why. */
function showPassTitle() {
  const { trace, position } = shownStep;
  const values = { token: tokenElement(trace.tokens[position]), i: String(position) };
  byId("pass-title").replaceChildren(...sayParts("{token}, token {i}, through the model", values));
  const query = queryIn(trace);
  byId("pass-note").hidden = position === query;
  byId("pass-note").textContent = say("This file doesn't include token {query}; attnlab explore has all tokens.", {
    query,
  });
}

async function showPass() {
  const choice = ++latestChoice;
  const trace = traces[selection.chosenStep.trace];
  const position = nearestPosition(trace, queryIn(trace));
  const pass = await passOf(trace, position);
  const step = pass.steps.find(({ path }) => path === selection.chosenStep.path);
  if (step.layer !== undefined && !trace.loaded.has(step.layer)) await loadLayer(trace, step.layer);
  if (partOf(step) === "end") pass.following ??= await readFollowing(trace, position);
  if (choice !== latestChoice) return;
  markBusy(byId("pass"), false);
  shownStep = { ...pass, step, part: partOf(step) };
  showPassTitle();
  markChoice("pass-parts", shownStep.part);
  listSteps();
  await showChosenStep();
}

/** List the steps of the open part, each with the norm of its row. */
function listSteps() {
  const list = byId("pass-steps");
  const hadFocus = list.contains(document.activeElement);
  const options = shownStep.steps.filter((step) => partOf(step) === shownStep.part).map(optionOf);
  list.replaceChildren(...options);
  if (hadFocus) list.querySelector("[aria-selected=true]").focus({ preventScroll: true });
}

// Steps of the residual stream. They stand out in the list.
const STREAM = new Set(["embedding", "input", "mid", "output", "final"]);

function optionOf(step) {
  const row = rowAt(shownStep, step);
  const isChosen = step === shownStep.step;
  const norm = row && !VOCABULARY_STEPS.has(step.name) ? format(Math.hypot(...row), 2) : "";
  const states = { tabindex: isChosen ? "0" : "-1", "aria-selected": String(isChosen) };
  const parts = [make("code", {}, step.name), " ", make("span", { class: "size" }, norm)];
  const option = make("li", { role: "option", "data-path": step.path, ...states }, ...parts);
  option.classList.toggle("stream", STREAM.has(step.name));
  option.addEventListener("click", () => goTo(step.path));
  return option;
}

/** Move through the list of steps with the keyboard; Enter moves to the chosen step's numbers. */
function moveByKey(event) {
  const steps = shownStep.steps;
  const index = steps.findIndex(({ path }) => path === selection.chosenStep.path);
  const inPart = steps.filter((step) => partOf(step) === partOf(steps[index]));
  const to = { ArrowUp: steps[index - 1], ArrowDown: steps[index + 1], Home: inPart[0], End: inPart.at(-1) };
  if (isPress(event)) {
    event.preventDefault();
    focusComponent();
  }
  if (!(event.key in to)) return;
  event.preventDefault();
  if (to[event.key]) goTo(to[event.key].path);
}

// ---- one step --------------------------------------------------------------------------------------

/** Show the chosen step: its shape, its row, and the arithmetic of the chosen number. */
function showChosenStep() {
  const { step, trace } = shownStep;
  const { axes, purpose } = trace.pass.steps[step.name];
  const row = rowAt(shownStep, step);
  const isEdited = trace.pass.edited.includes(step.path);
  byId("step-title").replaceChildren(make("code", {}, step.path));
  byId("step-formula").textContent = headingOf(step) + (isEdited ? say(", edited") : "");
  byId("step-purpose").textContent = say(purpose);
  byId("step-missing").hidden = row !== undefined;
  // Only rows of the vocabulary can be missing: those after tokens whose prediction the page doesn't have.
  byId("step-missing").textContent = row ? "" : whyNoLogits(trace);
  for (const id of ["step-shape", "row-number", "step-arithmetic"]) byId(id).hidden = row === undefined;
  if (!row) return undefined;
  const [size, least, most] = [Math.hypot(...row), Math.min(...row), Math.max(...row)].map((x) => number(x, 4));
  const values = {
    shape: shapeOf(trace, axes).join(" × "), i: String(shownStep.position), n: String(row.length), size, least, most,
  };
  const shape = VOCABULARY_STEPS.has(step.name)
    ? sayParts("{shape}; these are the {n} largest in token {i}'s row.", values)
    : sayParts("{shape}; this is token {i}'s row: norm {size}, from {least} to {most}.", values);
  byId("step-shape").replaceChildren(...shape);
  return showComponent(row, Math.min(selection.chosenStep.component, row.length - 1));
}

/** A step with its formula, as the library writes it. */
const headingOf = ({ name }) => `${lastOf(name)} = ${say(shownStep.trace.pass.steps[name].formula)}`;

/** The sizes of axes such as "Tq H·Dv". */
function shapeOf({ T, Tk, H, Dh, pass: { D, F, vocab } }, axes) {
  const sizes = { T, Tq: T, Tk, H, Dk: Dh, Dv: Dh, D, F, vocab };
  return axes.split(" ").map((axis) => axis.split("·").reduce((n, name) => n * sizes[name], 1));
}

/** Mark a component of the row, and show how it is computed. */
async function showComponent(row, c) {
  const choice = latestChoice;
  setQuietly({ chosenStep: { ...selection.chosenStep, component: c } });
  showReading(row, c);
  const explanation = await explanationOf(shownStep, shownStep.step, c);
  if (choice !== latestChoice || c !== selection.chosenStep.component) return;
  byId("step-arithmetic").replaceChildren(...(explanation ?? [make("p", { class: "note" }, whichColumns(shownStep))]));
}

/** Say for which of a step's components the file has the weights. */
function whichColumns({ trace, step }) {
  if (step.equation === "logits")
    return say("This file only has the weights of the most probable next tokens; attnlab explore has all.");
  const matrix = matrixPathOf(trace, step);
  const [, first, end] = trace.pass.columns.find(([path]) => path === matrix) ?? [];
  return end === undefined
    ? say("This file doesn't include the weights of this step; attnlab explore has all.")
    : say("This file has the weights of components {first} to {last}; attnlab explore has all.", {
        first, last: end - 1,
      });
}

/** A component in words, with its head if vectors are concatenated. */
function componentOf({ name }, c) {
  const { Dh } = shownStep.trace;
  if (VOCABULARY_STEPS.has(name)) {
    const token = shownStep.following.tokens[c];
    return say("token {symbol}, id {id}", { ...token, symbol: wordOf(token) });
  }
  if (!PER_HEAD.test(name)) return say("component {c}", { c });
  return say("component {c}: head {h}, component {d}", { c, h: Math.floor(c / Dh), d: c % Dh });
}

/** Show a number of the row, and mark it in the field that chooses it. */
function showReading(row, c) {
  const field = byId("component");
  field.max = row.length - 1;
  field.value = c;
  const name = componentOf(shownStep.step, c);
  field.ariaLabel = `${name}: ${format(row[c], 6)}`;
  byId("reading").replaceChildren(`${name}: `, make("strong", {}, number(row[c])));
}

// ---- one number ------------------------------------------------------------------------------------

/** A number of another step, linked to it. */
function numberOf(step, c, words = `${lastOf(step.name)}[${c}]`) {
  return buttonOf(() => goTo(step.path, c).then(focusComponent), { class: "leads" }, words);
}

const isEditedAt = ({ trace }, { path }) => trace.pass.edited.includes(path);
const stepAt = ({ steps }, path) => steps.find((step) => step.path === path);

/** How a step's number is computed, as elements; undefined if its weights aren't available. */
async function explanationOf(pass, step, c) {
  const { trace, position } = pass;
  const heading = headingOf(step);
  const row = rowAt(pass, step);
  const result = (computed) => resultOf(isEditedAt(pass, step), computed, row[c]);
  if (step.equation === "identity") {
    const from = stepAt(pass, step.needs[0]);
    const name = numberOf(from, c, `${from.path}[${position}, ${c}]`);
    return [make("ol", { class: "chain" }, lineOf(heading, name, " = ", result(rowAt(pass, from)[c])))];
  }
  if (step.equation === "concat") return explainConcat(pass, step, c);
  if (step.equation === "softmax") return explainProbability(pass, step, c);
  // The names of explanations that differ from the equation's name.
  const names = { activated: trace.hyperparameters.activation.name, Q: "affine", K: "affine", V: "affine" };
  const explanation = description.explanations[names[step.equation] ?? step.equation];
  const column = step.name === "logits" ? pass.following.ids[c] : c; // the row has only the largest logits
  const inputs = await readInputs(pass, step, c, column, explanation.parameters);
  if (!inputs) return undefined;
  const x = Object.values(inputs).find((input) => input?.step); // the only step among a product's inputs
  const working = new Working({ indices: { row: position, column }, inputs, linkTo: numberOf });
  return linesOfNumber(working, explanation, { heading, result, firstCellOf: (i) => numberOf(x.step, i) });
}

/** The inputs of number c of a row, by parameter, as `Working` takes them; undefined if one isn't available. */
async function readInputs(pass, step, c, column, parameters) {
  const { trace, position } = pass;
  const paths = trace.graph.node(step.path).needs;
  const inputs = {};
  let weights; // a column of a linear map, and its bias
  for (const [n, parameter] of parameters.entries()) {
    const [path, from] = [paths[n], stepAt(pass, paths[n])];
    if (parameter === "W" || parameter === "W_U")
      weights = await source.column(trace, path, column, inputs[parameters[0]].length); // the map's input is first
    const known = {
      ids: trace.tokens[position].id, positions: trace.cached + position, W: weights?.column, W_U: weights?.column,
      b: weights?.bias,
    };
    for (const matrix of ["W_E", "W_P"]) known[matrix] = rowAt(pass, step)[c]; // the step is a row of the matrix
    const value = parameter in known ? known[parameter] : from ? rowAt(pass, from) : inputAt(pass, path);
    if (value === undefined) return undefined;
    // Indices of a formula, such as ["row", ":"], choose the whole row or its entry c.
    const entriesOf = (indices) => (typeof value === "number" || indices.includes(":") ? value : value[c]);
    const name = lastOf(path).replace("rows_of_", ""); // the step rows_of_W_E has some rows of W_E
    inputs[parameter] = value === null ? null : { name, step: from, length: value.length, values: entriesOf };
  }
  return inputs;
}

/** A parameter or another value; null if the model has none, undefined if it isn't available. */
const inputAt = (pass, path) =>
  ifAvailable(() => {
    const value = pass.run.value(path);
    return value instanceof Nd ? value.numbers() : value;
  });

/** Explain a component of concat as one of a head's context, with a link to the head. */
function explainConcat(pass, step, c) {
  const { trace, position } = pass;
  const [h, d] = [Math.floor(c / trace.Dh), c % trace.Dh];
  const head = headOf(trace, step.layer, h);
  const inputs = {
    weights: { values: () => stepRow(head, "weights", position) },
    V: { values: () => Float64Array.from({ length: trace.Tk }, (_, j) => head.V[j * trace.Dh + d]) },
  };
  const working = new Working({ indices: { row: position, column: d }, inputs, indexName: "key" });
  const isEdited = head.edited.has("context") || isEditedAt(pass, step);
  const sum = linesOfNumber(working, description.explanations.context, {
    heading: say("head {h}: {formula}", { h, formula: formulaOf("context") }),
    result: () => resultOf(isEdited, uneditedRow(head, "context", position)[d], rowAt(pass, step)[c]),
    firstCellOf: (j) => make("span", {}, `${j} `, tokenElement(trace.keys[j])),
  });
  const name = say("Layer {layer}, head {head}", { layer: step.layer, head: h });
  const goToHead = () => openHead(step.layer, h, () => cursorOf(trace.number).focus());
  return [...sum, make("p", {}, buttonOf(goToHead, { class: "leads" }, `${name} ↑`))];
}

/** Explain a probability by the largest logits and the sum over all logits. */
function explainProbability(pass, step, c) {
  const { logits, sum, ids, vocab, tokens } = pass.following;
  const from = stepAt(pass, step.needs[0]);
  const values = (indices) => (indices.includes(":") ? logits : logits[c]); // the whole row, or its entry c
  const working = new Working({
    indices: { row: pass.position, column: ids[c] },
    inputs: { x: { name: "logits", step: from, component: c, count: vocab, values } },
    known: { row_sum: sum },
    linkTo: numberOf,
    makeLargestLink: () => numberOf(from, 0, `logits[${pass.position}, ${ids[0]}]`),
    largest: make("span", {}, ...sayParts("id {id}", { id: withSymbol(ids[0], tokens[0]) })),
  });
  return linesOfNumber(working, description.explanations.softmax, {
    heading: headingOf(step),
    result: (x) => make("strong", {}, number(x)),
  });
}

export function startPass() {
  on("opened depth language", () => isLook() || openPass());
  on("query", followPass);
  on("palette", () => isLook() || showPass());
  on("chosenStep", () => (shownTrace === traces[selection.chosenStep.trace] ? showPass() : openPass()));
  byId("pass-steps").addEventListener("keydown", moveByKey);
  byId("component").addEventListener("input", ({ target: { valueAsNumber: c, max } }) => {
    if (c >= 0 && c <= max) goTo(selection.chosenStep.path, Math.floor(c));
  });
}
