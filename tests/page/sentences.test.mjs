import assert from "node:assert/strict";
import test from "node:test";

import { openPage } from "./document.mjs";

const { effectInWords, headsInWords, lookInWords, lookedAtInWords } = await openPage("ball", "saved", { modules: ["views/sentences"] });

const textOf = (parts) => parts.map((part) => part.textContent ?? part).join("").replaceAll("\u00a0", " ");
const words = (text) => text.split(" ").map((word, n) => (n ? ` ${word}` : word));
const CAT = words("the cat saw The dog");
const shownOf = (texts, rest = {}) => ({ queries: texts, keys: texts, isSelf: true, isCausal: true, layers: 2, H: 3, ...rest });
const BOTH_WAYS = { isCausal: false };
const OTHER = { isCausal: false, isSelf: false };

/** What the sentence on a head says of word `query`, and the words that it names. */
function look(shown, rowOf, query) {
  const { words, named } = lookInWords(shown, rowOf, query, { layer: 1, head: 2 }, (share) => share);
  return [textOf(words).replace("In head 1.2, ", ""), named];
}

for (const [row, expected, named] of [
  [[0.5, 0.1, 0.3, 0.1, 0], "50 % of the attention of “dog” rests on the first word; 30 % goes to “saw”.", [2]],
  [[0.3, 0.1, 0.25, 0.15, 0.2], "“dog” looks at “saw” with 25 % of its attention.", [2]], // no more than 30 % rests
  [[0.35, 0.1, 0.45, 0.1, 0], "“dog” looks at “saw” with 45 % of its attention.", [2]], // less rests than is given to one
  [[0.1, 0.35, 0.35, 0.1, 0.1], "“dog” looks at “cat” and “saw” with 35 % of its attention each.", [1, 2]],
  [[0.04, 0.3, 0.3, 0.3, 0.06], "“dog” looks at “cat” and 2 other words with 30 % of its attention each.", [1, 2, 3]],
  [[0, 0.7, 0.1, 0.1, 0.1], "“dog” looks at “cat” with 70 % of its attention.", [1]],
  [[0, 0.1, 0.1, 0.7, 0.1], "“dog” looks at “The2” with 70 % of its attention.", [3]],
  [[0.1, 0.05, 0.1, 0.05, 0.7], "“dog” looks at itself with 70 % of its attention.", [4]],
  [[0, 0.4, 0.2, 0, 0.4], "“dog” looks at “cat” with 40 % of its attention.", [1]], // no more at itself
  [[0.2, 0.2, 0.2, 0.2, 0.2], "“dog” looks at all 5 words equally, 20 % each.", [0, 1, 2, 3, 4]],
  [[1, 0, 0, 0, 0], "“dog” looks at “the1” with 100 % of its attention.", [0]],
  [[-0.5, 1.6, 0, 0, -0.1], "“dog” looks at “cat” with 1.60 of its attention.", [1]],
])
  test(`of the row ${row}`, () => {
    const rowOf = (i) => (i === 4 ? row : [0.2, 0.2, 0.2, 0.2, 0.2]);
    assert.deepEqual(look(shownOf(CAT), rowOf, 4), [expected, named]);
  });

const even = (count, most, j) => Array.from({ length: count }, (_, n) => (n === j ? most : (1 - most) / (count - 1)));
const before = (i) => Array.from({ length: 9 }, (_, j) => Number(j === Math.max(0, i - 1)));
for (const [shown, rowOf, query, expected] of [
  [shownOf(CAT), before, 0, "“the1” is the first word: it can look only at itself."],
  [shownOf(CAT), before, 1, "“cat” gives 100 % of its attention to the word before, “the1”, as most words do there."],
  [shownOf(CAT), before, 4, "“dog” gives 100 % of its attention to the word before, “The2”, as most words do there."],
  [shownOf(words("a cat saw it")), before, 3, "“it” gives 100 % of its attention to the word before, “saw”, as most words do there."],
  [shownOf(words("a cat saw")), before, 2, "“saw” looks at “cat” with 100 % of its attention."],
  [shownOf(words("a cat saw"), BOTH_WAYS), () => [0.2, 0.1, 0.7], 0, "“a” looks at “saw” with 70 % of its attention."],
  [shownOf(words("a cat saw"), BOTH_WAYS), () => [0.25, 0.25, 0.5], 0, "“a” looks at “saw” with 50 % of its attention."],
  [shownOf(words("a cat saw")), () => [0.5, 0.5, 0], 1, "“cat” looks at all 2 words equally, 50 % each."],
  [shownOf(words("a b"), { ...OTHER, keys: words("x y z") }), () => [0.6, 0.3, 0.1], 1, "“b” looks at “x” with 60 % of its attention."],
  [shownOf(words("a b"), { ...OTHER, keys: words("x y z") }), () => [0.1, 0.6, 0.3], 1, "“b” looks at “y” with 60 % of its attention."],
  [shownOf(words("a b"), { ...OTHER, keys: words("x y") }), () => [0.5, 0.5], 0, "“a” looks at all 2 words equally, 50 % each."],
  [shownOf(CAT), () => [0.981, 0.0041, 0.0021, 0.0021, 0.0107], 4, "98 % of the attention of “dog” rests on the first word; < 1 % goes to “cat”."],
  [shownOf(Array(125).fill("w")), () => even(125, 0.0084, 60), 124, "“w125” gives no word more than 0.9 % of its attention."],
  [shownOf(Array(99).fill("w")), () => even(99, 0.0104, 60), 98, "“w99” looks at “w61” and 97 other words with 1 % of its attention each."],
])
  test(expected, () => assert.equal(look(shown, rowOf, query)[0], expected));

const seen = (shown, rows, query) => textOf(lookedAtInWords(shown, (i) => rows[i], query));
test("a word is most looked at by another one, unless that looks at all words equally", () => {
  const rows = [[1, 0, 0], [0.5, 0.5, 0], [0.1, 0.12, 0.78]];
  const [causal, bothWays] = [undefined, BOTH_WAYS].map((rest) => shownOf(words("a cat saw"), rest));
  assert.equal(seen(causal, rows, 0), "");
  assert.equal(seen(bothWays, rows, 0), "“cat” looks at “a” most: 50 % of its attention.");
  assert.equal(seen(causal, rows, 1), "“saw” looks at “cat” most: 12 % of its attention.");
  assert.equal(seen(causal, [[1, 0, 0], [0, 1, 0], [0.81, 0.09, 0.1]], 1), "");
  assert.equal(seen(causal, [[1, 0, 0], [0, 1, 0], [0.8, 0.1, 0.1]], 1), "“saw” looks at “cat” most: 10 % of its attention.");
  assert.equal(seen(bothWays, [[0.2, 0.2, 0.6], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]], 2), "“cat” looks at “saw” most: 80 % of its attention.");
  assert.equal(seen(shownOf(words("a b c"), OTHER), rows, 0), "");
  const many = (count) => seen(shownOf(Array(count).fill("w")), Array(count).fill([0.9, ...Array(count - 1).fill(0.1 / (count - 1))]), 0);
  assert.equal(many(201), "");
  assert.match(many(200), /^“w2” looks at “w1” most/);
});

const next = (...all) => all.map(([text, before, after]) => ({ text: ` ${text}`, before, after }));
const without = "Without head 1.2";
for (const [given, expected, rest] of [
  [next(["cat", 0.6, 0.2], ["dog", 0.1, 0.16]), "“cat” falls from 60 % to 20 %, and “dog” rises from 10 % to 16 %."],
  [next(["cat", 0.6, 0.2], ["dog", 0.1, 0.149]), "“cat” falls from 60 % to 20 %."],
  [next(["cat", 0.06, 0.02], ["dog", 0.01, 0.03]), "“cat” falls from 6 % to 2 %, and “dog” rises from 1 % to 3 %."],
  [next(["cat", 0.2, 0.6], ["dog", 0.5, 0.4]), "“dog” falls from 50 % to 40 %, and “cat” rises from 20 % to 60 %."],
  [next(["cat", 0.2, 0.6], ["dog", 0.5, 0.6]), "“cat” rises from 20 % to 60 %: the head works against it."],
  [next(["cat", 0.2, 0.6], ["dog", 0.5, 0.6]), "“cat” rises from 20 % to 60 %.", { isHead: false }],
  [next(["cat", 0.6, 0.60001], ["dog", 0.1, 0.1]), "“cat” stays at 60 %."],
  [next(["cat", 0.6, 0.2]), "“cat” falls from 60 % to 20 %."],
  [next(["cat", 0.6, 0.4], ["dog", 0.1, 0.14], ["hen", 0.1, 0.13]), "“cat” falls from 60 % to 40 %. Several words share what it loses, “dog” most: from 10 % to 14 %.", { unlisted: 0.03 }],
  [next(["cat", 0.6, 0.4], ["dog", 0.1, 0.14]), "“cat” falls from 60 % to 40 %. Several words share what it loses.", { unlisted: 0.05 }],
  [next(["cat", 0.6, 0.4], ["dog", 0.1, 0.14]), "“cat” falls from 60 % to 40 %.", { unlisted: 0.1 }],
  [next(["cat", 0.6, 0.56], ["dog", 0.1, 0.11]), "“cat” falls from 60 % to 56 %.", { unlisted: 0.001 }],
  [next(["cat", 0.4, 0.6], ["dog", 0.2, 0.16]), "“cat” rises from 40 % to 60 %: the head works against it. Several words lose what it gains, “dog” most: from 20 % to 16 %.", { unlisted: 0.03 }],
  [next([" ", 0.6, 0.2]), "“␣” falls from 60 % to 20 %."],
])
  test(`next words ${given.map(({ before, after }) => `${before} → ${after}`)} ${JSON.stringify(rest ?? "")}`, () =>
    assert.equal(textOf(effectInWords(given, { without, ...rest })), ` ${without}, ${expected}`));

test("what the drawings of all heads show", () => {
  const shown = shownOf(CAT);
  const said = (rest, of = shown) => headsInWords(of, { word: "it", tried: 6, largest: 0.4, ...rest });
  const [all, bar] = ["All 6 heads over the same words.", "Bar: how far the head raises (right) or lowers (left) “it”; the longest is"];
  const grey = `${all} Grey is attention that rests on the first word.`;
  assert.equal(said({ word: "" }), grey);
  assert.equal(said({ word: "" }, shownOf(CAT, OTHER)), all);
  assert.equal(said(), `${grey} ${bar} 40 points of probability.`);
  assert.equal(said({ largest: 0.099 }), `${grey} ${bar} 9.9 points of probability.`);
  assert.equal(said({ largest: 0.1 }), `${grey} ${bar} 10 points of probability.`);
  assert.equal(said({ largest: 0.0004 }), `${grey} ${bar} < 0.1 points of probability.`);
  assert.equal(said({ tried: 5 }), `${grey} ${bar} 40 points of probability. Heads that were tried: 5.`);
  assert.match(said({ explainsChoice: true }), /probability\. The sentence is about .* is largest\. A head .* counts half\.$/);
});
