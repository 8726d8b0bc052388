// The error for what can't be computed.

/** Its message is a template to translate, and `values` are what stands in its braces. */
export class Refusal extends Error {
  constructor(sentence, values = {}) {
    super(sentence);
    this.values = values;
  }
}

/** Refuse numbers that aren't finite. */
export function checkFinite(numbers) {
  if (!numbers.every(Number.isFinite))
    throw new Refusal(
      "The model's numbers for this text are too large for float32, which this page uses, so they aren't shown.",
    );
}
