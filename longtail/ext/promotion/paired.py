"""Both versions on the same documents: their rankings, their speed, and paired tests.

A paired test is of the difference on each document, so that how hard a document is plays no part,
and small differences show. All tests are one-sided t-tests on the mean difference.

The labels are those of the corpus, then those that only a version knows: a version that lacks a
label of the corpus can't find it, and is measured so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy import stats
from scipy.sparse import csr_array

from longtail.models.bundle.bundle import Bundle
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.metrics import (
    RankedEvaluation,
    document_values_at,
    inverse_propensities,
    join_truth,
)
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.models.scorers.calibration import probabilities_of
from longtail.training.data.chunks import chunks
from longtail.training.data.dataset import Dataset
from longtail.training.evaluation.by_frequency import ALL_LABELS, FREQUENCY_BINS, label_subsets

K = 5
_ROUNDING = 1e-12  # differences closer than this are equal
BAND_METRIC = f"nDCG@{K}"
"""The metric for the labels of a frequency band."""

Kind: TypeAlias = Literal["overall", "band", "feedback"]


@dataclass(frozen=True, slots=True)
class PromotionRules:
    """The conditions of a promotion; shares and metrics are fractions.

    Attributes:
        must_be_better: Whether it must be better in at least one metric or band.
        significance: Largest error probability of each one-sided paired test.
        margin: How much worse P@5, nDCG@5 and PSP@5 may be at most: a candidate must show that it
            is not worse by as much.
        band_margin: How much worse the labels of one frequency band, or the judged labels of the
            feedback, may be before a significant loss is a reason to refuse.
        min_documents: Documents that a test needs.
        max_slowdown: Time a text, as a multiple of the current version's.
        max_size_ratio: Bytes of the files, about the memory, as a multiple of the current one's.
        max_calibration_rise: How much the calibration error of the best five labels may rise.
    """

    must_be_better: bool = True
    significance: float = 0.025
    margin: float = 0.01
    band_margin: float = 0.02
    min_documents: int = 30
    max_slowdown: float = 1.5
    max_size_ratio: float = 1.5
    max_calibration_rise: float = 0.02


@dataclass(frozen=True, slots=True)
class PairedTest:
    """One metric of both versions on the same documents.

    Attributes:
        kind: "overall", "band" (of labels by training documents), or "feedback".
        metric: Its name.
        labels: The subset of the labels.
        num_documents: With a true label of the subset; all where it is all labels.
        current: Mean of the current version.
        candidate: Mean of the candidate.
        p_worse_by_margin: Probability of such differences, or better ones, if the candidate were
            worse by the margin: a small one shows that it is not.
        p_equal_or_worse: The same if it were not better: a small one shows that it is.
        p_equal_or_better: Probability of such differences, or worse ones, if it were not worse: a
            small one shows that it is.
    """

    kind: Kind
    metric: str
    labels: str
    num_documents: int
    current: float
    candidate: float
    p_worse_by_margin: float
    p_equal_or_worse: float
    p_equal_or_better: float

    @property
    def difference(self) -> float:
        """How much better the candidate is."""
        return self.candidate - self.current

    @property
    def name(self) -> str:
        """The metric and the subset of the labels, in words."""
        if self.labels == ALL_LABELS:
            return self.metric
        return f"{self.metric} of labels with {self.labels} training documents"


def paired_test(
    kind: Kind,
    metric: str,
    labels: str,
    current: Float64[np.ndarray, document],
    candidate: Float64[np.ndarray, document],
    margin: float,
) -> PairedTest:
    """Test the differences of one metric.

    Args:
        kind: As in `PairedTest`.
        metric: Its name.
        labels: As there.
        current: Values of the current version, one a document; at least two.
        candidate: Values of the candidate for the same documents.
        margin: How much worse is called worse.
    """
    differences = candidate - current
    return PairedTest(
        kind=kind,
        metric=metric,
        labels=labels,
        num_documents=len(differences),
        current=float(current.mean()),
        candidate=float(candidate.mean()),
        p_worse_by_margin=_p_above(differences, -margin),
        p_equal_or_worse=_p_above(differences, 0.0),
        p_equal_or_better=_p_above(-differences, 0.0),
    )


def _p_above(differences: Float64[np.ndarray, document], bound: float) -> float:
    """Return the p-value of a mean above a bound; without any spread it is 0 or 1."""
    if np.ptp(differences) < _ROUNDING:
        return 0.0 if float(differences.mean()) > bound + _ROUNDING else 1.0
    return float(stats.ttest_1samp(differences, bound, alternative="greater").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's method (1979), in the order given.

    Rejecting those of at most alpha errs in any of them with a probability of at most alpha,
    however they depend on each other: the i-th smallest of m counts m - i + 1 times, and none less
    than a smaller one.
    """
    order = np.argsort(p_values, kind="stable")
    num = len(p_values)
    adjusted, largest = [0.0] * num, 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (num - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def quality_tests(
    joined: Mapping[str, RankedEvaluation],
    training_counts: Int64[np.ndarray, label],
    num_training_documents: int,
    rules: PromotionRules,
) -> list[PairedTest]:
    """Test P@5, nDCG@5 and PSP@5 of all labels, and nDCG@5 of each frequency band.

    A band with fewer documents than the rules ask for is left out.

    Args:
        joined: The rankings of "current" and "candidate" beside the same truth.
        training_counts: Training documents of each label; they make the bands and the propensities.
        num_training_documents: N of the propensities.
        rules: Margins, and the documents that a test needs.
    """
    weights = inverse_propensities(training_counts, num_training_documents)
    tests = []
    subsets = label_subsets(training_counts)
    for name in (ALL_LABELS, *FREQUENCY_BINS):
        is_all = name == ALL_LABELS
        kept = {
            who: each if is_all else each.restricted_to(subsets[name])
            for who, each in joined.items()
        }
        num_documents = kept["current"].num_documents
        if num_documents < (2 if is_all else rules.min_documents):
            continue
        values = {who: document_values_at(each, K, weights) for who, each in kept.items()}
        tests += [
            paired_test(
                "overall" if is_all else "band",
                metric,
                name,
                values["current"][metric],
                values["candidate"][metric],
                rules.margin if is_all else rules.band_margin,
            )
            for metric in (values["current"] if is_all else [BAND_METRIC])
        ]
    return tests


def objections(tests: Sequence[PairedTest], rules: PromotionRules) -> list[str]:
    """Return why the tests speak against the candidate, in sentences; none where they don't.

    - Overall, each metric must be shown to be worse by less than the margin. That all of them must
      be needs no correction for several tests.
    - A band, or the feedback, must not be significantly worse (`holm` over these), and by more than
      the band margin: they have too few documents to show that they are not.
    - Where the rules ask for it, one metric or band must be significantly better (`holm`). The
      feedback doesn't count here: the labels that were rejected are the mistakes of the version
      that answered, mostly the current one, so that any other one looks better on them.

    Args:
        tests: The tests of `quality_tests` and of the feedback.
        rules: The conditions of a promotion.
    """
    overall = [test for test in tests if test.kind == "overall"]
    others = [test for test in tests if test.kind != "overall"]
    reasons = [
        f"{test.name} is not shown to be worse by less than {_points(rules.margin)}: "
        f"{_in_words(test)}, p = {test.p_worse_by_margin:.2g}"
        for test in overall
        if test.p_worse_by_margin > rules.significance
    ]
    for test, p in zip(others, holm([x.p_equal_or_better for x in others]), strict=True):
        if p <= rules.significance and test.difference < -rules.band_margin:
            reasons.append(f"{test.name} is worse: {_in_words(test)}, p = {p:.2g}")
    if rules.must_be_better:
        candidates = [test for test in tests if test.kind != "feedback"]
        smallest = min(holm([x.p_equal_or_worse for x in candidates]), default=1.0)
        if smallest > rules.significance:
            reasons.append(
                f"no metric is shown to be better (smallest p, by Holm: {smallest:.2g}); to "
                "replace the current version by one that is as good: --not-worse"
            )
    return reasons


def _in_words(test: PairedTest) -> str:
    return (
        f"{100 * test.candidate:.2f} instead of {100 * test.current:.2f} over "
        f"{test.num_documents:,} documents"
    )


def _points(fraction: float) -> str:
    return f"{100 * fraction:g} points"


NUM_TIMED = 40
"""Texts, spread over the split, that both versions are timed on."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a registry, opened and loaded.

    Attributes:
        number: The version's number.
        bundle: Its files.
        predictor: Ranks by its default scorer, as a service does.
    """

    number: int
    bundle: Bundle
    predictor: Predictor

    @classmethod
    def load(cls, number: int, bundle: Bundle) -> Version:
        """Load a version."""
        return cls(number, bundle, Predictor.of_bundle(bundle))

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(info.size_bytes for info in self.bundle.manifest.files.values())


class Numbering:
    """One number for each label of the corpus and of both versions."""

    def __init__(self, dataset: Dataset, catalogues: Sequence[LabelCatalogue]) -> None:
        """Number the labels of the corpus first, then those of the versions that it lacks."""
        everywhere = [dataset.labels, *catalogues]
        ids = dict.fromkeys(label.id for catalogue in everywhere for label in catalogue)
        self.number_of = {label_id: number for number, label_id in enumerate(ids)}

    def rows_of(self, catalogue: LabelCatalogue) -> Int64[np.ndarray, row]:
        """Return the number of each label of a catalogue, in its order."""
        return np.array([self.number_of[label.id] for label in catalogue], dtype=np.int64)

    def training_counts(self, catalogue: LabelCatalogue) -> Int64[np.ndarray, label]:
        """Return the training documents of each label by what a catalogue says; 0 if it lacks it.

        Args:
            catalogue: Catalogue of the version whose training counts are used.
        """
        counts = np.zeros(len(self.number_of), dtype=np.int64)
        counts[self.rows_of(catalogue)] = catalogue.training_counts
        return counts

    def truth(self, matrix: Float32[csr_array, "document listed"]) -> csr_array:
        """Return the labels of documents with a column for each number."""
        shape = (matrix.shape[0], len(self.number_of))
        return csr_array((matrix.data, matrix.indices, matrix.indptr), shape=shape)


@dataclass(frozen=True, slots=True)
class Answers:
    """What a version answers about the documents.

    Attributes:
        joined: Its best five labels beside the truth, by their common numbers.
        num_not_finite: Scores of these that are no finite numbers.
        num_empty: Documents without any label.
        probabilities: Probabilities of these labels, where its scorer is calibrated; nan where
            there is no label.
    """

    joined: RankedEvaluation
    num_not_finite: int
    num_empty: int
    probabilities: Float64[np.ndarray, "document k"] | None

    @property
    def judged(self) -> tuple[Float64[np.ndarray, pair], Bool[np.ndarray, pair]] | None:
        """The probabilities of all labels and whether each is right; None without any."""
        if self.probabilities is None or np.isnan(self.probabilities).all():
            return None
        is_there = ~np.isnan(self.probabilities)
        return self.probabilities[is_there], self.joined.is_hit[is_there]


def answer(
    version: Version, texts: Sequence[str], truth: csr_array, numbering: Numbering
) -> Answers:
    """Rank documents with the default scorer of a version, and lay them beside the truth.

    Args:
        version: The model.
        texts: The documents' texts.
        truth: Their labels, by `numbering`.
        numbering: The labels' numbering.
    """
    predictor = version.predictor
    options = RankingOptions(k=min(K, len(predictor.catalogue)))
    ranking = Ranking.joined(
        [predictor.rank(predictor.read(chunk), options) for chunk in chunks(texts)]
    )
    is_label = ranking.labels != NO_LABEL
    labels = np.where(is_label, numbering.rows_of(predictor.catalogue)[ranking.labels], NO_LABEL)
    padding = ((0, 0), (0, K - options.k))
    calibration = predictor.parts.calibrations.get(predictor.scorers.default)
    probabilities = None
    if calibration is not None:
        counts = predictor.catalogue.training_counts[ranking.labels]
        probabilities = probabilities_of(calibration, ranking.scores, counts)
        probabilities = np.where(is_label, probabilities, np.nan)
        probabilities = np.pad(probabilities, padding, constant_values=np.nan)
    return Answers(
        joined=join_truth(np.pad(labels, padding, constant_values=NO_LABEL), truth),
        num_not_finite=int(np.count_nonzero(is_label & ~np.isfinite(ranking.scores))),
        num_empty=int(np.count_nonzero(~is_label.any(axis=1))),
        probabilities=probabilities,
    )


def milliseconds_a_text(versions: Sequence[Version], texts: Sequence[str]) -> list[float]:
    """Return the median time that each version takes for a text alone.

    They take turns on each text, and the first turn goes round, so that what else the machine does
    falls on all of them.

    Args:
        versions: To time.
        texts: Each is answered once by every version; before them the first one, untimed.
    """
    for version in versions:
        _answer_one(version, texts[0])
    seconds: list[list[float]] = [[] for _ in versions]
    for turn, text in enumerate(texts):
        for place in range(len(versions)):
            number = (turn + place) % len(versions)
            started = time.perf_counter()
            _answer_one(versions[number], text)
            seconds[number].append(time.perf_counter() - started)
    return [1000 * float(np.median(each)) for each in seconds]


def _answer_one(version: Version, text: str) -> None:
    predictor = version.predictor
    options = RankingOptions(k=min(K, len(predictor.catalogue)))
    predictor.rank(predictor.read([text]), options)
