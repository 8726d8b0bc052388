// Colours made in OKLCh, where equal steps of lightness look equal. How large a value is shows in
// lightness alone, so that it reads the same with any colour vision. Of two signs, one is blue and
// the other orange, which every common kind of colour vision tells apart.

/** An OKLCh colour as the 32 bits of a canvas pixel. Source: "A perceptual color space" (2020). */
function pixel(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
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

const SHADES = 256;
const shades = (colour) => Uint32Array.from({ length: SHADES }, (_, n) => colour(n / (SHADES - 1)));
const mix = (from, to, t) => from + (to - from) * t;

/** The page's own colour at zero; hue 255 is blue, 55 orange. */
const strong = (dark, strength, hue) =>
  dark
    ? pixel(mix(0.27, 0.83, strength), 0.14 * strength ** 0.8, hue)
    : pixel(mix(0.965, 0.47, strength), 0.14 * strength ** 0.8, hue);

/** From zero to the strongest, as numbers above zero have it everywhere. */
const sequential = (dark) => shades((t) => strong(dark, t, 55));

/** Blue below zero, orange above. */
const diverging = (dark) =>
  shades((t) => strong(dark, Math.abs(2 * t - 1), t < 0.5 ? 255 : 55));

const cssColour = (bits) => `rgb(${bits & 255} ${(bits >> 8) & 255} ${(bits >> 16) & 255})`;
