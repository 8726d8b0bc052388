"""`attnlab.words`: the page of any model's attention over its words."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pages import until
from pytorch import python_with, walk
from stand_ins import Tensor

import attnlab
from attnlab import AttnlabError
from attnlab.pages.page import Page

FIVE = ["[CLS]", "the", "cat", "##s", "[SEP]"]


def weights_of(layers: int, heads: int, Tq: int, Tk: int, seed: int = 0) -> NDArray[np.float32]:
    """Shares that no formula of the library made."""
    shares = np.random.default_rng(seed).dirichlet(np.full(Tk, 0.4), (layers, heads, Tq))
    return shares.astype(np.float32)


def looking_at(*keys: int, count: int) -> NDArray[np.float32]:
    """One head in which query i gives 0.75 to keys[i] and shares the rest out to the others."""
    weights = np.full((1, 1, len(keys), count), 0.25 / (count - 1), np.float32)
    weights[0, 0, range(len(keys)), keys] = 0.75
    return weights


def described(page: Page) -> Any:
    return json.loads(re.search(r'id="description">(.*?)</script>', page.html, re.S)[1])  # type: ignore[index]


# ---- what is given -------------------------------------------------------------------------------


def test_arrays_and_what_models_return_are_one_page() -> None:
    weights = weights_of(3, 2, 5, 5)
    expected = attnlab.words(weights, FIVE).html
    for given in (
        weights.astype(np.float64),
        weights.tolist(),
        [*weights],
        tuple(layer[None] for layer in weights),  # transformers' output_attentions=True
        tuple(Tensor(layer[None], "bfloat16", True, "mps:0") for layer in weights),
        Tensor(weights, gradients=True),
    ):
        assert attnlab.words(given, np.array(FIVE)).html == expected
    assert attnlab.words(weights, iter(FIVE), [*FIVE]).html != expected  # not known to be the same
    attnlab.words(weights.astype(np.float16), FIVE)  # whose sums are rounded


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["The", "Ġcat", "Ġsaw", "Ġit", "."], "The cat saw it."),
        (["Ġcaf", "Ã©", "Ġ", "ä¸Ń", "Ċ"], "café 中\\n"),
        (["▁The", "▁cat", "s", "▁é", "té"], "The cats été"),
        ([" The", " cat", "s", " and", "x"], "The cats andx"),
        (FIVE, "[CLS] the cats [SEP]"),
        (["##", "a", "##b", "Größe", "це"], "## ab Größe це"),
        (["[CLS]", "我", "们", "，", "好"], "[CLS]我们，好"),
        ([" ", "a", " b", "c", " d"], " a bc d"),
        (["私", "は", "カ", "한국", "어"], "私はカ 한국 어"),
        (["</script>", "<b>", "&amp;", "\u202e", "\x00"], "</script> <b> &amp; \\u202e \\x00"),
    ],
)
def test_tokens_read_as_a_sentence(tokens: list[str], text: str) -> None:
    page = attnlab.words(weights_of(1, 1, 5, 5), tokens)
    assert "".join(described(page)["queries"]) == text
    assert len(re.findall("</script>", page.html)) == 4  # the page's own


def test_is_causal_only_if_no_word_looks_ahead() -> None:
    weights = weights_of(2, 2, 4, 4)
    causal = np.tril(weights) / np.tril(weights).sum(-1, keepdims=True)
    words = ["a", "b", "c", "d"]
    assert [described(attnlab.words(x, words))["is_causal"] for x in (weights, causal)] == [0, 1]
    assert not described(attnlab.words(causal, words, words))["is_causal"]


W, AB = weights_of(2, 2, 2, 2), ["a", "b"]

REFUSED: list[tuple[Any, Any, dict[str, Any], str]] = [
    (np.zeros((1, 1, 2, 2)), AB, {}, r"weights must be at least 0, .*use attnlab\.softmax"),
    (W - 1, AB, {}, "must be at least 0"),
    (np.where(W > 0, np.nan, W), AB, {}, "must sum to 1"),
    (np.full((1, 1, 2, 2), 1e300), AB, {}, "must sum to 1"),
    ((None, None), AB, {}, 'no attention weights.*attn_implementation="eager"'),
    ((), AB, {}, 'no attention weights.*attn_implementation="eager"'),
    (None, AB, {}, "no attention weights.*output_attentions=True"),
    (
        W[0, 0],
        AB,
        {},
        r"queries, keys\); got shape \(2, 2\): one head's is weights\[None, N",
    ),
    ((W, W), AB, {}, "take one text of a batch"),
    (np.zeros((1, 1, 0, 0)), [], {}, "got shape"),
    ((W[0], W[0, :, :1]), AB, {}, r"differ in shape: \(2, 2, 2\) \(2, 1, 2\)"),
    ({"a": 1}, AB, {}, "weights must be numbers"),
    ([[["x"]]], AB, {}, "weights must be numbers"),
    (np.broadcast_to(np.float32(1), (1, 1, 20_000_001, 1)), AB, {}, r"20,000,001 weights .*\[:4\]"),
    (W, ["a"], {}, "1 tokens for 2 rows"),
    (W[:, :, :1], ["a"], {}, r"are 1 x 2: give .*keys=\[\.\.\.\]"),
    (W, AB, {"keys": ["a", "b", "c"]}, "3 keys for 2"),
    (W, [5, 7], {}, r"one a token; got \[5, 7\]. .*convert_ids_to_tokens"),
    (W, "ab", {}, "tokens must be a list of texts"),
    (W, None, {}, "tokens must be a list of texts"),
    (W, AB, {"keys": [1, 2]}, "keys must be a list of texts"),
    (W, AB, {"next_words": {"c": 1.5}}, "between 0 and 1"),
    (W, AB, {"next_words": {"c": -0.5}}, "between 0 and 1"),
    (W, AB, {"next_words": ["c"]}, "next words must be a dict of probabilities"),
    (W, AB, {"next_words": {"c": "x"}}, "probabilities must be numbers"),
    (W, AB, {"effects": {(2, 0): {}}}, r"effects has \(2, 0\); .*up to \(1, 1\)"),
    (W, AB, {"effects": {"0.0": {}}}, "effects has '0.0'"),
    (W, AB, {"effects": {(0, 0): [0.5]}}, "next words must be a dict"),
    (W, AB, {"effects": [{}]}, "effects must be a dict"),
    (W, AB, {"title": 3}, "title must be"),
    (W, AB, {"height": 0}, "height must be"),
]


@pytest.mark.parametrize(("weights", "tokens", "more", "message"), REFUSED)
def test_what_is_refused(weights: Any, tokens: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(AttnlabError, match=message):
        attnlab.words(weights, tokens, **more)


OF_TRANSFORMERS = """
import numpy as np, torch, attnlab
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
ids, eager = torch.tensor([[1, 2, 3, 4]]), {"attn_implementation": "eager"}
bert = BertConfig(vocab_size=9, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
    intermediate_size=8, **eager)
decoder = BertConfig(**bert.to_dict() | {"is_decoder": True, "add_cross_attention": True}, **eager)
gpt2 = GPT2Config(vocab_size=9, n_embd=12, n_layer=2, n_head=3, bos_token_id=0, eos_token_id=0,
    **eager)
words = ["the", "cat", "saw", "it"]

def same(attentions, *words):
    assert len(attentions) == 2 and attentions[0].requires_grad
    arrays = np.array([layer[0].tolist() for layer in attentions])
    page = attnlab.words(attentions, *words)
    assert page.html == attnlab.words(arrays, *words).html
    return page

page = same(BertModel(bert).eval()(ids, output_attentions=True).attentions, words)
assert '"is_causal":false' in page.html
model = GPT2LMHeadModel(gpt2).eval()
assert '"is_causal":true' in same(model(ids, output_attentions=True).attentions, words).html
for dtype in (torch.bfloat16, torch.float16):
    same(model.to(dtype)(ids, output_attentions=True).attentions, words)
text = BertModel(decoder).eval()(
    ids, encoder_hidden_states=torch.randn(1, 3, 12), output_attentions=True
)
same(text.cross_attentions, words, ["le", "chat", "vit"])
"""


def test_models_of_transformers(tmp_path: Path) -> None:
    walk(python_with("torch", "transformers"), OF_TRANSFORMERS, tmp_path)


# ---- what is shown -------------------------------------------------------------------------------


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a page of words; check at the end that it logged and requested nothing."""
    file, said, asked = tmp_path / "page.html", list[str](), set[str]()
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.add(request.url))

    def open_(*given: Any, **more: Any) -> Any:
        attnlab.words(*given, **more).save(file)
        page.goto(file.as_uri())
        until(page, "document.querySelector('#said').textContent !== ''")
        return page

    yield open_
    page.close()
    assert said == []
    assert asked == {file.as_uri()}


def said(page: Any) -> str:
    return " ".join(page.locator("#said").inner_text().split())


def choose_word(page: Any, nth: int) -> None:
    page.locator(".queries .stage-word").nth(nth).press("Enter")


@pytest.mark.parametrize("sizes", [(2, 3, 5, 5), (1, 2, 4, 6)])
def test_numbers_are_the_arrays(opened: Callable[..., Any], sizes: tuple[int, ...]) -> None:
    """Of every head, each word's row: its table, the shares under the words, the arcs."""
    weights = weights_of(*sizes)
    layers, heads, Tq, Tk = sizes
    keys = None if Tq == Tk else [*"uvwxyz"]
    page = opened(weights, [*"abcde"][:Tq], keys)
    page.locator("#said .its-share").click()
    line = ".queries" if Tq == Tk else ".keys"
    for nth, (layer, head) in enumerate(np.ndindex(layers, heads)):
        page.locator(".head-drawing").nth(nth).click()
        for i in range(Tq):
            page.locator(".queries .stage-word").nth(i).click()
            row = weights[layer, head, i]
            shown = page.locator("#softmax-row tbody data")
            values = shown.evaluate_all("(all) => all.map((x) => Number(x.value))")
            assert np.array_equal(np.float32(values), row)
            texts = page.locator(f"{line} .stage-word small").all_text_contents()
            for text, share in zip(texts, row, strict=True):
                assert bool(text) == (share >= 0.01)
                assert not text or abs(float(text.split()[0]) - 100 * share) <= 0.5
            own = i if Tq == Tk else -1
            drawn = page.evaluate(
                "[...document.querySelectorAll('#stage .arc:not(.faint)')]"
                ".map((arc) => [arc.key, Number(arc.getAttribute('stroke-width'))])"
            )
            assert {key for key, _ in drawn} == {*np.flatnonzero(row >= 0.004)} - {own}
            widths = [width for _, width in sorted(drawn, key=lambda arc: row[arc[0]])]
            assert widths == sorted(widths)


def test_the_sentence_says_where_a_word_looks(opened: Callable[..., Any]) -> None:
    both_ways = looking_at(1, 2, 3, 0, count=4)
    page = opened(both_ways, ["[CLS]", "the", "cat", "sat"])
    seen = " ".join(page.locator("#seen").inner_text().split())
    assert said(page) == "In head 0.0, 75 % of the attention of “sat” rests on the first word; " + (
        "8 % goes to “the”."
    )
    assert seen == "“cat” looks at “sat” most: 75 % of its attention."
    choose_word(page, 1)
    assert said(page) == "In head 0.0, “the” looks at “cat” with 75 % of its attention."
    page = opened(looking_at(0, 1, count=3), ["il", "dort"], ["he", "sleeps", "now"])
    assert said(page) == "In head 0.0, “dort” looks at “sleeps” with 75 % of its attention."
    choose_word(page, 0)
    assert said(page) == "In head 0.0, “il” looks at “he” with 75 % of its attention."
    assert page.locator(".arc.rests").count() == 0
    page = opened(np.full((1, 1, 4, 4), 0.25), [*"abcd"], language="zh", title="某模型")
    assert "25" in said(page)
    assert page.locator("#seen").inner_text() == ""  # a word that looks at all equally
    assert page.locator("html").get_attribute("lang") == "zh-Hans"
    assert page.title() == "attnlab 某模型"


NEXT = {"was": 0.01, "slept": 0.6, "sat": 0.25, "<b>": 0.06, "ran": 0.05, "hid": 0.03}
EFFECTS = {
    (0, 0): {"slept": 0.6, "sat": 0.25},
    (0, 1): {"slept": 0.2, "sat": 0.1, "was": 0.3, "ate": 0.35},
    (1, 0): {"slept": 0.75, "sat": 0.2},
    (1, 1): {"sat": 0.9},
}


@pytest.mark.parametrize("place", EFFECTS)
def test_the_sentence_is_about_a_head_that_was_tried(
    opened: Callable[..., Any], place: tuple[int, int]
) -> None:
    effects = {place: EFFECTS[place]}
    page = opened(weights_of(2, 2, 3, 3), list("abc"), next_words=NEXT, effects=effects)
    title = page.locator("#every-head-title").inner_text()
    if place == (1, 1):  # what becomes of the most probable word isn't known
        assert "Bar" not in title
    else:
        assert title.endswith("Heads that were tried: 1.")
        assert page.locator(".head-drawing[aria-pressed=true]").count() == 1
        assert f" {place[0]}.{place[1]}, " in said(page)


def test_next_words_and_what_silencing_does(opened: Callable[..., Any]) -> None:
    page = opened(weights_of(2, 2, 3, 3), ["the", "cat", "it"], next_words=NEXT, effects=EFFECTS)
    heads, silence = page.locator(".head-drawing"), page.locator("#silence")

    def listed() -> list[str]:
        page.locator(".next-words li").first.wait_for()  # hidden elements have no spaces
        return [" ".join(x.split()) for x in page.locator(".next-words li").all_inner_texts()]

    assert listed() == ["slept 60 %", "sat 25 %", "<b> 6 %", "ran 5 %"]
    assert page.locator(".fan").count() == 4
    assert page.locator(".next-words button").count() == 0  # nothing can be written
    bars = heads.locator("i").evaluate_all("(all) => all.map((x) => x.offsetWidth)")
    assert np.divide(bars, bars[1]) == pytest.approx([0, 1, 0.15 / 0.4, 0], abs=0.02)
    tried = heads.evaluate_all("(all) => all.map((x) => x.matches('.barred'))")
    assert tried == [True, True, True, False]
    title = (
        "Bar: how far the head raises (right) or lowers (left) “slept”; the longest is "
        "40 points of probability. Heads that were tried: 3."
    )
    shown = page.locator("#every-head-title")
    assert shown.inner_text().endswith(title)  # the sentence is about the longest bar
    heads.nth(1).press("Enter")
    assert shown.inner_text().endswith(title)
    assert said(page).endswith(
        "Without head 0.1, “slept” falls from 60 % to 20 %, and “was” rises from 1 % to 30 %. "
        "silence it"
    )
    share = page.locator("#said .its-share")
    for is_open in ("true", "false"):  # the button keeps the focus
        share.press("Enter")
        assert page.evaluate("document.activeElement.ariaExpanded") == is_open
    silence.press("Enter")
    assert silence.inner_text() == "give it back"
    # What isn't known with the head as well as without it isn't said.
    assert listed() == ["slept 60 % → 20 %", "sat 25 % → 10 %", "was 1 % → 30 %"]
    assert "“was” rises from 1 % to 30 %." in said(page)
    assert page.locator(".head-drawing.silenced").count() == 1
    assert page.locator(".fan.before").count() == page.locator(".fan.after").count() == 3
    heads.nth(2).press("Enter")
    assert listed()[0] == "slept 60 %"
    assert page.evaluate("byId('done').textContent") == "Head 0.1 is given back."
    assert "rises from 60 % to 75 %: the head works against it." in said(page)
    heads.nth(3).press("Enter")  # what becomes of “slept” isn't known
    assert silence.count() == 0
    effects = {(0, 0): {"slept": 0.7, "sat": 0.05}}  # the head brings “sat”
    page = opened(weights_of(1, 1, 3, 3), ["the", "cat", "it"], next_words=NEXT, effects=effects)
    assert "“sat” falls from 25 % to 5 %, and “slept” rises from 60 % to 70 %." in said(page)
    page = opened(weights_of(1, 1, 2, 2), ["a", "b"], next_words={" ": 0.5, "c": 0.2})
    assert listed() == ["␣ 50 %", "c 20 %"]
    page = opened(weights_of(1, 1, 3, 3), ["the", "cat", "it"])
    assert silence.count() == page.locator(".next-words li").count() == 0


def test_pointer_keys_and_hostile_words(opened: Callable[..., Any]) -> None:
    hostile = ["</script><script>window.hacked = 1</script>", "<img src=x onerror=1>", "__proto__"]
    page = opened(weights_of(2, 2, 3, 3), hostile, next_words={"<img src=x>": 1}, title="<b>")
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert page.locator("main img, h1 b").count() == 0
    letters = page.locator(".stage-word .letters").all_inner_texts()
    assert [text.strip() for text in letters] == hostile
    looker = page.locator(".stage-word.looker")
    page.locator(".stage-word").nth(1).hover()
    assert looker.inner_text().strip().startswith("<img")
    page.locator("h1").hover()
    assert looker.inner_text().strip().startswith("__proto__")
    looker.focus()
    page.keyboard.press("ArrowLeft")
    assert looker.inner_text().strip().startswith("<img")
    page.locator(".head-drawing[tabindex='0']").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator(".head-drawing[aria-pressed=true]").get_attribute("aria-label") == (
        "head 1.0"
    )
