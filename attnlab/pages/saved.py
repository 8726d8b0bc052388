"""A trace as one self-contained HTML page.

The page includes Q, K and V of every head (`packs`), the rows of other steps that can't be computed
from Q, K and V (`token_pass`), predictions (`prediction`) and edited steps. It computes all other
steps when it needs them, with the library's equations (`translate`) and the same graph of steps
(`run.js`). `page.html` is the frame; `modules` joins the scripts.

Tokens are untrusted text. They are embedded as JSON without `<` and inserted as text, never as
markup. The Content-Security-Policy allows only the page's own style and script, by their hashes.
"""

from __future__ import annotations

import html
import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.checkpoints.hub import built_in_model
from attnlab.equations import scale_of_layer
from attnlab.errors import AttnlabError, InvalidValueError, WriteError, quoted
from attnlab.forward.attention import Head
from attnlab.model.gpt2 import GPT2
from attnlab.model.notice import advice_of, training_of
from attnlab.model.trace import Trace
from attnlab.pages import overview, pairs, prediction, token_pass
from attnlab.pages.modules import EXCERPT_LENGTH, HERE, PLAYGROUND, SAVED, scripts_of, texts_said
from attnlab.pages.packs import HEAD_STEPS, edited_heads, elements, pack
from attnlab.steps import as_data
from attnlab.support.colours import DARK, LIGHT
from attnlab.support.files import as_path, open_regular
from attnlab.support.language import CHINESE, ENGLISH, language_of, using_language
from attnlab.support.messages import Message, message_as_data, say, translations
from attnlab.support.scale import DIFFERENCE, WEIGHTS
from attnlab.support.tables import in_heading, printable
from attnlab.text.tokens import Token
from attnlab.text.words import characters_of, words_of
from attnlab.views.explaining import derivations
from attnlab.views.purposes import purpose

# A head's steps that the page shows.
STEPS = tuple(name for name in HEAD_STEPS if name != "mask")

# The file name of a built-in model's card, which has a table of its heads' measured jobs.
CARD = "MODEL_CARD.md"

# The texts that a page suggests for a model that isn't built in, by language. The page opens with
# the first text.
EXAMPLES = {
    ENGLISH: (
        "The dog chased the ball, but it",
        "The girl was tired because",
        "It’s very hot in summer. Swimming is",
    ),
    CHINESE: ("今天天气很好，我们一起去", "从前有一只小猫，它", "这是很久之前的事情了"),
}

# A page that this package wrote has this mark within the file's first MARK_END bytes.
MARK = b'<meta name="generator" content="attnlab">'
MARK_END = 1000

SUFFIXES = ("", ".html", ".htm")

# Matches a text of the frame, `page.html`, that is translated.
FRAME_TEXT = re.compile(r"\[\[(.+?)\]\]")

# The languages as HTML's lang attribute, which selects fonts.
TAGS = {ENGLISH: "en", CHINESE: "zh-Hans"}

POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'sha256-{style}'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)


def trace_page(traces: Sequence[Trace], language: str | None = None) -> str:
    """Return the page's HTML for one trace, or two to compare; see `attnlab.page`."""
    for trace in traces:
        # The trace computes and keeps the logits here, since its forks compute the packs.
        trace.next_logits  # noqa: B018
    traces = [trace._fork() for trace in traces]
    with using_language(language):
        descriptions = [description_of(trace) for trace in traces]
        stories = [pack(trace, "story") for trace in traces]
        names = _names_of_models(traces)
        for trace, description, story, name in zip(
            traces, descriptions, stories, names, strict=True
        ):
            description["model"] = message_as_data(name)
            ids = {*overview.ids_of_story(story)} - {
                id for id, *_ in description["prediction"]["tokens"]
            }
            description["prediction"]["tokens"] += prediction.names(trace.vocabulary, sorted(ids))
        return assembled(traces[0], descriptions, SAVED, elements(traces, stories))


def _names_of_models(traces: Sequence[Trace]) -> list[str]:
    """The names of the traces' models, made unique if the models differ."""
    names = [printable(trace.parameters.name) for trace in traces]
    if len(traces) < 2 or traces[0].parameters.equals(traces[1].parameters):
        return [names[0]] * len(traces)
    if all(names) and len({*names}) == 2:
        return names
    origins = [printable(trace.parameters.origin) for trace in traces]
    template = "{name} {letter} ({origin})"
    return [
        Message(template, name=name or Message("model"), letter=letter, origin=origin)
        for name, letter, origin in zip(names, "AB", origins, strict=True)
    ]


def policy_of(entries: tuple[str, ...], has_server: bool) -> str:
    """The Content-Security-Policy of a kind of page. A served page may read from its server."""
    allowed = " ".join(f"'sha256-{digest(script)}'" for script in scripts_of(entries))
    policy = POLICY.format(
        scripts=allowed, style=digest(style("base.css", "words.css", "page.css"))
    )
    if entries == PLAYGROUND:
        compiled = policy.replace("script-src", "script-src 'wasm-unsafe-eval'")
        policy = f"{compiled}; worker-src blob:"
    return f"{policy}; connect-src 'self'" if has_server else policy


def assembled(
    result: Trace,
    descriptions: list[dict[str, Any]],
    entries: tuple[str, ...],
    packs: str,
    examples: Sequence[str] = (),
    model: Mapping[str, Any] | None = None,
) -> str:
    """The HTML of a kind of page.

    Parameters
    ----------
    descriptions : the traces' descriptions, from `description_of`
    entries : the scripts of this kind of page, see `modules`
    packs : HTML elements with the numbers that the page includes
    examples : suggested texts, from `examples_of`
    model : for `model.js`, the description of the model that the page runs
    """
    description: dict[str, Any] = {
        "palettes": {"light": LIGHT.as_data(), "dark": DARK.as_data()},
        "scales": {"weights": asdict(WEIGHTS), "difference": asdict(DIFFERENCE)},
        "frame": FRAME_TEXT.findall(source("page.html")),
        "steps": {name: _step(result.head(0, 0), name) for name in STEPS},
        "explanations": derivations.as_data(type(result)),
        "sliders": prediction.SLIDERS,
        "traces": descriptions,
        "model": model,
        "examples": examples,
    }
    parts = {
        "language": TAGS[language_of()],
        "policy": policy_of(entries, has_server=bool(model and model["isServed"])),
        "title": html.escape(_title(result)),
        "style": style("base.css", "words.css", "page.css"),
        "description": as_json(description),
        "words": as_json(_words(description, entries), ensure_ascii=False),
        "packs": packs,
        "scripts": "\n".join(
            f'<script id="{Path(entry).stem}">{script}</script>'
            for entry, script in zip(entries, scripts_of(entries), strict=True)
        ),
    }
    frame = FRAME_TEXT.sub(lambda match: say(match[1]), source("page.html"))
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], frame)


def page_with_one_script(
    title: str, css: str, body: str, data: Mapping[str, Any], packs: str, entries: tuple[str, ...]
) -> str:
    """The HTML of a kind of page without the frame of `page.html`, such as an atlas's page.

    `body` is the body without its end tag. Each value of `data` becomes an element of JSON, whose
    id is the key. `packs` are elements with numbers. `entries` names the script, see `modules`.
    """
    [script] = scripts_of(entries)
    policy = POLICY.format(scripts=f"'sha256-{digest(script)}'", style=digest(css))
    parts = [
        f'<!doctype html>\n<html lang="{TAGS[language_of()]}">',
        '<head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'{MARK.decode()}<link rel="icon" href="data:,">',
        f"<title>{html.escape(printable(title))}</title>",
        f"<style>{css}</style></head>",
        body,
        *(
            f'<script type="application/json" id="{id}">{as_json(x, ensure_ascii=False)}</script>'
            for id, x in {**data, "words": _words({}, entries)}.items()
        ),
        packs,
        f"<script>{script}</script></body></html>",
    ]
    return "\n".join(parts)


def _words(description: dict[str, Any], entries: tuple[str, ...]) -> dict[str, str]:
    """The Chinese translations of the texts that a page shows."""
    texts = {*_strings(description), *texts_said(entries)}
    return {text: chinese for text, chinese in translations().items() if text in texts}


def _strings(data: Any) -> Iterator[str]:
    """All strings in JSON data, without the keys of objects."""
    if isinstance(data, str):
        yield str.__str__(data)  # the English template of a Message, not its translation
    elif isinstance(data, Mapping | list | tuple):
        for item in data.values() if isinstance(data, Mapping) else data:
            yield from _strings(item)


def as_page_path(path: str | os.PathLike[str]) -> Path:
    """The path as the file of a page; raise if it can't be a page's file."""
    file = as_path(path)
    if os.fspath(path).endswith(("/", os.sep)) and not os.path.isdir(file):
        raise InvalidValueError(f"{os.fspath(path)} names a directory; expected a file name")
    if file.suffix.lower() not in SUFFIXES:
        raise InvalidValueError(
            f"a page's file name must end in .html; got {quoted(file.name)}. For a picture, "
            'use trace.plot().save("weights.pdf")'
        )
    if os.path.isdir(file):
        raise WriteError(f"can't write {file}: it is a directory")
    if not os.path.isdir(file.parent):
        raise WriteError(f"can't write {file}: directory {file.parent} not found")
    return file


def is_page(file: Path) -> bool:
    """Whether a file is a page that `Page.save` wrote."""
    try:
        with open_regular(file) as stream:
            return MARK in stream.read(MARK_END)
    except OSError:
        return False


def as_json(data: Any, ensure_ascii: bool = True) -> str:
    """JSON for a script element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=ensure_ascii)
    return text.replace("<", "\\u003c")


def style(*names: str) -> str:
    """A page's style, with the colours that all pages share."""
    return "".join(map(source, ("theme.css", *names)))


def source(name: str) -> str:
    """A part of the page that isn't a script, by file name."""
    return (HERE / name).read_text(encoding="utf-8")


def digest(source: str) -> str:
    return b64encode(sha256(source.encode()).digest()).decode()


def _step(head: Head, name: str) -> dict[str, str]:
    return {
        "axes": head.axes_of(name),
        "formula": head.formula_of(name),
        "purpose": purpose(f"blocks.0.attention.heads.0.{name}"),
    }


def _text(trace: Trace) -> str:
    """The trace's text on one line, shortened if it is long."""
    text = b"".join(trace.tokens.bytes).decode("utf-8", errors="replace")
    text = re.sub(r"[\r\n\t]+", " ", text)
    return in_heading(text if len(text) <= EXCERPT_LENGTH else f"{text[: EXCERPT_LENGTH - 1]}…")


def _title(trace: Trace) -> str:
    names = [name for name in ("attnlab", printable(trace.parameters.name)) if name]
    return f"{' '.join(names)}: {_text(trace)[:60]}"


def description_of(trace: Trace, has_model: bool = False) -> dict[str, Any]:
    """The description of a trace, without packs. `has_model`: whether the page runs a model."""
    config, built_in = trace.config, built_in_model(trace.parameters)
    return {
        "layers": config.n_layer,
        "H": config.n_head,
        "Dh": config.d_head,
        "cached": trace.cached,
        "note": message_as_data(trace._note),
        "model": printable(trace.parameters.name),
        "hasAverages": trace.parameters.averages is not None,
        "training": message_as_data(training_of(trace.parameters)),
        "advice": advice_of(trace.parameters),
        "special": {
            "names": trace.vocabulary.special,
            "isExact": trace.vocabulary.is_exact,
        },
        "limits": built_in.limits if built_in else "",
        "excerpt": _text(trace),
        "card": _card(trace),
        "edited": _edited(trace),
        "silenced": _silenced(trace),
        "completions": {} if has_model else prediction.completions(trace),
        "graph": as_data(trace._run.graph),
        "hyperparameters": _hyperparameters(trace),
        "pass": token_pass.description(trace, has_model),
        "why": None if has_model else pairs.description(trace),
        "scales": _scales(trace),
        "mask": b64encode(np.packbits(trace.mask).tobytes()).decode(),
        "tokens": [
            {**token_of(token), "part_of": printable(character)}
            for token, character in zip(trace.tokens, trace.tokens.part_of, strict=True)
        ],
        "prediction": prediction.description(trace, has_model),
    }


def _hyperparameters(trace: Trace) -> dict[str, Any]:
    """The scalar inputs of the forward pass by path, and the activation function's name."""
    values = {name: getattr(trace, name) for name in ("n_head", "epsilon", "divide_by_sqrt_d")}
    for layer, block in enumerate(trace.blocks):
        if (number := block.attention.layer_number) is not None:
            values[f"blocks.{layer}.attention.layer_number"] = number
    return {**values, "activation": trace.activation.__name__}


def _scales(trace: Trace) -> list[list[float]]:
    """Each layer's scales, by head. K is computed only for layers with an edited scale."""
    K = np.empty((0, trace.config.d_head))  # the equation uses only the width of K
    scales = []
    for layer, block in enumerate(trace._fork().blocks):
        attention = block.attention
        prefix = f"blocks.{layer}.attention."
        edited = [path for path in trace.edited_steps if path.startswith(prefix)]
        if any(path.endswith(".scale") for path in edited):
            scales.append([head.scale for head in attention.heads])
        else:
            scale = scale_of_layer(K, trace.divide_by_sqrt_d, attention.layer_number)
            scales.append([scale] * trace.config.n_head)
    return scales


def first_text(model: GPT2) -> list[int]:
    """The ids of the text with which a page with a model opens by default."""
    text = examples_of(model)[0]
    return model.tokenizer.encode_prompt(text)[: model.config.n_positions]


def examples_of(model: GPT2) -> tuple[str, ...]:
    """Texts that a page with a model suggests.

    A built-in model has its own examples. For other models the examples are in the first language
    of which the model has a token for each word, starting with the page's language, or in English.
    """
    if built_in := built_in_model(model.parameters):
        return built_in.examples
    for language in sorted(EXAMPLES, key=lambda name: name != language_of()):
        if _knows(model, EXAMPLES[language][0]):
            return EXAMPLES[language]
    return EXAMPLES[ENGLISH]


def _knows(model: GPT2, text: str) -> bool:
    """Whether a model's tokenizer has a token for each word of a text."""
    try:
        words = model.tokenizer.tokens(text).words
    except AttnlabError:  # no tokenizer, or no tokens for these characters
        return False
    known = {word.text.lower() for word in words if word.stop - word.start == 1}
    return all(word.text.lower() in known for word in words_of(characters_of([text.encode()])))


def _card(trace: Trace) -> dict[str, list[float]]:
    """The numbers of each job in a built-in model's card; {} for other models.

    A job has the weight of each head, then the weight of uniform attention.
    """
    built_in = built_in_model(trace.parameters)
    if built_in is None:
        return {}
    lines = (built_in.directory / CARD).read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.split()[:2] == ["layer", "head"])
    jobs = lines[start].split()[2:]
    rows = [line.split() for line in lines[start + 1 : lines.index("```", start)]]
    weights = [[float(weight) for weight in row[-len(jobs) :]] for row in rows]
    return dict(zip(jobs, map(list, zip(*weights, strict=True)), strict=True))


def _edited(trace: Trace) -> dict[int, dict[int, list[str]]]:
    """The edited steps by layer and head, without unedited heads."""
    if not trace.edited_steps:
        return {}
    edited = {layer: edited_heads(block.attention) for layer, block in enumerate(trace.blocks)}
    return {layer: heads for layer, heads in edited.items() if heads}


def _silenced(trace: Trace) -> list[tuple[int, int]]:
    """The silenced heads: their edited context has the same row at each position.

    A single row must be 0 or the model's average, since it is trivially the same everywhere.
    """
    averages = trace.parameters.averages or {}
    silenced = []
    for layer, heads in _edited(trace).items():
        for head in (h for h, steps in heads.items() if "context" in steps):
            context = trace.head(layer, head).context
            average = averages.get(f"blocks.{layer}.attention.heads.{head}.context", 0)
            expected = context[:1] if len(context) > 1 else np.asarray(average, context.dtype)
            if (context == expected).all() or not context.any():
                silenced.append((layer, head))
    return silenced


def token_of(token: Token) -> dict[str, Any]:
    """A token's id, symbol, text and bytes, with control characters escaped.

    An unknown token also has the word that it replaces.
    """
    return {
        "id": token.id,
        "symbol": printable(token.symbol),
        "text": printable(token.text),
        "bytes": token.bytes.hex(" "),
        **({"unread": printable(token.unread)} if token.unread else {}),
    }
