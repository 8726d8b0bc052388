"""Execute a chapter's code as Jupyter shows it, without a kernel, and keep the outputs.

Run as a program, it takes a list of cells' code in JSON, and writes a list of outputs for each.
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
SETTINGS = {"HF_HUB_OFFLINE": "1", "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}


@cache
def surroundings() -> bytes:
    """A digest of whatever a chapter's outputs depend on beside its code."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for file in sorted(Path(attnlab.__file__).parent.rglob("*.*")):
        if file.suffix != ".pyc":
            digest.update(file.read_bytes())
    libraries = [version(name) for name in ("numpy", "matplotlib", "ipython")]
    digest.update(repr((sys.version, libraries, os.environ.get("ATTNLAB_MODEL"))).encode())
    return digest.digest()


def execute(name: str, code: list[str], language: str) -> tuple[list[Any], bool]:
    """The outputs of each cell of a chapter, and whether they are those of an earlier build."""
    cells = json.dumps(code)
    key = hashlib.sha256(surroundings() + cells.encode()).hexdigest()
    kept = CACHE / f"{language}-{name}.json"
    if kept.exists():
        earlier = json.loads(kept.read_text(encoding="utf-8"))
        if earlier["key"] == key:
            return earlier["outputs"], True
    with tempfile.TemporaryDirectory() as folder:
        places = dict.fromkeys(("HF_HUB_CACHE", "IPYTHONDIR"), folder)
        run = subprocess.run(
            [sys.executable, Path(__file__).resolve()],
            input=cells,
            capture_output=True,
            encoding="utf-8",
            cwd=folder,
            env=os.environ | SETTINGS | places | {"ATTNLAB_LANGUAGE": language},
        )
    print(run.stderr, end="", file=sys.stderr)
    if run.returncode:
        raise SystemExit(f"{language}/{name} stopped")
    outputs = json.loads(run.stdout)
    CACHE.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"key": key, "outputs": outputs}), encoding="utf-8")
    return outputs, False


class Stdout(io.TextIOBase):
    """Standard output that adds what is printed to what is shown, in order."""

    def __init__(self, shown: list[Any]) -> None:
        self.shown = shown

    def write(self, text: str) -> int:
        if self.shown and "text" in self.shown[-1]:
            self.shown[-1]["text"] += text
        else:
            self.shown.append({"text": text})
        return len(text)


def as_output(text: str = "", data: Any = None, metadata: Any = None, **_: Any) -> dict[str, Any]:
    """What a cell printed or showed, as notebooks have it."""
    if data is None:
        return {"output_type": "stream", "name": "stdout", "text": text}
    return {"output_type": "display_data", "data": data, "metadata": metadata or {}}


def main() -> None:
    from IPython.core import displayhook, displaypub, interactiveshell

    shell: Any = interactiveshell.InteractiveShell.instance()
    publisher: Any = displaypub.CapturingDisplayPublisher
    hook: Any = displayhook.CapturingDisplayHook
    shell.display_pub = publisher()
    shown = shell.display_pub.outputs
    shell.display_trap.hook = hook(shell=shell, outputs=shown)
    stdout, sys.stdout = sys.stdout, Stdout(shown)
    results = []
    for code in json.load(sys.stdin):
        has_run = shell.run_cell(code).success
        results.append([as_output(**each) for each in shown])
        if not has_run:
            sys.exit(f"{code}\n{''.join(each.get('text', '') for each in shown)}")
        shown.clear()
    json.dump(results, stdout)


if __name__ == "__main__":
    main()
