"""What pictures, pages and notebooks say, in English or in Chinese.

The English text is the key. Names of steps, formulas, numbers and tokens are the same in both.
"""

from __future__ import annotations

import locale
import os
import re
from contextlib import suppress
from functools import cache

from attnlab.errors import InvalidValueError, shown

ENGLISH, CHINESE = "en", "zh"

# Which language is meant, by the first of these that is set; then by the locale.
VARIABLES = ("ATTNLAB_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")

# What views say; {names} are filled in.
WORDS = {
    # axes and places
    "query": "查询",
    "key": "键",
    "position": "位置",
    "layer": "层",
    "query {i}": "查询 {i}",
    "key {j}": "键 {j}",
    "layer {layer}, head {head}": "第 {layer} 层，头 {head}",
    "Layer {layer}, head {head}": "第 {layer} 层，头 {head}",
    "masked": "被掩码",
    "colour by √weight": "颜色按 √权重",
    " of {name}": "（{name}）",
    # tokens
    "symbol": "符号",
    "text": "文本",
    "bytes": "字节",
    "id": "编号",
    "part of": "属于",
    # the page's frame
    "Dark": "深色",
    "Light": "浅色",
    "This page computes its numbers in JavaScript, which is switched off.": (
        "本页的数字由 JavaScript 计算，而浏览器禁用了它。"
    ),
    "Tokens and what comes next": "词元与下一个词元",
    "Heads": "注意力头",
    "Step": "步骤",
    "Size of the cells": "格子大小",
    "Smaller cells": "缩小格子",
    "Larger cells": "放大格子",
    "Arithmetic": "计算过程",
    (
        "Click a cell, or press Enter on it, to see its numbers from the dot product to the "
        "context vector."
    ): "点击一个格子，或在格子上按 Enter，就能看到从点积到上下文向量的每个数字。",
    (
        "<kbd>Tab</kbd> from part to part, <kbd>←</kbd> <kbd>↑</kbd> <kbd>↓</kbd> <kbd>→</kbd> "
        "inside one, <kbd>Enter</kbd> to open, <kbd>Esc</kbd> to go back."
    ): (
        "<kbd>Tab</kbd> 切换区域，<kbd>←</kbd> <kbd>↑</kbd> <kbd>↓</kbd> <kbd>→</kbd> "
        "在区域内移动，<kbd>Enter</kbd> 打开，<kbd>Esc</kbd> 返回。"
    ),
    # the page's summary, and two traces
    "{T} token": "{T} 个词元",
    "{T} tokens": "{T} 个词元",
    "{layers} layer": "{layers} 层",
    "{layers} layers": "{layers} 层",
    "{H} head": "{H} 个头",
    "{H} heads": "{H} 个头",
    "{blocks} × {heads}, {texts}": "{blocks} × {heads}，{texts}",
    " after {cached} cached": "（前有 {cached} 个在缓存中）",
    "{DIFFERENCE} is shown beside them. ": "{DIFFERENCE} 显示在两者旁边。",
    "{differ} of {T} tokens differ.": "{T} 个词元中有 {differ} 个不同。",
    "The tokens are the same.": "词元完全相同。",
    "No difference is shown: {a}; {b}.": "无法显示差值：{a}；{b}。",
    "{name} has {layers} layers of {H} heads, Dh {Dh}": (
        "{name} 有 {layers} 层，每层 {H} 个头，Dh 为 {Dh}"
    ),
    "{name} has {T} queries and {Tk} keys": "{name} 有 {T} 个查询和 {Tk} 个键",
    "{name} has no layer {layer}, head {head}.": "{name} 没有第 {layer} 层的头 {head}。",
    # the page's text and maps
    "Tokens{of}": "词元{of}",
    "Next token": "下一个词元",
    "Next tokens{of}": "下一个词元{of}",
    "cached {n}": "缓存 {n}",
    "{symbol}, found in the cache": "{symbol}，来自缓存",
    "Heads{of}: a row for each layer": "注意力头{of}：每层一行",
    "{step}{of}, layer {layer}, head {head}: a row for each query, a column for each key": (
        "{step}{of}，第 {layer} 层，头 {head}：每个查询一行，每个键一列"
    ),
    "hatched: masked": "斜线：被掩码",
    ", edited": "，已修改",
    ", edited in {name}": "，在 {name} 中已修改",
    ", edited in A and in B": "，在 A 和 B 中均已修改",
    # the page's arithmetic
    "Arithmetic of layer {layer}, head {head}, query {query}, key {key}": (
        "计算过程：第 {layer} 层，头 {head}，查询 {query}，键 {key}"
    ),
    "how {query} looks at {key}": "{query} 怎样看 {key}",
    "the {Dh} products added up: ": "{Dh} 个乘积相加：",
    "Dk is {Dh}: ": "Dk 为 {Dh}：",
    "the mask is {mask}{edited}: ": "掩码为 {mask}{edited}：",
    "; divided by the row's sum, ": "；除以该行之和，",
    "component {chosen}: key {j} adds ": "第 {chosen} 维：键 {j} 贡献 ",
    "; all keys added up: ": "；所有键相加：",
    "{made}; edited here: {x} instead": "{made}；此处已改为 {x}",
    "The {Dh} components of query {i} and key {j}": "查询 {i} 与键 {j} 的 {Dh} 个维度",
    "The row of query {i}: its largest masked score is {largest}": (
        "查询 {i} 这一行：掩码后最大的分数是 {largest}"
    ),
    "product": "乘积",
    "weight × V": "权重 × V",
    "exp(· − largest)": "exp(· − 最大值)",
    "sum": "和",
    "step": "步骤",
    "Both, and their difference": "两者及其差值",
}

# What results call themselves; the first that fits counts. In the places NESTED stands another of
# these, or nothing.
TITLES = {
    "{title}, from a file": "{title}，来自文件",
    "{title}, edited: {paths}": "{title}，已修改：{paths}",
    "{title}, gradient of {target}": "{title}，梯度：{target}",
    "Attention": "注意力",
    "Self-attention": "自注意力",
    "Cross-attention": "交叉注意力",
    "Multi-head attention": "多头注意力",
    "Trace of {T} tokens through {L} blocks of {H} heads": "{T} 个词元经过 {L} 个块，每块 {H} 个头",
    "Block {layer}": "第 {layer} 块",
    "Layer {layer}, attention": "第 {layer} 层，注意力",
    "Layer {layer}, MLP": "第 {layer} 层，MLP",
    "{title}, head {head}": "{title}，头 {head}",
    "the logit of {token} minus that of {other} at position {position}": (
        "位置 {position} 上 {token} 的 logit 减去 {other} 的 logit"
    ),
    "the logit of {token} at position {position}": "位置 {position} 上 {token} 的 logit",
}
NESTED = {"title", "target"}


def language_of(given: str | None = None) -> str:
    """`given`, else the reader's language: "zh" for Chinese, "en" for everything else.

    The reader's is that of ATTNLAB_LANGUAGE where it is set, such as "zh", else the locale's.

    Raises
    ------
    InvalidValueError
        `given` is neither of the two.
    """
    if given is None:
        named = next(filter(None, map(os.environ.get, VARIABLES)), None) or _locale()
        return CHINESE if named.lower().startswith(("zh", "chinese")) else ENGLISH
    if not isinstance(given, str) or given not in (ENGLISH, CHINESE):
        raise InvalidValueError(f"language must be 'en' or 'zh'; given {shown(given)}")
    return given


def _locale() -> str:
    """The locale's name where no variable tells it, as on Windows."""
    with suppress(ValueError):  # of one that Python does not know
        return locale.getlocale()[0] or ""
    return ""


def say(text: str, language: str | None = None, **values: object) -> str:
    """A text in a language, the reader's by default, with values in the place of {names}."""
    said = WORDS.get(text, text) if language_of(language) == CHINESE else text
    return said.format(**values) if values else said


def titled(title: str, language: str | None = None) -> str:
    """What a result calls itself, in a language; what is unknown stays as it is."""
    if language_of(language) == CHINESE:
        for pattern, chinese in _patterns():
            if found := pattern.fullmatch(title):
                values = found.groupdict()
                nested = {name: titled(values[name], CHINESE) for name in NESTED & values.keys()}
                return chinese.format(**values | nested)
    return title


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """What English titles look like, with what they are in Chinese."""
    return [
        (re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.*)", re.escape(english)), re.DOTALL), chinese)
        for english, chinese in TITLES.items()
    ]
