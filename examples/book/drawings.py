"""Drawings in Graphviz's language: an overview, one head and many, a relay, a timeline."""

from __future__ import annotations

from diagram import LOOK, render

# From a text to the next token; boxes lead to chapters.
OVERVIEW = """
text [label="“The dog chased the ball, but it”"];
node [class=given, URL="08_a_tokens_journey.html"];
ids [label="tokens: a number each"]; X [label="token + position: a vector each"];
logits [label="logits: a score for each token"]; next [label="softmax: the next token"];
subgraph cluster { label="a block, L times";
attention [label="attention: fetches from other tokens", URL="03_one_head_by_hand.html"];
mlp [label="MLP: processes each token"];
node [shape=circle, margin=0, width=0.25, class="", URL="", label="+"]; mid; output; }
text -> ids -> X -> attention -> mid -> mlp -> output -> logits -> next;
edge [class=flow, arrowhead=none, weight=0]; X -> mid -> output;
"""
HEADS = """
X [label="X: D"]; node [class=given];
subgraph cluster_0 { label="one head"; W [label="W_Q, W_K, W_V\\nD × D"];
context [label="context: D", class=""]; }
subgraph cluster_1 { label="H heads"; W_O [label="W_O: D × D"];
node [label="W_Q, W_K, W_V\\nD × D/H"]; W0; W1; W2; node [class=""];
c0 [label="context H - 1\\nD/H"]; c1 [label="context 1\\nD/H"]; c2 [label="context 0\\nD/H"];
concat [label="joined: D"]; output [label="output: D"]; }
X -> W -> context; X -> W0 -> c0 -> concat; X -> W1 -> c1 -> concat; X -> W2 -> c2 -> concat;
concat -> W_O -> output;
"""
RELAY = """
subgraph cluster_0 { label="only the last state"; je [class=given];
{ rank=same; a [label="h₁\\nI"]; b [label="h₂\\nwill"]; c [label="h₃\\neat"]; a -> b -> c; }
c -> je [label="  100 %", class="weight much"]; }
subgraph cluster_1 { label="attention"; je2 [label="je", class=given];
{ rank=same; d [label="h₁\\nI"]; e [label="h₂\\nwill"]; f [label="h₃\\neat"]; d -> e -> f; }
edge [class=weight]; d -> je2 [label="   80 %", class="weight much"];
e -> je2 [label=" 10 %"]; f -> je2 [label=" 10 %"]; }
"""

TIMELINE = """
rankdir=LR; ranksep=0.06; edge [arrowhead=none, class=flow];
eliza [label="1966\\nELIZA"]; rnn [label="1980s\\nRNN"]; lstm [label="1997\\nLSTM"];
node [class=given];
attention [label="2014\\nRNN + attention"]; transformer [label="2017\\nTransformer"];
gpt [label="2018\\nGPT"];
eliza -> rnn [minlen=3]; rnn -> lstm [minlen=2]; lstm -> attention [minlen=3];
attention -> transformer -> gpt;
"""

# Each drawing with its alt text in English and Chinese.
DRAWINGS = {
    "overview": (OVERVIEW, "From a text to the next token", "从文本到下一个词元"),
    "heads": (
        HEADS,
        "One head of D × D, and H heads of D × D/H, whose contexts are joined",
        "一个头，D × D；H 个头，D × D/H，上下文向量拼接起来",
    ),
    "timeline": (
        TIMELINE,
        "From ELIZA in 1966 to GPT in 2018; shaded: with attention",
        "从 1966 年的 ELIZA 到 2018 年的 GPT；着色：用到注意力",
    ),
    "relay": (
        RELAY,
        "A decoder that receives only the last state, and one that attends to all",
        "一个解码器只拿到最后一个状态，另一个用注意力看所有的状态",
    ),
}
# Chinese for the labels.
CHINESE = {
    "tokens: a number each": "词元：各是一个编号",
    "token + position: a vector each": "词元 + 位置：各是一个向量",
    "attention: fetches from other tokens": "注意力：从别的词元取内容",
    "MLP: processes each token": "MLP：加工每个词元",
    "a block, L times": "一层，重复 L 次",
    "logits: a score for each token": "logits：每个词元一个得分",
    "softmax: the next token": "softmax：下一个词元",
    "one head": "一个头",
    "H heads": "H 个头",
    "joined: D": "拼接：D",
    "only the last state": "只传最后一个状态",
    "attention": "注意力",
    "1980s\\nRNN": "1980 年代\\nRNN",
    "2014\\nRNN + attention": "2014\\nRNN + 注意力",
}


def drawing(name: str, language: str) -> str:
    """An SVG with its labels in a language."""
    graph, *_ = DRAWINGS[name]
    if language == "zh":
        for english, chinese in CHINESE.items():
            graph = graph.replace(f'"{english}"', f'"{chinese}"')
    return render(f"digraph {{ nodesep=0.2; ranksep=0.3; ordering=out; {LOOK} {graph} }}")


def as_markdown(name: str, language: str) -> str:
    """A drawing in a page's Markdown."""
    _, english, chinese = DRAWINGS[name]
    return f"![{chinese if language == 'zh' else english}]({name}.svg)"
