// What heads do on other texts, as a model's card measures it.

import { say } from "./description.js";

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
