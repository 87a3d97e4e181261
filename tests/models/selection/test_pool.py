"""What a model knows of documents: its probabilities, and what is near to them in training."""

from __future__ import annotations

import pytest

from longtail.models.errors import ConfigError
from longtail.models.predict.predictor import Predictor
from longtail.models.selection.pool import RARE_BELOW, read_pool, scorer_with_probabilities

TEXTS = ["imports of olive oil", "fishing quotas", "zzzz"] * 200


@pytest.fixture(scope="module")
def predictor(trained_sparse) -> Predictor:
    return Predictor.of_bundle(trained_sparse.bundle)


def test_doubt_and_rare_labels_are_sums_over_the_predicted_probabilities(predictor):
    scorer = scorer_with_probabilities(predictor)
    seen: list[int] = []
    pool = read_pool(predictor, TEXTS, scorer, seen.append)
    assert len(pool) == sum(seen) == len(TEXTS) and len(seen) == 2
    for row in (0, 1, len(TEXTS) - 1):
        (prediction,) = predictor.predict([TEXTS[row]], k=100, scorer=scorer)
        p = [label.probability for label in prediction.labels]
        rare = [
            label.probability
            for label in prediction.labels
            if predictor.catalogue[label.index].training_count < RARE_BELOW
        ]
        assert pool.uncertainties[row] == pytest.approx(sum(x * (1 - x) for x in p))
        assert pool.rare_labels[row] == pytest.approx(sum(rare))
        assert pool.labels[row].tolist() == [label.index for label in prediction.labels]
        assert pool.probabilities[row].tolist() == pytest.approx(p)
    assert pool.features[[2]].nnz == 0
    assert not pool.covered.any()  # this model remembers no documents


def test_covered_is_the_cosine_to_the_nearest_document_that_the_model_remembers(
    tmp_path, train_in, sparse_config, tiny_corpus
):
    config = sparse_config.model_copy(update={"scorers": ("sparse", "neighbours")})
    predictor = Predictor.of_bundle(train_in(tmp_path, config, tiny_corpus).bundle)
    memory = predictor.read(TEXTS[:2])._parts.neighbours
    assert memory is not None
    pool = read_pool(predictor, TEXTS[:2], "sparse")
    cosines = pool.features @ memory.documents.T
    assert pool.covered == pytest.approx(cosines.toarray().max(axis=1), abs=1e-5)


def test_a_scorer_without_probabilities_is_refused(predictor):
    uncalibrated = predictor.with_blending({}, {})
    with pytest.raises(ConfigError, match="scorer 'sparse' gives no probabilities"):
        scorer_with_probabilities(uncalibrated)
    with pytest.raises(ConfigError, match="got 'nope', expected one of the model's: sparse"):
        scorer_with_probabilities(predictor, "nope")
