// What heads do on a text, see numbers/heads.js.

import { jobsOf } from "../numbers/heads.js";
import { say } from "./description.js";
import { headOf, stepRow } from "./rows.js";

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

/** How well a head does each job on a text; see `jobsOf`. */
export function jobsOfHead(trace, layer, head) {
  const loaded = headOf(trace, layer, head);
  return jobsOf(trace.tokens.map(({ id }) => id), (i) => stepRow(loaded, "weights", i));
}
