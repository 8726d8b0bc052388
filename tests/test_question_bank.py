"""The bank of questions: the same in both languages, with numbers that are computed."""

import re

import pytest
from book import CHAPTERS
from question_bank import NUMBER, numbers, page, questions
from test_book import CODE

LANGUAGES = ("en", "zh")


def test_questions_are_the_same_in_both_languages() -> None:
    english, chinese = map(questions, LANGUAGES)
    assert len(english) == len(chinese) == 108
    assert {question.chapter for question in english} == {chapter.name[:2] for chapter in CHAPTERS}
    assert {question.difficulty for question in english} == {"basic", "medium", "hard"}
    for question, other in zip(english, chinese, strict=True):
        assert question[:2] == other[:2]
        assert re.search("[\u4e00-\u9fff]", other.text)
        for text, translation in ((question.text, other.text), (question.answer, other.answer)):
            for pattern in (NUMBER, CODE):
                assert sorted(pattern.findall(text)) == sorted(pattern.findall(translation))
    assert len({question.text for question in english}) == 108


@pytest.mark.parametrize(("language", "first"), [("en", "1 (basic)."), ("zh", "第 1 题（基础）")])
def test_placeholders_and_numbers_match(language: str, first: str) -> None:
    text = " ".join(question.text + question.answer for question in questions(language))
    assert set(NUMBER.findall(text)) == set(numbers())
    assert not NUMBER.search(page(language))
    assert first in page(language)
    assert page(language).count("<details>") == page(language).count('class="prediction"') == 108


def test_numbers_of_the_questions() -> None:
    """Against values from elsewhere: pencil, a table, the published figures."""
    actual = numbers()
    assert actual["softmax_210"] == "0.6652, 0.2447, 0.0900"
    assert (actual["weight_8"], actual["weight_1"]) == ("0.9997", "0.7311")
    assert (actual["masked_6"], actual["seen_6"], actual["dropout_factor"]) == ("15", "21", "1.25")
    assert (actual["summer_it"], actual["summer_hot"]) == ("26", "15")
    assert actual["gpt2_all"] == "124,439,808"
    assert (actual["gpt2_W_E"], actual["gpt2_tied_share"]) == ("38,597,376", "31")
    assert (actual["gpt2_cache_numbers"], actual["gpt2_cache_kb"]) == ("18,432", "72")
    assert (actual["rows_cached"], actual["rows_uncached"]) == ("199", "14,950")
    assert (actual["perplexity"], actual["ln_10"]) == ("2.83", "2.303")
    assert (actual["subsets_of_10"], actual["orders_of_10"]) == ("1,024", "3,628,800")
    assert actual["previous_of_resting"] == "0.1"
    assert (actual["mapped"], actual["slope_099"]) == ("(6, 4)", "0.0099")
