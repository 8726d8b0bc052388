"""Make an atlas: submit chunks of texts to workers and add up the chunks' tallies in order.

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
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.corpus.details import details_of
from attnlab.corpus.heads import PAIRS_READ, Plan, TextSums, common_pairs
from attnlab.corpus.measures import Measure, Sums, as_measures, is_per_head, measure_trace
from attnlab.corpus.result import RESULT, Atlas
from attnlab.corpus.tally import Tally, Window, read_arrays, write_arrays
from attnlab.equations import Ids
from attnlab.errors import AtlasError, AttnlabError, InvalidValueError, WorkerError
from attnlab.model.gpt2 import GPT2
from attnlab.support.blas import one_thread, use_one_thread
from attnlab.support.checks import as_count, as_flag, attribute, check_kind, reraised_as
from attnlab.support.console import progress_bar
from attnlab.support.files import FilePath, as_path, make_directory
from attnlab.support.language import ENGLISH, using_language
from attnlab.text.corpora import Chunk, Text, chunks_of

MAX_SENT = 64_000_000  # bytes of the largest model that is sent to workers from memory
WINDOW = 128  # the default number of tokens that are traced at once
DEFAULT_WORKERS = 64  # the assumed number of workers if an executor doesn't report it

# A window's number is the number of its text, followed by the position of its first token in the
# lowest TOKEN_BITS bits.
TOKEN_BITS = 32


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

    mean = Σ sums / Σ divisors over all texts. The result has the same bits for any executor and any
    number of workers. Each worker uses one thread for matrix products.

    Parameters
    ----------
    model : a GPT2; or a name or directory as in `GPT2.from_pretrained`, which each worker opens
    texts : an iterable of texts, ids or Tokens; a file with one text per line (blank lines are
        skipped); a .jsonl, .csv or .tsv file, whose texts are in the field or column "text"; or a
        directory, searched recursively, of such records and of other files with one text each
        (hidden files are skipped). Files are UTF-8; line breaks become `\\n`, and a final line
        break is dropped. Texts are read as a stream.
    measures : names from `attnlab.corpus.MEASURES`, and functions from a `Trace` to a number for
        each head, (L, H), NaN where undefined; each window has the same weight in a function's
        mean. None means all named measures.
    executor : an executor of `concurrent.futures`, for processes or threads, Dask's
        `client.get_executor()` or `mpi4py.futures.MPIPoolExecutor`; None computes in this process
    chunk : the number of texts per task, which is less if the texts are long
    window : the number of tokens to trace at once; None means 128, or n_positions if that is less
    heads : whether to measure as well what each head attends to and writes, for `Atlas.head` and
        the heads' pages. GPT-2 then takes 10 to 15 % longer, and 13 MB of disk for each chunk.
    directory : where to keep a file for each finished chunk, so that an interrupted run resumes
        when it is started again; chunks whose texts, model or measures changed are measured anew.
        At the end the atlas is saved there as `atlas.safetensors`. The directory can't be inside
        the directory of texts. A function is identified by its module, its name and its optional
        `version` attribute: change the version when you change the function.
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
    window = min(WINDOW, limit) if window is None else window
    window = as_count(window, "window", least=2, most=limit)
    task = Task(loaded, name, as_measures(measures), window)
    chunks = chunks_of(texts, as_count(chunk, "chunk", least=1))
    path = None if directory is None else as_path(directory, "directory")
    corpus = as_path(texts, "texts") if isinstance(texts, str | os.PathLike) else None
    if path and corpus and path.resolve().is_relative_to(corpus.resolve()):
        raise InvalidValueError(
            f"{path} is in the directory of texts, {corpus}; choose a directory elsewhere"
        )
    if heads:
        if not any(map(is_per_head, task.measures)):
            raise InvalidValueError("heads=True needs a measure of heads, such as 'first'")
        task, chunks = planned(task, chunks)
    n_texts = len(texts) if isinstance(texts, Sized) and corpus is None else None
    with one_thread(), contextlib.closing(tallies(task, executor, path, chunks)) as results:
        total = added_up(Tally(task.columns, task.plan), results, n_texts, progress)
        with using_language(ENGLISH):  # the description is stored in English; titles translate it
            description = repr(loaded)
        about = {
            "measures": [*task.measures],
            "n_layer": loaded.config.n_layer,
            "n_head": loaded.config.n_head,
            "model": description,
            "window": window,
        }
        details = () if task.plan is None else details_of(loaded, task.plan, total)
        means = Tally(task.columns)  # drops the sums of heads, which only `details_of` needs
        means.add(total)
        result = Atlas(about, means, details)
    if path is not None:
        result.save(path / RESULT)
    return result


def planned(task: Task, chunks: Iterator[Chunk]) -> tuple[Task, Iterator[Chunk]]:
    """Choose the token pairs to tally from the first texts; return the task and all chunks."""
    config = task.model.config
    read, texts = list[Chunk](), list[list[Ids]]()
    n_pairs = 0
    for chunk in chunks:
        read.append(chunk)
        for text in chunk.texts:
            with contextlib.suppress(AttnlabError):
                texts.append([])
                for _, ids in task.windows(text):
                    if n_pairs < PAIRS_READ:
                        texts[-1].append(ids)
                        n_pairs += max(len(ids) ** 2 // 2, 64)  # tiny texts must count, too
        if n_pairs >= PAIRS_READ:
            break
    heads, width = config.n_layer * config.n_head, config.n_embd // config.n_head
    pairs = common_pairs(texts, config.vocab_size, heads)
    plan = Plan(pairs, config.vocab_size, heads, width, task.window)
    return replace(task, plan=plan), chain(read, chunks)


def added_up(total: Tally, results: Iterable[Tally], n_texts: int | None, progress: bool) -> Tally:
    """Add all chunks' tallies to `total`, in order, with a progress bar.

    The bar estimates the time left if the number of texts is known.
    """
    # The bar disappears if an error occurs before the first chunk is done.
    with progress_bar(progress, total=n_texts, unit=" texts", leave=False) as bar:
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
    return total


def tallies(
    task: Task, executor: Executor | None, directory: Path | None, chunks: Iterator[Chunk]
) -> Generator[Tally, None, None]:
    """Yield each chunk's tally, in order. If a chunk has a file, the file is read instead."""
    key = None if directory is None else task.key
    # Two chunks per worker, so that the next chunk is ready when a worker finishes.
    limit = 1 if executor is None else 2 * getattr(executor, "_max_workers", DEFAULT_WORKERS)
    waiting: deque[tuple[Chunk, Path | None, Future[Tally] | None]] = deque()
    try:
        while True:
            for chunk in islice(chunks, limit - len(waiting)):
                file = None if directory is None else directory / file_name(chunk, key)
                future = None
                if executor is not None and not (file and file.exists()):
                    with worker_errors(chunk):
                        future = executor.submit(task.tally, chunk)
                waiting.append((chunk, file, future))
            if not waiting:
                return
            chunk, file, future = waiting.popleft()
            if file is not None and file.exists():
                yield read_chunk(task, file)
                continue
            if future is None:
                tally = task.tally(chunk)
            else:
                with worker_errors(chunk):
                    tally = future.result()
            if file is not None:
                make_directory(file.parent)
                write_arrays(file, *tally.to_store())
            yield tally
    finally:
        for _, _, future in waiting:
            if future is not None:
                future.cancel()


@contextlib.contextmanager
def worker_errors(chunk: Chunk) -> Iterator[None]:
    """Report an executor's error, such as a lost worker, with the names of the chunk's texts."""
    try:
        yield
    except AttnlabError:
        raise
    except Exception as error:  # each executor has its own types of errors
        first, last = chunk.texts[0].name, chunk.texts[-1].name
        raise WorkerError(
            f"the executor failed at the texts from {first} to {last}: {type(error).__name__}: "
            f"{error}. If you gave a directory, the same call resumes the run"
        ) from error


def file_name(chunk: Chunk, key: int | None) -> str:
    """The name of a chunk's file, which changes with the texts and with `Task.key`."""
    return f"chunk-{chunk.number:08}-{checksum(key, chunk):08x}.safetensors"


def checksum(*values: object) -> int:
    """A number that changes with the values."""
    return zlib.crc32(repr(values).encode())


def read_chunk(task: Task, file: Path) -> Tally:
    """Read a finished chunk's tally."""
    arrays, about = read_arrays(file)
    with reraised_as(
        AtlasError, f"{file} isn't a chunk's file. If you remove it, the chunk is measured again"
    ):
        return Tally.from_stored(arrays, about, task.columns, task.plan)


@dataclass
class Task:
    """What to compute for every chunk.

    Workers get the task as a pickle. A model that the user gave by name is sent as its name.
    Another model whose weights are on disk is sent as its tokenizer and the weights' path.
    """

    model: GPT2
    name: str | None
    measures: dict[str, Measure | None]  # a function by name, or None if attnlab defines it
    window: int  # tokens to trace at once
    plan: Plan | None = None  # what to tally of each head, see `atlas(heads=True)`

    def __reduce__(self) -> tuple[Any, ...]:
        sent = self.name or self.pickled_model
        return sent_task, (sent, self.measures, self.window, self.plan)

    @cached_property
    def pickled_model(self) -> bytes:
        content = pickle.dumps(self.model)
        if len(content) > MAX_SENT:
            raise InvalidValueError(
                f"the model in memory has {len(content) // 10**6:,} MB, too much to send with each "
                "chunk; save it with model.save(directory) and pass the directory"
            )
        return content

    @property
    def key(self) -> int:
        """A number that changes with everything that a text's sums depend on."""
        model, functions = self.model, list[tuple[Any, ...]]()
        parameters = copy(model.parameters)  # a copy, so that arrays read from disk are freed
        weights = [zlib.crc32(parameters[path].tobytes()) for path in parameters]
        tokens = [model.tokenizer.vocabulary.bytes_of(id) for id in range(len(model.tokenizer))]
        for name, function in self.measures.items():
            names = ("__module__", "__qualname__", "version")
            functions.append((name, *(attribute(function, each) for each in names)))
        pairs = None if self.plan is None else self.plan.pairs.tolist()
        return checksum(asdict(model.config), weights, tokens, functions, self.window, pairs)

    @property
    def columns(self) -> int:
        """The number of columns of a tally."""
        config = self.model.config
        heads = config.n_layer * config.n_head
        return sum(heads if is_per_head(name) else 1 for name in self.measures)

    def tally(self, chunk: Chunk) -> Tally:
        """The tally of a chunk's texts; `faults` names the texts that can't be measured."""
        tally = Tally(self.columns, self.plan, np.float32)
        for number, text in enumerate(chunk.texts, chunk.first):
            try:
                text_sums = None if self.plan is None else TextSums(self.plan)
                tally.add(self._tally_of_text(number, text, text_sums))
                if text_sums is not None:
                    text_sums.add_to(tally.sums)
            except (AttnlabError, MemoryError) as error:
                tally.faults.append((text.name, str(error) or "not enough memory"))
        return tally

    def _tally_of_text(self, number: int, text: Text, text_sums: TextSums | None) -> Tally:
        """The tally of a text, whose sums of heads are added to `text_sums`."""
        tally, total = Tally(self.columns), Sums(*np.zeros((2, self.columns)))
        for start, ids in self.windows(text):
            window = (number << TOKEN_BITS) + start
            if text_sums is not None:
                text_sums.open(window, ids)
            trace = self.model.trace(ids)
            by_name = measure_trace(trace, self.measures, text_sums)
            sums = Sums(  # of all measures, one after another
                np.concatenate([each.sums.ravel() for each in by_name.values()]),
                np.concatenate([each.divisors.ravel() for each in by_name.values()]),
            )
            if text_sums is not None:
                tally.best["tops"] = text_sums.tops
            content = trace.vocabulary.decode_bytes(ids).decode(errors="replace")
            tally.add_window(window, Window(text.name, start, ids.tolist(), content), *sums)
            total = Sums(*map(np.add, total, sums))
        tally.add_text(*total)
        return tally

    def windows(self, text: Text) -> Iterator[tuple[int, Ids]]:
        """Yield the position of each window's first token in the text, and the window's ids."""
        if text.fault:
            raise InvalidValueError(text.fault)
        ids = np.array(text.ids or self.model.tokenizer.encode(text.content), np.int64)
        if not len(ids):
            raise InvalidValueError("has no tokens")
        for start in range(0, len(ids), self.window):
            yield start, ids[start : start + self.window]


def sent_task(sent: str | bytes, *others: Any) -> Task:
    return Task(opened_once(sent), None, *others)


@lru_cache(maxsize=1)
def opened_once(sent: str | bytes) -> GPT2:
    """Open a model by its name or from its pickle; a worker opens the model once and keeps it."""
    use_one_thread()
    return GPT2.from_pretrained(sent) if isinstance(sent, str) else pickle.loads(sent)


def initialize_worker() -> None:
    """Make a worker process end silently on Ctrl-C, and when its parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    def end() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
            os._exit(1)

    threading.Thread(target=end, daemon=True).start()
