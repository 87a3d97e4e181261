"""The client of Annif, as it is, asks a running service."""

import pytest
import requests
from annif_client import AnnifClient

from longtail.service.feedback.store import FeedbackStore

TEXTS = ["olive oil", "Ölüberschüsse"]


@pytest.fixture
def annif(server):
    return AnnifClient(f"{server}/v1/")


def test_annif_brings_a_key_as_password(open_server, keys):
    key, entry = keys[0]
    with open_server(api_keys=entry) as url:
        host = url.removeprefix("http://")
        with pytest.raises(requests.HTTPError, match="401"):
            len(AnnifClient(f"{url}/v1/").projects)
        assert AnnifClient(f"http://anybody:{key}@{host}/v1/").projects


def test_annif_gets_labels_of_documents(annif):
    documents = [{"text": text, "document_id": f"d{i}"} for i, text in enumerate(TEXTS)]
    found = annif.suggest_batch("longtail", documents, limit=1)
    assert [one["document_id"] for one in found] == ["d0", "d1"]
    assert [one["results"][0]["label"] for one in found] == ["Label 0"] * 2


def test_annif_teaches(open_server, tmp_path):
    folder = tmp_path / "feedback"
    subjects = [{"uri": "L1", "label": "Label 1"}, {"uri": "L3", "label": "Label 3"}]
    document = {"text": TEXTS[0], "subjects": subjects, "metadata": {"title": "Oil"}}
    with open_server(feedback=folder, feedback_texts=True) as server:
        annif = AnnifClient(f"{server}/v1/")
        assert annif.learn("longtail", [document]).status_code == 204
        with pytest.raises(requests.HTTPError, match="400"):
            annif.learn("longtail", [document | {"subjects": [{"uri": "none"}]}])
    with FeedbackStore(folder) as store:
        (record,) = store.page(0, 9)
    assert (record.content["text"], record.content["accepted"]) == (TEXTS[0], ["L1", "L3"])
