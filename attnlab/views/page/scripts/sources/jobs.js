// What heads do on a text, see numbers/heads.js.

import { jobsOf } from "../numbers/heads.js";
import { say } from "./description.js";
import { headOf, NUMBERS_AT_ONCE, stepRow } from "./rows.js";

export const jobsInWords = () => ({
  adjective: say("the deciding adjective"),
  animal: say("the animal that “it” refers to"),
  thing: say("the thing that “it” refers to"),
  previous: say("the previous token"),
  first: say("the first token"),
  same: say("earlier occurrences of the token"),
  induction: say("what followed the token last time"),
  itself: say("the token itself"),
  punctuation: say("the last punctuation mark"),
  connective: say("the last connective"),
  subject: say("the subject that a pronoun stands for"),
  verb: say("the verb of a pronoun’s subject"),
});

const MIN_BADGE_WEIGHT = 0.5; // mean weight; below it, a head gets no badge

/** How well a head does each job on a text; see `jobsOf`. */
export function jobsOfHead(trace, layer, head) {
  const loaded = headOf(trace, layer, head);
  return jobsOf(trace.tokens.map(({ id }) => id), (i) => stepRow(loaded, "weights", i));
}

/** [job, mean weight on its targets] of the job that a head does on a text; [] if it does none. */
export function jobOf(trace, layer, head) {
  if (trace.cached || trace.T ** 2 > NUMBERS_AT_ONCE) return []; // long texts would take too long
  const jobs = Object.entries(jobsOfHead(trace, layer, head))
    .filter(([, job]) => job && job.attention >= MIN_BADGE_WEIGHT && job.attention > 2 * job.uniform)
    .sort(([, a], [, b]) => b.attention - a.attention);
  return jobs.length ? [jobs[0][0], jobs[0][1].attention] : [];
}
