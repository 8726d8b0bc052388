// Numbers that are written in the page's file, see attnlab/pages/packs.py.

import { bytesOf } from "../numbers/formats.js";

/** Decode the pack in an element, and remove the element. */
export async function embeddedNumbers(element) {
  const deflated = new Blob([bytesOf(element.textContent)]).stream();
  element.remove();
  const inflated = deflated.pipeThrough(new DecompressionStream("deflate"));
  // First come all numbers' first bytes, then all second bytes, and so on, which deflate compresses better.
  const planes = new Uint8Array(await new Response(inflated).arrayBuffer());
  const bytes = new Uint8Array(planes.length);
  for (let plane = 0, n = 0; plane < 4; plane++)
    for (let k = plane; k < bytes.length; k += 4) bytes[k] = planes[n++];
  return new Float32Array(bytes.buffer);
}
