// Saving files, and a status line that says what was done.

import { byId, make } from "./elements.js";

export function saveFile(name, content, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000); // once it has been read
}

/** Say in the page's status line, for a moment, that something was done. */
export function announce(words) {
  const status = byId("done");
  status.textContent = words;
  clearTimeout(status.timer);
  status.timer = setTimeout(() => (status.textContent = ""), 3000);
}
