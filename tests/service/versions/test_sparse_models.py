"""Models without an encoder are served as others are."""

import pytest
from fastapi.testclient import TestClient

from longtail.models.predict.predictor import Predictor
from longtail.service.app import create_app
from longtail.service.settings import Settings

TEXT = "Regulation of the Council on imports of fish"


@pytest.fixture
def sparse_client(trained_sparse, wait_for_loading):
    with TestClient(create_app(Settings(registry=trained_sparse.registry.folder))) as client:
        wait_for_loading(client)
        yield client


def test_a_model_without_an_encoder_answers_as_its_predictor_does(sparse_client, trained_sparse):
    answer = sparse_client.post("/v1/predict", json={"text": TEXT, "k": 3}).json()
    (wanted,) = Predictor.of_bundle(trained_sparse.bundle, device="cpu").predict([TEXT], k=3)
    assert answer["scorer"] == "sparse"
    (found,) = answer["results"]
    assert [label["id"] for label in found["labels"]] == [label.id for label in wanted.labels]
    probabilities = [label["probability"] for label in found["labels"]]
    assert probabilities == [label.probability for label in wanted.labels]
    assert 1 > probabilities[0] >= probabilities[-1] > 0
    assert (found["num_tokens"], found["truncated"]) == (8, False)


@pytest.mark.parametrize(
    ("extra", "words"),
    [({"scorer": "retrieval"}, "scorer 'retrieval' is not in this bundle; it has sparse")],
)
def test_what_needs_an_encoder_is_refused(sparse_client, extra, words):
    answer = sparse_client.post("/v1/predict", json={"text": TEXT} | extra)
    assert answer.status_code == 422
    assert answer.json()["detail"].endswith(words)
