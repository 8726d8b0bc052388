// What the model's picture paints on its canvas, from its plan (see plan.js) and numbers. A `look` says how:
//
//   query, isFollowing  the selected token, and whether only its path is shown
//   stage               of the tour, or undefined
//   isOpen(curve)       whether a curve is the open head's
//   inks                colours by name
//   thickness(norm)     of a ribbon

import { curveTo, endsOfCurve, loopAt, ribbonPath } from "./plan.js";

/** A background for each block's attention. */
export function paintBands(context, { starts, top, height }, { band }) {
  context.fillStyle = band;
  for (let n = 1; n + 1 < starts.length; n += 2) {
    context.beginPath();
    context.roundRect(starts[n], top - 8, starts[n + 1] - starts[n], height - top + 2, 12);
    context.fill();
  }
}

/** The residual stream: a ribbon for each token, as thick as its vector is long; `normsOf(i)` are in the columns' order. */
export function paintRibbons(context, { starts, lines }, normsOf, { query, isFollowing, inks, thickness }) {
  for (const [i, y] of lines) {
    context.fillStyle = i === query ? inks.accent : inks.flow;
    context.globalAlpha = i === query ? 0.6 : isFollowing ? 0.3 : 1;
    ribbonPath(context, starts, y, normsOf(i).map(thickness));
    context.fill();
  }
}

/** Dots across the picture where tokens are hidden. */
export function paintMarks(context, { marks, starts }, { muted }) {
  context.strokeStyle = muted;
  context.globalAlpha = 0.7;
  context.lineWidth = 1;
  context.setLineDash([1, 5]);
  for (const { y } of marks) strokeLine(context, starts[0], y, starts.at(-1), y);
  context.setLineDash([]);
}

/**
 * Weights as curves from keys to queries, as wide as they exceed uniform attention, see numbers/rest.js; the open
 * head's are on top. An ablated head's are thin and dashed.
 */
export function paintCurves(context, plan, layers, curves, look) {
  const { query, isFollowing, stage, isOpen, inks } = look;
  context.lineCap = "round";
  for (const isOnTop of [false, true])
    for (const curve of curves.filter((curve) => isOpen(curve) === isOnTop)) {
      const isHighlighted = stage ? isSameCurve(curve, stage.curve) : curve.i === query && (isOnTop || isFollowing);
      const width = Math.max(0, curve.excess);
      context.strokeStyle = !curve.isAblated && (isOnTop || (stage && isHighlighted)) ? inks.hot : inks.muted;
      const ends = endsOfCurve(plan, layers.indexOf(curve.layer), curve);
      const widest = curve.i === curve.j ? loopAt(ends).radius : Infinity; // a loop stays a ring
      context.lineWidth = curve.isAblated ? 1 : Math.min(widest, isHighlighted ? 1 + 9 * width : 0.5 + 2.5 * width);
      context.globalAlpha = isHighlighted ? 0.95 : isFollowing && curve.i !== query ? 0.05 : isOnTop ? 0.45 : curve.i === query ? 0.35 : 0.2;
      context.setLineDash(curve.isAblated ? [2, 4] : []);
      curvePath(context, ends);
      context.stroke();
    }
  context.setLineDash([]);
}

function curvePath(context, ends) {
  const { from, to, keyY, queryY } = ends;
  context.beginPath();
  if (keyY === queryY) {
    const { x, y, radius } = loopAt(ends);
    return context.arc(x, y, radius, 0, 2 * Math.PI);
  }
  context.moveTo(from, keyY);
  return curveTo(context, from, keyY, to, queryY);
}

/**
 * How much attention rests on the first token, at the left edge of each block: a thin line from the first token down,
 * and at each token's line a tick, as long as `share(layer, i)`, the mean of the heads; on it the open head's.
 */
export function paintRest(context, plan, layers, { share, shareOfOpenHead }, { query, isFollowing, inks }) {
  const { starts, lines, unit, positions } = plan;
  const length = Math.min(24, 0.25 * unit);
  for (const [n, layer] of layers.entries()) {
    const x = starts[1 + 2 * n] + 3;
    const tick = (i, fraction, width) => {
      context.lineWidth = width;
      context.globalAlpha = i === query ? 1 : isFollowing ? 0.15 : 0.6;
      strokeLine(context, x, lines.get(i), x + length * fraction, lines.get(i));
    };
    context.strokeStyle = inks.muted;
    context.lineWidth = 1;
    context.globalAlpha = 0.5;
    strokeLine(context, x, lines.get(positions[0]), x, lines.get(positions.at(-1)));
    for (const i of positions) tick(i, share(layer, i), 2);
    context.strokeStyle = inks.hot;
    for (const i of positions) tick(i, shareOfOpenHead(layer, i), 2);
  }
}

function strokeLine(context, x, y, toX, toY) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(toX, toY);
  context.stroke();
}

const isSameCurve = (a, b) => b && a.layer === b.layer && a.head === b.head && a.i === b.i && a.j === b.j;

/** What each MLP adds to a token, as a disc whose area is `share(layer, i)`, of the largest norm. */
export function paintDiscs(context, { starts, lines, line }, layers, share, { query, isFollowing, stage, inks }) {
  context.lineWidth = 1.5;
  for (const [n, layer] of layers.entries())
    for (const [i, y] of lines) {
      const radius = (2 + 9 * share(layer, i) ** 0.5) * Math.min(1, line / 32);
      context.beginPath();
      context.arc((starts[2 + 2 * n] + starts[3 + 2 * n]) / 2, y, radius, 0, 2 * Math.PI);
      context.globalAlpha = isFollowing && i !== query ? 0.25 : 1;
      context.fillStyle = stage?.layer === layer && stage.token === i ? inks.hot : inks.raised;
      context.strokeStyle = i === query ? inks.accent : inks.muted;
      context.fill();
      context.stroke();
    }
}

/** Frame a stage's columns, and dim the earlier ones. */
export function paintStage(context, { starts, top, height }, { from, to, name }, { accent, paper }) {
  context.globalAlpha = 0.6;
  context.fillStyle = paper;
  context.fillRect(starts[0], top - 9, starts[from] - starts[0], height);
  context.globalAlpha = 1;
  if (name === "next") return;
  context.strokeStyle = accent;
  context.lineWidth = 2;
  context.beginPath();
  context.roundRect(starts[from] + 1, top - 8, starts[to] - starts[from] - 2, height - top + 2, 12);
  context.stroke();
}
