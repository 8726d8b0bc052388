"""From a corpus to its atlas: chunks to workers, their tallies added up in order."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from copy import copy
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from attnlab.checkpoints.checkpoint import Checkpoint
from attnlab.checkpoints.hub import POCKET_DIRECTORY
from attnlab.corpus.functions import digest_of
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
from attnlab.support.checks import as_count, as_flag, check_kind
from attnlab.support.console import progress_bar
from attnlab.support.files import Given, as_path, held, make_directory, write_whole
from attnlab.support.sealed import read_sealed, sha256, write_sealed
from attnlab.support.tables import printable
from attnlab.views.page.atlas import page

FORMAT = "3"

# Tokens that are traced at once where nothing else is said.
WINDOW = 128

# How often a chunk is tried again that a worker died of.
RETRIES = 3

# What no other worker would do better: the work can't be sent, or attnlab is not there.
DEFECTS = (pickle.PicklingError, AttributeError, TypeError, ImportError)

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
        the end of a text does not count. They are read as a stream. What is longer than 1,000,000
        bytes is taken for several texts.
    measures : names, see `attnlab.corpus.MEASURES`; and functions of a `Trace` that give a number
        for each head, (L, H), NaN where there is none, which count once for each window. None for
        all that have names.
    executor : any of `concurrent.futures`: processes, threads, Dask's `client.get_executor()`,
        `mpi4py.futures.MPIPoolExecutor`; None for this process alone. A pool of processes of which
        one died is made anew.
    chunk : texts that a worker takes at once; fewer where they are long
    window : tokens that are traced at once, with the ids that they have in their text; None for
        128, or fewer where the model has fewer positions
    directory : where the tally of each chunk is written when it is known, outside of a directory
        of texts. A run that was killed goes on from there when it is started again with the same
        arguments, and counts no text twice; in the end `atlas.safetensors` is there, as
        `Atlas.save` writes it, and its page, `atlas.html`. A function is the same if its code, its
        defaults and the values that it closes over are; what it reaches by a global name, such as
        functions that it calls, is not seen: after a change there, give another directory.
    progress : whether a bar shows texts and tokens per second, on stderr

    Returns
    -------
    Atlas
        `.faults` names the texts that could not be measured

    Raises
    ------
    InvalidTypeError, InvalidValueError, MissingFileError
        Something can't be used, which is told before any work: also a function that works on no
        text of the first chunk. Or no text could be measured.
    ResumeError
        The directory holds chunks of another model, corpus, function, or of other settings.
    WorkerError
        The executor broke and can't be made anew.
    WriteError
        The directory can't be written to, or another run is at work in it.

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
        kept = None if place is None else Kept(place, identity(task, chunk))
        with contextlib.closing(Work(task, executor, kept)) as work:
            digest = hashlib.sha256()
            total = _added_up(work, digested(chunks, digest), progress)
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


def _added_up(work: Work, chunks: Iterator[Chunk], progress: bool) -> Tally:
    """The tally of all chunks, added in their order."""
    total = work.nothing()
    started, before = time.perf_counter(), 0
    # Until something is done it leaves no line above an error.
    with progress_bar(unit=" texts", leave=False, disable=not progress) as bar:
        for tally, is_new in work.in_order(chunks):
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


class Here(Executor):
    """Does everything at once, in this process."""

    def submit(self, function: Any, /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*given, **named))
        return future


class Work:
    """Chunks at an executor."""

    def __init__(self, task: Task, executor: Executor | None, kept: Kept | None) -> None:
        self._task, self._kept = task, kept
        self._executor = Here() if executor is None else executor
        self._own: list[Executor] = []
        workers = 1 if executor is None else getattr(executor, "_max_workers", MANY_WORKERS)
        self._most = 2 * workers  # chunks that are under way, or wait for an earlier one
        self._waiting: dict[Future[Tally], Chunk] = {}

    def close(self) -> None:
        """Take back what has not begun, and end what was made anew."""
        for future in self._waiting:
            future.cancel()
        for executor in self._own:
            executor.shutdown()

    def nothing(self) -> Tally:
        return Tally.of(columns(self._task.shared.model.config, self._task.measures))

    def in_order(self, chunks: Iterator[Chunk]) -> Iterator[tuple[Tally, bool]]:
        """The tally of each chunk, in order, and whether it was made now."""
        found: dict[int, tuple[Tally, bool]] = {}
        number = 0
        while True:
            while len(self._waiting) + len(found) < self._most:
                chunk = next(chunks, None)
                if chunk is None:
                    break
                tally = self._kept and self._kept.read(chunk)
                if tally:
                    found[chunk.number] = tally, False
                else:
                    self._waiting[self._submit(chunk)] = chunk
            if not self._waiting and not found:
                return
            if number not in found:
                done, _ = wait(self._waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    chunk = self._waiting.pop(future)
                    tally = self._result(chunk, future)
                    if self._kept:
                        self._kept.write(chunk, tally)
                    found[chunk.number] = tally, True
            while number in found:
                yield found.pop(number)
                number += 1

    def _submit(self, chunk: Chunk) -> Future[Tally]:
        try:
            return self._executor.submit(tally_of, self._task, chunk)
        except BrokenExecutor as error:
            self._executor = renewed(self._executor, error)
            self._own.append(self._executor)
            return self._executor.submit(tally_of, self._task, chunk)

    def _result(self, chunk: Chunk, future: Future[Tally]) -> Tally:
        """What a worker made; where it died, what another one makes.

        Raises
        ------
        WorkerError
            Workers can't be sent the work, or do not know attnlab.
        """
        reason = ""
        for tried in range(1 + RETRIES):
            if tried:
                future = self._submit(chunk)
            try:
                return future.result()
            except AttnlabError:
                raise
            except DEFECTS as error:
                raise WorkerError(
                    f"the executor can't do the work: {type(error).__name__}: {error}"
                ) from error
            except Exception as error:  # executors have many for a worker that is gone
                reason = f"workers died of it: {type(error).__name__}: {error}"
        tally = self.nothing()
        if len(chunk.texts) == 1:
            tally.faults.append((chunk.texts[0].name, reason))
            return tally
        for number, text in enumerate(chunk.texts, chunk.first):
            alone = Chunk(chunk.number, number, (text,))
            tally.add(self._result(alone, self._submit(alone)))
        return tally


def renewed(executor: Executor, error: BrokenExecutor) -> Executor:
    """A pool of processes like one of which a process died.

    Raises
    ------
    WorkerError
        It is another executor.
    """
    old: Any = executor
    if not isinstance(executor, ProcessPoolExecutor):
        raise WorkerError(
            f"the executor broke: {error}. With a directory, a run that is started again goes on "
            "from what is written there"
        )
    return ProcessPoolExecutor(
        old._max_workers,
        mp_context=old._mp_context,
        initializer=old._initializer,
        initargs=old._initargs,
    )


class Kept:
    """The tallies of chunks in a directory, each in a file of its own.

    Parameters
    ----------
    directory : where they are
    run : what makes it this run, in words
    """

    def __init__(self, directory: Path, run: dict[str, str]) -> None:
        self._directory, self._run = directory, run

    def _file(self, chunk: Chunk) -> Path:
        return self._directory / f"chunk-{chunk.number:08}.safetensors"

    def _about(self, chunk: Chunk) -> dict[str, str]:
        texts = (part for text in chunk.texts for part in map(repr, text))
        digest = sha256(text.encode() for text in texts)
        return {**self._run, "texts": f"{len(chunk.texts)} from {chunk.first} on, sha256 {digest}"}

    def write(self, chunk: Chunk, tally: Tally) -> None:
        """Write a chunk's tally, whole or not at all."""
        write_sealed(self._file(chunk), tally.tensors(), self._about(chunk) | tally.words())

    def read(self, chunk: Chunk) -> Tally | None:
        """A chunk's tally; None where it is not known.

        Raises
        ------
        ResumeError
            It can't be read, or is of another run.
        """
        file = self._file(chunk)
        try:
            tensors, words = read_sealed(file, ResumeError)
        except MissingFileError:
            return None
        about = self._about(chunk)
        different = "; ".join(
            f"{name}: there {words.get(name)}, here {here}"
            for name, here in about.items()
            if words.get(name) != here
        )
        if different:
            raise ResumeError(
                f"{file} belongs to another run. {printable(different[:1000])}. Give the run a "
                "directory of its own, or the arguments that it had"
            )
        return Tally.read(tensors, words)


def identity(task: Task, chunk: int) -> dict[str, str]:
    """What makes two runs the same run, the corpus apart."""
    model = task.shared.model
    parameters = copy(model.parameters)  # which reads for itself what is on disk, and lets it go
    words = [model.tokenizer.vocabulary.bytes_of(id) for id in range(len(model.tokenizer))]
    told = {
        "format": FORMAT,
        "config": asdict(model.config),
        "dtype": parameters.dtype,
        "parameters": f"sha256 {sha256(parameters[path].tobytes() for path in parameters)}",
        "vocabulary": f"sha256 {sha256([repr(words).encode()])}",
        "measures": ", ".join(
            name if function is None else f"{name} (sha256 {digest_of(function)[:16]})"
            for name, function in task.measures.items()
        ),
        "window": task.window,
        "chunk": chunk,
    }
    return {name: str(value) for name, value in told.items()}
