"""The admin routes, and requests that are answered while they change what is served."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from longtail.models.labels.catalogue import LabelCatalogue


@pytest.fixture
def versioned(fake_predictor):
    """Scores every label with the number of the version."""

    class Versioned(fake_predictor):
        def __init__(self, bundle):
            super().__init__(bundle)
            self.version = int(bundle.folder.name)

        def predict(self, texts, **options):
            predictions = super().predict(texts, **options)
            for prediction in predictions:
                for label in prediction.labels:
                    object.__setattr__(label, "score", float(self.version))
            return predictions

    return Versioned


@pytest.fixture
def admin(open_admin):
    with open_admin() as client:
        yield client


def versions_in(answer):
    """Return all versions that had a part in an answer."""
    body = answer.json()
    scores = {label["score"] for result in body["results"] for label in result["labels"]}
    return scores | {body["model"]["version"]}


def test_activate_answers_with_what_is_served_then(admin, registry):
    change = admin.post("/v1/admin/models/1/activate").json()
    assert change.pop("seconds") >= 0
    assert change == {"default": 1, "current": 1, "loaded": [1], "canary": None}
    assert admin.post("/v1/predict", json={"text": "a"}).json()["model"]["version"] == 1
    assert registry.current() == 1


def test_the_log_of_changes_names_the_key_and_the_request(admin, registry):
    num_before = len(registry.changes.entries())
    admin.post("/v1/admin/models/1/activate", headers={"X-Request-ID": "the-request"})
    admin.post("/v1/admin/rollback")
    admin.post("/v1/admin/models/1/load")
    first, second = registry.changes.entries()[num_before:]
    assert (first["action"], first["from"], first["to"]) == ("activate", 2, 1)
    assert (first["request_id"], second["action"]) == ("the-request", "rollback")
    assert first["key"] == second["key"] and "user" not in first


def test_a_canary_gets_its_share_and_metrics_of_its_own(admin):
    body = {"version": 1, "share": 0.25}
    assert admin.put("/v1/admin/canary", json=body).json()["canary"] == body
    for _ in range(40):
        admin.post("/v1/predict", json={"text": "a"})
    found = re.findall(
        r'predict_duration_seconds_count{.*version="(.)"} (.*)', admin.get("/metrics").text
    )
    counts = {int(version): float(count) for version, count in found}
    assert counts[1] + counts[2] == 40
    assert abs(counts[1] - 10) <= 2
    shares = [model["traffic_share"] for model in admin.get("/v1/models").json()["models"]]
    assert shares == [0.25, 0.75]
    assert admin.delete("/v1/admin/canary").json()["canary"] is None


def test_labels_and_feedback_without_a_version_are_of_the_default(admin):
    admin.put("/v1/admin/canary", json={"version": 1, "share": 0.5})
    models = {admin.get("/v1/labels").json()["model"]["version"] for _ in range(12)}
    assert models == {2}


@pytest.mark.parametrize(
    ("path", "status", "slug"),
    [
        ("models/9/activate", 404, "model-not-found"), ("models/9/load", 404, "model-not-found"),
        ("models/1/unload", 404, "model-not-found"), ("models/2/unload", 409, "model-change"),
        ("models/0/load", 422, "invalid-body"), ("models/current/load", 422, "invalid-body"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_a_problem(admin, path, status, slug):
    answer = admin.post(f"/v1/admin/{path}")
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:longtail:problem:{slug}")


def test_requests_are_answered_by_one_version_each_while_versions_swap(
    open_admin, make_loader, versioned
):
    loader, stop = make_loader(predictor_class=versioned), threading.Event()

    def ask(client, body):
        answers = []
        while not stop.is_set():
            answers.append(client.post("/v1/predict", json=body))
        return answers

    bodies = [{"text": "a"}, {"texts": ["a", "bb", "ccc"]}, {"text": "a", "version": "current"}]
    with open_admin(loader) as client, ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask, client, body) for body in bodies]
        swaps = [client.post(f"/v1/admin/models/{1 + i % 2}/activate") for i in range(10)]
        stop.set()
        answers = [answer for future in asking for answer in future.result()]
    assert {answer.status_code for answer in swaps} == {200}
    assert {answer.status_code for answer in answers} == {200}
    assert all(len(versions_in(answer)) == 1 for answer in answers)


def test_a_request_in_flight_keeps_its_model_over_a_swap_and_an_unload(
    open_admin, make_loader, versioned
):
    gate, busy = threading.Event(), threading.Event()

    class Slow(versioned):
        def read(self, texts):  # on the thread that tokenises, so that others still compute
            if "slow" in texts:
                busy.set()
                assert gate.wait(60)
            return super().read(texts)

    with open_admin(make_loader(predictor_class=Slow)) as client, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(client.post, "/v1/predict", json={"texts": ["slow", "a"]})
        assert busy.wait(60)
        client.post("/v1/admin/models/1/activate")
        states = [model["state"] for model in client.get("/v1/models").json()["models"]]
        gate.set()
        assert versions_in(slow.result()) == {2}
        assert versions_in(client.post("/v1/predict", json={"text": "a"})) == {1}
    assert states == ["loaded", "draining"]


def test_an_id_names_the_same_label_in_versions_that_have_it_elsewhere(
    open_admin, make_loader, fake_predictor
):
    class Reordered(fake_predictor):
        def __init__(self, bundle):
            super().__init__(bundle)
            if bundle.folder.name == "1":
                self.catalogue = LabelCatalogue(reversed(list(bundle.catalogue)))

    body = {"text": "a", "k": 8}
    with open_admin(make_loader(predictor_class=Reordered)) as client:
        before = client.post("/v1/predict", json=body).json()["results"][0]["labels"]
        client.post("/v1/admin/models/1/activate")
        after = client.post("/v1/predict", json=body).json()["results"][0]["labels"]
    names = [{label["id"]: label["name"] for label in labels} for labels in (before, after)]
    assert names[0] == names[1]
    assert before[0]["id"] != after[0]["id"]


def test_while_a_new_version_warms_up_the_old_one_answers_all(
    open_admin, make_loader, fake_predictor
):
    gate, busy = threading.Event(), threading.Event()

    class Endless(fake_predictor):
        def predict(self, texts, **options):
            busy.set()
            assert gate.wait(60)
            return super().predict(texts, **options)

    loader = make_loader()
    with open_admin(loader) as client, ThreadPoolExecutor(1) as pool:
        loader.predictor_class = Endless
        load = pool.submit(client.post, "/v1/admin/models/1/load")
        assert busy.wait(60)
        predicted = client.post("/v1/predict", json={"text": "a"})
        labelled = client.get("/v1/labels/L1")
        gate.set()
        assert (predicted.status_code, labelled.status_code) == (200, 200)
        assert load.result().status_code == 200
