"""Queries with an aim, of every scorer, against gains written out over all labels."""

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from longtail.models.bundle.bundle import open_bundle
from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.errors import BundleCorruptError, RequestError
from longtail.models.fitted.aims import AIMS, Aim, names_of
from longtail.models.fitted.familiar_range import FAMILIAR_RANGE, FamiliarRange, ShortTexts
from longtail.models.kinds.storage import read_parts, write_parts
from longtail.models.labels.filters import LabelFilter
from longtail.models.options import COVERAGE, PROPENSITY, RARE_LABELS, RankingOptions
from longtail.models.predict.predictor import Predictor

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
FITTED = {
    RARE_LABELS: Aim(base=0.0, scale=1.0, offset=1.0, exponent=0.7, pivot=0.35),
    COVERAGE: Aim(base=0.0, scale=1.0, offset=1.0, exponent=1.0, pivot=0.0),
    PROPENSITY: Aim(base=1.0, scale=4.0, offset=1.5, exponent=0.55, pivot=0.0),
}

SHORT = FamiliarRange(
    num_documents=100,
    false_alarms=0.01,
    least_known_words=20,
    most_known_words=50,
    most_unknown_share=0.5,
    least_similarity=None,
    short_texts=dict.fromkeys(SCORERS, ShortTexts((1, 3, 20), (-0.5, 0.4, 0.0), (0.5, 2.0, 1.0))),
)
"""By which all texts but the third have probabilities of their own."""


@pytest.fixture(scope="module")
def aimed_parts(parts):
    return replace(
        parts,
        has_hybrid=True,
        calibrations=CALIBRATIONS,
        blends={"ensemble": BLEND},
        fitted={AIMS.name: dict.fromkeys(SCORERS, FITTED)},
    )


@pytest.fixture(scope="module", params=[None, SHORT], ids=["as documents", "short texts"])
def predictor(aimed_parts, request):
    return Predictor(FAMILIAR_RANGE.added_to(aimed_parts, request.param), device="cpu")


def wanted(
    predictor: Predictor,
    scorer: str,
    name: str,
    allowed: set[str] | None = None,
    threshold: float = 0.0,
) -> list[list[tuple[str, float, float]]]:
    """Id, gain and probability of the labels of each text, by a full sort."""
    aim, found = FITTED[name], []
    for prediction in predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer):
        rows = []
        for label in prediction.labels:
            count = predictor.catalogue[label.index].training_count
            weight = float(np.float32(aim.base + aim.scale * (count + aim.offset) ** -aim.exponent))
            above = label.probability - aim.pivot
            if (allowed is None or label.id in allowed) and label.probability >= threshold:
                gain = weight * above if above > 0 else above
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
@pytest.mark.parametrize("aim", FITTED)
@pytest.mark.parametrize("scorer", SCORERS)
def test_labels_are_ordered_by_gain_and_keep_their_probabilities(
    predictor, scorer, aim, k, all_up_to
):
    with mock.patch("longtail.models.ranking.top_k._ALWAYS_UP_TO", all_up_to):
        found = answered(predictor, k=k, scorer=scorer, aim=aim)
    assert_same(found, [row[:k] for row in wanted(predictor, scorer, aim)])


@pytest.mark.parametrize("aim", FITTED)
@pytest.mark.parametrize("scorer", SCORERS)
def test_a_filter_and_a_threshold_leave_labels_to_choose_from(predictor, scorer, aim):
    options = {"k": 2, "threshold": 0.4, "label_filter": LabelFilter(exclude=("L3", "L0"))}
    right = wanted(predictor, scorer, aim, {"L1", "L2", "L4", "L5", "L6"}, 0.4)
    found = answered(predictor, scorer=scorer, aim=aim, **options)
    assert_same(found, [row[:2] for row in right])


@pytest.mark.parametrize("scorer", SCORERS)
def test_given_labels_get_the_gains_that_they_are_ranked_by(predictor, scorer):
    options = RankingOptions(NUM_LABELS, scorer, aim="rare_labels")
    batch = predictor.read(TEXTS)
    ranking = predictor.rank(batch, options)
    np.testing.assert_array_equal(predictor.score(batch, ranking.labels, options), ranking.scores)


def test_explanations_tell_the_scores_without_the_aim(predictor):
    (found,) = predictor.predict(["river law"], k=1, scorer="sparse", aim="coverage", explain=True)
    parts = {each.scorer: each for each in found.labels[0].explanation.scores}["sparse"]
    assert parts.score == pytest.approx(parts.base + parts.correction + parts.tail_dial)
    assert parts.score != found.labels[0].score


def test_an_aim_that_was_not_fitted_is_refused(aimed_parts):
    some = Predictor(AIMS.added_to(aimed_parts, {"sparse": FITTED}), device="cpu")
    assert names_of(AIMS.of(some.parts), "sparse") == (
        "precision",
        "rare_labels",
        "coverage",
        "propensity",
    )
    assert names_of(AIMS.of(some.parts), "retrieval") == ("precision",)
    with pytest.raises(RequestError, match=r"for scorer 'retrieval'; .*, or use one of sparse"):
        some.predict(TEXTS, scorer="retrieval", aim="coverage")
    none = Predictor(AIMS.added_to(aimed_parts, {}), device="cpu")
    with pytest.raises(RequestError, match="leave the aim out, or train again with a dev split"):
        none.predict(TEXTS, scorer="sparse", aim="propensity")


def test_aims_lie_in_the_bundle(aimed_parts, manifest, tmp_path):
    said = replace(
        manifest,
        scorers=aimed_parts.scorers,
        calibrations=CALIBRATIONS,
        blends=aimed_parts.blends,
    )
    write_parts(tmp_path / "whole", aimed_parts, said, tmp_path / "encoder")
    bundle = open_bundle(tmp_path / "whole")
    assert read_parts(bundle).fitted == aimed_parts.fitted


@pytest.mark.parametrize(
    "spoil",
    [
        lambda aims: {name: aims[name] for name in SCORERS[:-1]},
        lambda aims: {**aims, "sparse": {COVERAGE: FITTED[COVERAGE]}},
        lambda aims: {**aims, "names": FITTED},
    ],
)
def test_aims_that_are_not_those_of_the_calibrated_scorers_are_refused(
    aimed_parts, manifest, tmp_path, spoil
):
    parts = AIMS.added_to(aimed_parts, spoil(AIMS.of(aimed_parts)))
    said = replace(manifest, scorers=parts.scorers, calibrations=CALIBRATIONS, blends=parts.blends)
    write_parts(tmp_path / "whole", parts, said, tmp_path / "encoder")
    with pytest.raises(BundleCorruptError, match=f"{AIMS.file} can't be used: aims"):
        read_parts(open_bundle(tmp_path / "whole"))
