"""Hidden labels: which they are, and that no scorer has learned anything of them."""

from __future__ import annotations

import hidden_labels as bench
import numpy as np
import pytest

from longtail.models.options import RankingOptions
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.predictor import Predictor
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset

SCORERS = ("sparse", "names", "neighbours", "word_vectors", "word_neighbours")


@pytest.fixture(scope="module")
def trained(tiny_corpus, tmp_path_factory):
    config = TrainingConfig(scorers=SCORERS)
    return bench.trained(open_dataset(tiny_corpus), config, tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def is_hidden(trained):
    found, _ = trained
    return next(bench.hidden_folds(found.catalogue.training_counts, 0))


def test_folds_hide_each_label_once_and_only_labels_with_documents():
    counts = np.arange(200) % 4
    folds = np.array(list(bench.hidden_folds(counts, 0)))
    assert folds.sum(axis=1).tolist() == [round(0.05 * np.count_nonzero(counts))] * 5
    assert folds.sum(axis=0).max() == 1
    assert not folds[:, counts == 0].any()


def test_only_names_score_hidden_labels(trained, is_hidden):
    found, dev = trained
    parts = bench.without_hidden(found, is_hidden)
    predictor = Predictor(parts, device="cpu")
    batch = predictor.read(dev.texts)
    every = np.tile(np.arange(len(is_hidden)), (len(dev.texts), 1))
    whole = Predictor(ModelParts(found.catalogue, found.sparse, None, found.models), device="cpu")
    for name in SCORERS:
        options = RankingOptions(scorer=name)
        if name == "word_vectors":  # by their names
            vectors = parts.models[name]
            np.testing.assert_array_equal(
                vectors.labels.bytes[is_hidden], vectors.names.bytes[is_hidden]
            )
            continue
        scores = predictor.score(batch, every, options)
        before = whole.score(whole.read(dev.texts), every, options)
        if name == "names":
            assert (np.isneginf(scores) == np.isneginf(before)).all()
            continue
        assert np.isneginf(scores[:, is_hidden]).all()
        assert np.isfinite(before[:, is_hidden]).any()
        if name == "sparse":
            np.testing.assert_array_equal(scores[:, ~is_hidden], before[:, ~is_hidden])
    history = parts.models["names"].history
    assert not history.right[is_hidden].any()
    assert (parts.catalogue.training_counts[is_hidden] == 0).all()


def test_recall_is_that_of_a_count_over_the_ranking(trained, is_hidden):
    found, dev = trained
    parts = bench.without_hidden(found, is_hidden)
    values = bench.measured(parts, dev, is_hidden, found.truth.shape[0])
    predictor = Predictor(parts, device="cpu")
    ranking = predictor.rank(predictor.read(dev.texts), RankingOptions(k=bench.K, scorer="names"))
    expected = []
    for row, labels in enumerate(ranking.labels.tolist()):
        true = set(dev.truth[[row]].indices.tolist()) & set(np.flatnonzero(is_hidden).tolist())
        if true:
            expected.append(100 * len(true & set(labels)) / len(true))
    assert expected
    np.testing.assert_allclose(
        values["names"][f"R@{bench.K} (hidden)"], expected, rtol=0, atol=1e-9
    )
    assert {bench.BLEND, *SCORERS, bench.WITHOUT + "neighbours"} <= set(values)


def test_blends_without_a_scorer_are_differences_from_the_blend():
    def fold(value):
        return {name: np.array([value, value + 2.0]) for name in bench.MEASURES}

    found = bench.differences(
        {
            bench.BLEND: [fold(1.0), fold(5.0)],
            f"{bench.WITHOUT}names": [fold(0.0), fold(4.0)],
        }
    )
    for measure in bench.MEASURES:
        blend = found[bench.BLEND][measure]
        assert blend["mean"] == 4.0
        assert blend["standard_error"] == pytest.approx(np.std([1, 3, 5, 7], ddof=1) / 2)
        without = found[f"{bench.WITHOUT}names"][measure]
        assert without == {"mean": -1.0, "standard_error": 0.0}
