"""Figures of every single label, and rankings of the labels of a band among themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Int64
from scipy.sparse import csr_array

from longtail.models.files.durable import write_lines_durably
from longtail.models.fitted.label_figures import LabelFigures
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.filters import LabelFilter, LabelSet
from longtail.models.labels.writing import csv_record
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL, Ranking, nothing
from longtail.training.calibration.scored_pairs import Collector
from longtail.training.evaluation.by_frequency import WITHIN_K
from longtail.training.evaluation.record import Cells
from longtail.training.fitted.fitting import AnsweredDocuments

COLUMNS = (
    "id", "name", "training_documents", "documents", "predicted", "right",
    "precision", "precision_low", "precision_high", "recall", "recall_low", "recall_high",
    "f1", "f1_low", "f1_high", "confused_with", "confused_name", "confused_documents",
)  # fmt: skip
"""Columns of the file. Bounds are those of Wilson's 95 % intervals."""


@dataclass(frozen=True, slots=True)
class MeasuredLabels(LabelFigures):
    """Figures of labels, and which ones are confused.

    Attributes:
        confused_with: The label that each label is confused with most often: one is predicted for a
            document that carries the other one instead; `NO_LABEL` where there is none.
        num_confused: In how many documents.
    """

    confused_with: Int64[np.ndarray, label]
    num_confused: Int64[np.ndarray, label]


def measure_labels(documents: AnsweredDocuments, threshold: float) -> MeasuredLabels:
    """Measure every label of a model, and labels that it lacks, as predicted from a threshold on.

    Args:
        documents: Answered by one scorer.
        threshold: Least probability of a predicted label.
    """
    is_predicted = (documents.probabilities >= threshold) & (documents.labels != NO_LABEL)
    rows, ranks = np.nonzero(is_predicted)
    pairs = (rows, documents.labels[rows, ranks])
    predicted = csr_array((np.ones(len(rows), dtype=np.int32), pairs), shape=documents.truth.shape)
    truth = (documents.truth > 0).astype(np.int32)
    right = predicted * truth
    num_true, num_predicted, num_right = (
        matrix.sum(axis=0).astype(np.int64) for matrix in (truth, predicted, right)
    )
    confused = _confusions(truth - right, predicted - right)
    return MeasuredLabels(num_true, num_predicted, num_right, *confused)


def write_per_label(path: Path, figures: MeasuredLabels, catalogue: LabelCatalogue) -> None:
    """Write a CSV file with a row for each label of the catalogue, in UTF-8.

    Args:
        path: The file.
        figures: Figures of the catalogue's labels, and perhaps of others, which have no row.
        catalogue: The model's catalogue.
    """
    write_lines_durably(path, _lines(figures, catalogue))


def label_cells(figures: MeasuredLabels, catalogue: LabelCatalogue, most: int) -> Cells:
    """Return a table of the labels that most documents carry or get; shares in percent.

    Args:
        figures: As of `write_per_label`.
        catalogue: The model's catalogue.
        most: Rows, at most; labels that no document carries or gets have none.
    """
    num_either = figures.num_either[: len(catalogue)]
    order = np.argsort(-num_either, kind="stable")[:most]
    rows = []
    for label, counts, shares, other, _ in _found(figures, catalogue, order[num_either[order] > 0]):
        shown = [_percent(*shares[i : i + 3]) for i in (0, 3, 6)]
        confused = "" if other is None else other.name
        numbers = map(str, (label.training_count, *counts))
        rows.append([label.name, *numbers, *shown, confused])
    header = ["label", "trained on", "documents", "predicted", "right"]
    return [*header, "precision, %", "recall, %", "F1, %", "confused with"], rows


def _percent(share: float, lower: float, upper: float) -> str:
    return "" if share != share else f"{100 * share:.1f} ({100 * lower:.0f} to {100 * upper:.0f})"


def _lines(figures: MeasuredLabels, catalogue: LabelCatalogue) -> Iterator[str]:
    yield csv_record(COLUMNS)
    every = np.arange(len(catalogue))
    for label, counts, shares, other, num_confused in _found(figures, catalogue, every):
        shown = ["" if share != share else f"{share:.4f}" for share in shares]
        confused = ["", "", ""] if other is None else [other.id, other.name, num_confused]
        yield csv_record([label.id, label.name, label.training_count, *counts, *shown, *confused])


def _found(
    figures: MeasuredLabels, catalogue: LabelCatalogue, rows: Int64[np.ndarray, row]
) -> Iterator[tuple[Label, list[int], list[float], Label | None, int]]:
    """Yield each label, its counts and shares, and with what it is confused, how often."""
    own = figures.of_labels(rows)
    columns = (
        rows, np.stack([own.num_true, own.num_predicted, own.num_right], axis=1),
        np.hstack(list(own.shares().values())), figures.confused_with[rows],
        figures.num_confused[rows],
    )  # fmt: skip
    for row, counts, shares, other, number in zip(*(x.tolist() for x in columns), strict=True):
        is_known = 0 <= other < len(catalogue)
        yield catalogue[row], counts, shares, catalogue[other] if is_known else None, number


def _confusions(
    missed: csr_array, wrong: csr_array
) -> tuple[Int64[np.ndarray, label], Int64[np.ndarray, label]]:
    """Return the label that each one is confused with most often, and in how many documents.

    Args:
        missed: Ones where a document carries a label that is not predicted.
        wrong: Ones where a label is predicted that the document does not carry.
    """
    for matrix in (missed, wrong):
        matrix.eliminate_zeros()
    both = missed.T @ wrong
    pairs = (both + both.T).tocoo()
    first, second = pairs.coords
    order = np.lexsort((second, -pairs.data, first))
    labels, starts = np.unique(first[order], return_index=True)
    confused_with = np.full(missed.shape[1], NO_LABEL, dtype=np.int64)
    num_confused = np.zeros(missed.shape[1], dtype=np.int64)
    confused_with[labels] = second[order][starts]
    num_confused[labels] = pairs.data[order][starts]
    return confused_with, num_confused


class GroupCollector(Collector):
    """Ranks each group's labels for the documents that carry one.

    Attributes:
        rankings: By group, then by the name of the row; of documents without a label of the group
            empty.
    """

    def __init__(
        self,
        predictor: Predictor,
        rows: Mapping[str, RankingOptions],
        truth: Float32[csr_array, "document label_or_unseen"],
        groups: Mapping[str, Bool[np.ndarray, label_or_unseen]],
    ) -> None:
        """Start without documents.

        Args:
            predictor: The model.
            rows: What is ranked by, by name.
            truth: The labels of all documents; those that the model lacks after all others.
            groups: Which labels each group has, such as those of a band.
        """
        self._predictor, self._rows, self._truth, self._num_seen = predictor, rows, truth, 0
        ids = np.array([label.id for label in predictor.catalogue], dtype=object)
        self._is_in = {group: is_in.astype(np.float32) for group, is_in in groups.items()}
        known = {group: ids[is_in[: len(ids)]] for group, is_in in groups.items()}
        self._filters = {
            group: LabelFilter(include_set=LabelSet(group, tuple(of_group)))
            for group, of_group in known.items()
            if len(of_group)
        }
        self.rankings: dict[str, dict[str, Ranking]] = {
            group: {name: nothing(truth.shape[0], WITHIN_K) for name in rows} for group in groups
        }

    def _note(self, batch: TextBatch) -> None:
        start, self._num_seen = self._num_seen, self._num_seen + len(batch.texts)
        truth = self._truth[start : self._num_seen]
        for group in self._filters:
            documents = np.flatnonzero(truth @ self._is_in[group])
            if len(documents):
                self._rank(batch.take(documents.tolist()), group, start + documents)

    def _rank(self, batch: TextBatch, group: str, documents: Int64[np.ndarray, document]) -> None:
        k = min(WITHIN_K, len(self._predictor.catalogue))
        for name, options in self._rows.items():
            of_group = replace(options, k=k, label_filter=self._filters[group])
            found = self._predictor.rank(batch, of_group)
            self.rankings[group][name].labels[documents, :k] = found.labels
