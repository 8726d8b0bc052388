"""Every head over a whole corpus: texts in, means with errors out, on one machine or many.

    texts ──> chunks ──> a worker's windows ──> measures ──> a tally of each chunk ──> Atlas

A text is cut into windows, each of them is traced and measured, and what is added up by texts comes
to a tally. Tallies are added in the order of their chunks, so that it does not matter who made them
and when.
"""

from attnlab.corpus.measures import MEASURES
from attnlab.corpus.result import Atlas, open_atlas
from attnlab.corpus.run import atlas

__all__ = ["MEASURES", "Atlas", "atlas", "open_atlas"]
