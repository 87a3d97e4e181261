"""`hybrid`, `ensemble` and calibrated probabilities of a predictor, against its other scorers."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from longtail.models.bundle.bundle import open_bundle
from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.errors import RequestError
from longtail.models.kinds.storage import read_parts, write_parts
from longtail.models.labels.filters import LabelFilter
from longtail.models.options import RankingOptions
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.predictor import Predictor
from tests.closeness import assert_same_answers

TEXTS = ["river law", "the steel trade and the milk tax", "fish " * 40, "nothing known here"]
NUM_LABELS = 7
UNTRAINED = {2, 5}
BASE = ("retrieval", "classifier", "linear", "sparse")
ALL = ("retrieval", "classifier", "hybrid", "linear", "sparse", "ensemble")
CALIBRATIONS = {
    name: Calibration(knots=(-1.0, place), slopes=(0.5, 1.0 + place, 0.25), intercept=-place)
    for place, name in enumerate(ALL, 1)
    for place in [float(place)]
}
COUNTS = (0, 2, 5, 40)
BLEND = RarityBlend(
    counts=COUNTS, intercepts=(-0.5, 0.0, 0.25, 1.0),
    weights={
        "retrieval": (0.9, 0.6, 0.5, 0.2), "classifier": (0.0, 0.0, 0.0, 0.0),
        "linear": (0.1, 0.2, 0.2, 0.4), "sparse": (0.1, 0.2, 0.3, 0.4),
    },
    floors={"retrieval": -9.0, "classifier": -3.0, "linear": -1.5, "sparse": -0.5},
)  # fmt: skip


@pytest.fixture(scope="module")
def blended_parts(parts):
    return replace(parts, has_hybrid=True, calibrations=CALIBRATIONS, blends={"ensemble": BLEND})


@pytest.fixture(scope="module")
def predictor(blended_parts):
    return Predictor(blended_parts, device="cpu")


@pytest.fixture(scope="module")
def scores(predictor):
    """Scores of all labels in order by every base scorer; -inf where it can't score one."""
    found = {}
    batch = predictor.read(TEXTS)
    for name in BASE:
        ranking = predictor.rank(batch, RankingOptions(NUM_LABELS, name))
        found[name] = np.full((len(TEXTS), NUM_LABELS), -np.inf)
        for row, (labels, some) in enumerate(zip(ranking.labels, ranking.scores, strict=True)):
            found[name][row, labels[labels >= 0]] = some[labels >= 0]
    return found


def sigmoid(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-values))


def log_odds(name: str, values: np.ndarray) -> np.ndarray:
    """Those that a scorer's calibration makes of its scores."""
    line = CALIBRATIONS[name]
    first, second = line.knots
    low, middle, high = line.slopes
    return line.intercept + np.where(
        values < first,
        low * (values - first),
        np.where(
            values < second,
            middle * (values - first),
            middle * (second - first) + high * (values - second),
        ),
    )


def calibrated(name: str, values: np.ndarray) -> np.ndarray:
    return sigmoid(log_odds(name, values))


@pytest.fixture(scope="module")
def wanted(scores, parts):
    """The oracle: log-odds of the two blends."""
    mean = (sigmoid(scores["retrieval"]) + sigmoid(scores["classifier"])) / 2
    ensemble = np.empty((len(TEXTS), NUM_LABELS))
    for label, about in enumerate(parts.catalogue):
        ensemble[:, label] = at(about.training_count, BLEND.intercepts)
        for name, weights in BLEND.weights.items():
            own = np.maximum(log_odds(name, scores[name][:, label]), BLEND.floors[name])
            ensemble[:, label] += at(about.training_count, weights) * own
    return {"hybrid": np.log(mean / (1 - mean)), "ensemble": ensemble}


def at(count: int, values: tuple[float, ...]) -> float:
    """What is piecewise linear in ln(1 + n) between the knots, and constant beyond the last."""
    for place, (start, stop) in enumerate(pairwise(COUNTS)):
        if count <= stop:
            share = math.log((1 + count) / (1 + start)) / math.log((1 + stop) / (1 + start))
            return (1 - share) * values[place] + share * values[place + 1]
    return values[-1]


def log_priors(parts: ModelParts) -> np.ndarray:
    counts = np.array([label.training_count for label in parts.catalogue])
    return np.log((counts + 0.5) / (counts.sum() + 0.5 * NUM_LABELS))


@pytest.mark.parametrize("scorer", ["hybrid", "ensemble"])
@pytest.mark.parametrize("dial", [0.0, 0.5, 3.0])
def test_blends_are_ranked_over_all_labels(predictor, parts, wanted, scorer, dial):
    right = wanted[scorer] - dial * log_priors(parts)
    found = predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer, tail_dial=dial)
    for row, prediction in enumerate(found):
        order = np.argsort(-right[row], kind="stable")
        assert [label.index for label in prediction.labels] == order.tolist()
        got = [label.score for label in prediction.labels]
        np.testing.assert_allclose(got, right[row, order], rtol=1e-4, atol=1e-4)
        assert (prediction.exact, prediction.correction) == (True, "none")


def test_without_the_scorers_that_know_a_label_it_is_not_ranked(parts, constant_blend):
    blends = {"ensemble": constant_blend({"classifier": 0.5, "sparse": 0.5})}
    some = replace(parts, calibrations=CALIBRATIONS, blends=blends)
    predictor = Predictor(some, device="cpu")
    (found,) = predictor.predict(TEXTS[:1], k=NUM_LABELS, scorer="ensemble")
    assert {label.index for label in found.labels} == set(range(NUM_LABELS)) - UNTRAINED
    assert "ensemble" not in predictor.describe(2).scorers
    assert "ensemble" in predictor.describe(1).scorers


@pytest.mark.parametrize("scorer", ["hybrid", "ensemble"])
def test_given_labels_have_the_scores_of_the_ranking(predictor, scorer):
    batch = predictor.read(TEXTS)
    options = RankingOptions(NUM_LABELS, scorer, tail_dial=0.5)
    ranking = predictor.rank(batch, options)
    found = predictor.score(batch, ranking.labels, options)
    np.testing.assert_array_equal(found, ranking.scores)


def test_all_scorers_together_score_as_each_alone(predictor):
    batch = predictor.read(TEXTS)
    labels = np.tile(np.arange(-1, NUM_LABELS), (len(TEXTS), 1))
    found = predictor.scorers.score_by_all(batch, labels)
    assert tuple(found) == predictor.scorers.names
    for scorer, scores in found.items():
        alone = predictor.score(batch, labels, RankingOptions(scorer=scorer))
        np.testing.assert_array_equal(scores, alone)


@pytest.mark.parametrize("scorer", ["hybrid", "ensemble"])
def test_blends_heed_a_label_filter_and_are_explained(predictor, scorer):
    everything = predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer)
    some = LabelFilter(include=("L1", "L2", "L6"))
    found = predictor.predict(TEXTS, k=3, scorer=scorer, label_filter=some, explain=True)
    for few, all_labels in zip(found, everything, strict=True):
        plain = [replace(label, explanation=None) for label in few.labels]
        assert plain == [x for x in all_labels.labels if x.index in {1, 2, 6}]
        told = {part.scorer: part.score for part in few.labels[0].explanation.scores}
        assert told[scorer] == few.labels[0].score


@pytest.mark.parametrize("scorer", ALL)
def test_probabilities_are_calibrated_and_fall_with_the_scores(predictor, scorer):
    for prediction in predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer):
        for label in prediction.labels:
            right = calibrated(scorer, np.array(label.score))
            assert label.probability == pytest.approx(float(right), rel=1e-6)
        found = [label.probability for label in prediction.labels]
        assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("scorer", ALL)
def test_a_threshold_means_the_calibrated_probability(predictor, scorer):
    everything = predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer)
    middle = everything[0].labels[2].probability
    found = predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer, threshold=middle)
    for some, whole in zip(found, everything, strict=True):
        assert some.labels == tuple(x for x in whole.labels if (x.probability or 0) >= middle)
    assert len(found[0].labels) == 3


LINE = {"counts": (0, 3, 30), "shifts": (-2.0, 1.5, 3.0), "factors": (0.5, 2.0, 1.0)}


@pytest.fixture(scope="module")
def uneven(blended_parts):
    """A model whose probabilities don't fall with the scores."""
    lines = {name: replace(each, **LINE) for name, each in CALIBRATIONS.items()}
    return Predictor(replace(blended_parts, calibrations=lines), device="cpu")


@pytest.mark.parametrize("scorer", ALL)
def test_probabilities_by_rarity_leave_scores_as_they_are(predictor, uneven, scorer):
    found = uneven.predict(TEXTS, k=NUM_LABELS, scorer=scorer)
    before = predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer)
    places = np.log1p(LINE["counts"])
    for some, others in zip(found, before, strict=True):
        assert [(x.index, x.score) for x in some.labels] == [
            (x.index, x.score) for x in others.labels
        ]
        for label in some.labels:
            place = np.log1p(uneven.catalogue[label.index].training_count)
            shift, factor = (np.interp(place, places, x) for x in (LINE["shifts"], LINE["factors"]))
            right = sigmoid(shift + factor * log_odds(scorer, np.array(label.score)))
            assert label.probability == pytest.approx(float(right), rel=1e-6)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("scorer", ALL)
def test_the_best_labels_that_pass_a_threshold_are_found_behind_others(uneven, scorer, k):
    """The oracle: all labels, of which those below the threshold are left out."""
    everything = uneven.predict(TEXTS, k=NUM_LABELS, scorer=scorer)
    values = {x.probability for each in everything for x in each.labels if x.probability}
    for threshold in sorted(values):
        found = uneven.predict(TEXTS, k=k, scorer=scorer, threshold=threshold)
        for some, whole in zip(found, everything, strict=True):
            passing = tuple(x for x in whole.labels if (x.probability or 0) >= threshold)
            assert some.labels == passing[:k]


def test_such_probabilities_do_not_fall_with_the_scores(uneven):
    for each in uneven.predict(TEXTS[:2], k=NUM_LABELS, scorer="ensemble"):
        found = [x.probability for x in each.labels]
        assert found != sorted(found, reverse=True)


@pytest.mark.parametrize("options", [{"tail_dial": 0.5}, {"correction": "none"}])
def test_scores_that_were_changed_have_no_probability(predictor, options):
    (found,) = predictor.predict(TEXTS[:1], scorer="linear", **options)
    assert {label.probability for label in found.labels} == {None}
    with pytest.raises(RequestError, match=r"leaves no probabilities to compare with it"):
        predictor.predict(TEXTS[:1], scorer="linear", threshold=0.5, **options)


def test_a_blend_reads_what_its_scorers_read(predictor, parts, constant_blend):
    needs = {name: predictor.scorers.needs_encoder(name) for name in ALL}
    assert needs == dict.fromkeys(ALL, True) | {"sparse": False}
    batch = predictor.read(TEXTS)
    lengths = predictor.prepare(batch, "ensemble")
    assert "features" in batch._kept and "vectors" not in batch._kept
    assert lengths == predictor.prepare(predictor.read(TEXTS), "retrieval")
    prepared = predictor.read(TEXTS)
    predictor.prepare(prepared, "hybrid")
    assert "features" not in prepared._kept
    blends = {"ensemble": constant_blend({"sparse": 1.0})}
    alone = Predictor(replace(parts, calibrations=CALIBRATIONS, blends=blends), device="cpu")
    assert not alone.scorers.needs_encoder("ensemble")
    (found,) = alone.predict(TEXTS[:1], scorer="ensemble")
    assert found.num_tokens == 2
    (other,) = alone.predict(TEXTS[:1], scorer="sparse")
    assert [x.index for x in found.labels] == [x.index for x in other.labels]


@pytest.fixture
def write(blended_parts, manifest, tmp_path):
    def write_one(**changes: object) -> Path:
        told = replace(
            manifest, scorers=ALL, default_scorer="ensemble", calibrations=CALIBRATIONS,
            blends={"ensemble": BLEND}, **changes,
        )  # fmt: skip
        write_parts(tmp_path / "bundle", blended_parts, told, tmp_path / "scratch")
        return tmp_path / "bundle"

    return write_one


def test_a_bundle_brings_its_blends_back(write, predictor, blended_parts):
    bundle = open_bundle(write())
    assert read_parts(bundle).calibrations == blended_parts.calibrations
    loaded = Predictor.of_bundle(bundle, device="cpu")
    assert loaded.scorers.default == "ensemble"
    for scorer in ALL:
        assert_same_answers(*(each.predict(TEXTS, scorer=scorer) for each in (loaded, predictor)))
