"""The page for a browser: one HTML file that needs nothing else.

`page` puts it together from its scripts, and `translate` makes the one of equations: the page
computes by a run over the graph of steps, see `arrays.js` and `run.js`. `packs` are the numbers
that it carries: attention's, those of a token's `way` through the model, and of its `prediction`.
`playground` is the page that holds a model and runs it, `atlas` the page of a corpus.
"""
