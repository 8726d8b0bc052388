// Where the page's numbers come from: packs, as attnlab/views/page/packs.py makes them, by their names.

/** The bytes that a base64 text stands for. */
function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** The numbers of a pack inside the page, whose text is dropped then. */
async function embeddedNumbers(element) {
  const deflated = new Blob([bytesOf(element.textContent)]).stream();
  element.remove();
  const inflated = deflated.pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(inflated).arrayBuffer());
  const count = planes.length / 4; // all first bytes, then all second ones, ...
  const bytes = new Uint8Array(planes.length);
  for (let plane = 0, n = 0; plane < 4; plane++)
    for (let at = plane; at < bytes.length; at += 4) bytes[at] = planes[n++];
  return new Float32Array(bytes.buffer, 0, count);
}

/** Whether a pack can be had: a page that is served asks for any, one that is a file carries some. */
const isThere = (trace, name) =>
  trace.id !== undefined ||
  trace.packs.has(name) ||
  byId(`trace-${trace.number}-${name}`) !== null;

/** A trace's pack, float32; it is asked for once. */
function numbersOf(trace, name) {
  if (!trace.packs.has(name)) {
    const element = byId(`trace-${trace.number}-${name}`);
    trace.packs.set(name, element ? embeddedNumbers(element) : servedNumbers(trace, name));
  }
  return trace.packs.get(name);
}
