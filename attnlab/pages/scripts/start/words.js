// A page of any model's attention over its words: the sentence, one head, and all heads.

import { worthOf } from "../numbers/looks.js";
import { readAttention } from "../sources/attention.js";
import { buttonOf, byId, keepHeight } from "../drawing/elements.js";
import { announce } from "../drawing/files.js";
import { Heads } from "../views/heads.js";
import {
  effectInWords, givenBackInWords, headsInWords, lookInWords, lookedAtInWords, silenceButtonOf, withoutInWords,
} from "../views/sentences.js";
import { softmaxRow } from "../views/softmax.js";
import { likeliestWords, Stage } from "../views/stage.js";

/** The page's attention, what is selected, and what is under the pointer. */
class WordsPage {
  pointed = { query: null, head: null }; // shown instead of the selection
  isSilenced = false;
  isRowOpen = false;

  constructor(shown) {
    this.shown = shown;
    this.stage = new Stage(byId("stage"), {
      choose: (i, isPressed) => this.#chooseQuery(i, isPressed),
      toggleRow: this.#toggleRow,
    });
    this.heads = new Heads(byId("every-head"), {
      choose: (layer, head) => {
        this.#showTitle();
        if (this.isSilenced) announce(givenBackInWords(this.selection));
        this.#set({ isSilenced: false, selection: { ...this.selection, layer, head } });
      },
      point: (layer, head) =>
        this.#set({ pointed: { ...this.pointed, head: layer === null ? null : { layer, head } } }),
    });
    const all = Array.from({ length: shown.layers * shown.H }, (_, n) => ({
      layer: Math.floor(n / shown.H), head: n % shown.H,
    }));
    this.tried = all.filter((place) => this.#effectOf(place) !== null);
    const candidates = this.tried.length ? this.tried : all;
    const worth = new Map(candidates.map((place) => [place, this.#worthOf(place)]));
    const best = candidates.reduce((best, place) => (worth.get(place) > worth.get(best) ? place : best));
    this.selection = { ...best, query: shown.queries.length - 1 };
    this.stage.show(shown);
    this.heads.show(shown);
    for (let layer = 0; layer < shown.layers; layer++) this.heads.drawLayer(layer);
    this.heads.showEffects((layer, head) => this.#effectOf({ layer, head }));
    this.#showTitle(best);
    this.draw();
  }

  /** Say what is drawn of all heads. described: the head that the page chose, if the reader hasn't chosen any. */
  #showTitle(described) {
    const tried = this.tried.length;
    const word = tried ? this.shown.next[0].text.trim() || "␣" : "";
    const { largest, headOfLargest: { layer, head } } = this.heads;
    const isOther = described && (layer !== described.layer || head !== described.head);
    const values = { word, tried, largest, explainsChoice: isOther };
    byId("every-head-title").textContent = headsInWords(this.shown, values);
  }

  #set(values) {
    const buttons = () => [...byId("said").querySelectorAll("button")];
    const focused = buttons().indexOf(document.activeElement); // the buttons are made anew
    Object.assign(this, values);
    this.draw();
    buttons()[focused]?.focus({ preventScroll: true });
  }

  #toggleRow = () => this.#set({ isRowOpen: !this.isRowOpen });

  #chooseQuery(i, isPressed) {
    if (isPressed) this.selection.query = i;
    this.#set({ pointed: { ...this.pointed, query: isPressed ? null : i } });
  }

  #rowOf = ({ layer, head }) => (i) => this.shown.weights(layer, head, i);

  /** The next words whose probability is known with and without a head, if the most probable of all is among them. */
  #compared({ layer, head }) {
    const { next, effects } = this.shown;
    const without = new Map(effects?.[`${layer}.${head}`]?.map(({ text, probability }) => [text, probability]));
    const known = (next ?? []).filter(({ text }) => without.has(text));
    return known[0] === next?.[0]
      ? known.map(({ text, probability }) => ({ text, before: probability, after: without.get(text) }))
      : [];
  }

  /** What a head adds to the probability of the most probable next word; null if that isn't known. */
  #effectOf(place) {
    const [first] = this.#compared(place);
    return first ? first.before - first.after : null;
  }

  #worthOf(place) {
    const { isSelf, queries } = this.shown;
    return worthOf(
      this.#rowOf(place), queries.length, isSelf ? queries.length - 1 : -1, Math.abs(this.#effectOf(place) ?? 1),
    );
  }

  /** The next words to list; if the head is silenced, the most probable ones with it or without it. */
  #nextWords(compared) {
    if (this.isSilenced && compared.length) return likeliestWords(compared);
    return this.shown.next?.map(({ text, probability }) => ({ text, before: probability, after: probability })) ?? null;
  }

  draw() {
    const { shown, selection, pointed } = this;
    const place = pointed.head ?? selection;
    const query = pointed.query ?? selection.query;
    const rowOf = this.#rowOf(place);
    const shareButton = (share) =>
      buttonOf(this.#toggleRow, { class: "its-share", "aria-expanded": String(this.isRowOpen) }, share);
    const look = lookInWords(shown, rowOf, query, place, shareButton);
    const compared = this.#compared(place);
    const hasEffect = compared.length > 0;
    const isPointed = pointed.query !== null || pointed.head !== null;
    this.stage.draw({
      rowOf, query, named: look.named, next: this.#nextWords(compared),
      isChanged: this.isSilenced && hasEffect, isPointed,
    });
    const isAtEnd = query === shown.queries.length - 1;
    const press = () => this.#set({ isSilenced: !this.isSilenced });
    keepHeight(byId("said"));
    byId("said").replaceChildren(
      ...look.words,
      ...(isAtEnd && hasEffect
        ? [...effectInWords(compared, { without: withoutInWords(place) }), " ", silenceButtonOf(press, this.isSilenced)]
        : []),
    );
    byId("seen").replaceChildren(...lookedAtInWords(shown, rowOf, query));
    byId("softmax-row").replaceChildren(...(this.isRowOpen ? [softmaxRow(shown, query, rowOf(query))] : []));
    const isSilenced = (layer, head) => this.isSilenced && layer === selection.layer && head === selection.head;
    this.heads.mark(selection, isSilenced);
  }
}

readAttention().then((shown) => new WordsPage(shown));
