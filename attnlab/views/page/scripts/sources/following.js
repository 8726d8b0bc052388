// What the model predicts after a position of a text.

import { probabilitiesOf, UNCHANGED } from "../numbers/sampling.js";
import { say } from "./description.js";
import { source } from "./source.js";

/** A prediction with the probabilities at some settings, and its tokens. */
export const withProbabilities = (trace, prediction, settings) => ({
  ...prediction,
  ...probabilitiesOf(prediction, settings),
  tokens: prediction.ids.map((id) => trace.names.get(id)),
});

/** The model's prediction after a position; null if the page doesn't have it. */
export async function readFollowing(trace, position) {
  if (position < trace.prediction.first) return null;
  return withProbabilities(trace, await source.predictionAfter(trace, position), UNCHANGED);
}

/** Why there is no prediction after a position. */
export const whyNoLogits = ({ cached, prediction: { first } }) => say("This page has logits only from position {first}.", { first: cached + first });
