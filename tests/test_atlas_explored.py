"""An atlas in the explorer: each passage links to a trace of the measured ids, which links back."""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from atlas_runs import texts
from conftest import REFERENCE, needs
from pages import until

import attnlab
from attnlab import GPT2
from attnlab.corpus import Atlas
from attnlab.errors import InvalidTypeError, InvalidValueError

needs("starlette", "explore")
needs("uvicorn", "explore")

from test_cli import start  # noqa: E402
from test_explorer import PATIENCE, answer, link_of, parts_of  # noqa: E402
from test_explorer_page import site  # noqa: E402

from attnlab.pages.explorer import Explorer  # noqa: E402

MEASURES = ["induction", "first"]

measured = partial(attnlab.atlas, progress=False)

HOSTILE = "<script>document.title='mine'</script>\u202e&quot;' onmouseover=alert(1)"
CUT = "It" + "🦔" * 20  # a window of 32 tokens ends within a character


def token_count(trace: Any) -> Any:
    """A user-defined measure with a hostile name."""
    return np.full((2, 4), float(len(trace.tokens)))


token_count.__name__ = 'a.b"><i>&'


@pytest.fixture(scope="module")
def atlas(pocket: GPT2) -> Atlas:
    corpus = [HOSTILE, CUT, *texts(20)]
    return measured(pocket, corpus, [*MEASURES, token_count], window=32)


@pytest.fixture(scope="module")
def explorer(atlas: Atlas, pocket: GPT2) -> Iterator[Explorer]:
    with atlas.explore(pocket, language="en") as explorer:
        yield explorer


def page_of(explorer: Explorer, link: str) -> str:
    """The response to a link, requested as by a browser, without an Authorization header."""
    path, query = urlsplit(link)[2:4]
    link = f"{path}?{query}"
    status, _, content = answer(explorer, "GET", link, authorization=None, origin=None)
    assert status == 200, content
    return content.decode()


def first_trace(explorer: Explorer, link: str) -> Any:
    """The first trace of the explorer's page behind a link."""
    described = re.search(r'id="description">(.*?)</script>', page_of(explorer, link))
    assert described
    (trace,) = json.loads(described[1])["traces"]
    return trace


def links_of(page: str) -> list[str]:
    return [html.unescape(link) for link in re.findall(r'href="(/\?[^"]*passage=[^"]*)"', page)]


def test_passages_reopen_with_their_ids(explorer: Explorer, atlas: Atlas, pocket: GPT2) -> None:
    page = page_of(explorer, explorer.url)
    assert "&passage=" not in page  # & is escaped in HTML
    links = {parse_qs(urlsplit(link).query)["passage"][0]: link for link in links_of(page)}
    passages = {
        (name, kind, layer, head, rank): passage
        for name, measure in atlas.items()
        for kind in ("most", "least")
        for layer, head in np.ndindex(2, 4)
        for rank, passage in enumerate(getattr(measure, kind)(layer, head))
    }
    assert len(passages) == 3 * 2 * 8 * 3
    assert links.keys() == {".".join(map(str, key)) for key in passages}
    # A passage that starts within a character: its text would be tokenized differently.
    cut = next(
        key
        for key, passage in passages.items()
        if pocket.tokenizer.encode(passage.content) != list(passage.ids)
    )
    for key in (cut, ("induction", "most", 1, 3, 2), (token_count.__name__, "least", 0, 1, 0)):
        name, _, layer, head, _ = key
        address, _, fragment = links[".".join(map(str, key))].partition("#")
        assert fragment == f"layer={layer}&head={head}"
        trace, passage = first_trace(explorer, address), passages[key]
        assert trace["ids"] == list(passage.ids)
        heading = f"{passage.text}, from token {passage.start}; {name} {passage.value:.3f}"
        assert trace["atlas"] == heading


def test_links_outside_passages(explorer: Explorer) -> None:
    match = re.search('sandbox="([^"]*)"', explorer._repr_html_())
    assert match
    assert {"allow-popups", "allow-popups-to-escape-sandbox"} <= {*match[1].split()}
    link = f"/?token={parts_of(explorer)[1]}"
    assert f'href="{link}"' in page_of(explorer, explorer.url)
    assert first_trace(explorer, link)["atlas"] == ""


def test_unknown_passages(explorer: Explorer, pocket: GPT2) -> None:
    token = parts_of(explorer)[1]
    for key in ("induction", "loss.most.0.0.0", "induction.plot.0.0.0", "induction.most.2.0.0"):
        for passage in (key, key.replace("0.0.0", "0.0.9")):
            status, _, content = answer(explorer, "GET", f"/?token={token}&passage={passage}")
            assert status == 404, passage
            assert content.endswith(b"<p>No such passage in the atlas.</p>"), passage
    with pocket.explore() as other:
        link = f"/?token={parts_of(other)[1]}&passage=induction.most.0.0.0"
        assert answer(other, "GET", link)[0] == 404
        assert answer(other, "GET", f"/atlas?token={parts_of(other)[1]}")[0] == 404
        assert "atlas" not in first_trace(other, other.url)


def test_access_to_the_atlas_page(explorer: Explorer) -> None:
    path = f"/atlas?token={parts_of(explorer)[1]}"
    assert answer(explorer, "GET", path, authorization=None)[0] == 200
    status, headers, content = answer(explorer, "GET", "/atlas?token=other", authorization=None)
    assert (status, headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert b"<p>Invalid token. Open the link that the explorer printed when it started" in content
    assert headers["content-security-policy"].startswith("default-src 'none'; ")
    assert answer(explorer, "GET", "/atlas")[0] == 403  # without the token
    assert answer(explorer, "GET", path, host="example.com")[0] == 403
    assert answer(explorer, "POST", path, {})[0] == 405
    _, headers, content = answer(explorer, "GET", path)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', content.decode())
    framing = headers["content-security-policy"].removeprefix(f"{policy}; frame-ancestors ")
    assert framing == "http://127.0.0.1:* http://localhost:* vscode-webview:"
    assert re.search(r"script-src 'sha256-[^' ]+';", policy)  # its own script and no other
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


def test_models_that_do_not_match_the_atlas(atlas: Atlas, pocket: GPT2) -> None:
    arrays = dict(pocket.parameters.items())
    few, short = arrays | {"W_E": arrays["W_E"][:50]}, arrays | {"W_P": arrays["W_P"][:5]}
    cases: list[tuple[Any, str]] = [
        ("pocket", "model must be a GPT2; got 'pocket'"),
        (GPT2.from_pretrained(REFERENCE / "odd"), "the atlas: it has 3 layers of 5 heads"),
        (GPT2.from_arrays(replace(pocket.config, vocab_size=50), few), "ids"),
        (
            GPT2.from_arrays(replace(pocket.config, n_positions=5), short),
            "it has 5 positions, and a passage has 32 tokens",
        ),
        (GPT2.from_arrays(pocket.config, arrays), "its tokenizer decodes the passages' ids"),
    ]
    for model, words in cases:
        with pytest.raises((InvalidTypeError, InvalidValueError), match=words):
            atlas.explore(model)


def test_a_model_with_different_parameters_is_reported(
    atlas: Atlas, pocket: GPT2, tmp_path: Path
) -> None:
    assert atlas.is_of(pocket)
    assert atlas.is_of(GPT2.from_pretrained("pocket", dtype="float64"))
    arrays = dict(pocket.parameters.items())
    arrays["blocks.0.attention.W_QKV"] = arrays["blocks.0.attention.W_QKV"] * 1.05
    tuned = GPT2.from_arrays(pocket.config, arrays, pocket.tokenizer)
    assert not atlas.is_of(tuned)
    # User-defined measures can't be computed again.
    assert measured(pocket, ["The dog"], [token_count]).is_of(tuned)
    with pytest.raises(InvalidTypeError, match="model must be a GPT2; got 'pocket'"):
        atlas.is_of("pocket")  # type: ignore[arg-type]
    # The passage that is listed most often overall is one of the user-defined measure.
    mixed = measured(pocket, texts(80), ["loss", token_count])
    assert mixed.is_of(pocket)
    assert not mixed.is_of(tuned)
    words = "The traces are of a different model, so their numbers differ"
    with atlas.explore(tuned, language="en") as explorer:
        page = page_of(explorer, explorer.url)
        assert words in page
        link = links_of(page)[0].partition("#")[0]
        passage = atlas["induction"].most(0, 0)[0]
        assert first_trace(explorer, link)["atlas"].endswith(f"{passage.value:.3f} in the atlas")
    with atlas.explore(pocket, language="zh") as explorer:
        page = page_of(explorer, explorer.url)
    assert words not in page
    assert "模型与图谱" not in page
    assert "探索自己的文本" in page
    assert "从词元 0 起" in page


def test_an_atlas_without_passages(pocket: GPT2) -> None:
    """Texts of one token have no induction, so no passage is listed."""
    bare = measured(pocket, ["The", "A"], ["induction"])
    assert bare["induction"].most(0, 0) == ()
    assert bare.is_of(pocket)
    assert not bare.caution
    assert "most(" not in attnlab.page(bare).html
    with bare.explore(pocket, language="en") as explorer:
        page = page_of(explorer, explorer.url)
    assert page.count('<section class="head"') == 8
    assert not links_of(page)


def test_atlas_page_says_how_to_explore_it(
    atlas: Atlas, pocket: GPT2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths become absolute: the page is in another directory than the run."""
    in_python = "<code>atlas.explore(model)</code>"
    assert in_python in attnlab.page(atlas).html
    assert not links_of(attnlab.page(atlas).html)
    monkeypatch.chdir(tmp_path)
    pocket.save("its model")
    in_memory = GPT2.from_arrays(pocket.config, dict(pocket.parameters.items()), pocket.tokenizer)
    path = tmp_path / "its model"
    at_path = f"<code>attnlab explore --model '{path}' --atlas .</code>"
    at_name = "<code>attnlab explore --model pocket --atlas .</code>"
    cases: list[tuple[Any, str, str]] = [
        ("pocket", "pocket", at_name),
        (pocket, "pocket", at_name),
        ("./its model", str(path), at_path),
        (Path("its model"), str(path), at_path),
        (GPT2.from_pretrained("its model"), str(path), at_path),
        (in_memory, "", in_python),
    ]
    for number, (model, given, code) in enumerate(cases):
        result = measured(model, ["The dog barked."], ["first"], directory=f"{number}")
        assert result.model_given == given
        page = html.unescape(Path(f"{number}", "atlas.html").read_text(encoding="utf-8"))
        assert code in page


@pytest.mark.slow
def test_explore_command_opens_an_atlas(tmp_path: Path) -> None:
    measured("pocket", texts(3), ["first"], directory=tmp_path)
    command = ["explore", "--atlas", str(tmp_path), "--no-browser", "--model"]
    # Without --model, the atlas's model takes precedence over ATTNLAB_MODEL.
    for arguments in (command[:-1], [*command, "pocket"]):
        process = start(*arguments)
        served = link_of(process)
        assert urlsplit(served.url).path == "/atlas"
        assert len(links_of(page_of(served, served.url))) == 8 * 2 * 3
        assert answer(served, "POST", "/stop")[0] == 200
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    process = start(*command, str(REFERENCE / "odd"))
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "model doesn't match the atlas: it has 3 layers of 5 heads" in err


def test_atlas_explorer_in_chromium(
    explorer: Explorer, atlas: Atlas, pocket: GPT2, browser: Any
) -> None:
    """From a cell to a passage, to its trace in a new tab, and back, by keyboard."""
    context, messages = browser.new_context(), []
    context.on("console", lambda message: messages.append(message.text))
    context.on("weberror", lambda error: messages.append(str(error.error.stack)))
    context.on("dialog", lambda dialog: messages.append(dialog.message))
    page = context.new_page()
    with site(explorer._repr_html_()) as notebook:
        page.goto(notebook)
        frame = page.frame_locator("iframe")
        frame.locator('a[href="#layer-1-head-3"]').first.press("Enter")
        section = frame.locator("section.head:visible")
        section.locator("summary").first.press("Enter")
        link = section.locator("details[open] li a").first
        with context.expect_page() as opening:
            link.press("Enter")
        trace = opening.value
        until(trace, "document.querySelector('.readout data') !== null")
        assert trace.locator("#head-title").inner_text() == "Layer 1, head 3"
        passage = atlas["induction"].most(1, 3)[0]
        passage_text = trace.locator("#passage").inner_text()
        assert passage_text.startswith("Back to the atlas")
        assert (
            f"{passage.text}, from token {passage.start}; induction {passage.value:.3f}"
            in passage_text
        )
        assert trace.locator(".flow .symbol").count() == len(passage.ids)
        is_passage_shown = "!document.querySelector('#passage bdi').hidden"
        trace.locator("#head-toggle").click()
        until(trace, f"!({is_passage_shown})")
        trace.locator("#head-toggle").click()
        until(trace, is_passage_shown)
        trace.locator("#prompt").fill("The dog")
        trace.locator("#prompt").press("Enter")
        until(trace, f"!({is_passage_shown})")
        assert trace.locator("#passage").inner_text() == "Back to the atlas"
        # The address has both the passage and the displayed text.
        ids = "new URLSearchParams(location.hash.slice(1)).get('ids')"
        until(trace, f"{ids} === traceHistory.at(-1).ids.join('.')")
        assert "&passage=" in trace.url
        trace.reload()
        until(trace, "document.querySelector('#prompt').value === 'The dog'")
        until(trace, f"!({is_passage_shown})")
        trace.locator("#passage a").press("Enter")
        trace.wait_for_url("**/atlas?**")
        assert trace.locator("section.head:visible h2").inner_text() == "layer 1 head 3"
        trace.locator("section.head:visible summary").last.press("Enter")
        assert trace.locator("section.head:visible li:visible", has_text="<script>docu").count()
        assert trace.title() == atlas.title.splitlines()[0]
    with atlas.explore(pocket, language="en") as other:
        page.goto(other.url)
        page.goto(page.locator("ol a").first.evaluate("link => `${link.href}&depth=lab`"))
        assert page.locator("#passage a").is_visible()
        page.locator("#ending summary").click()
        page.locator("#end").click()
        until(page, "document.querySelector('#passage a').hidden")
        first = atlas["induction"].most(0, 0)[0]
        assert page.locator("#passage").inner_text().startswith(f"{first.text}, from token")
    context.close()
    assert messages == []
