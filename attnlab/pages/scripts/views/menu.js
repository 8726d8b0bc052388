// The page's menu: all numbers, copying a link, saving the picture, colours, help.

import { say } from "../sources/description.js";
import { setDepth } from "../state/actions.js";
import { linkOfPage, startEntry } from "../state/link.js";
import { isLook, on, selection, set } from "../state/store.js";
import { traces } from "../state/traces.js";
import { byId } from "../drawing/elements.js";
import { announce, saveFile } from "../drawing/files.js";
import { pictureOf, pngOf } from "../drawing/picture.js";

/** A name for a file with what the page shows now. */
const fileName = (ending) =>
  `${["attnlab", traces[0].model, `${selection.layer}.${selection.head}`]
    .filter(Boolean)
    .join("-")
    .replace(/[^\w.-]+/g, "-")}${ending}`;

const shownPicture = () => pictureOf([byId("stages"), byId("said")], document.title);

const ACTIONS = {
  "all-numbers": () => {
    startEntry();
    setDepth(isLook() ? "lab" : "look");
  },
  "predict-first": () => set({ isPredicting: !selection.isPredicting }),
  "copy-link": async () => {
    const link = location.href.replace(/#.*|$/, `#${linkOfPage()}`);
    // Browsers may forbid it, such as to a page in a frame; an insecure page has no clipboard.
    const isCopied = await navigator.clipboard?.writeText(link).then(() => true, () => false);
    announce(isCopied ? say("Link copied.") : say("The browser doesn't let this page copy the link."));
  },
  "save-svg": () => saveFile(fileName(".svg"), shownPicture().outerHTML, "image/svg+xml"),
  "save-png": async () => saveFile(fileName(".png"), await pngOf(shownPicture()), "image/png"),
  ask: () => byId("help").showModal(),
};

export function startMenu() {
  const menu = byId("menu");
  const close = () => {
    menu.open = false;
    menu.firstElementChild.focus();
  };
  // An item closes the menu before it acts: Help takes the focus.
  menu.addEventListener("click", ({ target }) => target.matches("button") && close(), true);
  for (const [id, act] of Object.entries(ACTIONS)) byId(id).addEventListener("click", act);
  // A click elsewhere, or Escape, closes the menu.
  addEventListener("pointerdown", ({ target }) => {
    if (!menu.contains(target)) menu.open = false;
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.stopPropagation();
    close();
  });
  const mark = () => {
    byId("all-numbers").setAttribute("aria-pressed", String(!isLook()));
    byId("predict-first").setAttribute("aria-pressed", String(selection.isPredicting));
  };
  on("depth isPredicting", mark);
  mark();
  const help = byId("help");
  byId("close-help").addEventListener("click", () => help.close());
  help.addEventListener("click", ({ target }) => target === help && help.close()); // on the backdrop
  addEventListener("keydown", ({ key, target }) => {
    if (key !== "?" || target.closest?.("input, textarea, select")) return;
    if (help.open) help.close();
    else help.showModal();
  });
}
