"""corpus/: from texts to an atlas, with any executor, and with workers that die."""

import math
import multiprocessing
import pickle
import re
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from atlas_runs import MEASURES, bits, deadly, run, texts
from conftest import posix
from safetensors.numpy import save_file

import attnlab
from attnlab import GPT2, Tokenizer, Trace
from attnlab.corpus import Atlas
from attnlab.corpus.measures import as_measures
from attnlab.corpus.run import RESULT, Task
from attnlab.corpus.tally import EXTREMES, read_arrays, write_arrays
from attnlab.errors import (
    AtlasError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    OutOfRangeError,
    WorkerError,
)
from attnlab.forward.parameters import ParameterVector
from attnlab.support.blas import _function, one_thread, use_one_thread
from attnlab.support.scale import WEIGHTS
from attnlab.support.tables import format_with_error
from attnlab.text.corpora import MAX_CHARACTERS, Text, chunks_of, texts_of

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
    np.testing.assert_allclose(atlas.standard_errors, np.full((2, 4), error))
    assert (atlas.texts == 3).all()
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
    for passage in atlas["lengths"].most(0, 0) + atlas["lengths"].least(0, 0):
        assert list(passage.ids) == ids[passage.start : passage.start + 50]
    config = attnlab.GPT2Config(vocab_size=256, n_positions=200, n_embd=4, n_layer=1, n_head=1)
    zeros = GPT2(ParameterVector(config), attnlab.Tokenizer.byte_level())
    assert measured(zeros, ["The dog"], ["loss"]).window == 128


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


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(Backwards, id="the last task first"),
        pytest.param(lambda: ThreadPoolExecutor(3), id="threads"),
        pytest.param(
            lambda: ProcessPoolExecutor(2, multiprocessing.get_context("spawn")),
            id="processes",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_every_executor_gives_the_same_bits(
    make: Callable[[], Executor], serial: Atlas, pocket: GPT2
) -> None:
    for model in ("pocket", pocket):
        with make() as executor:
            atlas = measured(model, texts(20), MEASURES, executor=executor, chunk=3)
        assert bits(atlas) == bits(serial)
    assert bits(run(None, 19)) != bits(serial)


def test_blas_thread_count_is_restored() -> None:
    set_threads, before = _function("set_num_threads"), use_one_thread()
    if set_threads is not None:
        set_threads(2)
        run(None, 1)
        assert use_one_thread() == 2
        set_threads(before)


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
    # Without the deadly text, the same call resumes.
    before = sorted(tmp_path.glob("chunk-*"))
    assert len(before) == 4
    atlas = measured(pocket, corpus_texts, [deadly, "loss"], **settings)
    expected = measured(pocket, corpus_texts, [deadly, "loss"], chunk=8)
    assert bits(atlas) == bits(expected)


def test_a_model_is_sent_to_each_worker_once(pocket: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    def task(name: str | None) -> Task:
        return Task(pocket, name, as_measures(["loss"]), 128)

    for sent in (task(None), task("pocket")):
        content = pickle.dumps(sent)
        with one_thread():  # loading the model sets one thread; restore the number
            first, second = pickle.loads(content), pickle.loads(content)
        assert first.model is second.model is not pocket
        assert first.model.trace([1, 2]).next_logits[0] == pocket.trace([1, 2]).next_logits[0]
    assert len(pickle.dumps(task("pocket"))) < 300
    monkeypatch.setattr("attnlab.corpus.run.MAX_SENT", 1000)
    with pytest.raises(InvalidValueError, match="save it with model"):
        pickle.dumps(task(None))


def test_failing_texts_are_reported_by_name(tmp_path: Path, pocket: GPT2) -> None:
    file = tmp_path / "corpus.txt"
    file.write_bytes("\n\ufeffThe dog barked.\n\n".encode() + b"\xff\xfe\n" + b"A cat meowed.\r\n")
    atlas = measured(pocket, file, ["loss"])
    assert atlas.texts == 2
    ((name, reason),) = atlas.faults
    assert name == "line 4"
    assert "can't decode byte 0xff" in reason
    mixed: list[Any] = ["The dog barked.", "", 3, "\ud800", "A cat meowed."]
    for _ in range(2):  # measured, then read
        atlas = measured(pocket, mixed, ["loss"], directory=tmp_path / "run")
        assert [name for name, _ in atlas.faults] == ["text 1", "text 2", "text 3"]
    (tmp_path / "blank.txt").write_text("\n\n  \n")
    (tmp_path / "none").mkdir()
    for corpus_texts in (tmp_path / "blank.txt", tmp_path / "none"):
        with pytest.raises(InvalidValueError, match="there are no texts to measure"):
            measured(pocket, corpus_texts)


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
    faults = measured(pocket, [*given, [len(pocket.tokenizer)], [], [0.5]]).faults
    assert [name for name, _ in faults] == ["text 3", "text 4", "text 5"]


def test_chunks(tmp_path: Path) -> None:
    """A long line is one text; a chunk ends after its maximal number of characters."""
    chunks = [*chunks_of(["a", "b", "c", "d", "e"], 2)]
    assert [(chunk.number, chunk.first) for chunk in chunks] == [(0, 0), (1, 2), (2, 4)]
    assert chunks[2].texts == (Text("text 4", "e"),)
    line = "Grüße an alle Füchse " * (MAX_CHARACTERS // 20)
    (tmp_path / "corpus.txt").write_text(f"first\n{line}\nlast", encoding="utf-8")
    first, last = chunks_of(tmp_path / "corpus.txt", 64)
    assert [(chunk.number, chunk.first) for chunk in (first, last)] == [(0, 0), (1, 2)]
    assert first.texts == (Text("line 1", "first"), Text("line 2", line))
    assert last.texts == (Text("line 3", "last"),)


def test_a_run_resumes(tmp_path: Path, serial: Atlas) -> None:
    assert bits(run(tmp_path, 20)) == bits(serial)
    assert bits(attnlab.open_atlas(tmp_path / RESULT)) == bits(serial)
    chunks = sorted(tmp_path.glob("chunk-*"))
    assert len(chunks) == 7
    assert {*tmp_path.iterdir()} == {*chunks, tmp_path / RESULT}
    before = {file: file.stat().st_mtime_ns for file in chunks}
    chunks[2].unlink()
    assert bits(run(tmp_path, 20)) == bits(serial)
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


def test_what_changed_is_measured_anew(tmp_path: Path, pocket: GPT2) -> None:
    """A chunk's file is used only for the same texts, model, measures and settings."""

    def measure(trace: Trace) -> Any:
        return lengths(trace)

    asked = {"model": pocket, "texts": texts(7), "measures": ["first", measure], "chunk": 3}
    measured(**asked, directory=tmp_path)
    arrays = dict(pocket.parameters.items())
    name = next(name for name in arrays if name.endswith("b_O"))
    changed = GPT2.from_arrays(pocket.config, arrays | {name: arrays[name] + 1}, pocket.tokenizer)
    symbols = pocket.tokenizer.settings["model"]
    ids = symbols["vocab"] | {"Ġschools": 978, "Ġfarms": 977}  # in none of the texts
    other = GPT2(pocket.parameters, Tokenizer.from_merges(ids, symbols["merges"]))
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 0),
        ({"model": other}, 3),
        ({"texts": [*texts(6), "The dog barked."]}, 1),  # only in the last of three chunks
        ({"measures": ["same", measure]}, 3),
        ({"window": 9}, 3),
        ({"chunk": 2}, 4),
        ({"model": GPT2.from_pretrained("pocket", dtype="float64")}, 3),
        ({"model": changed}, 3),
        ({"heads": True}, 3),
    ]
    for settings, count in cases:
        before = {*tmp_path.glob("chunk-*")}
        atlas = measured(**asked | settings, directory=tmp_path)
        assert len({*tmp_path.glob("chunk-*")} - before) == count
        assert bits(atlas) == bits(measured(**asked | settings))
    before = {*tmp_path.glob("chunk-*")}
    measure.version = 2  # type: ignore[attr-defined]
    measured(**asked, directory=tmp_path)
    assert len({*tmp_path.glob("chunk-*")} - before) == 3


# What is changed in a file, and a word of the message.
Damage = Callable[[Any, Any], object]
OF_CHUNK: list[tuple[Damage, str]] = [
    (lambda arrays, about: arrays.pop("moments"), "moments"),
    (lambda arrays, about: arrays.update(moments=arrays["moments"][:, 1:]), "moments"),
    (lambda arrays, about: arrays["moments"].fill(np.nan), "moments"),
    (lambda arrays, about: arrays.update(extremes=arrays["extremes"].view("i1")), "extremes"),
    (lambda arrays, about: arrays["extremes"].fill(77), "extremes"),
    (lambda arrays, about: about.update(texts="x"), "invalid literal"),
    (lambda arrays, about: about.update(faults=["text 0"]), "unpack"),
    (lambda arrays, about: about["windows"][0].pop(), "unpack"),
    (lambda arrays, about: about["windows"][0][3].append("x"), "invalid literal"),
    (lambda arrays, about: about.pop("tokens"), "tokens"),
    (lambda arrays, about: arrays["s"].fill(np.inf), "s is invalid"),
    (lambda arrays, about: arrays.update(tops=arrays["tops"][..., 1:]), "tops"),
    (lambda arrays, about: arrays["tops"].fill(0x7F), "tops"),
    (lambda arrays, about: about["windows"][0][3].clear(), "tops"),
]


@pytest.mark.parametrize(("damage", "words"), OF_CHUNK)
def test_forged_chunks_are_refused(damage: Damage, words: str, heads: Path, tmp_path: Path) -> None:
    (file,) = heads.glob("chunk-00000001-*")
    arrays, about = read_arrays(file)
    arrays = {name: array.copy() for name, array in arrays.items()}
    damage(arrays, about)
    write_arrays(tmp_path / file.name, arrays, about)
    message = f"{file.name} isn't a chunk's file. If you remove it, .*{words}"
    with pytest.raises(AtlasError, match=message):
        run(tmp_path, measures=["first", "loss"], heads=True)


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("heads")
    run(directory, measures=["first", "loss"], heads=True)
    return directory


# What is changed in an atlas's measures and details; its sums are read as a chunk's.
OF_ATLAS: list[tuple[Damage, str]] = [
    (lambda about, details: about.update(measures=["first", "first"]), "measures"),
    (lambda about, details: about.update(measures=[]), "measures"),
    (lambda about, details: about.update(n_head=5), "moments"),
    (lambda about, details: about.update(n_layer=2**62), "moments"),
    (lambda about, details: about.update(window=None), "NoneType"),
    (lambda about, details: about.update(model="\ud800"), "UnicodeEncodeError"),
    (lambda about, details: details.pop(), "details"),
    (lambda about, details: details[1].pop("pairs"), "pairs"),
    (lambda about, details: details[1]["pairs"].pop("key"), "key"),
    (lambda about, details: details[1]["positions"]["mean"].pop(), "details"),
    (lambda about, details: details[1]["distances"]["error"].insert(0, "x"), "to float"),
    (lambda about, details: details[1]["tops"]["lines"][0].append([99, 0, 0.5, 0.5]), "details"),
]


@pytest.mark.parametrize(("damage", "words"), OF_ATLAS)
def test_forged_atlases_are_refused(
    damage: Damage, words: str, heads: Path, tmp_path: Path
) -> None:
    arrays, (about, sums, details) = read_arrays(heads / RESULT)
    damage(about, details)
    write_arrays(tmp_path / RESULT, arrays, [about, sums, details])
    with pytest.raises(AtlasError, match=f"{RESULT} (isn't an atlas|can't be read).*{words}"):
        attnlab.open_atlas(tmp_path / RESULT)


def test_files_that_are_no_atlas(tmp_path: Path, serial: Atlas) -> None:
    file = tmp_path / "a.atlas"
    serial.save(file)
    opened = attnlab.open_atlas(file)
    assert repr(opened) == repr(serial)
    assert opened["same"].least(0, 1) == serial["same"].least(0, 1)
    content = file.read_bytes()
    for changed in (*(content[:n] for n in (0, 7, 100, len(content) - 1)), b"<html>", b"{}" * 50):
        file.write_bytes(changed)
        with pytest.raises(AtlasError, match=r"a\.atlas can't be read"):
            attnlab.open_atlas(file)
    save_file({"moments": np.zeros(3)}, file)
    with pytest.raises(AtlasError, match="another version or program wrote it"):
        attnlab.open_atlas(file)
    with pytest.raises(MissingFileError, match="none"):
        attnlab.open_atlas(tmp_path / "none")
    with pytest.raises(AtlasError, match=f"is a directory.*{RESULT}"):
        attnlab.open_atlas(tmp_path)


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
    assert serial.get("first") is None
    assert list(serial) == list(MEASURES)
    loss = serial["loss"]
    assert len(loss.most()) == len(loss.least()) == EXTREMES
    trace = GPT2.from_pretrained("pocket").trace(loss.most()[0].ids)
    ids, logits = trace.ids[1:], np.asarray(trace.logits, np.float64)[:-1]
    nats = np.log(np.exp(logits).sum(axis=1)) - logits[range(len(ids)), ids]
    np.testing.assert_allclose(loss.most()[0].value, nats.mean(), rtol=1e-5)


COLUMNS = SimpleNamespace(columns=["text"])


def test_refused_arguments(serial: Atlas, pocket: GPT2) -> None:
    induction, loss = serial["induction"], serial["loss"]
    no_heads = measured(pocket, ["The dog"], ["loss"])
    only_loss = "only loss, which isn.t measured by head"
    of_texts = partial(attnlab.atlas, pocket, ["x"])
    cases: list[tuple[Any, Any, type[Exception], str]] = [
        (attnlab.atlas, (3, ["x"]), InvalidTypeError, "must be a str or a Path; got 3"),
        (texts_of, ("The dog barked.",), MissingFileError, r"The dog barked.* not found; texts"),
        *((texts_of, (x,), InvalidTypeError, "must be an iterable") for x in (3, b"bytes")),
        *(
            (texts_of, (table,), InvalidTypeError, r"pass the texts, such as df\['text'\]")
            for table in ({"text": ["The dog"]}, COLUMNS, SimpleNamespace(column_names=["text"]))
        ),
        *((serial.head, index, OutOfRangeError, "there is no") for index in ((2, 0), (0, 4))),
        *((induction.most, index, OutOfRangeError, "there is no") for index in ((2, 0), (0, 4))),
        (serial.__getitem__, ("first",), KeyError, "no measure 'first'; it has induction"),
        (induction.most, (), InvalidTypeError, "a layer number must be an integer; got None"),
        *((f, (0, 0), InvalidTypeError, "leave out layer and") for f in (loss.most, loss.least)),
        (attnlab.page, (no_heads,), InvalidValueError, only_loss),
        (partial(of_texts, executor=4), (), InvalidTypeError, "executor must be an Executor"),
        (partial(of_texts, chunk=0), (), InvalidValueError, "chunk must be an integer of at least"),
        (partial(of_texts, progress=1), (), InvalidTypeError, "progress must be True or False"),
        (partial(of_texts, window=129), (), InvalidValueError, "window must be an integer from 2"),
        (partial(of_texts, heads=1), (), InvalidTypeError, "heads must be True or False"),
        (partial(of_texts, ["loss"], heads=True), (), InvalidValueError, "needs a measure of head"),
        (attnlab.atlas, (pocket, []), InvalidValueError, "there are no texts to measure"),
        (measured, (pocket, [3]), InvalidValueError, "no text could be .* text 0: not a string"),
    ]
    for call, arguments, kind, words in cases:
        with pytest.raises(kind, match=words):
            call(*arguments)
    assert no_heads.lines() == []
    assert no_heads.loss in repr(no_heads)


def test_progress(pocket: GPT2, capsys: pytest.CaptureFixture[str]) -> None:
    """A list has a known number of texts, of which one can't be measured."""
    attnlab.atlas(pocket, [*texts(2), ""], ["first"], chunk=1)
    assert re.search(r"3/3 \[\d\d:\d\d<00:00, .* tokens\]", capsys.readouterr().err)
    with pytest.raises(InvalidValueError, match="there are no texts"):
        attnlab.atlas("pocket", [])
    *_, last, end = capsys.readouterr().err.split("\r")
    assert (last.strip(), end) == ("", "")


def test_html_of_the_page(serial: Atlas, pocket: GPT2, tmp_path: Path) -> None:
    page, file = attnlab.page(serial, language="en").html, tmp_path / "atlas.html"
    attnlab.page(serial, language="en").save(file)
    assert file.read_text(encoding="utf-8") == page
    for path, fault in (("atlas.txt", "must end in .html"), ("no/atlas.html", "not found")):
        with pytest.raises(attnlab.AttnlabError, match=fault):
            attnlab.page(serial).save(tmp_path / path)
    assert page.count('<section class="head') == 8
    anchors = set(re.findall(r'href="#([\w-]+)"', page))
    ids = set(re.findall(r'id="([\w-]+)"', page))
    assert anchors == ids - {"heads", "language", "words", "texts", "description"}
    text = " ± ".join(
        format_with_error(serial["induction"].mean[1, 2], serial["induction"].standard_errors[1, 2])
    )
    assert f'title="layer 1 head 2: {text}"' in page
    assert "style=" not in page  # the policy forbids it
    assert "损失" in attnlab.page(serial, language="zh").html
    hostile = attnlab.page(measured(pocket, ["<b>x</b><script>y()</script>"], ["first"])).html
    assert "<b>x" not in hostile
    assert "&lt;b&gt;x&lt;/b&gt;&lt;script&gt;" in hostile


def test_maps_show_the_means_in_colours_of_weights(complete: Atlas) -> None:
    lengths_too = measured("pocket", texts(5), [lengths, "first"])
    assert lengths_too["first"].scale == WEIGHTS
    assert complete["loss"].scale.bound == complete["loss"].mean > 1
    assert lengths_too["lengths"].scale.bound == lengths_too["lengths"].mean.max()
    page = attnlab.page(complete, language="en").html
    shown = page.partition('class="maps few"')[2].partition("</section>")[0]
    numbers = [float(x) for x in re.findall(r'<a class="c\d+"[^>]*>([\d.]+)</a>', shown)]
    means = np.concatenate([measure.mean.ravel() for measure in complete.per_head])
    np.testing.assert_allclose(numbers, means, atol=0.005)


def test_page_in_a_browser(complete: Atlas, tmp_path: Path, browser: Any) -> None:
    """Cells open heads, and measures open passages, without requests or console messages."""
    file, console, requested = tmp_path / "atlas.html", [], []
    file.write_text(attnlab.page(complete, language="en").html, encoding="utf-8")
    page = browser.new_page()
    page.on("console", lambda message: console.append(message.text))
    page.on("request", lambda request: requested.append(request.url))
    page.goto(file.as_uri())
    shown = page.locator("section.head:visible")
    assert shown.locator("h2").inner_text() == "layer 0 head 0"
    page.locator('a[href="#layer-1-head-2"]').first.click()
    shown = page.locator("section.head:visible")
    assert shown.count() == 1
    assert shown.locator("h2").inner_text() == "layer 1 head 2"
    shown.locator("summary").first.click()
    most = shown.locator("details[open] ol").first.locator("li").first.inner_text()
    assert complete["first"].most(1, 2)[0].content[:40] in most
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
    page.set_viewport_size({"width": 390, "height": 844})  # below the maps, where it can be closed
    shown.locator(".close").click()
    assert not shown.count()
    page.close()
    assert not console
    assert {url.partition("#")[0] for url in requested} == {file.as_uri()}
