"""Labels over HTTP: included and excluded, explained, searched and shown."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from scipy.stats import binomtest

from longtail.models.fitted.label_figures import LABEL_FIGURES, LabelFigures
from longtail.models.predict.predictor import Predictor
from longtail.service.app import create_app
from longtail.service.engine import traffic
from longtail.service.settings import Settings

NDJSON = {"content-type": "application/x-ndjson"}
HOSTILE_IDS = (
    "http://eurovoc.europa.eu/1264", "a/b", "100%", "%2F", "a b+c", "?x=1#y",
    "\u00e9\u4e2d\U0001f98e", "//", "a//b/", ";v=1", "&amp;", "\\", "..x", "L1", "v1/labels/x",
)  # fmt: skip


@pytest.fixture
def sets(tmp_path):
    folder = tmp_path / "sets"
    folder.mkdir()
    (folder / "low.txt").write_text("L0\nL1\nL2\ngone\n")
    (folder / "lost.json").write_text('["gone"]')
    return folder


@pytest.fixture
def set_client(open_client, sets):
    with open_client(label_sets=sets) as client:
        yield client


def ids_of(result):
    return [label["id"] for label in result["labels"]]


def predicted(client, **body):
    answer = client.post("/v1/predict", json={"text": "some words"} | body)
    assert answer.status_code == 200, answer.text
    return ids_of(answer.json()["results"][0])


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ({"include": ["L5", "L3"]}, ["L3", "L5"]),
        ({"exclude": ["L0", "L2"], "k": 3}, ["L1", "L3", "L4"]),
        ({"include": ["L5", "L3"], "exclude": ["L3"]}, ["L5"]),
        ({"include": ["L5"], "include_set": "low"}, ["L0", "L1", "L2", "L5"]),
        ({"exclude_set": "low", "k": 8}, ["L3", "L4", "L5", "L6", "L7"]),
        ({"include_set": "low", "exclude": ["L1"]}, ["L0", "L2"]),
        ({"include": []}, []),
    ],
)
def test_only_labels_that_may_be_come(set_client, body, ids):
    assert predicted(set_client, **body) == ids


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"include": ["L1", "X"]}, "include: this version has no label with the id 'X'; leave"),
        ({"include_set": "lost"}, "this version has none of the 1 labels of the set 'lost'"),
        ({"exclude_set": "none"}, "label set 'none' is not stored; the sets are lost, low"),
        ({"include_set": "../x"}, "is not stored"),
        ({"include": ["L1"] * 3, "exclude": ["L1"] * 3}, "name 6 labels; expected at most 5"),
    ],
)
def test_a_filter_that_can_not_be_met_is_refused(open_client, sets, body, words, monkeypatch):
    monkeypatch.setattr("longtail.service.engine.queries.MAX_FILTER_LABELS", 5)
    with open_client(label_sets=sets) as client:
        content = json.dumps({"text": "x"} | body)
        answer = client.post(
            "/v1/predict", content=content, headers={"content-type": "application/json"}
        )
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:longtail:problem:request")
    assert words in answer.json()["detail"]


def post_batch(client, *lines, **query):
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    answer = client.post("/v1/batch", content=content, headers=NDJSON, params=query)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()][:-1]


def test_lines_of_a_batch_have_filters_of_their_own_or_those_of_the_query(set_client):
    first, second, third, fourth = post_batch(
        set_client,
        {"text": "a"},
        {"text": "a", "exclude": [], "include": ["L7"]},
        {"text": "a", "exclude_set": "none"},
        {"text": "a", "include_set": "low"},
        k=3, exclude=["L0", "L3"],
    )  # fmt: skip
    assert (ids_of(first), ids_of(second)) == (["L1", "L2", "L4"], ["L7"])
    assert third["error"]["status"] == 422
    assert ids_of(fourth) == ["L1", "L2"]
    (alone,) = post_batch(set_client, {"text": "a"}, include="L4", include_set="low", k=8)
    assert ids_of(alone) == ["L0", "L1", "L2", "L4"]


def test_only_so_many_labels_are_explained(open_client, monkeypatch):
    monkeypatch.setattr("longtail.service.engine.queries.MAX_EXPLAINED_LABELS", 6)
    with open_client() as client:
        for texts, k, status in ((["a"] * 3, 2, 200), (["a"] * 4, 2, 422), (["a"], 7, 422)):
            body = {"texts": texts, "k": k, "explain": True}
            answer = client.post("/v1/predict", json=body)
            assert answer.status_code == status
        assert "7 labels are to be explained (k times texts); expected at most 6" in answer.text
        assert client.post("/v1/predict", json={"text": "a", "k": 8}).status_code == 200


def test_labels_are_searched(client):
    answer = client.get("/v1/labels", params={"query": "LABEL", "limit": 2, "offset": 3}).json()
    assert (answer["total"], [each["id"] for each in answer["labels"]]) == (8, ["L3", "L4"])
    assert client.get("/v1/labels", params={"query": "label 7"}).json()["labels"][0]["id"] == "L7"
    assert client.get("/v1/labels", params={"query": "\u00e9\x00\ud7ff"}).json()["total"] == 0


def test_labels_have_their_quality_and_come_with_the_lowest_precision_first(
    client, fake_predictor, monkeypatch
):
    refused = client.get("/v1/labels", params={"sort": "recall"})
    assert refused.status_code == 422 and "no figures" in refused.json()["detail"]
    true, predicted, right = (
        [0, 9, 3, 4, 1, 0, 0, 0],
        [0, 2, 9, 0, 3, 0, 9, 0],
        [0, 2, 3, 0, 1, 0, 0, 0],
    )
    figures = LabelFigures(*map(np.array, (true, predicted, right)))
    monkeypatch.setitem(fake_predictor.parts.fitted, LABEL_FIGURES.name, figures)
    assert client.get("/v1/models").json()["models"][-1]["has_label_quality"]
    found = client.get("/v1/labels", params={"sort": "precision", "query": "label"}).json()[
        "labels"
    ]
    assert [each["id"] for each in found] == ["L6", "L2", "L4", "L1", "L0", "L3", "L5", "L7"]
    by_recall = client.get("/v1/labels", params={"sort": "recall", "limit": 2}).json()["labels"]
    assert [each["id"] for each in by_recall] == ["L3", "L1"]
    quality = client.get("/v1/labels/L2").json()["quality"]
    assert quality == found[1]["quality"]
    assert quality["recall"]["share"] == quality["recall"]["upper"] == 1
    expected = binomtest(3, 9).proportion_ci(0.95, method="wilson")
    assert quality | {"recall": None} == {
        "carried": 3, "predicted": 9, "right": 3, "recall": None,
        "precision": pytest.approx(
            {"share": 3 / 9, "lower": expected.low, "upper": expected.high}
        ),
    }  # fmt: skip
    assert found[-1]["quality"]["precision"] is None


def test_what_is_asked_of_no_label_is_a_404_that_says_what_to_do(client):
    for label_id in ("L9", "L1/", ""):
        answer = client.get(f"/v1/labels/{label_id}")
        assert (answer.status_code, answer.json()["type"]) == (
            404, "urn:longtail:problem:label-not-found",
        )  # fmt: skip
        assert f"version 2 has no label with the id {label_id!r}" in answer.json()["detail"]


def test_search_and_labels_work_while_the_model_is_busy_or_wait_for_it(
    open_client, make_loader, fake_predictor
):
    gate, busy = threading.Event(), threading.Event()

    class Slow(fake_predictor):
        def predict(self, texts, **options):
            if list(texts) == ["slow"]:
                busy.set()
                assert gate.wait(60)
            return super().predict(texts, **options)

    loader = make_loader(predictor_class=Slow)
    with open_client(loader) as client, ThreadPoolExecutor(2) as pool:
        answer = pool.submit(client.post, "/v1/predict", json={"text": "slow"})
        assert busy.wait(60)
        assert client.get("/v1/labels").status_code == 200
        label = pool.submit(client.get, "/v1/labels/L1")
        gate.set()
        assert (answer.result().status_code, label.result().status_code) == (200, 200)
    assert loader.loaded[0].threads == {"warm-up", "compute_0"}


@pytest.fixture(scope="module")
def real(trained):
    return Predictor.of_bundle(trained.bundle, device="cpu")


@pytest.fixture
def real_client(trained, wait_for_loading):
    with TestClient(create_app(Settings(registry=trained.registry.folder, device="cpu"))) as client:
        wait_for_loading(client)
        yield client


TEXT = "Regulation of the Council on imports of fish and olive oil"


def test_a_real_model_ranks_and_explains_over_http(real_client, real):
    for scorer in real.scorers.names:
        (full,) = real.predict([TEXT], k=len(real.catalogue), scorer=scorer)
        excluded = [label.id for label in full.labels[:2]]
        body = {"text": TEXT, "k": 3, "scorer": scorer, "exclude": excluded, "explain": True}
        answer = real_client.post("/v1/predict", json=body | {"tail_dial": 0.5})
        assert answer.status_code == 200, answer.text
        result = answer.json()["results"][0]
        assert result["exact"] is True
        assert not set(ids_of(result)) & set(excluded)
        for label in result["labels"]:
            why = label["explanation"]
            (own,) = (each for each in why["scores"] if each["scorer"] == scorer)
            assert own["score"] == pytest.approx(label["score"], abs=1e-4)
            total = own["base"] + own["correction"] + own["tail_dial"]
            assert total == pytest.approx(label["score"], abs=1e-4)
            for token in why["tokens"]["tokens"] if why["tokens"] else ():
                for start, end in token["spans"]:
                    assert TEXT[start:end].lower().startswith(token["token"][:3])


def test_spans_and_scores_are_those_of_the_title_a_line_feed_and_the_text(real_client, real):
    for scorer in real.scorers.names:
        body = {"k": 3, "scorer": scorer, "explain": True}
        apart = real_client.post("/v1/predict", json=body | {"title": TEXT, "text": "fish oil"})
        joined = real_client.post("/v1/predict", json=body | {"text": f"{TEXT}\nfish oil"})
        assert apart.status_code == 200, apart.text
        assert apart.json()["results"] == joined.json()["results"]


class Catalogued:
    left_out = ()
    manifest = SimpleNamespace(default_scorer="retrieval")

    def __init__(self, catalogue):
        self.catalogue = catalogue


@pytest.fixture
def hostile_loader(make_loader, fake_predictor):
    """Loads models whose labels have ids that paths don't like."""

    class Hostile(fake_predictor):
        def __init__(self, bundle):
            labels = [replace(bundle.catalogue[0], id=each) for each in HOSTILE_IDS]
            super().__init__(Catalogued(type(bundle.catalogue)(labels)))

    return make_loader(predictor_class=Hostile)


def test_ids_may_hold_whatever_paths_do_not_like(open_server, hostile_loader):
    # Over a real socket, as the test client decodes a path twice.
    with open_server(hostile_loader) as url, httpx.Client(base_url=url, timeout=300) as client:
        for label_id in HOSTILE_IDS:
            answer = client.get(f"/v1/labels/{quote(label_id, safe='')}")
            assert (answer.status_code, answer.json().get("id")) == (200, label_id)
            # As a parameter, which no proxy decodes.
            assert client.get("/v1/labels", params={"id": label_id}).json() == answer.json()
            found = client.get("/v1/labels", params={"query": label_id}).json()
            assert label_id in [each["id"] for each in found["labels"]]
            assert predicted(client, include=[label_id]) == [label_id]
        metrics = client.get("/metrics").text
    assert 'route="/v1/labels/{label_id:path}"' in metrics
    assert "eurovoc" not in metrics


def test_searches_beyond_a_number_are_refused_and_some_are_kept_for_other_clients(client):
    searches = client.app.state.service.label_searches
    with ExitStack() as stack:
        traffic.set_client("testclient")
        while client.get("/v1/labels").status_code == 200:
            stack.enter_context(searches.one_more())
        answer = client.get("/v1/labels")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
        traffic.set_client("another")
        searches.check()
    assert client.get("/v1/labels").status_code == 200
