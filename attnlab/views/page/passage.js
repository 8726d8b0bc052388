// The explorer's page with an atlas: where its text is from, and the way back.

function makeWayBack({ id, atlas }) {
  if (atlas === undefined) return;
  const { layer, head } = selection; // as the link had them
  const token = new URLSearchParams({ token: new URLSearchParams(location.search).get("token") });
  const href = `atlas?${token}#layer-${layer}-head-${head}`;
  const link = make("a", { href }, say("Back to the atlas"));
  const from = make("bdi", {}, atlas);
  byId("explore").prepend(make("p", { id: "passage", class: "note" }, link, from));
  const mark = () => {
    from.hidden = looks.at(-1).id !== id; // an id is of one text, with what is ablated in it
    link.hidden = source.hasEnded;
  };
  // Whoever shows another look, what is ablated in it is told; in the end nothing can be asked for.
  const changed = new MutationObserver(mark);
  changed.observe(byId("ablated"), { childList: true });
  changed.observe(byId("end"), { attributes: true });
  mark();
}

makeWayBack(description.traces[0]);
