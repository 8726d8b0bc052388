"""Statistics of every head over a corpus, with standard errors.

    texts ──> chunks ──> windows ──> measures ──> a tally per chunk ──> Atlas

`run` distributes the work: a worker cuts each text into windows, traces them and computes the
`measures`, which may include your own functions. A `tally` holds a chunk's sums; tallies are added
in chunk order, so the result doesn't depend on the workers. It is written to a file for each
finished chunk, and checked when it is read. `result` is the atlas. For a page of each head, `heads`
sums up what the head does, and `details` makes the page's tables of these sums.
"""

from attnlab.corpus.measures import MEASURES
from attnlab.corpus.result import Atlas, open_atlas
from attnlab.corpus.run import atlas

__all__ = ["MEASURES", "Atlas", "atlas", "open_atlas"]
