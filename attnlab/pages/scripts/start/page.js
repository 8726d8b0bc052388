// The page: its views, in the order in which they are drawn, and the controls of the whole page.

import { description, language, LANGUAGES, say } from "../sources/description.js";
import { openTraces, setDepth, showLanguage } from "../state/actions.js";
import { followLink, followWholeLink, updateLink } from "../state/link.js";
import { changed, on, selection } from "../state/store.js";
import { openStory } from "../state/story.js";
import { choosePalette } from "../drawing/palette.js";
import { isDark, prefersDark } from "../drawing/draw.js";
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
import { startSummary } from "../views/summary.js";

function repaint() {
  choosePalette();
  showControls();
  changed("palette");
}

const FRAME = "header *, main, main *, dialog, dialog *"; // the elements of page.html that may have texts
const LABELS = ["title", "aria-label"];

/** The texts of page.html, each with a function that replaces it. Called before views add texts of their own. */
function textsOfFrame() {
  const english = new Map(description.frame.map((text) => [say(text), text]));
  return [...document.querySelectorAll(FRAME)].flatMap((element) =>
    [
      { text: english.get(element.innerHTML.trim()), show: (words) => (element.innerHTML = words) },
      ...LABELS.map((name) => {
        const show = (words) => element.setAttribute(name, words);
        return { text: english.get(element.getAttribute(name)), show };
      }),
    ].filter(({ text }) => text),
  );
}

/** Write what the buttons for the other language and the other theme do. */
function showControls() {
  byId("theme").textContent = isDark() ? say("Light") : say("Dark");
  const other = language === "en" ? "zh" : "en";
  Object.assign(byId("language"), { lang: other, textContent: LANGUAGES[other], onclick: () => showLanguage(other) });
}

function makeControls() {
  showControls();
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    repaint();
  });
  prefersDark.addEventListener("change", repaint);
  // Report the page's height, so that an embedding page can size its frame.
  const { documentElement: root } = document;
  const report = () => parent.postMessage({ height: root.offsetHeight }, "*");
  if (parent !== window) new ResizeObserver(report).observe(root);
}

/** Show the page's traces, and make its controls work; startMore() starts further views. */
export function startPage(startMore = () => {}) {
  const frame = textsOfFrame();
  choosePalette();
  makeControls();
  on("language", () => {
    for (const { text, show } of frame) show(say(text));
    showControls();
  });
  on("depth", () => (document.body.dataset.depth = selection.depth));
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
  startPass();
  startMenu();
  startMore();
  on("head query key step depth openCell chosenStep settings language isPredicting isSilenced", updateLink);
  openTraces(description.traces);
  if (location.hash) followLink(location.hash);
  else setDepth(selection.depth);
  openStory();
  // Use the event's URL: `location` may have changed since.
  addEventListener("hashchange", ({ newURL }) => followWholeLink(new URL(newURL).hash));
}
