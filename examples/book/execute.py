"""Execute a chapter's code as Jupyter shows it, without a kernel, and keep what it printed.

    python examples/book/execute.py < CELLS > OUTPUTS

CELLS is a list of cells' code in JSON, OUTPUTS has a list of nbformat's outputs for each.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attnlab

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attnlab-book"
# What a chapter runs in: one core, the pocket model, and a folder of its own.
SETTINGS = {"HF_HUB_OFFLINE": "1", "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}


@cache
def surroundings() -> bytes:
    """Whatever a chapter's outputs depend on beside its code."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for file in sorted(Path(attnlab.__file__).parent.rglob("*.*")):
        if file.suffix != ".pyc":
            digest.update(file.read_bytes())
    libraries = [version(name) for name in ("numpy", "matplotlib", "ipython")]
    digest.update(repr((sys.version, libraries, os.environ.get("ATTNLAB_MODEL"))).encode())
    return digest.digest()


def execute(name: str, code: list[str], settings: dict[str, str]) -> tuple[list[Any], bool]:
    """The outputs of each cell of a chapter, and whether they are those of an earlier build."""
    cells = json.dumps(code)
    key = hashlib.sha256(surroundings() + cells.encode()).hexdigest()
    kept = CACHE / f"{name}.json"
    if kept.exists():
        earlier = json.loads(kept.read_text(encoding="utf-8"))
        if earlier["key"] == key:
            return earlier["outputs"], True
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [sys.executable, Path(__file__).resolve()],
            input=cells,
            capture_output=True,
            encoding="utf-8",
            cwd=folder,
            env=os.environ | SETTINGS | settings | {"HF_HUB_CACHE": folder, "IPYTHONDIR": folder},
        )
    print(run.stderr, end="", file=sys.stderr)
    if run.returncode:
        raise SystemExit(f"{name} stopped")
    outputs = json.loads(run.stdout)
    CACHE.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"key": key, "outputs": outputs}), encoding="utf-8")
    return outputs, False


class Outputs(io.TextIOBase):
    """What a cell prints and shows, in order."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []

    def write(self, text: str) -> int:
        if not self.outputs or self.outputs[-1]["output_type"] != "stream":
            self.outputs.append({"output_type": "stream", "name": "stdout", "text": ""})
        self.outputs[-1]["text"] += text
        return len(text)

    def show(self, data: Any, metadata: Any) -> None:
        shown = {"output_type": "display_data", "data": data, "metadata": metadata or {}}
        self.outputs.append(shown)


def main() -> None:
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell

    here = Outputs()

    class Hook(DisplayHook):
        def write_output_prompt(self) -> None: ...

        def write_format_data(self, data: Any, metadata: Any = None) -> None:
            here.show(data, metadata)

        def finish_displayhook(self) -> None: ...

    class Publisher(DisplayPublisher):
        def publish(self, data: Any, metadata: Any = None, *_: Any, **__: Any) -> None:
            here.show(data, metadata)

    shell: Any = InteractiveShell.instance(displayhook_class=Hook, display_pub_class=Publisher)
    stdout, sys.stdout = sys.stdout, here
    results = []
    for code in json.load(sys.stdin):
        here.outputs = []
        result = shell.run_cell(code)
        results.append(here.outputs)
        if not result.success:
            print(code, *(output.get("text", "") for output in here.outputs), file=sys.stderr)
            sys.exit(1)
    json.dump(results, stdout)


if __name__ == "__main__":
    main()
