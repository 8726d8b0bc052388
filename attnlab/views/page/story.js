// The story of a text: the heads that decide what comes next, from the pack "story", see
// attnlab/views/page/overview.py.

const MIN_FALL = 0.1; // in another token's probability; below it, there is no second sentence

/** A trace's story; null if its source has none. */
async function readStory(trace) {
  if (!source.has(trace, "story")) return null;
  const numbers = [...(await source.step(trace, "story"))];
  const [count] = numbers.splice(0, 1);
  const ids = numbers.splice(0, count);
  const before = numbers.splice(0, count);
  const heads = [];
  while (numbers.length) {
    const [layer, head, key, weight, ...after] = numbers.splice(0, 4 + count);
    heads.push({ layer, head, key, weight, after });
  }
  return { ids, before, heads };
}

/**
 * The heads in the story, each with the index of the token that it affects (`word`): the head whose ablation
 * changes the most probable token's probability most; and of the heads that attend to another key, the one
 * whose ablation lowers another token's probability most.
 */
function chaptersOf({ before, heads }) {
  const fall = ({ after }, n) => before[n] - after[n];
  const [first] = [...heads].sort((a, b) => Math.abs(fall(b, 0)) - Math.abs(fall(a, 0)));
  const others = heads
    .filter(({ key }) => key !== first.key)
    .flatMap((head) => before.slice(1).map((_, n) => ({ ...head, word: n + 1 })))
    .sort((a, b) => fall(b, b.word) - fall(a, a.word));
  return [{ ...first, word: 0 }, ...others.slice(0, 1).filter((head) => fall(head, head.word) >= MIN_FALL)];
}

/** A share as a percentage with `digits` decimals; 0 and 100 only if it is 0 or 1. */
function percent(share, digits = 0) {
  const shown = (digits) => `${(100 * share).toFixed(digits)}\u00a0%`;
  const rounded = parseFloat(shown(digits));
  if (rounded === 0 && share > 0) return `< ${10 ** -digits}\u00a0%`;
  if (rounded < 100 || Math.fround(share) === 1) return shown(digits);
  return parseFloat(shown(1)) < 100 ? shown(1) : "> 99.9\u00a0%";
}

/** Two shares as percentages, with enough decimals to differ. */
function percentages(a, b) {
  const digits = [0, 1, 2].find((n) => percent(a, n) !== percent(b, n));
  return [a, b].map((share) => percent(share, digits ?? 0));
}

const wordElement = (token) => make("bdi", {}, make("strong", {}, brief(wordOf(token.symbol))));

/** What a head does, as parts of sentences. */
function sentencesOf(trace, { ids, before }, { key, weight, word, after }) {
  const query = trace.tokens.at(-1);
  const values = { query: wordElement(query), key: wordElement(trace.keys[key]), share: percent(weight) };
  const looks =
    key === trace.Tk - 1
      ? sayParts("“{query}” looks at itself ({share} of its attention).", values)
      : sayParts("“{query}” looks at “{key}” ({share} of its attention).", values);
  const [then, now] = percentages(before[word], after[word]);
  const effect = { word: wordElement(trace.names.get(ids[word])), then, now };
  const without =
    then === now
      ? sayParts("Without this head, “{word}” stays at {now}.", effect)
      : after[word] < before[word]
        ? sayParts("Without this head, “{word}” falls from {then} to {now}.", effect)
        : sayParts("Without this head, “{word}” rises from {then} to {now}.", effect);
  const between = document.documentElement.lang.startsWith("zh") ? "" : " ";
  return [...looks, between, ...without];
}

/** Show the story's sentences about the open part: the model, a block or a head. */
function showChapters() {
  for (const sentence of byId("story").children) {
    const { layer, head } = sentence.opens;
    sentence.hidden = isLook() && !isAt("model") && (layer !== selection.layer || (head !== selection.head && !isAt("block")));
    sentence.querySelector("button").disabled = isAt("head", "matrix", "number"); // they name the open head
  }
}

/** A paragraph about a head: a button with its name, which opens it, then the sentences. */
function leadTo({ layer, head }, sentences) {
  const title = say("layer {layer}, head {head}", { layer, head });
  const name = buttonOf(() => enterHead(layer, head), { class: "leads", title }, say("Head {layer}.{head}", { layer, head }));
  return Object.assign(make("p", {}, name, say(": "), ...sentences), { opens: { layer, head } });
}

/** Show which of the drawn tokens looks farthest back, in a long text, once that is known. */
function showFarthest() {
  const [trace] = picture.view.traces;
  const farthest = picture.findFarthest();
  byId("story").querySelector(".farthest")?.remove();
  if (farthest) {
    const { i, j, weight } = farthest;
    const [query, key] = [i, j].map((n) => wordElement(trace.tokens[n]));
    const words = sayParts("Of the tokens drawn, “{query}” looks farthest back, by {count}: at “{key}” ({share} of its attention).", { query, key, count: String(i - j), share: percent(weight) });
    const sentence = leadTo(farthest, words);
    sentence.classList.add("farthest");
    byId("story").append(sentence);
  }
  showChapters();
}

/** Show a trace's story; returns its heads, none if it has no story. */
async function showStory(trace) {
  const box = byId("story");
  const story = await readStory(trace);
  if (traces.at(-1) !== trace) return []; // another text was opened since
  trace.story = story;
  const chapters = story ? chaptersOf(story) : [];
  box.replaceChildren(...chapters.map((chapter) => leadTo(chapter, sentencesOf(trace, story, chapter))));
  showFarthest();
  if (story) rankHeads(trace, story);
  return chapters;
}

const RANKED = 8; // heads that are listed at once

/** List the ablated heads by their effect on the most probable token, with the numbers behind it. */
async function rankHeads(trace, { ids, before, heads }) {
  const effect = ({ after }) => Math.abs(before[0] - after[0]);
  const ranked = [...heads].sort((a, b) => effect(b) - effect(a));
  await Promise.all([...new Set(ranked.map(({ layer }) => layer))].map((layer) => loadLayer(trace, layer)));
  if (traces.at(-1) !== trace) return;
  const rows = ranked.map(({ layer, head, key, weight, after }) => {
    const title = say("layer {layer}, head {head}", { layer, head });
    const button = buttonOf(() => chooseHead(layer, head, false), { class: "row-button", title }, `${layer}.${head}`);
    const [job, attention] = jobOf(trace, layer, head);
    const badge = job ? make("span", { "data-job": job }, `${jobsInWords()[job]} ${percent(attention)}`) : "";
    const [then, now] = percentages(before[0], after[0]);
    const cells = [`${then} → ${now}`, make("span", {}, symbolOf(brief(trace.keys[key].symbol)), ` ${percent(weight)}`), badge];
    return rowOf(button, cells);
  });
  const query = trace.tokens.at(-1).symbol;
  const caption = make("span", {}, ...sayParts("Heads by what ablating them does to {word}", { word: symbolOf(brief(trace.names.get(ids[0]).symbol)) }));
  const columns = [say("head"), say("ablated"), say("{query} attends to", { query: brief(query) }), say("all attend to")];
  const showAll = ({ target }) => {
    for (const row of rows) row.hidden = false;
    target.remove();
  };
  const all = buttonOf(showAll, {}, say("All {count} ablated heads", { count: rows.length }));
  for (const row of rows.slice(RANKED)) row.hidden = true;
  const further = [...(rows.length > RANKED ? [all] : []), ...(source.sharesBox ? [source.sharesBox(trace, ids)] : [])];
  byId("ranked").replaceChildren(tableOf(caption, columns, rows), ...further);
}
