"""Utilities that don't depend on GPT-2.

`checks` (of arguments), `files` (atomic writes), `formats` (of checkpoint files), `tables`,
`console` (encodings, pipes, progress), `names` (paths with Python indices), `blas` (threads of
matrix products), `messages` (that can be translated), `language` (the user's), `parts` (of
results), `scale` (of colours), `sink` (attention on the first token); `door` leads from results up
to analyses and views.
"""
