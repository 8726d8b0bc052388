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
from collections import Counter
from collections.abc import Callable, Iterator
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

# Other files of real repositories, which must not be downloaded.
OTHERS = ("pytorch_model.bin", "tf_model.h5", "onnx/model.safetensors", "README.md")

Files = dict[str, bytes]


class Hub(ThreadingHTTPServer):
    """The part of the Hugging Face hub's API that a model download needs."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        # The commit and the files, by repository and revision; the paths of requests for contents.
        self.commits: dict[tuple[str, str], tuple[str, Files]] = {}
        self.log: list[str] = []
        # Answers a request in another way and returns True, or returns False.
        self.instead: Callable[[Request], object] = lambda request: False
        self.closing = threading.Event()  # set when the test ends

    def add(self, repository: str, files: Files, commit: str = A, name: str = "main") -> None:
        """Publish files under a commit, and under the name of a branch or a tag."""
        for revision in (commit, name):
            self.commits[repository, revision] = commit, files

    def sent(self) -> Counter[str]:
        """How often each file was requested."""
        paths = [path.split("/resolve/")[1] for path in self.log if "/resolve/" in path]
        return Counter(path.split("/", 1)[1] for path in paths)


class Request(BaseHTTPRequestHandler):
    """One request to the hub."""

    server: Hub

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.path = unquote(self.path.partition("?")[0])
        if self.command == "GET":
            self.server.log.append(self.path)
        if not self.server.instead(self):
            self.answer()

    do_HEAD = do_GET

    def answer(self) -> None:
        match = re.fullmatch(r"/(?:api/models/)?(.+?)(?:/(?:revision|resolve)/(.+))?", self.path)
        assert match is not None
        repository, rest = match[1], match[2] or "main"
        revisions = [revision for name, revision in self.server.commits if name == repository]
        revision = next((r for r in revisions if f"{rest}/".startswith(f"{r}/")), "")
        if not revision:
            self.send(404, {"X-Error-Code": "RevisionNotFound" if revisions else "RepoNotFound"})
            return
        commit, files = self.server.commits[repository, revision]
        if self.path.startswith("/api/"):
            siblings = [{"rfilename": name} for name in files]
            content = json.dumps({"id": repository, "sha": commit, "siblings": siblings}).encode()
            self.send(200, {"Content-Type": "application/json"}, content)
            return
        # Large files have the hash of their content as ETag, which is checked.
        content = files[rest.removeprefix(f"{revision}/")]
        hash = hashlib.sha256 if self.path.endswith(".safetensors") else hashlib.sha1
        self.send(200, {"ETag": f'"{hash(content).hexdigest()}"', "X-Repo-Commit": commit}, content)

    def send(self, status: int, headers: dict[str, str], content: bytes = b"") -> bool:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)
        return True


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
        thread = threading.Thread(target=hub.serve_forever, args=(0.02,))
        thread.start()
        use_endpoint(monkeypatch, f"http://127.0.0.1:{hub.server_address[1]}")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("NO_PROXY", "*")
        monkeypatch.chdir(tmp_path)
        network.clear()
        yield hub
        forget_connections()
        hub.closing.set()
        hub.shutdown()
        thread.join()


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
    return contents(model) | dict.fromkeys(OTHERS, b"not to be downloaded")


def keep(repository: str, files: Files, commit: str = A, name: str | None = "main") -> Path:
    """Put files into the cache as huggingface_hub does; returns the snapshot's directory."""
    cache = Path(constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"
    snapshot = cache / "snapshots" / commit
    for directory in (snapshot, cache / "refs"):
        directory.mkdir(parents=True, exist_ok=True)
    if name:
        (cache / "refs" / name).write_text(commit)
    for file, content in files.items():
        (snapshot / file).write_bytes(content)
    return snapshot


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
    assert hub.sent() == dict.fromkeys(contents(model), 1)
    assert next(iter(hub.sent())) == "config.json"
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
    assert WEIGHTS not in hub.sent()


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_are_pinned(hub: Hub, name: str) -> None:
    repository, commit = PUBLISHED[name]
    hub.add(repository, published("odd"), commit, name="old")
    hub.add(repository, published("one_head"), B)
    assert opened(name, "odd").name == commit
    network.clear()
    assert opened(repository, "odd").name == commit
    assert not network


@pytest.mark.parametrize(("name", "repository"), [(TINY, TINY), ("gpt2", REPOSITORY)])
def test_revisions(hub: Hub, name: str, repository: str) -> None:
    hub.add(repository, published("one_head"), B, name="v1/of-old")
    assert opened(name, "one_head", revision="v1/of-old").name == B
    network.clear()
    for revision in ("v1/of-old", B):
        opened(name, "one_head", revision=revision)
    assert not network


@pytest.mark.parametrize(("commit", "name"), [(A, "main"), (PINNED, None)])
def test_models_cached_by_other_tools(
    hub: Hub, commit: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole ones open without the network; of incomplete ones, what is missing is downloaded."""
    hub.add(REPOSITORY, published("odd"), PINNED)
    weights = {name: file for name, file in contents("odd").items() if name not in VOCABULARY}
    snapshot = keep(REPOSITORY, weights, commit, name)
    (snapshot / "merges.txt").symlink_to("../../blobs/gone")
    without = "without vocab.json and merges.txt, and"
    with pytest.raises(AttnlabError, match=f"{without} local_files_only=True prevents"):
        GPT2.from_pretrained("gpt2", local_files_only=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(AttnlabError, match=f"{without} HF_HUB_OFFLINE prevents"):
        GPT2.from_pretrained("gpt2")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert not network
    opened("gpt2", "odd")
    wanted = contents("odd") if name else VOCABULARY  # of the pinned revision, only what is missing
    assert hub.sent() == dict.fromkeys(wanted, 1)
    network.clear()
    opened(REPOSITORY, "odd")
    assert not network


def test_cached_models_open_without_network_code(hub: Hub) -> None:
    """Importing huggingface_hub takes twenty times as long as opening the model."""
    keep(REPOSITORY, contents("odd"), PINNED)
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
    assert hub.sent() == {}


def check_refused(name: Any, error: str, *words: str, **options: Any) -> None:
    with pytest.raises(AttnlabError) as refusal:
        GPT2.from_pretrained(name, **options)
    assert type(refusal.value).__name__ == error
    message = str(refusal.value)
    assert [word for word in words if word not in message] == [], message
    assert message.isprintable()


def refusing(status: int, code: str = "", part: str = "") -> Callable[[Request], object]:
    """Refuse the requests whose path contains a part."""
    headers = {"X-Error-Code": code} if code else {}
    return lambda request: part in request.path and request.send(status, headers)


@pytest.mark.parametrize(
    ("instead", "error", "words"),
    [
        # The hub's answer for a private repository, or a missing one, without login.
        (refusing(401, "RepoNotFound"), MISSING, ("private", "hf auth login")),
        # The files of a gated one are listed, but can't be downloaded.
        (refusing(403, "GatedRepo", "/resolve/"), "DownloadError", ("gated", "hf auth login")),
        (refusing(429), "DownloadError", ("the hub refused", "429")),
        (refusing(403, part="/merges"), "DownloadError", ("failed at merges.txt", "repeat the")),
    ],
)
def test_refused_access(hub: Hub, instead: Any, error: str, words: tuple[str, ...]) -> None:
    hub.add(TINY, published("odd"))
    hub.instead = instead
    check_refused(TINY, error, TINY, *words)
    hub.instead = lambda request: False
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
    assert hub.sent() == {}


# Networks that fail


UNREACHABLE = (
    *(f"{TINY} is neither a directory", "can't be reached", "HF_ENDPOINT"),
    f"`hf download {TINY} config.json",
)


def test_unreachable_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.instead = lambda request: hub.closing.wait(60)  # it doesn't answer
    monkeypatch.setattr(hub_module, "TIMEOUT", 0.2)
    check_refused(TINY, "DownloadError", *UNREACHABLE)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        use_endpoint(monkeypatch, f"http://127.0.0.1:{closed.getsockname()[1]}")
    check_refused(TINY, "DownloadError", *UNREACHABLE)
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
