import assert from "node:assert/strict";
import test from "node:test";

import { openPage, until } from "./document.mjs";

// The step of generation that reads “rolled”, after the cached tokens of “The dog chased the ball, but it”.
const page = await openPage("cached", "saved", {
  hash: "#depth=lab",
  modules: ["state/store", "state/traces", "state/actions", "drawing/elements", "sources/rows", "sources/source"],
});
const { byId, selection } = page;
const flat = ({ textContent }) => textContent.replaceAll("\u00a0", " ");
const settle = () => new Promise((done) => setTimeout(done, 30));
await until(() => page.traces[0].story && page.traces[0].loaded.size === 2);
const [trace] = page.traces;

test("cached tokens are keys only", async () => {
  assert.equal(flat(byId("summary")), "2 layers × 4 heads, 1 token after 8 cached");
  assert.deepEqual(page.alignment, { queries: [[0]], keys: Array.from({ length: 9 }, (_, n) => [n]) });
  assert.deepEqual([page.queryOf(trace, 0), page.keyOf(trace, 8)], [0, 8]);
  page.select(0, 3);
  assert.match(document.querySelector(".cursor").ariaLabel, /^query 0 Ġrolled, key 3 cached 3, weights 0\.\d+$/);
  document.querySelector(".cursor").press("End");
  assert.deepEqual([selection.query, selection.key], [0, 8]);
  assert.match(flat(document.querySelector(".keys")), /^\[cached 0\].*\[cached 7\].* rolled/);
});

test("only tokens that aren't cached lead to their steps", async () => {
  const leads = async (key) => {
    page.openCellAt({ layer: 1, head: 2, query: 0, key, component: 0 });
    await settle();
    return byId("sums").findAll("a").map(flat);
  };
  assert.deepEqual(await leads(0), ["Q[0]", "context[0]"]);
  assert.deepEqual(await leads(8), ["Q[0]", "K[8]", "V[8]", "context[0]"]);
  byId("sums").findAll("a")[1].click();
  await settle();
  assert.equal(selection.chosenStep.path, "blocks.1.attention.K");
  const [shown] = byId("reading").findAll("data");
  const { K, Dh } = page.headOf(trace, 1, 2);
  assert.equal(Number(shown.value), K[8 * Dh]);
});

test("a cached key's parts are one, and pairs are counted with it", async () => {
  page.openCellAt({ layer: 1, head: 2, query: 0, key: 0, component: 0 });
  await until(() => byId("sums").querySelector(".reasons table"));
  const [listed, others] = ["tbody tr", "tfoot tr"].map((rows) => byId("sums").findAll(`.reasons ${rows}`));
  // 10 parts of the query: token, position, 4 heads, b_O, the MLP, LayerNorm's bias, b_Q. One more of the key.
  assert.equal(flat(others[0]).match(/^the other (\d+) pairs/)[1], String(10 * 11 - listed.length));
  assert.match(flat(byId("sums").querySelector(".reasons p")), /^“rolled” scores “cached 0” (above|below) the mean of its 9 keys because of /);
  const sum = [...listed, others[0]].reduce((total, row) => total + Number(row.findAll("data").at(-1).value), 0);
  assert.ok(Math.abs(sum - Number(others[1].findAll("data")[0].value)) < 1e-5);
  page.closeArithmetic();
});

test("positions are those of the whole text", async () => {
  await until(() => flat(byId("predictions")).startsWith("Next token after position 8, Ġrolled"));
  assert.equal(page.whyNoLogits({ cached: 8, prediction: { first: 2 } }), "This page has logits only from position 10.");
});
