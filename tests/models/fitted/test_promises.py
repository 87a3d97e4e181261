"""Promises in a file, in a query, and in predictions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logit

from longtail.models.bundle.manifest import Calibration
from longtail.models.errors import RequestError
from longtail.models.fitted.familiar_range import FAMILIAR_RANGE, FamiliarRange, ShortTexts
from longtail.models.fitted.label_counts import LABEL_COUNTS, PlaceThreshold
from longtail.models.fitted.promises import PROMISES, BandRule, Promise, promise_of
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.results import Familiarity
from longtail.models.scorers.calibration import log_odds_of

RULES = (BandRule(0, (), refusal="too few"), BandRule(1, (0.6,), 40, 39), BandRule(9, (0.4, 0.5)))
PRECISE = Promise("precision", 0.95, 0.9, "sparse", 200, RULES)
CURVE = Calibration(knots=(0.0,), slopes=(1.0, 1.0), intercept=1.0)
COMPLETE = replace(PRECISE, measure="recall", level=0.9, label_thresholds={17: 0.25})


def accepted_one_by_one(promise: Promise, labels, counts, shares) -> list[bool]:
    """Return which labels of one text are accepted, best first, by the rules written out."""
    places, marks = [0] * len(promise.bands), []
    for label, count, share in zip(labels, counts, shares, strict=True):
        if label in promise.label_thresholds:
            marks.append(share >= promise.label_thresholds[label])
        elif label != NO_LABEL:
            number = max(i for i, band in enumerate(promise.bands) if band.least <= count)
            left = promise.bands[number].thresholds[places[number] :]
            places[number] += 1
            marks.append(bool(left) and share >= left[0])
        else:
            marks.append(False)
    return marks


def test_each_band_accepts_as_many_of_its_best_labels_as_it_has_thresholds_for():
    counts = np.array([[20, 0, 3, 20, 2, 20]])
    shares = np.array([[0.9, 0.9, 0.7, 0.45, 0.65, 0.4]])
    found = PRECISE.accepted(np.arange(6)[None], counts, shares)
    assert found.tolist() == [[True, False, True, False, False, False]]
    own = replace(PRECISE, label_thresholds={0: 0.95, 1: 0.9})  # these win, and take no place
    found = own.accepted(np.arange(6)[None], counts, shares)
    assert found.tolist() == [[False, True, True, True, False, False]]
    rng = np.random.default_rng(0)
    counts = rng.choice([0, 1, 5, 9, 400], 30)
    labels = rng.permuted(np.tile(np.arange(30), (50, 1)), axis=1)[:, :9]
    labels[:5, 6:] = NO_LABEL
    shares = -np.sort(-rng.random(labels.shape), axis=1)
    for promise in (PRECISE, replace(own, label_thresholds=dict.fromkeys(range(0, 30, 4), 0.3))):
        rows = zip(labels, counts[labels], shares, strict=True)
        expected = [accepted_one_by_one(promise, *row) for row in rows]
        assert promise.accepted(labels, counts[labels], shares).tolist() == expected


def test_promises_come_back_as_they_were_and_damaged_ones_do_not():
    text = PROMISES.to_json((PRECISE, COMPLETE))
    assert PROMISES.from_json(text, 1) == (PRECISE, COMPLETE)
    for before, after in [
        ("0.95", "1.5"),
        ('"least": 0', '"least": 7'),
        ("0.6", '"much"'),
        ("0.25", "2.5"),
    ]:
        assert before in text
        with pytest.raises(ValueError, match=r"bands begin|expected"):
            PROMISES.from_json(text.replace(before, after), 1)


def test_a_query_names_a_promise_by_its_precision_by_its_name_or_takes_the_default():
    made = [PRECISE, COMPLETE]
    assert promise_of(made, "sparse", True) is PRECISE
    assert promise_of(made, "sparse", 0.95) is PRECISE
    assert promise_of(made, "sparse", "recall 0.9") is COMPLETE
    for scorer, accept in [("sparse", 0.9), ("names", True), ("sparse", "precision")]:
        with pytest.raises(RequestError, match="it has 'precision"):
            promise_of(made, scorer, accept)


@pytest.fixture
def predictor(parts):
    calibrations = {"sparse": CURVE}
    rules = (BandRule(0, (0.0,) * 7),)
    promise = Promise("precision", 0.95, 0.9, "sparse", 200, rules)
    promises = (promise, replace(promise, level=0.99, bands=(BandRule(0, (1.0,)),)))
    calibrated = replace(parts, calibrations=calibrations)
    return Predictor(PROMISES.added_to(calibrated, promises), device="cpu")


def test_labels_are_marked_and_ranked_as_without_a_promise(predictor):
    texts = ["river law", "nothing known here"]
    plain, unknown = predictor.predict(texts, k=3, scorer="sparse")
    marked, abstaining = predictor.predict(texts, k=3, scorer="sparse", accept=0.95)
    assert [label.accepted for label in plain.labels] == [None] * 3
    assert [label.accepted for label in marked.labels] == [True] * 3
    assert tuple(replace(label, accepted=None) for label in marked.labels) == plain.labels
    assert (plain.abstained_because, marked.abstained_because) == (None, None)
    assert (unknown.known_tokens, abstaining.abstained_because) == (0, "no-known-word")
    (found,) = predictor.predict(["river law"], scorer="sparse", accept="precision 0.99")
    assert {label.accepted for label in found.labels} == {False}
    assert found.abstained_because == "below-threshold"
    (empty,) = predictor.predict(["river law"], scorer="sparse", accept=0.95, threshold=1.0)
    assert (empty.labels, empty.abstained_because) == ((), "below-threshold")


@pytest.mark.parametrize("options", [{"aim": "propensity"}, {"tail_dial": 0.5}, {"accept": 0.5}])
def test_a_promise_of_other_scores_or_that_nobody_made_is_refused(predictor, options):
    with pytest.raises(RequestError, match="accept"):
        predictor.predict(["river law"], **{"scorer": "sparse", "accept": True} | options)


def test_promises_of_no_such_scorer_or_label_contradict_their_model(parts):
    calibrated = replace(parts, calibrations={"sparse": CURVE})
    assert PROMISES.problem((PRECISE,), calibrated) == ""
    assert PROMISES.problem((PRECISE,), parts).startswith("promises of ['sparse']")
    assert PROMISES.problem((COMPLETE,), calibrated) == (
        f"a threshold of label row 17, expected less than {len(parts.catalogue)}"
    )


def test_a_card_names_the_promises_of_each_scorer():
    (line,) = PROMISES.card((PRECISE, COMPLETE))
    assert line.endswith(
        "of sparse can go through without a person: precision 0.95 (confidence 0.9), recall 0.9 "
        "(confidence 0.9)."
    )


def documents(num, seed, *, has_nearest=True):
    rng = np.random.default_rng(seed)
    lengths = np.maximum(5, rng.lognormal(4, 0.5, num)).astype(int)
    known = rng.binomial(lengths, 0.9)
    nearest = rng.beta(5, 5, num).tolist() if has_nearest else [None] * num
    rows = zip(lengths.tolist(), known.tolist(), nearest, strict=True)
    return [Familiarity(*row) for row in rows]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (Familiarity(4, 4, None), "4 known words"),
        (Familiarity(9000, 9000, None), "9000 known words"),
        (Familiarity(100, 30, None), "70% of its words are unknown"),
        (Familiarity(50, 45, 0.0), "similarity"),
        (Familiarity(0, 0, None), "0 known words"),
    ],
)
def test_a_text_that_is_outside_is_told_with_the_reason(text, told):
    found = FamiliarRange.of_documents(documents(500, 1))
    (warning,) = found.warnings_about(text)
    assert (warning.code, warning.label_ids) == ("unlike-training", ())
    assert told in warning.detail
    assert not found.warnings_about(Familiarity(55, 50, 0.5))


RULE = PlaceThreshold(first=-0.8, rise=0.2)


def test_the_threshold_rises_with_the_place_of_a_label_in_its_text():
    probabilities = np.array([[0.6, 0.5, 0.4], [0.5, 0.4, 0.3], [0.4, 0.2, 0.1]])
    rule = PlaceThreshold(first=0.0, rise=0.0)
    assert rule.of_texts(logit(probabilities)).tolist() == [0.0, 0.0, np.inf]
    falling = -np.sort(-np.random.default_rng(0).normal(size=(50, 9)), axis=1)
    rule = PlaceThreshold(first=-0.5, rise=0.7)
    for log_odds, least in zip(falling, rule.of_texts(falling), strict=True):
        count = sum(each >= -0.5 + 0.7 * math.log(i) for i, each in enumerate(log_odds, 1))
        assert (log_odds >= least).sum() == count


def test_label_counts_come_back_as_they_were_and_damaged_ones_do_not():
    found = {"sparse": PlaceThreshold(-0.5, 0.3), "names": PlaceThreshold(1.0, 0.0)}
    text = LABEL_COUNTS.to_json(found)
    assert LABEL_COUNTS.from_json(text, 1) == found
    for damaged in ("[]", text.replace("0.3", "-0.3"), text.replace("rise", "fall")):
        with pytest.raises(ValueError, match=r"expected|missing|unknown"):
            LABEL_COUNTS.from_json(damaged, 1)


@pytest.fixture(params=[{}, {"counts": (0, 3), "shifts": (-2.0, 1.0), "factors": (0.5, 2.0)}])
def counting(parts, request):
    """A model with probabilities that fall with the scores, and one with others."""
    calibrations = {
        name: Calibration((0.0,), slopes=(2.0, 2.0), intercept=-1.0, **request.param)
        for name in ("sparse", "retrieval")
    }
    counts = {"sparse": RULE}
    calibrated = replace(parts, calibrations=calibrations)
    return Predictor(LABEL_COUNTS.added_to(calibrated, counts), device="cpu")


def test_a_text_gets_the_labels_above_its_own_threshold_whatever_k_is(counting):
    texts = ["river law", "the steel trade and the milk tax"]
    num_labels = len(counting.catalogue)
    every = counting.predict(texts, k=num_labels, scorer="sparse")
    found = counting.predict(texts, k=num_labels, scorer="sparse", threshold="auto")
    first = counting.predict(texts, k=1, scorer="sparse", threshold="auto")
    for all_labels, some, one in zip(every, found, first, strict=True):
        log_odds = [2 * label.score - 1 for label in all_labels.labels]
        (least,) = RULE.of_texts(np.array([log_odds]))
        assert some.labels == all_labels.labels[: sum(each >= least for each in log_odds)]
        assert one.labels == some.labels[:1]


@pytest.mark.parametrize("options", [{"scorer": "retrieval"}, {"aim": "propensity"}])
def test_auto_is_refused_where_it_has_no_threshold_or_beside_an_aim(counting, options):
    with pytest.raises(RequestError, match="auto"):
        counting.predict(["river law"], threshold="auto", **{"scorer": "sparse"} | options)


BENT = Calibration(knots=(-1.0, 2.0), slopes=(0.5, 1.0, 4.0), intercept=-3.0)
LINE = ShortTexts(known_words=(2, 8, 32), shifts=(-1.0, 0.5, 0.0), factors=(0.5, 0.75, 1.0))
SCORES = np.linspace(-4, 6, 50).astype(np.float32)


@pytest.mark.parametrize(
    ("known", "shift", "factor"),
    [(0, -1.0, 0.5), (2, -1.0, 0.5), (4, -0.25, 0.625), (16, 0.25, 0.875)],
)
def test_the_line_lies_between_its_knots_in_the_logarithm_of_the_words(known, shift, factor):
    found = log_odds_of(LINE.of_text(BENT, known), SCORES)
    np.testing.assert_allclose(found, shift + factor * log_odds_of(BENT, SCORES), atol=1e-12)
    assert (np.diff(found) > 0).all()


def test_documents_stay_as_they_are():
    assert LINE.of_text(BENT, 32) is None
    assert LINE.of_text(BENT, 1000) is None


@pytest.mark.parametrize(
    "wrong",
    [
        ((8, 2, 32), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)), ((0, 32), (0.0, 0.0), (1.0, 1.0)),
        ((), (), ()), ((2, 32), (0.0,), (1.0, 1.0)), ((2, 32), (0.0, 0.5), (1.0, 1.0)),
        ((2, 32), (0.0, 0.0), (0.0, 1.0)), ((2, 32), (float("nan"), 0.0), (1.0, 1.0)),
    ],
)  # fmt: skip
def test_lines_that_change_the_order_or_documents_are_refused(wrong):
    with pytest.raises((ValueError, TypeError), match="expected"):
        ShortTexts(*wrong)


def test_they_lie_in_the_file_of_what_documents_are_like():
    found = FamiliarRange(100, 0.01, 32, 500, 0.2, None, {"sparse": LINE})
    assert FAMILIAR_RANGE.from_json(FAMILIAR_RANGE.to_json(found), 1) == found
    with pytest.raises(ValueError, match="shifts: missing"):
        FAMILIAR_RANGE.from_json(FAMILIAR_RANGE.to_json(found).replace("shifts", "moves"), 1)
