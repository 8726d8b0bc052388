"""Pages for a browser: each page is one HTML file that needs nothing else.

`saved` makes the page of a trace. `modules` joins its scripts; `translate` makes one script from
the equations, with which the page computes steps (see `arrays.js` and `run.js`). `packs` are the
numbers that a page includes: for attention, for pairs of parts that make scores (`pairs`), for a
token's pass through the steps (`token_pass`), for the `prediction`, and for the whole model
(`overview`). `playground` is the page that runs a model, and `explore` serves this page with a
large model. `words` is the page of any model's attention, `atlas` the page of a corpus. `page`
makes a value of each page, which a notebook shows and `save` writes.
"""
