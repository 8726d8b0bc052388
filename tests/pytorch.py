"""Run code in a Python that has PyTorch: this one, or the one that `ATTNLAB_TORCH` names.

For example `ATTNLAB_TORCH=bench/bin/python pytest tests/test_pytorch.py`. Without the libraries,
tests are skipped; they fail if `ATTNLAB_STRICT=1` and `ATTNLAB_TORCH` are set.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import lacking

ROOT = Path(__file__).parent.parent


def python_with(*libraries: str) -> str:
    """A Python that has these libraries."""
    python = os.environ.get("ATTNLAB_TORCH", sys.executable)
    has = f"from importlib.util import find_spec; print(all(map(find_spec, {libraries})))"
    run = subprocess.run([python, "-c", has], capture_output=True, text=True, check=True)
    if run.stdout.split() != ["True"]:
        reason = f"{' and '.join(libraries)}: ATTNLAB_TORCH names no Python that has them"
        lacking(reason) if "ATTNLAB_TORCH" in os.environ else pytest.skip(reason)
    return python


def walk(python: str, code: str, directory: Path) -> None:
    """Run code in a directory, with this attnlab."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    run = subprocess.run(
        [python, "-c", code], cwd=directory, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
