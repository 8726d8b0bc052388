// The steps beside attention's chain, as attnlab/equations.py has them: sums of the residual stream,
// LayerNorm, linear maps, activations. Numbers go in, numbers come out; nothing here draws. Sums are
// made in float64, from float32 numbers.

const mean = (x) => added(x) / x.length;

/** How far the numbers of a vector lie apart: the root of their variance, made a little larger. */
const deviation = (variance, epsilon) => Math.sqrt(variance + epsilon);

/** LayerNorm, and what it passes through. */
function layerNorm(x, { gain, bias, epsilon }) {
  const numbers = Float64Array.from(x);
  const middle = mean(numbers);
  const centred = numbers.map((number) => number - middle);
  const variance = mean(centred.map((number) => number ** 2));
  const width = deviation(variance, epsilon);
  const normalised = centred.map((number) => number / width);
  const row = normalised.map((number, c) => number * gain[c] + bias[c]);
  return { mean: middle, centred, variance, deviation: width, normalised, row };
}

/** Two vectors added up. In float32, as the next sum is made of what the model rounded. */
const residual = (stream, written) => stream.map((x, c) => x + written[c]);

/** What a row makes with a column of a matrix: its products, which are added up with the bias. */
const products = (row, column) => Float64Array.from(row, (x, n) => x * column[n]);

const affine = (row, { column, bias }) => added(products(row, column)) + bias;

// ---- activations -----------------------------------------------------------------------------------

const sigmoid = (x) => 0.5 * (1 + Math.tanh(0.5 * x));

/** What GELU takes tanh of. */
const insideTanh = (x) => Math.sqrt(2 / Math.PI) * ((1 + 0.044715 * x ** 2) * x);

/** Of a normal distribution what lies below x. */
const normalShare = (x) => 0.5 * (1 + erf(x / Math.SQRT2));

// What share of x an activation lets pass, by the names that formulas have for them: it makes x · share.
const SHARES = {
  GELU: (x) => 0.5 * (1 + Math.tanh(insideTanh(x))),
  "exact GELU": normalShare,
  "quick GELU": (x) => sigmoid(1.702 * x),
  SiLU: sigmoid,
  ReLU: (x) => Number(x > 0),
};

// Quotients of polynomials, the highest power's factor first. Source: W. J. Cody, "Rational Chebyshev
// Approximations for the Error Function" (1969), see attnlab/erf.py.
const NEAR = [
  [
    1.85777706184603153e-1, 3.1611237438705656, 1.13864154151050156e2, 3.77485237685302021e2,
    3.20937758913846947e3,
  ],
  [1, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3],
];
const FAR = [
  [
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1,
    2.98635138197400131e2, 8.8195222124176909e2, 1.71204761263407058e3, 2.05107837782607147e3,
    1.23033935479799725e3,
  ],
  [
    1, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
    3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
  ],
];

/** The error function, 2/√π · the integral of exp(-t²) from 0 to x. */
function erf(x) {
  const polynomial = (factors, at) => factors.reduce((sum, factor) => sum * at + factor);
  const quotient = ([above, below], at) => polynomial(above, at) / polynomial(below, at);
  const distance = Math.min(Math.abs(x), 6);
  const square = distance ** 2;
  if (distance <= 0.46875) return x * quotient(NEAR, square);
  return Math.sign(x) * (1 - Math.exp(-square) * quotient(FAR, distance));
}

// ---- the way of a token ----------------------------------------------------------------------------

// What a stop of a block is made of, by names in the same block, as attnlab/forward/forward_pass.py declares it.
const OF_BLOCK = {
  input: { equation: "same" },
  "attention.X": { equation: "layer_norm", needs: ["input"] },
  "attention.Q": { equation: "affine", needs: ["attention.X"], map: "attention.W_Q" },
  "attention.K": { equation: "affine", needs: ["attention.X"], map: "attention.W_K" },
  "attention.V": { equation: "affine", needs: ["attention.X"], map: "attention.W_V" },
  "attention.concat": { equation: "concat" },
  "attention.output": { equation: "affine", needs: ["attention.concat"], map: "attention.W_O" },
  mid: { equation: "residual", needs: ["input", "attention.output"] },
  "mlp.X": { equation: "layer_norm", needs: ["mid"] },
  "mlp.hidden": { equation: "affine", needs: ["mlp.X"], map: "mlp.W_1" },
  "mlp.activated": { equation: "activated", needs: ["mlp.hidden"] },
  "mlp.output": { equation: "affine", needs: ["mlp.activated"], map: "mlp.W_2" },
  output: { equation: "residual", needs: ["mid", "mlp.output"] },
};

/** All stops of a model in the order in which they are walked, each with what it is made of. */
function stopsOf(layers) {
  const before = [
    { path: "token_embedding", equation: "row" },
    { path: "position_embedding", equation: "row" },
    { path: "embedding", equation: "residual", needs: ["token_embedding", "position_embedding"] },
  ];
  const inBlocks = Array.from({ length: layers }, (_, layer) =>
    Object.entries(OF_BLOCK).map(([name, { needs, map, equation }]) => ({
      path: `blocks.${layer}.${name}`,
      layer,
      equation,
      map: map && `blocks.${layer}.${map}`,
      norm: 2 * layer + (name === "mlp.X"),
      needs: needs?.map((need) => `blocks.${layer}.${need}`) ?? [
        layer ? `blocks.${layer - 1}.output` : "embedding",
      ],
    })),
  );
  const last = layers ? `blocks.${layers - 1}.output` : "embedding";
  const after = [
    { path: "final", equation: "layer_norm", needs: [last], norm: 2 * layers },
    { path: "logits", equation: "logits", needs: ["final"], map: "W_U" },
    { path: "probabilities", equation: "softmax", needs: ["logits"] },
  ];
  return [...before, ...inBlocks.flat(), ...after].map((stop) => ({
    needs: [],
    name: stop.path.replace(/^blocks\.\d+\./, ""),
    ...stop,
  }));
}

/** The n-th LayerNorm's parameters in the pack "norms". */
function normOf(norms, n, D) {
  const start = n * (2 * D + 1);
  return {
    gain: norms.subarray(start, start + D),
    bias: norms.subarray(start + D, start + 2 * D),
    epsilon: norms[start + 2 * D],
  };
}

/** The n-th column in a pack "columns", of a matrix of so many rows, with its bias. */
function columnIn(columns, n, rows) {
  const start = n * (rows + 1);
  return { column: columns.subarray(start, start + rows), bias: columns[start + rows] };
}

/**
 * A token's rows at the stops of the residual stream and of the MLPs, by path.
 *
 * Attention's others are made of its heads, see `rowOfHeads`.
 * numbers: the pack "way" of the token. norms: the pack "norms"; null where there is none.
 */
function rowsOfWay(stops, { carried, activation, D, F }, numbers, norms) {
  const rows = new Map();
  let end = 0;
  for (const path of carried) {
    const width = /\.(hidden|activated)$/.test(path) ? F : D;
    rows.set(path, numbers.subarray(end, (end += width)));
  }
  for (const stop of stops) {
    if (rows.has(stop.path)) continue;
    const made = madeBy(stop, rows, activation, norms && normOf(norms, stop.norm, D));
    if (made) rows.set(stop.path, made);
  }
  return rows;
}

/** What a stop's equation makes of the rows before it; undefined where it takes more than those. */
function madeBy({ equation, needs }, rows, activation, norm) {
  const [first, second] = needs.map((path) => rows.get(path));
  if (!first) return undefined;
  if (equation === "same") return first;
  if (equation === "residual") return second && residual(first, second);
  if (equation === "layer_norm") return norm ? layerNorm(first, norm).row : undefined;
  if (equation === "activated") return Float64Array.from(first, (x) => x * SHARES[activation](x));
  return undefined;
}

/** Row i of Q, K, V or concat, of all heads of a layer one after the other; K and V have keys' rows. */
function rowOfHeads(heads, name, i) {
  const rows = heads.map((head) => {
    const { Dh, T, Tk, given } = head;
    if (name === "concat") return given.context ? rowIn(given.context, i, Dh) : mixed(head, i);
    return rowIn(head[name], name === "Q" ? i : Tk - T + i, Dh);
  });
  return Float64Array.from(rows.flatMap((row) => [...row]));
}

const rowIn = (rows, i, width) => rows.subarray(i * width, (i + 1) * width);

const mixed = (head, i) => contextRow(head, stepRow(head, "weights", i));

/** The terms of a sum that are largest in size, by number, and what they and the others come to. */
function largestTerms(terms, count) {
  const largest = [...terms.keys()]
    .sort((a, b) => Math.abs(terms[b]) - Math.abs(terms[a]) || a - b)
    .slice(0, count);
  const chosen = new Set(largest);
  return {
    largest,
    sum: added(largest.map((n) => terms[n])),
    rest: added(terms.filter((_, n) => !chosen.has(n))),
  };
}
