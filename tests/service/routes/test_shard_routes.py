"""What services tell whoever asks all shards of a model: which labels they have, and like which."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pytest

from longtail.models.explain.label_facts import NUM_NEAREST
from longtail.models.predict.predictor import Predictor

KNOWN, VECTORS, NEAREST = (
    f"/v1/shard/{name}" for name in ("known-labels", "label-vectors", "nearest-labels")
)
VECTOR = {"id": "L1", "columns": [0, 2], "values": [0.5, -2]}


@pytest.fixture
def sets(tmp_path):
    folder = tmp_path / "sets"
    folder.mkdir()
    (folder / "low.txt").write_text("L0\nL1\ngone\n")
    (folder / "lost.json").write_text('["gone"]')
    return folder


def test_labels_that_there_are_not_are_no_error(open_client, sets):
    with open_client(label_sets=sets) as client:
        body = {
            "include": ["L2", "X", "L2", "L0"], "exclude": ["Y"], "include_set": "low",
            "exclude_set": "lost",
        }  # fmt: skip
        answer = client.post(KNOWN, json=body).json()
        assert answer.pop("model")["version"] == 2
        low, lost = (sha256(ids).hexdigest() for ids in (b'["L0", "L1", "gone"]', b'["gone"]'))
        assert answer == {
            "include": ["L2", "L0"], "exclude": [],
            "include_set": {"label_count": 3, "digest": low, "known": 2},
            "exclude_set": {"label_count": 1, "digest": lost},
        }  # fmt: skip
        answer = client.post(KNOWN, json={"exclude": ["L7"], "version": "current"}).json()
        assert answer["exclude"] == ["L7"]
        assert answer["include_set"] is answer["exclude_set"] is None
        assert client.post(KNOWN, json={"include_set": "lost"}).json()["include_set"]["known"] == 0


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (KNOWN, {"include": ["L1"] * 4, "exclude": ["L1"] * 2}, 422, "name 6 labels; expected at"),
        (KNOWN, {"include_set": "none"}, 422, "label set 'none' is not stored"),
        (KNOWN, {"exclude_set": "none"}, 422, "label set 'none' is not stored"),
        (KNOWN, {"version": 7}, 404, "version 7"),
        (KNOWN, {"include": [1]}, 422, "string"),
        (VECTORS, {"ids": ["L1", "X"]}, 422, "no label with the id 'X'"),
        (VECTORS, {"ids": ["L1"] * 4}, 422, "4 labels are to be compared; expected at most 3"),
        (VECTORS, {"ids": []}, 422, "1 or more items"),
        (NEAREST, {"vectors": [VECTOR | {"columns": [2, 0]}]}, 422, "'columns' in rising order"),
        (NEAREST, {"vectors": [VECTOR | {"columns": [0]}]}, 422, "as many 'values' as 'columns'"),
        (NEAREST, {"vectors": [VECTOR | {"columns": [0, 3]}]}, 422, "got column 3, expected"),
        (NEAREST, {"vectors": [VECTOR | {"values": [1, 1e16]}]}, 422, "expected at most 1e+15"),
        (NEAREST, {"vectors": [VECTOR] * 4}, 422, "4 labels are to be compared"),
    ],
)
def test_what_can_not_be_told_is_refused(open_client, sets, path, body, status, words):
    with open_client(label_sets=sets, max_filter_labels=5, max_explained_labels=3) as client:
        answer = client.post(path, json=body)
    assert answer.status_code == status
    assert words in answer.text


def test_vectors_come_without_their_zeros_and_are_taken_so(client):
    answer = client.post(VECTORS, json={"ids": ["L3", "L0"]}).json()
    assert [each["id"] for each in answer["vectors"]] == ["L3", "L0"]
    assert answer["vectors"][0]["columns"] == [0, 2]
    assert np.float32(answer["vectors"][0]["values"]).tobytes() == np.float32([0.1, -2]).tobytes()
    answer = client.post(NEAREST, json={"vectors": answer["vectors"], "version": "current"}).json()
    assert (answer["model"]["version"], answer["most"]) == (2, 1)
    assert answer["nearest"] == [[{"id": "L1", "name": "Label 1", "similarity": 0.75}]] * 2


@pytest.mark.parametrize("has_encoder", [True, False])
def test_a_model_tells_of_vectors_what_it_tells_of_their_labels(
    trained, trained_sparse, open_client, has_encoder
):
    model = trained if has_encoder else trained_sparse
    predictor = Predictor.of_bundle(model.bundle, device="cpu")
    ids = [label.id for label in predictor.catalogue][:4]
    with open_client(lambda _: predictor) as client:
        vectors = client.post(VECTORS, json={"ids": ids}).json()["vectors"]
        found = client.post(NEAREST, json={"vectors": vectors}).json()
        strange = {"id": "of another shard", "columns": [], "values": []}
        (of_zeros,) = client.post(NEAREST, json={"vectors": [strange]}).json()["nearest"]
    assert found["most"] == NUM_NEAREST
    assert found["nearest"] == [
        [{"id": x.id, "name": x.name, "similarity": x.similarity} for x in near]
        for near in predictor.facts.nearest(range(4))
    ]
    assert len(of_zeros) == (NUM_NEAREST if has_encoder else 0)
