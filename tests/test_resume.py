"""A run's saved state: damage is detected, one run per directory, kills lose nothing."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from test_training import TEXT, quick

import attnlab.training.run
from attnlab import GPT2Config, Tokenizer
from attnlab.errors import ResumeError, WriteError
from attnlab.support.files import lock_file
from attnlab.support.sealed import write_sealed
from attnlab.training import Training
from attnlab.training.run import FORMAT, LOCK, STATE

Tensors = dict[str, Any]
Metadata = dict[str, str]
STEPS = 3
CONFIG = GPT2Config(vocab_size=256, n_positions=8, n_embd=4, n_layer=1, n_head=1)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Training, bytes]:
    """A run of three steps, and its state."""
    directory = tmp_path_factory.mktemp("finished")
    return small(directory=directory), (directory / STATE).read_bytes()


def small(**settings: Any) -> Training:
    return quick(TEXT, CONFIG, **({"steps": STEPS} | settings))


def contents(file: Path) -> tuple[Tensors, Metadata]:
    with safe_open(file, framework="np") as state:
        return {name: state.get_tensor(name) for name in state.keys()}, state.metadata()  # noqa: SIM118


def refusal(file: Path) -> str:
    """The error message of resuming; the state is unchanged."""
    before = os.lstat(file)
    with pytest.raises(ResumeError) as caught:
        small(directory=file.parent)
    after = os.lstat(file)
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert str(file) in str(caught.value)
    assert len(str(caught.value)) < 2000
    return str(caught.value)


# States that were changed


def test_unchanged_state_opens(finished_run: tuple[Training, bytes], tmp_path: Path) -> None:
    run, state = finished_run
    (tmp_path / STATE).write_bytes(state)
    steps: list[int] = []
    resumed = small(directory=tmp_path, watch=lambda training: steps.append(training.step))
    assert steps == []  # it has finished
    assert resumed.losses == run.losses
    assert resumed.seconds == run.seconds
    assert resumed.parameters.vector.tobytes() == run.parameters.vector.tobytes()
    assert resumed._optimizer.m.tobytes() == run._optimizer.m.tobytes()
    assert resumed._optimizer.v.tobytes() == run._optimizer.v.tobytes()


def test_every_changed_bit_is_detected(
    finished_run: tuple[Training, bytes], tmp_path: Path
) -> None:
    run, state = finished_run
    header = 8 + int.from_bytes(state[:8], "little")
    rng = np.random.default_rng(0)
    positions = [*range(8), *rng.integers(8, header, 60), *rng.integers(header, len(state), 60)]
    for position in [*positions, len(state) - 1]:
        changed = bytearray(state)
        changed[position] ^= 1 << int(rng.integers(8))
        (tmp_path / STATE).write_bytes(changed)
        training = Training(CONFIG, run._corpus, run.settings, Tokenizer.byte_level())
        with pytest.raises(ResumeError):
            training.resume(tmp_path)
        assert training.step == 0


def test_changed_states_are_refused(finished_run: tuple[Training, bytes], tmp_path: Path) -> None:
    file = tmp_path / STATE
    file.write_bytes(finished_run[1])
    tensors, metadata = contents(file)
    without_checksum = {name: metadata[name] for name in metadata if name != "sha256"}
    first = {"format": "1", "n_layer": "1", "corpus": '"285 tokens"'}  # each value as JSON
    for changed, words in (
        (without_checksum, "its checksum doesn't match"),
        (first, f"format must be '{FORMAT}'; got '1'. Start again in a new directory"),
        (None, f"its format must be '{FORMAT}'; got None"),
    ):
        save_file(tensors, file, changed)
        assert words in refusal(file)
    run = {name: without_checksum[name] for name in without_checksum if name != "format"}
    for other, words in (
        ({"label_smoothing": "0.1"}, "label_smoothing: saved 0.1, current None"),
        ({"seed": "\x1b[31m" + "7" * 10_000_000}, "seed: saved \\x1b[31m777"),
    ):
        write_sealed(file, FORMAT, tensors, run | other)
        assert words in refusal(file)


def test_invalid_files(finished_run: tuple[Training, bytes], tmp_path: Path) -> None:
    file = tmp_path / STATE
    os.mkfifo(file)
    assert "it is a pipe, not a regular file" in refusal(file)
    file.unlink()
    file.mkdir()
    assert "can't be read" in refusal(file)
    file.rmdir()
    for content in (b"no state", b"{}" * 50):
        file.write_bytes(content)
        refusal(file)
    for start in (b"", b"\xff" * 8, finished_run[1]):
        file.write_bytes(start)
        os.truncate(file, 20_000_000_000)
        assert "can't be read" in refusal(file)


def test_linked_states_are_resumed_and_written_in_place(tmp_path: Path) -> None:
    uninterrupted = small()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / STATE).symlink_to("../elsewhere")
    for _ in range(2):
        assert small(directory=tmp_path / "run").losses == uninterrupted.losses
        assert (tmp_path / "run" / STATE).is_symlink()
        assert contents(tmp_path / "elsewhere")[0]["losses"].size == STEPS


def test_seconds_add_up_over_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that advances by one each time it is read, a step takes one second."""

    class Clock:
        now = 0

        def perf_counter(self) -> float:
            self.now += 1
            return float(self.now)

    class Stop(Exception):
        pass

    def stop(training: Training) -> None:
        if training.step in (2, 5):
            raise Stop

    monkeypatch.setattr(attnlab.training.run, "time", Clock())
    for _ in range(2):
        with pytest.raises(Stop):
            quick(directory=tmp_path, save_every=1, watch=stop)
    assert quick(directory=tmp_path, save_every=1).seconds == 8.0


# One run in one directory


def holder(directory: Path, **settings: object) -> subprocess.Popen[str]:
    """A process that trains in a directory, and pauses after its first step."""
    code = (
        "import sys; from attnlab import GPT2Config, train\n"
        f"train({CONFIG!r}, {TEXT!r}, steps={STEPS}, batch_size=3, progress=False, save_every=1,\n"
        "  directory=sys.argv[1], watch=lambda run: (print(run.step, flush=True), input()),\n"
        f"  **{settings!r})"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    return process


def test_two_runs_do_not_share_a_directory(tmp_path: Path) -> None:
    process = holder(tmp_path, seed=1)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    for seed in (1, 2):
        with pytest.raises(WriteError, match=r"another run is using the directory\. Wait until"):
            small(directory=tmp_path, seed=seed)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    process.communicate("\n" * STEPS, timeout=60)
    assert process.returncode == 0
    with pytest.raises(ResumeError, match="seed: saved 1, current 2"):
        small(directory=tmp_path, seed=2)
    assert small(directory=tmp_path, seed=1).losses == small(seed=1).losses
    assert not (tmp_path / LOCK).exists()


def test_a_killed_run_releases_its_lock(tmp_path: Path) -> None:
    process = holder(tmp_path)
    process.kill()
    process.communicate()
    assert (tmp_path / LOCK).exists()
    assert small(directory=tmp_path).losses == small().losses
    assert not (tmp_path / LOCK).exists()


def test_nested_runs_are_refused_and_leftover_locks_ignored(tmp_path: Path) -> None:
    def resumed(_: Training) -> None:
        with pytest.raises(WriteError, match="another run is using the directory"):
            small(directory=tmp_path)

    small(directory=tmp_path, watch=resumed)
    small(directory=tmp_path)
    (tmp_path / LOCK).touch()
    mine, left = ".attnlab-mine", f".attnlab-{'0a' * 8}"  # by a run that was killed while writing
    for name in (mine, left):
        (tmp_path / name).touch()
    with lock_file(tmp_path / LOCK), pytest.raises(WriteError, match="another run is using"):
        small(directory=tmp_path)
    assert LOCK not in os.listdir(tmp_path)
    assert left not in os.listdir(tmp_path)
    assert mine in os.listdir(tmp_path)


def test_errors_release_the_directory(tmp_path: Path) -> None:
    def stop(_: Training) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            small(directory=tmp_path, watch=stop, save_every=9)
        assert not (tmp_path / LOCK).exists()


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_a_directory_or_link_in_place_of_the_lock_is_kept(kind: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    if kind == "directory":
        (tmp_path / LOCK).mkdir()
    else:
        (tmp_path / LOCK).symlink_to("mine")
    with pytest.raises(WriteError, match=f"{LOCK} can't be locked: "):
        small(directory=tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["mine", LOCK]
    assert (tmp_path / "mine").read_text() == "precious"


def test_training_on_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def without(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without)
    assert small(directory=tmp_path).losses == small().losses


@pytest.mark.slow
def test_run_killed_at_any_write_resumes_to_the_same_bits(tmp_path: Path) -> None:
    finished_run = subprocess.run(
        [sys.executable, Path(__file__).parent / "killed_run.py", tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # it forks
        check=False,
    )
    assert finished_run.returncode == 0, finished_run.stderr
    states = [tuple(steps) for steps in json.loads(finished_run.stdout)]
    # Two times five files, each made, locked, written, synced and renamed.
    assert len(states) >= 2 * 5 * 5
    order = [(None, None), (0, None), (0, 0), (2, 0), (2, 2)]
    assert list(dict.fromkeys(states)) == order
