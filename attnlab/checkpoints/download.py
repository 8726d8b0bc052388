"""One file after the other from the Hugging Face hub into its cache.

Nothing is waited for without a limit, and nothing that has arrived is thrown away: a file that
broke off is gone on with at the byte where it stopped, by the same call or by the next one.

The cache is huggingface_hub's, laid out as it does it, so that other tools find the files there:
`blobs/ETAG` is a file's content, `snapshots/COMMIT/NAME` a link to it, `refs/main` a branch's
commit. What is on its way is `blobs/ETAG.incomplete`.

Source: huggingface_hub's guide "Understand caching".
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from attnlab.errors import DownloadError, MissingFileError, WriteError
from attnlab.support.files import make_directory
from attnlab.support.tables import printable

Value = TypeVar("Value")

# Seconds to wait for the hub's first answer. Name look-ups and connection attempts to several
# addresses have time limits of their own that add up to minutes.
PATIENCE = 8.0

# Seconds without one more byte, after which a download is given up.
SILENCE = 30.0

# What a socket waits for at most, so that a thread that was given up ends too.
SOCKET_TIMEOUT = 10.0

HOW_TO_REACH_IT = (
    "Connect to the network and try again; where a mirror of the hub can be reached, put its "
    "address into HF_ENDPOINT; HF_HUB_OFFLINE=1 looks in the cache alone"
)

COMMIT = re.compile(r"[0-9a-f]{40}")


def cache_of(repository: str) -> Path:
    """Where in the hub's cache a repository's files are."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"


def listing(
    repository: str, revisions: Sequence[str | None], lacking: str
) -> tuple[str, list[str]]:
    """The commit of a repository on the hub, and the names of its files.

    Parameters
    ----------
    revisions : of which the first that is there is taken; None for the main branch
    lacking : why the hub is asked, as an error begins that tells that it can't be

    Raises
    ------
    MissingFileError
        There is no such repository or revision, or it is not for everybody.
    DownloadError
        The hub refused, or can't be reached, which is told after `PATIENCE`.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    revision, *others = revisions
    try:
        info = within(
            PATIENCE, lambda: HfApi().model_info(repository, revision=revision, timeout=5)
        )
    except RepositoryNotFoundError:  # private and gated ones too
        raise not_for_you(repository) from None
    except RevisionNotFoundError:
        if others:
            return listing(repository, others, lacking)
        raise MissingFileError(
            f"{repository} has no revision {revision!r} on the hub, which knows branches, tags, "
            "and commits by all their 40 characters"
        ) from None
    except OfflineModeIsEnabled:
        raise DownloadError(f"{lacking}, and HF_HUB_OFFLINE forbids to download it") from None
    except HfHubHTTPError as error:
        raise DownloadError(f"the hub refused {repository}: {_short(error)}") from None
    except Exception as error:  # each version of huggingface_hub has a network library of its own
        raise DownloadError(
            f"{lacking}, and the hub can't be reached ({type(error).__name__}: {_short(error)}). "
            f"{HOW_TO_REACH_IT}; or on a machine that has the network run `hf download "
            f"{repository} config.json vocab.json merges.txt model.safetensors --local-dir DIR`, "
            "copy DIR here and give its path instead of the name"
        ) from None
    commit = str(info.sha)
    if not COMMIT.fullmatch(commit):
        raise DownloadError(f"the hub says that {repository} is at {commit!r:.200}, no commit")
    return commit, [file.rfilename for file in info.siblings or ()]


def fetch(repository: str, commit: str, name: str, cache: Path) -> None:
    """Bring one file of a commit into a cache's snapshot; of what arrived before, only the rest.

    Raises
    ------
    MissingFileError
        The repository is not for everybody.
    DownloadError
        It broke off, no byte came for `SILENCE` seconds, or what came is not what the hub says.
    WriteError
        The cache can't be written to, or has no room.
    """
    from huggingface_hub.errors import RepositoryNotFoundError

    if os.path.isfile(cache / "snapshots" / commit / name):
        return
    download = Download(repository, commit, name, cache)
    try:
        within(SILENCE, download.run, download.progress)
    except RepositoryNotFoundError:
        raise not_for_you(repository) from None
    except WriteError:
        raise
    except Exception as error:
        raise DownloadError(
            f"the download of {repository} broke off at {name}: {_short(error)}. What has arrived "
            "is kept; the same call goes on from there"
        ) from error
    finally:
        download.given_up = True


class Download:
    """A file on its way into a cache.

    Parameters
    ----------
    repository, commit, name : which file
    cache : the repository's directory in the hub's cache

    Attributes
    ----------
    given_up : set when nobody waits for it any more; it then ends and writes nothing more
    """

    def __init__(self, repository: str, commit: str, name: str, cache: Path) -> None:
        self.repository, self.commit, self.name, self.cache = repository, commit, name, cache
        self.given_up = False
        self._checked = 0

    def progress(self) -> tuple[int, int]:
        """What grows while something happens, in this process or in one that is waited for."""
        arriving = (self.cache / "blobs").glob("*.incomplete")
        return self._checked, sum(_size(file) for file in arriving)

    def run(self) -> None:
        """Fetch it, check it, and give it its place."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        url = hf_hub_url(self.repository, self.name, revision=self.commit)
        metadata = get_hf_file_metadata(url, timeout=SOCKET_TIMEOUT)
        etag, size = metadata.etag or "", metadata.size
        if size is None or not re.fullmatch(r"\w[\w.-]{0,199}", etag):
            raise DownloadError(f"the hub says size {size}, ETag {etag!r:.200}")
        blob = self.cache / "blobs" / etag
        locks = self.cache.parent / ".locks" / self.cache.name
        for directory in (blob.parent, locks):
            make_directory(directory)
        with _utils().WeakFileLock(locks / f"{etag}.lock"):
            if not blob.exists():
                arriving = blob.with_name(f"{etag}.incomplete")
                self._receive(url, arriving, size)
                self._check(arriving, etag)
                os.replace(arriving, blob)
            place(blob, self.cache / "snapshots" / self.commit / self.name)

    def _receive(self, url: str, path: Path, size: int) -> None:
        """Append to a file what it lacks; a connection that breaks is renewed if it brought any."""
        tqdm = _utils().tqdm
        try:
            file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed below)
        except OSError as error:
            raise WriteError(f"{path} can't be written: {error}") from None
        import shutil  # here, as it brings all that unpacks archives

        with file, tqdm(total=size, desc=self.name, unit="B", unit_scale=True, disable=None) as bar:
            while (start := file.seek(0, os.SEEK_END)) != size:
                if start > size:
                    file.truncate(start := 0)
                room = shutil.disk_usage(path.parent).free
                if room < size - start:
                    raise WriteError(
                        f"{self.name} needs {size - start:,} bytes more, and {path.parent} has "
                        f"room for {room:,}"
                    )
                bar.n = start
                broken: Exception | None = None
                try:
                    with _answer(url, start) as (goes_on, chunks):
                        if not goes_on:
                            file.truncate(0)
                        for chunk in chunks:
                            if self.given_up:
                                raise TimeoutError("nobody waits for it any more")
                            file.write(chunk)
                            bar.update(len(chunk))
                except Exception as error:
                    broken = error
                if self.given_up or not start < _size(path) <= size:
                    raise broken or DownloadError(f"the hub sent other than {size:,} bytes")

    def _check(self, path: Path, etag: str) -> None:
        """Whether a large file is what the hub says, whose ETag is then its content's SHA-256."""
        if not re.fullmatch("[0-9a-f]{64}", etag):
            return
        import hashlib  # here, so that only who needs it waits for OpenSSL

        digest = hashlib.sha256()
        with open(path, "rb") as file:
            while chunk := file.read(2**20):
                digest.update(chunk)
                self._checked += len(chunk)
        if digest.hexdigest() != etag:
            path.unlink()
            raise DownloadError("what arrived has another SHA-256 than the hub says, and is gone")


@contextmanager
def _answer(url: str, start: int) -> Iterator[tuple[bool, Iterator[bytes]]]:
    """Whether the hub goes on from a byte or begins anew, and the bytes as they arrive."""
    from huggingface_hub import get_session

    utils = _utils()
    headers = utils.build_hf_headers() | {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    session: Any = get_session()
    if callable(session.stream):  # httpx, from huggingface_hub 1 on; requests has a flag there
        with session.stream("GET", url, headers=headers, timeout=SOCKET_TIMEOUT) as response:
            utils.hf_raise_for_status(response)
            yield response.status_code == 206, response.iter_bytes()
    else:
        with session.get(url, headers=headers, stream=True, timeout=SOCKET_TIMEOUT) as response:
            utils.hf_raise_for_status(response)
            yield response.status_code == 206, response.iter_content(2**10)


def _utils() -> Any:
    """huggingface_hub's tools, of which not every version tells the types."""
    from huggingface_hub import utils

    return utils


def place(blob: Path, file: Path) -> None:
    """Let a snapshot's file be a link to its content, or the content where links can't be made."""
    make_directory(file.parent)
    try:
        os.symlink(os.path.relpath(blob, file.parent), file)
    except OSError:
        os.replace(blob, file)


def name_commit(cache: Path, revision: str, commit: str) -> None:
    """Remember which commit a branch or tag is."""
    if revision != commit:
        ref = cache / "refs" / revision
        make_directory(ref.parent)
        ref.write_text(commit)


def not_for_you(repository: str) -> MissingFileError:
    return MissingFileError(
        f"{repository} is neither a directory here nor a repository on the hub "
        "(or it is private or gated: run `hf auth login` with an account that may read it)"
    )


def within(
    seconds: float, call: Callable[[], Value], progress: Callable[[], object] = lambda: None
) -> Value:
    """What `call` returns or raises; a TimeoutError if it does neither, and nothing progresses.

    It runs in a thread, and Ctrl-C is heard meanwhile.

    Parameters
    ----------
    seconds : after which without a change in `progress()` it is given up
    """
    results: list[Value] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    seen, since = progress(), time.monotonic()
    while thread.is_alive():
        thread.join(0.1)
        if (now := progress()) != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > seconds:
            raise TimeoutError(f"no answer within {seconds:g} seconds")
    if errors:
        raise errors[0]
    return results[0]


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # it has just got its place
        return 0


def _short(error: Exception) -> str:
    """What an error says, in so far as it can be printed, and no more than a few lines of it."""
    text = printable(" ".join(str(error).split()))
    return text if len(text) <= 300 else f"{text[:300]} …"
