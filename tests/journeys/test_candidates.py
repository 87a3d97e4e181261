"""The page about candidates: a language model chooses, and its choice is kept as feedback."""

import importlib.util
import json
import re
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from longtail.models.bundle.registry import Registry
from longtail.service.app import create_app
from longtail.service.feedback.store import FeedbackStore
from longtail.service.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "candidates.md"
TEXT = "imports of olive oil"


def test_the_choice_of_a_model_becomes_feedback(trained_sparse, tmp_path, monkeypatch):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    asked = []

    def reply(request):
        assert request.url.path == "/v1/chat/completions"
        asked.append(json.loads(request.content))
        schema = asked[-1]["response_format"]["json_schema"]["schema"]
        _, second, _ = schema["properties"]["labels"]["items"]["enum"]
        message = {"content": json.dumps({"labels": [second]})}
        return httpx.Response(200, json={"choices": [{"message": message}]})

    model = httpx.Client(base_url="http://model/v1", transport=httpx.MockTransport(reply))
    kept = {"feedback": tmp_path / "feedback", "feedback_texts": True}
    settings = Settings(registry=trained_sparse.registry.folder, **kept)
    with TestClient(create_app(settings)) as service:
        while service.get("/readyz").status_code != 200:
            pass
        clients = {"http://localhost:8000": service, "http://localhost:8080/v1": model}
        monkeypatch.setattr(httpx, "Client", lambda base_url, **_: clients[base_url])
        page = {}
        exec(compile(code, str(PAGE), "exec"), page)  # noqa: S102
        (chosen,) = page["choose"](TEXT, k=3)
        found = service.post("/v1/predict", json={"text": TEXT, "k": 3}).json()
        labels = found["results"][0]["labels"]
    assert chosen == labels[1]["id"]
    assert all(f"{x['id']}: {x['name']}" in asked[0]["messages"][0]["content"] for x in labels)
    with FeedbackStore(tmp_path / "feedback") as store:
        (entry,) = (record.content for record in store.page(0, 9))
    assert entry["text"] == TEXT and entry["accepted"] == [chosen]
    assert entry["rejected"] == [labels[0]["id"], labels[2]["id"]]


@pytest.fixture
def said(place):
    """Writes entries about a label of the model to a file; returns its name."""
    label_id = Registry(place / "registry").open().catalogue[0].id

    def write(name: str, number: int, length: int) -> str:
        lines = [
            json.dumps({"id": f"{name}-{each}", "text": "x" * length, "accepted": [label_id]})
            for each in range(number)
        ]
        (place / name).write_text("\n".join(lines))
        return name

    return write


def test_there_and_back(place, run, said):
    store = ["--feedback", "kept"]
    assert run("feedback", "import", said("said", 3, 10), *store).status == 0
    assert run("feedback", "delete", "said-1", *store).status == 0
    assert run("feedback", "export", "out.jsonl", *store).status == 0
    lines = [json.loads(line) for line in (place / "out.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["said-0", "said-2", "said-1"]


def test_what_was_said_is_learned_and_rolled_back(place, run):
    """From the folder that keeps it, and from an export of that."""
    label_id = Registry(place / "registry").open().catalogue[0].id
    entry = {
        "text": "Duties on imports of zebra hides", "added": [label_id],
        "proposed": [{"name": "zebra hides"}],
    }  # fmt: skip
    (place / "said.jsonl").write_text(json.dumps(entry) + "\n")
    store = ["--feedback", "kept"]
    assert run("feedback", "import", "said.jsonl", *store, "--texts").status == 0
    learned = run("learn", "data", *store)
    assert learned.status == 0, learned
    assert "Version 2 of 'registry' is learned from version 1, in " in learned.out
    assert "Documents: 1 new, 0 corrected" in learned.out
    assert "Labels: 1 new." in learned.out
    assert run("feedback", "export", "out.jsonl", *store).status == 0
    again = run("learn", "data", "--feedback", "out.jsonl")
    assert "Nothing is new: version 2 of 'registry' knows all of the feedback" in again.out
    assert Registry(place / "registry").open().catalogue.row_of_id("new:zebra-hides") is not None
    assert run("registry", "rollback").status == 0
    assert Registry(place / "registry").current() == 1


def test_a_full_disk_is_told_and_keeps_what_was_there(place, run, said, disk):
    store = ["--feedback", disk("1m") / "kept"]
    assert run("feedback", "import", said("few", 5, 100), *store, "--texts").status == 0
    outcome = run("feedback", "import", said("many", 400, 5000), *store, "--texts")
    assert outcome.status == 1 and "full" in outcome.last_line
    assert "5 entries" in run("feedback", "export", "out.jsonl", *store).out
    assert run("feedback", "import", said("few", 5, 100), *store, "--texts").status == 0


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
