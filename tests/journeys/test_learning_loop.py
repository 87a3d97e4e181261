"""The whole circle: a service is corrected, learns, and answers with what it learned."""

import gzip
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from longtail.models.bundle.registry import Registry
from longtail.service.canary.watch import CanaryWatch
from longtail.service.client.calls import NEVER
from longtail.service.client.client import Client
from longtail.service.web.api_keys import make_key

DEMO_DATA = Path(__file__).parents[2] / "training" / "demo_data"
NUM_BEFORE, NUM_LATER = 400, 400
NUM_CHARACTERS = 800  # kept of each text
NEW = "Canary Islands"
"""A label of several later documents, and of none before."""
RULES = (
    "require=not-worse", "margin=0.1", "max_size_ratio=3",
    "max_slowdown=1000", "slow_margin=1", "min_requests=20",
)  # fmt: skip
"""What times are measured decides nothing: the machine may be busy."""


@pytest.fixture
def later(place):
    """Writes the oldest documents of the demo data as a corpus; returns those that came next."""
    labels = [{"id": x["uid"], "name": x["title"]} for x in lines_of("lbl")]
    old = {"train": documents("trn", 0, NUM_BEFORE), "dev": documents("dev", 0, 60)}
    known = {label_id for found in old.values() for x in found for label_id in x["labels"]}
    write(place / "old" / "labels.jsonl", [x for x in labels if x["id"] in known])
    for split, found in old.items():
        write(place / "old" / f"{split}.jsonl", found)
    write(place / "judged" / "labels.jsonl", labels)
    write(place / "judged" / "test.jsonl", documents("tst", 60, 160))
    return documents("trn", NUM_BEFORE, NUM_BEFORE + NUM_LATER)


@pytest.fixture
def trained(later, run):
    """What the service begins with."""
    words = ("--without-encoder", "--registry", "circle", "--work", "runs/first")
    assert run("train", "old", *words).status == 0
    return Registry(Path("circle"))


@pytest.fixture
def service(place, trained, monkeypatch):
    """Serves that in a process of its own, and keeps feedback; an admin key is in ADMIN_KEY."""
    key, entry = make_key("admin")
    monkeypatch.setenv("ADMIN_KEY", key)
    words = ["serve", "--registry", trained.folder, "--port", "0", "--admin-keys", entry]
    words += ["--feedback", "feedback", "--feedback-texts", "--drain-delay-s", "0"]
    log = place / "service.log"
    with log.open("w", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "longtail", *words], cwd=place, stderr=stderr
        )
    pattern = re.compile(r"running on (http://\S+:\d+)")
    while (found := pattern.search(log.read_text(encoding="utf-8"))) is None:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        time.sleep(0.1)
    with Client(found[1]) as client:
        while not client.is_ready():
            assert process.poll() is None, log.read_text(encoding="utf-8")
            time.sleep(0.1)
    yield found[1]
    process.terminate()
    process.wait()


@pytest.fixture
def users(monkeypatch):
    """Lets the time of a canary pass as fast as its requests are answered."""
    answered: list[int] = []

    def try_on_service(url, key, log, pair, rules, texts):
        passed = [0.0]

        def wait(seconds: float) -> None:
            passed[0] += seconds
            answered.extend(client.predict("fish").model.version for _ in range(20))

        with Client(url, key=key, retry=NEVER) as client:
            watch = CanaryWatch(client, log, pair, rules, now=lambda: passed[0], sleep=wait)
            return watch.run(texts)

    monkeypatch.setattr("longtail.service.canary.watch.try_on_service", try_on_service)
    return answered


@pytest.mark.slow
def test_what_people_say_of_answers_changes_them_after_a_canary(
    later, trained, service, users, run
):
    (new,) = [x["uid"] for x in lines_of("lbl") if x["title"] == NEW]
    of_new = [x for x in later if new in x["labels"]]
    corrected = [x for x in later if x not in of_new[-3:]]
    assert trained.open(1).catalogue.row_of_id(new) is None
    known = {label.id for label in trained.open(1).catalogue}
    names = {x["uid"]: x["title"] for x in lines_of("lbl")}
    with Client(service, retry=NEVER) as client:
        answers = [client.predict(x["text"], k=5).results[0].labels for x in corrected]
    for first in range(0, len(corrected), 100):
        pairs = zip(corrected[first : first + 100], answers[first : first + 100], strict=True)
        said = [correction(document, labels, known, names) for document, labels in pairs]
        sent = httpx.post(f"{service}/v1/feedback", json={"entries": said}, timeout=300)
        assert {entry["status"] for entry in sent.raise_for_status().json()["entries"]} == {
            "stored"
        }

    words = ("--registry", trained.folder)
    learned = run("learn", "old", "--feedback", "feedback", *words, "--no-activate")
    assert learned.status == 0, learned
    assert trained.current() == 1
    rules = [word for rule in RULES for word in ("--set", rule)]
    promoted = run(
        "promote", "--candidate", 2, "--data", "judged", "--split", "test", *words, "--share", 0.5,
        "--url", service, "--api-key-env", "ADMIN_KEY", "--minutes", 0.5, *rules,
    )  # fmt: skip
    assert promoted.status == 0, promoted
    assert trained.current() == 2
    assert len(users) >= 40 and set(users) == {1, 2}

    with Client(service, retry=NEVER) as client:
        results = [client.predict(x["text"], k=10) for x in of_new[-3:]]
    assert {each.model.version for each in results} == {2}
    assert any(new in {x.id for x in each.results[0].labels} for each in results)


def correction(
    document: dict[str, Any], labels: list[Any], known: set[str], names: dict[str, str]
) -> dict[str, Any]:
    """Return what one who knows the labels says of an answer."""
    found, right = [label.id for label in labels], document["labels"]
    return {
        "text": document["text"],
        "version": 1,
        "accepted": [x for x in found if x in right],
        "rejected": [x for x in found if x not in right],
        "added": [x for x in right if x in known and x not in found],
        "proposed": [{"id": x, "name": names[x]} for x in right if x not in known],
    }


def lines_of(file: str) -> list[dict[str, Any]]:
    """Return the objects of a file of the demo data."""
    with gzip.open(DEMO_DATA / f"{file}.json.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def documents(file: str, first: int, stop: int) -> list[dict[str, Any]]:
    """Return documents of a file, which lie in the order of their years; their texts cut short."""
    ids = [label["uid"] for label in lines_of("lbl")]
    return [
        {
            "text": f"{x['title']}\n{x['content']}"[:NUM_CHARACTERS],
            "labels": [ids[row] for row in x["target_ind"]],
        }
        for x in lines_of(file)[first:stop]
    ]


def write(path: Path, objects: list[dict[str, Any]]) -> None:
    """Write a file of a corpus."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(x) + "\n" for x in objects), encoding="utf-8")
