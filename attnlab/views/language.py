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
    "measure": "度量",
    "rank": "名次",
    "writes": "写入",
    "reads": "读取",
    "query {i}": "查询 {i}",
    "key {j}": "键 {j}",
    "layer {layer}, head {head}": "第 {layer} 层，头 {head}",
    "Layer {layer}, head {head}": "第 {layer} 层，头 {head}",
    "masked": "被掩码",
    "colour by √weight": "颜色按 √权重",
    "colour by √difference": "颜色按 √差值",
    " of {name}": "（{name}）",
    " ({axis})": "（{axis}）",
    "tokens=slice(None) shows all": "tokens=slice(None) 显示全部",
    "the first {first} and the last {last} of {count}{named}": (
        "前 {first} 个和后 {last} 个，共 {count} 个{named}"
    ),
    "the first {first} and the last of {count}{named}": (
        "前 {first} 个和最后 1 个，共 {count} 个{named}"
    ),
    "{shown} of {count}{named}, {which}": "{count} 个中的 {shown} 个{named}：{which}",
    "{first} to {last}": "{first} 至 {last}",
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
    "; ": "；",
    "Heatmap{of}: {size}; the largest is {largest} at {place}": (
        "热力图{of}：{size}；最大值 {largest}，位于 {place}"
    ),
    (
        "Heatmaps{of}: {L} layers of {H} heads; the largest is {largest} in layer {layer}, "
        "head {head}"
    ): ("热力图{of}：{L} 层，每层 {H} 个头；最大值 {largest}，位于第 {layer} 层，头 {head}"),
    "Lines{of} ({query}): most to {first}": "连线{of}（{query}）：最强的指向 {first}",
    "least of all heads": "各头中最小",
    "least": "最小",
    "To look into a text:": "查看一篇文本：",
    "In this page's directory, this shows it with a link to each passage's trace:": (
        "在本页所在的目录里，下面的命令打开它，并给每一段加上到其追踪的链接："
    ),
    "In Python, this shows it with a link to each passage's trace:": (
        "在 Python 里，下面的调用打开它，并给每一段加上到其追踪的链接："
    ),
    "A passage leads to its trace, in a new tab.": "点一段文字，在新标签页中打开它的追踪。",
    "Explore a text of your own": "探索自己的文本",
    "Traces are of another model than the atlas: their numbers are not those told here.": (
        "追踪用的模型与图谱的不同：其数值与这里所写的不一致。"
    ),
    "{text}, from token {start}": "{text}，从词元 {start} 起",
    "{passage} in the atlas": "{passage}（图谱中的数值）",
    "There is no such passage in the atlas.": "图谱中没有这一段。",
    "Back to the atlas": "回到图谱",
    "Errors are one standard error of a mean over texts like these.": (
        "误差是这类文本均值的一个标准误差。"
    ),
    "weight on the first token, where heads look that have nothing to do": (
        "放在第一个词元上的权重，没有事做的头看向那里"
    ),
    "weight on the token before": "放在前一个词元上的权重",
    "weight on earlier copies of the token": "放在同一词元更早各处上的权重",
    "weight on what stands behind the last earlier copy of the token": (
        "放在同一词元上一次出现之后那个词元上的权重"
    ),
    "tokens between a query and what it looks at, weighted": (
        "查询与所看之处相隔的词元数，按权重平均"
    ),
    "of the weights, in nats: 0 where all is on one token": (
        "权重的熵，以纳特计：全在一个词元上时为 0"
    ),
    "of the weight that is not on the first token, on the token before": (
        "不在第一个词元上的权重中，放在前一个词元上的份额"
    ),
    "of the weight that is not on the first token, on earlier copies": (
        "不在第一个词元上的权重中，放在同一词元更早各处上的份额"
    ),
    "of the weight that is not on the first token, on what stands behind the last earlier copy": (
        "不在第一个词元上的权重中，放在上一次出现之后那个词元上的份额"
    ),
    "distance, of the weight that is not on the first token": "不在第一个词元上的权重的平均距离",
    "of the weights that are left when the first token is taken away": (
        "去掉第一个词元后剩下的权重的熵"
    ),
    "of the lengths of weighed values, on the first token": (
        "加权后的值的长度中，第一个词元所占的份额"
    ),
    "of the lengths of weighed values, on the token before": (
        "加权后的值的长度中，前一个词元所占的份额"
    ),
    "of the lengths of weighed values, on earlier copies of the token": (
        "加权后的值的长度中，同一词元更早各处所占的份额"
    ),
    "of the lengths of weighed values, on what stands behind the last earlier copy": (
        "加权后的值的长度中，上一次出现之后那个词元所占的份额"
    ),
    "length of what the head writes, over that of the stream that it writes to": (
        "头所写入的长度与它写入的残差流长度之比"
    ),
    "how often it is among the 3 that add most to the logit of the token that follows": (
        "在所有头、MLP 和嵌入中，对下一个词元的 logit 贡献居前三的词元份额"
    ),
    "of the model, in nats per token": "模型的损失，以每词元纳特计",
    "A cell leads to its head, below.": "点一格，下面显示那个头。",
    "{rank} of {count}": "第 {rank} 名，共 {count} 个",
    "most": "最大",
    "Profile{of}: {told}": "各项度量{of}：{told}",
    "Losses{of}: from {first} at step 1 to {last} at the last": (
        "损失{of}：第 1 步 {first}，最后一步 {last}"
    ),
    # pictures of a reader's own numbers
    "before": "之前",
    "after": "之后",
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
    "drawn with": "抽取时的概率",
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
    # the explorer
    "Explore": "探索",
    "Text": "文本",
    "Look": "查看",
    "not shown yet: press Enter": "尚未显示：请按 Enter",
    "Compare with the one before": "与前一次比较",
    "Back to the one before": "回到前一次",
    "tokens": "个词元",
    "Write on": "续写",
    "Written on, each with the probability that it was drawn with:": (
        "续写出的词元，各附抽取时的概率："
    ),
    "Written on, the likeliest each time; its probability is the model's, at temperature 1:": (
        "续写出的词元，每次取最可能的一个；概率是模型在温度 1 时给出的："
    ),
    "Silenced: it computes its weights still, but its context, what it finds, is set to 0.": (
        "已静默：它仍计算权重，但它找到的内容（context）被置为 0。"
    ),
    "{name}: silenced": "{name}：已静默",
    "nothing silenced": "没有静默",
    "{names} silent": "{names} 静默",
    "not edited": "未修改",
    "now": "现在",
    "change": "变化",
    "Silence a head or an MLP, or look at another text: this tells what changes.": (
        "让某个头或 MLP 静默，或换一段文本：这里会显示变化。"
    ),
    "0 everywhere: it is the same text twice.": "处处为 0：两段文本相同。",
    "0 in all layers: what is silenced comes after the last weights, and changes the next token "
    "alone.": ("各层均为 0：被静默的部分在最后的权重之后，只改变下一个词元。"),
    "0 up to layer {layer}: what is silenced there changes what comes after it.": (
        "第 {layer} 层及之前为 0：在那里静默只改变其后的内容。"
    ),
    "Silence this head (S)": "让这个头静默 (S)",
    "Silence the MLP of layer {layer}": "让第 {layer} 层的 MLP 静默",
    "MLP of layer {layer}": "第 {layer} 层的 MLP",
    "Silenced:": "已静默：",
    "{name}, silenced": "{name}，已静默",
    "{name}: let it speak again": "{name}：恢复发声",
    "End the explorer": "结束探索",
    "The explorer has ended. What is shown can be looked at still; start it again for more.": (
        "探索页已结束。已显示的内容仍可查看；要继续请重新启动。"
    ),
    "The explorer does not answer: it has ended, or there is no way to it.": (
        "探索程序没有回应：它已经结束，或者无法连接。"
    ),
    "Open the explorer in a tab of its own": "在单独的标签页中打开探索页",
    "The explorer has been stopped.": "探索页已停止。",
    "Type a text: there is nothing to trace.": "请输入一段文本：没有内容可以追踪。",
    "{count} tokens are too many: this model reads {positions} at most, here up to “{end}”.": (
        "{count} 个词元太多：这个模型最多读 {positions} 个，此处读到“{end}”。"
    ),
    "More than {bytes} bytes are too many: this model reads {positions} tokens at most.": (
        "超过 {bytes} 字节太多：这个模型最多读 {positions} 个词元。"
    ),
    "How many tokens shall be written on? Give a number from 1 to {most}.": (
        "要续写多少个词元？请给出 1 到 {most} 之间的数。"
    ),
    "This text is white space alone: {count} of its tokens.": (
        "这段文本全是空白：共 {count} 个空白词元。"
    ),
    "The model has no token for {characters}: it reads their bytes, one by one.": (
        "模型没有 {characters} 的词元：它逐个读取其字节。"
    ),
    "The text fills all {positions} positions of the model: no room to write on.": (
        "文本已占满模型的全部 {positions} 个位置，无法续写。"
    ),
    # the page's frame
    "Dark": "深色",
    "Light": "浅色",
    "This page computes its numbers in JavaScript, which is switched off.": (
        "本页的数字由 JavaScript 计算，而浏览器禁用了它。"
    ),
    "Tokens and what comes next": "词元与下一个词元",
    "Heads": "注意力头",
    "Step": "步骤",
    "Size of the letters": "字的大小",
    "Smaller letters": "更小的字",
    "Larger letters": "更大的字",
    "Size of the cells": "格子大小",
    "Smaller cells": "缩小格子",
    "Larger cells": "放大格子",
    "Arithmetic": "计算过程",
    "Back to the map": "返回热力图",
    "View": "视图",
    (
        "How much of its weight the head puts there, on average over the queries that can look "
        "there; even is what it were if all got the same."
    ): "这个头平均有多少权重落在那里，只计能看向那里的查询；“均匀”指所有位置权重相同时的值。",
    "map": "热力图",
    "lines": "连线",
    "Several at once": "同时看多个",
    "Or click with Ctrl or Shift": "或按住 Ctrl 或 Shift 点击",
    "take {name} away": "移除{name}",
    "Lines of all tokens{of}: queries on the left, keys on the right": (
        "所有词元的连线{of}：左边为查询，右边为键"
    ),
    "The query's vector, and every key's{of}": "查询的向量与每个键的向量{of}",
    (
        "Blue below zero, orange above: Q and K to ±{vectors}, products to ±{products}; a row's "
        "products add up to its raw score."
    ): (
        "蓝色小于零，橙色大于零：Q 和 K 到 ±{vectors}，乘积到 ±{products}；"
        "一行的乘积相加就是它的原始分数。"
    ),
    "component {d} of query {i} and key {j}: ": "查询 {i} 与键 {j} 的第 {d} 维：",
    "the token before": "前一个词元",
    "the adjective that decides": "起决定作用的形容词",
    "the animal of “it”": "“it” 所指的动物",
    "the thing of “it”": "“it” 所指的物体",
    "a model without a name": "没有名字的模型",
    "On other texts, by its model card: ": "在其他文本上，据模型卡：",
    "the first token": "第一个词元",
    "the same token, earlier": "更早出现的同一词元",
    "what followed it there": "它当时后面的词元",
    "({even} if evenly)": "（平均分配则为 {even}）",
    "0 everywhere: what this head sees is the same in A and B.": (
        "处处为 0：这个头看到的内容在 A 和 B 中相同。"
    ),
    "0 up to query {i}: so far both texts are the same, and no query sees what comes later.": (
        "到查询 {i} 为止都是 0：到此两段文本相同，而查询看不到后面的内容。"
    ),
    "How the way makes it": "它在这条路上是怎么算出来的",
    "its row": "它的行",
    "‖x‖ is a row's size: the root of the sum of its numbers' squares.": (
        "‖x‖ 是一行的长度：各数平方和的平方根。"
    ),
    "Of {n} heads that are chosen this is one; lines show all of them.": (
        "这是所选 {n} 个头中的一个；连线视图显示全部。"
    ),
    "Show their lines": "显示它们的连线",
    "Largest weight of query {i} {query}: {share}, on key {j} {key}": (
        "查询 {i} {query} 的最大权重：{share}，在键 {j} {key} 上"
    ),
    "Mean weight on this text: ": "在这段文本上的平均权重：",
    "Empty maps have not been looked at before this was printed.": (
        "空白的图在打印之前没有查看过。"
    ),
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
    "{DIFFERENCE} is shown beside them.": "{DIFFERENCE} 显示在两者旁边。",
    "In A alone: {onlyA}; in B alone: {onlyB}. The difference is of what both have.": (
        "仅在 A 中：{onlyA} 个；仅在 B 中：{onlyB} 个。差值只针对两者都有的位置。"
    ),
    "A above, B below": "上为 A，下为 B",
    "beside the other text": "与另一文本相比",
    "another token": "另一个词元",
    "none there": "那里没有",
    "{differ} of {paired} paired tokens differ.": "对应的 {paired} 个词元中有 {differ} 个不同。",
    "The tokens are the same.": "词元完全相同。",
    "No difference is shown: {a}; {b}.": "无法显示差值：{a}；{b}。",
    "{name} has {layers} layers of {H} heads, Dh {Dh}": (
        "{name} 有 {layers} 层，每层 {H} 个头，Dh 为 {Dh}"
    ),
    "No difference is shown: no token of A stands where one of B does.": (
        "无法显示差值：A 的词元与 B 的词元没有对应的位置。"
    ),
    "{name} has no layer {layer}, head {head}.": "{name} 没有第 {layer} 层的头 {head}。",
    # the page's text and maps
    "Ġ is a space": "Ġ 表示空格",
    "Ċ is a new line": "Ċ 表示换行",
    "other letters, as in {symbol}, are bytes, here {bytes} of {text}": (
        "{symbol} 中那样的其他字母表示字节，这里是 {text} 的 {bytes}"
    ),
    "a character": "一个字符",
    "{symbol} is a part of a character, which tokens after it complete": (
        "{symbol} 是一个字符的一部分，由其后的词元补全"
    ),
    "Tokens{of}": "词元{of}",
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
    # the page's prediction
    "Prediction": "预测",
    "Next token after position {position}, {token}": "位置 {position}（{token}）之后的下一个词元",
    "from logits to probabilities": "从 logits 到概率",
    "after position": "位置",
    "temperature": "温度",
    "0: the most probable token always": "0：总是最可能的词元",
    "all": "全部",
    "all tokens": "所有词元",
    "the {n} most probable tokens": "最可能的 {n} 个词元",
    "the most probable tokens that have {share} together": "合计概率达到 {share} 的最可能词元",
    "Draw one here": "在本页抽取一个",
    "Drawn before a slider was moved or another token chosen: ": (
        "在移动滑块或选择另一个词元之前抽取的："
    ),
    "the other {count}, and {rest} rows of W_E that belong to no token, together": (
        "其余 {count} 个，以及 W_E 中不属于任何词元的 {rest} 行，合计"
    ),
    "more rows": "更多行",
    "This page has logits from position {first} on.": "本页只有从位置 {first} 起的 logits。",
    "exp(logit / {temperature} − {largest}) / {sum}, the sum over all {vocab} tokens.": (
        "exp(logit / {temperature} − {largest}) / {sum}，后者是全部 {vocab} 个词元之和。"
    ),
    "At temperature 0 the first of the largest logits has all.": (
        "温度为 0 时，最大的 logit 中的第一个得到全部概率。"
    ),
    "All tokens stay.": "所有词元都保留。",
    "One token stays.": "只保留一个词元。",
    "{count} of {vocab} tokens stay; they share among them: exp / {left}.": (
        "{vocab} 个词元中保留 {count} 个，概率由它们重新分配：exp / {left}。"
    ),
    "The {count} most probable of {vocab} tokens": "{vocab} 个词元中最可能的 {count} 个",
    "the other {count} together": "其余 {count} 个合计",
    "minus the largest": "减去最大值",
    "renewed": "重新归一",
    "cumulated": "累积",
    "Here the text ends.": "文本到此结束。",
    "In the text {token} follows: rank {rank} of {vocab}, probability {probability}.": (
        "文本中接着的是 {token}：在 {vocab} 个中排第 {rank}，概率 {probability}。"
    ),
    "u = {u}: one of the other tokens": "u = {u}：其余词元之一",
    "u = {u}: {token} is the first whose cumulated probability, {reached}, is above u": (
        "u = {u}：{token} 是累积概率（{reached}）第一个大于 u 的词元"
    ),
    " (draw {count} of seed 0, in this page)": "（在本页中抽取，种子 0，第 {count} 次）",
    # the page's arithmetic
    "Arithmetic of layer {layer}, head {head}, query {query}, key {key}": (
        "计算过程：第 {layer} 层，头 {head}，查询 {query}，键 {key}"
    ),
    "how {query} looks at {key}": "{query} 怎样看 {key}",
    "the {Dh} products added up: ": "{Dh} 个乘积相加：",
    "Dk is {Dh}: ": "Dk 为 {Dh}：",
    "the mask is True": "掩码为 True",
    "the mask is False": "掩码为 False",
    ", so the query may look: ": "，查询可以看：",
    ", so the query may not look: ": "，查询不可以看：",
    "no such pair here; the nearest: ": "这里没有这一对；最近的是：",
    (
        "Numbers are rounded for showing, and computed with all their digits: the last one shown "
        "may differ by a little."
    ): ("数字显示时经过舍入，计算时用全部位数：显示的最后一位可能略有出入。"),
    "Orange above 0; darkest from {most} on.": "大于 0 为橙；从 {most} 起颜色最深。",
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
    # the page's way through the model
    "Part of the way": "哪一段",
    "Stops of the way": "途经的各站",
    "Embedding": "嵌入",
    "Block {layer}": "第 {layer} 块",
    "Logits": "logits 和概率",
    "It needs the model's parameters, and this trace is from a file.": (
        "这需要模型的参数，而这次前向计算来自文件。"
    ),
    "The way of {token}, token {i}, through the model": "词元 {i}（{token}）在模型中走过的路",
    "The way of token {query} is not in the file; attnlab explore has all of them.": (
        "文件里没有词元 {query} 走过的路；attnlab explore 里全都有。"
    ),
    "{name}, size {size}": "{name}，长度 {size}",
    "{shape}, of which this is token {i}'s row: size {size}, from {least} to {most}.": (
        "{shape}，这里是其中词元 {i} 的一行：长度 {size}，从 {least} 到 {most}。"
    ),
    "component {c}": "第 {c} 维",
    "component {c}, of head {h} component {d}": "第 {c} 维，即头 {h} 的第 {d} 维",
    "Blue below 0, orange above; darkest from ±{most} on.": (
        "小于 0 为蓝，大于 0 为橙；从 ±{most} 起颜色最深。"
    ),
    "mean, of the {D} numbers of {name}: their sum / {D}": "均值，{name} 的 {D} 个数之和 / {D}",
    "variance: the sum of all ({name} − mean)² / {D}": "方差：各个 ({name} − 均值)² 之和 / {D}",
    "share of x that passes = {share}": "x 通过的份额 = {share}",
    "The file has the weights of the likeliest next tokens alone; attnlab explore has all.": (
        "文件里只有最可能的几个后续词元的参数；attnlab explore 里全都有。"
    ),
    "The file has no weights of this stop; attnlab explore has all.": (
        "文件里没有这一站的参数；attnlab explore 里全都有。"
    ),
    "The file has the weights of components {first} to {last}; attnlab explore has all.": (
        "文件里有第 {first} 到 {last} 维的参数；attnlab explore 里全都有。"
    ),
    "{shape}, of which these are the {n} largest of token {i}'s row.": (
        "{shape}，这里是其中词元 {i} 那一行里最大的 {n} 个。"
    ),
    "token {symbol}, id {id}": "词元 {symbol}，编号 {id}",
    "exp(logit − the largest)": "exp(logit − 最大值)",
    "{heading} = exp / the sum over all {vocab} tokens": (
        "{heading} = exp / 全部 {vocab} 个词元之和"
    ),
    "head {h}: {formula}": "头 {h}：{formula}",
    "{heading}: the {all} products, the {count} largest first": (
        "{heading}：{all} 个乘积，先列最大的 {count} 个"
    ),
    "{heading}: the {all} products": "{heading}：{all} 个乘积",
    "{others} others": "其余 {others} 个",
    "All {all} products": "全部 {all} 个乘积",
    # what each step is for
    "A token is known to the model by its number: these are all that it is told of a text.": (
        "模型只凭编号认识词元：关于一段文本，它得到的就是这些编号。"
    ),
    "Scores know nothing of order, so the model is told where each token stands.": (
        "分数不知道顺序，所以要告诉模型每个词元站在哪里。"
    ),
    "Keys and values of these tokens were kept, so that none is computed a second time.": (
        "这些词元的键和值已经保留下来，不必再算一遍。"
    ),
    (
        "Where it is False a query may not look: in GPT-2 at the tokens after it, as those are "
        "what it learns to predict."
    ): ("为 False 的地方，查询不可以看：在 GPT-2 中就是它后面的词元，因为那正是它要学会预测的。"),
    "Several heads side by side can look for different things at once.": (
        "几个头并排，可以同时找不同的东西。"
    ),
    "It keeps LayerNorm from dividing by 0 where all numbers of a vector are alike.": (
        "一个向量的数全都相同时，它让层归一化不至于除以 0。"
    ),
    "Whether this model divides scores by √Dk, as GPT-2 does.": (
        "这个模型是否像 GPT-2 那样把分数除以 √Dk。"
    ),
    "Some relatives of GPT-2 divide scores by more in later layers.": (
        "GPT-2 的一些近亲在越靠后的层里把分数除以越大的数。"
    ),
    "The keys of earlier tokens stay what they were, and so are kept.": (
        "前面词元的键不会再变，所以保留下来。"
    ),
    "The values of earlier tokens stay what they were, and so are kept.": (
        "前面词元的值不会再变，所以保留下来。"
    ),
    (
        "In training some numbers are set to 0 at random, so that the model relies on none of "
        "them alone; the others are made larger to make up for it."
    ): ("训练时随机把一些数置为 0，使模型不只依赖其中任何一个；其余的数相应放大。"),
    (
        "In training some of what attention writes is set to 0 at random, so that no later "
        "step relies on one number alone."
    ): ("训练时随机把注意力写入的一些数置为 0，使后面的步骤不只依赖其中任何一个。"),
    (
        "In training some of what the MLP writes is set to 0 at random, so that no later step "
        "relies on one number alone."
    ): ("训练时随机把 MLP 写入的一些数置为 0，使后面的步骤不只依赖其中任何一个。"),
    (
        "In training some weights are set to 0 at random, so that no token relies on one other "
        "alone; the others are made larger to make up for it."
    ): ("训练时随机把一些权重置为 0，使词元不只依赖另一个词元；其余的权重相应放大。"),
    "Learned, a row for each token of the vocabulary: what a token is, before any context.": (
        "学出来的数，词表里每个词元一行：不看上下文时，这个词元是什么。"
    ),
    "Learned, a row for each position: what it is to stand there.": (
        "学出来的数，每个位置一行：站在那里意味着什么。"
    ),
    "The rows of W_E for the tokens at hand; no others are read from the file.": (
        "W_E 中手头这些词元的行；其余的行不从文件里读。"
    ),
    (
        "An id is an arbitrary number and says nothing, so each token gets its row of W_E: D "
        "learned numbers that say what it is."
    ): (
        "编号是随意定的，本身什么也没说，所以每个词元得到它在 W_E 中的那一行：D 个学出来的数，"
        "说明它是什么。"
    ),
    (
        "Scores know nothing of order, so each position adds a row of its own: the same word "
        "is another vector in another place."
    ): ("分数不知道顺序，所以每个位置加上自己的一行数：同一个词在别处就是另一个向量。"),
    (
        "The residual stream begins here: what each token is and where it stands, in one "
        "vector, from which every block reads and to which it adds."
    ): ("残差流从这里开始：每个词元是什么、站在哪里，合在一个向量里，每个块都从中读取，再往里加。"),
    "What the blocks before have made of each token; this one adds to it.": (
        "前面的块把每个词元变成了什么；这个块再往上加。"
    ),
    "The residual stream as attention finds it, before LayerNorm.": (
        "注意力读到的残差流，还没有做层归一化。"
    ),
    "What enters attention, a vector for each token.": "进入注意力的东西，每个词元一个向量。",
    (
        "LayerNorm gives all vectors one scale, whatever their size in the stream: mean 0 and "
        "variance 1, then a learned gain and bias."
    ): (
        "层归一化让所有向量大小相当，不管它们在残差流里有多大：均值为 0，方差为 1，再乘以学出来"
        "的增益，加上学出来的偏置。"
    ),
    "What enters attention is the same for all heads; each reads something else of it.": (
        "进入注意力的东西对所有头都一样；每个头从中读取不同的内容。"
    ),
    "What keys and values are made of; in self-attention it is X itself.": (
        "键和值由它算出；在自注意力中它就是 X 本身。"
    ),
    "Learned: how large each component is made after LayerNorm has made all alike.": (
        "学出来的数：层归一化把各维变得大小相当之后，每一维再放大多少。"
    ),
    "Learned: what LayerNorm adds to each component in the end.": (
        "学出来的数：层归一化最后给每一维加上多少。"
    ),
    "W_Q, W_K and W_V in one matrix, so that one product makes all three.": (
        "W_Q、W_K 和 W_V 合成一个矩阵，一次乘法就得到三者。"
    ),
    "b_Q, b_K and b_V in one row.": "b_Q、b_K 和 b_V 合成一行。",
    "One product in place of three makes queries, keys and values of all heads.": (
        "用一次乘法代替三次，算出所有头的查询、键和值。"
    ),
    "Learned: what of X makes a query, that is, what a token looks for.": (
        "学出来的数：X 的哪些内容构成查询，也就是词元在找什么。"
    ),
    "Learned: what is added to each query, whatever the token.": (
        "学出来的数：不管是哪个词元，都加到查询上。"
    ),
    "Learned: what of X makes a key, that is, what a token can be found by.": (
        "学出来的数：X 的哪些内容构成键，也就是词元凭什么被找到。"
    ),
    "Learned: what is added to each key, whatever the token.": (
        "学出来的数：不管是哪个词元，都加到键上。"
    ),
    "Learned: what of X makes a value, that is, what a token hands on.": (
        "学出来的数：X 的哪些内容构成值，也就是词元交出去什么。"
    ),
    "Learned: what is added to each value, whatever the token.": (
        "学出来的数：不管是哪个词元，都加到值上。"
    ),
    "What a token looks for: it is held against every key.": ("词元在找什么：拿它和每个键相比。"),
    "What a token can be found by: queries are held against it.": (
        "词元凭什么被找到：查询拿来和它相比。"
    ),
    "What a token hands on to those that look at it.": "有词元来看时，交出去的东西。",
    (
        "A query and a key that point the same way have a large product, so each token scores "
        "highest those that have what it looks for."
    ): ("查询和键指向同一方向时乘积大，所以每个词元给具备它所找内容的词元打最高的分。"),
    (
        "The sum of Dk products grows about as √Dk does, so GPT-2 divides by that; else "
        "softmax would give nearly all weight to one key in wide heads, and hardly learn."
    ): (
        "Dk 个乘积之和大约随 √Dk 增大，所以 GPT-2 除以它；否则在宽的头里，softmax 会把几乎全部"
        "权重给一个键，也就几乎学不动。"
    ),
    (
        "Divided, the scores of a wide head are no larger than a narrow one's: from large ones "
        "softmax gives nearly all weight to one key, and hardly learns."
    ): (
        "除过之后，宽的头的分数不比窄的头大：分数太大时，softmax 把几乎全部权重给一个键，也就几"
        "乎学不动。"
    ),
    (
        "-inf becomes a weight of exactly 0, so that what may not be seen has no effect, and "
        "the weights of what is seen still sum to 1."
    ): ("-inf 变成的权重恰好是 0，所以不可以看的东西毫无作用，而看得到的权重之和仍为 1。"),
    (
        "Softmax makes shares of the scores, none negative, that sum to 1; the maximum is "
        "subtracted first since it cancels, and exp can't overflow."
    ): (
        "softmax 把分数变成份额，都不为负，和为 1；先减去最大值，是因为它会约掉，而 exp 不会溢出。"
    ),
    (
        "Each token collects the values of those that it looks at, of each as much as its "
        "weight: so what one token knows comes to another."
    ): ("每个词元收集它所看词元的值，各按权重取多少：一个词元知道的东西就这样传给另一个。"),
    "What the heads have found, side by side in one vector for each token.": (
        "各个头找到的东西，并排放在每个词元的一个向量里。"
    ),
    "Learned: in which directions of the stream the heads write what they found.": (
        "学出来的数：头把找到的东西写到残差流的哪些方向上。"
    ),
    "Learned: what attention adds to every token, whatever it looked at.": (
        "学出来的数：不管看了什么，注意力都给每个词元加上它。"
    ),
    "W_O mixes what the heads have found into one vector of the stream's width.": (
        "W_O 把各个头找到的东西混合成一个向量，与残差流同宽。"
    ),
    (
        "What this head alone writes to the stream: all heads' shares and b_O add up to the "
        "attention's output."
    ): ("只有这个头写入残差流的东西：所有头的份额加上 b_O，就是注意力的 output。"),
    (
        "A residual: what attention found is added and replaces nothing, so what was there is "
        "kept, and in training gradients reach the first blocks by the same way."
    ): (
        "残差：注意力找到的东西是加上去的，不替换任何东西，所以原有的都保留着，而训练时梯度沿同"
        "一条路传到最前面的块。"
    ),
    "LayerNorm again, so that the MLP too reads all vectors at one scale.": (
        "再做一次层归一化，让 MLP 读到的向量也都大小相当。"
    ),
    "Learned: a column for each unit, what it looks for in a token's vector.": (
        "学出来的数，每个单元一列：它在词元的向量里找什么。"
    ),
    "Learned: what is added for each unit, how easily it answers.": (
        "学出来的数：给每个单元加上多少，也就是它多容易回答。"
    ),
    (
        "F units, in GPT-2 four for each component, each ask one learned question of a token's "
        "vector; here no token sees another."
    ): (
        "F 个单元，在 GPT-2 中每一维对应四个，各向词元的向量问一个学来的问题；在这里，词元之间"
        "互相看不到。"
    ),
    "Without a bend between them W_1 and W_2 would be one linear map.": (
        "两者之间没有弯折的话，W_1 和 W_2 就等于一个线性映射。"
    ),
    (
        "The bend without which W_1 and W_2 would be one linear map: large numbers pass nearly "
        "as they are, negative ones nearly become 0, so a unit answers or keeps silent."
    ): (
        "没有这个弯折，W_1 和 W_2 就等于一个线性映射：大的数几乎原样通过，负数几乎变成 0，于是"
        "一个单元或者回答，或者沉默。"
    ),
    "Learned: a row for each unit, what it writes to the stream when it answers.": (
        "学出来的数，每个单元一行：它回答时往残差流里写什么。"
    ),
    "Learned: what the MLP adds to every token.": "学出来的数：MLP 给每个词元都加上它。",
    "What the units that answered write, as one vector of the stream's width.": (
        "回答了的单元所写的东西，合成一个与残差流同宽的向量。"
    ),
    "A residual again: what the MLP found is added to the stream, and the next block reads it.": (
        "又是残差：MLP 找到的东西加到残差流里，由下一个块读取。"
    ),
    "LayerNorm once more, so that logits do not depend on how far the stream has grown.": (
        "最后再做一次层归一化，让 logits 不取决于残差流变得多大。"
    ),
    "A column for each token of the vocabulary, in GPT-2 the same as its row of W_E.": (
        "词表里每个词元一列，在 GPT-2 中与它在 W_E 中的那一行相同。"
    ),
    (
        "One number for each token of the vocabulary: how far the vector points the way of "
        "that token's column of W_U."
    ): ("词表里每个词元一个数：向量在多大程度上指向那个词元在 W_U 中的一列。"),
    "The logits after the last token, which are all that writing on needs.": (
        "最后一个词元之后的 logits，续写只需要它们。"
    ),
    "Softmax makes shares of the logits; the next token is drawn by them.": (
        "softmax 把 logits 变成份额；下一个词元就按它们抽取。"
    ),
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
    "Atlas of {texts} texts, {tokens} tokens in windows of {window}, {faults} could not be "
    "measured": (
        "{texts} 篇文本、{tokens} 个词元的图谱，窗口为 {window} 个词元，另有 {faults} 篇无法测量"
    ),
    "Atlas of {texts} texts, {tokens} tokens in windows of {window}": (
        "{texts} 篇文本、{tokens} 个词元的图谱，窗口为 {window} 个词元"
    ),
    "Few texts have most of the tokens: means are as of {count} texts of one length, and their "
    "errors tell little. Give long texts in parts.": (
        "少数几篇文本占了大部分词元：均值只相当于 {count} 篇等长文本的均值，"
        "误差说明不了多少。请把长文本分段给出。"
    ),
    "loss {loss} nats per token": "损失：每个词元 {loss} 纳特",
    "{title}: mean of {texts} texts, {tokens} tokens": (
        "{title}：{texts} 篇文本、{tokens} 个词元的均值"
    ),
    "The second atlas minus the first over the same texts, in standard errors": (
        "同样的文本上，第二个图谱减去第一个，以标准误差为单位"
    ),
    "The second atlas minus the first over other texts, in standard errors": (
        "不同的文本上，第二个图谱减去第一个，以标准误差为单位"
    ),
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


class Message(str):
    """A template with its values: in English as such, and `say` has it in other languages."""

    template: str
    values: dict[str, object]

    def __new__(cls, template: str, **values: object) -> Message:
        message = super().__new__(cls, template.format(**values) if values else template)
        message.template, message.values = template, values
        return message


def say(text: str, language: str | None = None, /, **values: object) -> str:
    """A text in a language, the reader's by default, with values in the place of {names}."""
    language = language_of(language)
    if isinstance(text, Message):
        values = {
            name: say(value, language) if isinstance(value, Message) else value
            for name, value in text.values.items()
        }
        text = text.template
    said = WORDS.get(text, text) if language == CHINESE else text
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
