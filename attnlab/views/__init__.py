"""Views of results, for a notebook, a picture and a browser.

Views draw labelled steps, documents and the graph of steps, and know nothing of models. A result
imports its views when it is shown. `shown` is a result with views, `labelled_step` a step with its
labels. `notebook` makes HTML, and `arcs` its drawing of attention over words; `plot` and `pictures`
draw with matplotlib, `frames` makes pandas DataFrames, `sheets` a spreadsheet of formulas.

`explaining/` shows how a number is computed; `purposes` says what each step is for.
"""
