import assert from "node:assert/strict";
import test from "node:test";

import { openPage, until } from "./document.mjs";

// “the cat it”: each of 2 × 2 heads looks at “cat” with 0.7. Next words: was 0.01, slept 0.6, sat 0.25.
const { byId } = await openPage("words", "words", { modules: ["drawing/elements"] });
const flat = ({ textContent }) => textContent.replaceAll("\u00a0", " ");
const said = () => flat(byId("said"));
await until(said);
const heads = byId("every-head").findAll("button");
const words = () => document.findAll(".stage-word");
const listed = () => document.findAll(".next-words li").map(flat);

test("the page opens on the tried head that has the largest effect, and says what it does", () => {
  assert.equal(said(), "In head 0.1, “it” looks at “cat” with 70 % of its attention. Without head 0.1, “slept” falls from 60 % to 20 %, and “was” rises from 1 % to 30 %. silence it");
  assert.deepEqual(heads.map(flat), ["0.0", "0.1 +40.0", "1.0", "1.1 −10.0"]);
  assert.deepEqual(heads.map((head) => head.getAttribute("aria-pressed")), ["false", "true", "false", "false"]);
  assert.match(flat(byId("every-head-title")), /“slept”; the longest is 40 points of probability\. Heads that were tried: 2\.$/);
  assert.deepEqual(listed(), ["slept60 %", "sat25 %", "was1 %"]);
});

test("only at the last word it is said what follows", () => {
  words()[1].click();
  assert.equal(said(), "In head 0.1, “cat” looks at itself with 60 % of its attention.");
  assert.equal(flat(byId("seen")), "“it” looks at “cat” most: 70 % of its attention.");
  assert.deepEqual(words().map(({ lastChild }) => flat(lastChild)), ["40 %", "60 %", ""]);
  words()[0].click();
  assert.equal(said(), "“the” is the first word: it can look only at itself.");
  words()[2].click();
  assert.match(said(), /silence it$/);
});

test("a word or head under the pointer is shown until the pointer leaves", () => {
  const over = (element) => element.send("pointerenter", { pointerType: "mouse" });
  over(words()[0]);
  assert.match(said(), /^“the” is the first word/);
  words()[0].send("pointerleave");
  assert.match(said(), /^In head 0\.1, “it”/);
  over(heads[3]);
  assert.match(said(), /^In head 1\.1, .* Without head 1\.1, “slept” rises from 60 % to 70 %: the head works against it\. silence it$/);
  heads[3].send("pointerleave");
  words()[0].send("pointerenter", { pointerType: "touch" });
  assert.match(said(), /^In head 0\.1, “it”/);
});

test("a head is silenced, and given back when another one is chosen", () => {
  byId("silence").click();
  assert.equal(flat(byId("silence")), "give it back");
  assert.deepEqual(listed(), ["slept60 % → 20 %", "was1 % → 30 %"]);
  assert.deepEqual(heads.map(({ classList }) => classList.contains("silenced")), [false, true, false, false]);
  heads[2].click(); // what becomes of “slept” isn't known
  assert.equal(flat(byId("done")), "Head 0.1 is given back.");
  assert.equal(said(), "In head 1.0, “it” looks at “cat” with 70 % of its attention.");
  assert.deepEqual(listed(), ["slept60 %", "sat25 %", "was1 %"]);
});

test("the share opens the row, whose weights sum to 1", () => {
  byId("said").querySelector("button").click();
  const weights = byId("softmax-row").findAll("tbody data").map(({ value }) => Number(value));
  assert.deepEqual(weights, [0.1, 0.7, 0.2].map(Math.fround));
  words()[1].click();
  assert.equal(byId("softmax-row").findAll("tbody tr").length, 2); // it doesn't see the last word
  byId("said").querySelector("button").click();
  assert.equal(flat(byId("softmax-row")), "");
});
