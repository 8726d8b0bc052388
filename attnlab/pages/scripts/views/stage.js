// The sentence with its attention: arcs on the words themselves, shares below them, and the next words, which fan out
// of the last one.

import { percent } from "../numbers/formats.js";
import { say } from "../sources/description.js";
import { arcsOf, svg } from "../drawing/arcs.js";
import { buttonOf, make, moveByArrows } from "../drawing/elements.js";

const PHONE = 700; // pixels; on a narrower page, the next words are below the sentence
const PAPER = "660px"; // fits on A4 and on US letter, within their margins and the page's own
const MIN_LETTERS = 22; // sizes of the letters, in pixels
const MAX_LETTERS = 46;
const MAX_LETTERS_ON_PHONE = 34;
const ROOM_FOR_NEXT = 330; // the width of the next words beside the sentence, in pixels
const SHARE_HEIGHT = 12; // the height of a share that is written above a word, in pixels
const MIN_SHARE = 0.01; // smaller shares aren't written under a word
const MIN_ARC = 0.004; // smaller weights of the selected word have no arc
const MIN_FAINT_ARC = 0.12; // smaller weights of the other words, whose arcs are faint, have no arc
const MANY_WORDS = 60; // a longer text is folded: only its last words, and those looked at most, are shown
const LAST_WORDS = 24;
const MAX_LOOKED_AT = 12;
export const NEXT_WORDS = 4; // how many next words are listed
const ROOM_BETWEEN_LINES = 1.2; // the largest height of arcs below the first line, in sizes of the letters

export class Stage {
  /**
   * choose(i, isPressed): query i was pointed at, or pressed or focused; choose(null): the pointer has left
   * toggleRow(): an arc was pressed; write(word): a next word was pressed; null if nothing can be written
   * editor: a text area in which the sentence is typed; null if it can't be
   * controls: an element that is shown below the next words, or null
   * letters: the size of the letters, in pixels; null for as large as fit
   */
  constructor(element, { choose, toggleRow, write = null, editor = null, controls = null, letters = null }) {
    Object.assign(this, { element, choose, toggleRow, write, editor, fixedLetters: letters });
    this.arcs = svg("svg", { class: "arcs", "aria-hidden": "true" });
    this.next = make("ol", { class: "next-words" });
    moveByArrows(this.next, () => [...this.next.querySelectorAll("button")]);
    this.beside = make("div", { class: "beside" }, this.next, ...(controls ? [controls] : []));
    this.lines = make("div");
    // The editor is put in its place only once, since it would lose the focus.
    this.caret = make("span", { class: "caret", hidden: "" });
    element.replaceChildren(this.arcs, this.lines, ...(editor ? [editor, this.caret] : []), this.beside);
    if (editor) this.#listenToEditor();
    let width;
    new ResizeObserver(() => {
      if (!this.shown || element.clientWidth === width) return; // the height depends on what is drawn
      width = element.clientWidth;
      this.#layOut();
    }).observe(element);
    // Paper has another width than the screen, of which a browser tells only the style sheets.
    const fit = (size) => { element.style.width = size; if (this.shown) this.#layOut(); };
    addEventListener("beforeprint", () => fit(PAPER));
    addEventListener("afterprint", () => fit(""));
  }

  /**
   * Show a sentence, see sources/attention.js. letters: what is written for each query, if not its name. isLater: for
   * each query, whether it is a later piece of its word.
   */
  show(shown) {
    Object.assign(this, { shown, drawn: null });
    this.isFolding = shown.isSelf && shown.queries.length > MANY_WORDS;
    this.words = (shown.letters ?? shown.queries).map((text, n) => this.#makeWord(text, n, true));
    this.keys = shown.isSelf ? this.words : shown.keys.map((text, n) => this.#makeWord(text, n, false));
    const sentenceOf = (words, name) =>
      make("p", { class: `sentence ${name}`, role: "group", "aria-label": say("The sentence"), dir: "auto" }, ...words);
    const line = sentenceOf(this.words, "queries");
    moveByArrows(line, () => this.words.filter(({ hidden }) => !hidden));
    this.next.setAttribute("aria-label", say("Next words")); // in the page's language
    this.lines.replaceChildren(...(shown.isSelf ? [] : [sentenceOf(this.keys, "keys")]), line);
    this.#layOut();
  }

  #makeWord(text, n, isQuery) {
    const emptyShare = make("small", { "aria-hidden": "true" }); // the word's weight, written when the stage is drawn
    const parts = [make("span", { class: "letters" }, text), emptyShare];
    const isLater = isQuery && this.shown.isLater?.[n]; // a piece of the word before
    const name = ["stage-word", text.endsWith("\n") && "line-end", isLater && "later-piece"].filter(Boolean).join(" ");
    if (!isQuery || this.editor) return make("span", { class: name }, ...parts);
    const events = {
      pointerenter: ({ pointerType }) => pointerType === "mouse" && this.choose(n, false),
      pointerleave: () => this.choose(null),
      focus: () => this.choose(n, true),
      click: () => this.choose(n, true),
    };
    // A button element would be one box, so lines of the sentence would break at other places than lines of text.
    return make(
      "span", { class: name, role: "button", tabindex: "-1", ...(!text.trim() && { "aria-label": "␣" }), ...events },
      ...parts,
    );
  }

  /**
   * Where a sentence is typed, the editor lies on the words. Pointing at a word chooses it, as without an editor; so
   * does moving the caret into it by keyboard.
   */
  #listenToEditor() {
    const { editor } = this;
    const wordUnder = ({ clientX: x, clientY: y }) => {
      const isInside = (box) => x >= box.left && x < box.right && y >= box.top && y < box.bottom;
      return this.words.findIndex((word) => [...word.getClientRects()].some(isInside));
    };
    // The editor may be in another stage later.
    const listen = (type, act) => editor.addEventListener(type, (event) => this.element.contains(editor) && act(event));
    listen("pointermove", (event) => {
      if (event.pointerType !== "mouse" || this.isTyping) return;
      const n = wordUnder(event);
      this.choose(n < 0 ? null : n, false);
    });
    listen("pointerleave", () => this.isTyping || this.choose(null));
    listen("click", (event) => {
      const n = wordUnder(event);
      if (n < 0 || this.isTyping) return;
      if (this.isFolding) editor.selectionStart = editor.selectionEnd = this.#endOf(n); // see #placeCaret
      this.choose(n, true);
    });
    listen("keyup", ({ key }) => {
      if (!/^(Arrow|Home|End)/.test(key) || this.isTyping) return;
      const n = this.#wordAt(editor.selectionStart);
      if (n >= 0) this.choose(n, true);
    });
    for (const type of ["focus", "blur", "input", "keyup", "click"]) listen(type, () => this.#placeCaret());
  }

  /** Where the nth word ends in the text. */
  #endOf = (n) => this.words.slice(0, n + 1).reduce((sum, { firstChild }) => sum + firstChild.textContent.length, 0);

  /** The word that ends at the caret or has it inside. */
  #wordAt = (caret) => this.words.findIndex((_, n) => this.#endOf(n) >= caret);

  /** Draw a caret at its letter if words are folded: the text area has other lines then, so its own caret is hidden. */
  #placeCaret() {
    const { editor, caret, element } = this;
    if (!editor) return;
    const n = Math.max(0, this.#wordAt(editor.selectionEnd));
    caret.hidden = !this.isFolding || this.isTyping || document.activeElement !== editor;
    editor.style.caretColor = caret.hidden ? "" : "transparent";
    if (caret.hidden) return;
    // The caret of a folded word stands at the fold, before the next word that is shown.
    const word = this.words[n].hidden ? this.words.slice(n).find(({ hidden }) => !hidden) : this.words[n];
    const range = document.createRange();
    const [letters] = word.firstChild.childNodes;
    const end = word === this.words[n] ? letters.length - (this.#endOf(n) - editor.selectionEnd) : 0;
    // Find the box of the letter before the caret. At the start of a word, it is the letter after the caret.
    range.setStart(letters, Math.max(0, end - 1));
    range.setEnd(letters, Math.max(1, end));
    const box = [...range.getClientRects()].at(-1);
    const stage = element.getBoundingClientRect();
    const left = (end > 0 ? box.right : box.left) - stage.left;
    Object.assign(caret.style, { left: `${left}px`, top: `${box.top - stage.top}px`, height: `${box.height}px` });
  }

  /** While what is typed isn't what is shown, the typed text stands alone. */
  set isTyping(isTyping) {
    this.element.classList.toggle("typing", isTyping);
  }

  get isTyping() {
    return this.element.classList.contains("typing");
  }

  /** Make the letters as large as fit in one line, within limits. The factors in here were chosen by eye. */
  #layOut() {
    const { element, shown } = this;
    const width = element.clientWidth;
    if (!width) return; // it isn't visible
    this.isNarrow = width < PHONE;
    const room =
      this.isNarrow || !shown.hasNext ? width : width - ROOM_FOR_NEXT * Math.min(1.5, Math.max(1, width / 1180));
    const largest = this.isNarrow ? MAX_LETTERS_ON_PHONE : MAX_LETTERS * Math.max(1, width / 1300);
    element.style.setProperty("--letters", "100px");
    element.classList.add("measuring"); // lays the sentence out in one line, with letters of 100 pixels
    const longest = Math.max(...[...element.querySelectorAll(".sentence")].map(({ scrollWidth }) => scrollWidth));
    element.classList.remove("measuring");
    this.letters = this.fixedLetters ?? Math.max(MIN_LETTERS, Math.min(largest, (100 * room * 0.97) / longest));
    element.style.setProperty("--letters", `${this.letters}px`);
    element.style.setProperty("--room", `${room}px`);
    this.highest = Math.max(this.fixedLetters || this.isFolding ? 0 : 94, 2.9 * this.letters); // the highest arc
    element.style.setProperty("--above", `${Math.max(1.17 * this.highest, Math.min(170, 3.6 * this.letters))}px`);
    element.classList.toggle(
      "wraps", longest * this.letters > 100 * room || shown.letters?.some((text) => text.includes("\n")),
    );
    if (this.drawn) this.draw(this.drawn);
  }

  /** Of a long text, show the last words, the one that looks and those that it looks at most; fold the others. */
  #fold(row, query) {
    const lookedAt = [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, MAX_LOOKED_AT);
    const isShown = new Set([query, ...lookedAt.filter((j) => row[j] >= MIN_SHARE)]);
    for (let n = this.words.length - LAST_WORDS; n < this.words.length; n++) isShown.add(n);
    this.words.forEach((word, n) => {
      word.hidden = !isShown.has(n);
      word.classList.toggle("after-fold", isShown.has(n) && n > 0 && !isShown.has(n - 1));
    });
  }

  /** The places of words, see `pathOf` in drawing/arcs.js, with the right and bottom ends of the letters. */
  #placesOf(words) {
    const box = this.element.getBoundingClientRect();
    const places = words.map((word) => {
      if (word.hidden) return null;
      const [text] = word.children;
      // A word that is broken into lines is placed in its last line, and a line end in the line that it ends.
      const rect = [...text.getClientRects()].at(text.textContent.endsWith("\n") ? 0 : -1);
      const middle = (rect.top + rect.bottom) / 2 - box.top;
      const lead = /^\s/.test(text.textContent) ? 0.27 * this.letters : 0; // the width of the space before the letters
      const half = 0.6 * this.letters; // from a word's middle to where its arcs begin, clear of the letters
      return {
        x: (rect.left + lead + rect.right) / 2 - box.left, right: rect.right - box.left, top: middle - half,
        bottom: middle + half, under: middle + half, line: Math.round(middle), // `under` is moved by #placeShares
      };
    });
    // Arcs above the first line have room; those of other lines must not cross the words above them.
    const first = Math.min(...places.filter(Boolean).map(({ line }) => line));
    for (const place of places.filter(Boolean))
      place.room = place.line > first ? ROOM_BETWEEN_LINES * this.letters : Infinity;
    return places;
  }

  /**
   * Draw a head's attention. rowOf(i): the weights of query i; named: the indices of the words that the sentence about
   * the head names; next: the next words, [{text, before, after}]; isChanged: whether to show both their probabilities,
   * before and after a change; isPointed: whether all this is shown only while the pointer is there.
   */
  draw(drawn) {
    this.drawn = drawn;
    if (!this.element.clientWidth) return; // it is drawn when it becomes visible
    const { rowOf, query, named, next, isChanged, isPointed } = drawn;
    const { shown, words, keys } = this;
    const row = rowOf(query);
    const own = shown.isSelf ? query : -1;
    if (this.isFolding && !isPointed) this.#fold(row, query); // words don't move under the pointer
    this.#markWords(row, query, own, named);
    const places = this.#placesOf(keys);
    const from = shown.isSelf ? places : this.#placesOf(words);
    this.#placeShares(row, places);
    this.arcs.replaceChildren(...this.#arcs(rowOf, query, places, from, named));
    this.#drawNext(next, isChanged, from.at(-1));
    this.#placeCaret();
  }

  #markWords(row, query, own, named) {
    const { shown, words, keys } = this;
    const share = shareWriter(row);
    words.forEach((word, i) => {
      word.classList.toggle("looker", i === query);
      word.tabIndex = i === query && !this.editor ? 0 : -1;
    });
    keys.forEach((word, j) => {
      word.classList.toggle("looked-at", j !== own && named.includes(j));
      word.classList.toggle("unseen-by-query", shown.isCausal && j > query);
      word.lastChild.textContent = Math.abs(row[j]) >= MIN_SHARE ? share(row[j]) : "";
    });
  }

  /** Place the shares under the words, or above those of another sentence. Of two that overlap, the larger is shown. */
  #placeShares(row, places) {
    const shares = this.keys.map(({ lastChild }) => lastChild);
    const widths = shares.map((share) => (share.textContent ? share.offsetWidth : 0));
    const taken = [];
    for (const j of [...places.keys()].sort((a, b) => row[b] - row[a])) {
      if (!widths[j] || !places[j]) continue;
      const { x, bottom, line } = places[j];
      const top = this.shown.isSelf ? bottom : places[j].top - SHARE_HEIGHT;
      const [start, end] = [x - widths[j] / 2 - 2, x + widths[j] / 2 + 2]; // 2 pixels stay free at each side
      const isFree = !taken.some((other) => other.line === line && other.start < end && start < other.end);
      shares[j].classList.toggle("crowded", !isFree);
      Object.assign(shares[j].style, { left: `${x}px`, top: `${top}px` });
      if (!isFree) continue;
      taken.push({ line, start, end });
      // Arcs to another line begin below the share.
      if (this.shown.isSelf) places[j].under += shares[j].offsetHeight;
    }
  }

  /** The other words' arcs, faint; the query's arcs; and over each of these a wide, invisible one, easy to press. */
  #arcs(rowOf, query, places, from, named) {
    const { shown, letters, highest } = this;
    const shape = { steepness: 0.36, highest, thinnest: 0.7, isFirstGrey: shown.isSelf && !named.includes(0) };
    const arcsFrom = (i, widths) => {
      const isLeftOut = (j) => !places[j] || (shown.isSelf && j === i); // a word that is folded, or looks at itself
      return arcsOf(from[i], places, rowOf(i), { ...shape, ...widths, isLeftOut });
    };
    // Between two sentences of several lines, or over folded words, faint arcs would only hide others.
    const isCrowded = this.isFolding || (!shown.isSelf && this.element.classList.contains("wraps"));
    const others = isCrowded ? [] : [...from.keys()].filter((i) => i !== query);
    const faint = others.flatMap((i) => arcsFrom(i, { least: MIN_FAINT_ARC, widest: 0.14 * letters }));
    const strong = arcsFrom(query, { least: MIN_ARC, widest: 0.23 * letters });
    const row = rowOf(query);
    for (const arc of faint) arc.classList.add("faint");
    for (const arc of strong) arc.style.opacity = Math.max(0.3, Math.min(1, 0.35 + row[arc.key]));
    const hits = strong.map((arc) => {
      const hit = arc.cloneNode();
      hit.setAttribute("class", "hit");
      hit.setAttribute("stroke-width", Math.max(12, Number(arc.getAttribute("stroke-width"))));
      hit.addEventListener("click", () => this.toggleRow());
      return hit;
    });
    return [...faint, ...strong, ...hits];
  }

  /** The next words and the curves to them, as wide as their probability; after a change, before and after. */
  #drawNext(next, isChanged, last) {
    const list = (next ?? []).slice(0, NEXT_WORDS);
    // While the next words are computed, the former ones and the controls below aren't hidden if one of them has the
    // focus, because it would lose it. They are only invisible.
    this.isWaiting = !next && this.beside.contains(document.activeElement);
    if (!this.isWaiting) this.next.replaceChildren(...list.map((word, n) => this.#nextWord(word, n, isChanged)));
    this.next.style.cssText = this.isWaiting ? "opacity: 0; pointer-events: none" : "";
    const { element, letters, isNarrow } = this;
    const height = Math.max(26, 0.76 * letters);
    const middle = (last.top + last.bottom) / 2;
    const top = isNarrow
      ? last.bottom + 30
      : middle - height * (element.classList.contains("wraps") ? 0.5 : this.next.childElementCount / 2);
    const [start, end] = [last.right + 12, last.right + 12 + 1.7 * letters];
    this.beside.hidden = !next && !this.isWaiting;
    this.beside.style.setProperty("--row", `${height}px`);
    Object.assign(this.beside.style, { top: `${top}px`, left: isNarrow ? "0" : `${end + 12}px` });
    this.next.style.maxWidth = `${element.clientWidth - (isNarrow ? 0 : end + 12)}px`;
    const bottom = this.beside.hidden ? 0 : top + this.beside.offsetHeight + 10;
    element.style.setProperty("min-height", `${Math.max(last.bottom + 30, bottom)}px`);
    const curveTo = (n, probability, name) => {
      const y = top + height * (n + 0.5);
      const half = (start + end) / 2;
      const d = `M${start} ${middle}C${half} ${middle},${half} ${y},${end} ${y}`;
      const width = Math.max(0.8, 0.42 * letters * probability).toFixed(2);
      return svg("path", { class: `fan ${name}`, d, "stroke-width": width });
    };
    if (!isNarrow)
      list.forEach(({ before, after }, n) =>
        this.arcs.append(
          ...(isChanged ? [curveTo(n, before, "before"), curveTo(n, after, "after")] : [curveTo(n, before, "")]),
        ),
      );
  }

  #nextWord(word, n, isChanged) {
    const { before, after, text, completion = "" } = word;
    const rest = completion ? [make("span", { class: "completion" }, completion)] : [];
    const parts = [text.trim() ? text : "␣", ...rest];
    const name = this.write
      ? buttonOf(() => this.isWaiting || this.write(word), { tabindex: n ? -1 : 0 }, ...parts)
      : make("span", {}, ...parts);
    const shares = isChanged ? [percent(before), " → ", make("b", {}, percent(after))] : [percent(before)];
    const bars = (isChanged ? [before, after] : [before]).map((probability) => {
      const bar = make("i");
      bar.style.width = `${Math.max(1, 130 * probability)}px`; // at least one pixel, to be visible
      return bar;
    });
    const drawing = this.isNarrow ? [make("span", { class: "probabilities" }, ...bars)] : [];
    return make("li", {}, name, ...drawing, make("span", { class: "its-share" }, ...shares));
  }
}

/** The next words to list, [{before, after}]: the most probable ones before or after a change. */
export function likeliestWords(next) {
  const size = ({ before, after }) => Math.max(before, after);
  return [...next].sort((a, b) => size(b) - size(a)).slice(0, NEXT_WORDS).sort((a, b) => b.before - a.before);
}

/** A function that writes a row's weights: as percentages, or as numbers if an edit made one negative or above 1. */
export const shareWriter = (row) =>
  row.some((weight) => weight < 0 || weight > 1.0005)
    ? (weight) => weight.toFixed(2)
    : (weight) => percent(Math.min(1, weight));
