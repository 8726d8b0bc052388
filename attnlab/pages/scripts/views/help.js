// The page's legend and keys.

import { byId } from "../drawing/draw.js";

export function startHelp() {
  const dialog = byId("help");
  byId("ask").addEventListener("click", () => dialog.showModal());
  byId("close-help").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", ({ target }) => target === dialog && dialog.close()); // beside it
  addEventListener("keydown", ({ key, target }) => {
    if (key !== "?" || target.closest?.("input, textarea, select")) return;
    if (dialog.open) dialog.close();
    else dialog.showModal();
  });
}
