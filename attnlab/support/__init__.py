"""Utilities that don't depend on GPT-2.

`checks` (of arguments), `files` (atomic writes), `formats` (of checkpoint files), `tables`,
`document` (of a result), `markup` (HTML for notebooks), `console` (encodings, pipes, progress),
`names` (paths with Python indices), `blas` (threads of matrix products), `messages` (that can be
translated), `language` (the user's), `parts` (of results), `scale` and `colours` (of numbers),
`sink` (attention on the first token).
"""
