"""What `GET /v1/models` answers."""

import pytest


@pytest.fixture
def client(fresh_client):
    return fresh_client


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
        "retired_label_count": 0,
        "scorers": ["retrieval", "sparse"],
        "default_scorer": "retrieval",
        "corrections": {"retrieval": ["none"], "sparse": ["none"]},
        "aims": {"retrieval": ["precision"], "sparse": ["precision"]},
        "thresholds": {},
        "promises": {},
        "example": None,
        "metrics": {"retrieval": {"p_at_1": 0.6}},
        "problem": None,
        "state": "loaded",
        "traffic_share": 1.0,
        "load_problem": None,
        "held_out_documents": None,
        "languages": [],
        "has_hierarchy": False,
        "has_label_quality": False,
    }


def test_a_version_that_cannot_be_read_says_why_and_hides_no_other(client, registry):
    manifest = registry.folder_of(1) / "manifest.json"
    manifest.write_bytes(b"\xff{}")
    first, second = client.get("/v1/models").json()["models"]
    assert "manifest.json can't be read" in first["problem"]
    assert first["digest"] is None
    assert second["problem"] is None


def test_what_searches_the_label_vectors_is_told(client):
    runtime = client.get("/v1/models").json()["runtime"]
    assert runtime["indexes"] == {"retrieval": {"index": "torch", "speedup": 1.5}}
