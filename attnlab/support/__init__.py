"""Utilities that don't depend on GPT-2.

`checks` (of arguments), `files` and `sealed` (atomic writes, checksums), `formats` (of checkpoint
files), `tables`, `console` (encodings, pipes, progress), `names` (of steps in other tools), `blas`
(threads of matrix products), `messages` (that can be translated), `language` (the user's), `parts`
(of results), `scale` (of colours), `rest` (of attention, on the first token); `door` leads from
results up to analyses and views.
"""
