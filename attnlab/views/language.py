"""What pictures, pages and notebooks say, in English or in Chinese.

The English text is the key. Names of steps, formulas, numbers and tokens are the same in both.
"""

from __future__ import annotations

import locale
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
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
    "head": "头",
    "part": "部分",
    "token": "词元",
    "stop": "站",
    "job": "任务",
    "rank": "名次",
    "writes": "写入",
    "reads": "读取",
    "query {i}": "查询 {i}",
    "key {j}": "键 {j}",
    "layer {layer}, head {head}": "第 {layer} 层，头 {head}",
    "Layer {layer}, head {head}": "第 {layer} 层，头 {head}",
    "masked": "被掩码",
    "colour by √weight": "颜色按 √权重",
    " of {name}": "（{name}）",
    " ({axis})": "（{axis}）",
    "tokens=slice(None) shows all": "tokens=slice(None) 显示全部",
    "the first {first} and the last {last} of {count}{named}": (
        "前 {first} 个和后 {last} 个，共 {count} 个{named}"
    ),
    "the first {first} and the last of {count}{named}": (
        "前 {first} 个和最后 1 个，共 {count} 个{named}"
    ),
    "{shown} of {count}{named}": "{count} 个中的 {shown} 个{named}",
    # pictures
    "shown: {word}": "显示：{word}",
    "Shown: {word}": "显示：{word}",
    "shown: the {most} largest of {count}": "显示：{count} 个中最大的 {most} 个",
    "head; in each, {columns} across": "头；每格中，横向为{columns}",
    "layer; in each, {rows} down": "层；每格中，纵向为{rows}",
    "weights of query {query}": "查询 {query} 的权重",
    "{rest} more, {sum} together": "其余 {rest} 个，合计 {sum}",
    "training step": "训练步",
    "loss, nats per token": "损失（nat / 词元）",
    "mean of {width} steps": "{width} 步的均值",
    "symbols stand for characters that no font here has": "此处没有字体的字符以符号代替",
    " by ": " × ",
    ", ": "，",
    "Heatmap{of}: {size}; the largest is {largest} at {place}": (
        "热力图{of}：{size}；最大值 {largest}，位于 {place}"
    ),
    (
        "Heatmaps{of}: {L} layers of {H} heads; the largest is {largest} in layer {layer}, "
        "head {head}"
    ): ("热力图{of}：{L} 层，每层 {H} 个头；最大值 {largest}，位于第 {layer} 层，头 {head}"),
    "Lines{of} ({query}): most to {first}": "连线{of}（{query}）：最强的指向 {first}",
    "Losses{of}: from {first} at step 1 to {last} at the last": (
        "损失{of}：第 1 步 {first}，最后一步 {last}"
    ),
    # pictures of a reader's own numbers
    "before": "变换前",
    "after": "变换后",
    "not drawn: {lost} that are NaN or infinite": "未画出：{lost} 个 NaN 或无穷大",
    "Maps of the plane{of}: {told}": "平面的变换{of}：{told}",
    "{name} takes (1, 0) to {first} and (0, 1) to {second}": (
        "{name} 把 (1, 0) 变为 {first}，把 (0, 1) 变为 {second}"
    ),
    "Arrows head to tail{of}: {told}; their sum is {total}": (
        "首尾相接的箭头{of}：{told}；它们的和为 {total}"
    ),
    "Arrows from the origin{of}: {told}": "从原点出发的箭头{of}：{told}",
    "Curves{of}: {told}": "曲线{of}：{told}",
    "from {y} at {x} to {last_y} at {last_x}": "从 {x} 处的 {y} 到 {last_x} 处的 {last_y}",
    "holds no finite number": "没有有限的数",
    # notebooks
    "token {i}": "词元 {i}",
    "symbol {symbol} · text {text} · bytes {bytes} · id {id}": (
        "符号 {symbol} · 文本 {text} · 字节 {bytes} · 编号 {id}"
    ),
    "part of {shared}": "属于 {shared}",
    "… {more} more …": "…… 还有 {more} 个 ……",
    "steps": "步骤",
    "probability": "概率",
    "Next tokens": "下一个词元",
    "What may follow {last}": "{last} 之后可能是",
    "{new} after a prompt of {prompt}": "提示词（{prompt} 个词元）之后写出 {new}",
    "No weights: {error}": "没有权重：{error}",
    "The weights are many and not computed yet.": "权重很多，尚未计算。",
    "Several sequences at once are shown as a table only.": "同时有多个序列时，只显示表格。",
    (
        "The heads of a long text are many: trace.next_tokens(), trace.plot() and "
        "trace.head(layer, head) look at some of it."
    ): (
        "长文本的头很多：可用 trace.next_tokens()、trace.plot() 和 "
        "trace.head(layer, head) 查看其中一部分。"
    ),
    "layer {layer}: {heading} of {H} heads": "第 {layer} 层：{H} 个头的 {heading}",
    (
        "{heading}: a row for each layer, a picture for each head; in each, query down, key across"
    ): "{heading}：每层一行，每个头一幅图；图中纵向为查询，横向为键",
    "head {h}": "头 {h}",
    "{rows} down, {columns} across": "纵向为{rows}，横向为{columns}",
    "0 in the middle": "中间为 0",
    "layers": "层",
    "heads": "头",
    "{count} {kind}, 0 to {last}": "{count} 个{kind}，编号 0 至 {last}",
    "width": "宽度",
    "width of a head": "每个头的宽度",
    "width of the MLP": "MLP 的宽度",
    "positions": "位置",
    "tokens of the vocabulary": "词表大小",
    "model.trace(text) looks inside; model.generate(text, 20) writes on": (
        "model.trace(text) 查看内部；model.generate(text, 20) 续写"
    ),
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
    "Logit lens{title}: the most probable token": "logit 透镜{title}：最可能的词元",
    "Logit lens{title}: probability and rank of {token}": "logit 透镜{title}：{token} 的概率和名次",
    "Logit lens{title}: the most probable tokens at position {position}": (
        "logit 透镜{title}：位置 {position} 上最可能的词元"
    ),
    "{title}, head by head and token by token": "{title}，逐头逐词元",
    "Direct logit attribution{title}: {target}": "直接 logit 归因{title}：{target}",
    "Jobs of heads": "头的任务",
    "Attention rollout through {L} layers{title}": "注意力 rollout，经过 {L} 层{title}",
    "{title}: lengths of what it adds up": "{title}：相加的各向量的长度",
    "Lengths of what each head adds up{title}": "每个头相加的各向量的长度{title}",
    "{title}: what it looks at from {token}": "{title}：从 {token} 看向什么",
    "{title}: what it writes where it looks at {token}": "{title}：看向 {token} 时写入什么",
    "{kind}-composition of heads{title}": "头的 {kind} 组合{title}",
    "Patching of {parts} by position: {target}": "按位置给 {parts} 打补丁：{target}",
    "Patching of {parts}: {target}": "给 {parts} 打补丁：{target}",
    "Attribution patching of {parts} by position: {target}": (
        "按位置给 {parts} 打归因补丁：{target}"
    ),
    "Attribution patching of {parts}: {target}": "给 {parts} 打归因补丁：{target}",
    "layer {layer} head {head}": "第 {layer} 层，头 {head}",
    "head {head}": "头 {head}",
    "restored": "恢复的比例",
    "{title}, edited": "{title}，已修改",
    "gradient of {target}, by {step}": "{target}，对 {step} 的梯度",
    "{title}, from a file": "{title}，来自文件",
    "{title}, edited: {paths}": "{title}，已修改：{paths}",
    "{title}, gradient of {target}": "{title}，梯度：{target}",
    "GPT2: {layers} layers of {heads} heads, width {width}, {parameters} parameters, {dtype}": (
        "GPT2：{layers} 层，每层 {heads} 个头，宽度 {width}，{parameters} 个参数，{dtype}"
    ),
    "from {origin}": "来自 {origin}",
    "Attention": "注意力",
    ".tokens, .blocks[layer] and .head(layer, head) show the rest": (
        "其余见 .tokens、.blocks[layer] 和 .head(layer, head)"
    ),
    ".attention and .mlp have tables of their own": ".attention 和 .mlp 各有自己的表",
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

_spoken: ContextVar[str | None] = ContextVar("spoken", default=None)


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """What is said here is said in a language, unless another one is given."""
    before = _spoken.set(language)
    try:
        yield
    finally:
        _spoken.reset(before)


def language_of(given: str | None = None) -> str:
    """`given`, else what is spoken here, else the reader's: "zh" for Chinese, "en" for all others.

    The reader's is that of ATTNLAB_LANGUAGE where it is set, such as "zh", else the locale's.

    Raises
    ------
    InvalidValueError
        `given` is neither of the two.
    """
    if given is None and (spoken := _spoken.get()):
        return spoken
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


def say(text: str, language: str | None = None, /, **values: object) -> str:
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
