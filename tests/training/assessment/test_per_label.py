"""Figures of single labels and of promises, against counts written out."""

from __future__ import annotations

import csv
from collections import Counter

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import binomtest
from sklearn.metrics import f1_score

from longtail.models.fitted.label_figures import LabelFigures, wilson_bounds
from longtail.models.fitted.promises import BandRule, Promise
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.training.assessment.per_label import COLUMNS, measure_labels, write_per_label
from longtail.training.fitted.fitting import AnsweredDocuments
from longtail.training.fitted.promises import (
    BAND_STARTS,
    SET_BY_PEOPLE,
    accepted_labels,
    clustered_bounds,
    measure_promise,
)

NUM_DOCUMENTS, NUM_LABELS, NUM_ANSWERED = 60, 12, 6
COUNTS = np.array([0, 0, 1, 1, 4, 4, 30, 30, 200, 200, 200, 0], dtype=np.int64)


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(7)
    dense = rng.random((NUM_DOCUMENTS, NUM_LABELS)) < 0.25
    dense[:5] = False
    known = np.tile(np.arange(NUM_LABELS - 1), (NUM_DOCUMENTS, 1))  # the last one is unknown
    labels = rng.permuted(known, axis=1)[:, :NUM_ANSWERED]
    probabilities = -np.sort(-rng.random(labels.shape), axis=1)
    labels[7, 4:], probabilities[7, 4:] = -1, 0.0
    is_like = np.arange(NUM_DOCUMENTS) % 9 > 0
    truth = csr_array(dense.astype(np.float32))
    return AnsweredDocuments(labels, probabilities, is_like, truth, COUNTS, 400)


def test_each_label_is_counted_and_confused_as_when_looked_up_one_by_one(documents):
    found = measure_labels(documents, 0.4)
    truth = documents.truth.toarray() > 0
    predicted = np.zeros_like(truth)
    for row, (labels, shares) in enumerate(
        zip(documents.labels, documents.probabilities, strict=True)
    ):
        predicted[row, labels[(shares >= 0.4) & (labels >= 0)]] = True
    shares = found.shares()
    for label in range(NUM_LABELS):
        own, said = truth[:, label], predicted[:, label]
        assert found.num_true[label] == own.sum()
        assert found.num_predicted[label] == said.sum()
        assert found.num_right[label] == (own & said).sum()
        if own.any() or said.any():
            assert shares["f1"][label, 0] == pytest.approx(f1_score(own, said, zero_division=0))
        confused = Counter()
        for row in range(NUM_DOCUMENTS):
            missed = set(np.flatnonzero(truth[row] & ~predicted[row]))
            wrong = set(np.flatnonzero(predicted[row] & ~truth[row]))
            confused.update(wrong if label in missed else ())
            confused.update(missed if label in wrong else ())
        most = max(confused.values(), default=0)
        first = min((x for x, count in confused.items() if count == most), default=-1)
        assert (found.confused_with[label], found.num_confused[label]) == (first, most)


def test_the_file_has_a_row_for_each_label_and_leaves_what_is_not_measured_blank(
    documents, tmp_path
):
    labels = [Label(f"L{i}", f'a "name", {i}', training_count=i) for i in range(NUM_LABELS - 1)]
    figures = measure_labels(documents, 0.99)
    write_per_label(tmp_path / "out.csv", figures, LabelCatalogue(labels))
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [(x["id"], x["name"]) for x in rows] == [(label.id, label.name) for label in labels]
    assert {bool(x["precision"]) for x in rows if x["predicted"] == "0"} == {False}
    assert all(x["recall_low"] <= x["recall"] <= x["recall_high"] for x in rows)


def test_figures_come_back_as_they_were_and_damaged_ones_do_not(documents):
    known = LabelFigures(*(np.append(each, 0) for each in ([0, 3, 2], [0, 1, 0], [0, 1, 0])))
    text = known.to_json()
    assert text == "[[1,3,1,1],[2,2,0,0]]\n"
    for found in (LabelFigures.from_json(text, 4), known):
        assert [x.tolist() for x in (found.num_true, found.num_predicted, found.num_right)] == [
            [0, 3, 2, 0], [0, 1, 0, 0], [0, 1, 0, 0],
        ]  # fmt: skip
    assert LabelFigures.from_json("[]", 4).num_true.tolist() == [0] * 4
    for damaged in ("{}", "[[1,3,1]]", "[[1,3,1,-1]]", "[[1,3,1,2]]", "[[2,1,1,1],[1,1,1,1]]"):
        with pytest.raises(ValueError, match=r"expected|missing"):
            LabelFigures.from_json(damaged, 4)
    with pytest.raises(ValueError, match="rows below 2"):
        LabelFigures.from_json(text, 2)


def test_intervals_are_those_of_scipy_and_widen_where_cases_come_together():
    parts, wholes = np.array([0, 3, 10, 97]), np.array([5, 7, 10, 100])
    found = np.stack(wilson_bounds(parts, wholes), axis=1)
    for (part, whole), bounds in zip(zip(parts, wholes, strict=True), found, strict=True):
        expected = binomtest(int(part), int(whole)).proportion_ci(0.95, method="wilson")
        assert bounds == pytest.approx([expected.low, expected.high])
    one_each = (np.repeat([1.0, 0.0], [90, 10]), np.ones(100))
    together = (np.repeat([10.0, 0.0], [9, 1]), np.full(10, 10.0))
    narrow, wide = clustered_bounds(*one_each), clustered_bounds(*together)
    assert narrow == pytest.approx([x[0] for x in wilson_bounds(np.array([90]), np.array([100]))])
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_what_a_promise_lets_through_is_what_it_accepts_text_by_text(documents):
    thresholds = [(), (0.5,), (0.2, 0.6), (0.3,), (0.1, 0.1, 0.4)]
    rules = tuple(map(BandRule, BAND_STARTS, thresholds))
    own = {int(np.argmax(least <= COUNTS)): 0.25 for least in BAND_STARTS[1:]}
    promise = Promise("precision", 0.5, 0.9, "sparse", 100, rules, own)
    kept = measure_promise(documents, promise)
    accepted = accepted_labels(documents, promise)
    assert accepted.any() and not accepted[~documents.is_like].any()
    right = accepted & documents.is_right
    of_labels = np.searchsorted(BAND_STARTS, COUNTS, side="right") - 1
    of_labels[list(own)] = len(BAND_STARTS)
    numbers, true = of_labels[documents.labels], of_labels[documents.truth.indices]
    assert list(kept.bands) == ["1", "2-9", "10-99", "100+", SET_BY_PEOPLE, "all"]
    for number, name in enumerate(kept.bands, 1):
        is_in = np.ones_like(accepted) if name == "all" else numbers == number
        num_true = len(true) if name == "all" else (true == number).sum()
        found = kept.bands[name]
        assert (found.num_accepted, found.num_right) == (
            (accepted & is_in).sum(),
            (right & is_in).sum(),
        )
        assert found.num_true == num_true
        assert found.lower <= found.share <= found.upper
    assert kept.num_served == accepted.any(axis=1).sum()
    is_empty = np.diff(documents.truth.indptr) == 0
    assert (kept.num_empty, kept.num_false_alarms) == (
        is_empty.sum(), accepted[is_empty].any(axis=1).sum(),
    )  # fmt: skip
