// How one number of a step is computed: the formulas from attnlab/views/explanations.py, evaluated and
// written with the page's numbers, as attnlab/views/evaluation.py does in Python.

const MAX_FULL_PRODUCTS = 12; // longer sums of products are shortened
const MAX_FULL_TERMS = 64; // likewise, of other sums
const TERMS_SHOWN = 8; // a shortened sum shows this many of the largest terms

const OPERATIONS = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  "**": (a, n) => a ** n,
  ">": (a, b) => Number(a > b),
  sqrt: Math.sqrt,
  exp: Math.exp,
  tanh: Math.tanh,
  erf: equations.erf,
};

// Functions from a row to a number.
const REDUCTIONS = {
  sum: totalOf,
  max: (row) => row.reduce((a, b) => Math.max(a, b)),
  len: (row) => row.length,
};

const CONSTANTS = { pi: Math.PI, "-inf": -Infinity };
const isItem = (tree) => Array.isArray(tree) && tree[0] === "at";
const isLeaf = (tree) => isItem(tree) || (typeof tree === "string" && !(tree in CONSTANTS));

/**
 * The inputs of one number.
 *
 * indices: its row and column. needs: {name, path, values(indices), step} by parameter, null for an
 * absent one; step is what a number links to. known: results of lines whose rows the page doesn't
 * have in full, by name. rowLetter: the index that stands for a whole row. largest: an element that names
 * a row's maximum. toLargest: its link.
 */
class Working {
  constructor({ indices, needs, known = {}, rowLetter = "i", largest, toLargest }) {
    Object.assign(this, { indices, needs, known, rowLetter, largest, toLargest, results: { ...known } });
  }

  /** Remove absent parameters from a formula; undefined if nothing is left. */
  simplify(tree, aliases) {
    if (typeof tree === "string" && tree in aliases) return aliases[tree];
    if (isLeaf(tree)) return this.needs[isItem(tree) ? tree[1] : tree] === null ? undefined : tree;
    if (!Array.isArray(tree)) return tree ?? undefined;
    const [operation, ...operands] = tree;
    if (operation === "if") {
      const [condition, yes, no] = operands;
      return isItem(condition) ? tree : this.simplify(this.valueAt(condition) ? yes : no, aliases);
    }
    const kept = operands.map((operand) => this.simplify(operand, aliases)).filter((operand) => operand !== undefined);
    return kept.length < operands.length ? kept[0] : [operation, ...kept];
  }

  /** Evaluate a formula: a number or a row of numbers. */
  value(tree) {
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
    if (!row) return apply(...values);
    return Float64Array.from(row, (_, i) => apply(...values.map((operand) => (typeof operand === "number" ? operand : operand[i]))));
  }

  /** The value of a parameter, or of some of its entries. */
  valueAt(tree) {
    const [parameter, indices] = isItem(tree) ? [tree[1], tree.slice(2)] : [tree, []];
    return this.needs[parameter].values(indices);
  }

  index(names) {
    return names.map((name) =>
      name === ":" ? this.rowLetter : isItem(name) ? this.valueAt(name) : (this.indices[name] ?? this.indices.row),
    );
  }

  /** A number or row in NumPy's notation, such as X[7, 3], or X[7, i] for a row. */
  notation(tree) {
    if (typeof tree === "string") return this.needs[tree]?.name ?? tree;
    if (tree[0] === "len") return String(this.value(tree));
    if (!isItem(tree)) return tree[0];
    const index = this.index(tree.slice(2)).join(", ");
    return `${this.needs[tree[1]].name}[${index}]`;
  }

  /** The same, linked to its step. */
  link(tree) {
    if (tree[0] === "max" && this.toLargest) return this.toLargest();
    const words = this.notation(tree);
    const { step, component = this.indices.column } = (isItem(tree) && this.needs[tree[1]]) || {};
    return step && !tree.includes(":") ? numberOf(step, component, words) : words;
  }

  /** All lines worth showing, as [line, tree, value]. */
  lines(declared) {
    const [shown, aliases] = [[], {}];
    declared.forEach((line, n) => {
      const tree = this.simplify(line.tree, aliases);
      if (shown.length && tree === shown.at(-1)[0].name) return;
      if (isLeaf(tree) && n < declared.length - 1) {
        aliases[line.name] = tree;
        return;
      }
      const value = this.known[line.name] ?? (tree === undefined ? 1 : this.value(tree));
      this.results[line.name] = value;
      shown.push([line, tree, value]);
    });
    return shown;
  }
}

const PRECEDENCE = { ">": 0, "+": 1, "-": 1, "*": 2, "/": 2, "**": 4 };
const SIGNS = { "+": " + ", "-": " − ", "*": " · ", "/": " / ", ">": " > " };
const POWERS = { 2: "²", 3: "³" };

/**
 * A formula as texts and elements, see attnlab/views/formulas.py.
 *
 * leaf: formats its names. outer: the precedence of the operator around it.
 */
function formulaParts(tree, leaf, outer = 0) {
  if (typeof tree === "number") return [tree === 0.5 ? "½" : String(tree)];
  if (tree in CONSTANTS) return [{ pi: "π" }[tree] ?? tree];
  if (isLeaf(tree) || tree[0] in REDUCTIONS) return leaf(tree, outer);
  const [operation, ...operands] = tree;
  const part = (operand, precedence) => formulaParts(operand, leaf, precedence);
  if (operation === "sqrt") return ["√", ...part(operands[0], 5)];
  if (operation === "exp") return ["e^", ...part(operands[0], 5)];
  if (!(operation in PRECEDENCE)) return [operation, "(", ...part(operands[0], 0), ")"];
  const precedence = PRECEDENCE[operation];
  if (operation === "**") return [...part(operands[0], 5), POWERS[operands[1]]];
  const after = Math.max(precedence + (operation === "-" || operation === "/" ? 1 : 0), 2);
  const parts = [...part(operands[0], precedence), SIGNS[operation], ...part(operands[1], after)];
  if (operation === ">") return ["[", ...parts, "]"];
  return precedence < outer ? ["(", ...parts, ")"] : parts;
}

/** A number as an operand, in brackets if negative. */
const termOf = (x, precedence) => (x < 0 && precedence > 1 ? ["(", number(x), ")"] : [number(x)]);

/**
 * The lines that compute a number, as elements.
 *
 * declared: from `description.explanations`. heading: the step's. result: shows the last line's value.
 */
function linesOfNumber(working, declared, { heading, result, rows }) {
  const all = working.lines(declared.lines);
  const parts = [];
  const list = make("ol", { class: "chain" });
  all.forEach(([line, tree, value], n) => {
    const shown = n === all.length - 1 ? result(value) : number(value);
    const [sum, bias] = sumIn(tree);
    if (sum) {
      parts.push(...productsOf(working, sum[1], bias, { heading, result: shown, ...rows }));
      return;
    }
    const { words, numbers } = numbersIn(working, line, tree, value, heading);
    list.append(lineOf(words, ...numbers, shown, ...noteOf(working, line)));
  });
  return list.children.length ? [list, ...parts] : parts;
}

/** If a formula is a sum of products, the sum and what is added to it. */
function sumIn(tree) {
  const [sum, bias] = tree?.[0] === "+" && tree[1][0] === "sum" ? tree.slice(1) : [tree];
  return sum?.[0] === "sum" && sum[1][0] === "*" ? [sum, bias] : [];
}

const namesIn = (working, { where }) =>
  Object.fromEntries(Object.entries(where).map(([name, tree]) => [name, working.notation(tree)]));

/** A line's note, such as where a row's maximum is. */
function noteOf(working, { note, where }) {
  const named = (tree) => (tree[0] === "max" ? working.largest : working.notation(tree));
  const values = Object.fromEntries(Object.entries(where).map(([name, tree]) => [name, named(tree)]));
  return note ? [" (", ...sayStoredParts(note, values), ")"] : [];
}

/** A line's words, and the numbers before its result. */
function numbersIn(working, line, tree, value, heading) {
  const named = (tree) => [working.link(tree)];
  const [terms, counts] = tree?.[0] === "sum" ? termsIn(working, tree[1], value) : [null, {}];
  const words = line.heading
    ? sayStored(line.heading, { heading, ...namesIn(working, line), ...counts })
    : `${line.name} = ${formulaParts(tree, (tree) => [working.notation(tree)]).join("")}`;
  if (terms) return { words, numbers: [...terms, " = "] };
  if (tree === undefined) return { words, numbers: ["1 = "] };
  if (tree[0] === "if") {
    const [, condition, yes, no] = tree;
    const isTrue = Boolean(working.valueAt(condition));
    const chosen = isTrue ? yes : no;
    const outcome = sayStored("{name} is {value}: ", {
      name: working.notation(condition),
      value: (isTrue ? "True" : "False") + (working.needs[condition[1]].isEdited ? say(", edited") : ""),
    });
    return { words, numbers: [outcome, ...(isLeaf(chosen) ? [...named(chosen), " = "] : [])] };
  }
  const names = formulaParts(tree, named);
  if (isLeaf(tree)) return { words, numbers: [...names, " = "] };
  const leads = names.some((part) => typeof part !== "string");
  const numbers = formulaParts(tree, (leaf, precedence) => leafOf(working, leaf, precedence));
  return { words, numbers: [...(leads ? [...names, " = "] : []), ...numbers, " = "] };
}

/** A number as an operand; counts have no brackets. */
const leafOf = (working, tree, precedence) =>
  tree[0] === "len" ? [String(working.value(tree))] : termOf(working.value(tree), precedence);

/** The first row in a formula. */
const rowIn = (tree) =>
  isItem(tree) ? tree : tree.slice(1).map((operand) => Array.isArray(operand) && rowIn(operand)).find(Boolean);

/** The terms of a sum that are shown, and the number of all. */
function termsIn(working, tree, sum) {
  const row = working.value(rowIn(tree)); // masked entries aren't terms
  const terms = [...working.value(tree)].filter((_, n) => Number.isFinite(row[n]));
  const count = working.needs.x?.count ?? terms.length;
  const isCut = count > MAX_FULL_TERMS;
  const largest = isCut ? terms.sort((a, b) => b - a).slice(0, TERMS_SHOWN) : terms;
  const all = isCut ? [...largest, sum - totalOf(largest)] : largest;
  const which = isCut ? say(", the {count} largest and the others together", { count: TERMS_SHOWN }) : "";
  return [all.flatMap((x, n) => (n ? [" + ", number(x)] : [number(x)])), { n: grouped(count), which }];
}

/** A sum of products as a table: the largest terms, the rest, and all in a disclosure. */
function productsOf(working, [, first, second], bias, { heading, result, lead }) {
  const [x, w] = [first, second].map((tree) => working.value(tree));
  const terms = Float64Array.from(x, (value, i) => value * w[i]);
  const line = (i) => [lead(i), x[i], w[i], terms[i]];
  return sumOf(terms, {
    heading,
    heads: [working.rowLetter === "key" ? say("key") : "i", working.notation(first), working.notation(second), say("product")],
    line,
    bias: bias && [working.notation(bias), working.value(bias)],
    result,
  });
}

/** The indices of the largest terms, their sum and the sum of the rest. */
function largestTerms(terms, count) {
  const largest = [...terms.keys()]
    .sort((a, b) => Math.abs(terms[b]) - Math.abs(terms[a]) || a - b)
    .slice(0, count);
  const chosen = new Set(largest);
  return {
    largest,
    sum: totalOf(largest.map((n) => terms[n])),
    rest: totalOf(terms.filter((_, n) => !chosen.has(n))),
  };
}

/** A sum as a table: the largest terms, the rest, and all in a disclosure. */
function sumOf(terms, { heading, heads, line, bias, result }) {
  const count = terms.length <= MAX_FULL_PRODUCTS ? terms.length : TERMS_SHOWN;
  const { largest, rest } = largestTerms(terms, count);
  const others = terms.length - count;
  const shown = others ? largest : [...terms.keys()];
  const caption = others
    ? say("{heading}: the {all} products, the {count} largest first", {
        heading,
        all: terms.length,
        count,
      })
    : say("{heading}: the {all} products", { heading, all: terms.length });
  const feet = [
    ...(others ? [[say("{others} others", { others }), "", "", rest]] : []),
    ...(bias ? [[bias[0], "", "", bias[1]]] : []),
    [say("sum"), "", "", result],
  ];
  const parts = [termsOf(caption, heads, shown.map(line), feet)];
  if (others) {
    const words = say("All {all} products", { all: terms.length });
    const all = make("details", {}, make("summary", {}, words));
    all.addEventListener(
      "toggle",
      () => all.append(termsOf(words, heads, [...terms.keys()].map(line), [])),
      { once: true },
    );
    parts.push(all);
  }
  return parts;
}

function termsOf(caption, heads, rows, feet) {
  const lines = (all) => all.map(([first, ...others]) => rowOf(first, others, 6));
  return boxedTable(caption, heads, lines(rows), lines(feet));
}
