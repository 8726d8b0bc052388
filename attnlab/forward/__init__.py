"""GPT-2's forward pass, declared step by step from `attnlab.equations`.

Read `attention` first: the chain of steps of one head, then of several. `forward_pass` has the
blocks around it, from ids to logits; `functional` runs the chain on your own arrays; `fast` is for
long texts. `config` and `parameters` are a model's sizes and weights. `changed` is a run in which
some steps are computed otherwise: `edits` changes their values, and `slices` computes the later
rows of a text (or takes one of several texts). `gradients` has the gradient of each equation,
`products` W_Q W_Kᵀ and W_V W_O.
"""

from attnlab.forward.forward_pass import MLP, Block, ForwardPass

__all__ = ["MLP", "Block", "ForwardPass"]
