"""From a corpus to its atlas: chunks to workers, their tallies added up in order."""

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

from attnlab.checkpoints.checkpoint import Checkpoint
from attnlab.checkpoints.hub import POCKET_DIRECTORY
from attnlab.corpus.measures import Measure, checked_measures, is_of_heads
from attnlab.corpus.result import RESULT, Atlas
from attnlab.corpus.tally import Tally
from attnlab.corpus.texts import Chunk, chunks_of
from attnlab.corpus.worker import Shared, Task, columns, tally_of
from attnlab.errors import (
    AttnlabError,
    InvalidValueError,
    MissingFileError,
    ResumeError,
    WorkerError,
)
from attnlab.model.gpt2 import GPT2
from attnlab.support.blas import one_thread
from attnlab.support.checks import as_count, as_flag, attribute, check_kind, errors_of
from attnlab.support.console import progress_bar
from attnlab.support.files import Given, as_path, held, make_directory, write_whole
from attnlab.support.sealed import Shapes, check_run, read_sealed, sha256, write_sealed
from attnlab.views.page.atlas import page

FORMAT = "3"

# Tokens that are traced at once where nothing else is said.
WINDOW = 128

# How many workers there may be where an executor does not tell.
MANY_WORKERS = 64

# What a run holds while it is at work in a directory, and its result's page.
LOCK, PAGE = "atlas.lock", "atlas.html"


def atlas(
    model: GPT2 | Given,
    texts: Iterable[str] | Given,
    measures: Sequence[str | Measure] | None = None,
    *,
    executor: Executor | None = None,
    chunk: int = 64,
    window: int | None = None,
    directory: Given | None = None,
    progress: bool = True,
) -> Atlas:
    """Measure every head over a whole corpus: means with errors by text.

    mean = Σ sums / Σ places over all texts; its error is that of a ratio, from how far texts are
    from it. The numbers are the same to the bit whatever the executor and the number of workers;
    each worker's matrix products take one thread, so two workers keep two cores busy.

    Parameters
    ----------
    model : a GPT2; or a name or directory as `GPT2.from_pretrained` takes it, which each worker
        then opens for itself, where it runs
    texts : a list of texts or another iterable, each as it is, counted from 0; a file with a text
        on each line, counted from 1, blank ones left out; or a directory with one in each file, of
        its subdirectories too, hidden ones left out. In files each line end is a `\\n`, and that at
        the end of a text does not count. They are read as a stream, one text at a time.
    measures : names, see `attnlab.corpus.MEASURES`; and functions of a `Trace` that give a number
        for each head, (L, H), NaN where there is none, which count once for each window. None for
        all that have names.
    executor : any of `concurrent.futures`: processes, threads, Dask's `client.get_executor()`,
        `mpi4py.futures.MPIPoolExecutor`; None for this process alone
    chunk : texts that a worker takes at once; fewer where they are long
    window : tokens that are traced at once, with the ids that they have in their text; None for
        128, or fewer where the model has fewer positions
    directory : where the tally of each chunk is written when it is known, outside of a directory
        of texts. A run that was killed goes on from there when it is started again with the same
        arguments, and counts no text twice; in the end `atlas.safetensors` is there, as
        `Atlas.save` writes it, and its page, `atlas.html`. A function is known by its module and
        name, and by its `version` if it has that attribute: when you change the function, change
        the version too, or use another directory.
    progress : whether a bar shows texts and tokens per second, on stderr

    Returns
    -------
    Atlas
        `.faults` names the texts that could not be measured

    Raises
    ------
    ResumeError
        The directory holds chunks of another model, corpus, function, or of other settings.
    WriteError
        Another run is using the directory.
    InvalidValueError
        Before any work: a function that works on no text of the first chunk.

    Examples
    --------
    >>> from concurrent.futures import ProcessPoolExecutor
    >>> with ProcessPoolExecutor(2) as executor:
    ...     found = attnlab.atlas("gpt2", "corpus.txt", executor=executor, directory="atlas")
    >>> found["induction"].mean.shape
    (12, 12)
    """
    progress = as_flag(progress, "progress")
    name = None if isinstance(model, GPT2) else os.fspath(as_path_or_name(model))
    opened = model if isinstance(model, GPT2) else GPT2.from_pretrained(model)
    if executor is not None:
        check_kind(executor, Executor, "executor")
    most = opened.config.n_positions
    size = as_count(min(WINDOW, most) if window is None else window, "window", 2, most)
    task = Task(Shared(opened, name), checked_measures(measures), size)
    chunks = chunks_of(texts, as_count(chunk, "chunk", least=1))
    place = None if directory is None else as_path(directory, "directory")
    if place is not None and is_within(place, texts):
        raise InvalidValueError(
            f"{place} lies in the directory of texts, where what a run writes would be measured: "
            "give another one"
        )
    if any(function is not None for function in task.measures.values()):
        chunks = tried(task, chunks)
    if place is not None:
        make_directory(place)
    with one_thread(), contextlib.nullcontext() if place is None else held(place / LOCK):
        stored = (
            None
            if place is None
            else StoredTallies(place, identity(task, chunk), columns(opened.config, task.measures))
        )
        digest = hashlib.sha256()
        with contextlib.closing(tallies(task, executor, stored, digested(chunks, digest))) as made:
            total = _added_up(task.empty_tally(), made, progress)
        is_local = name is None or as_path(name).is_dir()
        given = directory_of(opened) if is_local else str(name)
        found = Atlas.of(opened, given, task.measures, size, total, digest.hexdigest())
        if place is not None:
            found.save(place / RESULT)
            if any(map(is_of_heads, found)):
                write_whole(place / PAGE, page(found, is_beside=True).encode())
    return found


def directory_of(model: GPT2) -> str:
    """What a model can be opened by again; nothing where it is in memory."""
    if not isinstance(model.parameters, Checkpoint):
        return ""
    directory = model.parameters.directory
    return "pocket" if directory == POCKET_DIRECTORY else str(directory.absolute())


def as_path_or_name(model: Any) -> Given:
    """What `GPT2.from_pretrained` is given."""
    if not isinstance(model, str | os.PathLike):
        check_kind(model, GPT2, "model")
    given: Given = model
    return given


def is_within(directory: Path, texts: Any) -> bool:
    """Whether a directory is that of the texts, or lies in it; links are followed."""
    if not isinstance(texts, str | os.PathLike):
        return False
    corpus = as_path(texts, "texts").resolve()
    return corpus.is_dir() and directory.resolve().is_relative_to(corpus)


def tried(task: Task, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The chunks, when a user's measures have worked on a text of the first one."""
    first = next(chunks, None)
    if first is None:
        return chunks
    task.try_measures(first)
    return chain([first], chunks)


def digested(chunks: Iterator[Chunk], digest: hashlib._Hash) -> Iterator[Chunk]:
    """The chunks, of whose texts a digest is taken: the same however many are in a chunk."""
    for chunk in chunks:
        for text in chunk.texts:
            digest.update(sha256([text.content.encode()]).encode())
        yield chunk


def _added_up(total: Tally, made: Iterable[tuple[Tally, bool]], progress: bool) -> Tally:
    """The total, once the tallies of all chunks are added to it, in their order."""
    started, before = time.perf_counter(), 0
    # Until something is done it leaves no line above an error.
    with progress_bar(unit=" texts", leave=False, disable=not progress) as bar:
        for tally, is_new in made:
            total.add(tally)
            before += 0 if is_new else tally.tokens
            speed = (total.tokens - before) / (time.perf_counter() - started)
            bar.set_postfix_str(f"{total.tokens:,} tokens, {speed:,.0f} tokens/s", False)
            bar.leave = True
            bar.update(tally.texts + len(tally.faults))
    if not total.texts:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in total.faults[:3])
        raise InvalidValueError(
            f"no text could be measured: {reasons}" if reasons else "there are no texts to measure"
        )
    return total


class SerialExecutor(Executor):
    """Does everything at once, in this process."""

    def submit(self, function: Any, /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*given, **named))
        return future


def tallies(
    task: Task, executor: Executor | None, stored: StoredTallies | None, chunks: Iterator[Chunk]
) -> Generator[tuple[Tally, bool], None, None]:
    """The tally of each chunk, in order, and whether it was made now."""
    most = 1 if executor is None else 2 * getattr(executor, "_max_workers", MANY_WORKERS)
    executor = executor or SerialExecutor()
    waiting: deque[tuple[Chunk, Tally | Future[Tally]]] = deque()
    try:
        while True:
            for chunk in islice(chunks, most - len(waiting)):
                tally = stored and stored.read(chunk)
                waiting.append((chunk, tally or _submitted(executor, task, chunk)))
            if not waiting:
                return
            chunk, found = waiting.popleft()
            if isinstance(found, Tally):
                yield found, False
                continue
            tally = _result(chunk, found)
            if stored:
                stored.write(chunk, tally)
            yield tally, True
    finally:
        for _, found in waiting:
            if isinstance(found, Future):
                found.cancel()


def _submitted(executor: Executor, task: Task, chunk: Chunk) -> Future[Tally]:
    try:
        return executor.submit(tally_of, task, chunk)
    except BrokenExecutor as error:
        raise _worker_error(chunk, error) from error


def _result(chunk: Chunk, future: Future[Tally]) -> Tally:
    try:
        return future.result()
    except AttnlabError:
        raise
    except Exception as error:  # executors have many for a worker that is gone
        raise _worker_error(chunk, error) from error


def _worker_error(chunk: Chunk, error: Exception) -> WorkerError:
    first, last = chunk.texts[0].name, chunk.texts[-1].name
    return WorkerError(
        f"the executor failed at the texts from {first} to {last}: {type(error).__name__}: {error}."
        " With a directory, the same call resumes from what is written there"
    )


class StoredTallies:
    """The tallies of chunks in a directory, each in a file of its own.

    Parameters
    ----------
    directory : where they are
    run : what makes it this run, in words
    columns : how many numbers a tally has
    """

    def __init__(self, directory: Path, run: dict[str, str], columns: int) -> None:
        self._directory, self._run, self._columns = directory, run, columns

    def _file(self, chunk: Chunk) -> Path:
        return self._directory / f"chunk-{chunk.number:08}.safetensors"

    def _about(self, chunk: Chunk) -> dict[str, str]:
        texts = (part for text in chunk.texts for part in map(repr, text))
        digest = sha256(text.encode() for text in texts)
        return {**self._run, "texts": f"{len(chunk.texts)} from {chunk.first} on, sha256 {digest}"}

    def write(self, chunk: Chunk, tally: Tally) -> None:
        """Write a chunk's tally, whole or not at all."""
        words = self._about(chunk) | tally.words()
        write_sealed(self._file(chunk), FORMAT, tally.tensors(), words)

    def read(self, chunk: Chunk) -> Tally | None:
        """A chunk's tally; None where it is not known."""
        file, about = self._file(chunk), self._about(chunk)

        def check(words: dict[str, str], shapes: Shapes) -> None:
            check_run(file, {name: words.get(name) for name in about}, about)
            Tally.check_shapes(self._columns, shapes)

        try:
            tensors, words = read_sealed(file, FORMAT, ResumeError, check)
        except MissingFileError:
            return None
        with errors_of(ResumeError, f"{file} is no whole chunk; remove it to measure it again"):
            return Tally.read(tensors, words)


def identity(task: Task, chunk: int) -> dict[str, str]:
    """What makes two runs the same run, the corpus apart."""
    model = task.shared.model
    parameters = copy(model.parameters)  # which reads for itself what is on disk, and lets it go
    words = [model.tokenizer.vocabulary.bytes_of(id) for id in range(len(model.tokenizer))]
    told = {
        "config": asdict(model.config),
        "dtype": parameters.dtype,
        "parameters": f"sha256 {sha256(parameters[path].tobytes() for path in parameters)}",
        "vocabulary": f"sha256 {sha256([repr(words).encode()])}",
        "measures": ", ".join(
            name if function is None else f"{name} ({identity_of(function)})"
            for name, function in task.measures.items()
        ),
        "window": task.window,
        "chunk": chunk,
    }
    return {name: str(value) for name, value in told.items()}


def identity_of(function: Measure) -> str:
    """Which function it is: its module and name, and its version if it has one."""
    module, name, version = (
        attribute(function, one) for one in ("__module__", "__qualname__", "version")
    )
    return f"{module}.{name}" if version is None else f"{module}.{name}, version {version}"
