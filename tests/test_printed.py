"""What results print, in both languages, compared with tests/reference/printed.txt.

The numbers are compared elsewhere. Whoever reads the file sees whether words, labels and numbers
belong together. `python tests/test_printed.py` writes it anew: read the difference.
"""

from collections.abc import Iterator
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import attnlab
from attnlab import GPT2, check, figures
from attnlab.analysis.jobs import JOBS
from attnlab.checking.hugging_face import Verification
from attnlab.forward import ForwardPass
from attnlab.support.language import LANGUAGES, using_language
from attnlab.walkthrough import Reproduction

PRINTED = Path(__file__).parent / "reference" / "printed.txt"

TEXTS = ["The dog chased the ball, but it", "The cat chased the kite, but it", "A hen, but it"]
OTHERS = ["The cat chased the ball, but it", "The dog chased the kite, but it", "A cow, but it"]
TARGETS = [(" barked", " meowed"), (" meowed", " barked"), (" clucked", " mooed")]
MLP, HEAD = "blocks.0.mlp.output", "blocks.0.attention.heads.1.output"
CONTEXT = "blocks.1.attention.heads.2.context"


def analyses(pocket: GPT2) -> Iterator[tuple[str, Any]]:
    clean, corrupted = pocket.trace(TEXTS), pocket.trace(OTHERS)
    trace, other = clean[0], corrupted[0]
    edited = trace.edited({CONTEXT: 0})
    one: Any = {"target": TARGETS[0], "progress": False}
    several: Any = {"target": TARGETS, "progress": False}
    yield "patching", attnlab.patch(trace, other, **one)
    ablated = attnlab.patch(other, edited, "embedding", with_={"embedding": 0}, **one)
    yield "patching with given values", ablated
    stream = "blocks.*.output"
    yield "patching by position", attnlab.patch(trace, other, stream, by_position=True, **one)
    yield "patching of pairs", attnlab.patch(clean, corrupted, "blocks.*.mlp.output", **several)
    pairs = [traces[:2] for traces in (clean, corrupted)]
    by_position = attnlab.patch(*pairs, by_position=True, target=TARGETS[0][::-1], progress=False)
    yield "patching of pairs by position", by_position
    linear = attnlab.attribution_patch(clean, corrupted, stream, target=" dog")
    yield "attribution patching of pairs", linear
    yield "attribution patching", attnlab.attribution_patch(trace, edited, target=" barked", at=3)
    path = attnlab.path_patch(trace, edited, receiver=["blocks.1.mlp.X", "final"], **one)
    yield "path patching", path
    yield "attribution", attnlab.attribution(edited, " barked", at=-2)
    lens = attnlab.lens(trace)
    yield "lens", attnlab.lens(edited.edited({"final": 0}), at=slice(2, 5))
    yield "lens of a long text", attnlab.lens(pocket.trace(np.arange(20, 40)), at=slice(1, 19))
    yield "lens of a token", lens.of(" barked")
    yield "most probable tokens", lens.top(3, "dog")
    why = attnlab.why(trace.head(1, 2), "it", "dog")
    yield "why", why
    yield "why less than another", attnlab.why(trace.head(1, 1), 3, "chased", against=0)
    yield "opened head", why.open(HEAD, "key")
    yield "opened MLP", why.open(MLP, "query")
    yield "without a part", why.without(MLP)
    yield "jobs", attnlab.jobs(clean)
    yield "jobs without keys", attnlab.jobs(trace, {"same": JOBS["same"]})
    yield "gradients", attnlab.gradients(edited, TARGETS[0]).blocks[1].mlp
    yield "circuit", trace.head(1, 2).QK
    yield "circuit transposed", lambda: trace.head(1, 2).OV.T


def corpora(pocket: GPT2) -> Iterator[tuple[str, Any]]:
    texts = ["The dog barked.", "", "The dog saw the dog.", "A cat saw a hen, a cat and a cow."]
    atlas = attnlab.atlas(pocket, texts, ["induction", "previous", "loss"], progress=False)
    yield "atlas", atlas
    yield "atlas of one text", attnlab.atlas(pocket, texts[:1], ["loss"], window=3, progress=False)
    yield from ((f"measure {name}", atlas[name]) for name in atlas)
    one = attnlab.atlas(pocket, texts[:1], ["first", "same"], progress=False)
    yield from ((f"measure {name} of one text", one[name]) for name in one)
    yield "passage", atlas["loss"].most()[1]
    yield "passage with the smallest value", atlas["previous"].least(1, 2)[0]


def models(pocket: GPT2) -> Iterator[tuple[str, Any]]:
    traces = pocket.trace(TEXTS)
    trace = traces[0]
    yield "model", pocket
    yield "trace", trace
    yield "traces", traces
    yield "edited head", trace.edited({CONTEXT: 0}).head(1, 2)
    for part in (*trace.blocks[:2], trace.blocks[1].attention, trace.blocks[1].mlp):
        yield f"part {part.path}", part
    yield "step", pocket.generate("The hen", 2, temperature=0, trace=True).steps[1].trace
    yield "batch", ForwardPass([[[1, 2, 3], [4, 5, 6]]], pocket.parameters).blocks[0].attention
    X, memory, W = np.eye(3, 4), np.eye(2, 5), np.eye(5, 4)
    yield "own attention", attnlab.attention(X, X, W[:3, :2], attnlab.causal_mask(3))
    yield "NaN", attnlab.attention(np.full((3, 4), np.nan), X, X)
    yield "cross-attention", attnlab.cross_attention(X, memory, W[:4], W, W)
    heads = attnlab.multi_head_attention(X, *[np.eye(4)] * 4, n_head=2, dropout=0.5, rng=1)
    yield "own heads with dropout", heads
    yield "explanation", trace.explain("embedding", 1, 2)
    yield "tokens", trace.tokens
    yield "words", pocket.trace("The zebra’s hen xyzzyed it").by_words()
    yield "next tokens", trace.next_tokens(4)
    generation = pocket.generate("The dog", 3, temperature=0.5, seed=1, trace=True)
    yield "generation", partial(repr, generation)
    yield "step of generation", generation.steps[1]
    yield (
        "training",
        attnlab.train(
            attnlab.GPT2Config(vocab_size=256, n_positions=8, n_embd=4, n_layer=1, n_head=1),
            TEXTS[0],
            steps=2,
            sequence_length=4,
            progress=False,
        ),
    )


def checks(pocket: GPT2) -> Iterator[tuple[str, Any]]:
    trace = pocket.trace(TEXTS[0])
    head, layer = trace.head(1, 2), trace.blocks[0].attention
    rounded = check({"weights": np.round(head.weights, 3)}, head)
    yield "check of rounded numbers", rounded
    Q, wrong = np.arange(6.0).reshape(3, 2) / 5, [[1, 0, 0], [0.3, 0.7, 0], [0.2, 0.2, 0.6]]
    own = attnlab.attention(Q, Q[::-1], np.eye(3), attnlab.causal_mask(3))
    yield "check of other numbers", check({"weights": wrong}, own)
    yield "check of the order", check({"scores": layer.raw_scores}, layer)
    yield "check of half precision", check({"weights": head.weights.astype("float16")}, head)
    yield "verification", Verification("Title", rounded.stages, ("Note",), 1)
    compared = [figures.compare("weights", [1, 2.5], [1, x], 1) for x in (2.5, 2)]
    yield "reproduction", Reproduction("Model", "Prompt", tuple(compared))
    yield "no reproduction", Reproduction("Model", "Prompt", (), "the model has another width")
    yield from ((f"figures: {x.largest_difference}", x) for x in compared)
    published = {"X": [1.0, 2.0], "Y": [3.0]}
    for X, Y in (([1, 2], [3.04]), ([1, 2], [3.2]), ([1, 9], [3])):
        yield f"verdict on {X} and {Y}", figures.verdict(published, {"X": X}, 1, Y=Y)
    yield "verdict on both", figures.verdict(published, {}, 1, X=[1, 2], Y=[3])


def printed() -> str:
    pocket, parts = GPT2.from_pretrained("pocket", dtype="float64"), []
    for results in (analyses, corpora, models, checks):
        for name, result in results(pocket):
            for language in LANGUAGES:
                with using_language(language):
                    shown = result() if callable(result) else result
                    parts.append(f"#### {name}, {language}\n{shown!s}\n\n")
    return "".join(parts)


def test_results_print_what_is_recorded() -> None:
    found, expected = (
        text.splitlines() for text in (printed(), PRINTED.read_text(encoding="utf-8"))
    )
    assert found == expected, "\n".join(unified_diff(expected, found, lineterm="", n=6))


if __name__ == "__main__":
    PRINTED.write_text(printed(), encoding="utf-8", newline="\n")
