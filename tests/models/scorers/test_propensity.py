"""Weighed labels ranked by the Threshold Algorithm, against a full sort of all gains."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit

from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.labels.selection import Selection
from longtail.models.ranking.threshold_algorithm import SUM, Combination, Sources, rank
from longtail.models.ranking.top_k import Ranking, top_of_scores
from longtail.models.scorers.blending import DialledBlend, FittedBlend
from longtail.models.scorers.calibration import IDENTITY, log_odds_of, probabilities_of
from longtail.models.scorers.propensity import WeighedCombination, propensity_weights
from tests.rankings import DenseSource, shallow

BENT = Calibration(knots=(-0.5, 1.0), slopes=(0.5, 2.0, 1.0), intercept=-1.0)
BY_RARITY = replace(BENT, counts=(0, 1, 9), shifts=(-0.5, 2.0, 0.5), factors=(1.5, 0.5, 1.0))
STEEP = Calibration(knots=(0.0,), slopes=(40.0, 40.0), intercept=0.0)
BLEND = RarityBlend(
    counts=(0, 2),
    intercepts=(0.5, -0.25),
    weights={"a": (0.7, 0.2), "b": (0.0, 1.3)},
    floors={"a": -4.0, "b": -9.5},
)
TIED = st.sampled_from([-1.0, 0.0, 0.5, 60.0])
SPREAD = st.floats(-20, 20, width=16).map(float)
WEIGHTS = (
    lambda counts: propensity_weights(counts, 1),
    lambda counts: propensity_weights(counts, 45_000),
    lambda counts: 1e9 * (counts + 0.01) ** -3.0,
)


def draw_scorers(data: st.DataObject) -> tuple[list[Sources], Combination, int]:
    """One scorer, or two in a blend with or without a dial, that know only some labels each."""
    rows, num_labels = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 20))
    num = data.draw(st.integers(1, 2))
    elements = data.draw(st.sampled_from([TIED, SPREAD]))
    scorers: list[Sources] = []
    for _ in range(num):
        scores = data.draw(arrays(np.float32, (rows, num_labels), elements=elements))
        unknown = data.draw(st.sets(st.integers(0, num_labels - 1), max_size=num_labels))
        scores[:, sorted(unknown)] = -np.inf
        scorers.append([DenseSource(scores)])
    if num == 1:
        return scorers, SUM, num_labels
    counts = np.arange(num_labels) % 3
    blend = FittedBlend(BLEND, [BENT, IDENTITY], counts, np.log1p(counts).astype(np.float32))
    dial = data.draw(st.sampled_from([0.0, 2.0]))
    return scorers, DialledBlend.of(blend, dial), num_labels


def weighed(inner, calibration, counts, weights, threshold) -> WeighedCombination:
    weights = weights.astype(np.float32)
    return WeighedCombination(inner, calibration, counts, weights, threshold, float(weights.max()))


def test_weights_are_those_of_jain_et_al():
    expected = [1 + (np.log(1000) - 1) * 2.5**0.55 * (n + 1.5) ** -0.55 for n in (0, 1, 500)]
    found = propensity_weights(np.array([0, 1, 500]), 1000)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert propensity_weights(np.array([0, 1]), 2).tolist() == [1, 1]


def wanted(
    scorers: list[Sources],
    inner: Combination,
    calibration: Calibration,
    counts: np.ndarray,
    weights: np.ndarray,
    threshold: float,
    is_selected: np.ndarray,
    k: int,
) -> Ranking:
    """The oracle: the gains of all labels, written out one by one, and a full sort."""
    parts = np.stack([sources[0].scores for sources in scorers])
    labels = np.tile(np.arange(parts.shape[2]), (parts.shape[1], 1))
    scores = inner.combine(parts, labels)
    gains = np.full(scores.shape, -np.inf)
    for row, label in np.argwhere(~np.isneginf(scores)):
        p = float(probabilities_of(calibration, scores[row, label][None], counts[label][None])[0])
        of_all = float(expit(log_odds_of(calibration, scores[row, label][None]))[0])
        if is_selected[label] and p >= threshold:
            gains[row, label] = float(weights[label]) * of_all
    return top_of_scores(gains.astype(np.float32), k)


@settings(max_examples=60)
@given(
    data=st.data(),
    weights_of=st.sampled_from(WEIGHTS),
    calibration=st.sampled_from([IDENTITY, BENT, STEEP, BY_RARITY]),
    threshold=st.sampled_from([None, 0.0, 0.3, 0.99]),
)
def test_gains_are_ranked_as_a_full_sort_ranks_them(data, weights_of, calibration, threshold):
    scorers, inner, num_labels = draw_scorers(data)
    counts = np.array(data.draw(st.lists(st.sampled_from([0, 1, 2, 9, 4000]),
        min_size=num_labels, max_size=num_labels)), dtype=np.int64)  # fmt: skip
    is_selected = data.draw(arrays(np.bool_, num_labels))
    selection = data.draw(st.sampled_from([None, Selection(is_selected)]))
    k = data.draw(st.integers(1, num_labels + 2))
    combine = weighed(inner, calibration, counts, weights_of(counts), threshold or 0.0)
    may_be = np.ones(num_labels, dtype=bool) if selection is None else is_selected
    given = (calibration, counts, combine.weights, threshold or 0.0, may_be, k)
    right = wanted(scorers, inner, *given)
    with shallow():
        found = rank(scorers, combine, k, num_labels, selection)
    np.testing.assert_array_equal(found.labels, right.labels)
    np.testing.assert_array_equal(found.scores, right.scores)
    everything = rank(scorers, combine, k, num_labels, selection)  # so few are all scored
    np.testing.assert_array_equal(everything.labels, right.labels)


def test_a_rare_label_overtakes_a_frequent_one_and_is_found_without_reading_all():
    scores = np.full((1, 5000), -9.0, dtype=np.float32)
    scores[0, :3] = 3.0, 2.0, 1.0
    counts = np.full(5000, 1000, dtype=np.int64)
    counts[2] = 1
    source = DenseSource(scores)
    combine = weighed(SUM, IDENTITY, counts, propensity_weights(counts, 10_000), 0.0)
    found = rank([[source]], combine, 1, 5000)
    assert found.labels.tolist() == [[2]]
    assert source.num_read < 1000
