"""A machine-learning backend of Label Studio that asks a service of Longtail.

SERVICE_URL=http://localhost:8000 uvicorn --app-dir docs/how-to label_studio_backend:app --port 9090
"""

import os
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

FIELD = "text"  # of the tasks
NUM_LABELS = 10
KEY = os.environ.get("SERVICE_KEY")
service = httpx.Client(
    base_url=os.environ.get("SERVICE_URL", "http://localhost:8000"),
    headers={"Authorization": f"Bearer {KEY}"} if KEY else {},
    timeout=60,
)
app = FastAPI()
app.add_middleware(CORSMiddleware, allow_origins=["*"])  # the browser asks for /labels


def ask(method: str, path: str, **content: Any) -> Any:
    """Return the answer of the service; raise its error."""
    return service.request(method, path, **content).raise_for_status().json()


@app.get("/health")
def health() -> dict[str, str]:
    """Answer when the service can predict."""
    ask("GET", "/readyz")
    return {"status": "UP"}


@app.post("/setup")
def set_up() -> dict[str, str]:
    """Accept a project."""
    return {"model_version": "longtail"}


@app.post("/predict")
def predict(body: dict[str, Any]) -> dict[str, Any]:
    """Return the best labels of each task."""
    return {"results": [predicted(task["data"][FIELD]) for task in body["tasks"]]}


def predicted(text: str) -> dict[str, Any]:
    """Return the prediction of one text."""
    answer = ask("POST", "/v1/predict", json={"text": text, "k": NUM_LABELS})
    labels = answer["results"][0]["labels"]
    value = {"taxonomy": [[label["id"]] for label in labels]}
    region = {"from_name": "labels", "to_name": "text", "type": "taxonomy", "value": value}
    version = f"longtail-{answer['model']['version']}"
    return {"result": [region], "score": labels[0]["probability"], "model_version": version}


@app.post("/webhook")
def keep(event: dict[str, Any]) -> None:
    """Keep a new or changed annotation as feedback."""
    if event["action"] not in {"ANNOTATION_CREATED", "ANNOTATION_UPDATED"}:
        return
    annotation = event["annotation"]
    shown = ids_of((annotation.get("prediction") or {}).get("result"))
    chosen = ids_of(annotation["result"])
    entry = {
        "id": f"label-studio-{annotation['id']}-{annotation['updated_at']}",
        "text": event["task"]["data"][FIELD],
        "accepted": sorted(shown & chosen),
        "rejected": sorted(shown - chosen),
        "added": sorted(chosen - shown),
    }
    ask("POST", "/v1/feedback", json={"entries": [entry]})


def ids_of(result: list[dict[str, Any]] | None) -> set[str]:
    """Return the ids of the chosen labels."""
    regions = [region for region in result or [] if region["from_name"] == "labels"]
    return {path[-1] for region in regions for path in region["value"]["taxonomy"]}


@app.get("/labels")
def list_labels(query: str = "") -> list[dict[str, Any]]:
    """Return up to 1,000 labels, or those that a query finds, as `apiUrl` asks for them."""
    found = ask("GET", "/v1/labels", params={"query": query, "limit": 1000})["labels"]
    return [{"value": label["name"], "alias": label["id"], "isLeaf": True} for label in found]
