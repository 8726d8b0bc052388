// Sampling, as in attnlab/model/sampling.py: from a position's logits to probabilities, and to a token.

export const totalOf = (numbers) => numbers.reduce((sum, x) => sum + x, 0);

/** The indices of the n largest numbers, the largest first; ties by ascending index. */
export function indicesOfLargest(numbers, n) {
  let largest = [];
  for (let k = 0; k < numbers.length; k++) {
    if (largest.length === n && numbers[k] <= numbers[largest.at(-1)]) continue;
    largest = [...largest, k].sort((a, b) => numbers[b] - numbers[a] || a - b).slice(0, n);
  }
  return largest;
}

/** Unpack the prediction after a position, which attnlab/pages/prediction.py packed. */
export function predictionOf(values, vocab, { temperatures, topPs }) {
  // For n tokens: ids, rounded logits, and what the rounding left. Then a sum for each temperature, four numbers about
  // ties and the text's next token, and two numbers for each nucleus.
  const nucleusStart = values.length - 2 * temperatures.length * topPs.length;
  const n = (nucleusStart - temperatures.length - 4) / 3;
  const [ties, larger, ...following] = values.subarray(nucleusStart - 4, nucleusStart);
  return {
    vocab,
    ids: [...values.subarray(0, n)],
    logits: Array.from({ length: n }, (_, i) => values[n + i] + values[2 * n + i]),
    ties,
    following: { larger, logit: totalOf(following) },
    othersSum: (temperature) => values[3 * n + temperatures.indexOf(temperature)],
    nucleus(temperature, topP) {
      const index = temperatures.indexOf(temperature) * topPs.length + topPs.indexOf(topP);
      const [count, fraction] = values.subarray(nucleusStart + 2 * index);
      return { count, fraction };
    },
  };
}

/** The prediction from all logits, with the n largest; `nextId` is the text's next token. */
export function predictionOfLogits(allLogits, n, nextId) {
  const vocab = allLogits.length;
  const ascending = Float64Array.from(allLogits).sort();
  const largest = ascending.at(-1);
  const threshold = ascending.at(-n);
  const candidates = [...allLogits.keys()].filter((id) => allLogits[id] >= threshold);
  const ids = candidates.sort((a, b) => allLogits[b] - allLogits[a] || a - b).slice(0, n);
  const countWhere = (condition) => allLogits.reduce((count, x) => count + condition(x), 0);
  const exponential = (x, temperature) => Math.exp((x - largest) / temperature);
  return {
    vocab,
    ids,
    logits: ids.map((id) => allLogits[id]),
    ties: candidates.length - ids.length, // how many unlisted logits equal the last listed one
    following: { // the text's next token: how many logits are larger, or -1 if the text ends here, and its own logit
      larger: nextId === undefined ? -1 : countWhere((x) => x > allLogits[nextId]),
      logit: nextId === undefined ? 0 : allLogits[nextId],
    },
    othersSum: (temperature) =>
      ascending.subarray(0, vocab - n).reduce((sum, x) => sum + exponential(x, temperature), 0),
    nucleus(temperature, topP) {
      const sum = ascending.reduce((sum, x) => sum + exponential(x, temperature), 0);
      // Remove the least probable tokens while their sum is at most 1 - topP, but never the last one.
      let removed = 0;
      let removedSum = 0;
      while (removed < vocab - 1) {
        const next = removedSum + exponential(ascending[removed], temperature) / sum;
        if (next > 1 - topP) break;
        removedSum = next;
        removed++;
      }
      return { count: vocab - removed, fraction: 1 - removedSum };
    },
  };
}

/**
 * softmax(logits / temperature), cut by top-k, then by top-p, and renormalized.
 *
 * The settings are as in attnlab/model/sampling.py; null means no cut. The arrays have a number for each listed token,
 * the most probable first; `removedBy` says which setting removed a token. `sum` is softmax's divisor, `keptSum` the
 * divisor after the cuts, and `count` how many tokens of the vocabulary remain. `others` are all unlisted tokens.
 */
export function probabilitiesOf({ vocab, logits, ties, othersSum, nucleus }, { temperature, top_k, top_p }) {
  if (temperature === 0) {
    const removedBy = logits.map((_, i) => (i ? "temperature" : ""));
    const renormalized = removedBy.map((cut) => (cut ? 0 : 1));
    const others = { exponential: 0, probability: 0, renormalized: 0 };
    return { exponentials: [], probabilities: [], removedBy, count: 1, renormalized, others };
  }
  // Unlisted tokens with the same logit as the last listed one are cut together with it.
  const all = [...logits, ...Array(ties).fill(logits.at(-1))];
  const exponentials = all.map((logit) => Math.exp((logit - logits[0]) / temperature));
  const listed = exponentials.slice(0, logits.length);
  const rest = othersSum(temperature);
  const sum = totalOf(listed) + rest;
  // The slider of top-k ends at the number of listed tokens, so the kth logit is listed.
  const smallest = top_k === null || top_k >= vocab ? -Infinity : logits[top_k - 1];
  // Top-p removes from the end; among equal logits, Python's removes lower ids first.
  const ranked = [...all.keys()].filter((i) => all[i] >= smallest).sort((a, b) => all[b] - all[a] || b - a);
  const sumOfFirst = (n) => totalOf(ranked.slice(0, n).map((i) => exponentials[i]));
  let count = smallest === -Infinity ? vocab : ranked.length;
  let keptSum = smallest === -Infinity ? sum : sumOfFirst(count);
  const includesUnlisted = count > ranked.length; // top-k has removed nothing
  if (top_p !== null && includesUnlisted) {
    const cut = nucleus(temperature, top_p);
    count = cut.count;
    keptSum = count > ranked.length ? cut.fraction * sum : sumOfFirst(count);
  } else if (top_p !== null) {
    for (let removedSum = 0; count > 1; count--) {
      removedSum += exponentials[ranked[count - 1]] / keptSum;
      if (removedSum > 1 - top_p) break;
    }
    keptSum = sumOfFirst(count);
  }
  const kept = new Set(ranked.slice(0, count));
  const removedBy = logits.map((logit, i) => (logit < smallest ? "top-k" : kept.has(i) ? "" : "top-p"));
  const renormalized = listed.map((e, i) => (removedBy[i] ? 0 : e / keptSum));
  // If all remaining tokens are listed, the others were removed.
  const removesOthers = count === removedBy.filter((cut) => !cut).length;
  const othersRenormalized = removesOthers ? 0 : Math.max(0, 1 - totalOf(renormalized));
  const others = { exponential: rest, probability: rest / sum, renormalized: othersRenormalized };
  return {
    exponentials: listed, sum, probabilities: listed.map((e) => e / sum), removedBy, count, keptSum, renormalized,
    others,
  };
}

/** A generator of pseudorandom numbers in [0, 1) from a seed. Source: mulberry32. */
export function generator(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The first index whose cumulative probability exceeds u; -1 if there is none. */
export function sampledIndex(u, probabilities) {
  let total = 0;
  return probabilities.findIndex((p) => (total += p) > u);
}

export const UNCHANGED = { temperature: 1, top_k: null, top_p: null }; // the model's probabilities
