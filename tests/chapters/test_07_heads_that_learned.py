"""Chapter 7, heads that learned: its claims hold."""

import re
from collections import Counter

import numpy as np
import pytest
from book import Chapter, run

from attnlab import Tokenizer

CHAPTER = "07"
TEXT = 'TEXT = "The dog chased the ball, but it"'


def last_weights(chapter: Chapter, trace: str, head: tuple[int, int]) -> dict[str, float]:
    """The tokens that the last token attends to most."""
    result = chapter[trace]
    return dict(zip(result.tokens.symbols, result.head(*head).weights[-1].tolist(), strict=True))


def test_what_it_refers_to(chapter: Chapter) -> None:
    certain = {
        name: row.argmax()
        for name, row in zip(chapter["names"], chapter["last"], strict=True)
        if row.max() > 0.9
    }
    symbols = chapter["symbols"]
    assert {name: symbols[position] for name, position in certain.items()} == {
        "layer 1 head 0": "Ġball",
        "layer 1 head 1": "Ġball",
        "layer 1 head 2": "Ġdog",
    }
    for text, *words in [
        ("The cat chased the kite, but it", "Ġcat", "Ġkite", "Ġflew", "Ġmeowed"),
        ("The ball was chased by the dog, but it", "Ġdog", "Ġball", "Ġbarked", "Ġrolled"),
        ("The ball chased the dog, but it", "Ġdog", "Ġball", "Ġbarked", "Ġrolled"),
    ]:
        line, *_ = (line for line in chapter.printed.splitlines() if line.startswith(text))
        assert [word for word in line.split() if word.startswith("Ġ")] == words


def test_ablated_head(chapter: Chapter) -> None:
    silent = dict(zip(chapter["HEADS"], np.array(chapter["ablated"]), strict=True))
    symbols = [word.symbol for word in chapter["words"]]
    assert symbols == ["Ġrolled", "Ġbarked"]
    assert silent.pop((1, 2)) == pytest.approx([0.942, 0.001], abs=0.002)
    assert silent.pop((1, 0)) == pytest.approx([0.013, 0.948], abs=0.002)
    assert (np.array([*silent.values()]) > 0.15).all()
    neither = chapter["ablate_heads"](chapter["trace"], (1, 2), (1, 0)).next_tokens(1)[0]
    assert neither.probability < 0.2


def test_invented_word(chapter: Chapter) -> None:
    for head in ((1, 0), (1, 3)):
        assert last_weights(chapter, "creature", head)["Ġfluffy"] > 0.95
    assert last_weights(chapter, "creature", (1, 2))["Ġfluffy"] > 0.5
    assert last_weights(chapter, "creature", (0, 2))["A"] > 0.99
    lost = dict(zip(chapter["HEADS"], chapter["ablated_probability"], strict=True))
    assert lost.pop((0, 2)) < 0.02
    assert min(lost.values()) > 0.5


def test_induction_takes_two_heads(chapter: Chapter) -> None:
    jobs = chapter["jobs"]
    assert (jobs.best("previous"), jobs.best("induction")) == ((0, 1), (1, 2))
    assert jobs.attention[jobs.jobs.index("induction")][1, 3] > 0.8
    assert re.search(r"^all heads +0\.95 +1\.00$", chapter.printed, re.MULTILINE)
    assert re.search(r"^without the head of layer 0 +0\.02 +0\.00$", chapter.printed, re.MULTILINE)


def test_all_heads(chapter: Chapter) -> None:
    T, layers, heads = chapter["T"], chapter["layers"], chapter["heads"]
    assert chapter["weights"].shape == (layers, heads, T, T)
    assert np.allclose(chapter["weights"].sum(axis=-1), 1, atol=1e-5)
    assert chapter["equal"] == pytest.approx(sum(1 / n for n in range(2, T + 1)) / (T - 1))
    assert chapter["equal"] > 1 / T
    assert chapter["model"].config.n_layer * chapter["model"].config.n_head == 8
    assert (chapter["weights"][:, :, -1].argmax(axis=-1) > 0).all()  # no dash


def test_tokens_of_gpt2(gpt2_tokenizer: Tokenizer, chapter: Chapter) -> None:
    prompt = chapter["PROMPT"]
    assert [len(gpt2_tokenizer.encode(prompt.replace("’", q))) for q in "’'"] == [16, 14]


def test_context_changes_vectors(chapter: Chapter) -> None:
    verb, animal, thing, both = chapter["cosines"].values()
    for course in (verb, animal, thing, both):
        assert course[0] == pytest.approx(1)
        assert min(course[:3]) > 0.98
    assert verb[-1] > 0.99
    assert verb[3] > animal[3] > thing[3] > both[3]
    assert abs(both[-1]) < 0.05


def test_exercise_1(answer: str) -> None:
    chapter = run(CHAPTER, {TEXT: 'TEXT = "The dog chased the cat, but it"'}, until="# ## 7.3")
    animal, thing = (last_weights(chapter, "trace", head) for head in ((1, 2), (1, 0)))
    assert f"{animal['Ġdog']:.2f} on `Ġdog`, {animal['Ġcat']:.2f} on `Ġcat`" in answer
    assert f"{thing['Ġchased']:.2f} to `Ġchased`" in answer
    assert max(thing, key=lambda symbol: thing[symbol]) == "Ġchased"
    following = chapter["trace"].next_tokens(1)[0]
    assert f"`{following.symbol}`, with {following.probability:.2f} of" in answer


def test_exercise_2(answer: str) -> None:
    for text, ordinal in (("A fluffy sleepy", "the first"), ("A sleepy fluffy", "the second")):
        change = {'CREATURE = "A fluffy blue': f'CREATURE = "{text}'}
        chapter = run(CHAPTER, change, until="# ## 7.5")
        following = chapter["creature"].next_tokens(1)[0]
        assert following.symbol == "Ġyawned"
        assert f"{following.probability:.2f} for {ordinal}" in answer
        first = f"Ġ{text.split()[1]}"
        assert f"with {last_weights(chapter, 'creature', (1, 3))[first]:.2f} in both" in answer
        of_head_2 = last_weights(chapter, "creature", (1, 2))
        assert max(of_head_2, key=lambda symbol: of_head_2[symbol]) == "Ġsleepy"


def test_exercise_3(answer: str) -> None:
    chapter = run(
        CHAPTER,
        {
            "Say: lamp two happy king blue. Again: lamp two happy": (
                "Say: lamp two lamp king. Again: lamp"
            )
        },
        until="# ## 7.6",
    )
    weights = last_weights(chapter, "recital", (1, 2))
    assert f"{weights['Ġking']:.2f} to `Ġking` and {weights['Ġtwo']:.2f} to `Ġtwo`" in answer
    following = chapter["recital"].next_tokens(1)[0]
    assert f"`{following.symbol}`, with {following.probability:.2f}" in answer


def test_exercise_4(answer: str) -> None:
    longer = "The dog chased the ball near the lake, but it"
    chapter = run(CHAPTER, {"OTHERS = [\n": f'OTHERS = [\n    "{longer}",\n'}, until="# ## 7.8")
    course = chapter["cosines"][longer]
    assert f"{course[0]:.2f} at the embedding" in answer
    assert f"{course[-1]:.2f} at the end" in answer


def test_a_gallery_of_relations(chapter: Chapter) -> None:
    gallery = dict(zip(chapter["RELATIONS"], chapter["gallery"].attention, strict=True))
    of_head = {name: shares[1, 2] for name, shares in gallery.items()}
    assert {name for name, share in of_head.items() if share > 0.8} == {
        *("induction", "adjective", "animal")
    }
    even = dict(zip(chapter["RELATIONS"], chapter["gallery"].even, strict=True))
    shares = gallery["separator"].max(), even["separator"], gallery["determiner"][0, 2]
    assert [f"{share:.2f}" for share in shares] == ["0.14", "0.10", "0.56"]
    assert gallery["determiner"].argmax() == 2


def test_candidate_head_for_the_passive(chapter: Chapter) -> None:
    by_voice = {voice: dict(zip(chapter["HEADS"], weights, strict=True))
                for voice, weights in chapter["verb_weights"].items()}  # fmt: skip
    assert f"{by_voice['passive'][1, 3]:.2f}" == f"{by_voice['active'][1, 3]:.2f}" == "0.89"
    assert max(by_voice["passive"], key=by_voice["passive"].__getitem__) == (1, 3)
    for voice, verb, noun in (("active", 2, 4), ("passive", 3, 6)):
        trace = chapter["pocket"].trace(chapter["VOICES"][voice][0])
        assert trace.tokens.symbols[verb] == "Ġchased"
        assert by_voice[voice][1, 3] == trace.head(1, 3).weights[noun, verb]


def test_residual_vectors_moved_by_values(chapter: Chapter) -> None:
    (fluffy, value), (sleepy, other_value) = (
        arrows.values() for arrows in chapter["arrows"].values()
    )
    assert fluffy == pytest.approx(sleepy, abs=0.4)  # nearly alike
    assert value[0] - value[1] > 1
    assert other_value[1] - other_value[0] > 0.4
    run = chapter["pocket"].trace("A sleepy blue creature")
    head = run.head(1, 3)
    words = run.W_U[:, chapter["verb_ids"]]
    assert other_value == pytest.approx(head.weights[3, 1] * head.V[1] @ head.W_O @ words, abs=1e-5)
    tower, iron, small = chapter["vectors"].values()
    assert tower.tolist() == [1, 1]
    assert iron == pytest.approx(small[::-1])
    assert iron[0] > 3
    assert [*chapter["apples"]] == ["苹果", "好吃 苹果", "股价 苹果"]
    assert chapter["apples"]["股价 苹果"] == pytest.approx(small)


def test_a_head_of_english_looks_back_at_the_noun(chapter: Chapter) -> None:
    attention, [even] = chapter["at_nouns"].attention[0], chapter["at_nouns"].even
    english, best = chapter["english"], chapter["best_head"]
    assert attention[best] == attention.max() > 2 * even
    assert (attention > even).sum() > 1
    weights = chapter["noun_weights"]
    assert np.mean(weights) == pytest.approx(attention[best])
    assert max(weights) < 0.95
    assert max(weights) > 1.2 * min(weights)  # it isn't equally sure of every noun
    for (text, noun), weight in zip(chapter["SENTENCES"], weights, strict=True):
        texts = [token.text for token in english.tokenizer.tokens(text)]
        assert weight == english.trace(text).head(*best).weights[-1, texts.index(noun)]
    head_1_2 = last_weights(chapter, "trace", (1, 2))
    assert round(max(head_1_2.values()), 2) == 1.00


def test_the_noun_decides_the_pronoun_in_english(chapter: Chapter) -> None:
    for noun, pronoun in chapter["NOUNS"].items():
        she, he, *without = chapter["fit"][noun]
        right = ("she", "he").index(pronoun.strip())
        assert (she > he) == (right == 0)
        assert without[right] < 0.95 * (she, he)[right]
        layer, head = chapter["needed"][noun]
        assert f"\n{noun}, without {layer}.{head} " in chapter.printed


def test_where_the_english_model_ends(chapter: Chapter) -> None:
    english = chapter["english"]

    def words(text: str) -> list[str]:
        return [token.text for token in english.trace(text).next_tokens(3)]

    assert {" tea", " coffee"} & {*words("I would like a cup of")[:2]}
    assert " Paris" not in words("The capital of France is")
    assert " fifteen" not in words("Seven and eight are")
    told = chapter["story"].split()
    threes = Counter(zip(told, told[1:], told[2:], strict=False))
    assert max(threes.values()) >= 3  # it repeats itself
    assert 3.5e6 <= sum(parameter.size for parameter in english.parameters.values()) < 4.5e6
