// Where everything in the model's picture is, in pixels. Pure arithmetic: what the page measures comes as arguments.

const LARGEST_MAP = 46;
const LARGEST_MAP_OF_BLOCK = 132;
const LARGEST_GRID = 132; // height of a block's maps in the whole model
const PRESENTING_FACTOR = 1.7; // by which maps and lines may grow for presenting
const LABELLED_MAP = 26; // maps from this size on have a name below
const SMALLEST_LINE = 20; // height of a token's line
const LARGEST_LINE = 46;
const HEIGHT_ON_PAPER = 480; // leaves room on the page for the tour's sentences
const GAP = 16; // height of the mark where tokens are hidden
const TITLES_HEIGHT = 30;
const LIST_HEIGHT = 100; // of next tokens below the picture, side by side

/** The layout of H maps in a width: columns, a map's size and whether it has a label, a row's height (`pitch`), the total height. */
function mapGrid(H, width, { isBlock, factor, scale }) {
  const [largestSize, largestHeight] = isBlock ? [LARGEST_MAP_OF_BLOCK, 2 * LARGEST_MAP_OF_BLOCK] : [LARGEST_MAP * factor, LARGEST_GRID * factor];
  const gridOf = (columns, isLabelled) => {
    const size = Math.floor(Math.min(largestSize, (width - 8) / columns - 4));
    const pitch = size + (isLabelled ? 20 * scale : 4); // with room for the label
    return { columns, size, isLabelled, pitch, height: Math.ceil(H / columns) * pitch };
  };
  const isUneven = ({ columns }) => Number(H % columns > 0); // the last row isn't full
  const all = Array.from({ length: H }, (_, n) => [gridOf(n + 1, true), gridOf(n + 1, false)]).flat();
  const fitting = all.filter(({ size, height, isLabelled }) => size >= (isLabelled ? LABELLED_MAP * scale : 8) && height <= largestHeight);
  // If labels fit, prefer full rows, then the lowest grid; if not, the largest maps, but full rows if these aren't much smaller.
  const labelled = isBlock ? [] : fitting.filter(({ isLabelled }) => isLabelled);
  if (labelled.length) return labelled.sort((a, b) => isUneven(a) - isUneven(b) || a.height - b.height)[0];
  const worth = (grid) => grid.size * (isUneven(grid) ? 0.75 : 1);
  return fitting.sort((a, b) => worth(b) - worth(a) || b.columns - a.columns)[0] ?? gridOf(Math.ceil(H / 6), false);
}

/** The columns: x where the embedding starts; then, for block n, its attention at 1 + 2n, its MLP at 2 + 2n; and the end. */
function columnsOf(layers, count, H, shown) {
  const { available, scale, isPhone, isBlock, isPrinted } = shown;
  // The names of the tokens, if they fit.
  const left = Math.max((isPhone ? 60 : 92) * scale, Math.min(shown.nameWidth + 24, isPhone ? 0.42 * available : 200 * scale));
  const right = isPhone || isBlock ? 10 : 232 * scale;
  // An attention's width is the unit; an MLP's and the embedding's are fractions of it.
  const [mlp, embedding] = isBlock ? [0.3, 0.1] : [layers > 4 ? 0.5 : 0.8, layers > 4 ? 0.6 : 0.5];
  const units = embedding + count * (1 + mlp);
  const smallest = Math.ceil(H / 6) * 17; // maps in six rows, 17 pixels for each column
  const room = available - left - right;
  const fits = smallest * units <= room;
  // If the next tokens don't fit beside the columns, they are below, as on a phone; columns that don't fit are scrolled.
  if (!fits && !isPhone) return columnsOf(layers, count, H, { ...shown, isPhone: true });
  const unit = fits || isPrinted ? room / units : 2 * smallest;
  const starts = [left, left + unit * embedding];
  for (let n = 0; n < count; n++) starts.push(starts.at(-1) + unit, starts.at(-1) + unit * (1 + mlp));
  return { left, unit, mlp, starts, width: left + unit * units, isNarrow: isPhone };
}

/**
 * The positions to draw, at most `most`: those that `choose(count)` returns for the largest count that fits and, because
 * a mark would take as much room, each single one hidden before them.
 */
export function positionsToDraw(most, choose, count = most) {
  const chosen = choose(count);
  const all = chosen.flatMap((position, n) => (hiddenBefore(chosen, n) === 1 ? [position - 1, position] : [position]));
  return all.length <= most || count === 1 ? all : positionsToDraw(most, choose, count - 1);
}

/** How many tokens are hidden before the nth of the positions that are drawn. */
const hiddenBefore = (positions, n) => positions[n] - (positions[n - 1] ?? -1) - 1;

/**
 * The picture's plan: its columns, the grid of a block's maps, the y of each drawn token's line, and the marks where
 * tokens are hidden, {y, count}.
 *
 * @param sizes {layers, H, T} of the trace
 * @param shown {count: of layers, available: width, nameWidth: of the longest token, scale: of the text, room: height below the picture's top, isPhone, isBlock, isPresented, isPrinted}
 * @param chooseTokens (count) -> the positions to draw
 */
export function planOf({ layers, H, T }, shown, chooseTokens) {
  const { scale } = shown;
  const factor = shown.isPresented ? PRESENTING_FACTOR : 1;
  const columns = columnsOf(layers, shown.count, H, shown);
  // A block's maps are as wide as its attention and its MLP, centred above the attention.
  const grid = mapGrid(H, columns.unit * (shown.isBlock ? 1 : 1 + columns.mlp), { isBlock: shown.isBlock, factor, scale });
  const titles = TITLES_HEIGHT * scale;
  const smallestLine = SMALLEST_LINE * scale * (shown.isPresented ? 1.5 : 1); // as its letters
  const top = titles + grid.height + 18;
  const below = columns.isNarrow ? LIST_HEIGHT * scale : 0;
  const total = shown.isPrinted ? HEIGHT_ON_PAPER : Math.max(320 * scale, Math.min(760 * factor * scale, shown.room - below));
  const room = total - top - 16;
  const pitch = T * smallestLine > room ? smallestLine + GAP / 2 : smallestLine; // marks take room
  const positions = positionsToDraw(Math.max(6, Math.min(24, Math.floor(room / pitch))), chooseTokens);
  const free = room - GAP * positions.filter((_, n) => hiddenBefore(positions, n)).length;
  const line = Math.max(smallestLine, Math.min(LARGEST_LINE * factor * scale, free / positions.length));
  const lines = new Map(); // y of each position's line
  const marks = [];
  let y = top - line / 2;
  positions.forEach((position, n) => {
    const count = hiddenBefore(positions, n);
    if (count) marks.push({ y: y + line / 2 + GAP / 2, count });
    y += line + (count ? GAP : 0);
    lines.set(position, y);
  });
  return { ...columns, titles, grid, top, line, lines, marks, positions, height: y + line / 2 + 10 };
}

/** Where a head's map is in block number n of a plan. */
export function mapPosition({ grid: { columns, size, pitch }, titles, unit, starts }, n, head) {
  const margin = (unit - columns * (size + 4) + 4) / 2;
  return [starts[1 + 2 * n] + margin + (head % columns) * (size + 4), titles + Math.floor(head / columns) * pitch];
}

/**
 * A curve's ends in block number n: from the key's line at x = `from` to the query's at x = `to`. A token that attends
 * to itself has a loop instead, at the right.
 */
export const endsOfCurve = ({ starts, lines, line }, n, { i, j }) => ({
  line,
  from: starts[1 + 2 * n] + 6,
  to: starts[2 + 2 * n] - 6,
  keyY: lines.get(j),
  queryY: lines.get(i),
});

/** The loop above the end of a curve to the same line: its middle and its radius. */
export function loopAt({ from, to, queryY, line }) {
  const radius = Math.min(9, 0.3 * line, 0.13 * (to - from));
  return { x: to - 2 * radius, y: queryY - radius, radius };
}

/** Whether a point is less than `reach` pixels from a curve with these ends: above or below it, or around a loop. */
export function isOnCurve(ends, x, y, reach = 5) {
  const { from, to, keyY, queryY } = ends;
  if (keyY === queryY) {
    const loop = loopAt(ends);
    return Math.abs(Math.hypot(x - loop.x, y - loop.y) - loop.radius) < reach;
  }
  const t = (x - from) / (to - from);
  if (t < 0 || t > 1) return false;
  // The curve's parameter is s + 0.5, where s³ + 0.75 s = t - 0.5. Solved by Newton's method.
  let s = t - 0.5;
  for (let n = 0; n < 4; n++) s -= (s ** 3 + 0.75 * s - t + 0.5) / (3 * s * s + 0.75);
  return Math.abs(keyY + (queryY - keyY) * (0.5 + 1.5 * s - 2 * s ** 3) - y) < reach;
}

/** Continue a path from (x, y) to (toX, toY), horizontal at both ends. */
export const curveTo = (context, x, y, toX, toY) => context.bezierCurveTo((x + toX) / 2, y, (x + toX) / 2, toY, toX, toY);

/** A token's ribbon, as a path whose thickness sizes[k] is reached at starts[k + 1]. */
export function ribbonPath(context, starts, y, sizes) {
  const edge = (n, m, sign) => {
    const [a, b] = [n, m].map((index) => y + (sign * sizes[Math.max(0, index - 1)]) / 2);
    curveTo(context, starts[n], a, starts[m], b);
  };
  context.beginPath();
  context.moveTo(starts[0], y - sizes[0] / 2);
  for (let n = 0; n < sizes.length; n++) edge(n, n + 1, -1); // the upper side
  context.lineTo(starts.at(-1), y + sizes.at(-1) / 2);
  for (let n = sizes.length; n > 0; n--) edge(n, n - 1, 1); // and back along the lower one
}

/** The stages of a tour, each with its layers, and its columns as indices of a plan's `starts`. */
export function stagesOf(layers) {
  const stagesOfBlock = (layer) => [
    { name: "attention", layer, layers: [layer], from: 1 + 2 * layer, to: 2 + 2 * layer },
    { name: "mlp", layer, layers: [], from: 2 + 2 * layer, to: 3 + 2 * layer },
  ];
  const middle = Array.from({ length: Math.max(0, layers - 2) }, (_, n) => n + 1);
  return [
    { name: "embedding", layers: [], from: 0, to: 1 },
    ...stagesOfBlock(0),
    ...(middle.length ? [{ name: "blocks", layers: middle, from: 3, to: 2 * layers - 1 }] : []),
    ...(layers > 1 ? stagesOfBlock(layers - 1) : []),
    { name: "next", layers: [], from: 1 + 2 * layers },
  ];
}
