// What is made of a head's weights: how much it puts on the targets of a job, and its small map.

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

/**
 * For each job, the mean weight on its targets, and its value for uniform attention; null if no query has targets.
 * ofRest: the share on the targets of what isn't on the first token, as the measures "previous_without_first" and the
 * like of attnlab/corpus/measures.py; uniformOfRest: its value for uniform attention.
 */
export function jobsOf(ids, rowOf) {
  const sums = Object.keys(JOBS).map((name) => ({ name, attention: 0, uniform: 0, count: 0, targeted: 0, others: 0, uniformTargeted: 0, uniformOthers: 0 }));
  ids.forEach((_, i) => {
    const weights = rowOf(i);
    const others = weights.reduce((sum, weight, j) => (j ? sum + weight : 0), 0);
    for (const sum of sums) {
      const keys = JOBS[sum.name](ids, i);
      if (!keys.length) continue;
      for (const j of keys) sum.attention += weights[j];
      sum.uniform += keys.length / (i + 1);
      sum.count++;
      const later = keys.filter((j) => j > 0);
      if (!later.length) continue;
      for (const j of later) sum.targeted += weights[j];
      sum.others += others;
      sum.uniformTargeted += later.length / (i + 1);
      sum.uniformOthers += i / (i + 1);
    }
  });
  const meanOf = ({ attention, uniform, count, targeted, others, uniformTargeted, uniformOthers }) =>
    count ? { attention: attention / count, uniform: uniform / count, ofRest: targeted / others, uniformOfRest: uniformTargeted / uniformOthers } : null;
  return Object.fromEntries(sums.map((sum) => [sum.name, meanOf(sum)]));
}
