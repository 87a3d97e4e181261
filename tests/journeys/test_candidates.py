"""The page about candidates: a language model chooses, and its choice is kept as feedback."""

import json
import re
from pathlib import Path

import httpx
from fastapi.testclient import TestClient

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
