"""Every head over a whole corpus: texts in, means with errors out, on one machine or many.

    texts ──> chunks ──> a worker's windows ──> measures ──> a tally of each chunk ──> Atlas

`texts` reads a corpus; a `worker` cuts each text into windows, traces them and takes the `measures`
(your own functions among them); what texts add up to is a `tally` of their chunk. Tallies are added
in the order of their chunks, so that it does not matter who made them and when. `run` hands the
work out and `result` is the atlas.
"""

from attnlab.corpus.measures import MEASURES
from attnlab.corpus.result import Atlas, open_atlas
from attnlab.corpus.run import atlas

__all__ = ["MEASURES", "Atlas", "atlas", "open_atlas"]
