"""Probabilities by how often a label was seen, on pairs whose true probabilities are known."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from longtail.models.scorers.blending import knot_shares
from longtail.models.scorers.calibration import IDENTITY, log_odds_of
from longtail.training.calibration.ensemble import with_rarity
from longtail.training.calibration.scored_pairs import ScoredPairs

LABELS = np.array([0, 0, 1, 1, 5, 5, 40, 40, 300, 300])
"""Training documents of the labels."""


def drawn(num_documents: int, shift_of, seed: int = 0) -> ScoredPairs:
    """Documents whose labels are right by their scores and a shift by training documents."""
    rng = np.random.default_rng(seed)
    shape = (num_documents, len(LABELS))
    scores = rng.normal(-1, 1.5, size=shape).astype(np.float32)
    counts = np.tile(LABELS, (num_documents, 1))
    return ScoredPairs(
        labels=np.tile(np.arange(shape[1]), (num_documents, 1)),
        is_true=rng.random(shape) < expit(scores + shift_of(counts)),
        is_best=np.ones(shape, dtype=bool),
        weights=np.ones(shape, dtype=np.float32),
        scores={"one": scores},
        counts=counts,
    )


def lifted(counts: np.ndarray) -> np.ndarray:
    return 0.25 * np.log1p(counts) - 1.0


def test_what_lifts_rare_labels_is_taken_off():
    line = with_rarity(drawn(16_000, lifted), "one", IDENTITY)
    assert line.counts[0] == 0
    np.testing.assert_allclose(line.factors, 1, atol=0.1)
    others = drawn(16_000, lifted, seed=1)
    found = others.probabilities("one", line)
    before = others.probabilities("one", IDENTITY)
    for count in np.unique(LABELS):
        is_in = others.counts == count
        right = others.is_true[is_in].mean()
        assert abs(found[is_in].mean() - right) < 0.015
        if abs(lifted(np.array(count))) > 0.3:
            assert abs(before[is_in].mean() - right) > 0.04


def test_few_documents_change_little():
    line = with_rarity(drawn(3, lifted), "one", IDENTITY)
    assert np.abs(np.subtract(line.factors, 1)).max() < 0.3
    assert np.ptp(line.shifts) < 0.3


def test_only_the_best_ten_labels_of_a_document_count():
    pairs = drawn(300, lifted)
    worse = np.full((300, 20), -20.0, dtype=np.float32)
    padded = ScoredPairs(
        labels=np.hstack([pairs.labels, np.tile(np.arange(20), (300, 1))]),
        is_true=np.hstack([pairs.is_true, np.ones(worse.shape, dtype=bool)]),
        is_best=np.hstack([pairs.is_best, np.ones(worse.shape, dtype=bool)]),
        weights=np.hstack([pairs.weights, np.ones_like(worse)]),
        scores={"one": np.hstack([pairs.scores["one"], worse])},
        counts=np.hstack([pairs.counts, np.zeros(worse.shape, dtype=np.int64)]),
    )
    assert with_rarity(padded, "one", IDENTITY) == with_rarity(pairs, "one", IDENTITY)


def test_the_line_is_the_minimum_of_its_penalised_loss():
    """The oracle: the loss written out, and a search without derivatives' formulas."""
    pairs = drawn(200, lifted)
    line = with_rarity(pairs, "one", IDENTITY)
    shares = knot_shares(pairs.counts.ravel(), line.counts)
    values = log_odds_of(IDENTITY, pairs.scores["one"]).ravel()
    is_true = pairs.is_true.ravel()

    def loss(parameters: np.ndarray) -> float:
        shifts, factors = parameters.reshape(2, -1)
        log_odds = shares @ shifts + shares @ factors * values
        steps = (np.diff(shifts) ** 2).sum() + (np.diff(factors) ** 2).sum()
        cost = np.logaddexp(0, np.where(is_true, -log_odds, log_odds)).sum()
        return float(cost + 5 * steps + 2 * ((factors - 1) ** 2).sum())

    start = np.repeat([0.0, 1.0], len(line.counts))
    found = minimize(loss, start, method="BFGS", options={"gtol": 1e-4})
    assert loss(np.array([*line.shifts, *line.factors])) == pytest.approx(found.fun, rel=1e-6)
