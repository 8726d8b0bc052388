"""Views of results, for a notebook, a picture and a browser.

They draw labelled steps, documents and the graph of steps, and don't import models; results import
the views when they are shown. `shown` is a result with views, `labelled_step` a step with its
labels. `notebook` makes HTML, `arcs` draws attention over words for it, `plot` and `pictures` draw
with matplotlib, `frames` makes pandas DataFrames, and `sheets` makes a spreadsheet of formulas.

`explaining/` shows how a number is computed; `purposes` says what each step is for.
"""
