"""The aim "propensity" of every scorer, against gains written out over all labels."""

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.errors import RequestError
from longtail.models.fitted.familiar_range import FAMILIAR_RANGE, FamiliarRange, ShortTexts
from longtail.models.labels.filters import LabelFilter
from longtail.models.options import PROPENSITY, RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.scorers.propensity import propensity_weights

TEXTS = ["river law", "the steel trade and the milk tax", "fish " * 40, "nothing known here"]
NUM_LABELS = 7
SCORERS = ("retrieval", "classifier", "hybrid", "linear", "sparse", "ensemble")
CALIBRATIONS = {
    name: Calibration(knots=(0.0,), slopes=(0.5, 0.25), intercept=-0.2 * place)
    for place, name in enumerate(SCORERS)
}
BLEND = RarityBlend(
    counts=(0, 1, 10),
    intercepts=(-0.5, 0.25, 0.0),
    weights={"retrieval": (1.0, 0.5, 0.25), "linear": (0.0, 0.2, 0.4), "sparse": (0.0, 0.6, 0.9)},
    floors={"retrieval": -6.0, "linear": -7.0, "sparse": -8.0},
)
NUM_DOCUMENTS = 5000

SHORT = FamiliarRange(
    num_documents=100, false_alarms=0.01, least_known_words=20, most_known_words=50,
    most_unknown_share=0.5, least_similarity=None,
    short_texts=dict.fromkeys(SCORERS, ShortTexts((1, 3, 20), (-0.5, 0.4, 0.0), (0.5, 2.0, 1.0))),
)  # fmt: skip
"""By which all texts but the third have probabilities of their own."""


@pytest.fixture(scope="module")
def weighed_parts(parts):
    return replace(
        parts, has_hybrid=True, calibrations=CALIBRATIONS, blends={"ensemble": BLEND},
        num_training_documents=NUM_DOCUMENTS,
    )  # fmt: skip


@pytest.fixture(scope="module", params=[None, SHORT], ids=["as documents", "short texts"])
def predictor(weighed_parts, request):
    return Predictor(FAMILIAR_RANGE.added_to(weighed_parts, request.param), device="cpu")


def wanted(
    predictor: Predictor, scorer: str, allowed: set[str] | None = None, threshold: float = 0.0
) -> list[list[tuple[str, float, float]]]:
    """Id, gain and probability of the labels of each text, by a full sort."""
    found = []
    weights = propensity_weights(predictor.catalogue.training_counts, NUM_DOCUMENTS)
    for prediction in predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer):
        rows = []
        for label in prediction.labels:
            if (allowed is None or label.id in allowed) and label.probability >= threshold:
                gain = float(np.float32(weights[label.index])) * label.probability
                rows.append((-np.float32(gain), label.index, label.id, label.probability))
        found.append([(name, float(-gain), p) for gain, _, name, p in sorted(rows)])
    return found


def answered(predictor: Any, **options: Any) -> list[list[tuple[str, float, float]]]:
    return [
        [(label.id, label.score, label.probability) for label in prediction.labels]
        for prediction in predictor.predict(TEXTS, **options)
    ]


def assert_same(found: list[Any], right: list[Any]) -> None:
    """Numbers may differ in their last bits: short texts are ranked one by one."""
    assert [[row[0] for row in text] for text in found] == [
        [row[0] for row in text] for text in right
    ]
    numbers = ([x for text in each for row in text for x in row[1:]] for each in (found, right))
    np.testing.assert_allclose(*numbers, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("all_up_to", [0, 1024])
@pytest.mark.parametrize("k", [1, 3, NUM_LABELS])
@pytest.mark.parametrize("scorer", SCORERS)
def test_labels_are_ordered_by_gain_and_keep_their_probabilities(predictor, scorer, k, all_up_to):
    with mock.patch("longtail.models.ranking.top_k._ALWAYS_UP_TO", all_up_to):
        found = answered(predictor, k=k, scorer=scorer, aim=PROPENSITY)
    assert_same(found, [row[:k] for row in wanted(predictor, scorer)])


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_filter_and_a_threshold_leave_labels_to_choose_from(predictor, scorer):
    options = {"k": 2, "threshold": 0.4, "label_filter": LabelFilter(exclude=("L3", "L0"))}
    right = wanted(predictor, scorer, {"L1", "L2", "L4", "L5", "L6"}, 0.4)
    found = answered(predictor, scorer=scorer, aim=PROPENSITY, **options)
    assert_same(found, [row[:2] for row in right])


@pytest.mark.parametrize("scorer", SCORERS)
def test_given_labels_get_the_gains_that_they_are_ranked_by(predictor, scorer):
    options = RankingOptions(NUM_LABELS, scorer, aim=PROPENSITY)
    batch = predictor.read(TEXTS)
    ranking = predictor.rank(batch, options)
    np.testing.assert_array_equal(predictor.score(batch, ranking.labels, options), ranking.scores)


def test_explanations_tell_the_scores_without_the_aim(predictor):
    (found,) = predictor.predict(["river law"], k=1, scorer="sparse", aim=PROPENSITY, explain=True)
    parts = {each.scorer: each for each in found.labels[0].explanation.scores}["sparse"]
    assert parts.score == pytest.approx(parts.base + parts.correction + parts.tail_dial)
    assert parts.score != found.labels[0].score


def test_a_scorer_without_fitted_probabilities_has_no_gains(weighed_parts):
    calibrations = {x: each for x, each in CALIBRATIONS.items() if x != "retrieval"}
    some = replace(weighed_parts, calibrations=calibrations, blends={})
    with pytest.raises(RequestError, match="scorer 'retrieval' has no probabilities"):
        Predictor(some, device="cpu").predict(TEXTS, scorer="retrieval", aim=PROPENSITY)
    with pytest.raises(RequestError, match="without the correction of scorer 'linear'"):
        Predictor(some, device="cpu").predict(
            TEXTS, scorer="linear", aim=PROPENSITY, correction="none"
        )
