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
