"""Attacks with model directories: one is changed and opened, or its training is gone on with.

A case starts from one of the tiny reference models or from what a training has left, and changes
one to three things. `oracle` tells what is right.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import oracle
from changes import CHANGES, OF_STATE
from folders import BASES, CONFIG, MODELS, STATE, TRAINED, WEIGHTS, Folder
from processes import Result

import attnlab

# The run that is trained, then gone on with from what became of its directory.
STEPS = 3
CORPUS = "the cat sat on the mat, the hat on the cat. " * 3


def train(directory: str) -> Any:
    """The small training run; what is in the directory is gone on with."""
    config = attnlab.GPT2Config(vocab_size=256, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    return attnlab.train(
        config,
        CORPUS,
        steps=STEPS,
        batch_size=2,
        directory=directory,
        progress=False,
    )


def folder_of(number: int) -> Folder:
    """The folder of a case, before it is on disk."""
    rng = random.Random(f"directories {number}")
    base = rng.choice([*MODELS, "trained"])
    files = TRAINED if base == "trained" else BASES[base]
    folder = Folder(base, "model", dict(files))
    for _ in range(rng.choice([1, 1, 1, 1, 2, 2, 3])):
        of_state = base == "trained" and STATE in folder.files and rng.random() < 0.7
        what = None
        while what is None and folder.files:
            try:
                what = rng.choice(OF_STATE if of_state else CHANGES)(folder, rng)
            except (ValueError, RecursionError):
                if not folder.log:  # what has been changed may be too strange for another change
                    raise
        folder.log.append(what or "nothing is left")
    return folder


TEXTS = ["the thin the", " in a heath, than  then \n\tin", "é’猫🙈 don't 12½ ___\x00\x7f", "", " "]


@dataclass
class Attacked:
    """A directory on disk, and what was done to it."""

    folder: Folder
    path: Path

    @property
    def size(self) -> int:
        return sum(f.stat().st_size for f in self._files())

    def given(self) -> list[str]:
        files = [f for f in self._files() if f.stat().st_size < 10**6]
        texts = [file.read_bytes().decode("utf-8", errors="replace") for file in files]
        return [*texts, *map(ascii, texts)]

    def _files(self) -> list[Path]:
        return [file for file in self.path.iterdir() if os.path.isfile(file)]

    def told(self, call: str, holds: object) -> str:
        changes = "\n".join(f"    {entry}" for entry in self.folder.log)
        return f"{self.folder.base}, {call}; the oracle: {holds or 'sound'}\n{changes}"


class Opening(Attacked):
    """A model that is opened and asked for ids and logits.

    Attributes
    ----------
    ids : which ids the logits are asked for
    more : how many ids are written on from the first two, always the most probable one
    save : where the model is saved, None if it is not
    expected : what the directory holds, or why it may not be opened
    """

    def __init__(self, folder: Folder, place: Path, rng: random.Random) -> None:
        super().__init__(folder, folder.write(place))
        self.dtype = rng.choice(["float32", "float64"])
        letters = "".join(rng.choice("tehinaa  ") for _ in range(rng.choice([0, 20, 200])))
        self.texts = [*TEXTS, letters]
        self.save = place / "saved" if rng.random() < 0.1 else None
        positions, vocab = 4, 256
        self.expected: oracle.Model | str
        try:
            first = oracle.sizes(self.path / CONFIG, [])
            positions, vocab = min(positions, first.n_positions), first.vocab_size
            self.expected = oracle.read(self.path, self.dtype, positions)
        except oracle.UnsoundError as reason:
            self.expected = ascii(str(reason))
        self.ids = [n % vocab for n in (71, 259, 3, 71)[:positions]]
        self.more = 2 if positions == 4 and rng.random() < 0.3 else 0

    def attack(self) -> Any:
        model = attnlab.GPT2.from_pretrained(self.path, dtype=self.dtype)
        repr(model)
        ids = [list(model.tokenizer.encode(text)) for text in self.texts]
        texts = [model.tokenizer.decode_bytes(one) for one in ids]
        trace = model.trace(self.ids)
        found = (np.array(trace.logits), np.array(trace.next_logits))
        if self.save is not None:
            model.save(self.save)
        written = model.generate(self.ids[:2], self.more, temperature=0).new.ids
        return ids, texts, found, np.array(written).tolist()

    def judge(self, found: Any) -> tuple[Result, str]:
        if isinstance(self.expected, str):
            if isinstance(found, Exception):
                return Result.REFUSED, ""
            return Result.OTHER, f"opened, and is unsound: {self.expected[:160]}"
        right = self.expected.logits(self.ids, self.dtype)
        if isinstance(found, Exception):
            if self.expected.doubts or right is None:
                return Result.REFUSED, ""
            return Result.STRICT, f"{type(found).__name__}: {str(found)[:160]!a}"
        ids, texts, (logits, next_logits), written = found
        if wrong := self._wrong_words(self.expected, ids, texts):
            return Result.OTHER, wrong
        if right is None:
            return Result.RIGHT, "numbers too large to compare"
        last = oracle.Range(right.numbers[-1], right.tolerance)
        if not right.holds(logits) or not last.holds(next_logits):
            return Result.OTHER, "the logits are not those of the equations"
        whole = self.expected.vocabulary and not self.expected.doubts  # a token for each row
        if whole and (wrong := self._wrong_continuation(self.expected, written)):
            return Result.OTHER, wrong
        return self._judge_saved(self.save, right) if self.save else (Result.RIGHT, "")

    def _wrong_words(self, expected: oracle.Model, ids: list[Any], texts: list[Any]) -> str:
        if expected.vocabulary is None:
            return ""
        for text, found, back in zip(self.texts, ids, texts, strict=True):
            right = expected.vocabulary.encoded(text)
            if found not in right:
                return f"other ids: {text[:80]!a} is {found}, and should be {right[0]}"
            if back != text.encode():
                return f"other bytes: {text!a} comes back as {back!r}"
        return ""

    def _wrong_continuation(self, expected: oracle.Model, written: list[int]) -> str:
        ids = self.ids[:2]
        for id in written:
            logits = expected.logits(ids, self.dtype)
            if logits is None:
                break
            *_, second, best = np.sort(logits.numbers[-1])
            if best - second <= 2 * logits.tolerance:  # either may be the largest
                break
            if id != logits.numbers[-1].argmax():
                return f"{written} written, and {id} is not the most probable"
            ids = [*ids, id]
        return ""

    def _judge_saved(self, directory: Path, right: oracle.Range) -> tuple[Result, str]:
        try:
            again = oracle.read(directory, self.dtype, len(self.ids))
        except oracle.UnsoundError as reason:
            return Result.OTHER, f"what is saved is unsound: {ascii(str(reason))[:160]}"
        saved = again.logits(self.ids, self.dtype)
        if saved is None or not right.holds(saved.numbers):
            return Result.OTHER, "what is saved is another model"
        return Result.RIGHT, ""

    def story(self) -> str:
        holds = self.expected if isinstance(self.expected, str) else self.expected.doubts
        return self.told(f"opened in {self.dtype}, logits of {self.ids}", holds)


State = tuple[dict[str, oracle.Stored], dict[str, str]]


class GoingOn(Attacked):
    """A training that is started again in its directory.

    What is written in the state is the library's own affair. So it is held against the state that
    the run itself has left: what differs in more than numbers belongs to no such run.

    Attributes
    ----------
    state : what the directory's state holds, or why it may not be gone on with
    """

    def __init__(self, folder: Folder, place: Path) -> None:
        super().__init__(folder, folder.write(place))
        left = place / STATE
        left.write_bytes(TRAINED[STATE])
        self.left: State = oracle.safetensors(left, [])
        self.state: State | str
        try:
            self.state = oracle.safetensors(self.path / STATE, [])
        except oracle.UnsoundError as reason:
            self.state = ascii(str(reason))
        self.absent = not os.path.exists(self.path / STATE)
        self.saved = place / "saved"

    def attack(self) -> Any:
        run = train(str(self.path))
        repr(run)
        run.model.save(self.saved)
        return run

    def judge(self, found: Any) -> tuple[Result, str]:
        if isinstance(found, Exception):
            untouched = self.folder.files == TRAINED
            if untouched:
                return Result.STRICT, f"{type(found).__name__}: {str(found)[:160]!a}"
            return Result.REFUSED, ""
        if found.step != STEPS or len(found.losses) != STEPS:
            return Result.OTHER, f"ended at step {found.step} of {STEPS}"
        if self.absent:
            return Result.RIGHT, "no state: from the start"
        if isinstance(self.state, str):
            return Result.OTHER, f"gone on with, and is unsound: {self.state[:160]}"
        tensors, metadata = self.state
        if not self.left[1].items() <= metadata.items():
            return Result.OTHER, "gone on with, and is another run's"
        ended = True
        for name, ours in self.left[0].items():
            there = tensors.get(name)
            if there is None or there.dtype != ours.dtype or len(there.shape) != len(ours.shape):
                return Result.OTHER, f"gone on with, and {name} is not this run's"
            if not np.isfinite(there.numbers()).all():
                return Result.OTHER, f"gone on with, and {name} is not finite"
            if there.shape != ours.shape:
                if ours.shape != (STEPS,) or there.shape[0] > STEPS:
                    return Result.OTHER, f"gone on with, and {name} has another shape"
                ended = False  # one number for each step, and not all steps
        return self._judge_model(tensors) if ended else (Result.RIGHT, "went on")

    def _judge_model(self, tensors: dict[str, oracle.Stored]) -> tuple[Result, str]:
        """The model of a run that has ended is that of its state, whatever the numbers' order."""
        written, _ = oracle.safetensors(self.saved / WEIGHTS, [])
        model = np.sort(np.concatenate([s.numbers().ravel() for s in written.values()]))
        vectors = [tensors[name].numbers().ravel() for name in self.left[0]]
        if not any(np.array_equal(model, np.sort(vector)) for vector in vectors):
            return Result.OTHER, "the model is not the one that the state holds"
        return Result.RIGHT, ""

    def story(self) -> str:
        return self.told("gone on with", self.state if isinstance(self.state, str) else "")


def prepare(number: int, place: Path) -> Opening | GoingOn:
    """A case, its directory written below `place`."""
    folder, rng = folder_of(number), random.Random(f"questions {number}")
    if folder.base == "trained" and rng.random() < 0.7:
        return GoingOn(folder, place)
    return Opening(folder, place, rng)
