"""The page for a browser: one HTML file that needs nothing else.

`saved` assembles it from its scripts, which `modules` joins; `translate` makes one of them from the
equations: the page itself computes steps, see `arrays.js` and `run.js`. `packs` are the numbers it
includes: for attention, for what makes its scores (`pairs`), for a token's pass through the steps
(`token_pass`), for its `prediction`, and for the whole model (`overview`). `playground` is the page
that runs a model, whose files `explore` serves if it is large; `words` is the page of any model's
attention, `atlas` the page of a corpus.
`page` makes each of them a value that a notebook shows and `save` writes.
"""
