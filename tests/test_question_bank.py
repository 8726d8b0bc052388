"""The bank of questions: the same in both languages, with numbers that are computed."""

import re

import pytest
from book import CHAPTERS
from question_bank import NUMBER, numbers, page, questions
from test_book import CODE

LANGUAGES = ("en", "zh")


def test_the_questions_are_the_same_in_both_languages() -> None:
    english, chinese = map(questions, LANGUAGES)
    assert len(english) == len(chinese) == 104
    assert {one.chapter for one in english} == {chapter.name[:2] for chapter in CHAPTERS}
    assert {one.difficulty for one in english} == {"basic", "medium", "hard"}
    for one, other in zip(english, chinese, strict=True):
        assert one[:2] == other[:2]
        assert re.search("[\u4e00-\u9fff]", other.text)
        for text, translation in ((one.text, other.text), (one.answer, other.answer)):
            for pattern in (NUMBER, CODE):
                assert sorted(pattern.findall(text)) == sorted(pattern.findall(translation))
    assert len({one.text for one in english}) == 104


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_number_is_used_and_every_place_is_filled(language: str) -> None:
    said = " ".join(one.text + one.answer for one in questions(language))
    assert set(NUMBER.findall(said)) == set(numbers())
    assert not NUMBER.search(page(language))
    assert page(language).count("<details>") == page(language).count('class="prediction"') == 104


def test_the_numbers() -> None:
    """Against values from elsewhere: pencil, a table, the published figures."""
    found = numbers()
    assert found["softmax_210"] == "0.6652, 0.2447, 0.0900"
    assert (found["weight_8"], found["weight_1"]) == ("0.9997", "0.7311")
    assert (found["masked_6"], found["seen_6"], found["dropout_factor"]) == ("15", "21", "1.25")
    assert (found["summer_it"], found["summer_hot"]) == ("26", "15")
    assert found["gpt2_all"] == "124,439,808"
    assert (found["gpt2_W_E"], found["gpt2_tied_share"]) == ("38,597,376", "31")
    assert (found["gpt2_cache_numbers"], found["gpt2_cache_kb"]) == ("18,432", "72")
    assert (found["rows_cached"], found["rows_uncached"]) == ("199", "14,950")
    assert (found["perplexity"], found["ln_10"]) == ("2.83", "2.303")
    assert (found["subsets_of_10"], found["orders_of_10"]) == ("1,024", "3,628,800")
    assert (found["mapped"], found["slope_099"]) == ("(6, 4)", "0.0099")
