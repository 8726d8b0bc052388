// From numbers to colours: the palette, the scales, and bitmaps of one pixel per number. The scales are
// those of attnlab/support/scale.py, the palette that of attnlab/support/colours.py.

import { Nd } from "../numbers/arrays.js";
import { equations } from "../numbers/equations.js";
import { description } from "../sources/description.js";
import { hiddenIn } from "../sources/rows.js";
import { isDark } from "./draw.js";

export let palette; // colours from the most negative number through zero, in the middle, to the largest
let pixels; // the same colours as 32-bit canvas pixels

/** Choose the palette of the page's theme, light or dark. */
export function choosePalette() {
  const theme = description.palettes[isDark() ? "dark" : "light"];
  palette = theme.colours.match(/.{6}/g).map((colour) => `#${colour}`);
  pixels = Uint32Array.from(palette, (colour) => {
    const [red, green, blue] = colour.match(/[^#]{2}/g).map((level) => parseInt(level, 16));
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0; // >>> 0 makes it unsigned
  });
}

/** The scale of numbers from -bound to bound, see `Scale` in attnlab/support/scale.py. */
const signedScale = (bound) => ({ bound, is_sqrt: false, is_signed: true, ticks: [-bound, 0, bound], note: "" });

export function scaleOf(view, step, bound) {
  if (step !== "weights") return signedScale(bound); // only weights have known bounds
  return description.scales[view.isDifference ? "difference" : "weights"];
}

/** Indices of numbers in the palette. */
const paletteIndices = (values, { bound, is_sqrt }) =>
  equations.palette_index(new Nd(new Float64Array(values), [values.length]), bound, is_sqrt).data;

/** A number's position in the legend, from 0 to 1. */
export function legendPosition(x, { bound, is_sqrt, is_signed }) {
  const fraction = Math.sign(x) * equations.intensity(x, bound, is_sqrt);
  return is_signed ? (fraction + 1) / 2 : fraction;
}

/** The largest finite |value| that is shown; 1 if all are 0. */
export function boundOf(view, selected, matrix) {
  const isHidden = hiddenIn(view, selected);
  let bound = 0;
  for (let n = 0; n < matrix.length; n++) {
    const size = Math.abs(matrix[n]);
    if (size > bound && size < Infinity && !isHidden(n)) bound = size;
  }
  return bound || 1;
}

/** A canvas with one pixel for each value; hidden ones are transparent. */
export function bitmapOf(values, width, height, scale, isHidden, canvas = document.createElement("canvas")) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const bits = new Uint32Array(image.data.buffer);
  const colourIndices = paletteIndices(values, scale);
  for (let n = 0; n < values.length; n++) if (!isHidden(n)) bits[n] = pixels[colourIndices[n]];
  context.putImageData(image, 0, 0);
  return canvas;
}
