"""Promises in a file, in a query, and in predictions."""

from dataclasses import replace

import numpy as np
import pytest

from longtail.models.bundle.manifest import Calibration
from longtail.models.errors import RequestError
from longtail.models.fitted.promises import PROMISES, BandRule, Promise, promise_of
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL

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


def test_each_band_accepts_as_many_of_its_best_labels_as_it_has_thresholds_for() -> None:
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
