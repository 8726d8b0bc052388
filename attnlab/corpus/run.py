"""Run an atlas: submit chunks to workers and add up their tallies in order.

A worker opens the model once and returns a tally for each chunk.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import zlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Executor, Future
from copy import copy
from dataclasses import asdict
from functools import cached_property, lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnlab.corpus.details import details_of
from attnlab.corpus.heads import PAIRS_READ, Plan, TextSums, common_pairs
from attnlab.corpus.measures import Measure, Sums, as_measures, is_per_head, measure_trace
from attnlab.corpus.result import RESULT, Atlas
from attnlab.corpus.tally import Tally, Window, read_arrays, window_number, write_arrays
from attnlab.corpus.texts import Chunk, Text, chunks_of
from attnlab.equations import Ids
from attnlab.errors import (
    AttnlabError,
    InvalidValueError,
    MissingFileError,
    ResumeError,
    WorkerError,
)
from attnlab.model.gpt2 import GPT2
from attnlab.support.blas import one_thread, use_one_thread
from attnlab.support.checks import as_count, as_flag, attribute, check_kind, reraised_as
from attnlab.support.console import progress_bar
from attnlab.support.files import (
    FilePath,
    as_path,
    make_directory,
)
from attnlab.support.language import ENGLISH, using_language
from attnlab.support.tables import printable

# The largest model in memory that is sent to workers, in bytes.
MAX_SENT = 64_000_000

# Default number of tokens traced at once.
WINDOW = 128

# The number of workers that is assumed if an executor doesn't report one.
DEFAULT_WORKERS = 64


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
        skipped); a .jsonl, .csv or .tsv file, whose texts are in the field or column "text"; or a
        directory of such records and of other files with one text each, searched recursively
        (hidden files are skipped). In files of text, in UTF-8, line breaks become `\\n`,
        and a final one is dropped. Texts are read as a stream.
    measures : names from `attnlab.corpus.MEASURES`, and functions from a `Trace` to a number for
        each head, (L, H), NaN where undefined; a function counts once per window. None means all
        named measures.
    executor : as in `concurrent.futures`: processes, threads, Dask's `client.get_executor()`,
        `mpi4py.futures.MPIPoolExecutor`; None computes in this process
    chunk : texts per task; fewer if they are long
    window : tokens to trace at once; None means 128, or n_positions if that is less
    heads : whether to measure too what each head attends to and writes, and which heads are like
        it, for a page of each head: `atlas.head(1, 2).pairs` and others, see `Atlas.head`. With
        GPT-2's heads it takes 10 to 15 % longer, and 13 MB of disk a chunk.
    directory : where to keep a file for each finished chunk, so that an interrupted run resumes
        when it is started again with the same arguments; at the end the atlas is saved there as
        `atlas.safetensors`. It can't be in a directory of texts. A function is identified by its
        module, its name and its `version` attribute, if any: change the version when you change
        the function.
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
    loaded = model if isinstance(model, GPT2) else GPT2.from_pretrained(model)
    name = None if isinstance(model, GPT2) else os.fspath(model)
    if executor is not None:
        check_kind(executor, Executor, "executor")
    limit = loaded.config.n_positions
    window = as_count(min(WINDOW, limit) if window is None else window, "window", 2, limit)
    task = Task(SharedModel(loaded, name), as_measures(measures), window)
    chunks = chunks_of(texts, as_count(chunk, "chunk", least=1))
    path = None if directory is None else as_path(directory, "directory")
    corpus = as_path(texts, "texts") if isinstance(texts, str | os.PathLike) else None
    if path and corpus and path.resolve().is_relative_to(corpus.resolve()):
        raise InvalidValueError(
            f"{path} is in the directory of texts, where the run's files would be read as "
            "texts; choose another directory"
        )
    if heads:
        if not any(map(is_per_head, task.measures)):
            raise InvalidValueError("heads=True needs a measure of heads, such as 'first'")
        task, chunks = planned(task, chunks)
    settings = {} if path is None else settings_of(task, chunk)
    results = tallies(task, executor, path, settings, chunks)
    with one_thread(), contextlib.closing(results):
        total = Tally(task.columns, task.plan)
        count = len(texts) if isinstance(texts, Sized) and corpus is None else None
        add_up(total, results, count, progress)
        with using_language(ENGLISH):  # stored in English; the atlas's title translates it
            description = repr(loaded)
        about = {
            "measures": [*task.measures],
            "n_layer": loaded.config.n_layer,
            "n_head": loaded.config.n_head,
            "model": description,
            "window": window,
        }
        details = details_of(loaded, total) if heads else ()
        means = Tally(task.columns)  # without the sums of heads, of which the details were made
        means.add(total)
        result = Atlas(about, means, details)
    if path is not None:
        result.save(path / RESULT)
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


def add_up(total: Tally, results: Iterable[Tally], count: int | None, progress: bool) -> None:
    """Add all chunks' tallies to the total, in order, and show progress.

    The bar estimates the time left if `count`, the number of texts, is known.
    """
    # The bar disappears if an error occurs before the first chunk is done.
    with progress_bar(progress, total=count, unit=" texts", leave=False) as bar:
        for tally in results:
            total.add(tally)
            bar.set_postfix_str(f"{total.tokens:,} tokens", refresh=False)
            bar.leave = True
            bar.update(tally.texts + len(tally.faults))
    if not total.texts:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in total.faults[:3])
        if reasons:
            raise InvalidValueError(f"no text could be measured: {reasons}")
        raise InvalidValueError("there are no texts to measure")


def tallies(
    task: Task,
    executor: Executor | None,
    directory: Path | None,
    settings: dict[str, str],
    chunks: Iterator[Chunk],
) -> Generator[Tally, None, None]:
    """Yield each chunk's tally, in order: that of its file, if it has one."""
    # Two chunks per worker, so that the next one is ready when a worker finishes.
    limit = 1 if executor is None else 2 * getattr(executor, "_max_workers", DEFAULT_WORKERS)
    waiting: deque[tuple[Chunk, Tally | Future[Tally] | None]] = deque()
    try:
        while True:
            for chunk in islice(chunks, limit - len(waiting)):
                tally: Any = None
                if directory is not None:
                    tally = read_chunk(task, directory, asked_of(settings, task, chunk), chunk)
                if tally is None and executor is not None:
                    with worker_errors(chunk):
                        tally = executor.submit(task.tally, chunk)
                waiting.append((chunk, tally))
            if not waiting:
                return
            chunk, pending = waiting.popleft()
            if isinstance(pending, Tally):
                yield pending
                continue
            if pending is None:
                tally = task.tally(chunk)
            else:
                with worker_errors(chunk):
                    tally = pending.result()
            if directory is not None:
                arrays, about = tally.to_store()
                make_directory(directory)
                asked = asked_of(settings, task, chunk)
                write_arrays(file_of(directory, chunk), arrays, [asked, about])
            yield tally
    finally:
        for _, pending in waiting:
            if isinstance(pending, Future):
                pending.cancel()


@contextlib.contextmanager
def worker_errors(chunk: Chunk) -> Iterator[None]:
    """Report an executor's errors, such as of a lost worker, with the chunk's texts."""
    try:
        yield
    except AttnlabError:
        raise
    except Exception as error:  # its type depends on the executor
        first, last = chunk.texts[0].name, chunk.texts[-1].name
        raise WorkerError(
            f"the executor failed at the texts from {first} to {last}: {type(error).__name__}: "
            f"{error}. If you gave a directory, the same call resumes the run"
        ) from error


def file_of(directory: Path, chunk: Chunk) -> Path:
    return directory / f"chunk-{chunk.number:08}.safetensors"


def read_chunk(task: Task, directory: Path, asked: dict[str, str], chunk: Chunk) -> Tally | None:
    """A finished chunk's tally; None if it has no file."""
    file = file_of(directory, chunk)
    try:
        arrays, content = read_arrays(file, ResumeError)
    except MissingFileError:
        return None
    with reraised_as(ResumeError, f"{file} isn't a chunk's file. Remove it to measure it again"):
        saved, about = content
        different = "; ".join(
            f"{name}: saved {saved.get(name)}, current {current}"
            for name, current in asked.items()
            if saved.get(name) != current
        )
        if different:
            raise ResumeError(
                f"{directory} belongs to another run. {printable(different[:1000])}. Use another "
                "directory, or the saved settings and texts"
            )
        return Tally.from_stored(arrays, about, task.columns, task.plan)


def settings_of(task: Task, chunk: int) -> dict[str, str]:
    """Everything that must be the same for a run to be resumed, except the texts."""
    model, measures = task.shared.model, []
    parameters = copy(model.parameters)  # a copy, so that arrays read from disk are freed
    tokens = [model.tokenizer.vocabulary.bytes_of(id) for id in range(len(model.tokenizer))]
    numbers = [zlib.crc32(parameters[path].tobytes()) for path in parameters]
    for name, function in task.measures.items():
        if function is not None:
            names = ("__module__", "__qualname__", "version")
            name = f"{name} {tuple(attribute(function, each) for each in names)}"
        measures.append(name)
    return {
        "model": f"{asdict(model.config)}, {parameters.dtype}",
        "checksum of the model": checksum(tokens, numbers),
        "measures": ", ".join(measures),
        "window": f"{task.window}",
        "chunk": f"{chunk}",
        "heads": f"{task.plan is not None}",
    }


def asked_of(settings: dict[str, str], task: Task, chunk: Chunk) -> dict[str, str]:
    """The settings, with checksums of a chunk's texts and of the token pairs that are tallied."""
    pairs = () if task.plan is None else task.plan.pairs.tolist()
    return {**settings, "checksum of the texts": checksum(chunk, pairs)}


def checksum(*values: object) -> str:
    """A number that changes with the values."""
    return f"{zlib.crc32(repr(values).encode())}"


class SharedModel:
    """A model that pickles cheaply; each worker opens it once and keeps it.

    A model given by name is sent as that name, a model on disk as its tokenizer and weights' path.
    """

    def __init__(self, model: GPT2, name: str | None = None) -> None:
        self.model, self.name = model, name

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_once, (self._content if self.name is None else self.name,)

    @cached_property
    def _content(self) -> bytes:
        content = pickle.dumps(self.model)
        if len(content) > MAX_SENT:
            raise InvalidValueError(
                f"the model in memory has {len(content) // 10**6:,} MB, too much to send with each "
                "chunk; save it with model.save(directory) and pass the directory"
            )
        return content


@lru_cache(maxsize=1)
def _open_once(sent: str | bytes) -> SharedModel:
    """The model that has this name, or was pickled."""
    use_one_thread()
    if isinstance(sent, str):
        return SharedModel(GPT2.from_pretrained(sent), sent)
    return SharedModel(pickle.loads(sent))


class Task(NamedTuple):
    """What to compute for every chunk."""

    shared: SharedModel
    measures: dict[str, Measure | None]  # by name, with the functions of user-defined ones
    window: int  # tokens to trace at once
    plan: Plan | None = None  # what to tally of each head, see `atlas(heads=True)`

    @property
    def columns(self) -> int:
        """The number of columns of a tally."""
        config = self.shared.model.config
        heads = config.n_layer * config.n_head
        return sum(heads if is_per_head(name) else 1 for name in self.measures)

    def tally(self, chunk: Chunk) -> Tally:
        """The tally of a chunk's texts; those that can't be measured are in `faults`."""
        tally = Tally(self.columns, self.plan, np.float32)
        for number, text in enumerate(chunk.texts, chunk.first):
            try:
                seen = None if self.plan is None else TextSums(self.plan)
                tally.add(self._tally_of_text(number, text, seen))
                if seen is not None:
                    seen.add_to(tally.sums)
            except (AttnlabError, MemoryError) as error:
                tally.faults.append((text.name, str(error) or "not enough memory"))
        return tally

    def _tally_of_text(self, number: int, text: Text, seen: TextSums | None) -> Tally:
        """A text's tally; the sums of its heads are added to `seen`."""
        tally, total = Tally(self.columns), Sums(*np.zeros((2, self.columns)))
        for start, ids in self.windows(text):
            window = window_number(number, start)
            if seen is not None:
                seen.open(window, ids)
            trace = self.shared.model.trace(ids)
            sums = joined_sums(measure_trace(trace, self.measures, seen))
            if seen is not None:
                tally.tops = seen.tops
            content = trace.vocabulary.decode_bytes(ids).decode(errors="replace")
            tally.add_window(window, Window(text.name, start, ids.tolist(), content), *sums)
            total = Sums(*map(np.add, total, sums))
        tally.add_text(*total)
        return tally

    def windows(self, text: Text) -> Iterator[tuple[int, Ids]]:
        """The position of each window's first token in the text, and the window's ids."""
        if text.fault:
            raise InvalidValueError(text.fault)
        ids = np.array(text.ids or self.shared.model.tokenizer.encode(text.content), np.int64)
        if not len(ids):
            raise InvalidValueError("has no tokens")
        for start in range(0, len(ids), self.window):
            yield start, ids[start : start + self.window]


def joined_sums(sums_by_name: dict[str, Sums]) -> Sums:
    """The sums and divisors of all measures, (C,) each."""
    sums, divisors = zip(*sums_by_name.values(), strict=True)
    return Sums(*(np.concatenate([*map(np.ravel, arrays)]) for arrays in (sums, divisors)))


def initialize_worker() -> None:
    """Make a worker process end silently on Ctrl-C, and when its parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()

    def end() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end, daemon=True).start()
