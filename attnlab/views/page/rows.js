// The numbers of a trace that is looked at: runs over some of its queries, of what its source gives.
// Queries' rows are taken in float64, so what is made of them is float64 too.

const NUMBERS_AT_ONCE = 2 ** 14; // of a step of a head
const RUNS_KEPT = 64; // of a trace, those that were looked at last

/** A mask of T x Tk bits, row after row, as bytes of 0 and 1. */
function unpackedMask(base64, size) {
  const packed = bytesOf(base64);
  return Uint8Array.from({ length: size }, (_, n) => (packed[n >> 3] >> (7 - (n & 7))) & 1);
}

/** Read a layer's heads; they are there when the promise is kept. */
async function readLayer(trace, layer) {
  const values = await source.step(trace, `attention.${layer}`);
  if (!trace.read.has(layer)) trace.read.set(layer, layerOf(trace, layer, values));
}

/** A layer of the pack "attention": what is given and edited, by path, and its heads. */
function layerOf(trace, layer, values) {
  const { H, T, Tk, Dh, scales } = trace;
  const place = `blocks.${layer}.attention`;
  let end = 0;
  const next = (...shape) => {
    const array = new Nd(values, shape, stridesOf(shape), end);
    end += array.size;
    return array;
  };
  const given = {
    [`${place}.Q`]: next(H, T, Dh),
    [`${place}.K`]: next(H, Tk, Dh),
    [`${place}.V`]: next(H, Tk, Dh),
  };
  const edits = {};
  for (const [h, names] of Object.entries(trace.edited[layer] ?? {}))
    for (const name of names) {
      const path = `${place}.heads.${h}.${name}`;
      edits[path] = name === "scale" ? scales[layer][h] : next(T, name === "context" ? Dh : Tk);
    }
  const heads = Array.from({ length: H }, (_, h) => headIn({ trace, layer, h, given, edits }));
  return { given, edits, heads };
}

/** A head of a layer: its vectors, and the arrays that are edited in it, by name. */
function headIn({ trace, layer, h, given, edits }) {
  const { T, Tk, Dh, mask } = trace;
  const path = `blocks.${layer}.attention.heads.${h}`;
  const names = trace.edited[layer]?.[h] ?? [];
  const arrays = names.filter((name) => name !== "scale");
  const own = Object.fromEntries(arrays.map((name) => [name, edits[`${path}.${name}`].numbers()]));
  const vectors = ["Q", "K", "V"].map((name) => [name, nd.item(given[`blocks.${layer}.attention.${name}`], h).numbers()]);
  return {
    ...{ trace, layer, path, T, Tk, Dh, own, edited: new Set(names) },
    ...Object.fromEntries(vectors),
    mask: own.mask ?? mask,
  };
}

/**
 * A run over the queries from one on up to another, of layers that have been read.
 *
 * own: what is given beside these, by path. rounded: the steps whose rounding to float32 counts, as
 * others are made of what the model rounded.
 */
function runOfQueries(trace, start, stop, { layers = [...trace.read.keys()], own = {}, rounded = [] } = {}) {
  const rowsOf = (x) => (x instanceof Nd ? nd.item(x, REST, nd.slice(start, stop), nd.slice(null, null)) : x);
  const given = { ...trace.given, mask: rowsOf(new Nd(trace.mask, [trace.T, trace.Tk])), ...own };
  const edits = Object.fromEntries(rounded.map((path) => [path, toFloat32]));
  for (const layer of layers) {
    const read = trace.read.get(layer);
    Object.assign(given, read.given);
    for (const [path, x] of Object.entries(read.edits)) edits[path] = rowsOf(x);
  }
  const givenAt = (path) =>
    path.endsWith(".Q") && path in given ? wide(rowsOf(given[path])) : given[path];
  return new Run(trace.graph, givenAt, edits);
}

/** An array in float64: what is made of it has all its digits. */
const wide = (x) => new Nd(new Float64Array(x.numbers()), x.shape);

const toFloat32 = (x) => new Nd(x.numbers().map(Math.fround), x.shape);

/** The run that has query i of a head, and the query's row in it. */
function runOfHead({ trace, layer, path, Q, T, Tk, Dh }, i) {
  const count = Math.max(1, Math.floor(NUMBERS_AT_ONCE / Tk));
  const start = i - (i % count);
  const name = `${path} ${start}`;
  const own = { [`${path}.Q`]: new Nd(Q, [T, Dh]) }; // this head's alone
  const make = () => runOfQueries(trace, start, Math.min(T, start + count), { layers: [layer], own });
  const run = trace.runs.get(name) ?? make();
  trace.runs.delete(name);
  trace.runs.set(name, run);
  if (trace.runs.size > RUNS_KEPT) trace.runs.delete(trace.runs.keys().next().value);
  return { run, row: i - start };
}

/** Row i of a head's step, one number for each key, or of the context each component. */
function stepRow(head, step, i) {
  const { run, row } = runOfHead(head, i);
  return nd.item(run.look(`${head.path}.${step}`), row).numbers();
}

/** The same row as it would be, were the step not edited. */
function uneditedRow(head, step, i) {
  const { run, row } = runOfHead(head, i);
  return nd.item(run.unedited(`${head.path}.${step}`), row).numbers();
}

const isMasked = (head, i, j) => head.mask[i * head.Tk + j] === 0;

/** Whether there is a number after the mask: it lets one through, or an edit put one in cell n. */
function isSeen({ mask, own }, n) {
  const passes = own.masked_scores ? own.masked_scores[n] > -Infinity : mask[n] !== 0;
  return passes || (own.weights !== undefined && own.weights[n] !== 0);
}

/** A head of a trace, of a layer that has been read. */
const headOf = (trace, layer, head) => trace.read.get(layer).heads[head];
