"""Downloading, by huggingface_hub itself, from a hub that runs in the test.

An audit hook records every connection and name look-up, so that "no network" means none at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from files import WEIGHTS, contents, copy_model
from huggingface_hub import constants, file_download, utils

from attnlab import GPT2, AttnlabError
from attnlab.checkpoints import hub as hub_module
from attnlab.checkpoints.hub import BUILT_IN, PUBLISHED

A, B = "a" * 40, "b" * 40
REPOSITORY, PINNED = PUBLISHED["gpt2"]
TINY = "someone/tiny"
VOCABULARY = {"vocab.json", "merges.txt"}

Files = dict[str, bytes]


class Hub(ThreadingHTTPServer):
    """The part of the Hugging Face hub's API that a model download needs."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        # The commit and the files, by revision, of each repository.
        self.repositories: defaultdict[str, dict[str, tuple[str, Files]]] = defaultdict(dict)
        self.sent: Counter[str] = Counter()  # how often each file was downloaded
        # Requests whose path contains `part` are refused with this status and X-Error-Code.
        self.status, self.code, self.part = 0, "", ""

    def add(self, repository: str, files: Files, commit: str = A, *names: str) -> None:
        """Publish files under a commit, and under names of branches and tags, by default main."""
        for revision in (commit, *(names or ["main"])):
            self.repositories[repository][revision] = commit, files


class Request(BaseHTTPRequestHandler):
    """One request to the hub."""

    server: Hub

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        hub, path = self.server, unquote(self.path.partition("?")[0])
        match = re.fullmatch(r"/(?:api/models/)?(.+?)(?:/(?:revision|resolve)/(.+))?", path)
        assert match is not None
        revisions, rest = hub.repositories[match[1]], match[2] or "main"
        revision = next((r for r in revisions if f"{rest}/".startswith(f"{r}/")), "")
        if hub.status and hub.part in path:
            self.send(hub.status, {"X-Error-Code": hub.code})
        elif not revision:
            self.send(404, {"X-Error-Code": "RevisionNotFound" if revisions else "RepoNotFound"})
        elif path.startswith("/api/"):
            commit, files = revisions[revision]
            siblings = [{"rfilename": name} for name in files]
            content = json.dumps({"id": match[1], "sha": commit, "siblings": siblings}).encode()
            self.send(200, {"Content-Type": "application/json"}, content)
        else:
            commit, files = revisions[revision]
            file = rest.removeprefix(f"{revision}/")
            if self.command == "GET":
                hub.sent[file] += 1
            etag = f'"{hashlib.sha256(files[file]).hexdigest()}"'
            self.send(200, {"ETag": etag, "X-Repo-Commit": commit}, files[file])

    do_HEAD = do_GET

    def send(self, status: int, headers: dict[str, str], content: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


network: list[object] = []


def record(event: str, arguments: Any) -> None:
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        network.append(arguments)


@pytest.fixture(scope="module", autouse=True)
def recorded() -> None:
    """Record the network requests of this process; audit hooks can't be removed, but are fast."""
    sys.addaudithook(record)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty hub, which is huggingface_hub's; the cache and the working directory are empty."""
    with Hub() as hub:
        threading.Thread(target=hub.serve_forever, args=(0.02,)).start()
        use_endpoint(monkeypatch, f"http://127.0.0.1:{hub.server_address[1]}")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("NO_PROXY", "*")
        monkeypatch.chdir(tmp_path)
        network.clear()
        yield hub
        forget_connections()
        hub.shutdown()


def use_endpoint(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    # Old versions import it by name.
    monkeypatch.setattr(file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    forget_connections()


def forget_connections() -> None:
    """Close huggingface_hub's session, which keeps earlier settings."""
    for close in ("close_session", "reset_sessions"):  # in new versions, and in old ones
        getattr(utils, close, lambda: None)()


def published(model: str) -> Files:
    """A reference model's files, and other files of real repositories."""
    others = ("pytorch_model.bin", "tf_model.h5", "onnx/model.safetensors", "README.md")
    return contents(model) | dict.fromkeys(others, b"not to be downloaded")


def opened(name: Any, model: str, **options: Any) -> Path:
    """The directory of a model that `from_pretrained` opens, which has the reference's files."""
    directory: Path = GPT2.from_pretrained(name, **options).parameters.directory  # type: ignore[attr-defined]
    found = {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()}
    assert {name: found.get(name) for name in contents(model)} == contents(model)
    return directory


@pytest.mark.parametrize("model", ["odd", "sharded"])
def test_a_model_is_downloaded_once(
    hub: Hub, model: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.add(TINY, published(model))
    directory = opened(TINY, model)
    assert {file.name for file in directory.iterdir()} == {*contents(model)}
    assert hub.sent == dict.fromkeys(contents(model), 1)
    assert next(iter(hub.sent)) == "config.json"
    network.clear()
    for options in ({}, {"revision": A}, {"local_files_only": True}):
        assert opened(TINY, model, **options) == directory
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert opened(TINY, model) == directory
    assert not network
    assert capfd.readouterr().err == "", "a progress bar where no terminal is"


@pytest.mark.parametrize(
    ("file", "damage", "words"),
    [
        ("config.json", b'"model_type": "llama"', "llama"),
        ("config.json", b'"vocab_size": 262', "262 rows"),
        ("vocab.json", b'"b": 0.5', "integer"),
    ],
)
def test_small_files_are_checked_before_the_weights_are_downloaded(
    hub: Hub, file: str, damage: bytes, words: str
) -> None:
    files = published("odd")
    hub.add(TINY, files | {file: files[file].rstrip()[:-1] + b", " + damage + b"}"})
    with pytest.raises(AttnlabError, match=words):
        GPT2.from_pretrained(TINY)
    assert WEIGHTS not in hub.sent


@pytest.mark.parametrize("name", [TINY, *PUBLISHED])
def test_revisions(hub: Hub, name: str) -> None:
    """Published models are pinned to a commit, and others open at main, unless one is given."""
    repository, commit = PUBLISHED.get(name, (name, A))
    hub.add(repository, published("one_head"), B, "v1/of-old", "main")
    hub.add(repository, published("odd"), commit, "main" if name == TINY else "old")
    for revision, model in ((None, "odd"), ("v1/of-old", "one_head")):
        directory = opened(name, model, revision=revision)
        assert directory.name == (commit if model == "odd" else B)
        network.clear()
        for again in (revision, directory.name):
            assert opened(repository, model, revision=again) == directory
        assert not network


@pytest.mark.parametrize("revision", ["main", PINNED])
def test_models_cached_by_other_tools(
    hub: Hub, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole ones open without the network; of incomplete ones, what is missing is downloaded."""
    hub.add(REPOSITORY, published("odd"))
    hub.add(REPOSITORY, published("odd"), PINNED, "old")
    snapshot = opened(REPOSITORY, "odd", revision=revision)
    network.clear()
    assert opened("gpt2", "odd") == opened(REPOSITORY, "odd") == snapshot
    for name in VOCABULARY:
        (snapshot / name).resolve().unlink()  # the link in the snapshot stays
    (snapshot / "vocab.json").unlink()
    without = "without vocab.json and merges.txt, and"
    check_refused("gpt2", MISSING, f"{without} local_files_only=True prevents", **OFFLINE)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    check_refused("gpt2", "DownloadError", f"{without} HF_HUB_OFFLINE prevents")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert not network
    hub.sent.clear()
    assert opened("gpt2", "odd").name == PINNED
    assert hub.sent == dict.fromkeys(VOCABULARY, 1)


def test_cached_models_open_without_network_code(hub: Hub) -> None:
    """Importing huggingface_hub takes twenty times as long as opening the model."""
    hub.add(REPOSITORY, published("odd"), PINNED)
    opened("gpt2", "odd")
    code = "import attnlab, sys; attnlab.GPT2.from_pretrained('gpt2')"
    code += "; sys.exit('huggingface_hub.utils' in sys.modules)"
    environment = os.environ | {"HF_HUB_CACHE": constants.HF_HUB_CACHE}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


# What can't be opened


OFFLINE = {"local_files_only": True}
NAMED = "The models that come with attnlab need no network: 'english', 'pocket'"
MISSING = "MissingFileError"
NAME = ("a model's name or path",)


@pytest.mark.parametrize(
    ("name", "options", "error", "words"),
    [
        ("gpt-3", {}, MISSING, ("'gpt-3' is neither a directory nor a repo", "auth login", NAMED)),
        ("x\x1b[31m" * 99, {}, MISSING, (r"\x1b", NAMED)),
        (TINY, {"revision": "v2"}, "DownloadError", (f"refused {TINY}", "404", "v2")),
        (TINY, {"revision": 5}, "InvalidTypeError", ("revision must be a branch",)),
        (TINY, OFFLINE, MISSING, (TINY, "nor in the hub's cache", "local_files_only")),
        (Path(TINY), {}, MISSING, ("there is no directory",)),
        ("model/config.json", {}, MISSING, ("got a file: model/config.json", "directory")),
        ("model", {"revision": "main"}, "InvalidValueError", ("model", "with a directory")),
        *((wrong, {}, "InvalidTypeError", NAME) for wrong in (None, 5, b"x")),
        *((wrong, {}, "InvalidValueError", NAME) for wrong in ("", "a\0b")),
    ],
)
def test_names(
    hub: Hub, name: Any, options: dict[str, Any], error: str, words: tuple[str, ...]
) -> None:
    hub.add(TINY, published("odd"))
    copy_model("odd", Path("model"))
    check_refused(name, error, *words, **options)
    assert hub.sent == {}


def check_refused(name: Any, error: str, *words: str, **options: Any) -> None:
    with pytest.raises(AttnlabError) as refusal:
        GPT2.from_pretrained(name, **options)
    assert type(refusal.value).__name__ == error
    message = str(refusal.value)
    assert [word for word in words if word not in message] == [], message
    assert message.isprintable()


@pytest.mark.parametrize(
    ("status", "code", "part", "error", "words"),
    [
        # The hub's answer for a private repository, or a missing one, without login.
        (401, "RepoNotFound", "", MISSING, ("private", "hf auth login")),
        # The files of a gated one are listed, but can't be downloaded.
        (403, "GatedRepo", "/resolve/", "DownloadError", ("gated", "hf auth login")),
        (429, "", "", "DownloadError", ("the hub refused", "429")),
        (403, "", "/merges", "DownloadError", ("failed at merges.txt", "repeat the")),
    ],
)
def test_refused_access(
    hub: Hub, status: int, code: str, part: str, error: str, words: tuple[str, ...]
) -> None:
    hub.add(TINY, published("odd"))
    hub.status, hub.code, hub.part = status, code, part
    check_refused(TINY, error, TINY, *words)
    hub.status = 0
    opened(TINY, "odd")


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ([WEIGHTS], f"{WEIGHTS}, only pytorch_model.bin"),
        (["config.json", "vocab.json"], "config.json and no vocab.json"),
    ],
)
def test_repository_with_missing_files(hub: Hub, missing: list[str], words: str) -> None:
    files = published("odd")
    hub.add(TINY, {name: files[name] for name in files.keys() - missing})
    check_refused(TINY, MISSING, f"{TINY} on the hub has no {words}")
    assert hub.sent == {}


# Networks that fail


def test_unreachable_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "TIMEOUT", 0.2)
    words = (f"{TINY} is neither a directory", "can't be reached", "HF_ENDPOINT")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts connections, but not more
        use_endpoint(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        check_refused(TINY, "DownloadError", *words, f"`hf download {TINY} config.json")
    check_refused(TINY, "DownloadError", *words)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    check_refused(TINY, "DownloadError", "nor in the hub's cache", "HF_HUB_OFFLINE prevents")


def test_directories_and_built_in_models_never_use_the_network(hub: Hub) -> None:
    """Even if the hub has a repository of the directory's name, or a file is missing."""
    hub.add(TINY, published("one_head"))
    directory = copy_model("odd", Path(TINY))
    for path in (TINY, directory, directory.absolute()):
        assert opened(path, "odd") == Path(path)
    for name in contents("odd"):
        partial = copy_model("odd", Path(f"without-{name}"))
        (partial / name).unlink()
        check_refused(str(partial), MISSING, str(partial), name)
    for name in ("english", "Pocket", "POCKET"):
        assert hub_module.find_model(name) == BUILT_IN[name.lower()].directory
    assert not network
