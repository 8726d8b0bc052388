// Switches an atlas's page between its two languages.
const readable = []; // texts and labels, in the order of the document, as atlas.py lists them
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode;
  const labels = ["title", "aria-label"].map((name) => node.attributes?.[name]).filter(Boolean);
  readable.push(...(node.nodeType === Node.TEXT_NODE && /\S/.test(node.data) ? [node] : labels));
}
const words = Object.entries(JSON.parse(document.getElementById("words").textContent));
const texts = words.flatMap(([other, places]) => places.map((n) => ({ node: readable[n], own: readable[n].nodeValue, other })));
const button = document.getElementById("language");
let shown = "own";
button.addEventListener("click", () => {
  shown = shown === "own" ? "other" : "own";
  for (const text of texts) text.node.nodeValue = text[shown];
  [document.documentElement.lang, button.lang] = [button.lang, document.documentElement.lang];
  document.title = document.querySelector("h1").textContent;
});
button.hidden = false;

// ---- a head's details, in a page that has them: the numbers of the head that is open are filled into their places -----

const SVG = "http://www.w3.org/2000/svg";
const ROW = 17; // of a token, in units of a drawing

function make(name, attributes = {}, ...children) {
  const isDrawn = ["svg", "g", "line", "polyline", "polygon", "circle", "text", "title"].includes(name);
  const element = isDrawn ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Means by bin as a line with a band of one standard error; a point's tooltip has its numbers. */
function chart({ from, to, mean, error, said }) {
  if (!from.length) return ""; // texts of one token
  const [width, height, left, bottom, top] = [280, 116, 4, 16, 18];
  const largest = Math.max(...mean.map((value, n) => value + (error[n] || 0)), 1e-9);
  const x = (n) => left + ((width - 2 * left) * (n + 0.5)) / from.length;
  const y = (value) => top + (height - top - bottom) * (1 - Math.min(1, Math.max(0, value / largest)));
  const path = (sign) => mean.map((value, n) => `${x(n).toFixed(1)},${y(value + sign * (error[n] || 0)).toFixed(1)}`);
  const best = mean.indexOf(Math.max(...mean));
  const name = (n) => (from[n] === to[n] ? `${from[n]}` : `${from[n]}–${to[n]}`);
  const anchor = best < from.length / 4 ? "start" : best > (from.length * 3) / 4 ? "end" : "middle";
  const ticks = from.flatMap((first, n) => (n && Math.log2(first) % 1 ? [] : [make("text", { x: x(n), y: height - 3, "text-anchor": "middle" }, `${first}`)]));
  const label = mean.map((_, n) => `${name(n)}: ${said[n]}`);
  return make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label.join("; ") },
    make("line", { class: "axis", x1: left, x2: width - left, y1: y(0), y2: y(0) }),
    make("polygon", { points: [...path(1), ...path(-1).reverse()].join(" ") }),
    make("polyline", { points: path(0).join(" ") }),
    ...mean.map((value, n) => make("circle", { cx: x(n), cy: y(value), r: n === best ? 3 : 2 }, make("title", {}, label[n]))),
    ...ticks,
    make("text", { class: "peak", x: anchor === "middle" ? x(best) : anchor === "start" ? left : width - left, y: 11, "text-anchor": anchor }, `${name(best)}: ${said[best]}`));
}

const clipped = (token) => (token.length > 14 ? `${token.slice(0, 13)}…` : token);

/** A text's tokens, queries on the left and keys on the right, with lines of the weights above uniform attention. */
function lines(tokens, drawn, earlier) {
  const y = (n) => (n + 0.5) * ROW + (n >= earlier && earlier ? ROW / 2 : 0);
  const label = (x, anchor) => (token, n) => make("text", { x, y: y(n) + 4, "text-anchor": anchor, ...(n < earlier ? { class: "earlier" } : {}) }, clipped(token));
  const line = ([i, j, weight, excess]) => make("line", { x1: 100, y1: y(i), x2: 200, y2: y(j), "stroke-width": 0.75 + 3.25 * excess, "stroke-opacity": Math.max(0.25, Math.sqrt(excess)) },
    make("title", {}, `${tokens[i]} → ${tokens[j]} ${weight}`));
  const height = y(tokens.length - 1) + ROW;
  const names = drawn.map(([i, j, weight]) => `${tokens[i]} → ${tokens[j]} ${weight}`);
  return make("svg", { viewBox: `0 0 300 ${height}`, role: "img", "aria-label": names.join("; ") }, ...drawn.map(line),
    ...tokens.map(label(95, "end")).slice(earlier), ...tokens.map(label(205, "start")));
}

const row = (...cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell)));
const columns = (table) => Object.values(table)[0].map((_, n) => Object.fromEntries(Object.entries(table).map(([name, column]) => [name, column[n]])));

/** A top text. */
function topText({ text, from, strength, query, key, weight, promotes, tokens, lines: drawn, earlier }) {
  const where = make("i", {}, `${text} · ${from}`);
  const strongest = make("p", {}, make("b", {}, `${query} → ${key}`), ` ${weight.toFixed(2)} ⇒ ${promotes.join(", ")}`);
  return make("figure", {}, make("figcaption", {}, make("b", {}, strength.toFixed(1)), " ", where, strongest), lines(tokens, drawn, earlier.length));
}

function fillDetails(details, { positions, distances, pairs, tops, writes, twins }) {
  const fill = (id, ...children) => details.querySelector(`#${id} :is(tbody, .drawing)`).replaceChildren(...children);
  fill("positions", chart(positions));
  fill("distances", chart(distances));
  fill("pairs", ...columns(pairs).map(({ query, key, said, texts }) => row(query, key, said, `${texts}`)));
  fill("tops", ...columns(tops).map(topText));
  const half = writes.token.length / 2;
  fill("writes", ...columns(writes).slice(0, half).map(({ token, said }, n) => row(token, said, writes.token[half + n], writes.said[half + n])));
  const link = (layer, head) => make("a", { href: `#layer-${layer}-head-${head}` }, `${layer}.${head}`);
  fill("twins", ...columns(twins).map(({ layer, head, said }) => row(link(layer, head), said)));
}

const details = document.getElementById("details");
if (details) {
  const heads = JSON.parse(document.getElementById("heads-data").textContent);
  const sections = [...document.querySelectorAll(".head")]; // in the order of the heads
  const show = () => {
    // Not :target, which is set later. "#beside" closes a head.
    const section = sections.find(({ id }) => location.hash === `#${id}`) ?? document.querySelector(".first");
    if (!section) return;
    fillDetails(details, heads[sections.indexOf(section)]);
    section.querySelector("h2").after(details);
    section.scrollTop = 0;
  };
  addEventListener("hashchange", show);
  show();
}
