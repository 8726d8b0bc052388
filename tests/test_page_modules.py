"""The page's pure modules, tested by Node.js: `tests/page/*.test.mjs`."""

import subprocess
from pathlib import Path

from node import TESTS, write_modules


def test_modules_that_need_no_browser(node: str, tmp_path: Path) -> None:
    files = [f"page/{file.name}" for file in TESTS.glob("*.test.mjs")]
    directory = write_modules(tmp_path)
    result = subprocess.run(
        [node, "--test", "--test-reporter=spec", *files],
        cwd=directory,
        capture_output=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stdout.partition("failing tests")[2]
