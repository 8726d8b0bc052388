"""The release: metadata, consistent versions, links."""

import re
import runpy
import shutil
import tomllib
import zlib
from pathlib import Path
from typing import Any

import pytest
from conftest import lacking
from packaging.requirements import Requirement
from packaging.version import Version

import attnlab

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".github/release.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LANGUAGES = ("en", "zh")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_book_lists_this_version_first(language: str) -> None:
    text = (ROOT / f"examples/book/pages/{language}/versions.md").read_text(encoding="utf-8")
    listed = re.findall(r"^### (\S+)$", text, re.MULTILINE)
    assert listed[0] == attnlab.__version__ == str(Version(attnlab.__version__))
    assert listed == sorted(listed, key=Version, reverse=True)
    assert re.findall(r"version = \{(.+)\}", text) == [attnlab.__version__]


@pytest.mark.parametrize("language", LANGUAGES)
def test_supported_versions_are_those_of_the_metadata(language: str) -> None:
    text = (ROOT / f"examples/book/pages/{language}/versions.md").read_text(encoding="utf-8")
    pythons = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if " Python :: 3." in c]
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    assert re.search(rf"{pythons[0]} \w+ {pythons[-1]}", text)
    [numpy] = [r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "numpy"]
    assert str(numpy.specifier).removeprefix(">=") in text


def test_ci_runs_on_each_supported_python() -> None:
    file = ROOT / ".github/workflows/tests.yml"
    if not file.exists():
        lacking("the workflows are in the repository alone")
    [matrix] = re.findall(r"python: \[(.+)\]", file.read_text(encoding="utf-8"))
    for version in re.findall(r'"([\d.]+)"', matrix):
        assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


@pytest.fixture
def release_files(tmp_path: Path) -> dict[str, Any]:
    """The release workflow's metadata and README, in a made-up repository."""
    if not SCRIPT.exists():
        lacking("the release's script is in the repository alone")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    runpy.run_path(str(SCRIPT))["prepare"](
        tmp_path, "https://github.com", "Someone/attnlab", "v9.8.7"
    )
    settings = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))
    return settings["project"] | {"text": (tmp_path / "README.md").read_text(encoding="utf-8")}


def test_release_metadata_links_to_repository_and_book(release_files: dict[str, Any]) -> None:
    assert release_files["urls"] == {
        "Homepage": "https://github.com/Someone/attnlab",
        "Documentation": "https://someone.github.io/attnlab/",
        "Changelog": "https://someone.github.io/attnlab/en/versions.html",
        "Source": "https://github.com/Someone/attnlab",
        "Issues": "https://github.com/Someone/attnlab/issues",
        **PROJECT["urls"],
    }
    assert {name: release_files[name] for name in PROJECT if name != "urls"} == {
        name: value for name, value in PROJECT.items() if name != "urls"
    }


def test_release_readme_links_to_existing_files(release_files: dict[str, Any]) -> None:
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", release_files["text"])
    assert len(links) >= 8
    for is_picture, link in links:
        kind = "raw" if is_picture else "blob"
        beginning = f"https://github.com/Someone/attnlab/{kind}/v9.8.7/"
        if "Someone" not in link:
            assert link.startswith("https://")
            continue
        assert link.startswith(beginning)
        assert (ROOT / link.removeprefix(beginning).partition("#")[0]).exists()
    relative = release_files["text"].replace("https://github.com/Someone/attnlab/blob/v9.8.7/", "")
    relative = relative.replace("https://github.com/Someone/attnlab/raw/v9.8.7/", "")
    assert relative == (ROOT / "README.md").read_text(encoding="utf-8")


# The most bytes of an sdist, which has the executed notebooks, too.
LARGEST = 19_000_000


def test_wheel_and_sdist_are_small() -> None:
    """Each file is compressed alone, and less than a build compresses it."""
    sizes = {
        folder: sum(
            len(zlib.compress(file.read_bytes(), 1))
            for file in (ROOT / folder).rglob("*")
            if file.is_file() and "__pycache__" not in file.parts
        )
        for folder in ("attnlab", "tests", "examples")
    }
    assert 2_000_000 < sizes["attnlab"] <= sum(sizes.values()) <= LARGEST
