"""Clients that others wrote ask a running service: those of Triton and of Annif, as they are."""

import numpy as np
import pytest
import requests
from annif_client import AnnifClient
from tritonclient import http as triton
from tritonclient.http.auth import BasicAuth
from tritonclient.utils import InferenceServerException

from longtail.service.feedback.store import FeedbackStore

TEXTS = ["olive oil", "Ölüberschüsse"]


@pytest.fixture
def triton_client(server):
    with triton.InferenceServerClient(server.removeprefix("http://")) as client:
        yield client


@pytest.fixture
def annif(server):
    return AnnifClient(f"{server}/v1/")


def text_input(texts=TEXTS, *, shape=None, **options):
    values = np.array([text.encode() for text in texts], dtype=np.object_)
    values = values.reshape(shape or [len(texts)])
    tensor = triton.InferInput("text", list(values.shape), "BYTES")
    return [tensor.set_data_from_numpy(values, **options)]


def strings(result, name):
    return [[value.decode() for value in row] for row in result.as_numpy(name)]


def test_triton_sees_a_server_and_a_model_that_are_ready(triton_client):
    assert triton_client.is_server_live()
    assert triton_client.is_server_ready()
    assert triton_client.is_model_ready("longtail")
    assert triton_client.is_model_ready("longtail", "2")
    assert not triton_client.is_model_ready("longtail", "1")
    assert triton_client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert triton_client.get_model_metadata("longtail")["versions"] == ["2"]


def test_triton_gets_labels_in_binary_tensors_as_it_asks_by_itself(triton_client):
    found = triton_client.infer("longtail", text_input(), parameters={"k": 2}, request_id="mine")
    assert strings(found, "label_ids") == [["L0", "L1"]] * 2
    assert strings(found, "label_names") == [["Label 0", "Label 1"]] * 2
    assert found.as_numpy("scores").tolist() == [[9, 8], [13, 12]]
    assert found.as_numpy("probabilities").tolist() == [[1, 0.5]] * 2
    assert found.as_numpy("num_tokens").tolist() == [2, 1]
    assert found.as_numpy("truncated").tolist() == [False, False]
    assert found.get_response()["id"] == "mine"


def test_triton_and_annif_bring_a_key_as_password(open_server, keys):
    key, entry = keys[0]
    with open_server(api_keys=entry) as url:
        host = url.removeprefix("http://")
        with triton.InferenceServerClient(host) as client:
            with pytest.raises(InferenceServerException, match="Send a valid key"):
                client.get_server_metadata()
            client.register_plugin(BasicAuth("anybody", key))
            assert client.get_server_metadata()["name"] == "longtail"
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
