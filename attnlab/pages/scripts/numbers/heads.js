// How much of its weights a head puts on the targets of a job.

// Jobs are measured as in attnlab/analysis/jobs.py: the mean over the queries of this text that have targets.

/** For each job, by name, the target keys of query i in a text with these ids. */
const JOBS = {
  previous: (ids, i) => (i ? [i - 1] : []),
  first: (ids, i) => (i ? [0] : []),
  same: (ids, i) => [...ids.keys()].slice(0, i).filter((j) => ids[j] === ids[i]),
  induction(ids, i) {
    const last = i ? ids.lastIndexOf(ids[i], i - 1) : -1;
    return last < 0 ? [] : [last + 1];
  },
};

/** For each job, the mean weight on its targets, and its value for uniform attention; null if no query has targets. */
export function jobsOf(ids, rowOf) {
  const sums = Object.keys(JOBS).map((name) => ({ name, attention: 0, uniform: 0, count: 0 }));
  ids.forEach((_, i) => {
    const weights = rowOf(i);
    for (const sum of sums) {
      const keys = JOBS[sum.name](ids, i);
      if (!keys.length) continue;
      for (const j of keys) sum.attention += weights[j];
      sum.uniform += keys.length / (i + 1);
      sum.count++;
    }
  });
  const meanOf = ({ attention, uniform, count }) =>
    count ? { attention: attention / count, uniform: uniform / count } : null;
  return Object.fromEntries(sums.map((sum) => [sum.name, meanOf(sum)]));
}
