"""GPT-2 drawn from the library's graph of steps, with the shapes of a trace."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np

import attnlab
from attnlab.pages.saved import source

TEXT = "The dog chased the ball, but it"
# The page's lines, boxes and labels: a unit is a pixel, and drawing.css has the colours.
LOOK = """
bgcolor=transparent; fontname="DejaVu Sans"; fontsize=13; labeljust=l; style=rounded;
node [shape=box, style=rounded, fontname="DejaVu Sans", fontsize=13, height=0.36,
margin="0.12,0.05"];
edge [arrowsize=0.6, fontname="DejaVu Sans", fontsize=12];
"""
DRAWING = Path(__file__).parent / "theme" / "drawing.css"
FIRST, LAST = "blocks.0.output", "logits"
STREAM = ("embedding", "blocks.0.input", "blocks.0.mid", FIRST, "final")


def diagram() -> str:
    """An SVG of every array that the logits depend on: block 0 in full, the others as one box."""
    trace = attnlab.GPT2.from_pretrained("pocket").trace(TEXT)
    last_block = f"blocks.{len(trace.blocks) - 1}.output"
    lines = ['digraph { tooltip="GPT-2"; ranksep=0.25; nodesep=0.15; ' + LOOK]
    shown: dict[str, None] = {}

    def add(path: str) -> None:
        if path in shown:
            return
        array = attnlab.at(trace, path)
        if not isinstance(array, np.ndarray | float) or path.endswith(("epsilon", "n_head")):
            return
        shown[path] = None
        node = trace._run.graph[path]
        needed = node.needs or tuple(filter(None, [node.layer_step])) if path != last_block else ()
        # W_U is drawn as an input; the rows taken from W_E, as W_E itself.
        needed = tuple(other.replace("rows_of_W_E", "W_E") for other in needed if path != "W_U")
        shape = " x ".join(map(str, np.shape(array))) or f"{array:.4g}"
        kind = "given" if not needed else ""
        if path == last_block:
            lines.append(f'"{path}" [label="all later blocks"];')
            lines.append(f'"{FIRST}" -> "{path}" [class=flow];')
        else:
            label = f"{path.removeprefix('blocks.0.')}{' = W_Eᵀ' * (path == 'W_U')}\\n{shape}"
            lines.append(f'"{path}" [label="{label}", class="{kind}", tooltip="{path}"];')
        for other in needed:
            add(other)
            if other in shown:
                stream = "class=flow" if {other, path} <= {*STREAM, last_block} else ""
                lines.append(f'"{other}" -> "{path}" [{stream}];')

    add(FIRST)
    add(LAST)
    block = " ".join(f'"{path}";' for path in shown if path.startswith("blocks.0."))
    lines.append(f'subgraph cluster {{ label="block 0"; {block} }}')
    return render("\n".join([*lines, "}"]))


def render(graph: str) -> str:
    """An SVG of a graph in Graphviz's language, in the colours and the type of the page."""
    run = subprocess.run(["dot", "-Tsvg"], input=graph, capture_output=True, text=True, check=True)
    svg = run.stdout[run.stdout.index("<svg") :]
    svg = re.sub(r'^<svg width="(\d+)pt" height="(\d+)pt"', r'<svg width="\1" height="\2"', svg)
    css = source("theme.css") + DRAWING.read_text(encoding="utf-8")
    return svg.replace("<svg", '<svg class="drawing"', 1).replace(">", f"><style>{css}</style>", 1)
