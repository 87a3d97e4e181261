"""Aims found on a split: what they are worth against every set of labels, and what they cost."""

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import logit

from longtail.models.fitted.aims import Aim
from longtail.models.options import COVERAGE, PROPENSITY, RARE_LABELS
from longtail.models.ranking.top_k import Ranking
from longtail.models.scorers.calibration import IDENTITY
from longtail.training.calibration.scored_pairs import ScoredPairs
from longtail.training.evaluation.metrics import (
    coverage_at,
    inverse_propensities,
    join_truth,
    label_f1_at,
    precision_at,
)
from longtail.training.fitted import aims as module
from longtail.training.fitted.aims import AimSearch, fit_aims, grid, propensity_aim
from tests.closeness import assert_all_close

NUM_LABELS = 60
COUNTS = np.where(np.arange(NUM_LABELS) < 10, 2000, 1 + np.arange(NUM_LABELS) % 9).astype(np.int64)


def long_tail(num_documents: int, seed: int) -> tuple[Ranking, csr_array]:
    """Documents with ten frequent labels of probability 0.5 and one rare label of up to 0.4."""
    rng = np.random.default_rng(seed)
    p = np.full((num_documents, NUM_LABELS), 1e-3)
    p[:, :10] = rng.uniform(0.3, 0.7, (num_documents, 10))
    rare = rng.integers(10, NUM_LABELS, num_documents)
    p[np.arange(num_documents), rare] = rng.uniform(0.1, 0.4, num_documents)
    truth = csr_array((rng.random(p.shape) < p).astype(np.float32))
    labels = np.tile(np.arange(NUM_LABELS), (num_documents, 1))
    order = np.argsort(-p, axis=1, kind="stable")
    ranking = Ranking(
        np.take_along_axis(labels, order, axis=1),
        logit(np.take_along_axis(p, order, axis=1)).astype(np.float32),
    )
    return ranking, truth


def search_on(num_documents: int, seed: int) -> AimSearch:
    ranking, truth = long_tail(num_documents, seed)
    return AimSearch(ranking, truth, IDENTITY, COUNTS)


def measured(search: AimSearch, aim: Aim) -> tuple[float, float, float]:
    """P@5, macro-F1@5 of rare labels and coverage@5."""
    judged = join_truth(search._ranked(aim), search._truth)
    f1 = label_f1_at(judged, 5)[COUNTS < 10].mean()
    return precision_at(judged, 5), float(f1), coverage_at(judged, 5)


def test_aims_improve_their_measures_on_other_documents():
    aims = search_on(400, 0).preferred()
    other, by_probability = search_on(400, 1), next(iter(grid()))
    before = measured(other, by_probability)
    assert measured(other, aims[RARE_LABELS])[1] > 2 * before[1]
    assert measured(other, aims[COVERAGE])[2] > before[2] + 0.1
    assert measured(other, aims[RARE_LABELS])[0] < before[0]  # what it costs


def test_of_aims_as_good_as_the_best_the_most_precise_is_preferred():
    search = search_on(200, 2)
    preferred = measured(search, search.preferred()[RARE_LABELS])
    everything = [measured(search, aim) for aim in grid()]
    best = max(everything, key=lambda values: values[1])
    assert preferred[0] >= best[0]
    assert preferred[1] > 0.9 * best[1]


def test_where_nothing_helps_the_ranking_by_probability_stays():
    ranking, _ = long_tail(50, 3)
    truth = csr_array((50, NUM_LABELS), dtype=np.float32)
    truth = csr_array((np.ones(50, np.float32), (np.arange(50), ranking.labels[:, 0])), truth.shape)
    aims = AimSearch(ranking, truth, IDENTITY, np.full(NUM_LABELS, 50)).preferred()
    assert aims == dict.fromkeys((RARE_LABELS, COVERAGE), next(iter(grid())))


def test_on_a_tiny_problem_the_aim_is_as_good_as_any_choice_of_labels():
    """Two labels and four documents at k = 1: all 16 answers are tried."""
    p = np.array([[0.9, 0.2], [0.8, 0.6], [0.7, 0.1], [0.9, 0.3]])
    truth = csr_array(np.array([[1, 0], [1, 1], [1, 0], [1, 0]], dtype=np.float32))
    labels = np.tile(np.arange(2), (4, 1))
    order = np.argsort(-p, axis=1)
    ranking = Ranking(
        np.take_along_axis(labels, order, axis=1),
        logit(np.take_along_axis(p, order, axis=1)).astype(np.float32),
    )
    answers = [np.array(some)[:, None] for some in itertools.product((0, 1), repeat=4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CUT_OFF", 1)
        search = AimSearch(ranking, truth, IDENTITY, np.array([5, 1]))
        found = search.preferred()
    for name, value_of in (
        (RARE_LABELS, lambda judged: label_f1_at(judged, 1).mean()),
        (COVERAGE, lambda judged: coverage_at(judged, 1)),
    ):
        best = max(value_of(join_truth(answer, truth)) for answer in answers)
        assert value_of(join_truth(search._ranked(found[name]), truth)) == best


def test_the_weights_of_propensity_are_the_inverse_propensities():
    counts = np.array([0, 1, 5, 300, 20_000], dtype=np.int64)
    weights = propensity_aim(45_000).weights(counts)
    assert_all_close(weights, inverse_propensities(counts, 45_000), rtol=1e-6)
    np.testing.assert_array_equal(propensity_aim(1).weights(np.array([0, 1])), [1, 1])


def test_every_calibrated_scorer_gets_all_aims_and_only_ranked_pairs_count():
    ranking, truth = long_tail(100, 4)
    labels = np.sort(ranking.labels, axis=1)
    scores = np.empty_like(ranking.scores)
    np.put_along_axis(scores, ranking.labels, ranking.scores, axis=1)
    is_true = truth.toarray() > 0
    pairs = ScoredPairs(
        labels,
        is_true,
        np.ones_like(is_true),
        np.ones(labels.shape, np.float32),
        {"sparse": scores},
        COUNTS[labels],
    )
    found = fit_aims(pairs, truth, {"sparse": IDENTITY}, COUNTS, 5000)
    assert found == {
        "sparse": {
            **AimSearch(ranking, truth, IDENTITY, COUNTS).preferred(),
            PROPENSITY: propensity_aim(5000),
        }
    }
