"""GPT-2 drawn from the library's graph of steps, with the shapes of a trace."""

from __future__ import annotations

import subprocess

import numpy as np

import attnlab

TEXT = "The dog chased the ball, but it"
FIRST, LAST = "blocks.0.output", "logits"


def diagram() -> str:
    """An SVG of every array that the logits depend on: block 0 in full, the others as one box."""
    trace = attnlab.GPT2.from_pretrained("pocket").trace(TEXT)
    last_block = f"blocks.{len(trace.blocks) - 1}.output"
    lines = [
        'digraph { rankdir=TB; ranksep=0.25; nodesep=0.15; bgcolor=transparent; tooltip="GPT-2";',
        'node [shape=box, style="rounded,filled", fillcolor=white, fontname="sans-serif",'
        " fontsize=11, height=0.3, margin=0.06]; edge [arrowsize=0.6, color=gray40];",
    ]
    shown: dict[str, None] = {}

    def add(path: str) -> None:
        if path in shown:
            return
        array = attnlab.at(trace, path)
        if not isinstance(array, np.ndarray | float) or path.endswith(("epsilon", "n_head")):
            return
        shown[path] = None
        needed = attnlab.needs(trace, path) if path != last_block else ()
        # W_U is drawn as an input; the rows taken from W_E, as W_E itself.
        needed = tuple(other.replace("rows_of_W_E", "W_E") for other in needed if path != "W_U")
        shape = " x ".join(map(str, np.shape(array))) or f"{array:.4g}"
        colour = "lightsteelblue1" if not needed and path != last_block else "white"
        if path == last_block:
            lines.append(f'"{path}" [label="all later blocks", shape=box3d];')
            lines.append(f'"{FIRST}" -> "{path}";')
        else:
            label = f"{path.removeprefix('blocks.0.')}{' = W_Eᵀ' * (path == 'W_U')}\\n{shape}"
            lines.append(f'"{path}" [label="{label}", fillcolor={colour}, tooltip="{path}"];')
        for other in needed:
            add(other)
            if other in shown:
                lines.append(f'"{other}" -> "{path}";')

    add(FIRST)
    add(LAST)
    block = " ".join(f'"{path}";' for path in shown if path.startswith("blocks.0."))
    frame = 'label="block 0"; color=gray60; fontname="sans-serif"'
    lines.append(f"subgraph cluster {{ {frame}; {block} }}")
    return render("\n".join([*lines, "}"]))


def render(graph: str) -> str:
    """An SVG of a graph in Graphviz's language."""
    run = subprocess.run(["dot", "-Tsvg"], input=graph, capture_output=True, text=True, check=True)
    return run.stdout
