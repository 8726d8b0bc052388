"""One head of attention, from tokens to context vectors, in the numbers of the model that runs.

    python examples/walkthrough.py
    python examples/walkthrough.py "The girl was tired because" --layer 1 --head 2

It shows the head that the page describes first, unless you choose one; of the published text on
GPT-2, the published head.
The model is GPT-2 if it is in the Hugging Face cache, otherwise `english`, the small GPT-2 inside
attnlab that reads simple English. To use another, name it in the environment variable
ATTNLAB_MODEL. Also writes a page with every head, attention.html, and opens it if you are at a
terminal with a screen. `--lang zh` speaks Chinese.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attnlab
from attnlab import walkthrough
from attnlab.checkpoints.hub import built_in_model
from attnlab.cli.arguments import Parser
from attnlab.pages.overview import head_to_describe
from attnlab.support.console import is_watched, prepare_script, show_in_browser
from attnlab.support.files import check_writable
from attnlab.support.language import language_of, language_option
from attnlab.support.messages import counted, say
from attnlab.support.tables import wrap

prepare_script(language_option() or language_of())  # print on any terminal, and into pipes
parser = Parser(description=say("One head of attention, step by step."))
parser.add_argument("text", nargs="?", help="the text to trace")
parser.add_argument("--layer", type=int, help="from 0; -1 is the last")
parser.add_argument("--head", type=int, help="from 0; -1 is the last")
parser.add_argument(
    "--page", default="attention.html", help="the file to write (default: %(default)s)"
)
parser.add_argument("--no-open", action="store_true", help="don't open the page in the browser")
options = parser.parse_args()

page = Path(options.page).absolute()
try:
    check_writable(page)
except attnlab.AttnlabError as error:
    parser.error(str(error))
print(say("Writing {page}: every head, and the arithmetic of every number.", page=page), flush=True)
model = attnlab.GPT2.default()
# The small models have sentences of their own; the published one is for GPT-2.
built_in = built_in_model(model.parameters)
text = options.text or (built_in.examples[0] if built_in else walkthrough.PROMPT)
trace = model.trace(text)
verdict = walkthrough.reproduce(model, text)
is_chosen = options.layer is None is options.head and not verdict.tables  # those are of head 0.0
layer, n = head_to_describe(trace) if is_chosen else (options.layer or 0, options.head or 0)
head, block = trace.head(layer, n), trace.blocks[layer]
attnlab.page(trace).save(page)
if is_watched() and not options.no_open:
    show_in_browser(page.as_uri())

symbols = trace.tokens.readable
last = symbols[-1]
D, Dk = head.W_Q.shape


def show(result: Any, name: str, sentence: str, columns: Sequence[Any] = range(6)) -> None:
    """Print one step: its formula, a corner of its numbers, and a sentence about them."""
    array = getattr(result, name)
    rows = symbols[:4] if columns is symbols else symbols[:3]  # more rows if columns are tokens
    corner = array[: len(rows), :6]
    print(f"\n{say(result._heading_of(name))}    {' x '.join(map(str, array.shape))}")
    print(attnlab.table(corner, rows=rows, columns=columns[: corner.shape[1]], decimals=2))
    print(*wrap(sentence, 90), sep="\n")


def percent(fraction: float) -> str:
    if 0.995 <= fraction < 1:
        return say("more than 99%")
    return f"{fraction:.0%}" if fraction >= 0.005 else say("less than 1%")


layer %= model.config.n_layer
introduction = say(
    "“{text}”: {tokens}. Layer {layer}, head {head}.",
    text=text,
    tokens=counted(len(symbols), "token"),
    layer=layer,
    head=n % model.config.n_head,
)
print("\n" + introduction)
if is_chosen:
    print(say("It is the head that the page describes first; --layer and --head choose another."))
if trace.notice:
    print(*wrap(say(trace.notice), 90), sep="\n")
print(say("Tables show the first rows and columns; Ġ in a token stands for a space."))
show(
    trace,
    "embedding",
    say("Each token becomes a vector of {D} numbers: what it is, plus where it is.", D=D),
)
if layer:
    print(say("What comes before layer {layer} adds to these vectors.", layer=layer))
show(
    head,
    "X",
    say(
        "LayerNorm brings each row to mean 0 and standard deviation 1; a learned gain and bias "
        "follow. The row of {last} enters with standard deviation {before} and leaves with "
        "{after}.",
        last=last,
        before=f"{block.input[-1].std():.2f}",
        after=f"{head.X[-1].std():.2f}",
    ),
)
show(
    head,
    "Q",
    say(
        "Three learned matrices, {D} x {Dk} each, turn every row of X into a query (what the "
        "token looks for) …",
        D=D,
        Dk=Dk,
    ),
)
show(head, "K", say("… a key (what it can be found by) …"))
show(head, "V", say("… and a value (what it passes on)."))

best = int(head.scores[-1].argmax())
show(
    head,
    "scores",
    say(
        "How well each query fits each key: q·k / {scale}. For the query of {last}, the key of "
        "{best} (position {position}) fits best, with {score}.",
        scale=f"{head.scale:.4g}",
        last=last,
        best=symbols[best],
        position=best,
        score=f"{head.scores[-1, best]:.2f}",
    ),
    columns=symbols,
)
show(
    head,
    "masked_scores",
    say(
        "A token may not attend to later ones: {hidden} of the {all} scores become -inf.",
        hidden=int((~head.mask).sum()),
        all=head.mask.size,
    ),
    columns=symbols,
)
ranking = head.weights[-1].argsort()[::-1][:3]
shares = [f"{symbols[key]} {percent(head.weights[-1, key])}" for key in ranking]
show(
    head,
    "weights",
    say(
        "Softmax turns each row into weights that sum to 1. {last} attends most to: {attended}.",
        last=last,
        attended=say(", ").join(shares),
    ),
    columns=symbols,
)
show(
    head,
    "context",
    say(
        "Each token's average of the values, by its weights. For {last}, {share} is the value of "
        "{best}.",
        last=last,
        share=percent(head.weights[-1, ranking[0]]),
        best=symbols[ranking[0]],
    ),
)

word = trace.next_tokens(1)[0]
sentence = say(
    "W_O turns the context into what this head adds to the residual stream. After all {layers} "
    "blocks the most probable next token is {word} ({share}).",
    layers=model.config.n_layer,
    word=repr(word.text),
    share=percent(word.probability),
)
print("", *wrap(sentence, 90), sep="\n")
if verdict.tables:
    print(str(verdict).splitlines()[-1], say("(published figures; attnlab verify shows them)"))
print(say("Every head, and the arithmetic of every number: {page}", page=page))
