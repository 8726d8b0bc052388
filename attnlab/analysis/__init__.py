"""Analyses of a trace, each with a table, a plot, and a note on its limits.

The analyses are functions, such as `attnlab.lens(trace)`. `base` holds their base class. The other
modules are `lens` (logit lens), `attribution` (direct logit attribution), `gradients`, `metrics`
(what patching measures), `patching` (activation and attribution patching), `paths` (path
patching), `ablation` (the model without a head, and heads' averages), `jobs` (previous token,
induction, ...), `parts` (the stream as a sum of parts) and `why` (scores by pairs of parts).
"""
