"""Utilities that don't depend on GPT-2.

`checks` checks arguments. `files` reads and writes files; `formats` recognises unsupported ones.
`tables` and `document` print results, and `markup` makes HTML for notebooks. `console` has pipes
and progress bars. `messages` can be translated to the user's `language`. `parts` are parts of
results, `scale` and `colours` are for heatmaps, `blas` limits threads, `sink` is about attention
sinks.
"""
