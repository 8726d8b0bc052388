// What the stream predicts after each layer, and what each part writes to a token's logit, in a page that
// runs its model; as attnlab/analysis/lens.py and attribution.py compute them.

/** The stops of the logit lens. */
const stopsOfLens = (layers) => ["embedding", ...Array.from({ length: layers }, (_, n) => [`blocks.${n}.mid`, `blocks.${n}.output`]).flat()];

/** The gradient of a logit, or of a sum of them, as in attribution.py, without the deviation; w: (D, 1). */
function directionOf(run, w) {
  const along = nd.multiply(run.value("gain"), w.reshape(w.size));
  return nd.subtract(along, equations.mean(along));
}

/**
 * The pack "shares.9.42": for each stop at position 9 the most probable token, its probability, that of token
 * 42 and its rank; then what each head, MLP, the embedding and the biases write to the logit of token 42.
 *
 * row: a run over this position alone.
 */
function sharesOf(row, { n_layer, n_embd }, { n_head, epsilon }, id) {
  const last = `blocks.${n_layer - 1}.output`;
  const stops = stopsOfLens(n_layer);
  const rows = new Nd(joinedNumbers(stops.map((path) => row.value(path))), [stops.length, n_embd]);
  const ended = new Run(row.graph, (path) => (path === last ? rows : row.given(path))); // the model after each stop
  const lens = stops.flatMap((_, n) => {
    const logits = nd.item(ended.value("logits"), n).numbers();
    const p = equations.softmax(new Nd(Float64Array.from(logits), [logits.length])).numbers();
    const best = p.reduce((best, share, id) => (share > p[best] ? id : best), 0);
    return [best, p[best], p[id], 1 + p.filter((share) => share > p[id]).length];
  });
  const w = nd.item(row.value("W_U"), REST, nd.slice(id, id + 1));
  const x = row.value(last);
  const u = nd.divide(directionOf(row, w), equations.deviation(nd.subtract(x, equations.mean(x)), epsilon));
  const along = (rows, u) => nd.matmul(rows.reshape(1, n_embd), u.reshape(n_embd, 1)).numbers()[0];
  const written = (path) => along(row.value(path), u);
  const blocks = Array.from({ length: n_layer }, (_, n) => `blocks.${n}`);
  const heads = blocks.flatMap((block) => Array.from({ length: n_head }, (_, h) => written(`${block}.attention.heads.${h}.output`)));
  const mlps = blocks.map((block) => written(`${block}.mlp.output`));
  const biases = blocks.reduce((sum, block) => sum + written(`${block}.attention.b_O`), along(row.value("bias"), w));
  return Float32Array.from([...lens, ...heads, ...mlps, written("embedding"), biases]);
}

let isSharesOpen = false; // stays when another trace is shown

/** The lens and the shares of a token after the text, one of some, computed when opened. */
function sharesBox(trace, ids) {
  const words = ids.map((id) => make("option", { value: id }, brief(trace.names.get(id).symbol)));
  const select = make("select", { "aria-label": say("token") }, ...words);
  const tables = make("div");
  const box = make("details", { id: "shares" }, make("summary", {}, say("Logit lens and direct attribution")), select, tables);
  const show = async () => {
    const id = Number(select.value);
    const numbers = [...(await source.step(trace, `shares.${trace.T - 1}.${id}`))];
    if (Number(select.value) === id) tables.replaceChildren(...sharesTables(trace, id, numbers));
  };
  box.addEventListener("toggle", () => {
    isSharesOpen = box.open;
    if (box.open) show();
  });
  box.open = isSharesOpen;
  select.addEventListener("change", show);
  return box;
}

function sharesTables(trace, id, numbers) {
  const { layers, H } = trace;
  const word = () => symbolOf(brief(trace.names.get(id).symbol));
  const stops = stopsOfLens(layers).map((stop) => {
    const [best, share, shareOfToken, rank] = numbers.splice(0, 4);
    const first = make("span", {}, symbolOf(brief(trace.names.get(best).symbol)), ` ${percent(share)}`);
    return rowOf(stop, [first, `#${rank}`, percent(shareOfToken, 1)]);
  });
  const [heads, mlps, rest] = [numbers.splice(0, layers * H), numbers.splice(0, layers), numbers];
  const total = [...heads, ...mlps, ...rest].reduce((sum, part) => sum + part);
  const shown = (number) => number.toFixed(2).replace(/^-(?=[0.]+$)/, "");
  const parts = mlps.map((mlp, n) => rowOf(n, [...heads.slice(n * H, (n + 1) * H), mlp].map(shown)));
  const [embedding, bias] = rest.map(shown);
  return [
    tableOf(make("span", {}, ...sayParts("What the model would say if it ended at a stop, and {word} there", { word: word() })), ["", say("most probable"), say("rank"), say("probability")], stops),
    tableOf(make("span", {}, ...sayParts("What each part writes directly to the logit of {word}", { word: word() })), [say("layer"), ...Array.from({ length: H }, (_, h) => say("head {head}", { head: h })), "MLP"], parts),
    make("p", { class: "note" }, say("embedding {embedding}, biases {bias}, total {total}", { embedding, bias, total: shown(total) })),
  ];
}
