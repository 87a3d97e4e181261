"""Reliability of probabilities: how often labels of a probability are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int64

from longtail.models.bundle.manifest import Calibration
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import top_of_candidates
from longtail.models.scorers.calibration import IDENTITY, probabilities_of
from longtail.models.scorers.reliability import CONFIDENT
from longtail.training.calibration.scored_pairs import ScoredPairs
from longtail.training.calibration.thresholds import ThresholdF1, measure_threshold
from longtail.training.evaluation.by_frequency import FREQUENCY_BINS, label_subsets
from longtail.training.evaluation.plots import new_figure
from longtail.training.evaluation.record import NOT_MEASURED, Cells, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NUM_BINS = 15
_LEAST_IN_A_BIN = 20
"""Labels in a bin, where there are few."""
_PLACES = 5
_MAX_COLUMNS = 3
_PANEL_INCHES = 3.0
_ALONE_INCHES = 4.0
_UNITS = "Log loss in nats a document, over all labels that the scorer knows; all else in percent."
_BAND_NOTE = (
    "The best five labels of each document, by training documents of the label: how many there "
    "are, their mean probability as calibrated, how many of them are right, and the ECE; then the "
    f"same of those with a probability of at least {CONFIDENT:g}. Where the mean is far above the "
    "share of right ones, a threshold lets wrong labels pass."
)
_THRESHOLD_NOTE = (
    "Precision, recall and micro-F1 over all pairs of documents and labels, where all labels of at "
    "least the threshold are answered: the probability of the highest micro-F1 on the dev split."
)


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far the probabilities of one scorer can be trusted.

    Attributes:
        log_loss: Log loss of all pairs that it can score, in nats a document.
        calibration_error: Calibration error of all these pairs: the mean difference of probability
            and share of right labels, in bins of as many probabilities each (ECE).
        top_calibration_error: The same of the best five labels of each document.
        top_probability: Mean probability of these labels.
        top_precision: Share of right ones among them.
        bins: Mean probability, share of right labels and number of labels of each bin of these.
    """

    log_loss: float
    calibration_error: float
    top_calibration_error: float
    top_probability: float
    top_precision: float
    bins: tuple[tuple[float, float, int], ...]


def measure_reliability(pairs: ScoredPairs, scorer: str, calibration: Calibration) -> Reliability:
    """Measure the probabilities of a scorer on scored pairs.

    Args:
        pairs: A split's pairs; its documents' best labels by this scorer are among them.
        scorer: One of those that scored them; it scored at least one pair.
        calibration: What makes probabilities of its scores.
    """
    scores, is_true, weights = pairs.of(scorer)
    counts = pairs.counts[pairs.is_scored(scorer)]
    probabilities = probabilities_of(calibration, scores, counts)
    certain = np.clip(probabilities, 1e-12, 1 - 1e-12)
    losses = -np.where(is_true, np.log(certain), np.log1p(-certain))
    _, top, best_is_true = best_labels(pairs, scorer, calibration)
    ones = np.ones(len(top))
    return Reliability(
        log_loss=float((losses * weights).sum() / len(pairs.labels)),
        calibration_error=_error(_bins(probabilities, is_true, weights)),
        top_calibration_error=_error(_bins(top, best_is_true, ones)),
        top_probability=float(top.mean()),
        top_precision=float(best_is_true.mean()),
        bins=tuple((p, share, round(size)) for p, share, size in _bins(top, best_is_true, ones)),
    )


def best_labels(
    pairs: ScoredPairs, scorer: str, calibration: Calibration, num_best: int = _PLACES
) -> tuple[Int64[np.ndarray, pair], Float64[np.ndarray, pair], Bool[np.ndarray, pair]]:
    """Return the best labels of each document by a scorer, their probabilities and truth."""
    scores = pairs.scores[scorer]
    places = np.tile(np.arange(scores.shape[1]), (len(scores), 1))
    top = top_of_candidates(places, scores, min(num_best, scores.shape[1]))
    is_there = ~np.isneginf(top.scores)
    rows, columns = np.nonzero(is_there)[0], top.labels[is_there]
    counts = pairs.counts[rows, columns]
    probabilities = probabilities_of(calibration, scores[rows, columns], counts)
    return pairs.labels[rows, columns], probabilities, pairs.is_true[rows, columns]


def _bins(
    probabilities: Float64[np.ndarray, pair],
    is_true: Bool[np.ndarray, pair],
    weights: Float64[np.ndarray, pair],
    num_bins: int = _NUM_BINS,
) -> list[tuple[float, float, float]]:
    """Return mean probability, share of right labels and weight of bins of about equal weight."""
    order = np.argsort(probabilities, kind="stable")
    ordered = weights[order]
    shares = np.cumsum(ordered) / weights.sum()
    number = np.minimum((shares * num_bins).astype(np.int64), num_bins - 1)
    size = np.bincount(number, ordered, num_bins)
    sums = [
        np.bincount(number, ordered * values[order], num_bins)
        for values in (probabilities, is_true)
    ]
    is_filled = size > 0
    means = [np.divide(each, size, where=is_filled, out=np.zeros(num_bins)) for each in sums]
    rows = zip(means[0], means[1], size, is_filled, strict=True)
    return [(float(p), float(share), float(n)) for p, share, n, filled in rows if filled]


def calibration_error(
    probabilities: Float64[np.ndarray, pair], is_true: Bool[np.ndarray, pair]
) -> float:
    """Return the mean difference of probability and share of right labels in 15 bins (ECE).

    There are fewer bins where there are few labels, so that chance is no error.

    Args:
        probabilities: Probabilities of the labels, at least one.
        is_true: Whether it is right.
    """
    num_bins = int(np.clip(len(is_true) // _LEAST_IN_A_BIN, 1, _NUM_BINS))
    return _error(_bins(probabilities, is_true, np.ones(len(is_true)), num_bins))


def _error(bins: Sequence[tuple[float, float, float]]) -> float:
    total = sum(size for _, _, size in bins)
    return sum(size * abs(p - share) for p, share, size in bins) / total


@dataclass(frozen=True, slots=True)
class LabelGroup:
    """Some labels, their probabilities and their truth.

    Attributes:
        count: How many.
        probability: Their mean probability; None of none.
        precision: Share of right ones; None of none.
    """

    count: int
    probability: float | None
    precision: float | None


@dataclass(frozen=True, slots=True)
class BandReliability:
    """How far the probabilities of labels of one frequency band can be trusted.

    Attributes:
        best: The labels of the band among the best five of all documents.
        calibration_error: Expected calibration error (ECE) of these probabilities; None without
            any.
        confident: Those of them with a probability of at least `CONFIDENT`.
    """

    best: LabelGroup
    calibration_error: float | None
    confident: LabelGroup


def measure_bands(
    pairs: ScoredPairs,
    scorer: str,
    calibration: Calibration,
    training_counts: Int64[np.ndarray, label],
) -> dict[str, BandReliability]:
    """Measure the probabilities of a scorer by the labels' training documents.

    Returns:
        One for each of `FREQUENCY_BINS`.
    """
    labels, probabilities, is_true = best_labels(pairs, scorer, calibration)
    is_confident = probabilities >= CONFIDENT
    subsets = label_subsets(training_counts)
    found = {}
    for name in FREQUENCY_BINS:
        is_in = subsets[name][labels]
        p, right = probabilities[is_in], is_true[is_in]
        found[name] = BandReliability(
            best=_share(p, right),
            calibration_error=calibration_error(p, right) if len(p) else None,
            confident=_share(p[is_confident[is_in]], right[is_confident[is_in]]),
        )
    return found


def _share(p: Float64[np.ndarray, pair], is_true: Bool[np.ndarray, pair]) -> LabelGroup:
    if not len(p):
        return LabelGroup(0, None, None)
    return LabelGroup(len(p), float(p.mean()), float(is_true.mean()))


@dataclass(frozen=True, slots=True)
class ReliabilityReport:
    """The probabilities of all scorers of a model on a split.

    Attributes:
        before: For each scorer, the reliability of the sigmoid of its scores.
        after: As calibrated; scorers without a calibration are left out.
        bands: For each scorer in `after`, by training documents of the label.
        micro_f1: Micro-F1 with the dev split's threshold, for each scorer that has one.
    """

    before: Mapping[str, Reliability]
    after: Mapping[str, Reliability]
    bands: Mapping[str, Mapping[str, BandReliability]] = field(default_factory=dict)
    micro_f1: Mapping[str, ThresholdF1] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return everything as plain dictionaries; shares are fractions."""
        return asdict(self)

    def _cells(self) -> Cells:
        """Return one row a scorer: log loss in nats a document, all else in percent."""
        columns = ("log_loss", "calibration_error", "top_calibration_error", "top_probability")
        header = ["scorer"]
        for name in ("log loss", "ECE, all pairs", "ECE, top 5", "mean probability, top 5"):
            header += [f"{name}: sigmoid", "calibrated"]
        rows = []
        for scorer, before in self.before.items():
            cells = [scorer]
            for column in columns:
                scale = 1.0 if column == "log_loss" else 100.0
                for found in (before, self.after.get(scorer)):
                    value = None if found is None else scale * getattr(found, column)
                    cells.append(NOT_MEASURED if value is None else f"{value:.2f}")
            rows.append([*cells, f"{100 * before.top_precision:.2f}"])
        return [*header, "precision, top 5"], rows

    def _band_cells(self) -> Cells:
        """Return one row a scorer and frequency band; shares in percent."""
        header = ["scorer", "training documents", "labels", "mean probability", "right", "ECE"]
        header += [f"p ≥ {CONFIDENT:g}: labels", "mean probability", "right"]
        rows = []
        for scorer, bands in self.bands.items():
            for name, band in bands.items():
                values = [band.best.probability, band.best.precision, band.calibration_error]
                confident = [band.confident.probability, band.confident.precision]
                rows.append([
                    scorer, name, f"{band.best.count:,}", *map(_percent, values),
                    f"{band.confident.count:,}", *map(_percent, confident),
                ])  # fmt: skip
        return header, rows

    def _answer_cells(self) -> Cells:
        """Return one row a scorer with a threshold: it, and its shares in percent."""
        rows = [
            [
                scorer, f"{found.threshold:.3f}",
                *map(_percent, (found.precision, found.recall, found.micro_f1)),
            ]
            for scorer, found in self.micro_f1.items()
        ]  # fmt: skip
        return ["scorer", "threshold", "precision", "recall", "micro-F1"], rows

    def tables(self) -> list[Table]:
        """Return tables with one row a scorer, and one with a row a scorer and band."""
        found = [Table("Probabilities", _UNITS, self._cells())]
        if self.micro_f1:
            found.append(Table("Answers above a threshold", _THRESHOLD_NOTE, self._answer_cells()))
        if self.bands:
            heading = "Probabilities by training documents of the label"
            found.append(Table(heading, _BAND_NOTE, self._band_cells()))
        return found


def _percent(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{100 * value:.2f}"


def report_reliability(
    predictor: Predictor,
    pairs: ScoredPairs,
    thresholds: Mapping[str, float] | None = None,
    num_missed: int = 0,
) -> ReliabilityReport:
    """Measure the probabilities of every scorer of a model on scored pairs of a split.

    Args:
        predictor: The model.
        pairs: Scored by it.
        thresholds: Threshold of each scorer; None: no micro-F1 is measured.
        num_missed: True pairs of labels that the model lacks, which count in micro-F1.
    """
    calibrations = predictor.parts.calibrations
    found = {
        name: measure_threshold(pairs, name, calibrations[name], threshold, num_missed)
        for name, threshold in (thresholds or {}).items()
        if name in calibrations
    }
    measured = [name for name in pairs.scores if len(pairs.of(name)[0])]
    counts = predictor.catalogue.training_counts
    return ReliabilityReport(
        before={name: measure_reliability(pairs, name, IDENTITY) for name in measured},
        after={
            name: measure_reliability(pairs, name, calibrations[name])
            for name in measured
            if name in calibrations
        },
        bands={
            name: measure_bands(pairs, name, calibrations[name], counts)
            for name in measured
            if name in calibrations
        },
        micro_f1=found,
    )


def draw_reliability(report: ReliabilityReport) -> Figure:
    """Draw the share of right labels over the probability of the top five, before and after."""
    columns = min(_MAX_COLUMNS, len(report.before))
    num_rows = -(-len(report.before) // columns)
    side = _ALONE_INCHES if columns == 1 else _PANEL_INCHES  # the legend needs some width
    figure = new_figure(side * columns, side * num_rows + 0.5)
    grid = figure.subplots(num_rows, columns, squeeze=False)
    for axes in grid.flat[len(report.before) :]:
        axes.set_axis_off()
    for axes, (scorer, before) in zip(grid.flat, report.before.items(), strict=False):
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=0.8)
        found = {"sigmoid of the score": before, "calibrated": report.after.get(scorer)}
        for (name, one), style in zip(found.items(), (":s", "-o"), strict=True):
            if one is not None:
                points = [(p, share) for p, share, _ in one.bins]
                axes.plot(*zip(*points, strict=True), style, label=name, markersize=4)
        axes.set_title(scorer, fontsize=10)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xlabel("mean probability of the bin")
        axes.set_ylabel("share of right labels")
    handles, names = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2)
    return figure
