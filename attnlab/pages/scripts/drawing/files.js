// What leaves the page: files that are saved, and text that is copied.

import { byId, make } from "./elements.js";

/** Save a file under a name. */
export function saveFile(name, content, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000); // once it has been read
}

/** Copy a text; in a frame that may not use the clipboard, by the older command. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = make("textarea", { class: "unseen" });
    box.value = text;
    const focused = document.activeElement;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
    focused?.focus();
  }
}

/** Say in the page's status line, for a moment, that something was done. */
export function announce(words) {
  const status = byId("done");
  status.textContent = words;
  clearTimeout(status.timer);
  status.timer = setTimeout(() => (status.textContent = ""), 3000);
}
