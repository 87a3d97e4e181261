"""Rules of promises: kept on new documents, against tails and bounds written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit

from longtail.models.fitted.promises import Promise
from longtail.training.fitted.fitting import AnsweredDocuments
from longtail.training.fitted.promises import (
    BAND_STARTS,
    WHOLE,
    accepted_labels,
    bet_p_value,
    fit_promise,
    safe_thresholds,
)

COUNTS = np.repeat([0, 1, 5, 40, 400], [30, 30, 60, 60, 60]).astype(np.int64)
NUM_ANSWERED = 6


def documents_of(
    rng: np.random.Generator, size: int, too_sure: float = 1.0
) -> tuple[AnsweredDocuments, np.ndarray]:
    """Documents whose labels are right together: each has an effect of its own on all of them.

    Returns:
        The documents, and the probability with which each answered label is right.
    """
    labels = rng.permuted(np.tile(np.arange(len(COUNTS)), (size, 1)), axis=1)[:, :NUM_ANSWERED]
    log_odds = -np.sort(-rng.normal(1.5, 2.5, (size, NUM_ANSWERED)), axis=1)
    effect = rng.normal(0, 1.0, (size, 1)) - too_sure * (COUNTS[labels] <= 1)
    shares = expit(log_odds + effect)
    rows, places = np.nonzero(rng.random(labels.shape) < shares)
    ones = np.ones(len(rows), dtype=np.float32)
    truth = csr_array((ones, (rows, labels[rows, places])), shape=(size, len(COUNTS)))
    truth.sort_indices()
    is_like = np.ones(size, dtype=np.bool_)
    return AnsweredDocuments(labels, expit(log_odds), is_like, truth, COUNTS, 9000), shares


@pytest.mark.parametrize(("level", "least_made"), [(0.8, 4.0), (0.9, 1.5)])
def test_all_bands_keep_the_promise_in_nine_of_ten_draws(level: float, least_made: float) -> None:
    rng = np.random.default_rng(5)
    others, shares = documents_of(rng, 3000)
    bands = np.searchsorted(BAND_STARTS, COUNTS[others.labels], side="right") - 1
    is_kept, num_made = [], []
    for _ in range(40):
        documents, _ = documents_of(rng, 700)
        promise = fit_promise(documents, "sparse", "precision", level, 0.9)
        marks = accepted_labels(others, promise)
        made = [number for number, band in enumerate(promise.bands) if band.thresholds]
        is_kept.append(all(shares[marks & (bands == band)].mean() >= level for band in made))
        num_made.append(len(made))
    assert np.mean(is_kept) >= 0.9
    assert np.mean(num_made) >= least_made


def test_a_rule_counts_as_its_promise_accepts_and_says_why_a_band_has_none() -> None:
    documents, _ = documents_of(np.random.default_rng(1), 500, too_sure=4.0)
    own = dict.fromkeys(range(0, len(COUNTS), 7), 0.5)
    promise = fit_promise(documents, "sparse", "precision", 0.8, 0.9, label_thresholds=own)
    marks = accepted_labels(documents, promise)
    bands = np.searchsorted(BAND_STARTS, COUNTS[documents.labels], side="right") - 1
    bands[np.isin(documents.labels, list(own))] = -1
    assert (marks == (documents.probabilities >= 0.5))[bands == -1].all()
    dense = documents.truth.toarray()
    is_right = np.take_along_axis(dense, documents.labels, 1) > 0
    for number, band in enumerate(promise.bands):
        own = marks & (bands == number)
        assert (band.num_accepted, band.num_right) == (own.sum(), (own & is_right).sum())
        assert list(band.thresholds) == sorted(band.thresholds)
        assert bool(band.refusal) == (not band.thresholds)
    refused = promise.bands[0]
    assert refused.thresholds == ()
    assert "probability of at least 0.8" in refused.refusal


def share_of_best_place(documents: AnsweredDocuments, error: float) -> float:
    """The part of the error that the best labels have: P(Poisson(mean) >= 1) / mean."""
    mean = documents.counts.sum() / documents.num_training_documents
    return error * (1 - math.exp(-mean)) / mean


def test_all_bands_together_keep_promises_that_no_band_supports() -> None:
    rng = np.random.default_rng(8)
    others, shares = documents_of(rng, 3000)
    is_kept, num_in_bands, num_of_whole = [], 0, 0
    for _ in range(60):
        documents, _ = documents_of(rng, 100)
        num_in_bands += fit_promise(documents, "sparse", "precision", 0.9, 0.9).can_accept
        for level in (0.9, 0.8):
            whole = fit_promise(documents, "sparse", "precision", level, 0.9, WHOLE)
            if whole.can_accept:
                is_kept.append(shares[accepted_labels(others, whole)].mean() >= level)
                num_of_whole += level == 0.9
    assert num_of_whole > 5 * num_in_bands
    assert len(is_kept) > 60 and np.mean(is_kept) >= 0.9


def test_a_rule_of_the_whole_has_all_of_the_error_by_exact_binomial_tails() -> None:
    documents, _ = documents_of(np.random.default_rng(9), 400)
    (band,) = fit_promise(documents, "sparse", "precision", 0.8, 0.9, WHOLE).bands
    is_best = documents.probabilities[:, 0] >= band.thresholds[0]
    n, wrong = int(is_best.sum()), int((is_best & ~documents.is_right[:, 0]).sum())
    tail = sum(math.comb(n, i) * 0.2**i * 0.8 ** (n - i) for i in range(wrong + 1))
    assert tail <= share_of_best_place(documents, 0.1)
    accepted = accepted_labels(documents, Promise("precision", 0.8, 0.9, "sparse", 400, (band,)))
    assert band.num_accepted == accepted.sum()  # of labels of every band


@pytest.mark.parametrize("starts", [BAND_STARTS, WHOLE])
def test_a_refusal_names_the_highest_level_that_can_be_promised_and_it_is_kept(starts) -> None:
    rng = np.random.default_rng(10)
    others, shares = documents_of(rng, 3000)
    numbers = np.searchsorted(starts, COUNTS[others.labels], side="right") - 1
    is_kept = []
    for draw in range(20):
        documents, _ = documents_of(rng, 250)
        promise = fit_promise(documents, "sparse", "precision", 0.97, 0.9, starts)
        for number, band in enumerate(promise.bands):
            if "highest" not in band.refusal:
                continue
            highest = float(band.refusal.rpartition(" ")[2])
            for level in np.arange(97, round(100 * highest) - 1, -1) / 100 if draw == 0 else ():
                rule = fit_promise(documents, "sparse", "precision", level, 0.9, starts)
                assert bool(rule.bands[number].thresholds) == (level == highest)
            named = fit_promise(documents, "sparse", "precision", highest, 0.9, starts)
            marks = accepted_labels(others, named) & (numbers == number)
            is_kept.append(shares[marks].mean() >= highest)
    assert len(is_kept) > 15 and np.mean(is_kept) >= 0.9


def test_a_threshold_is_safe_by_the_binomial_tail_of_its_wrong_labels() -> None:
    level, error = 0.7, 0.06
    rng = np.random.default_rng(2)
    shares = rng.random(300)
    is_right = rng.random(300) < shares**0.3
    safe = safe_thresholds(shares, is_right, level, error)
    assert safe
    for threshold in safe:
        n = int((shares >= threshold).sum())
        wrong = int((~is_right & (shares >= threshold)).sum())
        chances = (math.comb(n, i) * (1 - level) ** i * level ** (n - i) for i in range(wrong + 1))
        assert sum(chances) <= error
    assert safe_thresholds(shares, np.zeros(300, dtype=np.bool_), level, error) == []


def test_the_mean_over_bets_is_a_p_value_where_the_mean_gain_is_0() -> None:
    rng = np.random.default_rng(3)
    found = [bet_p_value(rng.choice([0.2, -0.8], 80, p=[0.8, 0.2]), 0.8) for _ in range(2000)]
    for error in (0.01, 0.05, 0.1, 0.3):
        assert np.mean(np.array(found) <= error) <= error
    assert bet_p_value(np.full(80, 0.2), 0.8) < 1e-5


def test_a_recall_promise_is_kept_and_refused_where_the_answers_lack_too_many() -> None:
    rng = np.random.default_rng(4)
    others, _ = documents_of(rng, 6000)
    kept = []
    for _ in range(20):
        documents, _ = documents_of(rng, 700)
        promise = fit_promise(documents, "sparse", "recall", 0.6, 0.9, band_starts=[0])
        (band,) = promise.bands
        is_found = accepted_labels(others, promise) & others.is_right
        num_true = np.diff(others.truth.indptr)
        shares = is_found.sum(axis=1)[num_true > 0] / num_true[num_true > 0]
        kept.append(shares.mean() >= 0.6)
        assert band.thresholds[0] > 0.3
    assert np.mean(kept) >= 0.9
    lacking = AnsweredDocuments(
        documents.labels[:, :1], documents.probabilities[:, :1], documents.is_like,
        documents.truth, COUNTS, 9000,
    )  # fmt: skip
    (band,) = fit_promise(lacking, "sparse", "recall", 0.9, 0.9, band_starts=[0]).bands
    assert band.thresholds == ()
    assert "too few" in band.refusal
