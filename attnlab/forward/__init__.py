"""GPT-2's forward pass, declared step by step from `attnlab.equations`.

Read `attention` first: the chain of steps of one head, then of several. `forward_pass` has the
blocks around it, from ids to logits; `functional` runs the chain on your own arrays; `fast` is for
long texts. `config` and `parameters` are a model's sizes and weights. `edits` changes values of
steps, `slices` takes steps from other runs (one text of several, later rows of a text). `gradients`
has the gradient of each equation, `products` W_Q W_Kᵀ and W_V W_O.
"""

from attnlab.forward.forward_pass import MLP, Block, ForwardPass

__all__ = ["MLP", "Block", "ForwardPass"]
