"""From a model's name to a directory with its files: the hub's cache first, then the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote, urlsplit

from attnlab.checkpoints.checkpoint import (
    WEIGHTS,
    check_variant,
    index_name,
    shard_names,
    weights_name,
)
from attnlab.checkpoints.download import (
    cache_of,
    fetch,
    listing,
    name_commit,
)
from attnlab.errors import (
    CheckpointError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    shown,
)
from attnlab.forward.config import GPT2Config
from attnlab.support.checks import as_flag
from attnlab.support.files import as_path
from attnlab.support.formats import instead, model_directory
from attnlab.text.tokenizer import Tokenizer

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

SHORT_COMMIT = re.compile(r"[0-9a-f]{7,39}")


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
    MissingFileError
        It is neither a directory nor on the hub; files are missing from it; it is not in the
        cache and `local_files_only` is set.
    ConfigError, VocabularyError
        Its small files, which are downloaded and read before its weights are, can't be used.
    InvalidValueError, InvalidTypeError
        A directory has no revisions; a name is a str, a path a str or PathLike.
    DownloadError
        The hub can't be reached (told within 10 seconds), or the download broke off.
    WriteError
        The cache can't be written to.
    """
    local_files_only = as_flag(local_files_only, "local_files_only")
    _check_revision(revision)
    check_variant(variant)
    is_pocket = isinstance(name_or_path, str) and name_or_path.lower() == POCKET
    path = POCKET_DIRECTORY if is_pocket else as_path(name_or_path, "a model's name or path")
    if os.path.isdir(path):
        if revision is not None:
            raise InvalidValueError(
                f"{path} is a directory, which has no revision {shown(revision)}"
            )
        return model_directory(path)
    if os.path.isfile(path):
        if told := instead([path.name]):
            raise MissingFileError(f"this is a file: {told}")
        raise MissingFileError(f"{path} is a file; give the directory that holds the model's files")
    if not isinstance(name_or_path, str):
        raise MissingFileError(f"there is no directory {shown(str(path), 200)}")
    name, revision = _repository(name_or_path, revision)
    choices = _choices(name, revision)
    snapshots = [snapshot for choice in choices if (snapshot := _cached(*choice)) is not None]
    for snapshot in snapshots:
        if not _missing(snapshot, variant):
            return snapshot
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
    """What a model's small files hold.

    Raises
    ------
    MissingFileError, ConfigError, VocabularyError
        They can't be read, or are not GPT-2's.
    """
    return GPT2Config.from_file(directory / CONFIG), Tokenizer.from_directory(directory)


def _check_revision(revision: object) -> None:
    """Refuse what is no branch, tag or commit, and could not name a file in the cache."""
    if revision is None:
        return
    if not isinstance(revision, str):
        raise InvalidTypeError(f"revision must be a str; given {shown(revision)}")
    if not 0 < len(revision) <= 200 or re.search(r"[^ -~\w]|[\s\\:~^?*\[]|\.\.|^/", revision):
        raise InvalidValueError(
            f"revision must be a branch, tag or commit on the hub; given {shown(revision, 200)}"
        )


def _repository(name: str, revision: str | None) -> tuple[str, str | None]:
    """The repository that a name or an address tells, and the revision."""
    from huggingface_hub.constants import ENDPOINT
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    given = shown(name, 200)
    if "://" in name:
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
                    f"{given} is at revision {shown(told)}, and not at {shown(revision)}"
                )
            _check_revision(told)
            revision = told
    try:
        validate_repo_id(name)
    except HFValidationError:
        raise MissingFileError(
            f"there is no directory {given}, and that is no name on the hub"
        ) from None
    return name, revision


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


def _cached(repository: str, revision: str | None) -> Path | None:
    """The snapshot of a revision in the cache, whatever is in it."""
    cache = cache_of(repository)
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
    commit, names = listing(repository, [*([begun.name] if begun else []), revision], lacking)
    if begun and begun.name != commit:
        begun = None  # the hub no longer has what is in the cache
    cache = begun.parent.parent if begun else cache_of(repository)
    snapshot = cache / "snapshots" / commit
    whole, index = weights_name(variant), index_name(variant)
    missing = _missing_small(names)
    if not {whole, index} & set(names) and begun is None:
        plain = f"{WEIGHTS}, for which leave out `variant`" if WEIGHTS in names else ""
        told = plain or instead(names)
        missing.append(whole + f", only {told}" * bool(told))
    if missing:
        raise MissingFileError(f"{repository} on the hub has no {' and no '.join(missing)}")

    def bring(wanted: Collection[str]) -> None:
        for name in wanted:
            fetch(repository, commit, name, cache)

    if begun is None:
        name_commit(cache, revision or "main", commit)
    bring([name for name in SMALL if name in names])
    config, tokenizer = config_and_tokenizer(snapshot)
    tokenizer.for_rows(config.vocab_size)  # told, if it does not fit, before gigabytes come
    if _missing_weights(snapshot, variant):
        bring([whole if whole in names else index])
        bring(_missing_weights(snapshot, variant))
    return snapshot
