"""Execute a chapter's code as Jupyter shows it, without a kernel, and keep the outputs.

Each chapter is executed in a process of its own. On POSIX this process is a fork of one that has
imported IPython and matplotlib, whose imports would take as long as most chapters.
"""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attnlab

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attnlab-book"

PROCESSES = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
PROCESSES.set_forkserver_preload(["IPython.core.interactiveshell", "matplotlib.pyplot", "attnlab"])
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # which NumPy reads when these processes import it


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
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, PROCESSES) as pool:
        settings = {"HF_HUB_OFFLINE": "1", "ATTNLAB_LANGUAGE": language}
        settings |= dict.fromkeys(("HF_HUB_CACHE", "IPYTHONDIR"), folder)
        try:
            outputs = pool.submit(outputs_of, code, folder, os.environ | settings).result()
        except RuntimeError as error:
            raise SystemExit(f"{language}/{name} stopped: {error}") from None
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


def outputs_of(code: list[str], folder: str, environment: dict[str, str]) -> list[Any]:
    """Run a chapter's cells in this process, in a folder; return a list of outputs for each."""
    import matplotlib
    from IPython.core import displayhook, displaypub, interactiveshell

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    matplotlib.use("agg")
    shell: Any = interactiveshell.InteractiveShell.instance()
    publisher: Any = displaypub.CapturingDisplayPublisher
    hook: Any = displayhook.CapturingDisplayHook
    shell.display_pub = publisher()
    shown = shell.display_pub.outputs
    shell.display_trap.hook = hook(shell=shell, outputs=shown)
    sys.stdout = Stdout(shown)
    results = []
    for cell in code:
        has_run = shell.run_cell(cell).success
        results.append([as_output(**each) for each in shown])
        if not has_run:
            raise RuntimeError(f"{cell}\n{''.join(each.get('text', '') for each in shown)}")
        shown.clear()
    return results
