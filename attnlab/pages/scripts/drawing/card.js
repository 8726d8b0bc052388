// What an element is: its label for screen readers and, while it has the pointer or focus, in the page's tooltip, the
// card. A touch that is held shows the card too.

import { on } from "../state/store.js";
import { byId } from "./elements.js";

const HOLD_MILLISECONDS = 400; // a shorter touch is a tap

let described = null; // the element whose card is shown

function showCard(element) {
  hideCard();
  described = element;
  byId("card").replaceChildren(element.dataset.tip || element.ariaLabel);
  byId("card").hidden = false;
  placeCard();
  // A label isn't read twice.
  if (element.dataset.tip) element.setAttribute("aria-describedby", "card");
}

function hideCard() {
  byId("card").hidden = true;
  if (described?.getAttribute("aria-describedby") === "card") described.removeAttribute("aria-describedby");
  described = null;
}

/** Put the card below its element, or above if it doesn't fit. */
function placeCard() {
  if (!described) return;
  const card = byId("card");
  const box = described.getBoundingClientRect();
  const { width, height } = card.getBoundingClientRect();
  const rightmost = document.documentElement.clientWidth - width - 8;
  const fitsBelow = box.bottom + height + 8 < innerHeight;
  card.style.left = `${Math.max(8, Math.min(box.left, rightmost))}px`;
  card.style.top = `${fitsBelow ? box.bottom + 6 : Math.max(8, box.top - height - 6)}px`;
}

const isTouch = ({ pointerType }) => pointerType === "touch";
const DESCRIBED = ":is([data-tip]:not(:disabled), button[aria-label])";
const ownerOf = ({ target }) => target.closest?.(DESCRIBED) ?? null;

/** Show the card of what is touched once it has been held; the click that may follow is none. */
function listenToTouch() {
  let timer;
  let isHeld = false;
  addEventListener("pointerdown", (event) => {
    isHeld = false;
    if (!isTouch(event)) return;
    const owner = ownerOf(event);
    if (owner !== described) hideCard();
    if (!owner) return;
    timer = setTimeout(() => {
      isHeld = true;
      showCard(owner);
    }, HOLD_MILLISECONDS);
  });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => clearTimeout(timer));
  const ignore = (event) => {
    if (!isHeld) return;
    isHeld = false;
    event.preventDefault();
    event.stopPropagation();
  };
  addEventListener("click", ignore, true);
}

export function startCard() {
  addEventListener("pointerover", (event) => {
    const owner = ownerOf(event);
    if (isTouch(event) || owner === described) return;
    if (owner) showCard(owner);
    else hideCard();
  });
  document.documentElement.addEventListener("pointerleave", (event) => isTouch(event) || hideCard());
  addEventListener("focusin", ({ target }) => target.matches(`${DESCRIBED}:focus-visible`) && showCard(target));
  addEventListener("focusout", hideCard);
  addEventListener("keydown", ({ key }) => key === "Escape" && hideCard());
  addEventListener("scroll", placeCard, true); // of any part of the page
  on("traces depth level openCell", hideCard); // what it was about may be gone
  listenToTouch();
}
