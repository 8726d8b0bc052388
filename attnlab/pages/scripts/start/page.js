// The page: its views, in the order in which they are drawn, and the controls of the whole page.

import { brief } from "../numbers/formats.js";
import { wordOf } from "../numbers/words.js";
import { description, language, LANGUAGES, say, sayStored } from "../sources/description.js";
import { loadLayer, source } from "../sources/source.js";
import { openTraces, point, setDepth, showLanguage } from "../state/actions.js";
import { followLink, followWholeLink, updateLink } from "../state/link.js";
import { changed, isLook, LEVELS, on, selection, set, TEXT_SIZES } from "../state/store.js";
import { openStory } from "../state/story.js";
import { alignment, traces } from "../state/traces.js";
import { startCard } from "../drawing/card.js";
import { choosePalette } from "../drawing/colours.js";
import { buttonOf, byId, isDark, isPrinted, make, markChoice, prefersDark, setChoices } from "../drawing/draw.js";
import { zoomTo } from "../drawing/levels.js";
import { colourMaps, forgetMaps, paintAll } from "../drawing/maps.js";
import { startAblated } from "../views/ablated.js";
import { startArithmetic } from "../views/arithmetic.js";
import { startHelp } from "../views/help.js";
import { startGrids } from "../views/grid.js";
import { startHead } from "../views/head.js";
import { startHeatmaps } from "../views/heatmap.js";
import { startLines } from "../views/lines.js";
import { startPredictions } from "../views/next.js";
import { startNotice } from "../views/notice.js";
import { startPass } from "../views/pass.js";
import { startPicture } from "../views/picture.js";
import { startReasons } from "../views/reasons.js";
import { startSharing } from "../views/sharing.js";
import { startStory } from "../views/story.js";
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
  const depths = [
    ["look", say("Look"), say("The model as a picture, with few words")],
    ["lab", say("Lab"), say("Every step, with all its numbers")],
  ];
  setChoices("depth", depths, setDepth);
  markChoice("depth", selection.depth);
  const other = language === "en" ? "zh" : "en";
  Object.assign(byId("language"), { lang: other, textContent: LANGUAGES[other], onclick: () => showLanguage(other) });
}

/** Set the text size; the views are laid out again. */
function showTextSize() {
  const size = selection.textSize;
  document.documentElement.style.setProperty("--text-scale", size);
  byId("smaller-letters").disabled = size === TEXT_SIZES[0];
  byId("larger-letters").disabled = size === TEXT_SIZES.at(-1);
}

/** Step to the next text size, larger (1) or smaller (-1); move focus off a button that is then disabled. */
function stepTextSize(direction) {
  set({ textSize: TEXT_SIZES[TEXT_SIZES.indexOf(selection.textSize) + direction] });
  const [pressed, other] = direction < 0 ? ["smaller-letters", "larger-letters"] : ["larger-letters", "smaller-letters"];
  if (byId(pressed).disabled) byId(other).focus();
}

function showDepth() {
  const { depth, level } = selection;
  Object.assign(document.body.dataset, { depth, level });
  markChoice("depth", depth);
}

/** The levels from the model to the current one; Escape and the browser's Back also return. */
function showCrumbs() {
  const { layer, head, step } = selection;
  const { query, key } = selection.openCell ?? selection;
  const label = (positions, tokens) => {
    const number = positions.findIndex((n) => n !== null); // the first trace that has it
    return brief(wordOf(traces[number][tokens][positions[number]]));
  };
  const names = {
    model: () => say("Model"),
    block: () => say("Layer {layer}", { layer }),
    head: () => say("Head {head}", { head }),
    matrix: () => step,
    number: () => `“${label(alignment.queries[query], "tokens")}” → “${label(alignment.keys[key], "keys")}”`,
  };
  const deepest = LEVELS.indexOf(selection.level);
  byId("crumbs").hidden = !isLook() || deepest === 0;
  byId("crumbs").firstElementChild.replaceChildren(
    ...LEVELS.slice(0, deepest + 1).map((level, n) => {
      const current = n === deepest && { "aria-current": "location" };
      return make("li", {}, buttonOf(() => current || zoomTo(level), { ...current }, names[level]()));
    }),
  );
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
  byId("smaller-letters").addEventListener("click", () => stepTextSize(-1));
  byId("larger-letters").addEventListener("click", () => stepTextSize(1));
  // Report the page's height, so that an embedding page can size its frame.
  if (parent !== window)
    new ResizeObserver(() => parent.postMessage({ height: document.documentElement.offsetHeight }, "*")).observe(document.documentElement);
}

/** Show the page's traces, and make its controls work. */
export function startPage() {
  const frame = textsOfFrame();
  choosePalette();
  makeControls();
  startCard();
  on("language", () => {
    for (const { text, show } of frame) show(sayStored(text));
    choosePalette(); // its button's words
    showControls();
  });
  on("traces language", forgetMaps);
  on("depth level", showDepth);
  on("textSize", showTextSize);
  startPicture();
  startSummary();
  startNotice();
  startTexts();
  startPredictions();
  startHead();
  startArithmetic(); // before the maps, whose room it changes
  startReasons();
  startHeatmaps();
  startLines();
  startGrids();
  startAblated();
  startTour();
  on("level depth head step openCell", showCrumbs);
  startStory();
  startPass();
  startSharing();
  startHelp();
  on("head query key step display depth level textSize openCell chosenStep link zoom overlaid isFollowing drawsFirst settings language", updateLink);
  openTraces(description.traces);
  set({ textSize: 1 });
  setTimeout(preloadLayers, 500);
  if (location.hash) followLink(location.hash);
  else setDepth(selection.depth);
  openStory();
  // Use the event's URL: `location` may have changed since.
  addEventListener("hashchange", ({ newURL }) => followWholeLink(new URL(newURL).hash));
}
