"""The client in Python, against a running service, and against one that misbehaves."""

import asyncio
import itertools
import json
import re
import socket
import threading
from contextlib import ExitStack, suppress

import httpx
import pytest

from longtail.models.errors import ConfigError, RequestError
from longtail.service import client as client_module
from longtail.service.client import (
    AsyncClient,
    Client,
    ClientError,
    ConnectionFailedError,
    IncompleteBatchError,
    NoAnswerError,
    ProblemError,
    Retry,
    _problem,
)
from longtail.service.schemas.predict import BatchError, BatchResult

ONCE = Retry(max_attempts=1)
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(client_module, "_FIRST_WAIT_S", 0.001)


@pytest.fixture
def client(server):
    with Client(server) as client:
        yield client


@pytest.fixture
def answer_with():
    """A server that answers each connection with the next of some bytes."""
    stop, started = threading.Event(), []

    def accepted(listener):
        while not stop.is_set():
            with suppress(TimeoutError):
                yield listener.accept()[0]

    def serve(listener, answers, ends, received):
        listener.settimeout(0.05)  # a client may have given up before it came
        with ExitStack() as kept, suppress(OSError):
            for answer, connection in zip(answers, accepted(listener), strict=False):
                kept.enter_context(connection)
                received.append(connection.recv(2**16))
                if received[-1].endswith(b"\r\n\r\n") and b"POST" in received[-1]:  # its body
                    received[-1] += connection.recv(2**16)
                connection.sendall(answer)
                ENDS[ends](connection)
            stop.wait(30)

    def start(*answers: bytes, ends: str = "well", received: list[bytes] | None = None) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(
            target=serve, args=(listener, answers, ends, [] if received is None else received)
        )
        thread.start()
        started.append((listener, thread))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    stop.set()
    for listener, thread in started:
        thread.join()
        listener.close()


def end_well(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(2**16):
        pass


ENDS = {
    "well": end_well,
    "never": lambda connection: None,
    "by a reset": lambda connection: connection.close(),  # with bytes unread
}


def answer(status: int, content: object, *headers: str) -> bytes:
    body = json.dumps(content).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunk(*lines: object) -> bytes:
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


BUSY = answer(429, {"type": "t", "title": "Busy", "status": 429, "detail": "d"}, "Retry-After: 0")
RESULT = {
    "labels": [], "num_tokens": 1, "num_text_tokens": 1, "known_tokens": 1, "truncated": False,
    "exact": True, "index": 0, "id": None, "version": 1, "scorer": "s", "correction": "none",
    "tail_dial": 0.0, "is_new": True,
}  # fmt: skip


def test_one_text_or_several_get_labels(client):
    one = client.predict("olive oil", k=2, scorer="sparse")
    several = client.predict(["a", "bb"], k=1)
    assert [label.id for label in one.results[0].labels] == ["L0", "L1"]
    assert (one.scorer, one.model.version) == ("sparse", 2)
    assert [result.labels[0].score for result in several.results] == [1, 2]


def test_a_problem_is_an_error_that_carries_its_document(client):
    with pytest.raises(ProblemError, match="k is 5000; expected 1 to 1000") as caught:
        client.predict("a", k=5000)
    assert caught.value.problem.type == "urn:longtail:problem:request"
    assert caught.value.problem.status == 422


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"a": "olive"}, "texts are a dict, expected a list of texts"),
        (b"olive", "texts is a single bytes"),
        (["a", None], "text 1 is None (NoneType), expected a string"),
        (["a", "\ud800"], "text 1 holds half of a surrogate pair"),
        ([" "], "text 0 is blank"),
    ],
)
def test_what_are_no_texts_is_refused_before_it_is_sent(texts, words):
    with Client("http://127.0.0.1:9", retry=ONCE) as client:  # where nobody listens
        with pytest.raises(RequestError, match=re.escape(words)):
            client.predict(texts)
        if isinstance(texts, list | str):
            return
        with pytest.raises(RequestError, match=type(texts).__name__):
            next(client.stream_batch(texts))


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://a", "http://", "", "http://h:99999"])
def test_what_is_no_url_of_a_service_is_refused(url):
    with pytest.raises(ConfigError, match=f"url is {url!r}: .*; expected http://localhost:8000"):
        Client(url)


def test_options_go_along_in_body_and_query(client):
    (found,) = client.predict("olive", include=["L3", "L4"], explain=True).results
    assert [label.id for label in found.labels] == ["L3", "L4"]
    assert found.labels[0].explanation is not None
    (line,) = client.stream_batch(["olive"], exclude=["L0", "L1"], k=1, explain=True)
    assert line.labels[0].id == "L2"
    assert line.labels[0].explanation is not None


def test_options_of_labels_are_those_of_the_service(client):
    listed = client.labels("label", limit=2, offset=1, sort="match", version=None)
    assert [label.id for label in listed.labels] == ["L1", "L2"]
    with pytest.raises(ProblemError, match="limt"):
        client.labels("label", limt=2)


def test_an_admin_changes_what_is_served(open_server, keys):
    key, entry = keys[0]
    with open_server(admin_keys=entry) as url, Client(url, key=key) as client:
        assert client.load(1).loaded == [1, 2]
        assert client.set_canary(1, 0.25).canary.share == 0.25
        assert client.end_canary().canary is None
        assert client.unload(1).loaded == [2]
        assert client.activate(1).default == 1
        assert client.rollback().default == 2
        with pytest.raises(ProblemError, match="409"):
            client.unload(2)


def test_feedback_gets_ids_that_are_the_same_when_it_is_sent_again(answer_with):
    received = []
    receipts = {"entries": [], "keeps_texts": False}
    url = answer_with(BUSY, answer(200, receipts), received=received)
    with Client(url) as client:
        assert client.give_feedback([{"text": "a"}, {"text": "b", "id": "own"}]).entries == []
    first, again = (json.loads(each.split(b"\r\n\r\n")[1])["entries"] for each in received)
    assert first == again
    assert first[0]["id"].startswith("client-") and first[1]["id"] == "own"


def test_the_asyncio_client_does_the_same(open_server, keys):
    key, entry = keys[0]

    async def ask(url):
        async with AsyncClient(url, key=key) as client:
            assert await client.is_ready()
            assert (await client.predict("olive", k=1)).results[0].labels[0].id == "L0"
            many = [len(r.labels) async for r in client.stream_batch(iter("abc"), k=2)]
            assert many == [2, 2, 2]
            assert len((await client.models()).models) == 2
            assert (await client.labels("label 3")).labels[0].id == "L3"
            assert (await client.label("L3")).name == "Label 3"
            assert (await client.load(1)).loaded == [1, 2]
            assert (await client.set_canary(1, 0.5)).canary.version == 1
            assert (await client.end_canary()).canary is None
            assert (await client.unload(1)).loaded == [2]
            assert (await client.activate(1)).default == 1
            assert (await client.rollback()).default == 2

    with open_server(admin_keys=entry) as url:
        asyncio.run(ask(url))


def test_a_stream_answers_each_line_in_order(client):
    lines = ["a", {"text": "bb", "id": "b", "k": 1}, {"id": 3}, {"text": "c"}]
    first, second, third, fourth = client.stream_batch(iter(lines), k=2)
    assert [len(first.labels), len(second.labels), len(fourth.labels)] == [2, 1, 2]
    assert (first.index, second.id) == (0, "b")
    assert isinstance(third, BatchError)
    assert third.error.status == 422


def test_the_shapes_of_answers_are_not_prepared_for_each_line(client):
    client_module._adapter.cache_clear()
    assert len(list(client.stream_batch(["a"] * 5, k=1))) == 5
    assert client_module._adapter.cache_info().misses == 1


def test_lines_are_taken_only_as_fast_as_answers_are_read(client):
    taken = itertools.count()
    lines = ({"text": "x" * 20_000, "id": next(taken)} for _ in range(100_000))
    answers = client.stream_batch(lines)
    assert [one.id for one in itertools.islice(answers, 3)] == [0, 1, 2]
    answers.close()
    assert next(taken) < 10_000


def test_a_busy_service_is_asked_again(answer_with):
    url = answer_with(BUSY, BUSY, answer(200, {"status": "ready", "newer": 1}))
    with Client(url) as client, pytest.raises(ClientError, match="is no ModelList"):
        client.models()


def test_lines_are_sent_again_where_the_service_is_busy_or_breaks_off(answer_with):
    stream = HEAD + chunk(RESULT, {"summary": summary(complete=True)}) + b"0\r\n\r\n"
    with Client(answer_with(BUSY, b"", HEAD + b"ff\r\n{", stream)) as client:
        (only,) = client.stream_batch(["a"])
    assert isinstance(only, BatchResult)


def summary(**changes):
    counts = dict.fromkeys(("num_lines", "num_results", "num_errors", "num_truncated"), 0)
    return {**counts, "versions": {}, "error": None, "complete": False, **changes}


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (b"", "the answer breaks off"),
        (chunk({"summary": summary()}), "not complete"),
        (
            chunk({"summary": summary(error={
                "type": "t", "title": "Late", "status": 504, "detail": "too slow"})}),
            "Late: too slow",
        ),
    ],
)  # fmt: skip
def test_a_batch_that_ends_early_is_an_error_after_its_answers(answer_with, end, words):
    url = answer_with(HEAD + chunk(RESULT) + end + b"0\r\n\r\n")
    with Client(url) as client:
        answers = client.stream_batch(["a", "b"])
        assert next(answers).index == 0
        with pytest.raises(IncompleteBatchError, match=words):
            next(answers)


def test_an_answer_that_does_not_come_is_an_error(answer_with):
    url = answer_with(HEAD, b"", ends="never")
    with Client(url, retry=ONCE, timeout_s=0.5) as client:
        with pytest.raises(NoAnswerError, match="did not answer in time"):
            list(client.stream_batch(["a"]))
        with pytest.raises(NoAnswerError, match="did not answer in time"):
            client.models()


def test_an_answer_of_something_else_is_an_error(answer_with):
    page = b"HTTP/1.1 502 X\r\nContent-Length: 5\r\nConnection: close\r\n\r\n<html"
    broken = HEAD + b"5\r\n<htm\n\r\n0\r\n\r\n"
    with Client(answer_with(answer(200, {"a": 1}), page, broken), retry=ONCE) as client:
        with pytest.raises(ClientError, match="is no ModelList"):
            client.models()
        with pytest.raises(ProblemError, match="502 Not answered by Longtail: <html"):
            client.models()
        with pytest.raises(ClientError, match="Invalid JSON"):
            list(client.stream_batch(["a"]))


def problem(status: int, retry_after: str = "") -> ProblemError:
    headers = {"Retry-After": retry_after} if retry_after else {}
    return _problem(httpx.Response(status, headers=headers))


def test_waits_double_and_obey_the_service_and_end(monkeypatch):
    monkeypatch.setattr(client_module, "_FIRST_WAIT_S", 1)
    jittered = {Retry().wait_s(1, 0, problem(503, "4")) for _ in range(20)}
    assert len(jittered) > 1
    assert all(4 <= wait <= 6 for wait in jittered)
    monkeypatch.setattr(client_module, "_JITTER", 0)
    retry = Retry(max_attempts=4)
    away = ConnectionFailedError("a")
    waits = [retry.wait_s(attempt, 0, away) for attempt in (1, 2, 3, 4)]
    assert waits == [1, 2, 4, None]
    assert retry.wait_s(3, 3, problem(429, "7")) == 7
    for error in (problem(429, "61"), problem(422), problem(500), NoAnswerError("late")):
        assert Retry().wait_s(1, 0, error) is None
    assert retry.wait_s(1, 59.5, away) is None
    # A date is not taken for seconds.
    assert problem(503, "Wed, 21 Oct 2026 07:28:00 GMT").retry_after_s is None
