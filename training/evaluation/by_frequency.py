"""Evaluation of rankings: all metrics, over all labels and by how often a label was trained on.

It loads no model: rankings come in, numbers and tables go out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.errors import DataError
from longtail.models.metrics import (
    IN_SPLIT,
    METRICS,
    Hierarchical,
    Place,
    RankedEvaluation,
    at,
    inverse_propensities,
    join_truth,
    label_f1_at,
    shown_in,
)
from longtail.models.ranking.top_k import Ranking
from longtail.training.evaluation.record import NOT_MEASURED, Cells, Table, markdown_table

FREQUENCY_BINS: Mapping[str, tuple[int, int | None]] = {
    "0": (0, 0),
    "1": (1, 1),
    "2-9": (2, 9),
    "10-99": (10, 99),
    "100+": (100, None),
}
"""Least and greatest number of training documents of a label, by the name of the bin."""

TAIL_BIN = "1-9"
"""The tail labels of DEPL, section 6: 1 to 9 training documents (the union of two bins)."""

SHOT_GROUPS: Mapping[str, tuple[int, int | None]] = {
    "50+": (50, None),
    "1-49": (1, 49),
    "0": (0, 0),
}
"""Frequent, few-shot and zero-shot labels (Chalkidis et al. 2019, section 4), as the bins above."""

SHOT_NAMES: Mapping[str, str] = {"50+": "frequent", "1-49": "few-shot", "0": "zero-shot"}
"""What people call them."""

ALL_LABELS = "all"
"""The name of the subset that holds every label."""

ZERO_SHOT_BIN = "0"
"""The labels that no training document carries."""

_SHOT_HEADING = "Frequent, few-shot and zero-shot labels"
_WITHIN_NOTE = (
    "The labels of each band (0, 1, 2-9, 10-99, 100 or more training documents) ranked among "
    "themselves, of documents that carry one, in percent."
)

F1_NOTE = (
    f"macro-F1@k is the mean over all labels of the band, 0 for one that the split lacks; "
    f"'{IN_SPLIT}', over the labels of the band that a document of the split carries."
)
_HIERARCHY_NOTE = (
    "Labels together with all that stands above them in the vocabulary (Kiritchenko et al. 2006), "
    "in percent."
)
_OVERALL: Mapping[str, Place] = {
    ALL_LABELS: "overall", TAIL_BIN: "overall, tail", ZERO_SHOT_BIN: "overall, unseen",
}  # fmt: skip
WITHIN = "within the band"
"""Follows the name of a metric of labels that are ranked among those of their own band alone."""
WITHIN_K = 10
"""k of such metrics."""
_FEW, _MAX_ROWS, _FEW_DOCUMENTS = 5, 8, 50
"""The short table's k of precision, its rows, and the fewest documents that are counted."""


@dataclass(frozen=True, slots=True)
class SubsetMetrics:
    """All metrics over one subset of the labels.

    Attributes:
        num_labels: Labels of the subset.
        num_true_labels: Those of them that at least one test document carries.
        num_documents: Test documents measured on: all of them for `ALL_LABELS`, else those with a
            true label of the subset.
        num_occurrences: True (document, label) pairs of the subset.
        values: Fractions by name, as "P@1"; empty where no document carries a label of the subset.
    """

    num_labels: int
    num_true_labels: int
    num_documents: int
    num_occurrences: int
    values: Mapping[str, float]


def label_subsets(
    training_counts: Int64[np.ndarray, label],
) -> dict[str, Bool[np.ndarray, label]]:
    """Which labels belong to `ALL_LABELS`, to each bin and shot group, and to `TAIL_BIN`."""
    subsets = {ALL_LABELS: np.ones(len(training_counts), dtype=np.bool_)}
    for name, (least, greatest) in {**FREQUENCY_BINS, **SHOT_GROUPS}.items():
        is_below = True if greatest is None else training_counts <= greatest
        subsets[name] = (training_counts >= least) & is_below
    subsets[TAIL_BIN] = subsets["1"] | subsets["2-9"]
    return subsets


def measure(
    joined: RankedEvaluation,
    training_counts: Int64[np.ndarray, count],
    num_training_documents: int,
    ks: Sequence[int] = (1, 3, 5, 10),
) -> dict[str, SubsetMetrics]:
    """All metrics at each k, over all labels and by frequency bin (the names of `label_subsets`).

    For a bin the truth is restricted to its labels and documents without one of them are left out;
    the ranking stays over all labels. The contingency tables of its macro-F1 are over all
    documents; its mean is over all labels of the bin, and once more over those in the truth.

    Args:
        joined: The ranking beside the truth.
        training_counts: Number of training documents that carry each label.
        num_training_documents: Number of training documents, for the propensities.
        ks: Numbers of positions that count; each at most the width of the ranking.
    """
    if len(training_counts) != joined.num_labels:
        raise DataError(
            f"metrics: got training counts of {len(training_counts)} labels, but the truth "
            f"has {joined.num_labels}; take both from one label catalogue"
        )
    weights = inverse_propensities(training_counts, num_training_documents)
    label_f1 = {k: label_f1_at(joined, k) for k in ks}
    measured = {}
    for name, is_in_subset in label_subsets(training_counts).items():
        kept = joined if name == ALL_LABELS else joined.restricted_to(is_in_subset)
        values: dict[str, float] = {}
        true = np.unique(kept.true_labels)
        if kept.num_documents:
            for k in ks:
                for x, metric in METRICS.items():
                    if metric.value is not None:
                        values[at(x, k)] = metric.value(kept, k, weights)
                values[f"macro-F1@{k}"] = float(label_f1[k][is_in_subset].mean())
                in_split = label_f1[k][true].sum() / max(1, len(true))
                values[f"macro-F1@{k} {IN_SPLIT}"] = float(in_split)
        measured[name] = SubsetMetrics(
            num_labels=int(np.count_nonzero(is_in_subset)),
            num_true_labels=len(true),
            num_documents=kept.num_documents,
            num_occurrences=len(kept.true_labels),
            values=values,
        )
    return measured


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The metrics of several scorers on the same documents.

    Attributes:
        ks: Numbers of positions measured at.
        num_documents: Test documents.
        num_documents_without_labels: Those without any true label; they count as 0 in the means
            over all labels.
        num_labels: Labels that were ranked.
        num_training_documents: N of the propensities.
        scorers: Metrics by scorer or baseline, in the order given, then by subset of the labels
            (`ALL_LABELS`, the names of `FREQUENCY_BINS` and `SHOT_GROUPS`, `TAIL_BIN`).
    """

    ks: tuple[int, ...]
    num_documents: int
    num_documents_without_labels: int
    num_labels: int
    num_training_documents: int
    scorers: Mapping[str, Mapping[str, SubsetMetrics]]

    def to_json(self) -> dict[str, object]:
        """Return everything as plain dictionaries; metrics are fractions."""
        return {**asdict(self), "ks": list(self.ks)}

    def overall_cells(self) -> Cells:
        """Return the heading and the rows of a table with one row a scorer; metrics in percent."""
        columns = [(subset, x) for subset, place in _OVERALL.items() for x in shown_in(place)]
        return ["scorer", *(_overall_heading(*column) for column in columns)], [
            [scorer, *(_percent(subsets[name], metric) for name, metric in columns)]
            for scorer, subsets in self.scorers.items()
        ]

    def overall_table(self) -> str:
        """Return `overall_cells` as markdown."""
        return markdown_table(*self.overall_cells())

    def short_cells(self, scorers: Collection[str], default: str) -> Cells:
        """Return a table of few columns and at most `_MAX_ROWS` rows; metrics in percent.

        Args:
            scorers: All scorers of the model; other rows are baselines, and come last.
            default: The one that answers where none is named; it comes first, then the best.
        """
        few, most = max(k for k in self.ks if k <= _FEW), self.ks[-1]
        columns = {x: (ALL_LABELS, x) for x in (*shown_in("short", self.ks), f"R@{most}")}
        for name, subset in (("seen once", "1"), ("never seen", ZERO_SHOT_BIN)):
            number = next(iter(self.scorers.values()))[subset].num_documents
            count = f" ({number} documents)" if number < _FEW_DOCUMENTS else ""
            columns[f"R@{most}, {name}{count}"] = (subset, f"R@{most}")

        def order(row: str) -> tuple[bool, bool, float]:
            own, best = row.split(",")[0], self.scorers[row][ALL_LABELS].values.get(f"P@{few}", 0.0)
            return own not in scorers, own != default, -best

        rows = sorted((x for x in self.scorers if ", uncorrected" not in x), key=order)
        baselines = [row for row in rows if row.split(",")[0] not in scorers]
        shown = [*rows[: len(rows) - len(baselines)][: _MAX_ROWS - len(baselines)], *baselines]
        return ["scorer", *columns], [
            [row, *(_percent(self.scorers[row][name], x, 1) for name, x in columns.values())]
            for row in shown
        ]

    def tables(self) -> list[Table]:
        """Return tables with one row a scorer: of all labels, of groups, and within each band."""
        found = [
            Table("All scorers", F1_NOTE, self.overall_cells(), has_best=True),
            Table(_SHOT_HEADING, self._shot_sizes(), self._shot_cells(), has_best=True),
        ]
        within = self._within_cells()
        if within[1]:
            found.append(Table("Within each band", _WITHIN_NOTE, within, has_best=True))
        return found

    def bin_tables(self) -> list[Table]:
        """Return a table of each scorer, with one row a frequency bin."""
        return [
            Table(f"{scorer}: by training documents of the label", F1_NOTE, _bin_cells(subsets))
            for scorer, subsets in self.scorers.items()
        ]

    def _shot_cells(self) -> Cells:
        """Return recall and nDCG on frequent, few-shot and zero-shot labels.

        As Chalkidis et al. 2019 report them: the truth is restricted to the labels of the group,
        documents without one are left out, and the ranking is over all labels.
        """
        columns = [(group, metric) for group in SHOT_GROUPS for metric in shown_in("shots")]
        header = ["scorer", *(f"{SHOT_NAMES[group]} {metric}" for group, metric in columns)]
        return header, [
            [scorer, *(_percent(subsets[group], metric) for group, metric in columns)]
            for scorer, subsets in self.scorers.items()
        ]

    def _shot_sizes(self) -> str:
        """Return how many labels, and documents that carry one, each group has."""
        subsets = next(iter(self.scorers.values()))
        sizes = [
            f"{SHOT_NAMES[group]} ({_range(*bounds)} training documents) "
            f"{subsets[group].num_labels:,} labels, {subsets[group].num_documents:,} documents"
            for group, bounds in SHOT_GROUPS.items()
        ]
        return f"{'; '.join(sizes)}.".capitalize()

    def _within_cells(self) -> Cells:
        """Return recall and nDCG of each band's labels ranked among themselves; may have no row.

        No label of another band takes a place here, so that a blend that is below one of its
        scorers orders the labels of the band worse.
        """
        metrics = [f"{metric} {WITHIN}" for metric in shown_in("within")]
        columns = [(band, metric) for band in FREQUENCY_BINS for metric in metrics]
        header = ["scorer", *(f"{band}: {metric.split()[0]}" for band, metric in columns)]
        return header, [
            [scorer, *(_percent(subsets[band], metric) for band, metric in columns)]
            for scorer, subsets in self.scorers.items()
            if any(metric in subsets[band].values for band, metric in columns)
        ]

    def measured_on(self) -> str:
        """Describe the measured documents, in words."""
        return (
            f"{self.num_documents:,} documents ({self.num_documents_without_labels:,} without a "
            f"label), {self.num_labels:,} labels, {self.num_training_documents:,} training "
            "documents. Metrics in percent."
        )


def _bin_cells(subsets: Mapping[str, SubsetMetrics]) -> Cells:
    columns = shown_in("bands")
    header = ["training documents", "labels", "documents", "occurrences", *columns]
    rows = []
    for name in (ALL_LABELS, *FREQUENCY_BINS, TAIL_BIN):
        subset = subsets[name]
        counts = (subset.num_labels, subset.num_documents, subset.num_occurrences)
        metrics = (_percent(subset, metric) for metric in columns)
        rows.append([name, *(f"{count:,}" for count in counts), *metrics])
    return header, rows


def evaluate(
    rankings: Mapping[str, Ranking],
    truth: Float32[csr_array, "document label"],
    training_counts: Int64[np.ndarray, count],
    num_training_documents: int,
    ks: Sequence[int] = (1, 3, 5, 10),
    within: Mapping[str, Mapping[str, Ranking]] = MappingProxyType({}),
) -> Evaluation:
    """Measure each ranking against the truth.

    Args:
        rankings: By name of the scorer or baseline, one row a document, over all labels.
        truth: Ones where the document carries the label.
        training_counts: Number of training documents that carry each label.
        num_training_documents: Number of training documents.
        ks: Numbers of positions that count; each at most the width of every ranking. The tables
            show "-" for what these leave out.
        within: Rankings of the labels of one band alone, by band, then as `rankings`; of at least
            `WITHIN_K` places. Documents without a label of the band need not be ranked.
    """
    if not rankings or not ks:
        raise DataError(f"evaluation: {len(rankings)} rankings at {len(ks)} ks; give some of both")
    scorers, subsets = {}, label_subsets(training_counts)
    for scorer, ranking in rankings.items():
        try:
            joined = join_truth(ranking.labels, truth)
            measured = measure(joined, training_counts, num_training_documents, ks)
        except DataError as error:
            raise DataError(f"evaluation of {scorer!r}: {error}") from error
        for band, of_scorers in within.items():
            if scorer in of_scorers:
                weights = inverse_propensities(training_counts, num_training_documents)
                values = measure_within(of_scorers[scorer], truth, subsets[band], weights)
                measured[band] = replace(measured[band], values={**measured[band].values, **values})
        scorers[scorer] = measured
    return Evaluation(
        ks=tuple(ks),
        num_documents=joined.num_documents,
        num_documents_without_labels=joined.num_documents_without_labels,
        num_labels=joined.num_labels,
        num_training_documents=num_training_documents,
        scorers=scorers,
    )


def measure_within(
    ranking: Ranking,
    truth: Float32[csr_array, "document label"],
    is_in_band: Bool[np.ndarray, label],
    weights: Float64[np.ndarray, label],
) -> dict[str, float]:
    """Return metrics of a band's labels that are ranked among themselves.

    Returns:
        Means over the documents that carry a label of the band; nothing where none does.
    """
    kept = join_truth(ranking.labels, truth).restricted_to(is_in_band)
    if not kept.num_documents:
        return {}
    return {
        f"{at(name, k)} {WITHIN}": metric.value(kept, k, weights)
        for name, metric in METRICS.items()
        if metric.value is not None
        for k in metric.shown.get("within", ())
    }


def hierarchical_table(found: Hierarchical) -> Table:
    """Return a table with one row a scorer."""
    names = sorted(next(iter(found.values())), key=lambda name: name[:2])
    rows = [
        [scorer, *(f"{100 * values[name]:.2f}" for name in names)]
        for scorer, values in found.items()
    ]
    return Table("With the hierarchy", _HIERARCHY_NOTE, (["scorer", *names], rows), has_best=True)


def _range(least: int, greatest: int | None) -> str:
    if greatest is None:
        return f"{least} or more"
    return f"{least}" if least == greatest else f"{least}-{greatest}"


def _overall_heading(subset: str, metric: str) -> str:
    if subset == ALL_LABELS:
        return metric
    return f"zero-shot {metric}" if subset == ZERO_SHOT_BIN else f"{metric} ({subset})"


def _percent(subset: SubsetMetrics, metric: str, digits: int = 2) -> str:
    value = subset.values.get(metric)
    return NOT_MEASURED if value is None else f"{100 * value:.{digits}f}"
