"""The figures of every single label, as a table in a CSV file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from scipy.sparse import csr_array

from longtail.models.files.durable import write_lines_durably
from longtail.models.fitted.label_figures import LabelFigures
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.writing import csv_record
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.evaluation.tables import Cells
from longtail.training.fitted.fitting import AnsweredDocuments

COLUMNS = (
    "id", "name", "training_documents", "documents", "predicted", "right",
    "precision", "precision_low", "precision_high", "recall", "recall_low", "recall_high",
    "f1", "f1_low", "f1_high", "confused_with", "confused_name", "confused_documents",
)  # fmt: skip
"""Of the file. Bounds are those of Wilson's 95 % intervals."""


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
    """Measure every label of a model, and those that it lacks, as predicted from a threshold on.

    Args:
        documents: Answered by one scorer.
        threshold: Least probability of a predicted label.
    """
    is_predicted = (documents.probabilities >= threshold) & (documents.labels != NO_LABEL)
    rows, places = np.nonzero(is_predicted)
    pairs = (rows, documents.labels[rows, places])
    predicted = csr_array((np.ones(len(rows), dtype=np.int32), pairs), shape=documents.truth.shape)
    truth = (documents.truth > 0).astype(np.int32)
    right = predicted * truth
    num_true, num_predicted, num_right = (
        each.sum(axis=0).astype(np.int64) for each in (truth, predicted, right)
    )
    confused = _confusions(truth - right, predicted - right)
    return MeasuredLabels(num_true, num_predicted, num_right, *confused)


def write_per_label(path: Path, figures: MeasuredLabels, catalogue: LabelCatalogue) -> None:
    """Write a CSV file with a row for each label of the catalogue, in UTF-8.

    Args:
        path: The file.
        figures: Of the catalogue's labels, and perhaps of others, which have no row.
        catalogue: Of the model.
    """
    write_lines_durably(path, _lines(figures, catalogue))


def label_cells(figures: MeasuredLabels, catalogue: LabelCatalogue, most: int) -> Cells:
    """Return a table of the labels that most documents carry or get; shares in percent.

    Args:
        figures: As of `write_per_label`.
        catalogue: Of the model.
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
    for each in (missed, wrong):
        each.eliminate_zeros()
    both = missed.T @ wrong
    pairs = (both + both.T).tocoo()
    first, second = pairs.coords
    order = np.lexsort((second, -pairs.data, first))
    labels, places = np.unique(first[order], return_index=True)
    confused_with = np.full(missed.shape[1], NO_LABEL, dtype=np.int64)
    num_confused = np.zeros(missed.shape[1], dtype=np.int64)
    confused_with[labels] = second[order][places]
    num_confused[labels] = pairs.data[order][places]
    return confused_with, num_confused
