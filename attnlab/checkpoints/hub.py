"""From a model's name to a directory with its files: the hub's cache first, then the hub.

huggingface_hub downloads one file after the other into its cache. Asked here is only what is to be
downloaded, and whether the hub answers at all.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from attnlab.checkpoints.checkpoint import (
    WEIGHTS,
    check_variant,
    index_name,
    shard_names,
    weights_name,
)
from attnlab.errors import (
    CheckpointError,
    DownloadError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    WriteError,
    quoted,
)
from attnlab.forward.config import GPT2Config
from attnlab.support.checks import as_flag
from attnlab.support.files import as_path, make_directory
from attnlab.support.formats import model_directory, unsupported
from attnlab.support.tables import printable
from attnlab.text.tokenizer import Tokenizer

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
POCKET_DIRECTORY = Path(__file__).parents[1] / "pocket"

HOW_TO_GET_GPT2 = "attnlab download gpt2"

# What is downloaded before the weights where a repository has it, and nothing else of it.
CONFIG = "config.json"
VOCABULARIES = (("vocab.json", "merges.txt"), ("tokenizer.json",), ("vocab.txt",))
SMALL = (
    CONFIG,
    *(name for vocabulary in VOCABULARIES for name in vocabulary),
    *("tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"),
)

# A repository's page on the hub, as it is copied from a browser.
ADDRESS = re.compile(
    r"https?://(?P<host>[^/]+)/(?P<name>[^/?#]+(/[^/?#]+)?)(/tree/(?P<revision>[^/?#]+))?/?([?#].*)?"
)
HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")

COMMIT = re.compile(r"[0-9a-f]{40}")
SHORT_COMMIT = re.compile(r"[0-9a-f]{7,39}")

# Seconds to wait for the hub's first answer. Name look-ups and connection attempts to several
# addresses have time limits of their own, which add up to minutes.
PATIENCE = 8.0

HOW_TO_REACH_IT = (
    "Connect to the network and try again; where a mirror of the hub can be reached, put its "
    "address into HF_ENDPOINT; HF_HUB_OFFLINE=1 looks in the cache alone"
)

# What the system says of a disk that can't be written to.
UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def find_model(
    name_or_path: str | os.PathLike[str],
    *,
    revision: str | None = None,
    variant: str | None = None,
    local_files_only: bool = False,
) -> Path:
    """The directory that holds a model's files.

    Parameters
    ----------
    name_or_path : "pocket" (a directory of that name is `./pocket`), or a directory, neither of
        which touches the network; else a repository on the hub, by one of the short names in
        `PUBLISHED`, as `owner/name`, or by its address
    revision : branch, tag or commit on the hub; of what is in the cache, also a commit's first
        7 characters or more
    variant : of the weights, such as "fp16" for model.fp16.safetensors
    local_files_only : never ask the network

    Raises
    ------
    DownloadError
        The hub can't be reached: reported within 10 seconds.
    """
    local_files_only = as_flag(local_files_only, "local_files_only")
    _check_revision(revision)
    check_variant(variant)
    is_pocket = isinstance(name_or_path, str) and name_or_path.lower() == POCKET
    path = POCKET_DIRECTORY if is_pocket else as_path(name_or_path, "a model's name or path")
    if os.path.isdir(path):
        if revision is not None:
            raise InvalidValueError(
                f"{path} is a directory, which has no revision {quoted(revision)}"
            )
        return model_directory(path)
    if os.path.isfile(path):
        if told := unsupported([path.name]):
            raise MissingFileError(f"this is a file: {told}")
        raise MissingFileError(f"{path} is a file; give the directory that holds the model's files")
    if not isinstance(name_or_path, str):
        raise MissingFileError(f"there is no directory {quoted(str(path), 200)}")
    name, revision = _repository(name_or_path, revision)
    choices = _choices(name, revision)
    snapshots = [snapshot for choice in choices if (snapshot := _cached(*choice)) is not None]
    for snapshot in snapshots:
        if not _missing(snapshot, variant):
            return snapshot
    _check_name(name)
    # What another tool has begun, its weights there, is completed; else it is begun anew.
    begun = next((s for s in snapshots if not _missing_weights(s, variant)), None)
    lacking = f"{name} is no directory here and not in the hub's cache"
    if nearest := begun or next(iter(snapshots), None):
        missing = " and ".join(_missing(nearest, variant))
        lacking = f"{name} is in the hub's cache, {nearest}, without {missing}"
    if local_files_only:
        raise MissingFileError(f"{lacking}, and local_files_only forbids to download it")
    return _download(*choices[0], begun, variant, lacking)


def config_and_tokenizer(directory: Path) -> tuple[GPT2Config, Tokenizer]:
    """What a model's small files hold."""
    return GPT2Config.from_file(directory / CONFIG), Tokenizer.from_directory(directory)


def _check_revision(revision: object) -> None:
    """Refuse what is no branch, tag or commit, and could not name a file in the cache."""
    if revision is None:
        return
    if not isinstance(revision, str):
        raise InvalidTypeError(f"revision must be a str; got {quoted(revision)}")
    if not 0 < len(revision) <= 200 or re.search(r"[^ -~\w]|[\s\\:~^?*\[]|\.\.|^/", revision):
        raise InvalidValueError(
            f"revision must be a branch, tag or commit on the hub; got {quoted(revision, 200)}"
        )


def _repository(name: str, revision: str | None) -> tuple[str, str | None]:
    """The repository that a name or an address tells, and the revision."""
    given = quoted(name, 200)
    if "://" in name:
        from huggingface_hub.constants import ENDPOINT

        address = ADDRESS.fullmatch(name)
        if address is None or address["host"] not in (*HOSTS, urlsplit(ENDPOINT).netloc):
            raise MissingFileError(
                f"{given} is no address of a model on the hub, such as "
                "https://huggingface.co/owner/name or https://huggingface.co/owner/name/tree/main"
            )
        name = address["name"]
        if address["revision"]:
            told = unquote(address["revision"])
            if revision not in (None, told):
                raise InvalidValueError(
                    f"{given} is at revision {quoted(told)}, and not at {quoted(revision)}"
                )
            _check_revision(told)
            revision = told
    return name, revision


def _check_name(name: str) -> None:
    """Refuse what is no name of a repository. Only here, as it loads the hub's network code."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        raise MissingFileError(
            f"there is no directory {quoted(name, 200)}, and that is no name on the hub"
        ) from None


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


def _cache_of(repository: str) -> Path:
    """Where in the hub's cache a repository's files are."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"


def _cached(repository: str, revision: str | None) -> Path | None:
    """The snapshot of a revision in the cache, whatever is in it."""
    cache = _cache_of(repository)
    if not os.path.isdir(cache):
        return None
    ref = cache / "refs" / (revision or "main")
    commit = ref.read_text().strip() if ref.is_file() else revision
    if not commit:
        return None
    beginning = f"{commit}*" if SHORT_COMMIT.fullmatch(commit) else commit
    found = [place for place in (cache / "snapshots").glob(beginning) if place.is_dir()]
    return found[0] if len(found) == 1 else None


def _missing(snapshot: Path, variant: str | None) -> list[str]:
    """What a snapshot lacks of a model; a download may have broken off."""
    return _missing_small(_names(snapshot)) + _missing_weights(snapshot, variant)


def _missing_small(names: Collection[str]) -> list[str]:
    """What files of these names lack of a config and a vocabulary."""
    whole = any(set(vocabulary) <= set(names) for vocabulary in VOCABULARIES)
    needed = (CONFIG, *(() if whole else VOCABULARIES[0]))
    return [name for name in needed if name not in names]


def _missing_weights(snapshot: Path, variant: str | None) -> list[str]:
    names = _names(snapshot)
    whole, index = weights_name(variant), index_name(variant)
    if whole in names:
        return []
    if index not in names:
        return [whole]
    try:
        return [name for name in shard_names(snapshot / index) if name not in names]
    except CheckpointError:
        return []  # there, but wrong: the checkpoint will say so


def _names(directory: Path) -> set[str]:
    """The files in a directory; a link that leads nowhere is none."""
    return {file.name for file in directory.iterdir() if file.is_file()}


def _download(
    repository: str, revision: str | None, begun: Path | None, variant: str | None, lacking: str
) -> Path:
    """Bring a model into the cache: what is small first, and its weights once that can be used.

    Parameters
    ----------
    begun : a snapshot in the cache that holds the weights; None to begin with the newest commit
    lacking : what the cache lacks, as an error begins
    """
    commit, names = _listing(repository, [*([begun.name] if begun else []), revision], lacking)
    if begun and begun.name != commit:
        begun = None  # the hub no longer has what is in the cache
    whole, index = weights_name(variant), index_name(variant)
    missing = _missing_small(names)
    if not {whole, index} & set(names) and begun is None:
        plain = f"{WEIGHTS}, for which leave out `variant`" if WEIGHTS in names else ""
        told = plain or unsupported(names)
        missing.append(f"{whole}, only {told}" if told else whole)
    if missing:
        raise MissingFileError(f"{repository} on the hub has no {' and no '.join(missing)}")
    if begun is None:
        _name_commit(repository, revision or "main", commit)
    else:  # under the name that it has in the cache
        repository = begun.parents[1].name.removeprefix("models--").replace("--", "/")
    snapshot = _cache_of(repository) / "snapshots" / commit

    def bring(wanted: Collection[str]) -> None:
        for name in wanted:
            _fetch(repository, commit, name)

    bring([name for name in SMALL if name in names])
    config, tokenizer = config_and_tokenizer(snapshot)
    tokenizer.for_rows(config.vocab_size)  # an error, if it does not fit, before gigabytes come
    if _missing_weights(snapshot, variant):
        bring([whole if whole in names else index])
        bring(_missing_weights(snapshot, variant))
    return snapshot


def _listing(
    repository: str, revisions: Sequence[str | None], lacking: str
) -> tuple[str, list[str]]:
    """The commit of a repository on the hub, and the names of its files.

    Parameters
    ----------
    revisions : of which the first that is there is taken; None for the main branch
    lacking : why the hub is asked, as the error begins where it can't be
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
        info = _within(
            PATIENCE, lambda: HfApi().model_info(repository, revision=revision, timeout=5)
        )
    except RepositoryNotFoundError:  # private and gated ones too
        raise _not_for_you(repository) from None
    except RevisionNotFoundError:
        if others:
            return _listing(repository, others, lacking)
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


def _name_commit(repository: str, revision: str, commit: str) -> None:
    """Remember in the cache which commit a branch or tag is."""
    if revision != commit:
        ref = _cache_of(repository) / "refs" / revision
        make_directory(ref.parent)
        ref.write_text(commit)


def _fetch(repository: str, commit: str, name: str) -> None:
    """Bring one file of a commit into the cache, unless it is there."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        hf_hub_download(repository, name, revision=commit)
    except RepositoryNotFoundError:
        raise _not_for_you(repository) from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno in UNWRITABLE:
            raise WriteError(f"{name} can't be written: {error}") from None
        raise DownloadError(
            f"the download of {repository} broke off at {name}: {_short(error)}. The files that "
            "have arrived are kept; the same call fetches the rest"
        ) from error


def _not_for_you(repository: str) -> MissingFileError:
    return MissingFileError(
        f"{repository} is neither a directory here nor a repository on the hub "
        "(or it is private or gated: run `hf auth login` with an account that may read it)"
    )


def _within(seconds: float, call: Callable[[], Value]) -> Value:
    """What `call` returns or raises; a TimeoutError if it does neither for so many seconds."""
    results: list[Value] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)  # the process may end before it does
    thread.start()
    thread.join(seconds)
    for error in errors:
        raise error
    for result in results:
        return result
    raise TimeoutError(f"no answer within {seconds:g} seconds")


def _short(error: Exception) -> str:
    """What an error says, in so far as it can be printed, and no more than a few lines of it."""
    text = printable(" ".join(str(error).split()))
    return text if len(text) <= 300 else f"{text[:300]} …"
