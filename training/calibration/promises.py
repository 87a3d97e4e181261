"""Finding the rules of promises, with a guarantee for finite samples.

Learn then Test (Angelopoulos, Bates, Candès, Jordan & Lei 2021, arXiv:2110.01052): each threshold
has the null hypothesis that it breaks the promise, and a threshold whose hypothesis is rejected is
safe. Documents are exchangeable, the labels of one document are not: where one is wrong, others are
more likely wrong, too. So a document is the unit, and the labels of a band of rarity are looked at
place by place: the best one of each document, then the second best one of each, and so on.

Precision q: of the documents whose label of one place has at least the probability t, each has a
right or a wrong one. So given how many there are, n, the number of right ones is binomial, and
P(Bin(n, 1 - q) <= number of wrong ones) is an exact p-value of "the precision is at most q".
Thresholds are tested in a fixed order, from high to low. A rejected hypothesis hands its share of
the error on to the next one, so that their number needs no correction; where one is not rejected,
its share is lost. As too few labels lie above a very high threshold to say anything, the error
enters in parts, at four thresholds (a graphical procedure of Bretz, Maurer, Brannath & Posch 2009).

Of delta = 1 - confidence each band has an equal share (Bonferroni). Of this, the places of a band
have shares in proportion to the chance that a document carries as many labels of the band (Poisson,
with the mean of the training documents). So with the confidence all places of all bands keep the
promise at once, and therefore also every mixture of them: the accepted labels of a band, and those
of all bands.

Recall q: in documents that carry labels of the band, let Z_d be the share of them with at least the
probability t, less q. The null hypothesis is E[Z_d] <= 0. As Z_d >= -q, for each bet b from 0 to
1 / q the product of 1 + b Z_d is at least 0, and under the null hypothesis its mean is at most 1;
so is that of the mean over some bets. By Markov's inequality 1 over it is a p-value (Waudby-Smith &
Ramdas 2024, arXiv:2010.09686). Thresholds are tested from low to high, in one sequence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array
from scipy.special import expit, logit, logsumexp
from scipy.stats import binom, poisson

from longtail.models.scorers.promises import PRECISION_PROMISE, BandRule, Measure, Promise
from longtail.training.evaluation.by_frequency import ALL_LABELS, FREQUENCY_BINS

BAND_STARTS = tuple(first for first, _ in FREQUENCY_BINS.values())
"""Fewest training documents of a label of each band."""
WHOLE = (0,)  # one band, of all labels
_STEP = 0.2
"""Of the thresholds' log-odds."""
_LEAST_THRESHOLD = 0.05
_LEAST_FOR_RECALL = 1e-4
_STARTS = {16.0: 0.1, 4.0: 0.2, 1.0: 0.3, 0.5: 0.4}
"""At the threshold 1 - (1 - q) / key this part of the error enters."""
_LEAST_MEAN = 0.1
"""Labels of a band in a document: of bands without training documents, too."""
_BETS = np.append(2.0 ** -np.arange(8, 0, -1), [0.75, 0.95])
"""Shares of the largest one."""


@dataclass(frozen=True)
class AnsweredDocuments:
    """What one scorer answers about documents, and which of it is right.

    Attributes:
        labels: Label indices, best first; -1 behind the last one.
        probabilities: As calibrated, falling; 0 where there is no label.
        is_like: Whether the text is like those of the training, with known words; of others no
            label is accepted.
        truth: The labels of each document; those that the model lacks after all others.
        counts: Training documents of each label.
        num_training_documents: All of them.
    """

    labels: Int64[np.ndarray, "document k"]
    probabilities: Float64[np.ndarray, "document k"]
    is_like: Bool[np.ndarray, document]
    truth: Float32[csr_array, "document label_or_unseen"]
    counts: Int64[np.ndarray, label_or_unseen]
    num_training_documents: int

    @cached_property
    def is_right(self) -> Bool[np.ndarray, "document k"]:
        """Which labels the documents carry."""
        rows = np.arange(len(self.labels))[:, None]
        is_carried = self.truth[rows, self.labels].toarray() > 0
        found: Bool[np.ndarray, "document k"] = is_carried & (self.labels >= 0)
        return found

    @property
    def num_true(self) -> Int64[np.ndarray, document]:
        """Labels that each document carries."""
        found: Int64[np.ndarray, document] = np.diff(self.truth.indptr).astype(np.int64)
        return found

    def num_true_of(self, is_in: Bool[np.ndarray, label_or_unseen]) -> Int64[np.ndarray, document]:
        """Return how many of some labels each document carries."""
        found: Int64[np.ndarray, document] = (self.truth > 0) @ is_in.astype(np.int64)
        return found

    def bands_of(self, promise: Promise) -> Int64[np.ndarray, label_or_unseen]:
        """Return the band of each label in a promise; -1 for a label that is in none."""
        return promise.bands_of(np.arange(len(self.counts)), self.counts)

    def accepted_by(self, promise: Promise) -> Bool[np.ndarray, "document k"]:
        """Return which answered labels a promise accepts."""
        marks = promise.accepted(self.labels, self.counts[self.labels], self.probabilities)
        accepted: Bool[np.ndarray, "document k"] = marks & self.is_like[:, None]
        return accepted


@dataclass(frozen=True, slots=True)
class AnsweredBand:
    """The answered labels of one band, the best ones of each document first.

    Attributes:
        probabilities: Of its labels; 0 behind the last one, and where no label is accepted.
        is_right: Whether the document carries them.
        num_true: Labels of the band that each document carries.
        mean: Labels of the band in a training document.
    """

    probabilities: Float64[np.ndarray, "document place"]
    is_right: Bool[np.ndarray, "document place"]
    num_true: Int64[np.ndarray, document]
    mean: float

    @classmethod
    def of(cls, documents: AnsweredDocuments, is_in: Bool[np.ndarray, label]) -> AnsweredBand:
        """Return the labels of `documents` that are in a band."""
        is_own = is_in[documents.labels] & (documents.labels >= 0)
        width = max(1, int(is_own.sum(axis=1).max(initial=0)))
        order = np.argsort(~is_own, axis=1, kind="stable")[:, :width]  # its own ones come first
        probabilities = np.where(is_own & documents.is_like[:, None], documents.probabilities, 0.0)
        return cls(
            np.take_along_axis(probabilities, order, 1),
            np.take_along_axis(is_own & documents.is_right, order, 1),
            documents.num_true_of(is_in),
            float(documents.counts[is_in].sum()) / documents.num_training_documents,
        )

    def accepting(self, first: int, thresholds: Sequence[float]) -> BandRule:
        """Return the rule with these thresholds, one a place."""
        of_places = self.probabilities[:, : len(thresholds)]
        is_accepted = of_places >= np.array(thresholds)[: of_places.shape[1]]
        num_right = int((is_accepted & self.is_right[:, : len(thresholds)]).sum())
        return BandRule(first, tuple(thresholds), int(is_accepted.sum()), num_right)


def fit_promise(
    documents: AnsweredDocuments,
    scorer: str,
    measure: Measure,
    level: float,
    confidence: float,
    band_starts: Sequence[int] = BAND_STARTS,
    label_thresholds: Mapping[int, float] | None = None,
) -> Promise:
    """Find the lowest thresholds of each band that keep a promise; of recall, the highest.

    Args:
        documents: Those that the rule is found on; it is for other documents of their kind.
        scorer: That answered.
        measure: What is promised.
        level: How much of it, between 0 and 1.
        confidence: Probability that all bands keep it at once, between 0 and 1.
        band_starts: Fewest training documents of a label of each band, rising from 0.
        label_thresholds: Set by people, by the label's row; the labels are in no band then.
    """
    empty = tuple(BandRule(first, ()) for first in band_starts)
    num_documents = len(documents.labels)
    promise = Promise(
        measure, level, confidence, scorer, num_documents, empty, label_thresholds or {}
    )
    numbers = documents.bands_of(promise)
    error = (1 - confidence) / max(1, len(np.unique(numbers[numbers >= 0])))
    rule = _precise_rule if measure == PRECISION_PROMISE else _complete_rule
    bands = []
    for number, first in enumerate(band_starts):
        found = BandRule(first, (), refusal="the model has no label in this band")
        if (numbers == number).any():
            band = AnsweredBand.of(documents, numbers == number)
            found = rule(band, first, level, error)
            lower = (x / 100 for x in range(math.ceil(100 * level) - 1, 0, -1) if found.refusal)
            highest = next((x for x in lower if rule(band, first, x, error).thresholds), None)
            if highest is not None:
                said = f"{found.refusal}; the highest that can be promised is {highest:g}"
                found = replace(found, refusal=said)
        bands.append(found)
    return replace(promise, bands=tuple(bands))


def bands_by_name(promise: Promise) -> dict[str, BandRule]:
    """Return the bands by their names; `ALL_LABELS` where the promise is of the whole only."""
    names = FREQUENCY_BINS if len(promise.bands) > 1 else (ALL_LABELS,)
    return dict(zip(names, promise.bands, strict=True))


def _precise_rule(band: AnsweredBand, first: int, level: float, error: float) -> BandRule:
    thresholds: list[float] = []
    chances = poisson.sf(np.arange(band.probabilities.shape[1]), max(_LEAST_MEAN, band.mean))
    shares = error * chances / max(_LEAST_MEAN, band.mean)  # they add up to the error, or less
    for place, share in enumerate(shares.tolist()):
        of_place = band.probabilities[:, place], band.is_right[:, place]
        safe = safe_thresholds(*of_place, level, share)
        least = thresholds[-1] if thresholds else 0.0
        if not (higher := [t for t in safe if t >= least]):
            break
        thresholds.append(min(higher))
    if thresholds:
        return band.accepting(first, thresholds)
    found = band.accepting(first, [level])
    most_wrong = int(binom.ppf(shares[0], found.num_accepted, 1 - level)) - 1
    expected = f"at most {most_wrong} wrong ones"
    if most_wrong < 0:
        needed = math.ceil(math.log(shares[0]) / math.log(level))
        expected = f"at least {needed}, all right, or more with few wrong ones"
    refusal = (
        f"of the best labels of the texts, {found.num_accepted} have a probability of at least "
        f"{level:g}, and {found.num_accepted - found.num_right} of these are wrong; expected "
        f"{expected}"
    )
    return BandRule(first, (), refusal=refusal)


def safe_thresholds(
    probabilities: Float64[np.ndarray, document],
    is_right: Bool[np.ndarray, document],
    level: float,
    error: float,
) -> list[float]:
    """Return thresholds that all keep a precision, but for a probability of `error`.

    Args:
        probabilities: Of one label of each document; 0 where there is none.
        is_right: Whether the document carries it.
        level: The precision.
        error: Probability, at most, that the precision above one of them is lower.
    """
    order = np.argsort(-probabilities)
    num_right = np.append(0, np.cumsum(is_right[order]))
    starts = {max(_LEAST_THRESHOLD, 1 - (1 - level) / key): part for key, part in _STARTS.items()}
    thresholds = _thresholds(max(starts), _LEAST_THRESHOLD)
    accepted = np.searchsorted(-probabilities[order], -thresholds, side="right")
    p_values = binom.cdf(accepted - num_right[accepted], accepted, 1 - level)
    safe, held = [], 0.0
    for threshold, p_value in zip(thresholds.tolist(), p_values.tolist(), strict=True):
        held += sum(starts.pop(start) for start in list(starts) if start >= threshold)
        if p_value <= held * error:
            safe.append(threshold)
        else:
            held = 0.0
    return safe


def _complete_rule(band: AnsweredBand, first: int, level: float, error: float) -> BandRule:
    is_counted, num_places = band.num_true > 0, band.probabilities.shape[1]
    found = None
    for threshold in _thresholds(1 - _LEAST_FOR_RECALL, _LEAST_FOR_RECALL)[::-1].tolist():
        num_right = (band.is_right & (band.probabilities >= threshold)).sum(axis=1)[is_counted]
        if bet_p_value(num_right / band.num_true[is_counted] - level, level) > error:
            break
        found = band.accepting(first, [threshold] * num_places)
    if found is not None:
        return found
    most = band.accepting(first, [_LEAST_FOR_RECALL] * num_places)
    refusal = (
        f"the answers hold {most.num_right} of the {int(band.num_true.sum())} labels that "
        f"{int(is_counted.sum())} texts carry, whatever the threshold; that is too few of them"
    )
    return BandRule(first, (), refusal=refusal)


def _thresholds(start: float, end: float) -> Float64[np.ndarray, step]:
    """Return falling thresholds at equal steps of the log-odds."""
    highest, lowest = logit(start), logit(end)
    steps = np.arange(1 + math.floor((highest - lowest) / _STEP))
    found: Float64[np.ndarray, step] = expit(highest - _STEP * steps)
    return found


def bet_p_value(gains: Float64[np.ndarray, document], largest_loss: float) -> float:
    """Return a p-value of "the mean of independent gains is at most 0".

    Args:
        gains: At least minus the largest loss.
        largest_loss: Above 0.
    """
    wealth = np.log1p(np.outer(_BETS / largest_loss, gains)).sum(axis=1)
    return float(np.exp(min(0.0, math.log(len(_BETS)) - logsumexp(wealth))))
