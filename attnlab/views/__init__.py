"""Views of results, for a terminal, a notebook, a picture and a browser.

`labelled_step` is a step with its labels, which all views draw. `terminal` prints text, `notebook`
makes HTML, `plot` and `pictures` draw with matplotlib, `frames` makes pandas DataFrames and xarray
Datasets, `sheets` a spreadsheet of formulas, and `page/` is for the browser, which `explorer`
serves. All use `colours` and the Chinese in `zh.po`.

Explanations: `explain` finds the requested number, or a row of weights, `step_number` computes it
by the `formulas` of its equation's `derivations`, and `purposes` says what each step is for. The
result is an `explanation`. `attended` says where a token's attention goes.
"""
