import assert from "node:assert/strict";
import test, { after } from "node:test";

import { openPage, stopWorkers, until } from "./document.mjs";

after(stopWorkers);
const BALL = "The dog chased the ball, but it";
const page = await openPage("model", "playground", {
  hash: "#depth=lab",
  modules: [
    ...["state/store", "state/traces", "state/actions", "state/link", "state/requests", "state/live", "state/story"],
    ...["sources/source", "sources/rows", "views/writing", "drawing/elements"],
  ],
});
const { byId, selection, set, source } = page;
const flat = ({ textContent }) => textContent.replaceAll("\u00a0", " ").replace(/\s+/g, " ");
const textOf = (id) => flat(byId(id));
const pause = () => new Promise((done) => setTimeout(done, 20));
const idle = async () => {
  await pause();
  await until(() => !selection.isBusy && page.traces.at(-1).story !== undefined && page.traces.at(-1).loaded.size === 2);
  await pause();
};
/** Do something, and wait until the page has answered. */
const act = async (f) => (await f(), await idle());
const ask = (text) => act(() => (byId("prompt").fill(text), byId("prompt").press("Enter")));
const enter = (id, value) => act(() => byId(id).fill(value));
const symbols = () => page.traces.at(-1).tokens.map(({ symbol }) => symbol);
const IDS = "ids=299.428.547.266.382.11.489.357";
const linkOfText = () => page.linkOfPage().replace(/^.*?&ids=/, "ids=");
await idle();

test("a text is typed, and its title and link follow", async () => {
  assert.deepEqual([byId("prompt").value, document.title, linkOfText()], [BALL, `attnlab pocket: ${BALL}`, IDS]);
  await ask("The hen saw the cat");
  assert.deepEqual(symbols(), ["The", "Ġhen", "Ġsa", "w", "Ġthe", "Ġcat"]);
  assert.equal(document.title, "attnlab pocket: The hen saw the cat");
  assert.match(textOf("notice"), /^Not in this model's vocabulary, .*: saw\. The model “pocket” was trained on/);
  assert.equal(selection.query, 5);
  await ask("The dog\r\nran");
  assert.ok(page.isTypedTextShown());
  set({ typed: "The dog\nran" }); // as a text area has it
  assert.ok(page.isTypedTextShown());
  set({ typed: "The dog\nrank" });
  assert.ok(!page.isTypedTextShown());
  const long = `${"The dog ran. ".repeat(15)}It is`; // 200 characters
  await ask(long);
  assert.deepEqual([page.latest().excerpt, document.title], [long, `attnlab pocket: ${long.slice(0, 59)}`]);
  await ask(`${long} `);
  assert.equal(page.latest().excerpt, `${long.slice(0, 199)}…`);
});

test("only Enter alone sends the text", async () => {
  let sent = 0;
  const { open } = source;
  source.open = (...given) => (sent++, open(...given));
  for (const more of [{ shiftKey: true }, { isComposing: true }]) byId("prompt").press("Enter", more);
  byId("prompt").press("a");
  assert.equal(sent, 0);
  await act(() => byId("prompt").press("Enter"));
  assert.equal(sent, 1);
  source.open = open;
});

test("what can't be read leaves what is shown", async () => {
  await ask(BALL);
  await ask("");
  assert.deepEqual([selection.status, page.requests.refused, page.latest().text], ["Enter a text to trace.", "", BALL]);
  await ask("the ".repeat(200));
  assert.match(selection.status, /^The text has 202 tokens; this model reads at most 128, up to “.*the the”\.$/);
  byId("status").querySelector("button").click();
  assert.deepEqual([selection.typed, selection.status, page.requests.refused], [BALL, "", null]);
  const { open } = source;
  source.open = () => Promise.reject(new DOMException("", "AbortError"));
  await ask("The hen");
  source.open = open;
  assert.deepEqual([selection.status, page.requests.refused], ["Cancelled.", null]);
  assert.match(await source.open({ ids: [979] }, []).catch(({ message }) => message), /^token id 979 isn't in the vocabulary; ids are 0 to 978$/);
  assert.equal((await source.open({ ids: [978] }, [])).ids.length, 1);
  const full = Array(128).fill(978); // as many tokens as the model reads
  assert.equal((await source.open({ ids: full }, [])).ids.length, 128);
  await assert.rejects(source.open({ ids: [...full, 978] }, []), /has 129 tokens; this model reads at most 128/);
  const half = await source.open({ text: "a\ud800" }, []).catch(({ message }) => message);
  assert.equal(half, "text has an unpaired surrogate, '\\ud800', at index 1");
});

test("blanks at the end are noticed, without what comes next for a reader who predicts it", async () => {
  await ask("The dog ");
  const said = "This text ends in a blank, which the model reads as a token of its own.";
  const share = page.traces[0].predictions.size && textOf("notice").match(/with (\d+ %)/)[1];
  assert.equal(textOf("notice"), `${said} Without it, “is” would come next, with ${share}. Remove the blank`);
  set({ isPredicting: true });
  await pause();
  assert.equal(textOf("notice"), `${said} Remove the blank`);
  set({ isPredicting: false });
  await until(() => byId("notice").querySelector("button"));
  await act(() => byId("notice").querySelector("button").click());
  assert.equal(page.latest().text, "The dog");
  await ask("The dog \n");
  assert.match(textOf("notice"), /^This text ends in a line break, .* Remove the line break$/);
  const blanks = (bytes, cached = 0) => page.blanksAtEnd({ tokens: bytes.map((one) => ({ bytes: one })), cached }).length;
  assert.deepEqual([["61", "20"], ["61", "20", "0a"], ["20 61"], ["61 20"], ["20", "20"], ["61", "c2 a0"], ["20"]].map((all) => blanks(all)), [1, 2, 0, 0, 1, 1, 0]);
  assert.equal(blanks(["20"], 3), 1);
});

test("steps are changed, listed and given back", async () => {
  await ask(BALL);
  await page.openHead(1, 0);
  await act(() => byId("head-toggle").click());
  assert.deepEqual([textOf("ablated"), linkOfText(), textOf("head-toggle")], ["Silenced:1.0 ×", `${IDS}&ablate=1.0`, "Restore this head (S)"]);
  assert.equal(page.latest().typed, BALL);
  assert.match(textOf("said"), /With these edits, “rolled” falls from 54 % to 1 %, and “barked” rises from 43 % to 95 %\./);
  assert.doesNotMatch(textOf("said"), /silence it/);
  await act(() => byId("mlp-toggle").click());
  assert.deepEqual([textOf("ablated"), linkOfText()], ["Silenced:1.0 ×MLP 1 ×give all back", `${IDS}&ablate=1.0+1`]);
  await act(() => byId("head-toggle").click());
  assert.equal(textOf("ablated"), "Silenced:MLP 1 ×");
  await act(() => byId("mlp-toggle").click());
  assert.deepEqual([textOf("ablated"), linkOfText()], ["", IDS]);
  for (const [percent, words, link] of [
    [55, "Edited:layer 1, head 0: weights × 0.55 ×", `${IDS}&ablate=1.0.weights.55`],
    [0, "Edited:layer 1, head 0: weights × 0 ×", `${IDS}&ablate=1.0.weights.0`],
    [100, "", IDS],
  ]) {
    page.select(5, 2);
    await enter("factor", percent);
    assert.deepEqual([textOf("ablated"), linkOfText()], [words, link]);
    assert.deepEqual([selection.query, selection.key], [5, 2]); // the text is the same
  }
  page.select(7, 4);
  await act(() => document.querySelector(".cursor").press("m"));
  assert.deepEqual([textOf("ablated"), linkOfText()], ["Edited:layer 1, head 0: 1 cell of the mask ×", `${IDS}&ablate=1.0.mask.flip.7.4`]);
  page.select(6, 4);
  await act(() => document.querySelector(".cursor").press("M"));
  assert.equal(linkOfText(), `${IDS}&ablate=1.0.mask.flip.7.4.6.4`);
  await enter("factor", 50); // of another step
  assert.match(textOf("ablated"), /^Edited:layer 1, head 0: 2 cells of the mask ×layer 1, head 0: weights × 0\.5 ×give all back$/);
  await act(() => byId("give-back").click());
  await act(() => byId("every-head").findAll("button")[6].press("s"));
  assert.deepEqual([textOf("ablated"), selection.layer, selection.head, selection.isHeadChosen], ["Silenced:1.2 ×", 1, 2, true]);
  await act(() => byId("ablated").querySelector("button").click());
  assert.equal(textOf("ablated"), "");
  await act(() => byId("every-head").findAll("button")[6].press("s", { ctrlKey: true }));
  assert.equal(textOf("ablated"), "");
});

test("a change of all heads changes the first layer too", async () => {
  await page.openHead(0, 0);
  const firstRow = () => [...page.stepRow(page.headOf(page.traces[0], 0, 0), "weights", 0)];
  assert.deepEqual(firstRow().slice(1), Array(7).fill(0));
  const { Q } = page.headOf(page.traces[0], 1, 0);
  await enter("uncausal", "on");
  assert.deepEqual([textOf("ablated"), linkOfText()], ["Edited:no causal mask ×", `${IDS}&ablate=mask`]);
  assert.ok(firstRow().every((weight) => weight > 0));
  assert.notDeepEqual(page.headOf(page.traces[0], 1, 0).Q.slice(0, 32), Q.slice(0, 32));
  await act(() => set({ isComparing: true }));
  const names = () => byId("heatmaps").findAll("h3").map(flat);
  assert.deepEqual(names(), ["A: nothing ablated", "B: no causal mask", "B − A"]);
  await act(() => byId("ablated").querySelector("button").click());
  const text = "The old dog chased the cat that the old lady had seen, and the big";
  await ask(`${text} dog barked`);
  await ask(`${text} hen barked`);
  const excerpt = (animal) => `“…he old lady had seen, and the big ${animal} barked”`;
  assert.deepEqual(names(), [`A: ${excerpt("dog")}`, `B: ${excerpt("hen")}`, "B − A"]);
  await ask(`The hen ${text.slice(4)} dog barked`);
  assert.deepEqual(names(), [`A: “${text.slice(0, 44)}…”`, `B: “The hen ${text.slice(4, 40)}…”`, "B − A"]);
  await act(() => set({ isComparing: false }));
  assert.equal(page.traces.length, 1);
});

test("tokens are written, and the text's next token has its rank", async () => {
  await ask(BALL);
  const [first, second] = page.traces[0].story.ids;
  await act(() => page.writeToken({ id: second }));
  assert.equal(byId("prompt").value, `${BALL} barked`);
  page.select(7);
  await until(() => textOf("predictions").startsWith("Next token after position 7, Ġit"));
  assert.match(textOf("predictions"), /in the text is Ġbarked: rank 2 of 979, probability 0\.429/);
  await act(() => page.openIds([...page.latest().ids.slice(0, -1), first]));
  page.select(7);
  await until(() => /rank 1 of 979, probability 0\.54/.test(textOf("predictions")));
  assert.equal(page.requests.kept.at(-1).typed, undefined);
  assert.equal(byId("prompt").value, `${BALL} rolled`);
});

test("a word is completed until another character ends it", async () => {
  const { generate } = source;
  const completed = async (symbol, ...texts) => {
    source.generate = async () => ({ chosen: texts.map((text) => ({ text })) });
    const names = { get: () => ({ symbol }) };
    const rest = await page.completionOf({ ids: [1], changes: [], names }, 5);
    source.generate = generate;
    return rest;
  };
  assert.equal(await completed("Ġdoc", "tor", "s", " and"), "tors");
  assert.equal(await completed("Ġdoc", "tor", "’s", "!"), "tor’s");
  assert.equal(await completed("Ġdoc", "Tor"), "");
  assert.equal(await completed("Ġdoc", "a", "b", "c"), "abc");
  assert.equal(await completed("Ġdo.", "tor"), "");
  assert.equal(await completed("ĠDOC", "tor"), "tor");
});

test("links of texts and changes are followed", async () => {
  const follow = (link) => act(() => page.followLinkOfText(link));
  await follow("#ids=299.468");
  assert.deepEqual([symbols(), byId("prompt").value, textOf("ablated")], [["The", "Ġhen"], "The hen", ""]);
  const { length } = page.requests.kept;
  await follow("#ids=299.468");
  assert.equal(page.requests.kept.length, length);
  await follow("#ablate=0.7+1+1.2.V.50");
  assert.deepEqual([symbols(), textOf("ablated")], [["The", "Ġhen"], "Edited:MLP 1 ×layer 1, head 2: V × 0.5 ×give all back"]);
  assert.match(selection.status, /aren't applied: 0\.7$/);
  await follow("#ablate=99.0+0.1+0.0.nonsense.50+0.7+0.0.Q.abc");
  assert.equal(
    selection.status, "Edits in the link that this model or text doesn't have aren't applied: 99.0 · 0.0.nonsense.50 · 0.7 · 0.0.Q.abc",
  );
  assert.deepEqual([textOf("ablated"), linkOfText()], ["Silenced:0.1 ×", "ids=299.468&ablate=0.1"]);
  await act(() => document.documentElement.send("hashchange", { newURL: "file:///page.html#ablate=0.0.mask.flip.0.0&language=zh" }));
  assert.equal(selection.status, "掩码必须给查询 0 留下至少一个键。");
  assert.equal(linkOfText(), "ids=299.468&ablate=0.1"); // what was shown stays
  await act(() => page.showLanguage("en"));
  await act(() => page.requestChanges([]));
  const count = page.requests.kept.length;
  await follow("#ids=299.468&ablate=0.1"); // the former trace: the reader went back
  assert.deepEqual([textOf("ablated"), page.requests.kept.length], ["Silenced:0.1 ×", count - 1]);
  await follow("#ids=299.468");
  assert.deepEqual([textOf("ablated"), page.requests.kept.length], ["", count]);
  await follow("#ids=299.468&ablate=9.9"); // which leaves nothing to change
  assert.equal(page.requests.kept.length, count);
  await follow("#ids=299.x");
  assert.match(selection.status, /^token id x isn't in the vocabulary/);
  assert.deepEqual(symbols(), ["The", "Ġhen"]);
});
