"""Log-odds along a line with bends, and by rarity, against a sum over pieces."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from longtail.models.bundle.manifest import Calibration
from longtail.models.predict.predictor import Predictor
from longtail.models.results import Prediction
from longtail.models.scorers.calibration import (
    IDENTITY,
    by_rarity,
    log_odds_of,
    most_by_rarity,
    probabilities_of,
)

BENT = Calibration(knots=(-1.0, 2.0, 2.5), slopes=(0.5, 1.0, 4.0, 0.25), intercept=-3.0)
RARE = replace(BENT, counts=(0, 3, 30), shifts=(-2.0, 1.5, 0.5), factors=(0.5, 2.0, 1.0))


def by_hand(calibration: Calibration, value: float) -> float:
    """The oracle: walk from the first knot to the value."""
    knots, slopes = calibration.knots, calibration.slopes
    if value < knots[0]:
        return calibration.intercept - slopes[0] * (knots[0] - value)
    total = calibration.intercept
    for place, knot in enumerate(knots):
        stop = knots[place + 1] if place + 1 < len(knots) else math.inf
        total += slopes[place + 1] * (min(value, stop) - knot)
        if value <= stop:
            break
    return total


@given(st.floats(-100, 100, width=32))
def test_log_odds_follow_the_line(value):
    (found,) = log_odds_of(BENT, np.array([value], dtype=np.float32))
    assert math.isclose(found, by_hand(BENT, value), abs_tol=1e-9)


@given(st.lists(st.floats(width=32), min_size=1))
def test_log_odds_are_the_sum_of_the_pieces_to_the_bit(values):
    values = np.array(values, dtype=np.float32).astype(np.float64)
    knots, slopes = BENT.knots, BENT.slopes
    with np.errstate(invalid="ignore"):
        wanted = BENT.intercept + slopes[0] * np.minimum(values - knots[0], 0)
        for start, stop, slope in zip(knots, (*knots[1:], np.inf), slopes[1:], strict=True):
            wanted += slope * (np.clip(values, start, stop) - start)
    np.testing.assert_array_equal(log_odds_of(BENT, values), wanted)  # NaN stays NaN


@given(st.floats(-100, 100, width=32), st.integers(0, 10**6))
def test_log_odds_of_a_label_lie_between_the_knots_of_its_documents(value, count):
    base, values, counts = by_hand(BENT, value), np.array([value], np.float32), np.array([count])
    place, knots = math.log1p(count), [math.log1p(each) for each in RARE.counts]
    lines = [a + b * base for a, b in zip(RARE.shifts, RARE.factors, strict=True)]
    above = next((i for i, knot in enumerate(knots) if knot >= place), len(knots) - 1)
    below = max(0, above - 1)
    share = (min(place, knots[-1]) - knots[below]) / ((knots[above] - knots[below]) or 1)
    wanted = lines[below] + share * (lines[above] - lines[below])
    log_odds = log_odds_of(RARE, values)
    assert log_odds[0] == log_odds_of(BENT, values)[0]
    found = by_rarity(RARE, log_odds, counts)
    assert math.isclose(found[0], wanted, rel_tol=1e-9, abs_tol=1e-9)
    assert probabilities_of(RARE, values, counts)[0] == expit(found)[0]
    assert found[0] <= most_by_rarity(RARE, log_odds)[0] + 1e-9


def test_the_most_is_that_of_a_knot():
    log_odds = np.linspace(-5, 5, 21)
    every = [by_rarity(RARE, log_odds, np.full(21, n)) for n in range(200)]
    np.testing.assert_allclose(most_by_rarity(RARE, log_odds), np.max(every, axis=0), atol=1e-12)


def test_a_calibration_of_all_labels_alike_changes_no_log_odds():
    log_odds = np.array([-np.inf, -3.7, 0.1, 12.3])
    for count in (0, 7, 10**6):
        found = by_rarity(BENT, log_odds, np.full(4, count))
        np.testing.assert_array_equal(found, log_odds)


TEXTS = ["river law", "the steel trade and the milk tax", "fish tax"]
RARE_LABELS = {"L0", "L2", "L5"}  # one training document, none, none
SCORERS = ("retrieval", "classifier", "hybrid", "linear", "sparse", "ensemble")


@pytest.fixture(scope="module")
def calibrated(parts, constant_blend):
    return replace(
        parts,
        has_hybrid=True,
        calibrations=dict.fromkeys(SCORERS, IDENTITY),
        blends={"ensemble": constant_blend({"retrieval": 0.5, "sparse": 0.5})},
    )


@pytest.fixture(scope="module")
def predictor(calibrated):
    return Predictor(calibrated, device="cpu")


def rare_ids(found: Prediction, least: float) -> tuple[str, ...]:
    kept = [label for label in found.labels if (label.probability or 0) >= least]
    return tuple(label.id for label in kept if label.id in RARE_LABELS)


def warned_ids(found: Prediction) -> tuple[str, ...]:
    return tuple(each for warning in found.warnings for each in warning.label_ids)


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.5, 0.9])
def test_a_threshold_warns_of_the_rare_labels_that_passed_it(predictor, threshold):
    predictions = predictor.predict(TEXTS, k=7, threshold=threshold)
    assert any(found.warnings for found in predictions)
    for found in predictions:
        assert warned_ids(found) == rare_ids(found, threshold)


def test_probabilities_by_rarity_need_no_warning(calibrated):
    line = replace(IDENTITY, counts=(0, 3), shifts=(0.0, 0.0), factors=(1.0, 1.0))
    known = dict.fromkeys(SCORERS, line)
    predictor = Predictor(replace(calibrated, calibrations=known), device="cpu")
    assert not any(each.warnings for each in predictor.predict(TEXTS, k=7, threshold=0.0))


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_a_blend_that_knows_how_rare_labels_are_does_not_warn(calibrated, constant_blend, weight):
    """Even if it is mostly `retrieval`: its weights were fitted for such labels."""
    blend = constant_blend({"retrieval": weight, "sparse": 1 - weight})
    predictor = Predictor(replace(calibrated, blends={"ensemble": blend}), device="cpu")
    found = predictor.predict(TEXTS, k=7, scorer="ensemble", threshold=0.0)
    assert not any(each.warnings for each in found)
