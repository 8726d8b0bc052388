"""One head of attention, from tokens to context vectors, in the numbers of the model that runs.

    python examples/walkthrough.py
    python examples/walkthrough.py "The girl was tired because" --layer 1 --head 2

The model is GPT-2 if it is in the Hugging Face cache, otherwise `english`, the small GPT-2 inside
attnlab that reads simple English. To use another, name it in the environment variable
ATTNLAB_MODEL. Also writes attention.html.
"""

import argparse
import textwrap
from collections.abc import Sequence
from typing import Any

import attnlab
from attnlab import walkthrough
from attnlab.support.console import prepare_script

prepare_script()  # for any terminal, and for pipes
parser = argparse.ArgumentParser(description="One head of attention, step by step.")
parser.add_argument("text", nargs="?", default=walkthrough.PROMPT)
parser.add_argument("--layer", type=int, default=0)
parser.add_argument("--head", type=int, default=0)
parser.add_argument("--page", default="attention.html", help="the file to write")
options = parser.parse_args()

model = attnlab.GPT2.default()
trace = model.trace(options.text)
head = trace.head(options.layer, options.head)
block = trace.blocks[options.layer]

symbols = trace.tokens.symbols
last = symbols[-1]
D, Dk = head.W_Q.shape


def show(result: Any, name: str, sentence: str, columns: Sequence[Any] = range(6)) -> None:
    """Print one step: its formula, a corner of its numbers, and a sentence about them."""
    array = getattr(result, name)
    rows = symbols[:4] if columns is symbols else symbols[:3]  # more rows if columns are tokens
    corner = array[: len(rows), :6]
    print(f"\n{result.heading_of(name)}    {' x '.join(map(str, array.shape))}")
    print(attnlab.table(corner, rows=rows, columns=columns[: corner.shape[1]], decimals=2))
    print(textwrap.fill(sentence, 90))


def percent(fraction: float) -> str:
    return f"{fraction:.0%}" if fraction >= 0.005 else "less than 1%"


print(f"{options.text!r}: {len(symbols)} tokens. Layer {options.layer}, head {options.head}.")
print("Tables show the first rows and columns; Ġ in a token stands for a space.")
show(
    trace,
    "embedding",
    f"Each token becomes a vector of {D} numbers: what it is, plus where it is.",
)
show(
    head,
    "X",
    "LayerNorm brings each row to mean 0 and standard deviation 1; a learned gain and bias follow. "
    f"The row of {last} enters with standard deviation {block.input[-1].std():.2f} and leaves "
    f"with {head.X[-1].std():.2f}.",
)
show(
    head,
    "Q",
    f"Three learned matrices, {D} x {Dk} each, turn every row of X into a query (what the token "
    "looks for) …",
)
show(head, "K", "… a key (what it can be found by) …")
show(head, "V", "… and a value (what it passes on).")

best = int(head.scores[-1].argmax())
show(
    head,
    "scores",
    f"How well each query fits each key: q·k / {head.scale:.4g}. For the query of {last}, the key "
    f"of {symbols[best]} (position {best}) fits best, with {head.scores[-1, best]:.2f}.",
    columns=symbols,
)
hidden = int((~head.mask).sum())
show(
    head,
    "masked_scores",
    f"A token may not attend to later ones: {hidden} of the {head.mask.size} scores become -inf.",
    columns=symbols,
)
ranking = head.weights[-1].argsort()[::-1][:3]
attended = ", ".join(f"{symbols[key]} {percent(head.weights[-1, key])}" for key in ranking)
show(
    head,
    "weights",
    f"Softmax turns each row into weights that sum to 1. {last} attends most to: {attended}.",
    columns=symbols,
)
show(
    head,
    "context",
    "Each token's average of the values, by its weights. For "
    f"{last}, {percent(head.weights[-1, ranking[0]])} is the value of {symbols[ranking[0]]}.",
)

word = trace.next_tokens(1)[0]
print(
    f"\nW_O turns the context into what this head adds to the residual stream. After all\n"
    f"{model.config.n_layer} blocks the most probable next token is {word.text!r} "
    f"({percent(word.probability)})."
)
verdict = walkthrough.reproduce(model, options.text)
if verdict.tables:
    print(str(verdict).splitlines()[-1], "(published figures; attnlab verify shows them)")
trace.save(options.page)
print(f"Every head, and the arithmetic of every number: open {options.page} in a browser.")
