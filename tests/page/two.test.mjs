import assert from "node:assert/strict";
import test from "node:test";

import { openPage, until } from "./document.mjs";

// A: “The dog chased the ball, but it”. B: “The old dog chased the cat, but it”, with edited scores in head 1.2.
const page = await openPage("two", "saved", {
  hash: "#depth=lab",
  modules: ["state/store", "state/traces", "state/actions", "state/link", "state/story", "drawing/elements", "sources/rows"],
});
const { byId, selection, set } = page;
const flat = ({ textContent }) => textContent.replaceAll("\u00a0", " ");
const all = (selector) => document.findAll(selector).map(flat);
const settle = () => new Promise((done) => setTimeout(done, 30));
await until(() => page.traces[1].story && page.traces.every(({ loaded }) => loaded.size === 2));
const EDIT = "edited: blocks.1.attention.heads.2.scores";

test("what differs is named", () => {
  assert.equal(flat(byId("summary")), "A: 2 layers × 4 heads, 8 tokens · B: 2 layers × 4 heads, 9 tokens");
  assert.equal(flat(byId("about")), `A: pocket The dog chased the ball, but it · B: The old dog chased the cat, but it, ${EDIT}`);
  assert.deepEqual(all("#heatmaps h3"), [
    ...["A: “The dog chased the ball, but it”, not edited", `B: “The old dog chased the cat, but it”, ${EDIT}`, "B − A"],
  ]);
  assert.ok(document.body.classList.contains("comparing"));
  assert.deepEqual(page.views.map(({ T, Tk, isDifference }) => [T, Tk, isDifference]), [[8, 8, false], [9, 9, false], [8, 8, true]]);
  assert.deepEqual(page.views[2].symbols.keys.slice(3, 6), ["Ġthe", "Ġball | Ġcat", ","]);
});

test("tokens correspond, and a token of one text is followed by the one before it in the other", async () => {
  const [a, b] = page.traces;
  assert.deepEqual(page.alignment.queries, [[0, 0], [null, 1], ...[1, 2, 3, 4, 5, 6, 7].map((n) => [n, n + 1])]);
  assert.deepEqual([0, 1, 2, 8].map((query) => page.queryIn(a, query)), [0, 0, 1, 7]);
  assert.deepEqual([0, 1, 2, 8].map((query) => page.queryIn(b, query)), [0, 1, 2, 8]);
  assert.deepEqual([page.queryOf(a, 1), page.queryOf(b, 1), page.keyOf(a, 7), page.keyOf(b, 0)], [2, 1, 8, 0]);
  await page.openHead(1, 2);
  page.select(2, 1);
  assert.deepEqual(document.findAll(".cursor").map(({ ariaLabel }) => ariaLabel.split(", weights")[0]), [
    ...["query 1 Ġdog, key 0 The", "query 2 Ġdog, key 1 Ġold", "query 1 | 2 Ġdog, key 0 The"],
  ]);
  const isNearest = all(".readout").map((text) => text.startsWith("no such pair here; nearest: "));
  assert.deepEqual(isNearest, [true, false, true]);
});

test("keys are chosen in the first text that has the query, and stay beside a head's new one", async () => {
  await page.openHead(1, 2);
  page.select(8);
  assert.equal(selection.key, 2); // where A looks most: dog
  page.select(1); // only B has it
  const row = page.stepRow(page.headOf(page.traces[1], 1, 2), "weights", 1);
  assert.equal(selection.key, row[0] > row[1] ? 0 : 1);
  page.select(8, 5);
  await page.openHead(1, 2);
  assert.equal(selection.key, 5);
  await page.openHead(1, 0);
  assert.equal(selection.key, 5); // the strongest here: ball
  page.select(8, 0);
  await page.openHead(1, 2);
  assert.equal(selection.key, 2);
});

test("numbers are compared; of what is masked in both, the difference is 0", async () => {
  await page.openHead(1, 2);
  const compared = async (query, key) => {
    page.openCellAt({ layer: 1, head: 2, query, key, component: 0 });
    await settle();
    const rows = byId("sums").findAll(".compared tbody tr");
    return rows.map((row) => row.findAll("data").map(({ value }) => Number(value)));
  };
  const close = (x, y) => assert.ok(Math.abs(x - y) < 1e-6 * Math.max(1, Math.abs(y)), `${x}, not ${y}`);
  for (const [a, b, difference] of await compared(8, 0)) close(difference, b - a);
  const [raw, scores] = await compared(8, 0);
  close(scores[0], raw[0] / Math.sqrt(32));
  close(scores[1], (-1.5 * raw[1]) / Math.sqrt(32));
  assert.equal(flat(byId("arithmetic-title")), "Arithmetic of layer 1, head 2, query 7 | 8, key 0");
  assert.match(flat(byId("sums").findAll('[data-step="scores"]')[1]), /^scores = raw_scores \/ scale, edited.*; edited here: .* instead/);
  assert.doesNotMatch(flat(byId("sums").findAll('[data-step="scores"]')[0]), /edited/);
  const masked = await compared(2, 5);
  assert.deepEqual(masked.slice(2), [[-Infinity, -Infinity, 0], [0, 0, 0]]);
  assert.deepEqual(all("#sums .pair"), ["A: how Ġdog attends to Ġball", "B: how Ġdog attends to Ġcat"]);
  await compared(1, 1); // only B has both
  assert.deepEqual(all("#sums .pair"), ["B: how Ġold attends to Ġold"]);
  assert.equal(all("#sums .compared").length, 0);
  page.closeArithmetic();
});

test("the colours of A and B are comparable, and what is edited is said", async () => {
  await page.openHead(1, 2);
  set({ step: "scores" });
  const legends = () => document.findAll(".ticks").map((ticks) => ticks.findAll("span").map((tick) => Number(flat(tick))));
  const [a, b, difference] = legends();
  const boundOf = (view) => Math.max(...page.matrixOf(view, selection).map(Math.abs));
  const shared = Math.max(boundOf(page.views[0]), boundOf(page.views[1]));
  assert.deepEqual(a, b);
  assert.ok(Math.abs(a[2] - shared) < 1e-3 * shared && difference[2] > shared * 1.01 && a[0] === -a[2]);
  assert.ok(Math.abs(difference[2] - boundOf(page.views[2])) < 1e-3 * shared);
  assert.equal(flat(byId("formula")), "scores = raw_scores / scale, edited in B");
  set({ step: "weights" });
  assert.deepEqual(legends(), [...Array(2).fill([0, 0.01, 0.1, 0.25, 0.5, 1]), [-1, -0.25, 0, 0.25, 1]]);
  set({ step: "masked_scores" });
  page.select(2, 5);
  const numbers = document.findAll(".readout strong").map(flat);
  assert.deepEqual(numbers, ["-inf masked", "-inf masked", "0.0000 masked"]);
  set({ step: "weights" });
  await page.openHead(0, 0);
  assert.equal(flat(byId("formula")), "weights = softmax(masked_scores)");
});

test("why a difference is 0", async () => {
  const why = async (layer, head, step) => {
    await page.openHead(layer, head);
    set({ step });
    return all("#heatmaps .why");
  };
  assert.deepEqual(await why(0, 0, "weights"), ["", "", "0 up to query 0: both texts are the same up to there, and later tokens are masked."]);
  assert.deepEqual(await why(1, 2, "scores"), ["", "", ""]); // edited from the first query on
  set({ step: "weights" });
});

test("the passes of the two texts", async () => {
  page.select(8);
  await page.goTo("blocks.0.mid", 1, 0);
  await until(() => flat(byId("pass-title")).startsWith("Ġit, token 7,"));
  await page.goTo("blocks.0.mid", 1, 1);
  await until(() => flat(byId("pass-title")).startsWith("Ġit, token 8,"));
  assert.deepEqual(all("#pass-traces label"), ["A", "B"]);
  page.select(1);
  await until(() => flat(byId("pass-title")).startsWith("Ġold, token 1,"));
  await page.goTo("blocks.0.mid", 1, 0);
  await until(() => flat(byId("pass-title")).startsWith("The, token 0,"));
});

test("in Chinese too, what is edited follows the name of a text without a second comma", async () => {
  await page.showLanguage("zh");
  assert.deepEqual(all("#heatmaps h3").slice(0, 2), [
    "A: “The dog chased the ball, but it”, 未修改",
    "B: “The old dog chased the cat, but it”, 已修改：blocks.1.attention.heads.2.scores",
  ]);
  await page.showLanguage("en");
});
