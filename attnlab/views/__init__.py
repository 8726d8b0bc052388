"""Views of results, for a terminal, a notebook, a picture and a browser.

`shown` is a step with its labels, which all views draw. `terminal` and `notebook` are for text and
cells, `plot` and `pictures` draw with matplotlib, `frames` makes pandas' and xarray's, `sheets` a
spreadsheet of formulas, `page/` is for the browser; `scale`, `colours`, and the Chinese in
`zh.po` serve all of them.

Explanations of one number: `explanations` declares the `formulas` of each equation, `purposes` says
what each step is for, `explain` finds the requested number by its `places`, and `evaluation`
computes it, or `rows` a whole row of weights. The result is an `explanation`, made of `terms`.
"""
