"""The vocabulary over HTTP: labels below others as a filter and as a tree, names by language."""

import json
from typing import Any

import pytest

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.search import LabelSearch
from longtail.models.labels.selection import LabelSelector

BROADER = {"L1": ("L0",), "L2": ("L0",), "L3": ("L1", "L2")}
FINNISH = {"L0": "Eläin", "L3": "Kissa"}


@pytest.fixture
def client(open_client, make_loader, fake_predictor):
    class Arranged(fake_predictor):  # type: ignore[misc,valid-type]
        def __init__(self, bundle: Any) -> None:
            super().__init__(bundle)
            self.catalogue = LabelCatalogue(
                Label(
                    label.id,
                    label.name,
                    broader=BROADER.get(label.id, ()),
                    names={"en": label.name}
                    | ({"fi": FINNISH[label.id]} if label.id in FINNISH else {}),
                    notation="N1" if label.id == "L3" else "",
                )
                for label in self.catalogue
            )
            self.label_search = LabelSearch(self.catalogue)
            self.scorers.selector = LabelSelector(self.catalogue)

    with open_client(make_loader(predictor_class=Arranged)) as client:
        yield client


def labels_of(client, **body):
    answer = client.post("/v1/predict", json={"text": "some words", "k": 4} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()["results"][0]["labels"]


def ids(labels):
    return [label["id"] for label in labels]


def test_only_labels_below_one_are_answered(client):
    assert ids(labels_of(client, under=["L1"])) == ["L1", "L3"]
    assert ids(labels_of(client, under=["L0"], exclude=["L2"])) == ["L0", "L1", "L3"]
    line = json.dumps({"text": "some words", "under": ["L1"]})
    answer = client.post(
        "/v1/batch", content=line, headers={"content-type": "application/x-ndjson"}
    )
    assert ids(json.loads(answer.text.splitlines()[0])["labels"]) == ["L1", "L3"]


def test_names_come_in_a_language_where_there_are_any(client):
    names = [label["name"] for label in labels_of(client, language="fi")]
    assert names == ["Eläin", "Label 1", "Label 2", "Kissa"]
    answer = client.post("/v1/predict", json={"text": "x", "language": "sv"})
    assert answer.status_code == 422
    assert "no names in 'sv'; it has them in en, fi" in answer.json()["detail"]


def test_the_tree_is_walked_from_the_top(client):
    top = client.get("/v1/labels", params={"narrower_of": ""}).json()
    assert [(x["id"], x["narrower_count"]) for x in top["labels"]] == [("L0", 2)]
    below = client.get("/v1/labels", params={"narrower_of": "L0", "limit": 1, "offset": 1}).json()
    assert (below["total"], ids(below["labels"])) == (2, ["L2"])
    finnish = client.get("/v1/labels", params={"narrower_of": "", "language": "fi"}).json()
    assert finnish["labels"][0]["name"] == "Eläin"
    assert client.get("/v1/labels", params={"narrower_of": "gone"}).status_code == 404
    found = client.get("/v1/labels", params={"query": "Label 0"}).json()["labels"][0]
    assert found["narrower_count"] == 2
