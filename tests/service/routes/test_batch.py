"""What `POST /v1/batch` answers: a line for each line, in order, and an end."""

import asyncio
import json
import logging

import pytest

NDJSON = {"content-type": "application/x-ndjson", "accept-encoding": "identity"}


def lines_of(records):
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def post(client, content, headers=None, **query):
    answer = client.post(
        "/v1/batch", content=content, headers=NDJSON | (headers or {}), params=query
    )
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def best_score(result):
    return result["labels"][0]["score"]


def test_each_line_is_answered_in_order_with_its_id_and_an_end(client):
    texts = ["four", "a", "three"]
    *results, end = post(client, lines_of({"id": f"x{i}", "text": t} for i, t in enumerate(texts)))
    assert [(r["index"], r["id"], best_score(r)) for r in results] == [
        (0, "x0", 4.0), (1, "x1", 1.0), (2, "x2", 5.0),
    ]  # fmt: skip
    assert end["summary"]["complete"] and end["summary"]["num_results"] == 3


def test_a_title_of_a_line_is_labelled_with_its_text(client):
    body = lines_of([{"title": "T", "text": "four"}, {"title": None, "text": "four"}])
    assert [best_score(each) for each in post(client, body)[:2]] == [6.0, 4.0]


def test_the_query_speaks_for_lines_that_say_nothing(client):
    body = lines_of([{"text": "a"}, {"text": "a", "k": 1, "scorer": "retrieval"}])
    first, second, _ = post(client, body, k=2, scorer="sparse", tail_dial=0.5)
    assert (len(first["labels"]), first["scorer"], first["tail_dial"]) == (2, "sparse", 0.5)
    assert (len(second["labels"]), second["scorer"]) == (1, "retrieval")


def test_bad_lines_are_answered_with_errors_and_the_others_as_ever(client):
    body = b'{"text": "a"}\nnonsense\n{"id": 5, "text": ""}\n{"id": 6, "text": "a", "k": 99}\n'
    *lines, end = post(client, body + b'{"text": "aa", "version": 1}\n{"text": "aaa"}')
    kinds = [line["error"]["type"].rsplit(":", 1)[1] if "error" in line else "" for line in lines]
    assert kinds == ["", "malformed-body", "invalid-body", "request", "model-not-found", ""]
    assert [line["id"] for line in lines] == [None, None, 5, 6, None, None]
    assert best_score(lines[5]) == 3.0
    assert (end["summary"]["num_results"], end["summary"]["num_errors"]) == (2, 4)


def test_a_body_over_the_limit_is_a_413_and_many_lines_are_a_422(open_client, monkeypatch):
    monkeypatch.setattr("longtail.service.routes.batch.MAX_LINES", 3)
    with open_client(max_body_bytes=1024) as client:
        statuses = [
            client.post("/v1/batch", content=content, headers=NDJSON).status_code
            for content in (b" " * 1024, b" " * 1025, b"\n" * 3, b"\n" * 4)
        ]
    assert statuses == [200, 413, 200, 422]


def test_an_unexpected_error_is_told_in_its_line_alone(
    open_client, make_loader, fake_predictor, caplog
):
    class Failing(fake_predictor):
        def predict(self, texts, **options):
            if "bad" in texts:
                raise ZeroDivisionError("inner path")
            return super().predict(texts, **options)

    with open_client(make_loader(predictor_class=Failing)) as client:
        *lines, end = post(client, lines_of({"text": text} for text in ("a", "bad", "aa")))
    assert [line["error"]["status"] if "error" in line else 200 for line in lines] == [
        200,
        500,
        200,
    ]
    assert "inner path" not in json.dumps(lines)
    assert "ZeroDivisionError" in caplog.text
    assert end["summary"]["num_errors"] == 1


def test_a_fault_of_our_own_ends_the_batch_without_its_last_line(client, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("longtail.service.routes.batch.end_line", fail)
    answer = client.post("/v1/batch", content=b'{"text": "a"}\n', headers=NDJSON)
    assert "summary" not in answer.text


def test_lines_are_counted_and_the_batch_is_logged_once(fresh_client, caplog):
    with caplog.at_level(logging.INFO, "longtail.service.requests"):
        post(fresh_client, b'{"text": "secret"}\nx\n')
    (line,) = [r.getMessage() for r in caplog.records if "/v1/batch" in r.getMessage()]
    assert "lines=2 errors=1 whole=True" in line and "secret" not in line
    metrics = fresh_client.get("/metrics").text
    assert 'longtail_batch_lines_total{outcome="result"} 1.0' in metrics
    assert 'longtail_batch_lines_total{outcome="malformed-body"} 1.0' in metrics


SCOPE = {
    "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
    "scheme": "http", "path": "/v1/batch", "raw_path": b"/v1/batch", "query_string": b"",
    "headers": [(b"host", b"localhost"), (b"content-type", b"application/x-ndjson")],
    "server": ("localhost", 80), "client": ("127.0.0.1", 9), "root_path": "",
}  # fmt: skip


@pytest.mark.parametrize(
    "content", [b"x\n" * 9000, b'{"text": "%s"}\n' % (b"a" * 10**4) * 99], ids=["wrong", "long"]
)
def test_other_requests_get_their_turn_while_a_batch_is_answered(client, content):
    num_turns = 0

    async def others() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    body = iter([{"type": "http.request", "body": content, "more_body": False}])

    async def receive():
        return next(body, None) or await asyncio.Event().wait()

    async def send(_) -> None:
        pass

    async def run() -> int:
        turns = asyncio.create_task(others())
        await client.app(dict(SCOPE), receive, send)
        turns.cancel()
        return num_turns

    assert client.portal.call(run) > 90
