// The page: its views, in the order in which they are drawn, and the controls of the whole page.

import { description, say } from "../sources/description.js";
import { loadLayer, source } from "../sources/source.js";
import { openTraces, point, setDepth } from "../state/actions.js";
import { followLink, updateLink } from "../state/link.js";
import { changed, on, selection, set, TEXT_SIZES } from "../state/store.js";
import { openStory } from "../state/story.js";
import { traces } from "../state/traces.js";
import { choosePalette } from "../drawing/colours.js";
import { byId, isDark, isPrinted, markChoice, prefersDark, setChoices } from "../drawing/draw.js";
import { colourMaps, forgetMaps, paintAll } from "../drawing/maps.js";
import { startArithmetic } from "../views/arithmetic.js";
import { startCrumbs } from "../views/crumbs.js";
import { startGrids } from "../views/grid.js";
import { startHead } from "../views/head.js";
import { startHeatmaps } from "../views/heatmap.js";
import { startLines } from "../views/lines.js";
import { startPredictions } from "../views/next.js";
import { startPass } from "../views/pass.js";
import { startPicture } from "../views/picture.js";
import { startStory } from "../views/story.js";
import { startStrips } from "../views/strips.js";
import { startSummary } from "../views/summary.js";
import { startTexts } from "../views/tokens.js";
import { startTour } from "../views/tour.js";

// Print in light colours, at a fixed width, without scrolling. The class is set before the browser lays
// out the printed page, so that the drawings are placed correctly.
const onPaper = matchMedia("print");

function layOutForPaper(printed) {
  if (printed === isPrinted()) return;
  document.documentElement.classList.toggle("printed", printed);
  byId("unpainted").hidden = printed ? paintAll() : true; // shown on paper if some maps lack numbers
  point(null);
  repaint();
  changed("printed");
}

function repaint() {
  choosePalette();
  colourMaps();
  changed("palette");
}

/** Set the text size; the views are laid out again. */
function showTextSize() {
  const size = selection.textSize;
  document.documentElement.style.setProperty("--text-scale", size);
  byId("smaller-letters").disabled = size === TEXT_SIZES[0];
  byId("larger-letters").disabled = size === TEXT_SIZES.at(-1);
}

/** Step to the next text size, larger (1) or smaller (-1); move focus off a disabled button. */
function stepTextSize(direction) {
  const n = TEXT_SIZES.indexOf(selection.textSize) + direction;
  set({ textSize: TEXT_SIZES[n] });
  if (direction < 0 ? n === 0 : n === TEXT_SIZES.length - 1)
    byId(direction < 0 ? "larger-letters" : "smaller-letters").focus();
}

function showDepth() {
  const { depth, level } = selection;
  Object.assign(document.body.dataset, { depth, level });
  markChoice("depth", depth);
}

/** Load all layers of a small page in a file, so that it can be printed. */
async function preloadLayers() {
  for (const trace of traces.filter(({ id }) => id === undefined)) {
    const { layers, H, Dh, T, Tk } = trace;
    const isSmall = layers * H * Dh * (T + 2 * Tk) < 1_000_000;
    for (let layer = 0; layer < layers; layer++)
      if (isSmall && source.has(trace, `attention.${layer}`)) await loadLayer(trace, layer);
  }
}

function makeControls() {
  setChoices("depth", [["look", say("Look")], ["lab", say("Lab")]], setDepth);
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    repaint();
  });
  prefersDark.addEventListener("change", repaint);
  onPaper.addEventListener("change", () => layOutForPaper(onPaper.matches));
  addEventListener("beforeprint", () => layOutForPaper(true));
  addEventListener("afterprint", () => layOutForPaper(false));
  byId("smaller-letters").addEventListener("click", () => stepTextSize(-1));
  byId("larger-letters").addEventListener("click", () => stepTextSize(1));
  // Report the page's height, so that an embedding page can size its frame.
  if (parent !== window)
    new ResizeObserver(() => parent.postMessage({ height: document.documentElement.offsetHeight }, "*")).observe(document.documentElement);
}

/** Show the page's traces, and make its controls work. */
export function startPage() {
  choosePalette();
  makeControls();
  on("traces", forgetMaps);
  on("depth level", showDepth);
  on("textSize", showTextSize);
  startPicture();
  startSummary();
  startTexts();
  startPredictions();
  startHead();
  startArithmetic(); // before the maps, whose room it changes
  startHeatmaps();
  startLines();
  startStrips();
  startGrids();
  startTour();
  startCrumbs();
  startStory();
  startPass();
  on("head query key step display depth level textSize openCell chosenStep link", updateLink);
  openTraces(description.traces);
  set({ textSize: 1 });
  setTimeout(preloadLayers, 500);
  if (location.hash) followLink(location.hash);
  else setDepth(selection.depth);
  openStory();
  // Use the event's URL: `location` may have changed since.
  addEventListener("hashchange", ({ newURL }) => followLink(new URL(newURL).hash));
}
