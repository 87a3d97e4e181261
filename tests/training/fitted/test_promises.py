"""Rules of promises: kept on new documents, against tails and bounds written out."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit

from longtail.models.bundle.manifest import Calibration
from longtail.models.fitted.promises import Promise
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import Ranking
from longtail.training.fitted.familiar_range import cut, fit_short_texts
from longtail.training.fitted.fitting import AnsweredDocuments
from longtail.training.fitted.promises import (
    BAND_STARTS,
    WHOLE,
    accepted_labels,
    bet_p_value,
    fit_promise,
    safe_thresholds,
)
from tests.closeness import assert_all_close

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
def test_all_bands_keep_the_promise_in_nine_of_ten_draws(level, least_made):
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


def test_a_rule_counts_as_its_promise_accepts_and_says_why_a_band_has_none():
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


def test_all_bands_together_keep_promises_that_no_band_supports():
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


def test_a_rule_of_the_whole_has_all_of_the_error_by_exact_binomial_tails():
    documents, _ = documents_of(np.random.default_rng(9), 400)
    (band,) = fit_promise(documents, "sparse", "precision", 0.8, 0.9, WHOLE).bands
    is_best = documents.probabilities[:, 0] >= band.thresholds[0]
    n, wrong = int(is_best.sum()), int((is_best & ~documents.is_right[:, 0]).sum())
    tail = sum(math.comb(n, i) * 0.2**i * 0.8 ** (n - i) for i in range(wrong + 1))
    assert tail <= share_of_best_place(documents, 0.1)
    accepted = accepted_labels(documents, Promise("precision", 0.8, 0.9, "sparse", 400, (band,)))
    assert band.num_accepted == accepted.sum()  # of labels of every band


@pytest.mark.parametrize("starts", [BAND_STARTS, WHOLE])
def test_a_refusal_names_the_highest_level_that_can_be_promised_and_it_is_kept(starts):
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


def test_a_threshold_is_safe_by_the_binomial_tail_of_its_wrong_labels():
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


def test_the_mean_over_bets_is_a_p_value_where_the_mean_gain_is_0():
    rng = np.random.default_rng(3)
    found = [bet_p_value(rng.choice([0.2, -0.8], 80, p=[0.8, 0.2]), 0.8) for _ in range(2000)]
    for error in (0.01, 0.05, 0.1, 0.3):
        assert np.mean(np.array(found) <= error) <= error
    assert bet_p_value(np.full(80, 0.2), 0.8) < 1e-5


def test_a_recall_promise_is_kept_and_refused_where_the_answers_lack_too_many():
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


NUM_TEXTS, NUM_LABELS = 400, 12
LINE = Calibration(knots=(0.0,), slopes=(2.0, 2.0), intercept=-1.0)


class Words(TextBatch):
    """Texts of which all words are known."""

    def __init__(self, texts):
        self.texts = texts

    @property
    def word_counts(self):
        words = np.array([len(text.split()) for text in self.texts])
        return np.column_stack([words, words])


class Exaggerating(Predictor):
    """Gives log-odds that are right in documents; in short texts 3 times those, and 1 too high."""

    def __init__(self, log_odds):
        self.parts = SimpleNamespace(calibrations={"sparse": LINE})
        self.scorers = SimpleNamespace(names=("sparse",), score_by_all=self.score_by_all)
        self.catalogue = LabelCatalogue([Label(str(i), str(i)) for i in range(NUM_LABELS)])
        self._scores = ((3 * log_odds + 1 + 1) / 2).astype(np.float32)

    def read(self, texts):
        return Words(texts)

    def rank(self, batch, options):
        order = np.argsort(-self._scores, axis=1, kind="stable")[:, : options.k].astype(np.int64)
        return Ranking(order, np.take_along_axis(self._scores, order, axis=1))

    def score_by_all(self, batch, labels):
        there = np.take_along_axis(self._scores, np.maximum(labels, 0), axis=1)
        return {"sparse": np.where(labels >= 0, there, -np.inf).astype(np.float32)}


@pytest.fixture
def drawn():
    rng = np.random.default_rng(3)
    log_odds = rng.normal(-1, 1.5, (NUM_TEXTS, NUM_LABELS))
    is_true = rng.random(log_odds.shape) < expit(log_odds)
    return log_odds, csr_array(is_true.astype(np.float32))


def test_the_line_is_found_that_makes_probabilities_right(drawn):
    log_odds, truth = drawn
    texts = ["word " * 40] * NUM_TEXTS
    found = fit_short_texts(Exaggerating(log_odds), texts, truth, least_known_words=12)["sparse"]
    assert found.known_words == (2, 4, 8, 12)
    assert_all_close(found.factors[:3], 1 / 3, rtol=0.1)
    np.testing.assert_allclose(found.shifts[:3], -1 / 3, atol=0.1)


def test_where_documents_are_short_or_teach_too_little_nothing_changes(drawn):
    log_odds, truth = drawn
    model, texts = Exaggerating(log_odds), ["word " * 40] * NUM_TEXTS
    assert fit_short_texts(model, texts, truth, least_known_words=2) == {}
    assert (
        fit_short_texts(
            model, texts, csr_array(truth.shape, dtype=np.float32), least_known_words=12
        )
        == {}
    )


def test_pieces_are_the_first_words_or_any_neighbours_and_whole_where_there_are_no_more():
    text = "one  two,\nthree four five six seven"
    first, anywhere, whole = cut([text, text, "a b"], 3)
    assert first == "one  two,\nthree"
    assert anywhere in text
    assert (len(anywhere.split()), whole) == (3, "a b")
