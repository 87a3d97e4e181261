"""The search for weights, its objective, and dev splits that teach little."""

from __future__ import annotations

import itertools
import json
import logging

import numpy as np
import pytest
from scipy.sparse import csr_array

from models.labels.catalogue import Label, LabelCatalogue
from models.ranking.top_k import top_of_scores
from training.calibration.ensemble import (
    Blending,
    BlendObjective,
    find_weights,
    fit_blending,
    kept_blending,
)
from training.calibration.scored_pairs import ScoredPairs
from training.configuration.sections import EnsembleConfig
from training.evaluation.by_frequency import evaluate

NUM_LABELS = 30


@pytest.fixture
def catalogue() -> LabelCatalogue:
    counts = [0, *range(1, 12), *range(20, 38)]
    return LabelCatalogue(Label(f"L{i}", f"l{i}", training_count=n) for i, n in enumerate(counts))


@pytest.fixture
def truth() -> csr_array:
    rng = np.random.default_rng(0)
    dense = (rng.random((40, NUM_LABELS)) < 0.15).astype(np.float32)
    return csr_array(dense)


def pairs_of(truth: csr_array, scores: dict[str, np.ndarray]) -> ScoredPairs:
    shape = truth.shape
    return ScoredPairs(
        labels=np.tile(np.arange(shape[1]), (shape[0], 1)),
        is_true=truth.toarray() > 0,
        is_best=np.ones(shape, dtype=bool),
        weights=np.ones(shape, dtype=np.float32),
        scores=scores,
    )


@pytest.fixture
def pairs(truth) -> ScoredPairs:
    """One scorer that is right, one that is half right and one that knows nothing."""
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(3, *truth.shape)).astype(np.float32)
    right = truth.toarray()
    scores = {"retrieval": 2 * right + noise[0], "sparse": right + noise[1], "linear": noise[2]}
    scores["sparse"][:, 0] = -np.inf
    return pairs_of(truth, scores)


# ---- weights ----


def test_the_best_weights_of_a_smooth_value_are_found():
    wanted = np.array([0.475, 0.15, 0.375])
    found = find_weights(3, lambda weights: -float(((weights - wanted) ** 2).sum()))
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_no_grid_point_is_better_than_what_is_found():
    def value(weights: np.ndarray) -> float:
        return float(np.sin(20 * weights[0]) + np.cos(13 * weights[1]) * weights[2])

    tenths = [np.array([a, b, 10 - a - b]) / 10
              for a, b in itertools.product(range(11), repeat=2) if a + b <= 10]  # fmt: skip
    found = find_weights(3, value)
    assert value(found) >= max(map(value, tenths))
    assert found.sum() == pytest.approx(1) and found.min() >= 0


def test_of_equal_values_the_first_tried_stays():
    assert find_weights(2, lambda weights: 0.0).tolist() == [0.0, 1.0]


def test_one_scorer_gets_all_the_weight():
    assert find_weights(1, lambda weights: float(weights[0])).tolist() == [1.0]


# ---- what they are to be good at ----


@pytest.mark.parametrize(
    "config",
    [
        EnsembleConfig(),
        EnsembleConfig(cut_off=3, precision=0, tail_f1=2),
        EnsembleConfig(propensity_scored_precision=0.5, tail_f1=0),
    ],
)
def test_the_objective_is_the_weighted_sum_of_the_metrics(pairs, truth, catalogue, config):
    rng = np.random.default_rng(2)
    scores = rng.random(truth.shape).astype(np.float32)
    k = config.cut_off
    ranking = top_of_scores(scores, k)
    found = evaluate({"x": ranking}, truth, catalogue.training_counts, 100, ks=[k]).scorers["x"]
    wanted = config.precision * found["all"].values[f"P@{k}"]
    wanted += config.propensity_scored_precision * found["all"].values[f"PSP@{k}"]
    wanted += config.tail_f1 * found["1-9"].values[f"macro-F1@{k}"]
    value = BlendObjective(pairs, truth, catalogue, 100, config).value(scores)
    assert value == pytest.approx(wanted)


def test_labels_of_score_0_are_not_ranked(pairs, truth, catalogue):
    objective = BlendObjective(pairs, truth, catalogue, 100, EnsembleConfig())
    assert objective.value(np.zeros(truth.shape, dtype=np.float32)) == 0


# ---- all of it ----


def test_the_scorer_that_is_right_gets_the_most_weight(pairs, truth, catalogue):
    found = fit_blending(pairs, truth, catalogue, 100, EnsembleConfig())
    weights = found.ensemble.weights
    assert list(weights) == ["retrieval", "linear", "sparse"]
    assert max(weights, key=weights.get) == "retrieval"
    assert set(found.calibrations) == {"retrieval", "linear", "sparse", "ensemble"}


def test_without_an_ensemble_every_scorer_is_calibrated(pairs, truth, catalogue):
    found = fit_blending(pairs, truth, catalogue, 100, None)
    assert (set(found.calibrations), found.ensemble) == ({"retrieval", "linear", "sparse"}, None)


def test_one_document_is_enough(pairs, truth, catalogue):
    row = int(np.flatnonzero(truth.sum(axis=1))[0])
    scores = {name: some[row : row + 1] for name, some in pairs.scores.items()}
    one = truth[[row]]
    found = fit_blending(pairs_of(one, scores), one, catalogue, 100, EnsembleConfig())
    assert sum(found.ensemble.weights.values()) == pytest.approx(1)


def test_true_labels_that_nobody_finds_leave_the_first_weights_tried(truth, catalogue):
    scores = {name: -5 * truth.toarray() for name in ("retrieval", "sparse")}
    pairs = pairs_of(truth, scores)
    found = fit_blending(pairs, truth, catalogue, 100, EnsembleConfig())
    assert sum(found.ensemble.weights.values()) == 1
    assert all(min(line.slopes) > 0 for line in found.calibrations.values())


def test_documents_without_labels_leave_everything_uncalibrated(pairs, truth, catalogue, caplog):
    nothing = csr_array(truth.shape, dtype=np.float32)
    with caplog.at_level(logging.WARNING, "training.calibration.ensemble"):
        found = fit_blending(
            pairs_of(nothing, pairs.scores), nothing, catalogue, 100, EnsembleConfig()
        )
    assert found == Blending({}, None)
    assert "sparse can't be calibrated: no true label to learn from" in caplog.text
    assert "so there is no ensemble" in caplog.text


def test_what_was_fitted_is_kept_and_not_fitted_again(pairs, truth, catalogue, tmp_path):
    fitted = fit_blending(pairs, truth, catalogue, 100, EnsembleConfig())
    assert kept_blending(tmp_path / "blending", lambda: fitted) == fitted
    again = kept_blending(tmp_path / "blending", lambda: pytest.fail("fitted again"))
    assert again == fitted
    plain = Blending(fitted.calibrations, None)
    assert Blending.from_json(json.loads(json.dumps(plain.to_json()))) == plain
