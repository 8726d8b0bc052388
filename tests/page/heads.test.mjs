import assert from "node:assert/strict";
import test from "node:test";

import { jobsOf } from "../scripts/numbers/heads.js";

test("jobs are mean weights on their keys", () => {
  const rows = [[1], [0.25, 0.75], [0.5, 0.25, 0.25], [0.1, 0.6, 0.1, 0.2]];
  const jobs = jobsOf([4, 7, 9, 4], (i) => rows[i]);
  const close = (actual, expected) => assert.ok(Math.abs(actual - expected) < 1e-12, `${actual}, not ${expected}`);
  close(jobs.previous.attention, (0.25 + 0.25 + 0.1) / 3);
  close(jobs.previous.uniform, (1 / 2 + 1 / 3 + 1 / 4) / 3);
  close(jobs.first.attention, (0.25 + 0.5 + 0.1) / 3);
  const { attention, uniform } = jobs.same;
  assert.deepEqual({ attention, uniform }, { attention: 0.1, uniform: 1 / 4 }); // only token 3 repeats one, token 0
  close(jobs.induction.attention, 0.6);
  close(jobs.induction.uniform, 1 / 4);
  assert.equal(jobsOf([1, 2, 3], (i) => rows[i]).induction, null);
});
