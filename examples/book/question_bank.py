"""The question bank: pages generated from `questions/`, with computed numbers in the answers.

`questions/en.md` and `questions/zh.md` have the same questions in the same order: a heading with a
chapter's number, then for each question its difficulty and text, and its answer after `> `. A
`{name}` in an answer or a question stands for a value of `numbers`.
"""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from editions import CHAPTERS, DIFFICULTIES, cells, edition

import attnlab
from attnlab.checking import figures
from attnlab.forward.parameters import parameter_count

QUESTIONS = Path(__file__).parent / "questions"
QUESTION = re.compile(r"^(basic|medium|hard)\. (.+)\n> (.+)$", re.MULTILINE)
NUMBER = re.compile(r"\{(\w+)\}")

TITLES = {"en": "Questions", "zh": "题库"}
OPENINGS = {
    "en": "{count} questions with answers, by chapter, each with its difficulty. Write down your "
    "own answer first, then open ours. The numbers are computed when this page is built.",
    "zh": "{count} 道题，附答案，按章节排列，标明难度。先写下自己的答案，再打开参考答案。"
    "文中的数都是生成本页时算出来的。",
}
WORDS = {
    "en": ("Question {n} ({how}).", "Your answer:", "Answer"),
    "zh": ("第 {n} 题（{how}）", "你的回答：", "答案"),
}


class Question(NamedTuple):
    chapter: str
    difficulty: str
    text: str
    answer: str


def questions(language: str) -> list[Question]:
    """The questions in a language, before their numbers are filled in."""
    text = (QUESTIONS / f"{language}.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^# (\d+)$", text, flags=re.MULTILINE)
    return [
        Question(f"{int(chapter):02}", *fields)
        for chapter, part in zip(parts[::2], parts[1::2], strict=True)
        for fields in QUESTION.findall(part)
    ]


def decimals(values: object, digits: int = 4) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in np.atleast_1d(np.asarray(values)))


@cache
def numbers() -> dict[str, str]:
    """The numbers in the questions, computed and formatted."""
    gpt2 = attnlab.GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
    pocket = attnlab.GPT2.from_pretrained("pocket").config
    D, Dh, F = gpt2.n_embd, gpt2.d_head, gpt2.d_mlp
    mask = attnlab.causal_mask(6)
    published = figures.load("walkthrough")
    symbols = published["symbols"]
    row = published["weights"][symbols.index("Ġsummer")]
    percentages = {name: round(100 * row[symbols.index(name)]) for name in ("It", "Ġhot")}
    identity = np.eye(2)
    kept, dropped = (
        attnlab.self_attention(identity, identity, identity, identity, dropout=p, rng=0)
        for p in (0, 0.2)
    )
    losses = -np.log([0.25, 0.5])
    gpt2_count = parameter_count(gpt2)
    lengths = range(100, 200)
    return {
        "two_thin": f"{2 * D * Dh:,}",
        "one_full": f"{D * D:,}",
        "mapped": str(tuple((np.array([2, 1]) @ [[3, 1], [0, 2]]).tolist())),
        "products": str(5 * 8 * 4),
        "null_space": str(D - Dh),
        "softmax_210": decimals(attnlab.softmax(np.array([2.0, 1.0, 0.0]))),
        "masked_6": str(int((~mask).sum())),
        "seen_6": str(int(mask.sum())),
        "dropout_factor": f"{(dropped.weights / kept.weights).max():.4g}",
        "std_64": f"{math.sqrt(64):g}",
        "weight_8": decimals(attnlab.softmax(np.array([8.0, 0.0]))[0]),
        "weight_1": decimals(attnlab.softmax(np.array([8.0, 0.0]) / math.sqrt(64))[0]),
        "std_divided_64": f"{math.sqrt(64) / 64:g}",
        "root_2": decimals(math.sqrt(2)),
        "root_128": decimals(math.sqrt(128), 2),
        "root_64": f"{math.sqrt(64):g}",
        "summer_it": str(percentages["It"]),
        "summer_hot": str(percentages["Ġhot"]),
        "summer_rest": str(100 - sum(percentages.values())),
        "rounding_64": f"{64 * 2 * 0.00005:.4f}",
        "gpt2_vocab": f"{gpt2.vocab_size:,}",
        "pocket_vocab": str(pocket.vocab_size),
        "pocket_uniform_loss": decimals(math.log(pocket.vocab_size), 2),
        "loss_025": decimals(losses[0], 3),
        "loss_05": decimals(losses[1], 3),
        "loss_mean": decimals(losses.mean(), 3),
        "perplexity": decimals(math.exp(losses.mean()), 2),
        "gpt2_W_E": f"{gpt2.vocab_size * D:,}",
        "gpt2_d_head": str(Dh),
        "gpt2_mlp": f"{2 * D * F:,}",
        "gpt2_attention": f"{4 * D * D:,}",
        "gpt2_all": f"{gpt2_count:,}",
        "gpt2_mb": f"{4 * gpt2_count / 1e6:.0f}",
        "gpt2_tied_share": f"{100 * gpt2.vocab_size * D / gpt2_count:.0f}",
        "gpt2_cache_numbers": f"{2 * gpt2.n_layer * D:,}",
        "gpt2_cache_kb": f"{4 * 2 * gpt2.n_layer * D / 1024:g}",
        "rows_cached": f"{100 + 99:,}",
        "rows_uncached": f"{sum(lengths):,}",
        "ln_10": decimals(math.log(10), 3),
        "slope_05": f"{0.5 * (1 - 0.5):g}",
        "slope_099": f"{0.99 * (1 - 0.99):.4f}",
        "float32_eps": f"{np.finfo(np.float32).eps:.1e}",
        "sentences_halved": f"{400 * 2**2:,}",
        "std_half": f"{np.std([0, 1]):g}",
        "error_of_difference": decimals(math.hypot(0.01, 0.01), 3),
        "errors_apart": decimals(0.03 / math.hypot(0.01, 0.01), 1),
        "window_reach": str(3 * (4 - 1)),
        "grouped_factor": f"{32 / 8:g}",
        "subsets_of_10": f"{2**10:,}",
        "orders_of_10": f"{math.factorial(10):,}",
        "previous_of_resting": f"{np.eye(11)[[0] * 10, range(10)].mean():g}",
    }


def with_numbers(text: str) -> str:
    return NUMBER.sub(lambda match: numbers()[match[1]], text)


def page(language: str) -> str:
    """The page of all questions, with folded answers."""
    bank = questions(language)
    label, yours, answer = WORDS[language]
    titles = {
        chapter.name[:2]: (cells(edition(chapter, language))[0].heading, chapter.stem)
        for chapter in CHAPTERS
    }
    lines = [f"# {TITLES[language]}", "", OPENINGS[language].format(count=len(bank)), ""]
    chapter = ""
    for n, question in enumerate(bank, 1):
        if question.chapter != chapter:
            heading, stem = titles[question.chapter]
            lines += [f"## [{heading.removeprefix('# ')}]({stem}.ipynb)", ""]
            chapter = question.chapter
        how = question.difficulty if language == "en" else DIFFICULTIES[question.difficulty]
        lines += [
            f"**{label.format(n=n, how=how)}** {with_numbers(question.text)}",
            "",
            f'<p class="prediction">{yours}</p>',
            "",
            f"<details><summary>{answer}</summary>",
            "",
            with_numbers(question.answer),
            "",
            "</details>",
            "",
        ]
    return "\n".join(lines)
