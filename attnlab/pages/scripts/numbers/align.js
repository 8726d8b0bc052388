// Align the tokens of two texts.

/**
 * Pairs of positions in two texts: equal tokens by a longest common subsequence; between them,
 * other tokens pair up if both texts have equally many. null where a text has no counterpart.
 */
export function align([a, b]) {
  if (!b) return a.map((_, n) => [n]);
  const pairs = [];
  let [i, j] = [0, 0];
  const upTo = (to, other) => {
    const isSameCount = to - i === other - j;
    while (isSameCount && i < to) pairs.push([i++, j++]);
    while (i < to) pairs.push([i++, null]);
    while (j < other) pairs.push([null, j++]);
  };
  for (const [n, m] of longestCommonSubsequence(a, b)) {
    upTo(n, m);
    pairs.push([i++, j++]);
  }
  upTo(a.length, b.length);
  return pairs;
}

/** A longest common subsequence as pairs of positions, the earliest if there are several. */
function longestCommonSubsequence(a, b) {
  const width = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * width); // of a from i on and b from j on
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      longest[i * width + j] =
        a[i] === b[j]
          ? longest[(i + 1) * width + j + 1] + 1
          : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
  const pairs = [];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) pairs.push([i++, j++]);
    else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i++;
    else j++;
  }
  return pairs;
}
