"""Write the walkthrough as two executed notebooks, `examples/walkthrough.ipynb` and a Chinese one.

    pip install -e ".[notebooks]"
    python examples/book/walkthrough_notebook.py

It takes a published sentence through one head of `english`, the small GPT-2 in the package. The
prose names no figure of the model, so that only the outputs change when the model does.
"""

from __future__ import annotations

import base64
import io
import os
import re
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent
FILES = {"en": EXAMPLES / "walkthrough.ipynb", "zh": EXAMPLES / "zh" / "walkthrough.ipynb"}
COLOURS = 96  # of a picture's PNG, so that a notebook stays small

# Prose in English and in Chinese, or code.
CELLS: tuple[tuple[str, str] | str, ...] = (
    (
        """# One head of attention, step by step

What happens between a text and the next word? This notebook takes one sentence through GPT-2's
attention and shows every step in numbers. The model, `english`, is a small GPT-2 that reads
simple English; it is inside the package, so nothing else is downloaded.

You can read it as it is. To run it and change the sentence, install
[attnlab](https://pypi.org/project/attnlab/) (from a copy of its source: `pip install -e
".[plot]"` in its directory) and open the notebook in Jupyter.""",
        """# 注意力的一个头，一步一步看

从一段文本到下一个词，中间发生了什么？这个笔记本带一句话走一遍 GPT-2 的注意力，每一步都给出数字。
用的模型 `english` 是一个能读简单英文的小型 GPT-2，就在包里，不用另外下载。

只读也可以。想运行、想换句子，就装好 [attnlab](https://pypi.org/project/attnlab/)（有源代码时，在
源代码目录里 `pip install -e ".[plot]"`），用 Jupyter 打开这个笔记本。""",
    ),
    """import attnlab

model = attnlab.GPT2.from_pretrained("english")
model""",
    (
        """## Tokens

A model doesn't read words but **tokens**: words, pieces of words, punctuation. The sentence is
from a published article that walks through GPT-2's first head. In a token's symbol, `Ġ` stands
for the space before it.""",
        """## 词元

模型读的不是词，而是**词元**：一个词、词的一截，或者标点。这句话出自一篇公开发表的文章，它逐步讲
解 GPT-2 的第一个头。词元符号里的 `Ġ` 表示它前面有一个空格。""",
    ),
    """TEXT = "It’s very hot in summer. Swimming is"
trace = model.trace(TEXT)
print(trace.tokens)""",
    (
        """## All heads at once

The model has several layers, each with several **heads**. Each small square is one head: a row
is a token that attends (the **query**), a column a token that it attends to (the **key**), and
the darker a cell, the larger the **weight**. The upper right is empty everywhere: no token sees
the ones after it.""",
        """## 所有的头

模型有几层，每层有几个**头**。每个小方块是一个头：一行是一个发出注意力的词元（**查询**），一列是一
个被关注的词元（**键**），格子颜色越深，**权重**越大。右上角到处都是空的：没有哪个词元看得见它后面
的词元。""",
    ),
    "trace.plot()",
    (
        """## One of them

Which head matters for the next word? Switch each one off in turn, and see how far the
probability of the likeliest next word moves. This is the head that moves it most:""",
        """## 选一个头

哪个头对下一个词最重要？把各个头轮流关掉，看最可能的下一个词的概率变了多少。变得最多的是这一个：""",
    ),
    """from attnlab.pages.overview import head_that_matters

layer, n = head_that_matters(trace)
head = trace.head(layer, n)
print(head)""",
    (
        """Every step of the head is an array under its own name. What follows takes them in
order, and shows a corner of each.

## X: the vectors that come in

Each token has become a vector. **LayerNorm** brings all of them to one scale.""",
        """这个头的每一步都是一个数组，都有自己的名字。下面按顺序看，每个只看一角。

## X：进来的向量

每个词元都成了一个向量。**层归一化**把它们调到同一尺度。""",
    ),
    """names = trace.tokens.symbols
print(attnlab.table(head.X[:, :6], rows=names, columns=range(6), decimals=2))""",
    (
        """## Q, K, V: three questions to each vector

Three learned matrices turn each vector into a **query** (what does this token look for?), a
**key** (what can it be found by?) and a **value** (what does it pass on?).""",
        """## Q、K、V：从每个向量得出三个向量

三个学到的矩阵，把每个向量变成一个**查询**（这个词元在找什么？）、一个**键**（凭什么找到它？）和一
个**值**（它传出去什么？）。""",
    ),
    """for name in ("Q", "K", "V"):
    print(head.heading_of(name))
    print(attnlab.table(getattr(head, name)[:, :6], rows=names, columns=range(6), decimals=2))""",
    (
        """## Scores

How well does a query fit a key? Their dot product says so, divided by the root of their length,
so that long vectors don't make for huge scores.""",
        """## 分数

一个查询和一个键有多合？看它们的点积，再除以长度的平方根，免得向量一长，分数就很大。""",
    ),
    """print(head.heading_of("scores"))
print(attnlab.table(head.scores, rows=names, columns=names, decimals=2))""",
    (
        """## The mask

The model has to predict the next token, so a token may not see later ones: their scores become
-inf.""",
        """## 掩码

模型要预测下一个词元，所以一个词元不能看后面的：那些分数变成负无穷。""",
    ),
    """head.plot("masked_scores")""",
    (
        """## Weights

**Softmax** turns each row of scores into weights, which are positive and sum to 1. Later tokens
have 0.""",
        """## 权重

**softmax** 把每一行分数变成权重：都是正数，加起来是 1。后面的词元，权重是 0。""",
    ),
    """print(attnlab.table(head.weights, rows=names, columns=names, decimals=2))
print(head.weights.sum(axis=-1).round(3))""",
    """trace.plot_tokens(layer, n)""",
    (
        """Where does one of these weights come from? It can be followed back, product by
product.""",
        """这里面的一个权重是怎么来的？可以一直追到每一个乘积。""",
    ),
    """best = int(head.weights[-1].argmax())
print(head.explain(-1, best))""",
    (
        """## Context: the mixture

Each token's output is the average of the values, by its weights. So the last token now also
knows what the tokens that it attended to had to say.""",
        """## 上下文向量：混合

每个词元的输出，是各个值按权重的平均。于是，最后一个词元也得到了它所关注的词元传来的内容。""",
    ),
    """context = head.weights @ head.V
print(abs(context - head.context).max() < 1e-5)
print(attnlab.table(head.context[:, :6], rows=names, columns=range(6), decimals=2))""",
    (
        """## The next word

All heads and layers add to the token's vector; in the end it is compared with every word the
model knows.""",
        """## 下一个词

所有的头、所有的层都往词元的向量上加东西；最后拿它和模型认识的每个词相比。""",
    ),
    """print(trace.next_tokens(5))""",
    (
        """## Your own sentence

Now put your sentence in, in simple English, and run this cell again. Which token does the last
one attend to? Is that the head you would have expected?""",
        """## 你自己的句子

现在换成你自己的句子（用简单的英文），重新运行这一格。最后一个词元关注的是哪个词元？是你料想的那个
头吗？""",
    ),
    """MINE = "The dog chased the ball, but it"

mine = model.trace(MINE)
print(mine.next_tokens(5))
mine.plot_tokens(*head_that_matters(mine))""",
    (
        """`mine.save("page.html")` writes a page with the whole model as a picture, every head
and the arithmetic of every number. attnlab's book, `examples` in its source, goes on: start
with one head by hand, `examples/03_one_head_by_hand.py`.""",
        """`mine.save("page.html", language="zh")` 会写出一个网页：整个模型画成一张图，每个头、每
个数的算式都在里面。接下来可以读 attnlab 的书，在源代码的 `examples/zh` 里，从亲手算一个头开始。""",
    ),
)


def on_one_line(prose: str) -> str:
    """Prose with each paragraph on one line; Chinese has no space where a line ends."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", re.sub(r"(?<=[^\x00-\x7f])\n(?=[^\n])", "", prose))


def sources(language: str) -> list[tuple[str, str]]:
    """Type and source of each cell in a language, "en" or "zh"."""
    return [
        ("code", cell)
        if isinstance(cell, str)
        else ("markdown", on_one_line(cell[language == "zh"]))
        for cell in CELLS
    ]


def unexecuted(language: str) -> Any:
    """The notebook in a language, without outputs."""
    from nbformat import v4

    result = v4.new_notebook()  # type: ignore[no-untyped-call]
    result.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    makers = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell}
    for number, (kind, source) in enumerate(sources(language)):
        make: Any = makers[kind]
        result.cells.append(make(source, id=f"cell-{number}"))
    return result


def smaller(png: str) -> str:
    """A picture in few colours, in base64 as it came."""
    from PIL import Image

    file = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    picture.quantize(COLOURS).save(file, "png", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def for_git(notebook: Any) -> Any:
    """An executed notebook, with each picture once, and without times and versions."""
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.clear()
        for output in cell.get("outputs", ()):
            if data := output.get("data"):
                data.pop("text/html", None)  # GitHub drops its styles; pictures are PNGs as well
                if "image/png" in data:
                    data["image/png"] = smaller(data["image/png"])
    return notebook


def main() -> None:
    """Execute both notebooks and write them."""
    import nbformat
    from nbclient import NotebookClient

    for language, file in FILES.items():
        os.environ["ATTNLAB_LANGUAGE"] = language  # which the kernel inherits
        notebook = unexecuted(language)
        NotebookClient(notebook, kernel_name="python3").execute()
        nbformat.write(for_git(notebook), file)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
