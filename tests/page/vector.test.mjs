import assert from "node:assert/strict";
import test from "node:test";

import { paintBands, paintCurves, paintDiscs, paintMarks, paintRest, paintRibbons, paintStage } from "../scripts/drawing/paint.js";
import { svgElement, VectorContext } from "../scripts/drawing/vector.js";

test("texts are escaped", () => {
  assert.equal(svgElement("text", { fill: '"red"', x: 1.239 }, "a"), '<text fill="&quot;red&quot;" x="1.24">a</text>');
});

test("paths of lines, curves, corners and circles", () => {
  const context = new VectorContext();
  context.beginPath();
  context.moveTo(0, 1);
  context.bezierCurveTo(5, 1, 5, 9, 10, 9);
  Object.assign(context, { strokeStyle: "#f00", lineWidth: 2, globalAlpha: 0.5, lineCap: "round" });
  context.stroke();
  assert.equal(context.svg, '<path d="M0 1C5 1 5 9 10 9" fill="none" stroke="#f00" stroke-width="2" stroke-linecap="round" opacity="0.5"/>');
  context.setLineDash([3, 2]);
  context.stroke();
  assert.match(context.svg, /stroke-dasharray="3 2" opacity="0.5"\/>$/);
  context.svg = "";
  context.beginPath();
  context.arc(10, 10, 4, 0, 2 * Math.PI);
  context.fill();
  assert.equal(context.svg, '<path d="M14 10A4 4 0 0 1 6 10A4 4 0 0 1 14 10" fill="#000" opacity="0.5"/>');
  context.svg = "";
  context.beginPath();
  context.roundRect(0, 0, 10, 6, 2);
  context.fill();
  // It ends where it starts: 6 across, a corner, 2 down, and so on.
  assert.match(context.svg, /d="M2 0h6a2 2 0 0 1 2 2v2a2 2 0 0 1 -2 2h-6a2 2 0 0 1 -2 -2v-2a2 2 0 0 1 2 -2Z"/);
});

test("what is clipped is in a group that ends with it", () => {
  const context = new VectorContext("a-");
  context.save();
  context.beginPath();
  context.rect(0, 0, 5, 5);
  context.clip();
  context.fillRect(1, 1, 9, 9);
  context.restore();
  context.fillRect(2, 2, 1, 1);
  const clipped = '<clipPath id="a-clip0"><path d="M0 0h5v5h-5Z"/></clipPath><g clip-path="url(#a-clip0)">';
  const rects = ['<rect x="1" y="1" width="9" height="9" fill="#000" opacity="1"/>', '<rect x="2" y="2" width="1" height="1" fill="#000" opacity="1"/>'];
  assert.equal(context.svg, `${clipped}${rects[0]}</g>${rects[1]}`);
});

test("all that the picture paints can be recorded", () => {
  const context = new VectorContext();
  const plan = { starts: [0, 50, 150, 200], lines: new Map([[0, 40], [1, 80]]), positions: [0, 1], marks: [{ y: 60, count: 3 }], unit: 100, line: 20, top: 30, height: 100 };
  const inks = Object.fromEntries(["muted", "raised", "accent", "band", "flow", "paper", "hot"].map((name) => [name, "#123456"]));
  const stage = { name: "mlp", layer: 0, layers: [], from: 2, to: 3, token: 1 };
  const look = { query: 1, isFollowing: false, stage: undefined, isOpen: () => true, inks, thickness: () => 4 };
  paintBands(context, plan, inks);
  paintRibbons(context, plan, () => [1, 2, 3], look);
  paintMarks(context, plan, inks);
  const curve = { layer: 0, head: 0, i: 1, j: 0, weight: 0.7, excess: 0.6, isAblated: false };
  const [ablated, loop] = [{ ...curve, isAblated: true }, { ...curve, j: 1 }];
  const painted = context.svg.length;
  paintCurves(context, plan, [0], [ablated, curve, loop], look);
  // An ablated head's curve is dashed, and thinner than others of the same weight.
  const curves = context.svg.slice(painted).match(/<path[^>]*>/g);
  const widths = curves.map((path) => Number(/stroke-width="([\d.]+)"/.exec(path)[1]));
  assert.deepEqual(curves.map((path) => path.includes("dasharray")), [true, false, false]);
  assert.ok(widths[0] < widths[1]);
  assert.ok(curves[2].includes("A")); // a token that attends to itself has a circle
  paintRest(context, plan, [0], { share: () => 0.5, shareOfOpenHead: () => 0.25 }, look);
  paintDiscs(context, plan, [0], () => 0.5, look);
  paintStage(context, plan, stage, inks);
  assert.equal(context.svg.match(/<path/g).length, 1 + 2 + 1 + 3 + 5 + 4 + 1); // a disc is filled and stroked
  assert.ok(!/NaN|undefined/.test(context.svg));
});
