"""How results look, in a terminal, a notebook, a picture and a browser.

`shown` is a step with its labels, which all views draw. `terminal` and `notebook` are for text and
cells, `plot` and `pictures` draw with matplotlib, `frames` makes pandas' and xarray's, `page/` is
for the browser; `colours` and `language` serve all of them. An explanation of one number: `explain`
finds it, by its `places`, `arithmetic` and `weights` tell how it comes about, `purposes` what for,
and `explanation` is what you get. Methods of results import these modules when they are called.
"""
