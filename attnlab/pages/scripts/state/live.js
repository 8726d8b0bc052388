// What a page with a model can do besides showing a trace. In a page without one, these stay null.

export const live = {
  editor: null, // the text area in which the sentence is typed
  open: null, // trace a text, as ids
  write: null, // write a next token, {id}
  toggleWriting: null, // write on by itself, or stop
  complete: null, // what follows a token in the same word, as a promise
};

export const END_OF_TEXT = "<|endoftext|>"; // the symbol of the token that ends a text
