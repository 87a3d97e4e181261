"""A scorer of another package, in two files: trained, published, served, explained and learned."""

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from longtail.ext.learn.learn import LearningRun, learn
from longtail.models.bundle.registry import Registry
from longtail.models.edit.add_labels import add_labels
from longtail.models.errors import BundleError, ConfigError
from longtail.models.kinds import registry as kinds
from longtail.models.kinds.storage import read_parts
from longtail.models.labels.catalogue import Label
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.service.app import create_app
from longtail.service.settings import Settings
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.data.feedback import read_feedback
from longtail.training.pipeline import fittings

CENTROIDS = "centroids"
SCORERS = ["sparse", "names", CENTROIDS, "ensemble"]
MODULES = ("centroids", "centroid_fitting")


@pytest.fixture(scope="module", autouse=True)
def package():
    """The two files of the package, imported as its users import them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent / "outside_scorer")
        yield [importlib.import_module(name) for name in MODULES]
        for name in MODULES:
            del sys.modules[name]
        del kinds.KINDS[CENTROIDS], fittings.FITTINGS[CENTROIDS]


def config_of(sparse_config, **changed) -> TrainingConfig:
    given = sparse_config.model_dump(exclude_unset=True)
    return TrainingConfig.model_validate(given | {"scorers": SCORERS} | changed)


@pytest.fixture(scope="module")
def texts(tiny_corpus):
    return list(open_dataset(tiny_corpus).split("dev").texts())


@pytest.fixture(scope="module")
def own(tmp_path_factory, train_in, sparse_config, tiny_corpus):
    config = config_of(sparse_config, scorer_settings={CENTROIDS: {"least": 0.01}})
    return train_in(tmp_path_factory.mktemp("own"), config, tiny_corpus)


def test_it_is_stored_read_and_ranks_alone_and_in_a_blend(own, texts):
    manifest, parts = own.bundle.manifest, read_parts(own.bundle)
    assert list(manifest.scorers) == SCORERS
    assert manifest.training["scorer_settings"] == {CENTROIDS: {"least": 0.01}}
    assert set(manifest.metrics["dev"]) == set(manifest.calibrations) == set(SCORERS)
    model = parts.models[CENTROIDS]
    assert model.means.data.min() > 0.01 and model.means.shape[0] == len(own.bundle.catalogue)
    predictor = Predictor(parts)
    batch = predictor.read(texts)
    cosines = (batch.features @ model.means.T).toarray()
    ranked = predictor.rank(batch, RankingOptions(k=3, scorer=CENTROIDS))
    np.testing.assert_array_equal(ranked.labels[:, 0], cosines.argmax(axis=1))
    dev = manifest.blends["ensemble"]
    members = ("sparse", CENTROIDS)  # whichever of them dev preferred
    weights = dict.fromkeys(members, tuple(0.5 for _ in dev.counts))
    blend = replace(dev, weights=weights, floors=dict.fromkeys(members, -9.0))
    blended = predictor.with_blending(parts.calibrations, {"ensemble": blend})
    best = blended.rank(batch, RankingOptions(k=5, scorer="ensemble"))
    every = np.tile(np.arange(len(own.bundle.catalogue)), (len(texts), 1))
    scores = blended.score(batch, every, RankingOptions(scorer="ensemble"))
    order = np.lexsort((every, -scores), axis=1)[:, :5]
    np.testing.assert_array_equal(best.labels, order)


def test_it_is_served_and_explained(own, texts):
    settings = Settings(registry=own.registry.folder, watch_interval_s=0)
    with TestClient(create_app(settings)) as client:
        while "still loading" in client.get("/readyz").text:
            pass
        asked = {"text": texts[0], "k": 3, "scorer": CENTROIDS, "explain": True}
        answer = client.post("/v1/predict", json=asked)
        assert answer.status_code == 200, answer.text
        labels = answer.json()["results"][0]["labels"]
        assert len(labels) == 3
        for label in labels:
            documents = label["explanation"]["documents"]
            assert documents[0]["similarity"] == pytest.approx(label["score"], rel=1e-5)
        blended = client.post("/v1/predict", json=asked | {"scorer": "ensemble"}).json()
        assert len(blended["results"][0]["labels"]) == 3


def test_labels_are_added_beside_it(own, texts, tmp_path):
    registry = Registry(tmp_path / "registry")
    registry.publish(add_labels(own.bundle, [Label("new", "olive oil")]))
    before, after = (
        Predictor.of_bundle(each).predict(texts[:1], scorer=CENTROIDS)
        for each in (own.bundle, registry.open())
    )
    assert before[0].labels and before[0].labels == after[0].labels


def test_it_learns_from_feedback(own, texts, tiny_corpus, tmp_path):
    label = own.bundle.catalogue[0].id
    lines = tmp_path / "feedback.jsonl"
    lines.write_text(json.dumps({"text": "Rules for zebra hides. " + texts[0], "added": [label]}))
    run = LearningRun(
        read_feedback(lines), open_dataset(tiny_corpus), own.registry, 1,
        tmp_path / "work", is_activated=False,
    )  # fmt: skip
    before, after = (read_parts(own.registry.open(x)) for x in (1, learn(run).version))
    means = [each.models[CENTROIDS].means.toarray() for each in (before, after)]
    assert not np.array_equal(means[0][0], means[1][0])
    assert after.models[CENTROIDS].means.data.min() > 0.01  # settings are those of the training


def test_settings_of_no_such_scorer_or_field_are_refused(own, train_in, sparse_config, tiny_corpus):
    for given, word in (({"names": {"a": 1}}, "none"), ({CENTROIDS: {"least": -1}}, "least")):
        config = config_of(sparse_config, scorer_settings=given)
        with pytest.raises(ConfigError, match=word):
            train_in(own.work, config, tiny_corpus)


def test_a_bundle_whose_scorer_nobody_registered_is_refused(own, monkeypatch):
    monkeypatch.delitem(kinds.KINDS, CENTROIDS)
    with pytest.raises(BundleError, match="centroids; import the package"):
        read_parts(own.bundle)


def test_a_name_that_is_taken_is_refused(package):
    with pytest.raises(ConfigError, match="another name"):
        kinds.register(package[0].CentroidKind())
