// Next-token probabilities before and after, for the two last traces. Both need all logits, because a
// token that is likely in one may have any rank in the other.

/** The probability that a token is sampled with, even if the pack doesn't include it. */
function shareOf(id, { ids, logits, all, renormalized, count, left }) {
  const n = ids.indexOf(id);
  if (n >= 0) return renormalized[n];
  // The order in which tokens are cut; among equals, higher ids first.
  const isAhead = (logit, other) => logit > all[id] || (logit === all[id] && other > id);
  const rank = all.reduce((sum, logit, other) => sum + isAhead(logit, other), 0);
  const { temperature } = settings;
  return temperature && rank < count ? Math.exp((all[id] - logits[0]) / temperature) / left : 0;
}

/** The earlier trace's position for a place, or for the last place before it that the trace has. */
function placeBefore(pairs, place) {
  const at = pairs.findIndex(([, now]) => now === place);
  const [before] = pairs.slice(0, at + 1).findLast(([n]) => n !== null) ?? [0];
  return before;
}

/** The most probable tokens now, as [id, before, now]. */
function changesOf(found) {
  const likely = found.flatMap(({ ids, renormalized }) =>
    ids.slice(0, CANDIDATES).filter((_, n) => renormalized[n] > 0),
  );
  return [...new Set(likely)]
    .map((id) => [id, shareOf(id, found[0]), shareOf(id, found.at(-1))])
    .sort((a, b) => b[2] - a[2] || b[1] - a[1]);
}

/** The table of changes from `before`, null for the first trace, to `now`, in Lab. */
function makeChange(before, now) {
  const box = byId("change");
  const both = [before, now];
  const nameOf = (id) => both.map(({ names }) => names.get(id)).find(Boolean);
  const pairs = before && aligned([before.ids, now.ids]);
  const isCompared = traces.length === 2;
  const headings = isCompared ? ["A", "B", DIFFERENCE] : [say("before"), say("now"), say("change")];
  const placeIn = (trace) =>
    traces.includes(trace) ? queryIn(trace) : placeBefore(pairs, queryIn(now));
  const read = async (trace, place) => {
    const [position, all] = await Promise.all([source.position(trace, place), source.step(trace, `logits.${place}`)]);
    return { ...position, all };
  };
  let known = { places: [] }; // the last numbers read, kept while sliders move
  const draw = onceAFrame(async () => {
    if (isLook()) return;
    if (!before) return box.replaceChildren(make("p", { class: "note" }, say("Ablate a head or an MLP, or enter another text, to see what changes here.")));
    const places = both.map(placeIn);
    if (known.places.join() !== places.join()) {
      const positions = await Promise.all(both.map((trace, n) => read(trace, places[n])));
      // Another place or text may have been chosen since.
      if (traces.at(-1) !== now || both.map(placeIn).join() !== places.join()) return;
      known = { places, positions };
    }
    const place = places.at(-1);
    const found = known.positions.map((position) => ({
      ...position,
      ...probabilitiesOf(position, settings),
    }));
    const rows = changesOf(found).map(([id, then, here]) =>
      rowOf(symbolOf(brief(nameOf(id).symbol)), [
        make("div", { "aria-hidden": "true" }, barOf(then, "then"), barOf(here)),
        shareElement(then),
        shareElement(here),
        shareElement(here - then, true),
      ]),
    );
    const caption = make(
      "div",
      {},
      ...sayParts("Next token after position {position}, {token}", {
        position: String(now.cached + place),
        token: symbolOf(brief(now.tokens[place].symbol)),
      }),
    );
    const table = tableOf(caption, [say("token"), "", ...headings], rows);
    box.replaceChildren(table, make("p", { class: "note" }, ...causeOf()));
  });

  /** How the two traces differ, with the earlier one's position if it isn't the same. */
  function causeOf() {
    const [a, b] = distinctions([before, now], pairs);
    const [place, here] = known.places;
    const isSame = place === here && before.ids[place] === now.ids[place];
    const at = isSame ? "" : ` (${before.cached + place} ${brief(before.tokens[place].symbol)})`;
    return [make("span", {}, `${headings[0]}: ${a}${at}`), make("span", {}, `${headings[1]}: ${b}`)];
  }

  return { draw };
}

function shareElement(share, isChange = false) {
  const sign = isChange && share > 0 ? "+" : "";
  const shown = `${sign}${share.toFixed(4)}`.replace("-", "−");
  return make("data", { value: String(share) }, shown);
}
