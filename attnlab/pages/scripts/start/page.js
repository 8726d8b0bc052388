// The page: its views, in the order in which they are drawn, and the controls of the whole page.

import { description, language, LANGUAGES, sayStored } from "../sources/description.js";
import { loadLayer, source } from "../sources/source.js";
import { openTraces, point, setDepth, showLanguage } from "../state/actions.js";
import { followLink, followWholeLink, updateLink } from "../state/link.js";
import { changed, on, selection } from "../state/store.js";
import { openStory } from "../state/story.js";
import { traces } from "../state/traces.js";
import { startCard } from "../drawing/card.js";
import { choosePalette } from "../drawing/palette.js";
import { isDark, isPrinted, prefersDark } from "../drawing/draw.js";
import { byId } from "../drawing/elements.js";
import { startAblated } from "../views/ablated.js";
import { startArithmetic } from "../views/arithmetic.js";
import { startHead } from "../views/head.js";
import { startHeatmaps } from "../views/heatmap.js";
import { startPredictions } from "../views/next.js";
import { startLayers } from "../views/layers.js";
import { startNotice } from "../views/notices.js";
import { startPass } from "../views/pass.js";
import { startReasons } from "../views/reasons.js";
import { startSentence } from "../views/sentence.js";
import { startMenu } from "../views/menu.js";
import { startStory } from "../views/story.js";
import { startSummary } from "../views/summary.js";

// Print in light colours, at a fixed width, without scrolling. The class is set before the browser lays
// out the printed page, so that the drawings are placed correctly.
const onPaper = matchMedia("print");

function layOutForPaper(printed) {
  if (printed === isPrinted()) return;
  document.documentElement.classList.toggle("printed", printed);
  point(null);
  repaint();
  changed("printed");
}

function repaint() {
  choosePalette();
  changed("palette");
}

const FRAME = "header *, main, main *, dialog, dialog *";
const LABELS = ["title", "aria-label", "data-tip"];

/** The frame's texts, each with what shows it in an element; called before the views add theirs. */
function textsOfFrame() {
  const english = new Map(description.frame.map((text) => [sayStored(text), text]));
  return [...document.querySelectorAll(FRAME)].flatMap((element) =>
    [
      { text: english.get(element.innerHTML.trim()), show: (words) => (element.innerHTML = words) },
      ...LABELS.map((name) => ({ text: english.get(element.getAttribute(name)), show: (words) => element.setAttribute(name, words) })),
    ].filter(({ text }) => text),
  );
}

/** The controls of the whole page, in its language; a button leads to the other one. */
function showControls() {
  const other = language === "en" ? "zh" : "en";
  Object.assign(byId("language"), { lang: other, textContent: LANGUAGES[other], onclick: () => showLanguage(other) });
}

function showDepth() {
  const { depth, level } = selection;
  Object.assign(document.body.dataset, { depth, level });
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
  showControls();
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    repaint();
  });
  prefersDark.addEventListener("change", repaint);
  onPaper.addEventListener("change", () => layOutForPaper(onPaper.matches));
  addEventListener("beforeprint", () => layOutForPaper(true));
  addEventListener("afterprint", () => layOutForPaper(false));
  // Report the page's height, so that an embedding page can size its frame.
  if (parent !== window)
    new ResizeObserver(() => parent.postMessage({ height: document.documentElement.offsetHeight }, "*")).observe(document.documentElement);
}

/** Show the page's traces, and make its controls work; startMore() starts further views. */
export function startPage(startMore = () => {}) {
  const frame = textsOfFrame();
  choosePalette();
  makeControls();
  startCard();
  on("language", () => {
    for (const { text, show } of frame) show(sayStored(text));
    choosePalette(); // its button's words
    showControls();
  });
  on("depth level", showDepth);
  startSentence();
  startLayers();
  startSummary();
  startNotice();
  startPredictions();
  startHead();
  startArithmetic(); // before the maps, whose room it changes
  startReasons();
  startHeatmaps();
  startAblated();
  startStory();
  startPass();
  startMenu();
  startMore();
  on("head query key step depth level openCell chosenStep link settings language isPredicting", updateLink);
  openTraces(description.traces);
  setTimeout(preloadLayers, 500);
  if (location.hash) followLink(location.hash);
  else setDepth(selection.depth);
  openStory();
  // Use the event's URL: `location` may have changed since.
  addEventListener("hashchange", ({ newURL }) => followWholeLink(new URL(newURL).hash));
}
