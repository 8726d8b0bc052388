// How numbers and bytes are written in text.

/** A count with a comma before each group of three digits. Not by Intl, which starts slowly. */
export const grouped = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, ",");

export function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64); // faster, but only newer browsers have it
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** Unpack a mask to bytes 0 and 1. Its bits are in row-major order; a byte's first bit is its highest. */
export function unpackedMask(base64, size) {
  const packed = bytesOf(base64);
  const mask = new Uint8Array(size);
  for (let n = 0; n < size; n++) mask[n] = (packed[n >> 3] >> (7 - (n & 7))) & 1;
  return mask;
}

/** A rounded number, in exponential notation if it would round to 0. */
export function format(x, digits = 4) {
  const size = Math.abs(x);
  return size > 0 && size < 10 ** -digits ? x.toExponential(digits - 1) : fixed(x, digits);
}

/** A number with this many decimals, even if it rounds to 0, so that a column lines up. */
export function fixed(x, digits) {
  if (Math.abs(x) === Infinity) return x < 0 ? "-inf" : "inf";
  if (Math.abs(x) >= 1e6) return x.toExponential(digits - 1);
  return x.toFixed(digits).replace(/^-(?=[0.]+$)/, ""); // no minus sign before 0
}

// The character that represents each byte. Source: GPT-2's `encoder.py`, `bytes_to_unicode`.
export const BYTE_SYMBOLS = (() => {
  const isPrintable = (byte) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : next++));
})();
export const BYTE_BY_SYMBOL = new Map(BYTE_SYMBOLS.map((symbol, byte) => [symbol, byte]));

export const brief = (text) => (text.length > 40 ? `${text.slice(0, 39)}…` : text);

/** A fraction as a percentage with `digits` decimals. It reads 0 or 100 only if the fraction is exactly 0 or 1. */
export function percent(fraction, digits = 0) {
  const withDigits = (n) => `${(100 * fraction).toFixed(n)}\u00a0%`;
  const value = parseFloat(withDigits(digits));
  if (value === 0 && fraction > 0) return `<\u00a0${10 ** -digits}\u00a0%`;
  const isOne = Math.fround(fraction) === 1; // up to the rounding of float32
  if (value < 100 || isOne) return withDigits(digits);
  // A fraction below 1 that would read 100 gets one decimal, and if that reads 100.0, too, a bound.
  return parseFloat(withDigits(1)) < 100 ? withDigits(1) : ">\u00a099.9\u00a0%";
}

/** Two fractions as percentages, with as few decimals as show a difference: at most two, or five if both are small. */
export function percentages(a, b) {
  const maxDigits = Math.max(a, b) < 0.01 ? 5 : 2;
  const digits = [...Array(maxDigits + 1).keys()].find((n) => percent(a, n) !== percent(b, n));
  return [a, b].map((fraction) => percent(fraction, digits ?? 0));
}

/** A sum to show in part: the indices of its largest terms, and the sum of the other terms. */
export function largestTerms(terms, count) {
  const largest = [...terms.keys()].sort((a, b) => Math.abs(terms[b]) - Math.abs(terms[a]) || a - b).slice(0, count);
  const chosen = new Set(largest);
  return { largest, rest: terms.reduce((sum, x, n) => (chosen.has(n) ? sum : sum + x), 0) };
}

// `ignoreBOM` means that a byte order mark stays in the text.
export const decodeUtf8 = (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
