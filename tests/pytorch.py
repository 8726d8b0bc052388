"""Run code in a Python that has PyTorch: this one, or the one that `ATTNLAB_TORCH` names.

For example `ATTNLAB_TORCH=bench/bin/python pytest tests/test_pytorch.py`. Without the libraries,
tests are skipped; they fail if `ATTNLAB_STRICT=1` and `ATTNLAB_TORCH` are set.
"""

import atexit
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

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


# One process imports PyTorch and transformers, which takes seconds, and runs each code in a fork.
FORKS = """
import contextlib, json, os, sys
import torch
with contextlib.suppress(ImportError):
    from transformers import AutoTokenizer, GPT2LMHeadModel
for line in sys.stdin:
    code, directory = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(directory)
        break
    print(f"\\nended with {os.waitpid(child, 0)[1]}", flush=True)
else:
    sys.exit()
exec(code, {"__name__": "__main__"})
"""


@cache
def forks_of(python: str) -> subprocess.Popen[str]:
    """The process that runs code in forks, with this attnlab, until the tests end."""
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
    settings = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    forks = subprocess.Popen(
        [python, "-c", FORKS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | settings,
        text=True,
    )
    atexit.register(forks.communicate)  # which closes its input
    return forks


def walk(python: str, code: str, directory: Path) -> None:
    """Run code in a directory, as a program of its own."""
    forks: Any = forks_of(python)
    print(json.dumps([code, str(directory)]), file=forks.stdin, flush=True)
    printed = []
    for line in forks.stdout:
        printed.append(line)
        if line.startswith("ended with "):
            break
    assert printed[-1:] == ["ended with 0\n"], "".join(printed)
