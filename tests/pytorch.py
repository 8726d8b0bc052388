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
def serve():
    import contextlib, json, os, sys, traceback
    import torch
    with contextlib.suppress(ImportError):
        from transformers import AutoTokenizer, GPT2LMHeadModel
    for line in sys.stdin:
        code, directory = json.loads(line)
        errors, written = os.pipe()
        child = os.fork()
        if child == 0:
            os.chdir(directory)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            try:
                exec(compile(code, "<code>", "exec"), sys.modules["__main__"].__dict__)
            except BaseException:
                os.write(written, traceback.format_exc().encode())
            os._exit(0)
        os.close(written)
        with open(errors) as file:
            error = file.read()
        status = os.waitpid(child, 0)[1]
        print(json.dumps(error or f"exit status {status}" * (status != 0)), flush=True)

serve()
"""


@cache
def forks_of(python: str) -> subprocess.Popen[str]:
    """The process that runs code in forks, with this attnlab; it ends with the tests."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    forks = subprocess.Popen([python, "-c", FORKS], env=environment, text=True, **pipes)
    atexit.register(forks.communicate)  # which closes its input
    return forks


def walk(python: str, code: str, directory: Path) -> None:
    """Run code in a directory, as a program of its own."""
    forks = forks_of(python)
    assert forks.stdin is not None
    assert forks.stdout is not None
    print(json.dumps([code, str(directory)]), file=forks.stdin, flush=True)
    error = json.loads(forks.stdout.readline())
    assert not error, error
