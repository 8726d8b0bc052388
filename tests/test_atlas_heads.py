"""Details of heads over a corpus, `atlas(heads=True)`: plain loops, by hand, and their page."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from atlas_runs import bits, texts

import attnlab
from attnlab import GPT2
from attnlab.corpus import Atlas
from attnlab.corpus.details import PROMOTED, WRITTEN
from attnlab.corpus.heads import SHOWN, TOPS
from attnlab.corpus.result import RESULT
from attnlab.errors import UnknownNameError

measured = partial(attnlab.atlas, measures=["first", "loss"], progress=False, heads=True)

WINDOW = 20  # some texts have several


@pytest.fixture(scope="module")
def precise() -> GPT2:
    return GPT2.from_pretrained("pocket", dtype="float64")


@pytest.fixture(scope="module")
def atlas(precise: GPT2) -> Atlas:
    return measured(precise, texts(40), window=WINDOW)


@pytest.fixture(scope="module")
def windows(precise: GPT2) -> list[list[Any]]:
    """Each text's windows, as traces."""
    ids = [precise.tokenizer.encode(text) for text in texts(40)]
    return [[precise.trace(one[n : n + WINDOW]) for n in range(0, len(one), WINDOW)] for one in ids]


def mean_and_error(sums: list[float], counts: list[float]) -> tuple[float, float]:
    """The ratio of sums, and its error over the texts that count."""
    s, n = (np.array(x)[np.array(counts) > 0] for x in (sums, counts))
    r = s.sum() / n.sum()
    return r, math.sqrt(len(n) / (len(n) - 1) * ((s - r * n) ** 2).sum()) / n.sum()


HEADS = [(0, 2), (1, 2), (1, 3)]


@pytest.mark.parametrize(("layer", "head"), HEADS[:2])
def test_attention_agrees_with_a_plain_loop(
    atlas: Atlas, windows: list[list[Any]], layer: int, head: int
) -> None:
    near: dict[Any, Any] = {}  # sums and counts of each text, by what they are of
    for number, traces in enumerate(windows):
        for trace in traces:
            weights, ids = trace.head(layer, head).weights, trace.tokens.readable
            for q in range(1, len(ids)):
                keys: dict[Any, float] = {("position", 0): weights[q, 0]}
                for k in range(1, q + 1):
                    keys["position", k] = keys["distance", q - k] = weights[q, k]
                    if k < q:
                        pair = ids[q], ids[k]
                        keys[pair] = keys.get(pair, 0) + weights[q, k]
                for name, weight in keys.items():
                    sums = near.setdefault(name, np.zeros((2, len(windows))))
                    sums[:, number] += weight, 1
    profile = atlas.head(layer, head)
    for kind in ("position", "distance"):
        for first, last, mean, error, count in zip(*profile[f"{kind}s"].values(), strict=True):
            sums = sum(near.pop((kind, n), 0) for n in range(first, last + 1))
            np.testing.assert_allclose((mean, error), mean_and_error(*sums), rtol=1e-4)
            assert count == (sums[1] > 0).sum()
    assert {name for name in near if name[0] in ("position", "distance")} == set()
    common = {pair: sums for pair, sums in near.items() if (sums[1] > 0).sum() >= 10}
    expected = sorted(common, key=lambda pair: -common[pair][0].sum() / common[pair][1].sum())[:12]
    pairs = profile["pairs"]
    assert [*zip(pairs["query"], pairs["key"], strict=True)] == expected
    for pair, mean, error, count, queries in zip(
        expected, *(pairs[name] for name in ("mean", "error", "texts", "queries")), strict=True
    ):
        sums = common[pair]
        np.testing.assert_allclose((mean, error), mean_and_error(*sums), rtol=1e-4, atol=1e-9)
        assert (count, queries) == ((sums[1] > 0).sum(), sums[1].sum())
    first = atlas["first"]
    resting = profile["positions"]["mean"][0], profile["positions"]["error"][0]
    np.testing.assert_allclose(
        resting, [x[layer, head] for x in (first.mean, first.standard_errors)], 1e-4
    )


def effects_on_logits(trace: Any, layer: int, head: int) -> Any:
    """What a head adds to each logit at each position, less the mean of all tokens, (T, vocab)."""
    W_U = trace.W_U - trace.W_U.mean(axis=1, keepdims=True)
    output, last = trace.head(layer, head).output, trace.blocks[-1].output
    centred = output - output.mean(axis=1, keepdims=True)
    scale = np.sqrt(last.var(axis=1) + trace.epsilon)[:, np.newaxis]
    return (trace.gain * centred / scale) @ W_U


def test_writes_agree_with_attribution(atlas: Atlas, windows: list[list[Any]]) -> None:
    """A difference of two tokens' effects is that of their attributions, head by head."""
    for layer, head in HEADS:
        writes = atlas.head(layer, head)["writes"]
        effects = [  # of each text, on all tokens
            np.concatenate([effects_on_logits(trace, layer, head)[1:] for trace in traces])
            for traces in windows
        ]
        promoted, demoted = writes["id"][0], writes["id"][WRITTEN]
        against = attnlab.attribution(windows[0][0], (int(promoted), int(demoted)), at=3)
        difference = effects[0][2, promoted] - effects[0][2, demoted]
        np.testing.assert_allclose(against.heads[layer, head], difference)
        means = np.concatenate(effects).mean(axis=0)
        order = np.argsort(-means)
        assert [*writes["id"]] == [*order[:WRITTEN], *order[::-1][:WRITTEN]]
        counts = [len(one) for one in effects]
        for _, id, *found in zip(*writes.values(), strict=True):
            expected = mean_and_error([one[:, id].sum() for one in effects], counts)
            np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize(("layer", "head"), HEADS[:2])
def test_top_texts_agree_with_a_plain_loop(precise: GPT2, layer: int, head: int) -> None:
    """In windows longer than what is shown, some keys are earlier."""
    ids = [precise.tokenizer.encode(" ".join(texts(6, 6 * seed))) for seed in range(8)]
    profile, found = measured(precise, ids, window=64).head(layer, head), []
    traces = {(n, x): precise.trace(ids[n][x : x + 64]) for n in range(8) for x in (0, 64)}
    for (number, offset), trace in traces.items():
        weights, excess = trace.head(layer, head).weights, [0.0, 0.0]
        for q in range(2, len(weights)):
            others = weights[q, 1 : q + 1]
            excess.append((others.max() - others.mean()) * q / (q - 1))
        starts = range(max(1, len(weights) - SHOWN + 1))
        strength, start = max((sum(excess[x : x + SHOWN]), -x) for x in starts)
        found.append((strength, number, offset, offset - start))
    rows = [
        SimpleNamespace(**dict(zip(profile["tops"], row, strict=True)))
        for row in zip(*profile["tops"].values(), strict=True)
    ]
    earlier = 0
    assert len(rows) == TOPS
    for row, (strength, number, offset, start) in zip(rows, sorted(found)[::-1], strict=False):
        assert (row.text, row.window, vars(row)["from"]) == (f"text {number}", offset, start)
        np.testing.assert_allclose(row.strength, strength, rtol=1e-5)
        trace = traces[number, offset]
        assert row.ids == trace.ids[: start - offset + SHOWN].tolist()
        shown = [*row.earlier, *range(start - offset, len(row.ids))]
        assert row.tokens == [trace.tokens.readable[n] for n in shown]
        weights, strongest = trace.head(layer, head).weights, shown[row.lines[0][0]]
        promoted = np.argsort(-effects_on_logits(trace, layer, head)[strongest])[:PROMOTED]
        assert row.promotes == [trace.vocabulary.token(int(id)).readable for id in promoted]
        assert row.query == trace.tokens.readable[strongest]
        for i, j, weight, over in row.lines:
            q, k = shown[i], shown[j]
            assert 0 < k <= q
            others = weights[q, 1 : q + 1]
            np.testing.assert_allclose(weight, weights[q, k], atol=6e-4)
            np.testing.assert_allclose(over, (weight - others.mean()) * q / (q - 1), atol=3e-3)
            earlier += k < start - offset
    assert earlier


def test_any_executor_and_resumed_runs_give_the_same_bytes(atlas: Atlas, tmp_path: Path) -> None:
    run = partial(measured, "pocket", texts=texts(20), chunk=3)  # longer windows than are shown
    expected = run()
    with ThreadPoolExecutor(3) as executor:
        threads = run(executor=executor)
    whole = run(directory=tmp_path / "run")
    next((tmp_path / "run").glob("chunk-00000002-*")).unlink()
    resumed = run(directory=tmp_path / "run")
    opened = attnlab.open_atlas(tmp_path / "run" / RESULT)
    for other in (threads, whole, resumed, opened):
        assert bits(other) == bits(expected)
        assert json.dumps(other.details) == json.dumps(expected.details)
        assert attnlab.page(other).html == attnlab.page(expected).html


def test_tables_of_few_texts_and_refused_arguments() -> None:
    few = measured("pocket", ["The dog", "The", "A"])
    assert few.head(0, 0)["pairs"]["query"] == []
    data = attnlab.page(few).html.partition('id="description">')[2].partition("</script>")[0]
    errors = json.loads(data, parse_constant=pytest.fail)[0]["positions"]["error"]
    assert errors == [None, None]  # not NaN, which JSON doesn't have
    plain = measured("pocket", ["The dog"], heads=False)
    assert 'id="details"' not in attnlab.page(plain).html
    with pytest.raises(UnknownNameError, match="heads=True"):
        plain.head(0, 0)


def test_page_of_a_head_in_a_browser(atlas: Atlas, tmp_path: Path, browser: Any) -> None:
    file, said = tmp_path / "atlas.html", []
    file.write_text(attnlab.page(atlas, language="en").html, encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.on("console", lambda message: said.append(message.text))
    requested = set[str]()
    page.on("request", lambda request: requested.add(request.url.partition("#")[0]))
    page.goto(f"{file.as_uri()}#layer-0-head-1")
    page.locator('.map a[href="#layer-1-head-2"]').first.click()
    shown, profile = page.locator(".head:visible"), atlas.head(1, 2)
    pairs = shown.locator("#pairs tbody tr").first.locator("td").all_inner_texts()
    assert pairs[:2] == [profile["pairs"][name][0] for name in ("query", "key")]
    assert float(pairs[2].split()[0]) == pytest.approx(profile["pairs"]["mean"][0], rel=0.05)
    assert shown.locator("#positions circle").count() == len(profile["positions"]["mean"])
    tops = profile["tops"]
    assert shown.locator("#tops figure").count() == TOPS
    # The arcs of the strongest query, as wide as its weights; then of a word that is pointed at.
    figure, lines = shown.locator("#tops figure").first, tops["lines"][0]
    words = figure.locator(".stage-word .letters").all_text_contents()
    assert words == [token.replace("Ġ", " ") for token in tops["tokens"][0]]
    for query in (lines[0][0], lines[-1][0]):
        figure.locator(".stage-word").nth(query).hover()
        arcs = figure.locator(".arc:not(.faint)").evaluate_all(
            "(all) => all.map((arc) => [arc.key, Number(arc.getAttribute('stroke-width'))])"
        )
        weights = {j: weight for i, j, weight, _ in lines if i == query != j}
        assert {*dict(arcs)} == {*weights}
        for key, width in arcs:
            assert width == pytest.approx(max(0.7, 0.23 * 15 * weights[key]), abs=0.01)
    token = shown.locator("#writes tbody td").first.inner_text()
    assert token == profile["writes"]["token"][0]
    page.locator("#language").click()
    assert "词元对" in page.locator("#pairs h3").inner_text()
    assert page.locator("#details").count() == 1
    page.close()
    assert (said, requested) == ([], {file.as_uri()})


def test_texts_too_short_for_details() -> None:
    """One token writes nothing, two have no lines."""
    one, two = (measured("pocket", [ids, ids]).head(1, 2) for ids in ([5], [5, 6]))
    for table in (one["writes"], one["positions"], two["tops"]):
        assert not any(table.values())


def test_page_of_heads_whose_texts_have_no_lines(tmp_path: Path, browser: Any) -> None:
    """Of some heads of a short text, all weights are as usual."""
    said = list[str]()
    atlas = measured("english", ["My mother is a teacher."] * 2)
    tops = [top for head in np.ndindex(4, 6) for top in atlas.head(*head)["tops"]["lines"]]
    assert [] in tops
    attnlab.page(atlas, language="en").save(tmp_path / "atlas.html")
    page = browser.new_page()
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto((tmp_path / "atlas.html").as_uri())
    for layer, head in np.ndindex(4, 6):
        page.locator(f'.map a[href="#layer-{layer}-head-{head}"]').first.click()
        shown = page.locator(".head:visible")
        shown.locator("#details").wait_for()
        count = len(atlas.head(layer, head)["tops"]["text"])
        assert shown.locator("#tops figure").count() == count
        assert shown.locator("#writes tbody tr").count() > 0  # it comes after the texts
    page.close()
    assert said == []
