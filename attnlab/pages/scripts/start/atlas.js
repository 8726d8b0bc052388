// An atlas's page: it is switched between its two languages, and shows the details of the head that is open.

import { description, setLanguage } from "../sources/description.js";
import { svg } from "../drawing/arcs.js";
import { byId, make } from "../drawing/elements.js";
import { Stage } from "../views/stage.js";

// ---- languages -----------------------------------------------------------------------------------------

/** The texts and labels of the page, in the order of the document, as atlas.py lists them. */
function readableNodes() {
  const nodes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const labels = ["title", "aria-label"].map((name) => node.attributes?.[name]).filter(Boolean);
    nodes.push(...(node.nodeType === Node.TEXT_NODE && /\S/.test(node.data) ? [node] : labels));
  }
  return nodes;
}

/** Let a button switch the page between its two languages. */
function startLanguages() {
  const nodes = readableNodes();
  const differing = Object.entries(JSON.parse(byId("texts").textContent));
  const texts = differing.flatMap(([other, places]) =>
    places.map((n) => ({ node: nodes[n], own: nodes[n].nodeValue, other })),
  );
  const button = byId("language");
  let shown = "own";
  button.addEventListener("click", () => {
    shown = shown === "own" ? "other" : "own";
    for (const text of texts) text.node.nodeValue = text[shown];
    const former = document.documentElement.lang;
    setLanguage(button.lang.slice(0, 2));
    button.lang = former;
    document.title = document.querySelector("h1").textContent;
  });
  button.hidden = false;
}

// ---- a head's details: the numbers of the head that is open are filled into their places ---------------

const LETTERS = 15; // size of a top text's words, in pixels
const [WIDTH, HEIGHT] = [280, 116]; // a chart's size, in its own units
const [LEFT, TOP, BOTTOM] = [4, 18, 16]; // a chart's margins, in the same units

/** Means by bin as a line with a band of one standard error; a point's tooltip has its numbers. */
function chart({ from, to, mean, error, said }) {
  if (!from.length) return ""; // texts of one token
  const largest = Math.max(...mean.map((value, n) => value + (error[n] || 0)), 1e-9); // above 0, as it is a divisor
  const x = (n) => LEFT + ((WIDTH - 2 * LEFT) * (n + 0.5)) / from.length;
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - Math.min(1, Math.max(0, value / largest)));
  const pointsOf = (sign) =>
    mean.map((value, n) => `${x(n).toFixed(1)},${y(value + sign * (error[n] || 0)).toFixed(1)}`);
  const best = mean.indexOf(Math.max(...mean));
  const name = (n) => (from[n] === to[n] ? `${from[n]}` : `${from[n]}–${to[n]}`);
  const label = mean.map((_, n) => `${name(n)}: ${said[n]}`);
  const [anchor, middle] =
    best < from.length / 4
      ? ["start", LEFT]
      : best > (from.length * 3) / 4
        ? ["end", WIDTH - LEFT]
        : ["middle", x(best)];
  const isTick = (first, n) => n === 0 || Math.log2(first) % 1 === 0; // ticks are at powers of two
  const tick = (first, n) => svg("text", { x: x(n), y: HEIGHT - 3, "text-anchor": "middle" }, `${first}`);
  const dot = (value, n) =>
    svg("circle", { cx: x(n), cy: y(value), r: n === best ? 3 : 2 }, svg("title", {}, label[n]));
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label.join("; ") },
    svg("line", { class: "axis", x1: LEFT, x2: WIDTH - LEFT, y1: y(0), y2: y(0) }),
    svg("polygon", { points: [...pointsOf(1), ...pointsOf(-1).reverse()].join(" ") }),
    svg("polyline", { points: pointsOf(0).join(" ") }),
    ...mean.map(dot),
    ...from.flatMap((first, n) => (isTick(first, n) ? [tick(first, n)] : [])),
    svg("text", { class: "peak", x: middle, y: 11, "text-anchor": anchor }, label[best]),
  );
}

/** A top text: its words with the arcs of its strongest query, or of the one that the reader points at. */
function topText({ text, from, strength, query, key, weight, promotes, tokens, lines, earlier }) {
  const rows = tokens.map(() => new Float64Array(tokens.length));
  for (const [i, j, share] of lines) rows[i][j] = share;
  const strongest = lines[0]?.[0] ?? tokens.length - 1; // there are no lines if every weight is as usual
  const element = make("div", { class: "sentence-stage" });
  const draw = (i) => {
    const query = i ?? strongest;
    const named = [...rows[query].keys()].filter((j) => rows[query][j] > 0);
    stage.draw({ rowOf: (n) => rows[n], query, named, next: null });
  };
  const stage = new Stage(element, { letters: LETTERS, choose: draw, toggleRow: () => {} });
  const queries = tokens.map((token) => token.replace(/^Ġ/, " "));
  stage.show({ queries, keys: queries, isSelf: true, isCausal: true, hasNext: false });
  stage.words.forEach((word, n) => word.classList.toggle("earlier", n < earlier.length)); // these are first
  if (earlier.length) stage.words[earlier.length].classList.add("after-fold");
  draw();
  const caption = make("figcaption", {}, make("b", {}, strength.toFixed(1)), " ", make("i", {}, `${text} · ${from}`));
  const said = make("p", {}, make("b", {}, `${query} → ${key}`), ` ${weight.toFixed(2)} ⇒ ${promotes.join(", ")}`);
  return make("figure", {}, caption, said, element);
}

const rowOfCells = (...cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell)));

/** The rows of a table of columns. */
const recordsOf = (table) =>
  Object.values(table)[0].map((_, n) =>
    Object.fromEntries(Object.entries(table).map(([name, column]) => [name, column[n]])),
  );

function fillDetails({ positions, distances, pairs, tops, writes }) {
  const fill = (id, ...children) => byId(id).querySelector("tbody, .drawing").replaceChildren(...children);
  fill("positions", chart(positions));
  fill("distances", chart(distances));
  fill("pairs", ...recordsOf(pairs).map(({ query, key, said, texts }) => rowOfCells(query, key, said, `${texts}`)));
  fill("tops", ...recordsOf(tops).map(topText));
  const { token, said } = writes; // first the promoted tokens, then as many demoted ones
  const half = token.length / 2;
  const pair = (n) => rowOfCells(token[n], said[n], token[half + n], said[half + n]);
  fill("writes", ...Array.from({ length: half }, (_, n) => pair(n)));
}

/** Show the details of the head that the address names, or of the first. "#beside" closes a head. */
function showDetails() {
  const sections = [...document.querySelectorAll(".head")]; // in the order of the heads
  // Not by the selector :target, which browsers update only after the event.
  const section = sections.find(({ id }) => location.hash === `#${id}`) ?? document.querySelector(".first");
  if (!section) return;
  fillDetails(description[sections.indexOf(section)]);
  section.querySelector("h2").after(byId("details"));
  section.scrollTop = 0;
}

startLanguages();
if (description.length) {
  addEventListener("hashchange", showDetails);
  showDetails();
}
