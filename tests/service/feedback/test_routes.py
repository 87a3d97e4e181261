"""`POST /v1/feedback`, the routes of operators, and predictions beside a store that fails."""

import json
import sqlite3
import threading
from functools import partial

import pytest

from longtail.service.feedback.store import FILE_NAME, FeedbackStore
from longtail.service.feedback.writer import FeedbackWriter, entry_of
from longtail.service.http.api_keys import make_key
from longtail.service.http.deps import MAX_READERS

SAID = {"id": "a", "text": "olive oil", "accepted": ["L1"], "rejected": ["L2"], "added": ["L3"]}


@pytest.fixture
def client(open_feedback):
    with open_feedback() as client:
        yield client


def give(client, *entries, **more):
    return client.post("/v1/feedback", json={"entries": list(entries)}, **more)


def slug(answer):
    return answer.json()["type"].rpartition(":")[2]


def exported(client, **query):
    answer = client.get("/v1/admin/feedback", params=query)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def counts_of(client, name):
    lines = [line.rpartition(" ") for line in client.get("/metrics").text.splitlines()]
    return {head: float(value) for head, _, value in lines if head.startswith(name)}


def test_an_entry_is_kept_with_all_that_is_known_of_it(client, registry):
    proposed = [{"name": "oil press", "id": "N1"}, {"name": "mill"}]
    answer = give(client, SAID | {"document_id": "d1", "proposed": proposed, "version": "current"})
    assert answer.status_code == 200
    digest = registry.open(2).manifest.digest
    model = {"version": 2, "digest": digest}
    assert answer.json() == {
        "entries": [{"id": "a", "status": "stored", "model": model}],
        "keeps_texts": True,
    }
    (line,) = exported(client)
    assert line.pop("given_at").endswith("+00:00")
    assert len(line.pop("text_sha256")) == 64
    proposed[1]["id"] = None
    assert line == SAID | {
        "sequence": 1, "document_id": "d1", "proposed": proposed, "version": 2, "who": None,
        "model_digest": digest,
    }  # fmt: skip


def test_the_same_again_is_known_and_other_content_refused(client):
    assert give(client, SAID).json()["entries"][0]["status"] == "stored"
    assert give(client, SAID).json()["entries"][0]["status"] == "known"
    answer = give(client, SAID | {"id": "b"}, SAID | {"rejected": []})
    assert (answer.status_code, slug(answer)) == (409, "feedback-conflict")
    assert [line["id"] for line in exported(client)] == ["a"]


def test_a_title_is_joined_with_the_text_so_that_both_are_one_text(client):
    answered = give(client, SAID | {"title": "Duties"}, SAID | {"id": "b", "title": " "})
    assert answered.status_code == 200
    assert [line["text"] for line in exported(client)] == ["Duties\nolive oil", "olive oil"]
    assert give(client, SAID | {"text": "Duties\nolive oil"}).json()["entries"][0] == (
        answered.json()["entries"][0] | {"status": "known"}
    )


def test_texts_are_not_kept_unless_asked_for(open_feedback, tmp_path):
    with open_feedback(feedback_texts=False) as client:
        assert give(client, SAID).json()["keeps_texts"] is False
        (line,) = exported(client)
    assert line["text"] is None and len(line["text_sha256"]) == 64
    kept = b"".join(path.read_bytes() for path in (tmp_path / "feedback").iterdir())
    assert b"olive oil" not in kept and b"L3" in kept


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"accepted": ["L99"]}, "entries/0/accepted: version 2 has no label with the id 'L99'"),
        ({"proposed": [{"name": "x", "id": "L5"}]}, "has a label with the id 'L5' already"),
        ({"added": ["L1"]}, "Name each label once"),
        ({"promised": ["L6"]}, "in 'accepted' or 'rejected'"),
        ({"promised": ["L1"]}, "'promised_precision' together"),
        ({"promised": ["L1"], "promised_precision": 95}, "less than 1"),
        ({"text": None}, "Give one of 'text', 'text_sha256' and 'document_id'"),
        ({"text": "x" * 51}, "entries/0/text: got 51 characters, expected at most 50"),
        ({"title": "x" * 42}, "entries/0/text: got 52 characters, expected at most 50"),
        ({"text": None, "title": "x", "document_id": "d"}, "Give 'title' with 'text' only"),
        ({"title": 5}, "entries/0/title"),
        ({"text": " "}, "empty or only white space"),
        ({"accepted": [f"L{n}" for n in range(1001)]}, "entries/0/accepted"),
        ({"labels": ["L1"]}, "entries/0/labels"),
    ],
)
def test_what_is_wrong_is_refused_with_all_that_comes_with_it(open_feedback, changes, words):
    with open_feedback(max_text_characters=50) as client:
        answer = give(client, SAID | changes, {"document_id": "d", "added": ["L1"]})
        assert answer.status_code == 422 and words in answer.text
        assert not exported(client)


def test_more_entries_than_allowed_are_refused(open_feedback):
    entry = {"document_id": "d", "added": ["L1"]}
    with open_feedback() as client:
        assert give(client, *[entry] * 100).status_code == 200
        answer = give(client, *[entry] * 101)
        document = client.get("/openapi.json").json()
    assert answer.status_code == 422 and "expected at most 100" in answer.json()["detail"]
    entries = document["components"]["schemas"]["FeedbackRequest"]["properties"]["entries"]
    assert entries["maxItems"] == 100


def test_it_is_off_unless_there_is_a_folder(open_admin):
    with open_admin() as client:
        answers = [
            give(client, SAID),
            client.get("/v1/admin/feedback"),
            client.delete("/v1/admin/feedback", params={"id": "a"}),
        ]
        assert client.get("/v1/models").json()["feedback"]["enabled"] is False
    for answer in answers:
        assert (answer.status_code, slug(answer)) == (403, "feedback-off")
        assert "LONGTAIL_FEEDBACK" in answer.json()["detail"]


def test_keys_say_who_it_was_and_admin_keys_read_and_delete(open_client, tmp_path):
    (admin, admin_entry), (ask, ask_entry) = make_key("ops"), make_key("reviewer")
    keys = {"admin_keys": admin_entry, "api_keys": ask_entry}
    statuses = []
    with open_client(feedback=tmp_path / "f", **keys) as client:
        for key in (ask, admin):
            headers = {"Authorization": f"Bearer {key}"}
            statuses += [
                give(client, SAID, headers=headers).status_code,
                client.get("/v1/admin/feedback", headers=headers).status_code,
                client.delete("/v1/admin/feedback?id=x", headers=headers).status_code,
            ]
        assert give(client, SAID).status_code == 401
    assert statuses == [200, 401, 401, 401, 200, 404]
    with FeedbackStore(tmp_path / "f") as store:
        assert [record.content["who"] for record in store.page(0, 9)] == ["reviewer"]


def test_deleting_is_for_good(client, tmp_path):
    give(client, SAID, SAID | {"id": "b", "text": "hidden words"})
    for _ in range(2):
        assert client.delete("/v1/admin/feedback?id=b").json() == {"id": "b"}
    kept = b"".join(path.read_bytes() for path in (tmp_path / "feedback").iterdir())
    assert b"hidden words" not in kept
    answer = give(client, SAID | {"id": "b", "text": "hidden words"})
    assert answer.status_code == 409 and "was deleted" in answer.json()["detail"]
    lines = exported(client)
    assert [line["id"] for line in lines] == ["a", "b"] and "deleted_at" in lines[1]
    answer = client.delete("/v1/admin/feedback?id=none")
    assert (answer.status_code, slug(answer)) == (404, "feedback-not-found")


def test_what_is_accepted_is_counted_by_version_an_entry_each(client):
    half = {"document_id": "half", "accepted": ["L1"], "rejected": ["L2"]}
    give(
        client,
        half | {"promised": ["L1"], "promised_precision": 0.75},
        {"document_id": "none", "rejected": ["L2", "L3"], "version": 2},
    )
    give(client, {"document_id": "unjudged", "added": ["L5"]})
    name = 'longtail_feedback_accepted_share_{}{{version="2"}}'
    expected = {name.format("count"): 2, name.format("sum"): 0.5}
    for part in ("count", "sum"):
        found = counts_of(client, f"longtail_feedback_accepted_share_{part}")
        assert found == {name.format(part): expected[name.format(part)]}
    promised = counts_of(client, "longtail_feedback_promised_labels_total")
    name = 'longtail_feedback_promised_labels_total{{verdict="{}"}}'
    assert promised == {name.format("accepted"): 1, name.format("rejected"): 0}
    owed = "longtail_feedback_promised_labels_owed_total"
    assert counts_of(client, owed) == {owed: 0.75}


def damaged(folder):
    (folder / FILE_NAME).write_bytes(b"no database " * 1000)


def locked(folder):
    holder = sqlite3.connect(folder / FILE_NAME, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    return holder


def replaced_by_a_file(folder):
    folder.rmdir()
    folder.touch()


@pytest.mark.parametrize(
    ("settings", "spoil", "words"),
    [
        ({}, damaged, "is damaged, or no database"),
        pytest.param(
            {"request_timeout_s": 20},
            locked,
            "is locked by another process",
            marks=pytest.mark.slow,  # the store waits for 5 s
        ),
        ({}, replaced_by_a_file, "can't be used"),
    ],
    ids=["damaged", "locked", "no folder"],
)
def test_a_store_that_fails_is_told_and_predictions_go_on(
    open_feedback, tmp_path, settings, spoil, words
):
    folder = tmp_path / "feedback"
    folder.mkdir()
    holder = spoil(folder)
    with open_feedback(**settings) as client:
        answer = give(client, SAID)
        assert (answer.status_code, slug(answer)) == (503, "feedback-store")
        assert words in answer.json()["detail"] and str(tmp_path) not in answer.text
        assert answer.headers["retry-after"] == "5"
        assert client.post("/v1/predict", json={"text": "a"}).status_code == 200
        assert client.get("/readyz").status_code == 200
    if holder is not None:
        holder.close()


def test_few_read_at_a_time(client):
    give(client, SAID)
    readers = client.app.state.service.feedback_readers
    for _ in range(MAX_READERS):
        readers.acquire()
    answer = client.get("/v1/admin/feedback")
    assert (answer.status_code, slug(answer)) == (503, "feedback-store")
    assert "is read by 4 others" in answer.json()["detail"]
    readers.release()
    for _ in range(3):
        assert len(exported(client)) == 1


def test_a_disk_that_hangs_is_a_timeout_and_a_full_queue_a_429(open_feedback, monkeypatch):
    gate = threading.Event()
    append = FeedbackStore.append

    def slow(self, groups):
        assert gate.wait(60)
        return append(self, groups)

    monkeypatch.setattr(FeedbackStore, "append", slow)
    monkeypatch.setattr(
        "longtail.service.app.FeedbackWriter", partial(FeedbackWriter, max_waiting=1)
    )
    with open_feedback(request_timeout_s=0.2) as client:
        late = give(client, SAID)  # the writer has it
        assert (late.status_code, slug(late)) == (504, "deadline")
        waits = give(client, SAID)
        assert waits.status_code == 504
        refused = give(client, SAID)
        assert (refused.status_code, slug(refused)) == (429, "overloaded")
        answers = (client.post("/v1/predict", json={"text": "a"}) for _ in range(1000))
        assert any(answer.status_code == 200 for answer in answers)  # a slow one is a 504
        gate.set()
    with FeedbackStore(client.app.state.service.settings.feedback) as store:
        assert [record.id for record in store.page(0, 9)] == ["a"]


def test_a_large_request_is_looked_at_on_another_thread(client, monkeypatch):
    threads = []
    monkeypatch.setattr(
        "longtail.service.http.feedback.entry_of",
        lambda *words, **more: (
            threads.append(threading.current_thread()) or entry_of(*words, **more)
        ),
    )
    give(client, SAID)
    assert give(client, SAID | {"id": "long", "text": "x" * 50_000}).status_code == 200
    assert "AnyIO worker thread" not in threads[0].name
    assert "AnyIO worker thread" in threads[1].name
