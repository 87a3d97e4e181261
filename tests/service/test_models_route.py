"""What `GET /v1/models` answers."""

from __future__ import annotations

from models.registry import Registry


def test_every_version_is_listed_with_what_it_is(client, registry):
    first, second = client.get("/v1/models").json()["models"]
    assert (first["version"], first["loaded"], first["current"]) == (1, False, False)
    assert second == {
        "version": 2,
        "loaded": True,
        "default": True,
        "current": True,
        "published_at": registry.published_at(2),
        "digest": registry.open(2).manifest.digest,
        "label_count": 8,
        "scorers": ["retrieval", "sparse"],
        "default_scorer": "retrieval",
        "metrics": {"retrieval": {"p_at_1": 0.6}},
        "problem": None,
        "state": "loaded",
        "traffic_share": 1.0,
        "load_problem": None,
    }


def test_versions_published_later_appear_at_once(client, publish):
    publish()
    models = client.get("/v1/models").json()["models"]
    assert [model["loaded"] for model in models] == [False, True, False]
    assert [model["current"] for model in models] == [False, False, True]


def test_a_version_that_cannot_be_read_says_why_and_hides_no_other(client, registry: Registry):
    manifest = registry.folder_of(1) / "manifest.json"
    manifest.write_bytes(b"\xff{}")
    first, second = client.get("/v1/models").json()["models"]
    assert "manifest.json can't be read" in first["problem"]
    assert first["digest"] is None
    assert second["problem"] is None


def test_a_version_without_a_manifest_says_so(client, registry: Registry):
    (registry.folder_of(1) / "manifest.json").unlink()
    first, _ = client.get("/v1/models").json()["models"]
    assert "no manifest.json" in first["problem"]


def test_metrics_that_are_no_numbers_become_null(client, publish):
    publish(p_at_1=float("nan"))
    answer = client.get("/v1/models")
    assert "NaN" not in answer.text
    assert answer.json()["models"][2]["metrics"] == {"retrieval": {"p_at_1": None}}
