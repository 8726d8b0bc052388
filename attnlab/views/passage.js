// The explorer's page with an atlas: where its text is from, and the way back.

function makeWayBack({ atlas }) {
  if (atlas === undefined) return;
  const { layer, head } = selection; // as the link had them
  const token = new URLSearchParams({ token: new URLSearchParams(location.search).get("token") });
  const href = `atlas?${token}#layer-${layer}-head-${head}`;
  const link = make("a", { href }, say("Back to the atlas"));
  const from = make("bdi", {}, atlas);
  byId("explore").prepend(make("p", { id: "passage", class: "note" }, link, from));
}

makeWayBack(description.traces[0]);
