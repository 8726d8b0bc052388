import assert from "node:assert/strict";
import test from "node:test";

import { Timeline } from "../scripts/state/timeline.js";

test("undo returns to the step before, redo to the one after", () => {
  const timeline = new Timeline();
  timeline.note("a", false);
  assert.equal(timeline.undo(), null);
  timeline.note("b", true);
  timeline.note("b", true); // the same again is no step
  timeline.note("c", true);
  assert.equal(timeline.undo(), "b");
  assert.equal(timeline.undo(), "a");
  assert.equal(timeline.undo(), null);
  assert.equal(timeline.redo(), "b");
  timeline.note("b", true); // what was restored is shown
  assert.equal(timeline.redo(), "c");
  assert.equal(timeline.redo(), null);
});

test("a step after undo replaces what was undone; what follows by itself belongs to its step", () => {
  const timeline = new Timeline();
  timeline.note("a", false);
  timeline.note("a with its story", false);
  timeline.note("b", true);
  timeline.note("b with its story", false);
  assert.equal(timeline.undo(), "a with its story");
  timeline.note("a loaded", false); // keeps what can be redone
  assert.equal(timeline.redo(), "b with its story");
  assert.equal(timeline.undo(), "a loaded");
  timeline.note("c", true);
  assert.equal(timeline.redo(), null);
  assert.equal(timeline.undo(), "a loaded");
});
