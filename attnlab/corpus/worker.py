"""A worker: opens the model once and returns a tally for each chunk."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from attnlab.corpus.heads import Plan, TextSums
from attnlab.corpus.measures import Measure, Sums, is_per_head, measure_trace
from attnlab.corpus.tally import Tally, Window, window_number
from attnlab.corpus.texts import Chunk, Text
from attnlab.equations import Ids
from attnlab.errors import AttnlabError, InvalidValueError
from attnlab.model.gpt2 import GPT2
from attnlab.support.blas import use_one_thread

# The largest model in memory that is sent to workers, in bytes.
MAX_SENT = 64_000_000


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
