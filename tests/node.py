"""The page's pure modules in Node.js: their tests in `tests/page`, and an evaluator for others."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from attnlab.pages.modules import GENERATED, SCRIPTS, source

TESTS = Path(__file__).parent / "page"


def write_modules(directory: Path) -> Path:
    """Write the page's modules, with the generated ones, and beside them the tests."""
    written = (file.relative_to(SCRIPTS).as_posix() for file in SCRIPTS.rglob("*.js"))
    for path in (*written, *GENERATED):
        file = directory / "scripts" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source(path), encoding="utf-8")
    (directory / "package.json").write_text('{"type": "module"}')
    shutil.copytree(TESTS, directory / "page")
    return directory


class Evaluator:
    """A process in which the exports of the pure modules are global; `evaluate` as of a page."""

    def __init__(self, node: str, directory: Path) -> None:
        self._process = subprocess.Popen(
            [node, directory / "page" / "evaluator.mjs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def evaluate(self, expression: str, given: Any = None) -> Any:
        """The value of an expression; of a function's, its value for `given`."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([expression, given]) + "\n")
        self._process.stdin.flush()
        result = json.loads(self._process.stdout.readline())
        assert "error" not in result, result["error"]
        return result.get("value")

    def close(self) -> None:
        self._process.communicate()
