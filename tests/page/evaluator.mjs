// Evaluate what tests/node.py sends, a line each, among the exports of the pure modules.

import { readdirSync } from "node:fs";
import { createInterface } from "node:readline";

// A page's description and its words in another language.
const texts = { description: '{"steps": {}}', words: "{}" };
globalThis.document = { documentElement: { lang: "en" }, getElementById: (id) => ({ textContent: texts[id] }) };

const scripts = new URL("../scripts/", import.meta.url);
const numbers = readdirSync(new URL("numbers/", scripts)).map((name) => `numbers/${name}`);
for (const path of [...numbers, "sources/description.js", "sources/rows.js"]) Object.assign(globalThis, await import(new URL(path, scripts)));

// JSON with NaN and Infinity, as Python reads it.
const MARK = "\u0001";
const written = (value) =>
  JSON.stringify(value, (_, x) => (typeof x === "number" && !Number.isFinite(x) ? MARK + x : x)).replace(/"\\u0001(.*?)"/g, "$1");

for await (const line of createInterface({ input: process.stdin })) {
  const [expression, given] = JSON.parse(line);
  try {
    const value = (0, eval)(expression);
    console.log(written({ value: await (typeof value === "function" ? value(given) : value) }));
  } catch (error) {
    console.log(written({ error: error.stack }));
  }
}
