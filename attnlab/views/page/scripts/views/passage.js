// In an explorer with an atlas: a link back to it, and the source of the passage that was opened from it.

import { say } from "../sources/description.js";
import { source } from "../sources/source.js";
import { selection } from "../state/store.js";
import { byId, make } from "../drawing/draw.js";
import { traceHistory } from "./explorer.js";

export function makeBackLink({ id, atlas }) {
  if (atlas === undefined) return;
  const { layer, head } = selection; // as in the atlas's link to this page
  const token = new URLSearchParams({ token: new URLSearchParams(location.search).get("token") });
  const href = `atlas?${token}#layer-${layer}-head-${head}`;
  const link = make("a", { href }, say("Back to the atlas"));
  const passageSource = make("bdi", {}, atlas); // "" if no passage was opened
  byId("explore").prepend(make("p", { id: "passage", class: "note" }, link, passageSource));
  const update = () => {
    passageSource.hidden = traceHistory.at(-1).id !== id; // an id identifies a text and its ablations
    link.hidden = source.hasEnded;
  };
  const observer = new MutationObserver(update);
  observer.observe(byId("ablated"), { childList: true }); // changes with every trace
  observer.observe(byId("end"), { attributes: true }); // disabled when the explorer ends
  update();
}
