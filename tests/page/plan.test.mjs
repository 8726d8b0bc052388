import assert from "node:assert/strict";
import test from "node:test";

import { endsOfCurve, isOnCurve, loopAt, mapPosition, planOf, positionsToDraw, stagesOf } from "../scripts/drawing/plan.js";

const SHOWN = { available: 1200, nameWidth: 96, scale: 1, room: 700, isPhone: false, isBlock: false, isPresented: false, isPrinted: false };

const plan = (sizes, shown = {}) =>
  planOf(sizes, { ...SHOWN, count: sizes.layers, ...shown }, (count) =>
    Array.from({ length: Math.min(sizes.T, count) }, (_, n) => Math.max(0, sizes.T - count) + n),
  );

for (const sizes of [
  { layers: 1, H: 1, T: 1 },
  { layers: 2, H: 4, T: 8 },
  { layers: 3, H: 5, T: 12 },
  { layers: 12, H: 12, T: 3 },
  { layers: 2, H: 12, T: 100 },
])
  for (const shown of [{}, { available: 370, isPhone: true }, { isBlock: true, count: 1 }, { isPresented: true }, { isPrinted: true }, { scale: 1.5 }])
    test(`nothing overlaps: ${JSON.stringify([sizes, shown])}`, () => {
      const made = plan(sizes, shown);
      const { size, pitch, height } = made.grid;
      assert.ok(size >= 8 && pitch > size);
      const count = shown.count ?? sizes.layers;
      for (let n = 0; n < count; n++) {
        const places = Array.from({ length: sizes.H }, (_, head) => mapPosition(made, n, head));
        for (const [m, [x, y]] of places.entries()) {
          // Each map lies above its block, at most as far to each side as half an MLP, and beside the others.
          const beyond = shown.isBlock ? 0 : (made.starts[3 + 2 * n] - made.starts[2 + 2 * n]) / 2;
          assert.ok(x >= made.starts[1 + 2 * n] - beyond && x + size <= made.starts[2 + 2 * n] + beyond + 1);
          assert.ok(y + size <= made.top);
          for (const [otherX, otherY] of places.slice(0, m))
            assert.ok(Math.abs(x - otherX) >= size || Math.abs(y - otherY) >= size);
        }
      }
      assert.ok(made.starts.every((x, n) => n === 0 || x > made.starts[n - 1]));
      assert.equal(made.starts.length, 2 + 2 * count);
      assert.ok(height <= made.top);
      assert.ok(made.left - 14 >= 96); // room for the names
      const lines = [...made.lines.values()];
      assert.deepEqual([...made.lines.keys()], made.positions);
      assert.ok(lines.length <= 24);
      assert.ok(lines[0] - made.line / 2 >= made.top - 1e-9 && lines.at(-1) + made.line / 2 <= made.height);
      for (let n = 1; n < lines.length; n++) assert.ok(lines[n] - lines[n - 1] >= 20);
      assert.equal(made.positions.at(-1), sizes.T - 1);
    });

test("where tokens are hidden, also before the first one drawn, there is a mark with their number", () => {
  const { lines, marks, line, top } = planOf({ layers: 1, H: 1, T: 9 }, { ...SHOWN, count: 1 }, () => [2, 3, 7, 8]);
  assert.deepEqual(marks.map(({ count }) => count), [2, 3]);
  const [start, middle] = marks.map(({ y }) => y);
  assert.ok(top < start && start < lines.get(2) - line / 2);
  assert.ok(lines.get(3) + line / 2 < middle && middle < lines.get(7) - line / 2);
  assert.equal(lines.get(3) - lines.get(2), line);
});

test("a single token is never hidden", () => {
  const chosen = { 6: [0, 2, 5, 7, 8, 9], 5: [0, 5, 7, 8, 9], 4: [0, 7, 8, 9] };
  assert.deepEqual(positionsToDraw(6, (count) => chosen[count]), [0, 5, 6, 7, 8, 9]);
  assert.deepEqual(positionsToDraw(4, (count) => chosen[count]), [0, 7, 8, 9]);
  assert.deepEqual(positionsToDraw(4, () => [1, 2, 3]), [0, 1, 2, 3]); // before the first one
});

test("a curve goes from the key's line to the query's", () => {
  const made = plan({ layers: 2, H: 4, T: 8 });
  const ends = endsOfCurve(made, 1, { i: 7, j: 1 });
  assert.deepEqual([ends.keyY, ends.queryY], [made.lines.get(1), made.lines.get(7)]);
  const [middleX, middleY] = [(ends.from + ends.to) / 2, (ends.keyY + ends.queryY) / 2];
  for (const [x, y, expected] of [
    [ends.from, ends.keyY, true],
    [ends.to, ends.queryY, true],
    [middleX, middleY, true],
    [middleX, middleY + 6, false],
    [ends.from - 1, ends.keyY, false],
    [ends.to + 1, ends.queryY, false],
  ])
    assert.equal(isOnCurve(ends, x, y), expected, `${x}, ${y}`);
  // At a quarter of the parameter, the Bézier curve with horizontal ends is at 19/64 of its width, 5/32 of its height.
  const at = (t, a, b) => a + t * (b - a);
  assert.ok(isOnCurve(ends, at(19 / 64, ends.from, ends.to), at(5 / 32, ends.keyY, ends.queryY)));
});

test("a token that attends to itself has a loop above its line, before the block's end", () => {
  const made = plan({ layers: 2, H: 4, T: 8 });
  const ends = endsOfCurve(made, 1, { i: 7, j: 7 });
  const { x, y, radius } = loopAt(ends);
  assert.ok(x + radius < ends.to && y + radius <= made.lines.get(7) && y - radius > made.lines.get(6));
  assert.ok(isOnCurve(ends, x + radius, y));
  assert.ok(!isOnCurve(ends, x + radius + 6, y));
  assert.ok(!isOnCurve(ends, ends.from, made.lines.get(7)));
});

test("a tour has at most seven stages", () => {
  assert.deepEqual([1, 2, 3, 4, 12].map((layers) => stagesOf(layers).length), [4, 6, 7, 7, 7]);
});

test("next tokens that don't fit beside the columns are below them", () => {
  const sizes = { layers: 12, H: 12, T: 8 };
  for (const [available, scale, isNarrow] of [[1380, 1, false], [968, 1, true], [968, 1.5, true], [360, 1, true]]) {
    const made = plan(sizes, { available, scale });
    assert.equal(made.isNarrow, isNarrow);
    // Beside the list, or scrolled in a box that is too narrow.
    assert.ok(made.width <= available - (isNarrow ? 0 : 232 * scale) || available === 360);
  }
});
