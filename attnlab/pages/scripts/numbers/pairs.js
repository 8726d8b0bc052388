// A score as a sum over pairs, a part of the query times a part of the key, as attnlab/analysis/why.py computes it.

import { concatenated, Nd, nd } from "./arrays.js";
import { SHOWN_PAIRS } from "./constants.js";
import { equations } from "./equations.js";
import { largestTerms } from "./formats.js";

const TOLERANCE = 1e-4; // the largest error of a sum, relative to the sizes of its terms

/** The parts of a query or a key of a layer, in order: the kind of each, and the layer and head that wrote it. */
const partsOf = (layer, H) => [
  ...["token", "position"].map((kind) => ({ kind })),
  ...Array.from({ length: layer }, (_, writer) => [
    ...Array.from({ length: H }, (_, head) => ({ kind: "head", layer: writer, head })),
    ...["b_O", "mlp"].map((kind) => ({ kind, layer: writer })),
  ]).flat(),
  ...["norm", "bias"].map((kind) => ({ kind })), // what LayerNorm's bias and the projection's bias add
];

export const countOfParts = (layer, H) => partsOf(layer, H).length;

/** Part n of a query or a key. An n after the last part stands for all keys that come from a cache. */
export const readPart = (n, layer, H) => partsOf(layer, H)[n] ?? { kind: "cached" };

/**
 * The parts of Σ rows[t] (X[t] W + b), a weighted sum of a layer's queries or keys: (parts, Dh), in the order of
 * `partsOf`. rows: the weights, (1, T). b: the bias; if it is null, its part is 0.
 */
function vectorsOfParts(run, layer, rows, W, b) {
  const prefix = `blocks.${layer}.`;
  const n_head = run.value("n_head");
  const stream = run.value(`${prefix}input`);
  const gain = run.value(`${prefix}attention.gain`);
  const D = gain.size;
  const deviation = equations.deviation(nd.subtract(stream, equations.mean(stream)), run.value("epsilon"));
  const scaled = nd.divide(rows, deviation.reshape(1, deviation.size));
  const read = (path) => nd.matmul(scaled, run.value(path));
  const constant = scaled.sum({ axis: -1, keepdims: true }); // the factor of b_O, which is the same at all positions
  const parts = [read("token_embedding"), read("position_embedding")];
  for (let n = 0; n < layer; n++) {
    const block = `blocks.${n}.`;
    const W_O = run.value(`${block}attention.W_O`);
    const written = Array.from({ length: n_head }, (_, h) =>
      nd.matmul(
        nd.matmul(scaled, nd.item(run.value(`${block}attention.context`), h)), equations.rows_of_head(W_O, h, n_head),
      ),
    );
    const b_O = run.value(`${block}attention.b_O`); // if it is null, its part is 0
    written.push(b_O === null ? nd.multiply(parts[0], 0) : nd.multiply(constant, b_O.reshape(1, D)));
    // What the MLP wrote is the rest: the run keeps the stream, not the MLP's output.
    const mlp = written.reduce(
      (rest, part) => nd.subtract(rest, part), nd.subtract(read(`${block}output`), read(`${block}input`)),
    );
    parts.push(...written, mlp);
  }
  // (p - mean(p)) gain W = p (gain W - its mean over D)
  const gained = nd.multiply(gain.reshape(D, 1), W).swapaxes(0, 1);
  const folded = nd.subtract(gained, equations.mean(gained)).swapaxes(0, 1);
  const vectors = nd.matmul(new Nd(concatenated(parts), [parts.length, D]), folded);
  const total = rows.sum({ axis: -1, keepdims: true }); // a bias is in every row
  const normBias = nd.multiply(nd.matmul(run.value(`${prefix}attention.bias`).reshape(1, D), W), total);
  const projectionBias = b === null ? nd.multiply(normBias, 0) : nd.multiply(b.reshape(1, b.size), total);
  return new Nd(concatenated([vectors, normBias, projectionBias]), [parts.length + 2, vectors.shape[1]]);
}

/**
 * Explain score(query, key) - score(query, other) in a head: the largest products of a part of the query and a part of
 * the key, as [index of the query's part, index of the key's part, product, ...]. `other` may be "mean", the mean score
 * of the visible keys. Empty if the products don't sum to the difference, which happens when an edit replaced a sum.
 */
export function largestPairs(run, layer, head, query, key, other) {
  const prefix = `blocks.${layer}.attention.heads.${head}.`;
  const scores = nd.item(run.value(`${prefix}scores`), query).numbers();
  const mask = nd.item(run.value(`${prefix}mask`), query).numbers();
  const T = scores.length;
  const visible = mask.reduce((sum, isVisible) => sum + isVisible, 0);
  const subtracted = Float64Array.from(mask, (isVisible, j) =>
    other === "mean" ? isVisible / visible : Number(j === Number(other)),
  );
  const factors = subtracted.map((x, j) => Number(j === key) - x); // the difference is Σ factors[j] scores[j]
  const onlyQuery = Float64Array.from({ length: T }, (_, i) => Number(i === query));
  const vectorsOf = (rows, name) =>
    vectorsOfParts(run, layer, new Nd(rows, [1, T]), run.value(`${prefix}W_${name}`), run.value(`${prefix}b_${name}`));
  const Q = vectorsOf(onlyQuery, "Q");
  const K = vectorsOf(factors, "K");
  const products = equations.scores(equations.raw_scores(Q, K), run.value(`${prefix}scale`)).numbers();
  const total = factors.reduce((sum, x, j) => (x ? sum + x * scores[j] : sum), 0); // a hidden key's score may be -inf
  const [sum, size] = products.reduce(([sum, size], x) => [sum + x, size + Math.abs(x)], [0, Math.abs(total)]);
  if (!(Math.abs(sum - total) <= TOLERANCE * size)) return new Float32Array(); // also if NaN
  const { largest } = largestTerms(products, SHOWN_PAIRS);
  const count = K.shape[0]; // parts of the key
  return Float32Array.from(largest.flatMap((n) => [Math.floor(n / count), n % count, products[n]]));
}

/**
 * How many numbers each field of a query in the pack "why" has, if the file lists `count` pairs. The fields are: the
 * pairs' parts of the query, their parts of the key, their products at each key; for each key, a bound of the products
 * that the file leaves out; three keys; and two pairs that a sentence names, with three fields each: part of the query,
 * part of the key, and product. These have a number for each key, compared with the mean, one for the first of the
 * three keys, compared with the second, and one for the second, compared with the third. See attnlab/pages/pairs.py.
 */
const fieldSizes = (count, Tk) => (count ? [count, count, count * Tk, Tk, 3, ...Array(6).fill(Tk + 2)] : []);

/**
 * What `largestPairs` returns, from a file, or null if it doesn't have the pairs. Its pack "why" has the queries from
 * `first` on of some `heads`.
 * A file has few pairs. The result lists those that are surely larger than all that the file leaves out, and, where the
 * file has them, the two that a sentence names: the largest with the total's sign, and the largest with the other sign.
 */
export function largestPairsInFile(numbers, { heads, first }, { T, Tk }, { layer, head, query, key, other }) {
  const indexOfHead = heads.findIndex(([n, h]) => n === layer && h === head);
  if (indexOfHead < 0 || query < first) return null;
  let start = 0;
  const next = (count) => numbers.subarray(start, (start += count));
  // Queries differ in length, so those before this one are skipped one by one.
  for (let before = indexOfHead * (T - first) + query - first; before > 0; before--)
    fieldSizes(...next(1), Tk).forEach(next);
  const [count] = next(1);
  if (!count) return [];
  const [ofQuery, ofKey, values, bounds, ranked, ...ofSentence] = fieldSizes(count, Tk).map(next);
  const isMean = other === null;
  const bound = bounds[key] + (isMean ? 0 : bounds[other]); // no pair that the file leaves out is larger
  const all = Array.from(ofQuery, (m, n) => [
    m, ofKey[n], values[n * Tk + key] - (isMean ? 0 : values[n * Tk + other]),
  ]);
  const largest = all.filter(([, , x]) => Math.abs(x) >= bound);
  // The file has a sentence's pairs of two keys only if they are neighbours among its three keys, in that order.
  const rank = ranked.indexOf(key);
  const otherRank = ranked.indexOf(other);
  const firstRank = Math.min(rank, otherRank);
  const hasSentence = isMean || (firstRank >= 0 && Math.abs(rank - otherRank) === 1);
  const sign = !isMean && rank > otherRank ? -1 : 1; // the file has the products of the opposite comparison
  const numbersOf = (fields) => fields.map((field) => field[isMean ? key : Tk + firstRank]);
  const leading = numbersOf(ofSentence.slice(0, 3));
  const opposing = numbersOf(ofSentence.slice(3));
  const isOpposed = leading[2] * opposing[2] < 0; // [2] is the product; if not opposed, all pairs have one sign
  for (const [m, n, x] of hasSentence ? [leading, ...(isOpposed ? [opposing] : [])] : [])
    if (!largest.some(([a, b]) => a === m && b === n)) largest.push([m, n, sign * x]);
  return largest.length ? largest.sort((a, b) => Math.abs(b[2]) - Math.abs(a[2])) : null;
}
