"""GPT-2's forward pass, declared step by step from `attnlab.equations`.

Read `attention` first: it has the chain of steps of one head, then of several. `forward_pass` has
the blocks around it, from ids to logits. `functional` runs the chain on your own arrays. `fast` has
faster equations for long texts. `config` has a model's sizes, `parameters` its weights. `edits`
changes values of steps. `slices` has runs of one text of several, and of later rows of a text.
`gradients` has the gradient of each equation, and `products` has W_Q W_Kᵀ and W_V W_O.
"""

from attnlab.forward.forward_pass import MLP, Block, ForwardPass

__all__ = ["MLP", "Block", "ForwardPass"]
