// Next tokens after a position: from logits to the sampled token.

import { grouped } from "../numbers/formats.js";
import { totalOf } from "../numbers/predictions.js";
import { description, say, sayMessage, sayParts } from "../sources/description.js";
import { source, whyNoLogits, withProbabilities } from "../sources/source.js";
import { changed, isLook, on, settings } from "../state/store.js";
import { isPredicted, queryIn, traces } from "../state/traces.js";
import { drawingsIn, number, onceAFrame, rowOf, tokenElement } from "../drawing/draw.js";
import { byId, make, tableOf } from "../drawing/elements.js";
import { lineOf } from "../drawing/explain.js";
import { nextTokenTitle, prefixOf } from "../drawing/names.js";

const MAX_ROWS_LISTED = 20; // the most tokens in the table
const NAMELESS = /^<row \d+>$/; // the symbol of an id without a token, an unused row of W_E

let settingSliders = [];

/** The largest number of tokens that predictions include. */
const mostTokens = () => Math.max(...traces.map(({ prediction }) => prediction.n));

function makeSettings() {
  settingSliders = makeSliders();
  byId("settings").replaceChildren(...settingSliders.map(({ element }) => element));
}

function makeSliders() {
  const temperatures = [0, ...description.sliders.temperatures];
  const topPs = [...description.sliders.topPs, null];
  const set = (values) => {
    Object.assign(settings, values);
    changed("settings");
  };
  return [
    slider(say("temperature"), {
      shownText: (n) => temperatures[n].toFixed(1),
      spokenText: (n) => (n ? temperatures[n].toFixed(1) : say("0: always the most probable token")),
      onChange: (n) => set({ temperature: temperatures[n] }),
      state: () => [temperatures.indexOf(settings.temperature), temperatures.length - 1],
    }),
    slider("top-k", { // at n, top-k is n + 1; at the right end, there is no cut
      shownText: (n, max) => (n === max ? say("all") : `${n + 1}`),
      spokenText: (n, max) => (n === max ? say("all tokens") : say("the {n} most probable tokens", { n: n + 1 })),
      onChange: (n, max) => set({ top_k: n === max ? null : n + 1 }),
      state: () => [settings.top_k === null ? mostTokens() : settings.top_k - 1, mostTokens()],
    }),
    slider("top-p", {
      shownText: (n) => (topPs[n] === null ? say("all") : `${topPs[n]}`),
      spokenText: (n) =>
        topPs[n] === null
          ? say("all tokens")
          : say("the most probable tokens, up to a total of {share}", { share: topPs[n] }),
      onChange: (n) => set({ top_p: topPs[n] }),
      state: () => [topPs.indexOf(settings.top_p), topPs.length - 1],
    }),
  ];
}

const showSettings = () => settingSliders.forEach(({ set, state }) => set(...state()));

/**
 * A slider from 0. shownText, spokenText: the text of a value beside the slider and for screen readers, from the value
 * and the maximum. state: returns the setting's value and maximum.
 */
function slider(name, { shownText, spokenText, onChange, state }) {
  const valueAndMax = () => [Number(range.value), Number(range.max)];
  const showValue = () => {
    shown.textContent = shownText(...valueAndMax());
    range.setAttribute("aria-valuetext", spokenText(...valueAndMax()));
  };
  const input = () => {
    showValue();
    onChange(...valueAndMax());
  };
  const range = make("input", { type: "range", min: 0, input });
  const shown = make("span", { class: "value", "aria-hidden": "true" });
  return {
    element: make("div", { class: "slider" }, make("label", {}, name, range), shown),
    state,
    set(value, max = range.max) {
      Object.assign(range, { max, value });
      showValue();
    },
  };
}

/** The predictions after a trace's selected token: a list next to the text, and the arithmetic. */
class Prediction {
  constructor(trace) {
    this.trace = trace;
    this.steps = make("ol", { class: "chain" });
    this.table = make("div", { class: "table", tabindex: "0", role: "region" });
    this.following = make("p", { class: "sum" });
    this.heading = make("h3");
    this.note = make("p", { class: "note" });
    byId("predictions").append(
      make("article", { "data-trace": trace.number }, this.heading, this.note, this.steps, this.table, this.following),
    );
    this.draw = onceAFrame(() => this.#draw());
  }

  async #draw() {
    const { trace } = this;
    if (isLook() || traces[trace.number] !== trace) return; // other texts may be shown since this was requested
    const position = queryIn(trace);
    const prediction = position < trace.prediction.first ? undefined : await source.predictionAfter(trace, position);
    if (traces[trace.number] !== trace || position !== queryIn(trace)) return; // another text or token has been chosen
    this.heading.replaceChildren(prefixOf(trace), ...nextTokenTitle(trace, position));
    for (const part of ["steps", "table", "following"]) this[part].hidden = !prediction;
    // limits: what the model can't do, a text from its card.
    this.note.textContent = prediction ? say(trace.limits) : whyNoLogits(trace);
    if (prediction) this.#drawCandidates(position, withProbabilities(trace, prediction, settings));
  }

  #drawCandidates(position, candidates) {
    const { trace, table } = this;
    this.steps.replaceChildren(...equationsOf(trace.prediction, candidates));
    table.ariaLabel = this.heading.textContent;
    table.replaceChildren(candidatesTable(trace.prediction.rows, candidates));
    this.following.replaceChildren(...followingOf(trace.tokens[position + 1], candidates));
  }
}

/** The equations from the last vector of the residual stream to the sampling probabilities. */
function equationsOf({ heading, purposes }, { vocab, logits, sum, keptSum, count }) {
  const { temperature } = settings;
  const softmaxed = temperature
    ? sayParts("exp(logit / {temperature} − {largest}) / {sum}, the sum over all {vocab} tokens.", {
        temperature: String(temperature), largest: number(logits[0] / temperature, 4), sum: number(sum, 4),
        vocab: grouped(vocab),
      })
    : [say("At temperature 0, the largest logit (the first if tied) gets probability 1.")];
  const left = { count: grouped(count), vocab: grouped(vocab), left: temperature ? number(keptSum, 4) : "" };
  const cut =
    count === vocab
      ? [say("No tokens are cut off.")]
      : temperature
        ? sayParts("{count} of {vocab} tokens are left; renormalized: exp / {left}.", left)
        : [say("One token is left.")];
  return [
    lineOf(sayMessage(heading), say(purposes.logits)),
    lineOf("probabilities = softmax(logits / temperature)", say(purposes.probabilities), " ", ...softmaxed),
    lineOf("top-k, top-p", ...cut),
  ];
}

/** A table with a row for each token, from its logit to the probability that it is sampled with. */
function candidatesTable(unusedRows, candidates) {
  const { vocab, logits, exponentials, sum, probabilities, removedBy, renormalized, tokens, others } = candidates;
  const { temperature } = settings;
  const count = Math.min(MAX_ROWS_LISTED, tokens.length);
  const contentOf = (x) => (typeof x === "number" ? number(x, 4) : x);
  const tokenRow = (name, logit, steps, ...ends) => {
    const cells = [logit, ...(temperature ? steps : []), ...ends]; // at temperature 0, no softmax
    return rowOf(name, cells.map(contentOf));
  };
  let cumulative = 0;
  const rows = Array.from({ length: count }, (_, n) => {
    cumulative += renormalized[n];
    const strikeIfRemoved = (x) => (removedBy[n] ? make("s", {}, contentOf(x)) : x);
    const steps = [
      logits[n] / temperature, (logits[n] - logits[0]) / temperature, exponentials[n],
      strikeIfRemoved(probabilities[n]),
    ];
    const name = strikeIfRemoved(tokenElement(tokens[n]));
    // What removed the token, or its probability; at temperature 0, always the probability.
    const result = (temperature && removedBy[n]) || renormalized[n];
    const row = tokenRow(name, logits[n], steps, result, removedBy[n] ? "" : cumulative);
    row.classList.toggle("struck", removedBy[n] !== "");
    return row;
  });
  const foot = [tokenRow(say("sum"), "", ["", "", sum, 1], 1, "")];
  if (count < vocab) {
    // A total over the tokens without a row here: those in the prediction, and all others.
    const totalBeyond = (values, rest) => totalOf(values.slice(count)) + rest;
    const sums = [totalBeyond(exponentials, others.exponential), totalBeyond(probabilities, others.probability)];
    const isToken = ({ symbol }) => !NAMELESS.test(symbol);
    const unlisted = vocab - unusedRows - tokens.slice(0, count).filter(isToken).length;
    const unlistedUnused = vocab - count - unlisted;
    const counts = { count: grouped(unlisted), rest: grouped(unlistedUnused) };
    const name = unlistedUnused
      ? say("the other {count}, and {rest} unused rows of W_E", counts)
      : say("the other {count}", counts);
    foot.unshift(tokenRow(name, "", ["", "", ...sums], totalBeyond(renormalized, others.renormalized), ""));
  }
  const steps = [`logit / ${temperature}`, say("minus the maximum"), "exp", say("probability")];
  const headings = [say("token"), "logit", ...(temperature ? steps : []), say("renormalized"), say("cumulative")];
  const caption = say("The {count} most probable of {vocab} tokens", { count, vocab: grouped(vocab - unusedRows) });
  return tableOf(caption, headings, rows, foot);
}

/** The text's next token, and its probability. */
function followingOf(token, { vocab, following, logits, sum }) {
  if (!token) return [say("The text ends here.")];
  const rank = following.larger + 1;
  const { temperature } = settings;
  const probability = temperature ? Math.exp((following.logit - logits[0]) / temperature) / sum : Number(rank === 1);
  const values = {
    token: tokenElement(token), rank: grouped(rank), vocab: grouped(vocab), probability: number(probability, 4),
  };
  return sayParts("The next token in the text is {token}: rank {rank} of {vocab}, probability {probability}.", values);
}

let predictions; // returns one for each trace
const drawPredictions = () => predictions().forEach((prediction) => prediction.draw());

export function startPredictions() {
  makeSettings();
  on("language", makeSettings);
  predictions = drawingsIn("predictions", () => traces, (trace) => new Prediction(trace));
  on("traces language", () => {
    // The sliders' ranges depend on the texts.
    if (settings.top_k > mostTokens()) settings.top_k = null;
    showSettings();
    drawPredictions();
  });
  on("settings", showSettings);
  on("query settings depth", drawPredictions);
  on("traces isPredicting revealed", () => (byId("prediction").hidden = traces.some(isPredicted)));
}
