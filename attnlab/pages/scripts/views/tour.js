// A tour of the picture in stages, and the mode for presenting it.

import { NOTABLE } from "../numbers/constants.js";
import { percent, percentsOf } from "../numbers/formats.js";
import { joinSentences, say } from "../sources/description.js";
import { showLevel } from "../state/actions.js";
import { changed, isAt, isLook, on, selection, set } from "../state/store.js";
import { traces } from "../state/traces.js";
import { byId, isPresenting, isPrinted, make, nameInSentence, reducesMotion } from "../drawing/draw.js";
import { zoomOut } from "../drawing/levels.js";
import { stagesOf } from "../drawing/plan.js";

const STAGE_MILLISECONDS = 4000;

let stages = []; // of the tour of the shown picture
let timer = null; // while it plays

/** Add to a stage its sentences, and the curve or token that they mention. */
function describeStage(stage) {
  const trace = traces.at(-1);
  const { name, layer, layers } = stage;
  if (name === "embedding") return { ...stage, words: say("Embedding: each token becomes a vector of {D} numbers.", trace.pass) };
  if (name === "next") {
    const [{ word, probability } = {}] = trace.drawing.nextTokens;
    const words = word ? say("Next token: the last vector gives “{word}” a probability of {share}.", { word, share: percentsOf([probability])[0] }) : say("Next token");
    return { ...stage, words };
  }
  if (name === "mlp") {
    const changes = say("MLP {layer}: each vector is changed on its own.", { layer });
    const added = trace.drawing.norms ? trace.drawing.mlpNorms(layer) : [0];
    const largest = added.reduce((a, b) => Math.max(a, b));
    if (!largest) return { ...stage, words: changes }; // an ablated MLP, or not loaded yet
    const token = added.indexOf(largest);
    return { ...stage, token, words: joinSentences(changes, say("That of “{most}” changes most.", { most: nameInSentence(trace.tokens[token]) })) };
  }
  const first =
    name === "blocks"
      ? say("Layers {first} to {last}: attention and an MLP again, {count} more times.", { first: layers[0], last: layers.at(-1), count: layers.length })
      : say("Attention {layer}: each token collects from the tokens that its mask lets it attend to.", { layer });
  const curve = trace.drawing.curves.findLast(({ layer, isAblated }) => layers.includes(layer) && !isAblated);
  const share = trace.drawing.restOf(trace.drawing.laterTokens, layers);
  const rest = share >= NOTABLE && say("{rest} of the attention drawn here rests on the first token.", { rest: percent(share) });
  if (!curve) return { ...stage, words: joinSentences(first, rest) };
  const [query, key] = [curve.i, curve.j].map((i) => nameInSentence(trace.tokens[i]));
  const largest = say("The boldest line: “{query}” gives “{key}” {share} of its attention in head {layer}.{head}.", { ...curve, query, key, share: percent(curve.weight) });
  return { ...stage, curve, words: joinSentences(first, rest, largest) };
}

const describeStages = () => stagesOf(traces.at(-1).layers).map(describeStage);

/** Show a stage of the tour; end the tour if there is no such stage. */
function showStage(index) {
  stages = index === null ? [] : describeStages();
  const stage = stages[index] ?? null;
  if (!stage || stage === stages.at(-1)) stopPlaying();
  byId("stage-count").textContent = stage ? `${index + 1} / ${stages.length}` : "";
  byId("stage-words").textContent = stage?.words ?? "";
  set({ stage });
}

function stopPlaying() {
  clearInterval(timer);
  timer = null;
  showPlaying();
}

const showPlaying = () => (byId("play").textContent = timer ? `■ ${say("Stop")}` : `▶ ${say("Tour")}`);

/** Show the next stage (change: 1) or the previous one (-1); without a shown stage, the first or the last. */
const stepStage = (change) => {
  stopPlaying();
  const before = selection.stage ? stages.indexOf(selection.stage) : change > 0 ? -1 : describeStages().length;
  showStage(before + change);
};

/** Play the tour, or stop it; if reduced motion is requested, show only the first stage. */
function play() {
  if (timer) return stopPlaying();
  selection.isFollowing = false;
  showStage(0);
  if (reducesMotion.matches) return;
  timer = setInterval(() => showStage(stages.indexOf(selection.stage) + 1), STAGE_MILLISECONDS);
  showPlaying();
}

/** Enter or leave the mode for presenting the picture, in full screen if the browser allows it. */
function present(isOn) {
  const page = document.documentElement;
  if (isOn) showLevel("model");
  page.classList.toggle("presenting", isOn);
  changed("presenting");
  if (isOn) page.requestFullscreen?.().catch(() => {}); // a frame may not
  else if (document.fullscreenElement) document.exitFullscreen();
}

export function startTour() {
  on("traces isFollowing", () => showStage(null));
  on("language", showPlaying);
  on("language picture", () => selection.stage && showStage(stages.indexOf(selection.stage)));
  on("level", () => {
    if (!isAt("model")) stopPlaying();
    if (isAt("block")) showStage(null);
  });
  on("printed", () => {
    if (!isPrinted() || !isAt("model")) return;
    showStage(null); // the list of stages is printed below the whole picture
    byId("tour").replaceChildren(...describeStages().map(({ words }) => make("li", {}, words)));
  });
  byId("play").addEventListener("click", play);
  byId("all-tokens").addEventListener("click", () => set({ isFollowing: false }));
  byId("earlier").addEventListener("click", () => stepStage(-1));
  byId("later").addEventListener("click", () => stepStage(1));
  for (const [id, isOn] of [["present", true], ["leave", false]]) byId(id).addEventListener("click", () => present(isOn));
  addEventListener("fullscreenchange", () => document.fullscreenElement || !isPresenting() || present(false));
  addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return;
    if (event.target.closest?.("input, textarea, select") || event.ctrlKey || event.altKey || event.metaKey || !isLook()) return;
    if (event.key.toLowerCase() === "p") present(!isPresenting());
    else if (isPresenting() && event.key === "Escape") present(false);
    else if (isPresenting() && event.key === "ArrowRight") stepStage(1);
    else if (isPresenting() && event.key === "ArrowLeft") stepStage(-1);
    else if (event.key === "Escape" && !isAt("model")) zoomOut();
  });
}
