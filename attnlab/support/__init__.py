"""What the rest stands on, and what knows nothing of GPT-2.

`checks` (of what was given), `files` and `sealed` (files written whole, and held to a checksum),
`formats` (which format a file has), `tables`, `console` (encodings, pipes, progress), `names` (what
other tools call things), `blas` (threads of matrix products), `messages` (what is said
to a reader). `moved` keeps old import paths alive.
"""
