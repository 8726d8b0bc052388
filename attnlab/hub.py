"""From a model's name to a directory with its files: the hub's cache first, then the hub."""

from __future__ import annotations

import fnmatch
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from attnlab.checkpoint import INDEX, WEIGHTS, weight_files
from attnlab.errors import (
    CheckpointError,
    DownloadError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
)
from attnlab.formats import instead, model_directory

Value = TypeVar("Value")

# The published GPT-2s: repository, and the revision of it that is read unless another is asked for.
# The revisions are those under which these repositories lie in many public caches.
PUBLISHED = {
    "gpt2": ("openai-community/gpt2", "607a30d783dfa663caf39e06633721c8d4cfcd7e"),
    "gpt2-medium": ("openai-community/gpt2-medium", "6dcaa7a952f72f9298047fd5137cd6e4f05f41da"),
    "gpt2-large": ("openai-community/gpt2-large", "32b71b12589c2f8d625668d2335a01cac3249519"),
    "gpt2-xl": ("openai-community/gpt2-xl", "15ea56dee5df4983c59b2538573817e1667135e2"),
    "distilgpt2": ("distilbert/distilgpt2", "2290a62682d06624634c1f46a6ad5be0f47f38aa"),
}
SHORT_NAMES = {repository: name for name, (repository, _) in PUBLISHED.items()}

# The small model that comes with the package, by its name and where its files are.
POCKET = "pocket"
POCKET_DIRECTORY = Path(__file__).parent / "pocket"

HOW_TO_GET_GPT2 = "python -c \"import attnlab; attnlab.GPT2.from_pretrained('gpt2')\""

# What is downloaded, and nothing else of a repository. The weights come whole or in shards.
FILES = ("config.json", "vocab.json", "merges.txt")
SHARDS = "model-*-of-*.safetensors"

# Seconds to wait for the hub's first answer. Name look-ups and connection attempts to several
# addresses have time limits of their own that add up to minutes.
PATIENCE = 8.0


def find_model(
    name_or_path: str | os.PathLike[str],
    *,
    revision: str | None = None,
    local_files_only: bool = False,
) -> Path:
    """The directory that holds a model's files.

    Parameters
    ----------
    name_or_path : "pocket" (a directory of that name is `./pocket`), or a directory, neither of
        which touches the network; else a repository on the hub, by one of the short names in
        `PUBLISHED` or as `owner/name`
    revision : branch, tag or commit on the hub
    local_files_only : never ask the network

    Raises
    ------
    MissingFileError
        It is neither a directory nor on the hub; files are missing from it; it is not in the
        cache and `local_files_only` is set.
    InvalidValueError, InvalidTypeError
        A directory has no revisions; a name is a str, a path a str or PathLike.
    DownloadError
        The hub can't be reached (told within 10 seconds), or the download broke off.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise InvalidTypeError(f"a model is told by its name or path; given {name_or_path!r}")
    path = POCKET_DIRECTORY if name_or_path == POCKET else Path(name_or_path)
    if name_or_path and os.path.isdir(path):
        if revision is not None:
            raise InvalidValueError(f"{path} is a directory, which has no revision {revision!r}")
        return model_directory(path)
    if os.path.isfile(path):
        if told := instead([path.name]):
            raise MissingFileError(f"this is a file: {told}")
        raise MissingFileError(f"{path} is a file; give the directory that holds the model's files")
    if not isinstance(name_or_path, str) or not _is_repository_name(name_or_path):
        raise MissingFileError(
            f"there is no directory {str(name_or_path)!r}, and that is no name on the hub"
        )
    choices = _choices(name_or_path, revision)
    for repository, wanted in choices:
        if (cached := _in_cache(repository, wanted)) is not None:
            return cached
    if local_files_only:
        raise MissingFileError(
            f"{name_or_path} is no directory here and not in the hub's cache, and "
            "local_files_only forbids to download it"
        )
    return _download(*choices[0])


def _is_repository_name(name: str) -> bool:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def _choices(name: str, revision: str | None) -> list[tuple[str, str | None]]:
    """Repositories and revisions that will do, the best first.

    A published model may lie in the cache under its old name (`gpt2`), or at another revision than
    the pinned one, where another tool put it. Its files are the same.
    """
    short = SHORT_NAMES.get(name, name)
    if short not in PUBLISHED:
        return [(name, revision)]
    repository, pinned = PUBLISHED[short]
    revisions = [pinned, None] if revision is None else [revision]
    return [(place, wanted) for place in (repository, short) for wanted in revisions]


def _in_cache(repository: str, revision: str | None) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(repository, "config.json", revision=revision)
    if not isinstance(config, str):
        return None
    snapshot = Path(config).parent
    return snapshot if _is_complete(snapshot) else None


def _is_complete(snapshot: Path) -> bool:
    """Whether all is there; a download may have broken off."""
    try:
        weight_files(snapshot)
    except MissingFileError:
        return False
    except CheckpointError:
        pass  # there, but wrong: the checkpoint will say so
    return all(os.path.isfile(snapshot / name) for name in FILES)


def _download(repository: str, revision: str | None) -> Path:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    not_for_you = MissingFileError(
        f"{repository} is neither a directory here nor a repository on the hub "
        "(or it is private or gated: run `hf auth login` with an account that may read it)"
    )
    try:
        info = _within(
            PATIENCE, lambda: HfApi().model_info(repository, revision=revision, timeout=5)
        )
    except RepositoryNotFoundError:  # private and gated ones too
        raise not_for_you from None
    except RevisionNotFoundError:
        raise MissingFileError(f"{repository} has no revision {revision!r} on the hub") from None
    except OfflineModeIsEnabled:
        raise DownloadError(
            f"{repository} is no directory here and not in the hub's cache, and HF_HUB_OFFLINE "
            "forbids to download it"
        ) from None
    except HfHubHTTPError as error:
        raise DownloadError(f"the hub refused {repository}: {error}") from None
    except Exception as error:  # each version of huggingface_hub has a network library of its own
        raise DownloadError(_unreachable(repository, error)) from None

    names = [file.rfilename for file in info.siblings or ()]
    missing = [name for name in FILES if name not in names]
    if not {WEIGHTS, INDEX} & set(names):
        told = instead(names)
        missing.append(WEIGHTS + f", only {told}" * bool(told))
    if missing:
        raise MissingFileError(f"{repository} on the hub has no {' and no '.join(missing)}")
    weights = [WEIGHTS] if WEIGHTS in names else [INDEX, *fnmatch.filter(names, SHARDS)]
    try:
        files = [hf_hub_download(repository, n, revision=revision) for n in (*FILES, *weights)]
    except RepositoryNotFoundError:
        raise not_for_you from None
    except Exception as error:
        raise DownloadError(
            f"the download of {repository} broke off: {error}. The files that have arrived are "
            "kept; the same call goes on with the others"
        ) from error
    snapshots = {Path(file).parent for file in files}
    if len(snapshots) > 1:
        raise DownloadError(f"{repository} changed on the hub during the download: try again")
    return snapshots.pop()


def _unreachable(repository: str, error: Exception) -> str:
    return (
        f"{repository} is no directory here, not in the hub's cache, and the hub can't be reached "
        f"({type(error).__name__}: {error}). Connect to the network and try again, or on a machine "
        f"that has it run `hf download {repository} {' '.join(FILES)} {WEIGHTS} --local-dir DIR`, "
        "copy DIR here and give its path instead of the name"
    )


def _within(seconds: float, call: Callable[[], Value]) -> Value:
    """What `call` returns or raises; a TimeoutError if it has done neither after some seconds."""
    results: list[Value] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:g} seconds")
    return results[0]
