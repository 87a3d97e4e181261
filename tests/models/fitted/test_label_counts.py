"""The threshold "auto": by the place of a label, and in answers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logit

from longtail.models.bundle.manifest import Calibration
from longtail.models.errors import RequestError
from longtail.models.fitted.label_counts import LABEL_COUNTS, PlaceThreshold
from longtail.models.predict.predictor import Predictor

RULE = PlaceThreshold(first=-0.8, rise=0.2)


def test_the_threshold_rises_with_the_place_of_a_label_in_its_text() -> None:
    probabilities = np.array([[0.6, 0.5, 0.4], [0.5, 0.4, 0.3], [0.4, 0.2, 0.1]])
    rule = PlaceThreshold(first=0.0, rise=0.0)
    assert rule.of_texts(logit(probabilities)).tolist() == [0.0, 0.0, np.inf]
    falling = -np.sort(-np.random.default_rng(0).normal(size=(50, 9)), axis=1)
    rule = PlaceThreshold(first=-0.5, rise=0.7)
    for log_odds, least in zip(falling, rule.of_texts(falling), strict=True):
        count = sum(each >= -0.5 + 0.7 * math.log(i) for i, each in enumerate(log_odds, 1))
        assert (log_odds >= least).sum() == count


def test_label_counts_come_back_as_they_were_and_damaged_ones_do_not() -> None:
    found = {"sparse": PlaceThreshold(-0.5, 0.3), "names": PlaceThreshold(1.0, 0.0)}
    text = LABEL_COUNTS.to_json(found)
    assert LABEL_COUNTS.from_json(text, 1) == found
    for damaged in ("[]", text.replace("0.3", "-0.3"), text.replace("rise", "fall")):
        with pytest.raises(ValueError, match=r"expected|missing|unknown"):
            LABEL_COUNTS.from_json(damaged, 1)


@pytest.fixture(params=[{}, {"counts": (0, 3), "shifts": (-2.0, 1.0), "factors": (0.5, 2.0)}])
def predictor(parts, request) -> Predictor:
    """A model with probabilities that fall with the scores, and one with others."""
    calibrations = {
        name: Calibration((0.0,), slopes=(2.0, 2.0), intercept=-1.0, **request.param)
        for name in ("sparse", "retrieval")
    }
    counts = {"sparse": RULE}
    calibrated = replace(parts, calibrations=calibrations)
    return Predictor(LABEL_COUNTS.added_to(calibrated, counts), device="cpu")


def test_a_text_gets_the_labels_above_its_own_threshold_whatever_k_is(predictor) -> None:
    texts = ["river law", "the steel trade and the milk tax"]
    num_labels = len(predictor.catalogue)
    every = predictor.predict(texts, k=num_labels, scorer="sparse")
    found = predictor.predict(texts, k=num_labels, scorer="sparse", threshold="auto")
    first = predictor.predict(texts, k=1, scorer="sparse", threshold="auto")
    for all_labels, some, one in zip(every, found, first, strict=True):
        log_odds = [2 * label.score - 1 for label in all_labels.labels]
        (least,) = RULE.of_texts(np.array([log_odds]))
        assert some.labels == all_labels.labels[: sum(each >= least for each in log_odds)]
        assert one.labels == some.labels[:1]


@pytest.mark.parametrize("options", [{"scorer": "retrieval"}, {"aim": "propensity"}])
def test_auto_is_refused_where_it_has_no_threshold_or_beside_an_aim(predictor, options) -> None:
    with pytest.raises(RequestError, match="auto"):
        predictor.predict(["river law"], threshold="auto", **{"scorer": "sparse"} | options)
