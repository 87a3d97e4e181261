"""The threshold "auto": of the F1 that is expected, and in answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from longtail.models.bundle.manifest import Calibration
from longtail.models.errors import RequestError
from longtail.models.predict.predictor import Predictor
from longtail.models.scorers.label_counts import automatic_thresholds


def test_the_labels_of_at_least_half_the_expected_f1_are_those_that_reach_it() -> None:
    probabilities = -np.sort(-(np.random.default_rng(0).random((200, 9)) ** 3), axis=1)
    halves = 2 * automatic_thresholds(probabilities, 0.0)  # without the threshold of all texts
    for shares, half in zip(probabilities, halves, strict=True):
        f1 = [2 * shares[:m].sum() / (m + shares.sum()) for m in range(1, 10)]
        assert half == pytest.approx(max(f1) / 2)
        assert (shares >= half).sum() == 1 + np.argmax(f1)
    both = automatic_thresholds(probabilities, 0.4)
    assert both == pytest.approx(halves / 2 + 0.2)


@pytest.fixture
def predictor(parts) -> Predictor:
    calibrations = {
        name: Calibration(knots=(0.0,), slopes=(2.0, 2.0), intercept=-1.0)
        for name in ("sparse", "retrieval")
    }
    thresholds = {"sparse": 0.3}
    return Predictor(replace(parts, calibrations=calibrations, thresholds=thresholds), device="cpu")


def test_a_text_gets_the_labels_above_its_own_threshold_whatever_k_is(predictor) -> None:
    texts = ["river law", "the steel trade and the milk tax"]
    num_labels = len(predictor.catalogue)
    every = predictor.predict(texts, k=num_labels, scorer="sparse")
    found = predictor.predict(texts, k=num_labels, scorer="sparse", threshold="auto")
    first = predictor.predict(texts, k=1, scorer="sparse", threshold="auto")
    for all_labels, some, one in zip(every, found, first, strict=True):
        shares = np.array([[label.probability for label in all_labels.labels]])
        (least,) = automatic_thresholds(shares, 0.3)
        assert some.labels == tuple(x for x in all_labels.labels if x.probability >= least)
        assert one.labels == some.labels[:1]


@pytest.mark.parametrize("options", [{"scorer": "retrieval"}, {"aim": "coverage"}])
def test_auto_is_refused_where_it_has_no_threshold_or_beside_an_aim(predictor, options) -> None:
    with pytest.raises(RequestError, match="auto"):
        predictor.predict(["river law"], threshold="auto", **{"scorer": "sparse"} | options)
