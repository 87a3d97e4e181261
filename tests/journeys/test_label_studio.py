"""The page about Label Studio: its backend predicts tasks and keeps annotations as feedback."""

import importlib.util
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from longtail.service.app import create_app
from longtail.service.feedback.store import FeedbackStore
from longtail.service.settings import Settings

PATH = Path(__file__).parents[2] / "docs" / "how-to" / "label_studio_backend.py"
TASK = {"id": 5, "data": {"text": "imports of olive oil"}, "project": 3}


@pytest.fixture
def service(trained_sparse, tmp_path):
    kept = {"feedback": tmp_path / "feedback", "feedback_texts": True}
    settings = Settings(registry=trained_sparse.registry.folder, **kept)
    with TestClient(create_app(settings)) as client:
        while client.get("/readyz").status_code != 200:
            pass
        yield client


@pytest.fixture
def backend(service):
    """The backend of the page, over this service."""
    spec = importlib.util.spec_from_file_location(PATH.stem, PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.service.close()
    module.service = service
    return TestClient(module.app)


def region(ids):
    value = {"taxonomy": [[label] for label in ids]}
    return {"from_name": "labels", "to_name": "text", "type": "taxonomy", "value": value}


def test_it_predicts_what_the_service_predicts(backend, service):
    assert backend.get("/health").json() == {"status": "UP"}
    assert backend.post("/setup", json={"project": "3.177", "schema": "<View/>"}).is_success
    found = backend.post("/predict", json={"tasks": [TASK], "label_config": "<View/>"}).json()
    body = {"text": TASK["data"]["text"], "k": 10}
    labels = service.post("/v1/predict", json=body).json()["results"][0]["labels"]
    assert found["results"] == [
        {
            "result": [region(label["id"] for label in labels)],
            "score": labels[0]["probability"],
            "model_version": "longtail-1",
        }
    ]


def test_labels_are_offered_by_name_and_stored_by_id(backend, service):
    known = service.get("/v1/labels", params={"limit": 1000}).json()["labels"]
    items = backend.get("/labels").json()
    assert {item["alias"]: item["value"] for item in items} == {x["id"]: x["name"] for x in known}
    searched = backend.get("/labels", params={"query": known[0]["name"]}).json()
    assert known[0]["id"] in [item["alias"] for item in searched]


def test_an_annotation_and_its_change_become_feedback(backend, service, tmp_path):
    kept, removed, added = (x["alias"] for x in backend.get("/labels").json()[:3])
    shown = {"id": 9, "result": [region([kept, removed])], "model_version": "longtail-1"}
    quality = {"from_name": "quality", "type": "choices", "value": {"choices": ["good"]}}
    annotation = {"id": 17, "task": 5, "prediction": shown, "was_cancelled": False}
    for action, moment, chosen in (
        ("ANNOTATION_CREATED", "2026-03-02T09:00:00Z", [kept, added]),
        ("ANNOTATION_UPDATED", "2026-03-02T10:00:00Z", [kept, removed]),
        ("ANNOTATIONS_DELETED", "2026-03-02T11:00:00Z", []),
    ):
        changed = annotation | {"updated_at": moment, "result": [quality, region(chosen)]}
        event = {"action": action, "annotation": changed, "task": TASK, "project": {"id": 3}}
        for _ in range(2):  # Label Studio may send an event again
            assert backend.post("/webhook", json=event).is_success
    with FeedbackStore(tmp_path / "feedback") as store:
        entries = [record.content for record in store.page(0, 9)]
    assert [(x["accepted"], x["rejected"], x["added"]) for x in entries] == [
        ([kept], [removed], [added]),
        (sorted([kept, removed]), [], []),
    ]
    assert {x["text"] for x in entries} == {TASK["data"]["text"]}
