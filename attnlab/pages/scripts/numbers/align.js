// Align the tokens of two texts.

/**
 * Pairs of positions in two texts. Equal tokens are paired, by a longest common subsequence. The other
 * tokens between two pairs are paired if both texts have equally many there; otherwise each is paired with null.
 */
export function align([a, b]) {
  if (!b) return a.map((_, n) => [n]); // one text has nothing to align
  const pairs = [];
  let [i, j] = [0, 0];
  const addUntil = (endOfA, endOfB) => {
    const isSameCount = endOfA - i === endOfB - j;
    while (isSameCount && i < endOfA) pairs.push([i++, j++]);
    while (i < endOfA) pairs.push([i++, null]);
    while (j < endOfB) pairs.push([null, j++]);
  };
  for (const [n, m] of longestCommonSubsequence(a, b)) {
    addUntil(n, m);
    pairs.push([i++, j++]);
  }
  addUntil(a.length, b.length);
  return pairs;
}

/** A longest common subsequence as pairs of positions, the earliest if there are several. */
function longestCommonSubsequence(a, b) {
  const width = b.length + 1;
  // longest[i * width + j] is the length of a longest common subsequence of a.slice(i) and b.slice(j).
  const longest = new Uint16Array((a.length + 1) * width);
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
