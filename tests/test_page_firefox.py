"""The page's main functions in Firefox, driven by Marionette.

Skipped, with the reason, where marionette_driver or Firefox is missing; under `ATTNLAB_STRICT=1`
that is a failure.
"""

import os
import re
import shutil
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import REFERENCE, lacking
from pages import silencing
from test_explore import served

import attnlab
from attnlab import GPT2, Trace

pytestmark = [
    pytest.mark.slow,
    # The driver leaves a socket open when it looks for its port.
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]

FIREFOX = ("firefox-esr", "firefox")

# JavaScript: the probability of the most probable next token.
PROBABILITY = "document.querySelectorAll('#predictions tbody tr:first-child data')[4]?.value"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Firefox:
    """A running Firefox with a page in it."""

    def __init__(self, driver: Any, log: Path) -> None:
        self.driver = driver
        self.log = log

    def run(self, script: str) -> Any:
        """Run JavaScript beside the page's own; return its result."""
        return self.driver.execute_script(script, sandbox=None)

    def until(self, expression: str) -> None:
        end = time.monotonic() + 20
        while not self.run(f"return {expression}"):
            assert time.monotonic() < end, expression
            time.sleep(0.02)

    def open(self, page: Path) -> None:
        self.driver.navigate(f"{page.as_uri()}#layer=0&head=0&depth=lab")
        self.until(f"location.href.startsWith('{page.as_uri()}')")
        self.until("document.querySelector('.readout data') !== null")

    def item(self, selector: str, nth: int = 0) -> Any:
        return self.driver.find_elements("css selector", selector)[nth]

    def text(self, selector: str) -> str:
        shown: str = self.item(selector).text
        return shown

    def press(self, *keys: str) -> None:
        """Send keys to the focused element."""
        for key in keys:
            self.driver.get_active_element().send_keys(key)

    def complaints(self) -> list[str]:
        """Firefox's log of errors in the page and of violations of its policy."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if "file:///" in line and re.search("rror|olicy", line)]


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of what it imports
            from marionette_driver.marionette import Marionette
    except ImportError:
        lacking('Firefox is driven by marionette_driver: pip install "attnlab[browsers]"')
    executable = next(filter(None, map(shutil.which, FIREFOX)), None)
    if executable is None:
        lacking("the page's tests in Firefox need it: apt-get install firefox-esr")
    log = tmp_path_factory.mktemp("firefox") / "log"
    driver = Marionette(
        bin=executable,
        headless=True,
        port=free_port(),
        gecko_log=str(log),
        prefs={"devtools.console.stdout.content": True},
    )
    driver.start_session()
    driver.set_window_rect(width=1280, height=900)
    yield Firefox(driver, log)
    driver.quit()
    driver.cleanup()


@pytest.fixture(scope="module")
def trace() -> Trace:
    return GPT2.from_pretrained("pocket").trace("It’s very hot in summer. Swimming is")


@pytest.fixture
def opened(firefox: Firefox, trace: Trace, tmp_path: Path) -> Iterator[Firefox]:
    attnlab.page(trace, language="en").save(tmp_path / "page.html")
    firefox.open(tmp_path / "page.html")
    yield firefox
    assert firefox.complaints() == []
    assert firefox.run("return performance.getEntriesByType('resource').length") == 0


def test_it_would_complain(firefox: Firefox, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!doctype html><script>nothing.there</script>")
    firefox.driver.navigate((tmp_path / "page.html").as_uri())
    before = len(firefox.log.read_text(encoding="utf-8", errors="replace"))
    assert before
    assert firefox.complaints()
    os.truncate(firefox.log, 0)


def test_a_click_opens_a_head_and_keys_its_arithmetic(opened: Firefox, trace: Trace) -> None:
    opened.item(".head-drawing", 6).click()
    opened.until("document.querySelector('#head-title').textContent.includes('Layer 1, head 2')")
    opened.item(".cursor").send_keys("")
    opened.run("document.querySelector('.cursor').focus()")
    opened.press("\ue010", "\ue012", "\ue012")  # End, left, left: the last key but two
    shown = opened.run("return document.querySelector('.readout data').value")
    T = len(trace.tokens)
    assert float(shown) == pytest.approx(float(trace.head(1, 2).weights[-1, T - 3]), abs=1e-6)
    opened.press("\ue007")  # Enter
    context = opened.run(
        "return document.querySelector('#sums [data-step=context] strong data').value"
    )
    assert float(context) == pytest.approx(float(trace.head(1, 2).context[-1, 0]), abs=1e-5)
    opened.press("\ue00c")  # Escape
    assert opened.run("return document.activeElement.className") == "cursor"


def test_a_page_that_holds_its_model(firefox: Firefox, tmp_path: Path) -> None:
    model, file = GPT2.from_pretrained("pocket"), tmp_path / "pocket.html"
    attnlab.playground(model).save(file)
    ablated = silencing(model, 1, 2)
    trace = model.trace("The hen saw the cat").edited(ablated)
    ids = ".".join(map(str, trace.tokens.ids))
    firefox.driver.navigate(f"{file.as_uri()}#ids={ids}&ablate=1.2&depth=lab")
    expected = trace.next_tokens(1)[0].probability
    firefox.until(f"Math.abs({PROBABILITY} - {expected}) < 1e-5")
    firefox.item("#prompt").clear()
    firefox.item("#prompt").send_keys("The cat")
    firefox.press("\ue007")  # Enter
    expected = model.trace("The cat").edited(ablated).next_tokens(1)[0].probability
    firefox.until(f"Math.abs({PROBABILITY} - {expected}) < 1e-5")
    assert firefox.complaints() == []


def test_what_is_typed_is_computed(firefox: Firefox, tmp_path: Path) -> None:
    file, model = tmp_path / "model.html", GPT2.from_pretrained(REFERENCE / "sharded")
    attnlab.playground(model).save(file)
    firefox.driver.navigate(f"{file.as_uri()}#depth=lab")
    firefox.until("document.querySelector('.readout data') !== null")
    firefox.item("#prompt").clear()
    firefox.item("#prompt").send_keys("the hen in")
    expected = model.trace("the hen in").next_tokens(1)[0].probability
    firefox.until(f"Math.abs({PROBABILITY} - {expected}) < 1e-5")
    assert firefox.text("#summary").startswith("3 layers × 2 heads")
    assert firefox.complaints() == []


def test_a_model_is_served(firefox: Firefox) -> None:
    directory = REFERENCE / "sharded"
    with served(directory, "the hen in") as running:
        firefox.driver.navigate(f"http://{running.host}/#depth=lab")
        expected = GPT2.from_pretrained(directory).trace("the hen in").next_tokens(1)[0].probability
        firefox.until(f"Math.abs({PROBABILITY} - {expected}) < 1e-5")
        firefox.driver.navigate("about:blank")
