// A score as a sum over pairs, a part of the query times a part of the key, as attnlab/analysis/why.py computes it.

import { concatenated, Nd, nd } from "./arrays.js";
import { SHOWN_PAIRS } from "./constants.js";
import { equations } from "./equations.js";
import { largestTerms } from "./formats.js";

const TOLERANCE = 1e-4; // of a sum, relative to the sizes of its terms

/** How many parts a query or a key of a layer has, of a text without cached keys. */
export const countOfParts = (layer, H) => 4 + layer * (H + 2);

/** Part n of a query or a key: {kind}, and the layer and head that wrote it, if any. */
export function readPart(n, layer, H) {
  if (n < 2) return { kind: ["token", "position"][n] };
  const [writer, place] = [Math.floor((n - 2) / (H + 2)), (n - 2) % (H + 2)];
  if (writer >= layer) return { kind: ["norm", "bias", "cached"][n - countOfParts(layer, H) + 2] };
  return place < H
    ? { kind: "head", layer: writer, head: place }
    : { kind: place === H ? "b_O" : "mlp", layer: writer };
}

/** Σ rows[t] (X[t] W + b) as the vectors of its parts, (parts, Dh), in a layer's attention; rows: (1, T). */
function vectorsOfParts(run, layer, rows, W, b) {
  const [prefix, column, n_head] = [`blocks.${layer}.`, (x) => x.reshape(x.size, 1), run.value("n_head")];
  const stream = run.value(`${prefix}input`);
  const { size: D } = run.value(`${prefix}attention.gain`);
  const deviation = equations.deviation(nd.subtract(stream, equations.mean(stream)), run.value("epsilon"));
  const scaled = nd.divide(rows, deviation.reshape(1, deviation.size));
  const read = (path) => nd.matmul(scaled, run.value(path));
  const constant = scaled.sum({ axis: -1, keepdims: true }); // of what is the same at all positions
  const parts = [read("token_embedding"), read("position_embedding")];
  for (let n = 0; n < layer; n++) {
    const block = `blocks.${n}.`;
    const W_O = run.value(`${block}attention.W_O`);
    const written = Array.from({ length: n_head }, (_, h) =>
      nd.matmul(
        nd.matmul(scaled, nd.item(run.value(`${block}attention.context`), h)), equations.rows_of_head(W_O, h, n_head),
      ),
    );
    const b_O = run.value(`${block}attention.b_O`);
    written.push(b_O === null ? nd.multiply(parts[0], 0) : nd.multiply(constant, b_O.reshape(1, D)));
    // What the MLP wrote is the rest: the run keeps the stream, not the MLP's output.
    const mlp = written.reduce(
      (rest, part) => nd.subtract(rest, part), nd.subtract(read(`${block}output`), read(`${block}input`)),
    );
    parts.push(...written, mlp);
  }
  // (p - mean(p)) gain W = p (gain W - its mean over D)
  const gained = nd.multiply(column(run.value(`${prefix}attention.gain`)), W).swapaxes(0, 1);
  const folded = nd.subtract(gained, equations.mean(gained)).swapaxes(0, 1);
  const vectors = nd.matmul(new Nd(concatenated(parts), [parts.length, D]), folded);
  const total = rows.sum({ axis: -1, keepdims: true });
  const ofBias = nd.matmul(run.value(`${prefix}attention.bias`).reshape(1, D), W);
  const ofProjection = b === null ? nd.multiply(ofBias, 0) : nd.multiply(b.reshape(1, b.size), total);
  return new Nd(concatenated([vectors, nd.multiply(ofBias, total), ofProjection]), [
    parts.length + 2, vectors.shape[1],
  ]);
}

/**
 * The pack "why.1.2.7.4.3": of the score of query 7 and key 4 minus that of key 3, or "mean", the largest pairs: the
 * parts' indices, and the number. Empty if an edit replaced a sum. The run has the layers before.
 */
export function sumOf(run, layer, head, query, key, other) {
  const prefix = `blocks.${layer}.attention.heads.${head}.`;
  const scores = nd.item(run.value(`${prefix}scores`), query).numbers();
  const mask = nd.item(run.value(`${prefix}mask`), query).numbers();
  const T = scores.length;
  const visible = mask.reduce((sum, isVisible) => sum + isVisible, 0);
  const others = Float64Array.from(mask, (isVisible, j) =>
    other === "mean" ? -isVisible / visible : -(j === Number(other)),
  );
  const factors = others.map((x, j) => x + (j === key));
  const one = Float64Array.from({ length: T }, (_, i) => Number(i === query));
  const of = (rows, name) =>
    vectorsOfParts(run, layer, new Nd(rows, [1, T]), run.value(`${prefix}W_${name}`), run.value(`${prefix}b_${name}`));
  const [Q, K] = [of(one, "Q"), of(factors, "K")];
  const pairs = equations.scores(equations.raw_scores(Q, K), run.value(`${prefix}scale`)).numbers();
  const total = factors.reduce((sum, x, j) => (x ? sum + x * scores[j] : sum), 0);
  const [sum, size] = pairs.reduce(([sum, size], x) => [sum + x, size + Math.abs(x)], [0, Math.abs(total)]);
  if (!(Math.abs(sum - total) <= TOLERANCE * size)) return new Float32Array();
  const { largest } = largestTerms(pairs, SHOWN_PAIRS);
  const count = K.shape[0];
  return Float32Array.from(largest.flatMap((n) => [Math.floor(n / count), n % count, pairs[n]]));
}

/**
 * The same from the pack "why" of a file, with the queries from `first` of some `heads`; null if it doesn't have them.
 * Only pairs that are known to be the largest ones, and if the file has them the largest with the total's sign and
 * the largest with the other; null if there are none.
 */
export function sumInFile(numbers, { heads, first }, { T, Tk }, { layer, head, query, key, other }) {
  const place = heads.findIndex(([n, h]) => n === layer && h === head);
  if (place < 0 || query < first) return null;
  let start = 0;
  const next = (count) => numbers.subarray(start, (start += count));
  const lengthOf = ([count]) => (count ? 1 + count * (2 + Tk) + Tk + 3 + 6 * (Tk + 2) : 1);
  for (let before = place * (T - first) + query - first; before > 0; before--) next(lengthOf(numbers.subarray(start)));
  const [count] = next(1);
  if (!count) return [];
  const [ofQuery, ofKey, values, bounds, ranked, ...named] = [
    count, count, count * Tk, Tk, 3,
    ...Array(6).fill(Tk + 2),
  ].map(next);
  const isMean = other === null;
  const bound = bounds[key] + (isMean ? 0 : bounds[other]);
  const all = Array.from(ofQuery, (m, n) => [
    m, ofKey[n], values[n * Tk + key] - (isMean ? 0 : values[n * Tk + other]),
  ]);
  const largest = all.filter(([, , x]) => Math.abs(x) >= bound);
  const [one, two] = [ranked.indexOf(key), ranked.indexOf(other)];
  const hasNamed = isMean || (Math.min(one, two) >= 0 && Math.abs(one - two) === 1);
  const column = named.map((row) => row[isMean ? key : Tk + Math.min(one, two)]);
  const [leading, opposing] = [column.slice(0, 3), column.slice(3)];
  const isOpposed = leading[2] * opposing[2] < 0; // else all pairs have one sign
  for (const [m, n, x] of hasNamed ? [leading, ...(isOpposed ? [opposing] : [])] : [])
    if (!largest.some(([a, b]) => a === m && b === n)) largest.push([m, n, !isMean && one > two ? -x : x]);
  return largest.length ? largest.sort((a, b) => Math.abs(b[2]) - Math.abs(a[2])) : null;
}
