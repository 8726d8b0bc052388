"""What can be found out about a trace: each analysis a small result with a table and a picture.

You ask for them where they belong, as `trace.logit_lens()`. Each says what it can't tell. `base`
has what they share; then `lens` (what each stop of the residual stream predicts), `attribution`
(what is written straight to a logit), `gradients`, `patching` (one text's step in another's run), `paths` and `edges` (the same along
direct paths alone),
`circuits` (what a head reads and writes), `jobs` (previous token, induction, ...) and `flow`
(through layers).
"""
