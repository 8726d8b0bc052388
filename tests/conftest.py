"""Shared fixtures: reference models, GPT-2's vocabulary, and the walkthrough's checkpoint.

`ATTNLAB_GPT2_VOCAB` names a directory with GPT-2's vocab.json and merges.txt; without it they are
looked up in the hub's cache. Tests that need what the machine lacks are skipped with the reason;
under `ATTNLAB_STRICT=1` a missing vocabulary, browser or optional library is a failure instead.
"""

import os

# One thread for each process: OpenBLAS reads this when NumPy is imported. xdist's workers inherit
# it, since other plugins may import NumPy there before this file runs.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gc
import shutil
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest
from filelock import FileLock
from huggingface_hub import try_to_load_from_cache
from hypothesis import settings
from node import Evaluator, write_modules
from pages import BALL, LOAD_ALL, LOADED, Open, drawn, settled, until
from walkthrough_checkpoint import write_checkpoint

import attnlab
from attnlab import GPT2, AttnlabError, Tokenizer, Trace
from attnlab.checkpoints.hub import PUBLISHED
from attnlab.pages import overview

# No deadline: a busy machine may be slow.
settings.register_profile("attnlab", deadline=None)
settings.load_profile("attnlab")

# Views are tested in English; tests of Chinese select it.
os.environ["ATTNLAB_LANGUAGE"] = "en"

REFERENCE = Path(__file__).parent / "reference"
MODELS = ("odd", "one_head", "float16", "bfloat16", "float64", "sharded")
RELATIVES = ("gelu", "relu", "silu", "quick_gelu", "gelu_fast", "reordered")

posix = pytest.mark.skipif(os.name != "posix", reason="signals, pipes and terminals of POSIX")


# The headless shell, which draws no window, takes a fifth less time for a page.
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def lacking(reason: str) -> NoReturn:
    """Skip tests that need something unavailable; under ATTNLAB_STRICT=1, fail."""
    if os.environ.get("ATTNLAB_STRICT") == "1":
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)


def needs(library: str, extra: str) -> None:
    """Skip the module unless the library of an optional extra is installed."""
    if find_spec(library) is None:
        lacking(f'{library} is not installed: pip install "attnlab[{extra}]"')


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    """Import files backwards in every second process, so that each compiles half of a new clone."""
    report = yield
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    if worker % 2 and isinstance(collector, pytest.Directory):
        report.result.reverse()
    return report


@pytest.hookimpl(tryfirst=True)  # before -m selects tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files alike in all processes, and mark as slow what takes a browser or Node.js.

    Subdirectories come last: with short files at the end, all processes finish at the same time.
    """
    items.sort(key=lambda item: (len(item.path.parts), item.path))
    for item in items:
        if {"browser", "pure", "compiled"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Leave what is imported and collected out of each garbage collection."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run a file's tests in one process, so that they share fixtures.

    Keep the files' order; sorted by number of tests, the one that builds the book would come last.
    """
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser a process: what should start afresh opens a context or a page of its own."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        lacking("the page's tests need playwright: pip install 'attnlab[browsers]'")
    executable = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if executable is None:
        lacking("the page's tests need Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def node() -> str:
    """Node.js, which runs the page's pure modules."""
    return shutil.which("node") or lacking("the page's modules are tested by Node.js")


@pytest.fixture(scope="session")
def pure(node: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """The page's pure modules."""
    evaluator = Evaluator(node, write_modules(tmp_path_factory.mktemp("modules")))
    yield evaluator
    evaluator.close()


# What a new page emulates.
MEDIA = {"color_scheme": "light", "reduced_motion": "no-preference", "forced_colors": "none"}


class Watched:
    """Opens pages and records their messages and requests.

    Closed pages are left blank and opened again: each new one would start a process.
    """

    def __init__(self, browser: Any) -> None:
        self._browser, self._open, self._blank = browser, list[Any](), list[Any]()
        self.said: list[str] = []
        self.asked: set[str] = set()

    def _new_page(self, **settings: Any) -> Any:
        context = self._browser.new_context(**settings)
        context.on("request", lambda request: self.asked.add(request.url))
        page = context.new_page()
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", lambda dialog: self.said.append(dialog.message))
        return page

    def open(
        self,
        address: str,
        viewport: dict[str, int] | None = None,
        has_touch: bool = False,
        **media: Any,
    ) -> Any:
        """Open a page with all its controls and at the first head, unless a link says otherwise."""
        if "#" not in address:
            address += "#layer=0&head=0"
        if "depth=" not in address:
            address += "&depth=lab"
        if has_touch:
            page = self._new_page(has_touch=True)
        else:
            page = self._blank.pop() if self._blank else self._new_page()
        self._open.append((page, has_touch))
        page.set_viewport_size(viewport or {"width": 1280, "height": 800})
        page.emulate_media(media="null", **MEDIA | media)
        page.goto(address)
        until(page, LOADED)
        drawn(page)  # until then, Tab doesn't reach all that it reaches later
        return page

    def close(self) -> None:
        while self._open:
            page, has_touch = self._open.pop()
            for other in page.context.pages:
                if has_touch or other != page:
                    other.close()
            if not has_touch:
                page.unroute_all()
                page.goto("about:blank")
                page.mouse.move(0, 0)
                self._blank.append(page)


@pytest.fixture(scope="session")
def watched_pages(browser: Any) -> Watched:
    return Watched(browser)


@pytest.fixture
def watched(watched_pages: Watched) -> Iterator[Watched]:
    watched_pages.said.clear()
    watched_pages.asked.clear()
    yield watched_pages
    watched_pages.close()


@pytest.fixture
def play(watched: Watched, tmp_path: Path) -> Iterator[Open]:
    """Open a model's page from disk; check at the end that it logged and requested nothing."""
    file = tmp_path / "model.html"

    def open_(model: GPT2, *given: Any, link: str = "", **settings: Any) -> Any:
        attnlab.playground(model, *given).save(file)
        return watched.open(file.as_uri() + link, **settings)

    yield open_
    watched.close()
    assert watched.said == []
    assert {name for name in watched.asked if not name.startswith("blob:null/")} <= {file.as_uri()}


@pytest.fixture
def open_page(watched: Watched, tmp_path: Path) -> Iterator[Open]:
    """Write a page and open it from disk; check at the end that it logged and requested nothing."""
    file = tmp_path / "page.html"

    def open_(
        trace: Trace, other: Trace | None = None, language: str | None = None, **settings: Any
    ) -> Any:
        attnlab.page(trace, other, language=language).save(file)
        page = watched.open(file.as_uri(), **settings)
        page.evaluate(LOAD_ALL)
        return page

    yield open_
    watched.close()
    assert watched.said == []
    assert watched.asked <= {file.as_uri()}


@pytest.fixture
def look(watched: Watched, tmp_path: Path) -> Iterator[Open]:
    """Open a trace's page in Look; check at the end that it logged nothing."""
    file = tmp_path / "page.html"

    def open_(
        trace: Trace,
        link: str = "depth=look",
        language: str = "en",
        other: Trace | None = None,
        **settings: Any,
    ) -> Any:
        attnlab.page(trace, other, language=language).save(file)
        return settled(watched.open(f"{file.as_uri()}#{link}", **settings))

    yield open_
    watched.close()
    assert watched.said == []


@pytest.fixture
def short_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablate few heads for a page's story, which takes most of a large model's time."""
    monkeypatch.setattr(overview, "MAX_ABLATION_WORK", 0)


@pytest.fixture(scope="module")
def odd() -> GPT2:
    """The tiny reference model with 5 heads, whose sizes are odd numbers."""
    return GPT2.from_pretrained(REFERENCE / "odd")


@pytest.fixture
def pocket_maker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program that makes the pocket model."""
    needs("tokenizers", "tokenizers")
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "examples" / "pocket"))
    return import_module("make")


@pytest.fixture(scope="module")
def pocket() -> GPT2:
    return GPT2.from_pretrained("pocket")


@pytest.fixture(scope="module")
def ball(pocket: GPT2) -> Trace:
    return pocket.trace(BALL)


@pytest.fixture(scope="module")
def chapter(request: pytest.FixtureRequest) -> Any:
    """The chapter that a file of tests is about, run unchanged."""
    from book import run_unchanged

    return run_unchanged(request.module.CHAPTER)


@pytest.fixture
def answer(request: pytest.FixtureRequest) -> str:
    """The answer to the exercise that a test is about, in English, on one line."""
    from book import answer_of

    exercise = request.node.name.removeprefix("test_exercise_")
    return answer_of(request.module.CHAPTER, int(exercise))


@pytest.fixture(scope="session")
def vocabulary() -> Path:
    """A directory with GPT-2's own vocabulary."""
    if named := os.environ.get("ATTNLAB_GPT2_VOCAB"):
        return Path(named)
    repository, revision = PUBLISHED["gpt2"]
    for place in (repository, "gpt2"):
        for expected in (revision, None):
            files = [
                try_to_load_from_cache(place, name, revision=expected)
                for name in ("vocab.json", "merges.txt")
            ]
            if all(isinstance(file, str) for file in files):
                return Path(str(files[0])).parent
    lacking("GPT-2's vocabulary: set ATTNLAB_GPT2_VOCAB to a directory that holds it")


@pytest.fixture(scope="session")
def gpt2_tokenizer(vocabulary: Path) -> Tokenizer:
    return Tokenizer.from_directory(vocabulary)


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all processes of a test run share."""
    directory = tmp_path_factory.getbasetemp()
    return directory.parent if "PYTEST_XDIST_WORKER" in os.environ else directory


@pytest.fixture(scope="session")
def walkthrough_directory(vocabulary: Path, whole_run: Path) -> Path:
    """A checkpoint of GPT-2's shape that yields the published figures and is otherwise random.

    All processes of a test run share it.
    """
    directory, finished = whole_run / "walkthrough", whole_run / "walkthrough.finished"
    with FileLock(whole_run / "walkthrough.lock"):
        if not finished.exists():
            directory.mkdir(exist_ok=True)
            write_checkpoint(directory, vocabulary)
            finished.touch()
    return directory


@pytest.fixture(params=["constructed", "gpt2"], scope="session")
def walkthrough_model(request: pytest.FixtureRequest) -> GPT2:
    """The constructed checkpoint, and GPT-2 itself if it is in the hub's cache."""
    if request.param == "constructed":
        return GPT2.from_pretrained(request.getfixturevalue("walkthrough_directory"))
    try:
        return GPT2.from_pretrained("gpt2", local_files_only=True)
    except AttnlabError:
        pytest.skip("GPT-2's weights are not in the hub's cache")
