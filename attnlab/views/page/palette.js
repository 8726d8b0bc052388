// The colours of attnlab/views/colours.py, mixed in OKLab, where equal steps of lightness look equal.
// How large a value is shows in lightness, so that it reads the same with any colour vision. Of two
// signs, one is blue and the other orange, which every common kind of colour vision tells apart.

/** An OKLab colour as the 32 bits of a canvas pixel. Source: "A perceptual color space" (2020). */
function pixel(lightness, a, b) {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const channel = (linear) => {
    const clipped = Math.min(1, Math.max(0, linear));
    const curved = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055;
    return Math.round(255 * curved);
  };
  const red = channel(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s);
  const green = channel(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s);
  const blue = channel(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Lightness and both axes of colour of #rrggbb in OKLab. */
function oklab(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const coded = parseInt(colour.slice(at, at + 2), 16) / 255;
    return coded <= 0.04045 ? coded / 12.92 : ((coded + 0.055) / 1.055) ** 2.4;
  });
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

const SHADES = 256;
const shades = (colour) => Uint32Array.from({ length: SHADES }, (_, n) => colour(n / (SHADES - 1)));

/** What lies between two colours, `t` of the way. */
function between(from, to) {
  const [start, end] = [oklab(from), oklab(to)];
  return (t) => pixel(...start.map((x, n) => x + (end[n] - x) * t));
}

/** From zero to the strongest, as numbers above zero have it everywhere. */
const sequential = ({ zero, positive }) => shades(between(zero, positive));

/** Blue below zero, orange above. */
function diverging({ negative, zero, positive }) {
  const [below, above] = [between(zero, negative), between(zero, positive)];
  return shades((t) => (t < 0.5 ? below(1 - 2 * t) : above(2 * t - 1)));
}

/** Whether black is read better on a colour than white. Source: WCAG 2.2, contrast ratio. */
function isBright(bits) {
  const [r, g, b] = [0, 8, 16].map((shift) => {
    const coded = ((bits >> shift) & 255) / 255;
    return coded <= 0.04045 ? coded / 12.92 : ((coded + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05);
}

const cssColour = (bits) => `rgb(${bits & 255} ${(bits >> 8) & 255} ${(bits >> 16) & 255})`;
