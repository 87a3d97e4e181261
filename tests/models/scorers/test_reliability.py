"""Warnings about probabilities that are too high for labels hardly seen in training."""

from dataclasses import replace

import pytest

from longtail.models.predict.predictor import Predictor
from longtail.models.results import Prediction
from longtail.models.scorers.calibration import IDENTITY

TEXTS = ["river law", "the steel trade and the milk tax", "fish tax"]
RARE = {"L0", "L2", "L5"}  # one training document, none, none
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
    return tuple(label.id for label in kept if label.id in RARE)


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
