// The states that a reader went through, for undo and redo.

/** States are texts. What changes by itself after a step, such as what loads, belongs to that step. */
export class Timeline {
  #past = [];
  #future = [];
  #now = null;

  /** Note what is shown now: a step that the reader made, or what came of the last one. */
  note(state, isStep) {
    if (state === this.#now) return;
    if (isStep && this.#now !== null) {
      this.#past.push(this.#now);
      this.#future = [];
    }
    this.#now = state;
  }

  /** The state before, which is now shown; null if there is none. */
  undo() {
    return this.#step(this.#past, this.#future);
  }

  redo() {
    return this.#step(this.#future, this.#past);
  }

  get canUndo() {
    return this.#past.length > 0;
  }

  get canRedo() {
    return this.#future.length > 0;
  }

  #step(from, to) {
    if (!from.length) return null;
    to.push(this.#now);
    this.#now = from.pop();
    return this.#now;
  }
}
