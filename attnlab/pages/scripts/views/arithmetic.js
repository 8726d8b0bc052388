// The numbers behind one cell, from the products of q and k to the context vector.

import { LAST_AXIS, Nd } from "../numbers/arrays.js";
import { equations } from "../numbers/equations.js";
import { format } from "../numbers/formats.js";
import { totalOf } from "../numbers/predictions.js";
import { description, say, sayParts } from "../sources/description.js";
import { headOf, isMasked, isSeen, runOfHead, stepRow, uneditedRow } from "../sources/rows.js";
import { closeArithmetic } from "../state/actions.js";
import { isLook, on, selection, set } from "../state/store.js";
import { alignment, DIFFERENCE, hasHead, keyOf, MATRICES, traces, whyNoDifference } from "../state/traces.js";
import {
  boxedTable, formulaOf, number, onceAFrame, positionsInWords, rowOf, tokenElement, withSymbol,
} from "../drawing/draw.js";
import { buttonOf, byId, make } from "../drawing/elements.js";
import { lineOf, noteOf, numbersIn, resultOf, sumIn, Working } from "../drawing/explain.js";
import { cursorOf, goToStep } from "../drawing/navigation.js";
import { prefixOf } from "../drawing/names.js";

function showOpened() {
  const isOpen = selection.openCell !== null;
  document.documentElement.classList.toggle("calculating", isOpen);
  byId("close").hidden = !isOpen;
  if (isOpen) {
    showArithmetic();
    return fitBeside();
  }
  byId("arithmetic-title").textContent = say("Arithmetic");
  const words = say(
    "Click a cell, or press Enter on it, to see its numbers from the dot product to the context vector.",
  );
  byId("sums").replaceChildren(make("p", { class: "note" }, words));
}

/** Fit the panel to the visible part of the page, so that all of its content can be scrolled to. */
function fitBeside() {
  const top = Math.max(16, byId("overview").getBoundingClientRect().top);
  byId("panel").style.setProperty("--room", `${innerHeight - top - 16}px`);
}

/** Return to the cell whose arithmetic was shown; in Look, to the number in the row of the softmax. */
function leaveArithmetic() {
  const { cursor = cursorOf(0), key } = selection.openCell ?? {};
  closeArithmetic();
  const number = byId("softmax-row").querySelector(`tbody tr:nth-child(${key + 1}) button`);
  const place = isLook() ? (number ?? byId("said").querySelector("button")) : cursor;
  place?.focus();
}

function showArithmetic() {
  const { layer, head, query, key } = selection.openCell;
  const positions = { query: alignment.queries[query], key: alignment.keys[key] };
  const hasCell = ({ number }) => positions.query[number] !== null && positions.key[number] !== null;
  const shown = traces.filter((trace) => hasHead(trace, layer, head) && hasCell(trace));
  const position = (name) => positionsInWords(shown.map(({ number }) => positions[name][number]));
  const values = { layer, head, query: position("query"), key: position("key") };
  byId("arithmetic-title").textContent = say(
    "Arithmetic of layer {layer}, head {head}, query {query}, key {key}", values,
  );
  byId("sums").replaceChildren(...shown.map(arithmeticOf));
  if (shown.length === 2 && !whyNoDifference) byId("sums").append(comparisonOf(shown));
}

/** A table whose rows are chosen by buttons in their headings, which are texts or lists of elements. */
function tableOfChoices(caption, header, rows, foot, chosen, choose) {
  const body = rows.map(([heading, ...cells], n) => {
    const row = rowOf(buttonOf(() => choose(n), { class: "row-button" }, ...[heading].flat()), cells, 4);
    if (n === chosen) row.ariaCurrent = "true";
    return row;
  });
  return boxedTable(caption, header, body, [rowOf(foot[0], foot.slice(1), 4)]);
}

/**
 * The open cell in a trace: query i and key j of a head, and the chosen component of V. rows: query i's row
 * of each step. computed: the same without the edit of the step itself.
 */
function cellOf(trace) {
  const [i, j] = cellIn(trace);
  const head = headOf(trace, selection.openCell.layer, selection.openCell.head);
  const rowsOf = (read) => Object.fromEntries([...MATRICES, "context"].map((name) => [name, read(head, name, i)]));
  const component = Math.min(selection.openCell.component, head.Dh - 1);
  return { trace, head, i, j, component, rows: rowsOf(stepRow), computed: rowsOf(uneditedRow) };
}

function arithmeticOf(trace) {
  const cell = cellOf(trace);
  const pair = { query: tokenElement(trace.tokens[cell.i]), key: tokenElement(trace.keys[cell.j]) };
  const title = make(
    "p", { class: "pair" }, make("b", {}, prefixOf(trace)),
    ...sayParts("how {query} attends to {key}", pair),
  );
  const tables = make("div", { class: "tables" }, componentsTable(cell), keysTable(cell));
  return make("article", { "data-trace": trace.number }, title, chainOfCell(cell), tables);
}

/** The steps from the cell's dot product to the context vector, a line for each. */
function chainOfCell(cell) {
  const { head, j, component, rows, computed } = cell;
  const { weights, context } = rows;
  const value = head.V[j * head.Dh + component];
  const line = (name, parts) => {
    const heading = `${formulaOf(name)}${head.edited.has(name) ? say(", edited") : ""}`;
    const item = lineOf(heading, ...parts);
    item.dataset.step = name;
    item.append(make("span", { class: "note" }, say(description.steps[name].purpose)));
    return item;
  };
  const lines = ["raw_scores", "scale", "scores", "masked_scores", "weights"].map((name) =>
    line(name, explainInCell(cell, name)),
  );
  const added = [number(weights[j]), " × ", number(value), " = ", number(weights[j] * value)];
  const sum = resultOf(head.edited.has("context"), computed.context[component], context[component]);
  const adding = say("component {chosen}: key {j} adds ", { chosen: component, j });
  return make(
    "ol", { class: "chain" },
    ...lines,
    line("context", [adding, ...added, say("; sum over all keys: "), sum]),
  );
}

/** How a step of the cell is computed; the products of a sum are in the table. */
function explainInCell({ trace, head, i, j, rows }, name) {
  const scale = runOfHead(head, i).run.value(`${head.path}.scale`);
  const largestKey = rows.masked_scores.indexOf(Math.max(...rows.masked_scores));
  const working = new Working({
    indices: { row: i, column: j },
    inputs: inputsOfCell(head, i, j, { ...rows, scale, mask: !isMasked(head, i, j) }),
    indexName: "key",
    largest: make("span", {}, ...sayParts("key {j}", { j: withSymbol(largestKey, trace.keys[largestKey]) })),
  });
  const explained = name === "scale" ? derivationOfScale(head) : trace.graph.node(`${head.path}.${name}`).equation;
  // Python made the lines from the equation, see attnlab/views/explaining/derivations.py; the page fills in numbers.
  const lines = working.lines(description.explanations[explained].lines);
  const result = (computed) => resultOf(head.edited.has(name), computed, name === "scale" ? scale : rows[name][j]);
  return lines.flatMap(([line, value], n) => {
    const [products] = sumIn(line.tree);
    if (products) return [say("sum of the {Dh} products: ", { Dh: head.Dh }), result(value)];
    const { words, numbers } = numbersIn(working, line, value, ""); // no heading: the cell's line has one
    if (n === lines.length - 1) return [...numbers, result(value)];
    return [`${words}: `, ...numbers, number(value), ...noteOf(working, line), make("br", {})];
  });
}

/** Choose a component or a key of the open cell, and show its arithmetic; tables keep their scroll positions. */
function chooseInTable(trace, name, value) {
  const tables = () => [...document.querySelectorAll("#sums .table")];
  const scrolled = tables().map(({ scrollTop }) => scrollTop);
  set({ openCell: { ...selection.openCell, [name]: value } });
  tables().forEach((table, n) => (table.scrollTop = scrolled[n]));
  const chosen = `#sums [data-trace="${trace.number}"] [data-rows="${name}"] tr[aria-current] button`;
  document.querySelector(chosen).focus({ preventScroll: true });
}

function componentsTable({ trace, head, i, j, component, rows, computed }) {
  const { Dh, Q, K, V } = head;
  // Link a vector's name to its computation in the forward pass; cached tokens have none.
  const linkTo = (name, position, words) => {
    if (position < 0) return words;
    const click = (event) => {
      event.preventDefault();
      goToVector(trace, position, name, component);
    };
    return make("a", { href: "#pass", class: "leads", title: say("How it is computed"), click }, words);
  };
  const linkOfKey = (name) => linkTo(name, j - trace.cached, `${name}[${j}]`);
  const table = tableOfChoices(
    say("The {Dh} components of query {i} and key {j}", { Dh, i, j }),
    [
      "d", linkTo("Q", i, `Q[${i}]`), linkOfKey("K"), say("product"), linkOfKey("V"), say("weight × V"),
      linkTo("concat", i, `context[${i}]`),
    ],
    Array.from({ length: Dh }, (_, d) => {
      const [q, k, v] = [Q[i * Dh + d], K[j * Dh + d], V[j * Dh + d]];
      return [String(d), q, k, q * k, v, rows.weights[j] * v, rows.context[d]];
    }),
    [say("sum"), "", "", computed.raw_scores[j], "", "", ""],
    component,
    (d) => chooseInTable(trace, "component", d),
  );
  table.dataset.rows = "component";
  return table;
}

function keysTable({ trace, head, i, j, component, rows, computed }) {
  const { Dh, Tk, V } = head;
  const row = equations.exponentials(new Nd(rows.masked_scores, [Tk]));
  const exponentials = row.numbers();
  const [sum] = row.sum(LAST_AXIS).numbers();
  const steps = ["raw_scores", "scores", "masked_scores"];
  const table = tableOfChoices(
    say("The row of query {i}: its largest masked score is {largest}", {
      i, largest: format(Math.max(...rows.masked_scores), 6),
    }),
    [say("key"), ...steps, say("exp(· − largest)"), "weights", `V[·, ${component}]`, say("weight × V")],
    trace.keys.map((token, n) => {
      const [weight, v] = [rows.weights[n], V[n * Dh + component]];
      const scores = steps.map((name) => rows[name][n]);
      return [[`${n} `, tokenElement(token)], ...scores, exponentials[n], weight, v, weight * v];
    }),
    [say("sum"), "", "", "", sum, totalOf(rows.weights), "", computed.context[component]],
    j,
    (n) => chooseInTable(trace, "key", keyOf(trace, n)),
  );
  table.dataset.rows = "key";
  table.querySelectorAll("tbody tr").forEach((row, n) => row.classList.toggle("masked", !isSeen(head, i * Tk + n)));
  return table;
}

const layerNumberOf = ({ hyperparameters }, layer) => hyperparameters[`blocks.${layer}.attention.layer_number`];

/** The scale's name in `description.explanations`: whether it has √Dk, and whether the layer's number. */
const derivationOfScale = ({ trace, layer }) =>
  `scale_of_layer ${trace.hyperparameters.divide_by_sqrt_d} ${layerNumberOf(trace, layer) !== undefined}`;

/** The inputs of the cell's steps, by parameter, as in `Working`. */
function inputsOfCell({ trace, layer, Q, K, Dh, edited }, i, j, { mask, scale, ...rows }) {
  // The whole row for indices with ":", else its number for key j.
  const valuesOfRow = (row) => (indices) => (indices.includes(":") ? row : row[j]);
  return {
    ...Object.fromEntries(Object.entries(rows).map(([name, row]) => [name, { values: valuesOfRow(row) }])),
    mask: { values: () => mask, isEdited: edited.has("mask") },
    scale: { values: () => scale },
    layer_number: { values: () => layerNumberOf(trace, layer) },
    Q: { values: () => Q.subarray(i * Dh, (i + 1) * Dh) },
    K: { values: () => K.subarray(j * Dh, (j + 1) * Dh) },
  };
}

/** A trace's query and key whose arithmetic is shown. */
const cellIn = ({ number }) => [
  alignment.queries[selection.openCell.query][number], alignment.keys[selection.openCell.key][number],
];

function comparisonOf(shown) {
  const { layer, head } = selection.openCell;
  const rows = MATRICES.map((step) => {
    const [a, b] = shown.map((trace) => {
      const [i, j] = cellIn(trace);
      return stepRow(headOf(trace, layer, head), step, i)[j];
    });
    const difference = a === b ? 0 : b - a; // -inf minus -inf would be NaN
    return rowOf(step, [a, b, difference], 6);
  });
  const table = boxedTable(say("Both, and their difference"), [say("step"), "A", "B", DIFFERENCE], rows);
  return make("article", { class: "compared" }, table);
}

/** Go to a component of a token's vector in the open cell's head, in the forward pass. */
function goToVector(trace, position, name, component) {
  const { layer, head } = selection.openCell;
  goToStep(trace, position, `blocks.${layer}.attention.${name}`, head * trace.Dh + component);
}

export function startArithmetic() {
  on("traces openCell language", showOpened);
  byId("arithmetic").addEventListener("keydown", (event) => {
    if (event.key === "Escape") leaveArithmetic();
  });
  byId("close").addEventListener("click", leaveArithmetic);
  for (const change of ["scroll", "resize"]) addEventListener(change, onceAFrame(fitBeside));
}
