import assert from "node:assert/strict";
import test from "node:test";

import { openPage, until } from "./document.mjs";

// “The dog chased the ball, but it” in the model pocket: 2 layers of 4 heads, 8 tokens.
const page = await openPage("ball", "saved", {
  hash: "#depth=lab",
  modules: [
    ...["state/store", "state/traces", "state/actions", "state/link", "drawing/elements", "drawing/draw", "drawing/palette"],
    ...["views/heatmap", "views/heads", "views/stage", "views/softmax", "sources/source", "sources/rows", "sources/description"],
  ],
});
const { byId, selection, set } = page;
const textOf = (selector) => document.querySelector(selector).textContent.replaceAll("\u00a0", " ");
const cellOf = ({ layer, head, query, key }) => [layer, head, query, key];
const settle = () => new Promise((done) => setTimeout(done, 20));
await until(() => byId("said").textContent.includes("silence it"));
await until(() => page.traces[0].loaded.size === 2);

test("without a link, a page opens on the head that tells most, and the last word", () => {
  assert.deepEqual(cellOf(selection), [1, 0, 7, 4]); // it looks at “ball”
  assert.equal(textOf("#head-title"), "Layer 1, head 0");
  assert.equal(textOf(".stage-word.looker .letters"), " it");
});

test("of the words that aren't listed without a head, none is more probable than is known", () => {
  const { ids, heads } = page.traces[0].story;
  assert.equal(heads.length, 8);
  for (const { next, effect, unlisted } of heads) {
    assert.deepEqual(next.slice(0, 5).map(({ id }) => id), ids);
    const afterwards = next.map(({ after }) => after).sort((a, b) => b - a);
    assert.equal(unlisted, Math.max(next[4].before, afterwards[4]));
    assert.equal(effect, next[0].before - next[0].after);
  }
});

test("keys move the cursor of a map, to its ends and no farther", async () => {
  await page.openHead(1, 2);
  const cursor = document.querySelector(".cursor");
  const at = () => [selection.query, selection.key];
  page.select(7, 3);
  for (const [key, ctrlKey, expected] of [
    ["ArrowUp", false, [6, 3]],
    ["ArrowLeft", false, [6, 2]],
    ["ArrowRight", false, [6, 3]],
    ["End", false, [6, 7]],
    ["ArrowRight", false, [6, 7]],
    ["ArrowDown", false, [7, 7]],
    ["ArrowDown", false, [7, 7]],
    ["Home", false, [7, 0]],
    ["ArrowLeft", false, [7, 0]],
    ["PageUp", false, [0, 0]],
    ["End", true, [7, 7]],
    ["Home", true, [0, 0]],
    ["PageDown", false, [7, 0]],
    ["x", false, [7, 0]],
  ]) {
    cursor.press(key, { ctrlKey });
    assert.deepEqual(at(), expected, key);
  }
});

test("a map says its cell in words, and its legend has the numbers' places", async () => {
  await page.openHead(1, 2);
  set({ step: "weights" });
  page.select(2, 5);
  assert.equal(document.querySelector(".cursor").ariaLabel, "query 2 Ġchased, key 5 ,, weights 0.0000, masked");
  assert.equal(textOf(".readout"), "query 2 Ġchased → key 5 ,0.0000 masked");
  const ticks = () => byId("heatmaps").findAll(".ticks span").map(({ style }) => Math.round(parseFloat(style.left)));
  assert.deepEqual(ticks(), [0, 10, 32, 50, 71, 100]); // roots of 0, 0.01, 0.1, 0.25, 0.5, 1
  assert.match(textOf(".legend"), /^00\.010\.10\.250\.51colour by √weight · hatched: masked$/);
  set({ step: "scores" });
  assert.deepEqual(ticks(), [0, 50, 100]);
  assert.doesNotMatch(textOf(".legend"), /hatched/);
  assert.equal(textOf("#formula"), "scores = raw_scores / scale");
  set({ step: "weights" });
});

test("the link has what is shown", async () => {
  await page.openHead(1, 2);
  page.select(2, 5);
  const link = "layer=1&head=2&step=weights&query=2&key=5";
  assert.equal(page.linkOfPage(), `${link}&depth=lab`);
  page.setDepth("look");
  assert.equal(page.linkOfPage(), link);
  set({ isPredicting: true, isSilenced: true });
  assert.equal(page.linkOfPage(), `${link}&predict=&silence=`);
  await page.showLanguage("zh");
  assert.equal(page.linkOfPage(), `${link}&language=zh&predict=&silence=`);
  await page.followLink(`#${link}&depth=lab`);
  assert.equal(page.linkOfPage(), `${link}&depth=lab`);
  assert.equal(document.documentElement.lang, "en");
});

for (const [link, expected] of [
  ["#layer=0&head=0&query=0&key=0", [0, 0, 0, 0]],
  ["#layer=1&head=3&query=7&key=7", [1, 3, 7, 7]],
  ["#layer=2&head=4&query=8&key=8", [1, 3, 7, 7]],
  ["#layer=1&head=2&query=7", [1, 2, 7, 1]], // the key with the largest weight
  ["#layer=-1&head=1.9&query= &key=2", [1, 1, 7, 2]],
  ["#query=1e9&key=2.5", [1, 1, 7, 2]],
  ["#key=0&look=magic&%F0%9F%92%A9=1", [1, 1, 7, 0]],
])
  test(`a link opens ${link}`, async () => {
    selection.isHeadChosen = false;
    await page.followLink(link);
    assert.deepEqual(cellOf(selection), expected);
    assert.ok(selection.isHeadChosen);
  });

test("a link without a cell leaves the choice of the head to the page", async () => {
  selection.isHeadChosen = false;
  await page.followLink("#step=scores");
  assert.deepEqual([selection.step, selection.isHeadChosen], ["scores", false]);
  await page.followLink("#step=Q&head=-2");
  assert.deepEqual([selection.step, selection.isHeadChosen], ["scores", false]);
  document.documentElement.send("hashchange", { newURL: "file:///page.html#layer=0&head=3&key=4&step=weights" });
  assert.deepEqual([selection.layer, selection.head, selection.key, selection.step], [0, 3, 4, "weights"]);
  assert.equal(document.querySelector("#steps").findAll("input").find(({ checked }) => checked).value, "weights");
});

test("a link opens a cell's arithmetic, and a step of the forward pass", async () => {
  await page.followLink("#open=layer.1.head.2.query.7.key.1.component.3");
  await settle();
  assert.deepEqual([...cellOf(selection.openCell), selection.openCell.component], [1, 2, 7, 1, 3]);
  assert.equal(textOf("#arithmetic-title"), "Arithmetic of layer 1, head 2, query 7, key 1");
  assert.match(page.linkOfPage(), /&open=layer\.1\.head\.2\.query\.7\.key\.1\.component\.3/);
  await page.followLink("#open=layer.9.head.9.query.9.key.9");
  await settle();
  assert.deepEqual([...cellOf(selection.openCell), selection.openCell.component], [1, 3, 7, 7, 0]);
  await page.followLink("#open=layer.1.head.2.query.7");
  assert.equal(selection.openCell, null);
  for (const [link, path, component] of [
    ["#stop=blocks.1.mid&component=2.7", "blocks.1.mid", 2],
    ["#stop=blocks.0.input&component=-1", "blocks.0.input", 0],
    ["#stop=magic&component=5", "blocks.0.input", 0],
  ]) {
    page.setDepth("look");
    await page.followLink(link);
    assert.deepEqual([selection.chosenStep.path, selection.chosenStep.component], [path, component]);
    assert.equal(selection.depth, "lab");
  }
});

test("the arithmetic leads to each vector's step, and chooses components and keys", async () => {
  page.openCellAt({ layer: 1, head: 2, query: 0, key: 0, component: 0 });
  await settle();
  const leads = byId("sums").findAll("a").map(({ textContent }) => textContent);
  assert.deepEqual(leads, ["Q[0]", "K[0]", "V[0]", "context[0]"]);
  assert.match(textOf("#sums .pair"), /^how The attends to The$/);
  assert.match(textOf('#sums [data-step="scale"]'), /^scale = √Dk√32 = 5\.656854/);
  assert.equal(byId("sums").findAll("tr.masked").length, 7);
  byId("sums").findAll('[data-rows="component"] .row-button')[31].click();
  byId("sums").findAll('[data-rows="key"] .row-button')[4].click();
  assert.deepEqual([...cellOf(selection.openCell), selection.openCell.component], [1, 2, 0, 4, 31]);
  assert.match(textOf('#sums [data-step="masked_scores"] .sum'), /^mask\[0, 4\] is False: -inf$/);
  page.select(0, 4);
  byId("sums").findAll("a")[0].click(); // of the selected query, so the selected key stays
  await settle();
  assert.deepEqual([selection.chosenStep.path, selection.query, selection.key], ["blocks.1.attention.Q", 0, 4]);
  byId("sums").findAll("a")[1].click();
  await settle();
  assert.deepEqual([selection.chosenStep.path, selection.chosenStep.component], ["blocks.1.attention.K", 95]); // 2 · 32 + 31
  assert.equal(selection.query, 4);
  page.closeArithmetic();
});

test("the sum in the arithmetic of a weight has one term for each key that isn't masked", async () => {
  page.openCellAt({ layer: 1, head: 2, query: 2, key: 1, component: 0 });
  await settle();
  const weights = byId("sums").querySelector('[data-step="weights"]');
  const [, count, sum] = weights.textContent.match(/over the (\d+) unmasked keys: (.*? = \d+\.\d{6})/);
  const scores = [...page.stepRow(page.headOf(page.traces[0], 1, 2), "scores", 2)].slice(0, 3);
  const terms = scores.map((score) => Math.exp(score - Math.max(...scores)));
  const total = terms.reduce((a, b) => a + b);
  assert.equal(count, "3");
  assert.equal(sum, `${terms.map((term) => term.toFixed(6)).join(" + ")} = ${total.toFixed(6)}`);
  page.closeArithmetic();
});

test("the forward pass names its number", async () => {
  page.select(7);
  const readingOf = async (path, component) => {
    await page.goTo(path, component);
    await settle();
    return textOf("#reading").split(":").slice(0, -1).join(":");
  };
  assert.equal(await readingOf("blocks.1.attention.concat", 33), "component 33: head 1, component 1");
  assert.equal(await readingOf("blocks.1.attention.K", 31), "component 31: head 0, component 31");
  assert.equal(await readingOf("blocks.1.mlp.hidden", 511), "component 511");
  assert.equal(await readingOf("logits", 0), `token rolled, id ${page.traces[0].story.ids[0]}`);
  assert.equal(byId("component").max, "49");
  await page.goTo("blocks.1.input", 0);
  await settle();
  assert.match(textOf("#step-arithmetic"), /^input = .*blocks\.0\.output\[7, 0\] = -?\d/);
  assert.equal(textOf("#pass-title"), "Ġit, token 7, through the model");
  assert.ok(byId("pass-note").hidden);
  byId("component").fill(127);
  assert.equal(selection.chosenStep.component, 127);
  byId("component").fill(128);
  assert.equal(selection.chosenStep.component, 127);
  assert.deepEqual(byId("pass-parts").findAll("label").map(({ textContent }) => textContent), ["Embedding", "Block 0", "Block 1", "Logits"]);
});

test("keys choose the steps of the forward pass, and Enter its number", async () => {
  const chosen = () => byId("pass-steps").querySelector("[aria-selected=true]");
  await page.goTo("blocks.1.mid", 2);
  await until(() => chosen()?.dataset.path === "blocks.1.mid");
  for (const [key, path] of [
    ["End", "blocks.1.output"],
    ["ArrowDown", "final"],
    ["ArrowUp", "blocks.1.output"],
    ["Home", "blocks.1.input"],
    ["ArrowUp", "blocks.0.output"],
    ["Home", "blocks.0.input"],
    ["ArrowUp", "embedding"],
    ["Home", "token_embedding"],
    ["ArrowUp", "token_embedding"],
    ["ArrowDown", "position_embedding"],
    ["End", "embedding"],
  ]) {
    chosen().focus();
    chosen().press(key);
    await until(() => chosen().dataset.path === path);
    assert.ok(document.activeElement === chosen());
  }
  await page.goTo("logits", 0);
  await until(() => chosen().dataset.path === "logits");
  chosen().press("End");
  await until(() => chosen().dataset.path === "probabilities");
  chosen().press("ArrowDown");
  chosen().press("Enter");
  assert.equal(document.activeElement.id, "component");
  assert.equal(selection.chosenStep.path, "probabilities");
});

test("a link is copied, or it is said that the browser forbids it; the help has the model's training", async () => {
  const said = async (clipboard) => {
    Object.defineProperty(globalThis, "navigator", { value: { clipboard }, configurable: true });
    byId("copy-link").click();
    await settle();
    return textOf("#done");
  };
  let copied;
  assert.equal(await said({ writeText: async (link) => (copied = link) }), "Link copied.");
  assert.equal(copied, `file:///page.html#${page.linkOfPage()}`);
  const forbidden = "The browser doesn't let this page copy the link.";
  assert.equal(await said({ writeText: () => Promise.reject(new Error()) }), forbidden);
  assert.equal(await said(undefined), forbidden);
  const training = "The model “pocket” was trained on the sentences of a small grammar.";
  assert.deepEqual([textOf("#trained"), document.querySelector("#about b").title], [training, training]);
});

test("sliders say their values", async () => {
  const sliders = () => byId("settings").findAll("input");
  const said = () => sliders().map((slider) => slider.getAttribute("aria-valuetext"));
  assert.deepEqual(said(), ["1.0", "all tokens", "all tokens"]);
  for (const [n, value, shown, expected] of [
    [0, 0, "0.0", ["0: always the most probable token", "all tokens", "all tokens"]],
    [0, 20, "2.0", ["2.0", "all tokens", "all tokens"]],
    [0, 10, "1.0", ["1.0", "all tokens", "all tokens"]],
    [1, 1, "2", ["1.0", "the 2 most probable tokens", "all tokens"]],
    [1, 49, "50", ["1.0", "the 50 most probable tokens", "all tokens"]],
    [1, 50, "all", ["1.0", "all tokens", "all tokens"]],
    [2, 0, "0.1", ["1.0", "all tokens", "the most probable tokens, up to a total of 0.1"]],
    [2, 10, "0.99", ["1.0", "all tokens", "the most probable tokens, up to a total of 0.99"]],
    [2, 11, "all", ["1.0", "all tokens", "all tokens"]],
  ]) {
    sliders()[n].fill(value);
    assert.deepEqual(said(), expected);
    assert.equal(byId("settings").findAll(".value")[n].textContent, shown);
  }
});

test("the list of next tokens", async () => {
  page.setDepth("lab");
  page.select(7);
  await settle();
  assert.match(textOf("#predictions"), /^Next token after position 7, Ġit/);
  assert.match(textOf("#predictions"), /The text ends here\.$/);
  const rows = () => byId("predictions").findAll("tbody tr");
  assert.equal(rows().length, 20);
  assert.match(textOf("#predictions caption"), /^The 20 most probable of 979 tokens$/);
  assert.match(textOf("#predictions tfoot"), /^the other 959/);
  for (let query = 0; query < 7; query++) {
    page.select(query);
    await until(() => textOf("#predictions").startsWith(`Next token after position ${query}, `));
    const [, rank] = textOf("#predictions article").match(/rank (\d+) of 979, probability/);
    const listed = rows().findIndex((row) => row.children[0].textContent === page.traces[0].tokens[query + 1].symbol);
    assert.ok(listed < 0 ? rank > 20 : Number(rank) === listed + 1, `${query}: ${rank}, ${listed}`);
  }
});

test("probabilities are cumulated, and those that are cut off are struck", async () => {
  page.select(7);
  const topK = () => byId("settings").findAll("input")[1];
  topK().fill(2); // three tokens
  await until(() => /3 of 979 tokens are left/.test(textOf("#predictions")));
  const rows = byId("predictions").findAll("tbody tr");
  const kept = rows.slice(0, 3).map((row) => row.findAll("data").map(({ value }) => Number(value)).slice(-2));
  let sum = 0;
  for (const [renormalized, cumulative] of kept) assert.equal(cumulative, (sum += renormalized));
  assert.ok(Math.abs(sum - 1) < 1e-9);
  assert.deepEqual([...rows[3].children].slice(-2).map(({ textContent }) => textContent), ["top-k", ""]);
  assert.deepEqual(rows.map((row) => row.findAll("s").length), [0, 0, 0, ...Array(17).fill(2)]);
  topK().fill(50);
});

test("a long sum's largest products, and how many others there are", async () => {
  await page.goTo("blocks.1.mlp.hidden", 3);
  await until(() => /120 others/.test(textOf("#step-arithmetic")));
  assert.match(textOf("#step-arithmetic"), /: the 128 products, the 8 largest first/);
  const numbers = byId("step-arithmetic").findAll("tbody tr").map((row) => Number(row.findAll("data").at(-1).value));
  const sizes = numbers.map(Math.abs);
  assert.deepEqual(sizes, [...sizes].sort((a, b) => b - a));
  const [others, bias, sum] = byId("step-arithmetic").findAll("tfoot data").map(({ value }) => Number(value));
  assert.ok(Math.abs(numbers.reduce((total, x) => total + x, others + bias) - sum) < 1e-5);
});

test("a model's card says what the open head does elsewhere, the most first", async () => {
  const jobs = async (layer, head) => (await page.openHead(layer, head), textOf("#jobs").replace("On other texts, from the model card: ", ""));
  assert.equal(await jobs(0, 1), "the previous token 0.79 · the deciding adjective 0.58");
  assert.equal(await jobs(0, 0), "the deciding adjective 0.49"); // not the previous token, 0.21, of which 0.11 is even attention
  assert.equal(textOf("#summary"), "2 layers × 4 heads, 8 tokens");
  assert.equal(textOf("#about"), "pocket The dog chased the ball, but it");
});

test("pictures are named by the head, and all layers are drawn", async (t) => {
  const { mock } = t.mock.method(window.HTMLAnchorElement.prototype, "click");
  await page.openHead(1, 2);
  byId("save-svg").click();
  assert.equal(mock.calls[0].this.download, "attnlab-pocket-1.2.svg");
  byId("layers").open = true;
  byId("layers").send("toggle");
  await until(() => byId("picture").querySelector("circle"));
  const picture = byId("picture");
  const texts = picture.findAll("text").map(({ textContent }) => textContent);
  assert.deepEqual(texts, ["The", "dog", "chased", "the", "ball", ",", "but", "it", "Layer 0", "Layer 1"]);
  const norms = await page.source.pack(page.traces[0], "stream"); // rows: embedding; mid, added, output of each block
  const largest = Math.max(...norms);
  const radii = [2, 5].flatMap((row) => [...norms.slice(8 * row, 8 * row + 8)].map((norm) => (9 * Math.sqrt(norm / largest)).toFixed(1)));
  assert.deepEqual(picture.findAll("circle").map((circle) => circle.getAttribute("r")), radii);
});

test("the menu changes the depth, the share opens the row, and Tab reaches one word", async () => {
  const { depth } = selection;
  byId("all-numbers").click();
  assert.notEqual(selection.depth, depth);
  byId("all-numbers").click();
  assert.equal(selection.depth, depth);
  page.select(7);
  for (const count of [8, 0]) {
    byId("said").querySelector(".its-share").click();
    await until(() => byId("softmax-row").hidden === !count);
    for (const query of count ? [3, 7] : []) { // the words up to the one that looks
      page.select(query);
      await until(() => byId("softmax-row").findAll("tbody tr").length === query + 1);
    }
  }
  const tabbed = document.findAll(".stage-word").flatMap(({ tabIndex }, n) => (tabIndex === 0 ? [n] : []));
  assert.deepEqual(tabbed, [7]);
});

test("typing shows where a page with a text box comes from", () => {
  let shown = 0;
  byId("own-text").scrollIntoView = () => shown++;
  const typed = (key, more, target = document.querySelector("main")) => {
    const before = shown;
    target.press(key, more);
    return shown > before;
  };
  assert.deepEqual(["a", "É", "猫", "1", "?", " ", "Enter", "ArrowUp"].map((key) => typed(key)), [true, true, true, ...Array(5).fill(false)]);
  for (const control of ["ctrlKey", "metaKey", "altKey"]) assert.ok(!typed("a", { [control]: true }));
  assert.ok(!typed("a", {}, byId("close")));
  assert.ok(typed("a", {}, document.querySelector(".stage-word")));
});

test("a head's drawing says its effect, and keys go from head to head", () => {
  const element = document.createElement("div");
  const chosen = [];
  const heads = new page.Heads(element, { choose: (...head) => chosen.push(head), point() {} });
  heads.show({ queries: ["a", " b"], keys: ["a", " b"], isSelf: true, layers: 2, H: 3 });
  const showEffects = (effects) => heads.showEffects((layer, head) => effects[3 * layer + head]);
  showEffects([0.2, -0.1, 0.0004, null, -0.0004, 0.004]);
  const [bars, names] = ["i", "small"].map((tag) => element.findAll(tag));
  assert.deepEqual(names.map(({ textContent }) => textContent), ["0.0 +20.0", "0.1 −10.0", "0.2 0.0", "1.0", "1.1 0.0", "1.2 +0.4"]);
  const lengths = () => bars.map(({ style }) => Number(style.getPropertyValue("--length")));
  assert.deepEqual(lengths(), [1, 0.5, 0, 0, 0, 0.004 / 0.2]);
  assert.deepEqual(heads.buttons.map(({ classList }) => classList.contains("barred")), [true, true, true, false, true, true]);
  assert.deepEqual(bars.map(({ classList }) => classList.contains("lowers")), [false, true, false, false, true, false]);
  assert.equal(heads.buttons[1].ariaLabel, "head 0.1 −10.0");
  assert.deepEqual([heads.largest, heads.headOfLargest], [0.2, heads.buttons[0]]);
  showEffects([0.005, -0.01, 0, 0, 0, 0]);
  assert.deepEqual(lengths(), [0.25, 0.5, 0, 0, 0, 0]); // none is as long as 2 points
  const { buttons } = heads;
  document.body.append(element); // so that it can have the focus
  buttons[0].focus();
  for (const [key, n] of [["ArrowDown", 3], ["ArrowRight", 4], ["ArrowDown", 4], ["ArrowUp", 1], ["End", 5], ["ArrowRight", 5], ["ArrowLeft", 4], ["Home", 0], ["ArrowLeft", 0], ["ArrowUp", 0]]) {
    document.activeElement.press(key);
    assert.equal(buttons.indexOf(document.activeElement), n, key);
  }
  assert.deepEqual(buttons.map(({ tabIndex }) => tabIndex), [0, -1, -1, -1, -1, -1]);
  buttons[5].press("Enter");
  assert.deepEqual(chosen, [[1, 2]]);
  heads.mark({ layer: 1, head: 0 }, (layer, head) => layer === 0 && head === 1);
  assert.deepEqual(buttons.map((button) => button.getAttribute("aria-pressed")), ["false", "false", "false", "true", "false", "false"]);
  assert.deepEqual(buttons.map(({ classList }) => classList.contains("silenced")), [false, true, false, false, false, false]);
  element.remove();
});

test("the row of a softmax, with scores and without", () => {
  const shown = { queries: ["a", " b", " c"], keys: ["a", " b", " c"], isSelf: true, isCausal: true };
  const opened = [];
  const cellsOf = (table) => table.findAll("tbody tr").map((row) => [...row.children].slice(0, -1).map(({ textContent }) => textContent.replaceAll("\u00a0", " ")));
  const all = page.softmaxRow(shown, 1, [0.25, 0.75, 0], [Math.log(0.25), Math.log(0.75), -Infinity], (...cell) => opened.push(cell));
  assert.deepEqual(cellsOf(all), [["a", "-1.39", "0.333", "25 %"], ["b", "-0.29", "1.000", "75 %"]]);
  assert.match(all.textContent, /^Where “b” looks, word by wordkeyscore = q · k \/ √Dkexp\(score − largest\)÷ 1\.333, their sum/);
  all.findAll("button").forEach((button) => button.click());
  assert.deepEqual(opened, [["scores", 0], ["weights", 0], ["scores", 1], ["weights", 1]]);
  assert.deepEqual(cellsOf(page.softmaxRow(shown, 1, [0.25, 0.75, 0])), [["a", "25 %"], ["b", "75 %"]]);
  const marked = (row, query) => page.softmaxRow(shown, query, row).findAll("tr.most th").map(({ textContent }) => textContent);
  assert.deepEqual(marked([0.5, 0.2, 0.3], 2), ["b"]); // neither the first word nor the one that looks
  const width = (row) => page.softmaxRow(shown, 2, row).findAll("i").map(({ style }) => style.width);
  assert.deepEqual(width([-0.5, 1.25, 0.25]), ["0%", "100%", "25%"]);
});

test("next words to list: the most probable before or after a change; shares are percentages unless edited", () => {
  const words = [[0.5, 0.01], [0.2, 0.1], [0.01, 0.6], [0.15, 0.02], [0.1, 0.2], [0.04, 0.04]].map(([before, after]) => ({ before, after }));
  assert.deepEqual(page.likeliestWords(words).map(({ before }) => before), [0.5, 0.2, 0.1, 0.01]);
  const written = (row) => row.map(page.shareWriter(row)).map((text) => text.replaceAll("\u00a0", " "));
  assert.deepEqual(written([0.25, 0.75]), ["25 %", "75 %"]);
  assert.deepEqual(written([-0.25, 0.75]), ["-0.25", "0.75"]);
  assert.deepEqual(written([1.25, 0]), ["1.25", "0.00"]);
  assert.deepEqual(written([1.0004, 0]), ["100 %", "0 %"]); // rounding
});

test("which cells the mask hides", () => {
  const hidden = (given) => [0, 1, 2, 3].map((n) => !page.isSeen({ mask: [1, 0, 0, 0], ...given }, n));
  assert.deepEqual(hidden({ editedSteps: {} }), [false, true, true, true]);
  assert.deepEqual(hidden({ editedSteps: { weights: [0, 0, -0.5, 0.5] } }), [false, true, false, false]);
  assert.deepEqual(hidden({ editedSteps: { masked_scores: [-Infinity, 0, -Infinity, -3] } }), [true, false, true, false]);
});

test("tokens in a sentence", () => {
  const { wordInSentence, symbolOf, positionsInWords, textOfToken = (token) => wordInSentence(token).textContent } = page;
  const piece = (given) => ({ symbol: "x", word: "x", piece: { before: "", letters: "x", fraction: "", after: "", ...given } });
  assert.equal(textOfToken({ symbol: "Ġdog", word: "dog" }), "dog");
  assert.equal(textOfToken(piece({ before: "doct", after: "s" })), "x” of “doctxs");
  assert.equal(textOfToken(piece({ before: "doct" })), "x” of “doctx");
  assert.equal(textOfToken(piece({ letters: "␣", after: "on" })), "x” of “on");
  assert.equal(textOfToken(piece({ letters: "小", fraction: "2/3" })), "小 2/3");
  assert.equal(textOfToken(piece({ letters: "小" })), "小");
  assert.deepEqual(["Ġ", "Ġdog", "dog"].map((symbol) => symbolOf(symbol).findAll(".space").length), [0, 1, 0]);
  assert.deepEqual([[3, 3], [3, 5], [7]].map(positionsInWords), ["3", "3 | 5", "7"]);
});
