"""The figures of every single label, as a table in a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.files.durable import write_lines_durably
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.calibration.promises import AnsweredDocuments
from longtail.training.evaluation.wilson import wilson_bounds

COLUMNS = (
    "id", "name", "training_documents", "documents", "predicted", "right",
    "precision", "precision_low", "precision_high", "recall", "recall_low", "recall_high",
    "f1", "f1_low", "f1_high", "confused_with", "confused_name", "confused_documents",
)  # fmt: skip
"""Of the file. Bounds are those of Wilson's 95 % intervals."""
_Shares = tuple[
    Float64[np.ndarray, "label"], Float64[np.ndarray, "label"], Float64[np.ndarray, "label"]
]


@dataclass(frozen=True, slots=True)
class LabelFigures:
    """What is predicted and right of each label, by its row in the catalogue.

    Attributes:
        num_true: Documents that carry the label.
        num_predicted: Documents that it is predicted for.
        num_right: Both.
        confused_with: The label that it is confused with most often: one is predicted for a
            document that carries the other one instead; `NO_LABEL` where there is none.
        num_confused: In how many documents.
    """

    num_true: Int64[np.ndarray, label]
    num_predicted: Int64[np.ndarray, label]
    num_right: Int64[np.ndarray, label]
    confused_with: Int64[np.ndarray, label]
    num_confused: Int64[np.ndarray, label]

    def shares(self) -> dict[str, _Shares]:
        """Return precision, recall and F1, each with its bounds; nan of none.

        F1 is 2 J / (1 + J) with the share J of right ones among the documents that carry the label
        or get it, and so are its bounds.
        """
        either = self.num_true + self.num_predicted - self.num_right
        precision, recall, jaccard = (
            _bounded(self.num_right, whole) for whole in (self.num_predicted, self.num_true, either)
        )
        share, lower, upper = (2 * each / (1 + each) for each in jaccard)
        return {"precision": precision, "recall": recall, "f1": (share, lower, upper)}


def measure_labels(documents: AnsweredDocuments, threshold: float) -> LabelFigures:
    """Measure every label of a model, and those that it lacks, as predicted from a threshold on.

    Args:
        documents: Answered by one scorer.
        threshold: Least probability of a predicted label.
    """
    num_labels = documents.truth.shape[1]
    is_predicted = (documents.probabilities >= threshold) & (documents.labels != NO_LABEL)
    predicted = _matrix(documents.labels, is_predicted, num_labels)
    truth = (documents.truth > 0).astype(np.int32)
    right = predicted * truth
    confused_with, num_confused = _confusions(truth - right, predicted - right)
    num_true, num_predicted, num_right = (
        each.sum(axis=0).astype(np.int64) for each in (truth, predicted, right)
    )
    return LabelFigures(num_true, num_predicted, num_right, confused_with, num_confused)


def write_per_label(path: Path, figures: LabelFigures, catalogue: LabelCatalogue) -> None:
    """Write a CSV file with a row for each label of the catalogue, in UTF-8.

    Args:
        path: The file.
        figures: Of the catalogue's labels, and perhaps of others, which have no row.
        catalogue: Of the model.
    """
    write_lines_durably(path, _lines(figures, catalogue))


def label_cells(
    figures: LabelFigures, catalogue: LabelCatalogue, most: int
) -> tuple[list[str], list[list[str]]]:
    """Return a table of the labels that most documents carry or get; shares in percent.

    Args:
        figures: As of `write_per_label`.
        catalogue: Of the model.
        most: Rows, at most; labels that no document carries or gets have none.
    """
    num_either = (figures.num_true + figures.num_predicted - figures.num_right)[: len(catalogue)]
    order = np.argsort(-num_either, kind="stable")[:most]
    chosen = order[num_either[order] > 0].tolist()
    names = [label.name for label in catalogue]
    shares = [np.stack(three, axis=1) for three in figures.shares().values()]
    rows = []
    for row in chosen:
        counts = (figures.num_true, figures.num_predicted, figures.num_right)
        cells = [names[row], str(catalogue[row].training_count), *(str(x[row]) for x in counts)]
        cells += [_percent(*three[row].tolist()) for three in shares]
        other = int(figures.confused_with[row])
        rows.append([*cells, names[other] if 0 <= other < len(names) else ""])
    columns = ["label", "trained on", "documents", "predicted", "right"]
    return [*columns, "precision, %", "recall, %", "F1, %", "confused with"], rows


def _percent(share: float, lower: float, upper: float) -> str:
    return "" if share != share else f"{100 * share:.1f} ({100 * lower:.0f} to {100 * upper:.0f})"


def _lines(figures: LabelFigures, catalogue: LabelCatalogue) -> Iterator[str]:
    yield _line(COLUMNS)
    names = [(label.id, label.name) for label in catalogue]
    counts = np.stack([figures.num_true, figures.num_predicted, figures.num_right], axis=1)
    shares = np.stack([each for three in figures.shares().values() for each in three], axis=1)
    rows = zip(
        catalogue, counts.tolist(), shares.tolist(), figures.confused_with.tolist(),
        figures.num_confused.tolist(), strict=False,
    )  # fmt: skip
    for label, numbers, found, other, num_confused in rows:
        confused = [*names[other], num_confused] if 0 <= other < len(names) else ["", "", ""]
        shown = ["" if share != share else f"{share:.4f}" for share in found]
        yield _line([label.id, label.name, label.training_count, *numbers, *shown, *confused])


def _line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def _bounded(part: Int64[np.ndarray, label], whole: Int64[np.ndarray, label]) -> _Shares:
    """Return a share and its bounds, in the order of the columns."""
    share = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    lower, upper = (np.where(whole > 0, each, np.nan) for each in wilson_bounds(part, whole))
    return share, lower, upper


def _matrix(
    labels: Int64[np.ndarray, "document k"], is_in: Bool[np.ndarray, "document k"], width: int
) -> csr_array:
    rows, places = np.nonzero(is_in)
    ones = np.ones(len(rows), dtype=np.int32)
    return csr_array((ones, (rows, labels[rows, places])), shape=(len(labels), width))


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
