"""Statistics of every head over a corpus, with standard errors.

    texts ──> chunks ──> windows ──> measures ──> a tally per chunk ──> Atlas

`run` distributes the work: a worker cuts each text into windows, traces the windows and computes
the `measures`, which may include your own functions. A `tally` holds a chunk's sums. Tallies are
added in chunk order, so the result doesn't depend on the workers. A finished chunk's tally may be
written to a file, which is checked when it is read. `result` is the atlas. `heads` sums what each
head does, and `details` makes the tables of each head's page.
"""

from attnlab.corpus.measures import MEASURES
from attnlab.corpus.result import Atlas, open_atlas
from attnlab.corpus.run import atlas

__all__ = ["MEASURES", "Atlas", "atlas", "open_atlas"]
