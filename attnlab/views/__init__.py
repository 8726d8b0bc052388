"""Views of results, for a notebook, a picture and a browser.

`labelled_step` is a step with its labels, which all views draw. `notebook` makes HTML, `plot` and
`pictures` draw with matplotlib, `frames` makes pandas DataFrames and xarray Datasets, `sheets` a
spreadsheet of formulas. All use `colours`.

`explaining/` shows how a number is computed; `purposes` says what each step is for, and `attended`
where a token's attention goes.
"""
