// What the reader does. One selection (layer, head, step, query, key) is shared by all views.

/** Choose a query and a key: by pointer, by key, by token. */
function select(query, key) {
  if (query === selection.query && key === selection.key) return;
  Object.assign(selection, { query, key });
  for (const heatmap of heatmaps) heatmap.place();
  for (const text of texts) text.draw();
}

function openHead(layer, head) {
  Object.assign(selection, { layer, head });
  showHead();
}

function showHead() {
  const { layer, head, step } = selection;
  byId("head-title").textContent = say("Layer {layer}, head {head}", selection);
  byId("formula").textContent = `${formulaOf(step)}${editedIn(layer, head, step)}`;
  for (const grid of grids) grid.mark();
  for (const text of texts) text.draw();
  const bounds = heatmaps.map((heatmap) => heatmap.compute());
  // One scale for both traces, so that their colours compare.
  const shared = Math.max(...bounds.filter((_, n) => !views[n].isDifference));
  heatmaps.forEach((heatmap, n) => heatmap.colour(views[n].isDifference ? bounds[n] : shared));
}

const gridOf = (view) => grids[views.indexOf(view)];
const heatmapOf = (view) => heatmaps[views.indexOf(view)];

function repaint() {
  choosePalettes();
  for (const grid of grids) grid.maps.forEach(colourMap);
  showHead();
}

function makeSteps() {
  for (const step of MATRICES) {
    const radio = make("input", { type: "radio", name: "step", value: step });
    radio.checked = step === selection.step;
    radio.addEventListener("change", () => {
      selection.step = step;
      showHead();
    });
    byId("steps").append(make("label", {}, radio, make("span", {}, step)));
  }
}

function zoom(factor) {
  selection.zoom = Math.max(1, Math.min(32, selection.zoom * factor));
  for (const heatmap of heatmaps) heatmap.layOut();
}

function summarise() {
  const sizes = traces.map(({ name, layers, H, T, cached, note }) => {
    const tokens = T === 1 ? say("{T} token", { T }) : say("{T} tokens", { T });
    const after = cached ? say(" after {cached} cached", { cached }) : "";
    const blocks =
      layers === 1 ? say("{layers} layer", { layers }) : say("{layers} layers", { layers });
    const heads = H === 1 ? say("{H} head", { H }) : say("{H} heads", { H });
    const size = say("{blocks} × {heads}, {texts}", { blocks, heads, texts: tokens + after + note });
    return traces.length === 2 ? `${name}: ${size}` : size;
  });
  byId("summary").textContent = sizes.join(" · ");
  if (traces.length < 2) return;
  const [a, b] = traces;
  const differ = a.tokens.filter((token, n) => token.id !== b.tokens[n]?.id).length;
  const compared = byId("compared");
  compared.hidden = false;
  compared.textContent =
    whyNoDifference ||
    say("{DIFFERENCE} is shown beside them. ", { DIFFERENCE }) +
      (differ
        ? say("{differ} of {T} tokens differ.", { differ, T: a.T })
        : say("The tokens are the same."));
}

document.body.classList.toggle("comparing", traces.length === 2);
document.body.style.setProperty("--views", views.length);
document.body.style.setProperty("--traces", traces.length);
choosePalettes();
summarise();
makeSteps();
const texts = views.filter((view) => !view.isDifference).map(makeText);
const heatmaps = views.map(makeHeatmap);
const grids = views.map(makeGrid);
showHead();

byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  repaint();
});
prefersDark.addEventListener("change", repaint);
byId("smaller").addEventListener("click", () => zoom(1 / 1.5));
byId("larger").addEventListener("click", () => zoom(1.5));
byId("arithmetic").addEventListener("keydown", (event) => {
  if (event.key === "Escape") opened?.cursor.focus();
});
