// What may follow a token, before and now: of the two looks that were taken last, which the page asks
// for all logits, as a token that is likely in one of them may be any in the other.

/** What is known after a position where all logits are, the largest first, as `positionOf` has it. */
function wholePositionOf(values) {
  const ids = [...values.keys()].sort((a, b) => values[b] - values[a] || a - b);
  const logits = ids.map((id) => values[id]);
  return { vocab: ids.length, ids, logits, ties: 0, others: () => 0 };
}

/** Where a trace before stands when the one of now is at a place: there, or at the last one before. */
function placeBefore(pairs, place) {
  const at = pairs.findIndex(([, now]) => now === place);
  const [there] = pairs.slice(0, at + 1).findLast(([n]) => n !== null) ?? [0];
  return there;
}

/** The likeliest tokens of both, by how probable they are now: [id, before, now] of each. */
function changesOf(before, now) {
  const shares = [before, now].map(({ ids, renewed }) => new Map(ids.map((id, n) => [id, renewed[n]])));
  const likely = [before, now].flatMap(({ ids, renewed }) =>
    ids.slice(0, CANDIDATES).filter((_, n) => renewed[n] > 0),
  );
  return [...new Set(likely)]
    .map((id) => [id, ...shares.map((share) => share.get(id))])
    .sort((a, b) => b[2] - a[2] || b[1] - a[1]);
}

/** The table of what changed, from `before` to `now`; of the first look there is no `before`. */
function makeChange(before, now) {
  const box = byId("change");
  const both = [...(before ? [before] : []), now];
  const names = new Map(both.flatMap(({ prediction }) => prediction.tokens).map((name) => [name[0], tokenOf(name)]));
  const pairs = before && aligned([before.ids, now.ids]);
  const isCompared = traces.length === 2;
  const heads = before
    ? isCompared
      ? ["A", "B", DIFFERENCE]
      : [say("before"), say("now"), say("change")]
    : [say("now")];
  const placeIn = (trace) =>
    traces.includes(trace) ? queryIn(trace) : placeBefore(pairs, queryIn(now));
  let known = { places: [] }; // what was read last, kept as sliders are moved
  const draw = onceAFrame(async () => {
    const places = both.map(placeIn);
    if (known.places.join() !== places.join()) {
      const read = await Promise.all(both.map((trace, n) => numbersOf(trace, `logits.${places[n]}`)));
      // Another place may have been chosen since, or another text.
      if (traces.at(-1) !== now || both.map(placeIn).join() !== places.join()) return;
      known = { places, positions: read.map(wholePositionOf) };
    }
    const place = places.at(-1);
    const found = known.positions.map((position) => ({
      ...position,
      ...probabilitiesOf(position, settings),
    }));
    const rows = changesOf(found[0], found.at(-1)).map(([id, then, here]) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, symbolOf(brief(names.get(id).symbol))),
        make("td", { "aria-hidden": "true" }, ...(before ? [barOf(then, "then")] : []), barOf(here)),
        ...(before ? [shareCell(then)] : []),
        shareCell(here),
        ...(before ? [shareCell(here - then, true)] : []),
      ),
    );
    const caption = make(
      "div",
      {},
      ...sayParts("Next token after position {position}, {token}", {
        position: String(now.cached + place),
        token: symbolOf(brief(now.tokens[place].symbol)),
      }),
    );
    const table = tableOf(caption, [say("token"), "", ...heads], rows);
    box.replaceChildren(table, make("p", { class: "note" }, ...causeOf()));
  });

  /** What was changed, where both stand at the same place, and which these are where they do not. */
  function causeOf() {
    if (!before)
      return [say("Silence a head or an MLP, or look at another text: this tells what changes.")];
    const [a, b] = toldApart([before, now], pairs);
    const [place, here] = known.places;
    const isSame = place === here && before.ids[place] === now.ids[place];
    const at = isSame ? "" : ` (${before.cached + place} ${brief(before.tokens[place].symbol)})`;
    return [make("span", {}, `${heads[0]}: ${a}${at}`), make("span", {}, `${heads[1]}: ${b}`)];
  }

  return { draw };
}

function barOf(share, kind = "") {
  const bar = make("span", { class: `bar ${kind}` });
  bar.style.setProperty("--share", share);
  return bar;
}

function shareCell(share, isChange = false) {
  const sign = isChange && share > 0 ? "+" : "";
  const shown = `${sign}${share.toFixed(4)}`.replace("-", "−");
  return make("td", {}, make("data", { value: String(share) }, shown));
}
