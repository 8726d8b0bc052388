"""A page as one value, which a notebook shows and `save` writes."""

from __future__ import annotations

import html
import sys
from dataclasses import dataclass

from numpy.typing import ArrayLike

from attnlab.corpus.result import Atlas
from attnlab.errors import InvalidTypeError
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import Trace
from attnlab.pages.atlas import atlas_page
from attnlab.pages.playground import playground_page
from attnlab.pages.saved import as_page_path, trace_page
from attnlab.support.checks import as_count, check_kind
from attnlab.support.console import StdoutSafe
from attnlab.support.files import FilePath, write_atomically
from attnlab.support.language import using_language
from attnlab.support.messages import say
from attnlab.text.tokens import Tokens

LARGE = 15_000_000  # the largest size, in bytes, of a page that is saved without a note


@dataclass(frozen=True, eq=False, repr=False)
class Page(StdoutSafe):
    """A self-contained page. A notebook shows a page that a cell ends with.

    Attributes
    ----------
    html : the page as text
    title : what the page shows
    height : the height of the page's frame in a notebook, in pixels
    """

    html: str
    title: str
    height: int

    def save(self, path: FilePath) -> None:
        """Write or replace a file, such as "page.html"; above 15 MB, print the size to stderr."""
        file, content = as_page_path(path), self.html.encode()
        if len(content) > LARGE:
            print(f"Writing {file}, {len(content) / 1e6:.0f} MB.", file=sys.stderr)
        write_atomically(file, content)

    def __repr__(self) -> str:
        return f"{self.title}: shown in a notebook; .save('page.html') writes it to a file"

    def _repr_html_(self) -> str:
        """The page in a sandboxed frame."""
        style = f"width:100%;height:{self.height}px;border:0"
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox="allow-scripts" style="{style}" '
            f'srcdoc="{html.escape(self.html)}"></iframe>'
        )


def page(
    result: Trace | Atlas,
    other: Trace | None = None,
    *,
    language: str | None = None,
    height: int = 720,
) -> Page:
    """Make an interactive page with every head of a trace, or the maps and heads of an atlas.

    The page of 12 layers with 12 heads has 2.2 MB for 12 tokens, 17 MB for 128 tokens. A trace's
    page computes in float32: NaN or too large numbers in Q, K, V or logits are refused. For words
    instead of their pieces, see `attnlab.words`.

    Parameters
    ----------
    result : a trace, or an atlas (its page has a map of every measure and each head's passages)
    other : a second trace, shown beside the first one and, where the shapes are equal, as the
        difference other - first
    language : "en", or "zh" for Chinese; None for the language of ATTNLAB_LANGUAGE or the locale
    height : the height of the page in a notebook, in pixels

    Returns
    -------
    Page
        a notebook shows it, `.save("page.html")` writes it, `.html` is its text

    Examples
    --------
    >>> attnlab.page(trace).save("page.html")
    >>> attnlab.page(trace, trace.edited({"blocks.1.attention.heads.2.context": 0}))
    """
    height = as_count(height, "height", least=1)
    if isinstance(result, Atlas):
        if other is not None:
            raise InvalidTypeError("an atlas has a page of its own; give no other trace")
        return Page(atlas_page(result, language), f"The page of {say(result.title)}", height)
    check_kind(result, Trace, "result", "a Trace or an Atlas")
    traces = [result]
    if other is not None:
        check_kind(other, Trace, "other")
        traces.append(other)
    return Page(trace_page(traces, language), f"The page of {say(result.title)}", height)


def playground(
    model: GPT2,
    text_or_ids: str | ArrayLike | Tokens | None = None,
    *,
    language: str | None = None,
    height: int = 720,
) -> Page:
    """Make a page that contains the model, and traces, edits, compares and continues texts.

    The page opens in any browser, with no network and nothing installed. Models of more than 300 MB
    are refused; `attnlab.explore` opens them. Tokenizers must be like GPT-2's or BERT's.

    Parameters
    ----------
    text_or_ids : the first text, as `GPT2.trace` takes it; None for an example sentence
    language, height : as for `page`

    Examples
    --------
    >>> attnlab.playground(model).save("model.html")
    """
    check_kind(model, GPT2, "model")
    height = as_count(height, "height", least=1)
    with using_language(language):
        return Page(playground_page(model, text_or_ids), "The playground", height)
