// For an atlas's passage: where its text comes from, and a link back.

function makeBackLink({ id, atlas }) {
  if (atlas === undefined) return;
  const { layer, head } = selection; // as in the link
  const token = new URLSearchParams({ token: new URLSearchParams(location.search).get("token") });
  const href = `atlas?${token}#layer-${layer}-head-${head}`;
  const link = make("a", { href }, say("Back to the atlas"));
  const from = make("bdi", {}, atlas);
  byId("explore").prepend(make("p", { id: "passage", class: "note" }, link, from));
  const mark = () => {
    from.hidden = traceHistory.at(-1).id !== id; // an id identifies a text and its ablations
    link.hidden = source.hasEnded;
  };
  // The list of ablations changes with every trace; disable the link at the end.
  const changed = new MutationObserver(mark);
  changed.observe(byId("ablated"), { childList: true });
  changed.observe(byId("end"), { attributes: true });
  mark();
}

makeBackLink(description.traces[0]);
