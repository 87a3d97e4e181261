"""Blends by rarity as they are fitted, and dev splits that teach little."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from longtail.models.bundle.manifest import RarityBlend
from longtail.models.kinds.storage import read_parts
from longtail.models.lexical.matcher import FindHistory
from longtail.models.names import NAMES, RETRIEVAL, SPARSE
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.scorers.blending import FittedBlend
from longtail.models.scorers.calibration import IDENTITY, log_odds_of
from longtail.training.calibration.blends import _RIDGE, _SMOOTHNESS, TAIL, _Problem, fit_blend
from longtail.training.calibration.fit import fit_calibration
from longtail.training.calibration.minimum import minimum
from longtail.training.calibration.scored_pairs import PairCollector, ScoredPairs
from longtail.training.calibration.unseen import pairs_without_documents
from longtail.training.data.dataset import open_dataset

COUNTS = np.array([0, 1, 3, 10, 30, 100], dtype=np.int64)
PRIORS = np.zeros(len(COUNTS), dtype=np.float32)


def pairs_of(truth: np.ndarray, scores: dict[str, np.ndarray]) -> ScoredPairs:
    """All pairs of documents and labels."""
    shape = truth.shape
    return ScoredPairs(
        labels=np.tile(np.arange(shape[1]), (shape[0], 1)),
        is_true=truth > 0,
        is_best=np.ones(shape, dtype=bool),
        weights=np.ones(shape, dtype=np.float32),
        scores={name: some.astype(np.float32) for name, some in scores.items()},
        counts=np.zeros(shape, dtype=np.int64),
    )


def drawn(weights: dict[str, list[float]], intercepts: list[float], num: int, seed: int = 0):
    """Pairs of labels with `COUNTS` documents that are right as a blend with these weights says."""
    rng = np.random.default_rng(seed)
    scores = {name: rng.normal(scale=2, size=(num, len(COUNTS))) for name in weights}
    log_odds = np.array(intercepts) + sum(np.array(weights[x]) * scores[x] for x in weights)
    return pairs_of(rng.random(log_odds.shape) < expit(log_odds), scores)


def fitted(pairs: ScoredPairs, counts: np.ndarray = COUNTS) -> RarityBlend:
    names = list(pairs.scores)
    return fit_blend(pairs, names, dict.fromkeys(names, IDENTITY), counts)


def test_the_weights_that_the_pairs_were_drawn_with_are_found():
    weights = {"a": [0.2, 0.4, 0.6, 0.8, 1.0, 1.2], "b": [1.0, 0.8, 0.6, 0.4, 0.2, 0.0]}
    intercepts = [-2.0, -1.5, -1.0, -1.0, -0.5, 0.0]
    found = fitted(drawn(weights, intercepts, 10_000))
    assert found.counts == (0, 1, 3, 10, 30, 100)
    np.testing.assert_allclose(found.intercepts, intercepts, atol=0.15)
    for name, right in weights.items():
        np.testing.assert_allclose(found.weights[name], right, atol=0.12)


def test_labels_that_were_never_seen_have_their_own_weight():
    """What finds them may be worth nothing elsewhere."""
    right = {"names": [1.0, 0, 0, 0, 0, 0], "sparse": [0.0, 1, 1, 1, 1, 1]}
    found = fitted(drawn(right, [-1.0] * 6, 5000))
    assert found.weights["names"][0] > 0.9 > 0.1 > max(found.weights["names"][1:])
    assert found.weights["sparse"][0] < 0.1 < 0.9 < min(found.weights["sparse"][1:])


def test_a_sum_that_is_too_sure_is_bent_and_frequent_labels_lose_a_little():
    points = np.array([-3.0, -1.0, 0.0, 1.0, 3.0])
    scores = np.random.default_rng(0).normal(scale=3, size=(8000, len(COUNTS)))

    def truth_at(x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, 0.3 * x, x)

    is_true = np.random.default_rng(1).random(scores.shape) < expit(truth_at(scores))
    bent = fitted(pairs_of(is_true, {"a": scores}))
    straight = replace(bent, curve_bends=(), curve_levels=(), curve_slopes=())
    given = np.repeat(points[:, None], len(COUNTS), axis=1)
    truth = truth_at(given)
    for blend, is_right in (bent, True), (straight, False):
        found = FittedBlend(blend, [IDENTITY], COUNTS, PRIORS)
        log_odds = found.log_odds(given[None].astype(np.float32), np.arange(len(COUNTS))[None])
        taken_off = TAIL * np.log1p(COUNTS) if blend is bent else 0
        assert (np.abs(log_odds + taken_off - truth).max() < 0.45) == is_right


def test_no_weight_is_negative_however_wrong_a_scorer_is():
    found = fitted(drawn({"right": [1.0] * 6, "wrong": [-1.0] * 6}, [-1.0] * 6, 2000))
    assert found.weights["wrong"] == (0.0,) * 6
    assert min(found.weights["right"]) > 0.3


def test_nothing_near_the_answer_has_a_smaller_loss():
    """The oracle: likelihood and penalties, written out."""
    pairs = drawn({"a": [0.5] * 6, "b": [-0.2] * 6}, [-1.0] * 6, 60)
    found = fitted(pairs)

    def loss(intercepts: np.ndarray, weights: np.ndarray) -> float:
        total = 0.0
        for label in range(len(COUNTS)):
            for row, is_true in enumerate(pairs.is_true[:, label]):
                own = [pairs.scores[name][row, label] for name in ("a", "b")]
                score = intercepts[label] + weights[label] @ own
                total += np.log1p(np.exp(-score if is_true else score))
        steps = (np.diff(intercepts) ** 2).sum() + (np.diff(weights, axis=0) ** 2).sum()
        return total + _SMOOTHNESS * steps + _RIDGE * ((weights - 0.5) ** 2).sum()

    intercepts, weights = np.array(found.intercepts), np.array(list(found.weights.values())).T
    least, rng = loss(intercepts, weights), np.random.default_rng(0)
    for size in (1e-3, 1e-2, 0.1):
        for _ in range(5):
            other = np.maximum(0, weights + size * rng.normal(size=weights.shape))
            assert loss(intercepts + size * rng.normal(size=6), other) > least - 1e-4


def test_a_knot_without_pairs_has_weights_between_its_neighbours():
    """A dev split has few rare labels, or none at all with so many documents."""
    weights = {"a": [0.2, 0.4, 0.6, 0.8, 1.0, 1.2], "b": [0.5] * 6}
    pairs = drawn(weights, [-1.0] * 6, 5000)
    unseen = replace(pairs, weights=np.where(COUNTS == 10, 0, pairs.weights).astype(np.float32))
    found = fitted(unseen).weights["a"]
    assert found[2] < found[3] < found[4]


def test_a_weighted_sample_of_the_wrong_pairs_gives_about_the_weights_of_all():
    pairs = drawn({"a": [1.0] * 6, "b": [0.5, 0.4, 0.3, 0.2, 0.1, 0.0]}, [-4.0] * 6, 20_000)
    rng = np.random.default_rng(1)
    is_kept = pairs.is_true | (rng.random(pairs.is_true.shape) < 0.25)
    weights = np.where(pairs.is_true, 1, np.where(is_kept, 4, 0)).astype(np.float32)
    everything, sampled = fitted(pairs), fitted(replace(pairs, weights=weights))
    np.testing.assert_allclose(sampled.intercepts, everything.intercepts, atol=0.15)
    for name in ("a", "b"):
        np.testing.assert_allclose(sampled.weights[name], everything.weights[name], atol=0.12)


def test_a_wrong_pair_that_no_scorer_lists_counts_a_tenth():
    """The oracle: the same pairs as if they were listed, with a tenth of their weight."""
    pairs = drawn({"a": [1.0] * 6, "b": [0.5] * 6}, [-2.0] * 6, 2000)
    pairs.scores["a"][::3] = -np.inf
    is_listed = np.random.default_rng(1).random(pairs.labels.shape) < 0.5
    drawn_ones = replace(pairs, is_best=is_listed, weights=np.where(is_listed, 1, 7).astype("f4"))
    counted = np.where(is_listed | pairs.is_true, 1, 0.1) * drawn_ones.weights
    found = fitted(drawn_ones)
    expected = fitted(replace(pairs, weights=counted.astype(np.float32)))
    np.testing.assert_allclose(found.intercepts, expected.intercepts, rtol=0, atol=1e-3)
    for name in ("a", "b"):
        assert found.floors[name] == pytest.approx(expected.floors[name], rel=1e-5)
        np.testing.assert_allclose(found.weights[name], expected.weights[name], rtol=0, atol=1e-3)
    assert found.intercepts != fitted(replace(drawn_ones, is_best=pairs.is_best)).intercepts


def test_what_no_scorer_lists_does_not_move_the_order_of_what_they_list():
    """Listed pairs follow `b` alone; the many others, of low scores, would follow `a`."""
    rng = np.random.default_rng(0)
    shape = (1500, len(COUNTS))
    is_listed = np.arange(len(COUNTS)) % 2 == np.arange(1500)[:, None] % 2
    scores = {"a": rng.normal(np.where(is_listed, 0, -3), 1), "b": rng.normal(size=shape)}
    is_true = is_listed & (rng.random(shape) < expit(2 * scores["b"]))
    weights = np.where(is_listed, 1, 100).astype(np.float32)
    pairs = replace(pairs_of(is_true, scores), is_best=is_listed, weights=weights)
    found, whole = fitted(pairs), fitted(replace(pairs, is_best=np.ones_like(is_listed)))
    ratio, of_whole = (np.array(x.weights["a"]) / np.array(x.weights["b"]) for x in (found, whole))
    assert (ratio < of_whole).all()


def test_scores_below_the_floor_order_frequent_labels_and_those_without_documents():
    """Every other pair of a label is scored by nobody but `b`, which sets a high floor."""
    pairs = drawn({"a": [1.0] * 6, "b": [0.5] * 6}, [-1.0] * 6, 4000)
    pairs.scores["a"][::2] = -np.inf
    found = fitted(pairs)
    below = found.below["a"]
    assert found.floors["a"] > -3
    assert below[1:5] == (0.0,) * 4 and below[0] > 0 and below[5] > 0.3
    assert max(found.below["b"]) < 1e-9  # never below its floor


def test_the_floor_is_the_log_odds_of_labels_without_a_score():
    pairs = drawn({"a": [1.0] * 6, "b": [1.0] * 6}, [-1.0] * 6, 1000)
    pairs.scores["b"][:, :2] = -np.inf
    is_true, share = pairs.is_true[:, :2], pairs.is_true.mean()
    right = np.log((is_true.sum() + share) / ((~is_true).sum() + 1 - share))
    found = fitted(pairs).floors
    assert found["b"] == pytest.approx(right, rel=1e-5)
    assert found["a"] == -14.0  # none is missing, so all evidence counts


class Regression:
    """A logistic regression over made-up rows, with columns of very unlike size."""

    def __init__(self, seed: int, num_rows: int = 400, num_columns: int = 6) -> None:
        rng = np.random.default_rng(seed)
        self.rows = rng.normal(size=(num_rows, num_columns)) * 10.0 ** rng.integers(
            -2, 3, num_columns
        )
        unlike = self.rows[:, 0].std() * rng.normal(size=num_rows)
        self.rows[:, 1] = self.rows[:, 0] + 0.05 * unlike  # nearly the same direction
        self.targets = rng.random(num_rows)

    def loss(self, x):
        odds = self.rows @ x
        value = -(self.targets * odds + log_expit(-odds)).sum()
        return float(value), self.rows.T @ (expit(odds) - self.targets)

    def curvature(self, x):
        share = expit(self.rows @ x)
        return (self.rows.T * (share * (1 - share))) @ self.rows


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("bound", [-np.inf, 0.0, 0.3])
def test_no_other_method_finds_less_and_the_gradient_says_why(seed, bound):
    problem = Regression(seed)
    least = np.full(6, bound)
    least[0] = -np.inf
    found = minimum(problem.loss, problem.curvature, np.ones(6), least, 1e-12)
    value, gradient = problem.loss(found)
    assert (found >= least).all()
    scale = np.sqrt(np.diagonal(problem.curvature(found)))
    is_held = found <= least
    assert (gradient[is_held] >= -1e-6 * scale[is_held]).all()
    assert np.abs(gradient[~is_held] / scale[~is_held]).max(initial=0) < 1e-4
    bounds = [(None if each == -np.inf else each, None) for each in least]
    for start in (np.ones(6), found):
        other = minimize(problem.loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
        assert value <= other.fun * (1 + 1e-9)


def test_a_start_far_off_where_the_curvature_vanishes_is_left():
    problem = Regression(3)
    least = np.full(6, -np.inf)
    expected = minimum(problem.loss, problem.curvature, np.zeros(6), least, 1e-12)
    found = minimum(problem.loss, problem.curvature, np.full(6, 40.0), least, 1e-12)
    assert problem.loss(found)[0] == pytest.approx(problem.loss(expected)[0], rel=1e-9)


@pytest.mark.parametrize("num_knots", [1, 2, 5])
def test_the_curvature_of_a_blend_is_the_slope_of_its_gradient(num_knots):
    rng = np.random.default_rng(num_knots)
    num_pairs, num_terms = 300, 4
    problem = _Problem(
        evidence=np.column_stack([np.ones(num_pairs), rng.normal(size=(num_pairs, num_terms - 1))]),
        knots=rng.integers(0, num_knots, num_pairs), shares=rng.random(num_pairs),
        is_true=rng.random(num_pairs) < 0.3, weights=rng.random(num_pairs) * 3, num_knots=num_knots,
        start=rng.normal(size=num_terms), smoothness=4.0, ridge=rng.random((num_knots, num_terms)),
    )  # fmt: skip
    above_is_itself = problem.knots == num_knots - 1
    problem = replace(problem, shares=np.where(above_is_itself, 0.0, problem.shares))
    at = rng.normal(size=num_knots * num_terms)
    matrix = problem.curvature(at)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-9)
    step = 1e-5
    for place in range(len(at)):
        one = step * (np.arange(len(at)) == place)
        slope = (problem.loss(at + one)[1] - problem.loss(at - one)[1]) / (2 * step)
        np.testing.assert_allclose(matrix[place], slope, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def parts(trained):
    return read_parts(trained.bundle)


@pytest.fixture(scope="module")
def counts(parts):
    """Counts of the catalogue, except that every third label has a single document."""
    counts = parts.catalogue.training_counts.copy()
    counts[::3] = 1
    return counts


@pytest.fixture(scope="module")
def collected(parts, tiny_corpus):
    predictor, split = Predictor(parts, device="cpu"), open_dataset(tiny_corpus).split("dev")
    collector = PairCollector(predictor, split.scan().labels)
    texts = list(split.texts())
    batches = list(collector.watch([predictor.read(texts[:9]), predictor.read(texts[9:])]))
    return collector.pairs, batches


def test_every_pair_of_a_label_with_one_document_comes_again_without_it(parts, counts, collected):
    pairs, batches = collected
    found = pairs_without_documents(pairs, batches, counts, parts)
    names = parts.models[NAMES]
    right = np.where((counts == 1)[:, None], 0, names.history.right)
    blind = Predictor(
        replace(
            parts, models={NAMES: replace(names, history=FindHistory(names.history.found, right))}
        ),
        device="cpu",
    )
    texts = [text for batch in batches for text in batch.texts]
    named = blind.score(blind.read(texts), pairs.labels, RankingOptions(scorer=NAMES))
    seen = 0
    for row in range(len(pairs.labels)):
        wanted = [
            (label, pairs.is_true[row, at], pairs.is_best[row, at], pairs.weights[row, at],
             pairs.scores[RETRIEVAL][row, at], named[row, at])
            for at, label in enumerate(pairs.labels[row])
            if label != NO_LABEL and counts[label] == 1
        ]  # fmt: skip
        there = found.labels[row] != NO_LABEL
        columns = (found.labels, found.is_true, found.is_best, found.weights)
        scores = (found.scores[RETRIEVAL], found.scores[NAMES])
        got = list(zip(*(each[row, there] for each in (*columns, *scores)), strict=True))
        assert got == wanted
        assert (found.weights[row, ~there] == 0).all()
        seen += len(wanted)
    assert seen > 100
    assert np.isneginf(found.scores[SPARSE]).all()
    changed = named[(pairs.labels != NO_LABEL) & (counts[pairs.labels] == 1)]
    assert not np.array_equal(
        changed, pairs.scores[NAMES][(pairs.labels != NO_LABEL) & (counts[pairs.labels] == 1)]
    )


def test_without_a_label_of_one_document_there_are_none(parts, counts, collected):
    pairs, batches = collected
    assert pairs_without_documents(pairs, batches, np.maximum(counts, 2), parts) is None


def test_a_dev_split_without_unseen_labels_teaches_what_names_are_worth_to_them(
    parts, counts, collected
):
    """Else what `sparse` can't score counts as what it scores lowest."""
    pairs, batches = collected
    seen = np.maximum(counts, 1)
    members = (NAMES, SPARSE)
    calibrations = {name: fit_calibration(*pairs.of(name)) for name in members}
    unseen = pairs_without_documents(pairs, batches, seen, parts)
    with_them = fit_blend(pairs, members, calibrations, seen, unseen=unseen)
    without = fit_blend(pairs, members, calibrations, seen)

    def log_loss(blend):
        """The loss of pairs that have lost their documents, in nats."""
        known = np.maximum(
            log_odds_of(calibrations[NAMES], unseen.scores[NAMES]), blend.floors[NAMES]
        )
        total = blend.intercepts[0] + blend.weights[NAMES][0] * known
        total += blend.weights[SPARSE][0] * blend.floors[SPARSE]
        is_used = (unseen.weights > 0) & (unseen.scores[NAMES] > -np.inf)
        return (unseen.weights * np.logaddexp(0, np.where(unseen.is_true, -total, total)))[
            is_used
        ].sum()

    assert log_loss(with_them) < log_loss(without)
