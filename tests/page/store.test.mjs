import assert from "node:assert/strict";
import test from "node:test";

import { changed, on, selection, set } from "../scripts/state/store.js";

test("a change draws what depends on it, each once and in order", async () => {
  const drawn = [];
  on("query key", () => drawn.push(["map", selection.query]));
  on("head", () => drawn.push("head"));
  on("key", async () => drawn.push("text"));
  await set({ query: 3, key: 1 });
  assert.deepEqual(drawn.splice(0), [["map", 3], "text"]);
  changed("head", "traces");
  assert.deepEqual(drawn.splice(0), ["head"]);
  set({ hovered: null });
  assert.deepEqual(drawn, []);
});

test("a promise waits until all is drawn", async () => {
  let isDrawn = false;
  on("link", async () => {
    await null;
    isDrawn = true;
  });
  await set({ link: null });
  assert.ok(isDrawn);
});
