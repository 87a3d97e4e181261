"""Fitted calibrations, and how far probabilities can be trusted, on made-up and tiny real data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, precision_score, recall_score

from longtail.models.fitted.label_counts import PlaceThreshold
from longtail.models.predict.predictor import Predictor
from longtail.models.scorers.blending import knot_shares
from longtail.models.scorers.calibration import IDENTITY, log_odds_of, probabilities_of
from longtail.training.calibration.ensemble import with_rarity
from longtail.training.calibration.fit import fit_calibration
from longtail.training.calibration.reliability import (
    LabelGroup,
    measure_bands,
    measure_reliability,
    report_reliability,
)
from longtail.training.calibration.scored_pairs import ScoredPairs, rank_best, score_pairs
from longtail.training.calibration.thresholds import (
    best_label_count,
    best_threshold,
    measure_threshold,
)
from longtail.training.data.dataset import open_dataset
from tests.closeness import assert_all_close


def drawn(num: int, log_odds_of, seed: int = 0):
    """Scores, and truth drawn with the probabilities that they mean."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(-2, 3, size=num).astype(np.float32)
    is_true = rng.random(num) < expit(log_odds_of(scores.astype(np.float64)))
    return scores, is_true, np.ones(num)


def no_documents(values):
    return np.zeros(values.shape, dtype=np.int64)


def test_true_probabilities_are_found_again():
    def bent(scores):
        return -1 + 0.5 * np.minimum(scores, 0) + 2 * np.maximum(scores, 0)

    scores, is_true, weights = drawn(100_000, bent)
    found = probabilities_of(
        fit_calibration(scores, is_true, weights), scores, no_documents(scores)
    )
    np.testing.assert_allclose(found, expit(bent(scores.astype(np.float64))), atol=0.05)


def test_with_few_true_pairs_it_is_platts_sigmoid():
    scores, is_true, weights = drawn(150, lambda scores: 0.5 * scores - 1)
    assert 0 < is_true.sum() < 50
    found = fit_calibration(scores, is_true, weights)
    assert found.slopes[0] == found.slopes[1]
    # Logistic regression without regularisation on Platt's targets, each pair taken twice.
    num_true, num_false = is_true.sum(), (~is_true).sum()
    targets = np.where(is_true, (num_true + 1) / (num_true + 2), 1 / (num_false + 2))
    twice = np.concatenate([scores, scores])[:, None]
    answers = np.repeat([True, False], len(scores))
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    model.fit(twice, answers, sample_weight=np.concatenate([targets, 1 - targets]))
    wanted = model.predict_proba(scores[:, None])[:, 1]
    np.testing.assert_allclose(
        probabilities_of(found, scores, no_documents(scores)), wanted, atol=1e-3
    )


def test_a_pair_of_weight_3_counts_as_three():
    scores, is_true, weights = drawn(300, lambda scores: scores)
    weights[::2] = 3
    weights[is_true] = 1  # where the bends are, the true pairs decide
    repeats = weights.astype(int)
    wanted = fit_calibration(
        np.repeat(scores, repeats), np.repeat(is_true, repeats), np.ones(repeats.sum())
    )
    found = fit_calibration(scores, is_true, weights)
    assert found.knots == wanted.knots
    assert_all_close(found.slopes, wanted.slopes, rtol=1e-3)


@pytest.mark.parametrize("scores", [[-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
def test_one_true_pair_gives_a_rising_calibration_that_is_sure_of_nothing(scores):
    values = np.array(scores, dtype=np.float32)
    found = fit_calibration(values, np.array([False, True]), np.ones(2))
    assert min(found.slopes) > 0
    assert (((p := probabilities_of(found, values, no_documents(values))) > 0.2) & (p < 0.8)).all()


def test_a_scorer_that_is_worse_than_chance_gets_the_base_rate():
    scores, is_true, weights = drawn(20_000, lambda scores: -scores - 4)
    found = probabilities_of(
        fit_calibration(scores, is_true, weights), scores, no_documents(scores)
    )
    np.testing.assert_allclose(found, is_true.mean(), atol=0.02)
    assert min(fit_calibration(scores, is_true, weights).slopes) > 0


def pairs_of(scores, is_true, weights=None, counts=None):
    shape = scores.shape
    return ScoredPairs(
        labels=np.tile(np.arange(shape[1]), (shape[0], 1)),
        is_true=np.asarray(is_true, dtype=np.bool_),
        is_best=np.ones(shape, dtype=bool),
        weights=np.ones(shape, dtype=np.float32) if weights is None else weights,
        scores={"one": scores.astype(np.float32)},
        counts=np.zeros(shape, dtype=np.int64) if counts is None else counts,
    )


def test_log_loss_and_calibration_error_are_those_of_their_definitions():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(40, 30)).astype(np.float32)
    is_true = rng.random((40, 30)) < 0.3
    found = measure_reliability(pairs_of(scores, is_true), "one", IDENTITY)
    p = expit(scores.astype(np.float64)).ravel()
    loss = -np.log(np.where(is_true.ravel(), p, 1 - p)).sum() / 40
    assert found.log_loss == pytest.approx(loss)
    error = 0.0
    order = np.argsort(p)
    for part in np.array_split(order, 15):  # 1,200 pairs: 80 in each bin
        error += len(part) * abs(p[part].mean() - is_true.ravel()[part].mean()) / 1200
    assert found.calibration_error == pytest.approx(error, abs=0.01)
    best = np.argsort(-scores, axis=1)[:, :5]
    assert found.top_precision == pytest.approx(np.take_along_axis(is_true, best, 1).mean())
    mean = np.take_along_axis(p.reshape(40, 30), best, 1).mean()
    assert found.top_probability == pytest.approx(mean)
    assert sum(size for _, _, size in found.bins) == 200


@pytest.fixture(scope="module")
def report(trained, tiny_corpus):
    predictor, dataset = (
        Predictor.of_bundle(trained.bundle, device="cpu"),
        open_dataset(tiny_corpus),
    )
    split = dataset.split("dev")
    batch = predictor.read(list(split.texts()))
    ranked = rank_best(predictor, batch)
    pairs = score_pairs(predictor, batch, split.scan().labels, 0, ranked)
    return report_reliability(predictor, pairs)


def test_calibration_brings_the_mean_probability_of_the_top_near_its_precision(report):
    for found in report.after.values():
        assert found.top_probability == pytest.approx(found.top_precision, abs=0.1)


def test_bands_tell_mean_probability_share_of_right_and_error_by_frequency():
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(200, 12)).astype(np.float32)
    is_true = rng.random((200, 12)) < expit(scores)
    is_true[:, :4] &= rng.random((200, 4)) < 0.2  # rare labels are right a fifth as often
    counts = np.repeat([0, 1, 5, 50], [2, 2, 4, 4])
    found = measure_bands(pairs_of(scores, is_true), "one", IDENTITY, counts)
    assert list(found) == ["0", "1", "2-9", "10-99", "100+"]
    best = np.argsort(-scores, axis=1)[:, :5]
    p, right = (np.take_along_axis(x, best, 1) for x in (expit(scores.astype(float)), is_true))
    for name, count in {"0": 0, "1": 1, "2-9": 5, "10-99": 50}.items():
        is_in = counts[best] == count
        assert found[name].best.count == is_in.sum()
        assert found[name].best.probability == pytest.approx(p[is_in].mean())
        assert found[name].best.precision == pytest.approx(right[is_in].mean())
        is_in &= p >= 0.5
        assert found[name].confident.count == is_in.sum()
        assert found[name].confident.precision == pytest.approx(right[is_in].mean())
    assert found["0"].calibration_error > 0.4 > 0.1 > found["2-9"].calibration_error
    assert found["100+"].best == LabelGroup(0, None, None) == found["100+"].confident
    assert found["100+"].calibration_error is None


LABELS = np.array([0, 0, 1, 1, 5, 5, 40, 40, 300, 300])
"""Training documents of the labels."""


def drawn_by_rarity(num_documents: int, shift_of, seed: int = 0) -> ScoredPairs:
    """Documents whose labels are right by their scores and a shift by training documents."""
    rng = np.random.default_rng(seed)
    shape = (num_documents, len(LABELS))
    scores = rng.normal(-1, 1.5, size=shape).astype(np.float32)
    counts = np.tile(LABELS, (num_documents, 1))
    return pairs_of(scores, rng.random(shape) < expit(scores + shift_of(counts)), counts=counts)


def lifted(counts: np.ndarray) -> np.ndarray:
    return 0.25 * np.log1p(counts) - 1.0


def test_what_lifts_rare_labels_is_taken_off():
    line = with_rarity(drawn_by_rarity(16_000, lifted), "one", IDENTITY)
    assert line.counts[0] == 0
    np.testing.assert_allclose(line.factors, 1, atol=0.1)
    others = drawn_by_rarity(16_000, lifted, seed=1)
    found = others.probabilities("one", line)
    before = others.probabilities("one", IDENTITY)
    for count in np.unique(LABELS):
        is_in = others.counts == count
        right = others.is_true[is_in].mean()
        assert abs(found[is_in].mean() - right) < 0.015
        if abs(lifted(np.array(count))) > 0.3:
            assert abs(before[is_in].mean() - right) > 0.04


def test_few_documents_change_little():
    line = with_rarity(drawn_by_rarity(3, lifted), "one", IDENTITY)
    assert np.abs(np.subtract(line.factors, 1)).max() < 0.3
    assert np.ptp(line.shifts) < 0.3


def test_only_the_best_ten_labels_of_a_document_count():
    pairs = drawn_by_rarity(300, lifted)
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
    pairs = drawn_by_rarity(200, lifted)
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


def one_document(scores, is_true, weights=None):
    """One document whose pairs are these."""
    weights = None if weights is None else np.array([weights], dtype=np.float32)
    return pairs_of(np.array([scores]), np.array([is_true]), weights)


@pytest.mark.slow
@given(
    rows=st.lists(
        st.tuples(st.sampled_from([-np.inf, -2.0, -0.5, 0.0, 0.5, 3.0]), st.booleans()), min_size=1
    )
)
def test_no_other_threshold_has_a_larger_f1(rows):
    scores, is_true = map(np.array, zip(*rows, strict=True))
    pairs = one_document(scores, is_true)
    threshold = best_threshold(pairs, "one", IDENTITY)
    if not is_true[scores > -np.inf].any():
        assert threshold is None
        return
    found = measure_threshold(pairs, "one", IDENTITY, threshold)
    each = expit(scores.astype(np.float32).astype(np.float64))
    tried = {p: f1_score(is_true, each >= p) for p in set(each[scores > -np.inf])}
    assert found.micro_f1 == pytest.approx(max(tried.values()))
    best = [p for p, value in tried.items() if value > found.micro_f1 - 1e-12]
    assert threshold == max(best)
    is_answered = each >= threshold
    assert found.precision == pytest.approx(precision_score(is_true, is_answered))
    assert found.recall == pytest.approx(recall_score(is_true, is_answered))


def test_a_threshold_by_place_reaches_what_no_other_of_its_family_exceeds():
    rng = np.random.default_rng(1)
    scores = -np.sort(-rng.normal(0, 2, (80, 12)), axis=1).astype(np.float32)
    places = np.log(np.arange(1, 13))
    is_true = rng.random(scores.shape) < expit(scores - 0.9 * places)
    pairs = ScoredPairs.joined([one_document(*row) for row in zip(scores, is_true, strict=True)])
    found = best_label_count(pairs, "one", IDENTITY)

    def f1(rule: PlaceThreshold) -> float:
        answered = scores >= np.float32(rule.first) + rule.rise * places - 1e-6
        return f1_score(is_true.ravel(), answered.ravel())

    assert found.rise > 0
    others = [PlaceThreshold(first, rise) for first in np.arange(-3, 3, 0.3) for rise in (0.0, 0.6)]
    assert f1(found) >= max(map(f1, others))
    assert best_label_count(one_document([1.0], [False]), "one", IDENTITY) is None


def test_a_pair_of_weight_3_counts_as_three_and_what_is_not_scored_is_missed():
    def shares(threshold, pairs):
        found = measure_threshold(pairs, "one", IDENTITY, threshold)
        return pytest.approx((found.precision, found.recall, found.micro_f1))

    pairs = one_document([1.0, 0.0, -np.inf], [True, False, True], [1.0, 3.0, 1.0])
    assert shares(0.5, pairs) == (1 / 4, 1 / 2, 2 / (4 + 2))
    assert shares(0.6, pairs) == (1, 1 / 2, 2 / (1 + 2))
    assert shares(0.9, pairs) == (0, 0, 0)
    assert shares(0.9, one_document([1.0], [False])) == (0, 0, 0)
