// What heads do on a text, see numbers/heads.js.

import { RESTING } from "../numbers/constants.js";
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
  subject: say("the subject that a pronoun stands for"),
});

const MIN_BADGE_SHARE = 0.5; // of the attention that doesn't rest; below it, a head gets no badge

/** How well a head does each job on a text; see `jobsOf`. */
export function jobsOfHead(trace, layer, head) {
  const loaded = headOf(trace, layer, head);
  return jobsOf(trace.tokens.map(({ id }) => id), (i) => stepRow(loaded, "weights", i));
}

/**
 * [job, mean weight on its targets, mean weight on the first token] of the job that a head does on a text; [] if it
 * does none. A head that rests has the job "first"; others, what gets most of the attention that doesn't rest.
 */
export function jobOf(trace, layer, head) {
  if (trace.cached || trace.T ** 2 > NUMBERS_AT_ONCE) return []; // long texts would take too long
  const { first, ...others } = jobsOfHead(trace, layer, head);
  const rest = first?.attention ?? 0;
  if (rest >= RESTING) return ["first", rest, rest];
  const [best] = Object.entries(others)
    .filter(([, job]) => job?.ofRest >= MIN_BADGE_SHARE && job.ofRest > 2 * job.uniformOfRest)
    .sort(([, a], [, b]) => b.ofRest - a.ofRest);
  return best ? [best[0], best[1].attention, rest] : [];
}
