"""Labels of several schemes: each scheme's best in one request, by every door, and measured."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

import longtail
from longtail.models.errors import RequestError
from longtail.models.labels.filters import LabelFilter
from longtail.models.options import RankingOptions, asked_of
from longtail.models.predict.presentation import _joined
from longtail.models.results import Prediction, ScoredLabel
from longtail.service.app import create_app
from longtail.service.settings import Settings
from longtail.training.data.dataset import open_dataset
from longtail.training.evaluation.by_frequency import ALL_LABELS

SCHEMES = ("topic", "genre")
TEXTS = ["imports of olive oil and fish", "customs duties on steel", "nothing known here"]
ASKED = {"topic": {"k": 3}, "genre": {"k": 2, "threshold": 0.1}}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tiny_corpus):
    """Every third label is a genre, every fifth a topic too, and every seventh of no scheme."""
    folder = tmp_path_factory.mktemp("schemes") / "data"
    shutil.copytree(tiny_corpus, folder)
    lines = (folder / "labels.jsonl").read_text("utf-8").splitlines()
    with (folder / "labels.jsonl").open("w", encoding="utf-8") as file:
        for number, line in enumerate(lines):
            schemes = [SCHEMES[number % 3 == 0], *(["topic"] if number % 15 == 0 else [])]
            own = {"scheme": schemes} if number % 7 else {}
            file.write(json.dumps(json.loads(line) | own) + "\n")
    return folder


@pytest.fixture(scope="module")
def schemed(tmp_path_factory, train_in, tiny_config, corpus):
    return train_in(tmp_path_factory.mktemp("schemed"), tiny_config, corpus)


@pytest.fixture(scope="module")
def model(schemed):
    return longtail.load(schemed.registry.folder)


def best_of_scheme(model, text, scorer, scheme, k, threshold=None):
    """Return the ids of the best labels of a scheme, by sorting the scores of all labels."""
    every = np.arange(len(model.labels))[None]
    options = RankingOptions(scorer=scorer)
    (scores,) = model.predictor.score(model.predictor.read([text]), every, options)
    whole = model.predict(text, k=len(model.labels), scorer=scorer).labels
    probabilities = {label.index: label.probability for label in whole}
    rows = [
        row
        for row in np.lexsort((every[0], -scores)).tolist()
        if scheme in model.labels[row].scheme and scores[row] > -np.inf
    ][:k]
    least = 0 if threshold is None else threshold
    return [model.labels[x].id for x in rows if (probabilities[x] or 0) >= least]


def test_each_scheme_has_its_best_labels_by_every_scorer(model):
    assert set(model.labels.rows_of_schemes) == set(SCHEMES)
    num_cut = 0
    for scorer in model.scorers:
        asked = ASKED
        if model.predict(TEXTS[0], scorer=scorer).labels[0].probability is None:
            asked = {"topic": {"k": 3}, "genre": {"k": 2}}
        answers = model.predict(TEXTS, scorer=scorer, schemes=asked)
        for text, found in zip(TEXTS, answers, strict=True):
            for scheme, own in asked.items():
                ids = [label.id for label in found.labels if label.scheme == scheme]
                assert ids == best_of_scheme(model, text, scorer, scheme, **own), (scorer, text)
                num_cut += len(ids) < own["k"]
            order = [(-label.score, label.index) for label in found.labels]
            assert order == sorted(order)
    assert num_cut  # the threshold of one scheme leaves labels out, and none of the other's


def test_what_a_scheme_leaves_out_is_that_of_the_query(model):
    found = model.predict(TEXTS[0], k=4, schemes={"topic": {}, "genre": {"k": 1}})
    assert [sum(x.scheme == name for x in found.labels) for name in SCHEMES] == [4, 1]
    excluded = found.labels[0].id
    wanted = LabelFilter(exclude=(excluded,))
    again = model.predict(TEXTS[0], k=4, schemes={"topic": {}}, label_filter=wanted)
    assert excluded not in {label.id for label in again.labels} and len(again.labels) == 4
    with pytest.raises(RequestError, match=r"no label of 'gnre'; expected some of 'genre', 'top"):
        model.predict(TEXTS[0], schemes={"gnre": {}})
    with pytest.raises(RequestError, match=r"schemes\.topic\.aim: unknown"):
        model.predict(TEXTS[0], schemes={"topic": {"aim": "propensity"}})


def test_a_text_abstains_where_no_scheme_with_a_promise_accepts_a_label():
    def found(scheme, accepted, reason):
        label = ScoredLabel("a", "a", 0.5, 0.5, accepted, index=1)
        return Prediction(
            (label,), num_tokens=3, num_text_tokens=3, known_tokens=2, truncated=False, exact=True,
            abstained=None if accepted is None else reason is not None, abstained_because=reason,
        )  # fmt: skip

    asked = asked_of({"schemes": {"topic": {"accept": 0.9}, "genre": {"accept": 0.8}}}, 5)
    low = found("topic", False, "below-threshold")
    assert _joined(asked.schemes, [low, found("genre", True, None)]).abstained_because is None
    assert _joined(asked.schemes, [low, low]).abstained_because == "below-threshold"
    plain = (asked.schemes[0], replace(asked.schemes[1], of_parts=()))
    joined = _joined(plain, [low, found("genre", None, None)])
    assert (joined.abstained, joined.abstained_because) == (True, "below-threshold")
    assert [(x.scheme, x.accepted) for x in joined.labels] == [("topic", False), ("genre", None)]


def test_the_service_and_a_file_say_the_same(schemed, model, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = [
        [(label.id, label.scheme) for label in each.labels]
        for each in model.predict(TEXTS, schemes=ASKED)
    ]
    with TestClient(create_app(Settings(registry=schemed.registry.folder))) as client:
        while client.get("/readyz").status_code != 200:
            pass
        answer = client.post("/v1/predict", json={"texts": TEXTS, "schemes": ASKED}).json()
        plain = client.post("/v1/predict", json={"texts": TEXTS}).json()
        wrong = [
            client.post("/v1/predict", json={"text": "a", "schemes": each})
            for each in ({}, {"topic": {"k": 0}}, {"gnre": {}}, {"topic": {"k": 99999}}, "topic")
        ]
    served = [[(x["id"], x["scheme"]) for x in each["labels"]] for each in answer["results"]]
    assert served == expected
    assert not any("scheme" in label for each in plain["results"] for label in each["labels"])
    assert [each.status_code for each in wrong] == [422] * 5
    Path("in.txt").write_text("\n".join(TEXTS) + "\n", "utf-8")
    registry = ("--registry", schemed.registry.folder)
    done = run(
        "predict", "--input", "in.txt", "--output", "out.jsonl", "--schemes", json.dumps(ASKED),
        *registry,
    )  # fmt: skip
    assert done.status == 0, done.err
    lines = [json.loads(line) for line in Path("out.jsonl").read_text("utf-8").splitlines()]
    assert [[(x["id"], x["scheme"]) for x in line["labels"]] for line in lines] == expected
    refused = run(
        "predict", "--input", "in.txt", "--output", "b.jsonl", "--schemes", "topic", *registry
    )
    assert refused.status == 1 and "--schemes" in refused.last_line


def test_evaluate_has_a_table_of_each_scheme(schemed, corpus, model):
    found = longtail.evaluate(corpus, registry=schemed.registry.folder)
    dataset = open_dataset(corpus)
    scorer = model.default_scorer
    for scheme in SCHEMES:
        hits, num_documents = 0, 0
        for document in dataset.split("test"):
            ids = {dataset.catalogue[x].id for x in document.labels}
            own = {x for x in ids if scheme in (known(model, x) or ())}
            if own:
                num_documents += 1
                best = best_of_scheme(model, document.text, scorer, scheme, 5)
                hits += len(own & set(best))
        measured = found.schemes[scheme]
        assert measured.num_documents == num_documents > 5
        values = measured.scorers[scorer][ALL_LABELS].values
        assert values["P@5"] == pytest.approx(hits / (5 * num_documents))
    (table,) = found.group_tables
    assert table.heading == "By scheme" and set(found.to_json()["schemes"]) == set(SCHEMES)


def known(model, label_id):
    """Return the schemes of a label that the model has."""
    row = model.labels.row_of_id(label_id)
    return None if row is None else model.labels[row].scheme
