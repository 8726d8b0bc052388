// Where the page's numbers come from. One interface for all sources: a file that carries packs, as
// attnlab/views/page/packs.py makes them, a server that has a model (server.js), or the page itself,
// which runs it (local.js).

/**
 * What a page asks for. Any source gives steps; `open` and `generate` need a model.
 *
 *   step(trace, name)            a pack of a trace, such as "attention.3", soon: float32
 *   has(trace, name)             whether there is such a pack
 *   explain(trace, path, n)      the weights that make a number: column n of a parameter, and its bias
 *   open(text, ablated)          a text, {text} or {ids}, as `description.traces` has one, with changes:
 *                                [layer, head] a head ablated, [layer] an MLP; [layer, head, step, 50]
 *                                a step of a head times 0.5, [layer, head, step, "of", ...ids] as it is
 *                                in another text; ["mask"] no causal mask, ["root"] no √Dk
 *   position(trace, place)       what may follow a place, as `positionOf` has it
 *   generate(trace, how)         a text's continuation
 */
class Source {
  hasEnded = false; // once it does not answer any more

  /** A trace's pack; it is asked for once. */
  step(trace, name) {
    if (!trace.packs.has(name)) trace.packs.set(name, this.read(trace, name));
    return trace.packs.get(name);
  }

  async position(trace, place) {
    return positionOf(await this.step(trace, `prediction.${place}`), trace.prediction.vocab, description.stops);
  }

  /** Of a matrix with so many rows; undefined where the source does not have the column. */
  async explain(trace, path, n, rows) {
    const isIn = ([of, start, stop]) => of === path && n >= start && n < stop;
    const [, start, stop] = trace.way.columns.find(isIn) ?? [path, n, n + 1];
    const name = `columns.${path}.${start}.${stop}`;
    if (!this.has(trace, name)) return undefined;
    const columns = await this.step(trace, name);
    const at = (n - start) * (rows + 1);
    return { column: columns.subarray(at, at + rows), bias: columns[at + rows] };
  }
}

/** A source that has a model. */
class LiveSource extends Source {
  has = () => true;

  /** A trace's pack. What waits for one that can't be had waits on, until it is looked at again. */
  step(trace, name) {
    const failed = (error) => {
      trace.packs.delete(name);
      tell(error.message);
      return new Promise(() => {});
    };
    if (!trace.packs.has(name)) trace.packs.set(name, this.read(trace, name).catch(failed));
    return trace.packs.get(name);
  }
}

/** The page itself, if it is a file: it carries some packs, as text that is dropped when it is read. */
class FileSource extends Source {
  has = (trace, name) => trace.packs.has(name) || elementOf(trace, name) !== null;

  read = (trace, name) => embeddedNumbers(elementOf(trace, name));
}

const elementOf = (trace, name) => document.getElementById(`trace-${trace.number}-${name}`);

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

let source = new FileSource();
