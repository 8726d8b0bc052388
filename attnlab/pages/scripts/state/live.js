// What a page with a model can do besides showing a trace. In a page without one, these stay null.

export const live = {
  editor: null, // the text area in which the sentence is typed
  open: null, // trace a text, as ids
  write: null, // write a next token, {id}
  toggleWriting: null, // write on by itself, or stop
  complete: null, // what follows a token in the same word, as a promise
};

/**
 * Whether a text ends in a blank: a model reads it as a token of its own, which few texts that it was trained on have.
 */
export const endsInBlank = ({ tokens, cached }) =>
  cached + tokens.length > 1 && /^((09|0a|0b|0c|0d|20|c2 a0) ?)+$/.test(tokens.at(-1).bytes);

export const END_OF_TEXT = "<|endoftext|>"; // the symbol of the token that ends a text
