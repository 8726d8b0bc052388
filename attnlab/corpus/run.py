"""Run an atlas: submit chunks to workers and add up their tallies in order."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from copy import copy
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.checkpoints.checkpoint import Checkpoint
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.corpus.details import details_of
from attnlab.corpus.heads import PAIRS_READ, HeadTally, Plan, common_pairs
from attnlab.corpus.measures import Measure, as_measures, is_per_head
from attnlab.corpus.result import RESULT, Atlas, contents_of
from attnlab.corpus.tally import Tally
from attnlab.corpus.texts import Chunk, chunks_of, count_of
from attnlab.corpus.worker import SharedModel, Task, tally_of
from attnlab.equations import Ids
from attnlab.errors import (
    AttnlabError,
    InvalidValueError,
    MissingFileError,
    ResumeError,
    WorkerError,
)
from attnlab.model.gpt2 import GPT2
from attnlab.support import door
from attnlab.support.blas import one_thread
from attnlab.support.checks import as_count, as_flag, attribute, check_kind, reraised_as
from attnlab.support.console import progress_bar
from attnlab.support.files import FilePath, as_path, lock_file, make_directory, write_atomically
from attnlab.support.language import ENGLISH, using_language
from attnlab.support.sealed import check_run, read_sealed, sha256, write_sealed

# The format of the files with chunks' tallies.
FORMAT = "3"

# Default number of tokens traced at once.
WINDOW = 128

# The number of workers that is assumed if an executor doesn't report one.
DEFAULT_WORKERS = 64

# The file that is locked while a run is using the directory, and the page of the result.
LOCK, PAGE = "atlas.lock", "atlas.html"


def atlas(
    model: GPT2 | FilePath,
    texts: Iterable[str] | FilePath,
    measures: Sequence[str | Measure] | None = None,
    *,
    executor: Executor | None = None,
    chunk: int = 64,
    window: int | None = None,
    heads: bool = False,
    directory: FilePath | None = None,
    progress: bool = True,
) -> Atlas:
    """Measure every head over a whole corpus: means with standard errors over texts.

    mean = Σ sums / Σ divisors over all texts. The result is bit-identical for any executor and any
    number of workers. Each worker uses one thread for matrix products.

    Parameters
    ----------
    model : a GPT2; or a name or directory as in `GPT2.from_pretrained`, opened by each worker
    texts : an iterable of texts, ids or Tokens; a file with one text per line (blank lines are
        skipped); a .jsonl or .csv file, whose texts are in the field or column "text"; or a
        directory of such records and of other files with one text each, searched recursively
        (hidden files are skipped). In files of text, in UTF-8 or UTF-16, line breaks become `\\n`,
        and a final one is dropped. Texts are read as a stream.
    measures : names from `attnlab.corpus.MEASURES`, and functions from a `Trace` to a number for
        each head, (L, H), NaN where undefined; a function counts once per window. None means all
        named measures.
    executor : as in `concurrent.futures`: processes, threads, Dask's `client.get_executor()`,
        `mpi4py.futures.MPIPoolExecutor`; None computes in this process
    chunk : texts per task; fewer if they are long
    window : tokens to trace at once; None means 128, or n_positions if that is less
    heads : whether to measure too what each head attends to and writes, and which heads are like
        it, for a page of each head: `atlas.head(1, 2).pairs` and others, see `HeadProfile`. With
        GPT-2's heads it takes 10 to 15 % longer, and 13 MB of disk a chunk.
    directory : where to keep the tally of each finished chunk, so that an interrupted run resumes
        when it is started again with the same arguments. At the end, the atlas is saved there as
        `atlas.safetensors`, and its page as `atlas.html`. It can't be in a directory of texts. A
        function is identified by its module, its name and its `version` attribute, if any: change
        the version when you change the function.
    progress : whether to show a progress bar on stderr

    Returns
    -------
    Atlas
        `.faults` names the texts that could not be measured

    Examples
    --------
    >>> from concurrent.futures import ProcessPoolExecutor
    >>> with ProcessPoolExecutor(2) as executor:
    ...     atlas = attnlab.atlas("gpt2", "corpus.txt", executor=executor, directory="atlas")
    >>> atlas["induction"].mean.shape
    (12, 12)
    """
    progress, heads = as_flag(progress, "progress"), as_flag(heads, "heads")
    if isinstance(model, GPT2):
        name, loaded = None, model
    elif isinstance(model, str | os.PathLike):
        name, loaded = os.fspath(model), GPT2.from_pretrained(model)
    else:
        check_kind(model, GPT2, "model")
    if executor is not None:
        check_kind(executor, Executor, "executor")
    limit = loaded.config.n_positions
    window = as_count(min(WINDOW, limit) if window is None else window, "window", 2, limit)
    task = Task(SharedModel(loaded, name), as_measures(measures), window)
    chunks = chunks_of(texts, as_count(chunk, "chunk", least=1))
    path = None if directory is None else as_path(directory, "directory")
    if path is not None and is_within(path, texts):
        raise InvalidValueError(
            f"{path} is in the directory of texts, where the run's files would be read as "
            "texts; choose another directory"
        )
    if any(task.measures.values()):  # functions of the user's are tried before any work
        first = [*islice(chunks, 1)]
        for tried in first:
            task.try_measures(tried)
        chunks = chain(first, chunks)
    if heads:
        if not any(map(is_per_head, task.measures)):
            raise InvalidValueError("heads=True needs a measure of heads, such as 'first'")
        task, chunks = planned(task, chunks)
    if path is not None:
        make_directory(path)
    with one_thread(), contextlib.nullcontext() if path is None else lock_file(path / LOCK):
        stored = None if path is None else StoredTallies(path, identity(task, chunk))
        digest = hashlib.sha256()
        with contextlib.closing(
            tallies(task, executor, stored, with_digest(chunks, digest))
        ) as chunk_tallies:
            count = count_of(texts) if progress else None
            total = task.empty_tally()
            if task.plan is not None:
                total.heads = HeadTally(task.plan, np.float64)
            _total(total, chunk_tallies, count, progress)
        is_local = name is None or os.path.isdir(as_path(name))
        with using_language(ENGLISH):  # stored in English; the atlas's title translates it
            description = repr(loaded)
        about = {
            "measures": [*task.measures],
            "n_layer": loaded.config.n_layer,
            "n_head": loaded.config.n_head,
            "model": description,
            "model_given": directory_of(loaded) if is_local else str(name),
            "window": window,
            "corpus": digest.hexdigest(),
        }
        details = () if total.heads is None else details_of(loaded, total.heads)
        total.heads = None  # its sums aren't saved
        result = Atlas(about, total, contents_of(loaded, total.ids), details)
        if path is not None:
            result.save(path / RESULT)
            if any(map(is_per_head, result)):  # the page shows heads only
                write_atomically(
                    path / PAGE, door.atlas_page(result, in_atlas_directory=True).encode()
                )
    return result


def planned(task: Task, chunks: Iterator[Chunk]) -> tuple[Task, Iterator[Chunk]]:
    """The task with what it tallies of heads: token pairs of the first texts; and all chunks."""
    model = task.shared.model
    config, read, texts, count = model.config, list[Chunk](), list[list[Ids]](), 0
    for chunk in chunks:
        read.append(chunk)
        for text in chunk.texts:
            with contextlib.suppress(AttnlabError):
                texts.append([])
                for _, ids in task.windows(text):
                    if count < PAIRS_READ:
                        texts[-1].append(ids)
                        count += max(len(ids) ** 2 // 2, 64)  # short ones end, too
        if count >= PAIRS_READ:
            break
    heads, width = config.n_layer * config.n_head, config.n_embd // config.n_head
    pairs = common_pairs(texts, config.vocab_size, heads)
    plan = Plan(pairs, config.vocab_size, heads, width, task.window)
    return task._replace(plan=plan), chain(read, chunks)


def directory_of(model: GPT2) -> str:
    """The directory that a model was read from, or a built-in's name; "" if it was in memory."""
    if not isinstance(model.parameters, Checkpoint):
        return ""
    directory = model.parameters.directory
    names = {built_in.directory: name for name, built_in in BUILT_IN.items()}
    return names.get(directory, str(directory.absolute()))


def is_within(directory: Path, texts: Any) -> bool:
    """Whether a directory is, or is in, the directory of texts; links are followed."""
    if not isinstance(texts, str | os.PathLike):
        return False
    corpus = as_path(texts, "texts").resolve()
    return os.path.isdir(corpus) and directory.resolve().is_relative_to(corpus)


def with_digest(chunks: Iterator[Chunk], digest: hashlib._Hash) -> Iterator[Chunk]:
    """Yield the chunks and add their texts to a digest, which is independent of chunk size."""
    for chunk in chunks:
        for text in chunk.texts:
            content = f"\0{text.ids}" if text.ids else text.content
            digest.update(sha256([content.encode(errors="surrogatepass")]).encode())
        yield chunk


def _total(
    total: Tally, chunk_tallies: Iterable[tuple[Tally, bool]], count: int | None, progress: bool
) -> Tally:
    """Add all chunks' tallies to the total, in order, and show progress.

    The bar estimates the time left if `count`, the number of texts, is known.
    """
    started, tokens_from_disk = time.perf_counter(), 0
    # The bar disappears if an error occurs before the first chunk is done.
    with progress_bar(progress, total=count, unit=" texts", leave=False) as bar:
        for tally, is_new in chunk_tallies:
            total.add(tally)
            texts = tally.texts + len(tally.faults)
            if not is_new:  # doesn't count toward the speed
                tokens_from_disk += tally.tokens
                bar.initial = bar.n + texts
            speed = (total.tokens - tokens_from_disk) / (time.perf_counter() - started)
            bar.set_postfix_str(f"{total.tokens:,} tokens, {speed:,.0f} tokens/s", refresh=False)
            bar.leave = True
            bar.update(texts)
    if not total.texts:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in total.faults[:3])
        if reasons:
            raise InvalidValueError(f"no text could be measured: {reasons}")
        raise InvalidValueError("there are no texts to measure")
    return total


class SerialExecutor(Executor):
    """Runs each call immediately, in this process."""

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


def tallies(
    task: Task, executor: Executor | None, stored: StoredTallies | None, chunks: Iterator[Chunk]
) -> Generator[tuple[Tally, bool], None, None]:
    """Yield each chunk's tally, in order, and whether it was computed in this run."""
    # Two chunks per worker, so that the next one is ready when a worker finishes.
    limit = 1 if executor is None else 2 * getattr(executor, "_max_workers", DEFAULT_WORKERS)
    executor = executor or SerialExecutor()
    waiting: deque[tuple[Chunk, Tally | Future[Tally]]] = deque()
    try:
        while True:
            for chunk in islice(chunks, limit - len(waiting)):
                tally: Tally | Future[Tally] | None = stored.read(chunk) if stored else None
                if tally is None:
                    with worker_errors(chunk, BrokenExecutor):
                        tally = executor.submit(tally_of, task, chunk)
                waiting.append((chunk, tally))
            if not waiting:
                return
            chunk, pending = waiting.popleft()
            if isinstance(pending, Tally):
                yield pending, False
                continue
            with worker_errors(chunk, Exception):  # a lost worker's error depends on the executor
                tally = pending.result()
            if stored:
                stored.write(chunk, tally)
            yield tally, True
    finally:
        for _, pending in waiting:
            if isinstance(pending, Future):
                pending.cancel()


@contextlib.contextmanager
def worker_errors(chunk: Chunk, kind: type[Exception]) -> Iterator[None]:
    """Report errors of this kind as those of an executor, with the chunk's texts."""
    try:
        yield
    except AttnlabError:
        raise
    except kind as error:
        first, last = chunk.texts[0].name, chunk.texts[-1].name
        raise WorkerError(
            f"the executor failed at the texts from {first} to {last}: {type(error).__name__}: "
            f"{error}. If you gave a directory, the same call resumes the run"
        ) from error


class StoredTallies:
    """Tallies of chunks in a directory, one file each; `run` identifies the run, see `identity`."""

    def __init__(self, directory: Path, run: dict[str, str]) -> None:
        self._directory, self._run = directory, run

    def _file(self, chunk: Chunk) -> Path:
        return self._directory / f"chunk-{chunk.number:08}.safetensors"

    def _identity(self, chunk: Chunk) -> dict[str, str]:
        fields = (repr(field).encode() for text in chunk.texts for field in text)
        texts = f"{len(chunk.texts)} from {chunk.first} on, sha256 {sha256(fields)}"
        return {**self._run, "texts": texts}

    def write(self, chunk: Chunk, tally: Tally) -> None:
        metadata = self._identity(chunk) | tally.metadata()
        write_sealed(self._file(chunk), FORMAT, tally.tensors(), metadata)

    def read(self, chunk: Chunk) -> Tally | None:
        """A chunk's tally, or None if it isn't stored."""
        file, identity = self._file(chunk), self._identity(chunk)
        try:
            tensors, metadata = read_sealed(file, FORMAT, ResumeError)
        except MissingFileError:
            return None
        check_run(file, {name: metadata.get(name) for name in identity}, identity)
        with reraised_as(ResumeError, f"{file} isn't complete; remove it to measure it again"):
            return Tally.read(tensors, metadata)


def identity(task: Task, chunk: int) -> dict[str, str]:
    """Everything that must be the same for a run to be resumed, except the corpus."""
    model = task.shared.model
    parameters = copy(model.parameters)  # a copy, so that arrays read from disk are freed
    tokens = [model.tokenizer.vocabulary.bytes_of(id) for id in range(len(model.tokenizer))]
    settings = {
        "config": asdict(model.config),
        "dtype": parameters.dtype,
        "parameters": f"sha256 {sha256(parameters[path].tobytes() for path in parameters)}",
        "vocabulary": f"sha256 {sha256([repr(tokens).encode()])}",
        "measures": ", ".join(
            name if function is None else f"{name} ({identity_of(function)})"
            for name, function in task.measures.items()
        ),
        "window": task.window,
        "chunk": chunk,
    }
    if task.plan is not None:
        settings["token pairs of the first texts"] = f"sha256 {sha256([task.plan.pairs.tobytes()])}"
    return {name: str(value) for name, value in settings.items()}


def identity_of(function: Measure) -> str:
    """A function's module and name, and its version if it has one."""
    module, name, version = (
        attribute(function, name) for name in ("__module__", "__qualname__", "version")
    )
    return f"{module}.{name}" if version is None else f"{module}.{name}, version {version}"
