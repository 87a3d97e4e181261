"""`POST /v1/queue/next`."""

from __future__ import annotations

import json

import pytest

from longtail.models.errors import ConfigError, DataError
from longtail.service.settings import load_settings
from longtail.service.web.api_keys import make_key


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "queue.jsonl"
    lines = [{"id": number, "text": f"text {number}"} for number in range(2)]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


@pytest.fixture
def settings(source, tmp_path):
    return {"feedback": tmp_path / "feedback", "queue": source}


def ask(client, **content):
    return client.post("/v1/queue/next", json=content)


def test_a_text_is_given_until_it_is_judged(open_client, settings):
    with open_client(**settings, queue_lease_s=3600) as client:
        assert client.get("/v1/models").json()["feedback"]["has_queue"] is True
        first = ask(client, annotator="x").json()
        assert first == {
            "document": {"document_id": "0", "text": "text 0"},
            "lease_s": 3600, "total": 2, "done": 0, "taken": 0,
        }  # fmt: skip
        assert ask(client, annotator="y").json()["document"]["document_id"] == "1"
        assert ask(client, annotator="z").json()["document"] is None
        assert ask(client, annotator="x", skip="0").json()["document"]["document_id"] == "0"
        entry = first["document"] | {"rejected": ["L1"]}
        assert client.post("/v1/feedback", json={"entries": [entry]}).status_code == 200
        last = ask(client, annotator="x").json()
        assert last["document"] is None and (last["done"], last["taken"]) == (1, 1)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({}, "/annotator"),
        ({"annotator": ""}, "/annotator"),
        ({"annotator": "x" * 101}, "/annotator"),
        ({"annotator": "a\nb"}, "/annotator"),
        ({"annotator": "x", "skip": "x" * 201}, "/skip"),
        ({"annotator": "x", "who": "y"}, "/who"),
    ],
)
def test_what_is_wrong_is_named(open_client, settings, content, place):
    with open_client(**settings) as client:
        answer = client.post("/v1/queue/next", json=content)
    assert answer.status_code == 422
    assert [each["pointer"] for each in answer.json()["errors"]] == [place]


def test_there_is_no_queue_unless_it_is_named(client):
    answer = ask(client, annotator="x")
    assert answer.status_code == 403 and "LONGTAIL_QUEUE" in answer.json()["detail"]
    assert client.get("/v1/models").json()["feedback"]["has_queue"] is False


def test_its_texts_need_a_key_where_there_are_keys(open_client, settings):
    key, entry = make_key("reviewer")
    with open_client(**settings, api_keys=entry) as client:
        assert ask(client, annotator="x").status_code == 401
        client.headers["Authorization"] = f"Bearer {key}"
        assert ask(client, annotator="x").status_code == 200


def test_a_store_that_fails_is_told(open_client, settings, tmp_path):
    (tmp_path / "feedback").write_text("a file in its place")
    with open_client(**settings) as client:
        answer = ask(client, annotator="x")
        assert answer.status_code == 503 and answer.headers["retry-after"] == "5"
        assert str(tmp_path) not in answer.text


def test_a_queue_needs_a_folder_for_feedback_and_a_file_that_can_be_read(
    open_client, settings, source
):
    with pytest.raises(ConfigError, match=r"--queue: .*set --feedback"):
        load_settings(queue=source)
    source.write_text('{"text": " "}\n')
    with pytest.raises(DataError, match="document 1: /text"), open_client(**settings):
        pass
