"""The explorer: a real server, with a browser's requests and with hostile ones."""

import contextlib
import json
import multiprocessing
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np
import pytest
from conftest import REFERENCE, needs, posix
from pages import UNCAUSAL, UNSCALED, ablation, patching, scaling, toggling
from test_cli import run, start

from attnlab import GPT2, GPT2Config, Trace, softmax
from attnlab.errors import InvalidTypeError, InvalidValueError
from attnlab.forward.parameters import ParameterVector

needs("starlette", "explore")
needs("uvicorn", "explore")

import uvicorn  # noqa: E402

from attnlab.pages import explorer as room  # noqa: E402
from attnlab.pages import overview  # noqa: E402
from attnlab.pages.explorer import Explorer, size_of  # noqa: E402
from attnlab.pages.saved import first_text  # noqa: E402

TEXT = "The dog chased the ball, but it"

# The command's notice of its default model.
NOTICE = f"Model: {REFERENCE / 'odd'}, set by ATTNLAB_MODEL.\n"

# Timeout of expected events, in seconds.
PATIENCE = 60


@pytest.fixture(scope="module")
def explorer(pocket: GPT2) -> Iterator[Explorer]:
    with pocket.explore() as explorer:
        yield explorer


def parts_of(explorer: Explorer) -> tuple[str, str]:
    """Its address and its token."""
    link = urlsplit(explorer.url)
    return link.netloc, parse_qs(link.query)["token"][0]


def answer(
    explorer: Explorer, method: str, path: str, body: Any = None, **changes: str | None
) -> tuple[int, dict[str, str], bytes]:
    """The answer to a request like the page's, with changed headers."""
    address, token = parts_of(explorer)
    headers = {"host": address, "origin": f"http://{address}", "authorization": f"Bearer {token}"}
    expected = {name: value for name, value in (headers | changes).items() if value is not None}
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection = HTTPConnection(address, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=True)
        for name, value in expected.items():
            connection.putheader(name, value)
        if content is not None:
            connection.putheader("content-length", str(len(content)))
        connection.endheaders(content)
        response = connection.getresponse()
        actual = {name.lower(): value for name, value in response.getheaders()}
        return response.status, actual, response.read()


def post_trace(explorer: Explorer, text: str | list[int] = TEXT, *changes: Any) -> Any:
    body = {"text" if isinstance(text, str) else "ids": text, "changes": changes}
    status, _, content = answer(explorer, "POST", "/trace", body)
    assert status == 200, content
    return json.loads(content)


def refusal(explorer: Explorer, path: str, body: Any, status: int = 400) -> str:
    """The message with which a request is refused."""
    actual, _, content = answer(explorer, "POST", path, body)
    assert actual == status, content
    (words,) = json.loads(content).values()
    return str(words)


def numbers(explorer: Explorer, id: str, name: str, status: int = 200) -> bytes:
    path = f"/numbers?trace={quote(id)}&name={quote(name)}"
    actual, _, content = answer(explorer, "GET", path)
    assert actual == status, content
    return content


def probabilities(explorer: Explorer, described: Any) -> dict[str, float]:
    """The probabilities of the next tokens, by symbol, from the last position's logits."""
    last = len(described["ids"]) - 1
    logits = np.frombuffer(numbers(explorer, described["id"], f"logits.{last}"), "<f4")
    return dict(zip(names(explorer), softmax(logits.astype(np.float64)), strict=True))


def names(explorer: Explorer) -> list[str]:
    """The symbols of all tokens, as the page has them."""
    _, token = parts_of(explorer)
    path = f"/?token={token}"
    _, _, content = answer(explorer, "GET", path, authorization=None, origin=None)
    (block,) = re.findall(r'id="names">(.*?)</script>', content.decode())
    return [symbol for _, symbol, *_ in json.loads(block)]


# ---- what it answers -----------------------------------------------------------------------------


def test_the_page(explorer: Explorer) -> None:
    address, token = parts_of(explorer)
    path = f"/?token={token}"
    status, headers, content = answer(explorer, "GET", path, authorization=None, origin=None)
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    page = content.decode()
    assert "token" not in headers  # nor in the page, which reads it from its own address
    assert token not in page
    described = re.search(r'id="description">(.*?)</script>', page)
    assert described
    (first,) = json.loads(described[1])["traces"]
    assert [token["text"] for token in first["tokens"]][:2] == ["The", " dog"]
    assert 'id="trace-0' not in page  # numbers are asked for
    policy = headers["content-security-policy"]
    (inside,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    # Allowed frame ancestors: notebooks on this machine, on any port, and VS Code.
    framing = policy.removeprefix(f"{inside}; frame-ancestors ")
    assert framing == "http://127.0.0.1:* http://localhost:* vscode-webview:"
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in headers
    assert address.startswith("127.0.0.1:")


def test_page_under_localhost(explorer: Explorer) -> None:
    address, token = parts_of(explorer)
    other = address.replace("127.0.0.1", "localhost")
    assert answer(explorer, "GET", f"/?token={token}", host=other, authorization=None)[0] == 200
    body = {"text": TEXT}
    assert answer(explorer, "POST", "/trace", body, host=other, origin=f"http://{other}")[0] == 200


def test_trace_response(explorer: Explorer) -> None:
    described = post_trace(explorer)
    assert described["text"] == TEXT
    assert [token["text"] for token in described["tokens"]] == [
        *("The", " dog", " chased", " the", " ball", ",", " but", " it")
    ]
    # As in the README.
    assert probabilities(explorer, described)["Ġrolled"] == pytest.approx(0.54, abs=0.005)
    assert probabilities(explorer, described)["Ġbarked"] == pytest.approx(0.43, abs=0.005)
    status, headers, content = answer(explorer, "POST", "/trace", {"ids": described["ids"]})
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert json.loads(content) == described


def test_ablated_head(explorer: Explorer, pocket: GPT2) -> None:
    described = post_trace(explorer, TEXT, ablation(1, 2))
    # As in the README.
    assert probabilities(explorer, described)["Ġrolled"] == pytest.approx(0.9416, abs=5e-5)
    assert probabilities(explorer, described)["Ġglowed"] == pytest.approx(0.0078, abs=5e-5)
    plain = post_trace(explorer)
    assert described["id"] != plain["id"]
    assert described["ids"] == plain["ids"]
    assert described["edited"] == {"1": {"2": ["context"]}}
    # Earlier layers are unchanged, and the pack ends with the head's context.
    assert numbers(explorer, described["id"], "attention.0") == numbers(
        explorer, plain["id"], "attention.0"
    )
    ablated = np.frombuffer(numbers(explorer, described["id"], "attention.1"), "<f4")
    assert (ablated[-8 * 32 :] == 0).all()


def test_edited_steps(explorer: Explorer, pocket: GPT2) -> None:
    trace, other = pocket.trace(TEXT), pocket.trace(TEXT.replace("dog", "cat"))
    path, scale = "blocks.1.attention.heads.2", 32**0.5
    by_hand = np.tri(8, dtype=bool)
    by_hand[7, 1], by_hand[0, 2] = False, True
    output = trace.head(0, 1).output
    for changes, edits in (
        (
            [ablation(0, 1), ablation(0), ablation(1), ablation(0, 1)],
            {
                "blocks.0.attention.output": lambda x: x - output,
                "blocks.0.mlp.output": 0,
                "blocks.1.mlp.output": 0,
            },
        ),
        ([scaling(1, 2, "weights", 0.5)], {f"{path}.weights": lambda weights: weights / 2}),
        ([patching(1, 2, "V", *other.tokens.ids.tolist())], {f"{path}.V": other.head(1, 2).V}),
        ([UNCAUSAL, ablation(0, 1)], {"mask": True, "blocks.0.attention.heads.1.context": 0}),
        ([UNSCALED], {f"blocks.{n}.attention.Q": lambda Q: Q * scale for n in range(2)}),
        (
            [toggling(1, 2, [7, 1], [0, 2], [0, 99], [99, 0])],
            {"blocks.1.attention.heads.2.mask": by_hand},
        ),
        (  # the first query still has the later keys
            [UNCAUSAL, toggling(1, 2, [0, 0])],
            {"mask": True, "blocks.1.attention.heads.2.mask": np.arange(64).reshape(8, 8) > 0},
        ),
    ):
        described = post_trace(explorer, TEXT, *changes)
        expected = trace.edited(edits)
        wanted = {
            token.symbol: token.probability
            for token in expected.next_tokens(expected.config.vocab_size)
        }
        assert probabilities(explorer, described) == pytest.approx(wanted, rel=1e-3, abs=1e-6)


def test_pack_of_numbers(explorer: Explorer, pocket: GPT2) -> None:
    described, attention = post_trace(explorer), pocket.trace(TEXT).blocks[1].attention
    actual = np.frombuffer(numbers(explorer, described["id"], "attention.1"), "<f4")
    np.testing.assert_array_equal(
        actual.reshape(3, 4, 8, 32), [attention.Q, attention.K, attention.V]
    )


def written(explorer: Explorer, described: Any, count: int, **settings: Any) -> Any:
    """The generated tokens after a trace."""
    body = {"trace": described["id"], "count": count, **settings}
    status, _, content = answer(explorer, "POST", "/write", body)
    assert status == 200, content
    return json.loads(content)


@pytest.mark.parametrize(
    ("changes", "edits", "settings"),
    [
        ([], {}, {"temperature": 0}),
        ([], {}, {"temperature": 1.5, "top_k": 40, "top_p": 0.9, "seed": 7}),
        (
            [ablation(1, 2), ablation(0)],
            {"blocks.1.attention.heads.2.context": 0, "blocks.0.mlp.output": 0},
            {"temperature": 0},
        ),
    ],
    ids=["greedy", "seed", "ablated"],
)
def test_generation(
    explorer: Explorer, pocket: GPT2, changes: Any, edits: Any, settings: dict[str, Any]
) -> None:
    actual = written(explorer, post_trace(explorer, TEXT, *changes), 6, **settings)
    expected = pocket.generate(TEXT, 6, edits=edits, **settings)
    assert (actual["ids"], actual["text"]) == (expected.tokens.ids.tolist(), expected.whole_text)
    chosen = actual["chosen"]
    assert [token["id"] for token in chosen] == expected.new.ids.tolist()
    probabilities = [token.probability for token in expected.chosen]
    assert [token["probability"] for token in chosen] == pytest.approx(probabilities)
    # And the model's own probabilities, before top-k and top-p.
    shares = softmax(pocket.trace(actual["ids"]).edited(edits).logits[7:13].astype(float))
    assert [token["share"] for token in chosen] == pytest.approx(
        shares[range(6), expected.new.ids], rel=1e-4
    )


def test_generation_with_an_edited_mask(explorer: Explorer, pocket: GPT2) -> None:
    described = post_trace(explorer, TEXT, toggling(1, 2, [7, 1], [3, 0], [10, 1]))
    actual = written(explorer, described, 4, temperature=0)
    ids, probabilities = pocket.trace(TEXT).tokens.ids, list[float]()
    for _ in range(4):  # token by token, without a cache
        mask = np.tri(len(ids), dtype=bool)
        for query, key in ((7, 1), (3, 0), (10, 1)):
            mask[query : query + 1, key : key + 1] = False  # if there is such a query yet
        edited = pocket.trace(ids).edited({"blocks.1.attention.heads.2.mask": mask})
        (best,) = edited.next_tokens(1)
        ids, probabilities = np.append(ids, best.id), [*probabilities, best.probability]
    assert actual["ids"] == ids.tolist()
    assert [token["share"] for token in actual["chosen"]] == pytest.approx(probabilities, rel=1e-5)


def test_generation_up_to_the_last_position(pocket: GPT2) -> None:
    odd = GPT2.from_pretrained(REFERENCE / "odd")
    with odd.explore([1] * 15) as explorer:
        generation = written(explorer, post_trace(explorer, [1] * 15), 100)
        assert len(generation["chosen"]) == 2
        body = {"trace": post_trace(explorer, generation["ids"])["id"], "count": 100}
        words = refusal(explorer, "/write", body)
        assert words == "The text fills all 17 positions of the model; no tokens can be added."


def test_texts_are_escaped_in_html(pocket: GPT2) -> None:
    hostile = "</script><script>alert(1)</script>{{script}}\u202e\0"
    with pocket.explore(hostile) as explorer:
        _, token = parts_of(explorer)
        _, _, content = answer(explorer, "GET", f"/?token={token}")
        assert b"alert(1)</script>" not in content
        assert post_trace(explorer, hostile)["text"] == hostile


# ---- what it refuses -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"text": ""}, "Enter a text to trace."),
        ({"ids": []}, "Enter a text to trace."),
        ({"text": "hen " * 200}, "tokens; this model reads at most 128"),
        ({"ids": [1] * 129}, "The text has 129 tokens; this model reads at most 128"),
        ({"ids": [979]}, "979"),
        ({"ids": [-1]}, "-1"),
        ({"ids": [1.5]}, "integers"),
        ({"ids": [[1], [2, 3]]}, "ids"),
        ({"ids": [10**400]}, "ids"),
        ({"ids": "12"}, "ids must be a list"),
        ({"text": 3}, "text must be a str"),
        ({}, "give either text or ids"),
        ({"text": "a", "ids": [1]}, "give either text or ids"),
        ({"text": "a", "changes": {}}, "changes must be a list"),
        *(
            ({"text": "a", "changes": [change]}, "a change must have a kind")
            for change in (
                0,
                {"kind": "ablate"},
                ablation(0, "1"),
                scaling(0, 1, "weights", 10_001),
                scaling(0, 1, "weights", None),
                scaling(0, 1, "masked_scores", 0.5),
                patching(0, 1, "masked_scores", 1),
                toggling(0, 1, [2]),
                toggling(0, 1, [0, -1]),
            )
        ),
        ({"text": "a", "changes": [toggling(0, 1, [0, 0])]}, "leave query 0 at least one"),
        ({"text": "a", "special": ["<mask>"]}, "no special token <mask>"),
        ({"text": "a", "special": [1]}, "special must be True, False, or"),
        ({"text": "a", "special": True}, "special must be a list"),
        ({"text": "a", "changes": [ablation(0, True)]}, "isn't a step to edit"),
        ({"text": "a", "changes": [ablation(2)]}, "isn't a step to edit"),
        (b"", "Expected a JSON object"),
        (b"[]", "Expected a JSON object"),
        (b"\xff\xfe", "Expected a JSON object"),
        (b"[" * 90_000, "Expected a JSON object"),
    ],
    ids=lambda actual: str(actual)[:40],
)
def test_untraceable_texts(explorer: Explorer, body: Any, words: str) -> None:
    assert words in refusal(explorer, "/trace", body)
    post_trace(explorer)


def test_unpaired_surrogates_get_a_json_response(explorer: Explorer) -> None:
    status, _, content = answer(explorer, "POST", "/trace", {"text": "a\ud800"})
    assert status in (200, 400)
    assert json.loads(content)


def test_long_texts_report_how_much_fits(explorer: Explorer) -> None:
    text = "".join(f"The hen {n} " for n in range(60))
    words = refusal(explorer, "/trace", {"text": text})
    match = re.fullmatch(r"The text has (\d+) tokens; .* at most 128, up to “(.*)”\.", words)
    assert match
    tokenizer = GPT2.from_pretrained("pocket").tokenizer
    assert int(match[1]) == len(tokenizer.encode(text))
    fits = text[: text.index(match[2]) + len(match[2])]
    assert len(tokenizer.encode(fits)) == 128


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *(
            ({"count": count}, r"The number of tokens must be from 1 to 100\.")
            for count in (0, 101, None, 1.5, True, "3")
        ),
        ({"temperature": -1}, "temperature must be a number of at least 0"),
        ({"temperature": "hot"}, "temperature must be a number of at least 0"),
        ({"top_p": 2}, "top_p must be above 0 and at most 1"),
        ({"top_k": 0}, "top_k must be an integer"),
        ({"seed": -1}, "seed"),
        ({"trace": 3}, "trace must be a str"),
    ],
    ids=str,
)
def test_invalid_generation_settings(explorer: Explorer, changes: Any, words: str) -> None:
    body = {"trace": post_trace(explorer)["id"], "count": 2} | changes
    assert re.search(words, refusal(explorer, "/write", body))


def test_missing_names(explorer: Explorer) -> None:
    assert b"no longer in the cache" in numbers(explorer, "0" * 16, "attention.0", 410)
    assert "no longer in the cache" in refusal(explorer, "/write", {"trace": "", "count": 1}, 410)
    id = post_trace(explorer)["id"]
    odd = ("attention", "", "../../etc/passwd", f"pass.{'9' * 5000}")
    for name in ("attention.2", "attention.-1", "attention.x", *odd):
        assert b"unknown pack" in numbers(explorer, id, name, 400)
    assert answer(explorer, "GET", "/nothing")[0] == 404
    assert answer(explorer, "GET", "/trace")[0] == 405
    assert answer(explorer, "DELETE", "/numbers")[0] == 405


def test_oversized_requests(explorer: Explorer) -> None:
    for length in (100_001, 30_000_000):
        words = refusal(explorer, "/trace", {"text": "x" * length}, 413)
        assert words == (
            "The text has more than 100,000 bytes; this model reads at most 128 tokens."
        )
    assert "; this model reads at most" in refusal(explorer, "/trace", {"text": "x" * 99_000})
    post_trace(explorer)


# ---- access --------------------------------------------------------------------------------------

REQUESTS = [
    ("GET", "/"),
    ("POST", "/trace"),
    ("GET", "/numbers?trace=x&name=attention.0"),
    ("POST", "/write"),
    ("POST", "/stop"),
    ("GET", "/nothing"),
    ("OPTIONS", "/trace"),
]


@pytest.mark.parametrize(("method", "path"), REQUESTS, ids=str)
def test_no_access_without_the_token(explorer: Explorer, method: str, path: str) -> None:
    _, token = parts_of(explorer)
    wrong = [None, "", "Bearer ", "Bearer x", f"Bearer {token[:-1]}", f"Bearer {token}x", "\xff"]
    for authorization in (*wrong, f"Basic {token}"):
        status, headers, content = answer(
            explorer, method, path, {"text": TEXT}, authorization=authorization
        )
        assert status == 403
        assert b"Invalid token" in content
        assert "access-control-allow-origin" not in headers
    assert explorer.is_running


@pytest.mark.parametrize("token", ["", "?token=", "?token=x", "?token=%C3%BF%ff", "?Token={token}"])
def test_page_requires_its_token(explorer: Explorer, token: str) -> None:
    _, token_of_this_explorer = parts_of(explorer)
    # Even with a header that gives access to the rest.
    assert answer(explorer, "GET", f"/{token.format(token=token_of_this_explorer)}")[0] == 403


@pytest.mark.parametrize(("method", "path"), REQUESTS, ids=str)
def test_other_host_names_are_refused(explorer: Explorer, method: str, path: str) -> None:
    """DNS rebinding: another site's name resolves to this server."""
    address, token = parts_of(explorer)
    port = address.partition(":")[2]
    path = f"/?token={token}" if path == "/" else path
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        f"127.0.0.1.evil.example:{port}",
    ):
        for origin in (f"http://{host}", f"http://{address}"):
            status, _, content = answer(
                explorer, method, path, {"text": TEXT}, host=host, origin=origin
            )
            assert status == 403
            assert b"Invalid Host" in content
    # HTTP/1.0 requests may lack a Host.
    with socket.create_connection(("127.0.0.1", int(port)), timeout=PATIENCE) as plain:
        plain.sendall(f"GET /?token={token} HTTP/1.0\r\n\r\n".encode())
        assert plain.makefile("rb").readline().split()[1] == b"403"


@pytest.mark.parametrize("path", ["/trace", "/write", "/stop"])
def test_requests_from_other_sites_are_refused(explorer: Explorer, path: str) -> None:
    address, _ = parts_of(explorer)
    others = ("http://evil.example", "null", f"https://{address}", "http://127.0.0.1:1", "", None)
    for origin in others:
        status, _, content = answer(explorer, "POST", path, {"text": TEXT}, origin=origin)
        assert status == 403
        assert b"Invalid Origin" in content
    assert explorer.is_running


def test_server_listens_on_loopback_only(explorer: Explorer) -> None:
    port = int(parts_of(explorer)[0].partition(":")[2])
    # The port is free on this machine's other addresses.
    with socket.create_server(("127.0.0.2", port)):
        post_trace(explorer)


# ---- concurrent and stalled requests -------------------------------------------------------------


def test_ten_concurrent_requests(explorer: Explorer, pocket: GPT2) -> None:
    nouns = ["dog", "cat", "hen", "ball", "fish", "bird", "dog", "cat", "hen", "ball"]
    texts = [f"The {noun} chased the ball, but it" for noun in nouns]

    def look(n: int) -> bool:
        described = post_trace(explorer, texts[n], ablation(0, n % 4))
        content = numbers(explorer, described["id"], "attention.1")
        edits = {f"blocks.0.attention.heads.{n % 4}.context": 0}
        Q = pocket.trace(texts[n]).edited(edits).blocks[1].attention.Q
        return content.startswith(Q.astype("<f4").tobytes())

    with ThreadPoolExecutor(10) as tabs:
        assert all(tabs.map(look, list(range(10)) * 3))


def stalled(explorer: Explorer, sent: str) -> socket.socket:
    address, token = parts_of(explorer)
    port = int(address.partition(":")[2])
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.sendall(sent.format(address=address, token=token).encode())
    return connection


HALF_A_HEAD = "GET /?token={token} HTTP/1.1\r\nHost: 127."
HALF_A_BODY = (
    "POST /trace HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\n"
    "Authorization: Bearer {token}\r\nContent-Length: 100\r\n\r\nhalf"
)


@pytest.mark.parametrize("sent", ["", HALF_A_HEAD, HALF_A_BODY], ids=["none", "head", "body"])
def test_stalled_requests_block_no_others(
    pocket: GPT2, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "SHUTDOWN_TIMEOUT", 0.01)
    explorer = pocket.explore()
    with contextlib.ExitStack() as connections:
        for _ in range(20):
            connections.enter_context(stalled(explorer, sent))
        post_trace(explorer)
        explorer.stop()
        assert not explorer.is_running


@posix
def test_a_forked_process_does_not_wait_for_its_parents_thread(pocket: GPT2) -> None:
    with pocket.explore() as explorer:
        child = multiprocessing.get_context("fork").Process(target=explorer.stop)
        child.start()
        child.join(PATIENCE)
        ended = child.exitcode
        child.kill()
        assert ended == 0
        post_trace(explorer)


def test_trace_cache_size(pocket: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_TRACES", 3)
    cache = room.TraceCache(pocket, "en")
    ids = [cache.describe([n, 5])["id"] for n in range(5)]
    assert list(cache._traces) == ids[2:]


def test_without_a_text_a_model_of_few_positions_shows_the_first_tokens() -> None:
    odd = GPT2.from_pretrained(REFERENCE / "odd")
    assert len(first_text(odd)) == odd.config.n_positions == 17
    with odd.explore() as explorer:
        assert explorer.is_running


def test_request_body_that_never_arrives(pocket: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "REQUEST_TIMEOUT", 0.01)
    with pocket.explore() as explorer, stalled(explorer, HALF_A_BODY) as connection:
        assert connection.makefile("rb").readline().split()[1] == b"408"


class SlowModel:
    """A model that waits for permission to trace, and counts traces."""

    def __init__(self, model: GPT2) -> None:
        self.model = model
        self.begun, self.go, self.traced = threading.Semaphore(0), threading.Event(), list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def trace(self, tokens: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            self.traced.append("".join(tokens.texts))
            self.begun.release()
            if not self.go.wait(PATIENCE):
                self.traced.append("and waited in vain")
        return self.model.trace(tokens)


def test_disconnected_clients_are_not_computed_for(pocket: GPT2) -> None:
    slow = SlowModel(pocket)
    with Explorer(slow) as explorer, ThreadPoolExecutor(2) as tabs:
        first = tabs.submit(post_trace, explorer, "The cat")
        assert slow.begun.acquire(timeout=PATIENCE)
        body = json.dumps({"text": "The hen"})
        whole = HALF_A_BODY.replace("100", str(len(body))).removesuffix("half")
        leaving = stalled(explorer, whole)
        leaving.sendall(body.encode())
        second = tabs.submit(post_trace, explorer, "The bird")
        leaving.shutdown(socket.SHUT_RDWR)
        leaving.close()
        assert answer(explorer, "GET", "/nothing")[0] == 404  # the server has noticed by then
        slow.go.set()
        assert first.result(PATIENCE)["text"] == "The cat"
        assert second.result(PATIENCE)["text"] == "The bird"
    assert slow.traced == ["The cat", "The bird"]


def test_other_requests_are_answered_between_story_parts(
    pocket: GPT2, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowModel(pocket)
    slow.go.set()
    begun = threading.Event()

    def story(trace: Trace) -> Iterator[Any]:
        begun.set()
        end = time.monotonic() + 10
        while not (is_traced := "The hen" in slow.traced) and time.monotonic() < end:
            yield np.zeros(0)
        yield np.array([is_traced])

    monkeypatch.setattr(overview, "story", story)
    with Explorer(slow) as explorer, ThreadPoolExecutor(1) as tab:
        story = tab.submit(numbers, explorer, post_trace(explorer, "The cat")["id"], "story")
        assert begun.wait(PATIENCE)
        assert post_trace(explorer, "The hen")["text"] == "The hen"
        assert np.frombuffer(story.result(PATIENCE), "<f4").tolist() == [1]


def test_a_pack_is_sent_before_later_requests_are_computed(
    pocket: GPT2, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, requested, sent = threading.Event(), threading.Event(), threading.Event()
    numbers_of = room.TraceCache.numbers
    is_sent_first = list[bool]()

    def slow_numbers(cache: room.TraceCache, id: str, name: str) -> Any:
        begun.set()
        assert requested.wait(PATIENCE)
        return numbers_of(cache, id, name)

    def story(trace: Trace) -> Iterator[Any]:
        is_sent_first.append(sent.wait(5))
        yield np.zeros(1)

    monkeypatch.setattr(room.TraceCache, "numbers", slow_numbers)
    monkeypatch.setattr(overview, "story", story)
    with pocket.explore() as explorer, ThreadPoolExecutor(2) as tabs:
        id = post_trace(explorer, "The cat")["id"]
        first = tabs.submit(numbers, explorer, id, "logits.1")
        assert begun.wait(PATIENCE)
        second = tabs.submit(numbers, explorer, id, "story")
        assert answer(explorer, "GET", "/nothing")[0] == 404  # the story is requested by then
        requested.set()
        assert len(first.result(PATIENCE)) == 4 * pocket.config.vocab_size
        sent.set()
        second.result(PATIENCE)
    assert is_sent_first == [True]


def test_shutdown_does_not_wait_for_computations(
    pocket: GPT2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "SHUTDOWN_TIMEOUT", 0.01)
    slow = SlowModel(pocket)
    explorer = Explorer(slow)
    with ThreadPoolExecutor(1) as tabs:
        tab = tabs.submit(answer, explorer, "POST", "/trace", {"text": "The cat"})
        assert slow.begun.acquire(timeout=PATIENCE)
        explorer.stop()
        assert not explorer.is_running
        slow.go.set()
        assert tab.result(PATIENCE)[0] == 500
    assert slow.traced == ["The cat"]


# ---- the cache of traces -------------------------------------------------------------------------


def test_old_traces_are_evicted(pocket: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    with pocket.explore() as explorer:
        ids = [post_trace(explorer, f"The {noun}")["id"] for noun in ("dog", "cat", "hen")]
        for id in ids:  # a trace's arrays are computed when they are requested
            numbers(explorer, id, "logits.1")
        kept = numbers(explorer, ids[0], "attention.0")
        # There is room for two; the first was used last, so the second is dropped.
        whole = pocket.trace("The dog")
        whole.next_tokens()
        monkeypatch.setattr(room, "MAX_CACHE_BYTES", int(2.5 * size_of([whole])))
        numbers(explorer, ids[0], "attention.0")
        numbers(explorer, ids[1], "attention.0", 410)
        assert numbers(explorer, ids[0], "attention.0") == kept
        # Requested again, it has the same id.
        assert post_trace(explorer, "The cat")["id"] == ids[1]
        numbers(explorer, ids[1], "logits.1")
        monkeypatch.setattr(room, "MAX_CACHE_BYTES", 0)
        for _ in range(2):  # the last one stays, however large it is
            assert len(numbers(explorer, ids[1], "attention.0")) == 3 * 4 * 2 * 32 * 4
        numbers(explorer, ids[0], "attention.0", 410)


def test_trace_description_computes_no_blocks(pocket: GPT2) -> None:
    cache = room.TraceCache(pocket, "en")
    described = cache.describe(TEXT)
    blocks = cache.get(described["id"]).trace.blocks
    assert not any(block.is_stored("output") for block in blocks)
    assert described["scales"] == [[32**0.5] * 4] * 2
    assert cache.describe(TEXT, [UNSCALED])["scales"] == [[1.0] * 4] * 2


def test_parameters_do_not_count_towards_the_cache(pocket: GPT2) -> None:
    trace = pocket.trace(TEXT)
    assert trace.logits.nbytes < size_of([trace]) < trace.W_E.nbytes


def test_pass_packs_contain_each_positions_numbers(explorer: Explorer, pocket: GPT2) -> None:
    id = post_trace(explorer, "The owl saw the cat")["id"]
    passes = [numbers(explorer, id, f"pass.{position}") for position in range(3)]
    trace = pocket.trace("The owl saw the cat")
    hidden = trace.blocks[1].mlp.hidden.astype("<f4")
    for position, numbers_of_token in enumerate(passes):
        assert hidden[position].tobytes() in numbers_of_token


def test_shared_arrays_count_once(pocket: GPT2) -> None:
    trace = pocket.trace(TEXT)
    trace.next_tokens()
    ablated = trace.edited({"blocks.1.mlp.output": 0})
    ablated.next_tokens()
    alone = size_of([trace])
    assert alone > sum(block.output.nbytes for block in trace.blocks)
    both = size_of([trace, ablated])
    assert both == size_of([ablated])
    assert alone < both < 1.5 * alone


# ---- from Python ---------------------------------------------------------------------------------


def test_invalid_first_texts_are_refused_immediately(pocket: GPT2) -> None:
    with pytest.raises(InvalidValueError, match="Enter a text"):
        pocket.explore("")
    with pytest.raises(InvalidValueError, match="129 tokens; this model"):
        pocket.explore([1] * 129)
    with pytest.raises(InvalidValueError, match="must be a 1-D array of integers"):
        pocket.explore(3.5)
    with pytest.raises(InvalidValueError, match="language must be one of en, zh"):
        pocket.explore(language="de")
    for port in (-1, 65536, "80", 1.5):
        with pytest.raises(InvalidValueError, match="port must be an integer"):
            pocket.explore(port=port)  # type: ignore[arg-type]


def test_chosen_port(pocket: GPT2) -> None:
    with pocket.explore() as explorer:
        port = int(parts_of(explorer)[0].partition(":")[2])
        with pytest.raises(InvalidValueError, match=f"port {port} can't be used: "):
            pocket.explore(port=port)
        post_trace(explorer)
    with pocket.explore(port=port) as again:
        assert parts_of(again)[0] == f"127.0.0.1:{port}"
        assert parts_of(again)[1] != parts_of(explorer)[1]
        post_trace(again)


def test_stop_before_start(pocket: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            self.should_exit = True

    monkeypatch.setattr(uvicorn, "Server", Ended)
    explorer = pocket.explore()
    explorer.wait()
    address, _, port = parts_of(explorer)[0].partition(":")
    socket.create_server((address, int(port))).close()


def test_stop_ends_the_server(pocket: GPT2) -> None:
    explorer = pocket.explore()
    assert explorer.url in repr(explorer)
    assert repr(explorer).startswith("Explorer of GPT2: 2 layers of 4 heads")
    explorer.stop()
    explorer.stop()
    explorer.wait()
    assert repr(explorer) == "Explorer, stopped"
    assert explorer.url not in explorer._repr_html_()
    with pytest.raises(ConnectionError):
        post_trace(explorer)


def test_page_can_stop_the_server(pocket: GPT2) -> None:
    with pocket.explore() as explorer:
        waiting = threading.Thread(target=explorer.wait)
        waiting.start()
        assert answer(explorer, "POST", "/stop")[0] == 200
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
        assert not explorer.is_running


def test_explorer_in_a_notebook(explorer: Explorer) -> None:
    from test_notebook import Page

    page = Page(explorer._repr_html_())
    (link,) = (at for tag, at in page.elements if tag == "a")
    (frame,) = (at for tag, at in page.elements if tag == "iframe")
    assert link == {"href": explorer.url, "target": "_blank", "rel": "noreferrer"}
    assert frame["src"] == explorer.url
    assert frame["referrerpolicy"] == "no-referrer"
    assert (
        frame["title"]
        == "Explorer of GPT2: 2 layers of 4 heads, width 128, 538,496 parameters, float32"
    )
    assert frame["sandbox"] == "allow-scripts allow-same-origin"


def test_explorer_in_chinese(pocket: GPT2) -> None:
    with pocket.explore(language="zh") as explorer:
        _, token = parts_of(explorer)
        assert b'<html lang="zh-Hans">' in answer(explorer, "GET", f"/?token={token}")[2]
        for body, words in (
            ({"ids": [1] * 129}, "文本有 129 个词元；这个模型最多读取 128 个"),
            ({"ids": []}, "请输入要追踪的文本。"),
            ({"text": "a\ud800"}, "文本无法变成词元：text has an unpaired surrogate"),
            ({"ids": [1], "changes": [toggling(0, 1, [0, 0])]}, "掩码必须给查询 0 留下"),
            ({"ids": [1], "changes": [patching(0, 1, "Q", 1, 2)]}, "另一段文本有 2 个词元"),
        ):
            assert words in refusal(explorer, "/trace", body)


def test_a_model_without_a_tokenizer() -> None:
    config = GPT2Config(vocab_size=11, n_positions=5, n_embd=6, n_layer=1, n_head=2)
    model = GPT2.from_arrays(config, dict(ParameterVector(config).items()))  # type: ignore[attr-defined]
    with pytest.raises(InvalidTypeError, match="has no tokenizer"):
        model.explore()
    with model.explore([1, 2, 3]) as explorer:
        assert "has no tokenizer. Give token ids" in refusal(explorer, "/trace", {"text": "the"})
        assert answer(explorer, "POST", "/trace", {"ids": [4, 5]})[0] == 200


def test_unexpected_errors(pocket: GPT2, capsys: pytest.CaptureFixture[str]) -> None:
    broken = SimpleNamespace(
        config=pocket.config, tokenizer=pocket.tokenizer, trace=pocket.trace, stream=None
    )
    with Explorer(broken, "The dog") as explorer:
        id = post_trace(explorer)["id"]
        words = refusal(explorer, "/write", {"trace": id, "count": 1}, 500)
        assert words == "Internal error: TypeError. See the terminal for details."
        post_trace(explorer)
    stderr = capsys.readouterr().err
    assert "Traceback" in stderr
    assert stderr.count("TypeError") == 1


# ---- the command ---------------------------------------------------------------------------------


def link_of(process: "subprocess.Popen[str]") -> Any:
    """A stand-in for the explorer that the command starts."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("http://"):
            return SimpleNamespace(url=line.strip())
    raise AssertionError(process.communicate())


@pytest.mark.slow
@posix
def test_ctrl_c() -> None:
    process = start("explore", "the hen", "--no-browser")
    explorer = link_of(process)
    with stalled(explorer, HALF_A_BODY):
        assert post_trace(explorer, "the hen")["text"] == "the hen"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, f"{NOTICE}Explorer stopped.\n")


def test_command_ends_when_the_page_stops_it() -> None:
    long = ("explore", "--file", str(REFERENCE / "odd" / "config.json"), "--no-browser")
    assert "which is too long: the model's 17 positions" in run(*long, status=2)[1]
    process = start("explore", "the hen", "--no-browser")
    assert answer(link_of(process), "POST", "/stop")[0] == 200
    _, err = process.communicate(timeout=PATIENCE)
    ended = "Explorer stopped from the page.\n"
    assert (process.returncode, err) == (0, NOTICE + ended)


def test_command_with_a_port_in_use(explorer: Explorer) -> None:
    port = parts_of(explorer)[0].partition(":")[2]
    err = run("explore", "the hen", "--port", port, status=2)[1]
    assert f"port {port} can't be used: " in err


@pytest.mark.slow
@posix
def test_browser_opens_a_redirect_file(tmp_path: Path) -> None:
    """The browser's arguments, unlike the file, are visible to all users of the machine."""
    seen = tmp_path / "seen"
    os.mkfifo(seen)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o755)
    process = start("explore", "the hen", BROWSER=f"{browser} %s", HOME=str(tmp_path))
    link = link_of(process).url
    file = Path(urlsplit(seen.read_text().strip()).path)
    assert file.parent == tmp_path
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert f"url={link}" in file.read_text()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, f"{NOTICE}Explorer stopped.\n")
    assert not file.exists()
