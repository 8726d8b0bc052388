"""Downloading, by huggingface_hub itself, from a hub that runs in the test.

Most tests ask in this process, with huggingface_hub's constants set for the call. An audit hook
records every connection and name look-up, so that "no network" means none at all, and not only none
to this hub. Signals, a full disk, a terminal and what is imported take processes of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import unquote, urlsplit

import hub_calls
import pytest
from conftest import posix
from files import INDEX, WEIGHTS, contents, copy_model, digests
from huggingface_hub import constants, file_download, utils

import attnlab
from attnlab import GPT2, AttnlabError
from attnlab.checkpoints.hub import BUILT_IN, PUBLISHED

# Errors that list the built-in models.
NAMED = "The models that come with attnlab need no network: 'english', 'pocket'"

# The most seconds until an error is reported, also on a busy machine.
PATIENCE = 60

A, B, C = "a" * 40, "b" * 40, "c" * 40
PINNED = "607a30d783dfa663caf39e06633721c8d4cfcd7e"
TINY = "someone/tiny"

NEEDED = {"config.json", "vocab.json", "merges.txt"}
SHARDS = {f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)}

Process = subprocess.Popen[str]

# Other files of real repositories, which must not be downloaded.
OTHERS = (
    *("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "rust_model.ot", "64.tflite"),
    *("onnx/model.safetensors", "onnx/config.json", "README.md", ".gitattributes"),
)


class Hub(ThreadingHTTPServer):
    """The part of the Hugging Face hub's API that a model download needs.

    Attributes
    ----------
    commits : the commit and the files, by repository and revision
    log : method and path of each request
    instead : answers a request in another way and returns True, or returns False
    closing : set when the test ends
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.commits: dict[tuple[str, str], tuple[str, dict[str, bytes]]] = {}
        self.log: list[str] = []
        self.instead: Callable[[Request], bool] = lambda request: False
        self.closing = threading.Event()

    @classmethod
    @contextlib.contextmanager
    def running(cls) -> Iterator[Hub]:
        """A hub in a separate thread."""
        with cls() as hub:
            thread = threading.Thread(target=hub.serve_forever, args=(0.02,))
            thread.start()
            try:
                yield hub
            finally:
                hub.closing.set()
                hub.shutdown()
                thread.join()

    def add(
        self,
        repository: str,
        files: dict[str, bytes],
        *,
        commit: str = A,
        name: str | None = "main",
    ) -> None:
        """Publish files under a commit, and under the name of a branch or a tag."""
        for revision in {commit, name} - {None}:
            self.commits[repository, str(revision)] = commit, files

    def asked(self, method: str = "", part: str = "") -> list[str]:
        """The requested paths of one method that contain a text."""
        requests = [request.split(" ", 1) for request in self.log]
        return [path for verb, path in requests if verb.startswith(method) and part in path]

    def sent(self) -> Counter[str]:
        """How often each file was sent."""
        return Counter(
            path.split("/resolve/")[1].split("/", 1)[1] for path in self.asked("GET", "/resolve/")
        )


class Request(BaseHTTPRequestHandler):
    """One request to the hub."""

    server: Hub

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.path = urlsplit(self.path).path
        self.server.log.append(f"{self.command} {unquote(self.path)}")
        if not self.server.instead(self):
            self.answer()

    do_HEAD = do_GET

    def answer(self) -> None:
        api = re.fullmatch(r"/api/models/(.+?)(?:/(revision|tree)/([^/]+))?", self.path)
        file = re.fullmatch(r"/(.+)/resolve/([^/]+)/(.+)", self.path)
        if api:
            repository, revision = api[1], unquote(api[3] or "main")
        elif file:
            repository, revision = file[1], unquote(file[2])
        else:
            repository = revision = ""
        commits = self.server.commits
        commit, files = commits.get((repository, revision), ("", {}))
        if repository not in {name for name, _ in commits}:
            self.refuse(404, "RepoNotFound")
        elif not commit:
            self.refuse(404, "RevisionNotFound")
        elif file and file[3] not in files:
            self.refuse(404, "EntryNotFound")
        elif file:
            self.send_file(commit, files[file[3]])
        elif api and api[2] == "tree":
            sizes = {name: len(content) for name, content in files.items()}
            self.send_json(
                [{"type": "file", "path": p, "size": n, "oid": A} for p, n in sizes.items()]
            )
        else:
            siblings = [{"rfilename": name} for name in files]
            self.send_json({"id": repository, "sha": commit, "siblings": siblings})

    def send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def send_json(self, value: object) -> None:
        self.send(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def send_file(self, commit: str, content: bytes, stop: int | None = None) -> None:
        """Send a file or the requested end of it, up to `stop`, as if the connection broke.

        Large files have the hash of their content as ETag, others one that can't be checked.
        """
        hash = hashlib.sha256 if self.path.endswith(".safetensors") else hashlib.sha1
        etag = hash(content).hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": commit}
        size = len(content)
        request = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(request[1]) if request else 0
        headers["Content-Length"] = str(size - start)
        if request:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        self.send(206 if request else 200, headers, content[start:stop])

    def refuse(self, status: int, code: str = "") -> bool:
        self.send(status, {"X-Error-Code": code} if code else {}, b"")
        return True


@pytest.fixture
def hub() -> Iterator[Hub]:
    """An empty hub."""
    with Hub.running() as hub:
        yield hub


@dataclass(frozen=True)
class Outcome:
    """The outcome of one call; `has_utils` only for calls in separate processes."""

    stderr: str
    seconds: float
    network: list[list[object]]
    has_utils: bool = True
    directory: str = ""
    width: int = 0
    error: str = ""
    message: str = ""

    def check(self, error: str, *parts: str) -> None:
        """Check that the call failed with this error and these parts of the message."""
        assert self.error == error, self
        for part in parts:
            assert part in self.message

    def check_model(self, model: str) -> Path:
        """Check that the call found the whole reference model."""
        assert not self.error, self
        directory = Path(self.directory)
        actual = {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()}
        expected = contents(model)
        assert {name: actual.get(name) for name in expected} == expected
        return directory


class Client:
    """Downloads models, with its own cache and working directory.

    Attributes
    ----------
    url : of the hub
    cache : the hub's cache
    here : the working directory
    network : the connections and name look-ups of all calls
    """

    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self.home = home
        self.cache = home / "cache"
        self.here = home / "here"
        self.here.mkdir()
        self.network: list[list[object]] = []

    def ask(self, name: Any, *, offline: bool = False, **options: Any) -> Outcome:
        """Make one call in this process."""
        settings = {
            "ENDPOINT": self.url,
            "HF_HUB_CACHE": str(self.cache),
            "HF_HUB_OFFLINE": offline,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_DISABLE_TELEMETRY": True,
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": True,
        }
        template = f"{self.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        stderr = io.StringIO()
        with (
            mock.patch.multiple(constants, **settings),
            # For old versions, which import it by name.
            mock.patch.object(file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template, create=True),
            mock.patch.object(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template),
            mock.patch.dict(os.environ, NO_PROXY="*"),
            contextlib.chdir(self.here),
            contextlib.redirect_stderr(stderr),
        ):
            forget_connections()
            outcome = hub_calls.outcome(name, options)
            forget_connections()
        return self._only_here(Outcome(stderr.getvalue(), **outcome))

    def start(self, *names: str, **variables: str) -> Process:
        """A process that downloads models in turn."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not re.match(r"(?i)HF_|HUGGING|.*_PROXY$|TQDM_", name)
        }
        environment |= {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(self.home / "home"),
            "HF_HUB_CACHE": str(self.cache),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "*",
            "PYTHONUTF8": "1",
            **variables,
        }
        process = subprocess.Popen(
            [sys.executable, hub_calls.__file__],
            env=environment,
            cwd=self.here,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(names))
        process.stdin.close()
        process.stdin = None
        return process

    def ask_alone(self, *names: str, **variables: str) -> list[Outcome]:
        """Make calls in a separate process, with these environment variables."""
        with self.start(*names, **variables) as process:
            output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        return [self._only_here(Outcome(errors, **actual)) for actual in json.loads(output)]

    def _only_here(self, outcome: Outcome) -> Outcome:
        """The outcome of a call that contacted only this hub."""
        port = urlsplit(self.url).port
        assert {tuple(address[:2]) for address in outcome.network} <= {("127.0.0.1", port)}, outcome
        self.network += outcome.network
        return outcome

    def keep(
        self,
        repository: str,
        files: dict[str, bytes],
        *,
        commit: str = A,
        name: str | None = "main",
    ) -> Path:
        """Put files into the cache as huggingface_hub does; returns the snapshot's directory."""
        repository_path = self.cache / f"models--{repository.replace('/', '--')}"
        snapshot = repository_path / "snapshots" / commit
        for directory in (snapshot, repository_path / "refs", repository_path / "blobs"):
            directory.mkdir(parents=True, exist_ok=True)
        if name:
            (repository_path / "refs" / name).write_text(commit)
        for file, content in files.items():
            (snapshot / file).write_bytes(content)
        return snapshot


def forget_connections() -> None:
    """Close huggingface_hub's session, which keeps earlier settings."""
    for close in ("close_session", "reset_sessions"):  # in new versions, and in old ones
        getattr(utils, close, lambda: None)()


@pytest.fixture(scope="module", autouse=True)
def recorded() -> Iterator[None]:
    """The network requests of this process; audit hooks can't be removed, but this one is fast."""
    sys.addaudithook(hub_calls.record)
    yield
    hub_calls.recording = False


@pytest.fixture
def client(hub: Hub, tmp_path: Path) -> Client:
    return Client(hub.url, tmp_path)


@pytest.fixture
def offline_client(hub: Hub, client: Client) -> Iterator[Client]:
    """A client that must not use the network."""
    yield client
    assert hub.log == []
    assert client.network == []


def published(model: str) -> dict[str, bytes]:
    """A reference model's files, and other files of real repositories."""
    return contents(model) | dict.fromkeys(OTHERS, b"not to be downloaded")


# Downloads


@pytest.mark.parametrize(
    ("model", "weights"),
    [("odd", {WEIGHTS}), ("sharded", {INDEX, *SHARDS})],
    ids=["odd", "sharded"],
)
def test_a_model_is_downloaded_once(
    hub: Hub, client: Client, model: str, weights: set[str]
) -> None:
    hub.add(TINY, published(model))
    first = client.ask(TINY)
    directory = first.check_model(model)
    assert directory.is_relative_to(client.cache)
    assert {file.name for file in directory.iterdir()} == NEEDED | weights
    assert hub.sent() == dict.fromkeys(NEEDED | weights, 1)
    assert not [path for path in hub.asked() for other in OTHERS if path.endswith(f"/{other}")]
    assert first.stderr == "", "a progress bar where no terminal is"

    for options in ({}, {"revision": A}, {"offline": True}, {"local_files_only": True}):
        outcome = client.ask(TINY, **options)
        assert outcome.check_model(model) == directory
        assert outcome.network == []
        assert outcome.stderr == ""


def test_small_files_are_validated_before_the_weights_are_downloaded(
    hub: Hub, client: Client
) -> None:
    more = dict.fromkeys(("tokenizer_config.json", "special_tokens_map.json"), b"{}")
    hub.add(TINY, published("odd") | more)
    fine = client.ask(TINY)
    assert {file.name for file in fine.check_model("odd").iterdir()} == {WEIGHTS, *NEEDED, *more}
    fetched = [path.rpartition("/")[2] for path in hub.asked("GET", "/resolve/")]
    assert fetched[0] == "config.json"
    assert fetched[-1] == WEIGHTS

    hub.log.clear()
    config = json.loads(published("odd")["config.json"])
    wrong = {
        "someone/llama": {"config.json": json.dumps(config | {"model_type": "llama"}).encode()},
        "someone/cut": {"config.json": published("odd")["config.json"][:40]},
        "someone/gap": {"vocab.json": b'{"a": 0, "b": 0.5}'},
        "someone/few": {"config.json": json.dumps(config | {"vocab_size": 262}).encode()},
    }
    for name, files in wrong.items():
        hub.add(name, published("odd") | files)
    llama, cut, gap, few = map(client.ask, wrong)
    llama.check("ConfigError", "llama", "config.json")
    cut.check("ConfigError", "JSON")
    gap.check("VocabularyError", "integer")
    few.check("VocabularyError", "262 rows")
    assert WEIGHTS not in hub.sent()


def test_published_models_use_pinned_revisions(hub: Hub, client: Client) -> None:
    owners = {name: "uer" for name in PUBLISHED if "chinese" in name} | {"distilgpt2": "distilbert"}
    repositories = {name: f"{owners.get(name, 'openai-community')}/{name}" for name in PUBLISHED}
    assert {name: repository for name, (repository, _) in PUBLISHED.items()} == repositories
    assert PUBLISHED["gpt2"] == ("openai-community/gpt2", PINNED)
    for repository, commit in PUBLISHED.values():
        hub.add(repository, published("odd"), commit=commit, name=None)
        hub.add(repository, published("one_head"), commit=B)
    for outcome in map(client.ask, PUBLISHED):
        outcome.check_model("odd")
    for repository, commit in PUBLISHED.values():
        paths = hub.asked(part=f"/{repository}/")
        assert len(paths) > 4
        assert all(re.search(f"/(revision|tree|resolve)/{commit}(/|$)", path) for path in paths)
    hub.log.clear()
    for outcome in map(client.ask, repositories.values()):
        outcome.check_model("odd")
    assert hub.log == []


@pytest.mark.parametrize(("name", "commit"), [(TINY, A), ("gpt2", PINNED)], ids=[TINY, "gpt2"])
def test_revision_argument(hub: Hub, client: Client, name: str, commit: str) -> None:
    repository = {"gpt2": "openai-community/gpt2"}.get(name, name)
    hub.add(repository, published("odd"), commit=commit)
    hub.add(repository, published("one_head"), commit=B, name="v1/of-old")
    hub.add(repository, published("sharded"), commit=C, name="tag")
    plain, branch = client.ask(name), client.ask(name, revision="v1/of-old")
    plain.check_model("odd")
    branch.check_model("one_head")
    assert Path(branch.directory).name == B
    (ref,) = client.cache.rglob("refs/v1/of-old")
    assert ref.read_text() == B, "as huggingface_hub writes and reads it"
    tag = client.ask(name, revision="tag")
    tag.check_model("sharded")
    hub.log.clear()
    for outcome, model in zip(
        [client.ask(name, revision=x) for x in ("v1/of-old", B, "tag", C, commit, None)],
        ("one_head", "one_head", "sharded", "sharded", "odd", "odd"),
        strict=True,
    ):
        outcome.check_model(model)
    assert hub.log == []


def test_files_are_of_one_commit_though_the_branch_moves(hub: Hub, client: Client) -> None:
    hub.add(TINY, published("odd"), commit=B)

    def move(request: Request) -> bool:
        if request.path.endswith("/vocab.json"):  # after config.json
            hub.add(TINY, published("one_head"), commit=C)
        return False

    hub.instead = move
    assert client.ask(TINY).check_model("odd").name == B


# Cached models


@pytest.mark.parametrize(
    ("repository", "commit", "name"),
    [
        ("gpt2", A, "main"),
        ("gpt2", PINNED, None),
        ("openai-community/gpt2", A, "main"),
        ("openai-community/gpt2", PINNED, None),
    ],
)
def test_models_cached_by_other_tools_open(
    offline_client: Client, repository: str, commit: str, name: str | None
) -> None:
    snapshot = offline_client.keep(repository, contents("odd"), commit=commit, name=name)
    before = digests(snapshot)
    for outcome in map(offline_client.ask, ("gpt2", "openai-community/gpt2")):
        assert outcome.check_model("odd") == snapshot
    assert digests(snapshot) == before


def test_cached_models_open_without_network_code(offline_client: Client) -> None:
    """Importing huggingface_hub takes twenty times as long as opening the model."""
    offline_client.keep("openai-community/gpt2", contents("odd"), commit=PINNED)
    [outcome] = offline_client.ask_alone("gpt2")
    outcome.check_model("odd")
    assert not outcome.has_utils


def test_pinned_revision_takes_precedence_in_the_cache(client: Client) -> None:
    client.keep("gpt2", contents("one_head"), commit=B)
    client.keep("openai-community/gpt2", contents("one_head"), commit=A)
    client.keep("openai-community/gpt2", contents("odd"), commit=PINNED, name=None)
    outcome = client.ask("gpt2")
    outcome.check_model("odd")


@pytest.mark.parametrize(
    ("model", "directory", "commit", "branch"),
    [
        ("odd", "gpt2", A, "main"),
        ("sharded", "gpt2", PINNED, None),
        ("sharded", "openai-community/gpt2", A, "main"),
        ("odd", "openai-community/gpt2", PINNED, None),
    ],
)
def test_incomplete_cached_models_are_completed_in_place(
    hub: Hub, client: Client, model: str, directory: str, commit: str, branch: str | None
) -> None:
    """The cache left by transformers' GPT2LMHeadModel.from_pretrained, under either name."""
    files = contents(model)
    vocabulary = {"vocab.json", "merges.txt"}
    hub.add("openai-community/gpt2", published("one_head"), commit=B)
    for repository in ("openai-community/gpt2", "gpt2"):  # the hub knows it by both names
        hub.add(repository, published(model), commit=commit, name=None)
    kept = {file: content for file, content in files.items() if file not in vocabulary}
    snapshot = client.keep(directory, kept, commit=commit, name=branch)
    names = ("gpt2", "openai-community/gpt2")
    lacking = f"{snapshot}, without vocab.json and merges.txt, and"
    for name in names:
        client.ask(name, offline=True).check("DownloadError", f"{lacking} HF_HUB_OFFLINE prevents")
        local = client.ask(name, local_files_only=True)
        local.check("MissingFileError", f"{lacking} local_files_only=True prevents")
    for outcome in map(client.ask, names):
        assert outcome.check_model(model) == snapshot
    assert hub.sent() == dict.fromkeys(vocabulary, 1)
    assert [actual.name for actual in client.cache.glob("models--*")] == [snapshot.parts[-3]]


@pytest.mark.parametrize("model", ["odd", "sharded"])
def test_an_incomplete_snapshot_is_completed(hub: Hub, client: Client, model: str) -> None:
    """One file is a broken link, in a separate repository for each."""
    files = contents(model)
    repositories = {name: f"someone/without-{i}" for i, name in enumerate(files)}
    for missing, repository in repositories.items():
        hub.add(repository, published(model))
        kept = {name: content for name, content in files.items() if name != missing}
        (client.keep(repository, kept) / missing).symlink_to("../../blobs/gone")
    outcomes = map(client.ask, repositories.values())
    for missing, outcome in zip(files, outcomes, strict=True):
        assert not outcome.error, missing
        outcome.check_model(model)
    assert hub.sent() == dict.fromkeys(files, 1)


# What the hub doesn't have


def test_unknown_repositories_and_revisions(hub: Hub, client: Client) -> None:
    for outcome in (client.ask("someone/else"), client.ask("gpt-3")):
        outcome.check("MissingFileError", "neither a directory nor a repository on the hub", NAMED)
    assert outcome.message.startswith("gpt-3 ")
    assert len(hub.log) == 2
    hub.add(TINY, published("odd"))
    outcome = client.ask(TINY, revision="v2")
    outcome.check("MissingFileError", TINY, "has no revision 'v2'")
    assert hub.sent() == {}


def refusing(status: int, code: str = "", part: str = "") -> Callable[[Request], bool]:
    """Refuse the requests whose path contains a part."""
    return lambda request: part in request.path and request.refuse(status, code)


MISSING = "MissingFileError"


@pytest.mark.parametrize(
    ("instead", "error", "words"),
    [
        # The hub's answer for a private repository, or a missing one, without login.
        (refusing(401, "RepoNotFound"), MISSING, ("private", "hf auth login")),
        # The files of a gated one are listed, but can't be downloaded.
        (refusing(401, "GatedRepo", "/resolve/"), MISSING, ("gated", "hf auth login")),
        (refusing(403, "GatedRepo", "/resolve/"), MISSING, ("gated", "hf auth login")),
        *(
            (refusing(status), "DownloadError", ("the hub refused", str(status)))
            for status in (429, 500, 503)
        ),
    ],
)
def test_refused_access(
    hub: Hub, client: Client, instead: Any, error: str, words: tuple[str, ...]
) -> None:
    hub.add(TINY, published("odd"))
    hub.instead = instead
    outcome = client.ask(TINY)
    outcome.check(error, TINY, *words)
    assert outcome.seconds < PATIENCE
    if "gated" in words:
        assert "repeat the call" not in outcome.message


@pytest.mark.parametrize(
    "missing", [[WEIGHTS], ["vocab.json"], ["config.json"], ["vocab.json", "merges.txt"]]
)
def test_repository_with_missing_files(hub: Hub, client: Client, missing: list[str]) -> None:
    hub.add(TINY, {name: file for name, file in published("odd").items() if name not in missing})
    outcome = client.ask(TINY)
    outcome.check("MissingFileError", f"{TINY} on the hub has no {' and no '.join(missing)}")
    for advice in ("pickle", "save_pretrained"):  # of the pickle beside them
        assert (advice in outcome.message) == (missing == [WEIGHTS])
    assert not hub.asked(part="/resolve/")
    assert not client.cache.exists()


# Unreachable hubs and broken connections


def check_unreachable(outcome: Outcome, name: str, repository: str) -> None:
    outcome.check("DownloadError", f"{name} is neither a directory", "can't be reached")
    outcome.check("DownloadError", "HF_ENDPOINT", "HF_HUB_OFFLINE")
    download = f"`hf download {repository} config.json vocab.json merges.txt {WEIGHTS} --local-dir"
    assert download in outcome.message
    assert outcome.seconds < PATIENCE


def test_unreachable_hub(client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        client.url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    tiny, gpt2 = map(client.ask, (TINY, "gpt2"))
    check_unreachable(tiny, TINY, TINY)
    check_unreachable(gpt2, "gpt2", "openai-community/gpt2")


def test_unresponsive_hub(hub: Hub, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer, or a line now and then, so that no socket times out."""

    def stall(request: Request) -> bool:
        if "slow" not in request.path:
            return hub.closing.wait()
        request.wfile.write(b"HTTP/1.0 200 OK\r\n")
        with contextlib.suppress(OSError):  # once the client has given up
            while not hub.closing.wait(0.1):
                request.wfile.write(b"X-Wait: yes\r\n")
        return True

    hub.instead = stall
    assert attnlab.checkpoints.hub.TIMEOUT < 10
    monkeypatch.setattr(attnlab.checkpoints.hub, "TIMEOUT", 0.2)
    before = {*threading.enumerate()}
    for name in ("someone/silent", "someone/slow"):
        outcome = client.ask(name)
        check_unreachable(outcome, name, name)
        assert "no answer within 0.2 seconds" in outcome.message
    # The threads that still wait would close the next test's connection when theirs ends.
    hub.closing.set()
    for thread in {*threading.enumerate()} - before:
        thread.join(PATIENCE)


@pytest.mark.parametrize(
    ("model", "file"), [("odd", WEIGHTS), ("sharded", "model-00002-of-00003.safetensors")]
)
def test_broken_downloads_are_resumed(
    hub: Hub, client: Client, model: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # before it tries again

    def break_off(request: Request) -> bool:
        if request.command != "GET" or not request.path.endswith(f"/{file}"):
            return False
        if hub.sent()[file] == 1:
            content = contents(model)[file]
            request.send_file(A, content, stop=len(content) // 2)
        else:
            request.refuse(503)
        return True

    hub.add(TINY, published(model))
    hub.instead = break_off
    broken = client.ask(TINY)
    broken.check("DownloadError", f"the download of {TINY} failed", "repeat the call")
    assert hub.sent()[file] >= 1
    snapshot = client.cache / "models--someone--tiny" / "snapshots" / A
    missing = [name for name in contents(model) if not (snapshot / name).exists()]
    assert file in missing
    assert "config.json" not in missing

    hub.instead = lambda request: False
    hub.log.clear()
    outcome = client.ask(TINY)
    assert outcome.check_model(model) == snapshot
    assert hub.sent() == dict.fromkeys(missing, 1)


@posix
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_interrupted_download(hub: Hub, client: Client, number: int) -> None:
    """Downloaded files are kept; the next call fetches the rest."""
    hub.add(TINY, published("odd"))
    arrived = threading.Event()

    def stall(request: Request) -> bool:
        if request.command != "GET" or not request.path.endswith(WEIGHTS):
            return False
        arrived.set()
        return hub.closing.wait()

    hub.instead = stall
    with client.start(TINY) as process:
        assert arrived.wait(60)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -number
    assert errors.strip().endswith("KeyboardInterrupt" if number == signal.SIGINT else "")
    hub.log.clear()
    hub.instead = lambda request: False
    outcome = client.ask(TINY)
    outcome.check_model("odd")
    assert hub.sent() == {WEIGHTS: 1}


@pytest.mark.slow
@posix
def test_full_disk_during_download(hub: Hub, client: Client) -> None:
    hub.add(TINY, published("odd"))
    room = len(contents("odd")[WEIGHTS]) - 1
    [outcome] = client.ask_alone(TINY, LARGEST_FILE=str(room))
    outcome.check("WriteError", f"{WEIGHTS} can't be written")


def test_paths_outside_the_cache_are_rejected(hub: Hub, client: Client) -> None:
    hub.add(TINY, published("odd"), commit="../../../evil")
    commit = client.ask(TINY)
    commit.check("DownloadError", "invalid commit")
    assert not list(client.home.rglob("evil*"))


def test_hub_that_disappears_after_its_first_response(hub: Hub, client: Client) -> None:
    """An incomplete cache isn't taken for the whole model."""

    def refuse_later(request: Request) -> bool:
        return len(hub.log) > 1 and request.refuse(403)

    hub.add(TINY, published("odd"))
    hub.instead = refuse_later
    client.keep(TINY, {"config.json": contents("odd")["config.json"]})
    outcome = client.ask(TINY)
    outcome.check("DownloadError", f"the download of {TINY} failed")
    assert len(hub.log) > 1


# Invalid names on the hub


def test_opening_a_directory_never_uses_the_network(hub: Hub, client: Client) -> None:
    directories: list[Path] = [copy_model("odd", client.here / TINY)]
    for name in ("config.json", "vocab.json", "merges.txt", WEIGHTS):
        directory = copy_model("odd", client.home / f"without-{name}")
        (directory / name).unlink()
        directories.append(directory)
    hub.add(TINY, published("one_head"))
    places: list[str | Path] = [TINY, *directories, *map(str, directories)]
    outcomes = list(map(client.ask, places))
    client.url = "http://127.0.0.1:9"  # no server listens there
    outcomes += map(client.ask, places)
    for model_directory, outcome in zip(places * 2, outcomes, strict=True):
        assert outcome.network == []
        if "without-" in str(model_directory):
            missing = str(model_directory).split("without-")[1]
            outcome.check("MissingFileError", str(model_directory), missing)
        else:
            assert not outcome.error
            assert outcome.directory == str(model_directory)
            assert outcome.width == 35
    assert hub.log == []


def test_what_needs_no_network(offline_client: Client) -> None:
    """Missing models offline, directories and files, and the pocket model, also as paths."""
    ask, directory = offline_client.ask, copy_model("odd", offline_client.home / "odd")
    ask(TINY, offline=True).check(
        "DownloadError",
        f"{TINY} is neither a directory",
        "HF_HUB_OFFLINE prevents",
        NAMED,
    )
    for local in (
        ask("gpt2", local_files_only=True),
        ask(TINY, local_files_only=True, revision="main"),
    ):
        local.check("MissingFileError", "nor in the hub's cache", "local_files_only")
    file, gone = directory / WEIGHTS, offline_client.home / "gone"
    for kind in (str, Path):
        revised = ask(kind(directory), revision="main")
        revised.check("InvalidValueError", str(directory), "with a directory")
        ask(kind(file)).check("MissingFileError", f"{file} is a file", "directory")
    for path in (Path(TINY), Path("gpt2"), gone):  # not names of repositories
        ask(path).check("MissingFileError", f"there is no directory {str(path)!r}")
    for name in ("pocket", "Pocket", "POCKET"):
        assert ask(name).directory == str(BUILT_IN["pocket"].directory)


def test_invalid_revisions(offline_client: Client) -> None:
    for value in ("", "../../x", "a b", "a\x07", "x" * 1000, "/x", 5, ["main"], True):
        outcome = offline_client.ask(TINY, revision=value)
        kind = "InvalidValueError" if isinstance(value, str) else "InvalidTypeError"
        outcome.check(kind, "revision must be")
        assert outcome.message.isprintable()
        assert len(outcome.message) < 300


@pytest.mark.parametrize(
    "name",
    [5, None, True, 10**5000, [], b"gpt2", "", "a\0b", "\ud800"],
    ids=lambda name: type(name).__name__,
)
def test_names_of_the_wrong_type(name: Any) -> None:
    with pytest.raises(AttnlabError, match="a model's name or path") as message:
        GPT2.from_pretrained(name)
    assert isinstance(message.value, ValueError if isinstance(name, str) else TypeError)
    assert str(message.value).isprintable()
    assert len(str(message.value)) < 200


def test_invalid_repository_names(offline_client: Client) -> None:
    """Also if the working directory has a model."""
    client = offline_client
    copy_model("odd", client.here)
    names = ("a/b/c", "../x", "/nowhere/x", "~/x", "a b", "x..y", "x.git", "x\x1b[31m", "\u202e")
    for name in names:
        outcome = client.ask(name)
        outcome.check("MissingFileError", "nor a valid name on the hub", repr(name), NAMED)
        assert outcome.message.isprintable()
    long = client.ask("the hen in " * 40)
    long.check("MissingFileError", "nor a valid name on the hub", "the hen in the hen")
    assert len(long.message) < 400
