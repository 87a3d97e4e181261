"""Annif's `learn`, where the service keeps feedback."""

import pytest

from longtail.service.feedback.store import FeedbackStore

LEARN = "/v1/projects/longtail/learn"
DOCUMENT = {
    "text": "olive oil",
    "subjects": [{"uri": "L1", "label": "Label 1"}, {"uri": "L2", "label": "x"}, {"uri": "L1"}],
    "metadata": {"title": "Oil"},
}


@pytest.fixture
def client(open_feedback):
    with open_feedback() as client:
        yield client


def stored(client):
    with FeedbackStore(client.app.state.service.settings.feedback) as store:
        return [record.content for record in store.page(0, 9)]


def test_documents_are_kept_once_with_their_labels(client):
    for _ in range(2):
        answer = client.post(LEARN, json=[DOCUMENT, DOCUMENT | {"document_id": "d"}])
        assert (answer.status_code, answer.content) == (204, b"")
    first, second = stored(client)
    assert first["accepted"] == ["L1", "L2"] and first["text"] == "olive oil"
    assert (first["document_id"], second["document_id"]) == (None, "d")
    assert first["version"] == 2


def test_an_unknown_subject_is_named_as_the_client_sent_it(client):
    unknown = DOCUMENT | {"subjects": [{"uri": "none", "label": "x"}]}
    answer = client.post(LEARN, json=[DOCUMENT, unknown])
    assert answer.status_code == 422 or answer.status_code == 400
    assert answer.json()["detail"].startswith("1/subjects: version 2 has no label")
