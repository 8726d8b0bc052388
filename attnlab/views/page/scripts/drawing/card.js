// The card with a token's text, bytes and id.

import { brief } from "../numbers/formats.js";
import { say } from "../sources/description.js";
import { byId, make } from "./draw.js";

/** Label a chip with its token, and show the token's card while the chip has the pointer or focus. */
export function describe(chip, token, position, status = "") {
  const card = byId("card");
  const statusWords = { changed: say("another token"), added: say("none") };
  const rows = [
    [say("symbol"), token.symbol],
    [say("text"), `“${token.text}”`],
    [say("bytes"), token.bytes],
    [say("id"), String(token.id)],
    ...(position ? [[say("position"), position]] : []),
    ...(token.part_of ? [[say("part of"), token.part_of]] : []),
    ...(status ? [[say("compared with the other text"), statusWords[status]]] : []),
  ];
  // The label leaves out the position and the shared character.
  const labelled = [...rows.slice(0, 4), ...(status ? rows.slice(-1) : [])];
  chip.ariaLabel = labelled.map(([name, value]) => `${name} ${brief(value)}`).join(", ");
  const show = () => {
    const items = rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, make("bdi", {}, value))]);
    card.replaceChildren(make("dl", {}, ...items));
    card.hidden = false;
    const box = chip.getBoundingClientRect();
    const { width, height } = card.getBoundingClientRect();
    const rightmost = document.documentElement.clientWidth - width - 8;
    const fitsBelow = box.bottom + height + 8 < innerHeight;
    card.style.left = `${Math.max(8, Math.min(box.left, rightmost))}px`;
    card.style.top = `${fitsBelow ? box.bottom + 6 : Math.max(8, box.top - height - 6)}px`;
    chip.setAttribute("aria-describedby", "card");
  };
  const hide = () => {
    card.hidden = true;
    chip.removeAttribute("aria-describedby");
  };
  for (const event of ["pointerenter", "focus"]) chip.addEventListener(event, show);
  for (const event of ["pointerleave", "blur"]) chip.addEventListener(event, hide);
  chip.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}
