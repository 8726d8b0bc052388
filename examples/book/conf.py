"""Sphinx's configuration for the book, in the language of ATTNLAB_LANGUAGE; see `build.py`."""

import inspect
import os
import re
from functools import partial
from typing import Any, Literal

from docutils.nodes import SkipNode  # type: ignore[import-untyped]
from latex2mathml.converter import convert
from sphinx.locale import _
from sphinx.search.en import SearchEnglish

import attnlab
from attnlab.steps import Step

project = "attnlab"
author = "The attnlab authors"
release = attnlab.__version__
is_english = os.environ["ATTNLAB_LANGUAGE"] == "en"
html_title = f"attnlab {release}" + (": the book on attention" if is_english else "：注意力之书")

extensions = ["myst_nb", "sphinx_copybutton", "sphinx_llms_txt"]
if is_english:  # the reference is only in English
    extensions += ["sphinx.ext.autodoc", "sphinx.ext.viewcode"]


class SearchPairs(SearchEnglish):
    """Index and search Chinese by pairs of adjacent characters.

    Sphinx splits pages into words (by jieba) but not queries, so it finds only queries that are
    single words.
    """

    lang = "zh"
    terms = "(?=([一-鿿]{2}))|([0-9A-Za-z_Α-ω]+)"  # the same in Python and in JavaScript
    js_splitter_code = (
        f"function splitQuery(query) {{ return [...query.matchAll(/{terms}/g)]"
        ".map((found) => found[1] ?? found[2]); }"
    )

    def split(self, input: str) -> list[str]:
        return [pair or word for pair, word in re.findall(self.terms, input)]


html_theme = "furo"
html_math_renderer = "mathml"

# The page's colours and fonts, which theme.css defines, and Furo's names for them.
VARIABLES = {
    "accent": ("color-brand-primary", "color-brand-content", "color-brand-visited"),
    "paper": ("color-background-primary", "color-sidebar-background"),
    "raised": ("color-background-secondary", "color-inline-code-background"),
    "line": ("color-background-border",),
    "ink": ("color-foreground-primary", "color-sidebar-link-text--top-level"),
    "muted": ("color-foreground-muted",),
    "selected": [f"color-sidebar-item-background--{which}" for which in ("current", "hover")],
    "sans": ("font-stack",),
    "mono": ("font-stack--monospace",),
    "small": ("sidebar-item-font-size",),
}
COLOURS = {name: f"var(--{ours})" for ours, names in VARIABLES.items() for name in names}
# matplotlib's pictures blend into the page's background; in dark mode their lightness is inverted
# and their hues are kept.
LIGHT = {"picture-filter": "none", "picture-blend": "multiply"}
DARK = {"picture-filter": "invert(1) hue-rotate(180deg)", "picture-blend": "screen"}

html_theme_options = {
    "light_css_variables": {**COLOURS, **LIGHT},
    "dark_css_variables": {**COLOURS, **DARK},
}
here = os.path.dirname(__file__)
shared = os.path.join(os.path.dirname(attnlab.__file__), "pages", "theme.css")
html_static_path = [os.path.join(here, "theme", "static"), shared]
html_css_files = ["theme.css", "columns.css", "book.css"]
html_js_files = ["book.js"]
templates_path = [os.path.join(here, "theme")]
html_sidebars = {
    "**": [
        "brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_context = {
    "other": ("zh", "中文") if is_english else ("en", "English"),
    "english_only": ("api", "guide", "_modules/"),
    "language_of_page": "en" if is_english else "zh",
}
html_show_sphinx = False
html_show_copyright = False
html_show_sourcelink = False

# build.py moves the English file to the root, where such files are expected.
llms_txt_full_file = False
llms_txt_title = f"attnlab {release}"
llms_txt_summary = str(attnlab.__doc__).partition("\n")[0] if is_english else html_title
llms_txt_uri_template = "en/{docname}.html" if is_english else "{docname}.html"

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
nb_execution_mode = "off"  # build.py has executed the chapters

add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "separated"

SECTION = re.compile(r"[A-Z]\w+$")
NAMED = re.compile(r"([\w*][\w, *]*) : (.*)")


def to_restructured_text(
    app: Any, what: str, name: str, documented: Any, options: Any, lines: list[str]
) -> None:
    """Convert a docstring's sections to headings, and its parameters to definition lists.

    Equations have no docstring; their code is shown instead.
    """
    if what == "function" and not any(lines):
        code = inspect.getsource(documented).splitlines()
        lines[:] = [".. code-block:: python", "", *(f"    {line}" for line in code)]
        return
    result = []
    for line, below in zip(lines, (*lines, "")[1:], strict=True):
        if SECTION.match(line) and below.startswith("---"):
            result += ["", f".. rubric:: {line}", ""]
        elif named := NAMED.match(line):
            result += [f"``{named[1]}``", f"    {named[2]}"]
        elif isinstance(documented, Step) and (" = " in line or line.startswith("Axes: ")):
            result += [f"``{line}``"]
        elif not line.startswith("---"):
            is_unindented = bool(line) and line == line.strip()
            ends_a_definition = is_unindented and result and result[-1].startswith(" ")
            result += ["", line] if ends_a_definition else [line]
    lines[:] = result


FURO_IN_CHINESE = {
    "Next": "下一页",
    "Previous": "上一页",
    "Home": "首页",
    "On this page": "本页内容",
    "Back to top": "回到顶部",
    "Skip to content": "跳到正文",
}


def furo_in_chinese(message: str, **values: object) -> str:
    """Translate a message of the theme furo, which has no Chinese translation."""
    return FURO_IN_CHINESE.get(message.strip()) or _(message) % values


def with_chinese(app: Any, pagename: str, template: str, context: Any, doctree: Any) -> None:
    context["_"] = context["gettext"] = furo_in_chinese


def mathml(writer: Any, node: Any, display: Literal["inline", "block"] = "block") -> None:
    """Write TeX as MathML, which browsers show without a script."""
    tag = "span" if display == "inline" else "div"
    equation = convert(node.astext(), display=display)
    writer.body.append(f'<{tag} class="math">{equation}</{tag}>')
    raise SkipNode


def setup(app: Any) -> None:
    app.add_search_language(SearchPairs)
    app.add_html_math_renderer("mathml", (partial(mathml, display="inline"), None), (mathml, None))
    if is_english:
        app.connect("autodoc-process-docstring", to_restructured_text)
    else:
        app.connect("html-page-context", with_chinese)
