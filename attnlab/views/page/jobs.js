// How much of its weight a head puts where a known job would have it look, as attnlab/analysis/jobs.py
// measures it: the mean over the queries of this text that have something to do. Nothing here draws.

/** For each job, by its name, the keys that query i would look at in a text of these ids. */
const JOBS = {
  previous: (ids, i) => (i ? [i - 1] : []),
  first: (ids, i) => (i ? [0] : []),
  same: (ids, i) => [...ids.keys()].slice(0, i).filter((j) => ids[j] === ids[i]),
  induction(ids, i) {
    const last = i ? ids.lastIndexOf(ids[i], i - 1) : -1;
    return last < 0 ? [] : [last + 1];
  },
};

/** By job the mean weight there, and what it were if all tokens in sight got the same; null of one
 * that no token of the text has a place for. */
function jobsOf(ids, rowOf) {
  const sums = Object.keys(JOBS).map((name) => ({ name, attention: 0, even: 0, count: 0 }));
  ids.forEach((_, i) => {
    const weights = rowOf(i);
    for (const sum of sums) {
      const keys = JOBS[sum.name](ids, i);
      if (!keys.length) continue;
      for (const j of keys) sum.attention += weights[j];
      sum.even += keys.length / (i + 1);
      sum.count++;
    }
  });
  return Object.fromEntries(
    sums.map(({ name, attention, even, count }) => [
      name,
      count ? { attention: attention / count, even: even / count } : null,
    ]),
  );
}
