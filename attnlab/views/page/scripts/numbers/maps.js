// Small maps of heads' weights: at most MAP_PIXELS wide and high; in longer texts, cells share pixels.

import { MAP_PIXELS } from "./constants.js";

/**
 * A small map, (height, width), row by row: a generator, so that it can pause after each query. Of the cells that
 * share a pixel, the largest by absolute value counts; NaN where all are hidden.
 */
export function* smallMap(T, Tk, rowOf, isHidden) {
  const [height, width] = [T, Tk].map((count) => Math.min(count, MAP_PIXELS));
  const values = new Float32Array(width * height).fill(NaN);
  for (let i = 0; i < T; i++) {
    const row = rowOf(i);
    const start = Math.floor((i * height) / T) * width;
    for (let j = 0; j < Tk; j++) {
      if (isHidden(i * Tk + j)) continue;
      const n = start + Math.floor((j * width) / Tk);
      if (!(Math.abs(values[n]) >= Math.abs(row[j]))) values[n] = row[j];
    }
    yield;
  }
  return values;
}
