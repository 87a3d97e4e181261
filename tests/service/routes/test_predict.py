"""What `POST /v1/predict` answers."""

import threading
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import pytest


def test_current_stays_the_loaded_version_when_the_alias_moves(client, registry):
    registry.activate(1)
    answer = client.post("/v1/predict", json={"text": "x", "version": "current"})
    assert answer.json()["model"]["version"] == 2


def test_a_version_that_is_not_loaded_is_a_404_that_says_what_to_do(client):
    answer = client.post("/v1/predict", json={"text": "x", "version": 1})
    assert answer.status_code == 404
    assert "in the registry but not loaded; loaded versions: 2" in answer.json()["detail"]
    assert "--versions" in answer.json()["detail"]


def test_all_model_work_runs_on_one_thread(open_client, make_loader):
    loader = make_loader()
    with open_client(loader) as client, ThreadPoolExecutor(8) as pool:
        bodies = [{"text": "x" * (1 + i)} for i in range(40)]
        answers = list(pool.map(lambda body: client.post("/v1/predict", json=body), bodies))
    best = [answer.json()["results"][0]["labels"][0]["score"] for answer in answers]
    assert best == [float(1 + i) for i in range(40)]
    assert loader.loaded[0].threads == {"warm-up", "compute_0"}


def test_probes_answer_while_the_model_is_busy(open_client, make_loader, fake_predictor):
    gate, busy = threading.Event(), threading.Event()

    class Slow(fake_predictor):
        def predict(self, texts, **options):
            if list(texts) == ["slow"]:
                busy.set()
                assert gate.wait(60)
            return super().predict(texts, **options)

    with open_client(make_loader(predictor_class=Slow)) as client, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.post, "/v1/predict", json={"text": "slow"})
        assert busy.wait(60)
        probes = [client.get(path).status_code for path in ("/livez", "/readyz", "/metrics")]
        gate.set()
        assert answer.result().status_code == 200
    assert probes == [200, 200, 200]


def test_candidates_are_a_schema_for_structured_output(client):
    body = {"text": "a text", "k": 3}
    answer = client.post("/v1/candidates", json=body).json()
    labels = answer["schema"]["properties"]["labels"]
    assert answer["strict"] and answer["name"] == "labels"
    assert labels["items"]["enum"] == ["L0", "L1", "L2"]
    assert "L2: Label 2" in labels["description"]
    validator = jsonschema.Draft202012Validator(answer["schema"])
    assert validator.is_valid({"labels": ["L1"]}) and not validator.is_valid({"labels": ["L7"]})
    none = client.post("/v1/candidates", json=body | {"include": []}).json()["schema"]
    assert jsonschema.Draft202012Validator(none).is_valid({"labels": []})
    several = client.post("/v1/candidates", json={"texts": ["a", "b"]})
    assert several.status_code == 422 and "expected 1" in several.json()["detail"]


def test_a_title_and_a_text_are_one_text_also_by_its_length(open_client):
    with open_client(max_text_characters=6) as client:
        for title, score in (("T", 6.0), ("", 4.0), (" ", 4.0), (None, 4.0)):
            answer = client.post("/v1/predict", json={"title": title, "text": "four"})
            assert answer.json()["results"][0]["labels"][0]["score"] == score
        answer = client.post("/v1/predict", json={"title": "TT", "text": "four"})
    assert "text 0 has 7 characters; expected at most 6" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"title": "T", "texts": ["four"]}, "Give 'title' with 'text' only"),
        ({"title": "T"}, "Give exactly one of 'text' and 'texts'"),
        ({"title": "T", "text": " "}, "empty or only white space"),
        ({"title": "a\0", "text": "four"}, "holds a NUL character"),
    ],
)
def test_titles_that_can_not_be_used_are_refused(client, body, said):
    answer = client.post("/v1/predict", json=body)
    assert answer.status_code == 422
    assert said in answer.text


LONG = "word " * 119 + "unknown"


def test_an_answer_tells_what_was_read_of_the_text_and_how_much_is_known(client):
    answer = client.post("/v1/predict", json={"texts": [LONG, "unknown", "two words"], "k": 1})
    counts = [
        [x[name] for name in ("num_tokens", "num_text_tokens", "known_tokens", "truncated")]
        for x in answer.json()["results"]
    ]
    assert counts == [[100, 120, 100, True], [1, 1, 0, False], [2, 2, 2, False]]


def test_every_version_is_listed_with_what_it_is(fresh_client, registry):
    first, second = fresh_client.get("/v1/models").json()["models"]
    assert (first["version"], first["loaded"], first["current"]) == (1, False, False)
    wanted = {
        "version": 2, "loaded": True, "default": True, "current": True, "label_count": 8,
        "published_at": registry.published_at(2), "digest": registry.open(2).manifest.digest,
        "scorers": ["retrieval", "sparse"], "default_scorer": "retrieval",
        "metrics": {"retrieval": {"p_at_1": 0.6}}, "state": "loaded", "traffic_share": 1.0,
    }  # fmt: skip
    assert second.items() >= wanted.items()


def test_a_version_that_cannot_be_read_says_why_and_hides_no_other(fresh_client, registry):
    manifest = registry.folder_of(1) / "manifest.json"
    manifest.write_bytes(b"\xff{}")
    first, second = fresh_client.get("/v1/models").json()["models"]
    assert "manifest.json can't be read" in first["problem"]
    assert first["digest"] is None
    assert second["problem"] is None


def test_what_searches_the_label_vectors_is_told(fresh_client):
    runtime = fresh_client.get("/v1/models").json()["runtime"]
    assert runtime["indexes"] == {"retrieval": {"index": "torch", "speedup": 1.5}}
