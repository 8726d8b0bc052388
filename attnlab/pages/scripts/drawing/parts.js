// The parts of the model's picture, from its plan (see plan.js): where each is, and which is at a point. A part is
// {kind, i, x, y}, of token i, and by its kind:
//
//   vector   the token's vector in column `column` of the picture, a ribbon
//   added    what layer `layer`'s MLP adds to it, a disc
//   weight   a curve, {layer, head, i, j, weight}

import { endsOfCurve, isOnCurve, loopAt } from "./plan.js";

const REACH = 5; // how far from a part a pointer may be, in pixels

const discAt = ({ starts, lines }, n, layer, i) => ({
  ...{ kind: "added", i, layer, y: lines.get(i) },
  x: (starts[2 + 2 * n] + starts[3 + 2 * n]) / 2,
});

function partOfCurve(plan, layers, curve) {
  const ends = endsOfCurve(plan, layers.indexOf(curve.layer), curve);
  const { from, to, keyY, queryY } = ends;
  const { x, y } = curve.i === curve.j ? loopAt(ends) : { x: (from + to) / 2, y: (keyY + queryY) / 2 };
  return { kind: "weight", i: curve.i, curve, x, y };
}

const ribbonAt = ({ starts, lines }, column, i, x = (starts[column] + starts[column + 1]) / 2) => ({
  ...{ kind: "vector", i, column, x, y: lines.get(i) },
});

/** A token's parts, from left to right; `layers` are the drawn ones, `curves` the drawn curves. */
export function partsOf(plan, layers, curves, i) {
  const ribbons = plan.starts.slice(1).map((_, column) => ribbonAt(plan, column, i));
  const discs = layers.map((layer, n) => discAt(plan, n, layer, i));
  const own = curves.filter((curve) => curve.i === i).map((curve) => partOfCurve(plan, layers, curve));
  return [...ribbons, ...own, ...discs].sort((a, b) => a.x - b.x);
}

/** The part at a point, within `reach`: a disc before curves, the strongest of these first, and curves before ribbons. */
export function partAt(plan, layers, curves, { x, y }, reach = REACH) {
  const tokens = [...plan.lines];
  const discs = layers.flatMap((layer, n) => tokens.map(([i]) => discAt(plan, n, layer, i)));
  const disc = discs.find((disc) => Math.hypot(disc.x - x, disc.y - y) <= 3 + reach);
  if (disc) return disc;
  const curve = curves.findLast((curve) => isOnCurve(endsOfCurve(plan, layers.indexOf(curve.layer), curve), x, y, reach));
  if (curve) return { ...partOfCurve(plan, layers, curve), x, y };
  const distance = ([, lineY]) => Math.abs(lineY - y);
  const [i] = tokens.filter((token) => distance(token) <= reach).sort((a, b) => distance(a) - distance(b))[0] ?? [];
  const column = plan.starts.findLastIndex((start) => start <= x);
  return i === undefined || column < 0 || column + 1 >= plan.starts.length ? null : ribbonAt(plan, column, i, x);
}
