"""Finding the rules of promises, with a guarantee for finite samples; and measuring them.

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
its share is lost. As too few labels are above a very high threshold to say anything, the error
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
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.special import expit, logit, logsumexp
from scipy.stats import binom, poisson

from longtail.models.fitted.label_figures import wilson_bounds
from longtail.models.fitted.promises import PRECISION_PROMISE, PROMISES, BandRule, Measure, Promise
from longtail.training.evaluation.by_frequency import ALL_LABELS, FREQUENCY_BINS
from longtail.training.evaluation.plots import new_figure
from longtail.training.evaluation.record import NOT_MEASURED, Table
from longtail.training.fitted.fitting import AnsweredDocuments, MeasuredPart, PartFitting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BAND_STARTS = tuple(first for first, _ in FREQUENCY_BINS.values())
"""Fewest training documents of a label of each band."""
WHOLE = (0,)  # one band, of all labels
_STEP = 0.2
"""Step between the log-odds of thresholds."""
_LEAST_THRESHOLD = 0.05
_LEAST_FOR_RECALL = 1e-4
_STARTS = {16.0: 0.1, 4.0: 0.2, 1.0: 0.3, 0.5: 0.4}
"""At the threshold 1 - (1 - q) / key this part of the error enters."""
_LEAST_MEAN = 0.1
"""Labels of a band in a document: of bands without training documents, too."""
_BETS = np.append(2.0 ** -np.arange(8, 0, -1), [0.75, 0.95])
"""Shares of the largest one."""
_NOTE = (
    "Accepted labels of the default scorer by each promise: how many they are, which share of the "
    "documents' labels they find, the promised share as measured (of accepted labels that are "
    "right, or for recall of a document's labels that are accepted) with its 95 % interval "
    "(Wilson's, for as many labels as tell as much as these, since those of a document are alike), "
    "and whether the promise was kept: yes or no where the interval lies above or below it, else "
    "'about'. Of labels with a threshold that people have set nothing is promised."
)
SET_BY_PEOPLE = "threshold set by people"
"""In place of a band: labels that are in none."""


def label_bands(
    documents: AnsweredDocuments, promise: Promise
) -> Int64[np.ndarray, label_or_unseen]:
    """Return the band of each label in a promise; -1 for a label that is in none."""
    return promise.bands_of(np.arange(len(documents.counts)), documents.counts)


def accepted_labels(
    documents: AnsweredDocuments, promise: Promise
) -> Bool[np.ndarray, "document k"]:
    """Return which answered labels a promise accepts."""
    counts = documents.counts[documents.labels]
    marks = promise.accepted(documents.labels, counts, documents.probabilities)
    accepted: Bool[np.ndarray, "document k"] = marks & documents.is_like[:, None]
    return accepted


@dataclass(frozen=True, slots=True)
class AnsweredBand:
    """The answered labels of one band, the best ones of each document first.

    Attributes:
        probabilities: Probabilities of its labels; 0 behind the last one, and where no label is
            accepted.
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
    numbers = label_bands(documents, promise)
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
        probabilities: Probabilities of one label of each document; 0 where there is none.
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


@dataclass(frozen=True, slots=True)
class KeptShare:
    """A promise in one band of rarity, or over all labels.

    Attributes:
        num_accepted: Accepted labels.
        num_right: Right ones among them.
        num_true: Labels of the band that the documents carry.
        share: The promised share as measured; None where nothing was accepted.
        lower: Lower bound of its 95 % interval.
        upper: Upper bound.
    """

    num_accepted: int
    num_right: int
    num_true: int
    share: float | None
    lower: float
    upper: float

    @property
    def found(self) -> float:
        """The share of the labels that the documents carry."""
        return self.num_right / max(1, self.num_true)

    @property
    def interval(self) -> str:
        """The 95 % interval in percent: "91.2 to 96.0"."""
        return f"{100 * self.lower:.1f} to {100 * self.upper:.1f}"

    def verdict(self, level: float) -> str:
        """Return whether a promise of this level was kept: "yes", "no", "about" or "-"."""
        if self.share is None:
            return NOT_MEASURED
        if self.lower >= level:
            return "yes"
        return "no" if self.upper < level else "about"


@dataclass(frozen=True, slots=True)
class KeptPromise:
    """What a promise lets through on measured documents.

    Attributes:
        promise: Its name.
        level: What is promised.
        num_documents: Documents measured on.
        num_served: Those with an accepted label.
        num_empty: Those without a true label.
        num_false_alarms: Those without a true label that got an accepted one.
        is_own: Whether it was found on these very documents.
        bands: By the name of each band that has a promise, and `ALL_LABELS`: all labels, and for
            recall those of these bands; and `SET_BY_PEOPLE` where thresholds are.
    """

    promise: str
    level: float
    num_documents: int
    num_served: int
    num_empty: int
    num_false_alarms: int
    is_own: bool
    bands: dict[str, KeptShare]

    def to_json(self) -> dict[str, object]:
        """Return everything as plain dictionaries; shares are fractions."""
        verdicts = {name: each.verdict(self.level) for name, each in self.bands.items()}
        return asdict(self) | {"kept": verdicts}


def measure_promise(
    documents: AnsweredDocuments, promise: Promise, *, is_own: bool = False
) -> KeptPromise:
    """Measure what a promise lets through, and whether it is kept."""
    numbers, marks = label_bands(documents, promise), accepted_labels(documents, promise)
    named = enumerate(bands_by_name(promise).items())
    made = {name: number for number, (name, rule) in named if rule.thresholds}
    if promise.label_thresholds:
        made[SET_BY_PEOPLE] = -1
    meant = {name: numbers == number for name, number in made.items()}
    is_all = promise.measure == PRECISION_PROMISE
    meant[ALL_LABELS] = np.isin(numbers, list(made.values())) | is_all
    is_empty, is_served = documents.num_true == 0, marks.any(axis=1)
    return KeptPromise(
        promise.name, promise.level, len(marks), int(is_served.sum()),
        int(is_empty.sum()), int((is_empty & is_served).sum()), is_own,
        {name: _share(promise, documents, marks, is_in) for name, is_in in meant.items()},
    )  # fmt: skip


def _share(
    promise: Promise,
    documents: AnsweredDocuments,
    marks: Bool[np.ndarray, "document k"],
    is_in: Bool[np.ndarray, label_or_unseen],
) -> KeptShare:
    """Return what became of a promise for some labels, with the documents as clusters."""
    is_own = marks & is_in[documents.labels]
    accepted, right = is_own.sum(axis=1), (is_own & documents.is_right).sum(axis=1)
    true = documents.num_true_of(is_in)
    part, whole = right.astype(np.float64), accepted.astype(np.float64)
    if promise.measure != PRECISION_PROMISE:
        part, whole = right / np.maximum(true, 1), (true > 0).astype(np.float64)
    share = float(part.sum() / whole.sum()) if accepted.any() else None
    numbers = (int(accepted.sum()), int(right.sum()), int(true.sum()))
    return KeptShare(*numbers, share, *clustered_bounds(part, whole))


def automation_table(kept: Sequence[KeptPromise]) -> Table:
    """Return a table with a row for each promise and band."""
    header = ["promise", "training documents", "accepted", "found", "as promised", "95 %", "kept"]
    rows = []
    for each in kept:
        promise = f"{each.promise} (found on these documents)" if each.is_own else each.promise
        for name, band in each.bands.items():
            measured = [NOT_MEASURED] * 2
            if band.share is not None:
                measured = [_percent(band.share), band.interval]
            counts = [f"{band.num_accepted:,}", _percent(band.found)]
            rows.append([promise, name, *counts, *measured, band.verdict(each.level)])
    return Table("Promises", _NOTE, (header, rows))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def draw_automation(kept: Sequence[KeptPromise]) -> Figure:
    """Draw the share of labels and documents that go through, over the promised precision."""
    figure = new_figure(5.0, 3.6)
    axes = figure.subplots()
    points = sorted(
        (100 * each.level, 100 * each.bands[ALL_LABELS].found,
         100 * each.num_served / each.num_documents)
        for each in kept if each.promise.startswith(PRECISION_PROMISE)
    )  # fmt: skip
    levels, labels, served = np.reshape(points, (-1, 3)).T
    axes.plot(levels, labels, "-o", color="#0072B2", label="labels found")
    axes.plot(levels, served, "--s", color="#D55E00", label="documents with an accepted label")
    axes.set_xlabel("promised precision, %")
    axes.set_ylabel("go through without a person, %")
    axes.set_ylim(0, 100)
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    return figure


def clustered_bounds(
    part: Float64[np.ndarray, document], whole: Float64[np.ndarray, document]
) -> tuple[float, float]:
    """Return the bounds of the 95 % interval of a share whose cases come by document.

    Wilson's interval of as many cases as tell as much as these: fewer than there are, where the
    cases of a document are alike (the design effect of the ratio estimator, at least 1).

    Args:
        part: Cases of each document that have a property.
        whole: Cases of each document.
    """
    total = float(whole.sum())
    if total == 0:
        return 0.0, 1.0
    share = float(part.sum()) / total
    chance = total * share * (1 - share)
    effect = 1.0
    if chance > 0:
        effect = max(1.0, float(((part - share * whole) ** 2).sum()) / chance)
    size = np.array([total / effect])
    lower, upper = wilson_bounds(share * size, size)
    return float(lower[0]), float(upper[0])


class PromisesFitting(PartFitting[tuple[Promise, ...]]):
    """Measures promises; `longtail threshold` finds them."""

    part = PROMISES
    has_picture = True

    def reads_answers(self, value: tuple[Promise, ...], scorer: str) -> bool:
        """Whether the scorer has a promise."""
        return any(each.scorer == scorer for each in value)

    def measured(
        self,
        value: tuple[Promise, ...],
        scorer: str,
        documents: AnsweredDocuments,
        measured_on: str,
    ) -> MeasuredPart:
        """Return what the promises of the scorer let through, and whether they are kept."""
        kept = [
            measure_promise(documents, each, is_own=each.found_on == measured_on)
            for each in value
            if each.scorer == scorer
        ]
        return MeasuredPart(
            [automation_table(kept)], [each.to_json() for each in kept],
            partial(draw_automation, kept), "What goes through by each promise",
        )  # fmt: skip
