"""Write the English model's card from its figures."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.english.sentences import OPENINGS
from attnlab.english.windows import is_made
from attnlab.forward.config import GPT2Config
from attnlab.support.tables import align, printable, wrap

CARD = "MODEL_CARD.md"
FRAME, SOURCES = (Path(__file__).parent / name for name in ("card.md", "sources.toml"))

# The jobs in the table of heads.
JOBS = (
    *("previous", "first", "itself", "same", "punctuation", "connective"),
    *("induction", "subject", "verb"),
)

# Rows of the table of losses, and columns of a line.
CURVE_ROWS, WIDTH = 12, 96


def card(figures: Mapping[str, Any], config: GPT2Config) -> str:
    """The model card: card.md with the figures in it."""
    sources = tomllib.loads(SOURCES.read_text(encoding="utf-8"))
    subject, share_on_best = best_head(figures["share_on_subject"])
    she = sorted(figures["limits"]["she"].items(), key=lambda item: -item[1])
    return FRAME.read_text(encoding="utf-8").format(
        **figures,
        config=config,
        words_of_parts=words_of_parts(figures),
        sources=list_of_sources(sources),
        held_out_books=indented(
            "; ".join(
                f"{book['title']} ({book['author']})"
                for book in sources["books"]
                if book["repository"] in sources["text"]["held_out"]
            ),
            0,
        ),
        curve_table=align([[*figures["curve"]], *zip(*figures["curve"].values(), strict=True)]),
        megabytes=sum(figures["bytes"].values()) / 1e6,
        written=sum(n for part, n in figures["bytes"].items() if not is_made(part)) / 1e6,
        perplexities=perplexities(figures["perplexity"]),
        compared=ratios_to_prototype(figures["prototype"]),
        by_position=by_position(figures["limits"]["by_position"]),
        whole=100 * figures["tokenizer"]["whole"],
        agreement=agreement(figures["pairs"]),
        best=best_heads(figures["heads"]),
        table=table_of_heads(figures["heads"]),
        subject=subject,
        share_on_best=100 * share_on_best,
        sampled_texts=continued(figures["sampled"]),
        greedy_texts=continued(figures["greedy"]),
        roles=indented("  " + ", ".join(f"{role} {share:.2f}" for role, share in she), 0),
    )


def curve(log: str) -> dict[str, list[Any]]:
    """Some rows of a log, one JSON object a line: the numbers that every row has, by name."""
    rows = [json.loads(line) for line in log.splitlines()]
    chosen = np.unique(np.linspace(0, len(rows) - 1, CURVE_ROWS).round().astype(int))
    names = [name for name, number in rows[0].items() if isinstance(number, int | float)]
    return {
        name: [rows[n][name] for n in chosen] for name in names if all(name in row for row in rows)
    }


def words_of_parts(figures: Mapping[str, Any]) -> str:
    rounds = figures["rounds"]
    lines: list[tuple[str, ...]] = [
        ("part", "words", *(f"{each['steps']:,} steps" for each in rounds))
    ]
    for part, words in figures["words"].items():
        shares = (each["windows"].get(part, 0) for each in rounds)
        lines.append((part, f"{words:,}", *(f"{100 * share:.0f} %" for share in shares)))
    return align(lines)


def perplexities(parts: Mapping[str, Mapping[str, Any]]) -> str:
    lines: list[tuple[str, ...]] = [
        ("text", "documents", "words", "a word", "error", "a token", "bits a byte")
    ]
    for part, figures in parts.items():
        counts = (f"{figures[name]:,}" for name in ("documents", "words"))
        numbers = (f"{figures[name]:.1f}" for name in ("per_word", "error", "per_token"))
        lines.append((part, *counts, *numbers, f"{figures['bits_per_byte']:.3f}"))
    return align(lines)


def ratios_to_prototype(parts: Mapping[str, Mapping[str, float]]) -> str:
    """A sentence on how much lower perplexity is than a prototype's, if one was measured."""
    if not parts:
        return ""
    ratios = ", ".join(
        f"{figures['ratio']:.3f} ± {figures['error']:.3f} on {part}"
        for part, figures in parts.items()
    )
    sentence = (
        "Perplexity a word, divided by that of a prototype with 2.6 million parameters, trained "
        f"for 23 minutes on 23 MB of such text: {ratios}."
    )
    return indented(sentence, 0)


def by_position(losses: Mapping[str, Any]) -> str:
    columns = (losses[name] for name in ("tokens", "nats", "error"))
    lines = (
        (str(n), f"{nats:.2f}", f"{error:.2f}") for n, nats, error in zip(*columns, strict=True)
    )
    return align([("tokens", "nats", "error"), *lines])


def agreement(kinds: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [("kind", "right", "of", "interval")]
    for kind, share in kinds.items():
        interval = f"{100 * share['low']:.0f} to {100 * share['high']:.0f} %"
        lines.append((kind, share["right"], share["of"], interval))
    return align(lines)


def best_head(means: Any) -> tuple[str, float]:
    """The head with the largest mean, as layer.head, and its mean."""
    layer, head = np.unravel_index(np.argmax(means), np.shape(means))
    return f"{layer}.{head}", means[layer][head]


def best_heads(heads: Mapping[str, Any]) -> str:
    lines = [("job", "head", "mean", "error", "evenly")]
    for job, of_job in heads.items():
        name, mean = best_head(of_job["mean"])
        error = of_job["error"][int(name.split(".")[0])][int(name.split(".")[1])]
        lines.append((job, name, f"{mean:.3f}", f"{error:.3f}", f"{of_job['even']:.3f}"))
    return align(lines)


def table_of_heads(heads: Mapping[str, Any]) -> str:
    """The table that pages read: each head's mean for each job, then that of uniform attention."""
    lines: list[tuple[str, ...]] = [("layer", "head", *JOBS)]
    for layer, head in np.ndindex(np.shape(heads[JOBS[0]]["mean"])):
        means = (f"{heads[job]['mean'][layer][head]:.2f}" for job in JOBS)
        lines.append((str(layer), str(head), *means))
    return align([*lines, ("evenly", "", *(f"{heads[job]['even']:.2f}" for job in JOBS))])


def continued(texts: Sequence[str]) -> str:
    """Openings, each with its continuation after a bar; / is a line break."""
    lines = (f"{opening} |{text}" for opening, text in zip(OPENINGS, texts, strict=False))
    return "\n".join(indented(line.replace("\n", " / "), 4) for line in lines)


def indented(line: str, spaces: int) -> str:
    """A line wrapped, with its later lines indented."""
    return "\n".join(wrap(printable(line), WIDTH, " " * spaces))


def list_of_sources(sources: Mapping[str, Any]) -> str:
    """Collections with their licences, and authors with their books, a line each."""
    lines = {
        f"- {source['attribution']} ({', '.join(source.get('licences', [source.get('licence')]))})"
        for kind in ("tatoeba", "storybooks")
        for source in sources[kind]
    }
    authors: dict[str, list[str]] = {}
    for book in sources["books"]:
        translated = f" (translated by {book['translator']})" if "translator" in book else ""
        authors.setdefault(book["author"], []).append(book["title"] + translated)
    books = (f"- {author}: {'; '.join(sorted(authors[author]))}" for author in sorted(authors))
    return "\n".join(indented(line, 2) for line in (*sorted(lines), *books))
