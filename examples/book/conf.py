"""How Sphinx makes the book of what `build.py` lays out, in the language of ATTNLAB_LANGUAGE."""

import inspect
import os
import re
from typing import Any

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
if is_english:  # the reference is in the docstrings' language alone
    extensions += ["sphinx.ext.autodoc", "sphinx.ext.viewcode"]


class SearchPairs(SearchEnglish):
    """Chinese is indexed, and asked for, by pairs of adjacent characters.

    Sphinx's own splitter finds words in the pages (by jieba) and none in the query, so that only
    a query that is one of those words is found.
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
html_static_path = [os.path.join(os.path.dirname(__file__), "theme", "static")]
html_css_files = ["book.css"]
templates_path = [os.path.join(os.path.dirname(__file__), "theme")]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "other_language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_context = {
    "other": ("zh", "中文") if is_english else ("en", "English"),
    "english_alone": ("api", "guide", "_modules/"),
    "language_of_page": "en" if is_english else "zh",
    "run_at": os.environ.get("ATTNLAB_RUN_AT"),
}
html_show_sphinx = False
html_show_copyright = False
html_show_sourcelink = False

# build.py puts the English one where such files are looked for, above both editions.
llms_txt_full_file = False
llms_txt_title = f"attnlab {release}"
llms_txt_summary = str(attnlab.__doc__).partition("\n")[0] if is_english else html_title
llms_txt_uri_template = "en/{docname}.html" if is_english else "{docname}.html"

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True

add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "separated"

SECTION = re.compile(r"[A-Z]\w+$")
NAMED = re.compile(r"([\w*][\w, *]*) : (.*)")


def as_sphinx_reads_it(
    app: Any, what: str, name: str, described: Any, options: Any, lines: list[str]
) -> None:
    """A docstring's sections as headings, and each parameter's name above what it is.

    An equation has no docstring: what it is, its code says.
    """
    if what == "function" and not any(lines):
        code = inspect.getsource(described).splitlines()
        lines[:] = [".. code-block:: python", "", *(f"    {line}" for line in code)]
        return
    found = []
    for line, below in zip(lines, (*lines, "")[1:], strict=True):
        if SECTION.match(line) and below.startswith("---"):
            found += ["", f".. rubric:: {line}", ""]
        elif named := NAMED.match(line):
            found += [f"``{named[1]}``", f"    {named[2]}"]
        elif isinstance(described, Step) and (" = " in line or line.startswith("Axes: ")):
            found += [f"``{line}``"]
        elif not line.startswith("---"):
            ends_a_definition = line.strip() == line != "" and found and found[-1].startswith(" ")
            found += ["", line] if ends_a_definition else [line]
    lines[:] = found


FURO_IN_CHINESE = {
    "Next": "下一页",
    "Previous": "上一页",
    "Home": "首页",
    "On this page": "本页内容",
    "Back to top": "回到顶部",
    "Skip to content": "跳到正文",
}


def furo_in_chinese(message: str, **values: object) -> str:
    """A message of the theme, of which furo has no translation."""
    return FURO_IN_CHINESE.get(message.strip()) or _(message) % values


def with_chinese(app: Any, pagename: str, template: str, context: Any, doctree: Any) -> None:
    context["_"] = context["gettext"] = furo_in_chinese


def setup(app: Any) -> None:
    app.add_search_language(SearchPairs)
    if is_english:
        app.connect("autodoc-process-docstring", as_sphinx_reads_it)
    else:
        app.connect("html-page-context", with_chinese)
