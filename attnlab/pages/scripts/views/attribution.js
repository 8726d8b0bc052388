// The logit lens and direct logit attribution, in a page that runs its model.

import { pointsOfLens } from "../numbers/attribution.js";
import { brief, fixed, percent } from "../numbers/formats.js";
import { say, sayParts } from "../sources/description.js";
import { source } from "../sources/source.js";
import { exact, make, rowOf, tableOf, tokenElement } from "../drawing/draw.js";

let isAttributionOpen = false; // stays when another trace is shown

/** The lens and the attribution for one of several next tokens, computed when opened. */
export function attributionBox(trace, ids) {
  const options = ids.map((id) => make("option", { value: id }, brief(trace.names.get(id).symbol)));
  const show = async () => {
    const id = Number(select.value);
    const numbers = [...(await source.pack(trace, `attribution.${trace.T - 1}.${id}`))];
    if (Number(select.value) === id) tables.replaceChildren(...attributionTables(trace, id, numbers));
  };
  const toggle = () => {
    isAttributionOpen = box.open;
    if (box.open) show();
  };
  const select = make("select", { "aria-label": say("token"), change: show }, ...options);
  const tables = make("div");
  const box = make("details", { id: "attribution", toggle }, make("summary", {}, say("Logit lens and direct attribution")), select, tables);
  box.open = isAttributionOpen;
  return box;
}

function attributionTables(trace, id, numbers) {
  const { layers, H } = trace;
  const word = () => tokenElement(trace.names.get(id));
  const points = pointsOfLens(layers).map((point) => {
    const [best, probability, probabilityOfToken, rank] = numbers.splice(0, 4);
    const first = make("span", {}, tokenElement(trace.names.get(best)), " ", exact(probability, percent(probability)));
    return rowOf(point, [first, `#${rank}`, exact(probabilityOfToken, percent(probabilityOfToken, 1))]);
  });
  const [heads, mlps, rest] = [numbers.splice(0, layers * H), numbers.splice(0, layers), numbers];
  const total = [...heads, ...mlps, ...rest].reduce((sum, part) => sum + part);
  const rounded = (x) => fixed(x, 2);
  const parts = mlps.map((mlp, n) => rowOf(n, [...heads.slice(n * H, (n + 1) * H), mlp], 2));
  const [embedding, bias] = rest.map(rounded);
  const lensCaption = make("span", {}, ...sayParts("What the model would predict if it ended at each point, and {word} there", { word: word() }));
  const lensHeader = ["", say("most probable"), say("rank"), say("probability")];
  const partsCaption = make("span", {}, ...sayParts("What each part writes directly to the logit of {word}", { word: word() }));
  const partsHeader = [say("layer"), ...Array.from({ length: H }, (_, h) => say("head {head}", { head: h })), "MLP"];
  return [
    tableOf(lensCaption, lensHeader, points),
    tableOf(partsCaption, partsHeader, parts),
    make("p", { class: "note" }, say("embedding {embedding}, biases {bias}, total {total}", { embedding, bias, total: rounded(total) })),
  ];
}
