"""GPT-2's forward pass, declared step by step from `attnlab.equations`.

Read `attention` first: one head's chain, then several side by side. `forward_pass` has the blocks
around it, from ids to logits; `functional` the same chain for arrays of your own; `fast` the steps
of long texts. `config` and `parameters` are the model's sizes and numbers, `edits` runs a pass with
steps changed, `gradients` has each equation's gradient, `products` W_Q W_Kᵀ and W_V W_O.
"""

from attnlab.forward.forward_pass import MLP, Block, ForwardPass

__all__ = ["MLP", "Block", "ForwardPass"]
