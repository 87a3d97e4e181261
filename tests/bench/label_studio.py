"""The real Label Studio and the service, the whole circle: from predictions to feedback.

    longtail train training/demo_data --only-sparse --registry REGISTRY --work WORK
    python tests/bench/label_studio.py REGISTRY --python ENV/bin/python

The environment of Label Studio is one of its own: `python -m venv ENV; ENV/bin/pip install
label-studio`. Both run on this machine, so that Label Studio is told to allow addresses of it. A
project is made, the service connected as its backend, tasks imported and predictions retrieved; an
annotation is submitted, changed and deleted, and each time the feedback is compared with what was
chosen. All requests are those of Label Studio's public API; the service wants a key.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from machine import begin
from recording import Table, add_json_option, keep
from served_process import free_port, served

from longtail.service.web.api_keys import make_key

TOKEN = "0123456789abcdef0123456789abcdef01234567"  # noqa: S105  # of a server that ends soon
CONFIG = """<View>
  <Text name="text" value="$text"/>
  <Taxonomy name="labels" toName="text" model_k="3" apiUrl="http://localhost:{port}/label-studio/labels"/>
</View>"""
TEXTS = ("Imports of olive oil from third countries", "Fishing quotas in the Baltic Sea")
START_S = 300


@dataclass(frozen=True)
class Client:
    """Speaks JSON with a server."""

    url: str
    headers: dict[str, str]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer to a request: what its JSON says, else its text.

        Raises:
            SystemExit: It is refused.
        """
        content = None if body is None else json.dumps(body).encode()
        headers = self.headers | {"Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310 - our own
            self.url + path, content, headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - our own
                text, kind = answer.read().decode(), answer.headers.get_content_type()
        except HTTPError as error:
            raise SystemExit(
                f"{method} {path}: {error.code} {error.read().decode()[:2000]}"
            ) from error
        return json.loads(text) if kind == "application/json" and text else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument(
        "--python",
        type=Path,
        default=os.environ.get("LABEL_STUDIO"),
        required="LABEL_STUDIO" not in os.environ,
        help="of the environment of Label Studio",
    )
    add_json_option(parser)
    chosen = begin(parser)
    key, entry = make_key("label-studio")
    admin_key, admin_entry = make_key("admin")
    table = Table({"step": "", "ms": ".0f"})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = ["--feedback", str(folder / "feedback"), "--feedback-texts"]
        options += ["--api-keys", entry, "--admin-keys", admin_entry]
        with (
            served(chosen.registry, *options) as service,
            label_studio(Path(chosen.python), folder / "studio") as studio,
        ):
            admin = Client(
                f"http://127.0.0.1:{service.port}", {"Authorization": f"Bearer {admin_key}"}
            )
            go_round(studio, admin, f"http://studio:{key}@127.0.0.1:{service.port}", table)
            basic = b64encode(f"studio:{key}".encode()).decode()
            browser = Client(admin.url, {"Authorization": f"Basic {basic}"})
            first = browser.ask("GET", "/label-studio/labels")
            assert first and set(first[0]) >= {"value", "alias", "isLeaf"}, first
    keep(chosen.json, {"steps": table.to_json()})


def go_round(studio: Client, admin: Client, backend: str, table: Table) -> None:
    """Label a text in Label Studio, and see what the service was told."""

    def timed(step: str, method: str, path: str, body: object = None) -> Any:
        started = time.perf_counter()
        answer = studio.ask(method, path, body)
        table.add(step, 1000 * (time.perf_counter() - started))
        return answer

    port = backend.rsplit(":", 1)[1]
    config = CONFIG.format(port=port)
    project = timed(
        "make a project", "POST", "/api/projects/", {"title": "Subjects", "label_config": config}
    )
    number = project["id"]
    connected = timed(
        "connect the backend",
        "POST",
        "/api/ml/",
        {"url": f"{backend}/label-studio", "project": number, "title": "Longtail"},
    )
    assert connected["state"] == "CO", connected
    tasks = [{"text": text} for text in TEXTS]
    timed("import tasks", "POST", f"/api/projects/{number}/import", tasks)
    timed(
        "retrieve predictions",
        "POST",
        f"/api/dm/actions?id=retrieve_tasks_predictions&project={number}",
        {"selectedItems": {"all": True, "excluded": []}},
    )
    predictions = studio.ask("GET", f"/api/predictions/?project={number}")
    assert len(predictions) == len(TEXTS), predictions
    prediction = min(predictions, key=lambda each: each["task"])
    (region,) = prediction["result"]
    paths = region["value"]["taxonomy"]
    assert len(paths) == 3, prediction
    studio.ask("PATCH", f"/api/projects/{number}/", {"model_version": prediction["model_version"]})
    added = next(each["path"] for each in labels(admin, backend) if each["path"] not in paths)

    chosen = region | {"value": {"taxonomy": [paths[0], added]}}
    made = timed(
        "submit an annotation",
        "POST",
        f"/api/tasks/{prediction['task']}/annotations/",
        {"result": [chosen], "parent_prediction": prediction["id"]},
    )
    (entry,) = entries(admin)
    names = {name: len(entry[name]) for name in ("accepted", "rejected", "added")}
    assert names == {"accepted": 1, "rejected": 2, "added": 1}, entry
    assert entry["text"] == TEXTS[0], entry
    assert entry["who"] == "label-studio", entry

    chosen = region | {"value": {"taxonomy": paths}}
    timed("change it", "PATCH", f"/api/annotations/{made['id']}/", {"result": [chosen]})
    (entry,) = entries(admin)
    assert (len(entry["accepted"]), entry["rejected"], entry["added"]) == (3, [], []), entry
    timed("delete it", "DELETE", f"/api/annotations/{made['id']}/")
    assert entries(admin) == []


def labels(admin: Client, backend: str) -> list[dict[str, Any]]:
    """Return the labels of the first level, by their paths, as an annotator can choose them."""
    credentials = backend.split("//")[1].split("@")[0]
    basic = b64encode(credentials.encode()).decode()
    client = Client(admin.url, {"Authorization": f"Basic {basic}"})
    path: list[str] = []
    while True:
        query = "&".join(f"path={urllib.request.quote(step)}" for step in path)
        items = client.ask("GET", f"/label-studio/labels?{query}")
        leaves = [{"path": [*path, each["alias"]]} for each in items if each["isLeaf"]]
        if leaves:
            return leaves
        path.append(items[0]["alias"])


def entries(admin: Client) -> list[dict[str, Any]]:
    """Return the entries of feedback that are there."""
    lines = map(json.loads, admin.ask("GET", "/v1/admin/feedback").splitlines())
    return [each for each in lines if "deleted_at" not in each]


@contextmanager
def label_studio(python: Path, folder: Path) -> Iterator[Client]:
    """Start Label Studio, wait until it answers, and end it at last.

    Yields:
        What speaks with it.
    """
    folder.mkdir()
    port = free_port()
    environ = os.environ | {
        "LABEL_STUDIO_BASE_DATA_DIR": str(folder),
        "COLLECT_ANALYTICS": "false",
        "LATEST_VERSION_CHECK": "false",
        "SENTRY_DSN": "",
        "FRONTEND_SENTRY_DSN": "",
        "SSRF_PROTECTION_ENABLED": "false",
        "ML_BLOCK_LOCAL_IP": "false",
    }
    command = [str(python.parent / "label-studio"), "start", "--no-browser", "--port", str(port)]
    command += ["--internal-host", "127.0.0.1", "--data-dir", str(folder)]
    command += ["--username", "a@example.org", "--password", "annotator-1"]
    command += ["--user-token", TOKEN, "--enable-legacy-api-token"]
    log = folder / "log.txt"
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environ, stdout=file, stderr=file, cwd=folder)
    try:
        deadline = time.monotonic() + START_S
        while not _answers(port):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.5)
        yield Client(f"http://127.0.0.1:{port}", {"Authorization": f"Token {TOKEN}"})
    except BaseException:
        print(log.read_text()[-4000:])
        raise
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    main()
