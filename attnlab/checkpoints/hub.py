"""Find a model's directory by name: in this package, in the hub's cache, or on the hub.

huggingface_hub downloads the files to its cache. This module chooses the files, and limits the time
to wait for the hub's first answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from attnlab.checkpoints.checkpoint import AVERAGES, INDEX, PACKAGE, WEIGHTS, weight_names
from attnlab.errors import DownloadError, InvalidValueError, MissingFileError, quoted
from attnlab.forward.config import GPT2Config
from attnlab.forward.parameters import Parameters
from attnlab.support.checks import as_flag, check_kind
from attnlab.support.files import as_path
from attnlab.support.formats import CONFIG, describe_unsupported, model_directory
from attnlab.text.tokenizer import Tokenizer

# The repository and the default revision of each published GPT-2. Many caches have these revisions.
PUBLISHED = {
    "gpt2": ("openai-community/gpt2", "607a30d783dfa663caf39e06633721c8d4cfcd7e"),
    "gpt2-medium": ("openai-community/gpt2-medium", "6dcaa7a952f72f9298047fd5137cd6e4f05f41da"),
    "gpt2-large": ("openai-community/gpt2-large", "32b71b12589c2f8d625668d2335a01cac3249519"),
    "gpt2-xl": ("openai-community/gpt2-xl", "15ea56dee5df4983c59b2538573817e1667135e2"),
    "distilgpt2": ("distilbert/distilgpt2", "2290a62682d06624634c1f46a6ad5be0f47f38aa"),
    # Chinese models; their main branches have no safetensors.
    "gpt2-chinese-cluecorpussmall": (
        "uer/gpt2-chinese-cluecorpussmall",
        "10c7bb4c589cd73df8dbd2e1b5ef819dc7ac9f7a",
    ),
    "gpt2-distil-chinese-cluecorpussmall": (
        "uer/gpt2-distil-chinese-cluecorpussmall",
        "a37ea26ae38a65c97b3a80ea20dd3ece85c2e4ac",
    ),
}
SHORT_NAMES = {repository: name for name, (repository, _) in PUBLISHED.items()}


class BuiltIn(NamedTuple):
    """A model in this package.

    Attributes
    ----------
    directory : the directory of the model's files and of its card, MODEL_CARD.md
    description : what the model is
    training : what the model was trained on
    advice : what to do with words that the model doesn't know
    limits : what the model's next tokens are worth, as a sentence of the card
    examples : texts that the model continues well; its page opens with the first text
    """

    directory: Path
    description: str
    training: str
    advice: str
    limits: str
    examples: tuple[str, ...]


BUILT_IN = {
    "english": BuiltIn(
        PACKAGE / "english",
        "a small GPT-2 that reads simple English",
        "The model “english” was trained on simple English.",
        "GPT-2 knows more words: attnlab download gpt2.",
        "Nothing that this model says is knowledge: don't use it to answer questions.",
        (
            "The girl was tired because",
            "I would like a cup of",
            "It’s very hot in summer. Swimming is",
        ),
    ),
    "pocket": BuiltIn(
        PACKAGE / "pocket",
        "a tiny GPT-2 that knows the sentences of a grammar",
        "The model “pocket” was trained on the sentences of a small grammar.",
        "Use its words, or a model that reads English: attnlab explore.",
        "It knows only its grammar.",
        (
            "The dog chased the ball, but it",
            "It’s very hot in summer. Swimming is",
            "Say: lamp two happy. Again: lamp two",
        ),
    ),
}

BUILT_IN_HINT = (
    f"The models that come with attnlab need no network: {', '.join(map(quoted, BUILT_IN))}"
)

# A model needs the files of one of these vocabularies.
VOCABULARIES = (("vocab.json", "merges.txt"), ("tokenizer.json",), ("vocab.txt",))
# Files that are downloaded before the weights, if the repository has them.
SMALL_FILES = (
    *(CONFIG, "vocab.json", "merges.txt", "tokenizer.json", "vocab.txt"),
    *("tokenizer_config.json", "added_tokens.json", "special_tokens_map.json", AVERAGES),
)

TIMEOUT = 8.0  # seconds to wait for the hub's first answer


def built_in_model(parameters: Parameters) -> BuiltIn | None:
    """The model in this package that has these parameters, if any."""
    directory = getattr(parameters, "directory", None)
    return next((model for model in BUILT_IN.values() if model.directory == directory), None)


def find_model(
    name_or_path: str | os.PathLike[str],
    *,
    revision: str | None = None,
    local_files_only: bool = False,
) -> Path:
    """Find or download the directory with a model's files, see `GPT2.from_pretrained`.

    Names in `BUILT_IN` and directories need no network; `./pocket` is a directory, `pocket` isn't.
    Other names are repositories: a short name in `PUBLISHED`, or `owner/name`.
    """
    local_files_only = as_flag(local_files_only, "local_files_only")
    if revision is not None:
        check_kind(revision, str, "revision", "a branch, tag or commit on the hub")
    built_in = BUILT_IN.get(name_or_path.lower()) if isinstance(name_or_path, str) else None
    path = built_in.directory if built_in else as_path(name_or_path, "a model's name or path")
    if os.path.isdir(path):
        if revision is not None:
            raise InvalidValueError(
                f"revision can't be used with a directory, {path}; got {quoted(revision)}"
            )
        return model_directory(path)
    if os.path.isfile(path):
        file = describe_unsupported([path.name]) or f"{path}. Give the directory that it is in"
        raise MissingFileError(f"expected a directory; got a file: {file}")
    if not isinstance(name_or_path, str):
        raise MissingFileError(f"there is no directory {quoted(str(path), 200)}")
    return _find_by_name(name_or_path, revision, local_files_only)


def _find_by_name(name: str, revision: str | None, local_files_only: bool) -> Path:
    """Find a model in the hub's cache, or download it.

    Other tools may have cached a published model at another revision, with the same files.
    """
    from huggingface_hub import constants

    short_name = SHORT_NAMES.get(name, name)  # openai-community/gpt2 -> gpt2
    repository, pinned = PUBLISHED.get(short_name, (name, None))
    problem = f"{name} is neither a directory nor in the hub's cache"
    for candidate in (pinned, None) if revision is None else (revision,):  # None: the main branch
        snapshot = _cached_snapshot(repository, candidate)
        if snapshot is not None:
            # `is_file` is false for a link to a file that is no longer in the cache.
            names = {file.name for file in snapshot.iterdir() if file.is_file()}
            missing = _missing_files(names) + [n for n in weight_names(snapshot) if n not in names]
            if not missing:
                return snapshot
            problem = f"{name} is in the hub's cache, {snapshot}, without {' and '.join(missing)}"
    if local_files_only:
        raise MissingFileError(f"{problem}, and local_files_only=True prevents the download")
    if constants.HF_HUB_OFFLINE:
        raise DownloadError(f"{problem}, and HF_HUB_OFFLINE prevents the download")
    return _download(repository, revision or pinned, problem)


def _cached_snapshot(repository: str, revision: str | None) -> Path | None:
    """The directory of a revision in the cache, which may be incomplete; None if there is none."""
    from huggingface_hub.constants import HF_HUB_CACHE

    cache = Path(HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"
    ref = cache / "refs" / (revision or "main")
    commit = ref.read_text().strip() if os.path.isfile(ref) else revision
    snapshot = cache / "snapshots" / (commit or "")
    return snapshot if commit and os.path.isdir(snapshot) else None


def _missing_files(names: Iterable[str]) -> list[str]:
    """The files of the config and the vocabulary that aren't among `names`."""
    has_vocabulary = any(set(vocabulary) <= set(names) for vocabulary in VOCABULARIES)
    needed = (CONFIG,) if has_vocabulary else (CONFIG, *VOCABULARIES[0])
    return [name for name in needed if name not in names]


def _download(repository: str, revision: str | None, problem: str) -> Path:
    """Download a model's small files to the cache and, if they are valid, the weights.

    `problem` says, for an error, why a download is necessary.
    """
    names = _files_on_hub(repository, revision, problem)
    missing = _missing_files(names)
    if not {WEIGHTS, INDEX} & set(names):
        format = describe_unsupported(names)
        missing.append(f"{WEIGHTS}, only {format}" if format else WEIGHTS)
    if missing:
        raise MissingFileError(f"{repository} on the hub has no {' and no '.join(missing)}")
    small_files = SMALL_FILES if WEIGHTS in names else (*SMALL_FILES, INDEX)
    snapshot = _fetch(repository, revision, [name for name in small_files if name in names])
    config = GPT2Config.from_file(snapshot / CONFIG)
    Tokenizer.from_directory(snapshot).for_rows(config.vocab_size)
    return _fetch(repository, snapshot.name, weight_names(snapshot))


def _files_on_hub(repository: str, revision: str | None, problem: str) -> list[str]:
    """List a repository's files. This is the first request, which may get no answer."""
    from huggingface_hub import HfApi, errors

    try:
        info = HfApi().model_info(repository, revision=revision, timeout=TIMEOUT)
        return [file.rfilename for file in info.siblings or ()]
    except (errors.HFValidationError, errors.RepositoryNotFoundError):  # it may be private or gated
        raise MissingFileError(
            f"{quoted(repository, 200)} is neither a directory nor a repository on the hub that "
            "you can access. Names are like gpt2 or owner/name. For a private or gated repository, "
            f"run `hf auth login`. {BUILT_IN_HINT}"
        ) from None
    except errors.HfHubHTTPError as error:
        raise DownloadError(f"the hub refused {repository}: {quoted(str(error), 300)}") from None
    except Exception as error:  # versions of huggingface_hub use different network libraries
        raise DownloadError(
            f"{problem}, and the hub can't be reached ({type(error).__name__}: "
            f"{quoted(str(error), 300)}). Check the network. To use a mirror of the hub, set "
            f"HF_ENDPOINT to its URL. Or run `hf download {repository} config.json vocab.json "
            "merges.txt model.safetensors --local-dir DIR` on a machine with network access, copy "
            "DIR to this machine and give its path"
        ) from None


def _fetch(repository: str, revision: str | None, names: Iterable[str]) -> Path:
    """Download the files of a revision that aren't in the cache; return their directory.

    `snapshot_download` isn't used: Ctrl-C doesn't stop its threads, and if the connection is lost,
    it may return an incomplete snapshot.
    """
    from huggingface_hub import hf_hub_download

    for name in names:
        try:
            snapshot = Path(hf_hub_download(repository, name, revision=revision)).parent
        except Exception as error:
            raise DownloadError(
                f"the download of {repository} failed at {name}: {quoted(str(error), 300)}. "
                "Downloaded files are kept; repeat the call to download the rest. For a gated "
                "repository, run `hf auth login`"
            ) from error
        revision = snapshot.name  # the commit, so that all files are of the same commit
    return snapshot
