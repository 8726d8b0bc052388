// The story of a text: the heads that decide what comes next, from the pack "story", see
// attnlab/views/page/overview.py.

const TOLD_FALL = 0.1; // of another token's probability without a head, for a second sentence

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
 * The heads that tell the story, each with the number of the token that it changes: the head without
 * which the most probable token's probability changes most; and of those that look elsewhere, the one
 * without which another token's falls most.
 */
function chaptersOf({ before, heads }) {
  const fall = ({ after }, n) => before[n] - after[n];
  const [first] = [...heads].sort((a, b) => Math.abs(fall(b, 0)) - Math.abs(fall(a, 0)));
  const others = heads
    .filter(({ key }) => key !== first.key)
    .flatMap((one) => before.slice(1).map((_, n) => ({ ...one, word: n + 1 })))
    .sort((a, b) => fall(b, b.word) - fall(a, a.word));
  return [{ ...first, word: 0 }, ...others.slice(0, 1).filter((one) => fall(one, one.word) >= TOLD_FALL)];
}

/** A share as a percentage, with so many decimals. */
const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}\u00a0%`;

/** Two shares as percentages, with decimals that tell them apart. */
function percentages(a, b) {
  const digits = [0, 1, 2].find((n) => percent(a, n) !== percent(b, n));
  return [a, b].map((share) => percent(share, digits ?? 0));
}

/** What a head does, as parts of sentences. */
function sentencesOf(trace, { ids, before }, { key, weight, word, after }) {
  const told = (token) => make("bdi", {}, make("strong", {}, brief(wordOf(token.symbol))));
  const query = trace.tokens.at(-1);
  const values = { query: told(query), key: told(trace.keys[key]), share: percent(weight) };
  const looks =
    key === trace.Tk - 1
      ? sayParts("“{query}” looks at itself ({share} of its attention).", values)
      : sayParts("“{query}” looks at “{key}” ({share} of its attention).", values);
  const [then, now] = percentages(before[word], after[word]);
  const effect = { word: told(trace.names.get(ids[word])), then, now };
  const without =
    then === now
      ? sayParts("Without this head, “{word}” stays at {now}.", effect)
      : after[word] < before[word]
        ? sayParts("Without this head, “{word}” falls from {then} to {now}.", effect)
        : sayParts("Without this head, “{word}” rises from {then} to {now}.", effect);
  const between = document.documentElement.lang.startsWith("zh") ? "" : " ";
  return [...looks, between, ...without];
}

/** Tell the story of a trace; returns its heads once it is known, none if there is no story. */
async function tellStory(trace) {
  const box = byId("story");
  const story = await readStory(trace);
  if (traces.at(-1) !== trace) return []; // another text was opened since
  trace.story = story;
  const chapters = story ? chaptersOf(story) : [];
  box.replaceChildren(
    ...chapters.map((chapter) => {
      const { layer, head } = chapter;
      const name = make("button", { type: "button", class: "leads" }, say("Head {layer}.{head}", chapter));
      name.title = say("layer {layer}, head {head}", chapter);
      name.addEventListener("click", () => chooseHead(layer, head, false));
      return make("p", {}, name, ": ", ...sentencesOf(trace, story, chapter));
    }),
  );
  return chapters;
}
