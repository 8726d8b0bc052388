// The logit lens and direct logit attribution, as attnlab/analysis/lens.py and attribution.py compute them.

import { concatenated, Nd, nd, REST } from "./arrays.js";
import { equations } from "./equations.js";
import { Run } from "./run.js";

/** The points of the residual stream that the logit lens reads. */
export const pointsOfLens = (layers) => ["embedding", ...Array.from({ length: layers }, (_, n) => [`blocks.${n}.mid`, `blocks.${n}.output`]).flat()];

/**
 * The gradient of a logit with respect to the final LayerNorm's input, times the LayerNorm's deviation.
 *
 * w: the token's column of W_U, or a weighted sum of columns.
 */
export function directionOf(run, w) {
  const scaled = nd.multiply(run.value("gain"), w.reshape(w.size));
  return nd.subtract(scaled, equations.mean(scaled));
}

/**
 * The pack "attribution.9.42". At position 9, for each point: the most probable token, its probability, and token
 * 42's probability and rank. Then what each head, each MLP, the embedding and the biases add to token 42's logit.
 *
 * run: over this position alone.
 */
export function attributionOf(run, { n_layer, n_embd }, { n_head, epsilon }, id) {
  const last = `blocks.${n_layer - 1}.output`;
  const points = pointsOfLens(n_layer);
  const rows = new Nd(concatenated(points.map((path) => run.value(path))), [points.length, n_embd]);
  const lensRun = new Run(run.graph, (path) => (path === last ? rows : run.inputOf(path))); // from these rows to logits
  const lens = points.flatMap((_, n) => {
    const logits = nd.item(lensRun.value("logits"), n).numbers();
    const p = equations.softmax(new Nd(Float64Array.from(logits), [logits.length])).numbers();
    const best = p.reduce((best, probability, id) => (probability > p[best] ? id : best), 0);
    return [best, p[best], p[id], 1 + p.filter((probability) => probability > p[id]).length];
  });
  const w = nd.item(run.value("W_U"), REST, nd.slice(id, id + 1));
  const x = run.value(last);
  // The gradient of the logit, with the deviation held constant.
  const u = nd.divide(directionOf(run, w), equations.deviation(nd.subtract(x, equations.mean(x)), epsilon));
  const dot = (a, b) => nd.matmul(a.reshape(1, n_embd), b.reshape(n_embd, 1)).numbers()[0];
  const contribution = (path) => dot(run.value(path), u);
  const blocks = Array.from({ length: n_layer }, (_, n) => `blocks.${n}`);
  const heads = blocks.flatMap((block) => Array.from({ length: n_head }, (_, h) => contribution(`${block}.attention.heads.${h}.output`)));
  const mlps = blocks.map((block) => contribution(`${block}.mlp.output`));
  const biases = blocks.reduce((sum, block) => sum + contribution(`${block}.attention.b_O`), dot(run.value("bias"), w));
  return Float32Array.from([...lens, ...heads, ...mlps, contribution("embedding"), biases]);
}
