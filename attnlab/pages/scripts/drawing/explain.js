// How one number of a step is computed: the formulas from attnlab/views/explaining/derivations.py, evaluated and
// written with the page's numbers, as attnlab/views/explaining/step_number.py does in Python.

import { equations } from "../numbers/equations.js";
import { grouped, largestTerms } from "../numbers/formats.js";
import { totalOf } from "../numbers/predictions.js";
import { say, sayParts } from "../sources/description.js";
import { boxedTable, number, rowOf } from "./draw.js";
import { make } from "./elements.js";

const MAX_FULL_PRODUCTS = 12; // a sum of more products is shortened
const MAX_FULL_TERMS = 64; // a sum of more terms that aren't products is shortened
const TERMS_SHOWN = 8; // how many of the largest terms a shortened sum shows
const DECIMALS = 6; // how many decimals the numbers in a table of products have

const OPERATIONS = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  "**": (a, n) => a ** n,
  maximum: Math.max,
  sqrt: Math.sqrt,
  exp: Math.exp,
  tanh: Math.tanh,
  erf: equations.erf,
};

// Functions from a row to a number.
const REDUCTIONS = { sum: totalOf, max: (row) => row.reduce((a, b) => Math.max(a, b)), len: (row) => row.length };

const CONSTANTS = { pi: Math.PI, "-inf": -Infinity };
const isItem = (tree) => Array.isArray(tree) && tree[0] === "at";
const isLeaf = (tree) => isItem(tree) || (typeof tree === "string" && !(tree in CONSTANTS));

/**
 * Evaluates the formulas of one number, and writes them in NumPy's notation.
 *
 * indices: the number's row and column.
 * inputs: by parameter, {values(indices), step, name, component, count}. Numbers link to that component of `step`, by
 *   default the number's column. The default name is the parameter's. count: a row's length, if `values` has less.
 * known: results of lines, by name, that can't be computed here, since the page lacks some of a row's numbers.
 * indexName: the name of the index in the notation of a whole row, such as i in X[7, i].
 * linkTo: makes the link to a number of a step, from the step, the component and the words.
 * largest: an element that names a row's maximum. makeLargestLink: returns a link to it.
 */
export class Working {
  constructor({ indices, inputs, known = {}, indexName = "i", linkTo, largest, makeLargestLink }) {
    Object.assign(this, { indices, inputs, known, indexName, linkTo, largest, makeLargestLink, results: { ...known } });
  }

  /** Evaluate a formula: a number or a row of numbers. */
  value(tree) {
    // Such as ["/", ["at", "raw_scores", "row", "column"], "scale"]; a name is a parameter or an earlier line.
    if (typeof tree === "number") return tree;
    if (tree in CONSTANTS) return CONSTANTS[tree];
    if (typeof tree === "string" && tree in this.results) return this.results[tree];
    if (isLeaf(tree)) return this.valueAt(tree);
    const [operation, ...operands] = tree;
    if (operation === "if") return this.value(operands[this.valueAt(operands[0]) ? 1 : 2]);
    const values = operands.map((operand) => this.value(operand));
    if (operation in REDUCTIONS) return REDUCTIONS[operation](values[0]);
    const row = values.find((operand) => typeof operand !== "number");
    const apply = OPERATIONS[operation];
    // Without a row, one number; with one, an operation for each of its entries, as in NumPy.
    if (!row) return apply(...values);
    return Float64Array.from(row, (_, i) =>
      apply(...values.map((operand) => (typeof operand === "number" ? operand : operand[i]))),
    );
  }

  /** The value of a parameter, or of some of its entries. */
  valueAt(tree) {
    const [parameter, indices] = isItem(tree) ? [tree[1], tree.slice(2)] : [tree, []];
    return this.inputs[parameter].values(indices);
  }

  /** The index to write in brackets, such as [7, "i"] for ["row", ":"] in a formula. */
  index(names) {
    const indexOf = (name) => (isItem(name) ? this.valueAt(name) : this.indices[name]);
    return names.map((name) => (name === ":" ? this.indexName : indexOf(name)));
  }

  /** A number or row in NumPy's notation, such as X[7, 3], or X[7, i] for a row. */
  notation(tree) {
    if (typeof tree === "string") return this.inputs[tree]?.name ?? tree;
    if (tree[0] === "len") return String(this.value(tree));
    if (!isItem(tree)) return tree[0]; // such as "max", for the maximum of a row
    return `${this.notation(tree[1])}[${this.index(tree.slice(2)).join(", ")}]`;
  }

  /** The notation of a number or row. A number of a step is a link to it. */
  link(tree) {
    if (tree[0] === "max" && this.makeLargestLink) return this.makeLargestLink();
    const name = this.notation(tree);
    const input = isItem(tree) && !tree.includes(":") ? this.inputs[tree[1]] : null;
    return input?.step ? this.linkTo(input.step, input.component ?? this.indices.column, name) : name;
  }

  /** Evaluate lines in their order, [line, value] each. Later lines refer to earlier ones by name. */
  lines(formulas) {
    for (const { name, tree } of formulas) this.results[name] = this.known[name] ?? this.value(tree);
    return formulas.map((line) => [line, this.results[line.name]]);
  }
}

/** A line's formula as texts and elements. `write` makes those of an operand, see `texts_and_operands` in Python. */
const formulaParts = ({ parts }, write) =>
  parts.flatMap((part) => (typeof part === "string" ? [part] : write(...part)));

/** A number as an operand; counts have no brackets. */
function operandParts(working, tree, isBracketedIfNegative) {
  const x = working.value(tree);
  if (tree[0] === "len") return [String(x)];
  return x < 0 && isBracketedIfNegative ? ["(", number(x), ")"] : [number(x)];
}

/**
 * The lines that compute a number, as elements.
 *
 * explanation: from `description.explanations`. heading: names the step's number. result: a function that shows the
 * last line's value. firstCellOf: a function that makes the first cell of product n in a table of products.
 */
export function linesOfNumber(working, explanation, { heading, result, firstCellOf }) {
  const all = working.lines(explanation.lines);
  const parts = [];
  const list = make("ol", { class: "chain" });
  all.forEach(([line, value], n) => {
    const shown = n === all.length - 1 ? result(value) : number(value);
    const [products, bias] = sumIn(line.tree);
    if (products) {
      parts.push(...productsOf(working, products, bias, { heading, result: shown, firstCellOf }));
      return;
    }
    const { words, numbers } = numbersIn(working, line, value, heading);
    list.append(lineOf(words, ...numbers, shown, ...noteOf(working, line)));
  });
  return list.children.length ? [list, ...parts] : parts;
}

/** Split the formula of a sum of products, such as sum(x * w) + b, into x * w and b. Return [] for other formulas. */
export function sumIn(tree) {
  const [sum, bias] = tree[0] === "+" && tree[1][0] === "sum" ? tree.slice(1) : [tree];
  return sum[0] === "sum" && sum[1][0] === "*" ? [sum[1], bias] : [];
}

/** What replaces the names in a line's texts, such as {largest}: a formula in notation, or the largest key. */
function namesIn(working, { where }) {
  const valueOf = (tree) => (tree[0] === "max" ? working.largest : working.notation(tree));
  return Object.fromEntries(Object.entries(where).map(([name, tree]) => [name, valueOf(tree)]));
}

/** A line's note, such as where a row's maximum is. */
export const noteOf = (working, line) => line.note ? [" (", ...sayParts(line.note, namesIn(working, line)), ")"] : [];

/** A line's heading, and the numbers before its result. */
export function numbersIn(working, line, value, heading) {
  const { tree } = line;
  const linked = (tree) => [working.link(tree)];
  const [terms, counts] = tree[0] === "sum" ? termsIn(working, tree[1], value) : [null, {}];
  const words = line.heading
    ? say(line.heading, { heading, ...namesIn(working, line), ...counts })
    : `${line.name} = ${formulaParts(line, (tree) => [working.notation(tree)]).join("")}`;
  if (terms) return { words, numbers: [...terms, " = "] };
  if (tree[0] === "if") {
    const [, condition, yes, no] = tree;
    // The one step with a condition is masked_scores, whose condition is the mask.
    const isTrue = Boolean(working.valueAt(condition));
    const chosen = isTrue ? yes : no;
    const outcome = say("{name} is {value}: ", {
      name: working.notation(condition),
      value: (isTrue ? "True" : "False") + (working.inputs[condition[1]].isEdited ? say(", edited") : ""),
    });
    return { words, numbers: [outcome, ...(isLeaf(chosen) ? [...linked(chosen), " = "] : [])] };
  }
  const names = formulaParts(line, linked);
  if (isLeaf(tree)) return { words, numbers: [...names, " = "] };
  const hasLinks = names.some((part) => typeof part !== "string"); // without links, the heading is enough
  const numbers = formulaParts(line, (...operand) => operandParts(working, ...operand));
  return { words, numbers: [...(hasLinks ? [...names, " = "] : []), ...numbers, " = "] };
}

/** The first row in a formula, such as ["at", "x", "row", ":"], depth first; undefined if it has none. */
function rowIn(tree) {
  if (isItem(tree)) return tree;
  return Array.isArray(tree) ? tree.slice(1).map(rowIn).find(Boolean) : undefined;
}

/** The terms of a sum that are shown, as texts and elements, and the values for its heading. */
function termsIn(working, tree, sum) {
  const row = working.value(rowIn(tree)); // masked entries are -inf, and aren't terms
  const terms = [...working.value(tree)].filter((_, n) => Number.isFinite(row[n]));
  const count = working.inputs.x?.count ?? terms.length; // the page may have only the largest entries of x
  const isCut = count > MAX_FULL_TERMS;
  const largest = isCut ? terms.sort((a, b) => b - a).slice(0, TERMS_SHOWN) : terms;
  const shown = isCut ? [...largest, sum - totalOf(largest)] : largest;
  const note = isCut ? say(", the {count} largest and the others together", { count: TERMS_SHOWN }) : "";
  return [shown.flatMap((x, n) => (n ? [" + ", number(x)] : [number(x)])), { n: grouped(count), note }];
}

/** A table of a sum of products, ["*", x, w]; if it is shortened, also one of all. firstCellOf: see `linesOfNumber`. */
function productsOf(working, [, first, second], bias, { heading, result, firstCellOf }) {
  const [x, w] = [first, second].map((tree) => working.value(tree));
  const products = Float64Array.from(x, (value, i) => value * w[i]);
  const all = products.length;
  const count = all <= MAX_FULL_PRODUCTS ? all : TERMS_SHOWN;
  const { largest, rest } = largestTerms(products, count);
  const header = [
    working.indexName === "key" ? say("key") : "i", working.notation(first), working.notation(second), say("product"),
  ];
  const rowsOf = (indices) => Array.from(indices, (i) => rowOf(firstCellOf(i), [x[i], w[i], products[i]], DECIMALS));
  const footOf = (name, value) => rowOf(name, ["", "", value], DECIMALS);
  const feet = [
    ...(count < all ? [footOf(say("{others} others", { others: all - count }), rest)] : []),
    ...(bias ? [footOf(working.notation(bias), working.value(bias))] : []),
    footOf(say("sum"), result),
  ];
  if (count === all)
    return [boxedTable(say("{heading}: the {all} products", { heading, all }), header, rowsOf(products.keys()), feet)];
  const caption = say("{heading}: the {all} products, the {count} largest first", { heading, all, count });
  const summary = say("All {all} products", { all });
  const details = make("details", {}, make("summary", {}, summary));
  const showAll = () => details.append(boxedTable(summary, header, rowsOf(products.keys())));
  details.addEventListener("toggle", showAll, { once: true });
  return [boxedTable(caption, header, rowsOf(largest), feet), details];
}

export const lineOf = (heading, ...parts) =>
  make("li", {}, make("code", {}, heading), make("span", { class: "sum" }, ...parts));

/** A number of a step; if an edit changed it by more than rounding does, also what the equation gives. */
export function resultOf(isEdited, computed, stored) {
  const shown = make("strong", {}, number(stored));
  const tolerance = 1e-5 * Math.max(Math.abs(computed), Math.abs(stored), 1e-3); // float32 has seven digits
  const isUnchanged = Math.abs(computed - stored) <= tolerance;
  if (!isEdited || isUnchanged) return shown;
  const parts = { computed: number(computed), edited: shown };
  return make("span", {}, ...sayParts("{computed}; edited here: {edited} instead", parts));
}
