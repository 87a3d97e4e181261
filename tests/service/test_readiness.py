"""Probes from the start of loading to its good or bad end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.errors import BundleCorruptError


def test_routes_answer_while_the_models_load(open_client, make_loader):
    gate = threading.Event()
    with open_client(make_loader(gate=gate), wait=False) as client:
        statuses = {path: client.get(path).status_code for path in ("/livez", "/readyz", "/docs")}
        listed = client.get("/v1/models").json()["models"]
        gate.set()
    assert statuses == {"/livez": 200, "/readyz": 503, "/docs": 200}
    assert [model["loaded"] for model in listed] == [False, False]


def test_readiness_and_predictions_come_with_the_model(open_client, make_loader, wait_for_loading):
    gate = threading.Event()
    with open_client(make_loader(gate=gate), wait=False) as client:
        before = client.post("/v1/predict", json={"text": "a"})
        gate.set()
        wait_for_loading(client)
        assert client.get("/readyz").json() == {"status": "ready"}
        assert client.post("/v1/predict", json={"text": "a"}).status_code == 200
    assert before.status_code == 503
    assert before.headers["retry-after"] == "5"


def test_the_first_prediction_is_made_before_the_service_is_ready(open_client, make_loader):
    loader = make_loader()
    with open_client(loader) as client:
        assert client.get("/readyz").status_code == 200
        assert len(loader.loaded[0].calls) > 1
        assert loader.loaded[0].threads == {"compute_0"}


def test_a_model_that_fails_its_first_prediction_is_not_served(
    open_client, make_loader, fake_predictor
):
    class Failing(fake_predictor):
        def predict(self, texts, **options):
            raise MemoryError

    with open_client(make_loader(predictor_class=Failing)) as client:
        problem = client.get("/readyz").json()
        assert client.get("/livez").status_code == 200
    assert problem["status"] == 503
    assert "failed with MemoryError; see the log" in problem["detail"]


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (
            BundleCorruptError("file 'x' is missing"),
            "file 'x' is missing; mend it, then restart it",
        ),
        (OSError("disk path"), "failed with OSError; see the log"),
    ],
)
def test_a_failed_load_keeps_readiness_at_503_with_the_reason(
    open_client, make_loader, caplog, failure, words
):
    with open_client(make_loader(failure=failure)) as client:
        problem = client.get("/readyz").json()
    assert problem["type"] == "urn:longtail:problem:not-ready"
    assert words in problem["detail"]
    assert "disk path" not in problem["detail"]
    assert "loading version=2 failed" in caplog.text


def test_a_version_that_is_not_there_fails_loading_with_those_that_are(open_client):
    with open_client(versions=(1, 7)) as client:
        detail = client.get("/readyz").json()["detail"]
    assert "no version 7; there are: 1, 2" in detail


def test_a_changed_byte_in_the_bundle_fails_loading(open_client, registry):
    weights = registry.folder / "2" / "retrieval.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with open_client() as client:
        assert "file 'retrieval.safetensors'" in client.get("/readyz").json()["detail"]


def test_stopping_does_not_wait_for_models_that_still_load(open_client, make_loader, caplog):
    gate = threading.Event()
    with open_client(make_loader(gate=gate), wait=False):
        pass
    stopped = not gate.is_set()
    gate.set()
    assert stopped
    assert "loading failed" not in caplog.text


def test_many_requests_during_loading_all_get_their_503(open_client, make_loader):
    gate = threading.Event()
    loader = make_loader(gate=gate)
    with open_client(loader, wait=False) as client, ThreadPoolExecutor(8) as pool:
        statuses = pool.map(
            lambda _: client.post("/v1/predict", json={"text": "a"}).status_code, range(40)
        )
        assert set(statuses) == {503}
        gate.set()
