"""The page for a browser: one HTML file that needs nothing else.

`page` puts it together from its scripts; `packs` are the numbers that it carries: attention's,
those of a token's `way` through the model, and of its `prediction`. `atlas` is the page of a
corpus.
"""
