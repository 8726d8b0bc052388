// Copying a link, and saving pictures and tables.

import { csvOf } from "../numbers/csv.js";
import { say } from "../sources/description.js";
import { matrixOf } from "../sources/rows.js";
import { linkOfPage } from "../state/link.js";
import { isLook, on, selection } from "../state/store.js";
import { isLoaded, traces, views } from "../state/traces.js";
import { byId } from "../drawing/draw.js";
import { announce, copyText, saveFile } from "../drawing/files.js";
import { pngOf, svgOf } from "../drawing/snapshot.js";

const BYTE_ORDER_MARK = "\ufeff"; // so that spreadsheets read UTF-8

/** The name of a file that shows what the page does. */
const fileName = (ending) => {
  const { layer, head } = selection;
  const isOfHead = byId("head").checkVisibility();
  return ["attnlab", traces[0].model, ...(isOfHead ? [`${layer}.${head}`] : [])].filter(Boolean).join("-").replace(/[^\w.-]+/g, "-") + ending;
};

const saveTable = (rows) => saveFile(fileName(".csv"), BYTE_ORDER_MARK + csvOf(rows), "text/csv");

// ---- tables --------------------------------------------------------------------------------------

/** A cell's text, and its numbers at full precision. */
function partsOfCell(cell) {
  const copy = cell.cloneNode(true);
  const numbers = [...copy.querySelectorAll("data")].map((data) => data.value);
  for (const data of copy.querySelectorAll("data")) data.remove();
  return { text: copy.textContent.replace("→", "").trim(), numbers };
}

/** A table's rows. A column whose cells have several numbers, or a text and numbers, becomes several. */
function cellsOf(table) {
  const [heading, ...rows] = [...table.rows].map(({ cells }) => [...cells].map(partsOfCell));
  const columns = heading.map(({ text, numbers }, n) => {
    const cells = rows.map((row) => row[n] ?? { text: "", numbers: [] });
    const most = Math.max(0, ...cells.map((cell) => cell.numbers.length));
    const isMixed = most > 0 && cells.some((cell) => cell.text && cell.numbers.length);
    const width = Math.max(1, most + Number(isMixed));
    const partsOf = (cell) => (isMixed ? [cell.text, ...cell.numbers] : cell.numbers.length ? cell.numbers : [cell.text]);
    const padded = (parts) => Array.from({ length: width }, (_, k) => parts[k] ?? "");
    const name = [text, ...numbers].join(" ").trim();
    return [padded([name, ...Array.from({ length: width - 1 }, (_, k) => `${name} ${k + 2}`)]), ...cells.map((cell) => padded(partsOf(cell)))];
  });
  return [...table.rows].map((_, n) => columns.flatMap((column) => column[n]));
}

/** The buttons in a table's caption copy or save it. */
function listenToTables() {
  addEventListener("click", async ({ target }) => {
    const button = target.closest?.("[data-csv]");
    if (!button) return;
    const rows = cellsOf(button.closest("table"));
    if (button.dataset.csv === "save") return saveTable(rows);
    await copyText(csvOf(rows));
    announce(say("Copied."));
  });
}

/** A view's map: its keys above, its queries at the left. */
function cellsOfMap(view) {
  const matrix = matrixOf(view, selection);
  const row = (i) => [view.symbols.queries[i], ...matrix.subarray(i * view.Tk, (i + 1) * view.Tk)];
  return [[`${selection.step}${views.length > 1 ? ` ${view.name}` : ""}`, ...view.symbols.keys], ...[...view.symbols.queries.keys()].map(row)];
}

// ---- pictures ------------------------------------------------------------------------------------

const PICTURES = ["picture", "lines", "heatmaps"];

function pictureShown() {
  const shown = PICTURES.map(byId).filter((element) => element.checkVisibility());
  return svgOf(shown, document.title);
}

const ACTIONS = {
  "copy-link": async () => {
    await copyText(location.href.replace(/#.*|$/, `#${linkOfPage()}`));
    announce(say("Link copied."));
  },
  "save-svg": () => saveFile(fileName(".svg"), pictureShown().svg, "image/svg+xml"),
  "save-png": async () => saveFile(fileName(".png"), await pngOf(pictureShown()), "image/png"),
  "save-map": () => saveTable(views.filter((view) => isLoaded(view, selection)).flatMap(cellsOfMap)),
};

export function startSharing() {
  const menu = byId("share");
  for (const [id, act] of Object.entries(ACTIONS))
    byId(id).addEventListener("click", () => {
      menu.open = false;
      menu.firstElementChild.focus();
      act();
    });
  // A click elsewhere, or Escape, closes the menu.
  addEventListener("pointerdown", ({ target }) => menu.contains(target) || (menu.open = false));
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.stopPropagation();
    menu.open = false;
    menu.firstElementChild.focus();
  });
  on("level depth", () => (byId("save-map").hidden = isLook() && !byId("head").checkVisibility()));
  listenToTables();
}
