// What only a page with a model can do. In a page without a model, these stay null.

export const live = {
  editor: null, // the text area in which the sentence is typed
  open: null, // trace a text, as ids
  write: null, // write a next token, {id}
  toggleWriting: null, // start to write sampled tokens one after another, or stop
  complete: null, // return a promise of the text that completes a token's word
};

const BLANK = /^((09|0a|0b|0c|0d|20|c2 a0) ?)+$/; // bytes that are only white space

/** A text's last tokens if they are white space, which is rare in the texts that a model was trained on. */
export function blanksAtEnd({ tokens, cached }) {
  const last = tokens.findLastIndex(({ bytes }) => !BLANK.test(bytes));
  return tokens.slice(Math.max(last + 1, cached ? 0 : 1)); // the text without them keeps one token, or cached ones
}

export const END_OF_TEXT = "<|endoftext|>"; // the symbol of the token that ends a text
