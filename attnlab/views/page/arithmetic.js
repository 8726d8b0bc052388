// The numbers behind one cell, from the products of q and k to the context vector.

const isBeside = matchMedia("(min-width: 1200px)"); // as in page.css

let openCell = null; // the cell whose arithmetic is shown; it stays when another one is selected

function openArithmetic(cursor) {
  const { layer, head, query, key } = selection;
  openCell = { layer, head, query, key, component: 0, cursor };
  showOpened();
  byId("panel").scrollTop = 0;
  byId("arithmetic-title").focus({ preventScroll: true });
  if (!isBeside.matches) return byId("arithmetic").scrollIntoView();
  scrollBy(0, Math.min(0, byId("panel").getBoundingClientRect().top - 16)); // so that the panel's top is in view
  const cell = cursor.getBoundingClientRect();
  if (cell.top >= -1 && cell.bottom <= innerHeight + 1) return; // allowing for rounding
  for (const part of [cursor.closest("figure"), cursor])
    part.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function showOpened() {
  if (isLook()) showLevel("number");
  document.documentElement.classList.add("calculating");
  byId("close").hidden = false;
  showArithmetic();
  fitBeside();
  for (const heatmap of heatmaps) heatmap.layOut(); // their positions and sizes may have changed
  updateLink();
}

/** The open cell and its component, for the link. */
function linkOfArithmetic() {
  if (!openCell) return {};
  const { layer, head, query, key, component } = openCell;
  return { open: Object.entries({ layer, head, query, key, component }).flat().join(".") };
}

/** Open the cell that a link names, if any. */
async function followLinkOfArithmetic({ open = "" }) {
  const values = Object.fromEntries(
    [...open.matchAll(/([a-z]+)\.(\d+)/g)].map(([, name, n]) => [name, Number(n)]),
  );
  if (!["layer", "head", "query", "key"].every((name) => name in values)) return closeArithmetic();
  const { component = 0, ...cell } = values;
  const target = clampedSelection(cell);
  const shown = traces;
  await Promise.all(pendingTraces({ traces }, target.layer).map((trace) => loadLayer(trace, target.layer)));
  if (traces !== shown) return undefined;
  openCell = { ...target, component, cursor: heatmaps[0].cursor };
  return showOpened();
}

/** Fit the panel to the visible part of the page, so that all of its content can be scrolled to. */
function fitBeside() {
  const top = Math.max(16, byId("overview").getBoundingClientRect().top);
  byId("panel").style.setProperty("--room", `${innerHeight - top - 16}px`);
}

/** Return to the cell whose arithmetic was shown. */
function leaveArithmetic() {
  const cursor = openCell?.cursor;
  closeArithmetic();
  heatmaps.forEach((heatmap) => heatmap.layOut());
  cursor?.focus();
}

function closeArithmetic() {
  openCell = null;
  if (isAt("number")) showLevel("matrix");
  updateLink();
  document.documentElement.classList.remove("calculating");
  byId("close").hidden = true;
  byId("arithmetic-title").textContent = say("Arithmetic");
  byId("sums").replaceChildren(
    make(
      "p",
      { class: "note" },
      // prettier-ignore
      say("Click a cell, or press Enter on it, to see its numbers from the dot product to the context vector."),
    ),
  );
}

function showArithmetic() {
  const { layer, head, query, key } = openCell;
  const positions = { query: alignment.queries[query], key: alignment.keys[key] };
  const shown = traces.filter(
    (trace) =>
      hasHead(trace, layer, head) &&
      positions.query[trace.number] !== null &&
      positions.key[trace.number] !== null,
  );
  const position = (name) => positionsInWords(shown.map(({ number }) => positions[name][number]));
  byId("arithmetic-title").textContent = say(
    "Arithmetic of layer {layer}, head {head}, query {query}, key {key}",
    { layer, head, query: position("query"), key: position("key") },
  );
  byId("sums").replaceChildren(...shown.map(arithmeticOf));
  if (shown.length === 2 && !whyNoDifference) byId("sums").append(comparisonOf(shown));
}

function table(caption, heads, rows, foot, currentRow, onRowClick) {
  const body = rows.map(([heading, ...cells], n) => {
    const button = buttonOf(() => onRowClick(n), { class: "row-button" }, ...[heading].flat());
    const row = rowOf(button, cells, 4);
    if (n === currentRow) row.ariaCurrent = "true";
    return row;
  });
  return boxedTable(caption, heads, body, [rowOf(foot[0], foot.slice(1), 4)]);
}

function arithmeticOf(trace) {
  const { layer, head: h, component } = openCell;
  const [i, j] = cellIn(trace);
  const head = headOf(trace, layer, h);
  const { Dh, Tk, Q, K, V } = head;
  const chosen = Math.min(component, Dh - 1);
  const steps = Object.fromEntries(MATRICES.map((name) => [name, stepRow(head, name, i)]));
  const { weights } = steps;
  const computed = Object.fromEntries(
    [...MATRICES, "context"].map((name) => [name, uneditedRow(head, name, i)]),
  );
  const { run } = runOfHead(head, i);
  const scale = run.value(`${head.path}.scale`);
  const row = new Nd(steps.masked_scores, [Tk]);
  const [powers, [largest]] = [equations.exponentials(row), row.max(LAST).numbers()];
  const [exponentials, [sum]] = [powers.numbers(), powers.sum(LAST).numbers()];
  const context = stepRow(head, "context", i);
  const masked = isMasked(head, i, j);

  const line = (name, ...parts) =>
    make(
      "li",
      { "data-step": name },
      make("code", {}, `${formulaOf(name)}${head.edited.has(name) ? say(", edited") : ""}`),
      make("span", { class: "sum" }, ...parts),
      make("span", { class: "note" }, description.steps[name].purpose),
    );
  const result = (name, computed, x) => resultOf(head.edited.has(name), computed, x);
  const largestKey = steps.masked_scores.indexOf(largest);
  // How a step of this cell is computed; sums of products are in the table.
  const explained = (name) => {
    const working = new Working({
      indices: { row: i, column: j },
      inputs: inputsOfCell(head, i, j, { ...steps, scale, mask: !masked }),
      rowLetter: "key",
      largest: make("span", {}, ...sayParts("key {j}", { j: withSymbol(largestKey, trace.keys[largestKey]) })),
    });
    const { equation, whole } = trace.graph.node(`${head.path}.${name}`);
    const { lines } = description.explanations[equation || trace.graph.node(whole).equation];
    const all = working.lines(lines);
    return all.flatMap(([declared, tree, value], n) => {
      if (n === all.length - 1) {
        const shown = result(name, value, name === "scale" ? scale : steps[name][j]);
        if (sumIn(tree)[0]) return [say("sum of the {Dh} products: ", head), shown];
        return [...numbersIn(working, declared, tree, value, "").numbers, shown];
      }
      const { words, numbers } = numbersIn(working, declared, tree, value, "");
      return [`${words}: `, ...numbers, number(value), ...noteOf(working, declared), make("br", {})];
    });
  };
  const chain = make(
    "ol",
    { class: "chain" },
    ...["raw_scores", "scale", "scores", "masked_scores", "weights"].map((name) =>
      line(name, ...explained(name)),
    ),
    line(
      "context",
      say("component {chosen}: key {j} adds ", { chosen, j }),
      number(weights[j]),
      " × ",
      number(V[j * Dh + chosen]),
      " = ",
      number(weights[j] * V[j * Dh + chosen]),
      say("; sum over all keys: "),
      result("context", computed.context[chosen], context[chosen]),
    ),
  );

  const choose = (name, chosen) => (n) => {
    const scrolled = Array.from(
      document.querySelectorAll("#sums .table"),
      (part) => part.scrollTop,
    );
    openCell[name] = chosen(n);
    updateLink();
    showArithmetic();
    for (const heatmap of heatmaps) heatmap.mark();
    document.querySelectorAll("#sums .table").forEach((part, t) => {
      part.scrollTop = scrolled[t];
    });
    document
      .querySelector(
        `#sums [data-trace="${trace.number}"] [data-rows="${name}"] tr[aria-current] button`,
      )
      .focus({ preventScroll: true });
  };
  // A vector's name, linked to how the forward pass computes it if its token is in this text.
  const vector = (name, position, words) => {
    if (position < 0) return words;
    // Not a button: browsers omit buttons from table heads that are repeated on printed pages.
    const link = make("a", { href: "#pass", class: "leads", title: say("How it is computed") }, words);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      goToVector(trace, position, name, chosen);
    });
    return link;
  };
  const components = table(
    say("The {Dh} components of query {i} and key {j}", { Dh, i, j }),
    [
      "d",
      vector("Q", i, `Q[${i}]`),
      vector("K", j - trace.cached, `K[${j}]`),
      say("product"),
      vector("V", j - trace.cached, `V[${j}]`),
      say("weight × V"),
      vector("concat", i, `context[${i}]`),
    ],
    Array.from({ length: Dh }, (_, d) => [
      String(d),
      Q[i * Dh + d],
      K[j * Dh + d],
      Q[i * Dh + d] * K[j * Dh + d],
      V[j * Dh + d],
      weights[j] * V[j * Dh + d],
      context[d],
    ]),
    [say("sum"), "", "", computed.raw_scores[j], "", "", ""],
    chosen,
    choose("component", (n) => n),
  );
  const keys = table(
    say("The row of query {i}: its largest masked score is {largest}", {
      i,
      largest: format(largest, 6),
    }),
    [
      say("key"),
      "raw_scores",
      "scores",
      "masked_scores",
      say("exp(· − largest)"),
      "weights",
      `V[·, ${chosen}]`,
      say("weight × V"),
    ],
    trace.keys.map((token, n) => [
      [`${n} `, symbolOf(brief(token.symbol))],
      steps.raw_scores[n],
      steps.scores[n],
      steps.masked_scores[n],
      exponentials[n],
      weights[n],
      V[n * Dh + chosen],
      weights[n] * V[n * Dh + chosen],
    ]),
    [say("sum"), "", "", "", sum, weights.reduce((a, b) => a + b), "", computed.context[chosen]],
    j,
    choose("key", (n) => alignment.keys.findIndex((positions) => positions[trace.number] === n)),
  );
  components.dataset.rows = "component";
  keys.dataset.rows = "key";
  keys
    .querySelectorAll("tbody tr")
    .forEach((row, n) => row.classList.toggle("masked", !isSeen(head, i * Tk + n)));

  const title = make(
    "p",
    { class: "pair" },
    ...(traces.length === 2 ? [make("b", {}, `${trace.name}: `)] : []),
    ...sayParts("how {query} attends to {key}", {
      query: symbolOf(brief(trace.tokens[i].symbol)),
      key: symbolOf(brief(trace.keys[j].symbol)),
    }),
  );
  return make(
    "article",
    { "data-trace": trace.number },
    title,
    chain,
    make("div", { class: "tables" }, components, keys),
  );
}

/** The inputs of the cell's steps, by parameter, as in `Working`. */
function inputsOfCell({ trace, layer, Q, K, Dh, edited }, i, j, { mask, scale, ...rows }) {
  const { divide_by_sqrt_d, ...hyperparameters } = trace.hyperparameters;
  const layer_number = hyperparameters[`blocks.${layer}.attention.layer_number`];
  const valuesOfRow = (row) => (indices) => (indices.includes(":") ? row : row[j]);
  const inputs = {
    ...Object.fromEntries(Object.entries(rows).map(([name, row]) => [name, { values: valuesOfRow(row) }])),
    mask: { values: () => mask, isEdited: edited.has("mask") },
    scale: { values: () => scale },
    divide_by_sqrt_d: { values: () => divide_by_sqrt_d },
    layer_number: layer_number === undefined ? null : { values: () => layer_number },
    Q: { values: () => Q.subarray(i * Dh, (i + 1) * Dh) },
    K: { values: () => K.subarray(j * Dh, (j + 1) * Dh) },
    dropout_mask: null,
  };
  return Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input && { name, ...input }]));
}

/** A trace's query and key whose arithmetic is shown. */
const cellIn = ({ number }) => [alignment.queries[openCell.query][number], alignment.keys[openCell.key][number]];

function comparisonOf(shown) {
  const { layer, head } = openCell;
  const rows = MATRICES.map((step) => {
    const [a, b] = shown.map((trace) => {
      const [i, j] = cellIn(trace);
      return stepRow(headOf(trace, layer, head), step, i)[j];
    });
    const difference = a === b ? 0 : b - a; // 0 also for two -inf
    return rowOf(step, [a, b, difference], 6);
  });
  const table = boxedTable(say("Both, and their difference"), [say("step"), "A", "B", DIFFERENCE], rows);
  return make("article", { class: "compared" }, table);
}
