"""How results look, in a terminal, a notebook, a picture and a browser.

`shown` is a step with its labels, which all views draw. `terminal` and `notebook` are for text and
cells, `plot` and `pictures` draw with matplotlib, `frames` makes pandas' and xarray's, `sheets` a
spreadsheet of formulas, `page/` is for the browser; `scale`, `colours` and `language`, with its
Chinese in `zh.po`, serve all of them.

An explanation of one number: `explanations` declares, for each equation, the `formulas` by which a
number of its step comes about, and `purposes` says what the step is for. `explain` finds the number
that is asked for, by its `places`; `evaluation` works it out, `rows` a whole row of weights; what
you get is an `explanation`, made of `terms`. Methods of results import these modules when they are
called.
"""
